//! `pebs-trace import` beside `perf script`, on the same recording of `perf record`.
//!
//! Both read every sample and look up its function; ours also assigns its item, estimates, writes the trace and
//! reports.
//!
//! The size of the compacted trace is compared with that of the recording.
//!
//! The fixed cost (mostly symbols) is measured with a second recording of the same programs with very few samples.
//!
//! The cost of a process's begin and end comes from a recording of a shell that runs thousands of short processes,
//! compared with one of as many records of a single process. The whole system is not recorded, as debug information of
//! every running program would be read.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cpu_time::timed_success;
use super::probes::Probes;
use super::sizes::Sizes;
use crate::frame::lab::Lab;
use crate::frame::perf;
use crate::frame::shell;
use crate::frame::statistics::median;
use crate::frame::verdict::word;

/// Least ratio of our samples per second to those of `perf script`.
const GOAL: f64 = 20.0;

/// Short processes that a shell runs.
const PROCESSES: u64 = 8_000;

/// Largest ratio of our cost per record of that recording to that of one of a single process.
const PROCESSES_LIMIT: f64 = 2.0;

/// Time between two samples in these recordings, ns: two per item.
const PROCESSES_PERIOD: &str = "50000";

/// Threads of the workload, one for each CPU of a small machine.
const THREADS: &str = "2";

/// Length of an item, us.
const ITEM_US: &str = "100";

/// Items per thread in the recording with very few samples: enough to run the same binaries.
const FEW_ITEMS: u64 = 500;

/// The programs that read recordings.
struct Readers(Lab);

/// A recording, and the CPU time that each reader took in each round, in seconds.
struct Recording {
    file: PathBuf,
    /// Number of the kernel's records, and samples among them.
    records: u64,
    samples: u64,
    /// Whether it has marks.
    has_items: bool,
    script: Vec<f64>,
    import: Vec<f64>,
}

/// Records, lets both programs read the recordings in turns, prints each one's best times, and returns whether the
/// goals were reached. `items`: per thread.
pub fn compare(lab: Lab, (items, rounds): (u64, usize)) -> Result<bool> {
    let readers = Readers(lab);
    let mut all = match readers.record("import.data", items) {
        Ok(all) => all,
        Err(error) => {
            println!("SKIP import beside perf script: {error:#}");
            return Ok(true);
        }
    };
    let mut few = readers.record("few.data", FEW_ITEMS)?;
    let shell = format!("for i in $(seq {PROCESSES}); do /bin/true; done");
    let mut many = readers.record_plain("processes.data", &["sh", "-c", &shell])?;
    // Two threads, two samples per item.
    let items = (many.records / 4).to_string();
    let workload = readers.workload()?.display().to_string();
    let mut one = readers.record_plain("process.data", &[&workload, THREADS, &items, ITEM_US])?;
    for round in 1..=rounds {
        for recording in [&mut few, &mut all, &mut many, &mut one] {
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
        (&all.script, &few.script),
        (all.samples, few.samples),
    );
    let ours = rate(
        "pebs-trace import",
        (&all.import, &few.import),
        (all.samples, few.samples),
    );
    let factor = ours / theirs;
    let is_reached = factor >= GOAL;
    let goal = if is_reached { "reached" } else { "MISSED" };
    println!("  ours is {factor:.1} times as fast (goal {GOAL}): {goal}");
    let (size, is_small) = readers.size(&all)?;
    println!("  {size}");
    let is_cheap = processes(&many, &one);
    Ok(is_reached && is_small && is_cheap)
}

/// Prints the cost per record of both programs in recordings of many processes and of one; returns whether ours is
/// within its limit.
fn processes(many: &Recording, one: &Recording) -> bool {
    println!(
        "import of {PROCESSES} short processes, and of one with as many records, CPU time a record"
    );
    let print_ratio = |name: &str, times: fn(&Recording) -> &[f64]| {
        let cost = |it: &Recording| best(times(it)) * 1e9 / it.records as f64;
        let (many, one) = (cost(many), cost(one));
        println!("  {name:<17} {many:>5.0} ns and {one:>5.0} ns");
        many / one
    };
    print_ratio("perf script", |it| &it.script);
    let ratio = print_ratio("pebs-trace import", |it| &it.import);
    let is_cheap = ratio <= PROCESSES_LIMIT;
    println!(
        "  ours costs {ratio:.2} times as much (limit {PROCESSES_LIMIT}): {}; it is {:.1} and {:.1} times as fast as perf \
         script ({} and {} records)",
        word(is_cheap),
        best(&many.script) / best(&many.import),
        best(&one.script) / best(&one.import),
        many.records,
        one.records
    );
    is_cheap
}

/// The smallest of some times.
fn best(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::NAN, f64::min)
}

/// Prints a program's times for many samples and for few; returns samples per second, without the fixed cost.
fn rate(name: &str, (all, few): (&[f64], &[f64]), samples: (u64, u64)) -> f64 {
    let middle = median(all.to_vec());
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
    /// Reads a recording with both programs.
    fn read(&self, recording: &mut Recording) -> Result<(f64, f64)> {
        let times = (
            self.script(recording)?,
            self.import(recording, &["--no-compact"])?,
        );
        recording.script.push(times.0);
        recording.import.push(times.1);
        Ok(times)
    }

    /// The program that is recorded, compiled.
    fn workload(&self) -> Result<PathBuf> {
        self.0.compile("threads", &[])
    }

    /// Samples every 10 us, marks at each item's begin and end, switches.
    fn record(&self, name: &str, items: u64) -> Result<Recording> {
        let workload = self.workload()?;
        let probes = Probes::make(&workload, &["handle id=+0(%di):u64", "handle%return"])?;
        let events = ["-e", "cpu-clock", "-c", "10000", "-e", "probe_threads:*"];
        let options = [&["--switch-events", "-m", "16M"][..], &events].concat();
        let mut command = Command::new(&workload);
        command.args([THREADS, &items.to_string(), ITEM_US]);
        let recording = self.recorded(name, &options, &command)?;
        drop(probes);
        Ok(Recording {
            has_items: true,
            ..recording
        })
    }

    /// Samples of a command and its children.
    fn record_plain(&self, name: &str, command: &[&str]) -> Result<Recording> {
        let options = ["-e", "cpu-clock", "-c", PROCESSES_PERIOD];
        let mut run = Command::new(command[0]);
        run.args(&command[1..]);
        self.recorded(name, &options, &run)
    }

    fn recorded(&self, name: &str, options: &[&str], command: &Command) -> Result<Recording> {
        let file = self.0.dir.join(name);
        let mut record = shell::as_root("perf");
        record
            // perf 6.1 crashes on eBPF programs that are unloaded while it reads them, and on some build ids that it
            // reads itself.
            .args(["record", "--quiet", "--no-bpf-event", "--buildid-mmap"])
            .args(options)
            .arg("--output")
            .arg(&file)
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args())
            .stdout(Stdio::null());
        shell::run(&mut record)?;
        let (records, samples) = perf::records_in(&file)?;
        Ok(Recording {
            file,
            records,
            samples,
            has_items: false,
            script: Vec::new(),
            import: Vec::new(),
        })
    }

    fn script(&self, recording: &Recording) -> Result<f64> {
        let mut command = shell::as_root("perf");
        command.args(["script", "-i"]).arg(&recording.file);
        self.timed("perf-script", &command)
    }

    /// Describes the size of the compacted trace; returns whether it is within its limit.
    fn size(&self, recording: &Recording) -> Result<(String, bool)> {
        self.import(recording, &[])?;
        // Marks are samples for perf, but not rows of `samples`.
        let is_row = |event: &Value| event["used_for"] == "samples";
        let samples = self.imported(is_row)? as f64;
        let (text, is_within) = Sizes::of(&self.0.trace())?.describe(samples);
        let whole = std::fs::metadata(&recording.file)?.len() as f64 / samples;
        Ok((
            format!("as a trace, compacted: {text}; as a perf.data {whole:.1}"),
            is_within,
        ))
    }

    /// Samples of some events in the trace.
    fn imported(&self, counts: impl Fn(&Value) -> bool) -> Result<u64> {
        let info = self.0.info()?;
        let events = info["import"]["events"].as_array().context("no events")?;
        let events = events.iter().filter(|event| counts(event));
        Ok(events.filter_map(|it| it["samples"].as_u64()).sum())
    }

    /// Imports, and checks that every sample is in the trace.
    fn import(&self, recording: &Recording, options: &[&str]) -> Result<f64> {
        let trace = self.0.clean("trace")?;
        let mut command = self.0.tool();
        command
            .arg("import")
            .args(options)
            .arg(&recording.file)
            .arg("-o")
            .arg(&trace);
        if recording.has_items {
            command.args(["--begin", "handle", "--end", "handle__return", "--id", "id"]);
        }
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
        let log = self.0.dir.join(format!("{name}.err"));
        // 1: throttling of the recording counts as loss.
        timed_success(command, [Path::new("/dev/null"), &log], &[1])
    }
}
