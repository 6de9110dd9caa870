//! The tool's privileges while it records, and those of its command and its files.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pebs_tests::recording::Recorder;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need, process};

/// `CAP_PERFMON`, `CAP_BPF`, `CAP_IPC_LOCK`, `CAP_DAC_READ_SEARCH`.
const MAIN: u64 = 1 << 38 | 1 << 39 | 1 << 14 | 1 << 2;

/// `CAP_SYS_PTRACE`, `CAP_KILL`, `CAP_CHECKPOINT_RESTORE`, `CAP_SYSLOG`, `CAP_DAC_READ_SEARCH`.
const OTHERS: u64 = 1 << 19 | 1 << 5 | 1 << 40 | 1 << 34 | 1 << 2;

/// A field of a status file.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value
        .unwrap_or_else(|| panic!("no {name} in {status}"))
        .trim()
}

/// Panics if any thread of the tool keeps a capability that it does not need.
fn check_threads(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Some(what) = rich_thread(pid) {
        // A thread that has just started gives up its inherited capabilities first.
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A thread that has more than it needs.
fn rich_thread(pid: u32) -> Option<String> {
    let mut threads = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let path = entry.unwrap().path();
        // It may have ended by now.
        let Ok(status) = fs::read_to_string(path.join("status")) else {
            continue;
        };
        threads += 1;
        let needed = if path.ends_with(pid.to_string()) {
            MAIN
        } else {
            OTHERS
        };
        // Nothing is left for programs that it might start.
        for (set, allowed) in [
            ("CapPrm", needed),
            ("CapEff", needed),
            ("CapInh", 0),
            ("CapBnd", 0),
            ("CapAmb", 0),
        ] {
            let mask = u64::from_str_radix(field(&status, set), 16).unwrap();
            if mask & !allowed != 0 {
                return Some(format!("{set} of {}: {status}", path.display()));
            }
        }
        if field(&status, "NoNewPrivs") != "1" {
            return Some(status);
        }
    }
    assert!(
        threads >= 4,
        "{threads} threads: draining, pipeline, closing segments"
    );
    None
}

/// No thread keeps capabilities that it does not need, and with the remaining ones later processes are still
/// found, followed through an exec, and named.
#[test]
fn recording_goes_on_without_capabilities() {
    need!(machine::root());
    let workload = Workload::build("execs");
    let live = Recorder::new(&workload.spec(super::ID)).start();
    check_threads(live.tool.pid());
    let mut target = workload.start(&["200"]);
    target.go();
    let (_, truth) = target.finish();
    check_threads(live.tool.pid());
    let trace = live.stop().trace();
    check::no_mark_lost(&trace);
    let items: BTreeSet<u64> = trace.visits().iter().map(|visit| visit.item_id).collect();
    assert!(truth.items.iter().all(|item| items.contains(&item.id)));
    let names = trace.function_names();
    assert!(names.values().any(|name| name == "handle"), "{names:?}");
}

/// A command has all that it would have without the tool.
#[test]
fn commands_are_not_affected() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let command = |out: &Path| {
        let words =
            "Uid: Gid: Groups: CapInh: CapPrm: CapEff: CapBnd: CapAmb: NoNewPrivs: Seccomp:";
        let words = words.replace(' ', "|");
        format!(
            "grep -E '{words}' /proc/self/status > {}; {} 10",
            out.display(),
            workload.path.display()
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let (alone, traced) = (dir.path().join("alone"), dir.path().join("traced"));
    assert_eq!(
        process::run(Command::new("sh").args(["-c", &command(&alone)])).code(),
        Some(0)
    );
    let recording = Recorder::new(&workload.spec(super::ID))
        .beside()
        .command(Path::new("/bin/sh"), &["-c", &command(&traced)]);
    assert_eq!(recording.trace().visits().len(), 10);
    let read = |path| fs::read_to_string(path).unwrap();
    assert_eq!(read(&traced), read(&alone));
}

/// Under sudo every file is private and the invoking user's, also those made long after the start, and also where
/// that user could not have gone.
#[test]
fn files_are_the_invoking_users() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let place = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir()
        .unwrap();
    let dir = place.path().join("trace");
    let mut command = Command::new(machine::pebs_trace());
    command
        .args([
            "--uprobe",
            &workload.spec(super::ID),
            "--segment",
            "0.3",
            "-o",
        ])
        .arg(&dir)
        .args(["--", "sh", "-c"])
        .arg(format!(
            "for n in 1 2 3 4 5; do {} 200; sleep 0.2; done",
            workload.path.display()
        ))
        .env("SUDO_UID", "12345")
        .env("SUDO_GID", "54321");
    let lock = pebs_tests::locks::Lock::recording();
    let done = process::run(&mut command);
    drop(lock);
    assert_eq!(done.code(), Some(0), "{done}");
    let mut files = 0;
    let mut folders = vec![dir.clone()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .chain([folder.clone()])
        {
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
            let found = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
            assert_eq!(found, (12345, 54321, mode), "{}", path.display());
            files += usize::from(metadata.is_file());
            if metadata.is_dir() && path != folder {
                folders.push(path);
            }
        }
    }
    let visits = fs::read_dir(dir.join("visits")).unwrap().count();
    assert!(
        visits >= 2 && files > 8,
        "{visits} segments of visits, {files} files"
    );
}

/// A user with the capabilities that `doctor --capabilities` lists, and no others, records what root would. Without one of
/// three of these the recording is refused or lacks just what the list says.
#[test]
fn capabilities_have_their_use() {
    need!(machine::root());
    let setpriv = need!(machine::program("setpriv"));
    let listed =
        process::run(Command::new(machine::pebs_trace()).args(["doctor", "--capabilities"]));
    let names = listed
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("CAP_"));
    let names: Vec<String> = names
        .map(|line| line.split(' ').next().unwrap().to_lowercase())
        .collect();
    assert!(names.len() > 5, "{}", listed.stdout);

    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let private = dir.path().join("private");
    fs::create_dir(&private).unwrap();
    let (tool, program) = (dir.path().join("pebs-trace"), private.join("target"));
    process::copy_program(&machine::pebs_trace(), &tool);
    process::copy_program(&Workload::build("system_calls").path, &program);
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let lock = pebs_tests::locks::Lock::recording();
    // Names of kernel functions, and what was printed.
    let record = |names: &[&String]| {
        let mut target = Command::new(&program).arg("100000").spawn().unwrap();
        let granted: String = names.iter().map(|it| format!(",+{it}")).collect();
        let granted = format!("-all{granted}");
        let trace = dir.path().join("trace");
        let _ = fs::remove_dir_all(&trace);
        let done = process::run(
            Command::new(&setpriv)
                .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
                .args(["--inh-caps", &granted, "--ambient-caps", &granted])
                .args(["--bounding-set", &granted, "--"])
                .arg(&tool)
                .args([
                    "--uprobe",
                    "target:handle",
                    "--reset",
                    "50000",
                    "--duration",
                    "1",
                ])
                .args(["--force", "--pid", &target.id().to_string(), "-o"])
                .arg(&trace)
                .current_dir(dir.path()),
        );
        target.kill().unwrap();
        target.wait().unwrap();
        let named = (done.code() == Some(0)).then(|| {
            let trace = pebs_tests::trace::Trace::open(&trace);
            trace
                .system_calls()
                .keys()
                .filter(|it| trace.function_names().contains_key(it))
                .count()
        });
        (named, done.stderr)
    };
    let all: Vec<&String> = names.iter().collect();
    let (named, said) = record(&all);
    assert!(named.is_some_and(|it| it > 1), "{named:?} {said}");
    for taken in ["sys_admin", "dac_read_search", "syslog"] {
        let rest: Vec<&String> = all.iter().copied().filter(|it| *it != taken).collect();
        assert_eq!(rest.len() + 1, all.len(), "{taken}");
        let (named, said) = record(&rest);
        let holds = match taken {
            // Older kernels accept CAP_PERFMON for uprobes.
            "sys_admin" if named.is_some() => machine::kernel(6, 18).is_err(),
            "sys_admin" => said.contains("CAP_SYS_ADMIN"),
            "dac_read_search" => named.is_none() && said.contains("target"),
            // Functions of the tool's own are known without.
            _ => named.is_some_and(|it| it <= 1),
        };
        assert!(holds, "without {taken}: {named:?} {said}");
    }
    drop(lock);
}
