//! From ordered records to visits with their samples and waits.
//!
//! A state machine per thread. A thread has a list of open visits, in the order of their begin marks; at most one is
//! *current*: the thread's samples and its time on the CPU belong to it. Of nested calls it is the last one, and when
//! that closes, the one before it is current again. While several items matched by id are open, the current one is the
//! item of the last resume mark, or none: see `turns`. So nested calls and overlapping items never count the same
//! instant twice.
//!
//! Invariant: the records of a thread come in time order, and so do shared records, which concern several threads; a
//! thread is brought up to the time of a shared record before that record is handled. Nothing here reads a file, a
//! clock or a symbol.

mod batch;
mod counts;
mod fast_visits;
mod frames;
mod goroutines;
mod interrupts_and_faults;
mod intervals;
mod loss;
mod marked;
mod marks;
mod orphan_ends;
mod own;
mod runs;
mod thread;
mod threads;
mod throttle;
mod turns;
mod visit;

use rustc_hash::FxHashMap;

pub use batch::Batch;
use counts::Counted;
pub use counts::{Count, EventCounts};
pub use interrupts_and_faults::ExtraRecords;
pub use intervals::IntervalCounts;
use loss::VisitThread;
pub use loss::{LossRanges, LossScope};
pub use throttle::{LONGEST_TICK_NS, Throttled};
pub use visit::{
    ClosedVisit, Counts, MarkTime, MarkTimes, OpenLoad, OwnWork, PARKED, RUNNABLE, RawWait,
};

use crate::estimate::cold::Coldness;
use crate::ledger::Reason;
use crate::probe::set::{ArgField, ProbeSet};
use crate::spec::expr::Type;
use crate::store::run::VisitRule;
use crate::store::schema::visit_flag;
use crate::stream::decode::{Body, Interferences, Payloads, Record};
use crate::stream::order::{Lane, Parts, Ready, Turn};
use crate::stream::sample::{BareSample, SampleKind, SamplesBy};
use crate::stream::samples::{RawSamples, Samples};
use crate::units::{Cpu, EventId, Pid, ProbeId, Tid, TraceNs};
use fast_visits::Scratch;
use goroutines::Goroutines;
use intervals::Intervals;
use marked::Marked;
use marks::MarkAt;
use runs::Runs;
use thread::{Thread, ThreadOptions};
use threads::Threads;
use throttle::{Sign, Throttles};
use visit::OpenVisit;

/// Rules by which a probe's marks make visits, and the layout of their arguments.
#[derive(Clone, Debug)]
struct ProbeRule {
    rule: VisitRule,
    /// Whether its marks are resume marks: they make no visits, but say which item the thread turns to.
    resumes: bool,
    has_id: bool,
    batch: Option<Type>,
    begin_fields: Vec<ArgField>,
    end_fields: Vec<ArgField>,
}

/// Settings of a [`Correlator`].
#[derive(Clone, Copy, Debug)]
pub struct CorrelateOptions {
    /// Whether switches are recorded; without them, time on the CPU is unknown.
    pub switches: bool,
    /// Whether waits of threads are handed on while they are at no visit.
    pub other_waits: bool,
    /// Whether page faults are recorded.
    pub page_faults: bool,
    /// Interrupt and fault times that are recorded.
    pub interference: Interferences,
    /// Number of events counted for each visit.
    pub counters: usize,
    /// Length of the intervals in which they are counted as well, ns; 0: no intervals.
    pub count_interval_ns: i64,
    /// Whether only samples in user mode have the item's id, where samples have one.
    pub ids_in_user_mode: bool,
    /// Events whose samples count as own work, by bit: those whose cost is not like that of the others are left out.
    pub costly_events: u64,
    /// Most samples held for open visits; beyond that, samples are dropped and counted.
    pub max_samples: usize,
}

/// Receives closed visits, samples outside of visits, and records that could not be used.
pub trait Sink {
    fn visit(&mut self, visit: &ClosedVisit<'_>);
    /// Takes samples of a thread that belong to no visit.
    fn strays(&mut self, samples: Samples<'_>, pid: Pid, tid: Tid);
    /// Takes a wait of a thread while no visit was current; with [`CorrelateOptions::other_waits`].
    fn other_wait(&mut self, _pid: Pid, _wait: &RawWait) {}
    /// Takes note of a record that could not be used.
    fn lost(&mut self, cpu: Cpu, what: Lost, reason: Reason);
    /// Takes the finished interval of a thread. `whole`: no counts of it are missing.
    fn interval(&mut self, _counts: &IntervalCounts<'_>, _whole: bool) {}
    /// Takes a range in which the kernel had stopped a counter.
    fn throttled(&mut self, _range: &Throttled) {}
}

/// Kind of a record that could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    Sample,
    Mark,
}

/// Key of an item that is matched by id.
type IdKey = (ProbeId, Pid, u64);

/// The state of all threads.
#[derive(Debug)]
pub struct Correlator {
    probes: Vec<ProbeRule>,
    columns: usize,
    options: CorrelateOptions,
    /// Time that marks take, by probe.
    mark_times: Vec<MarkTimes>,
    coldness: Coldness,
    threads: Threads,
    /// Thread of each open visit that is matched by id.
    by_id: FxHashMap<IdKey, Tid>,
    /// Goroutines with open visits.
    goroutines: Goroutines,
    /// Whether any probe makes resume marks.
    resumes: bool,
    /// Time on the CPU that is of no single item, of threads that have ended, ns.
    shared_ns: i64,
    /// State of the visits made from sampled ids, or of the turns of visits made from marks; `None` if samples have no ids.
    runs: Option<Runs>,
    /// Visits made from marks whose turns samples show, if there are any.
    marked: Option<Marked>,
    /// Counts in intervals, if asked for.
    intervals: Option<Intervals>,
    losses: LossRanges,
    /// Time from which begin marks may be missing, because the recording is ending.
    stopping: TraceNs,
    throttles: Throttles,
    next_visit: u64,
    next_item: Vec<u64>,
    /// The same at the start, or after the last pause.
    first_item: Vec<u64>,
    held: usize,
    /// Missing switch-in events within visits.
    pub missing_switches: u64,
    /// Processes that died of a signal that a probe can cause.
    pub crashes: Vec<Crash>,
    /// Samples in time that is of no single item, because several were open.
    pub shared_samples: u64,
    /// Number of resume marks for an item that was open on another thread.
    pub resumed_elsewhere: u64,
    pool: Vec<OpenVisit>,
    /// Buffers of the fast path.
    scratch: Scratch,
}

/// Most processes whose crash is kept.
const MAX_CRASHES: usize = 64;

/// A process that died of a signal that a probe can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    pub pid: Pid,
    pub signal: u8,
}

impl Crash {
    /// Whether a program gets this signal for an instruction that it executes: SIGILL, SIGTRAP, SIGBUS or SIGSEGV.
    #[must_use]
    pub fn is_one(signal: u8) -> bool {
        Self::name_of(signal).is_some()
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        Self::name_of(self.signal).unwrap_or("a signal")
    }

    fn name_of(signal: u8) -> Option<&'static str> {
        Some(match i32::from(signal) {
            libc::SIGILL => "SIGILL",
            libc::SIGTRAP => "SIGTRAP",
            libc::SIGBUS => "SIGBUS",
            libc::SIGSEGV => "SIGSEGV",
            _ => return None,
        })
    }
}

/// Whether no record of an interval is missing.
fn is_whole(interval: &IntervalCounts<'_>, losses: &LossRanges) -> bool {
    let (begin, end) = interval.seen;
    let who = VisitThread {
        tid: Some(interval.tid),
        stayed: interval.stayed,
    };
    let flags = losses.flags(begin, end, who);
    flags & visit_flag::LOSS == 0 && !interval.events.incomplete
}

impl Correlator {
    /// Returns a correlator for the probes of a run.
    #[must_use]
    pub fn new(set: &ProbeSet, options: CorrelateOptions) -> Self {
        let probes: Vec<ProbeRule> = set
            .probes
            .iter()
            .map(|probe| ProbeRule {
                rule: probe.rule,
                resumes: probe.resumes,
                has_id: probe.has_id,
                batch: probe.batch,
                begin_fields: probe.begin_fields.clone(),
                end_fields: probe.end_fields.clone(),
            })
            .collect();
        Self {
            next_item: vec![1; probes.len()],
            first_item: vec![1; probes.len()],
            resumes: probes
                .iter()
                .any(|probe| probe.resumes && !probe.rule.is_of_goroutine()),
            shared_ns: 0,
            shared_samples: 0,
            resumed_elsewhere: 0,
            mark_times: vec![MarkTimes::default(); probes.len()],
            coldness: Coldness::default(),
            probes,
            columns: set.columns.len(),
            options,
            threads: Threads::default(),
            by_id: FxHashMap::default(),
            goroutines: Goroutines::default(),
            runs: set
                .item
                .as_ref()
                .map(|item| Runs::new(item.config.none, options.ids_in_user_mode)),
            marked: set.is_marked_and_sampled().then(Marked::default),
            intervals: (options.count_interval_ns > 0)
                .then(|| Intervals::new(options.count_interval_ns, options.counters)),
            losses: LossRanges::default(),
            stopping: TraceNs(i64::MAX),
            throttles: Throttles::default(),
            next_visit: 1,
            held: 0,
            missing_switches: 0,
            crashes: Vec::new(),
            pool: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Sets the time that marks take, by probe, and how they tell that they take longer. Call it before the first record; the
    /// default is 0.
    pub fn mark_times(&mut self, times: &[MarkTimes], coldness: Coldness) {
        self.coldness = coldness;
        for (mine, time) in self.mark_times.iter_mut().zip(times) {
            *mine = *time;
        }
    }

    /// Flags the visits that overlap this range and may have lost records in it: open ones and later ones.
    pub fn loss(&mut self, (begin, end): (TraceNs, TraceNs), flag: u32, scope: LossScope) {
        self.losses.add(begin, end, flag, scope);
    }

    /// Sets the begin of interval 0 (`--count-interval`). Call it before the first record.
    pub const fn count_from(&mut self, time: TraceNs) {
        if let Some(intervals) = &mut self.intervals {
            intervals.begin_at(time);
        }
    }

    /// Marks the end of the recording: begin marks may be missing from `time` on.
    pub const fn stopping(&mut self, time: TraceNs) {
        self.stopping = time;
    }

    #[must_use]
    pub fn open_visits(&self) -> usize {
        self.threads
            .iter()
            .map(|(_, thread)| thread.visits.len())
            .sum::<usize>()
            + self.goroutines.parked().count()
            + self.marked.as_ref().map_or(0, Marked::len)
    }

    /// Handles all ready records before `until`.
    pub fn advance(&mut self, ready: &mut Ready<'_>, until: TraceNs, sink: &mut impl Sink) {
        self.take_shared(ready, until, sink);
        ready
            .parts()
            .each(|lane, payloads| self.run(lane, payloads, until, sink));
        self.close_ended(None, sink);
    }

    /// Like [`Correlator::advance`], for the threads of one process. Cost: these threads.
    pub fn advance_process(
        &mut self,
        ready: &mut Ready<'_>,
        (pid, until): (Pid, TraceNs),
        sink: &mut impl Sink,
    ) {
        self.take_shared(ready, until, sink);
        ready
            .parts()
            .each_of(pid, |lane, payloads| self.run(lane, payloads, until, sink));
        self.close_ended(Some(pid), sink);
    }

    fn take_shared(&mut self, ready: &mut Ready<'_>, until: TraceNs, sink: &mut impl Sink) {
        while let Some(record) = ready.next_shared(until) {
            let mut parts = ready.parts();
            self.bring_up(&record, &mut parts, sink);
            self.push(&record, parts.payloads, sink);
        }
    }

    /// Brings the threads that a shared record concerns up to its time.
    fn bring_up(&mut self, record: &Record, parts: &mut Parts<'_>, sink: &mut impl Sink) {
        let Record { time, pid, tid, .. } = *record;
        let Body::Mark { probe, id, sp, .. } = record.body else {
            return parts.each(|lane, payloads| self.run(lane, payloads, time, sink));
        };
        let owner = match self.probes.get(usize::from(probe.0)) {
            Some(rule) if rule.rule.is_of_goroutine() => {
                self.goroutines.thread_of(rule.resumes, (pid, id, sp))
            }
            Some(rule) if rule.resumes => self.owner_of(pid, id),
            _ => id.and_then(|id| self.by_id.get(&(probe, pid, id)).copied()),
        };
        let payloads = parts.payloads;
        for tid in [Some(tid), owner.filter(|owner| *owner != tid)] {
            if let Some(lane) = tid.and_then(|tid| parts.lane(pid, tid)) {
                self.run(lane, payloads, time, sink);
            }
        }
    }

    /// Handles the records of a thread before `until`.
    fn run(&mut self, lane: &mut Lane, payloads: &Payloads, until: TraceNs, sink: &mut impl Sink) {
        let thread = (lane.pid, lane.tid);
        loop {
            if self.whole_visit(lane, payloads, until, sink) {
                continue;
            }
            let Some(turn) = lane.next(until) else {
                break;
            };
            match turn {
                Turn::Samples(samples) if self.runs.is_some() => {
                    self.samples_with_ids(thread, samples, sink);
                }
                Turn::Record(record) if self.runs.is_some() => self.hold(record, payloads, sink),
                Turn::Samples(samples) => self.samples(thread, samples, sink),
                Turn::Record(record) => self.push(record, payloads, sink),
            }
        }
    }

    /// Sums up the visits that are open. Samples in time that items share count as the first event's; where there are
    /// several events the samples of a visit are `mixed`.
    ///
    /// Cost: their intervals on the CPU, and their samples if these are mixed.
    #[must_use]
    pub fn open_load(&self, until: TraceNs, mixed: bool) -> OpenLoad {
        let mut load = OpenLoad {
            samples: SamplesBy::of_event(EventId(0), self.shared_samples),
            oncpu_ns: self.shared_ns,
            ..OpenLoad::default()
        };
        let threads = self.threads.iter();
        load.oncpu_ns += threads
            .map(|(_, it)| it.turns.shared_ns(until))
            .sum::<i64>();
        let on_threads = self.threads.iter().flat_map(|(_, thread)| &thread.visits);
        for visit in on_threads.chain(self.goroutines.parked()) {
            let settled = self.runs.as_ref().and_then(|runs| runs.last(visit.tid));
            let until = settled.map_or(until, |last| last.min(until));
            load.oncpu_ns += visit.active_ns(until);
            load.page_faults += u64::from(visit.counts.page_faults);
            load.extras += visit.counts.extras;
            load.samples.count(visit.samples.samples().kinds, mixed);
        }
        for turn in self.marked.iter().flat_map(Marked::turns) {
            let active = turn.active.iter().map(|(begin, end)| end.0 - begin.0);
            load.oncpu_ns += active.sum::<i64>();
            load.samples.count(turn.samples.samples().kinds, mixed);
        }
        load
    }

    /// Handles one record.
    pub fn push(&mut self, record: &Record, payloads: &Payloads, sink: &mut impl Sink) {
        let (pid, tid, time, cpu) = (record.pid, record.tid, record.time, record.cpu);
        if !self.throttles.is_empty() {
            self.end_throttles(time, None, sink);
        }
        match record.body {
            Body::Mark {
                probe,
                role,
                stepped,
                ran_ns,
                id,
                sp,
                args,
            } => {
                self.mark(
                    role,
                    &MarkAt {
                        record,
                        probe,
                        stepped,
                        ran_ns,
                        id,
                        sp,
                        args,
                        payloads,
                    },
                    sink,
                );
            }
            Body::SwitchOut {
                ip,
                state,
                preempted,
                stack,
            } => {
                let thread = if self.options.other_waits {
                    let options = self.thread_options();
                    let new = || Thread::new(pid, cpu, options);
                    Some(self.threads.or_insert_with(tid, new))
                } else {
                    self.threads.get_mut(tid)
                };
                if let Some(thread) = thread {
                    let off = thread::Off::new(ip, state, preempted).at(stack);
                    self.missing_switches += u64::from(thread.switch_out(time, cpu, off));
                }
                if let Some(intervals) = &mut self.intervals {
                    intervals.leaves(tid);
                }
            }
            Body::SwitchIn => {
                if let Some(intervals) = &mut self.intervals {
                    intervals.takes(tid);
                }
                if let Some(thread) = self.threads.get_mut(tid) {
                    thread.switch_in(time, cpu);
                    let waits = thread.take_other_waits();
                    waits.for_each(|wait| sink.other_wait(pid, &RawWait { tid, ..wait }));
                }
            }
            Body::Wake { by } => {
                if let Some(thread) = self.threads.get_mut(tid) {
                    thread.wake(time, by);
                }
            }
            Body::Displace { by } => {
                if let Some(thread) = self.threads.get_mut(tid) {
                    thread.displace(by);
                }
            }
            Body::Interference { which, ns } => {
                if let Some(thread) = self.threads.get_mut(tid) {
                    thread.interference(time, cpu, (which, ns));
                }
            }
            Body::Counts {
                ns,
                words,
                times,
                tick,
            } => {
                let words = payloads.get(words);
                let counted = Counted {
                    ns,
                    words,
                    times,
                    tick,
                };
                if let Some(thread) = self.threads.get_mut(tid)
                    && self.options.counters > 0
                {
                    thread.counted(time, cpu, &counted);
                }
                if tick && let Some(thread) = self.threads.get_mut(tid) {
                    thread.ticked();
                }
                if let Some(intervals) = &mut self.intervals {
                    let losses = &self.losses;
                    intervals.counted((pid, tid, cpu), time, &counted, &mut |it| {
                        sink.interval(it, is_whole(it, losses));
                    });
                }
            }
            Body::Fork { tid: child, pid } => {
                if let Some(intervals) = &mut self.intervals {
                    intervals.born((pid, child), time);
                }
            }
            Body::Exec { .. } => self.end_process(pid, time, sink),
            Body::Exit { signal, last } => {
                let is_known = |crash: &Crash| crash.pid == pid;
                if Crash::is_one(signal)
                    && self.crashes.len() < MAX_CRASHES
                    && !self.crashes.iter().any(is_known)
                {
                    self.crashes.push(Crash { pid, signal });
                }
                self.end_thread(tid, time, sink);
                if last {
                    self.end_items(pid, time);
                    self.end_parked(Some(pid), (visit_flag::THREAD_ENDED, time), sink);
                }
                if let Some(intervals) = &mut self.intervals {
                    let losses = &self.losses;
                    intervals.ends(tid, &mut |it| sink.interval(it, is_whole(it, losses)));
                }
            }
            Body::Throttle { event } => {
                let sign = Sign {
                    time,
                    cpu,
                    tid,
                    event,
                };
                self.end_throttles(time, Some(sign), sink);
                self.throttles.stop(sign);
            }
        }
    }

    const fn thread_options(&self) -> ThreadOptions {
        ThreadOptions {
            resumes: self.resumes,
            other_waits: self.options.other_waits,
        }
    }

    /// Reports the counters that have resumed by `time`, and flags their ranges.
    fn end_throttles(&mut self, time: TraceNs, sign: Option<Sign>, sink: &mut impl Sink) {
        while let Some(range) = self.throttles.next_over(time, sign) {
            self.losses.add(
                range.begin,
                range.end,
                visit_flag::THROTTLED,
                LossScope::default(),
            );
            sink.throttled(&range);
        }
    }

    /// Closes the visits of all threads of a process that ended or replaced its program.
    pub fn end_process(&mut self, pid: Pid, time: TraceNs, sink: &mut impl Sink) {
        // A visit that began later belongs to the new program: this record came late.
        let is_old = |thread: &Thread| thread.visits.iter().all(|visit| visit.begin <= time);
        let of_process =
            |(tid, thread): (Tid, &Thread)| (thread.pid == pid && is_old(thread)).then_some(tid);
        let gone: Vec<Tid> = self.threads.iter().filter_map(of_process).collect();
        gone.into_iter()
            .for_each(|tid| self.end_thread(tid, time, sink));
        self.end_items(pid, time);
        self.end_parked(Some(pid), (visit_flag::THREAD_ENDED, time), sink);
    }

    /// Closes every visit that is still open. `end` is the end of the trace.
    pub fn finish(&mut self, end: TraceNs, sink: &mut impl Sink) {
        self.settle_runs(sink);
        if let Some(intervals) = &mut self.intervals {
            let losses = &self.losses;
            intervals.finish(&mut |it| sink.interval(it, is_whole(it, losses)));
        }
        self.close_threads(visit_flag::OPEN_AT_END, end, sink);
        self.finish_items(end, sink);
        self.end_parked(None, (visit_flag::OPEN_AT_END, end), sink);
        while let Some(mut range) = self.throttles.next_over(TraceNs(i64::MAX), None) {
            range.end = range.end.min(end.max(range.begin));
            sink.throttled(&range);
        }
    }

    /// Closes everything that is open, as neither marks nor samples come until the recording goes on: then threads are as
    /// at its start. All records up to then were handled.
    pub fn pause(&mut self, at: TraceNs, sink: &mut impl Sink) {
        self.settle_runs(sink);
        self.close_threads(visit_flag::END_MISSING, at, sink);
        self.pause_items(at, sink);
        self.end_parked(None, (visit_flag::END_MISSING, at), sink);
        self.first_item.clone_from(&self.next_item);
    }

    /// Closes the visits of all threads, which get the flag, and forgets the threads.
    fn close_threads(&mut self, flag: u32, at: TraceNs, sink: &mut impl Sink) {
        let mut tids: Vec<Tid> = self.threads.iter().map(|(tid, _)| tid).collect();
        tids.sort_unstable();
        for tid in tids {
            let Some(mut thread) = self.threads.remove(tid) else {
                continue;
            };
            while let Some(mut visit) = thread.close_last(at) {
                visit.flags |= flag;
                self.close(visit, None, at, sink);
            }
            self.shared_ns += thread.turns.shared_ns(at);
        }
    }

    /// Handles consecutive samples of a thread, with no other record between them.
    pub fn samples(
        &mut self,
        (pid, tid): (Pid, Tid),
        mut raw: RawSamples<'_>,
        sink: &mut impl Sink,
    ) {
        if !self.throttles.is_empty() {
            for sample in raw.samples.iter() {
                self.end_throttles(sample.time, Some(sign_of(tid, &sample)), sink);
            }
        }
        let of_one_cpu = raw.samples.are_of_one_cpu();
        while let (Some(first), Some(sp)) = (raw.samples.get(0), raw.sps.first()) {
            let Some(thread) = self.threads.get_mut(tid) else {
                break;
            };
            let cpu = first.kind.cpu();
            thread.on_cpu(first.time, cpu);
            // Samples before the first that shows a frame gone; if the first one does, it is handled below.
            let mut inside = thread.inside_frame(raw.sps, &self.probes);
            if !of_one_cpu {
                // The CPU changed, but the switch records are missing.
                let elsewhere = |kind: &SampleKind| kind.cpu() != cpu;
                let stayed = raw.samples.kinds.iter().position(elsewhere);
                inside = inside.min(stayed.unwrap_or(raw.sps.len()));
            }
            if inside == 0 {
                if thread.leave_scopes(*sp, first.time) {
                    continue;
                }
                let gone = thread.frames_gone(*sp, &self.probes);
                (0..gone).for_each(|_| self.unwind_last(tid, first.time, sink));
                continue;
            }
            if thread.visits.is_empty() {
                break;
            }
            let is_shared = thread.turns.is_shared();
            let (now, later) = raw.split_at(inside);
            thread.own.so_far.samples += costly(now.samples.kinds, self.options.costly_events);
            let Some(current) = thread.current() else {
                self.shared_samples += if is_shared {
                    now.samples.len() as u64
                } else {
                    0
                };
                sink.strays(now.samples, pid, tid);
                raw = later;
                continue;
            };
            let room = self.options.max_samples.saturating_sub(self.held);
            let (kept, dropped) = now.samples.split_at(room);
            self.held += kept.len();
            current.samples.extend(kept);
            if !dropped.is_empty() {
                current.flags |= visit_flag::LOSS;
            }
            for kind in dropped.kinds {
                sink.lost(kind.cpu(), Lost::Sample, Reason::DroppedMemory);
            }
            raw = later;
        }
        if !raw.samples.is_empty() {
            sink.strays(raw.samples, pid, tid);
        }
    }

    fn end_thread(&mut self, tid: Tid, time: TraceNs, sink: &mut impl Sink) {
        self.forget_run(tid, time, sink);
        let Some(mut thread) = self.threads.remove(tid) else {
            return;
        };
        while let Some(mut visit) = thread.close_last(time) {
            visit.flags |= visit_flag::THREAD_ENDED;
            self.threads.insert(tid, thread);
            self.close(visit, Some((time, None)), time, sink);
            let Some(same) = self.threads.remove(tid) else {
                return;
            };
            thread = same;
        }
        self.shared_ns += thread.turns.shared_ns(time);
    }

    /// Returns the only CPU that a visit's thread was on, if that is known.
    fn stayed_on(&self, visit: &OpenVisit, end: Option<(TraceNs, Option<Cpu>)>) -> Option<Cpu> {
        // Switches within nested visits are counted there. Marks matched by id or by goroutine and samples that make
        // visits may be lost on other CPUs.
        let rule = self.probes[usize::from(visit.probe.0)].rule;
        let alone = visit.flags & (visit_flag::OVERLAPPED | visit_flag::ENDED_ELSEWHERE) == 0
            && rule != VisitRule::ById
            && !rule.is_of_goroutine()
            && self.runs.is_none();
        let (_, last) = end?;
        let stayed = self.options.switches && visit.counts.switches == 0 && last == Some(visit.cpu);
        visit.cpu.known().filter(|_| alone && stayed).map(Cpu)
    }

    /// Hands a closed visit to the sink and returns it to the pool. `seen` is the end of what is known of it.
    fn close(
        &mut self,
        mut visit: OpenVisit,
        end: Option<(TraceNs, Option<Cpu>)>,
        seen: TraceNs,
        sink: &mut impl Sink,
    ) {
        if self.marked.is_some() && visit.flags & visit_flag::SAMPLED_BOUNDS != 0 {
            return self.add_turns(visit, end.map_or(seen, |it| it.0), sink);
        }
        if let Some(id) = visit.id
            && self.probes[visit.probe.0 as usize].rule == VisitRule::ById
        {
            self.by_id.remove(&(visit.probe, visit.pid, id));
        }
        self.goroutines.closed(&visit);
        let who = VisitThread {
            tid: Some(visit.tid).filter(|_| visit.threads.is_empty()),
            stayed: self.stayed_on(&visit, end),
        };
        visit.flags |= self.losses.flags(visit.begin, seen, who);
        if self.throttles.overlap(visit.begin, seen) {
            visit.flags |= visit_flag::THROTTLED;
        }
        self.held -= visit.samples.len();
        sink.visit(&visit.closed(self.next_visit, end, self.options));
        self.next_visit += 1;
        self.pool.push(visit);
    }
}

/// Number of samples of some events, by bit.
#[inline]
fn costly(kinds: &[SampleKind], events: u64) -> u64 {
    match events {
        u64::MAX => kinds.len() as u64,
        _ => {
            let is_one = |kind: &&SampleKind| events >> (kind.event().0 & 63) & 1 == 1;
            kinds.iter().filter(is_one).count() as u64
        }
    }
}

/// Returns what a sample shows about its counter.
const fn sign_of(tid: Tid, sample: &BareSample) -> Sign {
    Sign {
        time: sample.time,
        cpu: sample.kind.cpu(),
        tid,
        event: sample.kind.event(),
    }
}

#[cfg(test)]
mod tests;
