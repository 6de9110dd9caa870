//! Items of 24 us in five functions, a sample every microsecond, some of them slow.

use std::collections::BTreeSet;
use std::hint::black_box;

use pebs_common::counter::Counter;
use pebs_common::record::{Head, Kind, Role, mark_flag};
use pebs_user::pipeline::synthetic::{Random, START_NS, frame_words};
use pebs_user::stream::cycle::Cycle;
use pebs_user::units::{Cpu, KtimeNs};

/// `CLOCK_MONOTONIC` of ns 0.
pub const ORIGIN: u64 = START_NS;
/// Items of the stream.
pub const ITEMS: u64 = 10_000;
/// One in this many is slow, and one in this many has a slow function.
const ONE_IN: u64 = 200;
/// Items of a cycle.
const CYCLE: u64 = 100;
const SAMPLE_NS: u64 = 1000;
const STACK: u64 = 0x7fff_0000;

/// Usual times of the five functions, ns.
const USUAL: [u64; 5] = [4_000, 8_000, 4_000, 6_000, 2_000];
/// One function takes 100 us longer.
const SLOW: [u64; 5] = [4_000, 8_000, 104_000, 6_000, 2_000];
/// The usual total, but the last function takes most of it.
const SLOW_FUNCTION: [u64; 5] = [2_000, 1_000, 1_000, 3_000, 14_000];

/// Code for samples, so that they have names.
const CODE: [fn(); 5] = [
    || _ = black_box(1),
    || _ = black_box("2"),
    || _ = black_box(3.0),
    || _ = black_box([4]),
    || _ = black_box((5, 5)),
];

/// Ring contents, and the truth.
pub struct Stream {
    cycles: Vec<(Vec<u8>, u64)>,
    marks: u64,
    pub samples: u64,
    /// Items that take five times as long as usual.
    pub slow: BTreeSet<u64>,
    /// Items of usual duration with a function that takes seven times as long.
    pub slow_function: BTreeSet<u64>,
    now: u64,
    next_sample: u64,
    random: Random,
}

impl Stream {
    /// Makes the same stream each time. The first 149 items are usual, as there is no baseline yet.
    pub fn new() -> Self {
        let mut stream = Self {
            cycles: Vec::new(),
            marks: 0,
            samples: 0,
            slow: BTreeSet::new(),
            slow_function: BTreeSet::new(),
            now: ORIGIN + 1000,
            next_sample: ORIGIN,
            random: Random::new(5),
        };
        let mut ring = Vec::new();
        for item in 1..=ITEMS {
            let times = match item % ONE_IN {
                0 => SLOW,
                150 => SLOW_FUNCTION,
                _ => USUAL,
            };
            match item % ONE_IN {
                0 => _ = stream.slow.insert(item),
                150 => _ = stream.slow_function.insert(item),
                _ => {}
            }
            stream.item(&mut ring, item, times);
            if item % CYCLE == 0 {
                stream.cycles.push((std::mem::take(&mut ring), stream.now));
            }
        }
        stream
    }

    fn item(&mut self, ring: &mut Vec<u8>, item: u64, times: [u64; 5]) {
        self.mark(ring, Role::Begin, mark_flag::ID_VALID, item);
        for (code, time) in CODE.iter().zip(times) {
            // At random up to a quarter more or less.
            let end = self.now + time * (75 + self.random.below(50)) / 100;
            while self.next_sample < end {
                if self.next_sample > self.now {
                    let head = head(Kind::Sample, 0);
                    let ip = *code as usize as u64;
                    frame_words(ring, &[head, self.next_sample, ip, STACK - 64]);
                    self.samples += 1;
                }
                self.next_sample += SAMPLE_NS + self.random.below(7);
            }
            self.now = end;
        }
        self.mark(ring, Role::Return, 0, 0);
        self.now += 2000;
        self.next_sample = self.now + 1 + self.random.below(SAMPLE_NS);
    }

    fn mark(&mut self, ring: &mut Vec<u8>, role: Role, flags: u8, id: u64) {
        let head = head(Kind::Mark, role as u8 | flags);
        frame_words(ring, &[head, self.now, STACK, id]);
        self.marks += 1;
    }

    /// The cycles of the draining thread. The last one has the counters.
    pub fn cycles(&self) -> Vec<Cycle> {
        let last = self.cycles.len() - 1;
        let cycle = |(n, (bytes, end)): (usize, &(Vec<u8>, u64))| {
            let mut row = [0; Counter::COUNT as usize];
            if n == last {
                row[Counter::SampleEmitted as usize] = self.samples;
                row[Counter::MarkEmitted as usize] = self.marks;
            }
            Cycle {
                bulk: Vec::new(),
                streams: vec![(Cpu(0), bytes.clone())],
                counters: vec![row],
                sideband: Vec::new(),
                frontier: KtimeNs(*end),
                counted_at: KtimeNs(*end),
            }
        };
        self.cycles.iter().enumerate().map(cycle).collect()
    }

    /// End of the trace.
    pub fn end(&self) -> KtimeNs {
        KtimeNs(self.now)
    }
}

fn head(kind: Kind, flags: u8) -> u64 {
    let pid = std::process::id();
    Head::new(kind, flags, 0, pid, pid).0
}
