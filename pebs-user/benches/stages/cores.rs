//! Benefit of a second core: records per second of elapsed time, from rings to closed files, by number of cores.
//!
//! Starting and finishing a trace takes a fixed time (some 15 ms, on one core); with this many records it is
//! negligible.

use std::time::{Duration, Instant};

use pebs_user::pipeline::Keep;
use pebs_user::stream::cycle::Cycle;
use pebs_user::units::KtimeNs;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::input::OwnInput;
use crate::rows::{self, Scratch};
use crate::{MACHINES, cycle, pipeline};

/// Runs with each number of cores, interleaved.
const ROUNDS: usize = 11;

/// Records of a run: 400 MB.
const RECORDS: usize = 10_000_000;

/// Smallest ratio of the rates on two cores and on one.
const GOAL: f64 = 1.7;

/// Whether the argument `cores` was given.
pub fn asked() -> bool {
    std::env::args().any(|it| it == "cores")
}

/// Measures, and prints a line per machine.
pub fn run() {
    let ours = sched_getaffinity(None).expect("this thread's own");
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| ours.is_set(*cpu))
        .collect();
    let [first, second, ..] = cores[..] else {
        return println!("there is one core only");
    };
    for (cpus, threads) in MACHINES {
        let made = OwnInput::new(cpus, threads, RECORDS);
        let mut input = Cycles {
            first: made.first.into_iter().map(cycle).collect(),
            all: made.batches.into_iter().map(cycle).collect(),
            end: made.end,
        };
        // 8 bytes of frame and 32 of record.
        let records = input.all.iter().map(|it| it.bytes() / 40).sum::<usize>() as f64;
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (best, cores) in best.iter_mut().zip([&[first][..], &[first, second]]) {
                *best = (*best).min(one(&mut input, cores));
            }
        }
        sched_setaffinity(None, &ours).expect("as before");
        let [one, two] = best.map(|it| records / it.as_secs_f64() / 1e6);
        let ratio = two / one;
        let word = if ratio >= GOAL { "ok" } else { "MISSED" };
        println!(
            "{cpus:>3} CPUs: one core {one:.1} million records a second, two {two:.1}: {ratio:.2} times (at least {GOAL}): {word}"
        );
    }
}

/// Input of the pipeline, which is the same after a run.
struct Cycles {
    first: Vec<Cycle>,
    all: Vec<Cycle>,
    end: KtimeNs,
}

/// Elapsed time from the first record to closed files.
fn one(input: &mut Cycles, cores: &[usize]) -> Duration {
    let mut set = CpuSet::new();
    cores.iter().for_each(|cpu| set.set(*cpu));
    // Threads started from here inherit it.
    sched_setaffinity(None, &set).expect("cores of this thread's own");
    let scratch = Scratch::new();
    let mut pipeline = pipeline(scratch.writer(false), Keep::All, false);
    let Cycles { first, all, end } = input;
    first.iter_mut().for_each(|cycle| pipeline.cycle(cycle));
    let begin = Instant::now();
    all.iter_mut().for_each(|cycle| pipeline.cycle(cycle));
    let outcome = pipeline.finish(*end);
    assert!(outcome.write_error.is_none(), "{:?}", outcome.write_error);
    rows::finish(outcome.writer);
    begin.elapsed()
}
