//! Whether the size of the rings matters: to a program that needs the caches, and to one that does not.

use std::fmt::Write as _;

use anyhow::Result;

use super::median;
use super::runs::{Bench, Work};

/// Sizes, smallest first; others are shown relative to the last.
const SIZES: [&str; 6] = ["16KiB", "64KiB", "256KiB", "512KiB", "2MiB", "8MiB"];

/// Reset value, ns: samples come as fast as leaves the program some time.
const RESET: u64 = 20_000;

/// Memory of the program that needs the caches, KiB: about a core's L2.
const L2_KIB: u64 = 960;
/// And about its share of the last level.
const LLC_KIB: u64 = 14 << 10;

/// CPU times by ring size, ns.
pub struct Sweep {
    what: String,
    times: Vec<f64>,
}

/// Runs both programs with each size, in turn.
pub fn measure(bench: &Bench, seconds: f64, rounds: usize) -> Result<Vec<Sweep>> {
    let works: [(&str, Work); 3] = [
        (
            "chase through 960 KiB (about the L2)",
            bench.sized("chase", 1, seconds, L2_KIB)?,
        ),
        (
            "chase through 14 MiB (about a share of the LLC)",
            bench.sized("chase", 1, seconds, LLC_KIB)?,
        ),
        ("integer (no memory)", bench.work("integer", 1, seconds)?),
    ];
    let mut sweeps = Vec::new();
    for (what, work) in works {
        let mut times = vec![Vec::new(); SIZES.len()];
        for _ in 0..rounds.max(1) {
            for (n, size) in SIZES.iter().enumerate() {
                times[n].push(bench.sampled(&work, RESET, size)?.cpu_ns);
            }
        }
        sweeps.push(Sweep {
            what: what.to_owned(),
            times: times.into_iter().map(median).collect(),
        });
    }
    Ok(sweeps)
}

/// The table, times relative to the largest ring.
pub fn write_table(sweeps: &[Sweep]) -> String {
    if sweeps.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n## Size of the rings\n\nCPU time with a sample every {} us, relative to rings of {}.\n\n| work |",
        RESET / 1000,
        SIZES[SIZES.len() - 1]
    );
    // Writing to a string does not fail.
    for size in SIZES {
        let _ = write!(text, " {size} |");
    }
    text += "\n|---|";
    text += &"--:|".repeat(SIZES.len());
    for sweep in sweeps {
        let _ = write!(text, "\n| {} |", sweep.what);
        let largest = sweep.times.last().copied().unwrap_or(f64::NAN);
        for time in &sweep.times {
            let _ = write!(text, " {:.3} |", time / largest);
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One column for each size, the last of them 1.
    #[test]
    fn relative_to_the_largest() {
        let sweep = Sweep {
            what: "chase".to_owned(),
            times: vec![90.0, 95.0, 100.0, 100.0, 100.0, 100.0],
        };
        let text = write_table(&[sweep]);
        assert!(
            text.ends_with("| chase | 0.900 | 0.950 | 1.000 | 1.000 | 1.000 | 1.000 |\n"),
            "{text}"
        );
        assert_eq!(write_table(&[]), "");
    }
}
