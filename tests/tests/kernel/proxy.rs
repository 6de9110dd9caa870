//! Debian's haproxy: one thread, many requests at a time, and one in twenty of them evaluates an expensive expression.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use pebs_tests::process::{Running, wait_until};
use pebs_tests::recording::{Recorder, Recording};
use pebs_tests::trace::flag;
use pebs_tests::{machine, need};
use rustix::process::Signal;
use tempfile::TempDir;

/// Connections, and requests of each.
const CLIENTS: usize = 4;
const REQUESTS: usize = 400;
/// One request in this many is expensive.
const EVERY: usize = 20;
/// Between answer and next request of a connection.
const PAUSE: Duration = Duration::from_millis(2);
/// Regular expressions that an expensive request evaluates.
const RULES: usize = 60;

/// A haproxy that answers by itself and logs the time of each request's stream handler, ns.
struct Proxy {
    process: Running,
    port: u16,
    _dir: TempDir,
}

impl Proxy {
    fn start(binary: &Path) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory is writable");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        let mut config = format!(
            "global\n nbthread 1\n profiling.tasks on\n log stdout format raw local0\n\
             defaults\n mode http\n timeout client 20s\n log global\n log-format \"%[cpu_ns_tot] %HP\"\n\
             frontend f\n bind 127.0.0.1:{port}\n acl slow path_beg /slow\n"
        );
        for i in 0..RULES {
            writeln!(
                config,
                " http-request set-var(txn.v{i}) 'path,regsub(\"([a-z]+)([0-9]*)([a-z]+)_\",\"q\",g)' if slow"
            )
            .expect("text");
        }
        config += " http-request return status 200 content-type text/plain string ok\n";
        let path = dir.path().join("haproxy.cfg");
        std::fs::write(&path, config).expect("temporary directory is writable");
        let mut command = Command::new(binary);
        let process = Running::start(command.arg("-db").arg("-f").arg(path));
        wait_until("haproxy accepts connections", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self {
            process,
            port,
            _dir: dir,
        }
    }

    /// Ends it: times of the stream handler of `/slow` and of other requests, sorted, ns.
    fn finish(self) -> [Vec<i64>; 2] {
        self.process.signal(Signal::TERM);
        let log = self.process.finish().stdout;
        let mut times = [Vec::new(), Vec::new()];
        for (ns, path) in log.lines().filter_map(|line| line.split_once(' ')) {
            if let Ok(ns) = ns.parse() {
                times[usize::from(!path.starts_with("/slow"))].push(ns);
            }
        }
        times.iter_mut().for_each(|it| it.sort_unstable());
        times
    }
}

/// Sends the requests, all clients at once.
fn requests(port: u16) {
    let slow = format!("/slow/{}", "abc12def_".repeat(200));
    let client = |number: usize| {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("haproxy accepts");
        stream.set_nodelay(true).expect("own socket");
        let mut reader = BufReader::new(stream);
        for n in 0..REQUESTS {
            let path = if (n + number).is_multiple_of(EVERY) {
                &slow
            } else {
                "/fast"
            };
            let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
            reader
                .get_mut()
                .write_all(request.as_bytes())
                .expect("haproxy reads");
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).expect("haproxy answers");
            }
            let mut body = [0; 2];
            reader.read_exact(&mut body).expect("haproxy answers");
            assert_eq!(&body, b"ok");
            thread::sleep(PAUSE);
        }
    };
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || client(number));
        }
    });
}

/// A recording of all requests, and haproxy's log of them.
fn record(binary: &Path, args: &[&str]) -> (Recording, [Vec<i64>; 2]) {
    let proxy = Proxy::start(binary);
    let spec = format!(
        "{}:stream_new%return(id=retval)..stream_free(id=arg1)",
        binary.display()
    );
    let live = Recorder::new(&spec)
        .args(&["--event", "cpu-clock", "--reset", "100000"])
        .args(args)
        .attach(proxy.process.pid());
    requests(proxy.port);
    let recording = live.stop();
    (recording, proxy.finish())
}

/// With `--resume` each request has the time of its stream's handler, and the expensive ones are those that take long on
/// the CPU.
#[test]
fn time_of_requests() {
    need!(machine::root());
    let binary = need!(machine::program("haproxy"));
    let resume = format!("{}:process_stream(id=arg2)", binary.display());
    let (recording, [slow, fast]) = record(&binary, &["--resume", &resume]);
    let visits = recording.trace().visits();
    let mut times: Vec<i64> = visits.iter().filter_map(|it| it.oncpu_ns).collect();
    times.sort_unstable();
    let expensive = CLIENTS * REQUESTS / EVERY;
    assert_eq!(slow.len(), expensive);
    // A stream waits for the next request of its connection, and the last one of each never gets any.
    assert!(
        times.len() >= slow.len() + fast.len(),
        "{} visits with a time, {} requests",
        times.len(),
        slow.len() + fast.len()
    );
    let middle = |sorted: &[i64]| sorted[sorted.len() / 2];
    let longest = &times[times.len() - expensive..];
    println!(
        "expensive: {} ns, haproxy says {}; others: {} ns, haproxy says {}",
        middle(longest),
        middle(&slow),
        middle(&times),
        middle(&fast)
    );
    let bias = middle(longest) as f64 / middle(&slow) as f64;
    assert!((0.8..1.25).contains(&bias), "{bias}");
}

/// Without it the time of overlapping requests is unknown, and the report names the missing option.
#[test]
fn without_resume() {
    need!(machine::root());
    let binary = need!(machine::program("haproxy"));
    let (recording, _) = record(&binary, &[]);
    let report = &recording.tool.stdout;
    assert!(report.contains("add --resume"), "{report}");
    let visits = recording.trace().visits();
    let (shared, alone): (Vec<_>, Vec<_>) = visits.iter().partition(|it| it.has(flag::TIME_SHARED));
    assert!(shared.len() > 100, "{} of {}", shared.len(), visits.len());
    assert!(shared.iter().all(|it| it.oncpu_ns.is_none()));
    assert!(alone.iter().all(|it| it.oncpu_ns.is_some()));
}
