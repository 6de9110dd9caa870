//! Cycles of the draining thread in, rows of the trace out: decode, order, correlate, symbolize, estimate, write. Live
//! recording and replay share this path.
//!
//! Memory is bounded: records waiting for the frontier by the rings' size, records of open visits by
//! [`PipelineOptions::max_samples`], call stacks by [`PipelineOptions::max_stack_bytes`], data on its way to the writer
//! by five blocks of some MiB, everything else by the number of threads and functions.
//!
//! # Cores
//!
//! The work is divided where the least data is handed over: samples go to the writer in blocks anyway. The pipeline's
//! thread does everything up to the function names of a visit's samples and the visit's row: half of the cost. A second
//! thread estimates the visits of a block ([`estimates`]) and encodes the estimates, a third encodes the samples: a
//! quarter each. So two cores are used at any load, and the rows are the same to the byte. If details of only some
//! visits are kept, the estimate is needed to decide, and the other threads have little to do.
//!
//! *Limit.* The pipeline's thread takes some 22 ns per record: at most 45 million records a second, from one CPU or 64.
//! 64 CPUs with a million samples a second each exceed that: queues reach their bounds, the rings fill, and samples are
//! refused and counted. The next division would be after decoding and ordering, which need only call-stack numbers of
//! the later stages; the one after that, correlation by thread.

mod account;
mod batches;
mod bulk;
mod counts;
mod estimates;
mod followed;
mod frequency;
mod imported;
mod keep;
mod memory;
mod net;
mod resets;
mod rows;
#[doc(hidden)]
pub mod synthetic;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pebs_common::counter::Counter;

use crate::correlate::{CorrelateOptions, Correlator, Crash, ExtraRecords};
use crate::estimate::marks::AtMarks;
use crate::estimate::net::SampleCost;
use crate::estimate::positions::Fell;
use crate::estimate::sketch::{SLOWEST, Sketch};
use crate::estimate::waiting::{WaitedBy, Waiting};
use crate::estimate::{EventTime, Pause};
use crate::ledger::{Ledger, Reason};
use crate::pmu::watch::Watch;
use crate::probe::set::ProbeSet;
use crate::store::run::VisitRule;
use crate::store::run::{KeptVisits, UnwoundStacks};
use crate::store::schema::{LossRow, Table, visit_flag};
use crate::store::writer::{TraceWriter, WriteError};
use crate::stream::clock::Clock;
use crate::stream::clock::ClockError;
use crate::stream::cycle::Cycle;
use crate::stream::decode::RecordKinds;
use crate::stream::decode::{Unordered, decode};
use crate::stream::order::{Late, Order, Ready};
use crate::stream::sample::SamplesBy;
use crate::stream::sideband::SidebandEvent;
use crate::symbolize::{SymbolizeOptions, Symbolizer};
use crate::units::{Cpu, EventId, KtimeNs, Pid, ProbeId, TraceNs};
use account::Accounts;
use bulk::Bulk;
pub use bulk::BulkOptions;
use followed::Followed;
pub use imported::{ImportedRound, ReportedLoss};
pub use keep::Keep;
pub use net::OwnCosts;
pub use rows::CountedFrom;
use rows::Rows;

/// Settings of a [`Pipeline`].
#[derive(Clone, Debug)]
pub struct PipelineOptions {
    /// `CLOCK_MONOTONIC` of ns 0.
    pub origin: KtimeNs,
    /// Records besides marks and samples.
    pub kinds: RecordKinds,
    /// The events counted for each visit, by the source of their counts.
    pub counted: Vec<CountedFrom>,
    /// Length of the intervals of `interval_counts`; `None`: there are none.
    pub count_interval: Option<Duration>,
    /// Rule by which times follow from samples, by event.
    pub event_times: Vec<EventTime>,
    /// Events whose samples have the cost that net times leave out, by bit.
    pub costly_events: u64,
    /// Reset values at the begin of the trace, by event; 0: none, the kernel aims at a frequency.
    pub resets: Vec<u64>,
    /// Place that each event watches, by event: data breakpoints alone.
    pub watches: Vec<Option<Watch>>,
    /// Maximum number of samples held for open visits.
    pub max_samples: usize,
    /// Maximum bytes of distinct call stacks held; 0: none are taken.
    pub max_stack_bytes: usize,
    pub symbolize: SymbolizeOptions,
    /// The visits whose details are kept.
    pub keep: Keep,
    /// Bulk transport of samples; `None`: not used.
    pub bulk: Option<BulkOptions>,
    /// Longest trace time of a row of the aggregates. If it equals the writer's segment length, no interval is split
    /// between segments.
    pub interval: Duration,
}

/// Figures for the status line, updated once a cycle.
#[derive(Debug, Default)]
pub struct Progress {
    /// Visits closed.
    pub visits: AtomicU64,
    /// Those of them that were slow.
    pub slow: AtomicU64,
    /// Samples taken in.
    pub samples: AtomicU64,
    /// Marks taken in.
    pub marks: AtomicU64,
    /// Samples and marks refused or dropped.
    pub lost: AtomicU64,
    /// Bytes of the trace on disk.
    pub bytes: AtomicU64,
    /// Totals within visits. Updated every [`LOAD_NS`].
    pub load: Mutex<Load>,
    /// Durations of visits, ns. Updated with them.
    pub durations: Mutex<Sketch>,
}

/// Interval of updates of [`Progress::load`], ns on the trace clock.
pub const LOAD_NS: i64 = 50_000_000;

/// Number of a probe's marks: by [`pebs_common::record::Role`], then the same for marks at single-stepped instructions.
pub type MarksBy = [u64; 8];

/// Marks, by probe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MarksMade {
    pub by: Vec<MarksBy>,
    /// Time that they took beyond that of marks right after another, ns.
    pub cold: Vec<ColdNs>,
}

/// A part of the time of a probe's marks, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColdNs {
    pub whole: i64,
    /// Outside of visits: before a begin mark's time, and after an end mark's.
    pub outside: i64,
}

impl MarksMade {
    /// Those since an earlier state.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let then = |probe| before.by.get(probe).copied().unwrap_or_default();
        let marks = (0..)
            .zip(&self.by)
            .map(|(probe, roles)| std::array::from_fn(|role| roles[role] - then(probe)[role]));
        let then = |probe| before.cold.get(probe).copied().unwrap_or_default();
        let cold = (0..).zip(&self.cold).map(|(probe, now)| ColdNs {
            whole: now.whole - then(probe).whole,
            outside: now.outside - then(probe).outside,
        });
        Self {
            by: marks.collect(),
            cold: cold.collect(),
        }
    }
}

/// Totals within closed and open visits up to an instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    pub until: TraceNs,
    /// Time on the CPU, ns.
    pub oncpu_ns: f64,
    /// Marks, including those without a visit.
    pub marks: MarksMade,
    pub samples: SamplesBy,
    pub page_faults: u64,
    /// Records of `--with`.
    pub extras: ExtraRecords,
    /// Switches of threads, out and in.
    pub switches: u64,
    /// Samples that met marks.
    pub at_marks: AtMarks,
    /// By probe: closed visits, and the time on the CPU of the slowest of them, [`SLOWEST`] of all, ns.
    pub slowest: Vec<(u64, f64)>,
    /// By probe: how much of their time closed visits were off the CPU.
    pub waited: Vec<WaitedBy>,
}

/// Results and totals of a finished pipeline.
pub struct Outcome {
    pub ledger: Ledger,
    /// Residual of the clock conversion; `None`: there was none.
    pub clock_error: Option<ClockError>,
    /// Marks decoded.
    pub marks: u64,
    /// The same by probe and role, and what they took longer.
    pub marks_made: MarksMade,
    /// Samples decoded.
    pub samples: u64,
    /// Samples in visits and outside, by event.
    pub samples_by: (SamplesBy, SamplesBy),
    /// Page faults within visits.
    pub page_faults: u64,
    /// Records of `--with` within visits.
    pub extras: ExtraRecords,
    /// Ends of unwound call stacks; `None`: none was unwound.
    pub unwound: Option<UnwoundStacks>,
    /// Switches of threads, out and in.
    pub switches: u64,
    /// Records of counts at marks, switches and ticks.
    pub counts: u64,
    /// Those at ticks, within visits and outside.
    pub ticks: u64,
    /// Total bytes through the ring of the CPU with the most.
    pub most_ring_bytes: u64,
    /// Visits closed.
    pub visits: u64,
    /// Visits whose details were kept, by reason.
    pub kept: KeptVisits,
    /// Time on the CPU of all visits, shared time counted once, ns; `None` if switches were not recorded.
    pub visits_oncpu_ns: Option<f64>,
    /// Cost of a sample for its visit; `None` if unknown.
    pub sample_cost: Option<SampleCost>,
    /// By probe: what the marks within a visit were measured to take, and how much of that is too much, ns.
    pub marks_within: Vec<(f64, f64)>,
    /// Distribution of samples over the parts of a probe's visits.
    pub positions: Vec<(ProbeId, Fell)>,
    pub end: TraceNs,
    /// Mapping events that the kernel dropped: function names may be missing.
    pub mappings_lost: u64,
    /// Missing switch-in events: those waits end at the thread's next record.
    pub missing_switches: u64,
    /// Number of waits within marks in visits, and their time, ns.
    pub mark_waits: (u64, i64),
    /// Samples that met marks.
    pub at_marks: AtMarks,
    /// Processes that died of a signal that a probe can cause.
    pub crashes: Vec<Crash>,
    /// Samples in time shared by several items.
    pub shared_samples: u64,
    /// Number of times that a thread resumed an item begun on another thread.
    pub resumed_elsewhere: u64,
    /// The first error of writing, if there was one.
    pub write_error: Option<WriteError>,
    /// The writer, to be finished.
    pub writer: TraceWriter,
}

/// All stages connected.
pub struct Pipeline {
    clock: Clock,
    order: Order,
    correlator: Correlator,
    rows: Rows,
    accounts: Accounts,
    bulk: Bulk,
    /// Mapping events waiting for the records before them.
    sideband: VecDeque<(TraceNs, SidebandEvent)>,
    followed: Followed,
    /// Time of the last reading of the kernel programs' counters.
    counted_at: TraceNs,
    frontier: TraceNs,
    progress: Arc<Progress>,
    needs_clock: bool,
    /// Cycles waiting for the first clock pair.
    early: Vec<Cycle>,
}

impl Pipeline {
    /// A pipeline into `writer`.
    #[must_use]
    pub fn new(
        probes: &ProbeSet,
        options: &PipelineOptions,
        writer: TraceWriter,
        progress: Arc<Progress>,
    ) -> Self {
        // Those that begin before it is recorded who ends them are followed as well.
        let may_have_waits = options.kinds.encounters || options.kinds.encounters_later;
        let correlate = CorrelateOptions {
            switches: options.kinds.switches,
            other_waits: may_have_waits && options.keep == Keep::All,
            page_faults: options.kinds.page_faults,
            interference: options.kinds.interference,
            counters: CountedFrom::counters(&options.counted),
            count_interval_ns: options.count_interval.map_or(0, |it| it.as_nanos() as i64),
            ids_in_user_mode: options.bulk.as_ref().is_some_and(BulkOptions::has_all),
            costly_events: options.costly_events,
            max_samples: options.max_samples,
        };
        let mut rows = Rows::new(Symbolizer::new(options.symbolize.clone()), options, writer);
        if probes.item.is_some() && !probes.is_marked_and_sampled() {
            rows.sampled_bounds();
        }
        Self {
            clock: Clock::new(options.origin),
            order: Order::new(&shared_probes(probes)),
            correlator: Correlator::new(probes, correlate),
            rows,
            accounts: Accounts::default(),
            bulk: options.bulk.as_ref().map(Bulk::new).unwrap_or_default(),
            sideband: VecDeque::new(),
            followed: Followed::default(),
            counted_at: TraceNs(0),
            frontier: TraceNs(i64::MIN),
            progress,
            needs_clock: false,
            early: Vec::new(),
        }
    }

    /// Takes in the process events of these processes and those that descend from them; else those of all.
    pub fn follow(&mut self, pids: &[Pid]) {
        self.followed = Followed::only(pids);
    }

    /// Drops what was read of binaries and is not needed all the time.
    pub fn rest(&mut self) {
        self.rows.symbolizer.rest();
    }

    /// Keeps cycles until the perf clock, which stamps the samples, can be converted.
    pub const fn wait_for_clock(&mut self) {
        self.needs_clock = true;
    }

    /// Sets how long a sample stops the target, for the estimates. Call it before the first record.
    pub fn pause(&mut self, pause: Pause) {
        self.rows.pause(pause);
    }

    /// Sets the costs of recording, for net times. Call it before the first record; else net times are unknown.
    pub fn own_costs(&mut self, costs: &OwnCosts) {
        self.correlator.mark_times(&costs.marks, costs.coldness);
        self.accounts.marks.coldness = costs.coldness;
        let Rows { net, writer, .. } = &mut self.rows;
        net.costs(costs, writer);
    }

    /// Sets the cost of a switch, ns, for visits that end from now on.
    pub fn switch_cost(&mut self, ns: f64) {
        self.rows.net.switch_cost(ns);
    }

    /// Wake-ups and preemptions are recorded from then on.
    pub fn waits_from(&mut self, time: KtimeNs) {
        self.rows.waits_from = Some(self.clock.trace_of_ktime(time));
    }

    /// Loads the kernel's symbols and opens the binaries of the processes traced from the start: slow work done before
    /// records arrive.
    pub fn warm_up(&mut self, pids: &[Pid]) {
        self.rows.symbolizer.prepare_kernel();
        pids.iter().for_each(|pid| self.rows.meet(*pid));
    }

    /// Whether writing failed: later records are lost.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.rows.error.is_some()
    }

    /// Takes one round of all rings.
    pub fn cycle(&mut self, cycle: &mut Cycle) {
        if self.needs_clock && !self.clock.is_ready() {
            self.look_for_clock(cycle);
            if !self.clock.is_ready() {
                return self.early.push(std::mem::take(cycle));
            }
        }
        for mut waited in std::mem::take(&mut self.early) {
            self.take_in(&mut waited);
        }
        self.take_in(cycle);
    }

    /// Looks for clock pairs; the first may follow the first samples.
    fn look_for_clock(&mut self, cycle: &Cycle) {
        let mut scratch = Unordered::default();
        for (cpu, bytes) in &cycle.streams {
            decode(*cpu, bytes, &mut self.clock, &mut scratch);
        }
    }

    fn take_in(&mut self, cycle: &mut Cycle) {
        for event in self
            .followed
            .of(cycle.sideband.drain(..), |pid| self.rows.has_met(pid))
        {
            self.process_event(event);
        }
        for (cpu, bytes) in &cycle.streams {
            let mut inbox = self.bulk.watch(&mut self.order, &mut self.rows);
            let decoded = decode(*cpu, bytes, &mut self.clock, &mut inbox);
            self.accounts.decoded(*cpu, &decoded);
            self.accounts.taken(*cpu, bytes.len());
        }
        self.take_in_bulk(cycle);
        let counted_at = self.clock.trace_of_ktime(cycle.counted_at);
        self.losses(cycle, counted_at);
        // They come ring by ring.
        self.sideband
            .make_contiguous()
            .sort_by_key(|(time, _)| *time);
        let frontier = self.clock.trace_of_ktime(cycle.frontier);
        self.advance(frontier);
        self.counted_at = counted_at;
        self.rows
            .tick(Duration::from_nanos(counted_at.0.max(0) as u64));
        self.publish();
    }

    /// Takes a process event: the unwinder sees it now, the others at its time.
    fn process_event(&mut self, event: SidebandEvent) {
        let time = self.clock.trace_of_ktime(event.time);
        self.rows.arrived(time, &event.what);
        self.sideband.push_back((time, event));
    }

    /// Adds loss ranges for what the kernel programs refused since the last cycle.
    fn losses(&mut self, cycle: &Cycle, end_ns: TraceNs) {
        let begin_ns = self.counted_at;
        for (cpu, row) in cycle.counters.iter().enumerate() {
            let cpu = Cpu(cpu as u16);
            for (reason, records) in self.accounts.refused(cpu, row) {
                let row = LossRow {
                    begin_ns,
                    end_ns,
                    cpu: Some(cpu),
                    tid: None,
                    reason: reason.name().to_owned(),
                    records: Some(records),
                };
                self.rows
                    .loss_in_visits(&row, visit_flag::LOSS, &mut self.correlator);
            }
        }
    }

    /// Sets an event's reset value from a time on.
    pub fn reset_changed(&mut self, time: KtimeNs, event: EventId, reset: u64) {
        let time = self.clock.trace_of_ktime(time);
        self.rows.reset_changed(event, time, reset);
    }

    /// The recording is ending: begin marks stop at this instant.
    pub const fn stopping(&mut self, time: KtimeNs) {
        self.correlator.stopping(self.clock.trace_of_ktime(time));
    }

    /// Sets the begin of an interval of `interval_counts`. Call it before the first record.
    pub const fn count_from(&mut self, time: KtimeNs) {
        self.correlator.count_from(self.clock.trace_of_ktime(time));
    }

    /// Adds a loss range of a CPU that came online between `begin` and `end`, and is sampled from `end` on.
    pub fn cpu_came_online(&mut self, begin: KtimeNs, end: KtimeNs, cpu: Cpu) {
        let row = LossRow {
            begin_ns: self.clock.trace_of_ktime(begin),
            end_ns: self.clock.trace_of_ktime(end),
            cpu: Some(cpu),
            tid: None,
            reason: "cpu_came_online".to_owned(),
            records: None,
        };
        self.rows
            .loss_in_visits(&row, visit_flag::LOSS, &mut self.correlator);
    }

    /// Writes everything that is known now, so that it can be read.
    pub fn flush(&mut self) {
        self.rows
            .write_aggregates(Duration::from_nanos(self.frontier.0.max(0) as u64));
        self.rows.flush_all();
    }

    /// Nothing is recorded between the two. Call it once the frontier is past the begin, and before the first record that
    /// comes after the end.
    pub fn paused(&mut self, begin: KtimeNs, end: KtimeNs) {
        let [begin, end] = [begin, end].map(|it| self.clock.trace_of_ktime(it));
        self.correlator.pause(begin, &mut self.rows);
        self.rows.loss(&LossRow {
            begin_ns: begin,
            end_ns: end,
            cpu: None,
            tid: None,
            reason: "paused".to_owned(),
            records: None,
        });
    }

    /// Updates [`Progress::load`] to the frontier, if it is older than [`LOAD_NS`].
    fn publish_load(&self) {
        // A panic elsewhere leaves the counts valid.
        let mut load = self
            .progress
            .load
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.frontier.0 < load.until.0 + LOAD_NS {
            return;
        }
        let durations = self.progress.durations.lock();
        let mut durations = durations.unwrap_or_else(PoisonError::into_inner);
        durations.clone_from(&self.rows.durations);
        drop(durations);
        let open = self.correlator.open_load(self.frontier, self.rows.mixed);
        load.until = self.frontier;
        load.oncpu_ns = self.rows.oncpu_ns().unwrap_or(0.0) + open.oncpu_ns as f64;
        load.samples = self.rows.visit_samples;
        load.samples += open.samples;
        load.page_faults = self.rows.page_faults + open.page_faults;
        load.extras = self.rows.extras;
        load.extras += open.extras;
        load.marks.clone_from(&self.accounts.marks.made);
        load.switches = self.accounts.switches();
        let slowest = |it: &Sketch| (it.len(), it.sum_of_largest(SLOWEST));
        load.at_marks = self.rows.at_marks;
        load.slowest.clear();
        load.slowest.extend(self.rows.oncpu.iter().map(slowest));
        load.waited.clear();
        load.waited
            .extend(self.rows.waiting.iter().map(Waiting::sums));
    }

    fn advance(&mut self, frontier: TraceNs) {
        self.frontier = self.frontier.max(frontier);
        let Self {
            order,
            correlator,
            rows,
            accounts,
            sideband,
            ..
        } = self;
        rows.clock_error_ns = self.clock.error().map_or(0, |error| error.p99_ns as i64);
        let mut late = Vec::new();
        let mut ready = order.advance(frontier, |record| late.push(record));
        accounts.ready(&ready);
        // Before the visits that lack them close.
        miss(late, accounts, correlator, rows);
        // Mapping events are in order with the records: first all earlier records of their process, then the event.
        while let Some((time, event)) = sideband.pop_front_if(|(time, _)| *time <= frontier) {
            for pid in rows.concerned(&event) {
                take_process_up_to((pid, time), &mut ready, correlator, rows);
            }
            rows.sideband(&event, correlator, time);
        }
        take_up_to(frontier, &mut ready, correlator, rows);
        drop(ready);
        accounts.take_used(rows);
    }

    fn publish(&self) {
        self.publish_load();
        let progress = &self.progress;
        progress.visits.store(self.rows.visits, Ordering::Relaxed);
        let slow = self.rows.keeper.kept.slow_ones();
        progress.slow.store(slow, Ordering::Relaxed);
        progress
            .samples
            .store(self.accounts.samples(), Ordering::Relaxed);
        progress
            .marks
            .store(self.accounts.marks(), Ordering::Relaxed);
        progress.lost.store(self.accounts.lost(), Ordering::Relaxed);
        progress
            .bytes
            .store(self.rows.bytes_written(), Ordering::Relaxed);
    }

    /// Takes the remaining records and completes the ledger. The trace ends at `end`.
    #[must_use]
    pub fn finish(mut self, end: KtimeNs) -> Outcome {
        for mut waited in std::mem::take(&mut self.early) {
            self.take_in(&mut waited);
        }
        let end = self.clock.trace_of_ktime(end);
        self.finish_bulk(end);
        self.advance(TraceNs(i64::MAX));
        self.correlator.finish(end, &mut self.rows);
        self.accounts.take_used(&mut self.rows);
        self.rows.accesses_left_out(end);
        self.rows
            .write_aggregates(Duration::from_nanos(end.0.max(0) as u64));
        let Rows { net, writer, .. } = &mut self.rows;
        net.finish(writer);
        self.rows.flush_all();
        let lost_samples = self.rows.lost_rows(Table::Samples);
        Outcome {
            ledger: self.accounts.ledger(&self.rows, lost_samples),
            clock_error: self.clock.error(),
            marks: self.accounts.marks(),
            marks_made: std::mem::take(&mut self.accounts.marks.made),
            samples: self.accounts.samples(),
            samples_by: (self.rows.visit_samples, self.rows.stray_samples),
            page_faults: self.rows.page_faults,
            extras: self.rows.extras,
            unwound: Some(self.rows.unwinder.ended).filter(|it| it.all() > 0),
            switches: self.accounts.switches(),
            counts: self.accounts.counts(),
            ticks: self.accounts.ticks(),
            most_ring_bytes: self.accounts.most_ring_bytes(),
            visits: self.rows.visits,
            kept: self.rows.keeper.kept,
            visits_oncpu_ns: self
                .rows
                .oncpu_ns()
                .map(|ns| ns + self.correlator.open_load(end, false).oncpu_ns as f64),
            sample_cost: self.rows.net.sample_cost(),
            marks_within: self.rows.net.within(),
            positions: self.rows.net.positions(),
            end,
            mappings_lost: self.rows.mappings_lost,
            missing_switches: self.correlator.missing_switches,
            mark_waits: self.rows.mark_waits,
            at_marks: self.rows.at_marks,
            crashes: std::mem::take(&mut self.correlator.crashes),
            shared_samples: self.correlator.shared_samples,
            resumed_elsewhere: self.correlator.resumed_elsewhere,
            write_error: self.rows.error.take(),
            writer: self.rows.writer,
        }
    }
}

/// Counts records that came behind the frontier, and adds a loss range per CPU from the first to the last of them.
fn miss(
    mut late: Vec<Late>,
    accounts: &mut Accounts,
    correlator: &mut Correlator,
    rows: &mut Rows,
) {
    late.iter().for_each(|record| accounts.late(*record));
    late.sort_by_key(|record| (record.cpu, record.time));
    for records in late.chunk_by(|a, b| a.cpu == b.cpu) {
        let (first, last) = (records[0], records[records.len() - 1]);
        let row = LossRow {
            begin_ns: first.time,
            end_ns: last.time,
            cpu: Some(Cpu(first.cpu)),
            tid: None,
            reason: Reason::Late.name().to_owned(),
            records: Some(records.len() as u64),
        };
        rows.loss_in_visits(&row, visit_flag::LOSS, correlator);
    }
}

/// Correlates everything before a time. Opens a process's binaries at its first record, while it still runs.
fn take_up_to(until: TraceNs, ready: &mut Ready<'_>, correlator: &mut Correlator, rows: &mut Rows) {
    ready.parts().each(|lane, _| {
        if lane.has_before(until) {
            rows.meet(lane.pid);
        }
    });
    correlator.advance(ready, until, rows);
}

/// [`take_up_to`] for one process.
fn take_process_up_to(
    (pid, until): (Pid, TraceNs),
    ready: &mut Ready<'_>,
    correlator: &mut Correlator,
    rows: &mut Rows,
) {
    ready.parts().each_of(pid, |lane, _| {
        if lane.has_before(until) {
            rows.meet(pid);
        }
    });
    correlator.advance_process(ready, (pid, until), rows);
}

/// By probe: whether its marks can end or resume an item of another thread.
fn shared_probes(set: &ProbeSet) -> Vec<bool> {
    let by_id = set
        .probes
        .iter()
        .map(|p| p.rule == VisitRule::ById || p.rule.is_of_goroutine() || p.resumes);
    by_id.collect()
}

/// Counters of refused records.
const REFUSALS: [(Counter, Reason); 7] = [
    (Counter::SampleDropped, Reason::DroppedRingFull),
    (Counter::MarkDropped, Reason::DroppedRingFull),
    (Counter::TaskDropped, Reason::DroppedRingFull),
    (Counter::SampleNoRing, Reason::DroppedNoRing),
    (Counter::MarkNoRing, Reason::DroppedNoRing),
    (Counter::TaskNoRing, Reason::DroppedNoRing),
    (Counter::SampleNoTime, Reason::DroppedNoTime),
];
