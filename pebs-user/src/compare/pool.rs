//! Mean time of each function per item over many items, each of which may be shorter than the sample interval.
//!
//! # The estimate
//!
//! With a sample every 16 us, an item of 5 us mostly has no sample: its functions are unknown. Over many
//! items the samples of a clock fall on a function in proportion to the time spent in it: time per item of f
//! = (events of f / all events) x (total active time / items), where each sample stands for as many events as
//! the reset value in force when it was taken. The active time is known from marks and context switches; only
//! its division among functions is sampled. For an event that is not a clock the count per item is events of
//! f / items.
//!
//! *Assumption*: the phase of sampling is independent of the items, and so is a change of the reset value
//! (`--max-overhead`): samples before and after it differ only in the number of events they stand for.
//!
//! # Its interval
//!
//! A bootstrap over items: [`RESAMPLES`] times as many items are drawn with replacement, and the middle 95 %
//! of the resulting estimates are the interval. So it covers both the chance of sampling and the spread
//! between items, and assumes independent items. To bound cost and memory for any number of items, items are
//! first put into [`BLOCKS`] groups by a hash of their number and whole groups are drawn; with fewer items
//! than groups that is nearly the bootstrap over single items. The seed is fixed: the same trace gives the
//! same interval. Below [`MIN_GROUPS`] groups there is no interval.
//!
//! Where distances between samples vary, each is in force for a while, and samples may beat with the items of that
//! while: they are drawn together, as runs of consecutive items ([`Pool::of_runs`]). So the interval covers what was
//! drawn, the distances, and the spread between items. Equal distances are a single draw, whose error is unknown.
//!
//! Where a single clock beats with items ([`crate::store::run::RunInfo::beating`]), it misses the same places in draw after
//! draw: what is wrong is the same in all of them and can't be told from how they differ. Then there is no interval
//! ([`Pool::without_intervals`]). *Measured* on regular items, one clock every 25 or 50 us: 4 of 21 intervals held the truth.
//!
//! *Own time.* The active time is net of pebs-trace's own, whose error is the same in all items: a mark's for each of
//! them, a sample's for each of these ([`OwnError`]). It is added to the interval in quadrature. *Worked number*: marks are
//! charged 612 ns an item, give or take 153; of items of 5 us that is 3 %, so the interval is 6 % to either side if
//! samples are many.
//!
//! *Rates.* Events that are not clocks: errors of functions' rates are common to all items ([`Pool::add_error`]). How much of the
//! items' own errors that is isn't stored, so all of it is added up, and then in quadrature to the interval.
//!
//! *Worked number.* 20,000 items with a total of 100 ms of active time gave 6,250 samples, 1,250 of them in
//! f: f took 20 % of 5 us = 1 us an item, with a sampling error of sqrt(0.2 x 0.8 / 6250) / 0.2 = 2.5 %, so
//! the interval is about 0.95..1.05 us.
//!
//! Measured by simulation (items of 3..9 us, 10 us between samples): bias below 1 %; the interval contains
//! the truth in 95 % of the trials with 50, 100 and 1,000 items, in 92 % with 20.
//!
//! Source: Akiyama 2018, section V.B.1 (T x n/N); Efron and Tibshirani, "An Introduction to the
//! Bootstrap", chapter 13.

use std::num::NonZeroU64;

use pebs_stats::blocks::interval;
use pebs_stats::resample::{BLOCKS, Weights, drawn, weighted};
use pebs_stats::rng::{Rng, mix};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::store::run::RunInfo;
use crate::units::FunctionId;

/// Least number of samples of a function for its time per visit: with 10, chance alone makes it uncertain by a third.
pub(crate) const MIN_SAMPLES: u64 = 10;

/// Least number of samples of a function within one visit for its time there: with 3 it is known to about a third.
pub(crate) const MIN_VISIT_SAMPLES: u32 = 3;

/// Resamples of the bootstrap.
pub(crate) const RESAMPLES: usize = 200;

/// Least number of non-empty groups for an interval.
pub(crate) const MIN_GROUPS: usize = 8;

/// Seed of the resampling.
const SEED: u64 = 0x7065_6273;

/// Quantity estimated per item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Active time in ns: the samples come from a clock.
    Time,
    /// Number of events.
    Events,
}

/// Standard errors of pebs-trace's own time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OwnError {
    /// Of the marks of an item.
    pub marks: f64,
    pub sample: f64,
}

impl OwnError {
    /// Those of a run, of the items of a probe.
    pub(crate) fn of(info: &RunInfo, probe: u16) -> Self {
        let Some(own) = &info.own_time else {
            return Self::default();
        };
        let marks = own.marks.iter().find(|it| it.probe_id.0 == probe);
        let marks = marks.and_then(|it| it.inside.as_ref());
        Self {
            marks: marks.map_or(0.0, |it| it.stderr_ns),
            sample: own.sample.as_ref().map_or(0.0, |it| it.stderr_ns),
        }
    }
}

/// Standard errors on each side of an interval of 95 %.
const Z_95: f64 = 1.96;

/// Sums over items, by function.
///
/// Memory: 4 KiB for each function, whatever the number of items.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Number of consecutive items that are drawn together.
    run: u64,
    /// Whether what is drawn can tell the error.
    draws: bool,
    items: Box<[u32; BLOCKS]>,
    active_ns: Box<[f64; BLOCKS]>,
    events: Box<[u64; BLOCKS]>,
    samples: u64,
    own: OwnError,
    functions: Functions,
}

/// Samples of a function, and the events that they stand for by block.
#[derive(Clone, Debug)]
struct Counts {
    samples: u64,
    /// Sum of the errors that its events have in all items alike.
    error: f64,
    events: [u64; BLOCKS],
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            samples: 0,
            error: 0.0,
            events: [0; BLOCKS],
        }
    }
}

/// Functions with a smaller number are looked up in an array: a trace numbers them from 0.
const NEAR: usize = 1 << 12;

/// Counts by function.
#[derive(Clone, Debug, Default)]
struct Functions {
    near: Vec<Option<Box<Counts>>>,
    /// Functions with higher numbers.
    far: FxHashMap<FunctionId, Box<Counts>>,
}

impl Functions {
    fn get(&self, function: FunctionId) -> Option<&Counts> {
        match self.near.get(function.0 as usize) {
            Some(near) => near.as_deref(),
            None => self.far.get(&function).map(|counts| &**counts),
        }
    }

    #[inline(always)]
    fn of(&mut self, function: FunctionId) -> &mut Counts {
        let at = function.0 as usize;
        if at >= NEAR {
            return self.far.entry(function).or_default();
        }
        if at >= self.near.len() {
            self.near.resize(at + 1, None);
        }
        self.near[at].get_or_insert_default()
    }

    fn remove(&mut self, function: FunctionId) -> Option<Box<Counts>> {
        match self.near.get_mut(function.0 as usize) {
            Some(near) => near.take(),
            None => self.far.remove(&function),
        }
    }

    /// In no particular order.
    fn iter(&self) -> impl Iterator<Item = (FunctionId, &Counts)> {
        let near = (0..).map(FunctionId).zip(&self.near);
        let near = near.filter_map(|(function, counts)| Some((function, counts.as_deref()?)));
        near.chain(
            self.far
                .iter()
                .map(|(function, counts)| (*function, &**counts)),
        )
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            run: 1,
            draws: true,
            items: Box::new([0; BLOCKS]),
            active_ns: Box::new([0.0; BLOCKS]),
            events: Box::new([0; BLOCKS]),
            samples: 0,
            own: OwnError::default(),
            functions: Functions::default(),
        }
    }
}

impl Pool {
    /// Sums whose intervals draw runs of this many consecutive items.
    pub(crate) fn of_runs(run: NonZeroU64) -> Self {
        Self {
            run: run.get(),
            ..Self::default()
        }
    }

    /// Sums whose intervals are unknown.
    pub(crate) fn without_intervals() -> Self {
        Self {
            draws: false,
            ..Self::default()
        }
    }

    /// The same sums; the active times have this error.
    pub(crate) fn with_error(self, own: OwnError) -> Self {
        Self { own, ..self }
    }

    /// Adds an item with its active time in ns. `key` is its number.
    pub(crate) fn add_item(&mut self, key: u64, active_ns: i64) {
        let block = self.block(key);
        self.items[block] += 1;
        self.active_ns[block] += active_ns as f64;
    }

    /// Adds samples of a function in an item that was or will be added under the same key, with the
    /// events that they stand for.
    pub(crate) fn add_samples(
        &mut self,
        key: u64,
        function: FunctionId,
        (samples, events): (u32, u64),
    ) {
        self.add_functions(key, std::iter::once((function, (samples, events))));
    }

    /// Adds samples of several functions in one item, as [`Pool::add_samples`].
    pub(crate) fn add_functions(
        &mut self,
        key: u64,
        functions: impl Iterator<Item = (FunctionId, (u32, u64))>,
    ) {
        let block = self.block(key);
        for (function, (samples, events)) in functions {
            self.events[block] += events;
            self.samples += u64::from(samples);
            let counts = self.functions.of(function);
            counts.samples += u64::from(samples);
            counts.events[block] += events;
        }
    }

    /// The events of a function in an item have this error, which is the same way in all of them.
    pub(crate) fn add_error(&mut self, function: FunctionId, error: f64) {
        self.functions.of(function).error += error;
    }

    fn block(&self, key: u64) -> usize {
        (mix(key / self.run) % BLOCKS as u64) as usize
    }

    /// Every function with a sample; in no particular order.
    pub(crate) fn functions(&self) -> impl Iterator<Item = FunctionId> + '_ {
        self.functions.iter().map(|(function, _)| function)
    }

    /// Draws the resamples; the result answers queries for functions.
    #[must_use]
    pub(crate) fn close(self, quantity: Quantity) -> Pooled {
        let groups: Vec<usize> = (0..BLOCKS).filter(|&b| self.items[b] > 0).collect();
        let sums = Sums {
            items: self.items.map(f64::from),
            active_ns: *self.active_ns,
            events: in_floats(&self.events),
        };
        let mut rng = Rng::new(SEED);
        let resamples = if groups.len() < MIN_GROUPS || !self.draws {
            Vec::new()
        } else {
            (0..RESAMPLES)
                .map(|_| Resample::new(drawn(&groups, &mut rng), &sums))
                .collect()
        };
        let mut once = Box::new([0; BLOCKS]);
        groups.iter().for_each(|&group| once[group] = 1);
        let whole = Resample::new(once, &sums);
        let error_ns = (self.own.marks * whole.items).hypot(self.own.sample * self.samples as f64);
        Pooled {
            quantity,
            active_error: match quantity {
                Quantity::Time if whole.active_ns > 0.0 => error_ns / whole.active_ns,
                _ => 0.0,
            },
            whole,
            resamples,
            functions: self.functions,
        }
    }
}

fn in_floats(events: &[u64; BLOCKS]) -> [f64; BLOCKS] {
    events.map(|events| events as f64)
}

/// Sums over all functions, by block.
struct Sums {
    items: [f64; BLOCKS],
    active_ns: [f64; BLOCKS],
    events: [f64; BLOCKS],
}

/// One weighting of the blocks, with the resulting sums.
#[derive(Clone, Debug)]
struct Resample {
    weights: Weights,
    items: f64,
    active_ns: f64,
    events: f64,
}

impl Resample {
    fn new(weights: Weights, sums: &Sums) -> Self {
        Self {
            items: weighted(&weights, &sums.items),
            active_ns: weighted(&weights, &sums.active_ns),
            events: weighted(&weights, &sums.events),
            weights,
        }
    }

    /// Estimate of a function per item; `None` where the divisor is 0.
    fn estimate(&self, events: &[f64; BLOCKS], quantity: Quantity) -> Option<f64> {
        let of_function = weighted(&self.weights, events);
        let per_item = match quantity {
            Quantity::Time => of_function / self.events * self.active_ns / self.items,
            Quantity::Events => of_function / self.items,
        };
        per_item.is_finite().then_some(per_item)
    }
}

/// Sums over items that functions can be asked of.
#[derive(Clone, Debug)]
pub(crate) struct Pooled {
    quantity: Quantity,
    /// Standard error of the active time, as a part of it.
    active_error: f64,
    whole: Resample,
    resamples: Vec<Resample>,
    functions: Functions,
}

/// Estimate of one function over many items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PooledFunction {
    /// Samples of the function.
    pub samples: u64,
    /// Share of all events, 0..1.
    pub share: f64,
    /// Per item: ns, or events.
    pub per_item: f64,
    /// The 95 % interval of `per_item`; `None` if there are too few items.
    pub interval: Option<(f64, f64)>,
}

impl Pooled {
    #[cfg(test)]
    #[must_use]
    pub fn items(&self) -> u64 {
        self.whole.items as u64
    }

    /// Events that the samples of all functions stand for.
    #[must_use]
    pub(crate) const fn events(&self) -> f64 {
        self.whole.events
    }

    /// Active time of all items in ns.
    #[must_use]
    pub(crate) fn active_ns(&self) -> f64 {
        self.whole.active_ns
    }

    /// Every function with a sample, its samples and the events that these stand for; in no particular order.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (FunctionId, (u64, f64))> + '_ {
        let counts = |it: &Counts| (it.samples, in_floats(&it.events).iter().sum());
        let each = self.functions.iter();
        each.map(move |(function, it)| (function, counts(it)))
    }

    /// Events that the samples of a function stand for.
    pub(crate) fn events_of(&self, function: FunctionId) -> f64 {
        let counts = self.functions.get(function);
        counts.map_or(0.0, |it| in_floats(&it.events).iter().sum())
    }

    /// Samples of a function.
    pub(crate) fn samples(&self, function: FunctionId) -> u64 {
        self.functions.get(function).map_or(0, |it| it.samples)
    }

    /// Makes one function of several.
    pub(crate) fn join(&mut self, functions: &[FunctionId], joined: FunctionId) {
        for function in functions {
            let Some(counts) = self.functions.remove(*function) else {
                continue;
            };
            let sum = self.functions.of(joined);
            sum.samples += counts.samples;
            sum.error += counts.error;
            for (sum, events) in sum.events.iter_mut().zip(counts.events) {
                *sum += events;
            }
        }
    }

    /// Time or events of a function per item, without an interval; 0 if no sample hit it, `None` if there are
    /// no items or no samples.
    ///
    /// Cost: O(BLOCKS).
    #[must_use]
    pub(crate) fn per_item(&self, function: FunctionId) -> Option<f64> {
        let counts = self.functions.get(function);
        let events = counts.map_or([0.0; BLOCKS], |counts| in_floats(&counts.events));
        self.whole.estimate(&events, self.quantity)
    }

    /// Everything about a function; `None` if no sample saw it.
    ///
    /// Cost: O(RESAMPLES x BLOCKS).
    #[must_use]
    pub(crate) fn function(&self, function: FunctionId) -> Option<PooledFunction> {
        let counts = self.functions.get(function)?;
        let events = in_floats(&counts.events);
        let per_item = self.whole.estimate(&events, self.quantity)?;
        let all: f64 = events.iter().sum();
        let error = if all > 0.0 { counts.error / all } else { 0.0 };
        let own = Z_95 * self.active_error.hypot(error) * per_item;
        Some(PooledFunction {
            samples: counts.samples,
            share: all / self.whole.events,
            per_item,
            interval: self.interval(&events).map(|(low, high)| {
                let low = per_item - (per_item - low).hypot(own);
                (low.max(0.0), per_item + (high - per_item).hypot(own))
            }),
        })
    }

    /// The middle 95 % of the resampled estimates.
    fn interval(&self, events: &[f64; BLOCKS]) -> Option<(f64, f64)> {
        let resamples = self.resamples.iter();
        let estimates = resamples.filter_map(|it| it.estimate(events, self.quantity));
        interval(estimates.collect())
    }
}

/// Mean time of pebs-trace's marks, samples and other records in a visit, ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OwnTimes {
    /// In all visits counted.
    pub all_ns: f64,
    /// In slow ones; null if there are none.
    pub slow_ns: Option<f64>,
    /// In typical ones; null if there are none.
    pub typical_ns: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: FunctionId = FunctionId(1);
    const G: FunctionId = FunctionId(2);

    /// Functions that are joined have their sum.
    #[test]
    fn joined() {
        let mut pooled = pool().close(Quantity::Time);
        let [f, g] = [F, G].map(|it| pooled.function(it).unwrap());
        let both = FunctionId(u32::MAX);
        pooled.join(&[F, G, FunctionId(3)], both);
        let sum = pooled.function(both).unwrap();
        assert_eq!(sum.samples, f.samples + g.samples);
        assert!((sum.per_item - f.per_item - g.per_item).abs() < 1e-6);
        assert_eq!(pooled.function(F), None);
    }

    /// 1,000 items of 5 us; every fifth has a sample, every fourth of those in `F`.
    fn pool() -> Pool {
        let mut pool = Pool::default();
        for key in 0..1000 {
            pool.add_item(key, 5_000);
            if key % 5 == 0 {
                let function = if key % 20 == 0 { F } else { G };
                pool.add_samples(key, function, (1, 16_000));
            }
        }
        pool
    }

    /// Items without a sample count: time is divided over all items.
    #[test]
    fn share_of_time() {
        let pooled = pool().close(Quantity::Time);
        assert_eq!(pooled.items(), 1000);
        assert_eq!(pooled.active_ns(), 5e6);
        let f = pooled.function(F).unwrap();
        assert_eq!((f.samples, f.share), (50, 0.25));
        assert!((f.per_item - 1250.0).abs() < 1e-9);
        let (low, high) = f.interval.unwrap();
        // By chance of sampling alone: 1.96 x sqrt(0.25 x 0.75 / 200) of 5 us = 300 ns.
        assert!((800.0..1100.0).contains(&low), "{low}");
        assert!((1400.0..1700.0).contains(&high), "{high}");
        assert_eq!(pooled.per_item(F), Some(f.per_item));
    }

    /// The error of pebs-trace's own time is in the interval of times, and not in that of counts.
    #[test]
    fn own_time_is_uncertain() {
        let width = |own: OwnError, quantity: Quantity| {
            let f = pool().with_error(own).close(quantity).function(F)?;
            let (low, high) = f.interval?;
            assert!(low <= f.per_item && f.per_item <= high);
            Some((high - low) / f.per_item)
        };
        let alone = width(OwnError::default(), Quantity::Time).unwrap();
        // 500 ns of 5 us, and 2.5 us of each of 200 samples in 1,000 items: 10 % each.
        let marks = OwnError {
            marks: 500.0,
            sample: 0.0,
        };
        let both = OwnError {
            sample: 2_500.0,
            ..marks
        };
        for (own, error) in [(marks, 0.1), (both, 0.02f64.sqrt())] {
            let found = width(own, Quantity::Time).unwrap();
            let expected = alone.hypot(2.0 * 1.96 * error);
            assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}");
        }
        let events = Quantity::Events;
        assert_eq!(width(both, events), width(OwnError::default(), events));
    }

    /// An error that all items have alike doesn't shrink with their number.
    #[test]
    fn errors_that_are_alike() {
        let width = |error: f64| {
            let mut pool = pool();
            (0..50).for_each(|_| pool.add_error(F, error * 16_000.0));
            let f = pool.close(Quantity::Time).function(F).unwrap();
            let (low, high) = f.interval.unwrap();
            (high - low) / f.per_item
        };
        let expected = width(0.0).hypot(2.0 * 1.96 * 0.3);
        assert!((width(0.3) / expected - 1.0).abs() < 0.02, "{}", width(0.3));
    }

    /// An event that is not a clock is counted, not timed.
    #[test]
    fn events_per_item() {
        let pooled = pool().close(Quantity::Events);
        assert_eq!(pooled.function(G).unwrap().per_item, 150.0 * 16.0);
    }

    /// After a change of the reset value each sample has the weight of its own reset value: the division
    /// among functions does not change.
    #[test]
    fn reset_values_differ() {
        let mut pool = Pool::default();
        for key in 0..1000 {
            pool.add_item(key, 5_000);
            // F in every other item, at first every 1,000 events and then every 10,000.
            let function = if key % 2 == 0 { F } else { G };
            if key < 500 {
                pool.add_samples(key, function, (10, 10_000));
            } else {
                pool.add_samples(key, function, (1, 10_000));
            }
        }
        let time = pool.clone().close(Quantity::Time);
        let f = time.function(F).unwrap();
        assert_eq!((f.samples, f.share, f.per_item), (2_750, 0.5, 2_500.0));
        let events = pool.close(Quantity::Events);
        assert_eq!(events.function(F).unwrap().per_item, 5_000.0);
        assert_eq!(events.events(), 1e7);
    }

    /// Runs of items that samples beat with, each at another place: only an interval that draws runs holds the truth. At
    /// the same place in all, none does, and there is none.
    #[test]
    fn runs_are_drawn_together() {
        const RUN: u64 = 50;
        let interval = |run: u64| {
            let run = NonZeroU64::new(run);
            let mut pool = run.map_or_else(Pool::without_intervals, Pool::of_runs);
            let mut rng = Rng::new(1);
            let mut function = F;
            for key in 0..40 * RUN {
                if key % RUN == 0 {
                    function = if rng.below(2) == 0 { F } else { G };
                }
                pool.add_item(key, 1_000);
                pool.add_samples(key, function, (1, 1));
            }
            let (low, high) = pool.close(Quantity::Time).function(F)?.interval?;
            Some(high - low)
        };
        // 1.96 x 2 x sqrt(0.25 / n) of 1,000 ns, for n = 2,000 items or 40 runs.
        let (by_item, by_run) = (interval(1).unwrap(), interval(RUN).unwrap());
        assert_eq!(interval(0), None);
        assert!((30.0..60.0).contains(&by_item), "{by_item}");
        assert!((220.0..400.0).contains(&by_run), "{by_run}");
    }

    /// Functions are distinguished whatever their numbers are; each has its samples, and there are no others.
    #[test]
    fn any_number() {
        let mut pool = Pool::default();
        let numbers = [0, 7, NEAR as u32 - 1, NEAR as u32, u32::MAX];
        for (n, number) in (1..).zip(numbers) {
            pool.add_item(n.into(), 100);
            pool.add_functions(n.into(), [(FunctionId(number), (n, 1))].into_iter());
        }
        let pooled = pool.close(Quantity::Time);
        let mut functions: Vec<_> = pooled.functions().collect();
        functions.sort_by_key(|(_, (samples, _))| *samples);
        let samples = (1..).map(|n| (n, 1.0));
        let expected = numbers.map(FunctionId).into_iter().zip(samples);
        assert!(functions.into_iter().eq(expected));
        assert_eq!(pooled.function(FunctionId(7)).unwrap().samples, 2);
        assert_eq!(pooled.function(FunctionId(8)), None);
        assert_eq!(pooled.per_item(FunctionId(u32::MAX)), Some(100.0 / 5.0));
    }

    /// The same items give the same interval.
    #[test]
    fn same_interval_again() {
        let interval = || pool().close(Quantity::Time).function(F).unwrap().interval;
        assert_eq!(interval(), interval());
    }

    /// Functions without samples are unknown, and few items give no interval.
    #[test]
    fn unknown_stays_unknown() {
        let empty = Pool::default().close(Quantity::Time);
        assert_eq!(empty.function(F), None);
        assert_eq!(empty.per_item(F), None);
        let mut few = Pool::default();
        for key in 0..3 {
            few.add_item(key, 100);
            few.add_samples(key, F, (2, 2));
        }
        let few = few.close(Quantity::Time);
        assert_eq!(few.function(F).unwrap().interval, None);
        assert_eq!(few.function(F).unwrap().per_item, 100.0);
        assert_eq!(few.per_item(G), Some(0.0));
    }
}
