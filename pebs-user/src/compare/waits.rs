//! Time off the CPU: the states of threads, and what is counted together.

use crate::units::FunctionId;

/// State of a row with the thread's time for other visits.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// State of a row with the thread's time for other items, where marks show when it turns to one (`--resume`):
/// then [`IDLE`] is separate from it.
pub(crate) const OTHER_ITEMS: &str = "other_items";

/// State of a row with the time in which the thread slept between its turns to the item.
pub(crate) const IDLE: &str = "idle";

/// State of a thread that was taken off the CPU while it could have run.
pub(crate) const PREEMPTED: &str = "runnable";

/// State of a goroutine that no thread runs.
pub(crate) const PARKED: &str = "parked";

/// State of a thread that was stopped.
pub(crate) const STOPPED: &str = "stopped";

/// Key of waits that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaitKey {
    /// Index into [`States`].
    pub state: usize,
    /// Function in which the thread blocked.
    pub function: Option<FunctionId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitSum {
    pub ns: i64,
    pub waits: u64,
}

impl WaitSum {
    /// Adds a wait.
    pub(crate) fn add(&mut self, ns: i64) {
        self.ns += ns;
        self.waits += 1;
    }
}

/// Names of the states, in order of first occurrence.
#[derive(Debug, Default)]
pub(crate) struct States(Vec<String>);

impl States {
    pub(crate) fn index(&mut self, state: &str) -> usize {
        let found = self.0.iter().position(|known| known == state);
        found.unwrap_or_else(|| {
            self.0.push(state.to_owned());
            self.0.len() - 1
        })
    }

    /// Whether it was met.
    pub(crate) fn contains(&self, state: &str) -> bool {
        self.find(state).is_some()
    }

    /// Its index, if it was met.
    pub(crate) fn find(&self, state: &str) -> Option<usize> {
        self.0.iter().position(|known| known == state)
    }

    /// Name of a state.
    pub(crate) fn name(&self, index: usize) -> &str {
        &self.0[index]
    }
}

/// Whether the place of such a wait is chance: the waits of all functions are one key then.
pub(crate) fn is_anywhere(state: &str) -> bool {
    matches!(state, PREEMPTED | STOPPED)
}
