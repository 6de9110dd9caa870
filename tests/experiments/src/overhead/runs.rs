//! Runs of fixed work, alone and recorded.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::frame::lab::Lab;
use crate::frame::machine::l2_kib;
use crate::frame::shell;
use crate::frame::trace::Account;

/// Kinds of work of `tests/workloads/fixed.c`.
pub const KINDS: [&str; 4] = ["integer", "branchy", "chase", "stream"];

/// Memory of work that streams, KiB: far beyond the second level cache.
const STREAM_KIB: u64 = 64 << 10;

/// Steps of the trial that measures the speed of the work.
const TRIAL: u64 = 2_000_000;

/// Some work.
#[derive(Clone)]
pub struct Work {
    pub kind: &'static str,
    pub threads: u32,
    pub steps: u64,
    pub kib: u64,
    /// Calls below the probed function, which are recorded with each sample; 0: samples have no call stack.
    pub depth: u32,
}

impl Work {
    fn args(&self) -> [String; 5] {
        [
            self.kind.to_owned(),
            self.threads.to_string(),
            self.steps.to_string(),
            self.kib.to_string(),
            self.depth.to_string(),
        ]
    }
}

/// Result of a recorded run.
pub struct Run {
    /// CPU time of a thread, ns.
    pub cpu_ns: f64,
    /// Samples of all threads.
    pub samples: f64,
    /// Part of them that was lost, 0..1.
    pub lost: f64,
}

/// Predicted slow-down of work, by reset value.
pub struct Slower(Vec<(u64, Option<f64>)>);

impl Slower {
    /// `None`: all of the time would be taken.
    pub fn of(&self, reset: u64) -> Option<f64> {
        self.0.iter().find(|row| row.0 == reset)?.1
    }
}

/// The program, and a lab for it.
pub struct Bench {
    pub lab: Lab,
    program: PathBuf,
}

impl Bench {
    /// Builds the program.
    pub fn new(lab: Lab) -> Result<Self> {
        let program = lab.compile("fixed", &["-fno-omit-frame-pointer"])?;
        Ok(Self { lab, program })
    }

    /// Calibrates; returns the cost of a sample, ns.
    pub fn calibrate(&self) -> Result<f64> {
        let alpha = self.lab.calibration()?["fit"]["alpha_ns"].as_f64();
        alpha.context("calibrate printed no alpha")
    }

    /// Work of a kind that takes this many seconds of CPU time in each thread.
    pub fn work(&self, kind: &'static str, threads: u32, seconds: f64) -> Result<Work> {
        let kib = match kind {
            // Larger caches are shared with others, on some hosts also most of this one, so runs would differ.
            "chase" => l2_kib() / 8,
            "stream" => STREAM_KIB,
            _ => 64,
        };
        self.sized(kind, threads, seconds, kib)
    }

    /// The same with this much memory.
    pub fn sized(&self, kind: &'static str, threads: u32, seconds: f64, kib: u64) -> Result<Work> {
        let trial = Work {
            kind,
            threads,
            steps: TRIAL,
            kib,
            depth: 0,
        };
        let step_ns = self.native(&trial)? / TRIAL as f64;
        let steps = (seconds * 1e9 / step_ns).max(1.0) as u64;
        Ok(Work { steps, ..trial })
    }

    /// The program with the arguments of the work.
    pub fn command(&self, work: &Work) -> Vec<OsString> {
        let program = std::iter::once(self.program.clone().into_os_string());
        program.chain(work.args().map(OsString::from)).collect()
    }

    /// CPU time of a thread without the tool, ns.
    pub fn native(&self, work: &Work) -> Result<f64> {
        let text = shell::output(Command::new(&self.program).args(work.args()))?;
        cpu_of(&text, work)
    }

    /// The tool's predictions.
    pub fn predict(&self, work: &Work) -> Result<Slower> {
        let mut command = self.lab.tool();
        command.args(["plan", "--format", "json", "--event", "cpu-clock"]);
        command.args(["--duration", "60", "--uprobe", &self.spec(), "--"]);
        command.arg(&self.program).args(work.args());
        let found = shell::json(shell::show(&mut command))?;
        let rows = found["rows"].as_array().context("plan printed no rows")?;
        let row = |row: &Value| Some((row["reset"].as_u64()?, row["second_takes_s"].as_f64()));
        Ok(Slower(rows.iter().filter_map(row).collect()))
    }

    fn spec(&self) -> String {
        format!("{}:work", self.program.display())
    }

    /// CPU time and samples of a recorded run.
    pub fn sampled(&self, work: &Work, reset: u64, ring: &str) -> Result<Run> {
        // The smallest rings lose samples, which cost the same.
        let mut options = vec!["--ring-size", ring, "--max-loss", "100", "--format", "csv"];
        if work.depth > 0 {
            options.extend(["--call-graph", "fp"]);
        }
        let mut command = (self.lab).recording(&self.spec(), Some(reset), &options)?;
        command.arg(&self.program);
        let text = shell::output(command.args(work.args()))?;
        let info = self.lab.info()?;
        let account = Account::of(&info, "samples");
        let samples = info["cost"]["samples"].as_f64();
        Ok(Run {
            cpu_ns: cpu_of(&text, work)?,
            samples: samples.context("trace.json has no samples")?,
            lost: 1.0 - account.written as f64 / account.seen as f64,
        })
    }
}

/// CPU time of a thread, ns, from the line `elapsed NS cpu NS check N`.
pub fn cpu_of(text: &str, work: &Work) -> Result<f64> {
    let words = || text.lines().find(|line| line.starts_with("elapsed "));
    let cpu: Option<f64> = words().and_then(|line| line.split(' ').nth(3)?.parse().ok());
    let cpu = cpu.with_context(|| format!("the work printed no CPU time: {text}"))?;
    Ok(cpu / f64::from(work.threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program's line is found among others, and shared by its threads.
    #[test]
    fn line_of_the_work() {
        let work = Work {
            kind: "integer",
            threads: 2,
            steps: 1,
            kib: 1,
            depth: 0,
        };
        let text = "a report\nelapsed 700 cpu 1000 check 7\n";
        assert_eq!(cpu_of(text, &work).ok(), Some(500.0));
        assert!(cpu_of("elapsed", &work).is_err());
    }
}
