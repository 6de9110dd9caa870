//! IBS as the kernel treats it, with a PMU in software: `cargo xtask kernels --pmu ibs`.

use pebs_tests::recording::Recording;
use pebs_tests::softpmu::SoftPmu;
use pebs_tests::trace::SAMPLE_KERNEL;
use pebs_tests::truth::Truth;
use pebs_tests::{check, need};

use super::samples_are_right;

/// In steps of 16, as IBS counts.
const RESET: &str = "100000";
/// See [`RESET`]. An op is 2 ns.
const RESET_NS: i64 = 200_000;

fn record(soft: &SoftPmu, args: &[&str]) -> (Recording, Truth) {
    let mut with_reset = vec!["--reset", RESET];
    with_reset.extend_from_slice(args);
    super::record(soft, &with_reset, "2")
}

/// The default, and events that the kernel forwards to IBS: exact, an interrupt a sample, seen by an eBPF
/// program.
#[test]
fn ops() {
    let soft = need!(SoftPmu::ibs());
    for (args, name) in [
        (&[][..], "ibs_op/cnt_ctl=1/"),
        (&["--event", "cycles:pp"], "cycles:pp"),
    ] {
        let (recording, truth) = record(&soft, args);
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        let event = &trace.json["events"][0];
        assert_eq!(event["name"], name, "{event:#}");
        assert_eq!(trace.json["transport"], "bpf");
        let seen = trace.account("samples").seen;
        assert_eq!(seen, soft.tally("overflows"), "{}", soft.tallies());
        samples_are_right(&trace, &truth, RESET_NS, &soft);
    }
}

/// The kernel's rings carry the registers.
#[test]
fn registers_of_ops() {
    let soft = need!(SoftPmu::ibs());
    let args = [
        "--event",
        "ibs_op/cnt_ctl=1/",
        "--memory",
        "--transport",
        "bulk",
    ];
    let (recording, truth) = record(&soft, &args);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let seen = trace.account("samples").seen;
    assert_eq!(seen, soft.tally("overflows"), "{}", soft.tallies());
    let memory = trace.table("memory");
    assert_eq!(memory.len(), trace.samples().len());
    let all = |column: &str, value| memory.u64(column).iter().all(|it| *it == Some(value));
    assert!(all("op_cycles", 50) && all("retire_cycles", 10));
    // The instruction at the sample matches the op; the workload's loops branch, and hardly load or store.
    let ops = memory.text("op");
    let known = ["load", "store", "load+store", "branch", "other"];
    assert!(
        ops.iter().flatten().all(|op| known.contains(&op.as_str())),
        "{ops:?}"
    );
    assert!(ops.iter().flatten().any(|op| op == "branch"), "{ops:?}");
    samples_are_right(&trace, &truth, RESET_NS, &soft);
}

/// Fetches.
#[test]
fn registers_of_fetches() {
    let soft = need!(SoftPmu::ibs());
    let args = ["--event", "ibs_fetch//", "--memory", "--transport", "bulk"];
    let (recording, truth) = record(&soft, &args);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let memory = trace.table("memory");
    assert!(!memory.is_empty());
    let is_fetch = |op: &Option<String>| op.as_deref() == Some("fetch");
    assert!(
        memory.text("op").iter().all(is_fetch),
        "{:?}",
        memory.text("op")
    );
}

/// Before Linux 6.14 the kernel does not filter modes for IBS: the eBPF program does, and counts the samples
/// left out.
#[test]
fn modes() {
    let soft = need!(SoftPmu::ibs());
    let (recording, truth) = record(&soft, &["--exclude-kernel"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let samples = trace.samples();
    assert!(!samples.is_empty());
    assert!(samples.iter().all(|it| it.flags & SAMPLE_KERNEL == 0));
}
