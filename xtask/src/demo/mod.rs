//! `cargo xtask demo`: traces Debian's stock redis-server under load, prints the report, and checks it against the
//! known truth.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use pebs_experiments::frame::redis;

use crate::recorder::{self, Recorder};
use crate::{setup, shell};
use load::Size;

mod load;
mod queries;
mod verdict;

/// One command is one item; the client is recorded as an argument.
///
/// `processCommand(client *c)`: `c->id` is at +0, `c->argv` at +80; `argv[i]->ptr` at +8.
///
/// Source: redis 7.0, src/server.h.
const SPEC: &str = "redis-server:processCommand(client=*(arg1):u64, \
    cmd=str(*(*(*(arg1+80)+0)+8)), key=str(*(*(*(arg1+80)+8)+8)))";

/// Size of the example in the README.
const FULL: Size = Size {
    small: 20_000,
    big: 40,
};

/// Size for a CI run.
const SMALL: Size = Size {
    small: 2_000,
    big: 10,
};

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Send a tenth of the requests, and use the debug build
    #[arg(long)]
    small: bool,
    /// Where to write the trace
    ///
    /// Default: a new folder below target/demo. Never overwritten.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    setup::ensure_for_demo()?;
    let tool = recorder::build(!args.small)?;
    let size = if args.small { SMALL } else { FULL };
    let trace = match &args.output {
        Some(output) => std::path::absolute(output)?,
        None => new_trace_dir()?,
    };
    demonstrate(&tool, size, &trace)?;
    Ok(ExitCode::SUCCESS)
}

/// The demo as CI runs it.
pub fn small() -> Result<()> {
    demonstrate(&recorder::build(false)?, SMALL, &new_trace_dir()?)
}

fn demonstrate(tool: &Path, size: Size, trace: &Path) -> Result<()> {
    let server = redis::Server::start(&shell::workspace().join("target/demo/redis"))?;
    let mut client = server.connect()?;
    eprintln!(
        "demo: redis-server (pid {}) gets {} small keys and {} hashes that have expired",
        server.pid(),
        size.small,
        size.big
    );
    load::prepare(&mut client, size)?;
    let output = trace.to_str().context("the trace's path is not UTF-8")?;
    let pid = server.pid().to_string();
    // Room for all marks of a tenth of the load, however late a busy machine lets the tool read them.
    let args = [
        "--uprobe",
        SPEC,
        "-p",
        &pid,
        "-o",
        output,
        "--ring-size",
        "4MiB",
    ];
    let recorder = Recorder::start(tool, &args.map(str::to_owned))?;
    let latencies = load::run(&mut client, size);
    let report = recorder.stop()?;
    let latencies = latencies?;
    drop(server);

    println!("{}", report.trim_end());
    println!();
    println!("demo: {}", latencies.summary());
    let verdict = verdict::of(&json_report(tool, output, size)?, size)?;
    println!("demo: {verdict}");
    println!("demo: the trace is {output}");
    println!("demo: {}", queries::run(output)?);
    Ok(())
}

/// The report for programs, with enough of the slowest visits to include all expected ones, and those that were
/// preempted.
fn json_report(tool: &Path, trace: &str, size: Size) -> Result<serde_json::Value> {
    let slowest = (20 * size.big).to_string();
    let mut command = shell::as_root(tool);
    command.args(["report", trace, "--format", "json", "--slowest", &slowest]);
    let text = shell::output(&mut command)?;
    serde_json::from_str(&text).context("the report is not JSON")
}

fn new_trace_dir() -> Result<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let parent = shell::workspace().join("target/demo");
    std::fs::create_dir_all(&parent)?;
    let trace = parent.join(format!("trace-{now}"));
    if trace.exists() {
        bail!("{} is there already", trace.display());
    }
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The load has the expected truth on a real server: every small key exists, every large one has expired, and
    /// freeing the large ones takes longest.
    #[test]
    fn load_on_a_real_server() {
        if crate::toolchain::find_program("redis-server").is_none() {
            println!("SKIP redis-server is not installed");
            return;
        }
        let size = Size { small: 50, big: 2 };
        let dir = shell::workspace().join("target/demo/redis-test");
        let server = redis::Server::start(&dir).unwrap();
        let mut client = server.connect().unwrap();
        load::prepare(&mut client, size).unwrap();
        let latencies = load::run(&mut client, size).unwrap();
        assert_eq!((latencies.small.len(), latencies.big.len()), (50, 2));
        assert!(
            latencies.big[0] > latencies.small[25],
            "{}",
            latencies.summary()
        );
    }
}
