//! The input of each stage, made by the stages before it.

use std::hint::black_box;

use pebs_user::analysis::estimate::TimedSample;
use pebs_user::correlate::{ClosedVisit, Correlator, Lost, RawSample, Sink};
use pebs_user::stream::clock::Clock;
use pebs_user::stream::decode::Record;
use pebs_user::stream::ledger::Reason;
use pebs_user::stream::order::Order;
use pebs_user::stream::synthetic::{self, Batch, Random, START_NS, Workload, function_of};
use pebs_user::symbolize::Symbolizer;
use pebs_user::units::{Cpu, Ip, KtimeNs, Pid, Tid, TraceNs};

use crate::rows::{AllRows, Rows};
use crate::{CORRELATE, fill};

/// Everything that the stages of one machine take in.
pub struct Input {
    pub batches: Vec<Batch>,
    /// Records in the batches.
    pub records: usize,
    pub ordered: Vec<Record>,
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
        let (mut order, mut clock) = (Order::default(), Clock::new(KtimeNs(START_NS)));
        let mut ordered = Vec::new();
        batches
            .iter()
            .for_each(|batch| fill(&mut order, &mut clock, batch));
        order.advance(TraceNs(i64::MAX), |_| (), |record, _| ordered.push(*record));
        let end = ordered.last().map_or(TraceNs(0), |record| record.time);
        let mut visits = Visits::default();
        correlate(&ordered, end, &mut visits);
        Self {
            batches,
            records: ordered.len(),
            ordered,
            visits,
            end,
        }
    }

    /// Rows that the writer gets.
    pub fn rows(&self) -> AllRows {
        let mut rows = Rows::new();
        correlate(&self.ordered, self.end, &mut rows);
        rows.out
    }
}

fn correlate(records: &[Record], end: TraceNs, sink: &mut impl Sink) {
    let mut correlator = Correlator::new(&synthetic::probes(), CORRELATE);
    let payloads = Default::default();
    records
        .iter()
        .for_each(|record| correlator.push(record, &payloads, sink));
    correlator.finish(end, sink);
}

/// Closed visits, one behind the other.
#[derive(Default)]
pub struct Visits {
    samples: Vec<TimedSample>,
    active: Vec<(TraceNs, TraceNs)>,
    ends: Vec<(TraceNs, Option<TraceNs>, usize, usize)>,
}

/// One visit, as the estimator takes it.
pub struct Visit<'a> {
    pub begin: TraceNs,
    pub end: Option<TraceNs>,
    pub active: &'a [(TraceNs, TraceNs)],
    pub samples: &'a [TimedSample],
}

impl Visits {
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = Visit<'_>> {
        let mut from = (0, 0);
        self.ends.iter().map(move |&(begin, end, active, samples)| {
            let visit = Visit {
                begin,
                end,
                active: &self.active[from.0..active],
                samples: &self.samples[from.1..samples],
            };
            from = (active, samples);
            visit
        })
    }
}

impl Sink for Visits {
    fn visit(&mut self, visit: &ClosedVisit) {
        self.active.extend(&visit.active);
        self.samples.extend(visit.samples.iter().map(timed_sample));
        let end = visit.end.map(|(end, _)| end);
        self.ends
            .push((visit.begin.0, end, self.active.len(), self.samples.len()));
    }

    fn stray(&mut self, _: &RawSample, _: Pid, _: Tid) {}

    fn lost(&mut self, _: Cpu, _: Lost, _: Reason) {}
}

/// A sample with its function, without a look-up.
pub fn timed_sample(sample: &RawSample) -> TimedSample {
    TimedSample {
        time: sample.time,
        function: function_of(sample.ip),
        event: sample.event,
    }
}

/// An address in this program's own code that 300 KiB more of it follow.
fn own_text() -> u64 {
    let main = (crate::main as fn() as usize as u64) & !0xf;
    main - 300 * 1024
}

/// Streams whose samples lie in this program's own code, so that it can name them.
pub struct OwnInput {
    /// Few records, to be taken in first: after them all functions are known.
    pub first: Vec<Batch>,
    pub batches: Vec<Batch>,
    pub end: KtimeNs,
}

impl OwnInput {
    pub fn new(cpus: u16, threads: u32, records: usize) -> Self {
        let pid = std::process::id();
        let all = Workload {
            cpus,
            threads,
            records,
            seed: 7,
            pid,
            text: own_text(),
            ..Workload::default()
        };
        let start = KtimeNs(START_NS - 1_000_000_000);
        let first = Workload {
            cpus: 1,
            threads: 1,
            records: 5000,
            start,
            ..all
        };
        let batches = synthetic::batches(&all);
        let end = batches.last().map_or(all.start, |batch| batch.frontier);
        Self {
            first: synthetic::batches(&first),
            batches,
            end,
        }
    }
}

/// Addresses in this program's own code, all of which the symbolizer has seen.
pub struct Lookups {
    symbolizer: Symbolizer,
    pid: Pid,
    ips: Vec<Ip>,
}

impl Lookups {
    /// 100,000 look-ups of 4,800 addresses in 300 places, 1 KiB apart.
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
