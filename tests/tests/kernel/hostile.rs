//! A target that attacks its tracer.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::trace::Trace;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need, process};
use tempfile::TempDir;

/// Largest memory of the tool, KiB: a target with 16 GiB of holes has no influence on it.
const MOST_KIB: u64 = 600 << 10;

/// A name that would clear the screen, forge a line, and reverse the text after it.
const EVIL: &str = "evil\x1b[2J\nerror: forged\u{202e}\u{9b}31m";

/// The workload with a function of an evil name, which takes half of its time.
fn evil_binary() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("evil\x1b]0;x\x07");
    let rename = format!("noisy={EVIL}");
    let copied = process::run(
        Command::new("objcopy")
            .args(["--redefine-sym", &rename, "--strip-debug"])
            .arg(Workload::build("hostile").path)
            .arg(&path),
    );
    assert_eq!(copied.code(), Some(0), "{copied}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    (dir, path)
}

/// Panics if the text holds terminal escapes, or a line that the tool did not write.
fn check_text(text: &str) {
    let acts = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!text.contains(acts), "{text:?}");
    assert!(
        !text.lines().any(|line| line.starts_with("error: forged")),
        "{text}"
    );
}

/// Lying binaries, truncated ones, an endless perf map and mappings that change all the time cost only names: the
/// recording ends normally, within its memory, and nothing has changed outside of the trace.
#[test]
fn target_that_lies() {
    need!(machine::root());
    let (dir, path) = evil_binary();
    let lies = dir.path().join("lies");
    fs::create_dir(&lies).unwrap();
    let spec = format!(
        "{}:handle(id=*(arg1):u64, name=str(*(arg1+16)))",
        path.display()
    );
    let folder = lies.display().to_string();
    let live = Recorder::new(&spec).args(&["--reset", "100000"]).start();
    let ended = process::run(Command::new(&path).args([&folder, "2500"]));
    assert_eq!(ended.code(), Some(0), "{ended}");
    let peak = peak_kib(live.tool.pid());
    assert!(peak < MOST_KIB, "{peak} KiB");
    let recording = live.stop();
    let trace = recording.trace_with_loss();
    assert!(trace.visits().len() > 20, "{}", trace.visits().len());
    let names = trace.function_names();
    assert!(
        names.values().any(|name| name == EVIL),
        "the trace has the name as it is: {names:?}"
    );
    assert!(
        names.values().any(|name| name.starts_with("jitted\x1b")),
        "{names:?}"
    );
    check_text(&recording.tool.stdout);
    check_text(&recording.tool.stderr);
    assert!(
        recording.tool.stdout.contains("evil\\u{1b}[2J\\n"),
        "{}",
        recording.tool
    );
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// Code that a program copies, with breakpoints in it, does not kill it: the copy is restored, and the items that are
/// missing from then on are reported.
fn code_that_moves(order: &str) {
    need!(machine::root());
    let workload = Workload::build("remap");
    let alone = workload.run(&[order]);
    let spec = workload.spec("handle(id=arg1)");
    let (recording, truth) = Recorder::new(&spec)
        .beside()
        .args(&["--force"])
        .workload(&workload, &[order]);
    assert_eq!(truth.notes["moved"], 1);
    check::unharmed(&recording, &alone);
    let tool = &recording.tool;
    assert_eq!(tool.code(), Some(1), "{tool}");
    assert!(
        tool.stderr.contains("copied its code, with 2 probes in it"),
        "{tool}"
    );
    assert!(!tool.stderr.contains("SIGTRAP"), "{tool}");
    let trace = Trace::open(&recording.dir());
    assert_eq!(trace.json["complete"], false);
    assert_eq!(trace.json["copied"].as_array().unwrap().len(), 1);
    let ids: Vec<_> = trace.visits().iter().map(|visit| visit.item_id).collect();
    assert_eq!(ids, (1..=1000).collect::<Vec<_>>(), "before it moved");
    // The target was stopped, and continues.
    assert!(tool.stderr.contains("command exit status: 0"), "{tool}");
}

/// As huge-page remappers of whole programs do it.
#[test]
fn code_that_is_moved() {
    code_that_moves("0");
}

/// As those do it that copy the code back.
#[test]
fn code_that_is_copied_back() {
    code_that_moves("1");
}

fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// Listings, suggestions and errors show a binary's names as text.
#[test]
fn names_are_text() {
    let (_dir, path) = evil_binary();
    let binary = path.display().to_string();
    let list = pebs_trace(["probes", &binary]);
    assert_eq!(list.code(), Some(0), "{list}");
    assert!(
        list.stdout.contains("evil\\u{1b}[2J\\nerror: forged"),
        "{list}"
    );
    check_text(&list.stdout);
    let missing = pebs_trace(["probes", &binary, "evi\x1b[l"]);
    assert_eq!(missing.code(), Some(1), "{missing}");
    check_text(&missing.stderr);
    let spec = format!("{binary}:evi");
    let error = pebs_trace(["--uprobe", &spec, "--", "true"]);
    assert_eq!(error.code(), Some(2), "{error}");
    assert!(
        error.stderr.contains("evil\\u{1b}"),
        "the nearest name is suggested: {error}"
    );
    check_text(&error.stderr);
}

/// Lying binaries are listed or refused, soon; a debug link into a pipe, a device or another folder is not followed.
#[test]
fn binaries_that_lie() {
    let (dir, path) = evil_binary();
    let lies = dir.path().join("lies");
    fs::create_dir(&lies).unwrap();
    let made = process::run(Command::new(&path).arg(&lies).arg("1"));
    assert_eq!(made.code(), Some(0), "{made}");
    let list = |path: &Path| {
        let listed = pebs_trace([Path::new("probes"), path]);
        assert!(matches!(listed.code(), Some(0..=2)), "{listed}");
        assert!(!listed.stderr.contains("panicked"), "{listed}");
        check_text(&listed.stdout);
        check_text(&listed.stderr);
    };
    for entry in fs::read_dir(&lies).unwrap() {
        list(&entry.unwrap().path());
    }
    // A debug link names a file beside the binary: itself, a pipe, a link to a device.
    let debug = dir.path().join("debug");
    fs::write(&debug, "for its checksum").unwrap();
    let add = format!("--add-gnu-debuglink={}", debug.display());
    let stripped = dir.path().join("stripped");
    let mut copy = Command::new("objcopy");
    copy.args(["-S", &add]).args([&path, &stripped]);
    assert_eq!(process::run(&mut copy).code(), Some(0));
    for what in ["cp stripped debug", "mkfifo debug", "ln -s /dev/zero debug"] {
        fs::remove_file(&debug).unwrap();
        let made = process::run(
            Command::new("sh")
                .args(["-c", what])
                .current_dir(dir.path()),
        );
        assert_eq!(made.code(), Some(0), "{made}");
        list(&stripped);
        list(&debug);
    }
}
