//! Workloads that run before all other programs, so that items are hardly ever displaced: alone, and recorded.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use pebs_tests::truth::Truth;
use serde_json::Value;

use super::lab::Lab;
use super::shell;
use super::trace::Item;

/// A recording of a workload.
pub struct Recording {
    pub items: Vec<Item>,
    pub truth: Truth,
    /// `trace.json`.
    pub info: Value,
}

/// A program as root, before all others.
fn first(lab: &Lab) -> Result<Command> {
    let log = lab.clean("log")?;
    let mut command = shell::as_root("env");
    command.arg(format!("TRUTH_FILE={}", log.display()));
    command.arg("TRUTH_REALTIME=1");
    Ok(command)
}

/// Runs a workload before all others, without pebs-trace.
pub fn alone(lab: &Lab, program: &Path, args: &[&str]) -> Result<Truth> {
    shell::output(first(lab)?.arg(program).args(args))?;
    lab.truth()
}

/// Records a workload that runs before all others, with a sample of cpu-clock every `reset` ns.
pub fn record(
    lab: &Lab,
    program: &Path,
    args: &[&str],
    function: &str,
    reset: u64,
) -> Result<Recording> {
    run(lab, program, args, &[function], reset)?;
    Ok(Recording {
        items: lab.items()?,
        truth: lab.truth()?,
        info: lab.info()?,
    })
}

/// Makes a recording as [`record`] does, of functions that are stages of the same items.
pub fn run(lab: &Lab, program: &Path, args: &[&str], stages: &[&str], reset: u64) -> Result<()> {
    // The recorder attaches when all is prepared: the time before the first item is long, and longer with
    // samples.
    let mut child = first(lab)?
        .arg("TRUTH_WAIT=1")
        .arg(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = ready(&mut child)?;
    let spec = |function: &&str| format!("{}:{function}", program.display());
    let specs: Vec<String> = stages.iter().map(spec).collect();
    let (first, others) = specs.split_first().context("no function to record")?;
    let reset = reset.to_string();
    let options = ["--event", "cpu-clock", "--reset", &reset, "--force"];
    let mut options = [&options[..], &["--max-loss", "100", "--format", "json"]].concat();
    options.extend(others.iter().flat_map(|it| ["--uprobe", it]));
    if !others.is_empty() {
        // Threads that hand items over switch often.
        options.extend(["--ring-size", "16MiB"]);
    }
    let recorder = lab.attach(first, pid, &options)?;
    child.stdin.take().context("no stdin")?.write_all(b"go\n")?;
    let status = child.wait()?;
    recorder.stop()?;
    if !status.success() {
        bail!("{} failed ({status})", program.display());
    }
    Ok(())
}

/// Waits until a workload is ready, and returns its pid.
fn ready(child: &mut Child) -> Result<u32> {
    let stderr = child.stderr.take().context("no stderr")?;
    for line in BufReader::new(stderr).lines() {
        if let Some(pid) = line?.strip_prefix("ready ") {
            return pid.trim().parse().context("pid of the workload");
        }
    }
    bail!("the workload was not ready")
}
