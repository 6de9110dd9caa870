//! What a second core brings: records a second of time on the wall, to closed files, by how many cores there are.
//!
//! Beginning and closing a trace takes the same for any number of records (some 15 ms, on one core): there are so many that
//! it does not count.

use std::time::{Duration, Instant};

use pebs_user::pipeline::Keep;
use pebs_user::stream::cycle::Cycle;
use pebs_user::units::KtimeNs;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::input::OwnInput;
use crate::rows::{self, Scratch};
use crate::{MACHINES, cycle, pipeline};

/// Runs with each number of cores, in turn.
const ROUNDS: usize = 11;

/// Records of a run: 400 MB.
const RECORDS: usize = 10_000_000;

/// Two cores take in so much more than one at least.
const GOAL: f64 = 1.7;

/// Whether that was asked for: `cores`.
pub fn asked() -> bool {
    std::env::args().any(|it| it == "cores")
}

/// Measures and prints a line a machine.
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

/// What the pipeline takes in, which leaves it as it is.
struct Cycles {
    first: Vec<Cycle>,
    all: Vec<Cycle>,
    end: KtimeNs,
}

/// Time on the wall from the first record to closed files.
fn one(input: &mut Cycles, cores: &[usize]) -> Duration {
    let mut set = CpuSet::new();
    cores.iter().for_each(|cpu| set.set(*cpu));
    // Threads that are started have the same.
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
