//! Coverage of intervals of 95 % and bias of estimates against the program's own truth: many short recordings of
//! regular items, each with a length, a reset value and an order of its own.
//!
//! # What is true
//!
//! `tests/workloads/regular.c` counts the steps of each function, and times steps between its items. A function's time
//! per item is the product. Both are of the same run, so a CPU that changes its speed from run to run changes both.
//!
//! The machine interrupts items as well, by itself: some runs without pebs-trace tell by how much in the mean, which is
//! added, and how much that differs from run to run, which is added to the intervals of times: so much is not known of the
//! truth. Shares need neither.
//!
//! # When it fails
//!
//! * Coverage of an estimate: its interval of 95 % (Wilson; of as many intervals as would be independent, as those of
//!   one run are not) lies wholly below 93 % or above 97 %.
//! * Bias of a function: its mean over runs is off by more than 2 %, and by more than its standard error.
//!
//! Where a single clock beats with the items, pebs-trace says so and gives no interval: neither is judged.
//!
//! Estimates of which there are fewer than [`LEAST`] intervals are not judged.

mod draw;
mod record;
mod score;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use self::draw::Draw;
use self::record::Regular;
use crate::frame::lab::Lab;
use crate::frame::seeds::Seeds;
use crate::frame::statistics::Z_95;
use crate::frame::verdict::exit_code;

/// Least number of intervals that are judged.
const LEAST: usize = 40;

/// A quantity that is estimated with an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Estimate {
    /// Time per item of a function, pooled.
    Pooled,
    /// The same as a part of the three functions' time.
    Share,
    /// Mean of `self_ns` over items, as shares, with the standard error that is made of `self_stderr_ns`, or that between
    /// runs of consecutive items if that is larger.
    MeanSelf,
    /// The function with more work in slow items: slow less typical.
    Excess,
    /// Time on the CPU of slow items less that of typical ones.
    OnCpu,
    /// A counted event in all intervals of `interval_counts` together. Exact: it has no interval.
    Counted,
}

impl Estimate {
    const fn name(self) -> &'static str {
        match self {
            Self::Pooled => "pooled time per item (report)",
            Self::Share => "the same as a share of the three functions",
            Self::MeanSelf => "mean self_ns of items of 10 samples or more",
            Self::Excess => "slow less typical, function (explain)",
            Self::OnCpu => "slow less typical, time on the CPU (explain)",
            Self::Counted => "calls in interval_counts",
        }
    }
}

/// An estimate in one recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Figure {
    estimate: Estimate,
    function: String,
    truth: f64,
    value: f64,
    /// Its interval of 95 %; null if there is none.
    interval: Option<(f64, f64)>,
}

impl Figure {
    fn covers(&self) -> Option<bool> {
        self.interval
            .map(|(low, high)| (low..=high).contains(&self.truth))
    }

    /// Adds what the truth is not known by, as a part of it, to the interval of a time.
    fn widen(&mut self, unknown: f64) {
        let is_time = match self.estimate {
            Estimate::Pooled | Estimate::Excess | Estimate::OnCpu => true,
            Estimate::Share | Estimate::MeanSelf | Estimate::Counted => false,
        };
        if let (true, Some((low, high))) = (is_time, self.interval) {
            let unknown = Z_95 * unknown * self.truth;
            let low = self.value - (self.value - low).hypot(unknown);
            self.interval = Some((low, self.value + (high - self.value).hypot(unknown)));
        }
    }

    /// Difference from the truth as a part of it.
    fn bias(&self) -> f64 {
        self.value / self.truth - 1.0
    }
}

/// A recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Outcome {
    seed: u64,
    draw: Draw,
    /// Whether pebs-trace says that samples beat with the items all the time, so that it gives no interval.
    beats: bool,
    figures: Vec<Figure>,
}

/// Makes the recordings of these seeds and prints tables. With `log`, seeds that it has are not recorded again, and
/// the tables are of all that are in it.
pub(super) fn main(lab: &Lab, (from, runs): (u64, u64), log: Option<&Path>) -> Result<ExitCode> {
    let mut seeds = Seeds::read(log, "an outcome", |it: &Outcome| {
        let seed = it.seed;
        ensure!(
            it.draw == Draw::new(seed),
            "seed {seed} was another run then: take a new file"
        );
        Ok(seed)
    })?;
    let regular = Regular::new(lab)?;
    for seed in from..from + runs {
        if seeds.done.contains_key(&seed) {
            continue;
        }
        let draw = Draw::new(seed);
        let (beats, figures) = regular
            .figures(&draw)
            .with_context(|| format!("seed {seed}: {draw:?}"))?;
        let outcome = Outcome {
            seed,
            draw,
            beats,
            figures,
        };
        seeds.add(seed, outcome)?;
    }
    let all: Vec<Outcome> = seeds.done.into_values().collect();
    let (text, misses) = score::tables(&all);
    fs::write(lab.dir.join("coverage.md"), &text)?;
    println!(
        "interrupts of the machine itself take {:.2} % of the time, ± {:.2} from run to run\n\n{text}",
        (regular.interrupts.0 - 1.0) * 100.0,
        regular.interrupts.1 * 100.0
    );
    Ok(exit_code(misses == 0))
}
