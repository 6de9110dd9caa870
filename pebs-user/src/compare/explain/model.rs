//! Result of an explanation, as plain data.
//!
//! The JSON format of `pebs-trace explain` is this page: keys are field names, times are ns, shares are 0..1, unknown
//! values are null.

use serde::Serialize;

use super::chain_model::WaitedFor;
use crate::compare::classes::RankBy;
use crate::compare::counted::CountedRow;
use crate::compare::explain::request::Unit;
use crate::compare::further::FurtherEvent;
use crate::compare::names::FunctionName;
use crate::compare::pool::OwnTimes;
use crate::compare::remarks::{NoFunctionTimes, Note, TooLittle};
use crate::store::run::{EventInfo, RecordedSpec};

pub(crate) use crate::compare::lengths::Quantiles as Durations;

/// Version of the JSON keys; grows when one changes its meaning or goes away.
pub(crate) const EXPLAIN_VERSION: u32 = 2;

/// An explanation of one trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Explanation {
    /// [`EXPLAIN_VERSION`].
    pub explain_version: u32,
    /// Path of the trace, as given.
    pub trace: String,
    /// Unit of an item.
    pub unit: Unit,
    /// The event by which the time on the CPU is divided; null if no event was sampled.
    pub event: Option<EventInfo>,
    /// The other sampled events, and that one too if it divides no time; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_events: Vec<FurtherEvent>,
    /// Its smallest and largest reset value in the run; null if no event was sampled.
    pub event_resets: Option<(u64, u64)>,
    /// Whether the event is a clock; if not, time is divided in proportion to it.
    pub event_is_clock: bool,
    /// Why there is no time of functions; null if there is.
    pub no_function_times: Option<NoFunctionTimes>,
    /// Least number of samples for the time of a function.
    pub min_samples: u64,
    /// Least number of slow items for an interval.
    pub min_items: u64,
    /// Replicates of the bootstrap.
    pub replicates: u32,
    /// One section for each probe; one for all if items have visits of several.
    pub probes: Vec<ProbeExplanation>,
    /// Remarks that a reader of the numbers should see.
    pub notes: Vec<Note>,
}

/// Items of one probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProbeExplanation {
    /// Numbers of the probes.
    pub probe_ids: Vec<u16>,
    /// SPECs as typed.
    pub specs: Vec<RecordedSpec>,
    /// Visits recorded.
    pub visits: u64,
    /// Items counted.
    pub items: u64,
    /// Different item ids among them.
    pub item_ids: u64,
    /// Items whose thread had others open at the same time, with no mark to say whose time it was: their functions and
    /// waits are unknown.
    pub time_shared: u64,
    /// Visits left out.
    pub left_out: LeftOut,
    /// All items of the probe; null if groups were asked for.
    pub whole: Option<Group>,
    /// All items of the probe by time on the CPU, where that sets apart other slow items than durations do; else left
    /// out. Latencies and durations in it are times on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_on_cpu: Option<Box<Group>>,
    /// Groups of similar items with slow ones that a gap sets apart and that are not slow among all items, by duration
    /// or time on the CPU (`by`): those that are slow for their kind. The groups whose slow items took the most typical
    /// ones' time come first. Left out if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slow_for_kind: Vec<Group>,
    /// Changes over the recording; null: not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<Change>>,
    /// Cost of items that visits serve together, for each probe of such; left out if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mixes: Vec<Mix>,
    /// The argument that splits durations best; null if there is none, or if groups were asked for.
    pub grouped: Option<Grouped>,
    /// All groups asked for, those with more slow items than chance puts there first.
    pub compared: Vec<ComparedGroup>,
    /// Groups of similar items; those asked for in the order of `compared`.
    pub groups: Vec<Group>,
    /// Number of groups asked for but not among them.
    pub other_groups: u64,
    /// Items in them.
    pub other_items: u64,
}

/// Cost of the items of batches, the visits of a probe that serves several at once, by the kind of item.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mix {
    pub probe_id: u16,
    pub spec: RecordedSpec,
    /// Batches in the estimate.
    pub batches: u64,
    /// Items in them.
    pub items: u64,
    /// Batches left out, as the argument of some of their items is unknown.
    pub left_out: u64,
    /// Costs by net time; null if unknown.
    pub costs: Option<Costs>,
    /// Costs by time on the CPU; null if unknown.
    pub on_cpu: Option<Costs>,
    /// Why costs are unknown; null if they are known.
    pub unknown: Option<NoCosts>,
    /// Times of items by visits of other probes within the batches, by kind, exact; empty unless each item has one.
    pub inside: Vec<ItemCost>,
    /// Number of batches that take longer than what they hold, beyond chance, without waiting for a CPU.
    pub dear_batches: u64,
    /// The first of them, by how much longer; those that waited for a CPU as well are the last.
    pub dear: Vec<DearBatch>,
    /// Further batches that took longer only as they waited for a CPU.
    pub waited: u64,
}

/// Costs of the items of batches: a batch takes its fixed part, and the cost of each item.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Costs {
    /// The argument that kinds differ by; if they are equal, all that were compared.
    pub arguments: Vec<String>,
    /// Chance that equal costs seem to differ as much, times the number of ways to divide the items that were searched.
    pub chance: f64,
    /// Fixed part of a batch; null where it can't be told from the items' costs, as all batches hold equally many: then
    /// these contain it.
    pub fixed: Option<Cost>,
    /// Costs by kind; a single one without labels if they are equal.
    pub kinds: Vec<ItemCost>,
}

/// A cost with the ends of its 95 % interval, ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    pub ns: f64,
    pub low_ns: f64,
    pub high_ns: f64,
}

/// Cost of an item of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ItemCost {
    /// Arguments of the kind; empty: of any.
    pub labels: Vec<Label>,
    /// Items of the kind.
    pub items: u64,
    #[serde(flatten)]
    pub cost: Cost,
}

/// Why costs of the items of batches are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub(crate) enum NoCosts {
    /// No other probe reads the ids of the items and an argument.
    NoArgument,
    /// Of most batches the arguments of some items are unknown.
    NotRead {
        batches: u64,
        of: u64,
    },
    TooFew {
        batches: u64,
    },
    /// Batches hold the kinds in the same proportions.
    Alike,
}

/// A batch that takes longer than what it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DearBatch {
    pub visit_id: u64,
    /// Number of the batch.
    pub item_id: u64,
    pub items: u32,
    /// Net time.
    pub net_ns: i64,
    /// Time of a batch with these items.
    pub expected_ns: f64,
    /// Net time less that, without waiting for a CPU.
    pub beyond_ns: f64,
    /// Time that it waited for a CPU.
    pub waited_ns: i64,
    /// Chance that any batch is this dear, given the tail of all.
    pub chance: f64,
    /// The item that took longest for its kind; null unless visits within the batch tell.
    pub item: Option<DearItem>,
}

/// An item of a batch, by the visits within it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct DearItem {
    pub item_id: u64,
    pub net_ns: i64,
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

/// Automatic grouping of items.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Grouped {
    pub argument: String,
    /// Part of the variance of the durations' ranks that it explains, 0..1.
    pub part: f64,
    /// Chance that an unrelated argument explains as much, times the number searched.
    pub chance: f64,
}

/// A group that was asked for, among all items of the probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ComparedGroup {
    /// Arguments that its items share.
    pub labels: Vec<Label>,
    /// Number of items.
    pub items: u64,
    pub duration: Durations,
    /// Items that are slow among all items of the probe.
    pub slow_items: u64,
    /// Their part of all slow items, 0..1.
    pub slow_part: f64,
    /// The part of the time of all items that is this group's, 0..1.
    pub time_part: f64,
    /// Chance of as many slow items if groups and slowness are independent (Fisher's exact test).
    pub chance: f64,
}

/// An argument that the items of a group share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Label {
    pub argument: String,
    /// Comparison.
    pub test: SplitTest,
    /// Value compared with; null: it could not be read.
    pub value: Option<String>,
}

/// Comparison of an argument with a value.
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
    /// Arguments that they share; empty: all items of the probe.
    pub labels: Vec<Label>,
    /// Quantity by which items are ranked: `duration`, or `cpu_time` (then all durations here are times on the CPU).
    pub by: RankBy,
    /// Number of items.
    pub items: u64,
    pub duration: Durations,
    /// The slow items; null if there are none.
    pub slow: Option<Slow>,
    /// The items they are compared with; null if no item is slow.
    pub typical: Option<Typical>,
    /// pebs-trace's own time in them, not included in any figure here; null if unknown.
    pub own: Option<OwnTimes>,
    /// Tests of an argument that separate slow items from others, the best first.
    pub because: Vec<Split>,
    /// Causes of the latency gap; null if it can't be divided.
    pub gap: Option<Gap>,
    /// Further events of the items in all functions, in the order of `further_events`; left out if there are none, or
    /// `gap` is null.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<EventFigures>,
    /// All time on the CPU; null if `gap` is.
    pub on_cpu: Option<Figures>,
    /// All time off the CPU; null if `gap` is.
    pub off_cpu: Option<Figures>,
    /// Kinds of slow items, the longest first; a single one if all have the same composition. A kind may lie below
    /// `slow`.
    pub kinds: Vec<Kind>,
    /// Functions and waits that only slow items have, the longest first.
    pub only_slow: Vec<Only>,
    /// Why `gap` is null or incomplete; null if it is complete.
    pub too_little: Option<TooLittle>,
    /// Counts of their threads.
    pub counts: Vec<CountRow>,
    /// Interrupts, softirqs and page faults of their threads: time that is part of the times in `gap`.
    pub interference: Vec<InterferenceRow>,
    /// Counted events; empty without `--count`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted_events: Vec<CountedRow>,
    /// Division of the variance of latency over all items; null if unknown.
    pub variance: Option<Variance>,
}

/// The slow items of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Slow {
    /// `gap` (a gap in the durations sets them apart), or the rule: `p99`, `3x`, `500us`.
    pub rule: String,
    /// Number of items.
    pub items: u64,
    /// Items from this duration on are slow.
    pub from_ns: i64,
    /// Longest.
    pub to_ns: i64,
    /// Longest item that is not slow; null if all are slow.
    pub others_up_to_ns: Option<i64>,
    /// Items within the gap, too few to hide it, which are not slow. 0 for other rules.
    pub between: u64,
    /// Slow items whose functions and waits are unknown; the mean is of the rest.
    pub without_details: u64,
    /// Mean duration; null if no details of any are known.
    pub mean_ns: Option<f64>,
    /// Samples in them.
    pub samples: u64,
}

/// The items that slow items are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Typical {
    pub rule: TypicalRule,
    /// Number of items.
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

/// Selection of typical items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TypicalRule {
    /// The middle half of the group by duration, slow items excluded; of those, the ones with details.
    MiddleHalf,
    /// Items whose details were not kept (`--keep`): sums over them are in `function_stats`.
    NotKept,
}

/// A test that separates slow items from others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Split {
    /// The argument; `tid`, `pid`, `cpu_begin` and `begin_ns` of the visit are searched, too.
    pub argument: String,
    /// Comparison.
    pub test: SplitTest,
    pub value: String,
    pub slow_items: u64,
    /// Slow items that pass.
    pub slow_with: u64,
    pub other_items: u64,
    /// Other items that pass.
    pub other_with: u64,
    /// Share of the slow items that pass, less the share of the others: 0..1.
    pub effect: f64,
    /// Chance of that if the argument is unrelated, times the number of tests searched.
    pub chance: f64,
    /// Tests searched.
    pub tested: u64,
}

/// Division of the difference between slow and typical items. The shares of `causes`, `others` and `unexplained` sum to
/// 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Gap {
    /// Mean duration of the slow items less that of the typical ones.
    pub gap_ns: f64,
    /// Lower end of its 95 % interval; null if there are too few slow items.
    pub gap_low_ns: Option<f64>,
    /// Upper end.
    pub gap_high_ns: Option<f64>,
    /// Causes of the slow items' additional time, the largest share first.
    pub causes: Vec<Cause>,
    /// The causes that are not listed.
    pub others: OtherCauses,
    /// Time on the CPU with too few samples to name its functions.
    pub unexplained: OtherCauses,
    /// The part of `causes` and `others` that is code of the kernel.
    pub kernel: OtherCauses,
    /// Functions that are not among the causes, and have a good part of the slow items' further events; those with the
    /// most first. Left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with_events: Vec<WithEvents>,
}

/// A function whose time is not a cause, with its further events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WithEvents {
    pub kind: CauseType,
    pub function: FunctionName,
    /// Samples of its time in slow items: part of those of `others` or `unexplained`.
    pub slow_samples: u64,
    /// Of each further event.
    pub further: Vec<EventFigures>,
}

/// A further event in slow and in typical items, in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct EventFigures {
    /// Per slow item; null if unknown: too few samples, or taken by frequency.
    pub slow: Option<f64>,
    /// Per typical item.
    pub typical: Option<f64>,
    /// Part of the slow items' events of all functions, 0..1; null if these have none.
    pub share: Option<f64>,
    /// Per slow item less per typical item.
    pub excess: Option<f64>,
    /// Lower end of its 95 % interval; null if there are too few slow items.
    pub excess_low: Option<f64>,
    /// Upper end.
    pub excess_high: Option<f64>,
    pub slow_samples: u64,
    pub typical_samples: u64,
}

impl Gap {
    /// Whether half of it has causes.
    pub(crate) fn has_causes(&self) -> bool {
        let shares = self.causes.iter().map(|it| it.figures.share);
        shares.sum::<f64>() >= 0.5
    }
}

/// A kind of slow items: those whose excess over typical items has the same composition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Kind {
    /// Number of items: slow ones, or, of a kind without any, those below the limit.
    pub items: u64,
    /// Number of slow ones among them: all or none.
    pub slow_items: u64,
    /// Further items like the slow ones, below the limit.
    pub others: u64,
    /// Shortest and longest of these.
    pub others_range_ns: Option<(i64, i64)>,
    /// Shortest.
    pub from_ns: i64,
    /// Longest.
    pub to_ns: i64,
    /// Mean duration.
    pub mean_ns: f64,
    /// Mean duration less that of typical items; null if not longer.
    pub excess_ns: Option<f64>,
    /// Samples in them.
    pub samples: u64,
    /// Made of the same as typical items are, only longer: the tail of all.
    pub ordinary: bool,
    /// Division of their excess, the largest share first.
    pub causes: Vec<Cause>,
    /// Tests of an argument that separate them from all other items, the best first.
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
    pub kind: CauseType,
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
    /// Chance that luck puts it into these items only, times the number of functions and waits examined.
    pub chance: f64,
    /// Number of functions and waits examined, in all kinds.
    pub looked_at: u64,
}

/// Course of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeShape {
    /// Items take another time from then on.
    Step,
    /// Items take longer and longer, or shorter.
    Drift,
    /// Slow items come in bursts at equal distances.
    Period,
}

/// A change over the recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Change {
    pub kind: ChangeShape,
    /// Time at which it began, on the trace clock: the begin of the first item after a step, or of the first burst.
    pub from_ns: i64,
    /// Until when it lasted: the begin of the last item before the next step, or of the last burst.
    pub to_ns: i64,
    /// Mean of the items before a step, or of the first quarter of a drift, or of typical items.
    pub before_ns: f64,
    /// Mean of the items after it, or of the last quarter, or of the slow items in bursts.
    pub after_ns: f64,
    /// Period; null: none.
    pub every_ns: Option<f64>,
    /// Median length of a burst, from the begin of its first to the end of its last slow item; null: no period.
    pub for_ns: Option<i64>,
    /// Bursts.
    pub bursts: u64,
    /// Items after a step, or slow items in bursts.
    pub items: u64,
    /// Slow items that are in no burst of the period.
    pub others: u64,
    /// Chance of it if nothing changes; of a step or a drift it is a rough one, for blocks of items that are not alike.
    pub chance: f64,
    /// Causes for which the longer ones of both take more time; null: not known.
    pub gap: Option<Gap>,
}

/// Time that a cause takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CauseType {
    /// On the CPU in a function: estimated from samples.
    Function,
    /// On the CPU in several functions of a module: of the kernel or a library where no single one has half of the
    /// time, else functions with too few samples each.
    Module,
    /// Off the CPU voluntarily, blocked in a function: observed.
    Wait,
    /// Off the CPU against its will while it could have run: observed.
    Preempted,
    /// Off the CPU as a signal or a debugger stopped it: observed.
    Stopped,
    /// In no stage, waiting for the next one: observed.
    Handover,
    /// In a stage, while other items of the batch had their turn: observed, as equal shares.
    Others,
    /// Between its turns on the thread, which served other items or slept meanwhile, or between the visits of the item:
    /// observed.
    Elsewhere,
}

/// Excess of slow items over typical ones in a part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Share of the gap; negative: slow items take less time for it.
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
    pub kind: CauseType,
    /// The function that ran, or from which the thread left user space; the stage waited for.
    pub function: FunctionName,
    /// State of the thread while off the CPU, `queued` of a hand-over; null: on the CPU.
    pub state: Option<String>,
    /// Excess of slow items.
    #[serde(flatten)]
    pub figures: Figures,
    /// Of each further event; left out if there are none, and for time off the CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<EventFigures>,
    /// Call stack with which slow items went to wait; null: not recorded (`--with waits --call-graph fp`), or no wait.
    pub blocked: Option<WaitPath>,
    /// For waits: the thread that ended most of them, or took the CPU; null: not recorded (`--with waits`).
    pub by: Option<WaitActor>,
    /// For waits: whom they waited for, and what those did meanwhile; null: not recorded (`--with waits`), or too small
    /// a part of the gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<WaitedFor>,
    /// The call paths of a function with the largest parts of its share, largest first; empty without call stacks.
    /// Their shares and that of `other_paths` sum to the share.
    pub paths: Vec<CallPath>,
    /// Its other call paths; null without call stacks.
    pub other_paths: Option<OtherCauses>,
    /// For several functions of a module: the largest of them. Their shares are parts of its share.
    pub functions: Vec<Self>,
}

/// The thread that ended most time of a wait, or took the CPU for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WaitActor {
    /// Its name; `interrupt` if it was no thread.
    pub name: String,
    /// The thread, if it was one.
    pub tid: Option<u32>,
    /// Its part of the wait in slow items, 0..1.
    pub part: f64,
    /// The item that it was serving when it ended the longest of these waits; null if unknown.
    pub item_id: Option<u64>,
}

/// The call stack with most of a wait's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WaitPath {
    /// Functions outwards from the one that went to wait, those of the kernel first.
    pub functions: Vec<FunctionName>,
    /// Its part of the wait in slow items, 0..1.
    pub part: f64,
}

/// Time of a function on one call path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CallPath {
    /// Callers, the nearest first, up to the function of the probe; if that is not on the stack, the whole stack.
    pub callers: Vec<FunctionName>,
    /// Outer callers are not known.
    pub truncated: bool,
    /// Whether samples had a call stack: if not, callers are unknown.
    pub known: bool,
    /// Excess of slow items on this path.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A part of the gap that is not distinguished further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct OtherCauses {
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
    /// `interrupts`, `softirqs`, `page faults`, or `slower clock`: time saved had every CPU run at the highest
    /// frequency of the recording.
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

/// Division of the variance of latency over all items of a group. The shares of `parts`, `others` and `unexplained` sum
/// to 1.
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
    pub kind: CauseType,
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
