//! Plan of a recording: all that is decided before it starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::event::{Emit, Event};
use super::recording::CallGraph;
use super::redact::Rules;
use super::replaced::ProbedFiles;
use super::start::Trigger;
use super::transport::{self, Choice};
use crate::collect::frequency::Frequencies;
use crate::collect::programs::StackLimits;
use crate::cost::overhead::Bounds;
use crate::estimate::EventTime;
use crate::failure::Warning;
use crate::limits;
use crate::pipeline::{BulkOptions, CountedFrom, Keep};
use crate::pmu::attr::{EventClass, ResolvedEvent};
use crate::pmu::counted::{CountSource, CountedEvent};
use crate::pmu::host::Host;
use crate::pmu::open::Granted;
use crate::probe::cgroup::Cgroup;
use crate::probe::set::ProbeSet;
use crate::store::run::event_time;
use crate::stream::decode::RecordKinds;
use crate::symbolize::SymbolizeOptions;
use crate::units::{Pid, Tid};

/// Everything known before the recording starts.
pub(super) struct Plan {
    /// The machine.
    pub host: Host,
    pub probes: ProbeSet,
    pub files: ProbedFiles,
    /// Rules for texts that may hold personal data.
    pub redact: Rules,
    /// Events, with the attr as granted.
    pub events: Vec<ResolvedEvent>,
    /// Events that are counted for each visit.
    pub counted: Vec<CountedEvent>,
    /// Length of the intervals in which they are also counted.
    pub count_interval: Option<Duration>,
    /// Transport of samples.
    pub transport: Choice,
    /// Precision granted of each.
    pub granted: Vec<Granted>,
    /// Processes to trace; empty: every process that makes a mark.
    pub pids: Vec<Pid>,
    /// Threads of those processes to trace; empty: all.
    pub threads: Vec<Tid>,
    /// Cgroup whose processes are traced, if there are no pids.
    pub cgroup: Option<Arc<Cgroup>>,
    /// Command to start.
    pub command: Vec<OsString>,
    /// Limits of the command's process.
    pub former_limits: limits::Former,
    /// Condition that it waits for before it begins.
    pub start: Trigger,
    /// Whether it may be paused.
    pub pausable: bool,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Stop after this many items.
    pub stop_after: Option<u64>,
    /// Stop once the trace has this many bytes.
    pub max_size: Option<u64>,
    /// Records besides marks and samples.
    pub kinds: RecordKinds,
    /// CPUs whose frequency is recorded.
    pub frequencies: Frequencies,
    /// Size of each CPU's ring.
    pub ring_bytes: u32,
    /// Maximum bytes of records waiting for the pipeline.
    pub max_waiting_bytes: usize,
    /// Maximum number of samples held for open visits.
    pub max_samples: usize,
    /// Kind of call stacks, if they are taken.
    pub call_graph: Option<CallGraph>,
    pub stacks: StackLimits,
    /// Call stacks to be decided on before the start.
    pub offer: Option<Offer>,
    /// Decision on call stacks, and the reason.
    pub stacks_chosen: Option<String>,
    /// Maximum bytes of distinct call stacks in memory.
    pub max_stack_bytes: usize,
    /// Directory of the trace.
    pub output: PathBuf,
    /// Time after which a segment is closed.
    pub segment: Duration,
    /// Bounds of the slow-down of items and of the reset value.
    pub overhead: Option<Bounds>,
    /// Variation of distances between samples, percent.
    pub jitter: f64,
    /// The reset value, and the largest one that a bound may set, as given.
    pub reset: Option<u64>,
    pub max_reset: Option<u64>,
    /// Whether to record regardless of the cost of marks.
    pub force: bool,
    /// Options of symbolization.
    pub symbolize: SymbolizeOptions,
    /// Items that keep their details.
    pub keep: Keep,
    /// Remarks for the first lines and for the trace.
    pub notes: Vec<String>,
    /// Warnings with hints.
    pub warnings: Vec<Warning>,
    /// Whether events are only counted, not sampled.
    pub counting: bool,
    /// Whether the recorder sleeps longer where nothing happens.
    pub patient: bool,
}

/// Call stacks that a recording may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub stacks: StackLimits,
    /// Bytes of each CPU's ring with them.
    pub ring_bytes: u32,
    /// Maximum bytes of the rings of all CPUs.
    pub all_rings_bytes: u64,
    /// Maximum bytes of distinct call stacks in memory.
    pub max_stack_bytes: usize,
}

impl Plan {
    /// Whether it records from the start on, without a condition.
    pub(super) const fn starts_at_once(&self) -> bool {
        matches!(self.start, Trigger::None)
    }

    /// Returns the rules by which times follow from the samples of each event.
    #[must_use]
    pub(super) fn event_times(&self) -> Vec<EventTime> {
        self.events
            .iter()
            .map(|event| event_time(&event.name, event.unit))
            .collect()
    }

    /// Events whose samples have the cost that net times leave out, by bit: beside others not those without an interrupt, which
    /// take far less and an unknown time.
    pub(super) fn costly_events(&self) -> u64 {
        if let [_] = self.events.as_slice() {
            return u64::MAX;
        }
        let interrupts = |it: &ResolvedEvent| {
            matches!(it.class, EventClass::Clock | EventClass::Hardware { .. })
        };
        let of = self.events.iter().zip(0..).filter(|it| interrupts(it.0));
        of.fold(0, |events, (_, bit)| events | 1 << bit)
    }

    /// Source of each event's counts.
    #[must_use]
    pub(super) fn counted_from(&self) -> Vec<CountedFrom> {
        let each = self.counted.iter().map(|event| match event.source {
            CountSource::Counter(_) => CountedFrom::Counter,
            CountSource::Switches => CountedFrom::Switches,
            CountSource::Times => CountedFrom::Times,
        });
        each.collect()
    }

    /// Whether programs read counters at marks and switches.
    #[must_use]
    pub(super) fn reads_counters(&self) -> bool {
        self.counted.iter().any(|event| event.counter().is_some())
    }

    /// Returns the transport that was granted, and the reason.
    #[must_use]
    pub(super) fn transport_reason(&self) -> String {
        let names: Vec<&str> = self
            .events
            .iter()
            .map(|event| event.name.as_str())
            .collect();
        let (names, why) = (names.join(", "), &self.transport.why);
        match self.overhead {
            // The rate follows from the cost.
            Some(_) => format!("{names}: {why}"),
            None => format!("{names} every {}: {why}", self.resets()),
        }
    }

    /// Options of the bulk rings, if samples come from them.
    #[must_use]
    pub(super) fn bulk_options(&self) -> Option<BulkOptions> {
        let everyone = self.pids.is_empty();
        let item = self.probes.item.as_ref();
        transport::bulk_options(&self.transport, &self.events, &self.host, (everyone, item))
    }

    fn resets(&self) -> String {
        let each = self.events.iter();
        let each = each.map(|event| format!("{} {}", event.reset.0, event.reset_unit()));
        let mut each: Vec<String> = each.collect();
        each.dedup();
        each.join(", ")
    }

    /// Reports the transport, notes and warnings.
    pub(super) fn report(&self, emit: &mut Emit<'_>) {
        emit(Event::Transport {
            name: self.transport.how.name(),
            why: self.transport_reason(),
        });
        self.notes
            .iter()
            .for_each(|it| emit(Event::Note(it.clone())));
        let warnings = self.warnings.iter().cloned();
        warnings.for_each(|it| emit(Event::Warning(it)));
    }
}
