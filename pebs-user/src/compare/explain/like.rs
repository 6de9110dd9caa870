//! Items that are slow for their kind: a gap sets them apart from items with like arguments, though among all items they
//! are not slow. A query for one row that takes 40 us is, where others take 1 us and those for 50 rows 52 us.

use rustc_hash::FxHashSet;

use super::groups::Section;
use super::model::{CauseType, Gap, Group, ProbeExplanation};

/// The items that a gap sets apart among all of their probe.
pub(super) struct Known(FxHashSet<u32>);

impl Known {
    pub(super) fn of(sections: &[Section]) -> Self {
        let whole = sections.iter().filter(|it| it.labels.is_empty());
        // A slowest 1 % is there whatever happened.
        let whole = whole.filter(|it| it.summary.has_material_gap());
        Self(whole.flat_map(Section::slow).collect())
    }

    /// Whether a group has slow items that are not these.
    pub(super) fn hides(&self, group: &Section) -> bool {
        group.sets_apart_others(&self.0)
    }

    /// Of the explained groups of a probe, those with such items. `groups` are in the order of their sections.
    pub(super) fn for_kind(
        &self,
        probe: u16,
        sections: &[Section],
        groups: &[Group],
    ) -> Vec<Group> {
        let of_groups = sections
            .iter()
            .filter(|it| it.probe == probe && !it.labels.is_empty());
        let pairs = of_groups
            .zip(groups)
            .filter(|(section, _)| self.hides(section));
        pairs.map(|(_, group)| group.clone()).collect()
    }
}

/// Adds a group by time on the CPU. By duration it stays only if its slow items waited for something.
pub(super) fn add(probe: &mut ProbeExplanation, group: Group) {
    let waited = |it: &Group| {
        let mut first = it.gap.iter().filter_map(|it| it.causes.first());
        first.any(|it| !matches!(it.kind, CauseType::Function | CauseType::Module))
    };
    probe
        .slow_for_kind
        .retain(|it| it.labels != group.labels || waited(it));
    probe.slow_for_kind.push(group);
}

/// Part of the causes from which on waiting for a CPU is what makes items slow: that happens to items of any kind.
const MOSTLY: f64 = 0.5;

/// Sorts the groups: first those with a cause, by how many typical items would have taken the time of the slow ones.
/// Groups whose slow items were preempted are left out, and all but one of those without a cause.
pub(super) fn rank(probe: &mut ProbeExplanation) {
    let weight = |group: &Group| {
        let slow = group.slow.as_ref()?;
        let median = group.duration.p50_ns.max(1) as f64;
        Some(slow.items as f64 * (slow.mean_ns.unwrap_or(slow.from_ns as f64) / median - 1.0))
    };
    let groups = &mut probe.slow_for_kind;
    let is_known = |group: &Group| group.gap.as_ref().is_some_and(Gap::has_causes);
    let is_preempted = |group: &Group| {
        let first = group.gap.as_ref().and_then(|it| it.causes.first());
        first.is_some_and(|it| it.kind == CauseType::Preempted && it.figures.share >= MOSTLY)
    };
    groups.retain(|it| !is_preempted(it));
    let key = |group: &Group| (is_known(group), weight(group).unwrap_or(0.0));
    groups.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    let mut at = 0;
    groups.retain(|it| {
        at += 1;
        at == 1 || is_known(it)
    });
}
