//! Changes over time: steps, a drift and periods of the items' times over the recording.
//!
//! * *Step*: items take longer, or shorter, from some time on. Items in order of their begins are divided into blocks of equally
//!   many. Of the ranks of their durations, which a few long items don't move, each block has a mean; the largest distance of
//!   the sum up to a block from a straight line has the distribution of Kolmogorov's test if nothing changed (Page, Biometrika 42
//!   (1955); Csorgo and Horvath, "Limit Theorems in Change-Point Analysis", 1997). The spread is that between blocks
//!   near one another; blocks are joined until neighbours are hardly alike (a busy second). Both sides are searched again. *Worked number*: the
//!   last 20 of 100 blocks are at the level 0.7, the others at 0.45, with a spread of 0.05: the sum is 0.2 x 0.8 x 0.25 x 100 = 4
//!   off the line, 8 standard deviations of a sum of 100.
//! * *Drift*: the same, where a straight line through the blocks' means is closer to them than one step.
//! * *Period*: slow items come in bursts at equal distances. Bursts are slow items with less than a fifth of the distance
//!   of others between them. A distance between bursts agrees if it is within 15 % of the median or of two or three times that,
//!   as a burst may be missing; by chance 18 % do so (an exponential distribution), and the binomial tail is its chance. Half
//!   of the distances are the median itself, and bursts are shorter than half of it.
//!
//! A change is reported if its chance is below one in a million (where neighbouring items are alike, up to four of a thousand series
//! without a step have one), and a step or a drift if it is at least a tenth of the
//! mean. What a change is made of is said as for slow items: those after it, or in bursts, against those
//! before, or typical ones.

use statrs::distribution::{Binomial, DiscreteCDF as _};

use super::groups::Section;
use super::items::Items;
use super::model::{Change, ChangeShape};
use crate::compare::classes::Class;

/// Most blocks, and fewest items of one.
const BLOCKS: usize = 200;
const ITEMS_A_BLOCK: usize = 8;

/// Fewest blocks on each side of a step.
const FEWEST_BLOCKS: usize = 10;

/// Most steps of a probe.
const MOST_STEPS: usize = 6;

/// Chance below which a change is reported.
const CHANCE: f64 = 1e-6;

/// Least step or drift, as a part of the median.
const LEAST: f64 = 0.1;

/// Median of the square of a normal variable with the variance 1.
const MEDIAN_OF_SQUARE: f64 = 0.4549;

/// Most correlation of neighbouring blocks.
const ALIKE: f64 = 0.2;

/// Part of a distance by which another may differ from it.
const SAME: f64 = 0.15;

/// Chance that a distance agrees with the median of many by chance.
const AGREES: f64 = 0.182;

/// Fewest bursts.
const FEWEST_BURSTS: usize = 8;

/// Distance between bursts, in distances within them.
const APART: f64 = 5.0;

/// A change, and the items after and before it.
pub(super) struct Found {
    pub change: Change,
    pub section: Section,
}

/// Finds the changes of a probe's items.
pub(super) fn changes(whole: &Section, items: &Items) -> Vec<Found> {
    let mut order = whole.members.clone();
    order.sort_by_key(|&it| (items.all[it as usize].begin_ns, it));
    let mut found = levels(&order, whole, items);
    found.extend(period(whole, items));
    found
}

/// Returns the begin of the first of these items.
fn begin(of: &[u32], items: &Items) -> i64 {
    of.first().map_or(0, |&it| items.all[it as usize].begin_ns)
}

fn mean(of: &[u32], items: &Items) -> f64 {
    let sum: i64 = of.iter().map(|&it| items.all[it as usize].net_ns()).sum();
    sum as f64 / (of.len() as f64).max(1.0)
}

/// A section of items after a change as slow ones, and before it as typical ones; the other way round if they take less
/// then.
fn section(whole: &Section, (before, after): (&[u32], &[u32]), is_longer: bool) -> Section {
    let (slow, typical) = if is_longer {
        (after, before)
    } else {
        (before, after)
    };
    let classes = slow.iter().map(|_| Class::Slow);
    Section {
        probe: whole.probe,
        labels: Vec::new(),
        members: slow.iter().chain(typical).copied().collect(),
        classes: classes
            .chain(typical.iter().map(|_| Class::Typical))
            .collect(),
        summary: whole.summary.clone(),
    }
}

/// Steps, or a drift.
fn levels(order: &[u32], whole: &Section, items: &Items) -> Vec<Found> {
    let blocks = (order.len() / ITEMS_A_BLOCK).min(BLOCKS);
    if blocks < 2 * FEWEST_BLOCKS {
        return Vec::new();
    }
    let at = |block: usize| block * order.len() / blocks;
    let ranks = ranks(order, items);
    let means: Vec<f64> = (0..blocks)
        .map(|it| ranks[at(it)..at(it + 1)].iter().sum::<f64>() / (at(it + 1) - at(it)) as f64)
        .collect();
    let (each, means, steps) = steps(means);
    let all = mean(order, items);
    let chance = steps.iter().map(|it| it.1).fold(1.0, f64::min);
    if !steps.is_empty() && is_straight(&means) {
        let quarter = order.len() / 4;
        let (first, last) = (&order[..quarter], &order[order.len() - quarter..]);
        let (before_ns, after_ns) = (mean(first, items), mean(last, items));
        if (after_ns - before_ns).abs() <= LEAST * all {
            return Vec::new();
        }
        return vec![Found {
            change: Change {
                kind: ChangeShape::Drift,
                from_ns: begin(first, items),
                to_ns: begin(&last[last.len() - 1..], items),
                before_ns,
                after_ns,
                every_ns: None,
                for_ns: None,
                bursts: 0,
                items: order.len() as u64,
                others: 0,
                chance,
                gap: None,
            },
            section: section(whole, (first, last), after_ns > before_ns),
        }];
    }
    let mut found = Vec::new();
    let ends: Vec<usize> = steps.iter().map(|it| at(each * it.0)).collect();
    for (number, (_, chance)) in steps.iter().enumerate() {
        let from = if number == 0 { 0 } else { ends[number - 1] };
        let to = ends.get(number + 1).copied().unwrap_or(order.len());
        let (before, after) = (&order[from..ends[number]], &order[ends[number]..to]);
        let (before_ns, after_ns) = (mean(before, items), mean(after, items));
        if (after_ns - before_ns).abs() <= LEAST * all {
            continue;
        }
        found.push(Found {
            change: Change {
                kind: ChangeShape::Step,
                from_ns: begin(after, items),
                to_ns: begin(&after[after.len() - 1..], items),
                before_ns,
                after_ns,
                every_ns: None,
                for_ns: None,
                bursts: 0,
                items: after.len() as u64,
                others: 0,
                chance: *chance,
                gap: None,
            },
            section: section(whole, (before, after), after_ns > before_ns),
        });
    }
    found
}

/// Ranks of the net durations, 0..1, in the order of the items.
fn ranks(order: &[u32], items: &Items) -> Vec<f64> {
    let net = |place: &usize| items.all[order[*place] as usize].net_ns();
    let mut by_time: Vec<usize> = (0..order.len()).collect();
    by_time.sort_by_key(net);
    let mut ranks = vec![0.0; order.len()];
    let mut below = 0;
    for same in by_time.chunk_by(|a, b| net(a) == net(b)) {
        let rank = (below as f64 + same.len() as f64 / 2.0) / order.len() as f64;
        same.iter().for_each(|place| ranks[*place] = rank);
        below += same.len();
    }
    ranks
}

/// Searches the largest step, then both of its sides. `from`: number of the first block.
fn search(means: &[f64], from: usize, steps: &mut Vec<(usize, f64)>) {
    if means.len() < 2 * FEWEST_BLOCKS || steps.len() == MOST_STEPS {
        return;
    }
    let Some((at, chance)) = largest(means) else {
        return;
    };
    if chance >= CHANCE {
        return;
    }
    steps.push((from + at, chance));
    let (before, after) = means.split_at(at);
    search(before, from, steps);
    search(after, from + at, steps);
}

/// The block before which the level changes most, and the chance of that.
fn largest(means: &[f64]) -> Option<(usize, f64)> {
    let n = means.len() as f64;
    let mean = means.iter().sum::<f64>() / n;
    let mut sum = 0.0;
    let mut best = (0, 0.0_f64);
    for (at, value) in means.iter().enumerate() {
        if at >= FEWEST_BLOCKS && at + FEWEST_BLOCKS <= means.len() && f64::abs(sum) > best.1 {
            best = (at, sum.abs());
        }
        sum += value - mean;
    }
    let (at, off) = best;
    let deviation = spread(means)? * n.sqrt();
    Some((at, kolmogorov(off / deviation)))
}

/// Half of the squared difference between blocks at a distance of `lag`: their variance less their covariance. From the
/// median, which a few steps hardly change.
fn half_square(means: &[f64], lag: usize) -> f64 {
    let pairs = means.iter().zip(&means[lag..]);
    let mut squares: Vec<f64> = pairs.map(|(a, b)| (a - b).powi(2) / 2.0).collect();
    let middle = squares.len() / 2;
    *squares.select_nth_unstable_by(middle, f64::total_cmp).1 / MEDIAN_OF_SQUARE
}

/// Distance of blocks that are not alike because they are near one another.
fn far(blocks: usize) -> usize {
    (blocks as f64).sqrt().ceil() as usize
}

/// Finds steps, with their chances; joins blocks until neighbours are hardly alike. Returns how many became one, too.
fn steps(mut means: Vec<f64>) -> (usize, Vec<f64>, Vec<(usize, f64)>) {
    let mut each = 1;
    loop {
        let mut steps = Vec::new();
        search(&means, 0, &mut steps);
        steps.sort_by_key(|it| it.0);
        let are_few = means.len() < 2 * FEWEST_BLOCKS;
        let rest = match is_straight(&means) {
            true => off_line(&means),
            false => off_levels(&means, &steps),
        };
        if are_few || !are_alike(&rest) {
            return (each, means, steps);
        }
        let pairs = means.chunks_exact(2).map(|it| (it[0] + it[1]) / 2.0);
        (each, means) = (2 * each, pairs.collect());
    }
}

/// Whether neighbours differ less than blocks that are far from one another.
fn are_alike(rest: &[f64]) -> bool {
    half_square(rest, 1) < (1.0 - ALIKE) * half_square(rest, far(rest.len()))
}

/// Distances from the levels between steps.
fn off_levels(means: &[f64], steps: &[(usize, f64)]) -> Vec<f64> {
    let ends = steps.iter().map(|it| it.0).chain([means.len()]);
    let mut rest = Vec::new();
    for end in ends {
        let of = &means[rest.len()..end];
        let level = of.iter().sum::<f64>() / of.len() as f64;
        rest.extend(of.iter().map(|it| it - level));
    }
    rest
}

/// Standard deviation of a block as it counts in a sum of many; `None`: all blocks are equal.
fn spread(means: &[f64]) -> Option<f64> {
    let lags = (means.len() as f64).cbrt().ceil() as usize;
    let variance = half_square(means, lags);
    let more: f64 = (1..lags)
        .map(|lag| 2.0 * (1.0 - lag as f64 / lags as f64) * (variance - half_square(means, lag)))
        .sum();
    let differ = means.iter().any(|it| *it != means[0]);
    differ.then(|| variance.max(variance + more).sqrt().max(f64::MIN_POSITIVE))
}

/// Chance that a Brownian bridge is this far from 0 somewhere. Source: Kolmogorov, Giornale dell'Istituto Italiano degli
/// Attuari 4 (1933).
fn kolmogorov(off: f64) -> f64 {
    let terms = (1..=50).map(|k| {
        let sign = if k % 2 == 1 { 1.0 } else { -1.0 };
        let k = f64::from(k);
        sign * (-2.0 * k * k * off * off).exp()
    });
    if off < 0.2 {
        return 1.0;
    }
    (2.0 * terms.sum::<f64>()).clamp(0.0, 1.0)
}

/// Distances from the straight line that is closest.
fn off_line(means: &[f64]) -> Vec<f64> {
    let n = means.len() as f64;
    let (x, y) = ((n - 1.0) / 2.0, means.iter().sum::<f64>() / n);
    let from_middle = (0..means.len()).map(|at| at as f64 - x);
    let xy = means.iter().zip(from_middle.clone());
    let xy = xy.map(|(it, x)| x * (it - y));
    let slope = xy.sum::<f64>() / from_middle.clone().map(|x| x * x).sum::<f64>();
    let line = means.iter().zip(from_middle);
    line.map(|(it, x)| it - y - slope * x).collect()
}

/// Whether a straight line is closer to all means than one step.
fn is_straight(means: &[f64]) -> bool {
    let squares = |rest: Vec<f64>| rest.iter().map(|it| it * it).sum::<f64>();
    let step = (1..means.len()).map(|at| squares(off_levels(means, &[(at, 0.0)])));
    squares(off_line(means)) < step.fold(f64::INFINITY, f64::min)
}

/// A burst of slow items: their places in order.
type Burst = std::ops::Range<usize>;

/// A period of the slow items.
fn period(whole: &Section, items: &Items) -> Option<Found> {
    let item = |it: u32| &items.all[it as usize];
    let mut slow: Vec<u32> = whole.slow().collect();
    slow.sort_by_key(|&it| (item(it).begin_ns, it));
    let begins: Vec<i64> = slow.iter().map(|&it| item(it).begin_ns).collect();
    let bursts = bursts(&begins);
    if bursts.len() < FEWEST_BURSTS {
        return None;
    }
    let starts: Vec<i64> = bursts.iter().map(|it| begins[it.start]).collect();
    let every = distance(&starts)?;
    // Items that come at equal distances can only be slow at multiples of that.
    let all = whole.members.len().max(1) as f64;
    let span = whole.members.iter().map(|&it| item(it).begin_ns);
    let span = (span.clone().max()? - span.min()?) as f64;
    if every.ns < APART * span / all {
        return None;
    }
    let in_bursts: Vec<u32> = every
        .agree
        .iter()
        .flat_map(|at| &slow[bursts[*at].clone()])
        .copied()
        .collect();
    let mut lengths: Vec<i64> = every
        .agree
        .iter()
        .map(|at| {
            let of = &slow[bursts[*at].clone()];
            let end = of.iter().map(|&it| item(it).end_ns()).max().unwrap_or(0);
            end - starts[*at]
        })
        .collect();
    lengths.sort_unstable();
    let length = lengths.get(lengths.len() / 2).copied()?;
    if 2.0 * length as f64 > every.ns {
        return None;
    }
    let typical = whole.members.iter().zip(&whole.classes);
    let typical = typical.filter(|it| *it.1 == Class::Typical).map(|it| *it.0);
    let typical: Vec<u32> = typical.collect();
    Some(Found {
        change: Change {
            kind: ChangeShape::Period,
            from_ns: starts[*every.agree.first()?],
            to_ns: starts[*every.agree.last()?],
            before_ns: mean(&typical, items),
            after_ns: mean(&in_bursts, items),
            every_ns: Some(every.ns),
            for_ns: Some(length),
            bursts: every.agree.len() as u64,
            items: in_bursts.len() as u64,
            others: (slow.len() - in_bursts.len()) as u64,
            chance: every.chance,
            gap: None,
        },
        section: section(whole, (&typical, &in_bursts), true),
    })
}

/// Divides times into bursts: at the distances that are far larger than the others.
fn bursts(begins: &[i64]) -> Vec<Burst> {
    let distances: Vec<i64> = begins.windows(2).map(|it| (it[1] - it[0]).max(1)).collect();
    let mut sorted = distances.clone();
    sorted.sort_unstable();
    let jump = sorted.windows(2).map(|it| it[1] as f64 / it[0] as f64);
    let largest = jump.zip(1..).max_by(|a, b| a.0.total_cmp(&b.0));
    let least = match largest {
        Some((ratio, at)) if ratio >= APART => sorted[at],
        _ => 0,
    };
    let mut found = Vec::new();
    let mut start = 0;
    for (at, distance) in (1..).zip(&distances) {
        if *distance >= least {
            found.push(start..at);
            start = at;
        }
    }
    if !begins.is_empty() {
        found.push(start..begins.len());
    }
    found
}

/// Equal distances.
struct Every {
    ns: f64,
    /// The bursts at such distances.
    agree: Vec<usize>,
    chance: f64,
}

/// The distance at which most bursts come.
fn distance(starts: &[i64]) -> Option<Every> {
    let distances: Vec<f64> = starts.windows(2).map(|it| (it[1] - it[0]) as f64).collect();
    let mut sorted = distances.clone();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted[sorted.len() / 2];
    let times = |distance: f64| {
        (1..=3)
            .map(f64::from)
            .find(|n| (distance / middle - n).abs() <= SAME)
    };
    let agreeing = distances.iter().filter(|it| times(**it).is_some()).count() as u64;
    // The median itself agrees.
    let chance = binomial_tail(
        distances.len() as u64 - 1,
        agreeing.saturating_sub(1),
        AGREES,
    );
    if chance >= CHANCE {
        return None;
    }
    let once = distances.iter().filter(|it| times(**it) == Some(1.0));
    if 2 * once.count() < distances.len() {
        return None;
    }
    let known = distances.iter().filter_map(|it| Some((*it, times(*it)?)));
    let (sum, count) = known.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    let agree = (0..starts.len()).filter(|&at| {
        let before = at.checked_sub(1).map(|it| distances[it]);
        let both = before.into_iter().chain(distances.get(at).copied());
        both.filter_map(times).count() > 0
    });
    Some(Every {
        ns: sum / count,
        agree: agree.collect(),
        chance,
    })
}

/// Chance of at least `least` of `n` independent events of this chance.
fn binomial_tail(n: u64, least: u64, chance: f64) -> f64 {
    match least.checked_sub(1) {
        None => 1.0,
        Some(below) => Binomial::new(chance, n).map_or(1.0, |it| it.sf(below)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Series without a step, with blocks that are like their neighbours or not: none is found.
    #[test]
    fn no_step() {
        let mut found = 0;
        for seed in 0..2_000_u64 {
            let mut random = SplitMix64::new(seed);
            let memory = [0.0, 0.3, 0.6][seed as usize % 3];
            let mut level = 0.0;
            let means: Vec<f64> = (0..20 + seed as usize % 180)
                .map(|_| {
                    level = memory * level + f64::from(random.below(1_000));
                    level
                })
                .collect();
            found += usize::from(!steps(means).2.is_empty());
        }
        assert!(found <= 8, "{found} of 2,000");
    }

    /// Worked numbers.
    #[test]
    fn chances() {
        assert!((kolmogorov(1.36) - 0.0494).abs() < 1e-3);
        assert!((binomial_tail(4, 3, 0.5) - 5.0 / 16.0).abs() < 1e-12);
        assert_eq!(binomial_tail(4, 0, 0.5), 1.0);
    }
}
