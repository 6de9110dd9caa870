//! Counts of events, row by row: rows are intervals of time or items.

use std::ops::Range;

/// The counts of one event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// Name of the event in the tool that counted it.
    pub name: String,
    /// A value a row, scaled to the whole row; NaN: not counted.
    pub counts: Vec<f64>,
    /// Share of each row in which the event was counted, 0..1; empty: unknown.
    pub running: Vec<f32>,
}

impl Event {
    /// Share of a row in which the event was counted; `None`: unknown.
    #[must_use]
    pub fn share(&self, row: usize) -> Option<f64> {
        self.running.get(row).map(|&share| f64::from(share))
    }

    /// Whether the event was counted throughout a row, so that its count is no estimate.
    #[must_use]
    pub fn is_whole(&self, row: usize) -> bool {
        self.share(row).is_some_and(|share| share >= WHOLE)
    }
}

/// Least share that counts as counted throughout: the tools round to 0.01 %.
pub(crate) const WHOLE: f64 = 0.999;

/// Rows that follow one another in time: those of one thread, CPU or run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Distinguishing name (`CPU0`, `bash-4711`); empty if there is only one segment.
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

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.events.first().map_or(0, |event| event.counts.len())
    }

    /// The event with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|event| event.name == name)
    }

    /// Label of a row, else its number.
    #[must_use]
    pub fn label(&self, row: usize) -> String {
        self.labels
            .get(row)
            .cloned()
            .unwrap_or_else(|| row.to_string())
    }
}
