//! Ranks of items with samples, as they would be without. Pure.
//!
//! The overhead of a sample is known on average only, and varies from sample to sample. Where items are not much longer
//! than it, the net time of an item with a sample is uncertain by more than the items without one differ, and a ranking
//! by net time would call items slow for having a sample.
//!
//! # How
//!
//! A sample falls on an item of length L with a chance that follows from L. With samples every S of net time, let x =
//! (L + d)/S; for x between j and j + 1 an item has j samples with probability j + 1 - x, and j + 1 samples with
//! probability x - j. Here d is the additional time of an item in which samples count for it (inside its marks, and
//! while they delay interrupts); it is chosen to give the observed number of items with a sample. So the lengths of
//! items with j + 1 samples are distributed as those of items with j, each weighted by (x - j)/(j + 1 - x). Items with
//! j + 1 samples, ordered by net time, are given these lengths in order: the number beyond any limit is then the
//! expected one.
//!
//! No rank moves by more than [`MOST`] times the overhead in such items: an item that is slow by much more than that
//! remains slow, however few are like it. Items with more than [`MATCHED`] samples, or beyond [`WAY`] of the interval
//! to the next one, are ranked by their net time.
//!
//! Assumption: as for [`net`](crate::estimate::net), the event advances as time does, and its phase is independent of
//! the items. *Worked number*: 1,000 items of 2 us and 4 of 30 us, S = 100 us: 20 of 2 us and 1.2 of 30 us have a
//! sample, whose overhead was 12 to 20 us and is estimated as 16. Of these 21 items one is ranked at 30 us, the others
//! at 2 us, not at 0 to 6 us.

/// Largest number of samples of an item that is matched.
pub(super) const MATCHED: usize = 3;

/// Least numbers of items with and without a sample; with fewer nothing is matched.
const ENOUGH: (usize, usize) = (16, 64);

/// Part of the interval to the next sample up to which items are matched: beyond it, few have no further sample.
const WAY: f64 = 0.9;

/// Largest change of a rank, in multiples of pebs-trace's own time.
const MOST: i64 = 2;

/// Items without a sample that d is found from.
const LOOKED_AT: usize = 4096;

/// Items with the same number of samples: their net times, sorted, and pebs-trace's mean own time in them, ns.
#[derive(Clone, Debug, Default)]
pub(super) struct Stratum {
    pub nets: Vec<i64>,
    pub own_ns: i64,
}

/// The ranks of items with 0, 1, .. samples, in the order of their net times. `apart`: net time from one sample to the next.
pub(super) fn ranks(strata: &[Stratum], apart: f64) -> Vec<Vec<i64>> {
    let mut ranks: Vec<Vec<i64>> = strata.iter().map(|it| it.nets.clone()).collect();
    let [without, with, ..] = strata else {
        return ranks;
    };
    let Some(beside) = beside(&without.nets, &with.nets, apart) else {
        return ranks;
    };
    for samples in 1..=MATCHED.min(strata.len() - 1) {
        let (fewer, more) = ranks.split_at_mut(samples);
        let of = &strata[samples];
        // The stratum below is matched by now: its ranks are lengths.
        matched(
            &fewer[samples - 1],
            of,
            samples,
            apart,
            beside,
            &mut more[0],
        );
    }
    ranks
}

/// Time of items beside their net time in which samples count for them (d), ns; `None`: too few items.
fn beside(without: &[i64], with: &[i64], apart: f64) -> Option<f64> {
    if with.len() < ENOUGH.0 || without.len() < ENOUGH.1 || apart <= 0.0 {
        return None;
    }
    let step = without.len().div_ceil(LOOKED_AT);
    let some = || without.iter().step_by(step).map(|&ns| ns as f64);
    let each = without.len() as f64 / some().count() as f64;
    // The larger d, the more items are expected to have a sample.
    let too_long = |beside: f64| {
        let limit = WAY * apart - beside;
        let near = some().filter(|ns| *ns < limit);
        let expected: f64 = near
            .map(|ns| (ns + beside) / (apart - ns - beside))
            .sum::<f64>()
            * each;
        expected > with.partition_point(|&ns| (ns as f64) < limit) as f64
    };
    let (mut low, mut high) = (0.0, apart / 2.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        match too_long(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(low)
}

/// Ranks items with a number of samples by the lengths of those with one fewer.
fn matched(
    fewer: &[i64],
    of: &Stratum,
    samples: usize,
    apart: f64,
    beside: f64,
    ranks: &mut [i64],
) {
    let way = |ns: i64| (ns as f64 + beside) / apart - (samples - 1) as f64;
    let number = of.nets.partition_point(|&ns| way(ns) < WAY);
    let weighed = || {
        let ways = fewer.iter().map(|&ns| (ns, way(ns)));
        let near = ways.filter(|(_, way)| *way > 0.0 && *way < WAY);
        near.map(|(ns, way)| (ns, way / (1.0 - way)))
    };
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0);
    for (_, weight) in weighed() {
        (sum, squares, count) = (sum + weight, squares + weight * weight, count + 1);
    }
    let effective = if squares > 0.0 {
        sum * sum / squares
    } else {
        0.0
    };
    if number < ENOUGH.0 || count < ENOUGH.1 || effective < ENOUGH.1 as f64 / 2.0 {
        return;
    }
    let most = of.own_ns * MOST;
    let mut lengths = weighed().peekable();
    let mut passed = 0.0;
    for (place, rank) in ranks.iter_mut().enumerate().take(number) {
        let share = (place as f64 + 0.5) / number as f64;
        while let Some(&(ns, weight)) = lengths.peek() {
            if passed + weight < share * sum {
                passed += weight;
                lengths.next();
                continue;
            }
            *rank = ns.clamp(*rank - most, *rank + most);
            break;
        }
    }
    // Ranks limited by [`MOST`] must not overtake those behind them.
    for place in 1..ranks.len() {
        ranks[place] = ranks[place].max(ranks[place - 1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Makes items of these lengths one after the other, with a sample every 100 us of net time, whose overhead is 12
    /// to 20 us and estimated as 16. Returns their strata, and for each the lengths in the same order.
    fn sampled(lengths: impl Iterator<Item = i64>) -> (Vec<Stratum>, Vec<Vec<i64>>) {
        let mut random = SplitMix64::new(5);
        let mut pairs: Vec<Vec<(i64, i64)>> = vec![Vec::new(); MATCHED + 2];
        let mut next = 70_000;
        for length in lengths {
            let (mut rest, mut net, mut samples) = (length, length, 0);
            while next < rest {
                net += i64::from(random.below(8_000)) - 4_000;
                (rest, samples, next) = (rest - next, samples + 1, 100_000);
            }
            next -= rest;
            pairs[samples.min(MATCHED + 1)].push((net.max(0), length));
        }
        let strata = pairs.iter_mut().enumerate().map(|(samples, pairs)| {
            pairs.sort_unstable();
            Stratum {
                nets: pairs.iter().map(|it| it.0).collect(),
                own_ns: samples as i64 * 16_000,
            }
        });
        let strata = strata.collect();
        let lengths = pairs.iter().map(|it| it.iter().map(|it| it.1).collect());
        (strata, lengths.collect())
    }

    /// Items of 2 us, a few of 30 us: as many items with a sample are ranked above 20 us as there are slow ones, and
    /// most of these are the slow ones. Items without a sample keep their ranks.
    #[test]
    fn short_items() {
        let mut random = SplitMix64::new(1);
        let lengths = (0..200_000).map(|_| match random.below(500) {
            0 => 30_000 + i64::from(random.below(1_000)),
            _ => 1_900 + i64::from(random.below(200)),
        });
        let (strata, lengths) = sampled(lengths);
        let ranks = ranks(&strata, 100_000.0);
        assert_eq!(ranks[0], strata[0].nets);
        let slow = |of: &[i64]| of.iter().filter(|ns| **ns > 20_000).count();
        let (truly, ranked) = (slow(&lengths[1]), slow(&ranks[1]));
        assert!(
            truly > 80 && ranked.abs_diff(truly) < truly / 3,
            "{truly} {ranked}"
        );
        let both = ranks[1].iter().zip(&lengths[1]);
        let both = both
            .filter(|(rank, length)| **rank > 20_000 && **length > 20_000)
            .count();
        assert!(both * 10 >= truly.min(ranked) * 9, "{both} of {truly}");
        let usual = ranks[1]
            .iter()
            .filter(|ns| (1_900..2_100).contains(*ns))
            .count();
        assert!(
            usual * 100 > ranks[1].len() * 95,
            "{usual} of {}",
            ranks[1].len()
        );
    }

    /// A few very slow items, all with samples, remain slow; so do long items that samples hardly change.
    #[test]
    fn slow_by_more_than_samples_take() {
        let slow = |n: u32| n % 10_000 == 77;
        let lengths = (0..40_000).map(|n| {
            if slow(n) {
                95_000
            } else {
                20_000 + i64::from(n % 2_000)
            }
        });
        let (strata, _) = sampled(lengths);
        for (rank, stratum) in ranks(&strata, 100_000.0).iter().zip(&strata) {
            for (rank, net) in rank.iter().zip(&stratum.nets) {
                assert!((rank - net).abs() <= 2 * stratum.own_ns, "{rank} {net}");
            }
        }
        let longest = *ranks(&strata, 100_000.0)[1].last().unwrap();
        assert!(longest > 60_000, "{longest}");
    }

    /// Too few items keep their ranks, and empty strata are no error.
    #[test]
    fn too_few() {
        assert!(ranks(&[], 100.0).is_empty());
        let few = |nets: Vec<i64>| Stratum { nets, own_ns: 9 };
        let strata = [few(vec![1, 2, 3]), few(vec![5]), few(Vec::new())];
        assert_eq!(ranks(&strata, 100.0), [vec![1, 2, 3], vec![5], vec![]]);
        let zero = [few(vec![0; 100]), few(vec![0; 100])];
        assert_eq!(ranks(&zero, 100.0)[1], vec![0; 100]);
    }
}
