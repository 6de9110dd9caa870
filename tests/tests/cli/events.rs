//! `pebs-trace events`, and messages of recording on unknown events.

use std::fs;
use std::path::Path;

use pebs_tests::process::Finished;
use pebs_tests::recording::pebs_trace;
use pebs_tests::{machine, need};
use tempfile::TempDir;

use super::{good_spec, hints, record, refused};

fn events(args: &[&str]) -> Finished {
    pebs_trace([&["events"], args].concat())
}

/// The files of a machine of `pebs-user/src/pmu/machines`.
fn machine(manifest: &str) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = place.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    for line in manifest.lines().filter(|line| !line.starts_with('#')) {
        let (key, text) = line.split_once(" = ").unwrap();
        match key {
            "cpu" => {
                let parts: Vec<&str> = text.splitn(5, ' ').collect();
                let cpuinfo = format!(
                    "vendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nstepping\t: {}\nmodel name\t: {}",
                    parts[0], parts[1], parts[2], parts[3], parts[4]
                );
                write("proc/cpuinfo", &cpuinfo);
            }
            "flags" => {}
            "online" => write("sys/devices/system/cpu/online", text),
            "kernel" => write("proc/sys/kernel/osrelease", text),
            _ => write(&format!("sys/bus/event_source/devices/{key}"), text),
        }
    }
    place
}

fn path(dir: &Path) -> String {
    dir.display().to_string()
}

/// The first three cells of an event's line.
fn row(done: &Finished, event: &str) -> Vec<String> {
    let lines = done.stdout.lines();
    let mut rows = lines.map(|line| line.split_whitespace().take(3).map(str::to_owned));
    let found = rows.find_map(|mut cells| (cells.next()? == event).then(|| cells.collect()));
    found.unwrap_or_else(|| panic!("no {event}\n{done}"))
}

/// This machine has the kernel's events, and maybe others.
#[test]
fn this_machine() {
    let done = events(&[]);
    assert_eq!(done.code(), Some(0), "{done}");
    assert_eq!(done.stderr, "", "{done}");
    for event in ["auto", "cpu-clock", "page-faults", "mem:PLACE:ACCESS"] {
        row(&done, event);
    }
    let done = events(&["page*"]);
    assert_eq!(done.code(), Some(0), "{done}");
    assert!(!done.stdout.contains("cpu-clock"), "{done}");
}

/// Skylake-SP has Intel's events with their precision, beside those of sysfs.
#[test]
fn skylake() {
    let manifest = include_str!("../../../pebs-user/src/pmu/machines/skylake-sp.txt");
    let place = machine(manifest);
    let done = events(&["--sysfs", &path(place.path())]);
    assert_eq!(done.code(), Some(0), "{done}");
    assert_eq!(row(&done, "uops_retired.all"), ["yes", "yes"]);
    assert_eq!(row(&done, "l2_rqsts.miss"), ["no", "-"]);
    assert_eq!(row(&done, "cpu/mem-loads/"), ["only", "yes"]);
    assert_eq!(row(&done, "cpu-clock"), ["-", "-"]);
    assert!(done.stdout.contains("Here: uops_retired.all"), "{done}");
}

/// Zen 4 has IBS, a hybrid CPU two kinds of cores.
#[test]
fn other_machines() {
    let zen4 = machine(include_str!("../../../pebs-user/src/pmu/machines/zen4.txt"));
    let done = events(&["--sysfs", &path(zen4.path())]);
    assert_eq!(row(&done, "ibs_op/cnt_ctl=1/"), ["yes", "-"]);
    let alder = machine(include_str!(
        "../../../pebs-user/src/pmu/machines/alder-lake.txt"
    ));
    let done = events(&["--sysfs", &path(alder.path()), "l1_miss"]);
    assert_eq!(
        row(&done, "cpu_core/mem_load_retired.l1_miss/"),
        ["yes", "yes"]
    );
}

/// JSON parses and has codes; another CPU's list needs no machine.
#[test]
fn for_programs() {
    let done = events(&[
        "--cpu",
        "6-8F-8",
        "--format",
        "json",
        "mem_load_retired.l1_miss",
    ]);
    assert_eq!(done.code(), Some(0), "{done}");
    let value: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let event = &value["events"][0];
    assert_eq!(event["event"], "mem_load_retired.l1_miss");
    assert_eq!(event["code"], "event=0xd1,umask=0x8");
    assert_eq!(
        (&event["precise"], &event["bulk"]),
        (&"yes".into(), &true.into())
    );
    assert_eq!(event["source"]["of"], "sapphirerapids");
}

/// A pattern without a match is not an error, but a message with the nearest names.
#[test]
fn nothing_fits() {
    let done = events(&["cpu-clok"]);
    assert_eq!(done.code(), Some(1), "{done}");
    assert_eq!(done.stdout, "", "{done}");
    hints(&done, &["cpu-clock"]);
}

/// CPUs without a list, and folders without a machine.
#[test]
fn bad_machines() {
    let done = events(&["--cpu", "6-FF"]);
    refused(&done, &["no list of events", "6-FF"]);
    hints(&done, &["skylakex"]);
    let place = tempfile::tempdir().unwrap();
    let done = events(&["--sysfs", &path(place.path())]);
    refused(&done, &["has no sys/bus/event_source/devices"]);
    hints(&done, &["/proc/cpuinfo"]);
    let done = events(&["--cpu", "Skylake"]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("such as 6-55-4"), "{done}");
}

/// A guest without a PMU reports that for names that only CPUs have.
#[test]
fn names_without_a_pmu() {
    need!(machine::root());
    if machine_has_pmu() {
        println!("SKIP this machine has a hardware PMU");
        return;
    }
    let spec = good_spec();
    for event in [
        "uops_retired.all:pp",
        "cycles:P",
        "mem_load_retired.l1_miss",
        "r1c2",
    ] {
        let done = record(&["--uprobe", &spec, "--event", event]);
        refused(&done, &["can't be counted", "no hardware pmu here"]);
        hints(&done, &["cpu-clock"]);
    }
    let done = record(&["--uprobe", &spec, "--event", "ibs_op/cnt_ctl=1/"]);
    refused(&done, &["unknown pmu 'ibs_op'", "no hardware pmu here"]);
    hints(&done, &["cpu-clock"]);
}

/// An event that can't be counted per item is one error line, with an alternative to type.
#[test]
fn counts_that_are_refused() {
    need!(machine::root());
    let spec = good_spec();
    let five: Vec<String> = (1..=5).map(|n| format!("mem:{:#x}:x", n << 12)).collect();
    let many: Vec<String> = (1..=17).map(|n| format!("mem:{:#x}:x", n << 12)).collect();
    let mut cases = vec![
        ("page-fault", "unknown event 'page-fault'", "page-faults"),
        (
            "cs,,faults",
            "an event is missing in 'cs,,faults'",
            "--count",
        ),
        ("{cs,faults", "malformed group '{cs,faults'", "--count"),
        ("cs,cs", "'context-switches' is to be counted twice", "once"),
        (
            "cgroup-switches",
            "cannot count 'cgroup-switches' for each item",
            "context-switches",
        ),
        (
            "task-clock:u",
            "cannot count 'task-clock:u' for each item",
            "':u'",
        ),
        ("sched:sched_switch", "tracepoints", "--uprobe"),
    ];
    let (five, many) = (five.join(","), many.join(","));
    cases.push((&many, "17 events are too many", "at most 16"));
    cases.push((&five, "cannot open event mem:0x5000:x", "breakpoint"));
    if !machine_has_pmu() {
        cases.push(("cycles", "no hardware pmu here", "--count auto"));
    }
    for (events, error, hint) in cases {
        let done = record(&["--uprobe", &spec, "--count", events]);
        refused(&done, &[error]);
        hints(&done, &[hint]);
    }
    let done = record(&["--uprobe", &spec, "--count", "faults", "--no-switches"]);
    refused(&done, &["cannot count for each item without switches"]);
    hints(&done, &["--no-switches"]);
}

fn machine_has_pmu() -> bool {
    ["cpu", "cpu_core"].iter().any(|pmu| {
        Path::new("/sys/bus/event_source/devices")
            .join(pmu)
            .is_dir()
    })
}
