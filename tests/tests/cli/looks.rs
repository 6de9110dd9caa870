//! `export` and `html` from the user's side.

use std::fs;
use std::path::Path;

use pebs_tests::process::Finished;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need};

use super::{good_spec, hints, refused};

fn recorded() -> Recording {
    let (recording, _) = Recorder::new(&good_spec())
        .beside()
        .workload(&Workload::build("plain"), &["2000"]);
    recording
}

fn run(command: &str, trace: &Path, args: &[&str]) -> Finished {
    let trace = trace.display().to_string();
    pebs_trace([command, &trace].iter().chain(args))
}

/// The formats of `export`, as its help lists them.
fn formats() -> Vec<String> {
    let help = pebs_trace(["export", "-h"]).stdout;
    let listed = help.split("[possible values: ").nth(1).unwrap();
    let listed = listed.split(']').next().unwrap();
    listed.split(',').map(|it| it.trim().to_owned()).collect()
}

/// Every format is written completely, with a note on its contents.
#[test]
fn every_format() {
    need!(machine::root());
    let recording = recorded();
    let dir = tempfile::tempdir().unwrap();
    let formats = formats();
    assert!(formats.len() > 5, "{formats:?}");
    for format in formats.iter().map(String::as_str) {
        let file = dir.path().join(format);
        let path = file.display().to_string();
        let done = run("export", &recording.dir(), &["--to", format, "-o", &path]);
        assert_eq!(done.code(), Some(0), "{done}");
        assert!(
            done.stderr.contains("2000 of 2000 visits; weight: "),
            "{done}"
        );
        assert!(!fs::read(&file).unwrap().is_empty(), "{format}");
        let slow = ["--to", format, "--slow", "p99", "-o", &path];
        hints(&run("export", &recording.dir(), &slow), &["--force"]);
        let done = run(
            "export",
            &recording.dir(),
            &[&slow[..], &["--force"]].concat(),
        );
        assert_eq!(done.code(), Some(0), "{done}");
        assert!(done.stderr.contains("(slow: p99)"), "{done}");
    }
    let page = run("html", &recording.dir(), &[]);
    assert_eq!(page.code(), Some(0), "{page}");
    assert!(page.stdout.starts_with("<!DOCTYPE html>") && page.stdout.ends_with("</html>"));
    assert!(page.stderr.contains("2,000 visits"), "{page}");
}

/// Bad input is refused in one line, and leaves no file.
#[test]
fn refusals() {
    need!(machine::root());
    let recording = recorded();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    let path = file.display().to_string();
    let export = |args: &[&str]| {
        let done = run("export", &recording.dir(), &[args, &["-o", &path]].concat());
        assert!(!file.exists(), "{done}");
        done
    };
    let unknown = export(&["--to", "xml"]);
    assert_eq!(unknown.code(), Some(2), "{unknown}");
    assert!(unknown.stderr.contains("speedscope"), "{unknown}");
    let absent = export(&["--to", "csv", "--item", "999999999"]);
    refused(&absent, &["no item 999999999"]);
    hints(&absent, &["the slowest items are "]);
    refused(
        &export(&["--to", "csv", "--slow", "100s"]),
        &["no slow visits"],
    );
    let nowhere = "/nowhere/at/all";
    for command in [&["export", "--to", "csv"][..], &["html"]] {
        let trace = recording.dir().display().to_string();
        let done = pebs_trace([command, &[&trace, "-o", nowhere]].concat());
        refused(&done, &["cannot write /nowhere/at/all"]);
        hints(&done, &["directory"]);
        let done = pebs_trace([command, &["/nowhere/trace", "-o", &path]].concat());
        refused(&done, &["/nowhere/trace"]);
    }
}
