//! Visits that serve several items: their ids, and each one's share of the time.

use std::collections::BTreeMap;

use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::trace::{BatchItem, Trace, Visit, flag};
use pebs_tests::truth::{ItemTruth, Truth};
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};
use serde_json::Value;

/// Ids of a batch that are recorded.
const MOST: u64 = 256;

/// Sizes of the batches of the workload `batches`, by number.
fn size(batch: u64) -> u64 {
    match batch % 100 {
        0 => 300,
        _ => [1, 8, 0, 32, 40][(batch % 5) as usize],
    }
}

fn record(args: &str) -> (Trace, Truth) {
    let workload = Workload::build("batches");
    let spec = workload.spec(&format!("serve({args})"));
    let (recording, truth) = Recorder::new(&spec).beside().workload(&workload, &["200"]);
    (recording.trace(), truth)
}

/// Every batch has its items with equal shares that sum to 1; ids beyond the bound are one row without an id.
fn items_arrive(trace: &Trace, truth: &Truth) {
    check::no_mark_lost(trace);
    check::whole_visits(trace, truth);
    let mut rows: BTreeMap<u64, Vec<BatchItem>> = BTreeMap::new();
    for row in trace.batch_items() {
        rows.entry(row.visit_id).or_default().push(row);
    }
    let mut next = 1;
    for visit in trace.visits() {
        let n = size(visit.item_id);
        let rows = rows.remove(&visit.visit_id).unwrap_or_default();
        let mut ids: Vec<u64> = rows.iter().filter_map(|row| row.item_id).collect();
        ids.sort_unstable();
        let expected: Vec<u64> = (next..next + n.min(MOST)).collect();
        assert_eq!(ids, expected, "{visit:?}");
        let cut = n > MOST;
        assert_eq!(visit.has(flag::IDS_MISSING), cut, "{visit:?}");
        assert!(visit.has(flag::SHARED), "{visit:?}");
        assert_eq!(rows.len() as u64, n.min(MOST) + u64::from(cut));
        assert!(rows.iter().all(|row| row.items == Some(n)), "{rows:?}");
        let sum: f64 = rows.iter().map(|row| row.share).sum();
        assert!(n == 0 || (sum - 1.0).abs() < 1e-9, "{sum} of {visit:?}");
        let known = rows.iter().filter(|row| row.item_id.is_some());
        let each = 1.0 / n as f64;
        assert!(
            known
                .into_iter()
                .all(|row| (row.share - each).abs() < 1e-12)
        );
        next += n;
    }
    assert!(rows.is_empty(), "items of visits that are not there");
    assert_eq!(next - 1, truth.notes["items"]);
}

/// An array at a pointer and a number of items in registers, as the issue writes them.
#[test]
fn ids_of_a_batch() {
    need!(machine::root());
    let (trace, truth) = record("ids=arg2[arg3]:u64, n=arg3:i32");
    items_arrive(&trace, &truth);
    let n = trace.number_argument("n");
    for visit in trace.visits() {
        assert_eq!(n[&visit.visit_id], Some(size(visit.item_id)), "{visit:?}");
    }
    assert_eq!(trace.json["ledger"]["argument_faults"], 0);
}

/// An array within a structure, its type and the number's from the debug information.
#[test]
fn ids_by_their_names() {
    need!(machine::root());
    let (trace, truth) = record("ids=b->ids[b->n]");
    items_arrive(&trace, &truth);
}

/// Ids within structures that an array points to, by offset and by name.
#[test]
fn ids_behind_pointers() {
    need!(machine::root());
    // `items` lies behind a u16, padding and 300 u32; `id` is the first field of an item.
    for ids in [
        "ids=b->items[b->n]->id",
        "ids=b->items[arg3]->0:u64",
        "ids=arg1+1208[arg3]->0",
    ] {
        let (trace, truth) = record(ids);
        items_arrive(&trace, &truth);
        assert_eq!(trace.json["ledger"]["argument_faults"], 0, "{ids}");
    }
}

/// If one of the pointers is invalid, no id counts; their number is known.
#[test]
fn pointers_to_nowhere() {
    need!(machine::root());
    let (trace, truth) = record("ids=arg2[arg3]->8:u64");
    check::whole_visits(&trace, &truth);
    let rows = trace.batch_items();
    let known = |row: &BatchItem| row.items.is_some_and(|items| items > 0);
    assert!(
        rows.iter().all(|row| row.item_id.is_none() && known(row)),
        "{rows:?}"
    );
    let batches = (1..=200).filter(|batch| size(*batch) > 0).count();
    assert_eq!(rows.len(), batches);
}

/// Ids that are nowhere leave the items unknown, not the visit; the number of items alone is known.
#[test]
fn unreadable_ids() {
    need!(machine::root());
    let (trace, truth) = record("ids=*(arg2)[arg3]:u64");
    check::whole_visits(&trace, &truth);
    let rows = trace.batch_items();
    let mut faults = 0;
    for visit in trace.visits() {
        let own: Vec<&BatchItem> = rows
            .iter()
            .filter(|it| it.visit_id == visit.visit_id)
            .collect();
        let n = size(visit.item_id);
        if n == 0 {
            assert!(own.is_empty(), "{own:?}");
            continue;
        }
        faults += 1;
        let [all] = own[..] else { panic!("{own:?}") };
        assert_eq!((all.item_id, all.items, all.share), (None, Some(n), 1.0));
        assert!(visit.has(flag::IDS_MISSING), "{visit:?}");
    }
    let counted = trace.json["ledger"]["argument_faults"].as_u64().unwrap();
    assert!(counted >= faults, "{counted} of {faults}");
}

/// Items that are admitted one by one, served together and answered one by one, identified by their addresses,
/// which are reused: their times in all stages and between them sum to their total.
#[test]
fn batches_are_stages() {
    need!(machine::root());
    let workload = Workload::build("batches");
    let first = workload.spec("admit(id=arg1)");
    let [serve, answer] = ["serve(ids=b->items[b->n])", "answer(id=arg1)"];
    let (recording, truth) = Recorder::new(&first)
        .beside()
        .args(&["--uprobe", &workload.spec(serve)])
        .args(&["--uprobe", &workload.spec(answer)])
        .args(&["--reset", "100000"])
        .workload(&workload, &["199"]);
    check::no_mark_lost(&recording.trace());
    let dir = recording.dir().display().to_string();
    let report = pebs_trace(["report", &dir, "--format", "json", "--all"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let stages = &report["stages"];
    let items = truth.notes["items"];
    assert_eq!(stages["items"], items, "{stages:#}");
    let of_batch = &stages["stages"][1];
    // Items without an id in the batch of 300.
    let unknown = 300 - MOST;
    assert_eq!(stages["unknown_ids"], unknown, "{stages:#}");
    assert_eq!(of_batch["visits"], items - unknown, "{stages:#}");
    let alone = (1..200).filter(|batch| size(*batch) == 1).count() as u64;
    assert_eq!(of_batch["shared"], items - alone - unknown, "{stages:#}");
    let mut sum = 0.0;
    for stage in stages["stages"].as_array().unwrap() {
        for share in ["service_share", "waiting_share", "others_share"] {
            sum += stage[share].as_f64().unwrap();
        }
    }
    assert!((sum - 1.0).abs() < 1e-6, "{sum}: {stages:#}");
    let served = of_batch["service"]["mean_ns"].as_f64().unwrap() * (items - unknown) as f64;
    // Of an incomplete batch only the shares of the known items.
    let known = |id: u64| size(id).min(MOST) as f64 / size(id).max(1) as f64;
    let inside = |it: &ItemTruth| (it.leave.unwrap() - it.enter.unwrap()) as f64 * known(it.id);
    // pebs-trace's own time is not part of the service.
    let visits = recording.trace().visits();
    let batches = visits.iter().filter(|it| it.probe_id == 1);
    let own = |it: &Visit| it.duration_ns.unwrap() - it.net_ns.unwrap();
    let own: f64 = (1..)
        .zip(batches)
        .map(|(id, it)| own(it) as f64 * known(id))
        .sum();
    let served = served + own;
    let least: f64 = truth.items.iter().map(inside).sum::<f64>() - items as f64;
    let around = |it: &ItemTruth| (it.after.unwrap() - it.before.unwrap()) as f64 * known(it.id);
    let most: f64 = truth.items.iter().map(around).sum();
    assert!(least <= served && served <= most, "{least} {served} {most}");
    let text = pebs_trace(["report", &dir, "--all"]);
    assert!(text.stdout.contains("others of the batch in"), "{text}");
    let explained = pebs_trace(["explain", &dir, "--all", "--format", "json"]);
    let explained: Value = serde_json::from_str(&explained.stdout).unwrap();
    assert_eq!(explained["probes"][0]["items"], items, "{explained:#}");
}
