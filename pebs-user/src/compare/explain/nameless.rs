//! Callers of functions without a name, by the call stacks of their samples.

use rustc_hash::{FxHashMap, FxHashSet};

use super::model::{Cause, CauseType, Gap, Group};
use super::sums::{NO_SECTION, Summing};
use super::timing::Timing;
use crate::compare::called_from::{Callers, NamedCallers};
use crate::compare::classes::Class;
use crate::compare::names::FunctionName;
use crate::compare::rows::samples;
use crate::store::reader::{ReadError, Trace};

/// Items whose samples count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whose {
    All,
    Slow,
    /// A kind of the group, by its place.
    Kind(usize),
}

/// Functions of one group without a name, each with the items that it is mentioned for.
#[derive(Default)]
pub(super) struct Nameless<'a> {
    mentioned: Vec<(Whose, u32, &'a mut FunctionName)>,
    /// Kind of an item, by its first visit.
    kinds: FxHashMap<u64, usize>,
}

impl<'a> Nameless<'a> {
    /// Those of a group.
    pub(super) fn of_group(group: &'a mut Group) -> Self {
        let mut found = Self::default();
        let Group {
            gap,
            kinds,
            only_slow,
            variance,
            ..
        } = group;
        found.add_gap(gap.as_mut());
        let only = only_slow.iter_mut();
        only.for_each(|it| found.add(Whose::Slow, it.kind, &mut it.function));
        for (place, kind) in kinds.iter_mut().enumerate() {
            found.add_causes(Whose::Kind(place), &mut kind.causes);
            let only = kind.only.iter_mut();
            only.for_each(|it| found.add(Whose::Kind(place), it.kind, &mut it.function));
            let visits = kind.visit_ids.iter();
            found.kinds.extend(visits.map(|it| (*it, place)));
        }
        let parts = variance.iter_mut().flat_map(|it| &mut it.parts);
        parts.for_each(|it| found.add(Whose::All, it.kind, &mut it.function));
        found
    }

    /// Those of a gap alone.
    pub(super) fn of_gap(gap: Option<&'a mut Gap>) -> Self {
        let mut found = Self::default();
        found.add_gap(gap);
        found
    }

    fn add_gap(&mut self, gap: Option<&'a mut Gap>) {
        if let Some(gap) = gap {
            self.add_causes(Whose::Slow, &mut gap.causes);
        }
    }

    fn add_causes(&mut self, whose: Whose, causes: &'a mut [Cause]) {
        for cause in causes {
            self.add(whose, cause.kind, &mut cause.function);
            self.add_causes(whose, &mut cause.functions);
        }
    }

    fn add(&mut self, whose: Whose, kind: CauseType, function: &'a mut FunctionName) {
        if let Some(id) = function.function_id
            && kind == CauseType::Function
            && function.is_nameless()
        {
            self.mentioned.push((whose, id, function));
        }
    }
}

/// Sets from where the functions of these groups were called, one for each section.
///
/// Cost: reads `samples` once and `stacks` twice, if there is such a function and the trace has call stacks.
pub(super) fn set_callers(
    trace: &Trace,
    summing: &Summing<'_>,
    timing: &Timing<'_>,
    mut groups: Vec<Nameless<'_>>,
) -> Result<(), ReadError> {
    let mentioned = groups.iter().flat_map(|it| &it.mentioned);
    let functions: FxHashSet<u32> = mentioned.map(|it| it.1).collect();
    let Some(event) = timing.event.filter(|_| !functions.is_empty()) else {
        return Ok(());
    };
    if trace.info.call_graph.is_none() {
        return Ok(());
    }
    let named = NamedCallers::read(trace, &functions)?;
    let mut found: FxHashMap<(u16, Whose, u32), Callers> = FxHashMap::default();
    samples(trace, event.id, |visit, function, stack| {
        if !functions.contains(&function) {
            return;
        }
        let caller = named.of(stack, function);
        for (index, share) in summing.items.of_visit(visit) {
            let item = &summing.items.all[index as usize];
            for (section, class) in summing.places[index as usize] {
                let Some(group) = groups.get(usize::from(section)) else {
                    continue;
                };
                let slow = (class == Class::Slow).then_some(Whose::Slow);
                let kind = group.kinds.get(&item.visit_id).copied().map(Whose::Kind);
                for whose in [Some(Whose::All), slow, kind].into_iter().flatten() {
                    let callers = found.entry((section, whose, function)).or_default();
                    callers.add(caller, share.of_whole());
                }
            }
        }
    })?;
    for (section, group) in (0..NO_SECTION).zip(&mut groups) {
        for (whose, id, function) in &mut group.mentioned {
            let callers = found.get(&(section, *whose, *id));
            function.called_from = callers.and_then(|it| named.name(it));
        }
    }
    Ok(())
}
