//! `pebs-trace import` beside `perf script`, on the same recording of `perf record`.
//!
//! Both read every sample and name its function; ours finds its item as well, estimates, writes the trace and reports.
//!
//! What the trace then takes on disk, compacted, is reported beside the recording's own size.
//!
//! What either takes whatever the number of samples (symbols, mostly) is measured by a second recording of the same
//! programs with hardly any.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cpu_time::timed_success;
use super::probes::Probes;
use super::sizes::Sizes;
use super::{median, tracer};
use crate::shell;

/// Samples a second of ours are to be so many times those of `perf script`.
const GOAL: f64 = 20.0;

/// Threads of the workload, one for each CPU of a small machine.
const THREADS: &str = "2";

/// Length of an item, us.
const ITEM_US: &str = "100";

/// Items of each thread in the recording with hardly a sample: enough to be in the same binaries.
const FEW_ITEMS: u64 = 500;

/// Who reads recordings.
struct Readers {
    tool: PathBuf,
    dir: PathBuf,
}

/// A recording, and the CPU time that each reader took in each round, in seconds.
struct Recording {
    file: PathBuf,
    samples: u64,
    script: Vec<f64>,
    import: Vec<f64>,
}

/// Records, lets both read the recording in turns, prints what each took at best, and says whether the goal was reached.
/// `items`: by thread.
pub fn compare(tool: &Path, dir: &Path, (items, rounds): (u64, usize)) -> Result<bool> {
    let readers = Readers {
        tool: tool.to_path_buf(),
        dir: dir.to_path_buf(),
    };
    let record = |name, items| readers.record(dir.join(name), items);
    let made =
        record("import.data", items).and_then(|all| Ok((all, record("few.data", FEW_ITEMS)?)));
    let (mut all, mut few) = match made {
        Ok(made) => made,
        Err(error) => {
            println!("SKIP import beside perf script: {error:#}");
            return Ok(true);
        }
    };
    for round in 1..=rounds {
        for recording in [&mut few, &mut all] {
            let (script, import) = readers.read(recording)?;
            eprintln!(
                "bench: round {round}: {} samples: perf script: {script:.3} s, import: {import:.3} s",
                recording.samples
            );
        }
    }
    println!(
        "import of {} samples, best of {rounds} rounds (median), CPU time, user and system",
        all.samples
    );
    let theirs = rate(
        "perf script",
        (&mut all.script, &mut few.script),
        (all.samples, few.samples),
    );
    let ours = rate(
        "pebs-trace import",
        (&mut all.import, &mut few.import),
        (all.samples, few.samples),
    );
    let factor = ours / theirs;
    let is_reached = factor >= GOAL;
    let word = if is_reached { "reached" } else { "MISSED" };
    println!("  ours is {factor:.1} times as fast (goal {GOAL}): {word}");
    let (size, is_small) = readers.size(&all)?;
    println!("  {size}");
    Ok(is_reached && is_small)
}

/// Prints what a reader took of many samples and of few; gives samples a second.
fn rate(name: &str, (all, few): (&mut Vec<f64>, &mut Vec<f64>), samples: (u64, u64)) -> f64 {
    let (middle, _) = (median(all), median(few));
    // Sorted now.
    let best = |times: &[f64]| times.first().copied().unwrap_or(f64::NAN);
    let (all, few) = (best(all), best(few));
    let speed = samples.0 as f64 / all;
    let each = (all - few) / samples.0.saturating_sub(samples.1) as f64;
    println!(
        "  {name:<17} {all:>6.3} s ({middle:.3} s), {:>6.2} million samples a second: {few:.3} s for {} samples, {:.0} ns for each \
         further one",
        speed / 1e6,
        samples.1,
        each * 1e9
    );
    speed
}

impl Readers {
    /// Lets both read a recording.
    fn read(&self, recording: &mut Recording) -> Result<(f64, f64)> {
        let times = (
            self.script(recording)?,
            self.import(recording, &["--no-compact"])?,
        );
        recording.script.push(times.0);
        recording.import.push(times.1);
        Ok(times)
    }

    /// Samples every 10 us, marks at each item's begin and end, switches.
    fn record(&self, file: PathBuf, items: u64) -> Result<Recording> {
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
            .arg(&file)
            .arg("--")
            .arg(&workload)
            .args([THREADS, &items.to_string(), ITEM_US])
            .stdout(Stdio::null());
        shell::run(&mut record)?;
        drop(probes);
        let samples = tracer::samples_in(&file)?;
        Ok(Recording {
            file,
            samples,
            script: Vec::new(),
            import: Vec::new(),
        })
    }

    fn script(&self, recording: &Recording) -> Result<f64> {
        let mut command = shell::as_root("perf");
        command.args(["script", "-i"]).arg(&recording.file);
        self.timed("perf-script", &command)
    }

    /// What the recording takes as a trace, compacted, and whether that is little enough.
    fn size(&self, recording: &Recording) -> Result<(String, bool)> {
        self.import(recording, &[])?;
        // Marks are samples for perf, but no rows of that table.
        let is_row = |event: &Value| event["used_for"] == "samples";
        let samples = self.imported(is_row)? as f64;
        let (text, is_within) = Sizes::of(&self.trace())?.told(samples);
        let whole = std::fs::metadata(&recording.file)?.len() as f64 / samples;
        Ok((
            format!("as a trace, compacted: {text}; as a perf.data {whole:.1}"),
            is_within,
        ))
    }

    /// Samples of some events in the trace.
    fn imported(&self, counts: impl Fn(&Value) -> bool) -> Result<u64> {
        let path = self.trace().join("trace.json");
        let info: Value = serde_json::from_str(&shell::output(shell::as_root("cat").arg(path))?)?;
        let events = info["import"]["events"].as_array().context("no events")?;
        let events = events.iter().filter(|event| counts(event));
        Ok(events.filter_map(|it| it["samples"].as_u64()).sum())
    }

    fn trace(&self) -> PathBuf {
        self.dir.join("imported")
    }

    /// Imports, and checks that nothing was passed over.
    fn import(&self, recording: &Recording, options: &[&str]) -> Result<f64> {
        let trace = self.trace();
        shell::output(shell::as_root("rm").arg("-rf").arg(&trace))?;
        let mut command = shell::as_root(&self.tool);
        command
            .arg("import")
            .args(options)
            .arg(&recording.file)
            .args(["--begin", "handle", "--end", "handle__return", "--id", "id"])
            .arg("-o")
            .arg(&trace);
        let time = self.timed("import", &command)?;
        let imported = self.imported(|_| true)?;
        ensure!(
            imported == recording.samples,
            "{imported} of {} samples were imported",
            recording.samples
        );
        Ok(time)
    }

    /// CPU time of a command, in seconds.
    fn timed(&self, name: &str, command: &Command) -> Result<f64> {
        let log = self.dir.join(format!("{name}.err"));
        // 1: throttling of the recording counts as loss.
        timed_success(command, [Path::new("/dev/null"), &log], &[1])
    }
}
