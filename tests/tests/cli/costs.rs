//! Cost of sampling: `calibrate`, `plan`, and the use of a calibration by recordings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pebs_tests::locks::Lock;
use pebs_tests::process::{self, Finished};
use pebs_tests::recording::pebs_trace;
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, skip};
use serde_json::Value;

use super::{hints, refused};

/// Runs the tool with a cache directory of the test's.
fn with_cache(cache: &Path, args: &[&str]) -> Finished {
    let mut command = Command::new(machine::pebs_trace());
    process::run(command.env("XDG_CACHE_HOME", cache).args(args))
}

/// Calibrates in a short time; `None` on a machine that is too busy for it.
fn calibrate(cache: &Path, args: &[&str]) -> Option<Finished> {
    let all = ["calibrate", "--event", "cpu-clock", "--duration", "8"];
    let done = with_cache(cache, &[&all[..], args].concat());
    let too_slow = done.code() == Some(2) && done.stderr.contains("of 3 rounds");
    if too_slow || done.stderr.contains("too inexact") {
        return None;
    }
    assert_eq!(done.code(), Some(0), "{done}");
    Some(done)
}

fn json(done: &Finished) -> Value {
    // A command that was started prints before.
    let begin = done
        .stdout
        .find('{')
        .unwrap_or_else(|| panic!("no JSON\n{done}"));
    serde_json::from_str(&done.stdout[begin..]).unwrap_or_else(|e| panic!("{e}\n{done}"))
}

/// Stored calibrations; the measurements of recordings are in the same folder.
fn kept(cache: &Path) -> Vec<PathBuf> {
    let folder = fs::read_dir(cache.join("pebs-trace"));
    let files = folder.map_or_else(
        |_| Vec::new(),
        |it| it.map(|entry| entry.unwrap().path()).collect(),
    );
    let is_calibration = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("calibration-")
    };
    files.into_iter().filter(is_calibration).collect()
}

/// `trace.json` of a short recording, whose samples have no call stacks: with them they have costs of their own.
fn recorded(cache: &Path) -> Value {
    recorded_with(cache, &[])
}

fn recorded_with(cache: &Path, more: &[&str]) -> Value {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace");
    let workload = Workload::build("plain");
    let spec = workload.spec("handle(id=*(arg1):u64)");
    let (output, program) = (
        trace.display().to_string(),
        workload.path.display().to_string(),
    );
    let args = ["--uprobe", &spec, "--event", "cpu-clock", "-o", &output];
    let args = [
        &args[..],
        &["--call-graph", "none", "--with", "none"],
        more,
        &["--", &program, "100"],
    ]
    .concat();
    let done = with_cache(cache, &args);
    assert_eq!(done.code(), Some(0), "{done}");
    serde_json::from_slice(&fs::read(trace.join("trace.json")).unwrap()).unwrap()
}

/// A calibration is printed, drawn, stored and used; a damaged one is ignored with a message.
#[test]
fn calibration_is_kept_and_used() {
    need!(machine::root());
    let _lock = Lock::recording_beside();
    let cache = tempfile::tempdir().unwrap();
    assert_eq!(
        recorded(cache.path())["unit_costs"],
        "measured before the run"
    );
    let svg = cache.path().join("plot.svg");
    let plot = svg.display().to_string();
    let Some(done) = calibrate(cache.path(), &["--format", "json", "--plot", &plot]) else {
        skip!("the machine is too busy to calibrate");
    };
    let found = json(&done);
    let fit = &found["calibration"]["fit"];
    assert!(fit["alpha_ns"].as_f64() > Some(0.0), "{fit}");
    assert!(fit["alpha_error_ns"].as_f64() > Some(0.0), "{fit}");
    let points = found["calibration"]["points"].as_array().unwrap();
    assert_eq!(
        (points.len(), &points[0]["reset"]),
        (8, &Value::Null),
        "{found}"
    );
    assert!(fs::read_to_string(&svg).unwrap().starts_with("<svg "));
    let files = kept(cache.path());
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(found["file"].as_str(), files[0].to_str());

    let info = recorded(cache.path());
    let source = info["unit_costs"].as_str().unwrap();
    assert!(source.starts_with("calibrated 20"), "{source}");
    let cost = &info["cost"];
    let samples = cost["samples"].as_f64().unwrap();
    let alpha = fit["alpha_ns"].as_f64().unwrap();
    let expected = samples * alpha;
    assert!((cost["samples_ns"].as_f64().unwrap() - expected).abs() <= 1e-6 * expected + 1e-6);
    let doctor = with_cache(cache.path(), &["doctor"]);
    assert!(
        doctor.stdout.contains("a sample, calibrated 20"),
        "{doctor}"
    );

    // Without it what recordings measured is used, as soon as two of them agree.
    fs::write(&files[0], "{}").unwrap();
    let is_measured = |info: &Value| {
        info["unit_costs"]
            .as_str()
            .unwrap()
            .starts_with("measured 20")
    };
    let info = (0..5).map(|_| recorded(cache.path())).find(is_measured);
    let Some(info) = info else {
        skip!("the machine's speed changes: no two of six recordings agree on the cost");
    };
    let notes = info["notes"].to_string();
    assert!(
        notes.contains("ignoring calibration") && notes.contains(": damaged"),
        "{notes}"
    );
}

/// Samples that come in bulk are calibrated separately from those that an eBPF program sees, and each recording uses
/// its own calibration.
#[test]
fn calibration_by_transport() {
    need!(machine::root());
    let _lock = Lock::recording_beside();
    let cache = tempfile::tempdir().unwrap();
    let args = ["--format", "json", "--transport", "bulk"];
    let Some(done) = calibrate(cache.path(), &args) else {
        skip!("the machine is too busy to calibrate");
    };
    let found = json(&done);
    assert_eq!(found["calibration"]["event"], "cpu-clock, bulk");
    let alpha = found["calibration"]["fit"]["alpha_ns"].as_f64().unwrap();
    // Not for samples that an eBPF program sees.
    assert_eq!(
        recorded(cache.path())["unit_costs"],
        "measured before the run"
    );
    let info = recorded_with(cache.path(), &["--transport", "bulk"]);
    let source = info["unit_costs"].as_str().unwrap();
    assert!(source.starts_with("calibrated 20"), "{source}");
    let (samples, cost) = (&info["cost"]["samples"], &info["cost"]["samples_ns"]);
    let expected = samples.as_f64().unwrap() * alpha;
    let cost = cost.as_f64().unwrap();
    assert!((cost - expected).abs() <= 1e-6 * expected + 1e-6);
}

/// `--dry-run` stores nothing, and the text has the cost with its interval.
#[test]
fn calibrate_without_keeping() {
    need!(machine::root());
    let _lock = Lock::recording_beside();
    let cache = tempfile::tempdir().unwrap();
    let Some(done) = calibrate(cache.path(), &["--dry-run"]) else {
        skip!("the machine is too busy to calibrate");
    };
    for part in [
        "a sample costs",
        "(95 % interval)",
        "R2",
        "a mark costs",
        "10,000 ns",
    ] {
        assert!(done.stdout.contains(part), "{part}\n{done}");
    }
    assert_eq!(kept(cache.path()), [""; 0].map(PathBuf::from));
}

/// Plans for the fixed work with these arguments.
fn plan(args: &[&str]) -> Finished {
    let _lock = Lock::recording_beside();
    let workload = Workload::build("fixed");
    let (spec, program) = (workload.spec("work"), workload.path.display().to_string());
    let mut all = vec!["plan", "--uprobe", &spec, "--event", "cpu-clock"];
    all.extend(args);
    all.extend(["--", &program, "integer", "2", "30000000"]);
    pebs_trace(all)
}

/// A goal that is easy to meet: figures that fit together, and a command line that keeps to it.
#[test]
fn plan_of_an_easy_goal() {
    need!(machine::root());
    let done = plan(&[
        "--max-overhead",
        "60%",
        "--min-samples-per-item",
        "1",
        "--format",
        "json",
    ]);
    assert_eq!(done.code(), Some(0), "{done}");
    let found = json(&done);
    assert_eq!(found["counted"]["items"], 2, "{found}");
    let number = |value: &Value, key: &str| value[key].as_f64();
    let (cpu, within) = (
        number(&found["counted"], "cpu_ns"),
        number(&found["counted"], "oncpu_ns"),
    );
    assert!(
        within > Some(0.0) && within <= cpu.map(|cpu| cpu * 1.01),
        "{found}"
    );
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.len() >= 8, "{found}");
    for pair in rows.windows(2) {
        let overhead = |row: &Value| number(row, "overhead").unwrap_or(f64::INFINITY);
        assert!(
            pair[0]["reset"].as_u64() < pair[1]["reset"].as_u64(),
            "{found}"
        );
        assert!(overhead(&pair[0]) >= overhead(&pair[1]), "{found}");
    }
    let reset = found["verdict"]["reset"].as_u64().unwrap();
    let row = rows.iter().find(|row| row["reset"] == reset).unwrap();
    assert!(number(row, "overhead").unwrap() <= 0.6, "{found}");
    assert!(number(row, "samples_per_item").unwrap() >= 1.0, "{found}");
    let stacks = found["stacks"].as_str().unwrap();
    assert!(stacks.starts_with("stacks: "), "{found}");
    let command = found["command"].as_str().unwrap();
    for part in [
        &format!("--reset {reset} "),
        "--ring-size ",
        "--event cpu-clock",
        " integer 2 ",
    ] {
        assert!(command.contains(part), "{part} is not in {command}");
    }
}

/// Call stacks and data of `--with` are part of the plan: a sample is larger and costs no less, switches fill the ring,
/// and the printed command has the same options.
#[test]
fn plan_of_larger_records() {
    need!(machine::root());
    let json_of = |args: &[&str]| {
        let easy = [
            "--max-overhead",
            "90%",
            "--min-samples-per-item",
            "1",
            "--format",
            "json",
        ];
        let done = plan(&[&easy[..], args].concat());
        assert_eq!(done.code(), Some(0), "{done}");
        json(&done)
    };
    let (small, large) = (
        json_of(&[]),
        json_of(&["--call-graph", "fp", "--with", "waits,irq"]),
    );
    let of = |plan: &Value, key: &str| plan["sample_bytes"][key].as_f64();
    assert_eq!(
        (of(&small, "ring"), of(&large, "ring")),
        (Some(40.0), Some(368.0)),
        "{large}"
    );
    assert_eq!(large["sample_bytes"]["frames"], 40);
    assert!(of(&large, "trace") > of(&small, "trace"), "{large}");
    for plan in [&small, &large] {
        assert!(plan["ring_bytes_per_s"].as_f64() > Some(0.0), "{plan}");
    }
    let command = large["command"].as_str().unwrap();
    assert!(
        command.contains(" --call-graph fp --with waits,irq --reset "),
        "{command}"
    );
    let done = plan(&["--call-graph", "lbr"]);
    refused(&done, &["cannot plan for --call-graph lbr"]);
    hints(&done, &["plan without it"]);
}

/// For goals that can't be met the best possible is printed, with its own exit code.
#[test]
fn plan_of_goals_that_cannot_be() {
    need!(machine::root());
    let done = plan(&["--min-samples-per-item", "1000000"]);
    assert_eq!(done.code(), Some(1), "{done}");
    for part in [
        "no reset value gives both",
        "samples/item",
        "pebs-trace --uprobe",
        "ring:",
    ] {
        assert!(done.stdout.contains(part), "{part}\n{done}");
    }
    // A mark costs more than a thousand-millionth of any run of the work.
    let done = plan(&["--max-overhead", "0.0000001%"]);
    assert_eq!(done.code(), Some(1), "{done}");
    assert!(
        done.stdout
            .contains("marks and counted page faults alone cost"),
        "{done}"
    );
}

/// Errors of `plan`: nothing to plan with, or an impossible request.
#[test]
fn plan_refuses() {
    need!(machine::root());
    let workload = Workload::build("fixed");
    let spec = workload.spec("work");
    let of = |args: &[&str]| {
        let _lock = Lock::recording_beside();
        pebs_trace([&["plan", "--uprobe", &spec], args].concat())
    };
    let done = of(&["-p", "4194304"]);
    refused(&done, &["process 4194304 does not exist"]);
    hints(&done, &["pgrep"]);
    let done = of(&["--", "/bin/true"]);
    refused(&done, &["cannot plan: no item was finished"]);
    hints(&done, &["did not call work", "--duration"]);
    let done = of(&[]);
    refused(&done, &["every process"]);
    hints(&done, &["-p PID"]);
    let done = of(&["--event", "context-switches", "--", "/bin/true"]);
    refused(&done, &["cannot plan with event 'context-switches'"]);
    hints(&done, &["cpu-clock"]);
    for (args, says) in [
        (["--max-overhead", "0"], "above 0"),
        (["--min-samples-per-item", "0"], "a number from 0.01"),
        (["--duration", "0"], "above 0"),
        (["--cache", "warm"], "oblivious"),
    ] {
        let done = of(&[&args[..], &["--", "/bin/true"]].concat());
        assert_eq!(done.code(), Some(2), "{done}");
        assert!(done.stderr.contains(says), "{says}\n{done}");
    }
}

/// Self-counting: each way is measured or has a reason why not, with consistent spreads, as table, boxes, JSON and
/// picture.
#[test]
fn calibrate_counters() {
    let _lock = Lock::recording();
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("counters.svg");
    let plot = svg.display().to_string();
    let args = ["calibrate", "--counters", "--duration", "1"];
    let done = pebs_trace([&args[..], &["--format", "json", "--plot", &plot]].concat());
    assert_eq!(done.code(), Some(0), "{done}");
    let found = json(&done);
    let counters = &found["counters"];
    let is_hardware = counters["is_hardware"].as_bool().unwrap();
    let events = counters["events"].as_array().unwrap().len();
    assert!(
        (1..=8).contains(&events) && (is_hardware || events == 8),
        "{counters}"
    );
    let ways = counters["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 10);
    for way in ways {
        let name = way["way"].as_str().unwrap();
        let sizes = way["by_events"].as_array().unwrap();
        if let Some(reason) = way["not_measured"].as_str() {
            assert!(sizes.is_empty(), "{way}");
            match name {
                "mark" => assert!(reason.contains("marks"), "{reason}"),
                "rdpmc" | "rdpmc-populate" | "rdpmc-touch" if !is_hardware => {
                    assert!(reason.contains("needs a PMU"), "{reason}");
                }
                name if name.starts_with("new-") => assert!(reason.contains("cc"), "{reason}"),
                name => panic!("{name}: {reason}"),
            }
            continue;
        }
        assert_eq!(sizes.len(), events, "{name}");
        for (n, size) in sizes.iter().enumerate() {
            assert_eq!(size["events"], n + 1);
            let reads = size["reads"].as_array().unwrap();
            assert_eq!(reads.len(), 10);
            // Counting at marks needs no start and no stop.
            let around = [&size["start"], &size["stop"], &size["total"]];
            let around = around.into_iter().filter(|_| name != "mark");
            for spread in reads.iter().chain(around) {
                let of = |what: &str| spread[what].as_f64().unwrap();
                let sorted = ["min", "p25", "median", "p75", "max"].map(of);
                assert!(sorted.is_sorted(), "{name}: {spread}");
                assert!(sorted[4] > 0.0 && of("rounds") >= 1.0, "{name}: {spread}");
            }
            // A system call, or an instruction: never free, and far below a millisecond. Of a mark it is a difference.
            let median = reads[9]["median"].as_f64().unwrap();
            let least = if name == "mark" { 0.0 } else { 5.0 };
            assert!((least..1e6).contains(&median), "{name}: {median} ns");
        }
    }
    let of = |name: &str| ways.iter().find(|way| way["way"] == name).unwrap();
    assert!(of("read")["not_measured"].is_null() && of("syscall")["not_measured"].is_null());
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    let measured = ways
        .iter()
        .filter(|way| way["not_measured"].is_null())
        .count();
    assert_eq!(drawn.matches("<rect class=\"box\"").count(), 5 * measured);

    let done = pebs_trace(args);
    assert_eq!(done.code(), Some(0), "{done}");
    for part in [
        "first read",
        "syscall",
        "▒│",
        "n-th read of one event",
        "stop of n events",
        "eBPF at a mark",
    ] {
        assert!(done.stdout.contains(part), "{part}\n{done}");
    }
    refused(
        &pebs_trace(["calibrate", "--counters", "--event", "cpu-clock"]),
        &["--counters", "--event"],
    );
}

/// Events that can't be calibrated.
#[test]
fn calibrate_refuses() {
    need!(machine::root());
    let of = |event: &str| pebs_trace(["calibrate", "--event", event]);
    let done = of("context-switches");
    refused(&done, &["cannot calibrate event 'context-switches'"]);
    hints(&done, &["cpu-clock"]);
    refused(&of("cpu-clok"), &["cpu-clok"]);
    if machine::precise_pmu().is_err() && !Path::new("/sys/bus/event_source/devices/cpu").is_dir() {
        let done = of("cycles");
        refused(&done, &["cycles"]);
        hints(&done, &["cpu-clock"]);
    }
}
