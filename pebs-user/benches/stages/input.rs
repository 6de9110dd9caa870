//! The input of each stage, made by the stages before it.

use std::hint::black_box;

use perf_event_open_sys::bindings as sys;

use pebs_common::record::{Head, Kind};
use pebs_user::correlate::{ClosedVisit, Correlator, Lost, Sink};
use pebs_user::estimate::{Events, Series};
use pebs_user::ledger::Reason;
use pebs_user::perf::layout::Layout;
use pebs_user::pipeline::synthetic::{self, Batch, Random, START_NS, Workload, function_of};
use pebs_user::stream::bulk::RingKind;
use pebs_user::stream::clock::Clock;
use pebs_user::stream::cycle::{BulkStream, Cycle};
use pebs_user::stream::order::Order;
use pebs_user::stream::samples::Samples;
use pebs_user::symbolize::Symbolizer;
use pebs_user::units::{Cpu, EventId, FunctionId, Ip, KtimeNs, Pid, Tid, TraceNs};

use crate::rows::{AllRows, Rows};
use crate::{CORRELATE, fill};

/// The input of all stages, for one machine.
pub struct Input {
    pub batches: Vec<Batch>,
    /// Records in the batches.
    pub records: usize,
    pub visits: Visits,
    pub end: TraceNs,
}

impl Input {
    pub fn new(cpus: u16, threads: u32, records: usize) -> Self {
        let batches = synthetic::batches(&Workload {
            cpus,
            threads,
            records,
            seed: 7,
            ..Workload::default()
        });
        let end = batches.last().map_or(KtimeNs(START_NS), |b| b.frontier);
        let mut input = Self {
            records: 0,
            visits: Visits::default(),
            end: Clock::new(KtimeNs(START_NS)).trace_of_ktime(end),
            batches,
        };
        let mut visits = Visits::default();
        input.records = input.correlate(&mut visits);
        input.visits = visits;
        input
    }

    /// Runs the stages up to correlation; returns the number of records.
    fn correlate(&self, sink: &mut impl Sink) -> usize {
        let mut correlator = Correlator::new(&synthetic::probes(), CORRELATE);
        let (mut order, mut clock) = (Order::new(&[]), Clock::new(KtimeNs(START_NS)));
        let mut records = 0;
        for batch in &self.batches {
            fill(&mut order, &mut clock, batch);
            let frontier = clock.trace_of_ktime(batch.frontier);
            let mut ready = order.advance(frontier, |late| panic!("{late:?}"));
            records += ready.samples() + ready.records().count();
            correlator.advance(&mut ready, frontier, sink);
        }
        let mut ready = order.advance(TraceNs(i64::MAX), |late| panic!("{late:?}"));
        records += ready.samples() + ready.records().count();
        correlator.advance(&mut ready, TraceNs(i64::MAX), sink);
        drop(ready);
        correlator.finish(self.end, sink);
        records
    }

    /// Rows for the writer.
    pub fn rows(&self) -> AllRows {
        let mut rows = Rows::new();
        self.correlate(&mut rows);
        rows.out
    }
}

/// Closed visits, concatenated.
#[derive(Default)]
pub struct Visits {
    times: Vec<TraceNs>,
    functions: Vec<FunctionId>,
    active: Vec<(TraceNs, TraceNs)>,
    ends: Vec<(TraceNs, Option<TraceNs>, usize, usize)>,
}

/// One visit as input of the estimator.
pub struct Visit<'a> {
    pub begin: TraceNs,
    pub end: Option<TraceNs>,
    pub active: &'a [(TraceNs, TraceNs)],
    pub samples: Series<'a>,
}

impl Visits {
    pub fn samples(&self) -> usize {
        self.times.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = Visit<'_>> {
        let mut from = (0, 0);
        self.ends.iter().map(move |&(begin, end, active, samples)| {
            let visit = Visit {
                begin,
                end,
                active: &self.active[from.0..active],
                samples: Series {
                    times: &self.times[from.1..samples],
                    functions: &self.functions[from.1..samples],
                    events: Events::All(EventId(0)),
                },
            };
            from = (active, samples);
            visit
        })
    }
}

impl Sink for Visits {
    fn visit(&mut self, visit: &ClosedVisit<'_>) {
        self.active.extend(visit.active);
        let samples = visit.samples;
        self.times.extend(samples.times);
        let functions = samples.ips.iter().map(|ip| function_of(*ip));
        self.functions.extend(functions);
        let end = visit.end.map(|(end, _)| end);
        self.ends
            .push((visit.begin.0, end, self.active.len(), self.times.len()));
    }

    fn strays(&mut self, _: Samples<'_>, _: Pid, _: Tid) {}

    fn lost(&mut self, _: Cpu, _: Lost, _: Reason) {}
}

/// An address in this program's own code with at least 300 KiB of code after it.
fn own_text() -> u64 {
    let main = crate::main as fn() as usize as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    let ranges = maps.lines().filter_map(|line| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(hex(begin)?..hex(end)?)
    });
    let mut ranges = ranges.filter(|range| range.contains(&main));
    let text = ranges.next().expect("a mapping of this program's code");
    assert!(text.end - text.start > 400 * 1024, "too little code");
    (text.start + (text.end - text.start - 300 * 1024) / 2) & !0xf
}

/// Streams with samples in this program's own code, so that it can be symbolized.
pub struct OwnInput {
    /// A few records to process first, after which all functions are known.
    pub first: Vec<Batch>,
    pub batches: Vec<Batch>,
    pub end: KtimeNs,
}

impl OwnInput {
    pub fn new(cpus: u16, threads: u32, records: usize) -> Self {
        let all = own_workload(cpus, threads, records);
        let batches = synthetic::batches(&all);
        let end = batches.last().map_or(all.start, |batch| batch.frontier);
        Self {
            first: first_batches(&all),
            batches,
            end,
        }
    }
}

/// A workload in this program's own code.
pub fn own_workload(cpus: u16, threads: u32, records: usize) -> Workload {
    Workload {
        cpus,
        threads,
        records,
        seed: 7,
        pid: std::process::id(),
        text: own_text(),
        ..Workload::default()
    }
}

/// A few records before a workload's own, with all of its functions.
pub fn first_batches(all: &Workload) -> Vec<Batch> {
    synthetic::batches(&Workload {
        cpus: 1,
        threads: 1,
        records: 5000,
        start: KtimeNs(START_NS - 1_000_000_000),
        ..*all
    })
}

/// Samples of the bulk transport in the form of large PEBS: 32 bytes each, header included.
pub const BULK: RingKind = RingKind {
    layout: Layout {
        sample_type: (sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME) as u64,
        read_format: 0,
        branch_sample_type: 0,
        regs_user: 0,
        regs_intr: 0,
        sample_id_all: true,
    },
    perf_clock: false,
    registers: None,
    item: None,
    reports_throttling: true,
};

/// The same records, with samples moved to perf's rings.
pub fn in_bulk(mut cycle: Cycle) -> Cycle {
    for (cpu, bytes) in &mut cycle.streams {
        let mut stream = BulkStream {
            cpu: *cpu,
            ..BulkStream::default()
        };
        let mut others = Vec::new();
        for frame in bytes.chunks_exact(FRAME * 8) {
            let word = |n: usize| {
                let bytes = frame[n * 8..][..8].try_into().expect("a word");
                u64::from_ne_bytes(bytes)
            };
            let head = Head(word(1));
            if Kind::from_u8(frame[8] & 0xf) != Some(Kind::Sample) {
                others.extend_from_slice(frame);
                continue;
            }
            let misc = sys::PERF_RECORD_MISC_USER | sys::PERF_RECORD_MISC_EXACT_IP;
            let header = u64::from(sys::PERF_RECORD_SAMPLE) | u64::from(misc) << 32 | 32 << 48;
            let thread = u64::from(head.pid()) | u64::from(head.tid()) << 32;
            for word in [header, word(3), thread, word(2)] {
                stream.bytes.extend(word.to_ne_bytes());
            }
        }
        *bytes = others;
        cycle.bulk.push(stream);
    }
    cycle
}

/// Words of a record of the synthetic streams, its frame included.
const FRAME: usize = 5;

/// Addresses in this program's own code, all seen by the symbolizer.
pub struct Lookups {
    symbolizer: Symbolizer,
    pid: Pid,
    ips: Vec<Ip>,
}

impl Lookups {
    /// 100,000 look-ups of 4,800 addresses in 300 functions, 1 KiB apart.
    pub fn new() -> Self {
        let text = own_text();
        let mut random = Random::new(3);
        let mut ip = || Ip(text + random.below(300) * 1024 + random.below(16) * 4);
        let ips: Vec<Ip> = (0..100_000).map(|_| ip()).collect();
        let pid = Pid(std::process::id());
        let mut lookups = Self {
            symbolizer: Symbolizer::new(Default::default()),
            pid,
            ips,
        };
        lookups.run();
        lookups
    }

    pub fn len(&self) -> usize {
        self.ips.len()
    }

    pub fn run(&mut self) {
        for ip in &self.ips {
            black_box(self.symbolizer.function(self.pid, *ip));
        }
    }
}
