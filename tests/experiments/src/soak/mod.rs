//! `cargo xtask soak`: records several programs at the highest rate for a long time, and checks that
//! nothing is lost without account, that memory stays flat, and that the trace can be read.
//!
//! The trace stays in `target/soak/trace`. The exit code is 1 if a check fails.

mod memory;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::frame::lab::Lab;
use crate::frame::machine::Killed;
use crate::frame::recorder::Recorder;
use crate::frame::trace::Account;
use crate::frame::verdict::exit_code;
use crate::frame::{installed, shell};
use memory::{Memory, Verdict};

/// Options of `cargo xtask soak`.
#[derive(clap::Args)]
pub struct Args {
    /// How long to record
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Time between two samples, ns; the default is the kernel's minimum
    #[arg(long, default_value_t = 10_000)]
    reset: u64,
    /// Soak this pebs-trace instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
}

/// Memory limit for pending records and open visits.
const MAX_MEMORY: &str = "64MiB";

/// Interval between two readings of the tool's memory.
const LOOK: Duration = Duration::from_secs(1);

/// A workload of `tests/` that runs until it is ended.
struct Load {
    name: &'static str,
    args: &'static [&'static str],
    processes: u32,
}

/// A busy loop of tiny items, and two servers that sleep between bursts of larger ones.
const LOADS: [Load; 2] = [
    Load {
        name: "short_visits",
        args: &["4000000000", "20000"],
        processes: 1,
    },
    Load {
        name: "answers",
        args: &["20"],
        processes: 2,
    },
];

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let lab = Lab::new("soak", args.tool.as_deref())?;
    let trace = lab.clean("trace")?;
    let mut command = lab.tool();
    let mut targets = Targets(Vec::new());
    for load in &LOADS {
        let program = lab.compile(load.name, &[])?;
        let spec = format!("{}:handle(id=arg1)", program.display());
        command.args(["--uprobe", &spec]);
        for _ in 0..load.processes {
            targets.start(&program, load.args)?;
        }
    }
    // Sampling this fast starves the recorder too: a quarter of this may wait for it.
    command.args(["--max-memory", MAX_MEMORY, "--event", "cpu-clock"]);
    command.args(["--reset", &args.reset.to_string(), "--output"]);
    command.arg(&trace);
    let time = Duration::try_from_secs_f64(args.minutes * 60.0).context("--minutes")?;
    let memory = record(command, time, &mut targets)?;
    let found = SoakResults {
        run: lab.info()?,
        memory: memory.verdict().context("too short to judge memory")?,
        bytes: size_of_dir(&trace)?,
        read: read(&trace)?,
    };
    let (table, faults) = found.table(targets.0.len());
    println!("{table}");
    for fault in &faults {
        println!("FAILED: {fault}");
    }
    println!("trace: {}", trace.display());
    Ok(exit_code(faults.is_empty()))
}

/// Programs that are recorded. Killed when dropped.
struct Targets(Vec<Killed>);

impl Targets {
    fn start(&mut self, program: &Path, args: &[&str]) -> Result<()> {
        let mut command = Command::new(program);
        command.args(args).env("TRUTH_FILE", "/dev/null");
        // Held open: its end would be the program's.
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot run {}", program.display()))?;
        self.0.push(Killed(child));
        Ok(())
    }

    /// Fails if one of them has ended.
    fn all_run(&mut self) -> Result<()> {
        for child in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                bail!("a target ended while it was recorded ({status})");
            }
        }
        Ok(())
    }
}

/// Records for a time, and watches the tool's memory.
fn record(command: Command, time: Duration, targets: &mut Targets) -> Result<Memory> {
    let recorder = Recorder::spawn(command)?;
    let (mut memory, start) = (Memory::default(), Instant::now());
    let pid = recorder.pid()?;
    while start.elapsed() < time {
        std::thread::sleep(LOOK.min(time.saturating_sub(start.elapsed())));
        memory.look(pid, start.elapsed());
    }
    println!("{}", recorder.stop()?);
    // Neither the recording nor its end affected them.
    std::thread::sleep(LOOK);
    targets.all_run()?;
    Ok(memory)
}

/// Bytes of all files below a folder.
fn size_of_dir(dir: &Path) -> Result<u64> {
    let listing = shell::output(shell::as_root("du").arg("-sb").arg(dir))?;
    let bytes = listing.split_whitespace().next();
    bytes
        .and_then(|bytes| bytes.parse().ok())
        .context("du said nothing")
}

/// Counts rows with DuckDB and pandas, and runs a query in DuckDB.
const READ: &str = "
import glob, json, os, sys, duckdb, pandas
t = sys.argv[1]
duckdb.execute('set enable_progress_bar = false')
tables = [d for d in sorted(os.listdir(t)) if os.path.isdir(f'{t}/{d}')]
ask = lambda sql: duckdb.execute(sql).fetchone()
print(json.dumps({
    'duckdb': {d: ask(f\"select count(*) from '{t}/{d}/*.parquet'\")[0] for d in tables},
    'pandas': {d: sum(len(pandas.read_parquet(f)) for f in glob.glob(f'{t}/{d}/*.parquet')) for d in tables},
    'quantiles': ask(f\"select quantile_cont(duration_ns, [0.5, 0.99]) from '{t}/visits/*.parquet'\")[0],
    'losses': ask(f\"select coalesce(sum(records), 0)::bigint from '{t}/losses/*.parquet'\")[0],
}))
";

/// Counts by other readers; `None`, with a message, if they are not installed.
fn read(trace: &Path) -> Result<Option<Value>> {
    let Some(python) = installed::readers() else {
        println!("SKIP reading with DuckDB and pandas: not installed; see cargo xtask setup");
        return Ok(None);
    };
    let mut command = shell::as_root(python);
    let text = shell::output(command.args(["-c", READ]).arg(trace));
    let text = text.context("DuckDB or pandas cannot read the trace")?;
    Ok(Some(serde_json::from_str(&text)?))
}

/// Results of the run.
struct SoakResults {
    run: Value,
    memory: Verdict,
    bytes: u64,
    read: Option<Value>,
}

/// Reasons that are no loss: ends of items that began while the probes were being attached or taken away.
const NO_LOSS: [&str; 3] = ["began_before", "began_after", "unmatched_mark"];

impl SoakResults {
    /// The table, and the faults.
    fn table(&self, targets: usize) -> (String, Vec<String>) {
        let seconds = self.run["duration_ns"].as_f64().unwrap_or(f64::NAN) / 1e9;
        let mut rows = vec![("time", format!("{seconds:.0} s, {targets} targets"))];
        let mut faults = Vec::new();
        let mut fault = |wrong: bool, what: String| {
            if wrong {
                faults.push(what);
            }
        };
        fault(
            self.run["complete"] != true,
            "the trace is not complete".into(),
        );
        for kind in ["samples", "marks", "tasks"] {
            let account = Account::of(&self.run, kind);
            let rate = account.seen as f64 / seconds;
            let is_loss = |reason: &str| !NO_LOSS.contains(&reason);
            let (mut lost, mut unmatched) = (0, 0);
            for (reason, records) in &account.reasons {
                *(if is_loss(reason) {
                    &mut lost
                } else {
                    &mut unmatched
                }) += records;
            }
            let part = lost as f64 / account.seen.max(1) as f64 * 100.0;
            rows.push((
                kind,
                format!(
                    "{} seen, {rate:.0}/s; {lost} lost ({part:.4} %), {unmatched} unmatched",
                    account.seen
                ),
            ));
            fault(account.seen == 0, format!("no {kind}"));
            fault(
                !account.balances,
                format!("{kind} do not balance: {account:?}"),
            );
        }
        rows.push((
            "throttled",
            format!("{} times", self.run["ledger"]["throttled"]),
        ));
        let memory = &self.memory;
        rows.push((
            "memory",
            format!(
                "median {:.1} MiB, most {:.1} MiB, slope {:+.2} MiB/min, growth {:+.1} MiB (limit {:.0})",
                memory.median_mib,
                memory.most_mib,
                memory.slope_mib,
                memory.growth_mib,
                Verdict::LIMIT_MIB
            ),
        ));
        fault(!memory.is_flat(), format!("memory grows: {memory:?}"));
        let written = Account::of(&self.run, "samples").written;
        let each = self.bytes as f64 / written.max(1) as f64;
        let mib = self.bytes as f64 / f64::from(1 << 20);
        rows.push(("trace", format!("{mib:.0} MiB, {each:.1} bytes a sample")));
        if let Some(read) = &self.read {
            rows.push(("read", read.to_string()));
            let rows_read = read["duckdb"]["samples"].as_u64();
            fault(
                rows_read != Some(written),
                format!("DuckDB reads {rows_read:?} samples of {written}"),
            );
            fault(
                read["duckdb"] != read["pandas"],
                "pandas reads other numbers of rows than DuckDB".into(),
            );
        }
        let lines = rows
            .iter()
            .map(|(name, text)| format!("{name:<10} {text}\n"));
        (lines.collect(), faults)
    }
}
