//! Bad traces given to `report` and `recover`.

use std::fs;
use std::path::{Path, PathBuf};

use pebs_tests::process::Finished;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, table};
use serde_json::Value;

use super::{good_spec, refused};

fn report(trace: &Path) -> Finished {
    pebs_trace(["report".as_ref(), trace.as_os_str()])
}

fn recorded() -> Recording {
    let (recording, _) = Recorder::new(&good_spec())
        .beside()
        .workload(&Workload::build("plain"), &["2000"]);
    recording
}

fn edit_json(trace: &Path, edit: impl FnOnce(&mut Value)) {
    let path = trace.join("trace.json");
    let mut json: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    edit(&mut json);
    fs::write(&path, json.to_string()).unwrap();
}

/// The report can be printed again, as text for people and as data for programs.
#[test]
fn report_of_a_good_trace() {
    need!(machine::root());
    let recording = recorded();
    let text = report(&recording.dir());
    assert_eq!(text.code(), Some(0), "{text}");
    assert!(text.stdout.contains("handle"), "{text}");
    let dir = recording.dir().display().to_string();
    let json = pebs_trace(["report", "--format", "json", &dir]);
    assert_eq!(json.code(), Some(0), "{json}");
    let parsed: Value =
        serde_json::from_str(&json.stdout).unwrap_or_else(|e| panic!("{e}\n{json}"));
    assert!(parsed.is_object(), "{json}");
    let csv = pebs_trace(["report", "--format", "csv", &dir]);
    assert_eq!(csv.code(), Some(0), "{csv}");
    let widths: Vec<usize> = csv
        .stdout
        .lines()
        .map(|line| line.split(',').count())
        .collect();
    assert!(widths.len() > 1 && widths[0] > 1, "{csv}");
}

/// The directory does not exist.
#[test]
fn missing() {
    refused(&report(Path::new("/nowhere/trace")), &["/nowhere/trace"]);
    let recovered = pebs_trace(["recover", "/nowhere/trace"]);
    refused(&recovered, &["/nowhere/trace", "hint:"]);
}

/// A directory of something else, and a file.
#[test]
fn foreign() {
    let dir = tempfile::tempdir().unwrap();
    refused(&report(dir.path()), &["trace.json"]);
    fs::write(dir.path().join("trace.json"), "{\"traceEvents\": []}").unwrap();
    refused(&report(dir.path()), &[&dir.path().display().to_string()]);
    fs::write(dir.path().join("trace.json"), "not JSON").unwrap();
    refused(&report(dir.path()), &["trace.json"]);
    refused(&report(&dir.path().join("trace.json")), &["trace.json"]);
}

/// A newer version wrote it.
#[test]
fn schema_from_the_future() {
    need!(machine::root());
    let recording = recorded();
    edit_json(&recording.dir(), |json| json["schema_version"] = 99.into());
    let done = report(&recording.dir());
    refused(&done, &["99", "1"]);
    assert!(done.stderr.contains("hint: "), "{done}");
}

fn a_segment(trace: &Path) -> PathBuf {
    table::segments(&trace.join("visits"))[0].clone()
}

/// A segment that was cut, emptied or overwritten is named.
#[test]
fn damaged_segment() {
    need!(machine::root());
    let recording = recorded();
    let segment = a_segment(&recording.dir());
    let whole = fs::read(&segment).unwrap();
    let name = segment.file_name().unwrap().to_string_lossy().into_owned();
    for damage in [
        whole[..whole.len() / 2].to_vec(),
        Vec::new(),
        vec![0x55; 4096],
    ] {
        fs::write(&segment, damage).unwrap();
        refused(&report(&recording.dir()), &[&name]);
    }
}

/// A table is missing.
#[test]
fn missing_table() {
    need!(machine::root());
    let recording = recorded();
    fs::remove_dir_all(recording.dir().join("functions")).unwrap();
    refused(&report(&recording.dir()), &["functions"]);
}

/// A trace that was closed properly needs no recovery, and is not changed.
#[test]
fn recover_of_a_good_trace() {
    need!(machine::root());
    let recording = recorded();
    let before = recording.trace().visits().len();
    let done = pebs_trace(["recover".as_ref(), recording.dir().as_os_str()]);
    assert_eq!(done.code(), Some(0), "{done}");
    assert_eq!(recording.trace().visits().len(), before);
}
