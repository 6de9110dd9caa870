//! The workloads themselves: their truth is consistent and deterministic.

use std::process::Command;

use pebs_tests::truth::Truth;
use pebs_tests::workload::{TruthFile, Workload};
use pebs_tests::{need, process};

/// Runs a workload and returns its truth, after checking the number of items.
fn truth_of(name: &str, args: &[&str], items: usize) -> Truth {
    let workload = Workload::build(name);
    let truth_file = TruthFile::new();
    let done = process::run(truth_file.on(Command::new(&workload.path).args(args)));
    assert_eq!(done.code(), Some(0), "{done}");
    let again = workload.run(args);
    assert_eq!(
        done.stdout, again.stdout,
        "{name} says something else each time"
    );
    let truth = truth_file.read();
    assert_eq!(truth.items.len(), items, "{name}");
    let mut ids = truth.ids();
    ids.dedup();
    assert_eq!(ids.len(), items, "an id of {name} occurs twice");
    for item in &truth.items {
        let times = [item.before, item.enter, item.leave, item.after];
        let known: Vec<u64> = times.into_iter().flatten().collect();
        assert!(known.is_sorted(), "{name}: {item:?}");
    }
    truth
}

/// Every workload can be built, or reports what it lacks. The runs on other kernels also call this
/// for the programs it builds.
#[test]
fn every_workload_builds() {
    for name in Workload::names() {
        match Workload::try_build(name) {
            Ok(workload) => assert!(workload.path.is_file(), "{name}"),
            Err(reason) => assert!(!reason.is_empty(), "{name}"),
        }
    }
}

/// Every workload that ends by itself.
#[test]
fn truths_are_consistent() {
    for (name, args, items) in [
        ("plain", &["100"][..], 100),
        ("stripped", &["100"], 100),
        ("static_pie", &["100"], 100),
        ("shared_lib", &["100"], 100),
        ("threads", &["4", "25", "10"], 100),
        ("late_threads", &["4", "5"], 25),
        ("fork", &["10"], 60),
        ("recursion", &["50"], 50),
        ("sleeper", &["10"], 10),
        ("chatty", &["50", "5"], 55),
        ("exceptions", &["50"], 50),
        ("panics", &["50"], 50),
        ("longjmp", &["50"], 50),
        ("execs", &["10"], 20),
        ("faults", &["50"], 51),
        ("breakpoint", &["10", "5"], 10),
        ("overlap", &["100", "4"], 100),
        ("tailcall", &["100"], 100),
        ("sides", &["1"], 1088),
        ("query", &["2"], 20),
        ("loops", &["20", "2"], 40),
        ("mixed", &["100"], 100),
        ("batches", &["100"], 100),
        ("strings", &["100"], 100),
    ] {
        truth_of(name, args, items);
    }
}

/// The 1st and 5th query of a round compute points, and no other.
#[test]
fn query_computes_twice_a_round() {
    let truth = truth_of("query", &["3"], 30);
    let computed: Vec<u64> = truth
        .calls
        .iter()
        .filter(|call| call.name == "f3")
        .map(|call| call.item)
        .collect();
    assert_eq!(computed, [1, 5, 11, 15, 21, 25]);
}

/// Packets of type A take longest and those of type C shortest, by the firewall's own clock.
#[test]
fn acl_orders_its_packets() {
    let workload = need!(Workload::try_build("acl"));
    let truth_file = TruthFile::new();
    let done = process::run(truth_file.on(Command::new(&workload.path).arg("3000")));
    assert_eq!(done.stdout, "3000 packets, 0 dropped\n", "{done}");
    let truth = truth_file.read();
    let median = |kind: u64| {
        let of_kind = truth.items.iter().filter(|item| (item.id - 1) % 3 == kind);
        let mut ns: Vec<u64> = of_kind
            .map(|i| i.leave.unwrap() - i.enter.unwrap())
            .collect();
        ns.sort_unstable();
        ns[ns.len() / 2]
    };
    let [a, b, c] = [median(0), median(1), median(2)];
    assert!(a > b && b > c, "A {a}, B {b}, C {c} ns");
}
