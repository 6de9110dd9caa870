//! Counters that the kernel stopped because they sampled too often.
//!
//! The kernel reports the stop, but not the restart. That is at the CPU's next tick, or sooner if
//! the counter's thread is switched in. It shows in the next sample of the same event, by the same
//! thread, on the same CPU, whether the counter is per thread or per CPU.
//!
//! Assumption: without such a sample the counter restarts after the longest tick. On a CPU that
//! slept in between it may take one tick more. When a thread is brought up to a time before another
//! one's restart, the range is taken to last for the longest tick.

use crate::units::{Cpu, EventId, Tid, TraceNs};

/// Longest tick that Linux can be built with, ns. Source: `CONFIG_HZ_100`, kernel/Kconfig.hz.
pub const LONGEST_TICK_NS: i64 = 10_000_000;

/// The kernel takes a last sample together with the throttle record. On another clock it may seem to
/// come behind the record, by less than this, ns.
const TOGETHER_NS: i64 = 10_000;

/// A time range in which a counter was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// Time of the throttle record.
    pub begin: TraceNs,
    /// Time of the first sign that the counter runs again.
    pub end: TraceNs,
    pub cpu: Cpu,
    /// Thread that ran when the counter was stopped.
    pub tid: Tid,
    /// The counter's event.
    pub event: EventId,
}

/// A sample or throttle record of a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    pub time: TraceNs,
    pub cpu: Cpu,
    pub tid: Tid,
    pub event: EventId,
}

/// Counters that are stopped.
///
/// Memory: one entry per CPU and event that was stopped within the last tick.
#[derive(Debug, Default)]
pub(super) struct Throttles {
    stopped: Vec<Throttled>,
}

impl Throttles {
    /// Adds a stopped counter.
    pub(super) fn stop(&mut self, sign: Sign) {
        self.stopped.push(Throttled {
            begin: sign.time,
            end: TraceNs(sign.time.0.saturating_add(LONGEST_TICK_NS)),
            cpu: sign.cpu,
            tid: sign.tid,
            event: sign.event,
        });
    }

    /// Whether no counter is stopped.
    pub(super) const fn is_empty(&self) -> bool {
        self.stopped.is_empty()
    }

    /// Removes and returns a counter that has restarted by `time`, either shown by `sign` or because
    /// the longest tick is over. Call it until it returns `None`.
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

    /// Whether a stopped counter's range overlaps `[begin, end]`.
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

    /// The range ends at the next sample of the same thread on the same CPU; not at another
    /// thread's, and not at the one taken together with the stop.
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
