//! Visits of goroutines, which move with them from thread to thread.
//!
//! Go's runtime takes a goroutine up on a thread (`runtime.execute`), and looks for the next one (`runtime.schedule`)
//! when that one parks, yields or ends. In between, the goroutine's visits are open on the thread; otherwise they are on
//! none, and wait: the thread's time is the scheduler's, or another goroutine's. Where a mark of a visit shows a
//! goroutine on a thread, it is there, even if the mark that took it up is missing.
//!
//! Invariant: a thread has the visits of at most one goroutine.

use pebs_common::record::{Role, go_frame_outermost, goroutine, goroutine_of};
use rustc_hash::FxHashMap;

use super::marks::MarkAt;
use super::thread::Thread;
use super::visit::{OpenVisit, PARKED, RawWait};
use super::{Correlator, Lost, Sink};
use crate::ledger::Reason;
use crate::store::run::VisitRule;
use crate::store::schema::visit_flag;
use crate::stream::decode::Record;
use crate::stream::stacks::StackKey;
use crate::units::{Cpu, Ip, Pid, Tid, TraceNs};

/// Process and number of a goroutine.
type Key = (Pid, u64);

/// A goroutine with open visits.
#[derive(Debug)]
pub(super) struct Goroutine {
    /// Number of its open visits.
    open: usize,
    /// The thread that has them; `None`: none does.
    on: Option<Tid>,
    /// Its visits while no thread has them, the outermost first.
    parked: Vec<OpenVisit>,
    /// Time at which it left the last thread, and the CPU.
    left: (TraceNs, Cpu),
}

/// Place in code at which a goroutine left its last thread; `None`: unknown.
#[derive(Clone, Copy, Debug, Default)]
struct LeftAt {
    ip: Option<Ip>,
    /// Return address of the function there.
    caller: Option<Ip>,
}

impl LeftAt {
    /// Reads it from the mark that takes a goroutine up.
    fn of(mark: &MarkAt<'_>) -> Self {
        let (words, _) = mark.payloads.get(mark.args).as_chunks::<8>();
        let word = |n: usize| {
            let word = words.get(n).filter(|_| mark.args.valid & (1 << n) != 0)?;
            Some(u64::from_ne_bytes(*word))
        };
        // A return address is behind its call.
        let before = |at: u64| at.checked_sub(1).map(Ip);
        Self {
            ip: word(0).and_then(before),
            caller: word(1).and_then(before),
        }
    }
}

/// The goroutines with open visits.
#[derive(Debug, Default)]
pub(super) struct Goroutines(FxHashMap<Key, Goroutine>);

impl Goroutines {
    /// The thread that has the visits of a mark's goroutine. `schedules`: it is a mark of the scheduler.
    pub(super) fn thread_of(
        &self,
        schedules: bool,
        (pid, id, sp): (Pid, Option<u64>, u64),
    ) -> Option<Tid> {
        let number = match schedules {
            true => goroutine(id?),
            false => goroutine_of(sp),
        };
        self.0.get(&(pid, number))?.on
    }

    /// The visits that no thread has.
    pub(super) fn parked(&self) -> impl Iterator<Item = &OpenVisit> {
        self.0.values().flat_map(|it| &it.parked)
    }

    /// Whether none has an open visit.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Registers the end of a visit.
    pub(super) fn closed(&mut self, visit: &OpenVisit) {
        let key = (visit.pid, visit.goroutine);
        if let Some(goroutine) = self.0.get_mut(&key) {
            goroutine.open -= 1;
            if goroutine.open == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Takes the visits that no thread has, of one process or all, in the order in which they began.
    fn take_parked(&mut self, of: Option<Pid>, time: TraceNs) -> Vec<OpenVisit> {
        let of_it = |((pid, _), _): &(&Key, &mut Goroutine)| of.is_none_or(|of| of == *pid);
        let mut taken = Vec::new();
        for (_, goroutine) in self.0.iter_mut().filter(of_it) {
            goroutine.end_wait(time, LeftAt::default(), None);
            taken.append(&mut goroutine.parked);
        }
        taken.sort_by_key(|visit| (visit.begin, visit.sp));
        taken
    }
}

impl Goroutine {
    /// Ends the wait of its current visit, where it was, if known. `to`: the thread that takes it up, and its CPU.
    fn end_wait(&mut self, time: TraceNs, at: LeftAt, to: Option<(Tid, Cpu)>) {
        let (begin, from) = self.left;
        let Some(current) = self.parked.last_mut().filter(|_| begin < time) else {
            return;
        };
        let (tid, cpu) = to.unwrap_or((current.thread(), from));
        current.waits.push(RawWait {
            begin,
            end: time,
            tid,
            ip: at.ip,
            caller: at.caller,
            state: PARKED,
            from,
            to: cpu,
            woken: None,
            displaced: None,
            stack: StackKey::NONE,
        });
    }
}

impl Correlator {
    /// Handles a mark of the scheduler. Begin: the thread takes up a goroutine; return: the goroutine is over; end: the
    /// thread looks for the next one.
    pub(super) fn schedule(&mut self, role: Role, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        let Record { time, pid, tid, .. } = *mark.record;
        if role == Role::End {
            return self.put_down(tid, None, time);
        }
        let Some(id) = mark.id else {
            return sink.lost(mark.record.cpu, Lost::Mark, Reason::UnmatchedMark);
        };
        let key = (pid, goroutine(id));
        self.take_up(key, LeftAt::of(mark), mark);
        if role == Role::Return {
            self.unwind_in(mark, |visit| visit.goroutine == key.1, sink);
        }
    }

    /// Handles a mark in Go code.
    pub(super) fn in_goroutine(
        &mut self,
        (role, rule): (Role, VisitRule),
        mark: &MarkAt<'_>,
        sink: &mut impl Sink,
    ) {
        let (number, sp) = (goroutine_of(mark.sp), mark.sp);
        if number == 0 {
            return sink.lost(mark.record.cpu, Lost::Mark, Reason::UnmatchedMark);
        }
        let key = (mark.record.pid, number);
        self.take_up(key, LeftAt::default(), mark);
        let is_inside = |visit: &OpenVisit| visit.goroutine == number && visit.sp < sp;
        match (role, rule) {
            (Role::Begin, VisitRule::GoCall) => {
                let probe = mark.probe;
                let is_same = |visit: &OpenVisit| visit.probe == probe && visit.sp == sp;
                self.unwind_in(mark, |visit| is_inside(visit) || is_same(visit), sink);
                self.begin_in(key, sp, mark);
            }
            (Role::Begin, _) => {
                self.close_on_thread(mark, visit_flag::END_MISSING, sink);
                // No call is outside of it.
                self.begin_in(key, go_frame_outermost(number), mark);
            }
            (_, VisitRule::GoCall) if !self.is_open_at(mark) => self.without_begin(mark, sink),
            (_, rule) => {
                if rule == VisitRule::GoCall {
                    self.unwind_in(mark, is_inside, sink);
                }
                if !self.close_on_thread(mark, 0, sink) {
                    self.without_begin(mark, sink);
                }
            }
        }
    }

    fn is_open_at(&self, mark: &MarkAt<'_>) -> bool {
        let is_it = |visit: &OpenVisit| visit.probe == mark.probe && visit.sp == mark.sp;
        let thread = self.threads.get(mark.record.tid);
        thread.is_some_and(|thread| thread.visits.iter().any(is_it))
    }

    fn begin_in(&mut self, key: Key, frame: u64, mark: &MarkAt<'_>) {
        let new = || Goroutine {
            open: 0,
            on: Some(mark.record.tid),
            parked: Vec::new(),
            left: (mark.record.time, mark.record.cpu),
        };
        self.goroutines.0.entry(key).or_insert_with(new).open += 1;
        self.begin(&MarkAt { sp: frame, ..*mark });
    }

    /// Closes the visits of the mark's thread that are gone, the last one first.
    fn unwind_in(
        &mut self,
        mark: &MarkAt<'_>,
        is_gone: impl Fn(&OpenVisit) -> bool,
        sink: &mut impl Sink,
    ) {
        let Record { time, tid, .. } = *mark.record;
        let last = |thread: &Thread| thread.visits.iter().rposition(&is_gone);
        while let Some(index) = self.threads.get(tid).and_then(last) {
            self.unwind_at(tid, index, time, sink);
        }
    }

    /// Moves a goroutine's visits to the thread of the mark.
    fn take_up(&mut self, key: Key, at: LeftAt, mark: &MarkAt<'_>) {
        let Record {
            time,
            pid,
            tid,
            cpu,
            ..
        } = *mark.record;
        self.put_down(tid, Some(key.1), time);
        match self.goroutines.0.get(&key).map(|it| it.on) {
            Some(Some(on)) if on != tid => self.put_down(on, None, time),
            Some(None) => {}
            _ => return,
        }
        let Some(goroutine) = self.goroutines.0.get_mut(&key) else {
            return;
        };
        goroutine.end_wait(time, at, Some((tid, cpu)));
        goroutine.on = Some(tid);
        let parked = std::mem::take(&mut goroutine.parked);
        let (options, counts) = (self.thread_options(), self.options.counters > 0);
        let new = || Thread::new(pid, cpu, options);
        let thread = self.threads.or_insert_with(tid, new);
        thread.count_from_here(counts);
        thread.pid = pid;
        for mut visit in parked {
            visit.goes_on(tid);
            thread.attach(visit, time);
        }
    }

    /// Takes the visits of goroutines from a thread, except those of `but`.
    fn put_down(&mut self, tid: Tid, but: Option<u64>, time: TraceNs) {
        let Some(thread) = self.threads.get_mut(tid) else {
            return;
        };
        let is_it = |visit: &OpenVisit| visit.goroutine != 0 && Some(visit.goroutine) != but;
        while let Some(index) = thread.visits.iter().position(is_it) {
            let visit = thread.close_at(index, time);
            let key = (visit.pid, visit.goroutine);
            if let Some(goroutine) = self.goroutines.0.get_mut(&key) {
                goroutine.on = None;
                goroutine.left = (time, thread.cpu);
                goroutine.parked.push(visit);
            }
        }
    }

    /// Closes the visits that no thread has, of a process that has ended or of all.
    pub(super) fn end_parked(
        &mut self,
        of: Option<Pid>,
        (flag, time): (u32, TraceNs),
        sink: &mut impl Sink,
    ) {
        for mut visit in self.goroutines.take_parked(of, time) {
            visit.flags |= flag;
            let end = (flag == visit_flag::THREAD_ENDED).then_some((time, None));
            self.close(visit, end, time, sink);
        }
    }
}
