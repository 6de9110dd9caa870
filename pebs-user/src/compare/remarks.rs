//! Remarks on missing figures and on oddities of a trace, as data; `present::remarks` has their words, for people and
//! for JSON.

/// Most items of a probe never ended, so that they can't be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverEnded {
    /// Items without an end.
    pub open: u64,
    /// All of them.
    pub visits: u64,
    /// Whether ends are matched by thread, so that one on another thread matches nothing.
    pub by_thread: bool,
}

/// Why the time on the CPU can't be divided among functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoFunctionTimes {
    /// No event was sampled.
    NoEvent,
    /// The event does not count time.
    NotSteady {
        event: String,
        /// Whether it leaves out user space.
        is_kernel_only: bool,
    },
}

/// Why a gap, or part of it, can't be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TooLittle {
    NeverEnded(NeverEnded),
    /// No details of any item were kept.
    NothingKept,
    /// The slow items shared their thread with other open ones.
    SharedThread,
    NoSlowDetails,
    NoTypicalDetails,
    NoFunctionTimes(NoFunctionTimes),
    FewSamples(u64),
    FewSlowItems(u64),
}

/// Why one item can't be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemTooLittle {
    /// Its details were not kept.
    NotKept,
    /// Its time on the CPU is unknown.
    NoCpuTime,
    /// There are no typical items.
    NoTypical,
    /// It took no longer than they.
    NotLonger,
    FewSamples(u32),
}

/// Remark on the amounts of an event beside times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FurtherNote {
    /// Its samples stand for numbers of events that were not kept.
    ByFrequency,
    /// It was on a counter for this part of the time, in percent.
    InPart(u32),
}

/// A remark on an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// Only sums of the typical items were kept, without call paths.
    NoCallPaths,
    NoSwitches,
    /// Threads that ended waits are known from this time on, ns.
    WaitsFrom(i64),
    /// Samples beat with the items of a probe: functions' times have no intervals, and may be off by this part.
    Beats {
        spec: String,
        percent: u32,
    },
    /// An item is all visits with its id.
    Stages,
    NoFunctionTimes(NoFunctionTimes),
    /// Functions' rates of the event are known to this part of their times only, beside their intervals.
    Rates {
        event: String,
        percent: u32,
    },
    /// Code made at run time has no names; the runtimes that could name it.
    Nameless(Vec<Runtime>),
}

/// A runtime that generates code, and can name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    Jvm,
    OpenJ9,
    Node,
    DotNet,
    Python,
    Php,
    Pcre,
}
