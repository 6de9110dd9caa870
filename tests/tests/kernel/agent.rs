//! The agent: targets that start again, change their program or are waited for, traces that follow one another, a configuration
//! that changes, and `kill -9`. Items are counted against the workload's log.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pebs_tests::locks::Lock;
use pebs_tests::process::{self, Running, Signal};
use pebs_tests::recording::pebs_trace;
use pebs_tests::store::S3;
use pebs_tests::tmpfs::{Ext4, Tmpfs};
use pebs_tests::trace::Trace;
use pebs_tests::workload::{Waiting, Workload};
use pebs_tests::{check, machine, need};
use serde_json::Value;
use tempfile::TempDir;

/// Length of a measurement.
const PHASE: Duration = Duration::from_secs(15);

/// An agent with its directory and programs.
struct Service {
    place: TempDir,
    agent: Option<Running>,
    _lock: Lock,
}

impl Service {
    /// Copies of a workload under these names, which are targets. The agent does not run yet.
    fn new(names: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let workload = Workload::build("sleeper");
        for name in names {
            process::copy_program(workload.path(), &place.path().join(name));
        }
        let service = Self {
            place,
            agent: None,
            _lock: Lock::recording_beside(),
        };
        let targets: String = names.iter().map(|it| service.target(it, "slow")).collect();
        service.configure(&targets);
        service
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A table of the configuration.
    fn target(&self, name: &str, keep: &str) -> String {
        let path = self.path(name);
        format!(
            "[[target]]\nname = \"{name}\"\nexe = \"{}\"\nuprobe = [\"{name}:{}\"]\nkeep = \"{keep}\"\n",
            path.display(),
            super::ID
        )
    }

    /// Traces of three seconds, so that they follow one another in a test.
    fn configure(&self, targets: &str) {
        let place = self.place.path().display();
        let agent = format!(
            "[agent]\ndirectory = \"{place}/traces\"\nsocket = \"{place}/socket\"\nsegment = \"3s\"\noverlap = \"1s\"\n"
        );
        fs::write(self.path("agent.toml"), agent + targets).unwrap();
    }

    fn start(&mut self) {
        let mut command = Command::new(machine::pebs_trace());
        command
            .args(["agent", "--config"])
            .arg(self.path("agent.toml"));
        let mut agent = Running::start(&mut command);
        agent.wait_for_line("agent started");
        self.agent = Some(agent);
    }

    fn status(&self) -> Value {
        let socket = self.path("socket");
        let words = ["agent", "status", "--format", "json", "--socket"].map(OsStr::new);
        let status = pebs_trace(words.into_iter().chain([socket.as_os_str()]));
        serde_json::from_str(&status.stdout).unwrap()
    }

    fn signal(&self, signal: Signal) {
        self.agent.as_ref().unwrap().signal(signal);
    }

    /// Ends it as systemd would.
    fn stop(&mut self) {
        self.signal(Signal::TERM);
        let done = self.agent.take().unwrap().finish();
        assert_eq!(done.code(), Some(0), "{done}");
        assert!(!self.path("socket").exists(), "{done}");
    }

    /// A process of a target, which waits before its first item.
    fn run(&self, name: &str, items: usize) -> Waiting {
        let path = self.path(name);
        Workload { path }.start(&[&items.to_string()])
    }

    /// Rows of a target.
    fn rows(&self, target: Option<&str>, event: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path("traces/events.jsonl")).unwrap_or_default();
        let rows = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        rows.filter(|row: &Value| row["event"] == event && row["target"].as_str() == target)
            .collect()
    }

    /// Returns once a target has this many rows.
    fn until(&self, target: Option<&str>, event: &str, rows: usize) -> Vec<Value> {
        let what = format!("no {rows} rows {event} of {target:?}");
        process::wait_until(&what, || self.rows(target, event).len() >= rows);
        self.rows(target, event)
    }

    /// Returns once a trace of this process alone has begun.
    fn until_recorded(&self, target: &str, pid: u32) {
        let is_of = |row: &Value| row["pids"] == serde_json::json!([pid]);
        process::wait_until(
            &format!("process {pid} of {target} is not recorded"),
            || self.rows(Some(target), "started").iter().any(is_of),
        );
    }

    /// Adds lines to the table of the last target, and has segments last an hour.
    fn configure_long(&self, targets: &str) {
        self.configure(targets);
        let path = self.path("agent.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace("\"3s\"", "\"1h\"")).unwrap();
    }

    /// Asks on the socket; returns the number of the answer.
    fn post(&self, path: &str) -> String {
        let mut stream = UnixStream::connect(self.path("socket")).unwrap();
        write!(stream, "POST {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }

    /// Closed traces have items 1 to N of each process within their windows, each once, and no others.
    fn has_all(&self, target: &str, processes: &[(u32, usize)]) {
        let of = |(pid, items): &(u32, usize)| {
            let pid = u64::from(*pid);
            (1..=*items as u64).map(move |id| (pid, id))
        };
        let all: BTreeSet<(u64, u64)> = processes.iter().flat_map(of).collect();
        let found = self.items(target);
        let differ: Vec<_> = all.symmetric_difference(&found).collect();
        let rows = [
            self.rows(Some(target), "started"),
            self.rows(Some(target), "ended"),
        ];
        assert!(differ.is_empty(), "{differ:?}\n{rows:#?}");
    }

    /// Ids of the items that closed traces have within their windows: each comes once.
    fn items(&self, target: &str) -> BTreeSet<(u64, u64)> {
        let mut ids = BTreeSet::new();
        for row in self.rows(Some(target), "ended") {
            let trace = Trace::open(Path::new(row["trace"].as_str().unwrap()));
            check::ledger(&trace);
            check::no_mark_lost(&trace);
            let (from, until) = (row["from_ns"].as_i64().unwrap(), row["until_ns"].as_i64());
            let mut items = 0;
            for visit in trace.visits() {
                if visit.begin_ns >= from && visit.begin_ns < until.unwrap_or(i64::MAX) {
                    let is_new = ids.insert((visit.pid, visit.item_id));
                    assert!(is_new, "item {} twice: {row}", visit.item_id);
                    items += 1;
                }
            }
            assert_eq!(row["items"], items, "{row}");
            assert_eq!(row["unfinished"], 0, "{row}");
        }
        ids
    }
}

/// Two targets are waited for, recorded through several traces, and recorded again when they start again, one with a new
/// program beside the old one: every item that began once a recording ran is in one trace.
#[test]
fn targets_come_and_go() {
    need!(machine::root());
    let mut service = Service::new(&["web", "db"]);
    service.start();
    let (mut web, mut db) = (service.run("web", 4000), service.run("db", 1000));
    let (first, other) = (web.process.pid(), db.process.pid());
    for target in ["web", "db"] {
        let row = &service.until(Some(target), "started", 1)[0];
        assert!(row["unseen_s"].as_f64().is_some(), "{row}");
    }
    web.go();
    db.go();
    let _ = db.finish();
    // Its next process, while the first target goes on.
    let ended = service.until(Some("db"), "ended", 1).len();
    let mut db = service.run("db", 500);
    let again = db.process.pid();
    service.until_recorded("db", again);
    db.go();
    let _ = db.finish();
    service.until(Some("db"), "ended", ended + 1);
    // An upgrade: another file of the same name, while the old process runs.
    let new = service.path("new");
    process::copy_program(&service.path("web"), &new);
    let mut file = fs::OpenOptions::new().append(true).open(&new).unwrap();
    file.write_all(b"upgraded").unwrap();
    drop(file);
    fs::rename(&new, service.path("web")).unwrap();
    let mut upgraded = service.run("web", 500);
    let newest = upgraded.process.pid();
    service.until_recorded("web", newest);
    upgraded.go();
    let (done, truth) = upgraded.finish();
    assert_eq!((done.code(), truth.items.len()), (Some(0), 500), "{done}");
    let (done, truth) = web.finish();
    assert_eq!((done.code(), truth.items.len()), (Some(0), 4000), "{done}");
    let status = pebs_trace([
        "agent".as_ref(),
        "status".as_ref(),
        "--socket".as_ref(),
        service.path("socket").as_os_str(),
    ]);
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(status.stdout.contains(" web "), "{status}");
    service.stop();
    service.has_all("web", &[(first, 4000), (newest, 500)]);
    service.has_all("db", &[(other, 1000), (again, 500)]);
    let traces = service.rows(Some("web"), "ended").len();
    assert!(traces >= 3, "{traces} traces, one of the new program");
}

/// A changed target gets a new trace, without a gap, and others are not touched; a configuration with a fault changes nothing.
#[test]
fn reload() {
    need!(machine::root());
    let mut service = Service::new(&["web", "db"]);
    let same = service.target("db", "slow");
    service.configure_long(&(service.target("web", "slow") + &same));
    service.start();
    let (mut web, mut db) = (service.run("web", 3000), service.run("db", 3000));
    let (web_pid, db_pid) = (web.process.pid(), db.process.pid());
    service.until(Some("web"), "started", 1);
    service.until(Some("db"), "started", 1);
    web.go();
    db.go();
    service.configure_long(&format!("{}{same}key = 1\n", service.target("web", "all")));
    service.signal(Signal::HUP);
    let row = &service.until(None, "not_reloaded", 1)[0];
    let error = row["error"].as_str().unwrap();
    assert!(
        error.contains("agent.toml:") && error.contains("`key`"),
        "{error}"
    );
    service.configure_long(&(service.target("web", "all") + &same));
    service.signal(Signal::HUP);
    service.until(None, "reloaded", 1);
    let row = &service.until(Some("web"), "ended", 1)[0];
    assert_eq!(row["why"], "the next trace goes on", "{row}");
    let _ = (web.finish(), db.finish());
    service.until(Some("db"), "ended", 1);
    service.until(Some("web"), "ended", 2);
    service.stop();
    service.has_all("web", &[(web_pid, 3000)]);
    service.has_all("db", &[(db_pid, 3000)]);
    assert_eq!(service.rows(Some("db"), "ended").len(), 1);
    let kept = |row: &Value| row["kept"].as_u64();
    let ended = service.rows(Some("web"), "ended");
    assert!(
        kept(&ended[0]).is_some() && kept(&ended[1]).is_none(),
        "{ended:?}"
    );
}

/// `kill -9` of the agent harms no target. The next one closes the traces, which have what was recorded, and goes on.
#[test]
fn killed() {
    need!(machine::root());
    let alone = Workload::build("sleeper").run(&["20"]);
    let mut service = Service::new(&["web"]);
    service.start();
    let mut web = service.run("web", 4000);
    service.until(Some("web"), "started", 1);
    web.go();
    service.until(Some("web"), "started", 2);
    service.signal(Signal::KILL);
    let done = service.agent.take().unwrap().finish();
    assert_eq!(done.signal(), Some(9), "{done}");
    service.start();
    let recovered = service.until(Some("web"), "recovered", 1);
    assert!(recovered[0]["rows"].as_u64().unwrap() > 0, "{recovered:?}");
    service.until(Some("web"), "started", 3);
    let (done, truth) = web.finish();
    check::same_end(&done, &alone);
    assert_eq!(truth.items.len(), 4000);
    service.stop();
    let mut ids = BTreeSet::new();
    let traces = fs::read_dir(service.path("traces/web")).unwrap();
    for trace in traces {
        let trace = Trace::open(&trace.unwrap().path());
        ids.extend(trace.visits().iter().map(|it| it.item_id));
    }
    // All but those of the time without an agent.
    assert!(ids.len() > 1000, "{}", ids.len());
    assert_eq!(ids.first(), Some(&1));
    assert_eq!(ids.last(), Some(&4000));
}

/// Adds keys to the table `[agent]`.
fn add_keys(service: &Service, keys: &str) {
    let path = service.path("agent.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replace("segment =", &format!("{keys}\nsegment =")),
    )
    .unwrap();
}

/// Items of a target that the lake counts, by its manifests, and how many traces it has.
fn in_lake(service: &Service) -> (u64, usize) {
    let lake = service.path("lake");
    let listed = pebs_trace([
        "traces".as_ref(),
        lake.as_os_str(),
        "--format".as_ref(),
        "json".as_ref(),
    ]);
    assert_eq!(listed.code(), Some(0), "{listed}");
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    for it in &listed {
        assert_eq!(it["host"], "web-1", "{it}");
        assert_eq!(
            (&it["target"], &it["labels"]["version"]),
            (&"web".into(), &"1.2".into())
        );
    }
    (
        listed.iter().map(|it| it["items"].as_u64().unwrap()).sum(),
        listed.len(),
    )
}

/// Closed traces come into the lake, each once, with the items of their windows, through the end of one agent and the start of
/// the next.
#[test]
fn lake() {
    need!(machine::root());
    let mut service = Service::new(&["web"]);
    let lake = service.path("lake");
    let keys = format!(
        "to = \"{}\"\nhost = \"web-1\"\nlabels = {{ version = \"1.2\" }}",
        lake.display()
    );
    add_keys(&service, &keys);
    service.start();
    let mut web = service.run("web", 3000);
    let pid = web.process.pid();
    service.until(Some("web"), "started", 1);
    web.go();
    service.until(Some("web"), "pushed", 1);
    let _ = web.finish();
    service.stop();
    service.has_all("web", &[(pid, 3000)]);
    let ended = service.rows(Some("web"), "ended");
    service.until(Some("web"), "pushed", ended.len());
    assert_eq!(in_lake(&service), (3000, ended.len()));
    // All is there: the next agent brings nothing again.
    service.start();
    let socket = service.path("socket");
    process::wait_until("agent status does not name the lake", || {
        let args = [
            "agent".as_ref(),
            "status".as_ref(),
            "--socket".as_ref(),
            socket.as_os_str(),
        ];
        pebs_trace(args).stdout.contains("lake: 0 traces")
    });
    service.stop();
    assert_eq!(service.rows(Some("web"), "pushed").len(), ended.len());
    assert_eq!(service.rows(Some("web"), "not_pushed").len(), 0);
}

/// A store that takes requests and never answers holds up neither recordings nor the end of the agent; what waits is brought by
/// the next one, with the windows of its traces.
#[test]
fn hung_store() {
    need!(machine::root());
    let mut service = Service::new(&["web"]);
    let store = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = store.local_addr().unwrap();
    let held = std::thread::spawn(move || store.incoming().take(1).collect::<Vec<_>>());
    add_keys(&service, "to = \"s3://bucket/lake\"");
    let mut command = Command::new(machine::pebs_trace());
    S3::used_by(&mut command, address);
    command
        .args(["agent", "--config"])
        .arg(service.path("agent.toml"));
    let mut agent = Running::start(&mut command);
    agent.wait_for_line("agent started");
    service.agent = Some(agent);
    let mut web = service.run("web", 3000);
    let pid = web.process.pid();
    service.until(Some("web"), "started", 1);
    web.go();
    let _ = web.finish();
    // It hangs.
    let held = held.join().unwrap();
    let begin = Instant::now();
    service.stop();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    drop(held);
    service.has_all("web", &[(pid, 3000)]);
    assert_eq!(service.rows(Some("web"), "pushed").len(), 0);
    let path = service.path("agent.toml");
    let text = fs::read_to_string(&path).unwrap();
    let lake = format!(
        "{}\"\nhost = \"web-1\"\nlabels = {{ version = \"1.2\" }}",
        service.path("lake").display()
    );
    fs::write(&path, text.replace("s3://bucket/lake\"", &lake)).unwrap();
    service.start();
    let ended = service.rows(Some("web"), "ended").len();
    service.until(Some("web"), "pushed", ended);
    service.stop();
    assert_eq!(in_lake(&service), (3000, ended));
}

/// Traces have no more than `max-disk` together, whatever a target writes; what was removed is a row.
#[test]
fn disk_budget() {
    need!(machine::root());
    let mut service = Service::new(&["web"]);
    let targets = service.target("web", "all");
    service.configure(&targets);
    let path = service.path("agent.toml");
    let text = fs::read_to_string(&path).unwrap();
    let small = text.replace("segment =", "max-disk = \"4MiB\"\nsegment =");
    fs::write(&path, small).unwrap();
    service.start();
    let mut web = service.run("web", 1_000_000);
    service.until(Some("web"), "started", 1);
    web.go();
    let removed = service.until(None, "removed", 2);
    assert!(
        removed.iter().all(|row| row["because"] == "size"),
        "{removed:?}"
    );
    for row in removed {
        assert!(!Path::new(row["trace"].as_str().unwrap()).exists(), "{row}");
    }
    web.process.signal(Signal::KILL);
    service.stop();
}

/// While the disk is full, nothing is recorded and no target notices; that is reported, and recording goes on once there is room.
#[test]
fn full_disk() {
    need!(machine::root());
    let disk = need!(Tmpfs::mount("200m"));
    let alone = Workload::build("sleeper").run(&["20"]);
    let mut service = Service::new(&["web"]);
    let traces = service.path("traces");
    std::os::unix::fs::symlink(disk.path(), traces).unwrap();
    service.start();
    let mut web = service.run("web", 8000);
    service.until(Some("web"), "started", 1);
    web.go();
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![1; 150 << 20]).unwrap();
    service.until(None, "no_room", 1);
    let ended = service.rows(Some("web"), "started").len();
    service.until(Some("web"), "ended", ended);
    fs::remove_file(&filler).unwrap();
    service.until(None, "room", 1);
    service.until(Some("web"), "started", ended + 1);
    let (done, truth) = web.finish();
    check::same_end(&done, &alone);
    assert_eq!(truth.items.len(), 8000);
    service.stop();
    let ended = service.rows(Some("web"), "ended");
    let full = |row: &&Value| row["why"] == "the disk is full";
    assert_eq!(ended.iter().filter(full).count(), 1, "{ended:?}");
    for row in ended {
        let trace = Trace::open(Path::new(row["trace"].as_str().unwrap()));
        check::ledger(&trace);
        check::no_mark_lost(&trace);
    }
}

/// A disk that is filled to its last byte from one moment to the next: what was closed is whole, the target does not notice, and
/// it goes on once there is room.
#[test]
fn filled_disk() {
    need!(machine::root());
    let disk = need!(Ext4::mount(300));
    let alone = Workload::build("sleeper").run(&["20"]);
    let mut service = Service::new(&["web"]);
    std::os::unix::fs::symlink(disk.path(), service.path("traces")).unwrap();
    service.start();
    let mut web = service.run("web", 12_000);
    service.until(Some("web"), "started", 1);
    web.go();
    let closed = service.until(Some("web"), "ended", 1);
    let filler = disk.path().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    let full = std::iter::repeat_with(|| file.write_all(&[1; 1 << 16])).find_map(Result::err);
    assert_eq!(full.unwrap().kind(), std::io::ErrorKind::StorageFull);
    drop(file);
    std::thread::sleep(Duration::from_secs(8));
    let status = service.status();
    assert_ne!(status["targets"][0]["state"], "records", "{status}");
    fs::remove_file(&filler).unwrap();
    // Rows wait for room as well.
    service.until(None, "room", 1);
    service.until(None, "no_room", 1);
    let started = service.rows(Some("web"), "started").len();
    service.until(Some("web"), "started", started.max(2));
    let (done, truth) = web.finish();
    check::same_end(&done, &alone);
    assert_eq!(truth.items.len(), 12_000);
    service.stop();
    let ended = service.rows(Some("web"), "ended");
    assert!(ended.len() > closed.len(), "{ended:?}");
    let removed = service.rows(None, "removed");
    let is_removed = |row: &Value| removed.iter().any(|it| it["trace"] == row["trace"]);
    // Older ones made room.
    for row in ended.iter().filter(|row| !is_removed(row)) {
        let trace = Trace::open(Path::new(row["trace"].as_str().unwrap()));
        check::ledger(&trace);
    }
}

/// A disk that becomes read-only, without what was not on it yet: the target does not notice, the agent says so and goes on, and
/// what was closed before is whole.
#[test]
fn read_only_disk() {
    need!(machine::root());
    let disk = need!(Ext4::mount(200));
    let alone = Workload::build("sleeper").run(&["20"]);
    let mut service = Service::new(&["web"]);
    let traces = service.path("traces");
    std::os::unix::fs::symlink(disk.path(), traces).unwrap();
    service.start();
    let mut web = service.run("web", 8_000);
    service.until(Some("web"), "started", 1);
    web.go();
    let closed = service.until(Some("web"), "ended", 1);
    need!(disk.fail());
    process::wait_until("nothing failed", || {
        let status = service.status();
        status["targets"][0]["failures"].as_u64() > Some(0)
    });
    let (done, truth) = web.finish();
    check::same_end(&done, &alone);
    assert_eq!(truth.items.len(), 8_000);
    service.stop();
    disk.repair().unwrap();
    for row in &closed {
        let trace = Trace::open(Path::new(row["trace"].as_str().unwrap()));
        check::ledger(&trace);
        check::no_mark_lost(&trace);
    }
}

/// Snapshots are made upon the p99, a file, a call and a signal, and a row says why; `top` shows the target.
#[test]
fn triggers() {
    need!(machine::root());
    let mut service = Service::new(&["web"]);
    let file = service.path("now");
    let trigger = format!(
        "trigger = {{ p99 = \"1ms\", file = \"{}\" }}\n",
        file.display()
    );
    service.configure_long(&(service.target("web", "slow") + &trigger));
    service.start();
    let mut web = service.run("web", 1_000_000);
    service.until(Some("web"), "started", 1);
    assert_eq!(service.post("/snapshot?target=db"), "404");
    web.go();
    service.until(Some("web"), "snapshot", 1);
    fs::write(&file, "").unwrap();
    service.until(Some("web"), "snapshot", 2);
    assert_eq!(service.post("/snapshot?target=web"), "202");
    service.until(Some("web"), "snapshot", 3);
    service.signal(Signal::USR2);
    let rows = service.until(Some("web"), "snapshot", 4);
    let top = [
        "agent",
        "top",
        "--iterations",
        "2",
        "--every",
        "1s",
        "--socket",
    ]
    .map(OsStr::new);
    let socket = service.path("socket");
    let top = pebs_trace(top.into_iter().chain([socket.as_os_str()]));
    web.process.signal(Signal::KILL);
    service.until(Some("web"), "ended", 1);
    service.stop();
    let because: Vec<&str> = rows
        .iter()
        .map(|row| row["because"].as_str().unwrap())
        .collect();
    assert!(because[0].starts_with("p99 "), "{because:?}");
    let file = format!("file {}", file.display());
    assert_eq!(because[1..], [file.as_str(), "POST /snapshot", "signal"]);
    let whole = service.rows(Some("web"), "started")[0]["trace"].clone();
    let mut visits = 0;
    for row in rows {
        assert_eq!(row["of"], whole, "{row}");
        let trace = Trace::open(Path::new(row["trace"].as_str().unwrap()));
        let more = trace.visits().len();
        assert!(more > visits && more >= 100, "{visits}, {row}");
        visits = more;
    }
    let lines = top
        .stdout
        .lines()
        .filter(|line| line.trim_start().starts_with("web "));
    let lines: Vec<Vec<&str>> = lines.map(|it| it.split_whitespace().collect()).collect();
    assert_eq!((top.code(), lines.len()), (Some(0), 2), "{top}");
    assert!(
        lines
            .iter()
            .all(|it| it[1] == "records" && it[3] != "0" && it[3] != "-"),
        "{top}"
    );
}

/// Rounds of a byte between two threads, each of which two switches.
const ROUNDS: u32 = 2_000;

/// Times that they are made.
const BATCHES: u32 = 40;

/// ns that a round takes programs that are no targets.
fn round_ns() -> u128 {
    let ((mut read, mut write), (mut back, mut answer)) =
        (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let thread = std::thread::spawn(move || {
        let mut byte = [0];
        while matches!(read.read(&mut byte), Ok(1)) {
            answer.write_all(&byte).unwrap();
        }
    });
    let mut batch = || {
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            write.write_all(&[1]).unwrap();
            back.read_exact(&mut [0]).unwrap();
        }
        begin.elapsed()
    };
    // The least, as other programs take CPUs, too.
    let took = (0..BATCHES).map(|_| batch()).min().unwrap();
    drop(write);
    thread.join().unwrap();
    took.as_nanos() / u128::from(ROUNDS)
}

/// An agent and its targets, whose CPU time and memory are measured.
struct Takes {
    service: Service,
    targets: Vec<Waiting>,
}

impl Takes {
    /// So many targets, whose processes wait.
    fn new(targets: usize) -> Self {
        let names: Vec<String> = (0..targets).map(|n| format!("target{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let workload = Workload::build("shifts");
        let mut service = Service::new(&names);
        for name in &names {
            process::copy_program(workload.path(), &service.path(name));
        }
        let tables: String = names.iter().map(|it| service.target(it, "slow")).collect();
        service.configure_long(&tables);
        println!("without an agent: {} ns a round of others", round_ns());
        service.start();
        std::thread::sleep(Duration::from_secs(2));
        let mut takes = Self {
            service,
            targets: Vec::new(),
        };
        takes.phase("no target runs");
        // Five items a second, or five hundred, of 0.1 ms each.
        let args = ["5", "500", "2000", "100"];
        let run = |name: &&str| {
            Workload {
                path: takes.service.path(name),
            }
            .start(&args)
        };
        takes.targets = names.iter().map(run).collect();
        for name in &names {
            takes.service.until(Some(name), "started", 1);
        }
        std::thread::sleep(PHASE);
        takes
    }

    fn phase(&self, what: &str) {
        let before = self.service.status();
        let round = round_ns();
        std::thread::sleep(PHASE);
        let after = self.service.status();
        let of = |key: &str| after[key].as_f64().unwrap() - before[key].as_f64().unwrap();
        let sum = |health: &Value, key: &str| -> u64 {
            let targets = health["targets"].as_array().unwrap();
            targets.iter().map(|it| it[key].as_u64().unwrap()).sum()
        };
        let since = |key: &str| sum(&after, key) - sum(&before, key);
        println!(
            "{what}: {:.2} % of a CPU, {} MiB, {:.0} items/s, {} lost; {round} ns a round of others",
            of("cpu_seconds") / of("seconds") * 100.0,
            after["memory_bytes"].as_u64().unwrap() >> 20,
            since("items") as f64 / of("seconds"),
            since("lost"),
        );
    }

    /// The first of them begin.
    fn go(&mut self, targets: usize) {
        self.targets.iter_mut().take(targets).for_each(Waiting::go);
        std::thread::sleep(Duration::from_secs(4));
        self.phase(&format!("{targets} of {} at work", self.targets.len()));
    }

    fn stop(mut self) {
        self.targets
            .iter()
            .for_each(|it| it.process.signal(Signal::KILL));
        self.service.stop();
    }
}

/// Figures, for the measurements: what the agent takes with ten targets that wait, and with four of them at work.
#[test]
#[ignore = "prints figures"]
fn takes() {
    need!(machine::root());
    let mut takes = Takes::new(10);
    takes.phase("ten targets wait");
    takes.go(4);
    takes.stop();
}

/// The same of fifty targets, ten of them at work, beside ten thousand processes that sleep.
#[test]
#[ignore = "prints figures"]
fn takes_fifty() {
    need!(machine::root());
    let mut takes = Takes::new(50);
    takes.phase("fifty targets wait");
    let mut crowd = Running::start(Command::new(Workload::build("crowd").path()).arg("10000"));
    crowd.wait_for_line("ready");
    // Each is looked at in its first seconds.
    std::thread::sleep(PHASE);
    takes.phase("beside 10,000 processes");
    takes.go(10);
    crowd.signal(Signal::KILL);
    takes.stop();
}
