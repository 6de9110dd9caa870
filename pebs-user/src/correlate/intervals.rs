//! Event counts of each thread in intervals of equal length (`--count-interval`), whatever items it worked on.
//!
//! Counters are read at marks, at switches, and at a timer tick that ends each interval and comes some us late. The
//! counts between two readings go to the interval that contains the middle of that time: nothing is counted twice or
//! left out.

use rustc_hash::FxHashMap;

use super::counts::{Counted, EventCounts};
use crate::units::{Cpu, Pid, Tid, TraceNs};

/// Counts of one thread in one interval.
#[derive(Debug)]
pub struct IntervalCounts<'a> {
    pub pid: Pid,
    pub tid: Tid,
    /// Begin of the interval.
    pub begin: TraceNs,
    /// Begin of the first and end of the last period counted in it.
    pub seen: (TraceNs, TraceNs),
    /// The only CPU that the thread was on; `None` if it left one or that is unknown.
    pub stayed: Option<Cpu>,
    /// Time on the CPU, ns.
    pub oncpu_ns: u64,
    /// Number of times that the thread left the CPU.
    pub switches: u64,
    /// Counts by counter.
    pub events: &'a EventCounts,
}

/// The intervals of all threads.
#[derive(Debug)]
pub(super) struct Intervals {
    length_ns: i64,
    /// Begin of interval 0.
    begin: TraceNs,
    counters: usize,
    threads: FxHashMap<Tid, Thread>,
}

/// State of one thread and its open interval.
#[derive(Debug)]
struct Thread {
    pid: Pid,
    /// Number of the open interval; `None` if the last one was handed on.
    number: Option<i64>,
    seen: (TraceNs, TraceNs),
    cpu: Cpu,
    has_moved: bool,
    oncpu_ns: u64,
    switches: u64,
    events: EventCounts,
    /// Whether it is on the CPU, as far as is known.
    runs: bool,
}

impl Intervals {
    /// Returns intervals of this length; interval 0 begins at time 0.
    pub(super) fn new(length_ns: i64, counters: usize) -> Self {
        Self {
            length_ns: length_ns.max(1),
            begin: TraceNs(0),
            counters,
            threads: FxHashMap::default(),
        }
    }

    /// Sets the begin of interval 0.
    pub(super) const fn begin_at(&mut self, begin: TraceNs) {
        self.begin = begin;
    }

    /// Adds the counts of a period that ends at `time`; hands a finished interval to `over`.
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
        // The switch-in record is missing, and with it the counts before this period.
        let incomplete = !thread.runs;
        thread.runs = true;
        if thread.number != Some(number) {
            thread.events.incomplete |= incomplete;
            thread.end(tid, (self.begin, self.length_ns), over);
            thread.pid = pid;
            thread.number = Some(number);
            thread.seen.0 = since;
            thread.cpu = cpu;
            thread.events.reset(counters);
        }
        thread.events.incomplete |= incomplete;
        thread.events.add(counted);
        thread.oncpu_ns += counted.ns;
        thread.seen.1 = time;
        thread.has_moved |= thread.cpu != cpu;
    }

    /// Adds a new thread, which is off the CPU.
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
            // The switch-out record is missing, and with it the counts before it.
            thread.events.incomplete |= thread.runs;
            thread.runs = true;
        }
    }

    /// The thread leaves the CPU; its counts up to now have arrived.
    pub(super) fn leaves(&mut self, tid: Tid) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            // The switch-in record is missing, so the time on the CPU was not counted.
            thread.events.incomplete |= !thread.runs;
            thread.runs = false;
            thread.switches += 1;
        }
    }

    /// The thread ends; its counts up to now have arrived.
    pub(super) fn ends(&mut self, tid: Tid, over: &mut impl FnMut(&IntervalCounts<'_>)) {
        if let Some(mut thread) = self.threads.remove(&tid) {
            thread.events.incomplete |= !thread.runs;
            thread.end(tid, (self.begin, self.length_ns), over);
        }
    }

    /// Hands on the open intervals at the end of the trace, by tid.
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
    /// Returns a thread that is on the CPU, before its first counts.
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

    /// Hands on the open interval, if there is one and it is not empty.
    fn end(
        &mut self,
        tid: Tid,
        (origin, length_ns): (TraceNs, i64),
        over: &mut impl FnMut(&IntervalCounts<'_>),
    ) {
        let Some(number) = self.number.take() else {
            return;
        };
        if self.oncpu_ns == 0 && self.switches == 0 && !self.events.incomplete {
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
