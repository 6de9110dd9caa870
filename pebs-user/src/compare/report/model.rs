//! Contents of a report, as plain data.
//!
//! The JSON format of `pebs-trace report` is this page: keys are field names, times are ns, unknown values are
//! null.

use std::ops::Deref;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::compare::arguments::{NamedArg, SharedArg};
use crate::compare::classes::RankBy;
use crate::compare::explain::chain_model::WaitedFor;
use crate::compare::explain::model::{Group, Mix};
use crate::compare::further::FurtherEvent;
use crate::compare::lengths::Quantiles;
use crate::compare::losses::LossSum;
use crate::compare::names::FunctionName;
use crate::compare::pool::OwnTimes;
use crate::compare::remarks::NeverEnded;
use crate::compare::rows::flag_names;
use crate::store::run::{EventInfo, RecordedSpec, RunInfo};
use crate::store::schema::{InterferenceColumns, VisitRow, visit_flag};
use crate::units::CountUnit;

pub use crate::compare::counted::{CountedClass, CountedRow, CountedVisits, Excess};
pub use crate::compare::counts::{Counts, TypicalCounts};
pub use crate::compare::interrupts_and_faults::InterferenceRow;

/// Version of the JSON keys; grows when one changes its meaning or goes away.
pub const REPORT_VERSION: u32 = 1;

/// A report of one trace.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// Path of the trace, as given.
    pub trace: String,
    /// Times between which the items began, if only these are looked at, ns since the begin of the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_ns: Option<[i64; 2]>,
    /// Least number of samples for a function's time per visit.
    pub min_samples: u64,
    /// The event that the function estimates are from: the first that is a clock, else the first.
    pub event: Option<EventInfo>,
    /// The other sampled events; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_events: Vec<FurtherEvent>,
    /// One section for each probe.
    pub probes: Vec<ProbeReport>,
    /// Items through their stages; null if the probes are no stages of the same items.
    pub stages: Option<Stages>,
    /// Time ranges without full data, by reason.
    pub losses: Vec<LossSum>,
    /// `trace.json` as recorded: host, ledger, cost, notes.
    pub run: RunInfo,
}

/// Figures on the visits of one probe.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// Number of the probe.
    pub probe_id: u16,
    /// SPEC as typed; null if `trace.json` doesn't know the probe.
    pub spec: Option<RecordedSpec>,
    /// Number of different items; null if there are too many to count.
    pub items: Option<u64>,
    /// The items of visits that serve several; null: they serve one each.
    pub batches: Option<BatchSum>,
    /// Cost of these items by kind, as `explain` has it; left out if visits serve one each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mix: Option<Mix>,
    /// Visits recorded.
    pub visits: u64,
    /// Visits in the statistics.
    pub counted: u64,
    /// Visits left out because they overlap a loss.
    pub left_out_loss: u64,
    /// Visits left out because their end was never seen.
    pub left_out_open: u64,
    /// Why visits can't be judged: most never ended. Null if most did.
    pub never_ended: Option<NeverEnded>,
    /// Visits by flag, in the order of the flags' bits; flags that no visit has are not listed.
    pub flags: Vec<FlagCount>,
    /// Samples in the visits counted, all events.
    pub samples: u64,
    /// Quantity by which visits are ranked: `duration`, or `cpu_time` (then durations and times per visit here, but for
    /// those of `slowest`, are times on the CPU).
    pub(crate) by: RankBy,
    /// Durations of the visits counted; null if there are none.
    pub duration: Option<Quantiles>,
    /// Division of their time; null if switches were not recorded, or all of it is on the CPU as that was asked for.
    pub time: Option<TimeSplit>,
    /// The visits that the typical ones are compared with.
    pub slow: Option<SlowClass>,
    /// The visits by time on the CPU, where that sets apart other slow ones than durations do, as `explain` has them;
    /// else left out. Latencies and durations in it are times on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slow_on_cpu: Option<Box<Group>>,
    /// Groups of similar visits with slow ones that are not slow among all, as `explain` has them; left out if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) slow_for_kind: Vec<Group>,
    /// Part of the spread of durations that the argument of these groups explains, 0..1; left out if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kinds_part: Option<f64>,
    /// The visits that the slow ones are compared with.
    pub typical: Option<TypicalClass>,
    /// pebs-trace's own time in the visits counted, not included in any figure here; null if unknown.
    pub own: Option<OwnTimes>,
    /// Interrupt, softirq and page-fault time of the visits, part of the times below; empty: not recorded.
    pub interference: Vec<InterferenceRow>,
    /// Counted events of the visits; empty without `--count`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted_events: Vec<CountedRow>,
    /// Rows with more time in slow visits than in typical ones, the largest difference first; from 0.5 % of the
    /// whole difference. Then functions with more of a further event, from 0.5 % of that in slow visits.
    pub spread: Vec<Row>,
    /// Additional time on the CPU of a slow visit in functions that have too few samples each, ns; absent if functions
    /// are not in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_unexplained_ns: Option<f64>,
    /// Rows with the largest share of all visits counted, the largest first; from 0.5 %. Then functions with the largest
    /// share of a further event, likewise.
    pub largest: Vec<Row>,
    /// The slowest visits, the slowest first.
    pub slowest: Vec<SlowVisit>,
}

/// The items of the visits of a probe that serve several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BatchSum {
    /// Items served, one for each time that it was.
    pub items: u64,
    /// Items without a known id.
    pub unknown: u64,
    /// Visits with an unknown number of items.
    pub unsized_visits: u64,
    /// Items of the largest visit.
    pub largest: u32,
    /// An item's share of the duration of a visit counted; null if there are none.
    pub share: Option<Quantiles>,
}

/// Number of visits with a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FlagCount {
    /// Name of the flag.
    pub flag: &'static str,
    /// Visits that have it, left out or not.
    pub visits: u64,
}

/// Items that went through stages: visits with the same id of several probes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stages {
    /// Items counted.
    pub items: u64,
    /// Items left out because a visit overlaps a loss.
    pub left_out_loss: u64,
    /// Items left out because the end of a visit was never seen.
    pub left_out_open: u64,
    /// Items left out because their first stage was not seen.
    pub left_out_headless: u64,
    /// Times that an item was served in a batch without a known id: it counts as waiting then.
    pub unknown_ids: u64,
    /// SPECs with visits none of which has the id of an item: what they read is not the id of the first stage.
    pub strangers: Vec<String>,
    /// From the first begin to the last end, exact; null if there are no items.
    pub latency: Option<Quantiles>,
    /// The stages, in the order of the command line.
    pub stages: Vec<Stage>,
}

/// A stage of items.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// Number of its probe.
    pub probe_id: u16,
    /// SPEC as typed; null if `trace.json` doesn't know the probe.
    pub spec: Option<String>,
    /// Visits of the items counted.
    pub visits: u64,
    /// Durations of the visits, exact; an item's share of one that serves several.
    pub service: Option<Quantiles>,
    /// Part of the sum of latencies; stages that overlap count each.
    pub service_share: Option<f64>,
    /// Times that an item was in no stage before this one.
    pub waits: u64,
    /// Durations of waiting, exact; null: no item waited.
    pub waiting: Option<Quantiles>,
    /// Part of the latencies' sum.
    pub waiting_share: Option<f64>,
    /// Visits of items that were served together with others.
    pub shared: u64,
    /// Part of their time that went to other items, exact; null if there are none.
    pub others: Option<Quantiles>,
    /// Part of the latencies' sum.
    pub others_share: Option<f64>,
}

/// Division of the visits' time. Sums over visits with a known time on the CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeSplit {
    /// Visits in the sums.
    pub visits: u64,
    /// Time in total.
    pub duration_ns: f64,
    /// On the CPU, with the visit as the thread's current one.
    pub oncpu_ns: f64,
    /// Off the CPU, by state, the largest first.
    pub waits: Vec<StateSum>,
    /// The rest: other visits were the thread's current one.
    pub elsewhere_ns: f64,
}

/// Time off the CPU in one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateSum {
    /// State of the thread.
    pub state: String,
    /// Time in total.
    pub ns: f64,
    /// Intervals.
    pub waits: u64,
}

/// The slow visits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowClass {
    /// Rule that selected them: `gap` (beyond a gap in the durations; [`SlowClass::between`] items lie within it), `p99`
    /// (there is none) or the one asked for.
    pub rule: String,
    /// Number of visits.
    pub visits: u64,
    /// Shortest duration.
    pub from_ns: i64,
    /// Longest duration.
    pub to_ns: i64,
    /// Longest visit that is not slow; null if all are.
    pub others_up_to_ns: Option<i64>,
    /// Visits within the gap, too few to hide it, which are not slow. 0 without a gap.
    pub between: u64,
    /// Slow visits whose details were not kept: their functions and waits are unknown.
    pub without_details: u64,
    /// Mean duration of the visits with details.
    pub mean_ns: f64,
    /// Arguments that all of them share and not all others do.
    pub shared: Vec<SharedArg>,
}

/// Rule that made visits typical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TypicalRule {
    /// The middle half by duration, slow visits excluded.
    MiddleHalf,
    /// Visits whose details were not kept, as they were not slow.
    NotKept,
}

/// The typical visits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TypicalClass {
    /// Rule that selected them.
    pub rule: TypicalRule,
    /// Number of visits.
    pub visits: u64,
    /// Shortest duration.
    pub from_ns: i64,
    /// Longest duration.
    pub up_to_ns: i64,
    /// Mean duration.
    pub mean_ns: f64,
    /// Mean counts of their threads per visit.
    #[serde(flatten)]
    pub counts: TypicalCounts,
}

/// Time on the CPU in a function, or off it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The function that ran, or in which the thread blocked; of a module only, without name and number: its functions
    /// that have too few samples each.
    pub function: FunctionName,
    /// State of the thread while off the CPU; null: on the CPU; [`ELSEWHERE`](crate::compare::waits::ELSEWHERE).
    pub state: Option<String>,
    /// `ns`, or `events` if no sampled event is a clock.
    pub unit: CountUnit,
    /// In all visits counted.
    pub all: Cell,
    /// In slow visits.
    pub slow: Cell,
    /// In typical visits.
    pub typical: Cell,
    /// Slow - typical per visit; null if slow is unknown. Where no sample of a typical visit saw the
    /// function, that counts as 0.
    pub difference: Option<f64>,
    /// Of each further event, in their order; left out if there are none, and for time off the CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<EventCells>,
    /// Of a row that is several functions, the largest, with the difference of each; too few samples each for more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Member>,
    /// Whom slow visits waited for, as `explain` has it; null: unknown, or no wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited_for: Option<WaitedFor>,
}

/// Events of a further event in the functions of a [`Row`], in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EventCells {
    /// In all visits counted together; null if unknown.
    pub events: Option<f64>,
    /// In all visits counted; the share is of the event.
    pub all: Cell,
    /// In slow visits.
    pub slow: Cell,
    /// In typical visits.
    pub typical: Cell,
}

/// One of several functions of a [`Row`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Member {
    pub function: FunctionName,
    /// Samples in slow visits.
    pub slow_samples: u64,
    /// Slow - typical per visit, in the row's unit.
    pub difference: f64,
}

/// One class of visits in a [`Row`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Number of samples (waits, if off the CPU).
    pub samples: u64,
    /// Per visit, in the row's unit; null if unknown.
    pub per_visit: Option<f64>,
    /// Lower end of the 95 % interval; null if unknown or, for waits, not an estimate.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Share of the mean duration of the class (of its samples, if in events), 0..1.
    pub share: Option<f64>,
}

/// One of the slowest visits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowVisit {
    /// Its row; flags by name.
    #[serde(flatten, serialize_with = "row")]
    pub row: VisitRow,
    /// Its named arguments; null where reading failed or the probe has no such argument.
    pub args: Vec<NamedArg>,
    /// Functions of the report's event, the longest first.
    pub functions: Vec<VisitFunction>,
    /// Waits by state and function, the longest first.
    pub waits: Vec<VisitWait>,
    /// Its counted events; empty without `--count`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted_events: Vec<VisitEvent>,
}

/// Count of an event in a visit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VisitEvent {
    /// The event.
    pub event: String,
    /// Count, for clocks in ns; null if unknown.
    pub count: Option<u64>,
    /// State of the count, as in table `counts`.
    pub state: String,
}

impl Deref for SlowVisit {
    type Target = VisitRow;

    fn deref(&self) -> &VisitRow {
        &self.row
    }
}

impl SlowVisit {
    /// From begin to end, ns. Counted visits always have an end.
    #[must_use]
    pub fn duration_ns(&self) -> i64 {
        self.row.duration_ns.unwrap_or(0)
    }

    /// Duration without pebs-trace's own time, where that is known, ns.
    #[must_use]
    pub fn took_ns(&self) -> i64 {
        self.net_ns.unwrap_or(self.duration_ns())
    }

    /// Interrupts, softirqs and page faults of its thread, without pebs-trace's own time.
    #[must_use]
    pub fn interference(&self) -> InterferenceColumns {
        let own = self.duration_ns() - self.took_ns();
        self.row.interference().net(self.oncpu_ns, own)
    }

    /// Time on the CPU without pebs-trace's own time, ns; `None` if unknown.
    #[must_use]
    pub fn took_on_cpu_ns(&self) -> Option<i64> {
        let own = self.duration_ns() - self.took_ns();
        self.oncpu_ns.map(|ns| (ns - own).max(0))
    }

    /// Whether its details were not kept.
    #[must_use]
    pub fn is_condensed(&self) -> bool {
        self.flags & visit_flag::CONDENSED != 0
    }

    #[must_use]
    pub fn flag_names(&self) -> Vec<&'static str> {
        flag_names(self.flags)
    }

    /// Counts of its thread while it was the current visit.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            switches: self.switches,
            migrations: self.migrations,
            page_faults: self.page_faults,
        }
    }
}

/// The columns of a visit by name, its flags by theirs.
fn row<S: Serializer>(row: &VisitRow, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    let mut result = Ok(());
    row.each_cell(|column, cell| {
        let entry = match column {
            "flags" => map.serialize_entry(column, &flag_names(row.flags)),
            _ => map.serialize_entry(column, &cell),
        };
        if result.is_ok() {
            result = entry;
        }
    });
    result?;
    map.end()
}

/// A function within one visit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VisitFunction {
    pub function: FunctionName,
    /// Its samples in the visit.
    pub samples: u32,
    /// Its time on the CPU; null if unknown.
    pub self_ns: Option<f64>,
    /// Standard error of that.
    pub self_stderr_ns: Option<f64>,
}

/// Waits of one kind within one visit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VisitWait {
    /// The function in which the thread blocked.
    pub function: FunctionName,
    /// State of the thread.
    pub state: String,
    /// Time in total.
    pub ns: i64,
    /// Intervals.
    pub waits: u64,
}
