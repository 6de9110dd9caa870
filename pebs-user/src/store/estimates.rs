//! Estimates on their way to their table, as the estimator makes them: they become columns without having been rows.

use std::ops::Range;

use crate::estimate::FunctionEstimate;

/// Rows that are worth encoding: few enough for the L1 cache.
pub(crate) const BLOCK_ROWS: usize = 128;

/// Rows whose room a block keeps though it does not need it.
const KEPT_ROWS: usize = 16 * 1024;

/// Estimates of visits. First those that are rows of `visit_functions` to be, then those of the visit at hand, of
/// which that is not known yet.
#[derive(Debug, Default)]
pub struct EstimateBlock {
    estimates: Vec<FunctionEstimate>,
    /// For each of them, the events that its samples stand for; 0: unknown.
    events: Vec<u64>,
    /// Of how many it is known that they are rows.
    rows: usize,
    /// Which visits those are of.
    visit_ids: Repeated,
    item_ids: Repeated,
}

/// The rows of a block, in columns of the same length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub estimates: &'a [FunctionEstimate],
    pub events: &'a [u64],
    pub visit_ids: &'a [u64],
    pub item_ids: &'a [u64],
}

impl EstimateBlock {
    /// Has `estimate` append the estimates of a visit, in the place of those that were at hand, unless these were
    /// kept. `events` appends for each of them the events that its samples stand for; 0: unknown.
    #[inline]
    pub fn fill(
        &mut self,
        estimate: impl FnOnce(&mut Vec<FunctionEstimate>),
        events: impl FnOnce(&[FunctionEstimate], &mut Vec<u64>),
    ) {
        self.estimates.truncate(self.rows);
        self.events.truncate(self.rows);
        estimate(&mut self.estimates);
        events(&self.estimates[self.rows..], &mut self.events);
    }

    /// The estimates of the visit at hand.
    #[must_use]
    pub fn at_hand(&self) -> &[FunctionEstimate] {
        &self.estimates[self.rows..]
    }

    /// Makes rows of them.
    #[inline]
    pub fn keep(&mut self, visit_id: u64, item_id: u64) {
        let rows = self.rows..self.estimates.len();
        self.visit_ids.set(rows.clone(), visit_id);
        self.item_ids.set(rows, item_id);
        self.rows = self.estimates.len();
    }

    /// Rows, the visit at hand aside.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// All rows.
    pub(super) fn parts(&self) -> Parts<'_> {
        Parts {
            estimates: &self.estimates[..self.rows],
            events: &self.events[..self.rows],
            visit_ids: self.visit_ids.first(self.rows),
            item_ids: self.item_ids.first(self.rows),
        }
    }

    /// Forgets all rows, and the visit at hand; keeps the room, unless that of a very large visit.
    pub fn clear(&mut self) {
        if self.estimates.len() > KEPT_ROWS {
            *self = Self::default();
        }
        self.estimates.clear();
        self.events.clear();
        self.rows = 0;
    }
}

/// Numbers that are written at once.
const AT_ONCE: usize = 8;

/// A column of numbers that are the same for the rows of a visit: a few at a time.
#[derive(Debug, Default)]
struct Repeated {
    /// As long as it ever was: what lies behind the rows is of no meaning.
    numbers: Vec<u64>,
}

impl Repeated {
    /// Gives a number to rows, which follow those that have one. May write beyond them.
    #[inline]
    fn set(&mut self, rows: Range<usize>, number: u64) {
        let end = rows.end + AT_ONCE;
        if end > self.numbers.len() {
            self.make_room(end);
        }
        let (room, _) = self.numbers[rows.start..].as_chunks_mut();
        for room in room.iter_mut().take(rows.len().div_ceil(AT_ONCE)) {
            *room = [number; AT_ONCE];
        }
    }

    #[cold]
    fn make_room(&mut self, rows: usize) {
        self.numbers.resize(rows.next_multiple_of(BLOCK_ROWS), 0);
    }

    /// The numbers of the first rows.
    fn first(&self, rows: usize) -> &[u64] {
        &self.numbers[..rows.min(self.numbers.len())]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::estimate::{Estimator, SeriesBuf, TimedSample, VisitTimeline};
    use crate::units::{EventId, FunctionId, TraceNs};

    /// Fills a block with a visit of so many functions, each with two samples.
    fn fill(block: &mut EstimateBlock, functions: u32) {
        let active = [(TraceNs(0), TraceNs(20 * i64::from(functions)))];
        let samples = (0..2 * functions).map(|n| TimedSample {
            time: TraceNs(10 * i64::from(n) + i64::from(n * n % 7)),
            function: FunctionId(n / 2),
            event: EventId(0),
        });
        let samples: SeriesBuf = samples.collect();
        let visit = VisitTimeline {
            begin: active[0].0,
            end: Some(active[0].1),
            active: &active,
            samples: samples.series(),
        };
        let estimate = |out: &mut Vec<_>| Estimator::new(&[true]).estimate(&visit, out);
        block.fill(estimate, |rows, events| {
            events.extend(rows.iter().map(|it| u64::from(it.function.0) % 3));
        });
        assert_eq!(block.at_hand().len(), functions as usize);
    }

    /// A block, and what it holds: visit, events and estimate of each row. An item has ten times its visit's number.
    pub fn visits() -> (Vec<(u64, u64, FunctionEstimate)>, EstimateBlock) {
        let (mut block, mut rows) = (EstimateBlock::default(), Vec::new());
        for (visit_id, functions) in [3, 0, 200, 5, 1, 170].into_iter().enumerate() {
            let visit_id = visit_id as u64;
            fill(&mut block, functions);
            if functions == 5 {
                continue;
            }
            let estimates = block.at_hand().iter();
            rows.extend(estimates.map(|it| (visit_id, u64::from(it.function.0) % 3, *it)));
            block.keep(visit_id, 10 * visit_id);
        }
        (rows, block)
    }

    /// Estimates that are kept are rows, each with its events and visit; of those that are not nothing is left.
    #[test]
    fn kept_and_left_out() {
        let (expected, mut block) = visits();
        let parts = block.parts();
        let visits = parts.visit_ids.iter().zip(parts.item_ids);
        let rows = visits.zip(parts.events).zip(parts.estimates);
        let rows: Vec<_> = rows
            .map(|(((visit, item), events), it)| (*visit, *item, *events, *it))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(visit, events, it)| (*visit, 10 * visit, *events, *it))
            .collect();
        assert_eq!(rows, expected);
        assert_eq!(block.rows(), rows.len());
        block.clear();
        assert_eq!((block.rows(), block.at_hand().len()), (0, 0));
    }
}
