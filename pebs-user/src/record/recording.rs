//! The description of a recording.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::estimate::slow_by::SlowBy;
use crate::probe::ReturnMode;
use crate::probe::item::Typed;
use crate::probe::redact::Rule;
use crate::stream::decode::RecordKinds;
use crate::units::{Pid, Tid};

/// Description of a recording: the options of `pebs-trace` as plain data, whose help says more about each.
///
/// [`Recording::new`] has the defaults; the least to add is a SPEC in [`Recording::uprobes`].
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// SPECs of where items begin and end, such as `./app:handle(id=arg1)`.
    pub uprobes: Vec<String>,
    /// SPECs of where a thread resumes an item.
    pub resumes: Vec<String>,
    /// Presets with SPECs, as `NAME` or `NAME=BIN`.
    pub presets: Vec<String>,
    /// Texts of which only a part is recorded: the argument's name, and what stays of it.
    pub redact: Vec<(String, Rule)>,
    /// Whether presets say which others are.
    pub redact_by_preset: bool,
    /// Source of item ids at samples, in place of marks.
    pub item: Option<ItemId>,
    /// The id that is not an item, for [`Recording::item`].
    pub item_none: u64,
    /// Events that are sampled, by their names in perf.
    pub events: Vec<String>,
    /// Whether events may share counters.
    pub multiplex: bool,
    /// Whether samples have their memory accesses.
    pub memory: bool,
    /// Events that are counted per item, by their names in perf.
    pub counts: Vec<String>,
    /// Length of the intervals in which they are also counted.
    pub count_interval: Option<Duration>,
    /// Transport of samples from the kernel.
    pub transport: TransportChoice,
    /// Events between two samples, of clocks ns; `None`: from the cost of marks and samples.
    pub reset: Option<u64>,
    /// Variation of distances between samples, percent; `None`: as suits the events.
    pub jitter: Option<f64>,
    /// Processes whose items are recorded.
    pub target: Target,
    /// Start of the recording of items.
    pub start: Start,
    /// Whether [`Remote::pause`](super::Remote::pause) may be called: the process that places probes then keeps its privileges.
    pub pausable: bool,
    /// Time after which it ends.
    pub duration: Option<Duration>,
    /// Number of items after which it ends, within a twentieth of a second.
    pub stop_after: Option<u64>,
    /// Bytes of the trace at which it ends.
    pub max_size: Option<u64>,
    /// Marks at the end of visits of a function.
    pub return_mode: ReturnMode,
    /// Whether no sample is taken in the kernel.
    pub exclude_kernel: bool,
    /// Records besides marks and samples.
    pub kinds: RecordKinds,
    /// Whether frequencies of CPUs are recorded.
    pub frequencies: bool,
    /// Whether samples in inlined code belong to the inlined function.
    pub inlined: bool,
    /// Whether samples have call stacks, and how they are taken.
    pub call_graph: Option<CallGraph>,
    /// Directory of the trace, which must not exist.
    pub output: PathBuf,
    /// Time after which a segment of the trace is closed.
    pub segment: Duration,
    /// Items whose details are kept.
    pub keep: KeepItems,
    /// Definition of slow items, for [`KeepItems::Slow`].
    pub slow: Option<SlowBy>,
    /// Bound on the slow-down of items, a share.
    pub max_overhead: Option<f64>,
    /// Largest reset value that this bound may set.
    pub max_reset: Option<u64>,
    /// Whether to record whatever marks cost.
    pub force: bool,
    /// Bytes of each CPU's ring, a power of two.
    pub ring_size: u32,
    /// The same where samples get call stacks by [`CallGraph::Affordable`].
    pub ring_size_with_stacks: u32,
    /// Bytes for pending records.
    pub max_memory: u64,
    /// Bytes for different call stacks; `None`: an eighth of [`Recording::max_memory`].
    pub stack_memory: Option<u64>,
    /// Clock that samples of software events are timed with.
    pub sample_clock: SampleClock,
    /// Whether the recorder sleeps longer where nothing happens, and reacts later: for recordings that never end.
    pub patient: bool,
}

/// Processes whose items are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Every process that makes a mark.
    #[default]
    All,
    /// These processes and their children.
    Processes(Vec<Pid>),
    /// These threads alone.
    Threads(Vec<Tid>),
    /// Processes of a cgroup (version 2): a directory, or relative to the mount point of cgroups.
    Cgroup(String),
    /// Processes of a container, by the beginning of its id.
    Container(String),
    /// Processes of a Kubernetes pod on this machine: `NAMESPACE/NAME`.
    Pod(String),
    /// A command that is started, with its arguments, and its children; the recording ends with it.
    Command(Vec<OsString>),
}

/// Start of the recording of items. A command runs before, without probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// A command's first instruction.
    #[default]
    AtOnce,
    /// A time.
    After(Duration),
    /// A file is there.
    File(PathBuf),
    /// A function is called, or reached: `BIN:FUNC`, `BIN:FUNC+OFF`.
    Called(String),
    /// [`Remote::resume`](super::Remote::resume).
    Resumed,
}

/// Source of item ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemId {
    /// In a register.
    Reg(String),
    /// In a variable.
    Mem(String),
    /// In a thread-local variable.
    Tls(String),
}

/// Transport of samples from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// In bulk if the hardware buffers samples, else by an eBPF program.
    #[default]
    Auto,
    /// An eBPF program reads each sample.
    Bpf,
    /// The kernel writes samples to perf's rings.
    Bulk,
}

impl TransportChoice {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bpf => "bpf",
            Self::Bulk => "bulk",
        }
    }
}

/// Method that takes call stacks of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallGraph {
    /// By frame pointers.
    Fp,
    /// By unwind tables, from copies of the stacks.
    Eh,
    /// By the CPU's last branch records.
    Lbr,
    /// By unwind tables where nothing but a clock samples, the budget sets how often, and stacks cost it few samples; else
    /// there are none.
    Affordable,
}

impl CallGraph {
    /// The name on the command line and in `trace.json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp => "fp",
            Self::Eh => "eh",
            Self::Lbr => "lbr",
            Self::Affordable => "auto",
        }
    }
}

/// Items whose details are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepItems {
    /// All items.
    #[default]
    All,
    /// Slow items, and those that overlap a loss.
    Slow,
    /// No item: aggregates and durations only.
    None,
}

/// Clock of samples of software events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleClock {
    /// `CLOCK_MONOTONIC`, like marks.
    #[default]
    Monotonic,
    /// The perf clock, as hardware samples have it.
    Perf,
}

impl Recording {
    /// A recording of every process to this directory, without a probe.
    #[must_use]
    pub fn new(output: impl Into<PathBuf>) -> Self {
        Self {
            uprobes: Vec::new(),
            resumes: Vec::new(),
            presets: Vec::new(),
            redact: Vec::new(),
            redact_by_preset: false,
            item: None,
            item_none: 0,
            events: vec!["auto".to_owned()],
            multiplex: false,
            memory: false,
            counts: Vec::new(),
            count_interval: None,
            transport: TransportChoice::Auto,
            reset: None,
            jitter: None,
            target: Target::All,
            start: Start::AtOnce,
            pausable: false,
            duration: None,
            stop_after: None,
            max_size: None,
            return_mode: ReturnMode::Auto,
            exclude_kernel: false,
            kinds: RecordKinds {
                switches: true,
                page_faults: true,
                encounters_later: true,
                ..RecordKinds::default()
            },
            frequencies: false,
            inlined: false,
            call_graph: Some(CallGraph::Affordable),
            output: output.into(),
            segment: Duration::from_secs(10),
            keep: KeepItems::All,
            slow: None,
            max_overhead: None,
            max_reset: None,
            force: false,
            ring_size: 512 << 10,
            ring_size_with_stacks: 4 << 20,
            max_memory: 512 << 20,
            stack_memory: None,
            sample_clock: SampleClock::Monotonic,
            patient: false,
        }
    }

    /// The command that is started; empty if there is none.
    pub(super) fn command(&self) -> &[OsString] {
        match &self.target {
            Target::Command(command) => command,
            _ => &[],
        }
    }

    /// Returns the source of item ids at samples, if they have one.
    pub(super) fn typed_item(&self) -> Option<Typed<'_>> {
        self.item.as_ref().map(|item| match item {
            ItemId::Reg(text) => Typed::Reg(text),
            ItemId::Mem(text) => Typed::Mem(text),
            ItemId::Tls(text) => Typed::Tls(text),
        })
    }
}
