//! Effect of a sample on the caches: its cost by the memory that the work needs, on one thread and on two.
//!
//! The work follows pointers through this much memory, so it waits for each line that an interrupt evicted from the
//! first or second level cache. Work that stays in the first level, such as the calibration loop, has next to none to
//! lose.

use anyhow::Result;

use super::runs::Bench;
use crate::frame::statistics::Spread;
use crate::frame::table::Table;

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
            let (pairs, natives) = super::pairs(bench, &work, &[RESET], rounds)?;
            let samples = pairs.iter().flatten().map(|it| it.cost(threads));
            costs.push(Cost {
                kib,
                threads,
                sample: Spread::of(samples.collect()),
                noise: super::noise_spread(&natives),
            });
        }
    }
    Ok(costs)
}

/// A row for each size, a column for one thread and for two.
pub fn write_table(costs: &[Cost]) -> String {
    let mut table = Table::new("memory | one thread: | noise: | two threads, of each: | noise:");
    for kib in MEMORY {
        let [one, two] = [1, 2].map(|threads| {
            let mut costs = costs.iter();
            let found = costs.find(|it| (it.kib, it.threads) == (kib, threads));
            found.map_or_else(
                || "- | -".to_owned(),
                |it| {
                    let (sample, noise) = (it.sample.scaled(1e-3), it.noise.scaled(100.0));
                    format!("{sample:.2} | {noise:+.1}")
                },
            )
        });
        table.row(format_args!("{kib} KiB | {one} | {two}"));
    }
    format!(
        "## What a sample takes of the caches\n\nCost of a sample every {} us, us, and how much runs without sampling differ, \
         %: medians with intervals of 95 %, of a chase through so much memory.\n\n{table}",
        RESET / 1000
    )
}
