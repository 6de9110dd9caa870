//! Visits without marks: runs of samples of one thread with the same item id.
//!
//! The id changes between two samples, so the records between them wait until the second one arrives.
//! While the thread was on the CPU or only preempted, the change is equally likely at each instant on the
//! CPU: the boundary is set half way, with a standard deviation of gap/sqrt(12). If the thread went to
//! sleep in between, the first item ends there and the second begins at the wake-up: the sleep may be of
//! either item, so it is in neither.
//!
//! A sample in kernel mode may lack the id: in bulk it has the kernel's registers. It is of the item that the thread's
//! samples before and after it agree on, else of none.
//!
//! Two samples with the same id belong to the same visit, whatever lies between them: an item without a
//! sample is not seen. A thread's first run begins with its first sample.
//!
//! Where marks begin and end the items, a run is not a visit but a turn of an item: see [`super::marked`]. The thread that
//! makes a mark of an item is at it: a change of the id between whose samples the mark lies is there.

use rustc_hash::FxHashMap;

use super::{Correlator, Sink, thread};
use crate::store::schema::visit_flag;
use crate::stream::decode::{Body, Payloads, Record};
use crate::stream::sample::{BareSample, SampleKind};
use crate::stream::samples::{RawSamples, SampleBuf, Samples};
use crate::units::{Cpu, Pid, ProbeId, Tid, TraceNs};

/// Most records of a thread that wait for its next sample. Beyond that, the run ends where the thread
/// first slept.
const MOST_WAITING: usize = 1024;

/// Stack pointers of samples that wait: ids have no frames to match.
const NO_FRAMES: [u64; MOST_WAITING] = [0; MOST_WAITING];

/// The only probe, which stands for the ids; of a turn of an item with marks it means nothing.
const PROBE: ProbeId = ProbeId(0);

/// Last sampled id of each thread.
#[derive(Debug)]
pub(super) struct Runs {
    /// The id that means "no item".
    none: u64,
    /// Samples in kernel mode don't have the id.
    in_user_mode: bool,
    threads: FxHashMap<Tid, Run>,
}

/// The samples of a thread since its id changed.
#[derive(Debug)]
struct Run {
    pid: Pid,
    /// `None`: no item.
    id: Option<u64>,
    /// Time of the last sample.
    last: TraceNs,
    /// The last begin mark of an item that the thread made since the last sample, and the last end mark.
    begun: Option<(u64, TraceNs)>,
    ended: Option<(u64, TraceNs)>,
    /// Records since the last sample.
    waiting: Vec<Record>,
    /// Samples since then that don't have the id.
    without: SampleBuf,
}

/// End of one run, and begin of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    end: TraceNs,
    begin: TraceNs,
}

/// Activity of a thread between two samples.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    /// Time on the CPU, ns.
    active: i64,
    /// Time at which the thread first went to sleep.
    slept: Option<TraceNs>,
    /// Time at which it last woke.
    woke: Option<TraceNs>,
}

impl Gap {
    fn between(from: TraceNs, waiting: &[Record], to: TraceNs) -> Self {
        let mut gap = Self::default();
        for stretch in Stretches::new(from, waiting, to) {
            gap.active += stretch.end.0 - stretch.begin.0;
            if stretch.then_sleeps {
                gap.slept.get_or_insert(stretch.end);
                gap.woke = None;
            } else if gap.slept.is_some() && gap.woke.is_none() {
                gap.woke = Some(stretch.begin);
            }
        }
        gap
    }
}

impl Bounds {
    /// Returns the boundary between two samples with different ids.
    fn between(from: TraceNs, waiting: &[Record], to: TraceNs) -> Self {
        let gap = Gap::between(from, waiting, to);
        if let Some(end) = gap.slept {
            let begin = gap.woke.unwrap_or(to);
            return Self { end, begin };
        }
        // Rounded up: a visit is half-open, and its last sample must be inside.
        let mut left = (gap.active + 1) / 2;
        for stretch in Stretches::new(from, waiting, to) {
            let length = stretch.end.0 - stretch.begin.0;
            if left <= length {
                let middle = TraceNs(stretch.begin.0 + left);
                return Self {
                    end: middle,
                    begin: middle,
                };
            }
            left -= length;
        }
        Self { end: to, begin: to }
    }
}

impl Bounds {
    /// The same where the thread made an end mark of the item before, or a begin mark of the next one.
    fn at_marks(self, marks: (Option<TraceNs>, Option<TraceNs>), to: TraceNs) -> Self {
        let slept = self.end < self.begin;
        match marks {
            (Some(end), Some(begin)) if end <= begin => Self { end, begin },
            (_, Some(begin)) if !slept => Self { end: begin, begin },
            (_, Some(begin)) => Self {
                end: self.end,
                begin: begin.max(self.begin),
            },
            (Some(end), None) if !slept => Self {
                end,
                begin: self.begin.max(TraceNs(end.0.midpoint(to.0))),
            },
            (Some(end), None) => Self {
                end: end.min(self.end),
                ..self
            },
            (None, None) => self,
        }
    }
}

/// An interval on the CPU.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    begin: TraceNs,
    end: TraceNs,
    /// Whether the thread then slept or was blocked, not preempted.
    then_sleeps: bool,
}

/// Iterator over the intervals on the CPU between two samples, both of which were on it.
struct Stretches<'a> {
    waiting: std::slice::Iter<'a, Record>,
    /// Begin of the next interval; `None` after the last.
    since: Option<TraceNs>,
    to: TraceNs,
}

impl<'a> Stretches<'a> {
    fn new(from: TraceNs, waiting: &'a [Record], to: TraceNs) -> Self {
        Self {
            waiting: waiting.iter(),
            since: Some(from),
            to,
        }
    }
}

impl Iterator for Stretches<'_> {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        let begin = self.since.take()?;
        for record in &mut self.waiting {
            let Body::SwitchOut {
                ip,
                state,
                preempted,
                ..
            } = record.body
            else {
                continue;
            };
            // Any record of the thread's own activity shows that it is on the CPU again.
            let next = self.waiting.find(|next| !others_did(&next.body));
            let next = next.map_or(self.to, |next| next.time);
            self.since = Some(next.min(self.to));
            return Some(Stretch {
                begin,
                end: record.time.max(begin),
                then_sleeps: !thread::Off::new(ip, state, preempted).is_runnable(),
            });
        }
        Some(Stretch {
            begin,
            end: self.to.max(begin),
            then_sleeps: false,
        })
    }
}

impl Runs {
    pub(super) fn new(none: u64, in_user_mode: bool) -> Self {
        Self {
            none,
            in_user_mode,
            threads: FxHashMap::default(),
        }
    }

    /// Notes a mark of an item: the thread that makes it is at the item.
    pub(super) fn marked(&mut self, tid: Tid, (begins, id): (bool, u64), time: TraceNs) {
        if let Some(run) = self.threads.get_mut(&tid) {
            match begins {
                true => run.begun = Some((id, time)),
                false => run.ended = Some((id, time)),
            }
        }
    }

    /// Whether a thread may still be at this item before `end`, so that its next sample is awaited.
    pub(super) fn may_be_at(&self, (pid, id): (Pid, u64), end: TraceNs) -> bool {
        let mut runs = self.threads.values();
        runs.any(|run| run.pid == pid && run.id == Some(id) && run.last < end)
    }

    /// Time of a thread's last sample; later records still wait.
    pub(super) fn last(&self, tid: Tid) -> Option<TraceNs> {
        self.threads.get(&tid).map(|run| run.last)
    }
}

impl Correlator {
    /// Handles consecutive samples with ids, with no other record between them.
    pub(super) fn samples_with_ids(
        &mut self,
        (pid, tid): (Pid, Tid),
        mut raw: RawSamples<'_>,
        sink: &mut impl Sink,
    ) {
        while let (Some(first), Some(id), Some(runs)) =
            (raw.samples.get(0), raw.sps.first(), &mut self.runs)
        {
            let lacks = |kind: &SampleKind| runs.in_user_mode && kind.is_kernel();
            let alike = |(kind, sp): (&SampleKind, &u64)| match lacks(&first.kind) {
                true => lacks(kind),
                false => sp == id && !lacks(kind),
            };
            let all = raw.samples.kinds.iter().zip(raw.sps);
            let (same, later) = raw.split_at(all.take_while(|it| alike(*it)).count());
            let lacks = lacks(&first.kind);
            raw = later;
            let Some(last) = same.samples.times.last() else {
                return;
            };
            if lacks {
                self.hold_samples((pid, tid), same.samples, sink);
                continue;
            }
            let id = Some(*id).filter(|id| *id != runs.none);
            let before = runs.threads.remove(&tid);
            let (mut waiting, without) = self.turn((pid, tid), before, id, first, sink);
            waiting.clear();
            let run = Run {
                pid,
                id,
                last: *last,
                begun: None,
                ended: None,
                waiting,
                without,
            };
            if let Some(runs) = &mut self.runs {
                runs.threads.insert(tid, run);
            }
            self.samples((pid, tid), same, sink);
        }
    }

    /// Lets samples without an id wait for the thread's next one with an id, if there is a run.
    fn hold_samples(&mut self, (pid, tid): (Pid, Tid), samples: Samples<'_>, sink: &mut impl Sink) {
        let runs = self.runs.as_mut();
        let run = runs.and_then(|runs| runs.threads.get_mut(&tid));
        match run.filter(|run| run.id.is_some()) {
            Some(run) if run.without.len() + samples.len() <= MOST_WAITING => {
                run.without.extend(samples);
            }
            _ => sink.strays(samples, pid, tid),
        }
    }

    /// Handles the records that waited for a sample: the run goes on, or the next one begins. Returns the
    /// buffers.
    fn turn(
        &mut self,
        (pid, tid): (Pid, Tid),
        before: Option<Run>,
        id: Option<u64>,
        sample: BareSample,
        sink: &mut impl Sink,
    ) -> (Vec<Record>, SampleBuf) {
        let Some(run) = before else {
            if let Some(id) = id {
                self.begin_run((pid, tid), id, (sample.time, sample.kind.cpu()));
            }
            return Default::default();
        };
        let (waiting, mut without) = (run.waiting, run.without);
        if run.id == id {
            self.settle_with((pid, tid), &waiting, without.samples(), sink);
            without.clear();
            return (waiting, without);
        }
        // They may be of either item.
        if !without.is_empty() {
            sink.strays(without.samples(), pid, tid);
            without.clear();
        }
        let of = |mark: Option<(u64, TraceNs)>, id: Option<u64>| {
            let mark = mark.filter(|it| id == Some(it.0) && it.1 >= run.last);
            mark.map(|it| it.1)
        };
        let marks = (of(run.ended, run.id), of(run.begun, id));
        let bounds = Bounds::between(run.last, &waiting, sample.time).at_marks(marks, sample.time);
        let (before, rest) = split(&waiting, |record| record.time < bounds.end);
        self.settle(before, sink);
        if run.id.is_some() {
            self.end_run(tid, bounds.end, sink);
        }
        let (between, after) = split(rest, |record| record.time <= bounds.begin);
        self.settle(between, sink);
        if let Some(id) = id {
            let cpu = self
                .threads
                .get(tid)
                .map_or(sample.kind.cpu(), |thread| thread.cpu);
            self.begin_run((pid, tid), id, (bounds.begin, cpu));
        }
        self.settle(after, sink);
        (waiting, without)
    }

    /// Lets a record wait for the thread's next sample if there is a run, else handles it.
    pub(super) fn hold(&mut self, record: &Record, payloads: &Payloads, sink: &mut impl Sink) {
        let waits = matches!(
            record.body,
            Body::SwitchOut { .. } | Body::SwitchIn | Body::Interference { .. }
        ) || others_did(&record.body);
        let runs = self.runs.as_mut().filter(|_| waits);
        let Some(run) = runs.and_then(|runs| runs.threads.get_mut(&record.tid)) else {
            return self.push(record, payloads, sink);
        };
        run.waiting.push(*record);
        if run.waiting.len() >= MOST_WAITING {
            self.give_up_waiting(record.tid, record.time, sink);
        }
    }

    /// Handles the waiting records without a sample: the run ends where the thread first slept, or goes on
    /// from `now`.
    fn give_up_waiting(&mut self, tid: Tid, now: TraceNs, sink: &mut impl Sink) {
        let Some(mut run) = self.take_run(tid) else {
            return;
        };
        if self.break_off(tid, &run, now, sink) {
            run.id = None;
        }
        run.waiting.clear();
        run.without.clear();
        run.last = now;
        if let Some(runs) = &mut self.runs {
            runs.threads.insert(tid, run);
        }
    }

    /// Ends a thread's run, because the thread ended.
    pub(super) fn forget_run(&mut self, tid: Tid, time: TraceNs, sink: &mut impl Sink) {
        if let Some(run) = self.take_run(tid) {
            self.break_off(tid, &run, time, sink);
        }
    }

    /// Handles all waiting records at the end of the trace; they count for the open runs.
    pub(super) fn settle_runs(&mut self, sink: &mut impl Sink) {
        let runs = self
            .runs
            .as_mut()
            .map(|runs| std::mem::take(&mut runs.threads));
        for (tid, run) in runs.into_iter().flatten() {
            self.settle(&run.waiting, sink);
            Self::leave_out(tid, &run, sink);
        }
    }

    fn take_run(&mut self, tid: Tid) -> Option<Run> {
        self.runs.as_mut()?.threads.remove(&tid)
    }

    /// Handles the waiting records. If the thread slept meanwhile, its visit ends there; returns whether
    /// it did.
    fn break_off(&mut self, tid: Tid, run: &Run, now: TraceNs, sink: &mut impl Sink) -> bool {
        Self::leave_out(tid, run, sink);
        let slept = Gap::between(run.last, &run.waiting, now).slept;
        let Some(end) = slept.filter(|_| run.id.is_some()) else {
            self.settle(&run.waiting, sink);
            return false;
        };
        let (before, rest) = split(&run.waiting, |record| record.time < end);
        self.settle(before, sink);
        self.end_run(tid, end, sink);
        self.settle(rest, sink);
        true
    }

    /// Passes on the samples without an id as ones of no item.
    fn leave_out(tid: Tid, run: &Run, sink: &mut impl Sink) {
        let samples = run.without.samples();
        if !samples.is_empty() {
            sink.strays(samples, run.pid, tid);
        }
    }

    /// Handles records that waited, and samples of the current item among them.
    fn settle_with(
        &mut self,
        thread: (Pid, Tid),
        records: &[Record],
        mut samples: Samples<'_>,
        sink: &mut impl Sink,
    ) {
        let mut until = |correlator: &mut Self, time: TraceNs, sink: &mut _| {
            let before = samples.times.partition_point(|it| *it < time);
            let (samples_before, later) = samples.split_at(before);
            samples = later;
            let raw = RawSamples {
                samples: samples_before,
                sps: &NO_FRAMES[..samples_before.len()],
            };
            correlator.samples(thread, raw, sink);
        };
        for record in records {
            until(self, record.time, sink);
            self.settle(std::slice::from_ref(record), sink);
        }
        until(self, TraceNs(i64::MAX), sink);
    }

    /// Handles records that waited.
    fn settle(&mut self, records: &[Record], sink: &mut impl Sink) {
        // None of these records has a payload.
        let payloads = Payloads::default();
        for record in records {
            self.push(record, &payloads, sink);
        }
    }

    fn begin_run(&mut self, (pid, tid): (Pid, Tid), id: u64, at: (TraceNs, Cpu)) {
        let mut visit = self.new_visit(PROBE, id, at, 0);
        (visit.pid, visit.tid, visit.flags) = (pid, tid, visit_flag::SAMPLED_BOUNDS);
        self.open(visit, at.0);
    }

    fn end_run(&mut self, tid: Tid, end: TraceNs, sink: &mut impl Sink) {
        let Some(thread) = self.threads.get_mut(tid) else {
            return;
        };
        let cpu = thread.cpu;
        if let Some(visit) = thread.close_last(end) {
            self.close(visit, Some((end, Some(cpu))), end, sink);
        }
    }
}

/// Whether the record is what another thread did to one that is off the CPU.
const fn others_did(body: &Body) -> bool {
    matches!(body, Body::Wake { .. } | Body::Displace { .. })
}

/// Splits the records at the first for which `holds` is false.
fn split(records: &[Record], holds: impl Fn(&Record) -> bool) -> (&[Record], &[Record]) {
    records.split_at(records.iter().take_while(|record| holds(record)).count())
}
