//! Explanation of one item, as plain data.

use serde::Serialize;

use super::chain_model::WaitedFor;
use super::model::{Durations, EventFigures, Gap, InterferenceRow, Label, Typical};
use crate::compare::arguments::NamedArg;
use crate::compare::counts::Counts;
use crate::compare::further::FurtherEvent;
use crate::compare::names::FunctionName;
use crate::compare::remarks::{ItemTooLittle, Note};
use crate::store::run::{EventInfo, RecordedSpec};

/// One item against its group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ItemReport {
    /// [`super::model::EXPLAIN_VERSION`].
    pub explain_version: u32,
    /// Path of the trace, as given.
    pub trace: String,
    /// The sampled event; null if there was none.
    pub event: Option<EventInfo>,
    /// As in [`super::model::Explanation`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_events: Vec<FurtherEvent>,
    /// SPECs of its probes.
    pub specs: Vec<RecordedSpec>,
    pub item_id: u64,
    /// Number of items of a visit that serves several, which has a number of its own; null: one.
    pub batch: Option<u32>,
    pub visit_ids: Vec<u64>,
    /// Number of other items with this id; this is the longest.
    pub others_with_id: u64,
    /// Process.
    pub pid: u32,
    /// Thread of its first visit.
    pub tid: u32,
    /// Begin on the trace clock.
    pub begin_ns: i64,
    /// From begin to end.
    pub latency_ns: i64,
    /// Time on the CPU; null if unknown.
    pub oncpu_ns: Option<i64>,
    /// Samples, all events.
    pub samples: u32,
    /// Names of its flags.
    pub flags: Vec<&'static str>,
    /// Counts of its threads.
    #[serde(flatten)]
    pub counts: Counts,
    /// Interrupts, softirqs and page faults of its threads, against typical items; included in the other times.
    pub interference: Vec<InterferenceRow>,
    /// Its arguments.
    pub args: Vec<NamedArg>,
    /// Its place in its group; null if its end is unknown.
    pub account: ItemAccount,
    /// Its time line, in order.
    pub moments: Vec<Moment>,
    /// Waits that are too short and too many to be listed, and their time.
    pub other_waits: (u64, i64),
    /// Remarks.
    pub notes: Vec<Note>,
}

/// Place of an item in its group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ItemAccount {
    /// Arguments that the items of the group share; empty: all items of the probe.
    pub labels: Vec<Label>,
    /// Items of the group.
    pub items: u64,
    /// 1 for the longest.
    pub rank: u64,
    /// Share of the group that is shorter, 0..1.
    pub percentile: f64,
    /// Durations of the group.
    pub duration: Durations,
    /// Typical items it is compared with; null if there are none.
    pub typical: Option<Typical>,
    /// Causes of its additional time; null if unknown.
    pub gap: Option<Gap>,
    /// Its further events in all functions, and those of a typical item; left out if there are none, or `gap` is null.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<EventFigures>,
    /// Why `gap` is null or incomplete.
    pub too_little: Option<ItemTooLittle>,
}

/// Event at a moment of a time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MomentType {
    /// A begin mark.
    Begin,
    /// On the CPU, as samples saw it.
    Ran,
    /// Off the CPU.
    Waited,
    /// An end mark.
    End,
}

/// A part of a time line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Moment {
    /// Since the begin of the item.
    pub at_ns: i64,
    /// Thread.
    pub tid: u32,
    pub kind: MomentType,
    /// Length; for time on the CPU from the first to the last sample; 0 for a mark.
    pub ns: i64,
    /// State of the thread while off the CPU.
    pub state: Option<String>,
    /// The thread that took the CPU, or woke this thread; null: unknown.
    pub by: Option<String>,
    /// Whom it waited for, and what that did meanwhile; null: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<WaitedFor>,
    /// SPEC of the mark's probe.
    pub spec: Option<RecordedSpec>,
    /// Sampled functions with their number of samples, most first; the one in which the thread blocked, with 0.
    pub functions: Vec<(FunctionName, u32)>,
    /// Functions on the call stack at which the thread blocked, innermost first, starting with the kernel's;
    /// empty: not recorded.
    pub path: Vec<FunctionName>,
}
