//! Time ranges without full data, to flag the visits that overlap them.

use std::collections::VecDeque;

use crate::units::{Tid, TraceNs};

/// Ranges kept at most; beyond that the oldest two become one.
const KEPT: usize = 1024;

/// A range without full data.
#[derive(Clone, Copy, Debug)]
struct Range {
    begin: TraceNs,
    end: TraceNs,
    /// The visit flag that it carries.
    flag: u32,
    /// The thread whose records are missing; `None`: of any, as a thread whose switch is among them may have been
    /// anywhere.
    of: Option<Tid>,
    /// The earliest begin of this one and of those that end later.
    earliest: TraceNs,
}

/// Loss ranges in order of their end.
#[derive(Debug, Default)]
pub struct LossRanges {
    ranges: VecDeque<Range>,
    /// The flags of all ranges.
    flags: u32,
}

impl LossRanges {
    /// Adds a range that carries a visit flag. Cost: the ranges that end later, or earlier but after its begin.
    pub fn add(&mut self, begin: TraceNs, end: TraceNs, flag: u32, of: Option<Tid>) {
        self.flags |= flag;
        let at = self.ranges.partition_point(|range| range.end <= end);
        if let Some(before) = at.checked_sub(1).and_then(|n| self.ranges.get_mut(n))
            && begin <= before.end
            && (before.flag, before.of) == (flag, of)
        {
            before.begin = before.begin.min(begin);
            before.end = end;
        } else {
            let later = self.ranges.get(at).map(|range| range.earliest);
            let range = Range {
                begin,
                end,
                flag,
                of,
                earliest: later.unwrap_or(begin).min(begin),
            };
            self.ranges.insert(at, range);
        }
        let earlier = self.ranges.range_mut(..at).rev();
        for range in earlier.take_while(|range| range.earliest > begin) {
            range.earliest = begin;
        }
        if self.ranges.len() > KEPT
            && let Some(oldest) = self.ranges.pop_front()
            && let Some(next) = self.ranges.front_mut()
        {
            next.begin = oldest.begin.min(next.begin);
            next.earliest = oldest.earliest;
            next.flag |= oldest.flag;
            next.of = next.of.filter(|tid| oldest.of == Some(*tid));
        }
    }

    /// Flags of all ranges so far.
    #[must_use]
    pub const fn all_flags(&self) -> u32 {
        self.flags
    }

    /// Flags of all ranges of a thread that overlap `[begin, end]`. Cost: O(log ranges), and those within.
    #[must_use]
    pub fn flags(&self, begin: TraceNs, end: TraceNs, tid: Tid) -> u32 {
        if self.ranges.is_empty() {
            return 0;
        }
        let since = self.ranges.partition_point(|range| range.end < begin);
        self.ranges
            .range(since..)
            .take_while(|range| range.earliest <= end)
            .filter(|range| range.begin <= end && range.of.is_none_or(|of| of == tid))
            .fold(0, |flags, range| flags | range.flag)
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

    proptest::proptest! {
        /// Whatever the order in which ranges come, the flags are those of all that overlap.
        #[test]
        fn as_one_by_one(
            ranges in proptest::collection::vec((0_i64..1000, 0_i64..100, 0_u32..3, 0_u32..3), 0..100),
            asked in proptest::collection::vec((0_i64..1000, 0_i64..50), 1..50),
        ) {
            let of = |of: u32| (of > 0).then_some(Tid(of));
            let mut losses = LossRanges::default();
            for (begin, len, flag, tid) in &ranges {
                losses.add(TraceNs(*begin), TraceNs(begin + len), 1 << flag, of(*tid));
            }
            for (begin, len) in asked {
                let end = begin + len;
                let within = ranges.iter().filter(|(from, len, _, tid)| {
                    *from <= end && from + len >= begin && of(*tid).is_none_or(|of| of == ONE)
                });
                let flags = within.fold(0, |flags, (_, _, flag, _)| flags | 1 << flag);
                proptest::prop_assert_eq!(losses.flags(TraceNs(begin), TraceNs(end), ONE), flags);
            }
        }
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
