//! Instructions that the kernel replaces, or can't single-step, are left alone.

use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// A five-byte nop at a function's entry or as a USDT probe is not probed, but an instruction behind it: items are
/// complete, forked children live, and data below the stack pointer stays.
#[test]
fn nops_that_become_calls() {
    need!(machine::root());
    let workload = Workload::build("replaced");
    let alone = workload.run(&["20"]);
    assert_eq!(alone.stdout, "wrong 0\n", "{alone}");
    for place in ["handle(id=arg1)", "usdt:app:middle(id=arg1).."] {
        let recording = Recorder::new(&workload.spec(place))
            .args(&["--force"])
            .command(&workload.path, &["20"]);
        check::unharmed(&recording, &alone);
        let starts = recording.trace().visits().len();
        // Of each process, the last item that nothing follows may be missing.
        assert!((250 - 21..=250).contains(&starts), "{place}: {starts}");
    }
}

/// A child that was forked while recording, and handles its first item after the recorder was killed, is unharmed.
#[test]
fn children_outlive_the_recorder() {
    need!(machine::root());
    let workload = Workload::build("replaced");
    let mut target = workload.start(&["100"]);
    let live = Recorder::new(&workload.spec("handle(id=arg1)"))
        .args(&["--force"])
        .attach(target.process.pid());
    target.go();
    target.process.wait_for_line("forked");
    let _ = live.kill();
    target.go();
    let (finished, _) = target.finish();
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!(finished.stdout, "wrong 0\n", "{finished}");
}

/// What can't be single-stepped is refused where it is asked for, and not chosen otherwise.
#[test]
fn steps_that_differ() {
    need!(machine::root());
    let workload = Workload::build("replaced");
    for (place, why) in [
        (
            "flags+3..",
            "'pushfq': a single step would change the flags",
        ),
        (
            "calls+5..",
            "'syscall': a system call can't be single-stepped",
        ),
        (
            "fills(id=arg2)",
            "the probe would be hit at each repetition",
        ),
    ] {
        let spec = workload.spec(place);
        let refused = pebs_trace(["--uprobe", &spec, "--", "true"]);
        assert_eq!(refused.code(), Some(2), "{refused}");
        assert!(refused.stderr.contains(why), "{refused}");
    }
    let alone = workload.run(&["1"]);
    let recording = Recorder::new(&workload.spec("flags(id=arg1)"))
        .args(&["--force"])
        .command(&workload.path, &["1"]);
    check::unharmed(&recording, &alone);
    assert_eq!(recording.trace().visits().len(), 60);
}
