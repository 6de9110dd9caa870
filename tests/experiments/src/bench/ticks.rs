//! Cost of the ticks of `--count-interval` for a target that only looks for interruptions, by number of counters and
//! length of the interval.
//!
//! The target and the recorder have a CPU each. Cost = time taken by interrupts from the target, in the lower quartile
//! of equal windows, minus that of a recording that counts the same events without intervals: other interrupts are in
//! both.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::frame::lab::Lab;
use crate::frame::rounds::rounds;
use crate::frame::statistics::{median, quantiles};
use crate::frame::{shell, workload};

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
pub fn compare(lab: &Lab, number: usize) -> Result<()> {
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(cpus >= 2, "the target needs a CPU of its own");
    let workload = compile(&lab.dir)?;
    println!(
        "time that a tick takes of the target, ns; in brackets what the recording said; {number} rounds of {SECONDS} s"
    );
    let heads = INTERVALS.map(|ms| format!("{:>18}", format!("every {ms} ms")));
    println!("  counters{}", heads.concat());
    for counters in COUNTERS {
        let each = [None].into_iter().chain(INTERVALS.map(Some));
        let each: Vec<Option<u32>> = each.collect();
        let runs = rounds(number, &each, |_, interval| {
            run(lab, &workload, counters, *interval)
        })?;
        // A quarter of the windows were disturbed less.
        let gone = |runs: &Vec<Run>| {
            let gone = runs.iter().flat_map(|run| &run.gone).copied();
            quantiles(gone.collect(), [0.25])[0]
        };
        let base = gone(&runs[0]);
        let cells = INTERVALS.iter().zip(&runs[1..]).map(|(ms, runs)| {
            let ticks = f64::from(WINDOW / ms);
            let each = (gone(runs) - base) / ticks;
            let recorded = median(runs.iter().map(|run| run.recorded).collect());
            format!("{:>18}", format!("{each:.0} ({recorded:.0})"))
        });
        println!("  {counters:>8}{}", cells.collect::<String>());
    }
    Ok(())
}

fn run(lab: &Lab, workload: &Path, counters: usize, interval: Option<u32>) -> Result<Run> {
    let (result, trace) = (lab.clean("gone")?, lab.clean("trace")?);
    let mut command = shell::as_root("taskset");
    command.args(["-c", CPUS[0]]).arg(&lab.tool);
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
    let output = shell::collect(&mut command)?;
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
    let info = lab.info()?;
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
    let program = dir.join("ticks");
    workload::compile(
        "tests/experiments/workloads/ticks.c",
        &program,
        &["-O2", "-g"],
    )?;
    Ok(program)
}
