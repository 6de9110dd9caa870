//! Visits that serve several items: their ids, and each one's share of the time.

use std::collections::BTreeMap;

use pebs_tests::explain::explain;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
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

/// Records the workload `mixed_batches` with default options, but however costly it is: 1,000 batches, and these further SPECs.
fn record_mixed(specs: &[&str], args: &[&str]) -> (Recording, Truth) {
    let workload = Workload::build("mixed_batches");
    // Marks are most of the work.
    let mut recorder = Recorder::plain().own_pace().args(&["--force"]);
    for spec in specs {
        recorder = recorder.args(&["--uprobe", &workload.spec(spec)]);
    }
    let args: Vec<&str> = ["1000"].iter().chain(args).copied().collect();
    let (recording, truth) = recorder.workload(&workload, &args);
    check::no_mark_lost(&recording.trace());
    (recording, truth)
}

/// Returns the cost of items in the batches of a recording, as `explain` has it.
fn mix(recording: &Recording) -> Value {
    let explained = explain(&recording.dir(), &[]);
    explained["probes"][0]["mixes"][0].clone()
}

const ADMIT: &str = "admit(id=it->id, n=it->n)";
const SERVE: &str = "serve(ids=b->items[b->n]->id)";

/// Costs by kind in the order of the kinds, each with its label and the truth.
fn costs(mix: &Value, truth: &Truth) -> Vec<(String, f64, f64)> {
    let kinds = mix["costs"]["kinds"].as_array();
    let with_truth = (1..).zip(kinds.into_iter().flatten()).map(|(kind, found)| {
        let label = found["labels"][0]["value"].as_str().unwrap_or("");
        let truth = truth.notes[&format!("kind{kind}")] as f64;
        (
            label.to_owned(),
            found["ns"].as_f64().unwrap_or(f64::NAN),
            truth,
        )
    });
    with_truth.collect()
}

/// The batch of the dear item is dear by as much as this took longer. If it was preempted, it is so by a little more or less.
fn dear_by_its_time(named: &Value, truth: &Truth) {
    let longer = (truth.notes["dear_ns"] - truth.notes["kind1"]) as f64;
    let beyond = named["beyond_ns"].as_f64().unwrap_or(f64::NAN);
    println!("dear by {beyond} ns, truth {longer}");
    let allowed = match named["waited_ns"].as_i64() {
        Some(0) => 0.15,
        _ => 0.5,
    };
    assert!(
        (beyond / longer - 1.0).abs() < allowed,
        "{beyond}, not {longer}: {named:#}"
    );
}

/// Items of three kinds in batches of 0 to 64: what each costs is within 5 % of the program's own clock, and the one
/// batch of 1,000 with a dear item of a cheap kind is named, by as much as the item took longer.
#[test]
fn costs_by_kind() {
    need!(machine::root());
    let (recording, truth) = record_mixed(&[ADMIT, SERVE], &[]);
    let mix = mix(&recording);
    let costs = costs(&mix, &truth);
    println!("{costs:?} of {:#}", mix["costs"]);
    assert_eq!(costs.len(), 3, "{mix:#}");
    for (kind, (label, found, truth)) in (1..).zip(&costs) {
        assert_eq!(*label, kind.to_string(), "{mix:#}");
        let off = (found / truth - 1.0).abs();
        assert!(off < 0.05, "n={kind}: {found} ns, not {truth}: {mix:#}");
    }
    let dear = mix["dear"].as_array().unwrap();
    let named = dear
        .iter()
        .find(|it| it["item_id"] == truth.notes["dear_batch"]);
    let named = named.unwrap_or_else(|| panic!("{mix:#}"));
    dear_by_its_time(named, &truth);
    let dir = recording.dir().display().to_string();
    for command in ["report", "explain"] {
        let text = pebs_trace([command, &dir]);
        let words = text.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "for each n=1, ",
            "slow for what they hold: ",
            "only a mark inside tells",
        ] {
            assert!(words.contains(expected), "{text}");
        }
    }
}

/// Items that cost the same whatever their kind have one cost.
#[test]
fn equal_costs() {
    need!(machine::root());
    let (recording, truth) = record_mixed(&[ADMIT, SERVE], &["1"]);
    let mix = mix(&recording);
    let costs = costs(&mix, &truth);
    let [(label, found, truth)] = &costs[..] else {
        panic!("{mix:#}");
    };
    assert_eq!(
        (&**label, &mix["costs"]["arguments"][0]),
        ("", &"n".into()),
        "{mix:#}"
    );
    assert!(
        (found / truth - 1.0).abs() < 0.05,
        "{found} ns, not {truth}: {mix:#}"
    );
    let text = pebs_trace(["report", &recording.dir().display().to_string()]);
    let words = text.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("for each item, whatever its n"), "{text}");
}

/// A probe of what the batch calls for each item tells which one was dear.
#[test]
fn marks_inside_of_batches() {
    need!(machine::root());
    let serve = SERVE.replace("serve", "serve_each");
    let (recording, truth) = record_mixed(&[ADMIT, &serve, "handle(id=it->id)"], &["0", "1"]);
    let mix = mix(&recording);
    let dear = mix["dear"].as_array().unwrap();
    let named = dear
        .iter()
        .find(|it| it["item_id"] == truth.notes["dear_batch"]);
    let named = named.unwrap_or_else(|| panic!("{:?}: {mix:#}", truth.notes));
    assert_eq!(
        named["item"]["item_id"], truth.notes["dear_item"],
        "{mix:#}"
    );
    dear_by_its_time(named, &truth);
    assert_eq!(mix["inside"].as_array().map(Vec::len), Some(3), "{mix:#}");
}

/// Batches whose items have no argument: one line says what is missing, and nothing is estimated.
#[test]
fn batches_without_kinds() {
    need!(machine::root());
    let (recording, _) = record_mixed(&[SERVE], &[]);
    let mix = mix(&recording);
    assert_eq!(mix["unknown"]["reason"], "no_argument", "{mix:#}");
    assert_eq!(
        (&mix["costs"], &mix["dear_batches"]),
        (&Value::Null, &0.into())
    );
    let text = pebs_trace(["report", &recording.dir().display().to_string()]);
    assert_eq!(text.stdout.matches("unknown by kind").count(), 1, "{text}");
}
