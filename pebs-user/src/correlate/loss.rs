//! Time ranges without full data, to flag the visits that overlap them.
//!
//! Records are lost on the CPU that makes them. A visit is complete all the same if its thread stayed on another CPU:
//! no record of that CPU is missing, so a switch away from it would have been seen. A thread that left its CPU may have
//! been anywhere.

use std::collections::VecDeque;

use crate::units::{Cpu, Tid, TraceNs};

/// Most ranges kept; beyond that the oldest two are merged.
const KEPT: usize = 1024;

/// A range without full data.
#[derive(Clone, Copy, Debug)]
struct Range {
    begin: TraceNs,
    end: TraceNs,
    /// Visit flag set by this range.
    flag: u32,
    scope: LossScope,
    /// Earliest begin of this range and all that end later.
    earliest: TraceNs,
}

/// The thread and CPU whose records are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossScope {
    /// The thread; `None`: any thread.
    pub tid: Option<Tid>,
    /// The CPU that would have made the records; `None`: any CPU.
    pub cpu: Option<Cpu>,
}

impl LossScope {
    /// Whether records of that visit may be missing.
    fn concerns(self, who: VisitThread) -> bool {
        let differ = |(lost, stayed)| lost != stayed;
        let meets = |(lost, tid)| lost == tid;
        self.tid.zip(who.tid).is_none_or(meets) && !self.cpu.zip(who.stayed).is_some_and(differ)
    }

    /// Smallest `LossScope` that covers both.
    fn or(self, other: Self) -> Self {
        Self {
            tid: self.tid.filter(|tid| other.tid == Some(*tid)),
            cpu: self.cpu.filter(|cpu| other.cpu == Some(*cpu)),
        }
    }
}

/// Thread and CPU of a visit.
#[derive(Clone, Copy, Debug)]
pub struct VisitThread {
    /// The thread; `None`: several.
    pub tid: Option<Tid>,
    /// The only CPU that the thread was on; `None` if it left one or that is unknown.
    pub stayed: Option<Cpu>,
}

/// Loss ranges in order of their end.
#[derive(Debug, Default)]
pub struct LossRanges {
    ranges: VecDeque<Range>,
    /// Union of the flags of all ranges ever added.
    flags: u32,
}

impl LossRanges {
    /// Adds a range that sets `flag`. Cost: the ranges that end later, or earlier but after its begin.
    pub fn add(&mut self, begin: TraceNs, end: TraceNs, flag: u32, scope: LossScope) {
        self.flags |= flag;
        let at = self.ranges.partition_point(|range| range.end <= end);
        if let Some(before) = at.checked_sub(1).and_then(|n| self.ranges.get_mut(n))
            && begin <= before.end
            && (before.flag, before.scope) == (flag, scope)
        {
            before.begin = before.begin.min(begin);
            before.end = end;
        } else {
            let later = self.ranges.get(at).map(|range| range.earliest);
            let range = Range {
                begin,
                end,
                flag,
                scope,
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
            next.scope = next.scope.or(oldest.scope);
        }
    }

    /// Flags of all ranges added so far.
    #[must_use]
    pub const fn all_flags(&self) -> u32 {
        self.flags
    }

    /// Flags of all ranges that overlap a visit `[begin, end]`. Cost: O(log ranges), plus those within.
    #[must_use]
    pub fn flags(&self, begin: TraceNs, end: TraceNs, who: VisitThread) -> u32 {
        if self.ranges.is_empty() {
            return 0;
        }
        let since = self.ranges.partition_point(|range| range.end < begin);
        self.ranges
            .range(since..)
            .take_while(|range| range.earliest <= end)
            .filter(|range| range.begin <= end && range.scope.concerns(who))
            .fold(0, |flags, range| flags | range.flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: VisitThread = VisitThread {
        tid: Some(Tid(1)),
        stayed: None,
    };

    const fn thread(tid: u32) -> LossScope {
        LossScope {
            tid: Some(Tid(tid)),
            cpu: None,
        }
    }

    const fn cpu(cpu: u16) -> LossScope {
        LossScope {
            tid: None,
            cpu: Some(Cpu(cpu)),
        }
    }

    const fn who(tid: u32, stayed: Option<u16>) -> VisitThread {
        let stayed = match stayed {
            Some(cpu) => Some(Cpu(cpu)),
            None => None,
        };
        VisitThread {
            tid: Some(Tid(tid)),
            stayed,
        }
    }

    /// A loss on one CPU doesn't flag a visit that stayed on another.
    #[test]
    fn of_a_cpu() {
        let mut losses = LossRanges::default();
        losses.add(TraceNs(10), TraceNs(20), 1, cpu(3));
        let flags = |stayed| losses.flags(TraceNs(0), TraceNs(50), who(1, stayed));
        assert_eq!([None, Some(3), Some(4)].map(flags), [1, 1, 0]);
    }

    /// A range overlaps at both of its ends; merged ranges still cover all that they did.
    #[test]
    fn overlap() {
        let mut losses = LossRanges::default();
        losses.add(TraceNs(10), TraceNs(20), 1, LossScope::default());
        losses.add(TraceNs(30), TraceNs(40), 2, LossScope::default());
        assert_eq!(losses.flags(TraceNs(0), TraceNs(9), ONE), 0);
        assert_eq!(losses.flags(TraceNs(0), TraceNs(10), ONE), 1);
        assert_eq!(losses.flags(TraceNs(20), TraceNs(30), ONE), 3);
        assert_eq!(losses.flags(TraceNs(41), TraceNs(50), ONE), 0);
        for n in 0..2 * KEPT as i64 {
            losses.add(
                TraceNs(100 + n * 10),
                TraceNs(101 + n * 10),
                1,
                LossScope::default(),
            );
        }
        assert_eq!(losses.flags(TraceNs(15), TraceNs(16), ONE), 3);
        assert!(losses.ranges.len() <= KEPT);
    }

    proptest::proptest! {
        /// The flags are those of all overlapping ranges, whatever the order in which they were added.
        #[test]
        fn as_one_by_one(
            ranges in proptest::collection::vec((0_i64..1000, 0_i64..100, 0_u32..3, 0_u32..5), 0..100),
            asked in proptest::collection::vec((0_i64..1000, 0_i64..50, 2_u16..5), 1..50),
        ) {
            let scope = |number: u32| match number {
                0 => LossScope::default(),
                1 | 2 => thread(number),
                _ => cpu(number as u16),
            };
            let mut losses = LossRanges::default();
            for (begin, len, flag, tid) in &ranges {
                losses.add(TraceNs(*begin), TraceNs(begin + len), 1 << flag, scope(*tid));
            }
            for (begin, len, stayed) in asked {
                let who = who(1, Some(stayed).filter(|cpu| *cpu > 2));
                let end = begin + len;
                let within = ranges.iter().filter(|(from, len, _, tid)| {
                    *from <= end && from + len >= begin && scope(*tid).concerns(who)
                });
                let flags = within.fold(0, |flags, (_, _, flag, _)| flags | 1 << flag);
                proptest::prop_assert_eq!(losses.flags(TraceNs(begin), TraceNs(end), who), flags);
            }
        }
    }

    /// A range that ends before a known one hides neither.
    #[test]
    fn out_of_order() {
        let mut losses = LossRanges::default();
        losses.add(TraceNs(60), TraceNs(100), 1, LossScope::default());
        losses.add(TraceNs(10), TraceNs(50), 2, LossScope::default());
        losses.add(TraceNs(40), TraceNs(70), 2, LossScope::default());
        assert_eq!(losses.flags(TraceNs(80), TraceNs(90), ONE), 1);
        assert_eq!(losses.flags(TraceNs(55), TraceNs(58), ONE), 2);
        assert_eq!(losses.flags(TraceNs(65), TraceNs(90), ONE), 3);
        assert_eq!(losses.flags(TraceNs(0), TraceNs(9), ONE), 0);
    }

    /// A loss of one thread doesn't flag another's visits, unless ranges were merged.
    #[test]
    fn of_a_thread() {
        let mut losses = LossRanges::default();
        losses.add(TraceNs(10), TraceNs(20), 1, thread(1));
        losses.add(TraceNs(15), TraceNs(20), 1, thread(2));
        losses.add(TraceNs(30), TraceNs(40), 2, LossScope::default());
        let flags =
            |losses: &LossRanges, tid, end| losses.flags(TraceNs(0), TraceNs(end), who(tid, None));
        assert_eq!([1, 2, 3].map(|tid| flags(&losses, tid, 50)), [3, 3, 2]);
        assert_eq!([1, 2, 3].map(|tid| flags(&losses, tid, 12)), [1, 0, 0]);
        for n in 0..KEPT as i64 {
            losses.add(TraceNs(100 + n * 10), TraceNs(101 + n * 10), 4, thread(1));
        }
        assert_eq!(flags(&losses, 3, 50), 7, "too many to tell");
    }
}
