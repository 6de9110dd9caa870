//! Actions of keys: a state machine without a terminal.

use super::data::{Data, Item};
use crate::compare::classes::RankBy;

/// Items that a page up or down skips.
const PAGE: usize = 20;

/// Characters of a text to look for, at most.
const LONGEST_TEXT: usize = 200;

/// A key that means something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Up,
    Down,
    /// To the item before.
    Left,
    /// To the item after.
    Right,
    PageUp,
    PageDown,
    /// To the first.
    Home,
    /// To the last.
    End,
    /// Open, or accept.
    Enter,
    /// Back.
    Esc,
    /// Delete a character, or back.
    Backspace,
    /// Ctrl-C: quits, wherever it is typed.
    Interrupt,
    /// A character.
    Char(char),
}

/// Sort order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Duration, the longest first.
    #[default]
    Duration,
    /// Time on the CPU, the longest first, unknown last.
    OnCpu,
    /// Item id, rising.
    ItemId,
    /// Begin, rising.
    Begin,
}

impl Sort {
    /// The order that comes after this one.
    const fn next(self) -> Self {
        match self {
            Self::Duration => Self::OnCpu,
            Self::OnCpu => Self::ItemId,
            Self::ItemId => Self::Begin,
            Self::Begin => Self::Duration,
        }
    }

    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Duration => "duration",
            Self::OnCpu => "time on the CPU",
            Self::ItemId => "item id",
            Self::Begin => "begin",
        }
    }

    fn compare(self, a: &Item, b: &Item) -> std::cmp::Ordering {
        let (a, b) = (&a.visit, &b.visit);
        let order = match self {
            Self::Duration => b.took_ns().cmp(&a.took_ns()),
            Self::OnCpu => b.oncpu_ns.cmp(&a.oncpu_ns),
            Self::ItemId => a.item_id.cmp(&b.item_id),
            Self::Begin => a.begin_ns.cmp(&b.begin_ns),
        };
        order.then(a.visit_id.cmp(&b.visit_id))
    }
}

/// Content of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Page {
    /// Items.
    #[default]
    List,
    /// The selected item, scrolled down by this many lines.
    Item(usize),
}

/// Content and position of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Content of the screen.
    pub page: Page,
    /// Whether help is shown over it.
    pub is_help: bool,
    /// Order of the list.
    pub sort: Sort,
    /// Whether the order is turned round.
    pub is_reversed: bool,
    /// Only the items of this group.
    pub group: Option<usize>,
    /// Lists only items whose arguments contain this text, ignoring case.
    pub text: String,
    /// Whether keys are being added to the text.
    pub is_typing: bool,
    /// Items that are listed, as indices into [`Data::items`].
    pub rows: Vec<usize>,
    /// The row selected.
    pub selected: usize,
    /// Whether the user has had enough.
    pub is_ended: bool,
}

impl State {
    /// The list of all items, the slowest first.
    #[must_use]
    pub(crate) fn new(data: &Data) -> Self {
        let mut state = Self {
            sort: match data.by {
                RankBy::Duration => Sort::Duration,
                RankBy::CpuTime => Sort::OnCpu,
            },
            ..Self::default()
        };
        state.list(data);
        state
    }

    /// The selected item; `None` if the list is empty.
    #[must_use]
    pub(crate) fn item<'a>(&self, data: &'a Data) -> Option<&'a Item> {
        self.rows
            .get(self.selected)
            .map(|index| &data.items[*index])
    }

    /// Executes a key.
    pub(crate) fn press(&mut self, key: Key, data: &Data) {
        match key {
            Key::Interrupt => self.is_ended = true,
            // Any key closes the help.
            _ if self.is_help => self.is_help = false,
            _ if self.is_typing => self.type_text(key, data),
            Key::Char('q') => self.is_ended = true,
            Key::Char('?') => self.is_help = true,
            _ => match self.page {
                Page::List => self.press_in_list(key, data),
                Page::Item(line) => self.press_in_item(key, line),
            },
        }
    }

    fn type_text(&mut self, key: Key, data: &Data) {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Esc => {
                self.is_typing = false;
                self.text.clear();
            }
            Key::Backspace => {
                self.text.pop();
            }
            Key::Char(c) if self.text.chars().count() < LONGEST_TEXT => self.text.push(c),
            _ => self.step(key),
        }
        self.list(data);
    }

    fn press_in_list(&mut self, key: Key, data: &Data) {
        match key {
            Key::Enter | Key::Right if !self.rows.is_empty() => self.page = Page::Item(0),
            Key::Esc => {
                self.text.clear();
                self.group = None;
            }
            Key::Char('/') => self.is_typing = true,
            Key::Char('s') => {
                self.sort = self.sort.next();
                self.is_reversed = false;
            }
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Char('p') => {
                let next = self.group.map_or(0, |group| group + 1);
                self.group = (next < data.groups.len()).then_some(next);
            }
            _ => return self.step(key),
        }
        self.list(data);
    }

    fn press_in_item(&mut self, key: Key, line: usize) {
        self.page = match key {
            Key::Esc | Key::Backspace => Page::List,
            Key::Left => {
                self.step(Key::Up);
                Page::Item(0)
            }
            Key::Right => {
                self.step(Key::Down);
                Page::Item(0)
            }
            _ => Page::Item(moved(line, key, usize::MAX)),
        };
    }

    /// Switches to newer data of the same trace; the selected item stays selected, if it still exists.
    pub(crate) fn renew(&mut self, before: &Data, data: &Data) {
        let probe = |group: usize| before.groups[group].report.probe_id;
        self.group = self.group.and_then(|group| {
            let mut groups = data.groups.iter();
            groups.position(|it| it.report.probe_id == probe(group))
        });
        let visit = self.item(before).map(|item| item.visit.visit_id);
        let is_same = |item: &Item| Some(item.visit.visit_id) == visit;
        let item = data.items.iter().position(is_same);
        if item.is_none() {
            self.page = Page::List;
        }
        // Its old position is dropped with the rows.
        self.rows.clear();
        self.rows.extend(item);
        self.selected = 0;
        self.list(data);
    }

    fn step(&mut self, key: Key) {
        self.selected = moved(self.selected, key, self.rows.len().saturating_sub(1));
    }

    /// Rebuilds the list, and keeps the selected item if it is still there.
    fn list(&mut self, data: &Data) {
        let before = self.rows.get(self.selected).copied();
        let text = self.text.to_lowercase();
        let wanted = |item: &Item| {
            self.group.is_none_or(|group| group == item.group)
                && (text.is_empty() || item.args.to_lowercase().contains(&text))
        };
        let mut rows: Vec<usize> = (0..data.items.len())
            .filter(|index| wanted(&data.items[*index]))
            .collect();
        rows.sort_by(|a, b| self.sort.compare(&data.items[*a], &data.items[*b]));
        if self.is_reversed {
            rows.reverse();
        }
        let place = rows.iter().position(|index| Some(*index) == before);
        self.selected = place.unwrap_or(0);
        self.rows = rows;
    }

    /// Limits scrolling to the lines of an item that there are.
    pub(crate) fn hold(&mut self, most: usize) {
        if let Page::Item(line) = &mut self.page {
            *line = (*line).min(most);
        }
    }
}

/// A place among `last` + 1 after a key.
fn moved(place: usize, key: Key, last: usize) -> usize {
    let place = match key {
        Key::Up | Key::Char('k') => place.saturating_sub(1),
        Key::Down | Key::Char('j') => place.saturating_add(1),
        Key::PageUp => place.saturating_sub(PAGE),
        Key::PageDown => place.saturating_add(PAGE),
        Key::Home | Key::Char('g') => 0,
        Key::End | Key::Char('G') => last,
        _ => place,
    };
    place.min(last)
}
