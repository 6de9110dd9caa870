//! Binaries of every make.

use pebs_tests::process::{self, Running};
use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::workload::{self, Workload};
use pebs_tests::{check, machine, need};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A PIE with symbols; also: the exit code of the command is reported.
#[test]
fn plain() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let alone = workload.run(&["1000", "3"]);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .workload(&workload, &["1000", "3"]);
    check::whole_visits(&recording.trace(), &truth);
    check::unharmed(&recording, &alone);
    let is_reported = recording
        .tool
        .stderr
        .lines()
        .any(|line| line == "command exit status: 3");
    assert!(is_reported, "{}", recording.tool);
}

/// No symbols at all: probed by address.
#[test]
fn stripped() {
    need!(machine::root());
    let workload = Workload::build("stripped");
    let address = workload::address_of(&workload.beside("with_symbols"), "handle");
    let spec = workload.spec(&format!("0x{address:x}(id=*(arg1):u64)"));
    let alone = workload.run(&[]);
    let (recording, truth) = Recorder::new(&spec).beside().workload(&workload, &[]);
    check::whole_visits(&recording.trace(), &truth);
    check::unharmed(&recording, &alone);
}

/// A static PIE: no dynamic linker, no libc.so.
#[test]
fn static_pie() {
    need!(machine::root());
    let workload = Workload::build("static_pie");
    let alone = workload.run(&[]);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .workload(&workload, &[]);
    check::whole_visits(&recording.trace(), &truth);
    check::unharmed(&recording, &alone);
}

/// A function of a shared library, named by the library's path.
#[test]
fn shared_library() {
    need!(machine::root());
    let workload = Workload::build("shared_lib");
    let library = workload.beside("libshared_lib.so");
    let spec = format!("{}:lib_handle(id=*(arg1):u64)", library.display());
    let alone = workload.run(&[]);
    let (recording, truth) = Recorder::new(&spec).beside().workload(&workload, &[]);
    check::whole_visits(&recording.trace(), &truth);
    check::unharmed(&recording, &alone);
}

/// A path through a symbolic link leads to the same file.
#[test]
fn symbolic_link() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("linked");
    std::os::unix::fs::symlink(&workload.path, &link).unwrap();
    let (recording, truth) = Recorder::new(&format!("{}:{}", link.display(), super::ID))
        .beside()
        .workload(&workload, &["100"]);
    check::whole_visits(&recording.trace(), &truth);
}

/// A setuid program is refused: it would lose its privileges under a tracer's command, and the caller may not observe
/// what it does with them.
#[test]
fn setuid_is_refused() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("privileged");
    fs::copy(&workload.path, &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    let recording = Recorder::new(&format!("{}:{}", copy.display(), super::ID))
        .beside()
        .command(&copy, &[]);
    let stderr = &recording.tool.stderr;
    assert_eq!(recording.tool.code(), Some(2), "{}", recording.tool);
    assert!(stderr.contains("setuid"), "{}", recording.tool);
    assert!(
        !recording.dir().exists(),
        "no trace is begun\n{}",
        recording.tool
    );
}

/// No trace of the recorder stays in the target's memory or file: it runs on after a recording as before.
#[test]
fn target_runs_on() {
    need!(machine::root());
    let workload = Workload::build("answers");
    let mut target = workload.start(&[]);
    target.go();
    let live = Recorder::new(&workload.spec("handle(id=arg1)"))
        .args(&["--duration", "0.5"])
        .attach(target.process.pid());
    let recording = live.finish();
    let trace = recording.trace();
    target.answers_stop();
    let visits = trace.visits();
    assert!(!visits.is_empty());
    // Items that began before or after are known as such, if no record was lost.
    let (marks, mut losses) = (trace.account("marks"), trace.losses());
    losses.retain(|loss| loss.reason != "throttled");
    if losses.is_empty() {
        assert_eq!(marks.reasons.get("unmatched_mark"), None, "{marks:?}");
    }
    // The recorded ids are consecutive.
    let ids: Vec<u64> = visits.iter().map(|visit| visit.item_id).collect();
    assert_eq!(ids, (ids[0]..ids[0] + ids.len() as u64).collect::<Vec<_>>());
    let again = process::run(Command::new(&workload.path).args(["10", "0"]));
    assert!(again.status.success(), "{again}");
}

/// A program that is replaced while it is recorded, as by an upgrade: the items of the old file are recorded, and a
/// message says that the new one has no probes.
#[test]
fn replaced_while_it_is_recorded() {
    need!(machine::root());
    let dir = tempfile::tempdir().unwrap();
    let (app, new) = copies(dir.path());
    let run = || {
        let done = process::run(Command::new(&app).arg("100"));
        assert!(done.status.success(), "{done}");
    };
    let live = Recorder::new(&format!("{}:{}", app.display(), super::ID)).start();
    run();
    fs::rename(&new, &app).unwrap();
    run();
    let recording = live.stop();
    let trace = recording.trace();
    assert_eq!(trace.visits().len(), 100);
    let remark = format!("{} was replaced while it was recorded", app.display());
    let warning = format!("warning: {remark}");
    assert!(
        recording.tool.stderr.contains(&warning),
        "{}",
        recording.tool
    );
    let notes = trace.json["notes"].as_array().unwrap();
    let is_kept = |note: &serde_json::Value| note.as_str().unwrap().starts_with(&remark);
    assert!(notes.iter().any(is_kept), "{notes:?}");
}

/// A process whose program was replaced before: by path the new file is probed, with a message on how to probe the file
/// that the process runs.
#[test]
fn replaced_before() {
    need!(machine::root());
    let dir = tempfile::tempdir().unwrap();
    let (app, new) = copies(dir.path());
    let workload = Workload { path: app.clone() };
    let mut target = workload.start(&["200"]);
    fs::rename(&new, &app).unwrap();
    let pid = target.process.pid();
    let by_path = Recorder::new(&workload.spec(super::ID))
        .args(&["--duration", "0.2"])
        .attach(pid)
        .finish();
    let stderr = &by_path.tool.stderr;
    let note = format!(
        "note: process {pid} still runs the old {}, which was replaced on disk",
        app.display()
    );
    assert!(stderr.contains(&note), "{}", by_path.tool);
    assert!(stderr.contains("'app:..'"), "{}", by_path.tool);
    let live = Recorder::new(&format!("app:{}", super::ID)).attach(pid);
    target.go();
    let (_, truth) = target.finish();
    let recording = live.finish();
    check::whole_visits(&recording.trace(), &truth);
    assert!(
        !recording.tool.stderr.contains("was replaced"),
        "{}",
        recording.tool
    );
}

/// A process runs a file of an overlay's lower layer, and the file was touched since: no probe reaches the process.
/// The recording is refused, and names the file that can be probed.
#[test]
fn copied_up() {
    need!(machine::root());
    let dir = tempfile::tempdir().unwrap();
    let [lower, upper, work, merged] =
        ["lower", "upper", "work", "merged"].map(|it| dir.path().join(it));
    for layer in [&lower, &upper, &work, &merged] {
        fs::create_dir(layer).unwrap();
    }
    process::copy_program(&Workload::build("plain").path, &lower.join("app"));
    let [lower, upper, work] = [lower, upper, work].map(|it| it.display().to_string());
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let mount = format!("mount -t overlay none -o {layers} \"$0\" && exec \"$0/app\" 100");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &mount]).arg(&merged);
    let mut target = Running::start(
        command
            .env("TRUTH_WAIT", "1")
            .env("TRUTH_FILE", "/dev/null"),
    );
    target.wait_for_line("ready ");
    let root = PathBuf::from(format!("/proc/{}/root", target.pid()));
    let app = merged.join("app");
    let touched = root.join(app.strip_prefix("/").unwrap());
    fs::set_permissions(touched, fs::Permissions::from_mode(0o700)).unwrap();
    let record = |file: &str| {
        let output = dir.path().join("trace").display().to_string();
        let (probe, pid) = (format!("{file}:{}", super::ID), target.pid().to_string());
        pebs_trace(["-d", "0.1", "-o", &output, "-p", &pid, "-u", &probe])
    };
    let refused = record(&app.display().to_string());
    assert_eq!(refused.code(), Some(2), "{refused}");
    assert!(refused.stderr.contains("overlay"), "{refused}");
    let way_out = format!("{lower}/app");
    assert!(refused.stderr.contains(&way_out), "{refused}");
    let recorded = record(&way_out);
    assert_eq!(recorded.code(), Some(0), "{recorded}");
}

/// A debugger's breakpoint at the probed instruction is warned of.
#[test]
fn breakpoint_of_a_debugger() {
    need!(machine::root());
    need!(machine::program("gdb"));
    let workload = Workload::build("plain");
    let place = format!("0x{:x}", workload::address_of(&workload.path, "handle"));
    let mut target = workload.start(&["100"]);
    let pid = target.process.pid();
    let mut debugger = Running::start(Command::new("gdb").args(["-q", "-p", &pid.to_string()]));
    debugger.send("set pagination off\nbreak *handle\ncontinue\n");
    debugger.wait_for_output(|it| it.contains("Continuing."));
    // It inserts its breakpoints after that.
    thread::sleep(Duration::from_secs(1));
    let live = Recorder::new(&workload.spec(&format!("{place}(id=*(arg1):u64)"))).attach(pid);
    target.go();
    let recording = live.finish();
    let warning = format!(
        "warning: gdb (process {}) has a breakpoint at ",
        debugger.pid()
    );
    assert!(
        recording.tool.stderr.contains(&warning),
        "{}",
        recording.tool
    );
}

/// So is one that comes while it is recorded: it would leave the probe's breakpoint behind.
#[test]
fn debugger_while_recording() {
    need!(machine::root());
    need!(machine::program("gdb"));
    let workload = Workload::build("plain");
    let mut target = workload.start(&["100"]);
    let pid = target.process.pid();
    let live = Recorder::new(&workload.spec(super::ID)).attach(pid);
    let mut debugger = Running::start(Command::new("gdb").args(["-q", "-p", &pid.to_string()]));
    debugger.send("set pagination off\ncontinue\n");
    debugger.wait_for_output(|it| it.contains("Continuing."));
    // Processes are looked at twice a second.
    thread::sleep(Duration::from_secs(2));
    target.go();
    let recording = live.finish();
    let warning = format!(
        "gdb (process {}) is attached to process {pid}",
        debugger.pid()
    );
    let said = &recording.tool.stderr;
    assert_eq!(said.matches(&warning).count(), 1, "{}", recording.tool);
    let notes = recording.trace().json["notes"].to_string();
    assert!(notes.contains(&warning), "{notes}");
}

/// Two copies of a workload, `app` and `new`.
fn copies(dir: &Path) -> (PathBuf, PathBuf) {
    let workload = Workload::build("plain");
    let (app, new) = (dir.join("app"), dir.join("new"));
    process::copy_program(&workload.path, &app);
    process::copy_program(&workload.path, &new);
    (app, new)
}
