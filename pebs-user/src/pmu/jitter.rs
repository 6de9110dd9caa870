//! Distances between samples, drawn by chance around the reset value. Pure.
//!
//! Samples at equal distances beat with items at equal distances: they fall on the same places of every item, and the
//! other places seem to take no time. Marks and samples delay each other, so that such a lock holds over ranges of
//! reset values, and a little jitter doesn't break it. So distances come from a wide range, and each holds for a short
//! time only.
//!
//! A sample stands for as many events as a distance has in the mean, as in DCPI: how likely a sample is at an instant
//! doesn't depend on what the program does there. The mean is kept at the reset value by what was counted: a change of
//! the distance starts it anew, so the part that had passed is lost; and if a distance is in force for a fixed time,
//! short ones give more samples than long ones. Both are corrected by the scale of later draws.
//!
//! *Worked number*: a reset value of 50,000 with 90 % jitter, drawn twice a millisecond: distances in force are even
//! over 8,000..155,000, and there are 20 samples per million events.
//!
//! Source: Anderson et al., "Continuous profiling: where have all the cycles gone?", SOSP 1997, section 4.1.2.

use crate::pmu::attr::{EventClass, HardwareUnit, ResolvedEvent};
use crate::pmu::reset::MIN_CLOCK_NS;
use crate::rng::SplitMix64;

/// Default jitter, percent.
pub(crate) const DEFAULT_PERCENT: f64 = 90.0;

/// Largest jitter, percent: the shortest distance is not 0.
pub(crate) const MAX_PERCENT: f64 = 95.0;

/// Smallest reset value that is varied. Smaller ones are for events that are counted rather than sampled.
const LEAST: u64 = 100;

/// Shortest distance of a clock in costs of a sample. If a sample takes as long as the distance, the program stands
/// still until the next change, and all samples meanwhile are of one item.
const PROGRESS: f64 = 2.5;

/// Samples after which most of an error of the mean is corrected.
const MEMORY: f64 = 200.0;

/// Largest correction of the scale, as a factor.
const MOST: f64 = 8.0;

/// Distances of one event.
#[derive(Clone, Debug)]
pub(crate) struct Distances {
    mean: f64,
    /// Half of the range as a share of the middle.
    spread: f64,
    /// Shortest distance that the kernel keeps.
    least: u64,
    /// Distances are multiples of this.
    step: u64,
    /// Events beyond `mean` for each sample so far.
    debt: f64,
    rng: SplitMix64,
}

impl Distances {
    /// Distances of an event whose samples take `sample_ns` each; `None` if they should not or can't vary.
    pub(crate) fn of(
        event: &ResolvedEvent,
        percent: f64,
        sample_ns: f64,
        seed: u64,
    ) -> Option<Self> {
        let reset = event.reset.0.get();
        let (least, step) = match event.class {
            EventClass::Clock => (MIN_CLOCK_NS.max((PROGRESS * sample_ns) as u64), 1),
            EventClass::Hardware {
                unit: HardwareUnit::Ibs,
                ..
            } => (16 * 16, 16),
            EventClass::Hardware { .. } => (LEAST / 10, 1),
            // Each of them matters: page faults, breakpoints.
            _ => return None,
        };
        (percent > 0.0 && reset >= LEAST).then(|| Self {
            mean: reset as f64,
            spread: percent / 100.0,
            least,
            step,
            debt: 0.0,
            rng: SplitMix64::new(seed),
        })
    }

    /// Sets another mean.
    pub(crate) const fn set_mean(&mut self, reset: u64) {
        self.mean = reset as f64;
        self.debt = 0.0;
    }

    /// The next distance.
    pub(crate) fn draw(&mut self) -> u64 {
        let chance = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let scale = (-self.debt / (self.mean * MEMORY)).exp();
        let around = 1.0 + self.spread * (2.0 * chance - 1.0);
        let drawn = (self.mean * scale.clamp(1.0 / MOST, MOST) * around) as u64;
        // A reset value that is shorter still was asked for.
        let least = self.least.min(self.mean as u64);
        (drawn / self.step * self.step).max(least)
    }

    /// This many events were counted while `samples` samples came.
    pub(crate) fn counted(&mut self, events: u64, samples: u64) {
        self.debt += events as f64 - self.mean * samples as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distances(reset: f64, spread: f64) -> Distances {
        Distances {
            mean: reset,
            spread,
            least: MIN_CLOCK_NS,
            step: 1,
            debt: 0.0,
            rng: SplitMix64::new(7),
        }
    }

    /// Whether a distance holds for many samples or is drawn at each, and where the shortest are cut: the mean is the
    /// reset value, and distances differ.
    #[test]
    fn mean_is_kept() {
        for (reset, every) in [
            (16_000.0, 500_000),
            (50_000.0, 500_000),
            (300_000.0, 500_000),
            (2_000_000.0, 500_000),
            (50_000.0, 20_000_000),
        ] {
            let mut distances = distances(reset, 0.9);
            let (mut events, mut samples) = (0, 0);
            let mut rng = SplitMix64::new(3);
            let (mut least, mut most) = (u64::MAX, 0);
            for _ in 0..20_000 {
                let distance = distances.draw();
                (least, most) = (least.min(distance), most.max(distance));
                let mut passed = u64::from(rng.below(2 * every));
                // Drawn anew only after a sample.
                if passed < distance {
                    passed = distance + u64::from(rng.below(every));
                }
                distances.counted(passed, passed / distance);
                events += passed;
                samples += passed / distance;
            }
            let mean = events as f64 / samples as f64;
            assert!((mean / reset - 1.0).abs() < 0.02, "{mean} for {reset}");
            assert!(most as f64 > 1.5 * reset && (least as f64) < 0.7 * reset);
        }
    }

    /// Another mean takes effect at once.
    #[test]
    fn another_mean() {
        let mut distances = distances(50_000.0, 0.5);
        distances.counted(90_000_000, 1);
        distances.set_mean(400_000);
        assert!((200_000..=600_000).contains(&distances.draw()));
    }
}
