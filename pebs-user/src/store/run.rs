//! `trace.json`: description of the run.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::ops::Deref;

use perf_event_open_sys::bindings as sys;
use serde::{Deserialize, Serialize};

pub use crate::arch::EntryClass;
use crate::estimate::EventTime;
use crate::ledger::Ledger;
use crate::spec::{End, Location, Spec};
use crate::store::argument::ArgColumn;
use crate::stream::clock::ClockError;
use crate::units::{CountUnit, EventId, ProbeId, TraceNs};

/// Draws of the distances in a stretch.
const STRETCH_DRAWS: u64 = 4;

/// Stretches of a run, at least.
const LEAST_STRETCHES: i64 = 32;

impl RunInfo {
    /// Whether the time of day of the recording is known.
    #[must_use]
    pub fn wall_clock_is_known(&self) -> bool {
        self.import.as_ref().is_none_or(|it| it.wall_clock_known)
    }

    /// Whether the recorder has closed the trace.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.complete || !self.crashes.is_empty() || !self.copied.is_empty()
    }

    /// Time from which on who ended a wait is known, if not from the start: of earlier waits nothing is.
    #[must_use]
    pub fn waits_from_ns(&self) -> Option<i64> {
        let from = self.waits.as_ref()?.from_ns?;
        (from.0 > 0).then_some(from.0)
    }

    /// Probes whose items samples beat with all the time: how far their functions are off is unknown.
    ///
    /// Several clocks that sample together shift each other: what one of them misses in one draw others find in the next,
    /// so that how draws differ tells the error (tests/measurements.md, "Coverage").
    pub fn beating(&self) -> impl Iterator<Item = &PositionsInfo> + '_ {
        let is_alone = self.jitter.is_none_or(|it| it.clocks <= 1);
        self.positions.iter().filter(move |it| it.beats && is_alone)
    }

    /// Time whose samples are one draw of their distances, so that errors can't be told from less, ns; `None` if all
    /// distances are equal.
    ///
    /// Some draws long, as draws at its ends are shared with its neighbours; a short run has at least
    /// [`LEAST_STRETCHES`].
    #[must_use]
    pub fn stretch_ns(&self) -> Option<i64> {
        let every = self.jitter.filter(|it| it.changes > 0)?.every_ns;
        let wanted = every.saturating_mul(STRETCH_DRAWS).cast_signed();
        let most = self.duration_ns.unwrap_or(wanted) / LEAST_STRETCHES;
        Some(wanted.min(most).max(1))
    }
}

/// Everything in `trace.json`. Written at the start of a run and again, complete, at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// [`crate::store::schema::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Version of pebs-trace.
    pub tool_version: String,
    /// Arguments as given, the program's name first.
    pub command_line: Vec<String>,
    /// False until the run was completed, and if a traced process died of a signal that a probe can cause or ran a
    /// copy of probed code.
    pub complete: bool,
    /// Traced processes that died of a signal that a probe can cause: `pid 12 died of SIGTRAP`.
    #[serde(default)]
    pub crashes: Vec<String>,
    /// Traced processes that copied probed code; their items are missing from then on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copied: Vec<String>,
    /// The machine.
    pub host: HostInfo,
    /// `CLOCK_REALTIME` of ns 0, in ns since 1970. For an imported trace see [`ImportInfo::wall_clock_known`].
    pub wall_clock_ns: i64,
    /// `CLOCK_MONOTONIC` of ns 0; of an imported trace, on the recording's clock.
    pub monotonic_ns: u64,
    /// Length of the run; null until it ended.
    pub duration_ns: Option<i64>,
    /// Events sampled.
    pub events: Vec<EventInfo>,
    /// Events counted for each visit (`--count`), by their number in `counts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedInfo>,
    /// `bpf`, `bulk` or `import`.
    pub transport: String,
    /// Why that transport.
    pub transport_reason: String,
    /// Residual of the conversion between the perf clock and `CLOCK_MONOTONIC`; null if both
    /// streams were on the same clock.
    pub clock_error: Option<ClockError>,
    pub probes: Vec<ProbeInfo>,
    /// Probes that marked when a thread turned to an item (`--resume`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumes: Vec<ProbeInfo>,
    /// Probes that followed goroutines from thread to thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goroutines: Vec<ProbeInfo>,
    /// Length of the intervals of `interval_counts`; null without that table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_interval_ns: Option<u64>,
    /// Argument columns of `visits`.
    pub columns: Vec<ArgColumn>,
    /// Whether time off the CPU was recorded.
    pub switches: bool,
    /// Whether it was recorded who ended waits; null: not, nor could it have been.
    #[serde(default)]
    pub waits: Option<WaitsInfo>,
    /// Whether page faults were recorded.
    #[serde(default)]
    pub page_faults: bool,
    /// Kind of call stacks: `fp`, `eh` or `lbr`; `recorded` if imported; null if samples have none.
    #[serde(default)]
    pub call_graph: Option<String>,
    /// Ends of the call stacks that were unwound by tables; null: none was.
    #[serde(default)]
    pub unwound: Option<UnwoundStacks>,
    /// Visits that kept their details; null: all, and there is no `function_stats`.
    #[serde(default)]
    pub keep: Option<KeepInfo>,
    /// The account of every record; null until the run ended.
    pub ledger: Option<Ledger>,
    /// Cost of the run; null until it ended.
    pub cost: Option<CostInfo>,
    /// Source of the costs of a mark and of a sample: `calibrated DATE`, `measured DATE` or `measured before the
    /// run`; null if unknown.
    #[serde(default)]
    pub unit_costs: Option<String>,
    /// Time that pebs-trace adds to items, which `visits.net_ns` excludes; null if unknown.
    #[serde(default)]
    pub own_time: Option<OwnTime>,
    /// Bound on the overhead; null if there was none.
    #[serde(default)]
    pub max_overhead: Option<OverheadInfo>,
    /// Changes of reset values, in order of time. Before the first of an event its reset value is
    /// that in `events`.
    #[serde(default)]
    pub resets: Vec<ResetChange>,
    /// Texts of which a part was recorded only, and the rule by which (`--redact`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub redacted: BTreeMap<String, String>,
    /// Times in which nothing was recorded, as the recording was paused or had not started, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Paused>,
    /// Notes made while it was recorded (`--control`), in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// Variation of the distances between samples; null if they were equal.
    #[serde(default)]
    pub jitter: Option<JitterInfo>,
    /// Changes of the clocks that sampled, in order of time; before the first they were several of each thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_changes: Vec<ClockChange>,
    /// Distribution of samples over the items of a probe; none if there were too few, or their cost is unknown.
    #[serde(default)]
    pub positions: Vec<PositionsInfo>,
    /// Remarks for readers of the numbers.
    pub notes: Vec<String>,
    /// The recording that the trace was made from; null if pebs-trace recorded it.
    #[serde(default)]
    pub import: Option<ImportInfo>,
}

/// Whether it was recorded who ended waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsInfo {
    /// From when on; null: never.
    pub from_ns: Option<TraceNs>,
    /// Why, in words.
    pub why: String,
}

/// Call stacks of samples and waits that were unwound by tables, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwoundStacks {
    /// With the thread's first function.
    pub whole: u64,
    /// After as many frames as are kept.
    pub too_long: u64,
    /// Stacks of which more was needed than was copied.
    pub not_copied: u64,
    /// In code without unwind table.
    pub no_table: u64,
    /// With a return address in no code.
    pub no_code: u64,
    /// With a table's rule that makes no sense, or needs a register whose value was lost.
    pub unusable: u64,
}

impl UnwoundStacks {
    /// All stacks.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.whole + self.truncated()
    }

    /// Those without the thread's first function.
    #[must_use]
    pub const fn truncated(&self) -> u64 {
        self.too_long + self.not_copied + self.no_table + self.no_code + self.unusable
    }
}

/// Time that pebs-trace adds to the items in which it records something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnTime {
    /// Marks, by probe.
    pub marks: Vec<OwnMarks>,
    /// A sample; null if its cost is unknown. Estimated from the run itself if possible, else as measured before.
    pub sample: Option<OwnCost>,
    /// Standard deviation of the cost among samples, ns.
    pub sample_spread_ns: Option<f64>,
    /// A record of a thread switched out or in; null if not recorded or unknown.
    pub switch: Option<OwnCost>,
    /// Counting a page fault; null if not counted or unknown.
    pub page_fault: Option<OwnCost>,
    /// The end of an interval of counts (`--count-interval`); null: there are none, or it is not known.
    #[serde(default)]
    pub tick: Option<OwnCost>,
}

/// Time added by the marks of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnMarks {
    pub probe_id: ProbeId,
    /// To its own visits: between the begin mark's time and the end mark's; null if unknown.
    pub inside: Option<OwnCost>,
    /// To a visit that contains one of its visits: both marks completely; null if unknown.
    pub whole: Option<OwnCost>,
    /// Value measured for `inside`, ns, if visits were shorter than that; null: it was used.
    #[serde(default)]
    pub measured_ns: Option<f64>,
}

/// A cost with its error and source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnCost {
    /// ns each time.
    pub ns: f64,
    /// Its standard error, ns.
    pub stderr_ns: f64,
    /// `calibrated DATE`, `measured before the run`, `learnt in the run from N items`, or `the shortest visits`.
    pub source: String,
}

/// A recording of `perf record`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportInfo {
    /// The file, as given.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Whether it was written as a stream.
    pub piped: bool,
    /// Version of perf; null if the file does not have it.
    pub perf_version: Option<String>,
    /// Clock of its times: `monotonic`, or `perf` (the kernel's own, in ns since some time near the boot).
    pub clock: String,
    /// Whether the time of day is known, and so `wall_clock_ns` is valid.
    pub wall_clock_known: bool,
    /// Place and reason of the file's early end; null if its records are whole.
    pub cut: Option<String>,
    /// Use of its events, in the file's order.
    pub events: Vec<ImportedEvent>,
}

/// An event of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedEvent {
    pub name: String,
    /// Use of the event: `samples`, `begin`, `end`, `switches`, or `nothing`.
    pub used_for: String,
    /// Samples in the file.
    pub samples: u64,
    /// Samples whose ip the kernel marked as exact.
    pub exact: u64,
}

/// Distances between samples that were drawn by chance around the reset value, which is their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JitterInfo {
    /// Largest difference from the middle, percent.
    pub percent: f64,
    /// Number of clocks that sampled each thread or CPU together at the end, each at a multiple of the reset value.
    #[serde(default)]
    pub clocks: u64,
    /// Number of draws, of all counters.
    pub changes: u64,
    /// Mean time between two draws of a counter that samples, ns; 0: there was none.
    pub every_ns: u64,
}

/// A change of the clocks that sampled, as the target's threads switched more or less often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockChange {
    pub time_ns: TraceNs,
    /// `several of each thread`, `one of each thread` or `several of each CPU`.
    pub of: String,
    /// Switches of the target's threads, out and in, in a second before the change.
    pub switches_per_second: u64,
}

/// Distribution of samples over the items of a probe, of which every part should get as many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PositionsInfo {
    pub probe_id: ProbeId,
    /// Samples in items that ran without a break.
    pub samples: u64,
    /// Share of the samples in each part of an item, from its begin to its end.
    pub shares: Vec<f64>,
    /// Share of samples that are at other places than their number lets expect.
    pub off: f64,
    /// Whether that is more than chance.
    pub beats: bool,
}

impl RunInfo {
    /// Time in which items were recorded until then, pauses left out; `None` of a recording that is imported.
    pub fn recorded_seconds(&self, until: i64) -> Option<f64> {
        let paused = |it: &Paused| it.end_ns.map_or(until, |it| it.0) - it.begin_ns.0;
        let ns = until - self.pauses.iter().map(paused).sum::<i64>();
        (ns > 0 && self.import.is_none()).then_some(ns as f64 / 1e9)
    }
}

/// A time in which nothing was recorded: no sample was taken and no mark made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    pub begin_ns: TraceNs,
    /// Null while it is paused, and if it was at the end.
    pub end_ns: Option<TraceNs>,
}

/// A note of the one who recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub time_ns: TraceNs,
    pub text: String,
}

/// A change of an event's reset value during the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetChange {
    /// Time from which samples were taken with the new one.
    pub time_ns: TraceNs,
    pub event: EventId,
    /// Reset value before.
    pub old: u64,
    /// Reset value from then on.
    pub new: u64,
    /// The slow-down within visits that led to it, 0.02 = 2 %; null if it was beyond measure.
    pub overhead: Option<f64>,
}

impl ResetChange {
    /// Smallest and largest reset value of an event over a run.
    #[must_use]
    pub fn span(event: &EventInfo, changes: &[Self]) -> (u64, u64) {
        let changed = changes.iter().filter(|change| change.event == event.id);
        let all = changed.flat_map(|change| [change.old, change.new]);
        all.fold((event.reset, event.reset), |(least, most), reset| {
            (least.min(reset), most.max(reset))
        })
    }
}

/// A bound on the slow-down, and the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverheadInfo {
    /// The event whose reset value is decided on; those of other events, whose samples have a known cost, change by the same
    /// factor.
    pub event: EventId,
    /// Maximum slow-down of items, 0.02 = 2 %.
    pub most: f64,
    /// Whether it is the default bound, with which samples get a share even if marks alone exceed it.
    #[serde(default)]
    pub by_default: bool,
    /// Smallest reset value.
    pub least_reset: u64,
    /// Largest reset value.
    pub most_reset: u64,
    /// Reset value at the end.
    pub reset: u64,
    /// Slow-down in the last window that was judged; null if there was none, or if it could not be computed.
    pub last: Option<f64>,
    /// The part of it that is the cost of marks and page faults, which the reset value does not
    /// change; null where `last` is.
    pub last_marks: Option<f64>,
    /// Whether these alone were above the bound.
    pub marks_alone: bool,
    /// Time that samples may take beyond the bound; null: it has room for what the slowest items need.
    #[serde(default)]
    pub extra: Option<Extra>,
}

/// Slow-down by samples that is allowed so that the slowest items have enough of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extra {
    /// The slow-down, 0.02 = 2 %.
    pub share: f64,
    /// Limit that it is at; null: it is enough.
    pub limit: Option<ExtraLimit>,
    /// Samples that the slowest items need.
    pub samples: u32,
    /// Share of these among all items.
    pub slowest: f64,
    /// Time until they have them, ns.
    pub takes_ns: f64,
}

/// Limit of the slow-down by samples beyond the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtraLimit {
    /// Twice what marks cost.
    Marks,
    /// A share of a CPU for marks and samples.
    Cpu,
    /// The most that an item may get.
    Items,
}

impl OverheadInfo {
    /// Whether the last judged window is the one that caused the last change: too little ran after it.
    #[must_use]
    pub fn is_of_before(&self, resets: &[ResetChange]) -> bool {
        let mut changes = resets.iter().rev();
        let change = changes.find(|change| change.event == self.event);
        self.last.is_some() && change.is_some_and(|it| it.overhead == self.last)
    }
}

/// The machine that recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// Host name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// CPUs online.
    pub cpus: u32,
    /// Hypervisor, if any.
    pub hypervisor: Option<String>,
    /// Size of a cache line; null if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_bytes: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventInfo {
    /// Its number in the tables.
    pub id: EventId,
    /// As given, or the event chosen for `auto`.
    pub name: String,
    /// Reset value; 1 if there was none, as the kernel adjusted it to a frequency.
    pub reset: u64,
    /// Unit of the reset value: `ns` for clocks, else `events`; `samples` if there was none.
    pub unit: CountUnit,
    /// Samples per second that the kernel aimed at; null if there was a reset value.
    #[serde(default)]
    pub frequency: Option<u64>,
    /// Whether functions have times from it, though it is no clock: from the times of its samples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_times: bool,
    /// Time for which its counters were enabled, summed over them, ns; null if unknown.
    #[serde(default)]
    pub enabled_ns: Option<u64>,
    /// Time for which they counted, ns: less if events were multiplexed or throttled.
    #[serde(default)]
    pub running_ns: Option<u64>,
    /// `perf_event_attr.type`.
    pub r#type: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// Requested precise level.
    pub precise_requested: u8,
    /// Precise level granted.
    pub precise_granted: u8,
    /// Why the granted level is lower, if it is.
    pub precise_reason: Option<String>,
}

/// Names of events that go on at all times that a thread runs.
const STEADY: [&str; 19] = [
    "cpu-clock",
    "task-clock",
    "cycles",
    "cpu-cycles",
    "ref-cycles",
    "instructions",
    "cpu_clk_unhalted.core",
    "cpu_clk_unhalted.thread",
    "cpu_clk_unhalted.thread_p",
    "cpu_clk_unhalted.ref",
    "cpu_clk_unhalted.ref_tsc",
    "cpu_clk_unhalted.ref_tsc_p",
    "uops_retired.all",
    "uops_retired.slots",
    "uops_retired.retire_slots",
    "inst_retired.any",
    "inst_retired.any_p",
    "inst_retired.prec_dist",
    "ibs_op",
];

/// The name of an event without its PMU of cores, terms and modifiers.
fn plain_name(event: &str) -> &str {
    let cores = ["cpu/", "cpu_core/", "cpu_atom/"];
    let own = cores.iter().find_map(|it| event.strip_prefix(it));
    let own = own.unwrap_or(event);
    own.split([':', '/', ',']).next().unwrap_or(own)
}

/// Whether the modifiers of the event leave out user space.
#[must_use]
pub(crate) fn sees_kernel_only(event: &str) -> bool {
    let modifiers = event.rsplit_once([':', '/']).map_or("", |it| it.1);
    let known = |it: char| "ukhpgsdiwe".contains(it.to_ascii_lowercase());
    modifiers.contains('k') && !modifiers.contains('u') && modifiers.chars().all(known)
}

/// Returns the rule by which times follow from samples of an event, by its name and the unit of its reset value.
#[must_use]
pub(crate) fn event_time(name: &str, unit: CountUnit) -> EventTime {
    if unit.is_time() {
        return EventTime::Clock;
    }
    let name = name.to_lowercase();
    // `cpu/event=…/` and raw codes are not in this list. IBS may be asked for some ops only.
    let filtered = name.contains("l3missonly=1") || name.contains("ldlat");
    match STEADY.contains(&plain_name(&name)) && !filtered && !sees_kernel_only(&name) {
        true => EventTime::Steady,
        false => EventTime::None,
    }
}

/// Whether functions have times from an event though it is no clock.
#[must_use]
pub(crate) fn has_times(name: &str, unit: CountUnit) -> bool {
    event_time(name, unit) == EventTime::Steady
}

impl EventInfo {
    /// Returns the rule by which times follow from its samples. Traces without times of functions from instructions
    /// never divided time by these.
    #[must_use]
    pub(crate) fn time(&self) -> EventTime {
        match self.divides_time() || !plain_name(&self.name).starts_with("inst") {
            true => event_time(&self.name, self.unit),
            false => EventTime::None,
        }
    }

    /// Whether functions have times from it.
    #[must_use]
    pub(crate) fn divides_time(&self) -> bool {
        self.unit.is_time() || self.has_times
    }

    /// Whether it is a hardware breakpoint, on code or on data.
    #[must_use]
    pub const fn is_breakpoint(&self) -> bool {
        self.r#type == sys::PERF_TYPE_BREAKPOINT
    }

    /// Whether its reset value is a time, ns. This includes clocks without user mode, though their samples count as
    /// events.
    #[must_use]
    pub fn is_clock(&self) -> bool {
        let clocks = [sys::PERF_COUNT_SW_CPU_CLOCK, sys::PERF_COUNT_SW_TASK_CLOCK];
        self.unit.is_time()
            || self.r#type == sys::PERF_TYPE_SOFTWARE
                && clocks.iter().any(|clock| u64::from(*clock) == self.config)
    }
}

/// One event that was counted for each visit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedInfo {
    /// Its number in `counts`.
    pub id: EventId,
    /// As given, or the event chosen for `auto`.
    pub name: String,
    /// Unit of the count: `ns` for clocks, else `events`.
    pub unit: CountUnit,
    /// Number of its group: events of a group are counted at the same time.
    pub group: u32,
    /// `counter`, read at marks and switches; `switches`, their records; `times`, of both.
    pub source: String,
}

/// Rule by which the marks of a probe form visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VisitRule {
    /// From entry to return of one function, matched by stack frame (`BIN:FUNC`).
    Call,
    /// From START to END on the same thread.
    ByThread,
    /// From START to END with the same id, on any thread.
    ById,
    /// From START to the next START on the same thread.
    UntilNext,
    /// From entry to return of one Go function, matched by goroutine and by the frame's place on its stack, on any
    /// thread (`BIN:FUNC`).
    GoCall,
    /// From START to END in the same goroutine, on any thread.
    ByGoroutine,
    /// A run of samples of a thread that read the same id: no marks.
    SameId,
}

impl VisitRule {
    /// Whether visits move with their goroutine from thread to thread.
    #[must_use]
    pub const fn is_of_goroutine(self) -> bool {
        matches!(self, Self::GoCall | Self::ByGoroutine)
    }
}

/// Source of item ids, for `trace.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemInfo {
    /// `register`, `memory` or `tls`.
    pub source: String,
    /// The executable or library that has the variable; null: a register.
    pub path: Option<String>,
    /// Name of the register or variable, offsets included.
    pub place: String,
    /// `u8` to `u64`, `i8` to `i64`.
    pub r#type: String,
    /// The id that means no item.
    pub none: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeInfo {
    /// Its number in the tables.
    pub id: ProbeId,
    pub spec: RecordedSpec,
    /// Rule that makes visits.
    pub rule: VisitRule,
    /// The places it is attached to.
    pub sites: Vec<SiteInfo>,
    /// Source of item ids at samples, which make items or, of items with marks, say which one a thread is at; else
    /// null.
    #[serde(default)]
    pub item: Option<ItemInfo>,
}

/// SPEC of a recorded probe, as given; parsed once, where `trace.json` is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RecordedSpec {
    text: String,
    /// `None`: this version can't parse it, or it names what an imported recording has.
    parsed: Option<Box<Spec>>,
}

impl RecordedSpec {
    /// Whether a visit serves several items (`ids=`).
    #[must_use]
    pub fn is_batched(&self) -> bool {
        let spec = self.parsed.as_ref();
        spec.is_some_and(|it| it.begin.ids.is_some())
    }

    /// Whether expressions read the ids of items.
    #[must_use]
    pub fn reads_ids(&self) -> bool {
        let spec = self.parsed.as_ref();
        spec.is_some_and(|it| it.begin.ids.is_some() || it.begin.reads_id())
    }

    /// Whether an expression reads an argument of this name.
    #[must_use]
    pub fn has_argument(&self, name: &str) -> bool {
        self.parsed.as_ref().is_some_and(|it| {
            let end = match &it.end {
                End::At(end) => &end.args[..],
                End::Return | End::Next => &[],
            };
            it.begin.args.iter().chain(end).any(|arg| arg.name == name)
        })
    }

    /// Whether an end mark ends the visit of its thread, as no id shows whose item it is.
    #[must_use]
    pub fn ends_by_thread(&self) -> bool {
        let spec = self.parsed.as_ref();
        spec.is_some_and(|it| matches!(it.end, End::At(_)) && !it.begin.reads_id())
    }

    /// The binary in which visits begin, as given.
    #[must_use]
    pub fn binary(&self) -> Option<&str> {
        self.parsed.as_ref().map(|it| &*it.begin.binary)
    }

    /// The function at which visits begin; the whole SPEC, if that is another kind of place.
    #[must_use]
    pub fn function(&self) -> &str {
        match self.parsed.as_ref().map(|it| &it.begin.location) {
            Some(Location::Function(function) | Location::Offset(function, _)) => function,
            _ => &self.text,
        }
    }
}

impl From<String> for RecordedSpec {
    fn from(text: String) -> Self {
        let parsed = Spec::parse(&text).ok().map(Box::new);
        Self { text, parsed }
    }
}

impl From<RecordedSpec> for String {
    fn from(spec: RecordedSpec) -> Self {
        spec.text
    }
}

impl Deref for RecordedSpec {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Display for RecordedSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A place that a probe is attached to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteInfo {
    /// Binary.
    pub path: String,
    /// Function and offset.
    pub place: String,
    pub file_offset: u64,
    /// `begin`, `end`, `return` or `next`.
    pub role: String,
    /// `uprobe` or `uretprobe`.
    pub kind: String,
    /// Instruction probed.
    pub instruction: String,
    /// Cost class.
    pub class: EntryClass,
}

/// Visits that kept their details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepInfo {
    /// `slow` or `none`.
    pub keep: String,
    /// The rule for `slow`, as given: `p99`, `3x`, `500us`.
    pub slow: Option<String>,
    /// Number of visits of a probe that were kept until there was a baseline.
    pub warm_up: u64,
    /// Number of kept visits; null until the run ended.
    pub visits: Option<KeptVisits>,
}

/// Number of visits whose details were kept, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptVisits {
    /// Their duration was beyond the limit.
    pub slow: u64,
    /// The visit was not slow, but the time of a function was.
    pub slow_function: u64,
    /// The visit was not slow among all, but among those with a like argument.
    #[serde(default)]
    pub slow_for_kind: u64,
    /// Too few earlier visits to decide.
    pub warm_up: u64,
    /// They overlap a loss, or their end is unknown.
    pub unknown: u64,
}

impl KeptVisits {
    /// Those that were slow.
    #[must_use]
    pub const fn slow_ones(&self) -> u64 {
        self.slow + self.slow_function + self.slow_for_kind
    }

    /// All of them.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let Self {
            slow,
            slow_function,
            slow_for_kind,
            warm_up,
            unknown,
        } = self;
        *slow + *slow_function + *slow_for_kind + *warm_up + *unknown
    }
}

/// Cost of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostInfo {
    /// Marks made.
    pub marks: u64,
    /// Samples taken in traced processes.
    pub samples: u64,
    /// CPU time of pebs-trace itself, user and system.
    pub tool_cpu_ns: u64,
    /// Estimated CPU time of marks in the target, ns.
    pub marks_ns: Option<f64>,
    /// Their time by the cost that was measured before the run, ns, if samples that met marks say otherwise; null:
    /// that is `marks_ns`.
    #[serde(default)]
    pub marks_measured_ns: Option<f64>,
    /// Samples of the clock that met marks.
    #[serde(default)]
    pub marks_met: u64,
    /// Estimated CPU time of samples in the target, ns.
    pub samples_ns: Option<f64>,
    /// Page faults counted within visits.
    #[serde(default)]
    pub page_faults: u64,
    /// Estimated CPU time of counting them in visits, ns.
    #[serde(default)]
    pub page_faults_ns: Option<f64>,
    /// Interrupts and softirqs recorded within visits (`--with irq`).
    #[serde(default)]
    pub interrupts: u64,
    /// Estimated CPU time of recording them in visits, ns; null if unknown, or not recorded.
    #[serde(default)]
    pub interrupts_ns: Option<f64>,
    /// Wake-ups and preemptions recorded within visits (`--with waits`).
    #[serde(default)]
    pub encounters: u64,
    /// Estimated CPU time of recording them, as for `interrupts_ns`.
    #[serde(default)]
    pub encounters_ns: Option<f64>,
    /// Time for which a sample stops the target before it reads the clock, ns; null if not measured.
    #[serde(default)]
    pub pause_before_ns: Option<i64>,
    /// Time for which it stops the target after that, ns.
    #[serde(default)]
    pub pause_after_ns: Option<i64>,
    /// On-CPU time of all visits, the base of the slow-down.
    pub visits_oncpu_ns: Option<f64>,
    /// Slow-down of items: CPU time of their marks, samples and other records, relative to the CPU time of items
    /// without them; 0.02 = 2 %. Null if the base is unknown.
    pub slowdown: Option<f64>,
    /// Lower bound of the slow-down, if the cost of recording is nearly all of the visits' time; else null.
    #[serde(default)]
    pub slowdown_least: Option<f64>,
    /// CPU time of the target: all that recording took from traced processes, within and outside of items, relative
    /// to the CPU time that they took without it. Null if that is unknown.
    #[serde(default)]
    pub target_cpu: Option<f64>,
    /// CPU time of the traced processes, the recording's cost included; null if it is unknown.
    #[serde(default)]
    pub target_cpu_ns: Option<f64>,
    /// Switches and the like that were recorded of traced threads.
    #[serde(default)]
    pub switches: u64,
    /// Estimated CPU time of recording them in the target, ns.
    #[serde(default)]
    pub switches_ns: Option<f64>,
    /// Ends of intervals of counts (`--count-interval`) at which a traced thread ran.
    #[serde(default)]
    pub ticks: u64,
    /// Estimated CPU time that they took from the target; null if it is not known, or there are no intervals.
    #[serde(default)]
    pub ticks_ns: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One clock beats all the time, or at equal distances; several that beat shift each other.
    #[test]
    fn beating() {
        let info = |beats: bool, clocks: Option<u64>| RunInfo {
            positions: vec![PositionsInfo {
                probe_id: ProbeId(3),
                beats,
                ..PositionsInfo::default()
            }],
            jitter: clocks.map(|clocks| JitterInfo {
                clocks,
                ..JitterInfo::default()
            }),
            ..RunInfo::default()
        };
        let found = |beats, clocks| info(beats, clocks).beating().next().map(|it| it.probe_id);
        assert_eq!(found(true, None), Some(ProbeId(3)));
        assert_eq!(found(true, Some(1)), Some(ProbeId(3)));
        assert_eq!(found(true, Some(8)), None);
        assert_eq!(found(false, Some(1)), None);
    }
}
