//! Current speed of the machine: the time of our own code, and of a clock's interrupt.
//!
//! Machines run at different speeds at different times, most of all virtual ones with neighbours, and interrupts
//! vary more than code: beside a busy neighbour an interrupt takes twice as long as alone.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{TABLE, fastest, own_thread, spin, timed, work_for};
use crate::pmu::attr::calibrator;
use crate::pmu::open::PerfEvent;

/// Steps of the loop that measures the speed of code.
const STEPS: u64 = 30_000;

/// Work in a round with interrupts; their interval, ns; number of rounds, of which the fastest counts.
const INTERRUPTED: (Duration, u64, usize) = (Duration::from_micros(500), 20_000, 6);

/// Ratios of speeds between which a cost measured at one can be scaled to the other. A sample's program slows down
/// otherwise than the loop and the interrupt do: one with a call stack took 49 us beside a busy neighbour and 13 us
/// without, the loop 2.3 times as long.
const COMPARABLE: RangeInclusive<f64> = 0.6..=1.6;

/// Ratios of the speeds before and after a measurement during which the speed was steady.
const STEADY: RangeInclusive<f64> = 0.8..=1.25;

/// Times of known work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Speed {
    /// A loop, ns.
    pub(super) loop_ns: f64,
    /// An interrupt of `cpu-clock` without a program, ns; null if clocks are not sampled.
    pub(super) interrupt_ns: Option<f64>,
}

/// Ratio of costs to those at another speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    /// Marks, and everything else that is not an interrupt.
    pub code: f64,
    /// Samples of clocks.
    pub interrupts: f64,
}

impl Speed {
    /// Measures it, within 10 ms.
    pub(crate) fn now(interrupts: bool) -> Self {
        Self {
            loop_ns: fastest(|| timed(|| spin(STEPS, &TABLE))).as_nanos() as f64,
            interrupt_ns: interrupts.then(interrupt_ns).flatten(),
        }
    }

    /// The change since `then`; `None` if it is too large, or a speed is unknown.
    pub(super) fn since(&self, then: &Self) -> Option<Change> {
        self.change(then).filter(|it| it.is_within(COMPARABLE))
    }

    /// Whether it is nearly that of `then`.
    pub(super) fn is_near(&self, then: &Self) -> bool {
        self.change(then).is_some_and(|it| it.is_within(STEADY))
    }

    fn change(&self, then: &Self) -> Option<Change> {
        let code = self.loop_ns / then.loop_ns;
        let interrupts = match then.interrupt_ns {
            Some(then) => self.interrupt_ns? / then,
            None => code,
        };
        Some(Change { code, interrupts })
    }
}

impl Change {
    fn is_within(&self, ratios: RangeInclusive<f64>) -> bool {
        ratios.contains(&self.code) && ratios.contains(&self.interrupts)
    }
}

/// CPU time of an interrupt in a loop, ns: from the fastest rounds with and without interrupts.
fn interrupt_ns() -> Option<f64> {
    let (work, interval, rounds) = INTERRUPTED;
    let steps = work_for(work, &TABLE);
    let counter = PerfEvent::open(&calibrator(interval), own_thread(), "cpu-clock").ok()?;
    let (mut plain, mut interrupted) = (Duration::MAX, Duration::MAX);
    // Interleaved, so that a slow period affects both.
    for _ in 0..rounds {
        plain = plain.min(timed(|| spin(steps, &TABLE)));
        counter.enable().ok()?;
        interrupted = interrupted.min(timed(|| spin(steps, &TABLE)));
        counter.disable().ok()?;
    }
    let interrupts = interrupted.as_nanos() as f64 / interval as f64;
    let each = interrupted.saturating_sub(plain).as_nanos() as f64 / interrupts;
    (each > 0.0).then_some(each)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A speed compares with itself, and not with a very different or unknown one.
    #[test]
    fn compared() {
        let then = Speed {
            loop_ns: 100.0,
            interrupt_ns: Some(10_000.0),
        };
        let busy = Speed {
            loop_ns: 110.0,
            interrupt_ns: Some(15_000.0),
        };
        let change = busy.since(&then).unwrap();
        assert_eq!((change.code, change.interrupts), (1.1, 1.5));
        assert!(!busy.is_near(&then));
        assert!(then.is_near(&then));
        let unknown = Speed {
            interrupt_ns: None,
            ..then
        };
        assert_eq!(unknown.since(&then), None);
        assert_eq!(busy.since(&unknown).unwrap().interrupts, 1.1);
        let far = Speed {
            loop_ns: 200.0,
            ..then
        };
        assert_eq!(far.since(&then), None);
    }

    /// Both can be measured here.
    #[test]
    fn measured() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP not root");
            return;
        }
        let speed = Speed::now(true);
        println!("{speed:?}");
        assert!(speed.loop_ns > 0.0);
        assert!(speed.interrupt_ns.is_some_and(|ns| ns < 1e6), "{speed:?}");
    }
}
