//! Estimates before they are written: the estimator appends them to columns, without making rows.

use std::ops::Range;

use super::visit_block::VisitKey;
use crate::estimate::FunctionEstimate;
use crate::units::Tid;

/// Rows per encoding step: few enough for the L1 cache.
pub(crate) const BLOCK_ROWS: usize = 128;

/// Rows sorted by thread at once: 1 MiB.
pub(crate) const ORDERED_ROWS: usize = 16 * 1024;

/// Number of consecutive rows of a thread that are encoded where they lie.
const LONG_TURN: usize = BLOCK_ROWS / 2;

/// Maximum rows of unneeded memory that a block keeps.
const KEPT_ROWS: usize = 2 * ORDERED_ROWS;

/// Estimates of visits: first the rows of `visit_functions`, then the estimates of the current visit, which may
/// become rows.
#[derive(Debug, Default)]
pub struct EstimateBlock {
    estimates: Vec<FunctionEstimate>,
    /// Number of events that each estimate's samples stand for; 0: unknown.
    events: Vec<u64>,
    /// Number of estimates that are rows.
    rows: usize,
    /// Threads of the rows, and the end of each thread's rows.
    turns: Vec<(Tid, usize)>,
    /// Visits of the rows.
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

impl Parts<'_> {
    /// Some of the rows.
    fn some(&self, rows: Range<usize>) -> Self {
        Self {
            estimates: &self.estimates[rows.clone()],
            events: &self.events[rows.clone()],
            visit_ids: &self.visit_ids[rows.clone()],
            item_ids: &self.item_ids[rows],
        }
    }
}

impl EstimateBlock {
    /// Calls `estimate` to append the estimates of a visit; they replace those of the previous visit, unless those
    /// were kept. `events` appends for each the number of events that its samples stand for; 0: unknown.
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

    /// The estimates of the current visit.
    #[must_use]
    pub fn at_hand(&self) -> &[FunctionEstimate] {
        &self.estimates[self.rows..]
    }

    /// Makes rows of the current estimates.
    #[inline]
    pub(super) fn keep(&mut self, of: VisitKey) {
        let VisitKey {
            visit_id,
            item_id,
            tid,
        } = of;
        let rows = self.rows..self.estimates.len();
        match self.turns.last_mut() {
            Some((last, end)) if *last == tid => *end = rows.end,
            _ => self.turns.push((tid, rows.end)),
        }
        self.visit_ids.set(rows.clone(), visit_id);
        self.item_ids.set(rows, item_id);
        self.rows = self.estimates.len();
    }

    /// Number of rows, without the current visit.
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

    /// Passes all rows on thread by thread, in parts, like
    /// [`SampleBlock`](super::samples::SampleBlock::ordered_parts). `room` holds the current part.
    pub(super) fn ordered_parts(&self, room: &mut Self, mut take: impl FnMut(&Parts<'_>)) {
        if self.turns.is_sorted() {
            return take(&self.parts());
        }
        let mut begin = 0;
        let mut turns: Vec<_> = self
            .turns
            .iter()
            .map(|&(tid, end)| (tid, std::mem::replace(&mut begin, end)..end))
            .collect();
        turns.sort_by_key(|(tid, _)| *tid);
        let parts = self.parts();
        for (_, rows) in turns {
            if rows.len() >= LONG_TURN {
                room.hand_out(&mut take);
                take(&parts.some(rows));
                continue;
            }
            let mut rest = rows;
            while !rest.is_empty() {
                let now = rest.len().min(BLOCK_ROWS - room.rows);
                room.copy(&parts.some(rest.start..rest.start + now));
                rest.start += now;
                if room.rows == BLOCK_ROWS {
                    room.hand_out(&mut take);
                }
            }
        }
        room.hand_out(&mut take);
    }

    /// Passes all rows on, if there are any, then drops them.
    fn hand_out(&mut self, take: &mut impl FnMut(&Parts<'_>)) {
        if self.rows > 0 {
            take(&self.parts());
            self.clear();
        }
    }

    /// Appends rows of another block.
    fn copy(&mut self, from: &Parts<'_>) {
        self.estimates.extend_from_slice(from.estimates);
        self.events.extend_from_slice(from.events);
        let to = self.rows..self.estimates.len();
        self.visit_ids.copy(to.clone(), from.visit_ids);
        self.item_ids.copy(to.clone(), from.item_ids);
        self.rows = to.end;
    }

    /// Drops all rows, and the current visit; keeps the memory, unless a very large visit needed it.
    pub fn clear(&mut self) {
        if self.estimates.len() > KEPT_ROWS {
            *self = Self::default();
        }
        self.estimates.clear();
        self.events.clear();
        self.turns.clear();
        self.rows = 0;
    }
}

/// Numbers written at once.
const AT_ONCE: usize = 8;

/// A column of numbers that are equal for all rows of a visit, written a few at a time.
#[derive(Debug, Default)]
struct Repeated {
    /// Never shrinks: the content after the rows is meaningless.
    numbers: Vec<u64>,
}

impl Repeated {
    /// Sets the number of the next rows. May write beyond them.
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

    /// Sets different numbers of the next rows.
    fn copy(&mut self, rows: Range<usize>, numbers: &[u64]) {
        if rows.end > self.numbers.len() {
            self.make_room(rows.end);
        }
        self.numbers[rows].copy_from_slice(numbers);
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
    use crate::estimate::{Estimator, EventTime, SeriesBuf, TimedSample, VisitTimeline};
    use crate::units::{EventId, FunctionId, TraceNs};

    /// Fills a block with a visit of this many functions, each with two samples.
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
        let estimate = |out: &mut Vec<_>| Estimator::new(&[EventTime::Clock]).estimate(&visit, out);
        block.fill(estimate, |rows, events| {
            events.extend(rows.iter().map(|it| u64::from(it.function.0) % 3));
        });
        assert_eq!(block.at_hand().len(), functions as usize);
    }

    /// A block, and the expected visit, events and estimate of each row. An item's id is ten times its visit's
    /// number.
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
            block.keep(VisitKey {
                visit_id,
                item_id: 10 * visit_id,
                tid: Tid(9 - visit_id as u32 / 3),
            });
        }
        (rows, block)
    }

    /// Kept estimates are rows, each with its events and visit; others leave no trace.
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
        let (mut ordered, mut threads) = (Vec::new(), Vec::new());
        block.ordered_parts(&mut EstimateBlock::default(), |parts| {
            let rows = parts.visit_ids.iter().zip(parts.item_ids);
            ordered.extend(rows.zip(parts.events).zip(parts.estimates).map(
                |(((visit, item), events), it)| {
                    threads.push(9 - visit / 3);
                    (*visit, *item, *events, *it)
                },
            ));
        });
        assert!(threads.is_sorted() && !expected.is_sorted_by_key(|it| 9 - it.0 / 3));
        ordered.sort_by_key(|it| it.0);
        assert_eq!(ordered, expected);
        block.clear();
        assert_eq!((block.rows(), block.at_hand().len()), (0, 0));
    }
}
