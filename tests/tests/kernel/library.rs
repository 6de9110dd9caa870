//! Recordings by programs that use the library: the examples of pebs-user.

use std::collections::BTreeSet;
use std::process::Command;

use pebs_tests::locks::Lock;
use pebs_tests::process::{self, Finished};
use pebs_tests::trace::Trace;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Runs an example on a workload; returns what it printed.
fn run(example: &mut Command, workload: &Workload, args: &[&str]) -> Finished {
    let spec = workload.spec(super::ID);
    let done = process::run(example.arg(spec).arg(&workload.path).args(args));
    assert_eq!(done.code(), Some(0), "{done}");
    done
}

/// A program records a command and prints why its slow items were slow.
#[test]
fn records_and_explains() {
    need!(machine::root());
    let example = need!(machine::example("record_and_explain"));
    let workload = Workload::build("short_slow");
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace");
    let _lock = Lock::recording();
    let done = run(Command::new(example).arg(&trace), &workload, &["400000"]);
    assert!(done.stderr.contains("recording\n"), "{done}");
    assert!(done.stderr.contains(" items so far\n"), "{done}");
    // Which cause that is depends on what else the machine does.
    assert!(done.stdout.contains("slow because: "), "{done}");
    let trace = Trace::open(&trace);
    check::ledger(&trace);
    assert_eq!(trace.visits().len(), 400_000);
}

/// Two recordings run at once in one process: each has the items of its own command, and its own reset value, which
/// was changed while it ran.
#[test]
fn two_at_once() {
    need!(machine::root());
    let example = need!(machine::example("record_two"));
    let workload = Workload::build("calls");
    let place = tempfile::tempdir().unwrap();
    let _lock = Lock::recording();
    let done = run(
        Command::new(example).arg(place.path()),
        &workload,
        &["1500"],
    );
    let mut pids = BTreeSet::new();
    for name in ["first", "second"] {
        let line = format!("{name}: 1500 items, the command ended\n");
        assert!(done.stdout.contains(&line), "{done}");
        let trace = Trace::open(&place.path().join(name));
        check::ledger(&trace);
        check::no_mark_lost(&trace);
        let visits = trace.visits();
        let ids: BTreeSet<u64> = visits.iter().map(|visit| visit.item_id).collect();
        assert_eq!(ids, (1..=1500).collect(), "{done}");
        pids.extend(visits.iter().map(|visit| visit.pid));
    }
    assert_eq!(pids.len(), 2, "{done}");
    let first = Trace::open(&place.path().join("first"));
    assert_eq!(first.json["resets"][0]["new"], 50_000, "{done}");
    let second = Trace::open(&place.path().join("second"));
    assert_eq!(second.json["max_overhead"]["most"], 0.05, "{done}");
}
