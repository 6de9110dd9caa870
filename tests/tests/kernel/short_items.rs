//! Items about as short as the overhead of a sample.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{HashMap, HashSet};
use std::path::Path;

use pebs_tests::explain::{Cause, explain, whole};
use pebs_tests::recording::{Recorder, Recording};
use pebs_tests::trace::Visit;
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, say_skip};

/// Items of the workload, one in 500 of which is slow, and the time between samples.
const ITEMS: &str = "200000";
const RESET_NS: u32 = 100_000;
/// Increase of the reset value with each attempt.
const RESET_STEP_NS: u32 = 3_100;

/// Least time between samples, in costs of a sample: on some hosts one takes ten times as long.
const LEAST_COSTS: u32 = 12;

/// Maximum number of recordings until one passes.
const ATTEMPTS: u32 = 6;

/// Items of 2 us, some of which take 30 us: the classes follow from their length, not from which of them have a sample,
/// and the first cause is the function that makes the slow ones slow.
///
/// This needs a quiet machine: if other processes take the CPU, items wait and samples cost several times as much. And
/// the time between samples may by chance be nearly a multiple of the time between items, so that samples stay at the
/// same phase for long. One of several recordings has to pass.
#[test]
fn samples_do_not_decide_who_is_slow() {
    need!(machine::root());
    let python = match machine::python(&["duckdb"]) {
        Ok(python) => python,
        Err(reason) => return say_skip(format_args!("{reason}")),
    };
    let workload = Workload::build("short_slow");
    let spec = workload.spec("handle(id=*(arg1):u64)");
    let mut missed = Vec::new();
    let mut reset_ns = RESET_NS;
    for _ in 0..ATTEMPTS {
        reset_ns += RESET_STEP_NS;
        match attempt(&workload, &spec, reset_ns, &python) {
            Ok(()) => return,
            Err((why, sample_ns)) => {
                missed.push(why);
                reset_ns = reset_ns.max(LEAST_COSTS * sample_ns as u32);
            }
        }
    }
    panic!("{missed:#?}");
}

/// Records once; the error describes the failure, and has the cost of a sample.
fn attempt(
    workload: &Workload,
    spec: &str,
    reset_ns: u32,
    python: &Path,
) -> Result<(), (String, f64)> {
    let (recording, truth) = Recorder::new(spec)
        .before_others()
        .args(&[
            "--event",
            "cpu-clock",
            "--reset",
            &reset_ns.to_string(),
            "--max-loss",
            "100",
        ])
        .workload(workload, &[ITEMS]);
    let slow: HashSet<u64> = truth.items.iter().map(|it| it.id).collect();
    assert!(slow.len() > 300, "{} slow items", slow.len());
    let group = explain(&recording.dir(), &[]);
    let group = whole(&group);
    let causes = group.0["gap"]["causes"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let causes: Vec<Cause> = causes.iter().map(Cause).collect();
    let own = |it: &Cause| it.name().contains("uprobe") || it.name().contains("bpf_prog");
    assert!(!causes.iter().any(own), "{:#}", group.0["gap"]);
    let first = causes
        .iter()
        .find(|it| it.kind() != "preempted")
        .map_or("", Cause::name);
    let visits = recording.trace().visits();
    let classes = classes(&recording, python);
    let counted = || {
        visits
            .iter()
            .filter_map(|it| Some((it, classes.get(&it.visit_id)?)))
    };
    let of_slow = || counted().filter(|(it, _)| slow.contains(&it.item_id));
    let (all, found) = (
        of_slow().count(),
        of_slow().filter(|it| it.1 == "slow").count(),
    );
    let sample_ns = sample_cost(&visits, &slow);
    // Number of items of a class with a sample, and the expected number.
    let with_sample = |class: &str| {
        counted()
            .filter(|it| it.1 == class)
            .fold((0.0, 0.0), |sum, (it, _)| {
                let own = it.duration_ns.unwrap_or(0) as f64 - it.samples as f64 * sample_ns;
                let chance = (own.max(0.0) / (f64::from(reset_ns) - sample_ns)).min(1.0);
                (sum.0 + f64::from(u8::from(it.samples > 0)), sum.1 + chance)
            })
    };
    let shares = ["slow", "typical"].map(|class| (class, with_sample(class)));
    let figures = format!(
        "{found} of {all} slow items are in the class; with a sample, and expected: {shares:?}; a sample takes \
         {sample_ns} ns; first: {first}"
    );
    println!("{figures}");
    let near = |(with, expected): (f64, f64)| (2.0 / 3.0..1.5).contains(&(with / expected));
    let met = found as f64 >= 0.95 * all as f64
        && shares.iter().all(|it| it.1.0 > 10.0 && near(it.1))
        && first == "long_part";
    if met {
        Ok(())
    } else {
        Err((figures, sample_ns))
    }
}

/// Overhead of a sample in an item, ns: the difference of medians of typical items with one sample and without.
fn sample_cost(visits: &[Visit], slow: &HashSet<u64>) -> f64 {
    let median = |samples: u64| {
        let typical = visits
            .iter()
            .filter(|it| it.samples == samples && !slow.contains(&it.item_id));
        let mut all: Vec<i64> = typical.filter_map(|it| it.duration_ns).collect();
        all.sort_unstable();
        all[all.len() / 2] as f64
    };
    median(1) - median(0)
}

/// The class of each visit that is counted.
fn classes(recording: &Recording, python: &Path) -> HashMap<u64, String> {
    let classes = recording.query(python, "select visit_id, class from visit_classes");
    let rows: Vec<(u64, String)> = serde_json::from_value(classes).expect("rows");
    rows.into_iter().collect()
}
