//! Estimates on their way to their table, as the estimator makes them: they become columns without having been rows.

use crate::analysis::estimate::FunctionEstimate;

/// Rows that are worth encoding: few enough for the L1 cache.
pub const BLOCK_ROWS: usize = 128;

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
    /// Which visits they are of.
    visits: Vec<OfVisit>,
}

/// What the rows of a visit have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfVisit {
    pub visit_id: u64,
    pub item_id: u64,
    pub rows: usize,
}

impl EstimateBlock {
    /// Has `estimate` append the estimates of a visit, in the place of those that were at hand, unless these were
    /// kept. `events`: the events that the samples of one stand for; 0: unknown.
    #[inline]
    pub fn fill(
        &mut self,
        estimate: impl FnOnce(&mut Vec<FunctionEstimate>),
        events: impl FnMut(&FunctionEstimate) -> u64,
    ) {
        self.estimates.truncate(self.rows);
        self.events.truncate(self.rows);
        estimate(&mut self.estimates);
        self.events
            .extend(self.estimates[self.rows..].iter().map(events));
    }

    /// The estimates of the visit at hand.
    #[must_use]
    pub fn at_hand(&self) -> &[FunctionEstimate] {
        &self.estimates[self.rows..]
    }

    /// Makes rows of them.
    #[inline]
    pub fn keep(&mut self, visit_id: u64, item_id: u64) {
        self.visits.push(OfVisit {
            visit_id,
            item_id,
            rows: self.estimates.len() - self.rows,
        });
        self.rows = self.estimates.len();
    }

    /// Rows, the visit at hand aside.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// All rows, with the events of each.
    pub(super) fn parts(&self) -> (&[FunctionEstimate], &[u64], &[OfVisit]) {
        (
            &self.estimates[..self.rows],
            &self.events[..self.rows],
            &self.visits,
        )
    }

    /// Forgets all rows, and the visit at hand; keeps the room, unless that of a very large visit.
    pub fn clear(&mut self) {
        if self.estimates.len() > KEPT_ROWS {
            *self = Self::default();
        }
        self.estimates.clear();
        self.events.clear();
        self.visits.clear();
        self.rows = 0;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::analysis::estimate::{Estimator, SeriesBuf, TimedSample, VisitTimeline};
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
        block.fill(estimate, |it| u64::from(it.function.0) % 3);
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
        let (estimates, events, visits) = block.parts();
        let of_visit = |it: &OfVisit| vec![(it.visit_id, it.item_id); it.rows];
        let visits = visits.iter().flat_map(of_visit);
        let rows = visits.zip(events).zip(estimates);
        let rows: Vec<_> = rows
            .map(|(((visit, item), events), it)| (visit, item, *events, *it))
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
