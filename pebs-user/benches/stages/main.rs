//! Cost of each stage: ns of CPU time per record, beside a read-only sum of the same bytes.
//!
//!     cargo bench -p pebs-trace --bench stages [-- FILTER]
//!     cargo bench -p pebs-trace --bench stages -- lengths=1e6,1e7,1e8
//!     cargo bench -p pebs-trace --bench stages -- lengths=1e7 trace=DIR
//!     cargo bench -p pebs-trace --bench stages -- cores
//!
//! The second shows the effect of a recording's length on the cost per record and on memory. The third keeps the trace,
//! compacted (which is then in the cost). The fourth shows the benefit of a second core.
//!
//! Streams of 1, 8 and 64 CPUs come from `pipeline::synthetic`. Time is the CPU time of all threads of the process,
//! user and system: on a shared machine it repeats better than elapsed time. The table at the end shows the best
//! iteration of each stage; compare its ratio to the sum of the same bytes between machines.

#![expect(
    clippy::expect_used,
    reason = "without room on disk there is nothing to measure"
)]

mod cores;
mod figures;
mod input;
mod lengths;
mod rows;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use pebs_user::correlate::{CorrelateOptions, Correlator};
use pebs_user::estimate::slow_by::SlowBy;
use pebs_user::estimate::{Estimator, EventTime, VisitTimeline};
use pebs_user::pipeline::synthetic::{self, Batch, START_NS};
use pebs_user::pipeline::{BulkOptions, Keep, Pipeline, PipelineOptions};
use pebs_user::store::writer::TraceWriter;
use pebs_user::stream::clock::Clock;
use pebs_user::stream::cycle::Cycle;
use pebs_user::stream::decode::decode;
use pebs_user::stream::decode::{Interferences, RecordKinds};
use pebs_user::stream::order::Order;
use pebs_user::units::KtimeNs;

use figures::{ALL_OF_RECORDING, CpuTime, Figures, cpu_time};
use input::{BULK, Input, OwnInput, in_bulk};
use rows::{Discard, Scratch};

/// CPUs, and threads on them.
const MACHINES: [(u16, u32); 3] = [(1, 4), (8, 16), (64, 256)];
/// Too many for the caches.
const RECORDS: usize = 2_000_000;
const CORRELATE: CorrelateOptions = CorrelateOptions {
    switches: true,
    other_waits: false,
    costly_events: u64::MAX,
    page_faults: false,
    interference: Interferences {
        irq: false,
        faults: false,
    },
    counters: 0,
    count_interval_ns: 0,
    ids_in_user_mode: false,
    max_samples: 10_000_000,
};

type Bench = Criterion<CpuTime>;

fn main() {
    if cores::asked() {
        return cores::run();
    }
    if let Some(lengths) = lengths::asked() {
        return lengths::run(&lengths, lengths::kept().as_deref());
    }
    let mut criterion = Criterion::default()
        .with_measurement(CpuTime)
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut figures = Figures::default();
    for (cpus, threads) in MACHINES {
        let input = Input::new(cpus, threads, RECORDS);
        let mut stages = Stages {
            criterion: &mut criterion,
            figures: &mut figures,
            cpus,
        };
        stages.read(&input);
        stages.decode(&input);
        stages.order(&input);
        stages.correlate(&input);
        stages.estimate(&input);
        stages.writer(&input);
        stages.end_to_end(threads, input.records);
    }
    let mut stages = Stages {
        criterion: &mut criterion,
        figures: &mut figures,
        cpus: 0,
    };
    stages.symbolize();
    criterion.final_summary();
    figures.print();
}

/// One machine's benchmarks.
struct Stages<'a> {
    criterion: &'a mut Bench,
    figures: &'a mut Figures,
    cpus: u16,
}

impl Stages<'_> {
    /// Runs one stage; `run` gives the CPU time of one pass over `elements`.
    fn stage(&mut self, name: &'static str, elements: usize, mut run: impl FnMut() -> Duration) {
        let mut group = self.criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(elements as u64));
        let mut best = Duration::MAX;
        group.bench_function(BenchmarkId::from_parameter(self.cpus), |bencher| {
            bencher.iter_custom(|iterations| {
                (0..iterations)
                    .map(|_| {
                        let time = run();
                        best = best.min(time);
                        time
                    })
                    .sum()
            });
        });
        group.finish();
        self.figures.add(name, self.cpus, best, elements);
    }

    fn read(&mut self, input: &Input) {
        self.stage("read-only sum", input.records, || {
            timed(|| {
                let words = input.batches.iter().flat_map(|batch| &batch.streams);
                let sum = |bytes: &[u8]| bytes.chunks_exact(8).fold(0u64, add_word);
                black_box(words.fold(0, |all: u64, (_, bytes)| all.wrapping_add(sum(bytes))));
            })
        });
    }

    /// Decoding, up to the lanes of threads.
    fn decode(&mut self, input: &Input) {
        self.stage("decode", input.records, || {
            let mut pass = Pass::default();
            pass.run(input, &mut Discard::default());
            pass.decode
        });
    }

    fn order(&mut self, input: &Input) {
        self.stage("order", input.records, || {
            let mut pass = Pass::default();
            pass.run(input, &mut Discard::default());
            pass.order
        });
    }

    fn correlate(&mut self, input: &Input) {
        self.stage("correlate", input.records, || {
            let (mut pass, mut sink) = (Pass::default(), Discard::default());
            pass.run(input, &mut sink);
            black_box(sink.samples);
            pass.correlate
        });
    }

    fn estimate(&mut self, input: &Input) {
        let (mut estimator, mut out) = (Estimator::new(&[EventTime::Clock]), Vec::new());
        self.stage("estimate", input.visits.samples(), || {
            timed(|| {
                for visit in input.visits.iter() {
                    let timeline = VisitTimeline {
                        begin: visit.begin,
                        end: visit.end,
                        active: visit.active,
                        samples: visit.samples,
                    };
                    out.clear();
                    estimator.estimate(&timeline, &mut out);
                    black_box(&out);
                }
            })
        });
    }

    /// Writing rows to closed files, with and without compaction.
    fn writer(&mut self, input: &Input) {
        let rows = input.rows();
        for (name, compact) in [("writer", false), ("writer, compacting", true)] {
            self.stage(name, input.records, || {
                let scratch = Scratch::new();
                timed(|| rows.write_to(scratch.writer(compact)))
            });
        }
    }

    /// The whole pipeline to closed files, including symbolization of known functions. The first cycles, which find the
    /// functions, are not timed.
    fn end_to_end(&mut self, threads: u32, records: usize) {
        let input = OwnInput::new(self.cpus, threads, RECORDS);
        for (name, bulk, keep, compact) in [
            ("bytes to files", false, Keep::All, false),
            (
                "same, keep slow",
                false,
                Keep::Slow(SlowBy::default()),
                false,
            ),
            ("same, keep none", false, Keep::None, false),
            (ALL_OF_RECORDING, false, Keep::All, true),
            ("bulk to files", true, Keep::All, false),
            ("same, keep none (bulk)", true, Keep::None, false),
        ] {
            let cycles = |batches: &[Batch]| -> Vec<Cycle> {
                let cycles = batches.iter().cloned().map(cycle);
                cycles
                    .map(|it| if bulk { in_bulk(it) } else { it })
                    .collect()
            };
            let first = cycles(&input.first);
            let all = cycles(&input.batches);
            self.stage(name, records, || {
                let scratch = Scratch::new();
                let mut pipeline = pipeline(scratch.writer(compact), keep, bulk);
                first
                    .clone()
                    .iter_mut()
                    .for_each(|cycle| pipeline.cycle(cycle));
                let mut cycles = all.clone();
                timed(|| {
                    cycles.iter_mut().for_each(|cycle| pipeline.cycle(cycle));
                    let outcome = pipeline.finish(input.end);
                    assert!(outcome.write_error.is_none(), "{:?}", outcome.write_error);
                    rows::finish(outcome.writer);
                })
            });
        }
    }

    fn symbolize(&mut self) {
        let mut lookups = input::Lookups::new();
        self.stage("symbolize, cached", lookups.len(), || {
            timed(|| lookups.run())
        });
    }
}

/// `bulk`: samples come in perf's rings, see [`in_bulk`].
fn pipeline(writer: TraceWriter, keep: Keep, bulk: bool) -> Pipeline {
    let options = PipelineOptions {
        origin: KtimeNs(START_NS - 1_000_000_000),
        resets: vec![16_000],
        max_samples: CORRELATE.max_samples,
        keep,
        bulk: bulk.then(|| BulkOptions {
            kinds: vec![BULK],
            everyone: true,
        }),
        interval: Duration::from_secs(10),
        kinds: RecordKinds {
            switches: CORRELATE.switches,
            page_faults: CORRELATE.page_faults,
            ..RecordKinds::default()
        },
        ..synthetic::options()
    };
    Pipeline::new(&synthetic::probes(), &options, writer, Default::default())
}

/// A batch in the form of the draining thread's cycle.
fn cycle(batch: Batch) -> Cycle {
    Cycle {
        streams: batch.streams,
        frontier: batch.frontier,
        counted_at: batch.frontier,
        ..Cycle::default()
    }
}

fn add_word(sum: u64, word: &[u8]) -> u64 {
    sum.wrapping_add(word.try_into().map_or(0, u64::from_ne_bytes))
}

/// CPU time of a closure.
fn timed(run: impl FnOnce()) -> Duration {
    let begin = cpu_time();
    run();
    cpu_time() - begin
}

fn fill(order: &mut Order, clock: &mut Clock, batch: &Batch) {
    for (cpu, bytes) in &batch.streams {
        decode(*cpu, bytes, clock, order);
    }
}

/// CPU time of the first stages in a pass over the input.
#[derive(Default)]
struct Pass {
    decode: Duration,
    order: Duration,
    correlate: Duration,
}

impl Pass {
    fn run(&mut self, input: &Input, sink: &mut Discard) {
        let mut correlator = Correlator::new(&synthetic::probes(), CORRELATE);
        let (mut order, mut clock) = (Order::new(&[]), Clock::new(KtimeNs(START_NS)));
        for batch in &input.batches {
            self.decode += timed(|| fill(&mut order, &mut clock, batch));
            let frontier = clock.trace_of_ktime(batch.frontier);
            let begin = cpu_time();
            let mut ready = order.advance(frontier, |late| panic!("{late:?}"));
            self.order += cpu_time() - begin;
            self.correlate += timed(|| correlator.advance(&mut ready, frontier, sink));
            self.order += timed(|| drop(ready));
        }
        self.correlate += timed(|| correlator.finish(input.end, sink));
    }
}
