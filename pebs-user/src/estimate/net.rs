//! Learns the cost of a sample to an item from the items themselves. Pure.
//!
//! *Net* is a visit's time less own time. The cost of marks and counted page faults is measured before the run. The
//! cost of a sample to the item that it interrupts is more than the pause seen by a spinning loop (on a virtual machine
//! without a PMU 17 us where the pause is 12), so it is learnt in the run.
//!
//! # How
//!
//! A sample is taken every R of time on the CPU, at a phase independent of the items, and costs c. A visit whose own
//! work takes L (marks included) then has j or j + 1 samples, where x = L/(R - c) is between j and j + 1: it has j + 1
//! with probability x - j. So visits with j samples, each weighted by (x - j)/(j + 1 - x), have the same distribution
//! of L as those with j + 1 samples; but each of the latter lasted longer by c. c is the median of the differences
//! between their 20th to 80th percentiles, so that a few visits that are slow for other reasons don't matter. As x
//! depends on c, this is iterated a few times.
//!
//! The standard error comes from the same estimate over `PARTS` parts of the visits. Items with j = 0, 1 and 2 are
//! compared, each probe by itself: with more samples a small error of R makes x useless. Estimates are combined by
//! their variance, together with the cost measured before the run, which gets a standard error of half its value
//! (`MEASURED_OFF`). So where items are long, or differ by much more than a sample costs, the measured value remains.
//!
//! If distances between samples vary (`--jitter`), each R holds for a while: the two probabilities are means over the
//! range of R, in which all are in force equally long. If m clocks sample together, each every mR, an item that takes n
//! ns by itself has j samples with the probability n/w B(j; m, w/mR), where w = n + jc is what it lasts and B the binomial
//! distribution: the samples of a queue that each sample makes longer.
//!
//! Assumption: the event advances like time (a clock, cycles), and its phase is independent of the items.
//! *Worked number*: items of 11 us with their marks, R = 100 us, c = 17 us: one in 8 has a sample and lasts 28 us.

use crate::rng::mix;

/// Most values kept of a stratum.
const KEPT: usize = 4096;

/// Strata of a probe: visits with 0, 1, 2 and 3 samples.
const STRATA: usize = 4;

/// Fewest values of a stratum for a comparison.
const ENOUGH: usize = 64;

/// Number of parts for the standard error.
const PARTS: usize = 8;

/// Relative standard error of a cost that was measured before the run.
const MEASURED_OFF: f64 = 0.5;

/// Smallest relative standard error of a learnt cost.
const LEARNT_OFF: f64 = 0.02;

/// Largest x - j of visits that are compared: beyond, few visits have only j samples.
const WAY: f64 = 0.9;

/// Values of a distance that varies.
const DISTANCES: usize = 16;

/// Number of iterations of c.
const ROUNDS: usize = 4;

/// Most probes that are learnt from.
const PROBES: usize = 64;

/// Cost of a sample to an item, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleCost {
    /// Mean cost.
    pub ns: f64,
    /// Standard error of the mean.
    pub stderr_ns: f64,
    /// Standard deviation of the cost between samples.
    pub spread_ns: f64,
    /// Number of visits with a sample that it was learnt from; 0: it was measured before the run.
    pub learnt_from: u64,
}

impl SampleCost {
    /// Returns a cost measured before the run, not learnt.
    #[must_use]
    pub const fn measured(ns: f64, spread_ns: f64) -> Self {
        Self {
            ns,
            stderr_ns: ns * MEASURED_OFF,
            spread_ns,
            learnt_from: 0,
        }
    }

    /// Cost of `samples` samples, ns.
    #[must_use]
    pub fn of(&self, samples: u64) -> f64 {
        self.ns * samples as f64
    }

    /// Standard error of [`SampleCost::of`], ns.
    #[must_use]
    pub fn stderr_of(&self, samples: u64) -> f64 {
        let samples = samples as f64;
        (samples * self.stderr_ns).hypot(samples.sqrt() * self.spread_ns)
    }
}

/// A visit to learn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LearntVisit {
    /// Number of its probe.
    pub probe: u16,
    /// Time on the CPU, including samples and marks, ns.
    pub ns: f64,
    pub samples: u64,
    /// Sampling interval, ns.
    pub interval_ns: f64,
}

/// Evenly thinned times of visits with a given number of samples.
#[derive(Clone, Debug, Default)]
struct Stratum {
    /// Time and sampling interval, ns.
    values: Vec<(f32, f32)>,
    came: u64,
    /// One in 2^`thinned` values is kept.
    thinned: u32,
}

impl Stratum {
    #[inline]
    fn add(&mut self, ns: f64, interval_ns: f64) {
        self.came += 1;
        // Selected by a hash, so that it doesn't correlate with a pattern of the items.
        let hash = mix(self.came);
        if hash >> 1 >> (63 - self.thinned) != 0 {
            return;
        }
        if self.values.len() == KEPT {
            // Every second one; the kept ones stay in order of time.
            let mut place = 0;
            self.values.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.thinned += 1;
        }
        self.values.push((ns as f32, interval_ns as f32));
    }
}

/// Learns the cost of a sample.
///
/// Memory: 128 KiB per probe, of at most `PROBES`. Cost of a visit: O(1).
#[derive(Clone, Debug)]
pub(crate) struct Learner {
    measured: SampleCost,
    cost: SampleCost,
    spacing: Spacing,
    /// Strata by probe.
    strata: Vec<[Stratum; STRATA]>,
    /// Number of visits with a sample.
    sampled: u64,
    /// Value of `sampled` at which the cost is recomputed.
    due: u64,
}

impl Learner {
    /// Returns a learner that knows only the cost measured before the run.
    #[must_use]
    pub(crate) fn new(measured: SampleCost, spacing: Spacing) -> Self {
        Self {
            measured,
            cost: measured,
            spacing,
            strata: Vec::new(),
            sampled: 0,
            due: ENOUGH as u64,
        }
    }

    /// Current estimate of the cost.
    #[must_use]
    pub(crate) const fn cost(&self) -> SampleCost {
        self.cost
    }

    /// Adds a visit that ran without a break and contains only its own samples. Returns whether enough visits came for
    /// another [`Learner::learn`].
    #[inline]
    pub(crate) fn see(&mut self, visit: &LearntVisit) -> bool {
        let stratum = visit.samples as usize;
        if visit.samples >= STRATA as u64 || usize::from(visit.probe) >= PROBES {
            return false;
        }
        let probe = usize::from(visit.probe);
        if probe >= self.strata.len() {
            self.strata.resize_with(probe + 1, Default::default);
        }
        self.strata[probe][stratum].add(visit.ns, visit.interval_ns);
        if stratum == 0 {
            return false;
        }
        self.sampled += 1;
        self.sampled >= self.due
    }

    /// Recomputes the cost; returns whether it changed.
    ///
    /// Cost: some ms at most; the number of visits doubles from one time to the next.
    pub(crate) fn learn(&mut self) -> bool {
        self.due = self.sampled.max(ENOUGH as u64) * 2;
        let before = self.cost;
        let (mut found, mut from) = (Vec::new(), 0);
        for strata in &self.strata {
            for j in 0..STRATA - 1 {
                if let Some(estimate) = compare(strata, j, &self.spacing, before.ns) {
                    found.push(estimate);
                    from += strata[j + 1].came;
                }
            }
        }
        self.cost = combine(&found, self.measured, from);
        self.cost != before
    }
}

/// Result of one comparison.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    ns: f64,
    stderr_ns: f64,
    spread_ns: f64,
}

/// Combines the comparisons and the measured cost.
fn combine(found: &[Estimate], measured: SampleCost, from: u64) -> SampleCost {
    if found.is_empty() {
        return measured;
    }
    let weight = |it: &Estimate| it.stderr_ns.powi(-2);
    let sum: f64 = found.iter().map(weight).sum();
    let mean = found.iter().map(|it| weight(it) * it.ns).sum::<f64>() / sum;
    let spread = found
        .iter()
        .map(|it| weight(it) * it.spread_ns)
        .sum::<f64>()
        / sum;
    // If they differ by more than their errors, the errors are scaled up.
    let scatter: f64 = found
        .iter()
        .map(|it| weight(it) * (it.ns - mean).powi(2))
        .sum();
    let inflation = (scatter / (found.len() as f64 - 1.0).max(1.0)).max(1.0);
    let variance = inflation / sum + (LEARNT_OFF * mean).powi(2);
    let prior = measured.stderr_ns.max(f64::MIN_POSITIVE).powi(-2);
    let all = prior + variance.recip();
    let learnt_share = variance.recip() / all;
    SampleCost {
        ns: (mean * learnt_share + measured.ns * (1.0 - learnt_share)).max(0.0),
        stderr_ns: all.recip().sqrt(),
        spread_ns: spread * learnt_share + measured.spread_ns * (1.0 - learnt_share),
        learnt_from: if learnt_share >= 0.5 { from } else { 0 },
    }
}

/// A time, ns, and its weight.
type Weighed = (f64, f64);

/// Estimates by how much visits with j + 1 samples last longer than those with j; `None` if there are too few.
fn compare(
    strata: &[Stratum; STRATA],
    j: usize,
    spacing: &Spacing,
    first_guess: f64,
) -> Option<Estimate> {
    let (fewer, more) = (&strata[j].values, &strata[j + 1].values);
    if fewer.len() < ENOUGH || more.len() < ENOUGH {
        return None;
    }
    let mut cost = first_guess;
    let mut sides = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let of = |values, samples| weighed(values, samples, j, spacing, cost);
        sides = (of(fewer, j), of(more, j + 1));
        cost += shift(&sides.0, &sides.1)?;
    }
    let effective = |side: &[Weighed]| {
        let sum: f64 = side.iter().map(|it| it.1).sum();
        let squares: f64 = side.iter().map(|it| it.1 * it.1).sum();
        sum * sum / squares
    };
    if effective(&sides.0) < ENOUGH as f64 || sides.1.len() < ENOUGH {
        return None;
    }
    // The estimated cost has been subtracted: only chance is left.
    let parts: Vec<f64> = (0..PARTS)
        .filter_map(|part| {
            let of = |side: &[Weighed]| -> Vec<Weighed> {
                side.iter().skip(part).step_by(PARTS).copied().collect()
            };
            shift(&of(&sides.0), &of(&sides.1))
        })
        .collect();
    let number = parts.len() as f64;
    if parts.len() < PARTS / 2 {
        return None;
    }
    let mean = parts.iter().sum::<f64>() / number;
    let variance = parts.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / (number - 1.0);
    // The parts' shifts vary like the shift of one part: the error of the whole is that divided by the root of their
    // number. Recorded times are whole ns.
    let stderr_ns = (variance / number).sqrt().max(1.0);
    let spread = |side: &[Weighed]| {
        let [low, high] = quantiles(side, [0.25, 0.75]);
        (high - low) / 1.349
    };
    let (with, without) = (spread(&sides.1), spread(&sides.0));
    Some(Estimate {
        ns: cost,
        stderr_ns,
        spread_ns: (with * with - without * without).max(0.0).sqrt(),
    })
}

/// Spacing of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spacing {
    /// Distances that are in force for a while each, all equally likely; a reset value in the mean.
    distances: [f64; DISTANCES],
    /// Several clocks that sample together instead, and the reset value from which on they do, ns.
    clocks: Option<(u32, f64)>,
}

/// Chances that an item has j and j + 1 samples, not to scale, or that it is too short for j.
struct Chances {
    few: f64,
    many: f64,
    too_short: bool,
}

impl Default for Spacing {
    /// Equal distances.
    fn default() -> Self {
        Self::varied(0.0)
    }
}

impl Spacing {
    /// Distances that vary by this share.
    #[must_use]
    pub fn varied(jitter: f64) -> Self {
        let middle = |n: usize| (n as f64 + 0.5) / DISTANCES as f64;
        let around: [f64; DISTANCES] =
            std::array::from_fn(|n| 1.0 + jitter * (2.0 * middle(n) - 1.0));
        let rate = around.iter().map(|it| it.recip()).sum::<f64>() / DISTANCES as f64;
        Self {
            distances: around.map(|it| it * rate),
            clocks: None,
        }
    }

    /// The same, with this many clocks that sample together from a reset value on, each at a distance of as many reset
    /// values.
    #[must_use]
    pub const fn with_clocks(mut self, clocks: u32, from_ns: f64) -> Self {
        self.clocks = Some((clocks, from_ns));
        self
    }

    /// Chances of an item that takes `own` ns by itself, where samples take `cost` ns each and the reset value is
    /// `interval` ns.
    fn chances(&self, own: f64, j: usize, interval: f64, cost: f64) -> Chances {
        if let Some((clocks, _)) = self.clocks.filter(|(_, from)| interval >= *from) {
            return Chances {
                few: of_clocks(clocks, own, j, interval, cost),
                many: of_clocks(clocks, own, j + 1, interval, cost),
                too_short: own <= 0.0,
            };
        }
        let (mut few, mut many, mut short) = (0.0, 0.0, 0);
        for distance in self.distances {
            let between = distance * interval - cost;
            if between > 0.0 {
                let way = own / between - j as f64;
                few += (1.0 - way.abs()).max(0.0);
                many += (1.0 - (way - 1.0).abs()).max(0.0);
                short += usize::from(way < 0.0);
            }
        }
        Chances {
            few,
            many,
            too_short: short == DISTANCES,
        }
    }
}

/// Chance that this many clocks make j samples in an item.
fn of_clocks(clocks: u32, own: f64, j: usize, interval: f64, cost: f64) -> f64 {
    let lasts = own + j as f64 * cost;
    let clocks = f64::from(clocks);
    let each = lasts / (clocks * interval);
    if own <= 0.0 || each >= 1.0 {
        return 0.0;
    }
    let ways = (0..j).map(|n| (clocks - n as f64) / (n as f64 + 1.0));
    let chance = each.powi(j as i32) * (1.0 - each).powf(clocks - j as f64);
    own / lasts * ways.product::<f64>() * chance
}

/// Times of visits with `samples` samples, without the cost of these; only visits that likely have j or j + 1,
/// weighted to have the same distribution as those with j + 1.
fn weighed(
    values: &[(f32, f32)],
    samples: usize,
    j: usize,
    spacing: &Spacing,
    cost: f64,
) -> Vec<Weighed> {
    let of = |&(ns, interval): &(f32, f32)| {
        let own = f64::from(ns) - samples as f64 * cost;
        let interval = f64::from(interval);
        if interval <= cost {
            return None;
        }
        let Chances {
            few,
            many,
            too_short,
        } = spacing.chances(own, j, interval, cost);
        let all = many / WAY * (1.0 - WAY);
        match samples > j {
            // Values below 0 come from the spread of the cost: without them the cost would be too high.
            true => (few > all || too_short).then_some((own, 1.0)),
            false => (many > 0.0 && few > all).then(|| (own, many / few)),
        }
    };
    values.iter().filter_map(of).collect()
}

/// Median difference between the percentiles of two distributions, second minus first.
fn shift(fewer: &[Weighed], more: &[Weighed]) -> Option<f64> {
    const AT: [f64; 7] = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];
    if fewer.is_empty() || more.is_empty() {
        return None;
    }
    let (fewer, more) = (quantiles(fewer, AT), quantiles(more, AT));
    let mut differences: [f64; 7] = std::array::from_fn(|at| more[at] - fewer[at]);
    differences.sort_unstable_by(f64::total_cmp);
    Some(differences[AT.len() / 2])
}

/// Weighted quantiles.
fn quantiles<const N: usize>(values: &[Weighed], at: [f64; N]) -> [f64; N] {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let sum: f64 = sorted.iter().map(|it| it.1).sum();
    let (mut passed, mut place) = (0.0, 0);
    at.map(|share| {
        while place + 1 < sorted.len() && passed + sorted[place].1 < share * sum {
            passed += sorted[place].1;
            place += 1;
        }
        sorted.get(place).map_or(0.0, |it| it.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    const INTERVAL: f64 = 100_000.0;
    const TRUTH: f64 = 17_400.0;

    /// Runs items of these lengths one after the other, with a sample every interval that takes [`TRUTH`] or up to 2 us
    /// more or less. Returns the learnt cost; the measured one is 12 us.
    fn learnt(items: u32, length: impl FnMut(&mut SplitMix64) -> f64) -> SampleCost {
        learnt_with(0.0, items, length)
    }

    /// The same with distances between samples that vary by this share, anew at every 20th item.
    fn learnt_with(
        jitter: f64,
        items: u32,
        mut length: impl FnMut(&mut SplitMix64) -> f64,
    ) -> SampleCost {
        let mut random = SplitMix64::new(3);
        let spacing = Spacing::varied(jitter);
        let mut learner = Learner::new(SampleCost::measured(12_000.0, 1_000.0), spacing);
        let among = spacing.distances;
        let mut distance = INTERVAL;
        // Time until the next sample.
        let mut next = 50_000.0;
        for n in 0..items {
            if n % 20 == 0 {
                let one = among[random.below(among.len() as u32) as usize];
                distance = (one * INTERVAL).max(30_000.0);
                next = f64::from(random.below(distance as u32));
            }
            let mut rest = length(&mut random);
            let (mut ns, mut samples) = (rest, 0);
            while next < rest {
                let pause = TRUTH + f64::from(random.below(4_001)) - 2_000.0;
                rest -= next;
                ns += pause;
                samples += 1;
                next = distance - pause;
            }
            next -= rest;
            // Time between items, independent of them.
            next -= f64::from(random.below(3_000));
            while next <= 0.0 {
                next += distance - TRUTH;
            }
            let seen = LearntVisit {
                probe: 0,
                ns,
                samples,
                interval_ns: INTERVAL,
            };
            if learner.see(&seen) {
                learner.learn();
            }
        }
        learner.learn();
        learner.cost()
    }

    fn about(random: &mut SplitMix64, ns: u32, more_or_less: u32) -> f64 {
        f64::from(ns - more_or_less + random.below(2 * more_or_less + 1))
    }

    /// Items about as long as a sample takes, and a few that are slow for another reason: those are the most likely to
    /// have a sample, and don't matter.
    #[test]
    fn cost_from_short_items() {
        let cost = learnt(100_000, |random| match random.below(500) {
            0 => about(random, 39_000, 1_000),
            _ => about(random, 11_000, 700),
        });
        assert!((cost.ns - TRUTH).abs() < 500.0, "{cost:?}");
        assert!(
            cost.stderr_ns < 600.0 && cost.learnt_from > 1_000,
            "{cost:?}"
        );
        // Uniform over 4 us.
        assert!((500.0..2_500.0).contains(&cost.spread_ns), "{cost:?}");
    }

    /// Distances between samples that vary: items as long as the shorter ones have one sample or more in some stretches.
    #[test]
    fn distances_that_vary() {
        for length in [3_000, 11_000, 40_000] {
            let cost = learnt_with(0.9, 200_000, |random| about(random, length, length / 10));
            assert!((cost.ns - TRUTH).abs() < 1_200.0, "{length}: {cost:?}");
        }
    }

    /// Several clocks: samples come in any number, one soon after another.
    #[test]
    fn clocks_together() {
        const CLOCKS: [f64; 8] = [6.9, 7.2, 7.5, 7.9, 8.3, 8.6, 8.9, 9.3];
        for length in [3_000, 11_000, 40_000, 150_000] {
            let mut random = SplitMix64::new(5);
            let measured = SampleCost::measured(12_000.0, 1_000.0);
            let mut learner = Learner::new(measured, Spacing::varied(0.9).with_clocks(8, INTERVAL));
            let mut next = CLOCKS.map(|it| it * f64::from(random.below(100_000)));
            let mut now = 0.0;
            for _ in 0..200_000 {
                let begin = now;
                let mut rest = about(&mut random, length, length / 10);
                let mut samples = 0;
                loop {
                    let (which, due) = (next.iter().enumerate())
                        .min_by(|a, b| a.1.total_cmp(b.1))
                        .map(|(which, due)| (which, *due))
                        .unwrap();
                    // One that is due while another is taken comes right after it.
                    if due > now + rest {
                        break;
                    }
                    rest -= (due - now).max(0.0);
                    now = due.max(now) + TRUTH;
                    next[which] = due + CLOCKS[which] * INTERVAL;
                    samples += 1;
                }
                now += rest;
                let seen = LearntVisit {
                    probe: 0,
                    ns: now - begin,
                    samples,
                    interval_ns: INTERVAL,
                };
                if learner.see(&seen) {
                    learner.learn();
                }
                now += f64::from(random.below(3_000));
                for (due, every) in next.iter_mut().zip(CLOCKS) {
                    while *due < now {
                        *due += every * INTERVAL;
                    }
                }
            }
            learner.learn();
            let cost = learner.cost();
            assert!((cost.ns - TRUTH).abs() < 1_200.0, "{length}: {cost:?}");
        }
    }

    /// Items far shorter than the spread of the samples' cost: cheap samples must not look like a higher cost.
    #[test]
    fn items_shorter_than_what_samples_differ_by() {
        let cost = learnt(400_000, |random| about(random, 900, 100));
        assert!((cost.ns - TRUTH).abs() < 500.0, "{cost:?}");
    }

    /// Two kinds of items: more of the longer ones have a sample, which must not look like its cost.
    #[test]
    fn kinds_of_items_do_not_bias_it() {
        let cost = learnt(200_000, |random| match random.below(2) {
            0 => about(random, 8_000, 500),
            _ => about(random, 40_000, 4_000),
        });
        assert!((cost.ns - TRUTH).abs() < 1_200.0, "{cost:?}");
    }

    /// If items differ by far more than a sample takes, or have many samples, the measured cost remains, with an error
    /// that covers the truth.
    #[test]
    fn long_items_keep_the_measured_cost() {
        let differ =
            |random: &mut SplitMix64| 20_000.0 + f64::from(random.below(400)).powi(2) * 5.0;
        for cost in [
            learnt(500, differ),
            learnt(3_000, |random| about(random, 5_000_000, 500_000)),
        ] {
            assert!((cost.ns - TRUTH).abs() < 2.5 * cost.stderr_ns, "{cost:?}");
            assert!(cost.stderr_ns > 1_000.0, "{cost:?}");
        }
        let cost = learnt(3_000, |random| about(random, 5_000_000, 500_000));
        assert_eq!(cost, SampleCost::measured(12_000.0, 1_000.0));
    }

    /// Without visits, or with samples that take no time, the measured cost remains, and no number is NaN or infinite.
    #[test]
    fn nothing_to_learn_from() {
        let measured = SampleCost::measured(0.0, 0.0);
        let mut learner = Learner::new(measured, Spacing::default());
        assert!(!learner.learn());
        for n in 0..2_000 {
            let seen = LearntVisit {
                probe: 0,
                ns: 5_000.0,
                samples: n % 4,
                interval_ns: 0.0,
            };
            if learner.see(&seen) {
                learner.learn();
            }
        }
        let cost = learner.cost();
        assert!(
            cost.ns.is_finite() && cost.stderr_ns.is_finite(),
            "{cost:?}"
        );
    }
}
