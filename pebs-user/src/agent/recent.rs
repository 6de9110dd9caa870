//! Durations of the last minute's items, and when they are worth a snapshot.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::estimate::sketch::Sketch;

/// Length of the time that is looked back on.
const WINDOW: Duration = Duration::from_mins(1);

/// Between two states that are kept.
const STEP: Duration = Duration::from_secs(5);

/// Items of the last minute from which on a quantile of theirs is a reason to act.
const LEAST_ITEMS: u64 = 100;

/// A limit that was exceeded counts again once the value was below this share of it.
const CALM: f64 = 0.8;

/// The distribution of the last minute.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Earlier states.
    states: VecDeque<(Instant, Sketch)>,
    last: Sketch,
}

impl Recent {
    /// Takes the distribution of all items so far.
    pub(super) fn push(&mut self, now: Instant, all: Sketch) {
        let is_due = |(then, _): &(Instant, Sketch)| now - *then >= STEP;
        if self.states.back().is_none_or(is_due) {
            self.states.push_back((now, all.clone()));
        }
        // One that is as old as the window stays.
        while self
            .states
            .get(1)
            .is_some_and(|(then, _)| now - *then >= WINDOW)
        {
            self.states.pop_front();
        }
        let before = self.states.front().filter(|(then, _)| *then < now);
        self.last = match before {
            Some((_, before)) => all.since(before),
            None => Sketch::default(),
        };
    }

    /// A quantile of the last minute, ns.
    pub(super) fn quantile(&self, share: f64) -> Option<u64> {
        self.last.quantile(share)
    }

    /// The p99 of the last minute, ns, if enough items tell it.
    pub(super) fn certain_p99(&self) -> Option<u64> {
        self.quantile(0.99)
            .filter(|_| self.last.len() >= LEAST_ITEMS)
    }
}

/// Whether a condition has just begun to hold, often enough apart.
#[derive(Debug, Default)]
pub(super) struct Trigger {
    holds: bool,
    pulled: Option<Instant>,
}

impl Trigger {
    /// Whether to act now: the value is above the limit and was not since it last was well below it, and nothing was done for
    /// `apart`.
    pub(super) fn pull(
        &mut self,
        (value, limit): (f64, f64),
        now: Instant,
        apart: Duration,
    ) -> bool {
        let held = self.holds;
        self.holds = value > limit || held && value > limit * CALM;
        let is_free = self.pulled.is_none_or(|it| now - it >= apart);
        // One that comes too soon is not made up for.
        let pulls = self.holds && !held && is_free;
        if pulls {
            self.pulled = Some(now);
        }
        pulls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::sketch::bucket;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Items of the last minute count, and no older ones.
    #[test]
    fn last_minute() {
        let (begin, mut recent, mut all) = (Instant::now(), Recent::default(), Sketch::default());
        let median = |recent: &Recent| recent.quantile(0.5).map(bucket);
        recent.push(begin, all.clone());
        assert_eq!(median(&recent), None);
        for n in 1..=60 {
            (0..10).for_each(|_| all.add(50_000));
            recent.push(begin + seconds(n), all.clone());
        }
        assert_eq!(
            (median(&recent), recent.last.len()),
            (Some(bucket(50_000)), 600)
        );
        for n in 61..=130 {
            all.add(70_000);
            recent.push(begin + seconds(n), all.clone());
        }
        assert_eq!(median(&recent), Some(bucket(70_000)));
        assert!(
            (60..=65).contains(&recent.last.len()),
            "{}",
            recent.last.len()
        );
        assert_eq!(recent.certain_p99(), None);
        assert!(recent.states.len() < 20);
    }

    /// It acts once until the value was low, and not too often.
    #[test]
    fn hysteresis() {
        let (begin, mut trigger) = (Instant::now(), Trigger::default());
        let values = [5.0, 11.0, 12.0, 9.0, 11.0, 7.0, 11.0, 7.0, 11.0];
        let pulls = values
            .iter()
            .zip(0..)
            .map(|(value, n)| trigger.pull((*value, 10.0), begin + seconds(n * 10), seconds(60)));
        let pulls: Vec<bool> = pulls.collect();
        // The second rise comes too soon after the first.
        let expected = [false, true, false, false, false, false, false, false, true];
        assert_eq!(pulls, expected);
    }
}
