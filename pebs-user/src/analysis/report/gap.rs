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
//! *Assumption*: durations are independent. They need not be Pareto: the mean is taken from the
//! upper half of the durations themselves.
//! Source: Rényi's representation of order statistics; Hill, Annals of Statistics 3 (1975).

/// Probability with which the gap may be mere chance.
const CHANCE: f64 = 1e-3;

/// Least ratio between the durations on either side of a gap.
const MIN_RATIO: f64 = 1.5;

/// The largest part of items that can be called slow: one in ten, one in four of a few.
const MAX_PART: u64 = 10;
const MAX_PART_OF_FEW: u64 = 4;
const FEW: u64 = 40;

/// The shortest duration above the clearest gap in the tail; `None` if there is none that chance
/// would not make.
///
/// `descending` are durations, longest first, each with the number of items that have it (within
/// the resolution at which they were counted); `items` is their total number.
/// Cost: O(different durations).
pub(crate) fn find(descending: impl Iterator<Item = (u64, u64)>, items: u64) -> Option<u64> {
    let part = if items < FEW {
        MAX_PART_OF_FEW
    } else {
        MAX_PART
    };
    let (mut above, mut last) = (0_u64, None::<u64>);
    let (mut sum, mut candidates, mut best) = (0.0, 0_u32, None::<(f64, u64)>);
    for (duration, count) in descending {
        if let Some(from) = last {
            let ratio = from as f64 / duration.max(1) as f64;
            let spacing = above as f64 * ratio.ln();
            sum += spacing;
            if above <= items / part {
                candidates += 1;
                if ratio >= MIN_RATIO && best.is_none_or(|(most, _)| spacing > most) {
                    best = Some((spacing, from));
                }
            }
        }
        above += count;
        last = Some(duration);
        if above > items / 2 {
            break;
        }
    }
    let (spacing, from) = best?;
    // Items with the same duration are spacings of 0; the one in question is left out. A mean of 0
    // (all others are equal) makes the chance 0.
    let mean = (sum - spacing) / above.saturating_sub(2).max(1) as f64;
    let expected = f64::from(candidates) * (-spacing / mean).exp();
    (expected < CHANCE).then_some(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::rng::SplitMix64;

    /// Number of items above the gap, and the shortest of them.
    fn search(mut durations: Vec<u64>) -> Option<(usize, u64)> {
        durations.sort_unstable_by(|a, b| b.cmp(a));
        let items = durations.len() as u64;
        let from = find(durations.iter().map(|&duration| (duration, 1)), items)?;
        Some((durations.partition_point(|&it| it >= from), from))
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

    /// Forty slow items over a long tail are found, all of them and no other.
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

    /// Two slow ones of ten: the paper's sample application.
    #[test]
    fn ten_queries() {
        let durations = vec![610, 22, 21, 23, 420, 20, 24, 22, 21, 23];
        assert_eq!(search(durations), Some((2, 420)));
    }

    /// No items, one item, equal items: no gap.
    #[test]
    fn nothing_to_tell_apart() {
        assert_eq!(search(vec![]), None);
        assert_eq!(search(vec![5]), None);
        assert_eq!(search(vec![5, 9]), None);
        assert_eq!(search(vec![7; 500]), None);
        assert_eq!(search(vec![0; 500]), None);
    }
}
