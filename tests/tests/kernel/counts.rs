//! Counts of each item's thread: switches, migrations, page faults.

use std::collections::HashMap;

use pebs_tests::recording::Recorder;
use pebs_tests::trace::Trace;
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Numbers that the workload logged under a name, by item.
fn logged(truth: &Truth, name: &str) -> HashMap<u64, u64> {
    let calls = truth.calls.iter().filter(|call| call.name == name);
    calls.map(|call| (call.item, call.leave)).collect()
}

/// Every visit except that of item 0 has the faults and migrations of its item, and leaves the CPU
/// at least once for each migration.
fn check_counts(trace: &Trace, truth: &Truth) {
    let (touched, moved) = (logged(truth, "touch"), logged(truth, "move"));
    let waits = trace.waits();
    for visit in trace.visits().iter().filter(|visit| visit.item_id > 0) {
        let item = visit.item_id;
        assert_eq!(visit.page_faults, Some(touched[&item]), "{visit:?}");
        assert_eq!(visit.migrations, Some(moved[&item]), "{visit:?}");
        assert!(visit.switches >= visit.migrations, "{visit:?}");
        let of_visit = waits.iter().filter(|it| it.visit_id == visit.visit_id);
        assert_eq!(visit.switches, Some(of_visit.count() as u64), "{visit:?}");
    }
}

/// A started command: counters are inherited from its first thread.
#[test]
fn counts_of_a_command() {
    need!(machine::root());
    let workload = Workload::build("counts");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .workload(&workload, &["300"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    check_counts(&trace, &truth);
    assert_eq!(trace.json["page_faults"], true);
}

/// Without a process named: counters on every CPU, and no count from other processes.
#[test]
fn counts_of_everyone() {
    need!(machine::root());
    let workload = Workload::build("counts");
    let live = Recorder::new(&workload.spec(super::ID)).start();
    let mut target = workload.start(&["300"]);
    target.go();
    let (_, truth) = target.finish();
    let trace = live.stop().trace();
    check::whole_visits(&trace, &truth);
    check_counts(&trace, &truth);
}

/// Counts that were not recorded are unknown, not 0.
#[test]
fn counts_that_are_not_recorded() {
    need!(machine::root());
    let workload = Workload::build("counts");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--no-page-faults", "--no-switches"])
        .workload(&workload, &["20"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    for visit in trace.visits() {
        let counts = [visit.switches, visit.migrations, visit.page_faults];
        assert_eq!(counts, [None; 3], "{visit:?}");
    }
    assert_eq!(trace.json["page_faults"], false);
}
