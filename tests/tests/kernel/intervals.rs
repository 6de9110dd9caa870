//! Events counted in intervals (`--count-interval`), against each thread's log.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap, HashSet};

use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::trace::{IntervalCount, Trace};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need};

const EVENTS: &str = "mem:hit:x,page-faults,context-switches,task-clock";

/// Their numbers.
const HITS: u64 = 0;
const PAGES: u64 = 1;
const SWITCHES: u64 = 2;
const CLOCK: u64 = 3;

/// Length of the intervals.
const INTERVAL_NS: i64 = 20_000_000;

/// A tick may be as late or early as this: the machine may be busy.
const LATE_NS: i64 = 5_000_000;

fn record(args: &[&str]) -> (Trace, Truth) {
    let workload = Workload::build("intervals");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .args(args)
        .workload(&workload, &["150", "2"]);
    (recording.trace(), truth)
}

/// Rows by thread, for threads without missing rows.
fn whole_threads(rows: &[IntervalCount]) -> HashMap<u64, Vec<&IntervalCount>> {
    let mut threads: HashMap<u64, Vec<&IntervalCount>> = HashMap::new();
    for row in rows {
        assert_eq!(row.count.is_some(), row.state == "exact", "{row:?}");
        threads.entry(row.tid).or_default().push(row);
    }
    threads.retain(|_, rows| rows.iter().all(|row| row.state == "exact"));
    threads
}

fn sum(rows: &[&IntervalCount], event: u64) -> u64 {
    let of_event = rows.iter().filter(|row| row.event == event);
    of_event.filter_map(|row| row.count).sum()
}

/// Summed over intervals, each thread has its true counts, with or without marks and however short-lived; and each
/// interval has at least the bursts that lie within it, and at most those that it overlaps.
#[test]
fn as_the_threads_did() {
    need!(machine::root());
    // The host takes the CPU away from some threads, which their clocks do not see.
    let is_near = |[logged, counted]: [u64; 2]| {
        println!("{logged} ns on the CPU logged, {counted} counted");
        logged * 9 / 10 <= counted && counted <= logged * 12 / 10
    };
    assert!((0..3).any(|_| is_near(logged_and_counted())));
}

/// Compares the counts of a recording with those that its threads logged; returns the time on the CPU of all together
/// as logged and as counted, ns.
fn logged_and_counted() -> [u64; 2] {
    let (trace, truth) = record(&["--count", EVENTS, "--count-interval", "20"]);
    assert_eq!(trace.json["count_interval_ns"], INTERVAL_NS);
    let zero = trace.monotonic_ns();
    let rows = trace.interval_counts();
    let once: HashSet<_> = rows
        .iter()
        .map(|it| (it.tid, it.begin_ns, it.event))
        .collect();
    assert_eq!(
        once.len(),
        rows.len(),
        "one row a thread, interval and event"
    );
    let all: HashSet<u64> = truth.calls.iter().map(|call| call.tid.into()).collect();
    let threads = whole_threads(&rows);
    println!("{} of {} threads are known", threads.len(), all.len());
    assert!(5 * threads.len() > 4 * all.len());
    for (tid, rows) in threads.iter().filter(|(tid, _)| all.contains(tid)) {
        let of = |name: &'static str| {
            let calls = truth.calls.iter();
            calls.filter(move |call| u64::from(call.tid) == *tid && call.name == name)
        };
        let hits: u64 = of("hits").map(|it| it.item).sum();
        assert_eq!(sum(rows, HITS), hits, "{rows:?}");
        let pages: u64 = of("pages").map(|it| it.item).sum();
        // Its stack and its log are new pages, too, and so are those of the library.
        let faults = sum(rows, PAGES);
        assert!((pages..pages + 1_000).contains(&faults), "{faults} {pages}");
        let end = of("task").next().expect("its end");
        let switches = sum(rows, SWITCHES);
        // Its last switch off the CPU is not logged.
        assert!((end.enter..=end.enter + 2).contains(&switches), "{end:?}");
        let mut by_interval: BTreeMap<i64, [u64; 4]> = BTreeMap::new();
        for row in rows {
            assert_eq!(
                row.begin_ns.rem_euclid(INTERVAL_NS),
                rows[0].begin_ns.rem_euclid(INTERVAL_NS)
            );
            let counts = by_interval.entry(row.begin_ns).or_default();
            counts[row.event as usize] = row.count.expect("whole");
            let ns = row.enabled_ns.expect("whole");
            assert!((0..=INTERVAL_NS + LATE_NS).contains(&ns), "{row:?}");
        }
        for (begin, counts) in by_interval {
            let (begin, end) = (zero + begin, zero + begin + INTERVAL_NS);
            let during = |name: &'static str, widened: i64| {
                let within = move |enter: u64, leave: u64| {
                    enter as i64 >= begin + LATE_NS && leave as i64 <= end - LATE_NS
                };
                let overlaps = move |enter: u64, leave: u64| {
                    leave as i64 >= begin - LATE_NS && enter as i64 <= end + LATE_NS
                };
                of(name)
                    .filter(|it| match widened {
                        0 => within(it.enter, it.leave),
                        _ => overlaps(it.enter, it.leave),
                    })
                    .map(|it| it.item)
                    .sum::<u64>()
            };
            let (least, most) = (during("hits", 0), during("hits", 1));
            let hits = counts[HITS as usize];
            assert!((least..=most).contains(&hits), "{least} {hits} {most}");
            assert!(counts[PAGES as usize] >= during("pages", 0));
        }
    }
    let ends = truth.calls.iter().filter(|call| call.name == "task");
    let of_known = ends.filter_map(|end| {
        let rows = threads.get(&u64::from(end.tid))?;
        Some([end.leave, sum(rows, CLOCK)])
    });
    of_known.fold([0; 2], |sum, one| [0, 1].map(|n| sum[n] + one[n]))
}

/// Counts of items are the same with intervals: a tick within an item divides the count, and no event is lost. The cost
/// of ticks is reported before the start and in the account.
#[test]
fn items_as_without() {
    need!(machine::root());
    let args = ["--count", "mem:hit:x", "--count-interval", "1"];
    let (trace, truth) = record(&args);
    let counts = trace.counts();
    let known = counts.iter().filter(|row| row.state == "exact");
    assert!(5 * known.count() > 4 * counts.len());
    for row in counts.iter().filter(|row| row.state == "exact") {
        // The calls of the burst are the item's number by another rule.
        let calls = row.item_id % 1_000_000 % 11;
        assert_eq!(row.count, Some(calls), "{row:?}");
    }
    assert!(!truth.items.is_empty());
    let (cost, own) = (&trace.json["cost"], &trace.json["own_time"]);
    let each = own["tick"]["ns"].as_f64().expect("it can be measured");
    let ticks = cost["ticks"].as_u64().expect("a number");
    assert!(ticks > 0 && each > 0.0, "{cost:#}");
    let all = cost["ticks_ns"].as_f64().expect("a number");
    assert!(
        (all - each * ticks as f64).abs() <= 1.0,
        "{all} {each} {ticks}"
    );
    let notes = trace.json["notes"].to_string();
    assert!(notes.contains("; also every 1.00 ms, in "), "{notes}");
}

/// Events without a counter of their own, and `mine` of the intervals.
#[test]
fn mined() {
    need!(machine::root());
    let args = ["--count", "context-switches", "--count-interval", "10"];
    let (trace, _) = record(&args);
    assert!(
        trace
            .interval_counts()
            .iter()
            .any(|row| row.count > Some(0))
    );
    let args = ["--count", "mem:hit:x,page-faults", "-I", "10"];
    let (trace, _) = record(&args);
    let dir = trace.dir.to_str().expect("a path of ours");
    let done = pebs_trace(["mine", dir, "--series", "intervals", "--format", "json"]);
    assert_eq!(done.code(), Some(0), "{done}");
    let json: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(json["outcome"], "oncpu_ns", "{done}");
    assert_eq!(json["is_timed"], true, "{done}");
    assert!(json["rows"].as_u64() > Some(60), "{done}");
    let (trace, _) = record(&["--count", "page-faults"]);
    let dir = trace.dir.to_str().expect("a path of ours");
    let done = pebs_trace(["mine", dir, "--series", "intervals"]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(
        done.stderr
            .contains("no events were counted in intervals in"),
        "{done}"
    );
    assert!(done.stderr.contains("--count-interval"), "{done}");
}
