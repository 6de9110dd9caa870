//! Presets, and patterns for functions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pebs_tests::recording::{Recorder, Recording};
use pebs_tests::{check, machine, need};

const TASKS: u64 = 40;

/// Polls of each task: of task k there are k + 1.
fn polls(recording: &Recording) -> Vec<u64> {
    let trace = recording.trace();
    check::no_mark_lost(&trace);
    let mut polls: BTreeMap<u64, u64> = BTreeMap::new();
    for visit in trace.visits() {
        *polls.entry(visit.item_id).or_default() += 1;
    }
    let mut polls: Vec<u64> = polls.into_values().collect();
    polls.sort_unstable();
    polls
}

/// Every poll of every task is a visit, whichever function polls it.
#[test]
fn tokio_tasks() {
    need!(machine::root());
    let tasks = Path::new(env!("CARGO_BIN_EXE_tasks"));
    let recording = Recorder::plain()
        .args(&["--preset", "tokio", "--reset", "100000"])
        .command(tasks, &[&TASKS.to_string()]);
    assert_eq!(recording.tool.code(), Some(0), "{}", recording.tool);
    let expected: Vec<u64> = (1..=TASKS).collect();
    assert_eq!(polls(&recording), expected, "{}", recording.tool);
    let several = recording.tool.stderr.contains("2 functions, one probe");
    assert!(several, "{}", recording.tool);
}

/// A preset of one's own, for a program that is named.
#[test]
fn own_preset() {
    need!(machine::root());
    let tasks = Path::new(env!("CARGO_BIN_EXE_tasks"));
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own.preset");
    fs::write(&own, "# polls\n{bin}:*::raw::poll*(task=arg1)\n").expect("room");
    let named = format!("{}={}", own.display(), tasks.display());
    let recording = Recorder::plain()
        .args(&["--preset", &named, "--reset", "100000"])
        .command(tasks, &["3"]);
    assert_eq!(polls(&recording).len(), 1 + 2 + 3, "{}", recording.tool);
}
