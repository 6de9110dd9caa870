//! Cache lines that threads share, by watched variables: who, which bytes, and how often, against the program's own count.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::process::Command;

use pebs_tests::locks::Lock;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::truth::Truth;
use pebs_tests::workload::{TruthFile, Workload};
use pebs_tests::{machine, need, process};
use serde_json::Value;

/// Items of each thread, and additions of each.
const ITEMS: &str = "40";
const ROUNDS: &str = "50";

/// The counters that a layout watches; without a length the first 8 bytes.
const SAME: &[&str] = &["pair", "left_own", "right_own"];
const BESIDE: &[&str] = &["pair/8", "pair+8/8", "left_own/8", "right_own/8"];
const PADDED: &[&str] = &["padded/8", "padded+64/8", "left_own/8", "right_own/8"];

/// Records every access to counters. `layout`: as the workload's.
fn record(watched: &[&str], share: u64, layout: &str) -> (Recording, Truth) {
    let events = watched.iter().map(|it| format!("mem:{it}:rw"));
    let args: Vec<String> = events.flat_map(|it| ["--event".to_owned(), it]).collect();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.extend(["--reset", "1", "--force"]);
    let workload = Workload::build("lines");
    let share = share.to_string();
    Recorder::new(&workload.spec(super::ID))
        .args(&args)
        .workload(&workload, &[ITEMS, ROUNDS, &share, layout])
}

/// The lines of the report, and its text.
fn report(dir: &std::path::Path) -> (Vec<Value>, String) {
    let of = |format: &str| {
        let args = ["report", "--by", "line", "--format", format];
        let args = args.iter().map(std::ffi::OsStr::new);
        let done = pebs_trace(args.chain([dir.as_os_str()]));
        assert_eq!(done.code(), Some(0), "{done}");
        done.stdout
    };
    let json: Value = serde_json::from_str(&of("json")).expect("JSON");
    let lines = json["lines"].as_array().expect("lines").clone();
    (lines, of("text"))
}

/// Function, operation, first byte and number of accesses of each thread that used a line beside others, by function.
fn accesses(line: &Value) -> Vec<(&str, &str, u64, u64)> {
    let threads = line["threads"].as_array().expect("threads");
    let mut found: Vec<_> = threads
        .iter()
        .filter(|thread| thread["at_once"] == true)
        .flat_map(|thread| thread["accesses"].as_array().expect("accesses"))
        .map(|it| {
            (
                it["function"]["name"].as_str().unwrap_or_default(),
                it["op"].as_str().expect("an operation"),
                it["offset"].as_u64().expect("an offset"),
                it["all"]["samples"].as_u64().expect("samples"),
            )
        })
        .collect();
    found.sort_unstable();
    found
}

/// Two counters on one line: both functions are named with their bytes, and as many accesses as the program made there; where
/// it made none, no line is named. Each thread's own counter never is.
#[test]
fn false_sharing() {
    need!(machine::root());
    for share in [0, 10, 50, 100] {
        let (recording, truth) = record(BESIDE, share, "1");
        let (lines, text) = report(&recording.dir());
        if share == 0 {
            assert!(lines.is_empty(), "{lines:#?}");
            assert!(text.contains("no cache line is shared"), "{text}");
            continue;
        }
        let [line] = &lines[..] else {
            panic!("{share} %: {lines:#?}\n{}", recording.tool)
        };
        let (left, right) = (truth.notes["left_meets"], truth.notes["right_meets"]);
        assert_eq!(left, 40 * 50 * share / 100);
        let wanted = [
            ("left", "load+store", 0, left),
            ("right", "load+store", 8, right),
        ];
        assert_eq!(accesses(line), wanted, "{text}");
        assert_eq!(line["sharing"], "false", "{line:#}");
        assert_eq!(line["data"]["symbol"], "pair");
        assert_eq!(line["contended"]["events"], left.min(right) as f64);
        assert_eq!(line["contended"]["events_stderr"], 0.0, "each is counted");
        let threads = line["threads"].as_array().expect("threads");
        for thread in threads.iter().filter(|it| it["at_once"] == true) {
            assert_eq!(thread["items"], 40, "{thread:#}");
        }
        assert!(text.contains("false sharing (0 % of conflicts"), "{text}");
        assert!(
            text.contains("hint: give what each thread stores"),
            "{text}"
        );
    }
}

/// One counter of both threads is true sharing; counters padded to lines of their own are never named.
#[test]
fn true_sharing_and_padding() {
    need!(machine::root());
    let (recording, truth) = record(SAME, 50, "0");
    let (lines, text) = report(&recording.dir());
    let [line] = &lines[..] else {
        panic!("{lines:#?}\n{}", recording.tool)
    };
    let wanted = ["left", "right"].map(|name| {
        let count = truth.notes[&format!("{name}_meets")];
        (name, "load+store", 0, count)
    });
    assert_eq!(accesses(line), wanted, "{text}");
    assert_eq!(line["sharing"], "true", "{line:#}");
    assert!(!text.contains("hint:"), "{text}");
    for share in [50, 100] {
        let (recording, _) = record(PADDED, share, "2");
        let (lines, text) = report(&recording.dir());
        assert!(lines.is_empty(), "{lines:#?}");
        assert!(text.contains("no cache line is shared"), "{text}");
    }
}

/// A recording of perf's own breakpoints is imported with what they watch.
#[test]
fn of_perf() {
    need!(machine::root());
    let perf = need!(machine::program("perf"));
    let setarch = need!(machine::program("setarch"));
    let nm = need!(machine::program("nm"));
    let workload = Workload::build("lines");
    let symbols = process::run(Command::new(nm).arg(workload.path()));
    let pair = symbols.stdout.lines().find(|it| it.ends_with(" pair"));
    let pair = pair.and_then(|it| u64::from_str_radix(it.split(' ').next()?, 16).ok());
    // Without address space randomization the program is always here.
    let pair = 0x5555_5555_4000 + pair.expect("a symbol");
    let place = tempfile::tempdir().expect("a folder");
    let [data, out] = ["perf.data", "trace"].map(|name| place.path().join(name));
    let truth = TruthFile::new();
    let mut command = Command::new(setarch);
    command
        .arg("-R")
        .arg(perf)
        .args(["record", "--no-bpf-event", "-c", "1"]);
    for address in [pair, pair + 8] {
        command.args(["-e", &format!("mem:{address:#x}/8:rw:u")]);
    }
    command.arg("-o").arg(&data).arg("--").arg(workload.path());
    command.args([ITEMS, ROUNDS, "50", "1"]);
    let lock = Lock::recording();
    let recorded = need!(process::run_perf(truth.on(&mut command)));
    drop(lock);
    assert_eq!(recorded.code(), Some(0), "{recorded}");
    let args = ["import".as_ref(), data.as_os_str(), "-o".as_ref()];
    let imported = pebs_trace([&args[..], &[out.as_os_str()]].concat());
    assert_eq!(imported.code(), Some(0), "{imported}");
    let (lines, text) = report(&out);
    let [line] = &lines[..] else {
        panic!("{lines:#?}\n{imported}")
    };
    let truth = truth.read();
    let (left, right) = (truth.notes["left_meets"], truth.notes["right_meets"]);
    let wanted = [
        ("left", "load+store", 0, left),
        ("right", "load+store", 8, right),
    ];
    assert_eq!(accesses(line), wanted, "{text}");
    assert_eq!(
        (&line["sharing"], &line["data"]["symbol"]),
        (&"false".into(), &"pair".into())
    );
}

/// An address that can't be watched is refused in one line.
#[test]
fn refused() {
    need!(machine::root());
    let workload = Workload::build("lines");
    let path = workload.path().display().to_string();
    for (event, why) in [
        ("mem:nothing:rw", "symbol 'nothing' not found in"),
        ("mem:pair+4/8:rw", "is not a multiple of 8"),
        ("mem:0x1001/8:w", "not a multiple of 8"),
    ] {
        let done = Recorder::new(&workload.spec(super::ID))
            .args(&["--event", event, "--reset", "1"])
            .command(workload.path(), &["1", "1"]);
        let shown = &done.tool.stderr;
        assert_eq!(done.tool.code(), Some(2), "{event}: {}", done.tool);
        assert!(shown.contains(why), "{event} of {path}: {shown}");
        assert!(shown.contains("hint: "), "{event}: {shown}");
    }
}
