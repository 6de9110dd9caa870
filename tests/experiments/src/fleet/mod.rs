//! `cargo xtask fleet`: agents, a lake and questions about all of its hosts, as a newcomer would set them up.
//!
//! Without options the small form: servers with an agent each, an S3 server, and one host with a setting that makes it slow
//! (`small.rs`). With `--hosts` a day of that many hosts, generated from recordings with planted causes (`generated.rs`). Both
//! ask `explain --by`, Spark on a cluster on the loopback and DuckDB, and fail if what was planted is not found, or if Spark's
//! rows are not DuckDB's.

mod answers;
mod generated;
mod small;
mod spark;
mod traffic;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::frame::lab::Lab;
use crate::frame::shell;
use crate::frame::verdict::{Verdict, exit_code, word};

/// Options of `cargo xtask fleet`.
#[derive(clap::Args)]
pub struct Args {
    /// Generate a lake of so many hosts, instead of six real ones
    #[arg(long)]
    hosts: Option<u64>,
    /// Hours of the generated lake
    #[arg(long, default_value_t = 24)]
    hours: u64,
    /// Length of the ranges of its sums, s; those of a recording have 10 s
    #[arg(long, default_value_t = 60)]
    range: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use the lake that is there
    #[arg(long)]
    again: bool,
    /// Use this pebs-trace, and its examples, instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
}

/// Runs the task. Java and Spark's environment have to be there.
pub fn main(args: &Args) -> Result<ExitCode> {
    let lab = Lab::new("fleet", args.tool.as_deref())?;
    match args.hosts {
        None => small::run(&lab),
        Some(hosts) => generated::run(&lab, args, hosts),
    }
}

/// The answer of `explain LAKE --by`.
struct Explained {
    found: Value,
    /// What it said on stderr: how much it read.
    read: String,
    seconds: f64,
}

impl Explained {
    fn of(lab: &Lab, lake: &str, by: &str, with: impl Fn(&mut Command)) -> Result<Self> {
        let mut command = lab.tool();
        with(&mut command);
        command.args(["explain", lake, "--by", by, "--format", "json"]);
        let begin = Instant::now();
        let done = shell::collect(shell::show(&mut command))?;
        let read = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        Ok(Self {
            seconds: begin.elapsed().as_secs_f64(),
            found: serde_json::from_slice(&done.stdout).with_context(|| read.clone())?,
            read,
        })
    }

    /// What is said of the probe whose SPEC has this text.
    fn probe(&self, text: &str) -> &Value {
        let probes = self.found["probes"].as_array().into_iter().flatten();
        let mut of = probes.filter(|it| it["spec"].as_str().is_some_and(|it| it.contains(text)));
        of.next().unwrap_or(&Value::Null)
    }
}

/// Prints the goals; the exit code.
fn judged(verdict: &Verdict) -> ExitCode {
    for (what, is_met) in verdict.goals() {
        println!("{}: {what}", word(*is_met));
    }
    exit_code(verdict.is_met())
}

/// Values of the slower groups of a probe, and the functions of the first causes.
fn slower(probe: &Value) -> (Vec<String>, Vec<&str>) {
    /// A function may spend its time in one that it calls.
    const FIRST: usize = 2;
    let first = &probe["slower"][0];
    let values = first["values"].as_array().into_iter().flatten();
    let values = values.filter_map(|it| it.as_str().map(str::to_owned));
    let causes = first["causes"].as_array().into_iter().flatten().take(FIRST);
    let names = causes.filter_map(|it| it["name"].as_str());
    (values.collect(), names.collect())
}
