//! Divides the variance of latency over all items of a group.
//!
//! Latency is a sum of parts, so Var(latency) = sum of Cov(part, latency) over the parts: the share of a part is its
//! covariance over the variance, and the shares sum to 1. A part that is long in long items has a large share; a part
//! that is equally long in all items has none, however long it is.
//!
//! The time of a function in one item is estimated as c x the events of its samples there, with c = time on the CPU /
//! events over all items: an item shorter than the sample interval mostly has no sample and sometimes one, and as the
//! phase of sampling is independent of the latency, the covariance is right on average. The part of single items' time
//! on the CPU that sample counts miss, and functions with fewer than [`MIN_SAMPLES`] samples, are *unexplained*.
//!
//! *Worked number*: items of 10 us and, one in ten, of 110 us; f takes 100 us of the latter and no time of the others.
//! Var = 0.09 x 100² us², Cov(f, latency) the same: f has 100 %.
//!
//! Intervals as in [`super::contrast`], of all items of the group.
//! Source: Cov is linear in either argument; VProfiler (Huang, Mozafari, Wenisch, EuroSys 2017) ranks
//! functions so.

use super::contrast::Naming;
use super::model::{Variance, VariancePart};
use super::sums::AllSums;
use crate::compare::explain::keys::Key;
use crate::compare::pool::MIN_SAMPLES;
use pebs_stats::blocks::{Blocks, Draw, Draws, interval};

/// Least share of a listed part.
const LEAST_SHARE: f64 = 0.005;

/// Least number of items.
const FEWEST: f64 = 20.0;

/// Least number of samples an item for a variance of net latencies. With fewer, the variation in the overhead of
/// samples is much of the variance, and correlates with whether an item has a sample.
const SAMPLES_EACH: f64 = 1.0;

/// Moments of the latency over the items, or over a replicate of them.
struct Moments {
    items: f64,
    mean: f64,
    variance: f64,
    /// Time on the CPU by events.
    scale: f64,
}

impl Moments {
    fn of(all: &AllSums, sum: &dyn Fn(&Blocks) -> f64) -> Self {
        let items = sum(&all.items);
        let mean = sum(&all.latency.0) / items;
        let events = sum(&all.events.0);
        Self {
            items,
            mean,
            variance: sum(&all.latency.1) / items - mean * mean,
            scale: if events > 0.0 {
                sum(&all.active.0) / events
            } else {
                0.0
            },
        }
    }

    /// Share of the variance that a part with this sum, and this sum of products, has.
    fn share(&self, sum: f64, product: f64) -> f64 {
        (product / self.items - sum / self.items * self.mean) / self.variance
    }

    fn share_of(&self, key: Key, sum: f64, product: f64) -> f64 {
        let share = self.share(sum, product);
        match key {
            Key::Function(_) => share * self.scale,
            Key::Wait(_) | Key::Handover(_) | Key::Others(_) => share,
        }
    }
}

fn total(blocks: &Blocks) -> f64 {
    blocks.total()
}

/// Divides the variance, listing `top` parts; `None` if it is 0, or there are too few items, or too few samples in them
/// while the latency is net of their overhead.
pub(super) fn divide(
    all: &AllSums,
    naming: &Naming<'_>,
    top: usize,
    is_net: bool,
) -> Option<Variance> {
    let whole = Moments::of(all, &total);
    if whole.items < FEWEST || whole.variance.is_nan() || whole.variance <= 0.0 {
        return None;
    }
    let functions = all.keys.iter();
    let functions = functions.filter(|(key, _)| matches!(key, Key::Function(_)));
    let samples: u64 = functions.map(|(_, it)| it.2).sum();
    if is_net && (samples as f64) < whole.items * SAMPLES_EACH {
        return None;
    }
    let mut keys: Vec<Key> = all.keys.keys().copied().collect();
    keys.sort_unstable();
    let (mut rows, mut waits) = (Vec::new(), 0.0);
    for key in keys {
        let (sum, product, samples) = &all.keys[&key];
        let share = whole.share_of(key, sum.total(), product.total());
        if !matches!(key, Key::Function(_)) {
            waits += share;
        } else if *samples < MIN_SAMPLES {
            continue;
        }
        rows.push((key, share));
    }
    let attributed: f64 = rows.iter().map(|(_, share)| share).sum();
    let on_cpu = whole.share(all.active.0.total(), all.active.1.total());
    let functions = attributed - waits;
    // Time neither on the CPU nor waiting went to other items of the thread.
    let elsewhere = 1.0 - on_cpu - waits;
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    rows.retain(|(_, share)| share.abs() >= LEAST_SHARE);
    rows.truncate(top);
    let draws = Draws::of(&all.items, 3);
    let replicates: Vec<(Moments, &Draw)> = draws
        .0
        .iter()
        .map(|draw| (Moments::of(all, &|it: &Blocks| it.weighted(draw)), draw))
        .collect();
    let listed: f64 = rows.iter().map(|(_, share)| share).sum();
    let part = |&(key, share): &(Key, f64)| {
        let (sum, product, samples) = &all.keys[&key];
        let of = |(moments, draw): &(Moments, &Draw)| {
            moments.share_of(key, sum.weighted(draw), product.weighted(draw))
        };
        let ends = interval(replicates.iter().map(of).collect());
        let (kind, function, state) = naming.of(key);
        VariancePart {
            kind,
            function,
            state,
            share,
            share_low: ends.map(|it| it.0),
            share_high: ends.map(|it| it.1),
            samples: *samples,
        }
    };
    Some(Variance {
        items: whole.items as u64,
        stddev_ns: whole.variance.sqrt(),
        parts: rows.iter().map(part).collect(),
        others: attributed - listed + elsewhere,
        unexplained: on_cpu - functions,
    })
}
