//! Searches the one test of one argument that best separates slow items from others.
//!
//! # The search
//!
//! A test is `argument = value`, `argument begins with text`, `argument >= value` or `argument <= value`. Beside the
//! arguments of the SPEC, the visits of other probes within the item, the thread, the process, the CPU of the begin
//! mark and the time of the begin are searched. The best test has the largest *effect*: the share of the slow items
//! that pass it less the share of the others that do (Youden's J; 1 separates them without exception, 0 is chance).
//! Among equal effects the first wins: arguments before system properties, equality before thresholds.
//!
//! # Its significance
//!
//! Fisher's exact test gives the chance of the table if slowness and test are independent. It is multiplied by the
//! number of tests searched (Bonferroni): among a thousand tests a one-in-a-thousand coincidence is likely. A test with
//! a chance below 1e-3 is reported if its effect is at least 0.5, or if half of the items that pass it are slow and a
//! tenth of the slow ones pass it: it is then one reason of several. The association is then certain, causation is not:
//! anything correlated with the real reason passes as well.
//!
//! # Groups of like items
//!
//! Among arguments with few values, or split in two by a threshold or in eight ranges, the one that explains the largest
//! part of the variance of the durations' ranks is chosen (Kruskal and Wallis). It makes groups if that part is at least
//! 0.14 beyond chance, again after Bonferroni.
//!
//! Assumption: items are independent of one another.
//! Source: Fisher, "Statistical Methods for Research Workers", 21.02; Youden, Cancer 3 (1950);
//! Kruskal and Wallis, JASA 47 (1952); Tomczak, Trends in Sport Sciences 1 (2014) for the effect size.

use pebs_stats::summary::chi_squared_tail;
use rustc_hash::FxHashMap;

use super::columns::{Column, NULL, Values, show_number};
use super::items::{Item, Items};
use super::model::{Split, SplitTest};
use crate::compare::chance::{Table, fisher};
use crate::store::run::RecordedSpec;

/// Tests with a smaller chance are reported.
const CHANCE: f64 = 1e-3;

/// Least effect of a reported test.
const EFFECT: f64 = 0.5;

/// Alternatively: least share of slow items among those that pass, and of those that pass among the slow. Slow items
/// may have several reasons, one of them the machine.
const SLOW_OF_WITH: f64 = 0.5;
const WITH_OF_SLOW: f64 = 0.1;

/// Least number of slow items that pass a test.
const FEWEST_SLOW: u64 = 3;

/// Largest number of different values for which each one is tested, or makes a group.
const TESTED_VALUES: usize = 64;
const GROUPS: usize = 8;

/// Least part of the variance of ranks for an argument to make groups: a large effect by the usual convention.
const PART: f64 = 0.14;

/// Items of a group at least.
const FEWEST: usize = 20;

/// Part of the variance of ranks that ranges of a number explain beyond the two sides of a threshold, or the threshold
/// makes the groups.
const MORE_BY_RANGES: f64 = 0.05;

/// A number of an item; `None` if unknown.
type OfItem = fn(&Item) -> Option<u64>;

/// A number as people read it.
type Show = fn(u64) -> String;

/// One way to look at an argument.
enum Face<'a> {
    Number(Vec<Option<u64>>, Show),
    Text {
        codes: &'a [u32],
        text: Box<dyn Fn(u32) -> String + 'a>,
        whole: bool,
    },
}

/// The arguments, by name.
fn faces_of<'a>(columns: impl IntoIterator<Item = &'a Column>) -> Vec<(String, Face<'a>)> {
    let mut faces: Vec<(String, Face<'_>)> = Vec::new();
    for Column { name, values } in columns {
        match values {
            Values::Number { signed, values } => {
                let show: Show = if *signed {
                    |it| show_number(it, true)
                } else {
                    |it| show_number(it, false)
                };
                faces.push((name.clone(), Face::Number(values.clone(), show)));
            }
            Values::Text {
                whole,
                start,
                wholes,
                starts,
            } => {
                let face = Face::Text {
                    codes: whole,
                    text: Box::new(|code| wholes.text(code).to_owned()),
                    whole: true,
                };
                faces.push((name.clone(), face));
                if starts.len() < wholes.len() {
                    let face = Face::Text {
                        codes: start,
                        text: Box::new(|code| starts.text(code).to_owned()),
                        whole: false,
                    };
                    faces.push((name.clone(), face));
                }
            }
        }
    }
    faces
}

/// Everything to test with, by name.
fn faces(items: &Items) -> Vec<(String, Face<'_>)> {
    let mut faces = faces_of(&items.columns.0);
    for (number, probe) in (0..).zip(&items.probes) {
        if items.inner.keys().any(|(_, inner)| *inner == number) {
            let count = |item| items.inner.get(&(item, number)).copied().unwrap_or(0);
            let counts = (0..items.all.len() as u32).map(|item| Some(count(item).into()));
            let functions: String = probe.specs.iter().map(RecordedSpec::function).collect();
            let name = format!("visits of {functions}");
            faces.push((name, Face::Number(counts.collect(), |it| it.to_string())));
        }
    }
    let machine: [(&str, OfItem); 4] = [
        ("tid", |it| Some(it.tid.into())),
        ("pid", |it| Some(it.pid.into())),
        ("cpu_begin", |it| it.cpu.map(u64::from)),
        ("begin_ns", |it| Some(it.begin_ns.max(0) as u64)),
    ];
    for (name, of) in machine {
        let values = items.all.iter().map(of).collect();
        faces.push((name.to_owned(), Face::Number(values, |it| it.to_string())));
    }
    faces
}

/// The best test found so far.
#[derive(Clone, Copy)]
struct BestTest {
    with: u64,
    both: u64,
    test: SplitTest,
    value: u64,
}

/// Tests that separate the slow items from the others, the best one of each argument, by effect, largest first.
///
/// `members` are indices of items, `slow` marks the slow ones; both have the same length. Cost: O(n log n) for each
/// argument.
pub(super) fn because(members: &[u32], slow: &[bool], items: &Items) -> Vec<Split> {
    let slow_count = slow.iter().filter(|slow| **slow).count() as u64;
    let total = members.len() as u64;
    if slow_count < FEWEST_SLOW || slow_count == total {
        return Vec::new();
    }
    let effect = |found: &BestTest| {
        let others = (found.with - found.both) as f64 / (total - slow_count) as f64;
        found.both as f64 / slow_count as f64 - others
    };
    let mut tested = 0_u64;
    let mut best: Vec<(String, BestTest, String)> = Vec::new();
    for (name, face) in faces(items) {
        let (found, show): (Vec<BestTest>, &dyn Fn(u64) -> String) = match &face {
            Face::Number(values, show) => (numbers(members, slow, values), show),
            Face::Text { codes, text, whole } => {
                let test = if *whole {
                    SplitTest::Equal
                } else {
                    SplitTest::Begins
                };
                (texts(members, slow, codes, test), &|code| text(code as u32))
            }
        };
        tested += found.len() as u64;
        // The first of equal ones.
        let first = found
            .into_iter()
            .reduce(|a, b| if effect(&b) > effect(&a) { b } else { a });
        let Some(first) = first else { continue };
        let value = show(first.value);
        match best.iter_mut().find(|(known, ..)| *known == name) {
            Some(known) if effect(&first) > effect(&known.1) => *known = (name, first, value),
            Some(_) => {}
            None => best.push((name, first, value)),
        }
    }
    let mut splits: Vec<Split> = best
        .into_iter()
        .filter(|(_, found, _)| {
            let both = found.both as f64;
            let sufficient = both >= SLOW_OF_WITH * found.with as f64
                && both >= WITH_OF_SLOW * slow_count as f64;
            found.both >= FEWEST_SLOW && (effect(found) >= EFFECT || sufficient)
        })
        .map(|(argument, found, value)| {
            let table = Table {
                items: total,
                slow: slow_count,
                with: found.with,
                both: found.both,
            };
            Split {
                argument,
                test: found.test,
                value,
                slow_items: slow_count,
                slow_with: found.both,
                other_items: total - slow_count,
                other_with: found.with - found.both,
                effect: effect(&found),
                chance: (fisher(table) * tested as f64).min(1.0),
                tested,
            }
        })
        .filter(|split| split.chance < CHANCE)
        .collect();
    splits.sort_by(|a, b| b.effect.total_cmp(&a.effect));
    splits
}

/// Every test of a text by its codes.
fn texts(members: &[u32], slow: &[bool], codes: &[u32], test: SplitTest) -> Vec<BestTest> {
    let mut counts: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
    for (&item, &slow) in members.iter().zip(slow) {
        let code = codes[item as usize];
        if code != NULL {
            let (with, both) = counts.entry(code).or_default();
            *with += 1;
            *both += u64::from(slow);
        }
    }
    let mut found: Vec<BestTest> = counts
        .into_iter()
        .map(|(code, (with, both))| BestTest {
            with,
            both,
            test,
            value: code.into(),
        })
        .collect();
    found.sort_by_key(|it| it.value);
    found
}

/// Every test of a number: equality where there are few values, then thresholds.
fn numbers(members: &[u32], slow: &[bool], values: &[Option<u64>]) -> Vec<BestTest> {
    let mut known: Vec<(u64, bool)> = members
        .iter()
        .zip(slow)
        .filter_map(|(&item, &slow)| Some((values[item as usize]?, slow)))
        .collect();
    known.sort_unstable();
    let steps = known.chunk_by(|a, b| a.0 == b.0).map(|same| {
        let both = same.iter().filter(|it| it.1).count() as u64;
        (same[0].0, same.len() as u64, both)
    });
    let steps: Vec<(u64, u64, u64)> = steps.collect();
    let few = steps.len() <= TESTED_VALUES;
    let of = |test: SplitTest, (value, with, both): (u64, u64, u64)| BestTest {
        with,
        both,
        test,
        value,
    };
    let mut found: Vec<BestTest> = Vec::new();
    found.extend(
        steps
            .iter()
            .filter(|_| few)
            .map(|it| of(SplitTest::Equal, *it)),
    );
    let all = (
        known.len() as u64,
        known.iter().filter(|it| it.1).count() as u64,
    );
    let (mut with, mut both) = (0, 0);
    for (at, &(value, count, slow)) in steps.iter().enumerate() {
        if at > 0 {
            found.push(of(SplitTest::AtLeast, (value, all.0 - with, all.1 - both)));
        }
        (with, both) = (with + count, both + slow);
        if at + 1 < steps.len() {
            found.push(of(SplitTest::AtMost, (value, with, both)));
        }
    }
    found
}

/// Tests of one argument, with their values as text.
pub(crate) type Tests = Vec<(SplitTest, String)>;

/// Items divided by an argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grouping {
    pub argument: String,
    /// Part of the variance of the durations' ranks that it explains, beyond chance, 0..1.
    pub part: f64,
    /// Chance, after Bonferroni.
    pub chance: f64,
    /// Tests that the items of each group pass.
    pub labels: Vec<Tests>,
    /// By member: the index of its label; `None`: in no group.
    pub group: Vec<Option<u16>>,
}

/// The argument of the SPEC that splits the durations of these items best; `None` if no argument has a large effect.
///
/// Cost: O(n log n) for each argument.
pub(super) fn grouping(members: &[u32], items: &Items) -> Option<Grouping> {
    if members.len() < 2 * FEWEST {
        return None;
    }
    let ranks = ranks(members, &items.all);
    let mut best: Option<Grouping> = None;
    let mut tested = 0_u64;
    for division in divisions(&items.columns.0, members, &ranks) {
        tested += division.tested;
        let part = |groups: &Groups| explained(&ranks, &groups.1, groups.0.len()).map(|it| it.0);
        let groups = division.groups.into_iter().reduce(|groups, ranges| {
            match part(&ranges) > part(&groups).map(|it| it + MORE_BY_RANGES) {
                true => ranges,
                false => groups,
            }
        });
        let Some((labels, group)) = groups else {
            continue;
        };
        let Some((part, chance)) = explained(&ranks, &group, labels.len()) else {
            continue;
        };
        if best.as_ref().is_none_or(|best| part > best.part) {
            best = Some(Grouping {
                argument: division.argument,
                part,
                chance,
                labels,
                group,
            });
        }
    }
    let mut best = best?;
    best.chance = (best.chance * tested as f64).min(1.0);
    (best.part >= PART && best.chance < CHANCE).then_some(best)
}

/// A way to divide items by an argument.
pub(super) struct Division {
    pub argument: String,
    /// Splits that were searched for it.
    pub tested: u64,
    /// By value, or by the best threshold, and by ranges; empty if it doesn't divide them.
    pub groups: Vec<Groups>,
}

/// The ways to divide items by these arguments. `ranks`: of the members, by what they took.
pub(super) fn divisions<'a>(
    columns: impl IntoIterator<Item = &'a Column>,
    members: &[u32],
    ranks: &[f64],
) -> Vec<Division> {
    let of = |(argument, face): (String, Face<'_>)| {
        let (tested, groups) = match &face {
            Face::Number(values, show) => number_groups(members, ranks, values, *show),
            Face::Text { codes, text, whole } => {
                let test = if *whole {
                    SplitTest::Equal
                } else {
                    SplitTest::Begins
                };
                let codes = members
                    .iter()
                    .map(|&it| Some(codes[it as usize]).filter(|it| *it != NULL));
                let show = |code: u64| text(code as u32);
                let by_value = by_value(codes.map(|it| it.map(u64::from)).collect(), test, &show);
                (1, by_value.into_iter().collect())
            }
        };
        Division {
            argument,
            tested,
            groups,
        }
    };
    faces_of(columns).into_iter().map(of).collect()
}

/// Ranks of the members' durations, equal ones sharing the mean of theirs.
fn ranks(members: &[u32], items: &[Item]) -> Vec<f64> {
    let duration = |at: &u32| items[members[*at as usize] as usize].net_ns();
    let mut order: Vec<u32> = (0..members.len() as u32).collect();
    order.sort_by_key(duration);
    let (mut ranks, mut before) = (vec![0.0; members.len()], 0);
    for same in order.chunk_by(|a, b| duration(a) == duration(b)) {
        let rank = before as f64 + (same.len() + 1) as f64 / 2.0;
        before += same.len();
        same.iter().for_each(|&at| ranks[at as usize] = rank);
    }
    ranks
}

/// Labels, and the group of each member.
pub(super) type Groups = (Vec<Tests>, Vec<Option<u16>>);

/// A group for each value of enough items; `None` unless there are several, and they cover most items.
fn by_value(
    values: Vec<Option<u64>>,
    test: SplitTest,
    show: &dyn Fn(u64) -> String,
) -> Option<Groups> {
    let mut counts: FxHashMap<u64, usize> = FxHashMap::default();
    for value in values.iter().flatten() {
        *counts.entry(*value).or_default() += 1;
        if counts.len() > TESTED_VALUES {
            return None;
        }
    }
    let mut large: Vec<(u64, usize)> = counts.into_iter().filter(|it| it.1 >= FEWEST).collect();
    large.sort_unstable();
    let covered: usize = large.iter().map(|it| it.1).sum();
    if !(2..=GROUPS).contains(&large.len()) || covered * 10 < values.len() * 9 {
        return None;
    }
    let place = |value: u64| large.iter().position(|it| it.0 == value);
    let group = values
        .iter()
        .map(|value| Some(place((*value)?)? as u16))
        .collect();
    let labels = large.iter().map(|it| vec![(test, show(it.0))]).collect();
    Some((labels, group))
}

/// The groups by a number, and the number of splits searched: one group for each value if there are few, else the two
/// sides of the best threshold, and ranges.
fn number_groups(
    members: &[u32],
    ranks: &[f64],
    values: &[Option<u64>],
    show: Show,
) -> (u64, Vec<Groups>) {
    let own: Vec<Option<u64>> = members.iter().map(|&it| values[it as usize]).collect();
    if let Some(groups) = by_value(own.clone(), SplitTest::Equal, &show) {
        return (1, vec![groups]);
    }
    let mut known: Vec<(u64, f64)> = own
        .iter()
        .zip(ranks)
        .filter_map(|(value, rank)| Some(((*value)?, *rank)))
        .collect();
    known.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (n, total) = (known.len(), known.iter().map(|it| it.1).sum::<f64>());
    let (mut left, mut sum, mut ways, mut best) = (0, 0.0, 0, None::<(f64, u64)>);
    for same in known.chunk_by(|a, b| a.0 == b.0) {
        if left >= FEWEST && n - left >= FEWEST {
            ways += 1;
            let between = sum * sum / left as f64 + (total - sum).powi(2) / (n - left) as f64;
            if best.is_none_or(|(most, _)| between > most) {
                best = Some((between, same[0].0));
            }
        }
        left += same.len();
        sum += same.iter().map(|it| it.1).sum::<f64>();
    }
    let groups = best.map(|(_, from)| {
        let below = known
            .iter()
            .map(|it| it.0)
            .rfind(|it| *it < from)
            .unwrap_or(from);
        let labels = vec![
            vec![(SplitTest::AtMost, show(below))],
            vec![(SplitTest::AtLeast, show(from))],
        ];
        let group = own
            .iter()
            .map(|value| value.map(|it| u16::from(it >= from)));
        (labels, group.collect())
    });
    let sorted: Vec<u64> = known.iter().map(|it| it.0).collect();
    let ranges = ranges(&sorted, &own, show);
    (ways + 1, groups.into_iter().chain(ranges).collect())
}

/// Ranges of a number, of about equally many items; `None` if there are fewer than three. `sorted`: all that are known.
fn ranges(sorted: &[u64], own: &[Option<u64>], show: Show) -> Option<Groups> {
    let mut firsts: Vec<u64> = Vec::new();
    let mut begin = 0;
    for range in 1..=GROUPS {
        let end = sorted.len() * range / GROUPS;
        // All items with the same value are in one range.
        let end = end + sorted[end..].partition_point(|it| Some(it) == sorted[..end].last());
        if end - begin >= FEWEST {
            firsts.push(sorted[begin]);
            begin = end;
        }
    }
    if firsts.len() < 3 {
        return None;
    }
    let last_before = |first: u64| sorted[sorted.partition_point(|it| *it < first) - 1];
    let labels = (0..firsts.len()).map(|at| {
        let from = (at > 0).then(|| (SplitTest::AtLeast, show(firsts[at])));
        let next = firsts.get(at + 1);
        let to = next.map(|next| (SplitTest::AtMost, show(last_before(*next))));
        from.into_iter().chain(to).collect()
    });
    let group = own.iter().map(|value| {
        let at = firsts.partition_point(|first| *first <= (*value).unwrap_or(0));
        value.map(|_| at.saturating_sub(1) as u16)
    });
    Some((labels.collect(), group.collect()))
}

/// The part of the variance of ranks between groups beyond chance (epsilon squared), and its probability.
fn explained(ranks: &[f64], group: &[Option<u16>], groups: usize) -> Option<(f64, f64)> {
    let mut sums = vec![(0.0, 0.0); groups];
    let (mut n, mut total, mut squares) = (0.0, 0.0, 0.0);
    for (rank, group) in ranks.iter().zip(group) {
        let Some(group) = group else { continue };
        let (count, sum) = &mut sums[usize::from(*group)];
        (*count, *sum) = (*count + 1.0, *sum + rank);
        (n, total, squares) = (n + 1.0, total + rank, squares + rank * rank);
    }
    let whole = squares - total * total / n;
    let between = sums
        .iter()
        .map(|(count, sum): &(f64, f64)| sum * sum / count)
        .sum::<f64>();
    let h = (n - 1.0) * (between - total * total / n) / whole;
    let degrees = groups as f64 - 1.0;
    let part = (h - degrees) / (n - groups as f64);
    (whole > 0.0 && part.is_finite()).then(|| (part, chi_squared_tail(h, degrees)))
}
