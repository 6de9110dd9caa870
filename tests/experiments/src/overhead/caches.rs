//! Effect of a sample on the caches: its cost by the memory that the work needs, on one thread and on two.
//!
//! The work follows pointers through this much memory, so it waits for each line that an interrupt evicted from the
//! first or second level cache. Work that stays in the first level, such as the calibration loop, has next to none to
//! lose.

use std::fmt::Write as _;

use anyhow::Result;

use super::Pair;
use super::runs::Bench;
use crate::frame::statistics::Spread;

/// Memory of a thread, KiB: within the first level; beyond it; a quarter and most of an L2 of a MiB.
const MEMORY: [u64; 5] = [4, 16, 64, 256, 768];

/// Time between two samples, ns.
const RESET: u64 = 20_000;

/// Work with this much memory on this many threads.
pub struct Cost {
    pub kib: u64,
    pub threads: u32,
    /// Time that a sample added, ns.
    pub sample: Spread,
    /// Relative difference of a run without sampling from those before and after it.
    noise: Spread,
}

/// Runs each in turn without and with sampling.
pub fn measure(bench: &Bench, seconds: f64, rounds: usize) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for threads in [1, 2] {
        for kib in MEMORY {
            let work = bench.sized("chase", threads, seconds, kib)?;
            let mut natives = vec![bench.native(&work)?];
            let mut samples = Vec::new();
            for _ in 0..rounds.max(1) {
                let run = bench.sampled(&work, RESET, "512KiB")?;
                let after = bench.native(&work)?;
                let pair = Pair {
                    native: f64::midpoint(natives[natives.len() - 1], after),
                    measured: run.cpu_ns,
                    samples: run.samples,
                };
                samples.push(pair.cost(threads));
                natives.push(after);
            }
            costs.push(Cost {
                kib,
                threads,
                sample: Spread::of(samples),
                noise: super::noise_spread(&natives),
            });
        }
    }
    Ok(costs)
}

/// A row for each size, a column for one thread and for two.
pub fn write_table(costs: &[Cost]) -> String {
    let mut text = format!(
        "## What a sample takes of the caches\n\nCost of a sample every {} us, us, and how much runs without sampling differ, \
         %: medians with intervals of 95 %, of a chase through so much memory.\n\n\
         | memory | one thread | noise | two threads, of each | noise |\n|---|--:|--:|--:|--:|\n",
        RESET / 1000
    );
    for kib in MEMORY {
        let _ = write!(text, "| {kib} KiB |");
        for threads in [1, 2] {
            let found = costs
                .iter()
                .find(|it| (it.kib, it.threads) == (kib, threads));
            let _ = match found {
                Some(it) => write!(
                    text,
                    " {:.2} | {:+.1} |",
                    it.sample.scaled(1e-3),
                    it.noise.scaled(100.0)
                ),
                None => write!(text, " - | - |"),
            };
        }
        text.push('\n');
    }
    text
}
