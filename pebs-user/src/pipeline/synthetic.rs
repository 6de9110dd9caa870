//! Synthetic streams, in the form of the kernel's rings, made from a seed: input of benchmarks and tests.
//!
//! Every CPU runs its threads in turn. A thread handles items of 20 us, one after another, with a call probe's mark at
//! begin and end, and a sample about every microsecond in between. Samples lie in 300 functions; a thread stays in one
//! for four samples on average.
//!
//! Assumption: the stages' cost depends on the number of streams, open visits and distinct functions, and on how nearly
//! each stream is sorted. All four are like a busy server's; rare records (fork, exec, exit, named arguments) are left
//! out.

use std::collections::VecDeque;

use pebs_common::record::{Head, Kind, Role, mark_flag, switch_flag};

use super::{Keep, PipelineOptions};
use crate::estimate::EventTime;
use crate::probe::set::{Probe, ProbeSet};
use crate::rng::SplitMix64;
use crate::store::options::WriterOptions;
use crate::store::run::VisitRule;
use crate::stream::decode::RecordKinds;
use crate::units::{Cpu, FunctionId, Ip, KtimeNs};

/// Number of sampled functions.
pub const FUNCTIONS: u32 = 300;
/// Samples per item: 20 us at one a microsecond.
pub const ITEM_SAMPLES: u32 = 20;
/// Default start of a [`Workload`], ns on `CLOCK_MONOTONIC`.
pub const START_NS: u64 = 1_000_000_000_000;

/// Time between two records of a CPU, ns.
const TICK_NS: u64 = 1000;
/// Ticks between two drains of the rings: 2 ms.
const BATCH_TICKS: u64 = 2000;
/// Ticks of a thread until the next one of its CPU takes over.
const SLICE_TICKS: u64 = 1000;
/// One in this many switches moves the thread to the next CPU.
const MIGRATE_ONE_IN: u64 = 8;
/// One in this many marks is interrupted by a sample, which has the earlier time but comes later in the ring.
const INVERT_ONE_IN: u64 = 50;
/// Delay of the reader from one ring to the next, ns.
const LOOK_NS: u64 = 2000;

const PID: u32 = 4000;
const TEXT: u64 = 0x40_0000;
const FUNCTION_BYTES: u64 = 0x400;
/// Distinct sampled addresses per function.
const ADDRESSES: u64 = 16;

/// Pipeline options for these streams: samples of one clock, switches, page faults.
#[must_use]
pub fn options() -> PipelineOptions {
    PipelineOptions {
        origin: KtimeNs(START_NS),
        kinds: RecordKinds {
            switches: true,
            page_faults: true,
            ..RecordKinds::default()
        },
        counted: Vec::new(),
        count_interval: None,
        event_times: vec![EventTime::Clock],
        costly_events: u64::MAX,
        resets: vec![1000],
        watches: Vec::new(),
        max_samples: 1 << 20,
        max_stack_bytes: 1 << 20,
        symbolize: Default::default(),
        keep: Keep::All,
        bulk: None,
        interval: WriterOptions::default().segment,
    }
}

/// Appends a record to a ring's bytes, framed as the kernel does.
///
/// Source: `struct bpf_ringbuf_hdr` and `BPF_RINGBUF_DISCARD_BIT`, kernel/bpf/ringbuf.c.
pub fn frame(ring: &mut Vec<u8>, payload: &[u8], discarded: bool) {
    let length = payload.len() as u32 | u32::from(discarded) << 30;
    ring.extend(length.to_ne_bytes());
    ring.extend([0; 4]);
    ring.extend(payload);
    ring.resize(ring.len().next_multiple_of(8), 0);
}

/// Appends a record made of 64-bit words.
pub fn frame_words(ring: &mut Vec<u8>, words: &[u64]) {
    let length = (words.len() * 8) as u32;
    ring.extend(length.to_ne_bytes());
    ring.extend([0; 4]);
    words
        .iter()
        .for_each(|word| ring.extend(word.to_ne_bytes()));
}

/// Pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// The next number below `limit`, which must not be 0. The bias is below 1 in 2^32.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }
}

/// Parameters of the streams.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Number of CPUs, and of streams.
    pub cpus: u16,
    /// Number of threads, at least one per CPU.
    pub threads: u32,
    /// Approximate number of records.
    pub records: usize,
    /// Equal seeds give equal bytes.
    pub seed: u64,
    /// `CLOCK_MONOTONIC` before the first record.
    pub start: KtimeNs,
    /// The process; its first thread has the same number.
    pub pid: u32,
    /// Address of the first function; the others follow at 1 KiB each.
    pub text: u64,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            cpus: 1,
            threads: 1,
            records: 0,
            seed: 1,
            start: KtimeNs(START_NS),
            pid: PID,
            text: TEXT,
        }
    }
}

/// The content of all rings in one round of the draining thread.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Each ring's bytes.
    pub streams: Vec<(Cpu, Vec<u8>)>,
    /// No record in a later batch has an earlier time.
    pub frontier: KtimeNs,
}

/// The probe whose marks the workload makes.
#[must_use]
pub fn probes() -> ProbeSet {
    ProbeSet {
        probes: vec![Probe::without_sites(
            "app:handle(id=arg1)".to_owned(),
            VisitRule::Call,
        )],
        ..ProbeSet::default()
    }
}

/// The function of a sampled address, for the default [`Workload::text`].
#[must_use]
pub const fn function_of(ip: Ip) -> FunctionId {
    FunctionId((ip.0.wrapping_sub(TEXT) / FUNCTION_BYTES) as u32)
}

/// Makes the streams of a workload.
#[must_use]
pub fn batches(workload: &Workload) -> Vec<Batch> {
    stream(workload).collect()
}

/// Like [`batches`], one at a time, for workloads larger than memory.
pub fn stream(workload: &Workload) -> impl Iterator<Item = Batch> {
    Machine::new(workload)
}

/// A thread and its current item.
#[derive(Clone, Debug)]
struct Task {
    tid: u32,
    function: u64,
    /// Samples left of its item; `None` between two items.
    left: Option<u32>,
}

#[derive(Debug, Default)]
struct Core {
    /// The first one is running.
    tasks: VecDeque<Task>,
    ring: Vec<u8>,
}

#[derive(Debug)]
struct Machine {
    cores: Vec<Core>,
    workload: Workload,
    random: Random,
    records: usize,
    item: u64,
    /// Ticks in the batches made so far.
    ticks: u64,
}

impl Iterator for Machine {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        (self.records < self.workload.records).then(|| self.batch())
    }
}

impl Machine {
    fn new(workload: &Workload) -> Self {
        let cpus = usize::from(workload.cpus.max(1));
        let mut cores: Vec<Core> = Vec::new();
        cores.resize_with(cpus, Core::default);
        for n in 0..workload.threads.max(cpus as u32) {
            let task = Task {
                tid: workload.pid + n,
                function: 0,
                left: None,
            };
            cores[n as usize % cpus].tasks.push_back(task);
        }
        Self {
            cores,
            workload: *workload,
            random: Random::new(workload.seed),
            records: 0,
            item: 0,
            ticks: 0,
        }
    }

    fn batch(&mut self) -> Batch {
        let end = self.ticks + BATCH_TICKS;
        let mut streams: Vec<(Cpu, Vec<u8>)> = Vec::new();
        (self.ticks..end).for_each(|tick| self.tick(tick));
        // The reader is at the first ring at the batch's end, and at the others a little later: they hold records newer
        // than the frontier.
        let looks = (self.cores.len() as u64 * LOOK_NS).div_ceil(TICK_NS);
        for (n, core) in self.cores.iter_mut().enumerate() {
            streams.push((Cpu(n as u16), std::mem::take(&mut core.ring)));
        }
        for tick in end..end + looks {
            self.tick(tick);
            for (n, core) in self.cores.iter_mut().enumerate() {
                if (tick - end) * TICK_NS < n as u64 * LOOK_NS {
                    streams[n].1.append(&mut core.ring);
                }
            }
        }
        self.ticks = end + looks;
        Batch {
            streams,
            frontier: KtimeNs(self.workload.start.0 + end * TICK_NS),
        }
    }

    /// Adds one or two records of every CPU.
    fn tick(&mut self, tick: u64) {
        for cpu in 0..self.cores.len() {
            let time = self.workload.start.0
                + tick * TICK_NS
                + self.random.below(TICK_NS / 2)
                + TICK_NS / 4;
            if tick % SLICE_TICKS == SLICE_TICKS - 1 {
                self.switch(cpu, time);
            } else {
                self.step(cpu, time);
            }
        }
    }

    fn put(&mut self, cpu: usize, words: [u64; 4]) {
        frame_words(&mut self.cores[cpu].ring, &words);
        self.records += 1;
    }

    /// Switches a CPU to its next thread.
    fn switch(&mut self, cpu: usize, time: u64) {
        let next = if self.random.below(MIGRATE_ONE_IN) == 0 {
            cpu + 1
        } else {
            cpu
        };
        let core = &mut self.cores[cpu];
        if core.tasks.len() < 2 {
            return self.step(cpu, time);
        }
        let Some(task) = core.tasks.pop_front() else {
            return;
        };
        let to = core.tasks.front().map_or(0, |task| task.tid);
        let out = Head::new(
            Kind::SwitchOut,
            switch_flag::PREEMPTED,
            0,
            self.workload.pid,
            task.tid,
        );
        let ip = self.workload.text + task.function * FUNCTION_BYTES;
        let target = next % self.cores.len();
        self.cores[target].tasks.push_back(task);
        self.put(cpu, [out.0, time, ip, 0]);
        self.put(
            cpu,
            [
                Head::new(Kind::SwitchIn, 0, 0, self.workload.pid, to).0,
                time + 1,
                0,
                0,
            ],
        );
    }

    /// Adds the running thread's next mark or sample.
    fn step(&mut self, cpu: usize, time: u64) {
        let Some(mut task) = self.cores[cpu].tasks.pop_front() else {
            return;
        };
        match task.left {
            None => {
                self.item += 1;
                task.function = self.random.below(u64::from(FUNCTIONS));
                self.mark(cpu, &task, Role::Begin, self.item, time);
                task.left = Some(ITEM_SAMPLES);
            }
            Some(0) => {
                self.mark(cpu, &task, Role::Return, 0, time);
                task.left = None;
            }
            Some(left) => {
                if self.random.below(4) == 0 {
                    task.function = self.random.below(u64::from(FUNCTIONS));
                }
                self.sample(cpu, &task, time);
                task.left = Some(left - 1);
            }
        }
        self.cores[cpu].tasks.push_front(task);
    }

    fn mark(&mut self, cpu: usize, task: &Task, role: Role, id: u64, time: u64) {
        let valid = if role == Role::Begin {
            mark_flag::ID_VALID
        } else {
            0
        };
        let head = Head::new(
            Kind::Mark,
            role as u8 | valid,
            0,
            self.workload.pid,
            task.tid,
        );
        self.put(cpu, [head.0, time, stack(task), id]);
        if self.random.below(INVERT_ONE_IN) == 0 {
            self.sample(cpu, task, time - 5);
        }
    }

    fn sample(&mut self, cpu: usize, task: &Task, time: u64) {
        let ip =
            self.workload.text + task.function * FUNCTION_BYTES + self.random.below(ADDRESSES) * 4;
        let head = Head::new(Kind::Sample, 0, 0, self.workload.pid, task.tid);
        let sp = stack(task) - 0x100 - self.random.below(16) * 16;
        self.put(cpu, [head.0, time, ip, sp]);
    }
}

/// Stack pointer at the probed function's first instruction.
const fn stack(task: &Task) -> u64 {
    0x7f00_0000_0000 + ((task.tid as u64) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::clock::Clock;
    use crate::stream::decode::{Decoded, decode};
    use crate::stream::order::{Order, Ready};
    use crate::units::TraceNs;

    const SMALL: Workload = Workload {
        cpus: 4,
        threads: 9,
        records: 20_000,
        seed: 1,
        start: KtimeNs(START_NS),
        pid: PID,
        text: TEXT,
    };

    /// Equal seeds give equal bytes, others don't.
    #[test]
    fn seeded() {
        let bytes = |seed| batches(&Workload { seed, ..SMALL })[0].streams[0].1.clone();
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
    }

    /// Every byte belongs to a record that decodes, no record is behind its batch's frontier, and streams are nearly
    /// but not completely sorted.
    #[test]
    fn well_formed() {
        let (mut clock, mut order) = (Clock::new(KtimeNs(START_NS)), Order::new(&[]));
        let (mut sum, mut inversions, mut handed) = (Decoded::default(), 0, 0);
        let count = |ready: Ready<'_>| (ready.samples() + ready.records().count()) as u64;
        for batch in batches(&SMALL) {
            for (cpu, bytes) in &batch.streams {
                inversions += inversions_of(bytes);
                let decoded = decode(*cpu, bytes, &mut clock, &mut order);
                sum.samples += decoded.samples;
                sum.marks += decoded.marks;
                sum.tasks += decoded.tasks;
                sum.malformed += decoded.malformed;
            }
            let frontier = clock.trace_of_ktime(batch.frontier);
            handed += count(order.advance(frontier, |_| panic!("late")));
            assert!(order.waiting() > 0, "the later rings hold newer records");
        }
        handed += count(order.advance(TraceNs(i64::MAX), |_| panic!("late")));
        assert_eq!(handed, sum.samples + sum.marks + sum.tasks);
        assert!(
            sum.samples >= 9 * sum.marks && sum.marks > 1000 && sum.tasks > 10,
            "{sum:?}"
        );
        assert_eq!(sum.malformed, 0);
        assert!(inversions > 5);
    }

    /// Number of records with an earlier time than the one before. Time is the second word.
    fn inversions_of(mut ring: &[u8]) -> usize {
        let (mut inversions, mut last) = (0, 0);
        while let [a, b, c, d, _, _, _, _, rest @ ..] = ring {
            let length = (u32::from_ne_bytes([*a, *b, *c, *d]) & 0xfff_ffff) as usize;
            let time = u64::from_ne_bytes(rest[8..16].try_into().unwrap());
            inversions += usize::from(time < last);
            last = time;
            ring = &rest[length.next_multiple_of(8)..];
        }
        inversions
    }
}
