//! Time ranges without full data, to flag the visits that overlap them.

use std::collections::VecDeque;

use crate::units::{Tid, TraceNs};

/// Ranges kept at most; beyond that the oldest two become one.
const KEPT: usize = 1024;

/// A range, the visit flag that it carries, and the thread whose records are missing; `None`: of any, as a thread whose
/// switch is among them may have been anywhere.
type Range = (TraceNs, TraceNs, u32, Option<Tid>);

/// Loss ranges in order of their end.
#[derive(Debug, Default)]
pub struct LossRanges {
    ranges: VecDeque<Range>,
}

impl LossRanges {
    /// Adds a range that carries a visit flag. Cost: the ranges that end later.
    pub fn add(&mut self, begin: TraceNs, end: TraceNs, flag: u32, of: Option<Tid>) {
        let ends_later = |range: &&Range| range.1 > end;
        let later = self.ranges.iter().rev().take_while(ends_later).count();
        let at = self.ranges.len() - later;
        if let Some(before) = at.checked_sub(1).and_then(|n| self.ranges.get_mut(n))
            && begin <= before.1
            && (before.2, before.3) == (flag, of)
        {
            before.0 = before.0.min(begin);
            before.1 = end;
            return;
        }
        self.ranges.insert(at, (begin, end, flag, of));
        if self.ranges.len() > KEPT
            && let Some(oldest) = self.ranges.pop_front()
            && let Some(next) = self.ranges.front_mut()
        {
            next.0 = oldest.0.min(next.0);
            next.2 |= oldest.2;
            next.3 = next.3.filter(|tid| oldest.3 == Some(*tid));
        }
    }

    /// Whether nothing was lost so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Flags of all ranges of a thread that overlap `[begin, end]`. Cost: the ranges since `begin`.
    #[must_use]
    pub fn flags(&self, begin: TraceNs, end: TraceNs, tid: Tid) -> u32 {
        self.ranges
            .iter()
            .rev()
            .take_while(|range| range.1 >= begin)
            .filter(|range| range.0 <= end && range.3.is_none_or(|of| of == tid))
            .fold(0, |flags, range| flags | range.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Tid = Tid(1);

    /// Overlap counts at both ends; ranges that were merged to save room still cover all they did.
    #[test]
    fn overlap() {
        let mut losses = LossRanges::default();
        losses.add(TraceNs(10), TraceNs(20), 1, None);
        losses.add(TraceNs(30), TraceNs(40), 2, None);
        assert_eq!(losses.flags(TraceNs(0), TraceNs(9), ONE), 0);
        assert_eq!(losses.flags(TraceNs(0), TraceNs(10), ONE), 1);
        assert_eq!(losses.flags(TraceNs(20), TraceNs(30), ONE), 3);
        assert_eq!(losses.flags(TraceNs(41), TraceNs(50), ONE), 0);
        for n in 0..2 * KEPT as i64 {
            losses.add(TraceNs(100 + n * 10), TraceNs(101 + n * 10), 1, None);
        }
        assert_eq!(losses.flags(TraceNs(15), TraceNs(16), ONE), 3);
        assert!(losses.ranges.len() <= KEPT);
    }

    /// A range that ends before one that is known already hides neither.
    #[test]
    fn out_of_order() {
        let mut losses = LossRanges::default();
        losses.add(TraceNs(60), TraceNs(100), 1, None);
        losses.add(TraceNs(10), TraceNs(50), 2, None);
        losses.add(TraceNs(40), TraceNs(70), 2, None);
        assert_eq!(losses.flags(TraceNs(80), TraceNs(90), ONE), 1);
        assert_eq!(losses.flags(TraceNs(55), TraceNs(58), ONE), 2);
        assert_eq!(losses.flags(TraceNs(65), TraceNs(90), ONE), 3);
        assert_eq!(losses.flags(TraceNs(0), TraceNs(9), ONE), 0);
    }

    /// What is missing of one thread flags no other's visits, until there are too many ranges to tell.
    #[test]
    fn of_a_thread() {
        let mut losses = LossRanges::default();
        losses.add(TraceNs(10), TraceNs(20), 1, Some(ONE));
        losses.add(TraceNs(15), TraceNs(20), 1, Some(Tid(2)));
        losses.add(TraceNs(30), TraceNs(40), 2, None);
        let flags =
            |losses: &LossRanges, tid, end| losses.flags(TraceNs(0), TraceNs(end), Tid(tid));
        assert_eq!([1, 2, 3].map(|tid| flags(&losses, tid, 50)), [3, 3, 2]);
        assert_eq!([1, 2, 3].map(|tid| flags(&losses, tid, 12)), [1, 0, 0]);
        for n in 0..KEPT as i64 {
            losses.add(TraceNs(100 + n * 10), TraceNs(101 + n * 10), 4, Some(ONE));
        }
        assert_eq!(flags(&losses, 3, 50), 7, "too many to tell");
    }
}
