//! `explain` and `diff` as their user sees them: options, and messages on bad input.

use std::fs;
use std::path::Path;

use pebs_tests::process::Finished;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, table};
use serde_json::Value;

use super::{hints, refused};

fn recorded(args: &[&str]) -> Recording {
    let workload = Workload::build("plain");
    let spec = workload.spec("handle(id=*(arg1):u64, kind=*(arg1+8):u32, name=str(*(arg1+16)))");
    let (recording, _) = Recorder::new(&spec)
        .beside()
        .args(args)
        .workload(&workload, &["2000"]);
    recording
}

fn explain(trace: &Path, args: &[&str]) -> Finished {
    let dir = trace.display().to_string();
    pebs_trace(["explain", &dir].iter().chain(args))
}

/// Every option on a good trace; the first lines of the text name the slow items.
#[test]
fn good_trace() {
    need!(machine::root());
    let recording = recorded(&[]);
    let text = explain(&recording.dir(), &[]);
    assert_eq!(text.code(), Some(0), "{text}");
    let lines: Vec<&str> = text.stdout.lines().collect();
    assert!(
        lines[0].contains("2,000 items")
            && ["slow because: ", "no cause "]
                .iter()
                .any(|it| lines[1].starts_with(it)),
        "{text}"
    );
    for args in [
        &["--group-by", "kind,name", "--slow", "p90", "--top", "3"][..],
        &[
            "--group-by",
            "tid",
            "--per",
            "item",
            "--all",
            "--probe",
            "0",
        ],
        &["--item", "1000007"],
        &["--visit", "7", "--format", "json"],
        &["--slow", "3x", "--format", "json"],
        &["--slow", "10s"],
    ] {
        let done = explain(&recording.dir(), args);
        assert_eq!(done.code(), Some(0), "{done}");
        assert!(
            !done.stdout.contains("NaN") && !done.stdout.contains("inf "),
            "{done}"
        );
        if args.contains(&"json") {
            let json: Value = serde_json::from_str(&done.stdout).unwrap();
            assert_eq!(json["explain_version"], 2, "{done}");
        }
    }
    let dir = recording.dir().display().to_string();
    let same = pebs_trace(["diff", &dir, &dir, "--fail-above", "0", "--format", "json"]);
    assert_eq!(same.code(), Some(0), "{same}");
    let json: Value = serde_json::from_str(&same.stdout).unwrap();
    assert_eq!(json["failed"], Value::Array(Vec::new()), "{same}");
}

/// An unknown name gives one error line, with the existing names.
#[test]
fn bad_requests() {
    need!(machine::root());
    let recording = recorded(&[]);
    let done = explain(&recording.dir(), &["--group-by", "kindd"]);
    refused(&done, &["cannot group by 'kindd'"]);
    hints(&done, &["there are kind, "]);
    let done = explain(&recording.dir(), &["--item", "4711"]);
    refused(&done, &["no item 4711"]);
    hints(&done, &["from 1000001 to 1002000", "closest is 1000001"]);
    let done = explain(&recording.dir(), &["--visit", "99999"]);
    refused(&done, &["no visit 99999"]);
    let done = explain(&recording.dir(), &["--probe", "3"]);
    refused(&done, &["no probe 3"]);
    hints(&done, &["there are 0 ("]);
    let done = explain(&recording.dir(), &["--slow", "fast"]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("500us"), "{done}");
    let dir = recording.dir().display().to_string();
    let done = pebs_trace(["diff", &dir, "/nowhere/trace"]);
    refused(&done, &["/nowhere/trace"]);
}

/// Traces without visits, damaged ones, and such as have no details to group.
#[test]
fn bad_traces() {
    need!(machine::root());
    refused(
        &explain(Path::new("/nowhere/trace"), &[]),
        &["/nowhere/trace"],
    );
    let kept = recorded(&["--keep", "slow"]);
    let done = explain(&kept.dir(), &[]);
    assert_eq!(done.code(), Some(0), "{done}");
    let done = explain(&kept.dir(), &["--group-by", "kind"]);
    refused(&done, &["kept the details of slow items only"]);
    let dir = kept.dir().display().to_string();
    let done = pebs_trace(["diff", &dir, &dir]);
    refused(&done, &["--keep slow"]);
    let none = recorded(&["--keep", "none"]);
    let done = explain(&none.dir(), &[]);
    assert!(
        done.code() == Some(0) && done.stdout.contains("record with --keep slow"),
        "{done}"
    );

    let recording = recorded(&[]);
    let segment = table::segments(&recording.dir().join("visit_functions"))[0].clone();
    let whole = fs::read(&segment).unwrap();
    fs::write(&segment, &whole[..whole.len() / 2]).unwrap();
    refused(
        &explain(&recording.dir(), &[]),
        &["visit_functions", "damaged"],
    );
    fs::remove_file(&segment).unwrap();
    for segment in table::segments(&recording.dir().join("visits")) {
        fs::remove_file(segment).unwrap();
    }
    let done = explain(&recording.dir(), &[]);
    refused(&done, &["it has no visits"]);
    hints(&done, &["pebs-trace report"]);
}

/// Items by what a user knows of them: the time of the day, and a text in an argument; what is not there is reported with where
/// to look.
#[test]
fn found_items() {
    need!(machine::root());
    let recording = recorded(&[]);
    let dir = recording.dir();
    let begun = explain(&dir, &["--item-like", "1000007"]);
    refused(&begun, &["no item with '1000007' in an argument"]);
    let named = explain(&dir, &["--item-like", "set"]);
    assert_eq!(named.code(), Some(0), "{named}");
    assert!(
        named
            .stderr
            .contains(" items with 'set' in an argument; the longest is visit "),
        "{named}"
    );
    assert!(named.stdout.contains("name=set"), "{named}");
    let at = named.stderr.split_once("begun at ").map(|it| it.1);
    let at = at.and_then(|it| it.lines().next()).expect("a local time");
    let then = explain(&dir, &["--at", at]);
    assert_eq!(then.code(), Some(0), "{then}");
    assert!(then.stderr.contains(at.get(..16).unwrap_or(at)), "{then}");
    let since = explain(
        &dir,
        &["--at", "+0", "--item-like", "get", "--format", "json"],
    );
    assert_eq!(since.code(), Some(0), "{since}");
    refused(
        &explain(&dir, &["--at", "noon"]),
        &["cannot read the time 'noon'"],
    );
    let early = explain(&dir, &["--at", "2020-01-01 12:00"]);
    refused(&early, &["is not in the recording"]);
    hints(&early, &["it is from 20"]);
}
