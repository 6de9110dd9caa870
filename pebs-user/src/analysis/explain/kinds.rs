//! Kinds of slow items: what they are made of, and what only they do.
//!
//! # Which items
//!
//! The slow limit takes the slowest kind where a gap or the 99th percentile does, and may hide another well below it. So
//! looked at are the slow items and all others beyond the outer fence of the middle half, 1.5 times the median at
//! least; at most one in [`MAX_PART`] of the others, the longest.
//!
//! # How many kinds
//!
//! An item is described by its *excess*: for each function and wait its time beyond what typical items take of it, as a
//! share of all excess. The shares of functions rest on the item's samples. So an item counts as so many draws from the
//! distribution of its kind: as many as samples stand for its excess, at most [`MOST_DRAWS`], which waits, being
//! observed, count in full. Kinds are the components of a mixture of multinomial distributions, fitted by
//! expectation-maximisation, one more as long as the Bayesian information criterion falls. With few samples an item
//! says little of its kind, and chance makes no component. As items of one kind differ by more than draws do, components are
//! one kind unless most of what they are made of is different: with less than [`DISTINCT`] in common. Kinds of fewer
//! than [`FEWEST`] items are not told apart from chance; their items are in none.
//!
//! A kind whose excess is made of the same as typical items are is *ordinary*: the tail of all. It is told only where the
//! limit took items of it.
//!
//! # What only they do
//!
//! A function or wait that no other item has is luck if the items that have it could have been any: each falls among those of
//! the kind with the chance r = their share of the time on the CPU (of all time, for waits) without its own, m of them with
//! r^m, times the functions and waits looked at. *Worked number*: 40 items with 5 % of the time; 4 of them have f, of
//! 100 functions: 100 x 0.05^4 = 6e-4.
//!
//! Source: McLachlan and Peel, "Finite Mixture Models", 1.6 and 6.9; Tukey's fences.

use rustc_hash::{FxHashMap, FxHashSet};

use super::blocks::block_of;
use super::contrast::{self, Naming};
use super::groups::Section;
use super::items::Items;
use super::model::{Kind, Only};
use super::stump;
use super::sums::{ClassSums, GroupSums, Key};
use crate::analysis::classes::Class;

/// Kinds at most.
const MOST_KINDS: usize = 6;

/// Items that are not slow and looked at: one in so many, at most.
const MAX_PART: usize = 10;

/// Items looked at.
const MOST_ITEMS: usize = 20_000;

/// Draws that an item counts as, at most.
const MOST_DRAWS: f64 = 8.0;

/// Part in common from which on two components are one kind.
const DISTINCT: f64 = 0.5;

/// Items of a kind, at least.
const FEWEST: usize = 5;

/// Causes told of a kind.
const CAUSES: usize = 5;

/// Chance of luck above which nothing is said.
const LUCK: f64 = 0.01;

/// Mean share below which functions and waits are lumped together.
const LEAST_SHARE: f64 = 0.01;

/// Rounds of expectation-maximisation.
const ROUNDS: usize = 25;

/// Items tried as the seed of one more component.
const SEEDS: usize = 6;

/// What is known of the items looked at: their rows.
pub(in crate::analysis) type Rows = FxHashMap<u32, Vec<(Key, f64, u64)>>;

/// The items of a group to look at: the slow ones, and others far beyond the typical ones.
pub(super) fn candidates(section: &Section, items: &Items) -> Vec<u32> {
    if section.told.limit.is_none() {
        return Vec::new();
    }
    let fence = section.told.fence();
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

/// An item, and its parts with what they take.
type Draft = (u32, f64, Vec<(Key, f64)>);

/// An item by what its excess is made of.
struct Point {
    item: u32,
    /// Draws that it counts as.
    draws: f64,
    /// By index of the function or wait; the shares sum to 1.
    shares: Vec<(usize, f64)>,
}

/// Time of functions and waits per typical item.
fn usual(typical: &ClassSums) -> FxHashMap<Key, f64> {
    let items = typical.items.total();
    let per_event = typical.active.total() / typical.events.total();
    let time = |(key, (sum, _)): (&Key, &(super::blocks::Blocks, u64))| {
        let ns = match key {
            Key::Function(_) => sum.total() * per_event,
            _ => sum.total(),
        } / items;
        (*key, if ns.is_finite() { ns } else { 0.0 })
    };
    typical.keys.iter().map(time).collect()
}

/// The items by their excess, and the number of keys told apart.
fn points(found: &[u32], rows: &Rows, items: &Items, sums: &GroupSums) -> (Vec<Point>, Vec<Key>) {
    let usual = usual(&sums.typical);
    let all = &sums.all;
    let (mut samples, mut active) = (0, 0.0);
    for (key, (_, _, count)) in &all.keys {
        samples += u64::from(matches!(key, Key::Function(_))) * count;
    }
    active += all.active.0.total();
    // What one sample stands for.
    let interval = active / samples.max(1) as f64;
    let mut drafts: Vec<Draft> = Vec::new();
    let mut means: FxHashMap<Key, f64> = FxHashMap::default();
    for &item in found {
        let Some(rows) = rows.get(&item) else {
            continue;
        };
        let mut own: FxHashMap<Key, f64> = FxHashMap::default();
        for (key, value, _) in rows {
            *own.entry(*key).or_default() += value;
        }
        let events: f64 = own
            .iter()
            .filter(|(key, _)| matches!(key, Key::Function(_)))
            .map(|it| it.1)
            .sum();
        let per_event = items.all[item as usize].active_ns.unwrap_or(0) as f64 / events;
        let (mut excess, mut draws, mut sum): (Vec<(Key, f64)>, f64, f64) = Default::default();
        for (key, value) in own {
            let sampled = matches!(key, Key::Function(_));
            let ns = if sampled { value * per_event } else { value };
            let beyond = ns - usual.get(&key).copied().unwrap_or(0.0);
            if beyond > 0.0 {
                draws += if sampled { beyond / interval } else { 0.0 };
                sum += beyond;
                excess.push((key, beyond));
            }
        }
        let observed = excess
            .iter()
            .filter(|(key, _)| !matches!(key, Key::Function(_)))
            .map(|it| it.1)
            .sum::<f64>();
        if sum <= 0.0 {
            continue;
        }
        let draws = (draws + MOST_DRAWS * observed / sum).min(MOST_DRAWS);
        excess.iter_mut().for_each(|it| it.1 /= sum);
        excess.sort_unstable_by_key(|it| it.0);
        for (key, share) in &excess {
            *means.entry(*key).or_default() += share;
        }
        drafts.push((item, draws, excess));
    }
    let least = LEAST_SHARE * drafts.len() as f64;
    let mut keys: Vec<Key> = means
        .iter()
        .filter(|it| *it.1 >= least)
        .map(|it| *it.0)
        .collect();
    keys.sort_unstable();
    let places: FxHashMap<Key, usize> = keys.iter().copied().zip(0..).collect();
    let points = drafts.into_iter().map(|(item, draws, excess)| {
        let mut shares: Vec<(usize, f64)> = Vec::new();
        let mut rest = 0.0;
        for (key, share) in excess {
            match places.get(&key) {
                Some(place) => shares.push((*place, share)),
                None => rest += share,
            }
        }
        if rest > 0.0 {
            shares.push((keys.len(), rest));
        }
        Point {
            item,
            draws,
            shares,
        }
    });
    (points.collect(), keys)
}

/// A component of the mixture.
#[derive(Clone, Debug)]
struct Component {
    part: f64,
    /// Logarithms of the probabilities.
    ln: Vec<f64>,
}

impl Component {
    /// Of items with so much weight each.
    fn of(points: &[Point], weights: &[f64], places: usize) -> Self {
        let mut counts = vec![0.0; places];
        for (point, weight) in points.iter().zip(weights) {
            for (place, share) in &point.shares {
                counts[*place] += weight * point.draws * share;
            }
        }
        let sum: f64 = counts.iter().sum();
        // Half a draw, spread over all: nothing is impossible.
        let bias = 0.5 / places as f64;
        let part = weights.iter().sum::<f64>() / points.len() as f64;
        Self {
            part: part.max(1e-9),
            ln: counts
                .iter()
                .map(|it| ((it + bias) / (sum + 0.5)).ln())
                .collect(),
        }
    }

    fn likelihood(&self, point: &Point) -> f64 {
        let of = |(place, share): &(usize, f64)| share * self.ln[*place];
        point.draws * point.shares.iter().map(of).sum::<f64>()
    }
}

/// A fitted mixture: its logarithmic likelihood, and the component that each item most likely is of.
struct Mixture {
    components: Vec<Component>,
    likelihood: f64,
    of: Vec<usize>,
}

impl Mixture {
    fn fit(points: &[Point], mut components: Vec<Component>, places: usize) -> Self {
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
    fn criterion(&self, items: usize, places: usize) -> f64 {
        let components = self.components.len();
        let free = components * (places - 1) + components - 1;
        free as f64 * (items as f64).ln() - 2.0 * self.likelihood
    }
}

/// By item its component.
fn mixture(points: &[Point], places: usize) -> Vec<usize> {
    let one = Component::of(points, &vec![1.0; points.len()], places);
    let mut best = Mixture::fit(points, vec![one], places);
    while best.components.len() < MOST_KINDS {
        // Items that it fits worst, far from one another in their order.
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

/// Mean shares of items.
fn mean_shares(points: &[&Point], places: usize) -> Vec<f64> {
    let (mut sums, mut draws) = (vec![0.0; places], 0.0);
    for point in points {
        draws += point.draws;
        for (place, share) in &point.shares {
            sums[*place] += point.draws * share;
        }
    }
    sums.iter().map(|it| it / draws.max(1e-9)).collect()
}

fn in_common(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.min(*b)).sum()
}

/// Kinds of the items.
fn divide(points: &[Point], places: usize) -> Vec<Vec<&Point>> {
    if points.is_empty() {
        return Vec::new();
    }
    let mut kinds: Vec<Vec<&Point>> = vec![Vec::new(); MOST_KINDS];
    for (point, component) in points.iter().zip(mixture(points, places)) {
        kinds[component].push(point);
    }
    kinds.retain(|it| !it.is_empty());
    loop {
        let shares: Vec<Vec<f64>> = kinds.iter().map(|it| mean_shares(it, places)).collect();
        let mut closest = (DISTINCT, None);
        for a in 0..kinds.len() {
            for b in a + 1..kinds.len() {
                let common = in_common(&shares[a], &shares[b]);
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

/// What kinds are told with.
pub(super) struct Telling<'a> {
    pub items: &'a Items,
    pub section: &'a Section,
    pub sums: &'a GroupSums,
    pub rows: &'a Rows,
    pub naming: &'a Naming<'a>,
    /// Whether the sums are of all items, so that what others do is known.
    pub complete: bool,
}

impl Telling<'_> {
    /// The kinds of slow items, the longest first.
    pub(super) fn kinds(&self, candidates: &[u32]) -> Vec<Kind> {
        let (points, keys) = points(candidates, self.rows, self.items, self.sums);
        let found = divide(&points, keys.len() + 1);
        let usual = self.usual_shares(&keys);
        let slow: FxHashSet<u32> = self.section.slow().collect();
        let told: Vec<(Vec<u32>, bool)> = found
            .into_iter()
            .map(|kind| {
                let shares = mean_shares(&kind, keys.len() + 1);
                let ordinary = in_common(&shares, &usual) >= DISTINCT;
                (kind.iter().map(|it| it.item).collect(), ordinary)
            })
            .filter(|(members, ordinary): &(Vec<u32>, bool)| {
                !ordinary || members.iter().any(|it| slow.contains(it))
            })
            .collect();
        let number = told.len();
        let mut kinds: Vec<Kind> = told
            .into_iter()
            .filter_map(|(members, ordinary)| self.kind(&members, ordinary, (&slow, number)))
            .collect();
        kinds.sort_by(|a, b| b.mean_ns.total_cmp(&a.mean_ns));
        kinds
    }

    /// What the time of typical items is made of, as the excess of others is described.
    fn usual_shares(&self, keys: &[Key]) -> Vec<f64> {
        let usual = usual(&self.sums.typical);
        let sum: f64 = usual.values().sum();
        let share = |ns: f64| if sum > 0.0 { ns / sum } else { 0.0 };
        let mut shares: Vec<f64> = keys
            .iter()
            .map(|key| share(usual.get(key).copied().unwrap_or(0.0)))
            .collect();
        let rest = 1.0 - shares.iter().sum::<f64>();
        shares.push(rest.max(0.0));
        shares
    }

    fn sums(&self, members: &[u32]) -> ClassSums {
        let mut sums = ClassSums::default();
        for &member in members {
            let block = block_of(self.items.drawn_with(member));
            sums.add_item(block, &self.items.all[member as usize]);
            for (key, value, samples) in self.rows.get(&member).into_iter().flatten() {
                sums.add(*key, block, *value, *samples);
            }
        }
        sums
    }

    fn kind(
        &self,
        members: &[u32],
        ordinary: bool,
        (slow, kinds): (&FxHashSet<u32>, usize),
    ) -> Option<Kind> {
        let sums = self.sums(members);
        let (from_ns, to_ns) = sums.range_ns?;
        let items = members.len() as u64;
        let gap = contrast::gap(&sums, &self.sums.typical, self.naming, CAUSES);
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
            slow_items: members.iter().filter(|it| slow.contains(it)).count() as u64,
            from_ns,
            to_ns,
            mean_ns: sums.latency.total() / items as f64,
            excess_ns: gap.as_ref().map(|it| it.gap_ns),
            samples: sums.samples,
            ordinary,
            causes: gap.map_or_else(Vec::new, |it| it.causes),
            because: stump::because(&self.section.members, &is_own, self.items),
            only: self.only(members, &sums, kinds),
            visit_ids: members.iter().map(visit).collect(),
        })
    }

    /// Functions and waits that no item but these has, the longest first.
    pub(super) fn only(&self, members: &[u32], sums: &ClassSums, groups: usize) -> Vec<Only> {
        let all = &self.sums.all;
        let median = self.section.told.quantiles.p50_ns as f64;
        let latency = all.latency.0.total() + median * all.items.total();
        if !self.complete || members.len() as f64 >= all.items.total() {
            return Vec::new();
        }
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
            let sampled = matches!(key, Key::Function(_));
            let total = if sampled {
                sum.total() / sums.events.total() * sums.active.total()
            } else {
                sum.total()
            };
            // Its own time says nothing of where it could have been.
            let (own, of_all_time) = if sampled {
                (sums.active.total(), all.active.0.total())
            } else {
                (sums.latency.total(), latency)
            };
            let part = ((own - total) / (of_all_time - total)).max(0.0);
            let chance = (looked_at * part.powi(count.min(1_000) as i32)).min(1.0);
            // Nobody else has it, and luck would hardly do that.
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

    /// What only slow items do, of all kinds together.
    pub(super) fn only_slow(&self) -> Vec<Only> {
        let slow: Vec<u32> = self.section.slow().collect();
        let known = |it: &u32| self.rows.contains_key(it);
        let members: Vec<u32> = slow.into_iter().filter(known).collect();
        self.only(&members, &self.sums.slow, 1)
    }
}
