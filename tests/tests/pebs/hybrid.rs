//! Two kinds of cores with a PMU each, in software: `cargo xtask kernels --pmu hybrid`.

use pebs_tests::softpmu::SoftPmu;
use pebs_tests::{check, need};

use super::samples_are_in_place;

/// An instruction of this PMU is 2 ns.
const RESET: &str = "50021";

/// The default is opened on both kinds; each record is a sample, wherever its thread ran. Their expected number is
/// unknown: while one emulated CPU is served, the timers of the other wait.
#[test]
fn both_kinds() {
    let soft = need!(SoftPmu::hybrid());
    for transport in ["bulk", "bpf"] {
        let args = ["--reset", RESET, "--transport", transport];
        let (recording, truth) = super::record(&soft, &args, "2");
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        let event = &trace.json["events"][0];
        assert_eq!(event["name"], "instructions", "{event:#}");
        assert_eq!(event["precise_granted"], 2, "{event:#}");
        assert_eq!(trace.json["transport"], transport);
        samples_are_in_place(&trace, &truth);
        // Queries come from a thread on the other kind.
        let accounts = trace.accounts("samples");
        let seen = trace.account("samples").seen;
        assert_eq!(seen, soft.tally("records"), "{}", soft.tallies());
        assert!(accounts.iter().all(|cpu| cpu.seen > 0), "{accounts:?}");
    }
}
