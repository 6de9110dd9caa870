//! `view` on a terminal of its own, and without one.

use std::path::Path;
use std::process::Command;

use pebs_tests::process::{Finished, Running};
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need};

use super::{good_spec, hints, refused};

/// What a terminal is sent when the screen of a program is left.
const LEAVE_SCREEN: &str = "\x1b[?1049l";

/// The key that opens an item, as a terminal sends it.
const RIGHT: &str = "\x1b[C";

fn recorded() -> Recording {
    let (recording, _) = Recorder::new(&good_spec()).workload(&Workload::build("plain"), &["2000"]);
    recording
}

/// Views a trace on a terminal of 110 columns with these keys typed. `settings:` lines say how the terminal is
/// set before and after, `ended:` the exit code.
fn on_terminal(trace: &Path, keys: &str) -> Finished {
    let shell = format!(
        "stty cols 110 rows 30; echo settings: $(stty -g); '{}' view '{}'; echo ended: $?; \
         echo settings: $(stty -g)",
        machine::pebs_trace().display(),
        trace.display()
    );
    let mut terminal = Command::new("script");
    terminal.args(["-qfec", &shell, "/dev/null"]);
    let mut running = Running::start(&mut terminal);
    running.send(keys);
    running.finish()
}

fn lines<'a>(done: &'a Finished, start: &str) -> Vec<&'a str> {
    let lines = done.stdout.lines().map(str::trim);
    // The shell's first line after the screen comes behind what leaves the screen.
    let lines = lines.filter_map(|line| line.find(start).map(|at| &line[at..]));
    lines.collect()
}

/// The trace is shown, an item is opened, q ends it with 0, and the terminal is as it was.
#[test]
fn on_a_terminal() {
    need!(machine::root());
    let recording = recorded();
    let done = on_terminal(&recording.dir(), &format!("{RIGHT}q"));
    assert_eq!(lines(&done, "ended: "), ["ended: 0"], "{done}");
    let settings = lines(&done, "settings: ");
    assert_eq!(settings.len(), 2, "{done}");
    assert_eq!(settings[0], settings[1], "{done}");
    for shown in ["pebs-trace view", "(typical", LEAVE_SCREEN] {
        assert!(done.stdout.contains(shown), "'{shown}' in {done}");
    }
}

/// What is no trace is told before the screen is taken.
#[test]
fn foreign_on_a_terminal() {
    let done = on_terminal(Path::new("/nowhere/trace"), "q");
    assert_eq!(lines(&done, "ended: "), ["ended: 2"], "{done}");
    assert!(done.stdout.contains("error: cannot read trace"), "{done}");
    assert!(!done.stdout.contains(LEAVE_SCREEN), "{done}");
}

/// Without a terminal there is nothing to look at.
#[test]
fn without_a_terminal() {
    need!(machine::root());
    let recording = recorded();
    let dir = recording.dir();
    let done = pebs_trace(["view".as_ref(), dir.as_os_str()]);
    refused(&done, &["not a terminal"]);
    hints(&done, &["pebs-trace report"]);
    assert_eq!(done.stdout, "", "{done}");
}
