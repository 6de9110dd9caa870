//! What was counted of each thread in intervals of equal length (`--count-interval`), whatever items it worked on.
//!
//! Counters are read at marks, at switches, and at ticks of a clock at the end of each interval, which come some us late. So what was
//! counted between two readings is of the interval in which the middle of that time is: nothing is counted twice or left out.

use rustc_hash::FxHashMap;

use super::counts::{Counted, EventCounts};
use crate::units::{Cpu, Pid, Tid, TraceNs};

/// What was counted of a thread in an interval.
#[derive(Debug)]
pub struct IntervalCounts<'a> {
    pub pid: Pid,
    pub tid: Tid,
    /// Begin of the interval.
    pub begin: TraceNs,
    /// When the thread was first and last counted in it.
    pub seen: (TraceNs, TraceNs),
    /// The CPU that the thread is known not to have left; `None`: it left one.
    pub stayed: Option<Cpu>,
    /// Time on the CPU, ns.
    pub oncpu_ns: u64,
    /// Times that the thread left the CPU.
    pub switches: u64,
    /// By counter.
    pub events: &'a EventCounts,
}

/// The intervals of all threads.
#[derive(Debug)]
pub(super) struct Intervals {
    length_ns: i64,
    /// When one of them begins.
    begin: TraceNs,
    counters: usize,
    threads: FxHashMap<Tid, Thread>,
}

/// A thread, and its interval.
#[derive(Debug)]
struct Thread {
    pid: Pid,
    /// Number of the interval that is not over; `None`: the last one was handed on.
    number: Option<i64>,
    seen: (TraceNs, TraceNs),
    cpu: Cpu,
    has_moved: bool,
    oncpu_ns: u64,
    switches: u64,
    events: EventCounts,
    /// It is on the CPU, as far as is known.
    runs: bool,
}

impl Intervals {
    /// Intervals of this length, one of which begins at 0.
    pub(super) fn new(length_ns: i64, counters: usize) -> Self {
        Self {
            length_ns: length_ns.max(1),
            begin: TraceNs(0),
            counters,
            threads: FxHashMap::default(),
        }
    }

    /// One of them begins then.
    pub(super) const fn begin_at(&mut self, begin: TraceNs) {
        self.begin = begin;
    }

    /// Takes in counts up to now.
    pub(super) fn counted(
        &mut self,
        (pid, tid, cpu): (Pid, Tid, Cpu),
        time: TraceNs,
        counted: &Counted<'_>,
        over: &mut impl FnMut(&IntervalCounts<'_>),
    ) {
        let since = TraceNs(time.0 - counted.ns as i64);
        let number = self.number_of(since.0 + (time.0 - since.0) / 2);
        let counters = self.counters;
        let thread = self.threads.entry(tid).or_insert_with(|| Thread::new(pid));
        // A record of its taking the CPU is missing, and what it did before this one.
        let lacks = !thread.runs;
        thread.runs = true;
        if thread.number != Some(number) {
            thread.events.lacks |= lacks;
            thread.end(tid, (self.begin, self.length_ns), over);
            thread.pid = pid;
            thread.number = Some(number);
            thread.seen.0 = since;
            thread.cpu = cpu;
            thread.events.reset(counters);
        }
        thread.events.lacks |= lacks;
        thread.events.add(counted);
        thread.oncpu_ns += counted.ns;
        thread.seen.1 = time;
        thread.has_moved |= thread.cpu != cpu;
    }

    /// A thread begins, off the CPU.
    pub(super) fn born(&mut self, (pid, tid): (Pid, Tid), time: TraceNs) {
        let mut thread = Thread::new(pid);
        thread.runs = false;
        thread.number = Some(self.number_of(time.0));
        thread.seen = (time, time);
        thread.events.reset(self.counters);
        self.threads.entry(tid).or_insert(thread);
    }

    fn number_of(&self, time: i64) -> i64 {
        (time - self.begin.0).div_euclid(self.length_ns)
    }

    /// The thread takes the CPU.
    pub(super) fn takes(&mut self, tid: Tid) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.runs = true;
        }
    }

    /// The thread leaves the CPU, after its counts up to now.
    pub(super) fn leaves(&mut self, tid: Tid) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            // Of a stretch on the CPU that nobody saw begin there are no counts.
            thread.events.lacks |= !thread.runs;
            thread.runs = false;
            thread.switches += 1;
        }
    }

    /// The thread ends, after its counts.
    pub(super) fn ends(&mut self, tid: Tid, over: &mut impl FnMut(&IntervalCounts<'_>)) {
        if let Some(mut thread) = self.threads.remove(&tid) {
            thread.events.lacks |= !thread.runs;
            thread.end(tid, (self.begin, self.length_ns), over);
        }
    }

    /// The trace ends.
    pub(super) fn finish(&mut self, over: &mut impl FnMut(&IntervalCounts<'_>)) {
        let mut tids: Vec<Tid> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            if let Some(mut thread) = self.threads.remove(&tid) {
                thread.end(tid, (self.begin, self.length_ns), over);
            }
        }
    }
}

impl Thread {
    /// One that is on the CPU: its first counts come.
    fn new(pid: Pid) -> Self {
        Self {
            pid,
            number: None,
            seen: (TraceNs(0), TraceNs(0)),
            cpu: Cpu::UNKNOWN,
            has_moved: false,
            oncpu_ns: 0,
            switches: 0,
            events: EventCounts::default(),
            runs: true,
        }
    }

    /// Hands on the interval, if there is one.
    fn end(
        &mut self,
        tid: Tid,
        (origin, length_ns): (TraceNs, i64),
        over: &mut impl FnMut(&IntervalCounts<'_>),
    ) {
        let Some(number) = self.number.take() else {
            return;
        };
        if self.oncpu_ns == 0 && self.switches == 0 && !self.events.lacks {
            return;
        }
        let stays = !self.has_moved && self.switches == 0;
        over(&IntervalCounts {
            pid: self.pid,
            tid,
            begin: TraceNs(origin.0 + number * length_ns),
            seen: self.seen,
            stayed: self.cpu.known().filter(|_| stays).map(Cpu),
            oncpu_ns: self.oncpu_ns,
            switches: self.switches,
            events: &self.events,
        });
        self.has_moved = false;
        self.oncpu_ns = 0;
        self.switches = 0;
    }
}

#[cfg(test)]
mod tests;
