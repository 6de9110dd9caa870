//! `validate`: sampling against known truth on this machine, and uses of its results.

use std::fs;
use std::path::Path;
use std::process::Command;

use pebs_tests::locks::Lock;
use pebs_tests::process::{self, Finished};
use pebs_tests::{machine, need};
use serde_json::Value;

use super::{hints, refused};

/// Runs the tool in a folder, which is its cache directory too.
fn tool(place: &Path, args: &[&str]) -> Finished {
    let mut command = Command::new(machine::pebs_trace());
    process::run(
        command
            .env("XDG_CACHE_HOME", place)
            .env("COLUMNS", "100")
            .current_dir(place)
            .args(args),
    )
}

fn rows<'a>(report: &'a Value, experiment: &str) -> &'a [Value] {
    let all = report["experiments"].as_array().unwrap();
    let found = all.iter().find(|it| it["name"] == experiment);
    let rows = found.unwrap_or_else(|| panic!("no {experiment}: {report}"));
    rows["rows"].as_array().unwrap()
}

fn figure(row: &Value, name: &str) -> f64 {
    let figures = row["figures"].as_array().unwrap();
    let found = figures.iter().find(|it| it["name"] == name);
    let figure = found.unwrap_or_else(|| panic!("no {name}: {row}"));
    figure["value"].as_f64().unwrap()
}

/// The quick suite on this machine: exact rows are within bounds, missing features are reported as such, and the result
/// is shown, stored, compared and rendered as a page.
#[test]
fn quick_suite() {
    need!(machine::root());
    let _lock = Lock::recording();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let before = tool(place, &["doctor"]);
    assert!(
        before.stdout.contains("never run: 'pebs-trace validate'"),
        "{before}"
    );

    let done = tool(
        place,
        &["validate", "--quick", "--format", "json", "-o", "a.json"],
    );
    // Clocks of a busy machine may deviate.
    assert!(matches!(done.code(), Some(0 | 1)), "{done}");
    let text = fs::read_to_string(place.join("a.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["experiments"].as_array().unwrap().len(), 8, "{text}");

    let is_exact_here = |row: &&Value| {
        let event = row["event"].as_str().unwrap();
        event.starts_with("breakpoint on") || event.starts_with("page-faults")
    };
    // On a machine that is very busy the time may be over before the last ones.
    let is_tried = |rows: &[Value]| rows[0]["note"] != "not tried: out of time";
    for name in ["accuracy", "sensitivity", "bias", "memory", "modes"] {
        let all = rows(&report, name);
        let exact: Vec<&Value> = all.iter().filter(is_exact_here).collect();
        assert!(!exact.is_empty() || !is_tried(all), "{name}: {text}");
        for row in exact {
            assert_eq!(row["holds"], true, "{name}: {row}");
            assert_eq!(row["basis"], "exact", "{name}: {row}");
        }
    }
    for row in rows(&report, "accuracy").iter().filter(is_exact_here) {
        assert_eq!(figure(row, "samples"), figure(row, "expected"), "{row}");
        assert_eq!(figure(row, "lost"), 0.0, "{row}");
    }
    let stamps = rows(&report, "time_stamps");
    for row in stamps.iter().filter(|_| is_tried(stamps)) {
        let case = row["case"].as_str().unwrap();
        if ["equal items", "three lengths", "in step with"]
            .iter()
            .any(|it| case.contains(it))
        {
            assert!(figure(row, "samples in items") > 0.0, "{row}");
            continue;
        }
        assert_eq!(figure(row, "samples in a wrong item"), 0.0, "{row}");
        assert_eq!(figure(row, "marks out of place"), 0.0, "{row}");
    }
    for row in rows(&report, "memory") {
        let is_absent = row["basis"] == "not on this machine";
        assert_eq!(
            is_absent,
            row["figures"].as_array().unwrap().is_empty(),
            "{row}"
        );
        assert!(row["note"].is_string(), "why, or its bound: {row}");
    }

    let after = tool(place, &["doctor"]);
    let line = after.stdout.lines().find(|it| it.contains("validated"));
    assert!(
        line.is_some_and(|it| it.contains("of 8 experiments")),
        "{after}"
    );

    let same = tool(place, &["validate", "--compare", "a.json", "a.json"]);
    assert_eq!(same.code(), Some(0), "{same}");
    for part in ["A: ", "B: ", "Cascade Lake", "Zen 3", "page-faults 100 %"] {
        assert!(same.stdout.contains(part), "{part}\n{same}");
    }
    assert!(!same.stdout.contains("do not overlap"), "{same}");
    let args = [
        "validate",
        "--compare",
        "a.json",
        "a.json",
        "--format",
        "html",
        "-o",
        "c.html",
    ];
    let page = tool(place, &args);
    assert_eq!(page.code(), Some(0), "{page}");
    let page = fs::read_to_string(place.join("c.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("section IV.G.3"));

    let newer = text.replace("\"version\": 1,", "\"version\": 7,");
    fs::write(place.join("newer.json"), newer).unwrap();
    let done = tool(place, &["validate", "--compare", "a.json", "newer.json"]);
    refused(&done, &["newer.json has version 7"]);
    hints(&done, &["it was written by pebs-trace"]);
}

/// Chosen experiments only: as text and as a page; they do not replace the last whole result.
#[test]
fn chosen_experiments() {
    need!(machine::root());
    let _lock = Lock::recording_beside();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let only = ["validate", "--quick", "--only", "bias,memory"];
    let done = tool(place, &only);
    assert!(matches!(done.code(), Some(0 | 1)), "{done}");
    for part in [
        "bias and attribution: ",
        "memory accesses: ",
        "breakpoint on load 4",
        "exact",
    ] {
        assert!(done.stdout.contains(part), "{part}\n{done}");
    }
    assert!(!done.stdout.contains("time stamps"), "{done}");
    let done = tool(
        place,
        &[&only[..], &["--format", "html", "-o", "r.html"]].concat(),
    );
    assert!(matches!(done.code(), Some(0 | 1)), "{done}");
    let page = fs::read_to_string(place.join("r.html")).unwrap();
    assert!(
        page.contains("at instruction 4") && !page.contains("https:"),
        "{page}"
    );
    let doctor = tool(place, &["doctor"]);
    assert!(
        doctor.stdout.contains("never run: 'pebs-trace validate'"),
        "{doctor}"
    );
}

/// Files that are no results, and options that do not go together.
#[test]
fn bad_input() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    fs::write(place.join("other.json"), "{\"a\": 1}").unwrap();
    let compare = |b: &str, more: &[&str]| {
        let args = ["validate", "--compare", "other.json", b];
        tool(place, &[&args[..], more].concat())
    };
    let done = compare("other.json", &[]);
    refused(&done, &["other.json is no result of 'pebs-trace validate'"]);
    hints(&done, &["--format json -o FILE"]);
    let done = tool(place, &["validate", "--compare", "none.json", "other.json"]);
    refused(&done, &["cannot read none.json", "no such file"]);
    hints(&done, &["--format json -o FILE"]);
    let done = compare("other.json", &["--quick"]);
    assert_eq!(done.code(), Some(2), "{done}");
    let done = tool(place, &["validate", "--only", "luck"]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("time_stamps"), "{done}");
}
