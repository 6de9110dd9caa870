//! Beginnings of slow items' waits: the call stack with most of the time of each wait, the thread that ended it, and
//! that thread's activity meanwhile.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::chain::{self, Root};
use super::contrast::Naming;
use super::items::Items;
use super::model::{Cause, CauseType, Gap, WaitActor, WaitPath};
use super::sums::{ClassSums, GroupSums, NO_THREAD, Summing, key_of_wait};
use super::timing::Timing;
use crate::compare::called_from::Callers;
use crate::compare::classes::Class;
use crate::compare::explain::keys::Key;
use crate::compare::names::{FunctionName, Names};
use crate::store::call_stacks::CallStacks;
use crate::store::reader::{ReadError, Trace};
use crate::store::view::{Select as _, View as _, columns};

/// Call stacks of the waits of slow items, with names; empty if the trace has none.
pub(super) struct WaitStacks {
    stacks: CallStacks,
    names: Names,
}

/// Threads that end waits.
#[derive(Clone, Copy)]
pub(super) struct Threads<'a> {
    /// Their names by tid.
    pub names: &'a FxHashMap<u32, String>,
    /// Items they may be serving.
    pub items: &'a Items,
    /// Whether some waits are from before it was recorded who ends them.
    pub since_later: bool,
}

impl WaitStacks {
    /// Reads those that these sums mention.
    pub(super) fn read(trace: &Trace, sums: &[GroupSums]) -> Result<Self, ReadError> {
        let met = sums.iter().flat_map(|it| it.slow.stacks.keys());
        Self::of(trace, &mut met.map(|(_, stack)| *stack))
    }

    /// Reads these.
    pub(super) fn of(trace: &Trace, ids: &mut dyn Iterator<Item = u32>) -> Result<Self, ReadError> {
        let mut ids = ids.peekable();
        let stacks = match ids.peek() {
            Some(_) => CallStacks::read(trace)?,
            None => CallStacks::default(),
        };
        let frames = ids.filter_map(|stack| stacks.frames(Some(stack)));
        let names = Names::of(trace, frames.flatten().copied())?;
        Ok(Self { stacks, names })
    }

    /// The functions of a call stack, innermost first; empty if unknown.
    pub(super) fn functions(&self, stack: Option<u32>) -> Vec<FunctionName> {
        let frames = self.stacks.frames(stack).unwrap_or_default();
        frames.iter().map(|id| self.names.get(Some(*id))).collect()
    }

    /// Sets for each wait in a gap where slow items went to it, and which thread ended it.
    pub(super) fn set_blocking(
        &self,
        gap: &mut Gap,
        slow: &ClassSums,
        naming: &Naming<'_>,
        threads: Threads<'_>,
    ) {
        for cause in &mut gap.causes {
            let Some((key, whole_ns)) = wait_of(cause, slow, naming) else {
                continue;
            };
            cause.blocked = self.most(key, whole_ns, slow);
            if cause.function.is_nameless() {
                cause.function.called_from = self.called_from(key, whole_ns, slow);
            }
            cause.by = actor(key, whole_ns, slow, threads);
        }
    }

    /// The nearest named caller of the function that waited, if it has no name.
    fn called_from(&self, key: &Key, whole_ns: f64, slow: &ClassSums) -> Option<String> {
        let function = key.function()?.0;
        let mut callers = Callers::default();
        let mut known_ns = 0.0;
        for ((_, stack), ns) in slow.stacks.iter().filter(|((of, _), _)| of == key) {
            let frames = self.stacks.frames(Some(*stack)).unwrap_or_default();
            let mut outwards = frames.split(|it| *it == function).skip(1);
            let caller = outwards.next().and_then(|it| self.names.first_named(it));
            callers.add(caller, *ns as f64);
            known_ns += *ns as f64;
        }
        callers.add(None, (whole_ns - known_ns).max(0.0));
        self.names.get(callers.most()).name
    }

    fn most(&self, key: &Key, whole_ns: f64, slow: &ClassSums) -> Option<WaitPath> {
        let of_key = slow.stacks.iter().filter(|((of, _), _)| of == key);
        // The first of equal ones.
        let most = of_key.max_by_key(|((_, stack), ns)| (**ns, Reverse(*stack)));
        let ((_, stack), ns) = most?;
        let functions = self.functions(Some(*stack));
        (!functions.is_empty()).then(|| WaitPath {
            functions,
            part: *ns as f64 / whole_ns,
        })
    }
}

/// Waits with a smaller share of the gap are not followed.
const LEAST_FOLLOWED: f64 = 0.02;

columns! {
    struct Ends of waits { visit_id, tid, begin_ns, end_ns, function_id, state, woken_by }
}

/// Sets whom slow items waited for, for each wait in these gaps, one for each section.
pub(super) fn follow(
    trace: &Trace,
    summing: &Summing<'_>,
    (naming, timing): (&Naming<'_>, &Timing<'_>),
    mut gaps: Vec<Option<&mut Gap>>,
) -> Result<(), ReadError> {
    let mut groups: FxHashMap<(u16, Key), usize> = FxHashMap::default();
    for ((section, gap), sums) in (0..).zip(&gaps).zip(&summing.sums) {
        let causes = gap.iter().flat_map(|it| &it.causes);
        for cause in causes.filter(|it| is_followed(it)) {
            if let Some((key, _)) = wait_of(cause, &sums.slow, naming) {
                let next = groups.len();
                groups.entry((section, *key)).or_insert(next);
            }
        }
    }
    if groups.is_empty() {
        return Ok(());
    }
    // What other threads did before is not known.
    let known_from = trace.info.waits_from_ns().unwrap_or(0);
    let mut roots = Vec::new();
    for batch in Ends::scan(trace)? {
        let batch = batch?;
        let waits = Ends::of(&batch)?;
        for (row, &visit) in waits.visit_id.iter().enumerate() {
            if waits.woken_by.get(row).is_none() || waits.begin_ns[row] < known_from {
                continue;
            }
            let state = waits.state.get(row);
            let Some(index) = summing.states.find(state) else {
                continue;
            };
            let key = key_of_wait((index, state), waits.function_id.get(row));
            summing.classes_of(visit, |section, (class, _), _| {
                if class == Class::Slow
                    && let Some(group) = groups.get(&(section, key))
                {
                    roots.push(Root {
                        group: *group,
                        tid: waits.tid[row],
                        begin_ns: waits.begin_ns[row],
                        end_ns: waits.end_ns[row],
                    });
                }
            });
        }
    }
    let found = chain::follow(trace, timing.event, (groups.len(), roots))?;
    for ((section, gap), sums) in (0..).zip(&mut gaps).zip(&summing.sums) {
        let causes = gap.iter_mut().flat_map(|it| &mut it.causes);
        for cause in causes.filter(|it| is_followed(it)) {
            let key = wait_of(cause, &sums.slow, naming).map(|it| *it.0);
            let group = key.and_then(|key| groups.get(&(section, key)));
            let found = group.map(|group| &found[*group]);
            cause.waited_for = found.filter(|it| it.waits > 0).cloned();
        }
    }
    Ok(())
}

fn is_followed(cause: &Cause) -> bool {
    cause.kind == CauseType::Wait && cause.figures.share >= LEAST_FOLLOWED
}

/// The wait that a cause is, and its time in slow items.
fn wait_of<'a>(cause: &Cause, slow: &'a ClassSums, naming: &Naming<'_>) -> Option<(&'a Key, f64)> {
    let state = cause.state.as_deref()?;
    let is_its = |key: &Key| match key {
        Key::Wait(wait) => {
            naming.states.name(wait.state) == state
                && wait.function.map(|id| id.0) == cause.function.function_id
        }
        _ => false,
    };
    let (key, (whole, _)) = slow.keys.iter().find(|(key, _)| is_its(key))?;
    Some((key, whole.total()))
}

/// The thread that ended most of a wait, or took the CPU for most of it.
fn actor(key: &Key, whole_ns: f64, slow: &ClassSums, threads: Threads<'_>) -> Option<WaitActor> {
    let of_key = slow.actors.iter().filter(|((of, _), _)| of == key);
    let whole_ns = match threads.since_later {
        true => of_key.clone().map(|(_, (ns, _))| *ns as f64).sum(),
        false => whole_ns,
    };
    let most = of_key.max_by_key(|((_, tid), (ns, _))| (*ns, Reverse(*tid)));
    let ((_, tid), (ns, (_, when))) = most?;
    let tid = Some(*tid).filter(|it| *it != NO_THREAD);
    Some(WaitActor {
        name: threads.names.get(&tid.unwrap_or(NO_THREAD))?.clone(),
        tid,
        part: *ns as f64 / whole_ns,
        item_id: tid.and_then(|tid| item_at(threads.items, tid, *when)),
    })
}

/// The item that a thread was at.
fn item_at(items: &Items, tid: u32, when: i64) -> Option<u64> {
    let is_open = |begin: i64, latency: i64| (begin..=begin + latency).contains(&when);
    let mut at = items.all.iter().filter(|it| it.tid == tid);
    at.find(|it| is_open(it.begin_ns, it.latency_ns))
        .map(|it| it.item_id)
}
