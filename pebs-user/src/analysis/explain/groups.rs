//! Groups of similar items, and the slow and typical items of each group.

use rustc_hash::FxHashMap;

use super::columns::{NULL, Values, show_number};
use super::items::Items;
use super::model::{Label, SplitTest};
use super::stump::{self, Grouping};
use crate::analysis::classes::{Class, Classes};
use crate::estimate::baseline::Rule;

/// Groups that are explained.
const MOST_GROUPS: usize = 8;

/// A group.
#[derive(Debug)]
pub(in crate::analysis) struct Section {
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
    pub(in crate::analysis) fn new(
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

    pub(in crate::analysis) fn slow(&self) -> impl Iterator<Item = u32> + '_ {
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

pub(in crate::analysis) struct ProbeGroups {
    /// All items.
    pub whole: Option<Section>,
    /// Automatic grouping, if it was used.
    pub grouping: Option<Grouping>,
    pub groups: Vec<Section>,
    /// Groups not among them, and their items.
    pub others: (u64, u64),
}

/// Groups the items of a probe by these columns, or if there are none by the argument that splits
/// their durations best.
pub(in crate::analysis) fn of_probe(
    probe: u16,
    items: &Items,
    group_by: &[GroupColumn],
    rule: Option<Rule>,
) -> ProbeGroups {
    let all = items.all.iter().enumerate();
    let members: Vec<u32> = all
        .filter(|(_, item)| item.probe == probe)
        .map(|(index, _)| index as u32)
        .collect();
    let mut found = ProbeGroups {
        whole: None,
        grouping: None,
        groups: Vec::new(),
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
                .filter_map(|(members, (test, value))| {
                    let label = Label {
                        argument: grouping.argument.clone(),
                        test: *test,
                        value: Some(value.clone()),
                    };
                    Section::new((probe, vec![label]), members, items, rule)
                })
                .collect();
        }
        found.whole = Section::new((probe, Vec::new()), members, items, rule);
        return found;
    }
    let mut parts: FxHashMap<Vec<Option<u64>>, Vec<u32>> = FxHashMap::default();
    for member in members {
        let key = group_by.iter().map(|column| column.value(items, member));
        parts.entry(key.collect()).or_default().push(member);
    }
    let mut groups: Vec<Section> = parts
        .into_iter()
        .filter_map(|(key, members)| {
            let labels = group_by.iter().zip(key).map(|(column, value)| Label {
                argument: column.name(items),
                test: SplitTest::Equal,
                value: value.map(|value| column.show(items, value)),
            });
            Section::new((probe, labels.collect()), members, items, rule)
        })
        .collect();
    // Members are ascending, so the first one orders equal groups.
    groups.sort_by_key(|group| (-group.beyond(items), group.members[0]));
    let others = groups.split_off(groups.len().min(MOST_GROUPS));
    let count: usize = others.iter().map(|it| it.members.len()).sum();
    found.others = (others.len() as u64, count as u64);
    found.groups = groups;
    found
}

/// The labels of an item's group, and whether another item belongs to it.
pub(in crate::analysis) fn alike<'a>(
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
pub(in crate::analysis) enum GroupColumn {
    /// An argument, by its index.
    Argument(usize),
    Tid,
    Pid,
    /// `cpu_begin`.
    Cpu,
}

/// Columns of `visits` that can be grouped by without being arguments.
pub(in crate::analysis) const MACHINE: [(&str, GroupColumn); 3] = [
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
