//! Whether the size of the rings matters: to a program that needs the caches, and to one that does not.
//!
//! Data written round and round through a ring take that much room in the caches. Samples of a clock are few and
//! small, so the same is measured with records of two kilobytes each: with call stacks of the largest recorded depth.

use anyhow::Result;

use super::runs::{Bench, Run, Work};
use crate::frame::machine::l2_kib;
use crate::frame::rounds::rounds;
use crate::frame::statistics::median;
use crate::frame::table::Table;

/// Sizes, smallest first; times are shown relative to the last.
const SIZES: [&str; 6] = ["64KiB", "256KiB", "512KiB", "1MiB", "4MiB", "16MiB"];

/// Reset value, ns: samples come as fast as leaves the program some time.
const RESET: u64 = 20_000;

/// Calls below the probed function where samples have call stacks: their records are of the largest kind.
const DEPTH: u32 = 110;

/// Bytes of a sample in a ring, including the kernel's header: without a call stack, and with one of [`DEPTH`] frames.
const RECORD: u64 = 40;
const STACK_RECORD: u64 = 2088;

/// Runs of one work.
pub struct Sweep {
    what: String,
    /// Bytes in a second of CPU time into the ring if all had room, MB.
    rate: f64,
    sizes: Vec<Size>,
}

/// Result of one size.
#[derive(Clone, Debug, Default)]
struct Size {
    /// CPU time by round, ns.
    times: Vec<f64>,
    /// Part of the samples that had no room, by round.
    lost: Vec<f64>,
}

/// Runs both programs with each size, in turn.
pub fn measure(bench: &Bench, seconds: f64, rounds: usize) -> Result<Vec<Sweep>> {
    let kib = l2_kib() / 8;
    let chase = bench.sized("chase", 1, seconds, kib)?;
    let integer = bench.work("integer", 1, seconds)?;
    let chase_name = format!("chase through {kib} KiB, an eighth of the L2");
    let works = [
        (chase_name.as_str(), chase),
        ("integer, no memory", integer),
    ];
    let mut sweeps = Vec::new();
    for depth in [DEPTH, 0] {
        for (what, work) in &works {
            let work = Work {
                depth,
                ..work.clone()
            };
            let sweep = sweep(bench, (what, &work), rounds)?;
            eprintln!("{}", sweep.row());
            sweeps.push(sweep);
        }
    }
    Ok(sweeps)
}

fn sweep(bench: &Bench, (what, work): (&str, &Work), number: usize) -> Result<Sweep> {
    let (record, stacks) = match work.depth {
        0 => (RECORD, String::new()),
        depth => (STACK_RECORD, format!(", call stacks of {depth}")),
    };
    let runs = rounds(number, &SIZES, |_, size| bench.sampled(work, RESET, size))?;
    let rate = |run: &Run| run.samples * record as f64 / run.cpu_ns * 1e3;
    let rates = runs.iter().flatten().map(rate).collect();
    let size = |runs: &Vec<Run>| Size {
        times: runs.iter().map(|run| run.cpu_ns).collect(),
        lost: runs.iter().map(|run| run.lost).collect(),
    };
    Ok(Sweep {
        what: format!("{what}{stacks}"),
        rate: median(rates),
        sizes: runs.iter().map(size).collect(),
    })
}

/// The table, times relative to the largest ring.
pub fn write_table(sweeps: &[Sweep]) -> String {
    let Some(first) = sweeps.first() else {
        return String::new();
    };
    let rounds = first.sizes.first().map_or(0, |size| size.times.len());
    let sizes = SIZES.map(|size| format!(" | {size}:")).concat();
    let mut table = Table::new(&format!("work | MB/s:{sizes}"));
    for sweep in sweeps {
        table.row(sweep.row());
    }
    format!(
        "# Size of the rings\n\nCPU time with a sample every {} us, relative to rings of {}: the best of {rounds} rounds, \
         by how much the second best was longer, and the part of the samples that a ring had no room for, which take \
         none of the caches.\n\n{table}",
        RESET / 1000,
        SIZES[SIZES.len() - 1]
    )
}

impl Sweep {
    /// Its row of the table.
    fn row(&self) -> String {
        let largest = self.sizes.last().map_or(f64::NAN, Size::best);
        let text = |size: &Size| format!(" | {}", size.text(largest));
        let sizes: String = self.sizes.iter().map(text).collect();
        format!("{} | {:.1}{sizes}", self.what, self.rate)
    }
}

impl Size {
    /// Times, best first: disturbances only make a run longer.
    fn sorted(&self) -> Vec<f64> {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times
    }

    fn best(&self) -> f64 {
        self.sorted().first().copied().unwrap_or(f64::NAN)
    }

    /// Beside the best of the largest ring.
    fn text(&self, largest: f64) -> String {
        let second = self.sorted().get(1).copied().unwrap_or(f64::NAN);
        let repeats = match (second / self.best() - 1.0) * 100.0 {
            percent if percent.is_finite() => format!(" (+{percent:.1} %)"),
            _ => String::new(),
        };
        let lost = median(self.lost.clone()) * 100.0;
        let lost = match lost >= 0.05 {
            true => format!(", {lost:.1} % lost"),
            false => String::new(),
        };
        format!("{:.3}{repeats}{lost}", self.best() / largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One column for each size, the last of them 1.
    #[test]
    fn relative_to_the_largest() {
        let size = |times: [f64; 4], lost| Size {
            times: times.to_vec(),
            lost: vec![lost; 4],
        };
        let mut sizes = vec![size([20.0; 4], 0.0); SIZES.len()];
        sizes[0] = size([90.0, 18.9, 18.0, 40.0], 0.123);
        let sweep = Sweep {
            what: "chase".to_owned(),
            rate: 104.44,
            sizes,
        };
        let text = write_table(&[sweep]);
        let row =
            "| chase | 104.4 | 0.900 (+5.0 %), 12.3 % lost | 1.000 (+0.0 %) | 1.000 (+0.0 %) |";
        assert!(text.contains(row), "{text}");
        assert_eq!(write_table(&[]), "");
    }
}
