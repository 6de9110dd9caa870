//! Losses made on purpose: each is in the ledger and in `losses`, and on the visits that it hit.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use std::collections::HashSet;
use std::time::Duration;

use pebs_tests::process::Signal;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::sysctl::SampleRate;
use pebs_tests::trace::{Trace, flag};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Samples a second that the kernel allows here: well below the 100,000 requested, and below the rate on a slow or busy
/// machine.
const GRANTED: u64 = 20_000;

/// Items of the workload: some hundred ticks.
const ITEMS: &str = "20000";

/// The longest tick that Linux can be built with: a throttled counter resumes at the next tick.
const TICK_NS: i64 = 10_000_000;

/// The last sample before the kernel stops a counter is taken together with the stop.
const TOGETHER_NS: i64 = 10_000;

/// The kernel throttles the counters of a process that the tool was given.
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
    let clean = throttling_is_reported(&recording, &truth);
    // The counter is the thread's, so its next sample shows when it resumed.
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
    throttling_is_reported(&recording, &truth);
}

/// Checks that no sample lies in a range, that exactly the visits that overlap a range are flagged, and that the ledger
/// and the report have the number. No record is lost: exit 0. Returns the number of visits not flagged.
fn throttling_is_reported(recording: &Recording, truth: &Truth) -> usize {
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
    }
    // The next tick may itself be late, if a host takes the CPU away: so not every one of them. A change of the distance
    // between samples may end one at once.
    let lengths = losses.iter().map(|it| it.end_ns - it.begin_ns);
    let shortest = lengths.clone().filter(|ns| *ns > 0).min();
    assert!(
        lengths.min() >= Some(0) && shortest.is_some_and(|ns| ns <= TICK_NS),
        "{losses:?}"
    );
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
    let line = format!("sampling was throttled {}", grouped(times));
    assert!(report.stdout.contains(&line), "no '{line}'\n{report}");
    let warned = recording.tool.stderr.contains("the kernel will throttle");
    assert!(warned, "not said before the run\n{}", recording.tool);
    clean
}

/// While its counter is stopped, a thread has no sample on that CPU.
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

/// Number of items whose marks fit in a ring of 64 KiB; `4 * CPUs` such parts do not fit in the rings of all CPUs.
const FITS: usize = 600;

/// The tool is stopped and continued again and again, and while it is stopped more marks come than its rings hold:
/// marks are refused, at the begin and at the end of visits.
#[test]
fn marks_refused() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let parts = 4 * std::thread::available_parallelism().map_or(1, usize::from);
    let (rounds, part) = (12, FITS.to_string());
    let items = FITS * (1 + rounds * parts);
    let mut target = workload.start(&[&items.to_string(), "0", &part]);
    let live = Recorder::new(&workload.spec(super::ID))
        .args(&["--ring-size", "64KiB", "--reset", "10000000"])
        .attach(target.process.pid());
    let mut handled = 0;
    let mut handle = |parts: usize| {
        for _ in 0..parts {
            target.go();
            handled += FITS;
            if handled < items {
                let line = format!("handled {handled} items");
                target.process.wait_for_line(&line);
            }
        }
    };
    // These are whole, however late the tool has its turn.
    handle(1);
    live.until_rows("visits", FITS);
    for _ in 0..rounds {
        live.tool.signal(Signal::STOP);
        handle(parts);
        live.tool.signal(Signal::CONT);
        // The rings are emptied.
        std::thread::sleep(Duration::from_millis(60));
    }
    let (_, truth) = target.finish();
    let whole = refused_marks_are_reported(&live.stop(), &truth);
    assert!(whole >= FITS, "{whole} whole visits");
}

/// The rings are so small, and the marks so large, that they overflow between two reads.
#[test]
fn ring_too_small() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let name = "str(*(arg1+16), 200)";
    let spec = format!("handle(id=*(arg1):u64, a={name}, b={name})");
    let (recording, truth) = Recorder::new(&workload.spec(&spec))
        .args(&["--ring-size", "64KiB", "--reset", "10000000"])
        .workload(&workload, &["20000"]);
    refused_marks_are_reported(&recording, &truth);
    let hint = recording
        .tool
        .stderr
        .contains("raise --ring-size (now 64.0 KiB)");
    assert!(hint, "{}", recording.tool);
}

/// Checks that damaged visits are flagged, missing ones were lost within a range, none are invented, and all others are
/// exact; the exit status is that of loss. Returns the number of visits without loss.
fn refused_marks_are_reported(recording: &Recording, truth: &Truth) -> usize {
    let trace = recording.trace_with_loss();
    assert_eq!(recording.tool.code(), Some(1), "{}", recording.tool);
    let marks = trace.account("marks");
    assert_eq!(marks.seen, 2 * truth.items.len() as u64, "{marks:?}");
    let refused = marks.reasons.get("dropped_ring_full").copied();
    assert!(refused > Some(0), "no mark was refused\n{}", recording.tool);

    let losses = trace.losses();
    let ranges = losses.iter().map(|loss| loss.records.unwrap_or(0));
    let tasks = trace.account("tasks").lost() + trace.account("samples").lost();
    assert_eq!(ranges.sum::<u64>(), refused.unwrap() + tasks, "{losses:?}");
    let visits = trace.visits();
    let broken = flag::UNWOUND | flag::END_MISSING | flag::OPEN_AT_END;
    let mut found = HashSet::new();
    for visit in &visits {
        assert!(found.insert(visit.item_id), "item twice: {visit:?}");
        let hit = losses.iter().any(|loss| loss.concerns(visit));
        assert_eq!(visit.has(flag::LOSS), hit, "{visit:?}");
        if !hit {
            assert!(!visit.has(broken), "{visit:?}");
            check::within_truth(&trace, visit, truth.item(visit.item_id));
        }
    }
    let whole = visits.iter().filter(|visit| !visit.has(flag::LOSS)).count();
    assert!(whole < visits.len(), "{whole} whole visits");
    let zero = trace.monotonic_ns();
    for item in truth.items.iter().filter(|it| !found.contains(&it.id)) {
        let (from, to) = (item.before.unwrap() as i64, item.enter.unwrap() as i64);
        let lost = losses
            .iter()
            .any(|loss| loss.begin_ns <= to - zero && from - zero <= loss.end_ns);
        assert!(lost, "no visit and no loss: {item:?}");
    }
    whole
}
