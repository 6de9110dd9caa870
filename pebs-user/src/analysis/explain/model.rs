//! What an explanation says, as plain data.
//!
//! The JSON format of `pebs-trace explain` is this page: keys are field names, times are ns, shares
//! are 0..1, what is unknown is null.

use serde::Serialize;

use super::Unit;
pub(crate) use super::item_model::{ItemAccount, ItemReport, Moment, MomentKind};
use crate::analysis::counted::CountedRow;
pub(crate) use crate::analysis::report::model::Quantiles as Durations;
use crate::analysis::report::model::{FunctionName, OwnTimes};
use crate::store::run::EventInfo;

/// Version of the JSON keys; grows when one changes its meaning or goes away.
pub(crate) const EXPLAIN_VERSION: u32 = 1;

/// An explanation of one trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Explanation {
    /// [`EXPLAIN_VERSION`].
    pub explain_version: u32,
    /// Path of the trace, as given.
    pub trace: String,
    /// What an item is.
    pub unit: Unit,
    /// The event that the time on the CPU is divided by; null if none was sampled.
    pub event: Option<EventInfo>,
    /// Its smallest and largest reset value in the run; null if none was sampled.
    pub event_resets: Option<(u64, u64)>,
    /// Whether the event is a clock; if not, time is divided in proportion to it.
    pub event_is_clock: bool,
    /// Why there is no time of functions; null if there is.
    pub no_function_times: Option<String>,
    /// Samples of a function below which its time is unknown.
    pub min_samples: u64,
    /// Slow items below which there is no interval.
    pub min_items: u64,
    /// Replicates of the bootstrap.
    pub replicates: u32,
    /// One section for each probe; one for all if items have visits of several.
    pub probes: Vec<ProbeExplanation>,
    /// Remarks that a reader of the numbers should see.
    pub notes: Vec<String>,
}

/// Items of one probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProbeExplanation {
    /// Numbers of the probes.
    pub probe_ids: Vec<u16>,
    /// SPECs as typed.
    pub specs: Vec<String>,
    /// Visits recorded.
    pub visits: u64,
    /// Items counted.
    pub items: u64,
    /// Different item ids among them.
    pub item_ids: u64,
    /// Of them, those whose thread had others open at the same time, with no mark that says whose time it was: their
    /// functions and waits are not known.
    pub time_shared: u64,
    /// Visits left out.
    pub left_out: LeftOut,
    /// All its items; null if groups were asked for.
    pub whole: Option<Group>,
    /// The argument that splits durations best; null if none does, or if groups were asked for.
    pub grouped: Option<Grouped>,
    /// Groups of like items, the one whose slow items take most more time first.
    pub groups: Vec<Group>,
    /// Groups that were asked for and are not shown, and their items.
    pub other_groups: u64,
    /// Items in them.
    pub other_items: u64,
}

/// Visits left out; of items that go through stages, items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    /// They overlap a loss.
    pub loss: u64,
    /// Their end was never seen.
    pub open: u64,
    /// They began before the recording: their first stage was not seen.
    pub headless: u64,
}

/// How items were grouped without being asked to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Grouped {
    pub argument: String,
    /// Part of the variance of the durations' ranks that it explains, 0..1.
    pub part: f64,
    /// Chance that an argument that has nothing to do with the durations explains as much, times
    /// the number searched.
    pub chance: f64,
}

/// What the items of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Label {
    pub argument: String,
    /// How it is compared.
    pub test: SplitTest,
    /// With what; null: it could not be read.
    pub value: Option<String>,
}

/// How an argument is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SplitTest {
    /// It is the value.
    Equal,
    /// It begins with the value.
    Begins,
    /// It is the value or more.
    AtLeast,
    /// It is the value or less.
    AtMost,
}

/// A group of like items.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Group {
    /// What they have in common; empty: all items of the probe.
    pub labels: Vec<Label>,
    /// How many.
    pub items: u64,
    pub duration: Durations,
    /// The slow ones; null if none is.
    pub slow: Option<Slow>,
    /// What they are compared with; null if none is slow.
    pub typical: Option<Typical>,
    /// What pebs-trace itself took of them, part of none of the figures here; null if unknown.
    pub own: Option<OwnTimes>,
    /// Tests of an argument that tell slow items from others, the best first.
    pub because: Vec<Split>,
    /// What makes up the latency gap; null if nothing can be said.
    pub gap: Option<Gap>,
    /// Time on the CPU, all of it; null as `gap` is.
    pub on_cpu: Option<Figures>,
    /// Time off the CPU, all of it.
    pub off_cpu: Option<Figures>,
    /// The kinds of slow items, the longest first: one where all are made of the same. A kind may lie below `slow`.
    pub kinds: Vec<Kind>,
    /// Functions and waits that only slow items have, the longest first.
    pub only_slow: Vec<Only>,
    /// Why there is no `gap`, or no part of it; null if all is said.
    pub too_little: Option<String>,
    /// What happened to their threads.
    pub counts: Vec<CountRow>,
    /// Interrupts, softirqs and page faults of their threads: time that is part of the times in `gap`.
    pub interference: Vec<InterferenceRow>,
    /// What was counted of them, by event; empty: nothing was (`--count`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted_events: Vec<CountedRow>,
    /// What the latency of all items varies with; null if unknown.
    pub variance: Option<Variance>,
}

/// The slow items of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Slow {
    /// `gap` (a gap in the durations sets them apart), or the rule: `p99`, `3x`, `500us`.
    pub rule: String,
    /// How many.
    pub items: u64,
    /// Items from this duration on are slow.
    pub from_ns: i64,
    /// Longest.
    pub to_ns: i64,
    /// Longest of the others; null if all are slow.
    pub others_up_to_ns: Option<i64>,
    /// Those of the others that lie in the gap: so few that they don't hide it. 0 by another rule.
    pub between: u64,
    /// Those whose functions and waits are not known; the mean is of the others.
    pub without_details: u64,
    /// Mean duration; null if no details of any are known.
    pub mean_ns: Option<f64>,
    /// Samples in them.
    pub samples: u64,
}

/// What slow items are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Typical {
    pub rule: TypicalRule,
    /// How many.
    pub items: u64,
    /// Shortest.
    pub from_ns: i64,
    /// Longest.
    pub to_ns: i64,
    /// Mean duration.
    pub mean_ns: f64,
    /// Samples in them.
    pub samples: u64,
}

/// How typical items are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TypicalRule {
    /// The middle half of the group by duration, slow items excluded.
    MiddleHalf,
    /// Those whose details were not kept (`--keep`): sums over them are in `function_stats`.
    NotKept,
}

/// A test that tells slow items from others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Split {
    /// The argument; `tid`, `pid`, `cpu_begin` and `begin_ns` of the visit are searched, too.
    pub argument: String,
    /// How it is compared.
    pub test: SplitTest,
    pub value: String,
    pub slow_items: u64,
    /// Those of them that pass.
    pub slow_with: u64,
    pub other_items: u64,
    /// Those of them that pass.
    pub other_with: u64,
    /// Share of the slow items that pass, less that of the others: 0..1.
    pub effect: f64,
    /// Chance of that if the argument has nothing to do with it, times the tests searched.
    pub chance: f64,
    /// Tests searched.
    pub tested: u64,
}

/// What makes up the difference between slow and typical items. The shares of `causes`, `others`
/// and `unexplained` sum to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Gap {
    /// Mean duration of the slow items less that of the typical ones.
    pub gap_ns: f64,
    /// Lower end of its 95 % interval; null if there are too few slow items.
    pub gap_low_ns: Option<f64>,
    /// Upper end.
    pub gap_high_ns: Option<f64>,
    /// What slow items take more time for, the largest share first.
    pub causes: Vec<Cause>,
    /// The causes that are not listed.
    pub others: Rest,
    /// Time on the CPU with too few samples to name its functions.
    pub unexplained: Rest,
    /// The part of `causes` and `others` that is code of the kernel.
    pub kernel: Rest,
}

/// A kind of slow items: those whose time beyond that of typical ones is made of the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Kind {
    /// How many.
    pub items: u64,
    /// Those of them that are beyond the limit.
    pub slow_items: u64,
    /// Shortest.
    pub from_ns: i64,
    /// Longest.
    pub to_ns: i64,
    /// Mean duration.
    pub mean_ns: f64,
    /// Mean duration less that of typical items; null if they take no longer.
    pub excess_ns: Option<f64>,
    /// Samples in them.
    pub samples: u64,
    /// Made of the same as typical items are, only longer: the tail of all.
    pub ordinary: bool,
    /// What makes up their excess, the largest share first.
    pub causes: Vec<Cause>,
    /// Tests of an argument that tell them from all other items, the best first.
    pub because: Vec<Split>,
    /// Functions and waits that no other item has.
    pub only: Vec<Only>,
    /// Their (first) visits.
    #[serde(skip)]
    pub visit_ids: Vec<u64>,
}

/// A function or wait that some items have and no other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Only {
    pub kind: CauseKind,
    /// The function that ran, or from which the thread left user space.
    pub function: FunctionName,
    /// State of the thread while off the CPU; null: on the CPU.
    pub state: Option<String>,
    /// Items that have it.
    pub items: u64,
    /// Samples in them; waits if off the CPU.
    pub samples: u64,
    /// Its time, mean of all of the kind.
    pub mean_ns: f64,
    /// Chance that luck puts it into these items only, times the functions and waits looked at.
    pub chance: f64,
    /// Functions and waits looked at, in all kinds.
    pub looked_at: u64,
}

/// What kind of time a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CauseKind {
    /// On the CPU in a function: estimated from samples.
    Function,
    /// On the CPU in several functions of a module: of the kernel or a library where none has half of it, else in those
    /// that have too few samples each.
    Module,
    /// Off the CPU of its own will, blocked in a function: observed.
    Wait,
    /// Off the CPU against its will while it could have run: observed.
    Preempted,
    /// In no stage, waiting for the next one: observed.
    Handover,
    /// In a stage together with others, which had their turn: observed, as equal shares.
    Others,
    /// Between its turns on the thread, which worked on other items or slept meanwhile, or between the visits of the item: observed.
    Elsewhere,
}

/// What slow items take more of something than typical ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Share of the gap; negative: slow items take less of it.
    pub share: f64,
    /// Lower end of the 95 % interval of the share; null if there are too few slow items.
    pub share_low: Option<f64>,
    /// Upper end.
    pub share_high: Option<f64>,
    /// Per slow item less per typical item.
    pub excess_ns: f64,
    /// Lower end of its 95 % interval.
    pub excess_low_ns: Option<f64>,
    /// Upper end.
    pub excess_high_ns: Option<f64>,
    /// Per slow item.
    pub slow_ns: f64,
    /// Per typical item.
    pub typical_ns: f64,
    /// Samples in slow items; waits if off the CPU.
    pub slow_samples: u64,
    /// Samples in typical items; waits if off the CPU.
    pub typical_samples: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cause {
    pub kind: CauseKind,
    /// The function that ran, or from which the thread left user space; the stage waited for.
    pub function: FunctionName,
    /// State of the thread while off the CPU, `queued` of a hand-over; null: on the CPU.
    pub state: Option<String>,
    /// How much more slow items take of it.
    #[serde(flatten)]
    pub figures: Figures,
    /// Where slow items went to wait; null: not recorded (`--with waits --call-graph fp`), or no wait.
    pub blocked: Option<WaitPath>,
    /// Of waits: who ended most of them, or took the CPU; null: not recorded (`--with waits`).
    pub by: Option<WaitActor>,
    /// The call paths of a function that tell most of its share, the largest first; none without call stacks.
    /// Their shares and that of `other_paths` sum to the share.
    pub paths: Vec<CallPath>,
    /// Its other call paths; null without call stacks.
    pub other_paths: Option<Rest>,
    /// Of several functions of a module: those that take most of it. Their shares are parts of its share.
    pub functions: Vec<Self>,
}

/// The thread that ended most time of a wait, or took the CPU for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WaitActor {
    /// Its name; `interrupt` for none.
    pub name: String,
    /// The thread, if it was one.
    pub tid: Option<u32>,
    /// Its part of the wait in slow items, 0..1.
    pub part: f64,
    /// The item that it was at when it did so to the longest of these waits, where that is known.
    pub item_id: Option<u64>,
}

/// The call stack with most of a wait's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WaitPath {
    /// Functions from the one that went to wait outwards, those of the kernel first.
    pub functions: Vec<FunctionName>,
    /// Its part of the wait in slow items, 0..1.
    pub part: f64,
}

/// What a function took when called in one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CallPath {
    /// Who called it, the nearest first, up to the function of the probe; if that is not on the stack, all of it.
    pub callers: Vec<FunctionName>,
    /// Outer callers are not known.
    pub truncated: bool,
    /// Whether samples had a call stack: if not, nothing is known of callers.
    pub known: bool,
    /// How much more slow items take of the function, called so.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A part of the gap that is not distinguished further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rest {
    /// Functions and waits.
    pub causes: u64,
    /// Share of the gap.
    pub share: f64,
    /// Lower end of its 95 % interval.
    pub share_low: Option<f64>,
    /// Upper end.
    pub share_high: Option<f64>,
    /// Per slow item less per typical item.
    pub excess_ns: f64,
    /// Samples in slow items.
    pub slow_samples: u64,
}

/// Something that happened to the threads of items.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CountRow {
    /// `switches`, `migrations` or `page_faults`.
    pub count: &'static str,
    /// Mean of a slow item.
    pub slow: f64,
    /// Mean of a typical item.
    pub typical: f64,
    /// Slow less typical.
    pub excess: f64,
    /// Lower end of its 95 % interval.
    pub excess_low: Option<f64>,
    /// Upper end.
    pub excess_high: Option<f64>,
    /// Square of its correlation with the latency over all items: the part of Var(latency) that
    /// goes along with it; null if it does not vary.
    pub variance_part: Option<f64>,
}

/// An interruption of items. It came into functions and waits, so its time
/// is part of theirs, and not to be added to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct InterferenceRow {
    /// `interrupts`, `softirqs`, `page faults`, or `slower clock`: what a CPU as fast as the fastest of the recording
    /// would have saved.
    pub what: &'static str,
    /// Mean of a slow item.
    pub slow_ns: f64,
    /// Mean of a typical item.
    pub typical_ns: f64,
    /// Slow less typical.
    pub excess_ns: f64,
    /// Lower end of its 95 % interval; null if there are too few slow items.
    pub excess_low_ns: Option<f64>,
    /// Upper end.
    pub excess_high_ns: Option<f64>,
    /// `excess_ns` as a share of the gap.
    pub share: f64,
    /// Lower end of its 95 % interval.
    pub share_low: Option<f64>,
    /// Upper end.
    pub share_high: Option<f64>,
    /// Square of its correlation with the latency over all items; null if it does not vary.
    pub variance_part: Option<f64>,
}

/// What the latency of all items of a group varies with. The shares of `parts`, `others` and
/// `unexplained` sum to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Variance {
    pub items: u64,
    /// Standard deviation of the latency.
    pub stddev_ns: f64,
    /// Cov(time of a function or wait, latency) / Var(latency), the largest first.
    pub parts: Vec<VariancePart>,
    /// Share of all that is not listed.
    pub others: f64,
    /// Share of the time on the CPU that samples don't assign to a function.
    pub unexplained: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct VariancePart {
    pub kind: CauseKind,
    pub function: FunctionName,
    /// State of the thread while off the CPU; null: on the CPU.
    pub state: Option<String>,
    /// Share of the variance; negative: it is shorter in long items.
    pub share: f64,
    /// Lower end of its 95 % interval; null if there are too few items.
    pub share_low: Option<f64>,
    /// Upper end.
    pub share_high: Option<f64>,
    /// Samples in all items; waits if off the CPU.
    pub samples: u64,
}
