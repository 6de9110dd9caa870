//! `view` on a pseudo-terminal, and without a terminal.

use std::path::Path;
use std::process::Command;

use pebs_tests::process::{self, Finished, Running, Signal};
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need};

use super::{good_spec, hints, refused};

/// Escape sequence by which a program leaves the alternate screen.
const LEAVE_SCREEN: &str = "\x1b[?1049l";

/// The key that opens an item, as a terminal sends it.
const RIGHT: &str = "\x1b[C";

fn recorded() -> Recording {
    let (recording, _) = Recorder::new(&good_spec())
        .beside()
        .workload(&Workload::build("plain"), &["2000"]);
    recording
}

/// Views a trace on a terminal of 110 columns. `settings:` lines have the terminal's settings before and
/// after, `ended:` the exit code.
fn view(trace: &Path, option: &str) -> Running {
    let shell = format!(
        "stty cols 110 rows 30; echo settings: $(stty -g); '{}' view '{}' {option}; echo ended: $?; \
         echo settings: $(stty -g)",
        machine::pebs_trace().display(),
        trace.display()
    );
    let mut terminal = Command::new("script");
    Running::start(terminal.args(["-qfec", &shell, "/dev/null"]))
}

/// Views a trace with these keys typed.
fn on_terminal(trace: &Path, keys: &str) -> Finished {
    let mut running = view(trace, "");
    running.send(keys);
    running.finish()
}

/// Contents of the screen after this output: text goes to the position of the cursor.
fn screen(written: &str) -> String {
    let mut lines = vec![vec![' '; 120]; 31];
    let (mut row, mut column) = (0, 0);
    let mut rest = written.chars();
    while let Some(c) = rest.next() {
        if c != '\x1b' {
            if !c.is_control() && row < lines.len() && column < 120 {
                lines[row][column] = c;
                column += 1;
            }
            continue;
        }
        if rest.next() != Some('[') {
            continue;
        }
        let mut numbers = String::new();
        let end = rest.by_ref().find(|c| {
            numbers.push(*c);
            c.is_ascii_alphabetic()
        });
        if end == Some('H') {
            let mut at = numbers
                .trim_end_matches('H')
                .split(';')
                .map(|n| n.parse().unwrap_or(1));
            (row, column) = (at.next().unwrap_or(1) - 1, at.next().unwrap_or(1) - 1);
        }
        if end == Some('J') {
            lines.iter_mut().for_each(|line| line.fill(' '));
        }
    }
    let lines = lines.iter().map(|line| line.iter().collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

/// Number of items, from the line that says that all are listed.
fn listed(written: &str) -> usize {
    let screen = screen(written);
    let after = screen.split(" all ").nth(1).unwrap_or_default();
    let number = after.split(' ').next().unwrap_or_default();
    number.replace(',', "").parse().unwrap_or(0)
}

fn lines<'a>(done: &'a Finished, start: &str) -> Vec<&'a str> {
    let lines = done.stdout.lines().map(str::trim);
    // The shell's first line after the screen follows the escape sequence that leaves it.
    let lines = lines.filter_map(|line| line.find(start).map(|at| &line[at..]));
    lines.collect()
}

/// The trace is shown, an item is opened, q exits with 0, and the terminal is restored.
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

/// If its terminal is closed, the view ends, and its reader with it.
#[test]
fn terminal_is_closed() {
    need!(machine::root());
    let recording = recorded();
    let tool = machine::pebs_trace();
    let shell = format!(
        "stty cols 110 rows 30; exec '{}' view '{}'",
        tool.display(),
        recording.dir().display()
    );
    let mut terminal = Running::start(Command::new("script").args(["-qfec", &shell, "/dev/null"]));
    terminal.wait_for_output(|text| text.contains("pebs-trace view"));
    let parent = terminal.pid();
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let exe = format!("/proc/{}/exe", children.trim());
    let is_there = || std::fs::read_link(&exe).is_ok_and(|path| path == tool);
    assert!(is_there(), "{children}");
    terminal.signal(Signal::KILL);
    process::wait_until("the view goes on", || !is_there());
    let _ = terminal.finish();
}

/// A directory that is not a trace is an error before the screen is taken.
#[test]
fn foreign_on_a_terminal() {
    let done = on_terminal(Path::new("/nowhere/trace"), "q");
    assert_eq!(lines(&done, "ended: "), ["ended: 2"], "{done}");
    assert!(done.stdout.contains("error: cannot read trace"), "{done}");
    assert!(!done.stdout.contains(LEAVE_SCREEN), "{done}");
}

/// Without a terminal the view fails.
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

/// A trace that is being written is followed: more and more items appear, in the end all, and then the view
/// says so.
#[test]
fn live() {
    need!(machine::root());
    let workload = Workload::build("answers");
    let mut target = workload.start(&["1"]);
    let recorder = Recorder::new(&workload.spec("handle(id=arg1)")).beside();
    let live = recorder
        .args(&["--event", "cpu-clock", "--reset", "1000000"])
        .attach(target.process.pid());
    target.go();
    let mut viewed = view(&live.dir(), "--live");
    viewed.wait_for_output(|it| listed(it) > 0 && screen(it).contains("live: being written"));
    let first = std::cell::Cell::new(0);
    viewed.wait_for_output(|it| {
        first.set(listed(it));
        true
    });
    viewed.wait_for_output(|it| listed(it) > first.get());
    let items = target.answers_stop() as usize;
    let recording = live.stop();
    assert_eq!(recording.tool.code(), Some(0), "{}", recording.tool);
    viewed.wait_for_output(|it| screen(it).contains("the recording has ended"));
    viewed.wait_for_output(|it| listed(it) == items);
    viewed.send("q");
    let done = viewed.finish();
    assert_eq!(lines(&done, "ended: "), ["ended: 0"], "{done}");
}

/// For a complete trace, --live shows its data.
#[test]
fn live_of_a_whole_trace() {
    need!(machine::root());
    let recording = recorded();
    let mut viewed = view(&recording.dir(), "--live");
    viewed.wait_for_output(|it| listed(it) == 2000);
    viewed.send("q");
    let done = viewed.finish();
    assert_eq!(lines(&done, "ended: "), ["ended: 0"], "{done}");
    assert!(!done.stdout.contains("live: "), "{done}");
}
