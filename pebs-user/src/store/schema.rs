//! The tables of a trace: the single source of column names and types.
//!
//! A row type is plain data in Rust's types; `store::writer` turns rows into columns of exactly
//! these names. `None` becomes null; nothing that was not observed is written as 0.
//! Source: design page 6.

use serde::{Deserialize, Serialize};

use crate::stream::decode::Actor;
use crate::units::{Cpu, EventId, FunctionId, Pid, ProbeId, StackId, Tid, TraceNs};

/// Version of the trace format. A reader refuses a larger one.
pub const SCHEMA_VERSION: u32 = 1;

/// The tables, which are also the names of their folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Table {
    /// One row per visit.
    Visits,
    /// One row per function within a visit.
    VisitFunctions,
    /// One row per sample.
    Samples,
    /// One row per interval off the CPU within a visit.
    Waits,
    /// One row per distribution over visits: of a function's time, of durations, of waits; with `--keep slow` or `none` only.
    FunctionStats,
    /// One row per function.
    Functions,
    /// One row per time range without full data.
    Losses,
    /// One row per sample that has data of its memory access, or of the op that AMD's IBS followed.
    Memory,
    /// One row per call stack, with `--call-graph` only.
    Stacks,
    /// One row per item of a visit that serves several (`ids=`).
    BatchItems,
    /// One row per reading of a CPU's frequency, with `--with freq` only.
    Frequencies,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 11] = [
        Self::Visits,
        Self::VisitFunctions,
        Self::Samples,
        Self::Waits,
        Self::FunctionStats,
        Self::Functions,
        Self::Losses,
        Self::Memory,
        Self::Stacks,
        Self::BatchItems,
        Self::Frequencies,
    ];

    /// Folder of the table's segments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Visits => "visits",
            Self::VisitFunctions => "visit_functions",
            Self::Samples => "samples",
            Self::Waits => "waits",
            Self::FunctionStats => "function_stats",
            Self::Functions => "functions",
            Self::Losses => "losses",
            Self::Memory => "memory",
            Self::Stacks => "stacks",
            Self::BatchItems => "batch_items",
            Self::Frequencies => "frequencies",
        }
    }

    /// Whether traces of earlier versions lack it: it is empty there.
    #[must_use]
    pub const fn is_recent(self) -> bool {
        self as usize >= Self::Memory as usize
    }
}

/// Bits of `visits.flags`.
pub mod visit_flag {
    /// Another item was open on the thread during the visit.
    pub const OVERLAPPED: u32 = 1 << 0;
    /// The visit's function never returned: its frame is gone (exception, longjmp, coroutine switch), and `end_ns` is the
    /// first instant at which that was seen.
    pub const UNWOUND: u32 = 1 << 1;
    /// The end mark never came; the visit was closed by the next begin of the same probe on its
    /// thread or with its id.
    pub const END_MISSING: u32 = 1 << 2;
    /// The trace ended while the visit was open: `end_ns` is null.
    pub const OPEN_AT_END: u32 = 1 << 3;
    /// The thread or process ended, or replaced its program, during the visit.
    pub const THREAD_ENDED: u32 = 1 << 4;
    /// The visit overlaps a loss: left out of statistics unless asked for.
    pub const LOSS: u32 = 1 << 5;
    /// The thread changed CPU during the visit.
    pub const MIGRATED: u32 = 1 << 6;
    /// The thread was taken off the CPU while it could have run.
    pub const PREEMPTED: u32 = 1 << 7;
    /// The end mark came from another thread.
    pub const ENDED_ELSEWHERE: u32 = 1 << 8;
    /// The kernel throttled sampling during the visit.
    pub const THROTTLED: u32 = 1 << 9;
    /// The details were not kept (`--keep`): the visit is in `function_stats`, but has no rows in
    /// `visit_functions`, `samples` and `waits`.
    pub const CONDENSED: u32 = 1 << 10;

    /// No marks were made: begin and end lie half way between a sample with the item's id and one with
    /// another (where the thread slept in between, there), each wrong by a standard deviation of the
    /// distance to the nearest sample, divided by the square root of 3.
    pub const SAMPLED_BOUNDS: u32 = 1 << 11;

    /// The visit served the items of its rows in `batch_items` together: each has an equal share of its time, samples and
    /// waits. `item_id` is the batch's number.
    pub const SHARED: u32 = 1 << 12;

    /// Not all ids of a [`SHARED`] visit's items are known: there are more than are read, or they could not be read.
    pub const IDS_MISSING: u32 = 1 << 13;

    /// Part of its time belongs to no single item, as several were open and no mark says which one the thread turned to
    /// (`--resume`): its time on the CPU and its waits are not all known.
    pub const TIME_SHARED: u32 = 1 << 14;

    /// Name of [`CONDENSED`].
    pub const CONDENSED_NAME: &str = "condensed";

    /// Name of [`SAMPLED_BOUNDS`].
    pub const SAMPLED_BOUNDS_NAME: &str = "sampled_bounds";

    /// Whether a flag of this name tells of the visit that has it: where one has [`SAMPLED_BOUNDS`], all have.
    #[must_use]
    pub fn is_own(name: &str) -> bool {
        name != SAMPLED_BOUNDS_NAME
    }

    /// Name of [`SHARED`].
    pub const SHARED_NAME: &str = "shared";

    /// Name of [`TIME_SHARED`].
    pub const TIME_SHARED_NAME: &str = "time_shared";

    /// Names of the bits, lowest first, as reports and `trace.json` show them.
    pub const NAMES: [&str; 15] = [
        "overlapped",
        "unwound",
        "end_missing",
        "open_at_end",
        "thread_ended",
        "loss",
        "migrated",
        "preempted",
        "ended_elsewhere",
        "throttled",
        CONDENSED_NAME,
        SAMPLED_BOUNDS_NAME,
        SHARED_NAME,
        "ids_missing",
        TIME_SHARED_NAME,
    ];
}

/// Bits of `samples.flags`.
pub mod sample_flag {
    /// The hardware vouches for the ip.
    pub const EXACT_IP: u32 = 1 << 0;
    /// Taken in kernel mode.
    pub const KERNEL: u32 = 1 << 1;
    /// Closer to a boundary of its visit than the clock error.
    pub const NEAR_BOUNDARY: u32 = 1 << 2;
}

/// Type of an argument column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgType {
    /// Arrow UInt64.
    U64,
    /// Arrow Int64.
    I64,
    /// Arrow Utf8; bytes that are not UTF-8 are escaped as `\xNN`.
    Str,
}

/// A column of `visits` that holds a named argument. Probes may share one if the types agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgColumn {
    /// Name of the column: the argument's name in the SPEC.
    pub name: String,
    /// Its type.
    pub r#type: ArgType,
}

/// Value of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArgValue {
    /// Unsigned number.
    U64(u64),
    /// Signed number.
    I64(i64),
    /// String.
    Str(Box<str>),
}

/// Columns of `visits`: interrupt, softirq and page-fault time while the visit was its thread's current one (of nested
/// visits the innermost, so that a sum counts each once). It is included in the visit's time and, except for waiting in
/// major faults, in its time on the CPU and in the times of the functions that were interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterferenceColumns {
    /// Time in interrupt handlers, except interrupts in which a sample was taken; null: not recorded (`--with irq`).
    pub irq_ns: Option<i64>,
    /// Time in softirqs (work that interrupts left for later) that ran on the thread, also at the end of its own system
    /// calls, except interrupts within them.
    pub softirq_ns: Option<i64>,
    /// Time in page faults, waiting for the disk included; null: not recorded (`--with faults`).
    pub fault_ns: Option<i64>,
    /// Page faults whose page had to be read.
    pub major_faults: Option<u32>,
}

/// One row of `visits`, its arguments aside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VisitRow {
    /// Number of the visit, from 1, in order of closing on its thread.
    pub visit_id: u64,
    /// The item: the value of `id=`, else a number from 1 in order of beginning on its thread; of threads that began
    /// within some ms of one another, in no order. Of a visit that serves several items the batch's number.
    pub item_id: u64,
    /// The probe that made the visit.
    pub probe_id: ProbeId,
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// CPU of the begin mark; null, as in all tables, if the record has none.
    pub cpu_begin: Cpu,
    /// CPU of the end mark; null if no end mark was seen.
    pub cpu_end: Option<Cpu>,
    /// Begin.
    pub begin_ns: TraceNs,
    /// End; null if the trace ended first.
    pub end_ns: Option<TraceNs>,
    /// End - begin; null if the end is.
    pub duration_ns: Option<i64>,
    /// Time on the CPU during which this was the thread's current visit, including waits within pebs-trace's own marks,
    /// which `net_ns` leaves out. Null if switches were not recorded, the end is unknown, or more of it may be in
    /// `shared_ns` ([`visit_flag::TIME_SHARED`]).
    pub oncpu_ns: Option<i64>,
    /// `duration_ns` less own time (marks, samples, switch and fault records): ranks and classifies visits. Null if the
    /// end or one of these costs is unknown, as in imported traces; rank by the duration then. The cost of a sample is
    /// measured in the run: a segment uses what was known when it was closed.
    pub net_ns: Option<i64>,
    /// Standard error of `net_ns`, from the spread of the cost of samples and the error of its mean.
    pub net_stderr_ns: Option<i64>,
    /// Samples that belong to the visit.
    pub samples: u32,
    /// Bits: [`visit_flag`].
    pub flags: u32,
    /// Times that the thread left the CPU while this was its current visit (of nested visits the
    /// innermost, so that a sum counts each once); null if switches were not recorded.
    pub switches: Option<u32>,
    /// Times that it came back on another CPU; null if switches were not recorded.
    pub migrations: Option<u32>,
    /// Page faults that the thread took while this was its current visit, in user code and in the
    /// kernel on its behalf; null if they were not recorded.
    pub page_faults: Option<u32>,
    /// Interrupt, softirq and page-fault time.
    pub interference: InterferenceColumns,
    /// Time on its thread's CPU that belongs to no single item, as several were open and no mark says which one the thread
    /// turned to, or it is the event loop's own. The same instant is in each of the open visits. Null like `oncpu_ns`.
    pub shared_ns: Option<i64>,
}

/// One row of `visit_functions`.
#[derive(Clone, Debug, PartialEq)]
pub struct VisitFunctionRow {
    /// The visit.
    pub visit_id: u64,
    /// Its item.
    pub item_id: u64,
    /// The function.
    pub function_id: FunctionId,
    /// Number of the sampled event in `trace.json`.
    pub event: EventId,
    /// Samples of the function in the visit.
    pub samples: u32,
    /// Events that the samples stand for: the sum of the reset values in force when each was taken; ns for clocks. It is
    /// `samples` x the reset value unless `--max-overhead` changed that. Null if the kernel kept to a frequency.
    pub events: Option<u64>,
    /// Its first sample.
    pub first_ns: TraceNs,
    /// Its last sample.
    pub last_ns: TraceNs,
    /// Last - first: the published estimate.
    pub span_ns: i64,
    /// The unbiased estimate of its time on the CPU; null for events that are not clocks and where the visit's time on the
    /// CPU is unknown.
    pub self_ns: Option<f64>,
    /// Standard error of `self_ns`, to 1 in 128.
    pub self_stderr_ns: Option<f64>,
}

/// One row of `samples`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleRow {
    /// Time of the sample.
    pub time_ns: TraceNs,
    /// The visit; null: in no visit.
    pub visit_id: Option<u64>,
    /// The function.
    pub function_id: FunctionId,
    /// Instruction pointer.
    pub ip: u64,
    /// Thread; null where a recording does not have it.
    pub tid: Tid,
    /// CPU.
    pub cpu: Cpu,
    /// Number of the sampled event in `trace.json`.
    pub event: EventId,
    /// Bits: [`sample_flag`].
    pub flags: u32,
    /// Its call stack; null: not recorded (`--call-graph`), or no room for it.
    pub stack_id: Option<StackId>,
}

/// One row of `memory`: the memory access of a sample, or the op that AMD's IBS followed.
///
/// A table of its own, not columns of `samples`: samples of most events say nothing of accesses, and theirs
/// is the path on which every column costs. A row stands by itself, with visit and function, and is the
/// row of `samples` with the same `tid`, `time_ns` and `event`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRow<'a> {
    /// Time of the sample.
    pub time_ns: TraceNs,
    /// The visit; null: in no visit.
    pub visit_id: Option<u64>,
    /// The function.
    pub function_id: FunctionId,
    /// Thread; null where a recording does not have it.
    pub tid: Tid,
    /// Number of the sampled event in `trace.json`.
    pub event: EventId,
    /// Events that the sample stands for: the reset value in force when it was taken; null if there was none.
    pub events: Option<u64>,
    /// Operation: `load`, `store`, `load+store`, `prefetch`, `exec`; of IBS also `branch`, `other`, `fetch`
    /// and `aborted fetch`.
    pub op: Option<&'static str>,
    /// Where the data came from, in the words of `perf mem`: `L1 hit`, `Remote core, same node Any cache hit`.
    pub level: Option<&'a str>,
    /// Snoop of other caches: `None`, `Hit`, `Miss`, `HitM`, `Fwd`, `Peer`.
    pub snoop: Option<&'a str>,
    /// Translation of the address: `L1 hit`, `L2 miss`, `Walker hit`.
    pub tlb: Option<&'a str>,
    /// Whether the instruction was locked.
    pub locked: Option<bool>,
    /// What blocked the load: `Data`, `Addr`, `Data Addr`.
    pub blocked: Option<&'a str>,
    /// Cycles of the access (perf's weight): of a load since its dispatch; on AMD of a miss of the first level.
    pub latency_cycles: Option<u32>,
    /// Cycles of the whole instruction; on AMD of the op from its tagging to its retirement.
    pub op_cycles: Option<u32>,
    /// Cycles from the previous retirement to its own; on AMD from its completion to its retirement.
    pub retire_cycles: Option<u32>,
    /// Cycles to refill the first-level TLB.
    pub tlb_cycles: Option<u32>,
    /// Size of the page.
    pub page_bytes: Option<u64>,
    /// Whether the branch was taken.
    pub taken: Option<bool>,
    /// Whether the branch was mispredicted.
    pub mispredicted: Option<bool>,
    /// Address of the data; of a fetch, of the code.
    pub addr: Option<u64>,
    /// Its physical address.
    pub phys_addr: Option<u64>,
    /// `union perf_mem_data_src`, as the kernel wrote it.
    pub data_src: Option<u64>,
}

/// One row of `waits`: an interval that a visit's thread spent off the CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitRow {
    /// The visit that was current on the thread.
    pub visit_id: u64,
    /// Its item.
    pub item_id: u64,
    /// Thread.
    pub tid: Tid,
    /// Time at which it was switched out.
    pub begin_ns: TraceNs,
    /// Time at which it was switched in again.
    pub end_ns: TraceNs,
    /// The function of user space that went to wait; null if unknown.
    pub function_id: Option<FunctionId>,
    /// `runnable` (preempted), `sleeping`, `uninterruptible`, `stopped` or `dead`; `blocked` if a recording says no more
    /// than that it could not go on.
    pub state: &'static str,
    /// CPU it left.
    pub cpu_from: Cpu,
    /// CPU it came back on.
    pub cpu_to: Cpu,
    /// Name of the thread that ended it; `[interrupt]`: a timer, the disk or the network; null: not recorded (`--with
    /// waits`), or it was preempted.
    pub woken_by: Option<Waker>,
    /// Time at its end in which the thread was ready but had no CPU; null: not recorded (`--with waits`).
    pub runnable_ns: Option<i64>,
    /// Name of the thread that took the CPU; null: not recorded (`--with waits`), or the thread blocked by itself.
    pub preempted_by: Option<Actor>,
    /// The call stack at which it blocked, the kernel's function that called the scheduler first; null: not recorded
    /// (`--with waits --call-graph`), or it was preempted.
    pub stack_id: Option<StackId>,
}

/// What woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// Another thread.
    Thread(Actor),
    /// An interrupt: a timer, the disk, the network.
    Interrupt,
}

impl Waker {
    /// Name of [`Waker::Interrupt`] in the table.
    pub const INTERRUPT: &str = "[interrupt]";

    fn thread(&self) -> Option<&Actor> {
        match self {
            Self::Thread(actor) => Some(actor),
            Self::Interrupt => None,
        }
    }
}

impl WaitRow {
    /// Name of who ended it.
    #[must_use]
    pub fn waker_name(&self) -> Option<&str> {
        let waker = self.woken_by.as_ref()?;
        Some(waker.thread().map_or(Waker::INTERRUPT, Actor::name))
    }

    /// The thread that ended it.
    #[must_use]
    pub fn waker_thread(&self) -> Option<&Actor> {
        self.woken_by.as_ref()?.thread()
    }
}

/// Values of a row of `function_stats`, beside the states of waits.
pub mod measure {
    /// Duration of a visit.
    pub const DURATION: &str = "duration";
    /// Time of a visit on the CPU.
    pub const ONCPU: &str = "oncpu";
    /// Time of a function on the CPU in a visit.
    pub const SELF: &str = "self";
}

// Buckets: `estimate::sketch`.
/// One row of `function_stats`: a distribution over visits.
///
/// It covers the visits of a probe that ended in a range of time and whose end is known. Rows of the
/// same probe, measure, function, event and `loss` merge by adding every column but `min_ns` and
/// `max_ns`, and counts bucket by bucket; so do rows of other traces, with functions matched by
/// name. A bucket is a value that stands for all within 1/64 of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionStatRow {
    /// Begin of the range.
    pub begin_ns: TraceNs,
    /// End of the range.
    pub end_ns: TraceNs,
    /// The probe, which is the group.
    pub probe_id: ProbeId,
    /// `duration`, `oncpu` or `self` (a function's time on the CPU), or the state of a wait (see `waits`).
    pub measure: &'static str,
    /// The function; null for whole visits, and for waits whose function is unknown.
    pub function_id: Option<FunctionId>,
    /// The event that was sampled; null where values are observed, not sampled.
    pub event: Option<EventId>,
    /// Whether the visits overlap a loss. Those that do have rows of their own.
    pub loss: bool,
    /// Visits of the probe in the range, with or without the function.
    pub visits: u64,
    /// Visits in which the function has a sample, or a wait.
    pub visits_with: u64,
    /// Samples; for waits their number; null for whole visits.
    pub samples: Option<u64>,
    // How: `analysis::condensed`.
    /// Sum over visits of the square of the function's samples. With the next two columns the error of a mean over
    /// visits can be computed.
    pub samples_squared: Option<f64>,
    /// Sum over visits of the function's samples x all samples of the event.
    pub samples_product: Option<f64>,
    /// Sum over visits of the function's samples x the visit's time on the CPU (its duration, if
    /// switches were not recorded), ns.
    pub samples_active_ns: Option<f64>,
    /// Sum of the values. Null, like the next three, if no value is known: a function sampled by an
    /// event that is not a clock.
    pub sum_ns: Option<f64>,
    /// Sum of the squares of the values, ns^2.
    pub sum_squared: Option<f64>,
    /// Smallest value.
    pub min_ns: Option<f64>,
    /// Largest value.
    pub max_ns: Option<f64>,
    /// Buckets that hold a value, rising. Functions and whole visits have one value per visit, waits one per wait.
    pub bucket_ns: Vec<i64>,
    /// Values in each.
    pub bucket_count: Vec<u64>,
}

/// `functions.module` of pebs-trace's own work, which is part of no profile.
pub const OWN_MODULE: &str = "[pebs-trace]";

/// One row of `functions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRow {
    /// Key of the row.
    pub function_id: FunctionId,
    /// Demangled name; `module+fn@0xADDR` for a function start known only from .eh_frame; null if
    /// nothing is known but the address.
    pub name: Option<String>,
    /// Path of the binary, `[kernel]`, `[vdso]`, or the perf-map file; null if the address is in no mapping.
    pub module: Option<String>,
    /// Build id in hex.
    pub build_id: Option<String>,
    /// Offset of the function in the module's file; of kernel code its address.
    pub offset: Option<u64>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Source file of the function's first line.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// Whether it is kernel code.
    pub kernel: bool,
    /// Whether it was inlined into its caller: it has no offset of its own.
    pub inlined: bool,
    /// System call in which it ran, a function of the kernel's being one row for each; null: in none (a fault, an
    /// interrupt), or not known (samples with call stacks, `--transport bulk`, imported ones).
    pub system_call: Option<String>,
}

/// One row of `stacks`: functions that called one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackRow {
    /// Key of the row.
    pub stack_id: StackId,
    /// Keys of the functions, the innermost first; those in the kernel come before those in user space.
    pub frames: Vec<u32>,
    /// Whether outer frames are missing.
    pub truncated: bool,
}

/// One row of `batch_items`: an item of a visit that serves several ([`visit_flag::SHARED`]).
///
/// The shares of a visit sum to 1, so that no time counts twice: an item's part of any figure of the visit is the
/// figure x `share`. Only a visit that served no item has no row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchItemRow {
    /// The visit.
    pub visit_id: u64,
    /// The item; null: all those whose ids are not known, together.
    pub item_id: Option<u64>,
    /// Items that the visit served; null if that is unknown.
    pub items: Option<u32>,
    /// The item's share of the visit, 0 to 1.
    pub share: f64,
}

/// One row of `frequencies`: how fast a CPU ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrequencyRow {
    /// Time of the reading.
    pub time_ns: TraceNs,
    /// The CPU.
    pub cpu: Cpu,
    /// Its frequency, as the kernel reports it.
    pub khz: u32,
}

/// One row of `losses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossRow {
    /// Last instant with full data.
    pub begin_ns: TraceNs,
    /// First instant with full data again.
    pub end_ns: TraceNs,
    /// CPU; null: all.
    pub cpu: Option<Cpu>,
    /// Thread; null: all.
    pub tid: Option<Tid>,
    /// A reason of the ledger. `throttled`: from the last sample before the kernel stopped a counter to the next one, 10 ms
    /// at most; `cpu_came_online`: until a CPU was sampled.
    pub reason: String,
    /// Records lost; null if the kernel does not say.
    pub records: Option<u64>,
}
