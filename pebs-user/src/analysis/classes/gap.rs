//! Finds the gap in a tail of durations that sets slow items apart from the rest.
//!
//! In the tail of one smooth distribution with the durations x1 >= x2 >= ... the spacings
//! k ln(xk / xk+1) are independent and exponential with one common mean (exactly so for a Pareto
//! tail). A second population shows as one spacing much larger than that mean: 40 items of
//! 0.8 ms over 20,000 of up to 140 us make 40 ln(5.7) = 70, where others are about 0.3. With K
//! candidates chance makes one of s times the mean with a probability of K exp(-s) at most;
//! a gap counts if that is below [`CHANCE`], and if it is wide enough to matter, [`MIN_RATIO`].
//! One outlier above a long tail is no gap: its weight k is 1.
//!
//! A few strays in a gap don't hide it: with m of them it is m + 1 spacings, whose sum has a gamma distribution. "A
//! few" means at most one for each [`SLOW_A_STRAY`] items above the gap. They must also be sparser than these
//! ([`THINNER`]): a uniformly thin tail far above all others has no gap. Strays that are as close to the slow items as
//! these to each other ([`NEAR`]) are slow.
//!
//! *Assumption*: durations are independent. They need not be Pareto: the mean is taken from the
//! upper half of the durations themselves.
//! Source: Rényi's representation of order statistics; Hill, Annals of Statistics 3 (1975).

/// Largest probability that the gap is chance.
const CHANCE: f64 = 1e-3;

/// Least ratio between the durations on either side of a gap.
const MIN_RATIO: f64 = 1.5;

/// The largest part of items that can be called slow: one in ten, one in four of a few.
const MAX_PART: u64 = 10;
const MAX_PART_OF_FEW: u64 = 4;
const FEW: u64 = 40;

/// Items above a gap for each stray in it.
const SLOW_A_STRAY: u64 = 10;

/// Least ratio of the strays' mean spacing to that of the lower half of the items above the gap.
const THINNER: f64 = 2.0;

/// Distance of a stray that is still one of the slow items, in mean distances of these in the lower half: chance puts one
/// of a hundred farther away.
const NEAR: f64 = 4.6;

/// A gap below the slow items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
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

/// Finds the most significant gap in the tail; `None` if there is none beyond chance.
///
/// `descending` are durations, longest first, each with the number of items that have it (at the resolution of the
/// counts); `items` is the total number. Cost: O(n log n) for n different durations, 24 bytes for each.
pub(super) fn find(descending: impl Iterator<Item = (u64, u64)>, items: u64) -> Option<Gap> {
    let part = if items < FEW {
        MAX_PART_OF_FEW
    } else {
        MAX_PART
    };
    let steps = upper_half(descending, items);
    let last = steps.last()?;
    let (mut candidates, mut best) = (0_u32, None::<(f64, usize, usize)>);
    for (above, from) in steps.iter().enumerate() {
        if from.upto > items / part {
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
            if ln_ratio(from, below) >= MIN_RATIO.ln() {
                let spacing = below.spacings - from.spacings;
                // Items with the same duration are spacings of 0; those in question are left out. A mean of 0 (all
                // others are equal) makes the chance 0.
                let others = last.upto.saturating_sub(2 + strays).max(1);
                let mut mean = (last.spacings - spacing).max(0.0) / others as f64;
                if strays > 0 {
                    mean = mean.max(THINNER * own_mean);
                }
                let chance = ln_chance(strays, spacing / mean);
                if best.is_none_or(|(least, ..)| chance < least) {
                    best = Some((chance, above, above + 1 + between));
                }
            }
            // With many strays one more or less makes no difference.
            between += 1 + between / 16;
        }
    }
    let (chance, above, below) = best?;
    (f64::from(candidates).ln() + chance < CHANCE.ln()).then(|| cut(&steps, above, below))
}

/// The steps down to the median.
fn upper_half(descending: impl Iterator<Item = (u64, u64)>, items: u64) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (duration, count) in descending {
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

/// Chooses the limit between two clusters of durations, given the last step above a gap and the first below: above the
/// widest spacing between them if that alone would be a gap ([`MIN_RATIO`]), else above the strays. Of these, those that
/// are no farther from the slow items than the slow items from each other are slow: they are that cluster's end.
fn cut(steps: &[Step], above: usize, below: usize) -> Gap {
    let widest = steps[above..=below]
        .windows(2)
        .max_by(|a, b| ln_ratio(&a[0], &a[1]).total_cmp(&ln_ratio(&b[0], &b[1])));
    if let Some([from, below]) = widest
        && ln_ratio(from, below) >= MIN_RATIO.ln()
    {
        return Gap {
            from: from.duration,
            strays: 0,
        };
    }
    let first = &steps[above];
    let half = &steps[steps
        .partition_point(|it| it.upto < first.upto / 2)
        .min(above)];
    let apart = ln_ratio(half, first) / (first.upto - half.upto).max(1) as f64;
    let mut last = above;
    while last + 1 < below && ln_ratio(&steps[last], &steps[last + 1]) <= NEAR * apart {
        last += 1;
    }
    Gap {
        from: steps[last].duration,
        strays: steps[below - 1].upto - steps[last].upto,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Number of items above the gap, and the shortest of these.
    fn search(mut durations: Vec<u64>) -> Option<(usize, u64)> {
        durations.sort_unstable_by(|a, b| b.cmp(a));
        let items = durations.len() as u64;
        let from = gap(&durations, items)?.from;
        Some((durations.partition_point(|&it| it >= from), from))
    }

    fn gap(descending: &[u64], items: u64) -> Option<Gap> {
        find(descending.iter().map(|&duration| (duration, 1)), items)
    }

    fn unit(rng: &mut SplitMix64) -> f64 {
        ((rng.next_u64() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    /// 5 us and longer with a tail that falls by the cube.
    fn tail(n: usize, rng: &mut SplitMix64) -> Vec<u64> {
        (0..n)
            .map(|_| (5_000.0 * unit(rng).powf(-1.0 / 3.0)) as u64)
            .collect()
    }

    /// Forty slow items above a long tail are found, and no others.
    #[test]
    fn second_population() {
        let mut rng = SplitMix64::new(5);
        let mut durations = tail(20_000, &mut rng);
        let longest = *durations.iter().max().unwrap();
        durations.extend((0..40).map(|i| longest * 3 + i * 20_000));
        assert_eq!(search(durations), Some((40, longest * 3)));
    }

    /// One preempted item above the slow ones doesn't hide them.
    #[test]
    fn outlier_over_second_population() {
        let mut rng = SplitMix64::new(6);
        let mut durations = tail(4_000, &mut rng);
        let longest = *durations.iter().max().unwrap();
        durations.extend((0..14).map(|i| longest * 4 + i * 100_000));
        durations.push(longest * 60);
        assert_eq!(search(durations).unwrap().0, 15);
    }

    /// Chance alone makes no gap: at most one of a thousand smooth tails may have one.
    #[test]
    fn smooth_tail_has_none() {
        let mut rng = SplitMix64::new(7);
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
        let many: Vec<u64> = (0..40).map(|i| 140_000 + i * 16_500).collect();
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
            let mut rng = SplitMix64::new(seed);
            let mut all = tail(20_000, &mut rng);
            all.extend((0..400).map(|_| (10_000.0 * 10_000_f64.powf(unit(&mut rng))) as u64));
            all.sort_unstable_by(|a, b| b.cmp(a));
            gap(&all, all.len() as u64).is_some_and(|it| it.strays > 0)
        });
        assert!(found.count() <= 1);
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
