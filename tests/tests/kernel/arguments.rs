//! Item ids and named arguments are what the program passed.

use pebs_tests::recording::Recorder;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

const ITEMS: u64 = 500;
const FIRST_ID: u64 = 1_000_001;

/// Numbers of several widths, strings, registers and return values arrive as the program had them.
#[test]
fn named_arguments() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec(
        "handle(id=*(arg1):u64, kind=*(arg1+8):u32, n=*(arg1+12):i32, low=*(arg1):u8, \
         also=*(%rdi):u64, name=str(*(arg1+16)))",
    );
    arguments_arrive(&workload, &spec);
}

/// The same by the names that the debug information has.
#[test]
fn arguments_by_their_names() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec(
        "handle(id=it->id, kind=it->kind, n=it->n, low=it->id:u8, also=*(it+0):u64, name=it->name)",
    );
    arguments_arrive(&workload, &spec);
}

fn arguments_arrive(workload: &Workload, spec: &str) {
    let (recording, truth) = Recorder::new(spec).workload(workload, &["500"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let number = |name: &str| trace.number_argument(name);
    let (kind, n, low, also) = (number("kind"), number("n"), number("low"), number("also"));
    let names = trace.text_argument("name");
    for visit in trace.visits() {
        let (id, at) = (visit.visit_id, visit.item_id - FIRST_ID + 1);
        assert_eq!(kind[&id], Some(at % 3), "{visit:?}");
        assert_eq!(n[&id], Some(at % 10), "{visit:?}");
        assert_eq!(low[&id], Some(visit.item_id & 0xff), "{visit:?}");
        assert_eq!(also[&id], Some(visit.item_id), "{visit:?}");
        let name = ["get", "set", "del"][(at % 3) as usize];
        assert_eq!(names[&id].as_deref(), Some(name), "{visit:?}");
    }
    assert_eq!(trace.json["ledger"]["argument_faults"], 0);
}

/// Without `id=` items are numbered in order.
#[test]
fn numbered_items() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let (recording, truth) = Recorder::new(&workload.spec("handle")).workload(&workload, &["500"]);
    let trace = recording.trace();
    let visits = trace.visits();
    check::same_items(&trace, &visits, &(1..=ITEMS).collect::<Vec<_>>());
    for (visit, item) in visits.iter().zip(&truth.items) {
        let mut numbered = *item;
        numbered.id = visit.item_id;
        assert_eq!(item.id - FIRST_ID + 1, visit.item_id, "in order");
        check::within_truth(&trace, visit, &numbered);
    }
}

/// The return value is read at the end of the visit.
#[test]
fn return_value() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec("handle(id=*(arg1):u64)..handle%return(rc=retval)");
    let (recording, truth) = Recorder::new(&spec).workload(&workload, &["500"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let rc = trace.number_argument("rc");
    for visit in trace.visits() {
        assert_eq!(rc[&visit.visit_id], Some(visit.item_id % 7), "{visit:?}");
    }
}

/// A pointer that leads nowhere leaves the argument unknown, never 0, and is counted; the visit is
/// there all the same.
#[test]
fn unreadable_argument() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec("handle(id=*(arg1):u64, lost=*(*(arg1+8)):u64)");
    let (recording, truth) = Recorder::new(&spec).workload(&workload, &["500"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    assert!(trace.number_argument("lost").values().all(Option::is_none));
    assert_eq!(trace.json["ledger"]["argument_faults"], ITEMS);
}
