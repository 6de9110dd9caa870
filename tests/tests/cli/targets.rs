//! Processes and commands that are not there.

use std::process::Command;

use pebs_tests::locks::Lock;
use pebs_tests::process;
use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::{machine, need};

use super::{good_spec, hints, refused};

fn attach(pid: &str) -> process::Finished {
    attach_for("5", pid)
}

fn attach_for(seconds: &str, pid: &str) -> process::Finished {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("trace").display().to_string();
    let spec = good_spec();
    pebs_trace([
        "--uprobe",
        &spec,
        "-o",
        &dir,
        "--duration",
        seconds,
        "-p",
        pid,
    ])
}

/// A pid that no process has.
#[test]
fn no_such_pid() {
    need!(machine::root());
    refused(&attach("4194303"), &["4194303", "does not exist"]);
}

/// A thread that is not its process's first is not a process.
#[test]
fn thread_for_a_process() {
    need!(machine::root());
    let tid = rustix::thread::gettid().as_raw_nonzero().get().to_string();
    let me = std::process::id().to_string();
    let done = attach(&tid);
    refused(&done, &[&tid, "is a thread of process", &me]);
    hints(&done, &[&format!("-p {me}"), &format!("-t {tid}")]);
}

/// Threads, cgroups and containers that are not there.
#[test]
fn others_that_are_not_there() {
    need!(machine::root());
    let spec = good_spec();
    let run = |option: &str, value: &str| {
        pebs_trace(["--uprobe", &spec, "--duration", "1", option, value])
    };
    refused(&run("-t", "4194303"), &["thread 4194303 does not exist"]);
    refused(&run("--cgroup", "/tmp"), &["cgroup"]);
    let done = run("--container", "web-1");
    refused(&done, &["'web-1' is not a container id"]);
    hints(&done, &["docker inspect"]);
}

/// In a container with a pid namespace the kernel's pids would match no process.
#[test]
fn pids_of_a_container() {
    need!(machine::root());
    let unshare = need!(machine::program("unshare"));
    let mut command = Command::new(unshare);
    command.args(["--pid", "--fork", "--mount-proc"]);
    command
        .arg(machine::pebs_trace())
        .args(["--uprobe", &good_spec(), "-p", "1"]);
    let done = process::run(&mut command);
    refused(&done, &["pid namespace"]);
    hints(&done, &["--pid=host"]);
}

/// A pid that cannot be one.
#[test]
fn impossible_pid() {
    need!(machine::root());
    for pid in ["0", "99999999999", "self"] {
        let done = attach(pid);
        assert_eq!(done.code(), Some(2), "{done}");
        assert!(done.stderr.contains(pid), "{done}");
    }
}

/// A pid that is not a number: the error names the alternative.
#[test]
fn name_for_a_pid() {
    let done = attach("redis");
    refused(&done, &["'redis'", "pgrep"]);
}

/// A process that runs another program: the error names that program.
#[test]
fn other_program() {
    need!(machine::root());
    let mut child = Command::new("/usr/bin/sleep").arg("100").spawn().unwrap();
    let done = {
        let _lock = Lock::recording_beside();
        attach_for("0.2", &child.id().to_string())
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(done.code(), Some(0), "{done}");
    let note = format!(
        "note: process {} runs /usr/bin/sleep and has not loaded ",
        child.id()
    );
    assert!(done.stderr.contains(&note), "{done}");
}

/// A process that has ended but is not yet waited for.
#[test]
fn zombie() {
    need!(machine::root());
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    let done = attach(&child.id().to_string());
    child.wait().unwrap();
    refused(&done, &[&child.id().to_string(), "zombie", "hint:"]);
}

/// Either the process was seen to be gone, or the recording ended with it, empty.
fn refused_or_ended(done: &process::Finished, pid: u32) {
    if done.code() == Some(2) {
        refused(done, &[&pid.to_string()]);
    } else {
        assert_eq!(done.code(), Some(0), "{done}");
        assert!(
            done.stderr.contains("recording ended: the target ended"),
            "{done}"
        );
        assert!(done.stderr.contains("no item was recorded"), "{done}");
    }
}

/// A process that exits at once, many times over: a clear refusal or an empty trace, never a hang.
#[test]
fn exits_at_once() {
    need!(machine::root());
    for delay in ["0", "0.01", "0.05", "0.2"] {
        let mut child = Command::new("sleep").arg(delay).spawn().unwrap();
        let pid = child.id();
        let waiter = std::thread::spawn(move || child.wait());
        let done = attach(&pid.to_string());
        let _ = waiter.join();
        refused_or_ended(&done, pid);
    }
}

/// A command that is nowhere.
#[test]
fn command_not_found() {
    need!(machine::root());
    let recording = Recorder::new(&good_spec())
        .beside()
        .command("no-such-command-at-all".as_ref(), &[]);
    refused(&recording.tool, &["no-such-command-at-all", "not found"]);
    assert!(!recording.dir().exists(), "{}", recording.tool);
}

/// A command that may not be executed, and one that is not a program.
#[test]
fn command_not_executable() {
    need!(machine::root());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data");
    std::fs::write(&file, "data").unwrap();
    let recording = Recorder::new(&good_spec()).beside().command(&file, &[]);
    refused(&recording.tool, &["data", "permission denied"]);
    assert!(!recording.dir().exists(), "{}", recording.tool);
}

/// A command that fails has been recorded all the same.
#[test]
fn command_that_fails() {
    need!(machine::root());
    let recording = Recorder::new(&good_spec())
        .beside()
        .command("/bin/false".as_ref(), &[]);
    assert_eq!(recording.tool.code(), Some(0), "{}", recording.tool);
    assert!(recording.trace().visits().is_empty());
}

/// A pid and a command exclude each other.
#[test]
fn pid_and_command() {
    let done = pebs_trace(["--uprobe", "/bin/true:main", "-p", "1", "--", "/bin/true"]);
    assert_eq!(done.code(), Some(2), "{done}");
}
