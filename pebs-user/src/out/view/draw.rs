//! Contents of the screen: a function of data and state, without a terminal.

mod bars;
mod item;
mod list;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::data::Data;
use super::state::{Page, State};
use crate::present::human::safe;

/// Least height of a screen with a histogram, lines.
const ROOM_FOR_BARS: u16 = 20;

/// Keys and their actions, in pairs.
const HELP: [(&str, &str); 14] = [
    (
        "up, down, j, k",
        "the item above, below; in an item: scroll",
    ),
    ("page up, page down", "20 items or lines"),
    ("home, end, g, G", "the first, the last"),
    ("enter", "look at the item"),
    (
        "left, right",
        "in an item: the one before, after it in the list",
    ),
    ("esc", "back to the list; in the list: drop the filters"),
    ("s", "sort by duration, time on the CPU, item id, begin"),
    ("r", "turn the order round"),
    ("p", "items of one probe, the next one, all"),
    ("/", "items whose arguments hold a text"),
    ("?", "this help; any key closes it"),
    ("q, ctrl-c", "quit"),
    ("", ""),
    (
        "",
        "Typical items are those at or below the median of their probe.",
    ),
];

/// Draws the whole screen; returns the number of lines of an item that can be scrolled down.
pub(crate) fn screen(frame: &mut Frame<'_>, data: &Data, state: &State) -> usize {
    let bars = if frame.area().height >= ROOM_FOR_BARS {
        bars::LINES
    } else {
        0
    };
    let parts = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(bars),
        Constraint::Length(1),
    ];
    let [title, body, below, keys] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(heading(data), title);
    if state.is_help {
        frame.render_widget(Paragraph::new(help()), body);
        frame.render_widget(Line::raw(" any key closes the help"), keys);
        return 0;
    }
    let (lines, most) = match state.page {
        Page::List => (list::lines(data, state, body), 0),
        Page::Item(line) => scrolled(item::lines(data, state, body.width), line, body),
    };
    frame.render_widget(Paragraph::new(lines), body);
    if let Some(item) = state.item(data) {
        bars::draw(frame, below, data, item);
    }
    let keys_of_page = match state.page {
        Page::List if state.is_typing => " type a text  enter keep it  esc drop it",
        Page::List => " enter look  s sort  r reverse  p probe  / filter  ? help  q quit",
        Page::Item(_) => " esc back  left, right next item  up, down scroll  ? help  q quit",
    };
    frame.render_widget(Line::styled(keys_of_page, dim()), keys);
    most
}

fn heading(data: &Data) -> Line<'static> {
    let event = data.event.as_ref();
    let event = event.map_or_else(String::new, |event| format!("  {}", safe(&event.name, 40)));
    let text = format!(" pebs-trace view  {}{event}", data.trace);
    Line::styled(text, bold())
}

fn help() -> Vec<Line<'static>> {
    let lines = HELP
        .iter()
        .map(|(keys, what)| Line::raw(format!("   {keys:<20} {what}")));
    std::iter::once(Line::raw("")).chain(lines).collect()
}

/// The lines from `first` on, and how many can be scrolled down.
fn scrolled(
    mut lines: Vec<Line<'static>>,
    first: usize,
    area: Rect,
) -> (Vec<Line<'static>>, usize) {
    let most = lines.len().saturating_sub(usize::from(area.height));
    (lines.split_off(first.min(most)), most)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn selected() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}
