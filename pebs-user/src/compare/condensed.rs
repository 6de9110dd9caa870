//! Mean time of each function per item, computed from sums over items: the only data of items whose details were not
//! kept.
//!
//! # The estimate
//!
//! The estimate of [`crate::compare::pool`]: time per item of f = (events of f / all events) x
//! (total active time / items); for an event that is not a clock events of f / items. A sample stands for as
//! many events as the reset value in force when it was taken, so the reset value may change.
//!
//! # Its interval
//!
//! Of n items, item i has the active time a_i, N_i events and n_i of f; p = sum n / sum N, and bars
//! are means. To first order an item moves the estimate by
//!
//! ```text
//! e_i / n,  e_i = p (a_i - ā) + (ā / N̄) (n_i - p N_i)
//! ```
//!
//! so its variance is sum e_i² / (n (n - 1)), and sum e_i² follows from the sums of a, a², n, n², n N
//! and n a that `function_stats` holds, N² and N a being the sums of n N and n a over functions. The
//! interval is the estimate ± 1.96 standard errors: like the bootstrap's it covers the chance of
//! sampling and the spread between items, and assumes independent items. Not covered is that each distance between
//! samples is in force for a while: in ten recordings of `tests/tests/kernel/overhead.rs`, `swings_in_aggregates`, the ratio
//! of two functions was off by up to 14 %, with an interval of 5 %. Below [`MIN_GROUPS`] items there is no interval.
//!
//! *Worked number.* The pool's: 20,000 items of 5 us each with 6,250 samples, 1,250 of them in f, no
//! item with two; each counts as one event. ā = 5 us, p = 0.2, N̄ = 0.3125; e_i = 16 us x (n_i - 0.2 N_i), so sum e² = 256 us² x
//! (1250 x 0.64 + 5000 x 0.04) = 256,000 us²; the error is sqrt(256,000) / 20,000 us = 0.025 us and the
//! interval 0.95..1.05 us.
//!
//! Source: Cochran, "Sampling Techniques", section 6.3, for the variance of a ratio.

use rustc_hash::FxHashMap;

use crate::compare::pool::{MIN_GROUPS, PooledFunction, Quantity};
use crate::units::FunctionId;

/// Sums of one function over items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FunctionSums {
    pub samples: u64,
    /// Events that these stand for.
    pub events: f64,
    /// Squares of its events in an item.
    pub squared: f64,
    /// Its events x all events of the item.
    pub product: f64,
    /// Its events x the item's active time, ns.
    pub active_ns: f64,
}

/// Sums over items, by function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condensed {
    pub items: u64,
    /// Active time of all items, ns.
    pub active_ns: f64,
    /// Squares of the active times, ns².
    pub active_squared: f64,
    functions: FxHashMap<FunctionId, FunctionSums>,
    whole: FunctionSums,
    /// Some items were taken out again: squares are not known.
    reduced: bool,
}

impl Condensed {
    pub(crate) fn add(&mut self, function: FunctionId, sums: FunctionSums) {
        let FunctionSums {
            samples,
            events,
            squared,
            product,
            active_ns,
        } = sums;
        for sum in [self.functions.entry(function).or_default(), &mut self.whole] {
            sum.samples += samples;
            sum.events += events;
            sum.squared += squared;
            sum.product += product;
            sum.active_ns += active_ns;
        }
    }

    /// Subtracts these items, given the samples of their functions and the events that these stand for. The result has no
    /// interval.
    #[must_use]
    pub(crate) fn without(
        &self,
        items: u64,
        active_ns: f64,
        functions: impl Iterator<Item = (FunctionId, (u64, f64))>,
    ) -> Self {
        let mut rest = self.clone();
        rest.items = rest.items.saturating_sub(items);
        rest.active_ns = (rest.active_ns - active_ns).max(0.0);
        rest.reduced = true;
        for (function, (samples, events)) in functions {
            if let Some(sums) = rest.functions.get_mut(&function) {
                let less = (samples.min(sums.samples), events.min(sums.events));
                for sums in [sums, &mut rest.whole] {
                    sums.samples -= less.0;
                    sums.events -= less.1;
                }
            }
        }
        rest.functions.retain(|_, sums| sums.samples > 0);
        rest
    }

    /// Samples of a function.
    pub(crate) fn samples_of(&self, function: FunctionId) -> u64 {
        self.functions.get(&function).map_or(0, |it| it.samples)
    }

    /// Events that the samples of a function stand for.
    pub(crate) fn events_of(&self, function: FunctionId) -> f64 {
        self.functions.get(&function).map_or(0.0, |it| it.events)
    }

    /// Makes one function of several; it has no interval, as it is not known how they go together in an item.
    pub(crate) fn join(&mut self, functions: &[FunctionId], joined: FunctionId) {
        for function in functions {
            if let Some(sums) = self.functions.remove(function) {
                let sum = self.functions.entry(joined).or_default();
                sum.samples += sums.samples;
                sum.events += sums.events;
                sum.squared = f64::NAN;
            }
        }
    }

    /// Samples of all functions.
    #[must_use]
    pub(crate) const fn samples(&self) -> u64 {
        self.whole.samples
    }

    /// Events that these stand for.
    #[must_use]
    pub(crate) const fn events(&self) -> f64 {
        self.whole.events
    }

    /// Every function with a sample; in no particular order.
    pub(crate) fn functions(&self) -> impl Iterator<Item = FunctionId> + '_ {
        self.functions.keys().copied()
    }

    /// Time or events of a function per item; 0 if no sample hit it, `None` if there are no items or no
    /// samples.
    #[must_use]
    pub(crate) fn per_item(&self, function: FunctionId, quantity: Quantity) -> Option<f64> {
        let events = self.functions.get(&function).map_or(0.0, |it| it.events);
        let items = self.items as f64;
        let per_item = match quantity {
            Quantity::Time => events / self.whole.events * self.active_ns / items,
            Quantity::Events => events / items,
        };
        per_item.is_finite().then_some(per_item)
    }

    /// Everything about a function; `None` if no sample saw it.
    #[must_use]
    pub(crate) fn function(
        &self,
        function: FunctionId,
        quantity: Quantity,
    ) -> Option<PooledFunction> {
        let sums = self.functions.get(&function)?;
        let per_item = self.per_item(function, quantity)?;
        let half = 1.96 * self.variance(sums, quantity).sqrt();
        let known = !self.reduced && self.items >= MIN_GROUPS as u64 && half.is_finite();
        Some(PooledFunction {
            samples: sums.samples,
            share: sums.events / self.whole.events,
            per_item,
            interval: known.then(|| ((per_item - half).max(0.0), per_item + half)),
        })
    }

    /// Variance of the estimate of a function.
    fn variance(&self, of: &FunctionSums, quantity: Quantity) -> f64 {
        let (whole, items) = (&self.whole, self.items as f64);
        let squares = match quantity {
            Quantity::Events => of.squared - of.events * of.events / items,
            Quantity::Time => {
                let p = of.events / whole.events;
                let mean = self.active_ns / items;
                let per_event = self.active_ns / whole.events;
                let active = self.active_squared - items * mean * mean;
                let counts = of.squared - 2.0 * p * of.product + p * p * whole.product;
                let both = of.active_ns - p * whole.active_ns;
                p * p * active + per_event.powi(2) * counts + 2.0 * p * per_event * both
            }
        };
        // Sums that cancel may end a little below 0.
        squares.max(0.0) / (items * (items - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::pool::Pool;
    use crate::rng::SplitMix64;

    const F: FunctionId = FunctionId(1);
    const G: FunctionId = FunctionId(2);

    /// Sums of items with an active time and samples of F and G, all with one reset value.
    fn condensed(items: &[(f64, u32, u32)], reset: u32) -> Condensed {
        let mut sums = Condensed::default();
        items.iter().for_each(|it| add(&mut sums, *it, reset));
        sums
    }

    fn add(sums: &mut Condensed, (active, f, g): (f64, u32, u32), reset: u32) {
        sums.items += 1;
        sums.active_ns += active;
        sums.active_squared += active * active;
        let reset = f64::from(reset);
        for (function, samples) in [(F, f), (G, g)].into_iter().filter(|(_, n)| *n > 0) {
            let events = f64::from(samples) * reset;
            let sums_of = FunctionSums {
                samples: u64::from(samples),
                events,
                squared: events * events,
                product: events * f64::from(f + g) * reset,
                active_ns: events * active,
            };
            sums.add(function, sums_of);
        }
    }

    /// The worked number: 20,000 items of 5 us, 1,250 samples of 6,250 in F.
    #[test]
    fn worked_number() {
        let item = |n: u32| {
            (
                5_000.0,
                u32::from(n < 1250),
                u32::from((1250..6250).contains(&n)),
            )
        };
        let sums = condensed(&(0..20_000).map(item).collect::<Vec<_>>(), 1);
        let f = sums.function(F, Quantity::Time).unwrap();
        assert_eq!((f.samples, f.share, f.per_item), (1250, 0.2, 1000.0));
        let (low, high) = f.interval.unwrap();
        let half = 1.96 * 256_000_f64.sqrt() / 20_000.0 * 1000.0;
        assert!((high - low - 2.0 * half).abs() < 0.1, "{low} {high}");
    }

    /// Gives the pool's estimate over single items, and nearly the bootstrap's interval, for items that
    /// differ and whose slow ones spend more of their time in F; also where the reset value changes in the middle, and
    /// with it what the items are like.
    #[test]
    fn as_the_bootstrap() {
        let resets = [[1000, 1000], [1000, 9000]];
        for (resets, quantity) in resets
            .into_iter()
            .flat_map(|it| [(it, Quantity::Time), (it, Quantity::Events)])
        {
            let mut random = SplitMix64::new(4);
            let (mut pool, mut sums) = (Pool::default(), Condensed::default());
            for key in 0..4000 {
                let half = usize::from(key >= 2000);
                let reset = resets[half];
                let slow = key % 50 == 0;
                let active = f64::from(8_000 + random.below(4_000)) * if slow { 20.0 } else { 1.0 };
                let every = 16 * reset;
                let samples =
                    (active / f64::from(every)) as u32 + u32::from(random.below(every / 1600) < 6);
                let often = [if slow { 8 } else { 3 }, 5][half];
                let f = (0..samples).filter(|_| random.below(10) < often);
                let f = f.count() as u32;
                pool.add_item(key, active as i64);
                for (function, samples) in [(F, f), (G, samples - f)] {
                    let events = u64::from(reset) * u64::from(samples);
                    pool.add_samples(key, function, (samples, events));
                }
                add(&mut sums, (active, f, samples - f), reset);
            }
            let pooled = pool.close(quantity);
            for function in [F, G] {
                let found = sums.function(function, quantity).unwrap();
                let other = pooled.function(function).unwrap();
                assert_eq!(found.samples, other.samples);
                assert!((found.share / other.share - 1.0).abs() < 1e-9);
                assert!((found.per_item / other.per_item - 1.0).abs() < 1e-9);
                let width =
                    |interval: Option<(f64, f64)>| interval.map(|(low, high)| high - low).unwrap();
                let ratio = width(found.interval) / width(other.interval);
                assert!(
                    (0.8..1.25).contains(&ratio),
                    "{quantity:?} {function:?} {resets:?}: {ratio}"
                );
            }
        }
    }

    /// Without some items the sums of the others remain, and no interval.
    #[test]
    fn without_some() {
        let items: Vec<(f64, u32, u32)> = (0..100).map(|n| (1000.0, n % 3, 2)).collect();
        let (kept, rest) = items.split_at(30);
        let of_kept = [(F, kept.iter().map(|it| u64::from(it.1)).sum()), (G, 60)];
        let of_kept = of_kept.map(|(function, n): (_, u64)| (function, (n, 7.0 * n as f64)));
        let left = condensed(&items, 7).without(30, 30_000.0, of_kept.into_iter());
        let expected = condensed(rest, 7);
        assert_eq!((left.items, left.samples()), (70, expected.samples()));
        for function in [F, G] {
            let (left, expected) = (
                left.function(function, Quantity::Time).unwrap(),
                expected.function(function, Quantity::Time).unwrap(),
            );
            assert!((left.per_item - expected.per_item).abs() < 1e-9);
            assert_eq!(left.interval, None);
        }
    }

    /// Functions without samples are unknown.
    #[test]
    fn unknown_stays_unknown() {
        assert_eq!(Condensed::default().function(F, Quantity::Time), None);
        assert_eq!(Condensed::default().per_item(F, Quantity::Time), None);
        let few = condensed(&[(100.0, 1, 1); 3], 1);
        assert_eq!(few.function(F, Quantity::Time).unwrap().interval, None);
        assert_eq!(few.per_item(FunctionId(9), Quantity::Time), Some(0.0));
    }
}
