//! Groups of similar items, and the slow and typical items of each group.

use rustc_hash::{FxHashMap, FxHashSet};

use super::columns::{NULL, Values, show_number};
use super::items::Items;
use super::model::{ComparedGroup, Label, SplitTest};
use super::stump::{self, Grouping};
use crate::compare::chance::{Table, fisher};
use crate::compare::classes::{Class, Classes, Rank, apart_on_cpu, is_same};
use crate::estimate::baseline::Rule;

/// Groups that are explained.
const MOST_GROUPS: usize = 8;

/// A group.
#[derive(Debug)]
pub(crate) struct Section {
    /// Index of its probe.
    pub probe: u16,
    /// Arguments that its items share; empty: all items of the probe.
    pub labels: Vec<Label>,
    /// Its items.
    pub members: Vec<u32>,
    pub classes: Vec<Class>,
    /// Bounds and counts of the classes.
    pub summary: Classes,
}

impl Section {
    /// Divides the items of a group into classes; `None` if it has no items.
    pub(crate) fn new(
        (probe, labels): (u16, Vec<Label>),
        members: Vec<u32>,
        items: &Items,
        rule: Option<Rule>,
    ) -> Option<Self> {
        let rank = |member: &u32| items.all[*member as usize].rank();
        let mut ranks = items.ranks.clone();
        members.iter().for_each(|it| ranks.add(rank(it)));
        let summary = ranks.close(rule)?;
        Some(Self {
            probe,
            labels,
            classes: members.iter().map(|it| summary.of(rank(it))).collect(),
            members,
            summary,
        })
    }

    /// The same group by time on the CPU, if that sets apart other items than durations do; `None`: it does not, or is
    /// unknown of some.
    pub(crate) fn on_cpu(&self, items: &Items) -> Option<Self> {
        let found = self.by_cpu_time(items)?;
        let pairs = found.classes.iter().zip(&self.classes);
        let both = pairs.filter(|it| *it == (&Class::Slow, &Class::Slow));
        let is_known = is_same(found.summary.slow, self.summary.slow, both.count() as u64);
        (!is_known).then_some(found)
    }

    /// The same group by time on the CPU, if that sets items apart; `None`: it does not, or is unknown of some.
    pub(crate) fn by_cpu_time(&self, items: &Items) -> Option<Self> {
        let rank = |member: &u32| {
            let item = &items.all[*member as usize];
            let ns = item.active_ns?;
            Some(Rank { ns, ..item.rank() })
        };
        let all: Vec<Rank> = self.members.iter().map(rank).collect::<Option<_>>()?;
        let mut ranks = items.ranks.clone();
        all.iter().for_each(|it| ranks.add(*it));
        let summary = apart_on_cpu(&self.summary, ranks)?;
        Some(Self {
            probe: self.probe,
            labels: self.labels.clone(),
            members: self.members.clone(),
            classes: all.iter().map(|it| summary.of(*it)).collect(),
            summary,
        })
    }

    /// Whether its slow items are set apart by a gap that matters, and most of them are not among these.
    pub(crate) fn sets_apart_others(&self, known: &FxHashSet<u32>) -> bool {
        let among = self.slow().filter(|it| known.contains(it)).count() as u64;
        self.summary.has_material_gap() && 2 * among < self.summary.slow
    }

    pub(crate) fn slow(&self) -> impl Iterator<Item = u32> + '_ {
        let pairs = self.members.iter().zip(&self.classes);
        pairs
            .filter(|(_, class)| **class == Class::Slow)
            .map(|(member, _)| *member)
    }

    /// Total time of the slow items beyond the median, ns.
    fn beyond(&self, items: &Items) -> i64 {
        let excess = |it: u32| items.all[it as usize].net_ns() - self.summary.quantiles.p50_ns;
        self.slow().map(excess).sum()
    }
}

pub(crate) struct ProbeGroups {
    /// All items.
    pub whole: Option<Section>,
    /// Automatic grouping, if it was used.
    pub grouping: Option<Grouping>,
    pub groups: Vec<Section>,
    /// All groups that were asked for, those with more slow items than chance puts there first.
    pub compared: Vec<ComparedGroup>,
    /// Groups not among `groups`, and their items.
    pub others: (u64, u64),
}

/// Groups the items of a probe by these columns, or if there are none by the argument that splits
/// their durations best.
pub(crate) fn of_probe(
    probe: u16,
    items: &Items,
    group_by: &[GroupColumn],
    rule: Option<Rule>,
) -> ProbeGroups {
    let all = items.all.iter().enumerate();
    let members: Vec<u32> = all
        .filter(|(_, item)| item.probe == probe && items.has_latency(item))
        .map(|(index, _)| index as u32)
        .collect();
    let mut found = ProbeGroups {
        whole: None,
        grouping: None,
        groups: Vec::new(),
        compared: Vec::new(),
        others: (0, 0),
    };
    if members.is_empty() {
        return found;
    }
    if group_by.is_empty() {
        found.grouping = stump::grouping(&members, items);
        if let Some(grouping) = &found.grouping {
            let mut parts = vec![Vec::new(); grouping.labels.len()];
            for (&member, group) in members.iter().zip(&grouping.group) {
                if let Some(group) = group {
                    parts[usize::from(*group)].push(member);
                }
            }
            let parts = parts.into_iter().zip(&grouping.labels);
            found.groups = parts
                .filter_map(|(members, tests)| {
                    let labels = tests.iter().map(|(test, value)| Label {
                        argument: grouping.argument.clone(),
                        test: *test,
                        value: Some(value.clone()),
                    });
                    Section::new((probe, labels.collect()), members, items, rule)
                })
                .collect();
        }
        found.whole = Section::new((probe, Vec::new()), members, items, rule);
        return found;
    }
    let among = Among::new(probe, &members, items, rule);
    let mut parts: FxHashMap<Vec<Option<u64>>, Vec<u32>> = FxHashMap::default();
    for member in members {
        let key = group_by.iter().map(|column| column.value(items, member));
        parts.entry(key.collect()).or_default().push(member);
    }
    let mut groups: Vec<(Section, ComparedGroup)> = parts
        .into_iter()
        .filter_map(|(key, members)| {
            let labels = group_by.iter().zip(key).map(|(column, value)| Label {
                argument: column.name(items),
                test: SplitTest::Equal,
                value: value.map(|value| column.show(items, value)),
            });
            let group = Section::new((probe, labels.collect()), members, items, rule)?;
            let compared = among.compare(&group, items);
            Some((group, compared))
        })
        .collect();
    groups.sort_by(|(a, of_a), (b, of_b)| {
        let by_time = || b.beyond(items).cmp(&a.beyond(items));
        let order = of_a.chance.total_cmp(&of_b.chance).then_with(by_time);
        // Members are ascending, so the first one orders equal groups.
        order.then_with(|| a.members[0].cmp(&b.members[0]))
    });
    let (mut groups, compared): (Vec<Section>, Vec<ComparedGroup>) = groups.into_iter().unzip();
    found.compared = compared;
    let others = groups.split_off(groups.len().min(MOST_GROUPS));
    let count: usize = others.iter().map(|it| it.members.len()).sum();
    found.others = (others.len() as u64, count as u64);
    found.groups = groups;
    found
}

/// All items of a probe, which its groups are compared with.
struct Among {
    items: u64,
    /// By item, whether it is slow among all.
    is_slow: FxHashSet<u32>,
    /// Sum of all durations, ns.
    time_ns: f64,
}

impl Among {
    fn new(probe: u16, members: &[u32], items: &Items, rule: Option<Rule>) -> Self {
        let whole = Section::new((probe, Vec::new()), members.to_vec(), items, rule);
        Self {
            items: members.len() as u64,
            is_slow: whole.iter().flat_map(Section::slow).collect(),
            time_ns: time_ns(members, items),
        }
    }

    fn compare(&self, group: &Section, items: &Items) -> ComparedGroup {
        let members = &group.members;
        let slow = members.iter().filter(|it| self.is_slow.contains(it));
        let (with, both) = (members.len() as u64, slow.count() as u64);
        let time_ns = time_ns(members, items);
        ComparedGroup {
            labels: group.labels.clone(),
            items: with,
            duration: group.summary.quantiles,
            slow_items: both,
            slow_part: both as f64 / (self.is_slow.len() as f64).max(1.0),
            time_part: time_ns / self.time_ns.max(1.0),
            chance: fisher(Table {
                items: self.items,
                slow: self.is_slow.len() as u64,
                with,
                both,
            }),
        }
    }
}

/// Sum of the durations of items, ns.
fn time_ns(members: &[u32], items: &Items) -> f64 {
    let each = members.iter();
    each.map(|it| items.all[*it as usize].net_ns() as f64).sum()
}

/// The labels of an item's group, and whether another item belongs to it.
pub(crate) fn alike<'a>(
    index: u32,
    items: &'a Items,
    group_by: &'a [GroupColumn],
) -> (Vec<Label>, impl Fn(u32) -> bool + 'a) {
    let key: Vec<Option<u64>> = group_by.iter().map(|it| it.value(items, index)).collect();
    let labels = group_by.iter().zip(&key).map(|(column, value)| Label {
        argument: column.name(items),
        test: SplitTest::Equal,
        value: value.map(|value| column.show(items, value)),
    });
    let labels = labels.collect();
    let like = move |other: u32| {
        let pairs = group_by.iter().zip(&key);
        pairs
            .into_iter()
            .all(|(column, value)| column.value(items, other) == *value)
    };
    (labels, like)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupColumn {
    /// An argument, by its index.
    Argument(usize),
    Tid,
    Pid,
    /// `cpu_begin`.
    Cpu,
}

/// Columns of `visits` that can be grouped by without being arguments.
pub(crate) const MACHINE: [(&str, GroupColumn); 3] = [
    ("tid", GroupColumn::Tid),
    ("pid", GroupColumn::Pid),
    ("cpu_begin", GroupColumn::Cpu),
];

impl GroupColumn {
    fn value(self, items: &Items, member: u32) -> Option<u64> {
        let item = &items.all[member as usize];
        match self {
            Self::Tid => Some(item.tid.into()),
            Self::Pid => Some(item.pid.into()),
            Self::Cpu => item.cpu.map(u64::from),
            Self::Argument(index) => match &items.columns.0[index].values {
                Values::Number { values, .. } => values[member as usize],
                Values::Text { whole, .. } => Some(whole[member as usize])
                    .filter(|it| *it != NULL)
                    .map(u64::from),
            },
        }
    }

    fn show(self, items: &Items, value: u64) -> String {
        match self {
            Self::Argument(index) => match &items.columns.0[index].values {
                Values::Number { signed, .. } => show_number(value, *signed),
                Values::Text { wholes, .. } => wholes.text(value as u32).to_owned(),
            },
            _ => value.to_string(),
        }
    }

    fn name(self, items: &Items) -> String {
        match self {
            Self::Argument(index) => items.columns.0[index].name.clone(),
            _ => MACHINE
                .iter()
                .find(|it| it.1 == self)
                .map_or("", |it| it.0)
                .to_owned(),
        }
    }
}
