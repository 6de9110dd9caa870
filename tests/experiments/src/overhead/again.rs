//! Repeats cases whose prediction was off, with an interval for each figure: was it chance, or something else?

use std::fmt;

use anyhow::Result;

use super::runs::{Bench, Work};
use super::{MOST_ERROR, Pair, noise_spread, pairs};
use crate::frame::statistics::Spread;
use crate::frame::table::Table;

/// Result of repeating a case.
pub struct Again {
    work: Work,
    reset: u64,
    rounds: usize,
    /// Error of the first time.
    first: f64,
    /// Equation (1) of the paper, by round.
    error: Spread,
    /// The same of runs without sampling, by those before and after them.
    noise: Spread,
    /// Time that each sample added to this work, ns.
    cost: Spread,
    /// Calibrated cost of a sample, before and after, ns.
    alpha: (f64, f64),
}

/// Why a prediction was off, as far as the repetition shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deviation {
    /// It is not.
    Chance,
    /// The machine is too noisy to know.
    Unknown,
    /// A sample costs this work more or less than the calibration's loop.
    Cost,
}

impl Deviation {
    const fn words(self) -> &'static str {
        match self {
            Self::Chance => "chance: it keeps to the limit",
            Self::Unknown => "cannot be told from the limit here",
            Self::Cost => "a sample costs this work something else",
        }
    }
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on {} at {} us: {}",
            self.work.kind,
            self.work.threads,
            self.reset / 1000,
            self.why().words()
        )
    }
}

impl Again {
    /// Runs of the work in turn without and with sampling.
    pub fn measure(
        bench: &Bench,
        work: Work,
        reset: u64,
        rounds: usize,
        first: f64,
    ) -> Result<Self> {
        let before = bench.calibrate()?;
        let (mut pairs, natives) = pairs(bench, &work, &[reset], rounds)?;
        let pairs = pairs.remove(0);
        let alpha = (before, bench.calibrate()?);
        let mean = f64::midpoint(alpha.0, alpha.1);
        let expected = |pair: &Pair| pair.expected(mean, work.threads);
        Ok(Self {
            reset,
            rounds,
            first,
            error: Spread::of(
                pairs
                    .iter()
                    .map(|it| it.measured / expected(it) - 1.0)
                    .collect(),
            ),
            noise: noise_spread(&natives),
            cost: Spread::of(pairs.iter().map(|it| it.cost(work.threads)).collect()),
            alpha,
            work,
        })
    }

    /// Whether it was chance, or the cost of a sample in this work differs from that in the calibration loop.
    pub fn is_explained(&self) -> bool {
        self.why() != Deviation::Unknown
    }

    fn why(&self) -> Deviation {
        let (low, high) = (
            self.alpha.0.min(self.alpha.1),
            self.alpha.0.max(self.alpha.1),
        );
        if self.error.median.abs() <= MOST_ERROR {
            Deviation::Chance
        } else if self.cost.low > high || self.cost.high < low {
            Deviation::Cost
        } else {
            Deviation::Unknown
        }
    }
}

/// The table, and the conclusions.
pub fn write_table(title: &str, all: &[Again]) -> String {
    let Some(one) = all.first() else {
        return String::new();
    };
    let mut table = Table::new(
        "work | threads: | reset, ns: | E first, %: | E again, %: | E of runs without sampling, %: | \
         a sample in this work, us: | in the loop that calibrates, us: |",
    );
    for it in all {
        table.row(format_args!(
            "{} | {} | {} | {:+.1} | {:+.1} | {:+.1} | {:.2} | {:.2}, {:.2} | {}",
            it.work.kind,
            it.work.threads,
            it.reset,
            it.first * 100.0,
            it.error.scaled(100.0),
            it.noise.scaled(100.0),
            it.cost.scaled(1e-3),
            it.alpha.0 / 1e3,
            it.alpha.1 / 1e3,
            it.why().words(),
        ));
    }
    format!(
        "## {title}\n\n{} rounds each; medians and their intervals of 95 %. A \
         sample's cost in this work is what a run with sampling took longer, by its samples; the loop that calibrates was \
         measured before and after.\n\n{table}",
        one.rounds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A persistent error is explained only by a different cost.
    #[test]
    fn reasons() {
        let spread = |low, median, high| Spread { low, median, high };
        let of = |error, cost| {
            let work = Work {
                kind: "chase",
                threads: 2,
                steps: 1,
                kib: 1,
                depth: 0,
            };
            let noise = spread(-0.1, 0.0, 0.1);
            Again {
                work,
                reset: 20_000,
                rounds: 5,
                first: 0.057,
                error,
                noise,
                cost,
                alpha: (3000.0, 3100.0),
            }
        };
        let high = spread(3500.0, 3600.0, 3700.0);
        let same = spread(2900.0, 3000.0, 3700.0);
        let real = spread(0.05, 0.06, 0.07);
        assert_eq!(of(spread(-0.05, 0.01, 0.06), high).why(), Deviation::Chance);
        assert_eq!(of(spread(0.01, 0.05, 0.06), high).why(), Deviation::Cost);
        assert_eq!(of(real, high).why(), Deviation::Cost);
        assert_eq!(of(real, same).why(), Deviation::Unknown);
        let text = write_table("Again", &[of(real, high)]);
        let row = "| chase | 2 | 20000 | +5.7 | +6.0 (+5.0 .. +7.0) | +0.0 (-10.0 .. +10.0) | 3.60 (3.50 .. 3.70) | 3.00, 3.10 |";
        assert!(text.contains(row), "{text}");
        assert_eq!(write_table("Again", &[]), "");
    }
}
