//! Changes of the cost of a sample by itself: `perf record` of a loop that uses no memory, by windows of the run.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::super::Lab;
use crate::bench;
use crate::frame::statistics::Spread;
use crate::frame::{perf, shell};

/// Time between two samples, ns.
const RESET: u64 = 24_000;

/// Length of a run, s, and of a window, ms.
const SECONDS: u32 = 4;
const WINDOW: u32 = 50;

/// Runs, one after another.
const RUNS: usize = 5;

/// Cost of a sample of `perf record` in windows of [`WINDOW`] ms.
pub struct Drift {
    /// Of all windows the middle 90 %, us; `None` without perf.
    sample: Option<Spread>,
    /// Interrupts of a run without sampling, in the windows' middle 90 %, us in the time of one interval.
    alone: Spread,
}

impl Drift {
    pub fn measure(lab: &Lab) -> Result<Self> {
        let program = bench::compile_ticks(&lab.dir)?;
        let work = [SECONDS.to_string(), WINDOW.to_string()];
        let per_interval = |text: &str| {
            let gone = text.lines().map(str::parse::<f64>);
            let us = |ns: f64| ns * RESET as f64 / (f64::from(WINDOW) * 1e6) / 1e3;
            gone.map(|ns| ns.map(us)).collect::<Result<Vec<f64>, _>>()
        };
        let data = lab.dir.join("perf.data");
        let measured = |recording: &dyn Fn() -> Option<Command>| -> Result<Option<Spread>> {
            let mut all = Vec::new();
            for _ in 0..lab.rounds(RUNS) {
                let file = lab.clean("windows")?;
                let Some(mut command) = recording() else {
                    return Ok(None);
                };
                shell::output(command.arg(&program).args(&work).arg(&file))?;
                let text = fs::read_to_string(&file)?;
                all.extend(per_interval(&text).context("the loop's result is not understood")?);
            }
            Ok(Some(Spread::between(all, 0.05, 0.95)))
        };
        let alone = measured(&|| Some(shell::as_root("env")))?;
        let sample = measured(&|| perf::recording(&data, RESET))?;
        let alone = alone.unwrap_or(Spread::UNKNOWN);
        Ok(Self { sample, alone })
    }

    /// The ends of the cost's interval, as multiples of its median; 1 if it is not known.
    pub fn factors(&self) -> [f64; 2] {
        let of = |it: Spread| [it.low / it.median, it.high / it.median];
        self.sample.map_or([1.0; 2], of)
    }

    pub fn explained(&self) -> String {
        let Some(sample) = self.sample else {
            return "`perf` was not at hand to show how much it changes by itself.".to_owned();
        };
        format!(
            "That changes by itself: under `perf record`, in a loop that uses no memory, a sample every {} us takes {sample:.1} us (median and \
             middle 90 % of windows of {WINDOW} ms), while all interrupts together take {:.1} us of as long without sampling.",
            RESET / 1000,
            self.alone,
        )
    }
}
