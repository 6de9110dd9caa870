//! Items with marks whose turns on threads are known from ids at samples, against the workload's log.

use std::collections::{HashMap, HashSet};

use pebs_tests::explain::{explain, whole};
use pebs_tests::recording::{Recorder, Recording};
use pebs_tests::trace::{Trace, flag};
use pebs_tests::truth::{CallTruth, Truth};
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// ITEMS, TURNS, ROUNDS, SLOW, THREADS, OPEN.
const RUN: [&str; 6] = ["1000", "10", "600", "10", "4", "8"];

fn record() -> (Recording, Trace, Truth) {
    let workload = Workload::build("marked");
    let spec = workload.spec("begin_item(id=arg1)..end_item(id=arg1)");
    let (recording, truth) = Recorder::new(&spec)
        .args(&["--item-reg", "r13"])
        .args(&["--event", "cpu-clock", "--reset", "50000"])
        .workload(&workload, &RUN);
    let trace = recording.trace();
    (recording, trace, truth)
}

/// Fibers that four threads take from each other: their marks give begin and end, the register whose turn it is. Times on the
/// CPU are those of the program's own clock within 1 %, and no sample of what only slow items do is in another one.
#[test]
fn fibers_with_marks() {
    need!(machine::root());
    let (recording, trace, truth) = record();
    let visits = trace.visits();
    check::same_items(&trace, &visits, &truth.ids());
    let zero = trace.monotonic_ns();
    for visit in &visits {
        assert!(
            !visit.has(flag::END_MISSING | flag::OPEN_AT_END),
            "{visit:?}"
        );
        let item = truth.item(visit.item_id);
        let at = |ns: Option<u64>| ns.map_or(0, |ns| ns as i64 - zero);
        let end = visit.end_ns.unwrap_or(i64::MAX);
        let begins = at(item.before)..=at(item.enter);
        let ends = at(item.leave)..=at(item.after);
        assert!(begins.contains(&visit.begin_ns), "{begins:?} {visit:?}");
        assert!(ends.contains(&end), "{ends:?} {visit:?}");
    }
    let took: HashMap<u64, f64> = visits
        .iter()
        .map(|it| (it.item_id, it.oncpu_ns.unwrap_or(0) as f64))
        .collect();
    let (slow, usual): (Vec<&CallTruth>, Vec<&CallTruth>) =
        truth.calls.iter().partition(|it| it.name == "slow");
    assert_eq!((slow.len(), usual.len()), (10, 990));
    for of in [&slow, &usual] {
        let found: f64 = of.iter().map(|it| took[&it.item]).sum();
        // A register has an item's id for longer than the item reads its own clock, and shorter than its thread does.
        let within: f64 = of.iter().map(|it| it.enter as f64).sum();
        let around: f64 = of.iter().map(|it| it.leave as f64).sum();
        let known = 0.99 * within..=1.01 * around;
        println!("{} items: {found} of {within} .. {around}", of.len());
        assert!(known.contains(&found), "{found}: {known:?}");
    }
    let is_slow: HashSet<u64> = slow.iter().map(|it| it.item).collect();
    let items: HashMap<u64, u64> = visits.iter().map(|it| (it.visit_id, it.item_id)).collect();
    let names = trace.function_names();
    let mut threads: HashMap<u64, HashSet<u64>> = HashMap::new();
    let mut rebuilds = 0;
    for sample in trace.samples() {
        let Some(visit) = sample.visit_id else {
            continue;
        };
        let item = items[&visit];
        threads.entry(item).or_default().insert(sample.tid);
        if names
            .get(&sample.function_id)
            .is_some_and(|it| it == "rebuild")
        {
            assert!(is_slow.contains(&item), "{sample:?} of item {item}");
            rebuilds += 1;
        }
    }
    assert!(rebuilds > 1_000, "{rebuilds} samples");
    let moved = slow.iter().filter(|it| threads[&it.item].len() > 1).count();
    assert!(moved > 5, "{moved} of ten changed their thread");
    // By time on the CPU these ten are the slow ones, whatever else runs.
    let explained = explain(&recording.dir(), &["--slow", "cpu"]);
    let group = whole(&explained);
    assert_eq!(group.number(&["slow", "items"]) as u64, 10, "{:#}", group.0);
    let first = group.first();
    assert_eq!(first.name(), "rebuild", "{:#}", first.0);
    assert!(first.share() > 0.9, "{:#}", first.0);
    // By default by their exact durations.
    let explained = explain(&recording.dir(), &[]);
    assert_eq!(explained["unit"], "visit");
    let first = whole(&explained).first_of_program();
    assert!(["rebuild", ""].contains(&first.name()), "{:#}", first.0);
}
