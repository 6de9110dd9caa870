//! Debug information that only a debuginfod server has.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pebs_tests::locks::Lock;
use pebs_tests::process::{self, Finished, Running};
use pebs_tests::recording::Recorder;
use pebs_tests::trace::Trace;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};
use tempfile::TempDir;

const PORT: &str = "8002";

/// A stripped program, and a server with its debug file. The server is in a network namespace, so only processes that
/// enter it can reach it on the loopback.
struct Server {
    place: TempDir,
    server: Running,
}

impl Server {
    fn start() -> Result<Self, String> {
        for program in ["debuginfod", "debuginfod-find", "unshare", "nsenter", "ip"] {
            machine::program(program)?;
        }
        let place = tempfile::tempdir().expect("temporary directory is writable");
        let [files, program, debug] =
            ["files", "batches", "files/batches.debug"].map(|name| place.path().join(name));
        fs::create_dir(&files).expect("writable");
        process::copy_program(&Workload::build("batches").path, &program);
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([&program, &debug]));
        run(Command::new("strip").arg("-s").arg(&program));
        let script = "ip link set lo up && exec debuginfod -F -d :memory: -p $0 \"$1\"";
        let server = Running::start(
            Command::new("unshare")
                .args(["--net", "--", "sh", "-c", script, PORT])
                .arg(&files),
        );
        let it = Self { place, server };
        it.wait_until_it_knows();
        Ok(it)
    }

    fn program(&self) -> PathBuf {
        self.place.path().join("batches")
    }

    /// Words that start a program in the server's network, with the client's cache in a folder.
    fn enter(&self, cache: &str) -> Vec<String> {
        let cache = self.place.path().join(cache);
        [
            "nsenter".to_owned(),
            format!("--net=/proc/{}/ns/net", self.server.pid()),
            "env".to_owned(),
            format!("DEBUGINFOD_URLS=http://127.0.0.1:{PORT}"),
            format!("DEBUGINFOD_CACHE_PATH={}", cache.display()),
        ]
        .into()
    }

    fn recorder(&self, args: &str, cache: &str) -> Recorder {
        let spec = format!("{}:serve({args})", self.program().display());
        let starter = self.enter(cache);
        let starter: Vec<&str> = starter.iter().map(String::as_str).collect();
        Recorder::new(&spec).beside().started_by(&starter)
    }

    /// Waits until the server has indexed its files, which it does after it has started to listen. A client caches
    /// failures for a while, so each attempt has its own cache.
    fn wait_until_it_knows(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        for attempt in 0.. {
            let words = self.enter(&format!("attempt-{attempt}"));
            let mut find = Command::new(&words[0]);
            find.args(&words[1..])
                .args(["debuginfod-find", "debuginfo"]);
            let found = process::run(find.arg(self.program()));
            if found.status.success() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "the server does not know the file\n{found}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn run(command: &mut Command) -> Finished {
    let done = process::run(command);
    assert!(done.status.success(), "{done}");
    done
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

/// The function's name, its arguments' types and the names in the trace come from the server; a second recording finds
/// them in the client's cache, without the server.
#[test]
fn from_a_server() {
    need!(machine::root());
    let server = need!(Server::start());
    for args in ["ids=b->ids[b->n], n=n", "ids=ids[n]"] {
        let recorder = server.recorder(args, "cache");
        let recording = recorder.command(&server.program(), &["60"]);
        let trace = recording.trace();
        let asked = recording
            .tool
            .stderr
            .contains("debuginfod gave 1 debug file");
        assert_eq!(asked, args.contains("b->"), "{}", recording.tool);
        check::no_mark_lost(&trace);
        assert_eq!(trace.visits().len(), 60, "{}", recording.tool);
        let items: Vec<u64> = trace
            .batch_items()
            .iter()
            .filter_map(|it| it.item_id)
            .collect();
        let expected: u64 = (1..=60).map(|batch| [1, 8, 0, 32, 40][batch % 5]).sum();
        assert_eq!(items.len() as u64, expected);
        let names = trace.function_names();
        assert!(names.values().any(|name| name == "serve"), "{names:?}");
        server.server.signal(process::Signal::STOP);
    }
    server.server.signal(process::Signal::CONT);
    assert!(!is_empty(&server.place.path().join("cache")));
}

/// A file that no server has is reported, with advice; so is a missing client.
#[test]
fn nowhere() {
    need!(machine::root());
    let server = need!(Server::start());
    let other = server.place.path().join("other");
    let source = server.place.path().join("other.c");
    fs::write(
        &source,
        "int serve(int n) { return n; } int main(void) { return serve(0); }",
    )
    .expect("writable");
    run(Command::new("cc")
        .args(["-O0", "-o"])
        .arg(&other)
        .arg(&source));
    let spec = format!("{}:serve(n=n)", other.display());
    let words = server.enter("cache");
    let record = |more: &[&str]| {
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(more)
            .arg(machine::pebs_trace());
        process::run(command.args(["--uprobe", &spec, "--"]).arg(&other))
    };
    let done = record(&[]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("has no debug information"), "{done}");
    assert!(
        done.stderr.contains("hint: debuginfod has none either"),
        "{done}"
    );
    let done = record(&["PATH=/nonexistent"]);
    assert_eq!(done.code(), Some(2), "{done}");
    let hint = done.stderr.lines().find(|line| line.starts_with("hint:"));
    assert!(
        hint.is_some_and(|hint| hint.contains("debuginfod-find is not installed")),
        "{done}"
    );
}

/// Binaries of a recording of perf's are named by the server's debug files, too.
#[test]
fn of_a_recording() {
    need!(machine::root());
    let perf = need!(machine::program("perf"));
    let server = need!(Server::start());
    let [data, out] = ["perf.data", "imported"].map(|name| server.place.path().join(name));
    let mut record = Command::new(perf);
    record
        // perf 6.1 falls over eBPF programs that go while it looks at them.
        .args(["record", "-q", "--no-bpf-event"])
        .args(["-e", "cpu-clock", "-c", "100000", "-o"])
        .arg(&data);
    let lock = Lock::recording();
    run(record.arg("--").arg(server.program()).arg("200"));
    drop(lock);
    let words = server.enter("cache");
    let mut import = Command::new(&words[0]);
    import
        .args(&words[1..])
        .arg(machine::pebs_trace())
        .arg("import");
    let done = run(import.arg(&data).arg("-o").arg(&out));
    let names = Trace::open(&out).function_names();
    assert!(
        names.values().any(|name| name == "serve"),
        "{names:?}\n{done}"
    );
}
