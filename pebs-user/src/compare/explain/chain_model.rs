//! Whom waits waited for, as plain data.

use serde::Serialize;

use crate::compare::arguments::NamedArg;
use crate::compare::names::FunctionName;

/// Explanation of a wait: the threads that ended it, and their activities meanwhile.
///
/// All parts are of the time of the wait at the root, which is a cause or a wait of an item. The parts of `links`,
/// `no_cpu`, `interrupts`, `itself` and `unknown` sum to the part of this wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct WaitedFor {
    /// Part of this wait, 0..1.
    pub part: f64,
    /// Number of waits.
    pub waits: u64,
    /// Mean number of items that one of these waits waited for, each wait weighted by its time: the queue before a lock.
    /// 0: for none.
    pub queue: f64,
    /// Threads that were waited for, by what they served, the largest part first.
    pub links: Vec<Link>,
    /// Part in which the thread was woken already, but had no CPU.
    pub no_cpu: f64,
    /// Part that no thread ended: a timer, the disk, the network.
    pub interrupts: f64,
    /// Part in which the other side waited for the one that waits here: a hand-over back.
    pub itself: f64,
    /// Part of which the end is not known.
    pub unknown: f64,
}

/// Threads that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Awaited {
    /// Items of a probe.
    Items,
    /// A thread of a traced process while it was at no item.
    Thread,
    /// A thread that is not traced: what it did is not known.
    Untraced,
}

/// Threads that were waited for, and what they did meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Link {
    pub kind: Awaited,
    /// The function of the items' probe, or the name of the thread.
    pub name: String,
    /// Part of the root's wait, 0..1.
    pub part: f64,
    /// Part in which they were on the CPU: observed, whatever their samples say.
    pub on_cpu: f64,
    /// Number of these items; 0: threads at no item.
    pub items: u64,
    /// Arguments of nine tenths of these items, weighted by time, that at most half of all items have.
    pub args: Vec<NamedArg>,
    /// The item that held it up longest; null: at no item.
    pub item_id: Option<u64>,
    /// Its visit.
    pub visit_id: Option<u64>,
    /// The thread that held it up longest.
    pub tid: u32,
    /// Their activities, the largest part first, without unknown ones and those below a hundredth.
    pub doing: Vec<Doing>,
}

/// Activity of a thread while it was waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Doing {
    pub kind: Activity,
    /// The function that ran, or that blocked; unknown: no samples.
    pub function: FunctionName,
    /// State of the thread while off the CPU; null: on the CPU.
    pub state: Option<String>,
    /// Part of the root's wait, 0..1. Of functions: the time on the CPU, divided by their samples.
    pub part: f64,
    /// Samples of a function; else number of waits.
    pub count: u64,
    /// The call stack at which it blocked, innermost function first; empty: unknown.
    pub path: Vec<FunctionName>,
    /// The thread that took the CPU.
    pub by: Option<String>,
    /// Explanation of that wait in turn.
    pub waited_for: Option<WaitedFor>,
}

/// State of a thread while it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Activity {
    /// On the CPU.
    Ran,
    /// Off the CPU voluntarily, or stopped.
    Waited,
    /// Off the CPU while it could have run.
    Preempted,
}
