//! From the rings' streams to one stream a thread, in order of time, up to the frontier.
//!
//! Contract: each ring is nearly sorted (records of programs that interrupt one another may stand
//! the wrong way round), and when a frontier is given, no record of an earlier time can still
//! arrive. Records below the frontier come out once; the others wait.
//!
//! ```text
//!   ring 0   --A1--A3--B4----|-A9-        lane A: 1 2 3 7 | 9
//!   ring 1   ----B2--A7------|-B8-        lane B: 2 4     | 8
//!                            ^ frontier
//! ```
//!
//! What one thread did concerns no other thread, but for a few records. So there is no order over all
//! rings, which would cost more than everything else: each thread has a lane, filled while decoding,
//! which is sorted but for a thread that changed CPU since the last frontier. The few records that
//! concern several threads (a thread begins; the program is replaced; a counter is stopped; a mark of a probe whose
//! items are matched by id) are *shared*: they have a lane of their own, and [`Ready`] says how far
//! each lane has been read, so that others can be brought up to the time of a shared record before it
//! is used.
//!
//! A record that comes behind the frontier all the same is late: counted, and left out.

mod queue;

use rustc_hash::FxHashMap;

use crate::stream::decode::{Body, Inbox, Payloads, RawSample, Record};
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

/// What a late record was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateKind {
    #[default]
    Sample,
    Mark,
    /// Anything else.
    Task,
}

/// The records of one thread.
#[derive(Debug)]
pub struct Lane {
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    samples: Queue<RawSampleBuf>,
    records: Queue<Vec<Record>>,
    /// It is in the list of lanes with records.
    is_active: bool,
    /// When it last was, counted in frontiers.
    used_at: u64,
}

/// What a thread did next.
#[derive(Debug)]
pub enum Turn<'a> {
    /// Samples, in order of time, with nothing between them.
    Samples(RawSamples<'a>),
    /// One other record.
    Record(&'a Record),
}

/// Two records with nothing but samples between them.
#[derive(Clone, Copy, Debug)]
pub struct Two<'a> {
    pub first: &'a Record,
    pub second: &'a Record,
    /// The samples from the first on before the second.
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

    /// The next turn before a time. Of a sample and another record of the same time, the sample comes
    /// last: times are half-open.
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

    /// The next two records before a time, and the samples between them, if no sample comes before the first.
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

    /// Two records and the samples between them were read: see [`Lane::next_two`].
    #[inline]
    pub const fn pass_two(&mut self, between: usize) {
        self.records.read += 2;
        self.samples.read += between;
    }

    /// Whether there is a turn before a time.
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

/// How many times, which rise, come before an instant: a few of many.
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

/// Frontiers for which a lane without records is kept.
const IDLE: u64 = 1024;

/// Holds records back until their turn.
#[derive(Debug)]
pub struct Order {
    lanes: Vec<Lane>,
    lane_of: FxHashMap<(Pid, Tid), u32>,
    /// The lanes of a process.
    lanes_of: FxHashMap<Pid, Vec<u32>>,
    /// The lane of the last record.
    recent: u32,
    /// Lanes with records, in the order in which they got the first.
    active: Vec<u32>,
    shared: Queue<Vec<Record>>,
    /// By probe: whether its marks are shared.
    shared_probes: Vec<bool>,
    payloads: Payloads,
    /// Where the payloads of records that wait move to.
    spare: Payloads,
    frontier: TraceNs,
    frontiers: u64,
}

impl Order {
    /// Nothing waits yet. `shared_probes`: by probe, whether its marks concern several threads; those
    /// of a probe beyond the slice do not.
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

    /// Records that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let active = self.active.iter().map(|&lane| &self.lanes[lane as usize]);
        let waiting = active.map(|l| l.samples.waiting() + l.records.waiting());
        waiting.sum::<usize>() + self.shared.waiting()
    }

    /// Makes every record below the frontier ready, and reports late ones. When [`Ready`] is dropped,
    /// what was ready is gone, used or not.
    ///
    /// A frontier below an earlier one counts as the earlier one. Cost: the lanes with records, and
    /// sorting those of threads that changed CPU.
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

    /// The lane of a thread, which has a record now.
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

    /// Keeps the payloads of records that wait on.
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

    /// Drops lanes that had no record for long: of threads that ended, mostly.
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

/// The parts of [`Ready`], to be used side by side.
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
    /// The lane of a thread, if it has one.
    pub fn lane(&mut self, pid: Pid, tid: Tid) -> Option<&mut Lane> {
        let index = *self.lane_of.get(&(pid, tid))?;
        self.lanes.get_mut(index as usize)
    }

    /// Lets `each` have every lane with records.
    pub fn each(&mut self, mut each: impl FnMut(&mut Lane, &Payloads)) {
        for &index in self.active {
            each(&mut self.lanes[index as usize], self.payloads);
        }
    }

    /// The same of every lane of a process.
    pub fn each_of(&mut self, pid: Pid, mut each: impl FnMut(&mut Lane, &Payloads)) {
        for &index in self.lanes_of.get(&pid).into_iter().flatten() {
            each(&mut self.lanes[index as usize], self.payloads);
        }
    }
}

impl Ready<'_> {
    /// Every record that is ready and not read, samples aside, thread by thread; at last those that are shared.
    pub fn records_by_thread(&self) -> impl Iterator<Item = &[Record]> {
        let active = self.order.active.iter();
        let lanes = active.map(|&lane| self.order.lanes[lane as usize].records.ready());
        lanes.chain([self.order.shared.ready()])
    }

    /// The same, one by one.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records_by_thread().flatten()
    }

    /// How many samples are ready and not read.
    #[must_use]
    pub fn samples(&self) -> usize {
        let active = self.order.active.iter();
        active
            .map(|&lane| self.order.lanes[lane as usize].samples.ready().len())
            .sum()
    }

    /// Time of the last one that is ready and not read.
    #[must_use]
    pub fn last(&self) -> Option<TraceNs> {
        let active = self.order.active.iter();
        let samples = active.filter_map(|&lane| {
            let samples = self.order.lanes[lane as usize].samples.ready();
            samples.last().copied()
        });
        samples.chain(self.records().map(|r| r.time)).max()
    }

    /// The next shared record before a time: it is read now.
    pub fn next_shared(&mut self, until: TraceNs) -> Option<Record> {
        let shared = &mut self.order.shared;
        let record = *shared.ready().first()?;
        (record.time < until).then(|| {
            shared.read += 1;
            record
        })
    }

    /// Everything else.
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
