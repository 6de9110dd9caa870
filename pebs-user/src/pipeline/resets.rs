//! Reset values over time.

use crate::estimate::{Events, FunctionEstimate, Series};
use crate::units::{EventId, TraceNs};

/// Maximum number of changes kept per event. Beyond that the oldest are dropped, and earlier samples count with the
/// oldest known value.
const KEPT: usize = 4096;

/// Reset values of one event, each with the time from which it was in force, sorted by time. Never empty.
#[derive(Clone, Debug)]
struct Line(Vec<(TraceNs, u64)>);

impl Line {
    /// Index of the reset value in force at a time.
    fn index(&self, time: TraceNs) -> usize {
        let after = self.0.partition_point(|(since, _)| *since <= time);
        after.saturating_sub(1)
    }
}

/// The reset values of all events over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Resets(Vec<Line>);

impl Resets {
    /// The reset values at the begin of the trace, by event.
    pub(super) fn new(resets: &[u64]) -> Self {
        let line = |reset: &u64| Line(vec![(TraceNs(i64::MIN), *reset)]);
        Self(resets.iter().map(line).collect())
    }

    /// Sets an event's reset value from `time` on, which is not before its last change.
    pub(super) fn change(&mut self, event: EventId, time: TraceNs, reset: u64) {
        if let Some(Line(line)) = self.0.get_mut(usize::from(event.0)) {
            line.push((time, reset));
            if line.len() > KEPT {
                line.drain(..KEPT / 2);
            }
        }
    }

    /// The reset value from `time` until now: the events that one sample stands for; `None` if it changed since. 1 for
    /// an unknown event.
    #[inline]
    pub(super) fn since(&self, event: EventId, time: TraceNs) -> Option<u64> {
        let Some(Line(line)) = self.0.get(usize::from(event.0)) else {
            return Some(1);
        };
        let (since, reset) = line[line.len() - 1];
        (time >= since).then_some(reset)
    }

    /// Number of events that samples stand for: each for the reset value at its time.
    ///
    /// `samples`: their number, within `first..=last`; `times` returns their times, and is called only if the reset
    /// value changed in between. Samples of an unknown event count 1.
    #[inline]
    pub(super) fn events<I: Iterator<Item = TraceNs>>(
        &self,
        event: EventId,
        samples: u32,
        first: TraceNs,
        last: TraceNs,
        times: impl FnOnce() -> I,
    ) -> u64 {
        if let Some(reset) = self.since(event, first) {
            return u64::from(samples) * reset;
        }
        let Some(line) = self.0.get(usize::from(event.0)) else {
            return u64::from(samples);
        };
        let index = line.index(first);
        if line.index(last) == index {
            return u64::from(samples) * line.0[index].1;
        }
        times().map(|time| line.0[line.index(time)].1).sum()
    }

    /// Number of events that each sample stands for, where it is the same for all: usually.
    #[inline]
    pub(super) fn of_all(&self, series: &Series<'_>) -> Option<u64> {
        match (series.events, series.times.first()) {
            (Events::All(event), Some(first)) => self.since(event, *first),
            _ => None,
        }
    }

    /// Appends the number of events that the samples of each function stand for, of those in `series`.
    #[inline]
    pub(super) fn events_of(
        &self,
        series: &Series<'_>,
        functions: &[FunctionEstimate],
        events: &mut Vec<u64>,
    ) {
        match self.of_all(series) {
            Some(reset) => events.extend(functions.iter().map(|it| u64::from(it.samples) * reset)),
            None => events.extend(functions.iter().map(|it| {
                let times = || series.times_of(it.function, it.event);
                self.events(it.event, it.samples, it.first, it.last, times)
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: EventId = EventId(0);

    fn events(resets: &Resets, times: &[i64]) -> u64 {
        let at = |n: usize| TraceNs(times[n]);
        let (samples, last) = (times.len() as u32, at(times.len() - 1));
        resets.events(CLOCK, samples, at(0), last, || {
            times.iter().copied().map(TraceNs)
        })
    }

    /// A sample counts with the reset value at its time, whatever came later.
    #[test]
    fn in_force_at_its_time() {
        let mut resets = Resets::new(&[10, 7]);
        assert_eq!(events(&resets, &[0, 50, 99]), 30);
        resets.change(CLOCK, TraceNs(100), 40);
        assert_eq!(events(&resets, &[0, 50, 99]), 30);
        assert_eq!(events(&resets, &[100, 200]), 80);
        assert_eq!(events(&resets, &[0, 99, 100]), 60);
        resets.change(CLOCK, TraceNs(150), 10);
        assert_eq!(events(&resets, &[0, 149, 150]), 60);
        // Equal at both ends, different in between.
        assert_eq!(events(&resets, &[0, 120, 150]), 60);
        assert_eq!(events(&resets, &[160]), 10);
        let times = std::iter::empty;
        let (first, last) = (TraceNs(0), TraceNs(200));
        assert_eq!(resets.events(EventId(1), 3, first, last, times), 21);
        assert_eq!(resets.events(EventId(9), 3, first, last, times), 3);
    }

    /// Memory is bounded, and the recent past is exact.
    #[test]
    fn many_changes() {
        let mut resets = Resets::new(&[1]);
        for n in 0..3 * KEPT as i64 {
            resets.change(CLOCK, TraceNs(n), n as u64);
        }
        assert!(resets.0[0].0.len() <= KEPT);
        assert_eq!(events(&resets, &[3 * KEPT as i64 - 2]), 3 * KEPT as u64 - 2);
    }
}
