//! What each stage costs: ns of CPU time a record, beside a read-only sum of the same bytes.
//!
//!     cargo bench -p pebs-user --bench stages [-- FILTER]
//!
//! Streams of 1, 8 and 64 CPUs come from `stream::synthetic`. Time is the process's CPU time, user
//! and system, of all threads: on a shared machine it repeats better than the clock on the wall.
//! The table at the end shows the best iteration of each stage; its ratio to the sum of the
//! same bytes is what to compare between machines.

#![expect(
    clippy::expect_used,
    reason = "without room on disk there is nothing to measure"
)]

mod figures;
mod input;
mod rows;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use pebs_user::analysis::estimate::{Estimator, VisitTimeline};
use pebs_user::collect::drain::Cycle;
use pebs_user::correlate::{CorrelateOptions, Correlator};
use pebs_user::pipeline::{Pipeline, PipelineOptions};
use pebs_user::stream::clock::Clock;
use pebs_user::stream::decode::{Payloads, decode};
use pebs_user::stream::order::Order;
use pebs_user::stream::synthetic::{self, Batch, START_NS};
use pebs_user::units::{KtimeNs, TraceNs};

use figures::{CpuTime, Figures, cpu_time, thread_time};
use input::{Input, OwnInput};
use rows::{Discard, Scratch};

/// CPUs, and threads on them.
const MACHINES: [(u16, u32); 3] = [(1, 4), (8, 16), (64, 256)];
const RECORDS: usize = 400_000;
const CORRELATE: CorrelateOptions = CorrelateOptions {
    switches: true,
    page_faults: false,
    max_samples: 10_000_000,
};

type Bench = Criterion<CpuTime>;

fn main() {
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

    fn decode(&mut self, input: &Input) {
        let (mut records, mut payloads) = (Vec::new(), Payloads::default());
        let mut clock = Clock::new(KtimeNs(START_NS));
        self.stage("decode", input.records, || {
            timed(|| {
                for batch in &input.batches {
                    records.clear();
                    payloads.clear();
                    for (cpu, bytes) in &batch.streams {
                        decode(*cpu, bytes, &mut clock, &mut payloads, &mut records);
                    }
                    black_box(&records);
                }
            })
        });
    }

    fn order(&mut self, input: &Input) {
        self.stage("order", input.records, || {
            let (mut order, mut clock) = (Order::default(), Clock::new(KtimeNs(START_NS)));
            let mut time = Duration::ZERO;
            for batch in &input.batches {
                fill(&mut order, &mut clock, batch);
                let frontier = clock.trace_of_ktime(batch.frontier);
                time += timed(|| advance(&mut order, frontier));
            }
            time + timed(|| advance(&mut order, TraceNs(i64::MAX)))
        });
    }

    fn correlate(&mut self, input: &Input) {
        let (probes, payloads) = (synthetic::probes(), Payloads::default());
        self.stage("correlate", input.records, || {
            let mut correlator = Correlator::new(&probes, CORRELATE);
            let mut sink = Discard::default();
            timed(|| {
                for record in &input.ordered {
                    correlator.push(record, &payloads, &mut sink);
                }
                correlator.finish(input.end, &mut sink);
                black_box(sink.samples);
            })
        });
    }

    fn estimate(&mut self, input: &Input) {
        let (mut estimator, mut out) = (Estimator::new(&[true]), Vec::new());
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

    fn writer(&mut self, input: &Input) {
        let rows = input.rows();
        self.stage("writer", input.records, || {
            let scratch = Scratch::new();
            timed(|| rows.write_to(scratch.writer()))
        });
    }

    /// The whole pipeline. Naming is in it, but not finding the names: the first cycles are not timed.
    fn end_to_end(&mut self, threads: u32, records: usize) {
        let input = OwnInput::new(self.cpus, threads, RECORDS);
        let mut best = Duration::MAX;
        self.stage("bytes to files", records, || {
            let scratch = Scratch::new();
            let mut pipeline = pipeline(&scratch);
            cycles(&input.first)
                .iter_mut()
                .for_each(|cycle| pipeline.cycle(cycle));
            let mut cycles = cycles(&input.batches);
            let begin = thread_time();
            let all = timed(|| {
                cycles.iter_mut().for_each(|cycle| pipeline.cycle(cycle));
                let outcome = pipeline.finish(input.end);
                assert!(outcome.write_error.is_none(), "{:?}", outcome.write_error);
                rows::finish(outcome.writer);
            });
            best = best.min(thread_time() - begin);
            all
        });
        // What bounds a live recording: segments are closed by a thread of their own.
        self.figures
            .add("  of it own thread", self.cpus, best, records);
    }

    fn symbolize(&mut self) {
        let mut lookups = input::Lookups::new();
        self.stage("symbolize, cached", lookups.len(), || {
            timed(|| lookups.run())
        });
    }
}

fn pipeline(scratch: &Scratch) -> Pipeline {
    let options = PipelineOptions {
        origin: KtimeNs(START_NS - 1_000_000_000),
        switches: CORRELATE.switches,
        page_faults: CORRELATE.page_faults,
        clock_events: vec![true],
        resets: vec![16_000],
        max_samples: CORRELATE.max_samples,
        symbolize: Default::default(),
    };
    Pipeline::new(
        &synthetic::probes(),
        &options,
        scratch.writer(),
        Default::default(),
    )
}

/// The batches as the draining thread hands them on.
fn cycles(batches: &[Batch]) -> Vec<Cycle> {
    let cycle = |batch: &Batch| Cycle {
        streams: batch.streams.clone(),
        frontier: batch.frontier,
        counted_at: batch.frontier,
        ..Cycle::default()
    };
    batches.iter().map(cycle).collect()
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
        let (records, payloads) = order.inbox();
        decode(*cpu, bytes, clock, payloads, records);
    }
}

fn advance(order: &mut Order, frontier: TraceNs) {
    order.advance(
        frontier,
        |late| panic!("{late:?}"),
        |record, _| {
            black_box(record.time);
        },
    );
}
