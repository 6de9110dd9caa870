//! Counts of events, row by row: rows are intervals of time or items.

use std::ops::Range;

/// The counts of one event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// As the tool that counted calls it.
    pub name: String,
    /// A value a row, scaled to the whole row; NaN: not counted.
    pub counts: Vec<f64>,
    /// The share of each row in which the event was counted, 0..1; empty: not known.
    pub running: Vec<f32>,
}

impl Event {
    /// The share of a row in which the event was counted.
    #[must_use]
    pub fn share(&self, row: usize) -> Option<f64> {
        self.running.get(row).map(|&share| f64::from(share))
    }

    /// Whether the count of a row is a count, not an estimate from a part of it.
    #[must_use]
    pub fn is_whole(&self, row: usize) -> bool {
        self.share(row).is_some_and(|share| share >= WHOLE)
    }
}

/// Least share at which a row counts as counted throughout: the tools round to 0.01 %.
pub(crate) const WHOLE: f64 = 0.999;

/// Rows that follow one another in time: those of a thread, a CPU, a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// What tells it from others (`CPU0`, `bash-4711`); empty if there is one only.
    pub name: String,
    pub rows: Range<usize>,
}

/// Counts of several events over the same rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Every one has a value for each row.
    pub events: Vec<Event>,
    /// Together all rows, in order.
    pub segments: Vec<Segment>,
    /// Names of the rows, where they have any: ids of items, times of intervals.
    pub labels: Vec<String>,
}

impl Series {
    /// Series of one segment.
    #[must_use]
    pub fn of(events: Vec<Event>) -> Self {
        let rows = events.first().map_or(0, |event| event.counts.len());
        Self {
            events,
            segments: vec![Segment {
                name: String::new(),
                rows: 0..rows,
            }],
            labels: Vec::new(),
        }
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.events.first().map_or(0, |event| event.counts.len())
    }

    /// The event with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|event| event.name == name)
    }

    /// What a row is called: its label, or its number.
    #[must_use]
    pub fn label(&self, row: usize) -> String {
        self.labels
            .get(row)
            .cloned()
            .unwrap_or_else(|| row.to_string())
    }
}
