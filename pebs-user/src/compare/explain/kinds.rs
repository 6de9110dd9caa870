//! Kinds of slow items: what their excess consists of, and what only they do.
//!
//! # Which items
//!
//! Kinds divide the slow items. Where the slow limit is a gap or the 99th percentile it selects the slowest kind, and may
//! hide another well below it. So the candidates are the slow items and all others beyond the outer fence of the middle
//! half, at least 1.5 times the median; of the others at most one in [`MAX_PART`], the longest. Those of a kind that are
//! not slow are listed apart from those that are, and so are kinds without a slow item.
//!
//! # How many kinds
//!
//! An item is described by its *excess*: its time on the CPU and in each wait beyond that of typical items, as a share
//! of all excess, which is observed for every item; and, for the time on the CPU, each function's share, as exactly as
//! the item's samples show it. The kernel's functions in the same system call, or in page faults, are one function here, as the work for
//! one call is spread over many. So an item counts as [`MOST_DRAWS`] draws from its kind's distribution over waits and
//! the CPU, and as at most as many draws from the distribution over functions, one for each sample's worth of its
//! excess. Kinds are the components of a mixture of multinomial distributions, fitted by expectation-maximisation,
//! adding components while the Bayesian information criterion falls. An item with few samples has little weight, so
//! chance makes no component. As items of one kind differ by more than draws do, two components are one kind unless
//! they have less than [`DISTINCT`] in common, where time on the CPU without samples matches anything. Kinds of fewer
//! than [`FEWEST`] items are not distinguished from chance; their items are in no kind. Items of one kind by their
//! composition, some of which take much longer than the others, with a gap between as in [`crate::compare::classes`],
//! are two kinds.
//!
//! A kind whose excess has the composition of typical items is *ordinary*: the tail of the whole distribution. It is
//! listed only if the limit selected some of its items. If two thirds of typical items are one function, slow items
//! that take longer for it alone are still not ordinary: an excess is modelled as a part with the typical composition
//! and a remainder of one function or wait, and where the remainder is more than half the kind is not ordinary. *Worked
//! number*: 63 % of typical items, 94 % of the excess: (1 - 0.94) / (1 - 0.63) = 16 % as typical items. Waiting for a
//! CPU is left out, unless it is most of the excess.
//!
//! # What only they do
//!
//! A function that no other item has is luck if any item could have had it. Of a short item that has the function, only
//! what is sampled shows it, so what is drawn by chance are samples, not items; and as the samples of one item go
//! together, the first one of each: m items of the kind have f, and without their further samples there are N samples, K
//! of them in candidates. All m fall there with the chance K/N (K-1)/(N-1) ..., times the number of functions and waits
//! examined. It counts whether they are in candidates, not in the kind, as kinds are made of the very functions.
//! *Worked numbers*: 1 sample of f, the only one of the kind, of 2,000 samples in all and 100 functions: 100 / 2,000. Of
//! 2,000 samples 100 in candidates, 4 items of which have f: 100 x 0.05^4 = 6e-4.
//!
//! Waits are observed, so they fall on any item by its time, or any item alike, whichever is likelier: m of them with r^m,
//! where r is the candidates' share of the time without the waits in question, at least that of the items.
//!
//! Source: McLachlan and Peel, "Finite Mixture Models", 1.6 and 6.9; Tukey's fences.

use rustc_hash::{FxHashMap, FxHashSet};

use super::contrast::{self, Naming};
use super::groups::Section;
use super::items::Items;
use super::model::{CauseType, Kind, Only};
use super::stump;
use super::sums::{ClassSums, GroupSums};
use crate::compare::classes::{Class, gap_from};
use crate::compare::explain::keys::Key;
use crate::compare::explain::sums::Rows;
use crate::units::FunctionId;

const MOST_KINDS: usize = 6;

/// Largest share of examined items among those that are not slow: one in this many.
const MAX_PART: usize = 10;

/// Largest number of examined items.
const MOST_ITEMS: usize = 20_000;

/// Draws that an item counts as, at most, of each of the two distributions.
const MOST_DRAWS: f64 = 8.0;

/// Least common part of two components that are one kind.
const DISTINCT: f64 = 0.5;

/// Items of a kind, at least.
const FEWEST: usize = 5;

/// Causes listed for a kind.
const CAUSES: usize = 5;

/// Chance of luck above which a function or wait is not reported.
const LUCK: f64 = 0.01;

/// Least mean share of functions and waits that are distinguished.
const LEAST_SHARE: f64 = 0.01;

/// Rounds of expectation-maximisation.
const ROUNDS: usize = 25;

/// Items tried as the seed of one more component.
const SEEDS: usize = 6;

/// The items of a group to look at: the slow ones, and others far beyond the typical ones.
pub(super) fn candidates(section: &Section, items: &Items) -> Vec<u32> {
    if section.summary.limit.is_none() {
        return Vec::new();
    }
    let fence = section.summary.fence();
    let pairs = || section.members.iter().zip(&section.classes);
    let known = |member: u32| items.all[member as usize].has_details();
    let rank = |member: u32| items.all[member as usize].net_ns();
    let slow = pairs().filter(|(member, class)| **class == Class::Slow && known(**member));
    let others = pairs().filter(|(member, class)| {
        **class != Class::Slow && rank(**member) >= fence && known(**member)
    });
    let longest = |mut found: Vec<u32>, most: usize| {
        found.sort_by_key(|&member| (-rank(member), member));
        found.truncate(most);
        found
    };
    let others = longest(
        others.map(|it| *it.0).collect(),
        section.members.len() / MAX_PART,
    );
    let mut found: Vec<u32> = slow.map(|it| *it.0).collect();
    found.extend(others);
    longest(found, MOST_ITEMS)
}

/// An item described by its excess.
struct Point {
    item: u32,
    /// Shares of waits and of the CPU, by place; their sum is 1.
    observed: Vec<(usize, f64)>,
    /// Shares of functions, by place; their sum is 1, or 0 without samples.
    sampled: Vec<(usize, f64)>,
    /// Draws that these count as.
    draws: f64,
}

/// Number of places: waits, other waits and the CPU; and functions and other functions.
#[derive(Clone, Copy)]
struct Places {
    observed: usize,
    sampled: usize,
}

/// Time per item of functions and waits, beside that on the CPU.
struct Times {
    keys: FxHashMap<Key, f64>,
    active_ns: f64,
}

impl Times {
    /// The time in excess of `usual`.
    fn beyond(mut self, usual: &Self) -> Self {
        self.active_ns = (self.active_ns - usual.active_ns).max(0.0);
        for (key, ns) in &mut self.keys {
            *ns -= usual.keys.get(key).copied().unwrap_or(0.0);
        }
        self.keys.retain(|_, ns| *ns > 0.0);
        self
    }

    fn of(&self, is_sampled: bool) -> impl Iterator<Item = (Key, f64)> {
        let all = self.keys.iter().map(|(key, ns)| (*key, *ns));
        all.filter(move |(key, _)| key.is_sampled() == is_sampled)
    }

    /// Composition: shares of waits, and of functions within the time on the CPU.
    fn shares(&self) -> FxHashMap<Key, f64> {
        let waits: f64 = self.of(false).map(|it| it.1).sum();
        let functions: f64 = self.of(true).map(|it| it.1).sum();
        let all = waits + self.active_ns;
        let share = |(key, ns): (Key, f64)| match key.is_sampled() {
            true => (key, ns / functions * self.active_ns / all),
            false => (key, ns / all),
        };
        let known = self.of(true).chain(self.of(false)).map(share);
        known.filter(|it| it.1.is_finite()).collect()
    }
}

/// Places of the keys with a mean share of at least [`LEAST_SHARE`] over this number of items.
fn places(means: FxHashMap<Key, f64>, items: usize) -> FxHashMap<Key, usize> {
    let least = LEAST_SHARE * items as f64;
    let found = means.into_iter().filter(|it| it.1 >= least);
    let mut keys: Vec<Key> = found.map(|it| it.0).collect();
    keys.sort_unstable();
    keys.into_iter().zip(0..).collect()
}

/// Shares of a sum by place; keys without a place go to the one behind the others.
fn placed(
    parts: impl Iterator<Item = (Key, f64)>,
    sum: f64,
    places: &FxHashMap<Key, usize>,
) -> Vec<(usize, f64)> {
    let mut shares = vec![0.0; places.len() + 1];
    for (key, ns) in parts {
        shares[places.get(&key).copied().unwrap_or(places.len())] += ns / sum;
    }
    let places = shares.into_iter().enumerate();
    places.filter(|it| it.1 > 0.0).collect()
}

/// A component of the mixture.
#[derive(Clone, Debug)]
struct Component {
    part: f64,
    /// Logarithms of the probabilities.
    observed: Vec<f64>,
    sampled: Vec<f64>,
}

/// Logarithms of probabilities from numbers of draws. Half a draw is spread over all places, so that no probability is
/// 0.
fn logarithms(draws: &[f64]) -> Vec<f64> {
    let sum: f64 = draws.iter().sum();
    let bias = 0.5 / draws.len() as f64;
    let of = |it: &f64| ((it + bias) / (sum + 0.5)).ln();
    draws.iter().map(of).collect()
}

impl Component {
    /// Component of items with these weights.
    fn of(points: &[Point], weights: &[f64], places: Places) -> Self {
        let mut observed = vec![0.0; places.observed];
        let mut sampled = vec![0.0; places.sampled];
        for (point, weight) in points.iter().zip(weights) {
            for (place, share) in &point.observed {
                observed[*place] += weight * MOST_DRAWS * share;
            }
            for (place, share) in &point.sampled {
                sampled[*place] += weight * point.draws * share;
            }
        }
        let part = weights.iter().sum::<f64>() / points.len() as f64;
        Self {
            part: part.max(1e-9),
            observed: logarithms(&observed),
            sampled: logarithms(&sampled),
        }
    }

    fn likelihood(&self, point: &Point) -> f64 {
        let of = |shares: &[(usize, f64)], ln: &[f64]| -> f64 {
            shares.iter().map(|(place, share)| share * ln[*place]).sum()
        };
        MOST_DRAWS * of(&point.observed, &self.observed)
            + point.draws * of(&point.sampled, &self.sampled)
    }
}

/// A fitted mixture: its logarithmic likelihood, and the component that each item most likely is of.
struct Mixture {
    components: Vec<Component>,
    likelihood: f64,
    of: Vec<usize>,
}

impl Mixture {
    fn fit(points: &[Point], mut components: Vec<Component>, places: Places) -> Self {
        let mut fitted = Self::expected(points, &components).1;
        for _ in 0..ROUNDS {
            let (weights, _) = Self::expected(points, &components);
            components = weights
                .iter()
                .map(|it| Component::of(points, it, places))
                .collect();
            let next = Self::expected(points, &components).1;
            if next.likelihood - fitted.likelihood < 1e-6 * fitted.likelihood.abs() {
                return next;
            }
            fitted = next;
        }
        fitted
    }

    /// By component the weight of each item.
    fn expected(points: &[Point], components: &[Component]) -> (Vec<Vec<f64>>, Self) {
        let mut weights = vec![vec![0.0; points.len()]; components.len()];
        let (mut likelihood, mut of) = (0.0, Vec::with_capacity(points.len()));
        for (at, point) in points.iter().enumerate() {
            let ln: Vec<f64> = components
                .iter()
                .map(|it| it.part.ln() + it.likelihood(point))
                .collect();
            let (mut best, mut top) = (0, f64::NEG_INFINITY);
            for (component, value) in ln.iter().enumerate() {
                if *value > top {
                    (best, top) = (component, *value);
                }
            }
            let sum: f64 = ln.iter().map(|it| (it - top).exp()).sum();
            likelihood += top + sum.ln();
            of.push(best);
            for (component, value) in ln.iter().enumerate() {
                weights[component][at] = (value - top).exp() / sum;
            }
        }
        let fitted = Self {
            components: components.to_vec(),
            likelihood,
            of,
        };
        (weights, fitted)
    }

    /// The Bayesian information criterion: less is better.
    fn criterion(&self, items: usize, places: Places) -> f64 {
        let components = self.components.len();
        let of_one = places.observed - 1 + places.sampled - 1;
        let free = components * of_one + components - 1;
        free as f64 * (items as f64).ln() - 2.0 * self.likelihood
    }
}

/// By item its component.
fn mixture(points: &[Point], places: Places) -> Vec<usize> {
    let one = Component::of(points, &vec![1.0; points.len()], places);
    let mut best = Mixture::fit(points, vec![one], places);
    while best.components.len() < MOST_KINDS {
        // The items that it fits worst, far apart in their order.
        let mut order: Vec<(f64, usize)> = points
            .iter()
            .enumerate()
            .map(|(at, point)| (best.components[best.of[at]].likelihood(point), at))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let half = order.len().div_ceil(2);
        let seeds = (0..SEEDS.min(half)).map(|n| order[n * half / SEEDS.min(half)].1);
        let tried = seeds.map(|seed| {
            let mut weights = vec![0.0; points.len()];
            weights[seed] = 1.0;
            let mut components = best.components.clone();
            let mut new = Component::of(points, &weights, places);
            new.part = 1.0 / (components.len() + 1) as f64;
            components.push(new);
            Mixture::fit(points, components, places)
        });
        let next = tried.max_by(|a, b| a.likelihood.total_cmp(&b.likelihood));
        let criterion = |it: &Mixture| it.criterion(points.len(), places);
        match next {
            Some(next) if criterion(&next) < criterion(&best) => best = next,
            _ => break,
        }
    }
    best.of
}

/// Mean composition of items.
struct Composition {
    /// Shares of waits, by place; the last is the CPU's.
    observed: Vec<f64>,
    /// Shares of functions in the time on the CPU; `None`: too few samples.
    sampled: Option<Vec<f64>>,
}

impl Composition {
    fn of(points: &[&Point], places: Places) -> Self {
        let mut observed = vec![0.0; places.observed];
        let (mut sampled, mut draws) = (vec![0.0; places.sampled], 0.0);
        for point in points {
            draws += point.draws;
            for (place, share) in &point.observed {
                observed[*place] += share / points.len() as f64;
            }
            for (place, share) in &point.sampled {
                sampled[*place] += point.draws * share;
            }
        }
        sampled.iter_mut().for_each(|it| *it /= draws);
        Self {
            observed,
            sampled: (draws >= MOST_DRAWS).then_some(sampled),
        }
    }

    /// The part that two have in common.
    fn in_common(&self, other: &Self) -> f64 {
        let mins = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a.min(*b)).sum::<f64>();
        let (Some((cpu, waits)), Some((cpu_of, waits_of))) =
            (self.observed.split_last(), other.observed.split_last())
        else {
            return 0.0;
        };
        let on_cpu = match (&self.sampled, &other.sampled) {
            (Some(a), Some(b)) => {
                let pairs = a.iter().zip(b);
                pairs.map(|(a, b)| (cpu * a).min(cpu_of * b)).sum()
            }
            _ => cpu.min(*cpu_of),
        };
        mins(waits, waits_of) + on_cpu
    }
}

/// Kinds of the items.
fn divide(points: &[Point], places: Places) -> Vec<Vec<&Point>> {
    if points.is_empty() {
        return Vec::new();
    }
    let mut kinds: Vec<Vec<&Point>> = vec![Vec::new(); MOST_KINDS];
    for (point, component) in points.iter().zip(mixture(points, places)) {
        kinds[component].push(point);
    }
    kinds.retain(|it| !it.is_empty());
    loop {
        let made: Vec<Composition> = kinds.iter().map(|it| Composition::of(it, places)).collect();
        let mut closest = (DISTINCT, None);
        for a in 0..kinds.len() {
            for b in a + 1..kinds.len() {
                let common = made[a].in_common(&made[b]);
                if common >= closest.0 {
                    closest = (common, Some((a, b)));
                }
            }
        }
        let Some((a, b)) = closest.1 else { break };
        let mut other = kinds.remove(b);
        kinds[a].append(&mut other);
    }
    let enough = |it: &Vec<&Point>| it.len() >= FEWEST;
    if kinds.iter().any(enough) {
        kinds.retain(enough);
    } else {
        kinds = vec![points.iter().collect()];
    }
    kinds
}

/// Context for describing kinds.
pub(super) struct KindContext<'a> {
    pub items: &'a Items,
    pub section: &'a Section,
    pub sums: &'a GroupSums,
    pub rows: &'a Rows,
    pub naming: &'a Naming<'a>,
    /// For each function of the kernel's one for which it was entered in the same way.
    pub stand_ins: FxHashMap<FunctionId, FunctionId>,
    /// Whether the sums cover all items, so that what other items do is known.
    pub complete: bool,
}

impl KindContext<'_> {
    /// The kinds of slow items, the longest first, then those below the limit.
    pub(super) fn kinds(&self, candidates: &[u32]) -> Vec<Kind> {
        let (divided, among) = (self.divided(candidates), self.sums(candidates));
        let number = divided.len();
        let described = divided.iter().map(|it| self.kind(it, &among, number));
        let mut kinds: Vec<Kind> = described
            .flatten()
            // Below the limit, only kinds that can be distinguished are listed.
            .filter(|it| it.slow_items > 0 || !it.causes.is_empty())
            .collect();
        kinds.sort_by(|a, b| {
            let is_below = |it: &Kind| it.slow_items == 0;
            let order = is_below(a).cmp(&is_below(b));
            order.then(b.mean_ns.total_cmp(&a.mean_ns))
        });
        kinds
    }

    /// The items of each kind.
    fn divided(&self, candidates: &[u32]) -> Vec<Divided> {
        let usual = self.times(&self.sums.typical);
        let (points, places) = self.points(candidates, &usual);
        let slow: FxHashSet<u32> = self.section.slow().collect();
        let mut divided: Vec<Divided> = Vec::new();
        for kind in divide(&points, places) {
            for part in self.by_duration(kind.iter().map(|it| it.item).collect()) {
                let excess = self.times(&self.sums(&part)).beyond(&usual);
                let ordinary = self.is_ordinary(&excess, &usual);
                let (members, others): (Vec<u32>, Vec<u32>) =
                    part.into_iter().partition(|it| slow.contains(it));
                let is_slow = !members.is_empty();
                if is_slow || !ordinary {
                    divided.push(Divided {
                        members: if is_slow { members } else { others.clone() },
                        others: if is_slow { others } else { Vec::new() },
                        is_slow,
                        ordinary,
                    });
                }
            }
        }
        divided
    }

    /// Whether any kind has a function or wait of its own.
    #[cfg(test)]
    pub(super) fn any_only(&self, candidates: &[u32]) -> bool {
        let (divided, among) = (self.divided(candidates), self.sums(candidates));
        let sums = divided.iter().map(|it| (it, self.sums(&it.members)));
        let mut only =
            sums.map(|(it, sums)| self.only(&it.members, (&sums, &among), divided.len()));
        only.any(|it| !it.is_empty()) || !self.only_slow().is_empty()
    }

    /// Items that take much longer than the others, and the others; all, if there is no such gap.
    fn by_duration(&self, mut items: Vec<u32>) -> Vec<Vec<u32>> {
        let ns = |it: &u32| self.items.all[*it as usize].net_ns();
        items.sort_by_key(ns);
        let sorted: Vec<i64> = items.iter().map(ns).collect();
        let from = gap_from(&sorted).map(|from| sorted.partition_point(|ns| *ns < from));
        match from {
            Some(from) if from >= FEWEST && items.len() - from >= FEWEST => {
                let longer = items.split_off(from);
                vec![longer, items]
            }
            _ => vec![items],
        }
    }

    /// Whether an excess has the composition of typical items.
    ///
    /// Waiting for a CPU, which can happen to any item, is left out unless it is most of the excess.
    fn is_ordinary(&self, excess: &Times, usual: &Times) -> bool {
        let is_preempted = |key: &&Key| matches!(self.naming.of(**key).0, CauseType::Preempted);
        let without = |times: &Times| {
            let mut shares = times.shares();
            let preempted: Vec<Key> = shares.keys().filter(is_preempted).copied().collect();
            let share: f64 = preempted.iter().filter_map(|key| shares.remove(key)).sum();
            shares.values_mut().for_each(|it| *it /= 1.0 - share);
            (shares, share)
        };
        let (shares, preempted) = without(excess);
        let (usual, _) = without(usual);
        let of = |key: &Key| usual.get(key).copied().unwrap_or(0.0);
        let known: f64 = shares.values().sum();
        // Time on the CPU without samples is in no share.
        let in_common: f64 = shares.iter().map(|(key, it)| it.min(of(key))).sum();
        let alike = |(key, it): (&Key, &f64)| (1.0 - it) / (1.0 - of(key)).max(1e-9);
        preempted < DISTINCT
            && known > 0.0
            && in_common >= DISTINCT * known
            && shares.iter().map(alike).all(|it| it >= DISTINCT)
    }

    /// Representative of a key when kinds are distinguished.
    fn stand_in(&self, key: Key) -> Key {
        match key {
            Key::Function(id) => Key::Function(self.stand_ins.get(&id).copied().unwrap_or(id)),
            _ => key,
        }
    }

    /// Time per item of a class.
    fn times(&self, class: &ClassSums) -> Times {
        let items = class.items.total();
        let per_event = class.active.total() / class.events.total();
        let mut keys: FxHashMap<Key, f64> = FxHashMap::default();
        for (key, (sum, _)) in &class.keys {
            let unit = if key.is_sampled() { per_event } else { 1.0 };
            let ns = sum.total() * unit / items;
            *keys.entry(self.stand_in(*key)).or_default() += if ns.is_finite() { ns } else { 0.0 };
        }
        Times {
            keys,
            active_ns: class.active.total() / items,
        }
    }

    /// Time of an item.
    fn of_item(&self, item: u32, rows: &[(Key, f64, u64)]) -> Times {
        let active_ns = self.items.all[item as usize].active_ns.unwrap_or(0) as f64;
        let sampled = rows.iter().filter(|it| it.0.is_sampled());
        let per_event = active_ns / sampled.map(|it| it.1).sum::<f64>();
        let mut keys: FxHashMap<Key, f64> = FxHashMap::default();
        for (key, value, _) in rows {
            let unit = if key.is_sampled() { per_event } else { 1.0 };
            *keys.entry(self.stand_in(*key)).or_default() += value * unit;
        }
        Times { keys, active_ns }
    }

    /// The items by their excess.
    fn points(&self, candidates: &[u32], usual: &Times) -> (Vec<Point>, Places) {
        let all = &self.sums.all;
        let of_functions = all.keys.iter().filter(|(key, _)| key.is_sampled());
        let samples: u64 = of_functions.map(|(_, (_, _, count))| count).sum();
        // Time on the CPU that one sample stands for.
        let interval = all.active.0.total() / samples.max(1) as f64;
        let mut drafts: Vec<(u32, Times, [f64; 2])> = Vec::new();
        let mut means = [FxHashMap::<Key, f64>::default(), FxHashMap::default()];
        for &item in candidates {
            let Some(rows) = self.rows.get(&item) else {
                continue;
            };
            let excess = self.of_item(item, rows).beyond(usual);
            let sums = [false, true].map(|it| excess.of(it).map(|it| it.1).sum::<f64>());
            let observed = sums[0] + excess.active_ns;
            if observed <= 0.0 {
                continue;
            }
            for (is_sampled, sum) in [(false, observed), (true, sums[1])] {
                for (key, ns) in excess.of(is_sampled) {
                    *means[usize::from(is_sampled)].entry(key).or_default() += ns / sum;
                }
            }
            drafts.push((item, excess, [observed, sums[1]]));
        }
        let [waits, functions] = means.map(|it| places(it, drafts.len()));
        let on_cpu = waits.len() + 1;
        let points = drafts
            .into_iter()
            .map(|(item, excess, [observed, sampled])| {
                let mut shares = placed(excess.of(false), observed, &waits);
                shares.push((on_cpu, excess.active_ns / observed));
                Point {
                    item,
                    observed: shares,
                    sampled: placed(excess.of(true), sampled, &functions),
                    draws: (sampled / interval).min(MOST_DRAWS),
                }
            });
        let sizes = Places {
            observed: on_cpu + 1,
            sampled: functions.len() + 1,
        };
        (points.collect(), sizes)
    }

    fn sums(&self, members: &[u32]) -> ClassSums {
        let mut sums = ClassSums {
            beats: self.sums.typical.beats,
            own_error: self.sums.typical.own_error,
            ..ClassSums::default()
        };
        for &member in members {
            let block = self.items.block_of(member);
            sums.add_item(block, &self.items.all[member as usize]);
            for (key, value, samples) in self.rows.get(&member).into_iter().flatten() {
                sums.add(*key, block, *value, *samples);
            }
        }
        sums
    }

    /// Describes a kind; `among` are all items from which kinds were made.
    fn kind(&self, it: &Divided, among: &ClassSums, kinds: usize) -> Option<Kind> {
        let members = &it.members;
        let sums = self.sums(members);
        let (from_ns, to_ns) = sums.range_ns?;
        let items = members.len() as u64;
        let gap = contrast::gap((&sums, &self.sums.typical), &[], self.naming, CAUSES);
        let own: FxHashSet<u32> = members.iter().copied().collect();
        let is_own: Vec<bool> = self
            .section
            .members
            .iter()
            .map(|it| own.contains(it))
            .collect();
        let visit = |it: &u32| self.items.all[*it as usize].visit_id;
        Some(Kind {
            items,
            slow_items: if it.is_slow { items } else { 0 },
            others: it.others.len() as u64,
            others_range_ns: self.sums(&it.others).range_ns,
            from_ns,
            to_ns,
            mean_ns: sums.latency.total() / items as f64,
            excess_ns: gap.as_ref().map(|it| it.gap_ns),
            samples: sums.samples,
            ordinary: it.ordinary,
            causes: gap.map_or_else(Vec::new, |it| it.causes),
            because: stump::because(&self.section.members, &is_own, self.items),
            only: self.only(members, (&sums, among), kinds),
            visit_ids: members.iter().map(visit).collect(),
        })
    }

    /// Functions and waits that no item but these has, the longest first; `among` are the items from which these were
    /// chosen for what they have.
    pub(super) fn only(
        &self,
        members: &[u32],
        (sums, among): (&ClassSums, &ClassSums),
        groups: usize,
    ) -> Vec<Only> {
        let all = &self.sums.all;
        let median = self.section.summary.quantiles.p50_ns as f64;
        let latency = all.latency.0.total() + median * all.items.total();
        if !self.complete || members.len() as f64 >= all.items.total() {
            return Vec::new();
        }
        let functions = all.keys.iter().filter(|it| it.0.is_sampled());
        let all_samples: u64 = functions.map(|(_, (_, _, samples))| samples).sum();
        let mut with: FxHashMap<Key, u64> = FxHashMap::default();
        for member in members {
            let rows = self.rows.get(member).into_iter().flatten();
            let keys: FxHashSet<Key> = rows.map(|it| it.0).collect();
            keys.into_iter()
                .for_each(|key| *with.entry(key).or_default() += 1);
        }
        let looked_at = (all.keys.len() * groups.max(1)) as f64;
        let mut found: Vec<(Key, Only)> = Vec::new();
        for (key, count) in with {
            let (Some((sum, samples)), Some((_, _, of_all))) =
                (sums.keys.get(&key), all.keys.get(&key))
            else {
                continue;
            };
            let (total, one) = if key.is_sampled() {
                let further = samples.saturating_sub(count);
                let drawn = count.min(*samples);
                (
                    sum.total() / sums.events.total() * sums.active.total(),
                    all_among(drawn, among.samples - further, all_samples - further),
                )
            } else {
                let total = sum.total();
                // Without its own time, which does not show where it could have occurred.
                let by_time = (among.latency.total() - total) / (latency - total);
                let by_items = among.items.total() / all.items.total();
                (total, by_items.max(by_time).powi(count.min(1_000) as i32))
            };
            let chance = (looked_at * one).min(1.0);
            // No other item has it, which is unlikely by luck.
            if samples != of_all || chance.is_nan() || chance > LUCK {
                continue;
            }
            let (kind, function, state) = self.naming.of(key);
            let only = Only {
                kind,
                function,
                state,
                items: count,
                samples: *samples,
                mean_ns: total / members.len() as f64,
                chance,
                looked_at: looked_at as u64,
            };
            found.push((key, only));
        }
        found.sort_by(|a, b| b.1.mean_ns.total_cmp(&a.1.mean_ns).then(a.0.cmp(&b.0)));
        found.into_iter().map(|it| it.1).collect()
    }

    /// Functions and waits that only slow items have, all kinds together.
    pub(super) fn only_slow(&self) -> Vec<Only> {
        let slow: Vec<u32> = self.section.slow().collect();
        let known = |it: &u32| self.rows.contains_key(it);
        let members: Vec<u32> = slow.into_iter().filter(known).collect();
        let slow = &self.sums.slow;
        self.only(&members, (slow, slow), 1)
    }
}

/// A kind before it is described.
struct Divided {
    members: Vec<u32>,
    /// Items like the members, below the limit.
    others: Vec<u32>,
    /// Whether the members are slow.
    is_slow: bool,
    ordinary: bool,
}

/// Chance that this many samples, drawn from all, are all among some of them.
fn all_among(drawn: u64, some: u64, all: u64) -> f64 {
    let each = (0..drawn).map(|it| some.saturating_sub(it) as f64 / (all - it) as f64);
    each.product()
}
