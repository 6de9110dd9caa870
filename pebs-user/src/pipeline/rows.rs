//! Makes rows of closed visits: names, estimates, and the writer.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::PipelineOptions;
use super::estimates::estimate;
use super::keep::{Keep, Keeper, Weights};
use super::memory::{Accesses, accessed};
use super::net::Net;
use super::resets::Resets;
use crate::correlate::{
    ClosedVisit, Correlator, ExtraRecords, IntervalCounts, LossScope, Lost, PARKED, RUNNABLE,
    RawWait, Sink, Throttled,
};
use crate::estimate::marks::AtMarks;
use crate::estimate::sketch::Sketch;
use crate::estimate::waiting::Waiting;
use crate::estimate::{Estimator, Events, FunctionEstimate, Pause, Series, VisitTimeline};
use crate::ledger::Reason;
use crate::pmu::watch::Watch;
use crate::store::samples::{ORDERED_ROWS, SamplesOf};
use crate::store::schema::{
    FunctionRow, INTERRUPT, LossRow, MemoryRow, OtherWaitRow, Table, VisitRow, WaitRow, visit_flag,
};
use crate::store::visit_block::{VisitBlock, VisitKey};
use crate::store::writer::{TraceWriter, WriteError};
use crate::stream::decode::Actor;
use crate::stream::sample::{KernelEntry, SampleKind, SamplesBy};
use crate::stream::samples::Samples;
use crate::stream::sideband::{SidebandEvent, SidebandKind};
use crate::stream::stacks::{Chains, StackKey};
use crate::symbolize::Symbolizer;
use crate::symbolize::stacks::{StackOrigin, Stacks};
use crate::symbolize::unwind::{Unwinder, UserStack};
use crate::units::{Cpu, EventId, FunctionId, Pid, StackId, Tid, TraceNs};

/// Result of records, for the ledger.
#[derive(Clone, Copy, Debug)]
pub(super) enum Used {
    /// Number of samples of a CPU written.
    Samples(Cpu, u64),
    /// Number of samples of a CPU that were left out by `--keep`.
    NotKept(Cpu, u64),
    /// A lost record of a CPU.
    Lost(Cpu, Lost, Reason),
}

/// Source of an event's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedFrom {
    /// A counter, read at marks and switches. Counters are in the order of these events.
    Counter,
    /// Number of switch records.
    Switches,
    /// Time on the CPU.
    Times,
}

impl CountedFrom {
    /// Number of events with a counter.
    #[must_use]
    pub fn counters(all: &[Self]) -> usize {
        all.iter().filter(|it| **it == Self::Counter).count()
    }
}

/// Makes rows and writes them.
pub(super) struct Rows {
    pub symbolizer: Symbolizer,
    /// Call stacks as recorded.
    pub chains: Chains,
    /// Unwinds copied user stacks.
    pub unwinder: Unwinder,
    /// Whether there may be any.
    has_stacks: bool,
    stacks: Stacks,
    /// Call stacks of the samples named last; empty if none has one.
    stack_ids: Vec<Option<StackId>>,
    pub writer: TraceWriter,
    pub keeper: Keeper,
    pub accesses: Accesses,
    /// Place that each event watches.
    watches: Vec<Option<Watch>>,
    estimator: Estimator,
    /// Samples with their functions and the kept visits, for the writer.
    block: VisitBlock,
    /// Estimates of the current visit, if they decide what is kept of it.
    estimates: Vec<FunctionEstimate>,
    /// Events that each sample of these stands for, 0: unknown; `None`: unequal numbers, then those of each function.
    weight: Option<u64>,
    estimated_events: Vec<u64>,
    /// Time from which on wakers and preempting threads are recorded; `None`: not yet.
    pub waits_from: Option<TraceNs>,
    /// Whether that may change, so that it matters how much visits wait.
    waits_matter: bool,
    /// Events counted for each visit.
    pub counted: Vec<CountedFrom>,
    functions: Vec<FunctionRow>,
    resets: Arc<Resets>,
    /// Costs of recording, and net times.
    pub net: Net,
    /// Time for which a sample stops the target.
    pause: Pause,
    met: FxHashSet<Pid>,
    /// For processes whose visits outlive an exec: until when they ran each earlier program, and the pid that the
    /// symbolizer knows it by.
    programs: FxHashMap<Pid, Vec<(TraceNs, Pid)>>,
    pub used: Vec<Used>,
    /// Samples closer to a visit's boundary than this are flagged, ns.
    pub clock_error_ns: i64,
    pub visits: u64,
    /// Samples in visits, and those outside.
    pub visit_samples: SamplesBy,
    pub stray_samples: SamplesBy,
    /// Whether there are several events.
    pub mixed: bool,
    /// Page faults in the visits.
    pub page_faults: u64,
    /// Records of `--with` within visits.
    pub extras: ExtraRecords,
    /// Number of waits within marks in visits, and their time, ns.
    pub mark_waits: (u64, i64),
    /// Samples that met marks.
    pub at_marks: AtMarks,
    pub strays: u64,
    pub unresolved: u64,
    /// Number of times that the kernel stopped a counter.
    pub throttled: u64,
    oncpu_ns: i64,
    oncpu_known: bool,
    /// Time on the CPU of visits, by probe, ns.
    pub oncpu: Vec<Sketch>,
    /// Durations of visits, ns.
    pub durations: Sketch,
    /// Time of visits off the CPU, as a share, by probe.
    pub waiting: Vec<Waiting>,
    /// Mapping events that the kernel dropped: function names may be missing.
    pub mappings_lost: u64,
    /// The first error of writing.
    pub error: Option<WriteError>,
}

impl Rows {
    pub(super) fn new(
        symbolizer: Symbolizer,
        options: &PipelineOptions,
        writer: TraceWriter,
    ) -> Self {
        let estimator = Estimator::new(&options.event_times);
        // What is kept is estimated twice: here, and where it is written.
        let estimator = match options.keep {
            Keep::All => estimator,
            _ => estimator.alone(),
        };
        let rows = Self {
            symbolizer,
            chains: Chains::new(options.max_stack_bytes),
            unwinder: Unwinder::default(),
            has_stacks: options.max_stack_bytes > 0,
            stacks: Stacks::default(),
            stack_ids: Vec::new(),
            writer,
            keeper: Keeper::new(options.keep, options.interval),
            accesses: Accesses::new(options.max_samples),
            watches: options.watches.clone(),
            estimator,
            block: VisitBlock::default(),
            estimates: Vec::new(),
            weight: Some(0),
            estimated_events: Vec::new(),
            waits_from: options.kinds.encounters.then_some(TraceNs(0)),
            waits_matter: options.kinds.encounters_later,
            counted: options.counted.clone(),
            functions: Vec::new(),
            resets: Arc::new(Resets::new(&options.resets)),
            net: Net::new(options),
            pause: Pause::default(),
            met: FxHashSet::default(),
            programs: FxHashMap::default(),
            used: Vec::new(),
            clock_error_ns: 0,
            visits: 0,
            visit_samples: SamplesBy::default(),
            stray_samples: SamplesBy::default(),
            mixed: options.resets.len() > 1,
            page_faults: 0,
            extras: ExtraRecords::default(),
            mark_waits: (0, 0),
            at_marks: AtMarks::default(),
            strays: 0,
            unresolved: 0,
            throttled: 0,
            oncpu_ns: 0,
            oncpu_known: false,
            oncpu: Vec::new(),
            durations: Sketch::default(),
            waiting: Vec::new(),
            mappings_lost: 0,
            error: None,
        };
        rows.estimate_by();
        rows
    }

    /// Passes the current way of estimating visits to the writer.
    fn estimate_by(&self) {
        let (estimator, resets) = (self.estimator.clone(), Arc::clone(&self.resets));
        self.writer.estimate_by(estimate(estimator, resets));
    }

    /// Sets an event's reset value from a time on.
    pub(super) fn reset_changed(&mut self, event: EventId, time: TraceNs, reset: u64) {
        Arc::make_mut(&mut self.resets).change(event, time, reset);
        self.estimate_by();
    }

    /// Sets how long a sample stops the target, once known.
    pub(super) fn pause(&mut self, pause: Pause) {
        if pause != self.pause {
            self.pause = pause;
            self.net.pause(pause);
            self.estimator = std::mem::take(&mut self.estimator).with_pause(pause);
            self.estimate_by();
        }
    }

    /// Begin and end of visits come from samples, not from marks.
    pub(super) fn sampled_bounds(&mut self) {
        self.estimator = std::mem::take(&mut self.estimator).with_sampled_bounds();
        self.estimate_by();
    }

    /// Opens the binaries of a process when it is first seen.
    pub(super) fn meet(&mut self, pid: Pid) {
        if self.met.insert(pid) {
            self.symbolizer.announce(pid);
        }
    }

    /// Whether it has a record of the process, which runs.
    pub(super) fn has_met(&self, pid: Pid) -> bool {
        self.met.contains(&pid)
    }

    /// A process event has arrived.
    pub(super) fn arrived(&mut self, time: TraceNs, event: &SidebandKind) {
        if self.has_stacks {
            self.unwinder.on_event(time, event);
        }
    }

    /// Number of the call stack of a sample or switch, unwound from a copy. `kernel`: its frames in the kernel, and whether
    /// outer ones are missing.
    pub(super) fn unwound(
        &mut self,
        of: (Pid, TraceNs),
        (kernel, is_cut): (impl ExactSizeIterator<Item = u64>, bool),
        stack: Option<&UserStack<'_>>,
    ) -> StackKey {
        let (user, is_short) = match stack {
            Some(stack) => self.unwinder.frames(of, stack, &mut self.symbolizer),
            None => (&[][..], true),
        };
        let shape = (kernel.len(), is_cut || is_short);
        let frames = kernel.chain(user.iter().copied());
        self.chains.key(of.0, shape, frames)
    }

    /// Processes whose addresses change their meaning with a mapping event.
    pub(super) fn concerned(&self, event: &SidebandEvent) -> impl Iterator<Item = Pid> + use<> {
        let pids = match event.what {
            SidebandKind::Mapped { pid, .. }
            | SidebandKind::Comm {
                pid, exec: true, ..
            }
            | SidebandKind::Replaced { pid, .. } => [Some(pid), None],
            SidebandKind::Fork { pid, parent, .. } if pid != parent => [Some(parent), Some(pid)],
            SidebandKind::Exit { pid, tid } if pid.0 == tid.0 => {
                [Some(pid), self.symbolizer.next_dropped()]
            }
            _ => [None, None],
        };
        pids.into_iter().flatten()
    }

    /// Passes a mapping event to the symbolizer. Visits of a process end at an exec.
    pub(super) fn sideband(
        &mut self,
        event: &SidebandEvent,
        correlator: &mut Correlator,
        time: TraceNs,
    ) {
        match &event.what {
            SidebandKind::Mapped { pid, mapping, .. } => {
                self.symbolizer.on_mapping(*pid, mapping.clone());
            }
            SidebandKind::Fork { pid, parent, .. } if pid != parent => {
                self.symbolizer.on_fork(*parent, *pid);
            }
            SidebandKind::Comm {
                pid, exec: true, ..
            } => {
                correlator.end_process(*pid, time, self);
                self.symbolizer.on_exec(*pid);
            }
            SidebandKind::Replaced { pid, earlier } => {
                self.symbolizer.on_fork(*pid, *earlier);
                self.symbolizer.on_exec(*pid);
                self.programs
                    .entry(*pid)
                    .or_default()
                    .push((time, *earlier));
            }
            SidebandKind::Exit { pid, tid } if pid.0 == tid.0 => {
                self.symbolizer.on_exit(*pid);
                self.met.remove(pid);
            }
            SidebandKind::Lost { records } => self.mappings_lost += records,
            _ => {}
        }
    }

    /// Lets the writer do what is due, after writing new names.
    pub(super) fn tick(&mut self, elapsed: Duration) {
        if self.writer.is_due(elapsed) {
            self.flush_block();
        }
        self.flush_functions();
        if self.keeper.is_due(elapsed) {
            self.write_aggregates(elapsed);
        }
        let result = self.writer.tick(elapsed);
        self.check(result);
    }

    /// Hands the kept samples and visits to the writer.
    fn flush_block(&mut self) {
        self.writer.block(&mut self.block);
        self.block.clear();
    }

    /// Writes new functions and call stacks.
    pub(super) fn flush_functions(&mut self) {
        let Self {
            stacks,
            writer,
            error,
            ..
        } = self;
        stacks.take_new(|row| {
            if let Err(failed) = writer.add(row) {
                error.get_or_insert(failed);
            }
        });
        let mut functions = std::mem::take(&mut self.functions);
        self.symbolizer.take_new_functions(&mut functions);
        for row in functions.drain(..) {
            let result = self.writer.add(&row);
            self.check(result);
        }
        self.functions = functions;
    }

    /// Writes the aggregates of the visits closed since the last call.
    pub(super) fn write_aggregates(&mut self, now: Duration) {
        let Self {
            keeper,
            writer,
            error,
            ..
        } = self;
        keeper.end_interval(now, |row| {
            if let Err(failed) = writer.add(row) {
                error.get_or_insert(failed);
            }
        });
    }

    /// Writes everything to the open segments, so that the number of lost rows is known.
    pub(super) fn flush_all(&mut self) {
        self.flush_block();
        self.flush_functions();
        let result = self.writer.flush_all();
        self.check(result);
    }

    /// Writes a loss range.
    pub(super) fn loss(&mut self, row: &LossRow) {
        let result = self.writer.add(row);
        self.check(result);
    }

    /// Writes a loss range; visits that overlap it get the flag.
    pub(super) fn loss_in_visits(&mut self, row: &LossRow, flag: u32, correlator: &mut Correlator) {
        let scope = match flag {
            // A loss of a thread affects it on every CPU.
            visit_flag::LOSS if row.tid.is_some() => LossScope {
                tid: row.tid,
                cpu: None,
            },
            visit_flag::LOSS => LossScope {
                tid: None,
                cpu: row.cpu.and_then(Cpu::known).map(Cpu),
            },
            // A throttled counter may count for other threads, and on other CPUs.
            _ => LossScope::default(),
        };
        correlator.loss((row.begin_ns, row.end_ns), flag, scope);
        self.loss(row);
    }

    /// Writes a loss range for `memory`, if accesses were dropped because too many waited.
    pub(super) fn accesses_left_out(&mut self, end_ns: TraceNs) {
        let left_out = self.accesses.left_out;
        if left_out > 0 {
            self.loss(&LossRow {
                begin_ns: TraceNs(0),
                end_ns,
                cpu: None,
                tid: None,
                reason: "dropped_access".to_owned(),
                records: Some(left_out),
            });
        }
    }

    /// Bytes of the trace on disk.
    pub(super) fn bytes_written(&self) -> u64 {
        self.writer.bytes_written()
    }

    /// Rows that could not be written.
    pub(super) fn lost_rows(&self, table: Table) -> u64 {
        self.writer.lost_rows(table)
    }

    /// Time on the CPU of all visits, ns; `None` if it is known of none.
    pub(super) fn oncpu_ns(&self) -> Option<f64> {
        self.oncpu_known.then_some(self.oncpu_ns as f64)
    }

    pub(super) fn check(&mut self, result: Result<(), WriteError>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    /// Looks up the functions of a thread's samples, which become the current samples of `block`. Returns whether all
    /// have the same [`SampleKind`].
    fn name(&mut self, samples: Samples<'_>, pid: Pid) -> bool {
        let Self {
            block: VisitBlock { samples: block, .. },
            symbolizer,
            programs,
            ..
        } = self;
        let Some(programs) = programs.get(&pid) else {
            return block.name(samples, |ips, names| symbolizer.functions(pid, ips, names));
        };
        let last = (TraceNs(i64::MAX), pid);
        block.name(samples, |ips, (functions, slots)| {
            let mut done = 0;
            for (until, program) in programs.iter().chain([&last]) {
                let end = samples.times.partition_point(|time| time < until).max(done);
                let names = (&mut functions[done..end], &mut slots[done..end]);
                symbolizer.functions(*program, &ips[done..end], names);
                done = end;
            }
        })
    }

    /// Assigns current kernel samples by how the kernel was entered: at a mark, to pebs-trace's own function; else to the
    /// function that stands for theirs there.
    fn assign_entries(&mut self, samples: &Samples<'_>, in_visit: bool) {
        if !SampleKind::any_entry(samples.kinds) {
            return;
        }
        for (at, (kind, ip)) in samples.kinds.iter().zip(samples.ips).enumerate() {
            let Some(entry) = kind.entry() else {
                continue;
            };
            let mut function = match entry {
                KernelEntry::Breakpoint => self.symbolizer.function_of_other_tool(*ip),
                _ => self.block.samples.functions()[at],
            };
            if entry == KernelEntry::Mark && kind.event() == EventId(0) {
                let time = samples.times[at];
                let events = self
                    .resets
                    .events(EventId(0), 1, time, time, || iter::once(time));
                self.at_marks.add(in_visit, events);
            }
            function = self.symbolizer.entered_by(function, entry);
            self.block.samples.rename(at, function);
        }
    }

    /// Assigns current kernel samples taken during the visit's begin or end mark to pebs-trace's own function, where they
    /// don't say how the kernel was entered.
    fn assign_own(&mut self, visit: &ClosedVisit<'_>) {
        let Some((after, before)) = self.net.marks_of(visit.probe) else {
            return;
        };
        let Pause {
            before: into,
            after: out_of,
            spread,
        } = self.pause;
        // A mark's cost varies, too: up to twice the mean counts as its own.
        let slack = 2 * spread;
        let begun = visit.begin.0.0 + into + slack + 2 * after as i64;
        let ends = visit.end.map_or(i64::MAX, |(end, _)| {
            end.0 - out_of - slack - 2 * before as i64
        });
        let samples = visit.samples;
        let first = samples.times.partition_point(|time| time.0 < begun);
        let last = samples
            .times
            .partition_point(|time| time.0 <= ends)
            .max(first);
        for at in (0..first).chain(last..samples.len()) {
            if samples.ips[at].is_kernel() && samples.kinds[at].entry().is_none() {
                let own = self.symbolizer.own_function();
                self.block.samples.rename(at, own);
            }
        }
    }

    /// Looks up the call stack numbers of samples into `stack_ids`; left empty if no sample has a stack.
    fn number_stacks(&mut self, kinds: &[SampleKind], times: &[TraceNs], alike: bool) {
        let Self {
            stacks,
            stack_ids,
            chains,
            symbolizer,
            programs,
            ..
        } = self;
        stack_ids.clear();
        let has_stack = |kind: &SampleKind| kind.stack() != StackKey::NONE;
        let looked_at = if alike { 1 } else { kinds.len() };
        if !kinds.iter().take(looked_at).any(has_stack) {
            return;
        }
        let ids = kinds.iter().zip(times);
        stack_ids.extend(ids.map(|(kind, time)| {
            let key = kind.stack();
            let origin = StackOrigin::Sample(kind.entry());
            match earlier_program(programs, chains.get(key).map(|(pid, _)| pid), *time) {
                Some(program) => stacks.of_program(key, origin, program, chains, symbolizer),
                None => stacks.stack((key, origin), chains, symbolizer),
            }
        }));
    }

    /// Keeps the current samples.
    #[inline]
    fn samples(&mut self, of: &SamplesOf<'_>, pid: Pid) {
        self.number_stacks(of.samples.kinds, of.samples.times, of.alike);
        if !self.accesses.is_empty() {
            self.memory(of, pid);
        }
        self.block.samples.keep(of, &self.stack_ids);
        if self.block.samples.rows() >= ORDERED_ROWS {
            self.flush_block();
        }
        for (cpu, count) in by_cpu(of.samples.kinds, of.alike) {
            match self.used.last_mut() {
                Some(Used::Samples(last, n)) if *last == cpu => *n += count,
                _ => self.used.push(Used::Samples(cpu, count)),
            }
        }
    }

    /// Writes the memory accesses of the current samples.
    #[cold]
    fn memory(&mut self, of: &SamplesOf<'_>, pid: Pid) {
        let named = of.samples.iter().zip(self.block.samples.functions());
        for (n, (sample, function)) in named.enumerate() {
            let (tid, _) = of.thread(n);
            let Some(access) = self.accesses.take(tid, &sample) else {
                continue;
            };
            let program = earlier_program(&self.programs, Some(pid), sample.time).unwrap_or(pid);
            let watch = self.watches.get(usize::from(sample.kind.event().0));
            let watch = watch.copied().flatten();
            let symbolizer = &mut self.symbolizer;
            let accessed = access
                .addr
                .map(|addr| accessed(addr, watch, &sample, &access, program, symbolizer));
            let data = accessed.and_then(|it| symbolizer.data(program, it.addr));
            let (event, time) = (sample.kind.event(), sample.time);
            let reset = self
                .resets
                .events(event, 1, time, time, || iter::once(time));
            let row = self.accesses.row(tid, &sample, *function, &access);
            let result = self.writer.add(&MemoryRow {
                visit_id: of.visit_id,
                events: Some(reset).filter(|reset| *reset > 0).or(row.events),
                pid: Some(pid),
                op: accessed.map_or(row.op, |it| it.op),
                addr: accessed.map(|it| it.addr),
                bytes: accessed.and_then(|it| it.bytes),
                data_symbol: data.as_ref().and_then(|it| it.symbol.as_deref()),
                data_object: data.as_ref().and_then(|it| it.object.as_deref()),
                data_offset: data.as_ref().map(|it| it.offset),
                ..row
            });
            if let Err(error) = result {
                self.error.get_or_insert(error);
            }
        }
    }

    /// Counts samples that are only in the aggregates.
    fn not_kept(&mut self, of: &SamplesOf<'_>) {
        if !self.accesses.is_empty() {
            of.samples.iter().enumerate().for_each(|(n, sample)| {
                self.accesses.take(of.thread(n).0, &sample);
            });
        }
        for (cpu, count) in by_cpu(of.samples.kinds, of.alike) {
            match self.used.last_mut() {
                Some(Used::NotKept(last, n)) if *last == cpu => *n += count,
                _ => self.used.push(Used::NotKept(cpu, count)),
            }
        }
    }

    /// Counts the current samples whose functions have no name.
    fn count_unresolved(&mut self) {
        let functions = self.block.samples.functions().iter();
        let unresolved = functions.filter(|it| !self.symbolizer.is_resolved(**it));
        self.unresolved += unresolved.count() as u64;
    }

    /// Estimates a visit from the current samples, to decide what is kept of it.
    fn estimate(&mut self, visit: &ClosedVisit<'_>) {
        let samples = visit.samples;
        let functions = self.block.samples.functions();
        let timeline = VisitTimeline {
            begin: visit.begin.0,
            end: visit.end.map(|(end, _)| end),
            active: known_active(visit),
            samples: Series {
                times: samples.times,
                functions,
                events: match (self.block.samples.events(), samples.kinds.first()) {
                    ([], Some(first)) => Events::All(first.event()),
                    (events, _) => Events::Each(events),
                },
            },
        };
        self.estimator.estimate(&timeline, &mut self.estimates);
        self.weight = self.resets.of_all(&timeline.samples);
        if self.weight.is_none() {
            let events = &mut self.estimated_events;
            events.clear();
            self.resets
                .events_of(&timeline.samples, &self.estimates, events);
        }
    }

    /// The function in which a thread or goroutine waited, and its state.
    ///
    /// A goroutine that parks calls a function for that, whose caller is the place; one that did not call it has
    /// only lost its thread.
    fn place_of_wait(
        &mut self,
        program: Pid,
        wait: &RawWait,
    ) -> (Option<FunctionId>, &'static str) {
        let function = wait.ip.map(|ip| self.symbolizer.function(program, ip));
        let Some((function, caller)) = function.zip(wait.caller) else {
            return (function, wait.state);
        };
        if self.symbolizer.is_parking(function) {
            let caller = self.symbolizer.function(program, caller);
            return (Some(caller), wait.state);
        }
        match self.symbolizer.is_resolved(function) {
            true => (Some(function), RUNNABLE),
            false => (None, wait.state),
        }
    }

    /// The call stack at which a wait began, of an earlier program or the current one.
    fn stack_of_wait(&mut self, wait: &RawWait, earlier: Option<Pid>) -> Option<StackId> {
        let (chains, symbolizer) = (&self.chains, &mut self.symbolizer);
        let of = (wait.stack, StackOrigin::Wait);
        match earlier {
            Some(program) => self
                .stacks
                .of_program(of.0, of.1, program, chains, symbolizer),
            None => self.stacks.stack(of, chains, symbolizer),
        }
    }

    /// Whether it would be known who ended a wait.
    fn knows(&self, wait: &RawWait) -> bool {
        self.waits_from.is_some_and(|from| wait.begin >= from) || wait.woken.is_some()
    }

    /// Counts how much of its time a visit waited, if that may matter.
    fn waited(&mut self, visit: &ClosedVisit<'_>) {
        let Some((end, _)) = visit.end.filter(|_| self.waits_matter) else {
            return;
        };
        let ns = (end.0 - visit.begin.0.0).max(0).cast_unsigned();
        // What a goroutine waits for is not recorded.
        let of_threads = visit.waits.iter().filter(|it| it.state != PARKED);
        let (mut off_ns, mut waits) = (0, 0);
        for wait in of_threads {
            off_ns += (wait.end.0 - wait.begin.0).max(0).cast_unsigned();
            waits += 1;
        }
        let probe = usize::from(visit.probe.0);
        if probe >= self.waiting.len() {
            self.waiting.resize_with(probe + 1, Waiting::default);
        }
        self.waiting[probe].add(ns, off_ns, waits);
    }

    fn waits(&mut self, visit: &ClosedVisit<'_>, kept: bool) {
        for wait in visit.waits {
            let earlier = earlier_program(&self.programs, Some(visit.pid), wait.begin);
            let program = earlier.unwrap_or(visit.pid);
            let (function_id, state) = self.place_of_wait(program, wait);
            let ns = wait.end.0 - wait.begin.0;
            self.keeper.wait(visit, function_id, state, ns);
            if !kept {
                continue;
            }
            let stack_id = self.stack_of_wait(wait, earlier);
            let (woken_by, waker) = woken(wait);
            let preempted_by = wait.displaced.as_ref().map(Actor::name);
            let result = self.writer.add(&WaitRow {
                visit_id: visit.visit_id,
                item_id: visit.item_id,
                tid: wait.tid,
                begin_ns: wait.begin,
                end_ns: wait.end,
                function_id,
                state,
                cpu_from: wait.from,
                cpu_to: wait.to,
                runnable_ns: wait.runnable_ns().filter(|_| self.knows(wait)),
                woken_by: woken_by.as_deref(),
                woken_by_pid: waker.map(|it| it.pid),
                woken_by_tid: waker.map(|it| it.tid),
                preempted_by: preempted_by.as_deref(),
                preempted_by_pid: wait.displaced.map(|it| it.pid),
                preempted_by_tid: wait.displaced.map(|it| it.tid),
                stack_id,
            });
            self.check(result);
        }
    }
}

/// Name of what ended a wait, and the thread if it was one.
fn woken(wait: &RawWait) -> (Option<Cow<'_, str>>, Option<&Actor>) {
    let woken = wait.woken.as_ref();
    let waker = woken.and_then(|(_, by)| by.as_ref());
    let name = woken.map(|_| waker.map_or(INTERRUPT.into(), Actor::name));
    (name, waker)
}

/// The earlier program that a process ran at a time, by the symbolizer's pid; `None`: its current one.
#[inline]
fn earlier_program(
    programs: &FxHashMap<Pid, Vec<(TraceNs, Pid)>>,
    pid: Option<Pid>,
    time: TraceNs,
) -> Option<Pid> {
    if programs.is_empty() {
        return None;
    }
    let earlier = programs.get(&pid?)?.iter();
    let mut earlier = earlier.filter(|(until, _)| time < *until);
    earlier.next().map(|(_, program)| *program)
}

/// The visit's active intervals; empty if its time on the CPU is unknown (no switches, or time shared with other
/// items).
const fn known_active<'a>(visit: &ClosedVisit<'a>) -> &'a [(TraceNs, TraceNs)] {
    if visit.switches && visit.owns_all() {
        visit.active
    } else {
        &[]
    }
}

/// Runs of samples of the same CPU, as counts; one run if all are of the same kind.
fn by_cpu(mut kinds: &[SampleKind], alike: bool) -> impl Iterator<Item = (Cpu, u64)> {
    iter::from_fn(move || {
        let cpu = kinds.first()?.cpu();
        let elsewhere = |kind: &SampleKind| kind.cpu() != cpu;
        let count = match alike {
            true => None,
            false => kinds.iter().position(elsewhere),
        };
        let count = count.unwrap_or(kinds.len());
        kinds = &kinds[count..];
        Some((cpu, count as u64))
    })
}

impl Sink for Rows {
    fn visit(&mut self, visit: &ClosedVisit<'_>) {
        self.visits += 1;
        if let Some((end, _)) = visit.end {
            let duration = end.0 - visit.begin.0.0;
            self.durations.add(duration.max(0).cast_unsigned());
        }
        self.visit_samples.count(visit.samples.kinds, self.mixed);
        self.page_faults += u64::from(visit.counts.page_faults);
        self.extras += visit.counts.extras;
        self.mark_waits.0 += u64::from(visit.mark_waits.0);
        self.mark_waits.1 += visit.mark_waits.1;
        let samples = visit.samples;
        let alike = self.name(samples, visit.pid);
        self.assign_entries(&samples, true);
        self.assign_own(visit);
        self.count_unresolved();
        let net = self.net.of(visit, &self.resets, &self.writer);
        self.estimates.clear();
        self.weight = Some(0);
        if !self.keeper.keeps_all() && visit.owns_all() {
            self.estimate(visit);
        }
        let net_ns = net.map(|it| it.0);
        let weights = match self.weight {
            Some(weight) => Weights::Same(weight),
            None => Weights::Each(&self.estimated_events),
        };
        let kept = self.keeper.visit(visit, net_ns, &self.estimates, &weights);
        let near = (visit.begin.0, visit.end.map(|(end, _)| end));
        let of = SamplesOf {
            visit_id: Some(visit.visit_id),
            tid: visit.tid,
            threads: visit.threads,
            samples,
            alike,
            near: (self.clock_error_ns > 0).then_some((near.0, near.1, self.clock_error_ns)),
        };
        if kept {
            if let Some(first) = samples.kinds.first() {
                let key = VisitKey {
                    visit_id: visit.visit_id,
                    item_id: visit.item_id,
                    tid: visit.tid,
                };
                let ends = (visit.begin.0, visit.end.map(|(end, _)| end));
                let active = known_active(visit);
                self.block.visit(key, ends, active, first.event());
            }
            self.samples(&of, visit.pid);
        } else {
            self.not_kept(&of);
        }
        self.waited(visit);
        self.waits(visit, kept);
        self.batch(visit);
        self.counts(visit);
        let oncpu = visit.oncpu_ns();
        if let Some(oncpu_ns) = visit.least_oncpu_ns() {
            self.oncpu_ns += oncpu_ns;
            self.oncpu_known = true;
            let probe = usize::from(visit.probe.0);
            if probe >= self.oncpu.len() {
                self.oncpu.resize_with(probe + 1, Sketch::default);
            }
            self.oncpu[probe].add(oncpu_ns.max(0).cast_unsigned());
        }
        let interference = &visit.interference;
        // Field by field, as a row literal would be built on the stack and copied; taken apart, so that none is forgotten.
        let result = self.writer.visit_with(
            visit.args,
            |VisitRow {
                 visit_id,
                 item_id,
                 probe_id,
                 pid,
                 tid,
                 cpu_begin,
                 cpu_end,
                 begin_ns,
                 end_ns,
                 duration_ns,
                 oncpu_ns,
                 net_ns,
                 net_stderr_ns,
                 samples,
                 flags,
                 switches,
                 migrations,
                 page_faults,
                 irq_ns,
                 softirq_ns,
                 fault_ns,
                 reclaim_ns,
                 major_faults,
                 shared_ns,
                 idle_ns,
             }| {
                *visit_id = visit.visit_id;
                *item_id = visit.item_id;
                *probe_id = visit.probe;
                *pid = visit.pid;
                *tid = visit.tid;
                *cpu_begin = visit.begin.1;
                *cpu_end = visit.end.and_then(|(_, cpu)| cpu);
                *begin_ns = visit.begin.0;
                *end_ns = visit.end.map(|(end, _)| end);
                *duration_ns = visit.end.map(|(end, _)| end.0 - visit.begin.0.0);
                *oncpu_ns = oncpu;
                *net_ns = net.map(|it| it.0);
                *net_stderr_ns = net.map(|it| it.1);
                *samples = visit.samples.len() as u32;
                *flags = visit.flags | if kept { 0 } else { visit_flag::CONDENSED };
                *switches = visit.switches();
                *migrations = visit.migrations();
                *page_faults = visit.page_faults();
                *irq_ns = interference.irq_ns;
                *softirq_ns = interference.softirq_ns;
                *fault_ns = interference.fault_ns;
                *reclaim_ns = interference.reclaim_ns;
                *major_faults = interference.major_faults;
                *shared_ns = visit.shared_ns();
                *idle_ns = visit.idle_ns();
            },
        );
        self.check(result);
    }

    fn interval(&mut self, counts: &IntervalCounts<'_>, whole: bool) {
        self.interval_counts(counts, whole);
    }

    fn strays(&mut self, samples: Samples<'_>, pid: Pid, tid: Tid) {
        self.strays += samples.len() as u64;
        self.stray_samples.count(samples.kinds, self.mixed);
        let alike = self.name(samples, pid);
        self.assign_entries(&samples, false);
        self.count_unresolved();
        let of = SamplesOf {
            visit_id: None,
            tid,
            threads: &[],
            samples,
            alike,
            near: None,
        };
        if !self.keeper.keeps_all() {
            return self.not_kept(&of);
        }
        self.samples(&of, pid);
    }

    fn other_wait(&mut self, pid: Pid, wait: &RawWait) {
        if self.waits_from.is_none_or(|from| wait.end < from) {
            return;
        }
        let earlier = earlier_program(&self.programs, Some(pid), wait.begin);
        let (function_id, state) = self.place_of_wait(earlier.unwrap_or(pid), wait);
        let stack_id = self.stack_of_wait(wait, earlier);
        let (woken_by, waker) = woken(wait);
        let preempted_by = wait.displaced.as_ref().map(Actor::name);
        let result = self.writer.add(&OtherWaitRow {
            pid,
            tid: wait.tid,
            begin_ns: wait.begin,
            end_ns: wait.end,
            function_id,
            state,
            runnable_ns: wait.runnable_ns(),
            woken_by: woken_by.as_deref(),
            woken_by_pid: waker.map(|it| it.pid),
            woken_by_tid: waker.map(|it| it.tid),
            preempted_by: preempted_by.as_deref(),
            preempted_by_pid: wait.displaced.map(|it| it.pid),
            preempted_by_tid: wait.displaced.map(|it| it.tid),
            stack_id,
        });
        self.check(result);
    }

    fn lost(&mut self, cpu: Cpu, what: Lost, reason: Reason) {
        self.used.push(Used::Lost(cpu, what, reason));
    }

    fn throttled(&mut self, range: &Throttled) {
        self.throttled += 1;
        self.loss(&LossRow {
            begin_ns: range.begin,
            end_ns: range.end,
            cpu: Some(range.cpu),
            tid: Some(range.tid),
            reason: "throttled".to_owned(),
            records: None,
        });
    }
}
