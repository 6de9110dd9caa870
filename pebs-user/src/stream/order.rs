//! Merges the rings' streams into one stream per thread, in order of time, up to the frontier.
//!
//! Contract: each ring is nearly sorted (records of programs that interrupt one another may be swapped), and when a
//! frontier is given, no record of an earlier time can still arrive. Records below the frontier come out once; the
//! others wait.
//!
//! ```text
//!   ring 0   --A1--A3--B4----|-A9-        lane A: 1 2 3 7 | 9
//!   ring 1   ----B2--A7------|-B8-        lane B: 2 4     | 8
//!                            ^ frontier
//! ```
//!
//! Most records concern only their own thread. So there is no order over all rings, which would cost more than
//! everything else: each thread has a lane, filled while decoding, which is sorted unless the thread changed CPU
//! since the last frontier. The few records that concern several threads (a new thread, an exec, a stopped counter,
//! a mark of a probe whose items are matched by id) are *shared*: they have a lane of their own. [`Ready`] keeps
//! how far each lane has been read, so that other lanes can be brought up to the time of a shared record before it
//! is used.
//!
//! A record that comes behind the frontier all the same is late: counted, and dropped.

mod queue;

use rustc_hash::FxHashMap;

use crate::stream::decode::{Body, Inbox, Payloads, Record};
use crate::stream::sample::RawSample;
use crate::stream::samples::{RawSampleBuf, RawSamples, SampleSource};
use crate::units::{Pid, Tid, TraceNs};
use queue::Queue;

/// A record that came behind the frontier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// CPU of the record.
    pub cpu: u16,
    pub kind: LateKind,
    pub time: TraceNs,
}

/// Kind of a late record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateKind {
    #[default]
    Sample,
    Mark,
    /// Any other record.
    Task,
}

/// The records of one thread.
#[derive(Debug)]
pub struct Lane {
    pub pid: Pid,
    pub tid: Tid,
    samples: Queue<RawSampleBuf>,
    records: Queue<Vec<Record>>,
    /// Whether it is in the list of lanes with records.
    is_active: bool,
    /// Number of the last frontier at which it was active.
    used_at: u64,
}

/// Next records of a thread.
#[derive(Debug)]
pub enum Turn<'a> {
    /// Consecutive samples, in order of time.
    Samples(RawSamples<'a>),
    /// One other record.
    Record(&'a Record),
}

/// Two records with nothing but samples between them.
#[derive(Clone, Copy, Debug)]
pub struct Two<'a> {
    pub first: &'a Record,
    pub second: &'a Record,
    /// Samples between them.
    pub between: RawSamples<'a>,
}

impl Lane {
    fn new(pid: Pid, tid: Tid) -> Self {
        Self {
            pid,
            tid,
            samples: Queue::default(),
            records: Queue::default(),
            is_active: false,
            used_at: 0,
        }
    }

    /// Returns the next turn before `until`. A sample comes after another record of the same time: intervals are
    /// half-open.
    #[inline]
    pub fn next(&mut self, until: TraceNs) -> Option<Turn<'_>> {
        let record = self.records.next_time();
        let stop = record.map_or(until, |time| time.min(until));
        let times = self.samples.ready();
        let count = match times {
            [.., last] if *last < stop => times.len(),
            _ => before(times, stop),
        };
        if count > 0 {
            let begin = self.samples.read;
            self.samples.read += count;
            let samples = self.samples.records.range(begin, begin + count);
            return Some(Turn::Samples(samples));
        }
        record.filter(|time| *time < until)?;
        self.records.read += 1;
        Some(Turn::Record(&self.records.records[self.records.read - 1]))
    }

    /// Returns the next two records before `until` and the samples between them; `None` if a sample comes first.
    #[inline]
    #[must_use]
    pub fn next_two(&self, until: TraceNs) -> Option<Two<'_>> {
        let [first, second, ..] = self.records.ready() else {
            return None;
        };
        let times = self.samples.ready();
        let is_next = times.first().is_none_or(|time| *time >= first.time);
        if second.time >= until || !is_next {
            return None;
        }
        let (begin, count) = (self.samples.read, before(times, second.time));
        Some(Two {
            first,
            second,
            between: self.samples.records.range(begin, begin + count),
        })
    }

    /// Skips the two records and samples of [`Lane::next_two`], which were handled.
    #[inline]
    pub const fn pass_two(&mut self, between: usize) {
        self.records.read += 2;
        self.samples.read += between;
    }

    /// Whether there is a turn before `until`.
    #[must_use]
    pub fn has_before(&self, until: TraceNs) -> bool {
        let before = |time: Option<TraceNs>| time.is_some_and(|time| time < until);
        before(self.samples.next_time()) || before(self.records.next_time())
    }

    fn retire(&mut self) {
        self.samples.retire();
        self.records.retire();
        self.is_active = self.samples.waited + self.records.waited > 0;
    }
}

/// Number of leading times before `stop`, in a sorted slice; fast if there are few.
#[inline]
fn before(times: &[TraceNs], stop: TraceNs) -> usize {
    const STEP: usize = 8;
    let is_before = |at: usize| times.get(at).is_some_and(|time| *time < stop);
    let mut count = 0;
    while is_before(count + STEP - 1) {
        count += STEP;
    }
    while is_before(count) {
        count += 1;
    }
    count
}

/// Number of frontiers for which a lane without records is kept.
const IDLE: u64 = 1024;

/// Holds records until the frontier has passed them.
#[derive(Debug)]
pub struct Order {
    lanes: Vec<Lane>,
    lane_of: FxHashMap<(Pid, Tid), u32>,
    /// The lanes of a process.
    lanes_of: FxHashMap<Pid, Vec<u32>>,
    /// Index of the last record's lane.
    recent: u32,
    /// Lanes with records, in the order of their first one.
    active: Vec<u32>,
    shared: Queue<Vec<Record>>,
    /// Whether a probe's marks are shared, by probe.
    shared_probes: Vec<bool>,
    payloads: Payloads,
    /// Buffer to which the payloads of waiting records are moved.
    spare: Payloads,
    frontier: TraceNs,
    frontiers: u64,
}

impl Order {
    /// Returns an empty `Order`. `shared_probes`: by probe, whether its marks concern several threads; false for
    /// probes beyond the slice.
    #[must_use]
    pub fn new(shared_probes: &[bool]) -> Self {
        Self {
            lanes: Vec::new(),
            lane_of: FxHashMap::default(),
            lanes_of: FxHashMap::default(),
            recent: 0,
            active: Vec::new(),
            shared: Queue::default(),
            shared_probes: shared_probes.to_vec(),
            payloads: Payloads::default(),
            spare: Payloads::default(),
            frontier: TraceNs(i64::MIN),
            frontiers: 0,
        }
    }

    /// Number of waiting records.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let active = self.active.iter().map(|&lane| &self.lanes[lane as usize]);
        let waiting = active.map(|l| l.samples.waiting() + l.records.waiting());
        waiting.sum::<usize>() + self.shared.waiting()
    }

    /// Makes every record below the frontier ready, and reports late ones. When [`Ready`] is dropped, ready records
    /// are removed, used or not.
    ///
    /// A frontier below an earlier one is replaced by that one. Cost: the lanes with records, and sorting those of
    /// threads that changed CPU.
    pub fn advance(&mut self, frontier: TraceNs, mut late: impl FnMut(Late)) -> Ready<'_> {
        let before = self.frontier;
        self.frontier = before.max(frontier);
        self.frontiers += 1;
        for &index in &self.active {
            let lane = &mut self.lanes[index as usize];
            lane.used_at = self.frontiers;
            lane.samples.settle(before, self.frontier, &mut late);
            lane.records.settle(before, self.frontier, &mut late);
        }
        self.shared.settle(before, self.frontier, &mut late);
        Ready { order: self }
    }

    /// Returns a thread's lane and marks it as active.
    #[inline(always)]
    fn lane(&mut self, pid: Pid, tid: Tid) -> &mut Lane {
        let is_recent = |lane: &Lane| lane.tid == tid && lane.pid == pid && lane.is_active;
        if !self.lanes.get(self.recent as usize).is_some_and(is_recent) {
            self.find_lane(pid, tid);
        }
        &mut self.lanes[self.recent as usize]
    }

    #[inline(never)]
    fn find_lane(&mut self, pid: Pid, tid: Tid) {
        let next = self.lanes.len() as u32;
        let index = *self.lane_of.entry((pid, tid)).or_insert(next);
        if index == next {
            self.lanes.push(Lane::new(pid, tid));
            self.lanes_of.entry(pid).or_default().push(index);
        }
        let lane = &mut self.lanes[index as usize];
        if !lane.is_active {
            lane.is_active = true;
            self.active.push(index);
        }
        self.recent = index;
    }

    fn retire(&mut self) {
        self.shared.retire();
        let lanes = &mut self.lanes;
        self.active.retain(|&index| {
            let lane = &mut lanes[index as usize];
            lane.retire();
            lane.is_active
        });
        self.move_payloads();
        if self.frontiers.is_multiple_of(IDLE) {
            self.forget_idle();
        }
    }

    /// Keeps the payloads of waiting records and drops the others.
    fn move_payloads(&mut self) {
        let Self {
            lanes,
            active,
            shared,
            payloads,
            spare,
            ..
        } = self;
        spare.clear();
        let mut keep = |record: &mut Record| {
            if let Body::Mark { args, .. } | Body::Counts { words: args, .. } = &mut record.body {
                *args = spare.push(args.valid, payloads.get(*args));
            }
        };
        for &index in &*active {
            let waiting = lanes[index as usize].records.waiting_mut();
            waiting.iter_mut().for_each(&mut keep);
        }
        shared.waiting_mut().iter_mut().for_each(keep);
        std::mem::swap(payloads, spare);
    }

    /// Drops lanes without records for [`IDLE`] frontiers: mostly of threads that ended.
    fn forget_idle(&mut self) {
        let now = self.frontiers;
        self.lanes
            .retain(|lane| lane.is_active || now - lane.used_at < IDLE);
        self.lane_of.clear();
        self.lanes_of.clear();
        self.active.clear();
        for (index, lane) in (0..).zip(&self.lanes) {
            self.lane_of.insert((lane.pid, lane.tid), index);
            self.lanes_of.entry(lane.pid).or_default().push(index);
            if lane.is_active {
                self.active.push(index);
            }
        }
        self.recent = 0;
    }
}

impl Inbox for Order {
    #[inline(always)]
    fn sample(&mut self, pid: Pid, tid: Tid, sample: RawSample) {
        self.lane(pid, tid).samples.extend([sample].as_slice());
    }

    #[inline(always)]
    fn samples(&mut self, pid: Pid, tid: Tid, samples: &impl SampleSource) {
        self.lane(pid, tid).samples.extend(samples);
    }

    fn record(&mut self, record: Record) {
        let is_shared = match record.body {
            Body::Fork { .. } | Body::Exec { .. } | Body::Throttle { .. } => true,
            Body::Mark { probe, .. } => {
                let probe = usize::from(probe.0);
                self.shared_probes.get(probe) == Some(&true)
            }
            _ => false,
        };
        if is_shared {
            self.shared.push(record);
        } else {
            self.lane(record.pid, record.tid).records.push(record);
        }
    }

    fn payloads(&mut self) -> &mut Payloads {
        &mut self.payloads
    }
}

/// The records below the frontier.
#[derive(Debug)]
pub struct Ready<'a> {
    order: &'a mut Order,
}

/// The parts of [`Ready`], borrowed side by side.
#[derive(Debug)]
pub struct Parts<'a> {
    lanes: &'a mut [Lane],
    lane_of: &'a FxHashMap<(Pid, Tid), u32>,
    lanes_of: &'a FxHashMap<Pid, Vec<u32>>,
    active: &'a [u32],
    /// Bytes of the marks' arguments.
    pub payloads: &'a Payloads,
}

impl Parts<'_> {
    /// Returns a thread's lane, if it has one.
    pub fn lane(&mut self, pid: Pid, tid: Tid) -> Option<&mut Lane> {
        let index = *self.lane_of.get(&(pid, tid))?;
        self.lanes.get_mut(index as usize)
    }

    /// Calls `each` with every lane that has records.
    pub fn each(&mut self, mut each: impl FnMut(&mut Lane, &Payloads)) {
        for &index in self.active {
            each(&mut self.lanes[index as usize], self.payloads);
        }
    }

    /// Calls `each` with every lane of a process.
    pub fn each_of(&mut self, pid: Pid, mut each: impl FnMut(&mut Lane, &Payloads)) {
        for &index in self.lanes_of.get(&pid).into_iter().flatten() {
            each(&mut self.lanes[index as usize], self.payloads);
        }
    }
}

impl Ready<'_> {
    /// All ready records that were not read, without samples, thread by thread; shared ones last.
    pub fn records_by_thread(&self) -> impl Iterator<Item = &[Record]> {
        let active = self.order.active.iter();
        let lanes = active.map(|&lane| self.order.lanes[lane as usize].records.ready());
        lanes.chain([self.order.shared.ready()])
    }

    /// Same, one by one.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records_by_thread().flatten()
    }

    /// Number of samples that are ready and not read.
    #[must_use]
    pub fn samples(&self) -> usize {
        let active = self.order.active.iter();
        active
            .map(|&lane| self.order.lanes[lane as usize].samples.ready().len())
            .sum()
    }

    /// Time of the last record or sample that is ready and not read.
    #[must_use]
    pub fn last(&self) -> Option<TraceNs> {
        let active = self.order.active.iter();
        let samples = active.filter_map(|&lane| {
            let samples = self.order.lanes[lane as usize].samples.ready();
            samples.last().copied()
        });
        samples.chain(self.records().map(|r| r.time)).max()
    }

    /// Takes the next shared record before `until`.
    pub fn next_shared(&mut self, until: TraceNs) -> Option<Record> {
        let shared = &mut self.order.shared;
        let record = *shared.ready().first()?;
        (record.time < until).then(|| {
            shared.read += 1;
            record
        })
    }

    /// Returns everything but the shared records.
    pub fn parts(&mut self) -> Parts<'_> {
        let Order {
            lanes,
            lane_of,
            lanes_of,
            active,
            payloads,
            ..
        } = &mut *self.order;
        Parts {
            lanes,
            lane_of,
            lanes_of,
            active,
            payloads,
        }
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.order.retire();
    }
}

#[cfg(test)]
mod tests;
