//! `cargo xtask accuracy`: bias and error of both estimates against known truth, per reset value,
//! on the logging workload of `validate` and on the workloads of `tests/`.
//!
//! Writes a table and a picture to `target/accuracy/`. The exit code is 1 if a target is missed. With `--coverage` it does
//! the same for the intervals that commands print, on regular items: see `coverage`.

mod coverage;
mod plot;
mod regular;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use crate::frame::lab::Lab;
use crate::frame::shell;
use crate::frame::statistics::median;
use crate::frame::table::Table;
use crate::frame::verdict::exit_code;

/// Options of `cargo xtask accuracy`.
#[derive(clap::Args)]
pub struct Args {
    /// Time between two samples, ns, separated by commas
    #[arg(long, value_delimiter = ',')]
    #[arg(default_values_t = [10_007, 16_000, 25_013, 50_021, 100_003])]
    reset: Vec<u64>,
    /// Seconds of the built-in workload for each reset value and round
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Number of rounds; each figure is the median
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Only items that come regularly: shares of functions with equal and with varied distances between samples
    #[arg(long)]
    regular: bool,
    /// Only N short recordings of regular items (400 if no number is given): how often each interval of 95 % holds the
    /// program's own truth, and bias
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "400")]
    #[arg(conflicts_with = "regular")]
    coverage: Option<u64>,
    /// The first of their seeds
    #[arg(long, default_value_t = 1, requires = "coverage")]
    from: u64,
    /// Append their results to FILE; skip the seeds that are in it, and print the tables of all of them
    #[arg(long, value_name = "FILE", requires = "coverage")]
    log: Option<PathBuf>,
    /// Measure this pebs-trace instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
}

/// A workload of `tests/` that logs its truth.
struct Workload {
    name: &'static str,
    args: &'static [&'static str],
    /// Function to probe.
    function: &'static str,
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "query",
        args: &["40"],
        function: "process_query(id=*(arg1):u64)",
    },
    Workload {
        name: "plain",
        args: &["20000"],
        function: "handle(id=*(arg1):u64)",
    },
    Workload {
        name: "threads",
        args: &[],
        function: "handle(id=*(arg1):u64)",
    },
    Workload {
        name: "migrate",
        args: &[],
        function: "handle(id=*(arg1):u64)",
    },
];

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let lab = Lab::new("accuracy", args.tool.as_deref())?;
    if args.regular {
        let text = regular::table(&lab)?;
        fs::write(lab.dir.join("regular.md"), &text)?;
        println!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(runs) = args.coverage {
        return coverage::main(&lab, (args.from, runs), args.log.as_deref());
    }
    let rounds: Vec<Value> = (1..=args.rounds.max(1))
        .map(|round| selftest(&lab, args, round))
        .collect::<Result<_>>()?;
    let mut workloads = Vec::new();
    for workload in &WORKLOADS {
        let program = lab.compile(workload.name, &[])?;
        for &reset in &args.reset {
            let found = record(&lab, workload, &program, reset)?;
            workloads.push((workload.name, found));
        }
    }
    let (text, misses) = write_table(&rounds, &workloads);
    let svg = lab.dir.join("accuracy.svg");
    fs::write(&svg, plot::draw(&panels(&rounds)))?;
    lab.publish("accuracy.md", &text)?;
    println!("picture: {}", svg.display());
    Ok(exit_code(misses == 0))
}

/// The built-in workload over all reset values.
fn selftest(lab: &Lab, args: &Args, seed: u64) -> Result<Value> {
    let resets: Vec<String> = args.reset.iter().map(u64::to_string).collect();
    let mut command = lab.tool();
    command.args(["selftest", "--format", "json"]);
    command.args(["--reset", &resets.join(",")]);
    command.args(["--duration", &args.seconds.to_string()]);
    command.args(["--seed", &seed.to_string()]);
    shell::json(shell::show(&mut command))
}

/// Records a workload and compares the trace with its log.
fn record(lab: &Lab, workload: &Workload, program: &Path, reset: u64) -> Result<Value> {
    let spec = format!("{}:{}", program.display(), workload.function);
    let mut command = lab.recording(&spec, Some(reset), &[])?;
    shell::output(command.arg(program).args(workload.args))?;
    let mut command = lab.tool();
    command.args(["selftest", "--format", "json", "--against"]);
    command.arg(lab.trace()).arg(lab.log());
    let mut found = shell::json(shell::show(&mut command))?;
    Ok(found["reset_values"][0].take())
}

/// The built-in workload's figures for the `n`-th reset value, one of each round.
fn of_reset(rounds: &[Value], n: usize) -> Vec<&Value> {
    rounds
        .iter()
        .map(|round| &round["reset_values"][n])
        .collect()
}

/// Number of reset values.
fn resets(rounds: &[Value]) -> usize {
    let first = rounds
        .first()
        .and_then(|round| round["reset_values"].as_array());
    first.map_or(0, Vec::len)
}

/// Adds up one figure over the functions of a length.
fn sum(found: &Value, length: &str, of: impl Fn(&Value) -> f64) -> f64 {
    let functions = found["functions"].as_array().into_iter().flatten();
    functions.filter(|f| f["length"] == length).map(of).sum()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// The function with the largest bias, with its standard error, in %.
fn worst(found: &Value, length: &str) -> (f64, f64, String) {
    let functions = found["functions"].as_array().into_iter().flatten();
    let known = functions.filter(|f| f["length"] == length && number(&f["rows"]) >= 50.0);
    let all = known.map(|f| {
        let name = f["name"].as_str().unwrap_or_default();
        let name = name.strip_prefix("selftest_").unwrap_or(name).to_owned();
        (
            number(&f["bias"]) * 100.0,
            number(&f["bias_stderr"]) * 100.0,
            name,
        )
    });
    all.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))
        .unwrap_or((f64::NAN, f64::NAN, "too few".to_owned()))
}

/// The whole table, and the number of missed targets.
fn write_table(rounds: &[Value], workloads: &[(&str, Value)]) -> (String, usize) {
    let mut text = String::from("# Accuracy against known truth\n\n");
    let loads = rounds.iter().filter_map(|round| round["load"].as_f64());
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Self-test, median of {} rounds; load average {:.1}.\n",
        rounds.len(),
        median(loads.collect())
    );
    text += &selftest_table(rounds);
    text += "\n## Workloads of tests/\n\n";
    text += &workload_table(workloads);
    let mut misses = 0;
    text += "\n## Targets missed\n\n";
    for (n, round) in rounds.iter().enumerate() {
        for miss in round["misses"].as_array().into_iter().flatten() {
            let _ = writeln!(
                text,
                "* round {}: {}",
                n + 1,
                miss.as_str().unwrap_or_default()
            );
            misses += 1;
        }
    }
    if misses == 0 {
        text += "None.\n";
    }
    (text, misses)
}

type Figure<'a> = (&'a str, fn(&Value) -> f64, usize);

/// One column per reset value.
fn selftest_table(rounds: &[Value]) -> String {
    const FIGURES: [Figure<'_>; 13] = [
        ("items", |f| number(&f["visits"]["items"]), 0),
        (
            "visits missing or too many",
            |f| number(&f["visits"]["missing"]) + number(&f["visits"]["extra"]),
            0,
        ),
        (
            "visits compared (never off the CPU, not disturbed)",
            |f| number(&f["visits"]["compared"]),
            0,
        ),
        (
            "time that interrupts took, %",
            |f| number(&f["stopped_share"]) * 100.0,
            0,
        ),
        (
            "interrupt of a sample, us",
            |f| number(&f["stop_ns"]) / 1e3,
            1,
        ),
        (
            "long functions: worst bias of self_ns, %",
            |f| worst(f, "long").0,
            2,
        ),
        (
            "long functions: its standard error, %",
            |f| worst(f, "long").1,
            2,
        ),
        (
            "long functions: coverage of the 95 % interval, %",
            |f| {
                100.0 * sum(f, "long", |f| number(&f["covered"]))
                    / sum(f, "long", |f| number(&f["rows"]))
            },
            1,
        ),
        (
            "long functions: bias of span_ns, intervals",
            |f| {
                let bias = |f: &Value| number(&f["once_span_bias_ns"]) * number(&f["once"]);
                sum(f, "long", bias)
                    / sum(f, "long", |f| number(&f["once"]))
                    / number(&f["reset_ns"])
            },
            2,
        ),
        (
            "short functions: worst bias of self_ns, %",
            |f| worst(f, "short").0,
            2,
        ),
        (
            "short functions: its standard error, %",
            |f| worst(f, "short").1,
            2,
        ),
        (
            "samples in a wrong item",
            |f| number(&f["samples"]["wrong_item"]),
            0,
        ),
        (
            "samples in a wrong function",
            |f| number(&f["samples"]["wrong_function"]),
            0,
        ),
    ];
    let columns: Vec<Vec<&Value>> = (0..resets(rounds)).map(|n| of_reset(rounds, n)).collect();
    let resets = columns
        .iter()
        .map(|it| format!(" | {}:", it[0]["reset_ns"]));
    let mut table = Table::new(&format!("reset value, ns{}", resets.collect::<String>()));
    for (name, of, digits) in FIGURES {
        let values = columns.iter().map(|column| {
            let value = median(column.iter().map(|found| of(found)).collect());
            format!(" | {value:.digits$}")
        });
        table.row(format_args!("{name}{}", values.collect::<String>()));
    }
    table.to_string()
}

/// One row per workload and reset value; bias only where functions are logged.
fn workload_table(workloads: &[(&str, Value)]) -> String {
    let mut table = Table::new(
        "workload | reset, ns: | items: | visits: | misplaced: | samples in items: | wrong item: | wrong function: | \
         bias of self_ns by function, % ± standard error",
    );
    for (name, found) in workloads {
        let (visits, samples) = (&found["visits"], &found["samples"]);
        table.row(format_args!(
            "{name} | {} | {} | {} | {} | {} | {} | {} of {} | {}",
            found["reset_ns"],
            visits["items"],
            visits["visits"],
            visits["misplaced"],
            samples["in_visits"],
            samples["wrong_item"],
            samples["wrong_function"],
            samples["judged"],
            biases(found)
        ));
    }
    table.to_string()
}

fn biases(found: &Value) -> String {
    let functions = found["functions"].as_array().into_iter().flatten();
    let each = functions.filter(|f| f["length"] == "long").map(|f| {
        let (bias, error) = (
            number(&f["bias"]) * 100.0,
            number(&f["bias_stderr"]) * 100.0,
        );
        let name = f["name"].as_str().unwrap_or_default();
        format!("{name} {bias:+.2} ± {error:.2} ({} visits)", f["rows"])
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Panels of the picture: one for each reset value.
fn panels(rounds: &[Value]) -> Vec<plot::Panel> {
    let panel = |n: usize| {
        let column = of_reset(rounds, n);
        let interval = number(&column[0]["reset_ns"]);
        let bins = column[0]["bins"].as_array().into_iter().flatten();
        // Means over few rows would show chance.
        let enough = bins.filter(|bin| number(&bin["rows"]) >= 20.0);
        let points = enough.map(|bin| {
            let truth = number(&bin["truth_ns"]);
            let of =
                |mean: &str, error: &str| (number(&bin[mean]) / truth, number(&bin[error]) / truth);
            plot::Point {
                intervals: number(&bin["intervals"]),
                own: of("self_ns", "self_error_ns"),
                span: of("span_ns", "span_error_ns"),
            }
        });
        plot::Panel {
            title: format!("a sample every {} us", (interval / 100.0).round() / 10.0),
            points: points.collect(),
        }
    };
    (0..resets(rounds)).map(panel).collect()
}
