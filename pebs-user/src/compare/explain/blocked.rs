//! Where slow items went to wait: the call stack with most of the time of each wait, and the thread that ended it.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::contrast::Naming;
use super::items::Items;
use super::model::{Cause, Gap, WaitActor, WaitPath};
use super::sums::{ClassSums, GroupSums, NO_THREAD};
use crate::compare::explain::keys::Key;
use crate::compare::names::{FunctionName, Names};
use crate::store::call_stacks::CallStacks;
use crate::store::reader::{ReadError, Trace};

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
            cause.by = actor(key, whole_ns, slow, threads);
        }
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
