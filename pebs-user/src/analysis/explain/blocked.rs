//! Where slow items went to wait: the call stack that most of the time of each of their waits has.

use std::cmp::Reverse;

use super::contrast::Naming;
use super::model::{Cause, Gap, WaitPath};
use super::sums::{ClassSums, GroupSums, Key};
use crate::analysis::report::model::FunctionName;
use crate::analysis::report::names::Names;
use crate::store::call_stacks::CallStacks;
use crate::store::reader::{ReadError, Trace};

/// Call stacks of the waits of slow items, with names; none if the trace has none.
pub(super) struct WaitStacks {
    stacks: CallStacks,
    names: Names,
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

    /// The functions of a call stack, the innermost first; none if it is not known.
    pub(super) fn functions(&self, stack: Option<u32>) -> Vec<FunctionName> {
        let frames = self.stacks.frames(stack).unwrap_or_default();
        frames.iter().map(|id| self.names.get(Some(*id))).collect()
    }

    /// Tells of each wait in a gap where slow items went to it.
    pub(super) fn tell(&self, gap: &mut Gap, slow: &ClassSums, naming: &Naming<'_>) {
        for cause in &mut gap.causes {
            cause.blocked = self.most(cause, slow, naming);
        }
    }

    fn most(&self, cause: &Cause, slow: &ClassSums, naming: &Naming<'_>) -> Option<WaitPath> {
        let state = cause.state.as_deref()?;
        let is_its = |key: &Key| match key {
            Key::Wait(wait) => {
                naming.states.name(wait.state) == state
                    && wait.function.map(|id| id.0) == cause.function.function_id
            }
            _ => false,
        };
        let (key, (whole, _)) = slow.keys.iter().find(|(key, _)| is_its(key))?;
        let of_key = slow.stacks.iter().filter(|((of, _), _)| of == key);
        // The first of equal ones.
        let most = of_key.max_by_key(|((_, stack), ns)| (**ns, Reverse(*stack)));
        let ((_, stack), ns) = most?;
        let functions = self.functions(Some(*stack));
        (!functions.is_empty()).then(|| WaitPath {
            functions,
            part: *ns as f64 / whole.total(),
        })
    }
}
