//! Recordings that keep only slow items.

use std::collections::HashSet;

use pebs_tests::explain::explain;
use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::trace::{Trace, Visit, flag};
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Rounds of ten queries, two of which are computed while the others are in the cache.
const ROUNDS: &str = "100";

/// Visits of a measure in `function_stats`.
fn counted(trace: &Trace, measure: &str) -> u64 {
    let stats = trace.table("function_stats");
    let (measures, with) = (stats.text("measure"), stats.u64("visits_with"));
    let rows = measures.iter().zip(with);
    rows.filter(|(name, _)| name.as_deref() == Some(measure))
        .filter_map(|(_, visits)| visits)
        .sum()
}

fn samples(trace: &Trace) -> u64 {
    let stats = trace.table("function_stats");
    let rows = stats.text("measure").into_iter().zip(stats.u64("samples"));
    rows.filter(|(name, _)| name.as_deref() == Some("self"))
        .filter_map(|(_, samples)| samples)
        .sum()
}

/// Every query that was computed is kept with its details; the others are all in the aggregates,
/// and their samples are booked. The ledger balances.
#[test]
fn slow_queries_are_kept() {
    need!(machine::root());
    let workload = Workload::build("query");
    let spec = workload.spec("process_query(id=*(arg1):u64)");
    let (recording, truth) = Recorder::new(&spec)
        .args(&["--event", "cpu-clock", "--reset", "50000"])
        .args(&["--keep", "slow", "--slow", "3x"])
        .workload(&workload, &[ROUNDS]);
    let trace = recording.trace();
    let visits = trace.visits();
    check::same_items(&trace, &visits, &truth.ids());
    let computed: HashSet<u64> = truth
        .calls
        .iter()
        .filter(|call| call.name == "f3")
        .map(|call| call.item)
        .collect();
    assert_eq!(computed.len(), visits.len() / 5);
    let kept = |visit: &&Visit| !visit.has(flag::CONDENSED);
    let of_kept: HashSet<u64> = visits.iter().filter(kept).map(|it| it.item_id).collect();
    let missed: Vec<_> = computed.difference(&of_kept).collect();
    assert!(
        missed.is_empty(),
        "not kept: {missed:?}\n{}",
        recording.tool
    );
    assert!(of_kept.len() < visits.len() / 2, "{} kept", of_kept.len());

    assert_eq!(counted(&trace, "duration"), visits.len() as u64);
    let in_visits: u64 = visits.iter().map(|visit| visit.samples).sum();
    assert_eq!(samples(&trace), in_visits);
    let not_kept = trace.account("samples").reasons["not_kept"];
    let written: u64 = visits.iter().filter(kept).map(|visit| visit.samples).sum();
    assert_eq!(trace.account("samples").written, written);
    assert!(not_kept >= in_visits - written);
    let rows: HashSet<u64> = trace.waits().iter().map(|wait| wait.visit_id).collect();
    let condensed = visits.iter().filter(|visit| visit.has(flag::CONDENSED));
    assert_eq!(
        condensed.filter(|it| rows.contains(&it.visit_id)).count(),
        0
    );
    let kept = &trace.json["keep"]["visits"];
    let sum: u64 = kept
        .as_object()
        .unwrap()
        .values()
        .filter_map(|n| n.as_u64())
        .sum();
    assert_eq!(sum, of_kept.len() as u64, "{kept}");
    assert!(
        recording.tool.stdout.contains("--keep slow --slow 3x"),
        "{}",
        recording.tool
    );
}

/// Nothing is kept, and the report still shows where the time went.
#[test]
fn nothing_is_kept() {
    need!(machine::root());
    let workload = Workload::build("query");
    let spec = workload.spec("process_query(id=*(arg1):u64)");
    let (recording, _) = Recorder::new(&spec)
        .beside()
        .args(&["--event", "cpu-clock", "--reset", "50000", "--keep", "none"])
        .workload(&workload, &["20"]);
    let trace = recording.trace();
    for table in ["samples", "visit_functions", "waits"] {
        assert!(trace.table(table).is_empty(), "{table}");
    }
    assert!(
        trace
            .visits()
            .iter()
            .all(|visit| visit.has(flag::CONDENSED))
    );
    let report = &recording.tool.stdout;
    assert!(
        report.contains("f3") && report.contains("not kept"),
        "{report}"
    );
}

/// Queries for one row that have to load it take less time than those for fifty rows, and more than any other for one
/// row: with default options they are named first, with what they do more, and kept where only slow items are.
#[test]
fn slow_for_their_kind() {
    need!(machine::root());
    for keep in [&[][..], &["--keep", "slow"]] {
        // On a busy machine as many others of one row are held up as have to load it.
        assert!((0..3).any(|_| are_named_first(keep)), "{keep:?}");
    }
}

/// Records queries, and says whether those that had to load their row are kept and named first; prints what is said.
fn are_named_first(keep: &[&str]) -> bool {
    let workload = Workload::build("kinds");
    let spec = workload.spec("query(id=*(arg1):u64, n=*(arg1+12):u32)");
    let recorder = Recorder::new(&spec).own_pace().args(keep);
    let (recording, truth) = recorder.workload(&workload, &["120000"]);
    let trace = recording.trace();
    let visits = trace.visits();
    check::same_items(&trace, &visits, &truth.ids());
    let cold = truth.calls.iter().filter(|call| call.name == "load");
    let cold: HashSet<u64> = cold.map(|call| call.item).collect();
    assert_eq!(cold.len(), 240);
    let kept = visits.iter().filter(|visit| !visit.has(flag::CONDENSED));
    let kept: HashSet<u64> = kept.map(|visit| visit.item_id).collect();
    if !keep.is_empty() {
        assert!(kept.len() < visits.len() / 10, "{} kept", kept.len());
    }
    let explained = explain(&recording.dir(), &[]);
    let first = &explained["probes"][0]["slow_for_kind"][0];
    let said = pebs_trace(["explain".as_ref(), recording.dir().as_os_str()]);
    println!("{said}");
    let slow = first["slow"]["items"].as_u64().unwrap_or(0);
    let sentence = said
        .stdout
        .split("slow because:")
        .next()
        .unwrap_or_default();
    // Beside functions with few samples `load` is one of the program's.
    let named = ["(load ", " load"].iter().any(|it| sentence.contains(it));
    cold.is_subset(&kept)
        && first["labels"][0]["value"] == "1"
        && (233..=360).contains(&slow)
        && sentence.contains("\nslow for n=1: ")
        && named
}
