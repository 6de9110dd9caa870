//! Cost of the ticks of `--count-interval` for a target that only looks for interruptions, by number of counters and
//! length of the interval.
//!
//! The target and the recorder have a CPU each. Cost = time taken by interrupts from the target, in the lower quartile
//! of equal windows, minus that of a recording that counts the same events without intervals: other interrupts are in
//! both.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::median;
use crate::frame::shell;

/// Software events, which have a counter each.
const EVENTS: [&str; 8] = [
    "page-faults",
    "minor-faults",
    "major-faults",
    "cpu-migrations",
    "alignment-faults",
    "emulation-faults",
    "faults:u",
    "faults:k",
];

/// Numbers of them that are counted.
const COUNTERS: [usize; 4] = [1, 2, 4, 8];

/// Lengths of intervals, ms.
const INTERVALS: [u32; 3] = [1, 10, 100];

/// Length of a window, ms: each has equally many ticks, of ours and of the kernel's.
const WINDOW: u32 = 100;

/// Windows left out at the beginning, while the recording may still start.
const STARTING: usize = 5;

/// Run time of the target, s.
const SECONDS: u32 = 4;

/// CPUs of the recorder and of the target.
const CPUS: [&str; 2] = ["0", "1"];

/// A recording of the target.
struct Run {
    /// Time taken by interrupts, ns, by window.
    gone: Vec<f64>,
    /// Cost of a tick according to the recording, ns; NaN: none.
    recorded: f64,
}

/// Prints what a tick costs.
pub fn compare(tool: &Path, dir: &Path, rounds: usize) -> Result<()> {
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(cpus >= 2, "the target needs a CPU of its own");
    let workload = compile(dir)?;
    println!(
        "time that a tick takes of the target, ns; in brackets what the recording said; {rounds} rounds of {SECONDS} s"
    );
    let heads = INTERVALS.map(|ms| format!("{:>18}", format!("every {ms} ms")));
    println!("  counters{}", heads.concat());
    for counters in COUNTERS {
        let mut base = Vec::new();
        let mut ticking = INTERVALS.map(|_| (Vec::new(), Vec::new()));
        for _ in 0..rounds {
            base.extend(run(tool, &workload, dir, counters, None)?.gone);
            for (interval, (gone, recorded)) in INTERVALS.iter().zip(&mut ticking) {
                let run = run(tool, &workload, dir, counters, Some(*interval))?;
                gone.extend(run.gone);
                recorded.push(run.recorded);
            }
        }
        let base = quartile(&mut base);
        let cells = INTERVALS
            .iter()
            .zip(&mut ticking)
            .map(|(ms, (gone, recorded))| {
                let ticks = f64::from(WINDOW / ms);
                let each = (quartile(gone) - base) / ticks;
                format!("{:>18}", format!("{each:.0} ({:.0})", median(recorded)))
            });
        println!("  {counters:>8}{}", cells.collect::<String>());
    }
    Ok(())
}

/// The lower quartile: a quarter of the windows were disturbed less.
fn quartile(gone: &mut [f64]) -> f64 {
    gone.sort_by(f64::total_cmp);
    gone.get(gone.len() / 4).copied().unwrap_or(f64::NAN)
}

fn run(
    tool: &Path,
    workload: &Path,
    dir: &Path,
    counters: usize,
    interval: Option<u32>,
) -> Result<Run> {
    let (result, trace) = (dir.join("gone"), dir.join("ticks-trace"));
    let _ = shell::output(shell::as_root("rm").arg("-rf").arg(&trace).arg(&result));
    let mut command = shell::as_root("taskset");
    command.args(["-c", CPUS[0]]).arg(tool);
    command.args(["--uprobe", &format!("{}:never", workload.display())]);
    command.args(["--event", "cpu-clock", "--reset", "1000000000"]);
    command.args(["--count", &EVENTS[..counters].join(",")]);
    if let Some(ms) = interval {
        command.args(["--count-interval", &ms.to_string()]);
    }
    command.arg("-o").arg(&trace);
    command.args(["--", "taskset", "-c", CPUS[1]]).arg(workload);
    command.args([SECONDS, WINDOW].map(|it| it.to_string()));
    command.arg(&result);
    let output = command.output()?;
    // 1: completed with loss.
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!(
            "'{}' failed: {}",
            shell::display(&command),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let text = std::fs::read_to_string(&result).context("the workload left no result")?;
    let gone: Result<Vec<f64>, _> = text.lines().skip(STARTING).map(str::parse).collect();
    let info = shell::output(shell::as_root("cat").arg(trace.join("trace.json")))?;
    let info: serde_json::Value = serde_json::from_str(&info)?;
    let recorded = info["own_time"]["tick"]["ns"].as_f64();
    if interval.is_some() {
        let ticks = info["cost"]["ticks"].as_u64().unwrap_or(0);
        ensure!(ticks > 0, "the recording has no ticks");
    }
    Ok(Run {
        gone: gone.context("the workload's result is not understood")?,
        recorded: recorded.unwrap_or(f64::NAN),
    })
}

/// Builds the loop that measures how long interrupts take.
pub fn compile(dir: &Path) -> Result<PathBuf> {
    let workload = dir.join("ticks");
    let mut command = Command::new("gcc");
    command.args(["-O2", "-g", "-o"]).arg(&workload);
    command.arg(shell::workspace().join("tests/experiments/workloads/ticks.c"));
    shell::run(&mut command)?;
    Ok(workload)
}
