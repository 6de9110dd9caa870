//! What a second core brings: records a second of time on the wall, to closed files, by how many cores there are.

use std::time::{Duration, Instant};

use pebs_user::pipeline::Keep;
use pebs_user::pipeline::synthetic::Batch;
use pebs_user::stream::cycle::Cycle;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::input::OwnInput;
use crate::rows::{self, Scratch};
use crate::{MACHINES, RECORDS, cycle, pipeline};

/// Runs with each number of cores, in turn.
const ROUNDS: usize = 15;

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
        let input = OwnInput::new(cpus, threads, RECORDS);
        let streams = input.batches.iter().flat_map(|it| &it.streams);
        // 8 bytes of frame and 32 of record.
        let records = streams.map(|(_, bytes)| bytes.len() / 40).sum::<usize>() as f64;
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (best, cores) in best.iter_mut().zip([&[first][..], &[first, second]]) {
                *best = (*best).min(one(&input, cores));
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

/// Time on the wall from the first record to closed files.
fn one(input: &OwnInput, cores: &[usize]) -> Duration {
    let mut set = CpuSet::new();
    cores.iter().for_each(|cpu| set.set(*cpu));
    // Threads that are started have the same.
    sched_setaffinity(None, &set).expect("cores of this thread's own");
    let scratch = Scratch::new();
    let cycles = |batches: &[Batch]| -> Vec<Cycle> { batches.iter().cloned().map(cycle).collect() };
    let mut pipeline = pipeline(scratch.writer(false), Keep::All, false);
    let (mut first, mut all) = (cycles(&input.first), cycles(&input.batches));
    first.iter_mut().for_each(|cycle| pipeline.cycle(cycle));
    let begin = Instant::now();
    all.iter_mut().for_each(|cycle| pipeline.cycle(cycle));
    let outcome = pipeline.finish(input.end);
    assert!(outcome.write_error.is_none(), "{:?}", outcome.write_error);
    rows::finish(outcome.writer);
    begin.elapsed()
}
