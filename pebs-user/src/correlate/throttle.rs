//! Counters that the kernel has stopped because they came too often.
//!
//! It says when it stops one, not when that one goes on. That is at the CPU's next tick, or sooner
//! if the counter's thread is switched in. The next sample of the same event, by the same thread, on
//! the same CPU shows it, whether the counter is the thread's or the CPU's.
//!
//! Assumption: without such a sample the counter goes on after the longest tick. One of a CPU that
//! slept in between may stand still for one tick more. A thread that is brought up to a time before
//! the one that was stopped takes the range to last for the longest tick.

use crate::units::{Cpu, EventId, Tid, TraceNs};

/// The longest tick that Linux can be built with, ns. Source: `CONFIG_HZ_100`, kernel/Kconfig.hz.
pub const LONGEST_TICK_NS: i64 = 10_000_000;

/// The last sample before the counter stops is taken together with the record that says so. On
/// another clock it may seem to come behind it, by less than this, ns.
const TOGETHER_NS: i64 = 10_000;

/// A time range in which a counter stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// When it was stopped.
    pub begin: TraceNs,
    /// When it was seen to go on.
    pub end: TraceNs,
    pub cpu: Cpu,
    /// The thread that ran when it was stopped.
    pub tid: Tid,
    /// The counter's event.
    pub event: EventId,
}

/// What a record says about a counter: it takes a sample, or is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    pub time: TraceNs,
    pub cpu: Cpu,
    pub tid: Tid,
    pub event: EventId,
}

/// Counters that stand still.
///
/// Memory: one entry per CPU and event that was stopped within the last tick.
#[derive(Debug, Default)]
pub(super) struct Throttles {
    stopped: Vec<Throttled>,
}

impl Throttles {
    /// A counter stops.
    pub(super) fn stop(&mut self, sign: Sign) {
        self.stopped.push(Throttled {
            begin: sign.time,
            end: TraceNs(sign.time.0.saturating_add(LONGEST_TICK_NS)),
            cpu: sign.cpu,
            tid: sign.tid,
            event: sign.event,
        });
    }

    /// Whether none stands still.
    pub(super) const fn is_empty(&self) -> bool {
        self.stopped.is_empty()
    }

    /// A stopped counter that goes on by `time`, as `sign` says or for the tick is over. Ask until
    /// there is none.
    pub(super) fn next_over(&mut self, time: TraceNs, sign: Option<Sign>) -> Option<Throttled> {
        let goes_on = |it: &Throttled| {
            sign.is_some_and(|sign| {
                (it.cpu, it.tid, it.event) == (sign.cpu, sign.tid, sign.event)
                    && sign.time.0 - it.begin.0 > TOGETHER_NS
            })
        };
        let over = |it: &Throttled| it.end <= time || goes_on(it);
        let mut range = self
            .stopped
            .swap_remove(self.stopped.iter().position(over)?);
        range.end = range.end.min(time);
        Some(range)
    }

    /// Whether one of those that stand still does so within `[begin, end]`.
    pub(super) fn overlap(&self, begin: TraceNs, end: TraceNs) -> bool {
        let within = |it: &Throttled| it.begin <= end && begin <= it.end;
        self.stopped.iter().any(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(time: i64, tid: u32, cpu: u16) -> Sign {
        Sign {
            time: TraceNs(time),
            cpu: Cpu(cpu),
            tid: Tid(tid),
            event: EventId(0),
        }
    }

    /// The end is the next sample of the same thread on the same CPU; no other one's, and not the
    /// one that was taken together with the stop.
    #[test]
    fn ends_at_its_next_sample() {
        let mut throttles = Throttles::default();
        throttles.stop(sign(1_000_000, 7, 0));
        for other in [
            sign(1_000_500, 7, 0),
            sign(2_000_000, 8, 0),
            sign(2_000_000, 7, 1),
        ] {
            assert_eq!(throttles.next_over(other.time, Some(other)), None);
        }
        assert!(throttles.overlap(TraceNs(1_500_000), TraceNs(1_600_000)));
        assert!(!throttles.overlap(TraceNs(500_000), TraceNs(999_999)));
        let end = sign(3_000_000, 7, 0);
        let range = throttles.next_over(end.time, Some(end)).unwrap();
        assert_eq!((range.begin, range.end), (TraceNs(1_000_000), end.time));
        assert!(throttles.is_empty());
    }

    /// Without a sample it ends a tick later, whenever that is noticed.
    #[test]
    fn ends_with_the_tick() {
        let mut throttles = Throttles::default();
        throttles.stop(sign(0, 7, 0));
        throttles.stop(sign(500, 8, 1));
        assert_eq!(
            throttles.next_over(TraceNs(LONGEST_TICK_NS - 1), None),
            None
        );
        let late = TraceNs(LONGEST_TICK_NS * 5);
        let ends: Vec<i64> = std::iter::from_fn(|| throttles.next_over(late, None))
            .map(|range| range.end.0)
            .collect();
        assert_eq!(ends, [LONGEST_TICK_NS, LONGEST_TICK_NS + 500]);
    }
}
