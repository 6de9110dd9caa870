//! Recordings of a workload: pebs-trace's figures on each item, and the workload's own log.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Lab;
use crate::frame::recorder::Recorder;
use crate::frame::shell;
use crate::frame::trace::read_items;
pub use crate::frame::trace::{Function, Item};

/// An item by the workload's log, ns.
#[derive(Clone, Copy)]
pub struct Logged {
    pub id: u64,
    before: f64,
    enter: f64,
    leave: f64,
    after: f64,
}

impl Logged {
    /// From the first to the last instant within the function.
    pub fn inside(self) -> f64 {
        self.leave - self.enter
    }

    /// As its caller sees it: marks count.
    pub fn outside(self) -> f64 {
        self.after - self.before
    }
}

/// The workload's log.
#[derive(Default)]
pub struct Log {
    pub items: Vec<Logged>,
    /// Time of functions, by item and name, ns.
    pub calls: HashMap<(u64, String), f64>,
}

/// A recording of a workload.
pub struct Recording {
    pub items: Vec<Item>,
    pub log: Log,
    /// `trace.json`.
    pub info: Value,
}

/// A program as root, before all others: items are hardly ever displaced.
fn first(log: &Path) -> Command {
    let mut command = shell::as_root("env");
    command.arg(format!("TRUTH_FILE={}", log.display()));
    command.arg("TRUTH_REALTIME=1");
    command
}

/// Runs a workload without pebs-trace.
pub fn alone(lab: &Lab, program: &Path, args: &[&str]) -> Result<Log> {
    let log = lab.dir.join("log");
    lab.remove(&log)?;
    shell::output(first(&log).arg(program).args(args))?;
    read_log(&log)
}

/// Records a workload with a sample of cpu-clock every `reset` ns.
pub fn record(
    lab: &Lab,
    program: &Path,
    args: &[&str],
    function: &str,
    reset: u64,
) -> Result<Recording> {
    let (trace, log, csv) = (
        lab.dir.join("trace"),
        lab.dir.join("log"),
        lab.dir.join("items.csv"),
    );
    for old in [&trace, &log, &csv] {
        lab.remove(old)?;
    }
    // The recorder attaches when all is prepared: the time before the first item is long, and longer with
    // samples.
    let mut child = first(&log)
        .arg("TRUTH_WAIT=1")
        .arg(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = ready(&mut child)?;
    let mut words = vec![lab.cache(), lab.tool.display().to_string()];
    words.extend([
        "--uprobe".to_owned(),
        format!("{}:{function}", program.display()),
    ]);
    words.extend(["--event", "cpu-clock", "--reset"].map(str::to_owned));
    words.extend([reset.to_string(), "-p".to_owned(), pid]);
    words.extend(
        [
            "--force",
            "--max-loss",
            "100",
            "--format",
            "json",
            "--output",
        ]
        .map(str::to_owned),
    );
    words.push(trace.display().to_string());
    let recorder = Recorder::start(Path::new("env"), &words)?;
    child.stdin.take().context("no stdin")?.write_all(b"go\n")?;
    let status = child.wait()?;
    recorder.stop()?;
    if !status.success() {
        bail!("{} failed ({status})", program.display());
    }
    let mut command = lab.tool();
    command.args(["export", "--to", "csv", "--output"]);
    shell::output(command.arg(&csv).arg(&trace))?;
    Ok(Recording {
        items: read_items(&fs::read_to_string(&csv)?)?,
        log: read_log(&log)?,
        info: serde_json::from_slice(&fs::read(trace.join("trace.json"))?)?,
    })
}

/// Waits until a workload is ready, and returns its pid.
fn ready(child: &mut Child) -> Result<String> {
    let stderr = child.stderr.take().context("no stderr")?;
    for line in BufReader::new(stderr).lines() {
        if let Some(pid) = line?.strip_prefix("ready ") {
            return Ok(pid.trim().to_owned());
        }
    }
    bail!("the workload was not ready")
}

/// Reads the log of a workload of `tests/workloads`; see its README.
fn read_log(file: &Path) -> Result<Log> {
    let text = fs::read_to_string(file).with_context(|| format!("no log {}", file.display()))?;
    let mut log = Log::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
        let id = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match words.first() {
            Some(&"item") => {
                let item = || {
                    Some(Logged {
                        id: id(1)?,
                        before: number(4)?,
                        enter: number(5)?,
                        leave: number(6)?,
                        after: number(7)?,
                    })
                };
                log.items
                    .push(item().with_context(|| format!("not an item: {line}"))?);
            }
            Some(&"call") => {
                let (Some(item), Some(enter), Some(leave)) = (id(2), number(4), number(5)) else {
                    bail!("not a call: {line}");
                };
                *log.calls.entry((item, words[1].to_owned())).or_default() += leave - enter;
            }
            _ => {}
        }
    }
    Ok(log)
}
