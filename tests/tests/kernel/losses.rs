//! Losses made on purpose: each is in the ledger and in `losses`, and on the visits that it hit.

use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::sysctl::SampleRate;
use pebs_tests::trace::{Trace, flag};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Samples a second that the kernel grants here. Above the 62,500 of the default reset value and
/// well below the 100,000 that are asked for, so that others on the machine notice nothing.
const GRANTED: u64 = 65_000;

/// Items of the workload: some hundred ticks.
const ITEMS: &str = "20000";

/// The longest tick that Linux can be built with: what is throttled goes on at the next.
const TICK_NS: i64 = 10_000_000;

/// The last sample before the kernel stops a counter is taken together with the stop.
const TOGETHER_NS: i64 = 10_000;

/// The kernel throttles the counters of a process that the tool was told of.
#[test]
fn throttled() {
    need!(machine::root());
    let rate = need!(SampleRate::lower(GRANTED));
    let workload = Workload::build("plain");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .args(&["--event", "cpu-clock", "--reset", "10000"])
        .under(rate.lock())
        .workload(&workload, &[ITEMS]);
    drop(rate);
    let clean = throttled_is_said(&recording, &truth);
    // The counter is the thread's, and so its next sample shows when it goes on.
    assert!(clean > 0, "every visit is flagged\n{}", recording.tool);
}

/// The kernel throttles the counters of whole CPUs, whoever runs on them.
#[test]
fn throttled_cpus() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let mut target = workload.start(&[ITEMS]);
    let rate = need!(SampleRate::lower(GRANTED));
    let live = Recorder::new(&workload.spec(super::ID))
        .args(&["--event", "cpu-clock", "--reset", "10000"])
        .under(rate.lock())
        .start();
    target.go();
    let (_, truth) = target.finish();
    let recording = live.stop();
    drop(rate);
    throttled_is_said(&recording, &truth);
}

/// No sample lies in a range, and the flags are those of visits that overlap one; the ledger and the
/// report say how often. No record is lost by it: exit 0. Gives the number of visits not flagged.
fn throttled_is_said(recording: &Recording, truth: &Truth) -> usize {
    let trace = recording.trace();
    check::whole_visits(&trace, truth);
    let losses = trace.losses();
    assert!(!losses.is_empty(), "not throttled\n{}", recording.tool);
    for loss in &losses {
        assert_eq!(
            (loss.reason.as_str(), loss.records),
            ("throttled", None),
            "{loss:?}"
        );
        let length = loss.end_ns - loss.begin_ns;
        assert!((1..=TICK_NS).contains(&length), "{loss:?}");
    }
    no_sample_within(&trace);
    let (mut flagged, mut clean) = (0, 0);
    for visit in trace.visits() {
        let hit = losses.iter().any(|loss| loss.overlaps(&visit));
        assert_eq!(visit.has(flag::THROTTLED), hit, "{visit:?}");
        *(if hit { &mut flagged } else { &mut clean }) += 1;
    }
    assert!(flagged > 0, "no visit is flagged\n{}", recording.tool);
    let times = losses.len() as u64;
    assert_eq!(
        trace.json["ledger"]["throttled"].as_u64(),
        Some(times),
        "{:#}",
        trace.json["ledger"]
    );
    let report = pebs_trace(["report".as_ref(), trace.dir.as_os_str()]);
    let said = format!("sampling was throttled {}", grouped(times));
    assert!(report.stdout.contains(&said), "no '{said}'\n{report}");
    let warned = recording.tool.stderr.contains("the kernel will throttle");
    assert!(warned, "not said before the run\n{}", recording.tool);
    clean
}

/// While its counter stands still, a thread has no sample on that CPU.
fn no_sample_within(trace: &Trace) {
    let mut samples = trace.samples();
    samples.sort_by_key(|sample| sample.time_ns);
    for loss in trace.losses() {
        let first = samples.partition_point(|s| s.time_ns <= loss.begin_ns + TOGETHER_NS);
        let within = samples[first..]
            .iter()
            .take_while(|sample| sample.time_ns < loss.end_ns)
            .find(|s| (Some(s.cpu), Some(s.tid)) == (loss.cpu, loss.tid));
        assert!(within.is_none(), "{within:?} within {loss:?}");
    }
}

/// As the report writes a number: with a comma before the last three digits.
fn grouped(n: u64) -> String {
    if n < 1000 {
        n.to_string()
    } else {
        format!("{},{:03}", n / 1000, n % 1000)
    }
}
