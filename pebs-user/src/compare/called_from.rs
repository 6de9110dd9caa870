//! The nearest named caller of functions without a name.
//!
//! A stripped binary says where its functions begin, and not what they are called. The nearest function with a name on the
//! call stacks of such a function's samples says what it was called for. It is never guessed: where most samples have no
//! stack, no named caller, or different ones, there is none.

use rustc_hash::{FxHashMap, FxHashSet};

use super::names::Names;
use crate::store::call_stacks::read_stacks;
use crate::store::reader::{ReadError, Trace};

/// Least part of the samples of a function that have its caller.
const LEAST_PART: f64 = 0.5;

/// Nearest named callers of functions without a name, by call stack.
///
/// Memory: in proportion to the stacks that end in these functions.
pub(crate) struct NamedCallers {
    /// By stack the function it ends in, and the nearest caller with a name.
    by_stack: FxHashMap<u32, (u32, u32)>,
    names: Names,
}

impl NamedCallers {
    /// Reads the stacks that end in one of these functions, twice: the names of all callers have to be known first.
    pub(crate) fn read(trace: &Trace, nameless: &FxHashSet<u32>) -> Result<Self, ReadError> {
        let mut callers = FxHashSet::default();
        read_stacks(trace, |_, frames, _| {
            if frames.first().is_some_and(|it| nameless.contains(it)) {
                callers.extend(&frames[1..]);
            }
        })?;
        let names = Names::of(trace, callers.into_iter())?;
        let mut by_stack = FxHashMap::default();
        read_stacks(trace, |stack, frames, _| {
            let Some((function, callers)) = frames.split_first() else {
                return;
            };
            if nameless.contains(function)
                && let Some(caller) = names.first_named(callers)
            {
                by_stack.insert(stack, (*function, caller));
            }
        })?;
        Ok(Self { by_stack, names })
    }

    /// The nearest named caller of a function on the stack of one of its samples.
    pub(crate) fn of(&self, stack: Option<u32>, function: u32) -> Option<u32> {
        let (ends_in, caller) = self.by_stack.get(&stack?)?;
        (*ends_in == function).then_some(*caller)
    }

    /// The name of the caller of most samples.
    pub(crate) fn name(&self, callers: &Callers) -> Option<String> {
        self.names.get(callers.most()).name
    }
}

/// The callers that samples of one function had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Callers {
    all: f64,
    by: FxHashMap<u32, f64>,
}

impl Callers {
    /// Adds samples, or a time, with this caller; `None` if it is unknown.
    pub(crate) fn add(&mut self, caller: Option<u32>, weight: f64) {
        self.all += weight;
        if let Some(caller) = caller {
            *self.by.entry(caller).or_default() += weight;
        }
    }

    /// The caller that most have, if at least half of all have it.
    pub(crate) fn most(&self) -> Option<u32> {
        let by = self.by.iter();
        let most = by.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)))?;
        (*most.1 >= LEAST_PART * self.all).then_some(*most.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller of fewer than half of the samples, those without a caller included, is not told.
    #[test]
    fn at_least_half() {
        let of = |callers: &[(Option<u32>, f64)]| {
            let mut found = Callers::default();
            callers
                .iter()
                .for_each(|(it, weight)| found.add(*it, *weight));
            found.most()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(None, 1.0)]), None);
        assert_eq!(of(&[(Some(7), 5.0), (None, 5.0)]), Some(7));
        assert_eq!(of(&[(Some(7), 5.0), (None, 5.5)]), None);
        assert_eq!(of(&[(Some(7), 4.0), (Some(8), 3.0), (Some(9), 3.0)]), None);
        // The first of equal ones.
        assert_eq!(of(&[(Some(8), 1.0), (Some(7), 1.0)]), Some(7));
    }
}
