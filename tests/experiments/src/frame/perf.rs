//! `perf record`, which experiments stand beside.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{installed, shell};

/// perf, as root; `None`: it is not installed.
#[must_use]
pub fn perf() -> Option<Command> {
    installed::program("perf").map(shell::as_root)
}

/// A recording of samples of cpu-clock, up to `--`.
#[must_use]
pub fn recording(data: &Path, reset: u64) -> Option<Command> {
    let mut command = perf()?;
    let reset = reset.to_string();
    // Without build ids, which take long at the end.
    command.args(["record", "-q", "-B", "-e", "cpu-clock", "-c", &reset, "-o"]);
    command.arg(data).arg("--");
    Some(command)
}

/// Number of records in a recording, and of samples among them, as perf reports it.
pub fn records_in(data: &Path) -> Result<(u64, u64)> {
    let mut command = perf().context("no perf")?;
    command.args(["report", "--stats", "--stdio", "-i"]);
    let stats = shell::output(command.arg(data))?;
    let count = |name: &str| {
        let rest = stats
            .lines()
            .find_map(|line| line.trim().strip_prefix(name));
        rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
    };
    let counts = count("TOTAL events:").zip(count("SAMPLE events:"));
    counts.context("perf report says no number of samples")
}
