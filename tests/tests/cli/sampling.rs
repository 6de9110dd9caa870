//! Events and reset values.

use pebs_tests::{machine, need};

use super::{good_spec, hints, record, refused};

fn with(args: &[&str]) -> pebs_tests::process::Finished {
    let spec = good_spec();
    let mut all = vec!["--uprobe", &spec];
    all.extend(args);
    record(&all)
}

/// A reset value of 0 counts nothing.
#[test]
fn reset_zero() {
    need!(machine::root());
    refused(&with(&["--reset", "0"]), &["reset", "0"]);
}

/// So small that the machine would only take samples: refused, with the limit.
#[test]
fn reset_too_small() {
    need!(machine::root());
    let done = with(&["--event", "cpu-clock", "--reset", "10"]);
    refused(&done, &["reset", "10"]);
    hints(&done, &["--reset"]);
}

#[test]
fn reset_not_a_number() {
    need!(machine::root());
    let done = with(&["--reset", "often"]);
    assert_eq!(done.code(), Some(2), "{done}");
    assert!(done.stderr.contains("often"), "{done}");
}

/// A value that is a multiple of the timer's tick samples the same code again and again: warned,
/// not refused; a prime is not warned of.
#[test]
fn reset_that_locks_to_loops() {
    need!(machine::root());
    let warned = |reset: &str| {
        let done = with(&["--event", "cpu-clock", "--reset", reset]);
        assert_eq!(done.code(), Some(0), "{done}");
        done.stderr
            .lines()
            .any(|line| line.starts_with("warning: reset value") && line.contains("lock"))
    };
    assert!(warned("1000000"), "a millisecond");
    assert!(!warned("1000003"), "a prime");
}

/// Call stacks are taken by an eBPF program for each sample, except for last branch records, which not every event has.
#[test]
fn call_graphs() {
    need!(machine::root());
    let done = with(&["--call-graph", "lbr", "--event", "cpu-clock"]);
    refused(&done, &["call stacks", "lbr", "last branch records"]);
    hints(&done, &["--call-graph eh"]);
    for how in ["fp", "eh"] {
        let done = with(&["--call-graph", how, "--transport", "bulk"]);
        refused(&done, &["in bulk", "--call-graph"]);
        hints(&done, &["--transport bpf"]);
    }
}

/// Page faults and waits can't be timed if they are not recorded; unknown kinds of `--with` are named.
#[test]
fn extras() {
    need!(machine::root());
    let done = with(&["--with", "irq,faults", "--no-page-faults"]);
    refused(&done, &["--with faults", "--no-page-faults"]);
    hints(&done, &["one of them"]);
    let done = with(&["--with", "irq,waits", "--no-switches"]);
    refused(&done, &["--with waits", "--no-switches"]);
    hints(&done, &["one of them"]);
    let done = with(&["--with", "interrupts"]);
    refused(&done, &["interrupts", "irq"]);
}

/// Items can't be kept by their time on the CPU where it is unknown.
#[test]
fn slow_by_cpu_time() {
    need!(machine::root());
    let done = with(&["--keep", "slow", "--slow", "cpu:p99", "--no-switches"]);
    refused(&done, &["--slow cpu:p99", "without switches"]);
    hints(&done, &["--no-switches"]);
}

/// The nearest event is suggested.
#[test]
fn unknown_event() {
    need!(machine::root());
    let done = with(&["--event", "cpu-clok"]);
    refused(&done, &["cpu-clok"]);
    assert!(done.stderr.contains("cpu-clock"), "no suggestion\n{done}");
    let done = with(&["--event", "page-fault"]);
    refused(&done, &["page-fault"]);
    assert!(done.stderr.contains("page-faults"), "no suggestion\n{done}");
}

/// Faults of form.
#[test]
fn malformed_event() {
    need!(machine::root());
    for event in [
        "",
        "cpu/",
        "cpu/event=/",
        "rxyz",
        "cycles:pppp",
        "cycles:q",
        "mem:x",
        "mem::x",
    ] {
        refused(&with(&["--event", event]), &[]);
    }
}

/// A hardware event without a PMU: an error, with another event to use.
#[test]
fn no_pmu() {
    need!(machine::root());
    if machine::precise_pmu().is_ok()
        || std::path::Path::new("/sys/bus/event_source/devices/cpu").is_dir()
    {
        pebs_tests::skip!("this machine has a PMU");
    }
    let done = with(&["--event", "cycles:pp"]);
    refused(&done, &["cycles:pp"]);
    hints(&done, &["cpu-clock"]);
}

/// A breakpoint on a function that is not there.
#[test]
fn breakpoint_on_nothing() {
    need!(machine::root());
    refused(
        &with(&["--event", "mem:no_such_function:x", "--reset", "1"]),
        &["no_such_function"],
    );
}

/// An ambiguous or invalid bound on the overhead.
#[test]
fn max_overhead_values() {
    need!(machine::root());
    for (value, says) in [
        ("0.02", "write 0.02% or 2%"),
        ("0", "above 0"),
        ("0%", "above 0"),
        ("101", "up to 100"),
        ("little", "a percentage"),
        ("-1%", "a percentage"),
    ] {
        let done = with(&[&format!("--max-overhead={value}")]);
        assert_eq!(done.code(), Some(2), "{value}\n{done}");
        assert!(done.stderr.contains(says), "{value}\n{done}");
    }
    for value in ["5", "5%", "0.9%", "5 %"] {
        let done = with(&[&format!("--max-overhead={value}")]);
        assert_eq!(done.code(), Some(0), "{value}\n{done}");
        let share = value.trim_end_matches(['%', ' ']);
        let goal = format!("--max-overhead {share} %, with a sample every");
        assert!(done.stderr.contains(&goal), "{value}\n{done}");
    }
}

/// A bound that can't be met is refused, with the possible one.
#[test]
fn max_overhead_that_cannot_be() {
    need!(machine::root());
    let bound = ["--max-overhead", "2%"];
    let refuses = |args: &[&str], says: &str, hint: &str| {
        let done = with(&[&bound, args].concat());
        refused(&done, &[says]);
        hints(&done, &[hint]);
    };
    refuses(
        &["--event", "context-switches"],
        "context-switches",
        "cpu-clock",
    );
    refuses(
        &["--event", "mem:0x1000:x", "--reset", "1"],
        "breakpoint",
        "cpu-clock",
    );
    refuses(
        &["--reset", "20000", "--max-reset", "10000"],
        "10000",
        "--max-reset",
    );
    for args in [
        &["--max-reset", "20000"][..],
        &["--max-overhead", "2", "--no-switches"],
    ] {
        let done = with(args);
        assert_eq!(done.code(), Some(2), "{done}");
    }
}

/// Modes and sizes with a typing error.
#[test]
fn bad_values() {
    need!(machine::root());
    for (argument, value) in [
        ("--return", "never"),
        ("--ring-size", "big"),
        ("--max-memory", "much"),
        ("--segment", "0"),
        ("--max-loss", "200"),
        ("--duration", "-1"),
    ] {
        let value_of = format!("{argument}={value}");
        let done = with(&[&value_of]);
        assert_eq!(done.code(), Some(2), "{value_of}\n{done}");
        assert!(done.stderr.contains(argument), "{value_of}\n{done}");
    }
}

/// A rule for slow items needs --keep slow; an unknown rule is refused with the list of rules.
#[test]
fn rules_for_slow_items() {
    need!(machine::root());
    for keep in [&["--slow", "3x"][..], &["--keep", "none", "--slow", "3x"]] {
        let done = with(keep);
        refused(&done, &["--slow 3x"]);
        hints(&done, &["--keep slow --slow 3x"]);
    }
    for rule in ["p100", "p49", "1x", "fast", "0us"] {
        let done = with(&["--keep", "slow", "--slow", rule]);
        assert_eq!(done.code(), Some(2), "{done}");
        for part in [rule, "p99.99", "3x", "500us"] {
            assert!(done.stderr.contains(part), "{part} is not in\n{done}");
        }
    }
}

/// Memory data can be recorded only for events whose samples have them.
#[test]
fn memory_of_a_clock() {
    need!(machine::root());
    let done = with(&["--memory", "--event", "cpu-clock"]);
    refused(&done, &["memory accesses", "cpu-clock"]);
    hints(&done, &["mem-loads"]);
}
