//! Instructions that the kernel replaces, or can't single-step, are left alone.

use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::trace::{Trace, Visit, flag};
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

/// An instruction that can't be single-stepped is refused where it is asked for, and not chosen otherwise.
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
        let program = workload.path.to_string_lossy();
        let refused = pebs_trace(["--uprobe", &spec, "--", &program]);
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

/// Functions of `steps`, none of which has an instruction that the kernel emulates.
const STEPPED: [&str; 11] = [
    "moved",
    "cut",
    "negative",
    "large",
    "address",
    "half_address",
    "zero",
    "no_carry",
    "no_sign",
    "landing",
    "two_ends",
];

/// Instructions are done by the mark program where the kernel allows it: registers, flags and the way on are those of
/// the instruction, and items are complete, also if another recorder has probes at the same places.
#[test]
fn instructions_done_by_the_program() {
    need!(machine::root());
    let workload = Workload::build("steps");
    let alone = workload.run(&["50"]);
    assert_eq!(alone.stdout, "wrong 0\n", "{alone}");
    let specs = STEPPED.map(|name| workload.spec(&format!("{name}(id=arg1)")));
    let args: Vec<&str> = specs.iter().flat_map(|it| ["--uprobe", it]).collect();
    let plain = |args: &[&str]| Recorder::plain().own_pace().args(&["--force"]).args(args);
    let recording = plain(&args).command(&workload.path, &["50"]);
    check::unharmed(&recording, &alone);
    let trace = recording.trace();
    assert_complete(&trace, 50 * STEPPED.len());
    let sites = trace.json["probes"].as_array().expect("probes").iter();
    let mut sites = sites.flat_map(|probe| probe["sites"].as_array().expect("sites"));
    if machine::kernel(6, 19).is_ok() {
        assert!(
            sites.all(|site| site["class"] != "single_step"),
            "{:#}",
            trace.json["probes"]
        );
    }
    // Each mark of both, whichever program is first.
    let some = [0, 6, 10].map(|n| ["--uprobe", &specs[n]]);
    let some = some.as_flattened();
    let place = tempfile::tempdir().expect("temporary directory is writable");
    let inner = place.path().join("trace");
    let out = inner.to_string_lossy();
    let program = workload.path.to_string_lossy();
    let words = [&["-o", &out, "--force"], some, &["--", &program, "20"]].concat();
    let recording = plain(some).command(&machine::pebs_trace(), &words);
    assert!(
        recording.tool.stdout.starts_with(&alone.stdout),
        "{}",
        recording.tool
    );
    assert_complete(&recording.trace(), 20 * 3);
    assert_complete(&Trace::open(&inner), 20 * 3);
}

/// Every call of the functions of `steps` is a visit with an end.
fn assert_complete(trace: &Trace, calls: usize) {
    let visits = trace.visits();
    assert_eq!(visits.len(), calls);
    let cut =
        flag::UNWOUND | flag::END_MISSING | flag::OPEN_AT_END | flag::THREAD_ENDED | flag::LOSS;
    let whole = |it: &Visit| it.end_ns.is_some() && !it.has(cut);
    let broken: Vec<_> = visits.iter().filter(|it| !whole(it)).collect();
    assert!(broken.is_empty(), "{broken:?}");
}
