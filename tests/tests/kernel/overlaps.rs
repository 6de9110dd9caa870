//! Items that overlap on a thread, and visits within visits.

use std::collections::HashMap;

use pebs_tests::recording::Recorder;
use pebs_tests::trace::{Visit, flag};
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// An event loop with several items open: each begin finds its end by id, and the visits say that
/// they overlapped.
#[test]
fn interleaved_by_id() {
    need!(machine::root());
    let workload = Workload::build("overlap");
    let alone = workload.run(&["300", "3"]);
    let spec = workload.spec("begin_item(id=arg1)..end_item(id=arg1)");
    let (recording, truth) = Recorder::new(&spec).workload(&workload, &["300", "3"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    for visit in trace.visits() {
        let item = truth.item(visit.item_id);
        // Whether another item was open at some time between this one's begin and end.
        let overlapped = truth.items.iter().any(|other| {
            other.id != item.id && other.before < item.after && item.before < other.after
        });
        assert_eq!(visit.has(flag::OVERLAPPED), overlapped, "{visit:?}");
    }
    assert_eq!(trace.json["probes"][0]["rule"], "by_id");
    check::unharmed(&recording, &alone);
}

/// One item after the other, START and END matched by thread.
#[test]
fn in_turn_by_thread() {
    need!(machine::root());
    let workload = Workload::build("overlap");
    let spec = workload.spec("begin_item(id=arg1)..end_item");
    let (recording, truth) = Recorder::new(&spec).workload(&workload, &["300", "1"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    assert!(trace.visits().iter().all(|v| !v.has(flag::OVERLAPPED)));
    assert_eq!(trace.json["probes"][0]["rule"], "by_thread");
}

/// Self-switching software: an item lasts until the next one begins.
#[test]
fn until_the_next() {
    need!(machine::root());
    let workload = Workload::build("overlap");
    let spec = workload.spec("begin_item(id=arg1)..");
    let (recording, truth) = Recorder::new(&spec).workload(&workload, &["300", "1"]);
    let trace = recording.trace();
    let visits = trace.visits();
    check::same_items(&trace, &visits, &truth.ids());
    for pair in visits.windows(2) {
        assert_eq!(pair[0].end_ns, Some(pair[1].begin_ns), "{pair:?}");
    }
    assert_eq!(trace.json["probes"][0]["rule"], "until_next");
    // Nothing but the thread's end ends the last one.
    let last = visits.last().unwrap();
    let until = truth.item(last.item_id).after.unwrap() as i64 - trace.monotonic_ns();
    assert!(
        last.end_ns
            .is_none_or(|end| end + check::CLOCK_SLACK_NS >= until),
        "{last:?}"
    );
}

/// A function that calls itself and another probed one: every call is a visit, and visits nest as
/// the calls did.
#[test]
fn recursion() {
    need!(machine::root());
    let workload = Workload::build("recursion");
    let alone = workload.run(&["100"]);
    let inner = workload.spec("inner(id=*(arg1):u64)");
    let (recording, truth) = Recorder::new(&workload.spec("outer(id=*(arg1):u64, depth=arg2)"))
        .args(&["--uprobe", &inner])
        .workload(&workload, &["100"]);
    let trace = recording.trace();
    check::no_mark_lost(&trace);
    let (outer, inner): (Vec<Visit>, Vec<Visit>) =
        trace.visits().into_iter().partition(|v| v.probe_id == 0);
    let calls: Vec<u64> = truth.calls.iter().map(|call| call.item).collect();
    check::same_items(&trace, &outer, &calls);
    check::same_items(&trace, &inner, &truth.ids());
    let depth = trace.number_argument("depth");
    let mut by_item: HashMap<u64, Vec<&Visit>> = HashMap::new();
    for visit in outer.iter().chain(&inner) {
        by_item.entry(visit.item_id).or_default().push(visit);
    }
    for (id, visits) in by_item {
        // Outermost first, `inner` last: each within the one before.
        let nested = visits
            .windows(2)
            .all(|pair| pair[0].begin_ns <= pair[1].begin_ns && pair[1].end_ns <= pair[0].end_ns);
        assert!(nested, "{visits:?}");
        let expected: Vec<Option<u64>> = (0..=id % 5).rev().map(Some).collect();
        let found: Vec<Option<u64>> = visits[..visits.len() - 1]
            .iter()
            .map(|visit| depth[&visit.visit_id])
            .collect();
        assert_eq!(found, expected, "depths of item {id}");
    }
    check::unharmed(&recording, &alone);
}
