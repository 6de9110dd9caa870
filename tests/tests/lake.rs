//! A lake as its users see it: in an S3 server behind a network that fails, and in a directory that DuckDB and pandas read.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use pebs_tests::process::{self, Finished};
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::store::{Fault, Proxy, S3};
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need};

/// Failures of requests on a bad night: more than half of them.
const NIGHT: [Fault; 9] = [
    Fault::Unavailable,
    Fault::Unheard,
    Fault::Pass,
    Fault::CutRequest,
    Fault::CutAnswer,
    Fault::Pass,
    Fault::Slow,
    Fault::Unheard,
    Fault::Pass,
];

/// Rows of each table of a trace and of a lake, by both readers, without what is the lake's: host and date.
const COMPARE: &str = r"
import sys, glob, os, duckdb, pandas
trace, lake = sys.argv[1:]
sql = duckdb.connect()
tables = 0
for table in sorted(it for it in os.listdir(trace) if os.path.isdir(f'{trace}/{it}')):
    local = f'{trace}/{table}/*.parquet'
    there = f'{lake}/{table}/date=*/host=*/*.parquet'
    rows = sql.execute(f'select count(*) from read_parquet({local!r})').fetchone()[0]
    if rows == 0:
        assert not glob.glob(there), there
        continue
    tables += 1
    a = f'select * from read_parquet({local!r})'
    b = f'select * exclude (date, host) from read_parquet({there!r}, hive_partitioning = true)'
    for one, other in [(a, b), (b, a)]:
        more = sql.execute(f'select count(*) from (({one}) except all ({other}))').fetchone()[0]
        assert more == 0, (table, more)
    files = lambda pattern: [pandas.read_parquet(it, partitioning=None) for it in sorted(glob.glob(pattern))]
    pandas.testing.assert_frame_equal(
        pandas.concat(files(local), ignore_index=True), pandas.concat(files(there), ignore_index=True))
manifest = sql.execute(f'''select trace_id, items, labels['version'], host, date::text, len(objects)
    from read_parquet('{lake}/traces/date=*/host=*/*.parquet', hive_partitioning = true)''').fetchall()
print(tables, manifest)
";

/// Groups of `explain --by` by the views of the Python package: their items and mean durations.
const GROUPS: &str = r"
import sys, pebs_trace
lake = pebs_trace.Lake(sys.argv[1])
connection = lake.duckdb()
found = connection.sql('''select t.labels['version'] as version, sum(i.items), sum(i.duration_ns) / sum(i.items)
    from fleet_items i join traces t on i.trace_id = t.trace_id and i.host = t.host group by t.labels['version']''').fetchall()
found = {version: (items, mean) for version, items, mean in found}
(probe,) = lake.explain('version')['probes']
assert len(probe['groups']) == len(found) == 2, found
for group in probe['groups']:
    items, mean = found[group['value']]
    assert group['items'] == items and abs(group['mean_ns'] / mean - 1) < 1e-9, (group, items, mean)
(sampled,), = connection.sql('select sum(samples) from fleet_functions').fetchall()
assert sampled > 100, sampled
(counted,), = connection.sql('select sum(items) from fleet_durations').fetchall()
assert counted == probe['items'], (counted, probe['items'])
(listed,), = connection.sql('select sum(items) from traces').fetchall()
assert listed == counted, (listed, counted)
";

fn recording(workload: &Workload) -> Recording {
    recording_with(workload, &[])
}

fn recording_with(workload: &Workload, args: &[&str]) -> Recording {
    let (recording, _) = Recorder::new(&workload.spec("process_query(id=*(arg1):u64)"))
        .args(&["--event", "cpu-clock", "--reset", "50000"])
        .args(args)
        .workload(workload, &["100"]);
    let _ = recording.trace();
    recording
}

/// `pebs-trace` with the store at this address.
fn with_store(address: SocketAddr, args: &[&str]) -> Finished {
    let mut command = Command::new(machine::pebs_trace());
    S3::used_by(&mut command, address);
    let done = process::run(command.args(args));
    assert!(
        !done.stdout.contains("very-secret") && !done.stderr.contains("very-secret"),
        "{done}"
    );
    done
}

/// A command prints the same of a trace and of what a lake has of it; returns kB that it read, and of all objects.
fn reads_the_same(
    args: &[&str],
    trace: &str,
    id: &str,
    tool: impl Fn(&[&str]) -> Finished,
) -> (f64, f64) {
    let with = |trace: &str| [&args[..1], &[trace], &args[1..]].concat().join("\u{1f}");
    let run = |words: String| tool(&words.split('\u{1f}').collect::<Vec<_>>());
    let (local, there) = (run(with(trace)), run(with(id)));
    assert_eq!(local.code(), there.code(), "{local}\n{there}");
    // Lines are broken elsewhere if names have another length.
    let words = |it: &Finished| {
        let text = it.stdout.replace(trace, "T").replace(id, "T");
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(&local), words(&there));
    let read = there
        .stderr
        .lines()
        .find(|it| it.starts_with("read "))
        .unwrap();
    let words: Vec<&str> = read.split(' ').collect();
    let size = |at: usize| {
        let number: f64 = words[at].parse().unwrap();
        match words[at + 1] {
            "B" => number / 1e3,
            "kB" => number,
            "MB" => number * 1e3,
            other => panic!("{other}: {read}"),
        }
    };
    (size(1), size(4))
}

fn files(lake: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![lake.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path
                    .strip_prefix(lake)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                all.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    all
}

/// DuckDB and pandas read from a lake what they read from the trace, table by table; a second push has nothing to do.
#[test]
fn directory() {
    need!(machine::root());
    let python = need!(machine::python(&["duckdb", "pandas", "pyarrow"]));
    let recording = recording(&Workload::build("query"));
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake").display().to_string();
    let trace = recording.dir().display().to_string();
    let args = [
        "push",
        &trace,
        "--to",
        &lake,
        "--host",
        "web-1",
        "--label",
        "version=1.2",
    ];
    let first = pebs_trace(args);
    assert_eq!(first.code(), Some(0), "{first}");
    let second = pebs_trace(args);
    assert!(second.stdout.contains("nothing to push"), "{second}");
    let mut compare = Command::new(python);
    let done = process::run(compare.args(["-c", COMPARE, &trace, &lake]));
    assert_eq!(done.code(), Some(0), "{done}");
    assert!(done.stdout.contains("'1.2', 'web-1'"), "{done}");
    let listed = pebs_trace(["traces", &lake]);
    assert!(listed.stdout.contains("web-1"), "{listed}");
    let none = pebs_trace(["traces", &lake, "--host", "web-2"]);
    assert!(!none.stdout.contains("web-"), "{none}");
    let (_, id) = first.stdout.trim_end().rsplit_once(": ").unwrap();
    let same = |args: &[&str]| reads_the_same(args, &trace, id, |args| pebs_trace(args));
    same(&["report"]);
    same(&["explain", "--format", "json"]);
    let (read, all) = same(&["info"]);
    assert!(read < all, "{read} of {all} kB");
    let bare = id.replace("web-1/", "");
    assert_eq!(pebs_trace(["info", &bare]).code(), Some(0));
    let other = format!("{}0", &id[..id.len() - 1]);
    let other = pebs_trace(["info", &other]);
    assert_eq!(other.code(), Some(2), "{other}");
}

/// Groups of many traces are the same for the command and in SQL, and the command reads only a part of the objects.
#[test]
fn groups() {
    need!(machine::root());
    let python = need!(machine::python(&["duckdb", "pyarrow"]));
    let workload = Workload::build("query");
    let place = tempfile::tempdir().unwrap();
    let lake = place.path().join("lake").display().to_string();
    for version in ["1", "2"] {
        let recording = recording_with(&workload, &["--keep", "none"]);
        let trace = recording.dir().display().to_string();
        for n in 1..=2 {
            let (host, label) = (format!("web-{version}{n}"), format!("version={version}"));
            let args = [
                "push", &trace, "--to", &lake, "--host", &host, "--label", &label,
            ];
            let done = pebs_trace(args);
            assert_eq!(done.code(), Some(0), "{done}");
        }
    }
    let text = pebs_trace(["explain", &lake, "--by", "version"]);
    assert_eq!(text.code(), Some(0), "{text}");
    assert!(text.stdout.contains("4 of 4 hosts"), "{text}");
    assert!(text.stderr.starts_with("read "), "{text}");
    let none = pebs_trace(["explain", &lake, "--by", "rack"]);
    assert_eq!(none.code(), Some(2), "{none}");
    assert!(none.stderr.contains("no trace has 'rack'"), "{none}");
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../pebs-user/python");
    let mut sql = Command::new(python);
    sql.env("PYTHONPATH", package)
        .env("PEBS_TRACE", machine::pebs_trace());
    let done = process::run(sql.args(["-c", GROUPS, &lake]));
    assert_eq!(done.code(), Some(0), "{done}");
}

/// In a generated fleet the items are those of the truth, and what was planted is found: by version a function, since the hour
/// from which on it takes longer, and by host a wait.
#[test]
fn generated_fleet() {
    need!(machine::root());
    let generator = need!(machine::example("generate_lake"));
    let place = tempfile::tempdir().unwrap();
    let none = ["--keep", "none", "--event", "cpu-clock", "--reset", "50000"];
    let record = |name: &str, item: &str, args: &[&str]| {
        let workload = Workload::build(name);
        let recorder = Recorder::new(&workload.spec(item)).args(&none);
        recorder.workload(&workload, args).0
    };
    let query = record("query", "process_query(id=*(arg1):u64)", &["100"]);
    let mixed = record("mixed", "handle(id=*(arg1):u64)", &["5000"]);
    let at = |name: &str| place.path().join(name).display().to_string();
    let (lake, begin) = (at("lake"), 1_772_323_200);
    let plan = serde_json::json!({
        "lake": lake, "hosts": 12, "hours": 4, "begin": "2026-03-01T00:00:00Z", "range-s": 600, "repeats": 3, "seed": 1,
        "threads": 2, "truth": at("truth.json"),
        "services": { "query": [query.dir()], "mixed": [mixed.dir()] },
        "faults": [
            { "service": "query", "who": { "version": "2.0" }, "function": "f3", "factor": 2, "from-hour": 2 },
            { "service": "mixed", "who": { "hosts": 1 }, "function": "clock_nanosleep", "wait": "sleeping", "factor": 8,
              "from-hour": 0 },
        ],
    });
    fs::write(at("plan.json"), plan.to_string()).unwrap();
    let done = process::run(Command::new(generator).arg(at("plan.json")));
    assert_eq!(done.code(), Some(0), "{done}");
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let truth = read(&fs::read_to_string(at("truth.json")).unwrap());
    let explained = |by: &str, item: &str| {
        let found = pebs_trace(["explain", &lake, "--by", by, "--format", "json"]);
        assert_eq!(found.code(), Some(0), "{found}");
        let found = read(&found.stdout);
        let mut probes = found["probes"].as_array().unwrap().iter();
        let of_item = |it: &&serde_json::Value| it["spec"].as_str().unwrap().contains(item);
        probes.find(of_item).unwrap().clone()
    };
    let by_host = explained("host", "handle");
    for group in by_host["groups"].as_array().unwrap() {
        let made = &truth["hosts"][group["value"].as_str().unwrap()];
        assert_eq!(group["items"], made["items"]);
        let mean = made["duration_ns"].as_f64().unwrap() / made["items"].as_f64().unwrap();
        let ratio = group["mean_ns"].as_f64().unwrap() / mean;
        assert!((ratio - 1.0).abs() < 1e-9, "{group} {made}");
    }
    let hosts = truth["hosts"].as_object().unwrap();
    let slow = hosts
        .iter()
        .filter(|it| it.1["faults"] == serde_json::json!([1]));
    let slow: Vec<&String> = slow.map(|it| it.0).collect();
    assert_eq!(by_host["groups"][0]["value"], *slow[0], "{by_host}");
    // Among six hosts another one may be named by chance.
    let found = &by_host["slower"][0];
    let values = found["values"].as_array().unwrap();
    assert!(
        values.iter().any(|it| it == slow[0]) && values.len() <= 2,
        "{by_host}"
    );
    let cause = &found["causes"][0];
    assert_eq!(cause["name"], "clock_nanosleep", "{cause}");
    assert_eq!(cause["state"], "sleeping", "{cause}");
    let times = cause["here"].as_f64().unwrap() / cause["others"].as_f64().unwrap();
    assert!((3.0..9.0).contains(&times), "{cause}");
    let by_version = explained("version", "process_query");
    let found = &by_version["slower"][0];
    assert_eq!(found["values"], serde_json::json!(["2.0"]), "{by_version}");
    assert_eq!(found["causes"][0]["name"], "f3", "{by_version}");
    let since = found["since_ns"].as_i64().unwrap() / 1_000_000_000 - begin;
    assert!((since - 2 * 3600).abs() <= 600, "{since} s");
}

/// In a night of 503, cut connections and lost answers a push ends with the same objects as in a directory, each once.
#[test]
fn bad_night() {
    need!(machine::root());
    let program = need!(machine::s3_server());
    let recording = recording(&Workload::build("query"));
    let place = tempfile::tempdir().unwrap();
    let trace = recording.dir().display().to_string();
    let lake = place.path().join("lake");
    let push = |to: &str| {
        [
            "push".to_owned(),
            trace.clone(),
            "--to".to_owned(),
            to.to_owned(),
        ]
    };
    let local = pebs_trace(push(&lake.display().to_string()));
    assert_eq!(local.code(), Some(0), "{local}");
    let s3 = S3::start(&program);
    let proxy = Proxy::start(s3.address(), &NIGHT);
    let address = format!("s3://{}/deep/lake", S3::BUCKET);
    let args = push(&address);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = with_store(proxy.address(), &args);
    assert_eq!(done.code(), Some(0), "{done}");
    let expected = files(&lake);
    assert!(
        proxy.requests() > expected.len(),
        "{} requests",
        proxy.requests()
    );
    let there = s3.objects().into_iter();
    let there: BTreeMap<String, Vec<u8>> = there
        .map(|(name, data)| (name.trim_start_matches("deep/lake/").to_owned(), data))
        .collect();
    assert_eq!(
        there.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    for (name, data) in &expected {
        let (there, here) = (&there[name], data);
        assert!(
            there == here,
            "{name}: {} bytes, {} expected",
            there.len(),
            here.len()
        );
    }
    let again = with_store(proxy.address(), &args);
    assert!(again.stdout.contains("nothing to push"), "{again}");
    let listed = with_store(proxy.address(), &["traces", &address, "--format", "json"]);
    assert_eq!(listed.code(), Some(0), "{listed}");
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let id = listed[0]["trace"].as_str().unwrap();
    let tool = |args: &[&str]| with_store(proxy.address(), args);
    reads_the_same(&["report"], &trace, id, tool);
    reads_the_same(&["explain"], &trace, id, tool);
}

/// A store that does not let us in, that has no such bucket, or that is not there, is one line with a hint; nothing is lost.
#[test]
fn no_store() {
    need!(machine::root());
    let program = need!(machine::s3_server());
    let recording = recording(&Workload::build("query"));
    let trace = recording.dir().display().to_string();
    let s3 = S3::start(&program);
    let done = with_store(
        s3.address(),
        &["push", &trace, "--to", "s3://no-such-bucket/x"],
    );
    assert_eq!(done.code(), Some(2), "{done}");
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("error: ") && lines[1].starts_with("hint: "),
        "{done}"
    );
    assert!(done.stderr.contains("a bucket is not made"), "{done}");
}
