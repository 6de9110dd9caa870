//! Items that are about as short as what a sample takes of them.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{HashMap, HashSet};
use std::path::Path;

use pebs_tests::explain::{explain, whole};
use pebs_tests::recording::{Recorder, Recording};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, say_skip};

/// Items of the workload, one in 500 of which is slow, and the time between samples.
const ITEMS: &str = "200000";
const RESET_NS: f64 = 100_000.0;

/// Recordings until one is not disturbed.
const ATTEMPTS: u32 = 6;
/// A wait that makes an item one of the slowest.
const LONG_NS: i64 = 200_000;
/// A wait that makes an item one of the slow ones, and how many of them are few beside the 400 that are slow.
const SLOW_NS: i64 = 10_000;
const FEW: usize = 40;

/// Items of 2 us, some of which take 30 us: the classes follow from how long they are, not from which of them have a
/// sample, and the first cause is the function that makes the slow ones slow.
#[test]
fn samples_do_not_decide_who_is_slow() {
    need!(machine::root());
    let workload = Workload::build("short_slow");
    let spec = workload.spec("handle(id=*(arg1):u64)");
    let (recording, truth) = undisturbed(&workload, &spec);
    let trace = recording.trace();
    let slow: HashSet<u64> = truth.items.iter().map(|it| it.id).collect();
    assert!(slow.len() > 300, "{} slow items", slow.len());
    let explanation = explain(&recording.dir(), &[]);
    let group = whole(&explanation);
    let first = group.first_of_program();
    assert_eq!(first.name(), "long_part", "{:#}", group.0["gap"]);
    let causes = group.causes();
    let named: Vec<&str> = causes.iter().map(|it| it.name()).collect();
    assert!(
        !named
            .iter()
            .any(|it| it.contains("uprobe") || it.contains("bpf_prog")),
        "{named:?}"
    );
    let classes = match machine::python(&["duckdb"]) {
        Ok(python) => classes(&recording, &python),
        Err(reason) => return say_skip(format_args!("{reason}")),
    };
    let (mut found, mut counted) = (0, 0);
    // Items, those with a sample, and how many of them are to be expected to have one.
    let mut shares = [("slow", 0.0, 0.0), ("typical", 0.0, 0.0)];
    let sample_ns = trace.json["own_time"]["sample"]["ns"].as_f64().unwrap();
    for visit in trace.visits() {
        let Some(class) = classes.get(&visit.visit_id) else {
            continue;
        };
        if slow.contains(&visit.item_id) {
            counted += 1;
            found += u32::from(class == "slow");
        }
        let Some(share) = shares.iter_mut().find(|it| it.0 == class) else {
            continue;
        };
        let own = visit.duration_ns.unwrap() as f64 - visit.samples as f64 * sample_ns;
        share.1 += f64::from(u8::from(visit.samples > 0));
        share.2 += (own.max(0.0) / (RESET_NS - sample_ns)).min(1.0);
    }
    println!(
        "{found} of {counted} slow items are in the class; with a sample, and expected: {shares:?}"
    );
    assert!(
        f64::from(found) >= 0.95 * f64::from(counted),
        "{found} of {counted}"
    );
    for (class, with, expected) in shares {
        assert!(with > 10.0, "{class}: {with}");
        let ratio = with / expected;
        assert!(
            (2.0 / 3.0..1.5).contains(&ratio),
            "{class}: {with} of {expected}"
        );
    }
}

/// A recording in which others hardly took the CPU away: a few items that waited for it for long are slow in their own right,
/// and set apart from all others.
fn undisturbed(workload: &Workload, spec: &str) -> (Recording, Truth) {
    let attempt = || {
        Recorder::new(spec)
            .before_others()
            .args(&[
                "--event",
                "cpu-clock",
                "--reset",
                "100000",
                "--max-loss",
                "100",
            ])
            .workload(workload, &[ITEMS])
    };
    let mut least: Option<(usize, (Recording, Truth))> = None;
    for _ in 0..ATTEMPTS {
        let run = attempt();
        let waits = run.0.trace().waits();
        let longer = |ns: i64| waits.iter().filter(|it| it.length_ns() > ns).count();
        let (long, all) = (longer(LONG_NS), longer(SLOW_NS));
        if long <= 1 && all <= FEW {
            return run;
        }
        let disturbed = long * FEW + all;
        if least.as_ref().is_none_or(|it| disturbed < it.0) {
            least = Some((disturbed, run));
        }
    }
    least.expect("some attempts").1
}

/// The class of each visit that is counted.
fn classes(recording: &Recording, python: &Path) -> HashMap<u64, String> {
    let classes = recording.query(python, "select visit_id, class from visit_classes");
    let rows: Vec<(u64, String)> = serde_json::from_value(classes).expect("rows");
    rows.into_iter().collect()
}
