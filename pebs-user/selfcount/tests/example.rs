//! The example runs and prints its counts.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use std::process::{Command, Output};

/// Runs it as cargo built it, in the folder beside the tests'.
fn example(args: &[&str]) -> Output {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap();
    let mut command = Command::new(folder.join("examples/selfcount"));
    command.args(args).output().unwrap()
}

/// A line for each event, with at least the faults of 1 MiB, and how they were read.
#[test]
fn counts_itself() {
    let done = example(&[]);
    let (out, err) = (
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8(done.stderr).unwrap(),
    );
    if err.contains("permission denied") {
        return eprintln!("SKIP {err}");
    }
    let lines: Vec<&str> = out.lines().map(str::trim_start).collect();
    let faults: u64 = lines[0]
        .strip_suffix("  page-faults:u")
        .unwrap()
        .parse()
        .unwrap();
    // Huge pages may make it one.
    assert!((1..=300).contains(&faults), "{out}");
    assert!(lines[1].ends_with("  task-clock:u"), "{out}");
    assert_eq!(lines[2], "read by read(): it is not on a hardware counter");
    assert!(done.status.success());
}

/// An unknown event is an error with a hint.
#[test]
fn says_what_is_wrong() {
    let done = example(&["page-fault"]);
    let err = String::from_utf8(done.stderr).unwrap();
    assert!(
        err.starts_with("unknown event 'page-fault'\nhint: names are perf's"),
        "{err}"
    );
    assert_eq!(done.status.code(), Some(2));
}
