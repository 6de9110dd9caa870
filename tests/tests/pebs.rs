//! Precise sampling, on hardware that supports it, and with a PMU in software, in an emulated guest.
#![expect(
    clippy::expect_used,
    reason = "integration tests: a panic is the report"
)]

use std::collections::HashMap;

use pebs_tests::recording::{Recorder, Recording};
use pebs_tests::softpmu::SoftPmu;
use pebs_tests::trace::{SAMPLE_EXACT_IP, Trace};
use pebs_tests::truth::Truth;
use pebs_tests::workload::{Waiting, Workload};
use pebs_tests::{check, machine, need};

#[path = "pebs/counted.rs"]
mod counted;
#[path = "pebs/hybrid.rs"]
mod hybrid;
#[path = "pebs/ibs.rs"]
mod ibs;
#[path = "pebs/software.rs"]
mod software;
#[path = "pebs/validate.rs"]
mod validate;

/// SPEC tail of the workload of the paper's Figure 8, which logs when it enters and leaves each function.
const QUERY: &str = "process_query(id=*(arg1):u64)";

/// Time from an instruction to the time of its record, ns: the PMU in software reads the clock once the emulated CPU
/// has entered the interrupt of its timer, and a function may have ended meanwhile.
const ENTRY_NS: i64 = 5_000;

/// Records this many rounds of that workload, which waits until everything is attached. The tool's measurements before
/// that are not in the tally.
fn record(soft: &SoftPmu, args: &[&str], rounds: &str) -> (Recording, Truth) {
    let workload = Workload::build("query");
    let recorder = Recorder::new(&workload.spec(QUERY)).args(args);
    attached(soft, recorder, workload.start(&[rounds]))
}

/// Records a target that waits until everything is attached; the tallies begin then.
fn attached(soft: &SoftPmu, recorder: Recorder, mut target: Waiting) -> (Recording, Truth) {
    let live = recorder.under(soft.lock()).attach(target.process.pid());
    soft.clear();
    target.go();
    let (_, truth) = target.finish();
    (live.stop(), truth)
}

/// Samples are in the right place, and their number in each item matches its time on the CPU.
fn samples_are_right(trace: &Trace, truth: &Truth, reset_ns: i64, soft: &SoftPmu) {
    samples_are_in_place(trace, truth);
    // While records are handled nothing is counted, as with hardware; but the thread is on the CPU.
    let stood_still = soft.tally("stood_still") as i64 / reset_ns;
    for visit in trace.visits() {
        let expected = visit.oncpu_ns.expect("time on the CPU") / reset_ns;
        let samples = visit.samples as i64;
        // The interval that the item begins in, and one that ends while the kernel has interrupts off, each time
        // that the thread comes back to the CPU.
        let apart = 2 + visit.switches.unwrap_or(0) as i64;
        assert!(
            (expected - stood_still - apart..=expected + apart).contains(&samples),
            "{expected} {visit:?} {}",
            soft.tallies()
        );
    }
}

/// Samples are exact, and within their function and item.
fn samples_are_in_place(trace: &Trace, truth: &Truth) {
    let error = trace.json["clock_error"]["p99_ns"].as_f64();
    let slack = error.expect("a clock error") as i64 + check::CLOCK_SLACK_NS + ENTRY_NS;
    let names = trace.function_names();
    let items: HashMap<u64, u64> = trace
        .visits()
        .iter()
        .map(|visit| (visit.visit_id, visit.item_id))
        .collect();
    let zero = trace.monotonic_ns();
    let mut in_functions = 0;
    for sample in trace.samples() {
        assert!(sample.flags & SAMPLE_EXACT_IP != 0, "{sample:?}");
        let Some(item) = sample.visit_id.map(|visit| items[&visit]) else {
            continue;
        };
        let name = &names[&sample.function_id];
        let mut calls = truth.calls.iter();
        let Some(call) = calls.find(|call| call.item == item && call.name == *name) else {
            continue;
        };
        let (enter, leave) = (call.enter as i64 - zero, call.leave as i64 - zero);
        let within = enter - slack..leave + slack;
        assert!(
            within.contains(&sample.time_ns),
            "{sample:?} not in {within:?}"
        );
        in_functions += 1;
    }
    assert!(
        in_functions > 100,
        "only {in_functions} samples in functions"
    );
}

/// A precise event: the level granted is reported, and the samples prove it.
#[test]
fn precise_cycles() {
    need!(machine::root());
    need!(machine::precise_pmu());
    let workload = Workload::build("query");
    let spec = workload.spec("process_query(id=*(arg1):u64)");
    let (recording, truth) = Recorder::new(&spec)
        .args(&["--event", "cycles:pp", "--reset", "100003"])
        .workload(&workload, &["20"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let event = &trace.json["events"][0];
    assert_eq!(event["precise_requested"], 2, "{event:#}");
    let granted = event["precise_granted"].as_u64().unwrap();
    let samples = trace.samples();
    assert!(!samples.is_empty(), "{}", recording.tool);
    let exact = samples
        .iter()
        .filter(|s| s.flags & SAMPLE_EXACT_IP != 0)
        .count();
    eprintln!(
        "precise level {granted} granted, {exact} of {} samples exact",
        samples.len()
    );
    if granted >= 2 {
        assert!(
            exact * 10 > samples.len() * 9,
            "{exact} of {} samples exact",
            samples.len()
        );
    } else {
        assert!(event["precise_reason"].is_string(), "{event:#}");
    }
}

/// The default event is the best precise one.
#[test]
fn auto_is_precise() {
    need!(machine::root());
    need!(machine::precise_pmu());
    let workload = Workload::build("query");
    let spec = workload.spec("process_query(id=*(arg1):u64)");
    let (recording, _) = Recorder::new(&spec).workload(&workload, &["20"]);
    let event = recording.trace().json["events"][0].clone();
    // IBS is precise by nature, and takes no level.
    let is_ibs = event["name"].as_str().unwrap().starts_with("ibs_op/");
    let granted = event["precise_granted"].as_u64().unwrap();
    assert!(is_ibs || granted > 0, "{event:#}");
}
