//! `pebs-trace import` beside `perf script`, on the same recording of `perf record`.
//!
//! Both read every sample and name its function; ours finds its item as well, estimates, writes the trace and reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::probes::Probes;
use super::{median, tracer};
use crate::shell;

/// Samples a second of ours are to be so many times those of `perf script`.
const GOAL: f64 = 20.0;

/// Threads of the workload, one for each CPU of a small machine.
const THREADS: &str = "2";

/// Length of an item, us.
const ITEM_US: &str = "100";

/// Runs a command and says what it took: user and system time of it and its children, in seconds.
const TIMED: &str = r#"log=$1; shift; TIMEFORMAT='%3U %3S'; time "$@" >/dev/null 2>"$log""#;

/// A recording, and who reads it.
struct Readers {
    tool: PathBuf,
    dir: PathBuf,
}

/// Records, lets both read the recording in turns, prints what each took at best, and says whether the goal was reached.
/// `items`: by thread.
pub fn compare(tool: &Path, dir: &Path, (items, rounds): (u64, usize)) -> Result<bool> {
    let readers = Readers {
        tool: tool.to_path_buf(),
        dir: dir.to_path_buf(),
    };
    if let Err(error) = readers.record(items) {
        println!("SKIP import beside perf script: {error:#}");
        return Ok(true);
    }
    let samples = tracer::samples_in(&readers.data())?;
    let (mut script, mut import) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        script.push(readers.script()?);
        import.push(readers.import(samples)?);
        eprintln!(
            "bench: round {round}: perf script: {:.3} s, import: {:.3} s",
            script[round - 1],
            import[round - 1]
        );
    }
    println!(
        "import of {samples} samples, best of {rounds} rounds (median), CPU time, user and system"
    );
    let rate = |name: &str, times: &mut Vec<f64>| {
        let middle = median(times);
        let best = times.first().copied().unwrap_or(f64::NAN);
        let speed = samples as f64 / best;
        println!(
            "  {name:<17} {best:>6.3} s ({middle:.3} s), {:>6.2} million samples a second",
            speed / 1e6
        );
        speed
    };
    let theirs = rate("perf script", &mut script);
    let factor = rate("pebs-trace import", &mut import) / theirs;
    let is_reached = factor >= GOAL;
    let word = if is_reached { "reached" } else { "MISSED" };
    println!("  ours is {factor:.1} times as fast (goal {GOAL}): {word}");
    Ok(is_reached)
}

impl Readers {
    fn data(&self) -> PathBuf {
        self.dir.join("import.data")
    }

    /// Samples every 10 us, marks at each item's begin and end, switches.
    fn record(&self, items: u64) -> Result<()> {
        let workload = self.dir.join("threads");
        let mut compile = Command::new("gcc");
        compile
            .args(["-O2", "-g", "-pthread", "-o"])
            .arg(&workload)
            .arg(shell::workspace().join("tests/workloads/threads.c"));
        shell::run(&mut compile)?;
        let probes = Probes::make(&workload, &["handle id=+0(%di):u64", "handle%return"])?;
        let mut record = shell::as_root("perf");
        record
            // perf 6.1 falls over eBPF programs that go while it looks at them, and over some build ids that it reads.
            .args(["record", "--quiet", "--no-bpf-event", "--buildid-mmap"])
            .args(["--switch-events", "-m", "16M"])
            .args(["-e", "cpu-clock", "-c", "10000", "-e", "probe_threads:*"])
            .arg("--output")
            .arg(self.data())
            .arg("--")
            .arg(&workload)
            .args([THREADS, &items.to_string(), ITEM_US])
            .stdout(Stdio::null());
        shell::run(&mut record)?;
        drop(probes);
        Ok(())
    }

    fn script(&self) -> Result<f64> {
        let data = self.data();
        self.timed("perf-script", |command| {
            command.args(["perf", "script", "-i"]).arg(data)
        })
    }

    /// Imports, and checks that nothing was passed over.
    fn import(&self, samples: u64) -> Result<f64> {
        let trace = self.dir.join("imported");
        shell::output(shell::as_root("rm").arg("-rf").arg(&trace))?;
        let time = self.timed("import", |command| {
            command
                .arg(&self.tool)
                .args(["import", "--no-compact"])
                .arg(self.data())
                .args(["--begin", "handle", "--end", "handle__return", "--id", "id"])
                .arg("-o")
                .arg(&trace)
        })?;
        let info = shell::output(shell::as_root("cat").arg(trace.join("trace.json")))?;
        let info: serde_json::Value = serde_json::from_str(&info)?;
        let events = info["import"]["events"].as_array().context("no events")?;
        let imported: u64 = events.iter().filter_map(|it| it["samples"].as_u64()).sum();
        ensure!(
            imported == samples,
            "{imported} of {samples} samples were imported"
        );
        Ok(time)
    }

    /// CPU time of a command, in seconds.
    fn timed(&self, name: &str, add: impl FnOnce(&mut Command) -> &mut Command) -> Result<f64> {
        let log = self.dir.join(format!("{name}.err"));
        let mut command = shell::as_root("bash");
        command.args(["-c", TIMED, "bash"]).arg(&log);
        add(&mut command).stdin(Stdio::null()).stdout(Stdio::null());
        let output = command
            .output()
            .with_context(|| format!("cannot run {}", shell::display(&command)))?;
        // 1: throttling of the recording counts as loss.
        if !matches!(output.status.code(), Some(0 | 1)) {
            let command = shell::display(&command);
            bail!(
                "'{command}' failed ({}), see {}",
                output.status,
                log.display()
            );
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let mut times = text.split_whitespace().map(str::parse::<f64>);
        match (times.next(), times.next()) {
            (Some(Ok(user)), Some(Ok(system))) => Ok(user + system),
            _ => bail!("bash says no times: {text:?}"),
        }
    }
}
