//! From ordered records to visits with their samples and waits.
//!
//! A state machine per thread. A thread has a list of open visits, in the order of their begin
//! marks; the last one is *current*: the thread's samples and its time on the CPU belong to it.
//! When it closes, the one before it is current again. So nested calls and overlapping items never
//! count the same instant twice.
//!
//! Invariant: the records of a thread come in time order; so do those that concern several threads, and
//! a thread is brought up to the time of such a record before it is used. Nothing here reads a file, a
//! clock or a symbol.

mod batch;
mod before;
mod interference;
mod loss;
mod runs;
mod thread;
mod threads;
mod throttle;
mod visit;

use pebs_common::record::Role;
use rustc_hash::FxHashMap;

pub use crate::stream::decode::RawSample;
pub use batch::Batch;
pub use interference::{ExtraRecords, Interferences};
pub use loss::LossRanges;
pub use throttle::{LONGEST_TICK_NS, Throttled};
pub use visit::{ClosedVisit, Counts, OpenLoad, RawWait};

use crate::store::schema::{ArgType, ArgValue, visit_flag};
use crate::stream::decode::{ArgBytes, Body, Payloads, Record};
use crate::stream::ledger::Reason;
use crate::stream::order::{Lane, Parts, Ready, Turn};
use crate::target::expr::Type;
use crate::target::probe::{ArgField, ProbeSet, VisitRule};
use crate::units::{Cpu, Pid, ProbeId, Tid, TraceNs};
use runs::Runs;
use thread::Thread;
use threads::Threads;
use throttle::{Sign, Throttles};
use visit::OpenVisit;

/// Open visits of one thread at most. More than any event loop serves at once; what goes beyond are
/// items whose end is never marked, which must not fill the memory.
const MAX_OPEN: usize = 1 << 16;

/// How a probe's marks make visits, and what their arguments mean.
#[derive(Clone, Debug)]
struct ProbeRule {
    rule: VisitRule,
    has_id: bool,
    batch: Option<Type>,
    begin_fields: Vec<ArgField>,
    end_fields: Vec<ArgField>,
}

/// Settings of a [`Correlator`].
#[derive(Clone, Copy, Debug)]
pub struct CorrelateOptions {
    /// Whether switches are recorded: without them, time on the CPU is unknown.
    pub switches: bool,
    /// Whether page faults are recorded.
    pub page_faults: bool,
    /// What else that comes between threads and their work is recorded.
    pub interference: Interferences,
    /// Samples held for open visits at most; beyond that, samples are dropped and counted.
    pub max_samples: usize,
}

/// What comes out: visits that closed, samples that belong to none, and what could not be used.
pub trait Sink {
    /// A visit closed. The visit's buffers are used again afterwards.
    fn visit(&mut self, visit: &ClosedVisit);
    /// Samples of a thread that belong to no visit.
    fn strays(&mut self, samples: &[RawSample], pid: Pid, tid: Tid);
    /// A record that could not be used.
    fn lost(&mut self, cpu: Cpu, what: Lost, reason: Reason);
    /// The kernel had stopped a counter.
    fn throttled(&mut self, _range: &Throttled) {}
}

/// What kind of record could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A sample.
    Sample,
    /// A mark.
    Mark,
}

/// The mark at hand.
struct MarkAt<'a> {
    record: &'a Record,
    probe: ProbeId,
    id: Option<u64>,
    sp: u64,
    args: ArgBytes,
    payloads: &'a Payloads,
}

/// Key of an item that is matched by id.
type IdKey = (ProbeId, Pid, u64);

/// The state of all threads.
#[derive(Debug)]
pub struct Correlator {
    probes: Vec<ProbeRule>,
    columns: usize,
    options: CorrelateOptions,
    threads: Threads,
    /// Open visits that are matched by id: the thread that they are on.
    by_id: FxHashMap<IdKey, Tid>,
    /// Where ids are read at samples instead of marks.
    runs: Option<Runs>,
    losses: LossRanges,
    throttles: Throttles,
    next_visit: u64,
    next_item: Vec<u64>,
    held: usize,
    pool: Vec<OpenVisit>,
    closed: ClosedVisit,
}

impl Correlator {
    /// A correlator for the probes of a run.
    #[must_use]
    pub fn new(set: &ProbeSet, options: CorrelateOptions) -> Self {
        let probes: Vec<ProbeRule> = set
            .probes
            .iter()
            .map(|probe| ProbeRule {
                rule: probe.rule,
                has_id: probe.has_id,
                batch: probe.batch,
                begin_fields: probe.begin_fields.clone(),
                end_fields: probe.end_fields.clone(),
            })
            .collect();
        Self {
            next_item: vec![1; probes.len()],
            probes,
            columns: set.columns.len(),
            options,
            threads: Threads::default(),
            by_id: FxHashMap::default(),
            runs: set.item.as_ref().map(|item| Runs::new(item.config.none)),
            losses: LossRanges::default(),
            throttles: Throttles::default(),
            next_visit: 1,
            held: 0,
            pool: Vec::new(),
            closed: ClosedVisit::default(),
        }
    }

    /// Visits that overlap this range and are still open, or come later, will be flagged.
    pub fn loss(&mut self, begin: TraceNs, end: TraceNs, flag: u32) {
        self.losses.add(begin, end, flag);
    }

    /// Visits that are open.
    #[must_use]
    pub fn open_visits(&self) -> usize {
        self.threads
            .iter()
            .map(|(_, thread)| thread.visits.len())
            .sum()
    }

    /// Takes in everything that is ready, up to a time.
    pub fn advance(&mut self, ready: &mut Ready<'_>, until: TraceNs, sink: &mut impl Sink) {
        while let Some(record) = ready.next_shared(until) {
            let mut parts = ready.parts();
            self.bring_up(&record, &mut parts, sink);
            self.push(&record, parts.payloads, sink);
        }
        ready
            .parts()
            .each(|lane, payloads| self.run(lane, payloads, until, sink));
    }

    /// Brings the threads that a shared record concerns up to its time.
    fn bring_up(&mut self, record: &Record, parts: &mut Parts<'_>, sink: &mut impl Sink) {
        let Record { time, pid, tid, .. } = *record;
        let Body::Mark { probe, id, .. } = record.body else {
            return parts.each(|lane, payloads| self.run(lane, payloads, time, sink));
        };
        let owner = id.and_then(|id| self.by_id.get(&(probe, pid, id)).copied());
        let payloads = parts.payloads;
        for tid in [Some(tid), owner.filter(|owner| *owner != tid)] {
            if let Some(lane) = tid.and_then(|tid| parts.lane(pid, tid)) {
                self.run(lane, payloads, time, sink);
            }
        }
    }

    /// Takes in what a thread did up to a time.
    fn run(&mut self, lane: &mut Lane, payloads: &Payloads, until: TraceNs, sink: &mut impl Sink) {
        let thread = (lane.pid, lane.tid);
        while let Some(turn) = lane.next(until) {
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

    /// What happened so far within the visits that are open. Cost: their intervals on the CPU.
    #[must_use]
    pub fn open_load(&self, until: TraceNs) -> OpenLoad {
        let mut load = OpenLoad {
            samples: self.held as u64,
            ..OpenLoad::default()
        };
        for visit in self.threads.iter().flat_map(|(_, thread)| &thread.visits) {
            let settled = self.runs.as_ref().and_then(|runs| runs.last(visit.tid));
            let until = settled.map_or(until, |last| last.min(until));
            load.oncpu_ns += visit.active_ns(until);
            load.page_faults += u64::from(visit.counts.page_faults);
            load.extras += visit.counts.extras;
        }
        load
    }

    /// Takes in the next record.
    pub fn push(&mut self, record: &Record, payloads: &Payloads, sink: &mut impl Sink) {
        let (pid, tid, time, cpu) = (record.pid, record.tid, record.time, record.cpu);
        if !self.throttles.is_empty() {
            self.end_throttles(time, None, sink);
        }
        match record.body {
            Body::Mark {
                probe,
                role,
                id,
                sp,
                args,
            } => {
                self.mark(
                    role,
                    &MarkAt {
                        record,
                        probe,
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
                if let Some(thread) = self.threads.get_mut(tid) {
                    let off = thread::Off::new(ip, state, preempted).at(stack);
                    thread.switch_out(time, cpu, off);
                }
            }
            Body::SwitchIn => {
                if let Some(thread) = self.threads.get_mut(tid) {
                    thread.switch_in(time, cpu);
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
            Body::Fork { .. } => {}
            Body::Exec { .. } => self.end_process(pid, time, sink),
            Body::Exit { .. } => self.end_thread(tid, time, sink),
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

    /// Books the ranges of counters that go on by `time`.
    fn end_throttles(&mut self, time: TraceNs, sign: Option<Sign>, sink: &mut impl Sink) {
        while let Some(range) = self.throttles.next_over(time, sign) {
            self.losses
                .add(range.begin, range.end, visit_flag::THROTTLED);
            sink.throttled(&range);
        }
    }

    /// The process ended or replaced its program: closes the visits of all its threads.
    pub fn end_process(&mut self, pid: Pid, time: TraceNs, sink: &mut impl Sink) {
        // A visit that began later is the new program's: this end was told late.
        let is_old = |thread: &Thread| thread.visits.iter().all(|visit| visit.begin <= time);
        let of_process =
            |(tid, thread): (Tid, &Thread)| (thread.pid == pid && is_old(thread)).then_some(tid);
        let gone: Vec<Tid> = self.threads.iter().filter_map(of_process).collect();
        gone.into_iter()
            .for_each(|tid| self.end_thread(tid, time, sink));
    }

    /// Closes every visit that is still open. `end` is the end of the trace.
    pub fn finish(&mut self, end: TraceNs, sink: &mut impl Sink) {
        self.settle_runs(sink);
        let mut tids: Vec<Tid> = self.threads.iter().map(|(tid, _)| tid).collect();
        tids.sort_unstable();
        for tid in tids {
            let Some(mut thread) = self.threads.remove(tid) else {
                continue;
            };
            while let Some(mut visit) = thread.close_last(end) {
                visit.flags |= visit_flag::OPEN_AT_END;
                self.close(visit, None, end, sink);
            }
        }
        while let Some(mut range) = self.throttles.next_over(TraceNs(i64::MAX), None) {
            range.end = range.end.min(end.max(range.begin));
            sink.throttled(&range);
        }
    }

    /// Takes in samples of a thread with nothing else between them.
    pub fn samples(
        &mut self,
        (pid, tid): (Pid, Tid),
        mut samples: &[RawSample],
        sink: &mut impl Sink,
    ) {
        if !self.throttles.is_empty() {
            for sample in samples {
                self.end_throttles(sample.time, Some(sign_of(tid, sample)), sink);
            }
        }
        while let [first, ..] = samples {
            let Some(thread) = self.threads.get_mut(tid) else {
                break;
            };
            thread.on_cpu(first.time, first.cpu);
            // Samples up to the first that shows a frame gone, which is dealt with when it comes first.
            let mut inside = thread.inside_frame(samples, &self.probes);
            let elsewhere = |sample: &RawSample| sample.cpu != first.cpu;
            if samples.last().is_some_and(elsewhere) {
                // A change of CPU whose switch records are missing.
                let stayed = samples.iter().position(elsewhere);
                inside = inside.min(stayed.unwrap_or(samples.len()));
            }
            if inside == 0 {
                let gone = thread.frames_gone(first.sp, &self.probes);
                (0..gone).for_each(|_| self.unwind_last(tid, first.time, sink));
                continue;
            }
            let Some(current) = thread.visits.last_mut() else {
                break;
            };
            let (now, later) = samples.split_at(inside);
            let room = self.options.max_samples.saturating_sub(self.held);
            let (kept, dropped) = now.split_at(room.min(inside));
            self.held += kept.len();
            current.samples.extend_from_slice(kept);
            if !dropped.is_empty() {
                current.flags |= visit_flag::LOSS;
            }
            for sample in dropped {
                sink.lost(sample.cpu, Lost::Sample, Reason::DroppedMemory);
            }
            samples = later;
        }
        if !samples.is_empty() {
            sink.strays(samples, pid, tid);
        }
    }

    fn mark(&mut self, role: Role, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        let Some(rule) = self
            .probes
            .get(mark.probe.0 as usize)
            .map(|probe| probe.rule)
        else {
            return sink.lost(mark.record.cpu, Lost::Mark, Reason::Malformed);
        };
        if let Some(thread) = self.threads.get_mut(mark.record.tid) {
            thread.on_cpu(mark.record.time, mark.record.cpu);
        }
        if role == Role::Begin {
            self.make_room(mark.record, sink);
        }
        match (role, rule) {
            (Role::Begin, VisitRule::Call) => {
                self.unwind_below(mark, sink);
                self.begin(mark);
            }
            (Role::Begin, VisitRule::ById) => {
                if let Some(id) = mark.id {
                    let key = (mark.probe, mark.record.pid, id);
                    self.close_by_id(key, mark, visit_flag::END_MISSING, sink);
                    self.begin(mark);
                    self.by_id.insert(key, mark.record.tid);
                } else {
                    sink.lost(mark.record.cpu, Lost::Mark, Reason::UnmatchedMark);
                }
            }
            (Role::Begin, _) => {
                self.close_on_thread(mark, visit_flag::END_MISSING, sink);
                self.begin(mark);
            }
            (Role::Next, _) => {
                self.close_on_thread(mark, 0, sink);
                self.begin(mark);
            }
            (Role::End, VisitRule::ById) => {
                let closed = mark.id.is_some_and(|id| {
                    self.close_by_id((mark.probe, mark.record.pid, id), mark, 0, sink)
                });
                if !closed {
                    self.without_begin(mark, sink);
                }
            }
            (Role::Return, VisitRule::Call) => self.returned(mark, sink),
            (Role::End | Role::Return, _) => {
                if !self.close_on_thread(mark, 0, sink) {
                    self.without_begin(mark, sink);
                }
            }
        }
    }

    /// Closes a thread's oldest visit if it has too many: their ends were missed.
    fn make_room(&mut self, record: &Record, sink: &mut impl Sink) {
        let Some(thread) = self.threads.get_mut(record.tid) else {
            return;
        };
        if thread.visits.len() < MAX_OPEN {
            return;
        }
        let mut oldest = thread.close_at(0, record.time);
        oldest.flags |= visit_flag::END_MISSING;
        self.close(oldest, Some((record.time, None)), record.time, sink);
    }

    /// Opens a visit at a begin mark; it is the thread's current one from now on.
    fn begin(&mut self, mark: &MarkAt<'_>) {
        let Record {
            time,
            pid,
            tid,
            cpu,
            ..
        } = *mark.record;
        let probe = &self.probes[mark.probe.0 as usize];
        let counter = &mut self.next_item[mark.probe.0 as usize];
        let number = *counter;
        *counter += 1;
        // Without `id=`, or where it could not be read, items are numbered.
        let item_id = mark.id.filter(|_| probe.has_id).unwrap_or(number);
        let mut visit = self.new_visit(mark.probe, item_id, (time, cpu), mark.sp);
        (visit.pid, visit.tid, visit.id) = (pid, tid, mark.id);
        let probe = &self.probes[mark.probe.0 as usize];
        read_args(
            &probe.begin_fields,
            mark.args,
            mark.payloads,
            &mut visit.args,
        );
        if let Some(each) = probe.batch {
            let payload = mark.payloads.get(mark.args);
            let flags = visit.batch.read(each, mark.args.valid, payload);
            visit.flags |= flags;
        }
        self.open(visit, time);
    }

    /// A visit with room for its arguments.
    fn new_visit(
        &mut self,
        probe: ProbeId,
        item_id: u64,
        begin: (TraceNs, Cpu),
        sp: u64,
    ) -> OpenVisit {
        let mut visit = self.pool.pop().unwrap_or_default();
        visit.reset(probe, item_id, begin, sp);
        visit.args.resize(self.columns, None);
        visit
    }

    /// Makes a visit its thread's current one.
    fn open(&mut self, visit: OpenVisit, time: TraceNs) {
        let (pid, cpu) = (visit.pid, visit.cpu);
        let new = || Thread::new(pid, cpu);
        let thread = self.threads.or_insert_with(visit.tid, new);
        thread.pid = pid;
        thread.open(visit, time);
    }

    /// A `ret` of the probed function: closes the visit of the same frame, and those of frames
    /// inside it that are gone.
    fn returned(&mut self, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        let Record { time, tid, cpu, .. } = *mark.record;
        let matching = self.threads.get(tid).and_then(|thread| {
            thread
                .visits
                .iter()
                .rposition(|v| v.probe == mark.probe && v.sp == mark.sp)
        });
        let Some(index) = matching else {
            return self.without_begin(mark, sink);
        };
        while let Some(inner) = self.frame_inside(tid, index, mark.sp) {
            self.unwind_at(tid, inner, time, sink);
        }
        let Some(thread) = self.threads.get_mut(tid) else {
            return;
        };
        let mut visit = thread.close_at(index, time);
        self.end_args(&mut visit, mark);
        self.close(visit, Some((time, Some(cpu))), time, sink);
    }

    /// The last open call above `index` whose frame lies inside the frame at `sp`.
    fn frame_inside(&self, tid: Tid, index: usize, sp: u64) -> Option<usize> {
        let visits = &self.threads.get(tid)?.visits;
        let inside = |v: &OpenVisit| {
            self.probes[v.probe.0 as usize].rule == VisitRule::Call
                && thread::same_stack(v.sp, sp)
                && v.sp < sp
        };
        (index + 1..visits.len())
            .rev()
            .find(|&i| inside(&visits[i]))
    }

    /// Closes calls whose frame a new call at `mark.sp` has overwritten.
    fn unwind_below(&mut self, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        let Record { time, tid, .. } = *mark.record;
        loop {
            let Some(thread) = self.threads.get(tid) else {
                return;
            };
            let gone = thread.visits.iter().rposition(|v| {
                self.probes[v.probe.0 as usize].rule == VisitRule::Call
                    && (v.sp == mark.sp && v.probe == mark.probe
                        || v.sp < mark.sp && thread::same_stack(v.sp, mark.sp))
            });
            let Some(index) = gone else { return };
            self.unwind_at(tid, index, time, sink);
        }
    }

    fn unwind_last(&mut self, tid: Tid, time: TraceNs, sink: &mut impl Sink) {
        if let Some(last) = self
            .threads
            .get(tid)
            .and_then(|t| t.visits.len().checked_sub(1))
        {
            self.unwind_at(tid, last, time, sink);
        }
    }

    fn unwind_at(&mut self, tid: Tid, index: usize, time: TraceNs, sink: &mut impl Sink) {
        let Some(thread) = self.threads.get_mut(tid) else {
            return;
        };
        let mut visit = thread.close_at(index, time);
        visit.flags |= visit_flag::UNWOUND;
        self.close(visit, Some((time, None)), time, sink);
    }

    /// Closes the thread's last open visit of the mark's probe; says whether there was one.
    fn close_on_thread(&mut self, mark: &MarkAt<'_>, flag: u32, sink: &mut impl Sink) -> bool {
        let Record { time, tid, cpu, .. } = *mark.record;
        let Some(thread) = self.threads.get_mut(tid) else {
            return false;
        };
        let Some(index) = thread.visits.iter().rposition(|v| v.probe == mark.probe) else {
            return false;
        };
        let mut visit = thread.close_at(index, time);
        visit.flags |= flag;
        if flag == 0 && !is_next(&self.probes, mark.probe) {
            self.end_args(&mut visit, mark);
        }
        self.close(visit, Some((time, Some(cpu))), time, sink);
        true
    }

    /// Closes the open visit with that id, on whatever thread; says whether there was one.
    fn close_by_id(
        &mut self,
        key: IdKey,
        mark: &MarkAt<'_>,
        flag: u32,
        sink: &mut impl Sink,
    ) -> bool {
        let Record { time, tid, cpu, .. } = *mark.record;
        let Some(owner) = self.by_id.remove(&key) else {
            return false;
        };
        let Some(thread) = self.threads.get_mut(owner) else {
            return false;
        };
        let position = thread
            .visits
            .iter()
            .rposition(|v| v.probe == key.0 && v.id == Some(key.2));
        let Some(index) = position else { return false };
        let mut visit = thread.close_at(index, time);
        visit.flags |= flag;
        if owner != tid {
            visit.flags |= visit_flag::ENDED_ELSEWHERE;
        }
        if flag == 0 {
            self.end_args(&mut visit, mark);
        }
        self.close(visit, Some((time, Some(cpu))), time, sink);
        true
    }

    fn end_args(&self, visit: &mut OpenVisit, mark: &MarkAt<'_>) {
        let fields = &self.probes[mark.probe.0 as usize].end_fields;
        read_args(fields, mark.args, mark.payloads, &mut visit.args);
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
    }

    /// Hands a visit on and takes its buffers back. `seen` is the end of what is known of it.
    fn close(
        &mut self,
        mut visit: OpenVisit,
        end: Option<(TraceNs, Option<Cpu>)>,
        seen: TraceNs,
        sink: &mut impl Sink,
    ) {
        if let Some(id) = visit.id
            && self.probes[visit.probe.0 as usize].rule == VisitRule::ById
        {
            self.by_id.remove(&(visit.probe, visit.pid, id));
        }
        visit.flags |= self.losses.flags(visit.begin, seen);
        if self.throttles.overlap(visit.begin, seen) {
            visit.flags |= visit_flag::THROTTLED;
        }
        self.held -= visit.samples.len();
        self.closed
            .take(&mut visit, self.next_visit, end, self.options);
        self.next_visit += 1;
        sink.visit(&self.closed);
        self.closed.give_back(&mut visit);
        self.pool.push(visit);
    }
}

/// What a sample says of the counter that took it.
const fn sign_of(tid: Tid, sample: &RawSample) -> Sign {
    Sign {
        time: sample.time,
        cpu: sample.cpu,
        tid,
        event: sample.event,
    }
}

fn is_next(probes: &[ProbeRule], probe: ProbeId) -> bool {
    probes[probe.0 as usize].rule == VisitRule::UntilNext
}

/// Reads the named arguments out of a mark's payload into their columns.
fn read_args(
    fields: &[ArgField],
    args: ArgBytes,
    payloads: &Payloads,
    row: &mut [Option<ArgValue>],
) {
    let bytes = payloads.get(args);
    for field in fields
        .iter()
        .filter(|field| args.valid & (1 << field.bit) != 0)
    {
        let number = || -> Option<u64> {
            let bytes = bytes.get(field.offset..field.offset + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let value = number().and_then(|number| match field.r#type {
            _ if field.names.is_some() => Some(ArgValue::Str(field.name_of(number))),
            ArgType::U64 => Some(ArgValue::U64(number)),
            ArgType::I64 => Some(ArgValue::I64(number as i64)),
            ArgType::Str => {
                let start = field.offset + 8;
                let bytes = bytes.get(start..start.checked_add(number as usize)?)?;
                Some(ArgValue::Str(escape(bytes)))
            }
        });
        if let Some(slot) = row.get_mut(field.column) {
            *slot = value;
        }
    }
}

/// A string of the target, with bytes that are not UTF-8 as `\xNN`.
fn escape(bytes: &[u8]) -> Box<str> {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk
            .invalid()
            .iter()
            .for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text.into_boxed_str()
}

#[cfg(test)]
mod tests;
