//! Interruptions of a thread: interrupts, page faults.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};

use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::Visit;
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need, process};

fn record(name: &str, args: &[&str], workload_args: &[&str]) -> (Recording, Truth) {
    let workload = Workload::build(name);
    let alone = workload.run(workload_args);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .args(args)
        .workload(&workload, workload_args);
    check::whole_visits(&recording.trace(), &truth);
    check::unharmed(&recording, &alone);
    (recording, truth)
}

/// The median of a value over the visits of the items of a class.
fn median(visits: &[Visit], class: u64, of: impl Fn(&Visit) -> Option<i64>) -> i64 {
    let of_class = visits.iter().filter(|visit| visit.item_id % 3 == class);
    let mut values: Vec<i64> = of_class.filter_map(of).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// Interrupts count for the items that they interrupt, and for no others; so do their softirqs.
#[test]
fn interrupts() {
    need!(machine::root());
    let args = ["--with", "irq", "--reset", "1000000"];
    let (recording, truth) = record("interrupts", &args, &["90"]);
    let visits = recording.trace().visits();
    let ran_out = truth.calls.iter().filter(|call| call.name == "timer");
    let timers: HashMap<u64, u64> = ran_out.map(|call| (call.item, call.leave)).collect();
    for visit in &visits {
        let irq = visit.irq_ns.unwrap();
        let both = irq + visit.softirq_ns.unwrap();
        assert!(both <= visit.oncpu_ns.unwrap(), "{visit:?}");
        assert_eq!((visit.fault_ns, visit.major_faults), (None, None));
        if timers[&visit.item_id] > 0 {
            // An interrupt takes more than one ns.
            assert!(irq > timers[&visit.item_id] as i64, "{visit:?}");
        }
    }
    assert_eq!(median(&visits, 0, |visit| visit.irq_ns), 0);
    assert_eq!(median(&visits, 0, |visit| visit.softirq_ns), 0);
    assert!(median(&visits, 2, |visit| visit.softirq_ns) > 20);
    let cost = &recording.trace().json["cost"];
    assert!(cost["interrupts"].as_u64() > Some(0), "{cost}");
    assert!(
        cost["interrupts_ns"].is_number() && cost["slowdown"].is_number(),
        "{cost}"
    );
    let report = pebs_trace(["report".as_ref(), recording.dir().as_os_str()]);
    assert!(
        report.stdout.contains("interruptions, mean of one"),
        "{report}"
    );
}

/// Interrupts of samples are the recording's own: they do not count.
#[test]
fn samples_are_no_interrupts() {
    need!(machine::root());
    let args = ["--with", "irq", "--reset", "20000"];
    let (recording, _) = record("calls", &args, &["50"]);
    let trace = recording.trace();
    let visits = trace.visits();
    let samples: u64 = visits.iter().map(|visit| visit.samples).sum();
    assert!(samples > 100, "{samples}");
    // Handling the interrupt of a sample takes more than a twentieth of 20 us here.
    let share = |visit: &Visit| Some(visit.irq_ns? * 1000 / visit.oncpu_ns?);
    for class in 0..3 {
        let usual = median(&visits, class, share);
        assert!(usual < 50, "{usual} of 1000 ns: {visits:?}");
    }
}

/// Each page touched for the first time takes time in its item, and none had to be read.
#[test]
fn minor_faults() {
    need!(machine::root());
    let (recording, _) = record("faults", &["--with", "faults"], &["100"]);
    for visit in recording.trace().visits() {
        let faults = visit.page_faults.unwrap();
        let ns = visit.fault_ns.unwrap();
        assert_eq!(faults > 0, ns > 0, "{visit:?}");
        assert!(ns < visit.duration_ns.unwrap(), "{visit:?}");
        assert_eq!((visit.irq_ns, visit.softirq_ns), (None, None));
        assert!(visit.major_faults <= visit.page_faults, "{visit:?}");
        if visit.item_id > 0 {
            assert_eq!(visit.major_faults, Some(0), "{visit:?}");
        }
    }
}

/// Pages of a file that is not in memory are read: that is a major fault, and its time is longer than the wait.
#[test]
fn major_faults() {
    need!(machine::root());
    let (recording, truth) = record(
        "reads",
        &["--with", "faults", "--reset", "1000000"],
        &["30"],
    );
    let trace = recording.trace();
    let waits = trace.waits();
    let read = truth.notes["read"];
    let majors: u64 = trace
        .visits()
        .iter()
        .filter_map(|visit| visit.major_faults)
        .sum();
    assert!(majors >= read, "{majors} of {read}");
    for visit in trace.visits().iter().filter(|visit| visit.item_id > 0) {
        let of_visit = waits.iter().filter(|it| it.visit_id == visit.visit_id);
        let slept = of_visit.filter(|it| it.state == "uninterruptible");
        let slept: i64 = slept.map(pebs_tests::trace::Wait::length_ns).sum();
        assert!(visit.fault_ns.unwrap() >= slept, "{visit:?} {slept}");
        if visit.item_id % 2 == 0 {
            assert_eq!(visit.major_faults, Some(0), "{visit:?}");
        }
    }
    let dir = recording.dir();
    let explained = pebs_trace(["explain".as_ref(), dir.as_os_str(), "--slow=p70".as_ref()]);
    let mut lines = explained
        .stdout
        .lines()
        .skip_while(|it| !it.starts_with("interruptions"));
    let named = lines.any(|it| it.starts_with("  page faults "));
    assert!(named || read == 0, "{explained}");
}

/// A cgroup of the test's own with little memory, removed at the end.
struct SmallCgroup(PathBuf);

impl SmallCgroup {
    /// As version 1 or 2 has it.
    fn make(bytes: u64) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mut known = mounts.lines().filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let has_memory = words.get(3)?.split(',').any(|it| it == "memory");
            match words[2] {
                "cgroup" if has_memory => Some((words[1], "memory.limit_in_bytes")),
                "cgroup2" => Some((words[1], "memory.max")),
                _ => None,
            }
        });
        let (mount, limit) = known.next().ok_or("needs cgroups with a limit of memory")?;
        let path = Path::new(mount).join(format!("pebs-trace-test-{}-reclaim", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("needs a cgroup of its own: {error}"))?;
        let cgroup = Self(path);
        fs::write(cgroup.0.join(limit), bytes.to_string())
            .map_err(|error| format!("needs a cgroup with a limit of memory: {error}"))?;
        Ok(cgroup)
    }
}

impl Drop for SmallCgroup {
    fn drop(&mut self) {
        // Left behind if a process of it does not end.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Items that read more than their cgroup may hold reclaim memory, and no others do.
#[test]
fn reclaim() {
    need!(machine::root());
    let cgroup = need!(SmallCgroup::make(24 << 20));
    let workload = Workload::build("reclaim");
    let mut target = workload.start(&["200"]);
    fs::write(
        cgroup.0.join("cgroup.procs"),
        target.process.pid().to_string(),
    )
    .expect("it enters");
    let live = Recorder::new(&workload.spec(super::ID))
        .args(&["--with", "faults", "--reset", "1000000"])
        .attach(target.process.pid());
    target.go();
    let (_, truth) = target.finish();
    let recording = live.stop();
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let table = trace.table("visits");
    let (items, durations) = (table.u64("item_id"), table.i64("duration_ns"));
    let mut reclaimed = 0;
    for ((item, duration), reclaim) in items.iter().zip(durations).zip(table.i64("reclaim_ns")) {
        let (item, reclaim) = (item.expect("an id"), reclaim.expect("recorded"));
        assert!(
            reclaim < duration.expect("an end"),
            "item {item}: {reclaim}"
        );
        assert!(item % 2 == 1 || reclaim == 0, "item {item}: {reclaim}");
        reclaimed += usize::from(reclaim > 0);
    }
    // The first ones fit.
    assert!(reclaimed >= 60, "{reclaimed} of 100");
    let report = pebs_trace(["report".as_ref(), recording.dir().as_os_str()]);
    assert!(report.stdout.contains("memory reclaim"), "{report}");
}

/// Interrupts and page faults are recorded without switches, too.
#[test]
fn without_switches() {
    need!(machine::root());
    let args = ["--with", "irq,faults", "--no-switches"];
    let (recording, _) = record("faults", &args, &["60"]);
    let visits = recording.trace().visits();
    for visit in &visits {
        let known = [visit.irq_ns, visit.softirq_ns, visit.fault_ns];
        assert!(known.iter().all(Option::is_some), "{visit:?}");
        assert_eq!(
            visit.page_faults > Some(0),
            visit.fault_ns > Some(0),
            "{visit:?}"
        );
        assert_eq!(visit.oncpu_ns, None, "{visit:?}");
    }
    assert!(visits.iter().any(|visit| visit.fault_ns > Some(0)));
}

/// Without `--with` the columns are null; with all kinds all are known.
#[test]
fn others_are_null() {
    need!(machine::root());
    let of = |visit: &Visit| {
        let ns = [visit.irq_ns, visit.softirq_ns, visit.fault_ns];
        ns.map(|ns| ns.is_some())
    };
    let (recording, _) = record("calls", &[], &["4"]);
    let visits = recording.trace().visits();
    assert!(
        visits
            .iter()
            .all(|visit| of(visit) == [false; 3] && visit.major_faults.is_none())
    );
    let (recording, _) = record("calls", &["--with", "waits,irq,faults"], &["4"]);
    let visits = recording.trace().visits();
    assert!(
        visits.iter().all(|visit| of(visit) == [true; 3]),
        "{visits:?}"
    );
}

/// A copy of sysfs's data on CPUs, with a frequency for each; programs started with it see it in place of sysfs.
struct Cpus(tempfile::TempDir);

impl Cpus {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("temporary directory is writable");
        for name in ["online", "possible", "present"] {
            let text = fs::read(format!("{CPUS}/{name}")).expect("sysfs says it");
            fs::write(place.path().join(name), text).expect("writable");
        }
        let it = Self(place);
        it.run_at(4_000_000);
        it
    }

    fn run_at(&self, khz: u32) {
        for file in self.files() {
            fs::create_dir_all(file.parent().expect("a folder")).expect("writable");
            fs::write(file, format!("{khz}\n")).expect("writable");
        }
    }

    fn files(&self) -> [PathBuf; 2] {
        ["cpu0", "cpu1"].map(|cpu| self.0.path().join(cpu).join("cpufreq/scaling_cur_freq"))
    }

    /// Returns once the frequencies have been read twice: the first time may have been while they were written.
    fn until_read(&self) {
        for _ in 0..2 {
            // Looked at, a file was read later than written.
            for file in self.files() {
                let written = fs::metadata(&file)
                    .and_then(|it| it.modified())
                    .expect("there");
                let read = FileTimes::new().set_accessed(written);
                let opened = File::options().write(true).open(&file);
                opened.and_then(|it| it.set_times(read)).expect("writable");
                process::wait_until("nobody reads frequencies", || {
                    let read = fs::metadata(&file).and_then(|it| it.accessed());
                    read.expect("there") > written
                });
            }
        }
    }
}

const CPUS: &str = "/sys/devices/system/cpu";

/// Frequencies are recorded with their times; without cpufreq there are none.
#[test]
fn frequencies() {
    need!(machine::root());
    need!(machine::cpus(2));
    need!(machine::program("unshare"));
    let workload = Workload::build("plain");
    let cpus = Cpus::new();
    let mut target = workload.start(&["100"]);
    let script = format!("mount --bind \"$0\" {CPUS} && exec \"$@\"");
    let place = cpus.0.path().display().to_string();
    let live = Recorder::new(&workload.spec(super::ID))
        .started_by(&["unshare", "--mount", "--", "sh", "-c", &script, &place])
        .args(&["--with", "freq"])
        .attach(target.process.pid());
    cpus.until_read();
    cpus.run_at(1_000_000);
    cpus.until_read();
    target.go();
    let (_, truth) = target.finish();
    let recording = live.stop();
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let rows = trace.frequencies();
    for cpu in [0, 1] {
        let of_cpu = rows.iter().filter(|row| row.cpu == cpu);
        let mut seen: Vec<u64> = of_cpu.map(|row| row.khz).collect();
        assert!(seen.is_sorted_by(|a, b| a >= b), "{seen:?}");
        seen.dedup();
        assert_eq!(seen, [4_000_000, 1_000_000], "cpu {cpu}");
    }
    assert!(rows.is_sorted_by_key(|row| row.time_ns), "{rows:?}");
    assert!(
        !recording
            .tool
            .stderr
            .contains("frequencies of CPUs are unknown"),
        "{}",
        recording.tool
    );
    let explained = pebs_trace([
        "explain",
        &recording.dir().display().to_string(),
        "--slow",
        "p90",
        "--format",
        "json",
    ]);
    let explained: serde_json::Value = serde_json::from_str(&explained.stdout).expect("JSON");
    let rows = explained["probes"][0]["whole"]["interference"].as_array();
    let slower = rows.and_then(|rows| rows.iter().find(|row| row["what"] == "slower clock"));
    let slower = slower.unwrap_or_else(|| panic!("{explained:#}"));
    // All of them ran at a quarter of the highest speed seen.
    assert!(slower["typical_ns"].as_f64() > Some(0.0), "{slower}");
}

/// If the kernel knows no frequency, one note says so.
#[test]
fn no_frequencies() {
    need!(machine::root());
    if Path::new(CPUS)
        .join("cpu0/cpufreq/scaling_cur_freq")
        .exists()
    {
        pebs_tests::skip!("frequencies are known here");
    }
    let workload = Workload::build("plain");
    let (recording, _) = Recorder::new(&workload.spec(super::ID))
        .args(&["--with", "freq"])
        .workload(&workload, &["10"]);
    let notes = recording
        .tool
        .stderr
        .matches("frequencies of CPUs are unknown")
        .count();
    assert_eq!(notes, 1, "{}", recording.tool);
    assert!(recording.trace().frequencies().is_empty());
}
