//! Precise sampling, on a machine that has the hardware.

use pebs_tests::recording::Recorder;
use pebs_tests::trace::SAMPLE_EXACT_IP;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

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
    assert!(event["precise_granted"].as_u64().unwrap() > 0, "{event:#}");
}
