//! Processes that a recording follows.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pebs_tests::recording::Recorder;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need, process};
use rustix::process::Signal;

/// A command's children, grandchildren, and a child that execs are all traced.
#[test]
fn fork_of_a_command() {
    need!(machine::root());
    let workload = Workload::build("fork");
    let alone = workload.run(&["50"]);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .workload(&workload, &["50"]);
    check::whole_visits(&recording.trace(), &truth);
    let pids: BTreeSet<u32> = truth.items.iter().map(|item| item.pid).collect();
    assert_eq!(pids.len(), 4, "parent, two children, grandchild");
    check::unharmed(&recording, &alone);
}

/// The same when attached to the parent.
#[test]
fn fork_of_a_process() {
    need!(machine::root());
    let workload = Workload::build("fork");
    let alone = workload.run(&["50"]);
    let mut target = workload.start(&["50"]);
    let live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .attach(target.process.pid());
    target.go();
    let (finished, truth) = target.finish();
    let trace = live.stop().trace();
    check::whole_visits(&trace, &truth);
    check::same_end(&finished, &alone);
}

/// Children that end while the recording starts are no error.
#[test]
fn children_that_end_at_the_start() {
    need!(machine::root());
    let mut parent = Command::new("sh");
    parent.args(["-c", "echo begun >&2; while :; do sleep 0.02; done"]);
    let mut parent = process::Running::start(&mut parent);
    parent.wait_for_line("begun");
    let recording = Recorder::new("libc.so.6:nanosleep")
        .beside()
        .args(&["--duration", "0.5"])
        .attach(parent.pid())
        .finish();
    assert_eq!(recording.tool.code(), Some(0), "{}", recording.tool);
    let pids: BTreeSet<u64> = recording.trace().visits().iter().map(|it| it.pid).collect();
    assert!(pids.len() > 1, "items of children: {pids:?}");
    parent.signal(Signal::TERM);
}

/// `-p` traces that process and no other of the same binary.
#[test]
fn only_the_process_asked_for() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let mut target = workload.start(&["200"]);
    let mut other = workload.start(&["300"]);
    let live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .attach(target.process.pid());
    target.go();
    other.go();
    let (_, truth) = target.finish();
    let _ = other.finish();
    check::whole_visits(&live.stop().trace(), &truth);
}

/// Without a pid or a command every process of the binary is traced, those that run already and
/// those that come later.
#[test]
fn every_process() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let mut first = workload.start(&["200"]);
    let live = Recorder::new(&workload.spec(super::ID)).start();
    first.go();
    let (_, truth) = first.finish();
    let mut later = workload.start(&["300"]);
    later.go();
    let (_, later_truth) = later.finish();
    let trace = live.stop().trace();
    check::no_mark_lost(&trace);
    let pids: BTreeSet<u64> = trace.visits().iter().map(|visit| visit.pid).collect();
    assert_eq!(pids.len(), 2, "{pids:?}");
    for visit in trace.visits() {
        let of_first = visit.pid == u64::from(truth.items[0].pid);
        let truth = if of_first { &truth } else { &later_truth };
        check::within_truth(&trace, &visit, truth.item(visit.item_id));
    }
    assert_eq!(trace.visits().len(), 500);
}

/// The process ends before the recording does: the tool notices and ends by itself.
#[test]
fn ends_with_its_process() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let mut target = workload.start(&["200"]);
    let live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .attach(target.process.pid());
    target.go();
    let (_, truth) = target.finish();
    let recording = live.finish();
    check::whole_visits(&recording.trace(), &truth);
}

/// `--duration` ends a recording, whatever the target does.
#[test]
fn duration() {
    need!(machine::root());
    let workload = Workload::build("killed");
    let mut target = workload.start(&[]);
    // No time must be lost here.
    target.go();
    let live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--duration", "0.5"])
        .attach(target.process.pid());
    let recording = live.finish();
    assert!(target.process.is_running());
    let trace = recording.trace();
    let length = Duration::from_nanos(trace.json["duration_ns"].as_u64().unwrap());
    assert!(length >= Duration::from_millis(500), "{length:?}");
    assert!(!trace.visits().is_empty());
}

/// A command that outlives its recording is reported, whether a signal or the time ended that.
#[test]
fn command_that_goes_on() {
    need!(machine::root());
    let script = "exec > /dev/null 2>&1; exec sleep 600";
    let recorder = || Recorder::new("libc.so.6:nanosleep").beside();
    let command = ["--", "sh", "-c", script];
    let timed = recorder().args(&["--duration", "0.2"]).args(&command);
    let ended = [
        timed.start().finish(),
        recorder().args(&command).start().stop(),
    ];
    for recording in ended {
        let tool = &recording.tool;
        assert_eq!(tool.code(), Some(0), "{tool}");
        let (_, rest) = tool.stderr.split_once("the command (process ").unwrap();
        let (pid, rest) = rest.split_once(')').unwrap();
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        assert!(rest.starts_with(" goes on, without probes\n"), "{tool}");
    }
}

/// A signal before the start of a recording ends it, even if a shell that started it in the background ignored
/// SIGINT; the command has then not run, as if it was killed.
#[test]
fn ended_while_it_is_set_up() {
    need!(machine::root());
    let workload = Workload::build("plain");
    for (signal, number) in [(Signal::INT, 2), (Signal::KILL, 9)] {
        // On a busy machine a signal may come too late.
        let early = (0..20).any(|_| ends_early(&workload, signal, number));
        assert!(early, "it has begun before each {signal:?}");
    }
}

/// Sends a signal to a recording that is being set up; returns `false` if it had begun by then.
fn ends_early(workload: &Workload, signal: Signal, number: i32) -> bool {
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().join("ran");
    // It would not end in time by itself.
    let script = format!("touch {}; exec sleep 600", mark.display());
    // Without saved costs, so that it takes a second.
    let costs = format!("XDG_CACHE_HOME={}", place.path().display());
    let mut live = Recorder::new(&workload.spec(super::ID))
        .started_by(&["env", &costs, "sh", "-c", "trap '' INT; exec \"$@\"", "sh"])
        .args(&["--ring-size", "1MiB", "--", "sh", "-c", &script])
        .launch();
    live.tool.wait_for_line("transport");
    live.tool.signal(signal);
    let recording = live.finish();
    let tool = &recording.tool;
    if tool.stderr.contains("recording to ") {
        return false;
    }
    let is_reported = tool.stderr.contains("ended before it began (interrupt)");
    let ended = tool.signal() == Some(number) || tool.code() == Some(2) && is_reported;
    assert!(ended, "{tool}");
    // The command was held stopped, and ends with the tool.
    process::wait_until("the command is still there", || {
        let named = process::run(Command::new("pgrep").args(["-f", &mark.display().to_string()]));
        named.stdout.is_empty()
    });
    assert!(!mark.exists(), "{tool}");
    assert!(signal == Signal::KILL || !recording.dir().exists());
    true
}

/// The tool raises its own limit of open files, not that of the command that it starts.
#[test]
fn limits_of_a_command() {
    need!(machine::root());
    need!(machine::program("prlimit"));
    let workload = Workload::build("plain");
    let recording = Recorder::new(&workload.spec(super::ID))
        .beside()
        .started_by(&["prlimit", "--nofile=256:"])
        .command(Path::new("/bin/sh"), &["-c", "ulimit -Sn"]);
    assert_eq!(recording.tool.code(), Some(0), "{}", recording.tool);
    let first = recording.tool.stdout.lines().next();
    assert_eq!(first, Some("256"), "{}", recording.tool);
}
