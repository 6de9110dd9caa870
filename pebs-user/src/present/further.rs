//! Events beside times, as columns of a table.

use super::counted;
use super::human::{UNKNOWN, count, safe};
use super::table::{Cell, Column};
use crate::compare::further::FurtherEvent;

/// Characters of an event's name in a title.
const TITLE_WIDTH: usize = 20;

/// Columns of an event.
pub(crate) const COLUMNS: usize = 3;

/// The columns of these events, [`COLUMNS`] each: by its name, by a second title, and the samples where amounts are
/// estimates. They are left out where there is no room, by these ranks.
pub(crate) fn columns<'a>(
    events: &'a [FurtherEvent],
    second: &'a str,
    ranks: [u8; COLUMNS],
) -> impl Iterator<Item = Column> + 'a {
    events.iter().flat_map(move |event| {
        let first = Column::number(safe(&event.name, TITLE_WIDTH));
        let all = [first, Column::number(second), Column::number("samples")];
        let mut ranks = ranks.into_iter();
        all.map(|it| it.rank(ranks.next().unwrap_or_default()))
    })
}

/// The cells of an event: two texts and its samples.
pub(crate) fn cells(event: &FurtherEvent, two: [String; 2], samples: u64) -> [Cell; COLUMNS] {
    let [first, second] = two;
    let samples = match event.every_one {
        true => String::new(),
        false => count(samples),
    };
    [first, second, samples].map(Cell::from)
}

/// Empty cells for these events.
pub(crate) fn empty(events: &[FurtherEvent]) -> Vec<Cell> {
    (0..COLUMNS * events.len()).map(|_| "".into()).collect()
}

/// An amount of an event; a count of whole ones has no decimals.
pub(crate) fn amount(event: &FurtherEvent, value: Option<f64>) -> String {
    match value {
        None => UNKNOWN.to_owned(),
        Some(value) if !event.unit.is_time() && value.fract() == 0.0 && value.abs() < 1e3 => {
            format!("{value:.0}")
        }
        Some(value) => counted::amount(event.unit, value),
    }
}

/// Returns remarks on the amounts of these events.
pub(crate) fn notes(events: &[FurtherEvent]) -> impl Iterator<Item = String> + '_ {
    let notes = events
        .iter()
        .filter_map(|it| Some((&it.name, it.note.as_ref()?)));
    notes.map(|(name, note)| format!("{}: {note}", safe(name, TITLE_WIDTH)))
}
