//! Screens of a synthetic trace against golden text (`BLESS=1 cargo test -p pebs-trace view` rewrites it),
//! and the effects of keys on them.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::data::Data;
use super::draw;
use super::state::{Key, Page, Sort, State};
use crate::compare::losses::LossVisits;
use crate::store::fixtures::Did::{Ran, Waited};
use crate::store::fixtures::{Maker, TestTrace, VisitFixture, info};
use crate::store::schema::visit_flag;

const SPECS: [&str; 2] = [
    "/usr/bin/server:handle(n=arg2, key=str(arg1))",
    "/usr/bin/server:commit",
];

const FUNCTIONS: [(u32, &str, &str); 4] = [
    (1, "parse", "/usr/bin/server"),
    (2, "rehash\x1b[2J", "/usr/bin/server"),
    (3, "clear_page", "[kernel]"),
    (4, "fdatasync", "/lib/libc.so.6"),
];

/// 200 items of one probe, two of them slow, one with an argument of terminal escapes; 20 of another probe;
/// one that overlaps a loss.
fn server(extras: bool) -> TestTrace {
    let mut maker = Maker::new(info(&SPECS));
    maker.extras = extras;
    for i in 0..200_i64 {
        let usual = [Ran(1, 50_000 + i * 37 % 9_000), Ran(3, 21_000)];
        let mut made = VisitFixture::new(i.unsigned_abs() % 4, &format!("small:{i}"), &usual);
        if i % 100 == 50 {
            made = VisitFixture::new(9, &format!("Big:{i}\x1b]0;x\x07"), &usual);
            made.did.push(Ran(2, 300_000 + i * 100));
            made.did.push(Waited(4, "uninterruptible", 200_000));
            made.flags = visit_flag::PREEMPTED;
        }
        if i == 99 {
            made.flags = visit_flag::LOSS;
        }
        maker.visit(&made);
        if i % 10 == 0 {
            maker.visit(&VisitFixture::new(0, "", &[Ran(1, 12_000)]).probe(1));
        }
    }
    maker.finish(&FUNCTIONS)
}

fn data(slowest: usize) -> Data {
    data_with(slowest, false)
}

/// `extras`: with the data of `--with irq`.
fn data_with(slowest: usize, extras: bool) -> Data {
    let mut data = Data::read(&server(extras), (slowest, None), LossVisits::LeaveOut).unwrap();
    data.trace = "t".to_owned();
    data
}

/// The screen as text, and the number of lines left to scroll.
fn draw(data: &Data, state: &State, (width, height): (u16, u16)) -> (String, usize) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut most = 0;
    terminal
        .draw(|frame| most = draw::screen(frame, data, state))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(width.max(1))) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    (text, most)
}

fn press(state: &mut State, data: &Data, keys: &[Key]) {
    for key in keys {
        state.press(*key, data);
    }
}

fn type_text(state: &mut State, data: &Data, text: &str) {
    text.chars().for_each(|c| state.press(Key::Char(c), data));
}

#[track_caller]
fn golden(name: &str, got: &str) {
    crate::out::testing::golden("view", name, got);
}

/// The list starts with the slowest items and states what it leaves out; the selected item is marked in the
/// histogram.
#[test]
fn screen_of_list() {
    let data = data(50);
    let state = State::new(&data);
    let (text, _) = draw(&data, &state, (110, 26));
    for needed in [
        "the slowest 50 of 199 items",
        "without 1 overlapping a loss",
        "key=Big:150",
        "^",
    ] {
        assert!(text.contains(needed), "{needed} in\n{text}");
    }
    golden("list.txt", &text);
}

/// An item shows its functions with error and samples, its waits and flags, beside typical values.
#[test]
fn screen_of_item() {
    let data = data(50);
    let mut state = State::new(&data);
    press(&mut state, &data, &[Key::Enter]);
    let (text, _) = draw(&data, &state, (110, 30));
    for needed in [
        "rehash",
        "[uninterruptible] fdatasync",
        "1 wait",
        "preempted",
        "times the median of 199",
    ] {
        assert!(text.contains(needed), "{needed} in\n{text}");
    }
    golden("item.txt", &text);
}

/// Interruptions are shown beside typical values, if they were recorded; unknown is not 0.
#[test]
fn what_came_between() {
    let mut known = data_with(50, true);
    let mut state = State::new(&known);
    press(&mut state, &known, &[Key::Enter]);
    let (text, _) = draw(&known, &state, (140, 30));
    let line = text.lines().find(|line| line.contains(" between "));
    let line = line.unwrap();
    assert!(line.contains("interrupts 39.2 us (typical 7."), "{line}");
    assert!(line.contains("softirqs 0 ns (typical 0 ns)"), "{line}");
    assert!(!line.contains("fault"), "{line}");
    for item in &mut known.items {
        item.visit.row.irq_ns = None;
    }
    let (text, _) = draw(&known, &state, (140, 30));
    assert!(text.contains("interrupts - (typical 7."), "{text}");
    let (text, _) = draw(&data(50), &state, (140, 30));
    assert!(!text.contains(" between "), "{text}");
}

/// Missing marks are reported once, not for each item.
#[test]
fn no_marks() {
    let mut maker = Maker::new(info(&SPECS[1..]));
    for _ in 0..20 {
        maker.visit(
            &VisitFixture::new(0, "", &[Ran(1, 50_000)])
                .flags(visit_flag::SAMPLED_BOUNDS | visit_flag::MIGRATED),
        );
    }
    let trace = maker.finish(&FUNCTIONS);
    let data = Data::read(&trace, (10, None), LossVisits::LeaveOut).unwrap();
    let mut state = State::new(&data);
    let (list, _) = draw(&data, &state, (160, 24));
    assert_eq!(list.matches("sampled_bounds").count(), 1, "{list}");
    assert_eq!(list.matches("[migrated]").count(), 10, "{list}");
    press(&mut state, &data, &[Key::Enter]);
    let (item, _) = draw(&data, &state, (160, 24));
    assert!(
        !item.contains("sampled_bounds") && item.contains("migrated"),
        "{item}"
    );
}

/// Help covers the screen below it.
#[test]
fn screen_of_help() {
    let data = data(5);
    let mut state = State::new(&data);
    press(&mut state, &data, &[Key::Char('?')]);
    golden("help.txt", &draw(&data, &state, (80, 20)).0);
    press(&mut state, &data, &[Key::Char('q')]);
    assert!(!state.is_help && !state.is_ended, "a key closes help first");
}

/// Text of the target is escaped, and is found by its content, ignoring case.
#[test]
fn hostile_names() {
    let data = data(50);
    let mut state = State::new(&data);
    press(&mut state, &data, &[Key::Char('/')]);
    type_text(&mut state, &data, "bIG:1");
    press(&mut state, &data, &[Key::Enter, Key::Enter]);
    let (text, _) = draw(&data, &state, (140, 30));
    assert!(text.contains("key=Big:150\\u{1b}]0;x\\u{7}"), "{text}");
    assert!(text.contains("rehash\\u{1b}[2J"), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
}

/// No size of a terminal is too small to draw on.
#[test]
fn small_screens() {
    let data = data(50);
    let mut list = State::new(&data);
    list.press(Key::End, &data);
    let mut item = list.clone();
    item.press(Key::Enter, &data);
    let mut help = list.clone();
    help.press(Key::Char('?'), &data);
    for width in [1, 2, 9, 30, 79, 300] {
        for height in [1, 2, 3, 6, 19, 20, 22] {
            for state in [&list, &item, &help] {
                draw(&data, state, (width, height));
            }
        }
    }
}

/// Each order is correct, unknown times come last, and the selected item stays selected.
#[test]
fn sorting() {
    let mut data = data(50);
    data.items[7].visit.row.oncpu_ns = None;
    let mut state = State::new(&data);
    press(&mut state, &data, &[Key::Down, Key::Down]);
    let chosen = state.item(&data).unwrap().visit.visit_id;
    for sort in [Sort::OnCpu, Sort::ItemId, Sort::Begin, Sort::Duration] {
        state.press(Key::Char('s'), &data);
        assert_eq!(state.sort, sort);
        assert_eq!(state.item(&data).unwrap().visit.visit_id, chosen);
        let key = |index: &usize| {
            let visit = &data.items[*index].visit;
            match sort {
                Sort::Duration => -visit.duration_ns(),
                Sort::OnCpu => -visit.oncpu_ns.unwrap_or(0),
                Sort::ItemId => visit.item_id as i64,
                Sort::Begin => visit.begin_ns.0,
            }
        };
        assert!(state.rows.is_sorted_by_key(key), "{sort:?}");
        let before = state.rows.clone();
        state.press(Key::Char('r'), &data);
        assert!(state.rows.iter().rev().eq(&before), "{sort:?} reversed");
    }
}

/// Keys cycle through probes, a typed text narrows the list, and Esc drops both filters.
#[test]
fn filters() {
    let data = data(50);
    let mut state = State::new(&data);
    let all = state.rows.len();
    assert_eq!(all, 70, "50 of the one probe, 20 of the other");
    let mut listed = vec![];
    for _ in 0..3 {
        state.press(Key::Char('p'), &data);
        listed.push((state.group, state.rows.len()));
    }
    assert_eq!(listed, [(Some(0), 50), (Some(1), 20), (None, 70)]);
    press(&mut state, &data, &[Key::Char('p'), Key::Char('/')]);
    // Letters that are keys elsewhere are text here.
    type_text(&mut state, &data, "qs?big");
    assert_eq!(
        (state.rows.len(), state.is_ended, state.is_help),
        (0, false, false)
    );
    let (text, _) = draw(&data, &state, (80, 24));
    assert!(text.contains("no item listed has 'qs?big'"), "{text}");
    press(&mut state, &data, &[Key::Home, Key::Enter, Key::Enter]);
    assert_eq!(state.page, Page::List, "there is no item to open");
    press(&mut state, &data, &[Key::Char('/'), Key::Backspace]);
    press(&mut state, &data, &[Key::Backspace; 5]);
    type_text(&mut state, &data, "n=9");
    assert_eq!(state.rows.len(), 2);
    press(&mut state, &data, &[Key::Esc]);
    assert_eq!((state.rows.len(), state.group), (50, Some(0)));
    press(&mut state, &data, &[Key::Esc]);
    assert_eq!((state.rows.len(), state.group), (all, None));
}

/// The list is walked within its ends; an item is opened, scrolled as far as it goes, and left again.
#[test]
fn walking() {
    let data = data(50);
    let mut state = State::new(&data);
    press(&mut state, &data, &[Key::Up, Key::PageUp]);
    assert_eq!(state.selected, 0);
    press(&mut state, &data, &[Key::End, Key::Down, Key::PageDown]);
    assert_eq!(state.selected, 69);
    let (text, _) = draw(&data, &state, (110, 10));
    let last = state.item(&data).unwrap().visit.item_id.to_string();
    assert!(
        text.contains(&last),
        "the item selected is on the screen\n{text}"
    );
    press(&mut state, &data, &[Key::Home, Key::Enter, Key::End]);
    let (_, most) = draw(&data, &state, (110, 6));
    assert!(most > 0);
    state.hold(most);
    assert_eq!(state.page, Page::Item(most));
    press(&mut state, &data, &[Key::Up]);
    assert_eq!(state.page, Page::Item(most - 1));
    press(&mut state, &data, &[Key::Right]);
    assert_eq!((state.page, state.selected), (Page::Item(0), 1));
    press(&mut state, &data, &[Key::Left, Key::Left]);
    assert_eq!((state.page, state.selected), (Page::Item(0), 0));
    press(&mut state, &data, &[Key::Esc]);
    assert_eq!(state.page, Page::List);
    press(&mut state, &data, &[Key::Char('/'), Key::Interrupt]);
    assert!(state.is_ended, "Ctrl-C ends while a text is typed, too");
}

/// A trace without items is shown as such.
#[test]
fn nothing_recorded() {
    let trace = Maker::new(info(&SPECS[..1])).finish(&[]);
    let data = Data::read(&trace, (10, None), LossVisits::LeaveOut).unwrap();
    let mut state = State::new(&data);
    press(
        &mut state,
        &data,
        &[Key::Enter, Key::Down, Key::Char('p'), Key::Char('s')],
    );
    let (text, _) = draw(&data, &state, (80, 24));
    assert!(text.contains("there are no items that ended"), "{text}");
}

/// Newer data: the selected item stays selected, also if others come before it; one that is gone leaves the
/// list.
#[test]
fn newer_data() {
    let (before, mut after) = (data(100), data(100));
    let mut state = State::new(&before);
    for key in [Key::Char('p'), Key::Down, Key::Enter, Key::Down] {
        state.press(key, &before);
    }
    let looked_at = state.item(&before).unwrap().visit.visit_id;
    let mut longer = after.items[0].clone();
    longer.visit.row.visit_id = 77_777;
    longer.visit.row.duration_ns = Some(i64::MAX);
    after.items.insert(0, longer);
    state.renew(&before, &after);
    assert_eq!(state.item(&after).unwrap().visit.visit_id, looked_at);
    assert_eq!((state.page, state.group), (Page::Item(1), Some(0)));
    assert_eq!(state.selected, 2);
    let mut gone = after.clone();
    gone.items.retain(|item| item.visit.visit_id != looked_at);
    state.renew(&after, &gone);
    assert_eq!((state.page, state.selected), (Page::List, 0));
    let empty = Data {
        items: Vec::new(),
        groups: Vec::new(),
        ..gone.clone()
    };
    state.renew(&gone, &empty);
    assert!(state.item(&empty).is_none() && state.group.is_none());
    state.renew(&empty, &before);
    assert_eq!(state.rows.len(), before.items.len());
}
