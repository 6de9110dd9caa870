//! Finds the gap in a tail of durations that sets slow items apart from the rest.
//!
//! In the tail of one smooth distribution with the durations x1 >= x2 >= ... the spacings
//! k ln(xk / xk+1) are independent and exponential with one common mean (exactly so for a Pareto
//! tail). A second population shows as one spacing much larger than that mean: 40 items of
//! 0.8 ms over 20,000 of up to 140 us make 40 ln(5.7) = 70, where others are about 0.3. With K
//! candidates chance makes one of s times the mean with a probability of K exp(-s) at most;
//! a gap counts if that is below `CHANCE`, and if it is wide enough to matter, `MIN_RATIO`.
//! One outlier above a long tail is no gap: its weight k is 1.
//!
//! Between two clusters of durations there are few items, not always none: a gap may have strays, at most one for each
//! `SLOW_A_STRAY` items above it. With m of them it is m + 1 spacings, whose sum has a gamma distribution. They must
//! be sparser than the items above them (`THINNER`) and than the items below: a uniformly thin tail far above all
//! others has no gap, and a gap does not end within a thin tail. Where the clusters end and the gap begins is what makes
//! the distances in them most likely (`most_likely`); a gap whose strays crowd below the slow items is the lower end of
//! their own distribution, and none.
//!
//! Slow items may be several clusters, and the most significant gap may be the one below a few very long ones. So the
//! rest is searched again without them. A cluster there is slow as well if it begins at `AS_LONG` times the median of
//! all or above, and matters beside those above it: it is at least as many items, or at least `AS_MUCH` of their time
//! beyond the median. So six preempted items of 0.1 ms are not added to forty of 1 ms.
//!
//! Where nothing is set apart so, two narrow clusters may lie closer to each other: 5 % of the items take 130 +- 2 us, the
//! others 100 +- 2. Such a gap counts from `NARROW` on if it is *clear* (`is_clear`): beside being beyond chance, it has
//! at least `ENOUGH` items above it, and items in it are rarer by `CLEAR` than in the lower half of those above and than
//! in as many below.
//!
//! *Assumption*: durations are independent. They need not be Pareto: the mean is taken from the
//! upper half of the durations themselves.
//! Source: Rényi's representation of order statistics; Hill, Annals of Statistics 3 (1975).

/// Largest probability that the gap is chance.
const CHANCE: f64 = 1e-3;

/// Least ratio between the durations on either side of a gap.
const MIN_RATIO: f64 = 1.5;

/// Least ratio between the durations on either side of a gap between clusters that are far denser than it.
const NARROW: f64 = 1.1;

/// Least number of items above such a gap.
const ENOUGH: u64 = 16;

/// Least ratio of the mean spacing in such a gap to the mean spacing of the items on either side, and of its width to
/// the mean difference of durations below it (with a coarse clock, its resolution).
const CLEAR: f64 = 10.0;

/// The largest part of items that can be called slow: one in ten, one in four of a few.
const MAX_PART: u64 = 10;
const MAX_PART_OF_FEW: u64 = 4;
const FEW: u64 = 40;

/// Items above a gap for each stray in it. With fewer, the edges of a large cluster pass for a gap; with more, forty
/// preempted items hide eighty slow ones.
const SLOW_A_STRAY: u64 = 3;

/// Least ratio of the mean spacing in a gap with strays to the mean spacing of the lower half of the items above it, and
/// of the mean spacing in any gap to that of the items just below.
const THINNER: f64 = 2.0;

/// Least number of items below a gap that show how dense they are.
const BELOW: u64 = 4;

/// Least ratio to the median of the items of a further cluster, below the one that the most significant gap sets apart.
const AS_LONG: f64 = 2.0;

/// Least time beyond the median of a further cluster of fewer items than there are above it, as a part of theirs.
const AS_MUCH: f64 = 0.1;

/// Standard deviations by which the mean place of strays may be above the middle of the gap.
const CROWDED: f64 = 3.0;

/// A gap below the slow items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The shortest duration above it.
    pub from: u64,
    /// Items that lie in it.
    pub strays: u64,
}

/// Items of equal duration, at the resolution of the counts.
struct Step {
    duration: u64,
    /// Number of items of this duration or longer.
    upto: u64,
    /// Sum of the spacings above them.
    spacings: f64,
}

/// Finds the gap in the tail that sets slow items apart; `None` if there is none beyond chance.
///
/// `descending` are durations, longest first, each with the number of items that have it (at the resolution of the
/// counts); `items` is the total number. Cost: O(n log n) for n different durations, 40 bytes for each.
pub fn find(descending: &[(u64, u64)], items: u64) -> Option<Gap> {
    let Some(mut found) = most_significant(descending, items, MIN_RATIO) else {
        return most_significant(descending, items, NARROW)
            .filter(|it| is_clear(descending, *it, items));
    };
    let mut passed = 0;
    let median = descending.iter().find(|(_, count)| {
        passed += count;
        passed > items / 2
    })?;
    let median = median.0 as f64;
    // Number of steps and of items above a limit, and their time beyond the median.
    let above = |from: u64| {
        let steps = descending.partition_point(|it| it.0 >= from);
        let slow = &descending[..steps];
        let beyond = slow.iter().map(|it| (it.0 as f64 - median) * it.1 as f64);
        let items: u64 = slow.iter().map(|it| it.1).sum();
        (steps, items, beyond.sum::<f64>())
    };
    loop {
        let (steps, slow, beyond) = above(found.from);
        let Some(next) = most_significant(&descending[steps..], items - slow, MIN_RATIO) else {
            return Some(found);
        };
        let (_, with, beyond_with) = above(next.from);
        let matters = with >= 2 * slow || beyond_with >= (1.0 + AS_MUCH) * beyond;
        if (next.from as f64) < AS_LONG * median || with > most_slow(items) || !matters {
            return Some(found);
        }
        found = next;
    }
}

/// The largest number of items that can be slow.
const fn most_slow(items: u64) -> u64 {
    items
        / if items < FEW {
            MAX_PART_OF_FEW
        } else {
            MAX_PART
        }
}

/// Whether items in a gap are far rarer than on either side of it.
fn is_clear(descending: &[(u64, u64)], gap: Gap, items: u64) -> bool {
    let steps = upper_half(descending, items);
    let above = steps.partition_point(|it| it.duration > gap.from);
    let Some(from) = steps.get(above).filter(|it| it.upto >= ENOUGH) else {
        return false;
    };
    let below = steps.partition_point(|it| it.upto <= from.upto + gap.strays);
    let next = steps.partition_point(|it| it.upto < 2 * from.upto + gap.strays);
    let next = next.max(below + 1);
    let (Some(below), Some(next), Some(last)) = (steps.get(below), steps.get(next), steps.last())
    else {
        return false;
    };
    let middle = &steps[steps.partition_point(|it| it.upto < from.upto / 2)];
    let wide = ln_ratio(from, below) / (gap.strays + 1) as f64;
    let dense = mean_spacing(middle, from).max(mean_spacing(below, next));
    let different = steps
        .iter()
        .filter(|it| it.duration <= below.duration)
        .count();
    let apart = (below.duration - last.duration) as f64 / (different - 1).max(1) as f64;
    wide >= CLEAR * dense && (from.duration - below.duration) as f64 >= CLEAR * apart
}

/// Finds the most significant gap in the tail, of at least this ratio, which may be below any of several clusters.
fn most_significant(descending: &[(u64, u64)], items: u64, ratio: f64) -> Option<Gap> {
    let steps = upper_half(descending, items);
    let last = steps.last()?;
    let (mut candidates, mut best) = (0_u32, None::<(f64, Gap)>);
    for (above, from) in steps.iter().enumerate() {
        if from.upto > most_slow(items) {
            break;
        }
        let half = &steps[steps.partition_point(|it| it.upto < from.upto / 2)];
        let own_mean = (from.spacings - half.spacings) / (from.upto - half.upto).max(1) as f64;
        let mut between = 0;
        while let Some(below) = steps.get(above + 1 + between) {
            let strays = steps[above + between].upto - from.upto;
            if strays > from.upto / SLOW_A_STRAY {
                break;
            }
            candidates += 1;
            if ln_ratio(from, below) >= ratio.ln() {
                let spacing = below.spacings - from.spacings;
                // Items with the same duration are spacings of 0; those in question are left out. A mean of 0 (all
                // others are equal) makes the chance 0.
                let others = last.upto.saturating_sub(2 + strays).max(1);
                let mut mean = (last.spacings - spacing).max(0.0) / others as f64;
                if strays > 0 {
                    mean = mean.max(THINNER * own_mean);
                }
                let chance = ln_chance(strays, spacing / mean);
                if best.is_none_or(|(least, _)| chance < least)
                    && let Some(gap) = cut(&steps, (above, above + 1 + between), ratio)
                {
                    best = Some((chance, gap));
                }
            }
            // With many strays one more or less makes no difference.
            between += 1 + between / 16;
        }
    }
    let (chance, gap) = best?;
    (f64::from(candidates).ln() + chance < CHANCE.ln()).then_some(gap)
}

/// The steps down to the median.
fn upper_half(descending: &[(u64, u64)], items: u64) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for &(duration, count) in descending {
        let mut step = Step {
            duration,
            upto: count,
            spacings: 0.0,
        };
        if let Some(longer) = steps.last() {
            step.upto += longer.upto;
            step.spacings = longer.spacings + longer.upto as f64 * ln_ratio(longer, &step);
        }
        let done = step.upto > items / 2;
        steps.push(step);
        if done {
            break;
        }
    }
    steps
}

fn ln_ratio(longer: &Step, shorter: &Step) -> f64 {
    (longer.duration.max(1) as f64 / shorter.duration.max(1) as f64).ln()
}

/// Logarithm of an upper bound of the chance that this many spacings and one more, of a mean of 1, sum to `sum`.
///
/// The bound of exp(-s) (1 + s + ... + s^m/m!) is its last term times 1 / (1 - m/s), with m! >= (m/e)^m; without
/// strays it is exact: exp(-s).
fn ln_chance(strays: u64, sum: f64) -> f64 {
    let m = strays as f64;
    if sum.is_infinite() {
        f64::NEG_INFINITY
    } else if sum <= m {
        0.0
    } else if strays == 0 {
        -sum
    } else {
        m * ((sum / m).ln() + 1.0) - sum - (1.0 - m / sum).ln()
    }
}

/// Chooses the limit between two clusters of durations, given a step above a gap and one below; `None`: there are not two
/// clusters with a gap between them.
///
/// The limit is above the widest spacing between them if that alone would be a gap (of this ratio), else where the items
/// begin to be dense.
fn cut(steps: &[Step], (above, below): (usize, usize), ratio: f64) -> Option<Gap> {
    let strays = |above: usize, below: usize| steps[below - 1].upto - steps[above].upto;
    let number = strays(above, below);
    let low = &steps[below];
    let next = steps.partition_point(|it| it.upto < low.upto + BELOW.max(number + 1));
    let next = next.min(steps.len() - 1);
    let wide = ln_ratio(&steps[above], low) / (number + 1) as f64;
    if wide < THINNER * mean_spacing(low, &steps[next]) {
        return None;
    }
    let widest = (above..below).max_by(|a, b| {
        let spacing = |at: usize| ln_ratio(&steps[at], &steps[at + 1]);
        spacing(*a).total_cmp(&spacing(*b))
    })?;
    if ln_ratio(&steps[widest], &steps[widest + 1]) >= ratio.ln() {
        return Some(Gap {
            from: steps[widest].duration,
            strays: 0,
        });
    }
    let middle = steps.partition_point(|it| it.upto < steps[above].upto / 2);
    let above = most_likely(steps, (middle.min(above), below), above..below)?;
    let below = most_likely(steps, (above, next), above + 1..below + 1)?;
    let gap = ln_ratio(&steps[above], &steps[below]);
    let number = strays(above, below);
    let places = (above + 1..below).map(|at| {
        let same = (steps[at].upto - steps[at - 1].upto) as f64;
        same * ln_ratio(&steps[above], &steps[at]) / gap
    });
    // Of places that are uniform in 0..1 the variance is 1/12.
    let crowded = 0.5 - CROWDED * (number.max(1) as f64 * 12.0).sqrt().recip();
    let is_edge = number > 0 && places.sum::<f64>() / (number as f64) < crowded;
    (gap >= ratio.ln() && !is_edge).then(|| Gap {
        from: steps[above].duration,
        strays: number,
    })
}

/// The step, of these, at which a change of density is most likely, between two steps.
///
/// Spacings on either side are taken as exponential with a mean of their own, of which the likelihood is the product of
/// exp(-1) / mean over the items.
fn most_likely(
    steps: &[Step],
    (first, last): (usize, usize),
    within: std::ops::Range<usize>,
) -> Option<usize> {
    let side = |from: usize, to: usize| {
        let (from, to) = (&steps[from], &steps[to]);
        // Equal durations are at least a billionth apart.
        -((to.upto - from.upto) as f64) * mean_spacing(from, to).max(1e-9).ln()
    };
    let likelihood = |at: usize| side(first, at) + side(at, last);
    within.max_by(|a, b| likelihood(*a).total_cmp(&likelihood(*b)))
}

/// Mean spacing of the items from one step to another below it.
fn mean_spacing(from: &Step, to: &Step) -> f64 {
    ln_ratio(from, to) / (to.upto - from.upto).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Number of items above the gap, and the shortest of these.
    fn search(mut durations: Vec<u64>) -> Option<(usize, u64)> {
        durations.sort_unstable_by(|a, b| b.cmp(a));
        let items = durations.len() as u64;
        let from = gap(&durations, items)?.from;
        Some((durations.partition_point(|&it| it >= from), from))
    }

    fn gap(descending: &[u64], items: u64) -> Option<Gap> {
        let each: Vec<(u64, u64)> = descending.iter().map(|it| (*it, 1)).collect();
        find(&each, items)
    }

    fn unit(rng: &mut Rng) -> f64 {
        ((rng.bits() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    /// 5 us and longer with a tail that falls by the cube.
    fn tail(n: usize, rng: &mut Rng) -> Vec<u64> {
        (0..n)
            .map(|_| (5_000.0 * unit(rng).powf(-1.0 / 3.0)) as u64)
            .collect()
    }

    /// Forty slow items above a long tail are found, and no others.
    #[test]
    fn second_population() {
        let mut rng = Rng::new(5);
        let mut durations = tail(20_000, &mut rng);
        let longest = *durations.iter().max().unwrap();
        durations.extend((0..40).map(|i| longest * 3 + i * 20_000));
        assert_eq!(search(durations), Some((40, longest * 3)));
    }

    /// One preempted item above the slow ones doesn't hide them.
    #[test]
    fn outlier_over_second_population() {
        let mut rng = Rng::new(6);
        let mut durations = tail(4_000, &mut rng);
        let longest = *durations.iter().max().unwrap();
        durations.extend((0..14).map(|i| longest * 4 + i * 100_000));
        durations.push(longest * 60);
        assert_eq!(search(durations).unwrap().0, 15);
    }

    /// Chance alone makes no gap: at most one of a thousand smooth tails may have one.
    #[test]
    fn smooth_tail_has_none() {
        let mut rng = Rng::new(7);
        let found = (0..300).filter(|_| search(tail(1_000, &mut rng)).is_some());
        assert!(found.count() <= 1);
    }

    /// Strays throughout the gap don't hide it: slow are the items above them, or above its widest part.
    #[test]
    fn strays_in_the_gap() {
        let slow = (0..40).map(|i| 800_000 + i * 4_000);
        let few: Vec<u64> = (0..4_000).map(|i| 20_000 + i * 30).collect();
        let with = |strays: &[u64]| {
            let mut all: Vec<u64> = few
                .iter()
                .chain(strays)
                .copied()
                .chain(slow.clone())
                .collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            gap(&all, all.len() as u64).map(|it| (it.from, it.strays))
        };
        assert_eq!(with(&[]), Some((800_000, 0)));
        assert_eq!(
            with(&[200_000, 280_000, 400_000, 580_000]),
            Some((800_000, 4))
        );
        assert_eq!(with(&[160_000, 170_000, 560_000]), Some((560_000, 0)));
        // As many as that are no strays.
        let many: Vec<u64> = (0..80).map(|i| 140_000 + i * 8_250).collect();
        assert_eq!(with(&many), None);
    }

    /// The end of the slow items' own distribution is not cut off, wherever the widest spacing is.
    #[test]
    fn end_of_the_slow_items() {
        let few = (0..4_000_u64).map(|i| 20_000 + i * 20);
        let strays = [130_000_u64, 170_000, 250_000, 360_000, 500_000];
        // Log-uniform, each 4 % longer than the one before.
        let slow = (0..60).map(|i| (700_000.0 * 1.04_f64.powi(i)) as u64);
        let mut all: Vec<u64> = few
            .chain(strays)
            .chain([650_000, 620_000])
            .chain(slow)
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let found = gap(&all, all.len() as u64).unwrap();
        assert_eq!(all.iter().filter(|it| **it >= found.from).count(), 62);
    }

    /// A long tail that starts among the bulk of the items is not set apart by being thin.
    #[test]
    fn long_thin_tail_has_no_gap() {
        let found = (0..40).filter(|&seed| {
            let mut rng = Rng::new(seed);
            let mut all = tail(20_000, &mut rng);
            all.extend((0..400).map(|_| (10_000.0 * 10_000_f64.powf(unit(&mut rng))) as u64));
            all.sort_unstable_by(|a, b| b.cmp(a));
            gap(&all, all.len() as u64).is_some_and(|it| it.strays > 0)
        });
        assert!(found.count() <= 1);
    }

    /// Items of about 100 us: these parts of them wait for 30 us to 2 ms, and this many others take 2 to 4 ms.
    fn waits_below(items: usize, slow: u64, waiting: f64, rng: &mut Rng) -> Vec<u64> {
        let mut all: Vec<u64> = (0..items)
            .map(|_| {
                let wait = if unit(rng) < waiting {
                    30_000.0 * 70_f64.powf(unit(rng))
                } else {
                    0.0
                };
                (normal(100_000.0, 0.3, rng) + wait) as u64
            })
            .collect();
        all.extend((0..slow).map(|_| 2_000_000 + (2e6 * unit(rng)) as u64));
        all
    }

    /// A log-normal duration.
    fn normal(median: f64, sigma: f64, rng: &mut Rng) -> f64 {
        let radius = (-2.0 * unit(rng).ln()).sqrt();
        median * (sigma * radius * (std::f64::consts::TAU * unit(rng)).cos()).exp()
    }

    /// Slow items above a thin tail of waits are a cluster, whatever the number of strays: most of what is called slow
    /// is, in nearly every draw.
    #[test]
    fn cluster_above_waits() {
        let mut rng = Rng::new(1);
        let mut found = 0;
        for _ in 0..50 {
            let all = waits_below(20_000, 76, 0.003, &mut rng);
            let slow = search(all).filter(|(slow, _)| (74..=85).contains(slow));
            found += u32::from(slow.is_some());
        }
        assert!(found >= 42, "{found}");
    }

    /// Of two clusters of slow items both are slow, also where the longer ones are set apart by far more.
    #[test]
    fn several_clusters() {
        let mut rng = Rng::new(2);
        for (near, far, times) in [(100, 20, 100.0), (30, 30, 50.0), (40, 5, 1000.0)] {
            let mut all: Vec<u64> = (0..10_000)
                .map(|_| normal(100_000.0, 0.2, &mut rng) as u64)
                .collect();
            all.extend((0..near).map(|_| normal(500_000.0, 0.1, &mut rng) as u64));
            all.extend((0..far).map(|_| normal(100_000.0 * times, 0.3, &mut rng) as u64));
            let (slow, _) = search(all).unwrap();
            assert!(
                (near + far - 3..=near + far).contains(&slow),
                "{near} {far}: {slow}"
            );
        }
    }

    /// A second population that takes little more than the others is not slow beside one that takes far more.
    #[test]
    fn little_longer() {
        let mut rng = Rng::new(3);
        let mut all: Vec<u64> = (0..20_000)
            .map(|_| normal(100_000.0, 0.05, &mut rng) as u64)
            .collect();
        all.extend((0..200).map(|_| normal(180_000.0, 0.03, &mut rng) as u64));
        all.extend((0..20).map(|_| normal(3e7, 0.2, &mut rng) as u64));
        assert_eq!(search(all).unwrap().0, 20);
    }

    /// Distributions with one mode have no gap, whatever their tail: at most one of a thousand.
    #[test]
    fn one_mode_has_none() {
        let mut rng = Rng::new(4);
        let found = (0..1_000).filter(|draw| {
            let all = (0..1_000).map(|_| match draw % 4 {
                0 => normal(100_000.0, 0.2, &mut rng),
                1 => normal(100_000.0, 1.0, &mut rng),
                2 => 10_000.0 - 100_000.0 * unit(&mut rng).ln(),
                _ => 100_000.0 * unit(&mut rng).powf(-0.7),
            });
            let all = all.map(|ns| ns as u64).collect();
            search(all).is_some()
        });
        assert!(found.count() <= 1);
    }

    /// Two narrow clusters are apart though the edges are closer than 1.5 times, with a few items between them too.
    #[test]
    fn narrow_clusters() {
        let mut rng = Rng::new(8);
        for (items, part, strays) in [
            (1_000_u32, 0.05, 0),
            (5_000, 0.05, 8),
            (30_000, 0.02, 20),
            (2_000, 0.01, 0),
        ] {
            let slow = (f64::from(items) * part) as usize;
            for _ in 0..20 {
                let mut gauss = |mean: f64| mean + 2_000.0 * normal(1.0, 1.0, &mut rng).ln();
                let mut all: Vec<u64> = (slow..items as usize)
                    .map(|_| gauss(100_000.0) as u64)
                    .collect();
                all.extend((0..slow).map(|_| gauss(130_000.0) as u64));
                all.extend((0..strays).map(|i| 110_000 + i * 10_000 / strays));
                let found = search(all).map(|it| it.0 as i64 - slow as i64);
                let near = (-2 - slow as i64 / 10..=0).contains(&found.unwrap_or(i64::MAX));
                assert!(near, "{items} {slow}: {found:?}");
            }
        }
    }

    /// Of distributions with one mode at most 5 % have slow items of their own, and hardly any by being narrow.
    #[test]
    fn one_mode_is_not_apart() {
        let mut rng = Rng::new(9);
        let (mut found, mut narrow) = (0, 0);
        for draw in 0..1_000_u32 {
            let items = (100.0 * 300_f64.powf(unit(&mut rng))) as u64;
            let shape = 0.02 * 50_f64.powf(unit(&mut rng));
            let mut all: Vec<u64> = (0..items)
                .map(|_| match draw % 6 {
                    0 => normal(100_000.0, shape, &mut rng),
                    // Gamma of 1 to 8 degrees.
                    1 => (0..=draw % 8)
                        .map(|_| -20_000.0 * unit(&mut rng).ln())
                        .sum(),
                    2 => 100_000.0 * (1.0 + shape * unit(&mut rng)),
                    3 => 100_000.0 * (1.0 + shape * normal(1.0, 1.0, &mut rng).ln()).max(0.0),
                    4 => 100_000.0 * (1.0 - shape * unit(&mut rng).ln()),
                    // A clock that ticks rarely.
                    _ => 40.0 * (normal(500.0, shape, &mut rng) / 40.0).round(),
                })
                .map(|ns| ns as u64)
                .collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            let steps: Vec<(u64, u64)> = all
                .chunk_by(|a, b| a == b)
                .map(|same| (same[0], same.len() as u64))
                .collect();
            found += u32::from(find(&steps, items).is_some());
            let wide = most_significant(&steps, items, MIN_RATIO).is_some();
            narrow += u32::from(!wide && find(&steps, items).is_some());
        }
        assert!(found <= 50 && narrow <= 5, "{found} {narrow}");
    }

    /// A few preempted items do not join many that take far longer.
    #[test]
    fn few_below_many() {
        let bulk = (0..20_000_u64).map(|i| 4_000 + i % 1_500);
        let slow = (0..40).map(|i| 800_000 + i * 10_000);
        let all: Vec<u64> = bulk
            .chain([12_000, 30_000, 41_000, 70_000, 90_000, 113_000])
            .chain(slow)
            .collect();
        assert_eq!(search(all), Some((40, 800_000)));
    }

    /// Two slow ones of ten: the paper's sample application.
    #[test]
    fn ten_queries() {
        let durations = vec![610, 22, 21, 23, 420, 20, 24, 22, 21, 23];
        assert_eq!(search(durations), Some((2, 420)));
    }

    /// No items, one item, equal items: no gap.
    #[test]
    fn no_gap_in_few_or_equal_items() {
        assert_eq!(search(vec![]), None);
        assert_eq!(search(vec![5]), None);
        assert_eq!(search(vec![5, 9]), None);
        assert_eq!(search(vec![7; 500]), None);
        assert_eq!(search(vec![0; 500]), None);
    }
}
