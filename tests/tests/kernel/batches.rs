//! Visits that serve several items: which ones, and what of the time is each one's.

use std::collections::BTreeMap;

use pebs_tests::recording::Recorder;
use pebs_tests::trace::{BatchItem, Trace, flag};
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

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
    let (recording, truth) = Recorder::new(&spec).workload(&workload, &["200"]);
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
