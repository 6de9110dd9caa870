//! The trace's destination, and the distribution of messages on stdout and stderr.

use std::fs;
use std::path::Path;
use std::process::Command;

use pebs_tests::locks::Lock;
use pebs_tests::process::{self, Running};
use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::tmpfs::Tmpfs;
use pebs_tests::trace::Trace;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need, table};

use super::{good_spec, hints, refused};

fn record_to(dir: &Path) -> process::Finished {
    let _lock = Lock::recording_beside();
    let (spec, dir) = (good_spec(), dir.display().to_string());
    let target = Workload::build("plain").path.display().to_string();
    let truth = pebs_tests::workload::TruthFile::new();
    process::run(truth.on(
        Command::new(machine::pebs_trace()).args(["--uprobe", &spec, "-o", &dir, "--", &target]),
    ))
}

/// A directory that exists is never written to, not even an empty one.
#[test]
fn exists() {
    need!(machine::root());
    let dir = tempfile::tempdir().unwrap();
    let done = record_to(dir.path());
    refused(&done, &[&dir.path().display().to_string(), "exists"]);
    hints(&done, &["-o"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let file = dir.path().join("file");
    fs::write(&file, "kept").unwrap();
    refused(&record_to(&file), &["exists"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

/// A parent that is not there, and one that cannot be written to.
#[test]
fn unwritable() {
    need!(machine::root());
    refused(&record_to(Path::new("/nowhere/trace")), &["/nowhere"]);
    refused(&record_to(Path::new("/proc/trace")), &["/proc/trace"]);
}

/// The disk becomes full: the recording stops cleanly, keeps the data written, reports it, exits 1; the target
/// runs on.
#[test]
fn full() {
    need!(machine::root());
    let disk = need!(Tmpfs::mount("4m"));
    let workload = Workload::build("short_visits");
    // Marks take half of its time: recorded all the same. More than fits however small closed segments become.
    let alone = workload.run(&["800000", "0"]);
    let mut target = workload.start(&["800000", "80000"]);
    let _lock = Lock::recording_beside();
    let trace = disk.path().join("trace");
    let (spec, pid) = (
        workload.spec("handle(id=arg1)"),
        target.process.pid().to_string(),
    );
    let mut tool = Running::start(
        Command::new(machine::pebs_trace())
            .args(["--force", "--uprobe", &spec, "--segment", "0.5"])
            .args(["-p", &pid, "-o"])
            .arg(&trace),
    );
    tool.wait_for_line("recording");
    target.go();
    let done = tool.finish();
    assert_eq!(done.code(), Some(1), "{done}");
    assert!(done.stderr.contains("disk full"), "{done}");
    let (finished, _) = target.finish();
    check::same_end(&finished, &alone);
    let kept: usize = table::segments(&trace.join("visits")).len();
    assert!(kept > 0, "closed segments are kept\n{done}");
    let kept = Trace::open(&trace);
    assert!(!kept.visits().is_empty(), "and readable\n{done}");
    check::balances(&kept);
    let lost = kept.account("samples").reasons.get("dropped_disk").copied();
    assert!(lost > Some(0), "{:#}", kept.json["ledger"]);
    let report = pebs_trace(["report", &trace.display().to_string()]);
    assert!(matches!(report.code(), Some(0 | 1)), "{report}");
}

/// The first line names the transport, the report and the path go to stdout, and no status line goes to a
/// pipe.
#[test]
fn what_goes_where() {
    need!(machine::root());
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let done = record_to(&trace);
    assert_eq!(done.code(), Some(0), "{done}");
    let first = done.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("transport bpf: "), "{done}");
    assert!(done.stdout.contains(&trace.display().to_string()), "{done}");
    assert!(
        done.stdout.contains("handle"),
        "the report names functions\n{done}"
    );
    assert!(!done.stderr.contains('\r'), "no status line\n{done}");
    assert!(!done.stderr.contains('\u{1b}'), "no colours\n{done}");
    assert!(!done.stdout.contains('\u{1b}'), "no colours\n{done}");
}

/// Without `-o` the trace is `pebs-trace-YYYYmmdd-HHMMSS` in the current directory.
#[test]
fn default_directory() {
    need!(machine::root());
    let _lock = Lock::recording_beside();
    let dir = tempfile::tempdir().unwrap();
    let done = process::run(
        Command::new(machine::pebs_trace())
            .args(["--uprobe", &good_spec(), "--", "/bin/true"])
            .current_dir(dir.path()),
    );
    assert_eq!(done.code(), Some(0), "{done}");
    let names: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let stamp = names[0].strip_prefix("pebs-trace-").unwrap_or_default();
    let shape: String = stamp
        .chars()
        .map(|c| if c.is_ascii_digit() { '9' } else { c })
        .collect();
    assert_eq!(shape, "99999999-999999", "{names:?}");
}

/// Loss above `--max-loss` is exit 1, below it exit 0.
#[test]
fn max_loss() {
    need!(machine::root());
    let workload = Workload::build("short_visits");
    for (limit, code) in [("0.001", 1), ("100", 0)] {
        let recorder = Recorder::new(&workload.spec("handle(id=arg1)"))
            .beside()
            .args(&["--max-loss", limit]);
        let (recording, _) = recorder.with_loss(&workload, &["50000", "0"]);
        assert!(
            recording.trace_with_loss().account("marks").lost() > 0,
            "{}",
            recording.tool
        );
        assert_eq!(recording.tool.code(), Some(code), "{}", recording.tool);
        let is_reported = recording.tool.stderr.contains("lost");
        assert!(is_reported || code == 0, "{}", recording.tool);
    }
}
