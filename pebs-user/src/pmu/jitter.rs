//! Distances between samples, drawn by chance around the reset value. Pure.
//!
//! Samples at equal distances beat with items at equal distances: they fall on the same places of every item, and the
//! other places seem to take no time. Marks and samples delay each other, so that such a lock holds over ranges of
//! reset values, and a little jitter doesn't break it. So distances come from a wide range, and each holds for a short
//! time only.
//!
//! Between two draws, equal distances may still lock, and drawing costs system calls and interrupts. So a clock is
//! several clocks, each with a distance of so many reset values, none of which has a common measure with another: what
//! one delays shifts the others against the items. Measured on `tests/workloads/regular.c`: tests/measurements.md,
//! "Accuracy".
//!
//! A sample stands for as many events as a distance has in the mean, as in DCPI: how likely a sample is at an instant
//! doesn't depend on what the program does there. The mean is kept at the reset value by what was counted: a change of
//! the distance starts it anew, so the part that had passed is lost; and if a distance is in force for a fixed time,
//! short ones give more samples than long ones. Both are known in advance from the time between two draws
//! ([`keeps_mean`]), and what is left is corrected by the scale of later draws.
//!
//! *Worked number*: a reset value of 50,000 with 90 % jitter, drawn twice a millisecond: distances in force are even
//! over 8,000..155,000, and there are 20 samples per million events.
//!
//! Source: Anderson et al., "Continuous profiling: where have all the cycles gone?", SOSP 1997, section 4.1.2.

use crate::pmu::attr::{EventClass, HardwareUnit, ResolvedEvent};
use crate::pmu::reset::MIN_CLOCK_NS;
use crate::rng::SplitMix64;
use crate::units::ResetValue;

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

/// Points at which a distribution is looked at.
const POINTS: u32 = 24;

/// Largest correction of the scale, as a factor.
const MOST: f64 = 8.0;

/// One counter.
const ALONE: [f64; 1] = [1.0];

/// Clocks that sample together, by their mean distances in reset values. These have no common measure, and the sum of
/// what they sample in a unit of time is 1.
const TOGETHER: [f64; 8] = {
    let (mut all, mut rate, mut n) = ([0.0; 8], 0.0, 0);
    while n < all.len() {
        // From 20 to 27, each a little off.
        all[n] = 20.0 + n as f64 * 1.003;
        rate += 1.0 / all[n];
        n += 1;
    }
    n = 0;
    while n < all.len() {
        all[n] *= rate;
        n += 1;
    }
    all
};

/// Shortest reset value of clocks that sample together, in costs of a sample. The kernel keeps one clock from taking all
/// time, as what it missed is skipped; several that are always due would leave none to the program.
const SAFE: f64 = 3.0;

/// The least of these, ns: what a sample costs may be measured too small, and grows on a busy host.
const SAFE_NS: f64 = 50_000.0;

/// Upper bound of the cost of a sample where it is unknown, ns.
const UNKNOWN_NS: f64 = 20_000.0;

/// Shortest reset value of clocks that sample together, where a sample takes this long, ns.
pub(crate) fn least_together(sample_ns: Option<f64>) -> f64 {
    (SAFE * sample_ns.unwrap_or(UNKNOWN_NS)).max(SAFE_NS)
}

/// Clocks that sample a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// Several of each thread, which sample together.
    #[default]
    Several,
    /// One of each thread.
    One,
    /// Those of the CPUs, which interrupt other programs, too.
    OfCpus,
}

impl Clocks {
    /// Their name in `trace.json`.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Several => "several of each thread",
            Self::One => "one of each thread",
            Self::OfCpus => "several of each CPU",
        }
    }
}

/// Number of clocks that can sample an event together; `None` if it is not a clock, or distances are equal.
pub(crate) fn clocks(event: &ResolvedEvent, percent: f64) -> Option<u32> {
    let is_varied = event.class == EventClass::Clock && percent > 0.0;
    is_varied.then_some(TOGETHER.len() as u32)
}

/// Counters that sample an event with this reset value, by their mean distances in reset values: several where that
/// costs no hardware and little time.
pub(crate) fn together(
    event: &ResolvedEvent,
    reset: ResetValue,
    percent: f64,
    sample_ns: Option<f64>,
) -> &'static [f64] {
    let is_safe = reset.0.get() as f64 >= least_together(sample_ns);
    match clocks(event, percent) {
        Some(_) if is_safe => &TOGETHER,
        _ => &ALONE,
    }
}

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
    /// Factor of all distances which keeps the mean, as far as it is known in advance.
    base: f64,
    /// Events beyond `mean` for each sample so far.
    debt: f64,
    rng: SplitMix64,
}

/// The factor by which distances have to be longer so that the mean of what samples stand for is 1. Distances are drawn
/// evenly from 1 ± `spread`, anew at the first round after a sample; `every`: mean time between two rounds.
fn keeps_mean(every: f64, spread: f64) -> f64 {
    let points = (0..POINTS).map(|n| (f64::from(n) + 0.5) / f64::from(POINTS));
    let samples = |factor: f64| {
        let (mut samples, mut passed) = (0.0, 0.0);
        for distance in points.clone() {
            let distance = factor * (1.0 + spread * (2.0 * distance - 1.0));
            for round in points.clone().map(|it| every * (0.5 + it)) {
                let in_force = round * (distance / round).ceil();
                samples += (in_force / distance).floor();
                passed += in_force;
            }
        }
        samples / passed
    };
    let (mut low, mut high) = (0.5, MOST);
    for _ in 0..24 {
        let middle = f64::midpoint(low, high);
        match samples(middle) > 1.0 {
            true => low = middle,
            false => high = middle,
        }
    }
    low
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
            base: 1.0,
            debt: 0.0,
            rng: SplitMix64::new(seed),
        })
    }

    /// Sets another mean.
    pub(crate) const fn set_mean(&mut self, reset: u64) {
        self.mean = reset as f64;
        (self.base, self.debt) = (1.0, 0.0);
    }

    /// Distances are drawn anew that often, in events, by counters with a mean of this many reset values. Where samples
    /// have come since the mean was set, distances stay as long as they have become.
    pub(crate) fn drawn_every(&mut self, events: f64, times: f64) {
        let base = keeps_mean(
            (events / (self.mean * times)).clamp(0.01, 100.0),
            self.spread,
        );
        if self.debt != 0.0 {
            self.debt += self.mean * MEMORY * (base / self.base).ln();
        }
        self.base = base;
    }

    /// The next distance of a counter whose mean is this many reset values.
    pub(crate) fn draw(&mut self, times: f64) -> u64 {
        let chance = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let scale = self.base * (-self.debt / (self.mean * MEMORY)).exp();
        let around = 1.0 + self.spread * (2.0 * chance - 1.0);
        let drawn = (self.mean * times * scale.clamp(1.0 / MOST, MOST) * around) as u64;
        // A reset value that is shorter still was asked for. All counters together leave as much time as one.
        let least = self.least.min(self.mean as u64) as f64 * times;
        (drawn / self.step * self.step).max(least as u64)
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
            base: 1.0,
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
                let distance = distances.draw(1.0);
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

    /// Clocks that sample together give a sample for each reset value, and no two of them have a simple ratio.
    #[test]
    fn clocks_together() {
        let rate: f64 = TOGETHER.iter().map(|it| it.recip()).sum();
        assert!((rate - 1.0).abs() < 1e-9, "{rate}");
        for (n, a) in TOGETHER.iter().enumerate() {
            for b in &TOGETHER[..n] {
                let of = |small: u32| (a / b * f64::from(small)).fract();
                let near = (1..10).map(of).map(|it| it.min(1.0 - it));
                assert!(near.fold(1.0, f64::min) > 0.001, "{a} {b}");
            }
        }
    }

    /// Another mean takes effect at once.
    #[test]
    fn another_mean() {
        let mut distances = distances(50_000.0, 0.5);
        distances.counted(90_000_000, 1);
        distances.set_mean(400_000);
        assert!((200_000..=600_000).contains(&distances.draw(1.0)));
    }

    /// With a mean that changes every 50 ms samples stand for what was counted: that short distances give more samples while
    /// they are in force is known in advance.
    #[test]
    fn changing_means() {
        let mut distances = distances(300_000.0, 0.9);
        let (mut events, mut stand_for) = (0, 0);
        let mut rng = SplitMix64::new(5);
        for change in 0..200 {
            let mean = 300_000 + 100_000 * (change % 3);
            distances.set_mean(mean);
            distances.drawn_every(500_000.0, 1.0);
            let mut in_force = 0;
            while in_force < 50_000_000 {
                let distance = distances.draw(1.0);
                let mut passed = 500_000;
                // Drawn anew only after a sample.
                if passed < distance {
                    passed = distance + u64::from(rng.below(500_000));
                }
                distances.counted(passed, passed / distance);
                in_force += passed;
                stand_for += passed / distance * mean;
            }
            events += in_force;
        }
        let ratio = stand_for as f64 / events as f64;
        assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
    }

    /// Distances that are long beside the time between two draws lose half of it with each sample; of short ones, the
    /// harmonic mean counts.
    #[test]
    fn keeping_the_mean() {
        let harmonic = (1.9_f64 / 0.1).ln() / 1.8;
        assert!((keeps_mean(100.0, 0.9) / harmonic - 1.0).abs() < 0.03);
        assert!((keeps_mean(0.02, 0.9) - 0.99).abs() < 0.01);
        assert!((0.9..1.0).contains(&keeps_mean(0.2, 0.9)));
    }
}
