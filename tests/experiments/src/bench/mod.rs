//! `cargo xtask bench`: cost of a mark and of a sample for the target, beside `perf record` and bpftrace doing the
//! same to the same program in the same run; the tracers' own cost; size and query times of a long trace; the cost of
//! the ticks of `--count-interval`; and that of `import` beside `perf script`.
//!
//! Cost = CPU time of the target's thread with the tracer less without it; medians over interleaved rounds, so that a
//! change of the machine's speed affects all equally.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::frame::lab::Lab;
use crate::frame::rounds::rounds;
use crate::frame::shell;
use crate::frame::statistics::median;
use crate::frame::verdict::{exit_code, word};
use tracer::{Run, Tracer, Tracers};

mod cpu_time;
mod import;
mod probes;
mod queries;
mod recorder_cost;
mod sizes;
mod ticks;
mod tracer;

pub use ticks::compile as compile_ticks;

/// Largest ratio of our cost to perf record's.
const PERF_LIMIT: f64 = 1.10;

/// Largest ratio of our cost to bpftrace's.
const BPFTRACE_LIMIT: f64 = 2.0 / 3.0;

/// A tracer that records less than this share of the expected records is not cheap but broken.
const MIN_RECORDED: f64 = 0.95;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure; by default all
    #[arg(value_enum, value_name = "WHAT")]
    what: Vec<Measurement>,
    /// Number of rounds; each runs every tracer once; at most 3 for queries
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Calls of the marked function in a round; each makes two marks
    #[arg(long, default_value_t = 200_000)]
    calls: u64,
    /// Time between two samples, ns
    #[arg(long, default_value_t = 50_000)]
    period: u64,
    /// Items of each of the two threads in the recording that is imported
    #[arg(long, default_value_t = 300_000)]
    import_items: u64,
    /// Measure this pebs-trace instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
}

/// A part of the task.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Measurement {
    /// Cost of a mark and of a sample
    Costs,
    /// CPU time of the recorder itself per mark and sample
    Recorder,
    /// Reading a recording of perf record's, beside `perf script`
    Import,
    /// A trace of 50 million samples: bytes per sample, and DuckDB queries of functions
    Queries,
    /// What the end of an interval of counts takes of the target
    Ticks,
}

/// Measurement of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// Marks at entry and return.
    Mark,
    /// Samples by a clock.
    Sample,
}

/// Work of a round in one measure.
#[derive(Clone, Copy)]
struct Load {
    measure: Measure,
    calls: u64,
    spin: u64,
    period_ns: u64,
}

/// One call in this many is made beforehand, unmeasured.
///
/// Source: `workloads/marks.c`.
const WARM_UP: u64 = 100;

/// Iterations of the workload's empty loop in a round that samples: about half a second.
const SPIN: u64 = 2_000_000_000;

/// Largest number of rounds of queries, each of which takes a minute.
const QUERY_ROUNDS: usize = 3;

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let wants = |what| args.what.is_empty() || args.what.contains(&what);
    // Not everything needs a tool, which may have to be built.
    let lab = || Lab::new("bench", args.tool.as_deref());
    let rounds = args.rounds.max(1);
    let mut passed = true;
    if wants(Measurement::Costs) {
        passed &= costs(&Tracers::find(lab()?)?, args)?;
    }
    if wants(Measurement::Recorder) {
        recorder_cost::compare(&Tracers::find(lab()?)?, args.period, rounds)?;
    }
    if wants(Measurement::Import) {
        passed &= import::compare(lab()?, (args.import_items, rounds))?;
    }
    if wants(Measurement::Queries) {
        let dir = shell::target_dir()?.join("bench");
        passed &= queries::compare(&dir, rounds.min(QUERY_ROUNDS))?;
    }
    if wants(Measurement::Ticks) {
        ticks::compare(&lab()?, rounds)?;
    }
    Ok(exit_code(passed))
}

/// Cost of a mark and of a sample.
fn costs(tracers: &Tracers, args: &Args) -> Result<bool> {
    let marks = Load {
        measure: Measure::Mark,
        calls: args.calls,
        spin: 0,
        period_ns: args.period,
    };
    let samples = Load {
        measure: Measure::Sample,
        calls: 0,
        spin: SPIN,
        ..marks
    };
    let mut passed = true;
    for load in [marks, samples] {
        passed &= compare(tracers, load, args.rounds)?;
    }
    Ok(passed)
}

/// Runs all rounds of one measure, prints the table, and returns whether ours is within its limits.
fn compare(tracers: &Tracers, load: Load, number: usize) -> Result<bool> {
    let runs = rounds(number, &tracers.available, |round, tracer| {
        let run = tracers.run(*tracer, load)?;
        eprintln!(
            "bench: round {round}: {}: {:.1} ms",
            tracer.name(),
            run.cpu_ns / 1e6
        );
        Ok(run)
    })?;
    let results: Vec<Outcome> = tracers
        .available
        .iter()
        .zip(&runs)
        .map(|(tracer, runs)| Outcome::of(*tracer, runs, load))
        .collect();
    let (base, traced) = results.split_first().context("no untraced run")?;
    println!("{}", load.title(number));
    println!("  {:<12} {:>9.2} ms of CPU", "untraced", base.cpu_ns / 1e6);
    let cost = |result: &Outcome| (result.cpu_ns - base.cpu_ns) / load.expected(result.cpu_ns);
    let ours = traced.first().context("pebs-trace did not run")?;
    let mut passed = ours.recorded >= MIN_RECORDED;
    for result in traced {
        let share = result.recorded * 100.0;
        let name = result.tracer.name();
        let (verdict, is_within) = verdict(cost(ours) / cost(result), result.tracer.limit());
        println!(
            "  {name:<12} {:>9.0} ns a {}, {share:.1} % recorded{verdict}",
            cost(result),
            load.unit(),
        );
        passed &= is_within;
    }
    Ok(passed)
}

/// Words for a ratio, and whether it is within its limit.
fn verdict(ratio: f64, limit: Option<f64>) -> (String, bool) {
    let Some(limit) = limit else {
        return (String::new(), true);
    };
    let is_within = ratio <= limit;
    let word = word(is_within);
    (
        format!("; ours is {ratio:.2} of it (limit {limit:.2}): {word}"),
        is_within,
    )
}

/// Medians over the rounds of one tracer.
struct Outcome {
    tracer: Tracer,
    cpu_ns: f64,
    /// Recorded share of the expected records, 0..1.
    recorded: f64,
}

impl Outcome {
    fn of(tracer: Tracer, runs: &[Run], load: Load) -> Self {
        let times = runs.iter().map(|run| run.cpu_ns).collect();
        let shares = runs.iter();
        let shares = shares.map(|run| run.recorded as f64 / load.made(run.cpu_ns));
        Self {
            tracer,
            cpu_ns: median(times),
            recorded: median(shares.collect()),
        }
    }
}

impl Load {
    fn title(self, rounds: usize) -> String {
        match self.measure {
            Measure::Mark => format!(
                "cost of a mark: {} calls, each marked at entry and return, median of {rounds} rounds",
                self.calls
            ),
            Measure::Sample => format!(
                "cost of a sample: cpu-clock every {} ns, median of {rounds} rounds",
                self.period_ns
            ),
        }
    }

    fn unit(self) -> &'static str {
        match self.measure {
            Measure::Mark => "mark",
            Measure::Sample => "sample",
        }
    }

    /// Marks or samples in the whole run, the workload's warm-up included.
    fn made(self, cpu_ns: f64) -> f64 {
        match self.measure {
            Measure::Mark => 2.0 * (self.calls + self.calls / WARM_UP) as f64,
            Measure::Sample => self.expected(cpu_ns),
        }
    }

    /// Expected marks or samples in the measured part, given its CPU time.
    fn expected(self, cpu_ns: f64) -> f64 {
        match self.measure {
            Measure::Mark => 2.0 * self.calls as f64,
            Measure::Sample => cpu_ns / self.period_ns as f64,
        }
    }
}
