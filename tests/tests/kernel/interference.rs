//! What comes between a thread and its work: interrupts, page faults.

use std::collections::HashMap;

use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::Visit;
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

fn record(name: &str, args: &[&str], workload_args: &[&str]) -> (Recording, Truth) {
    let workload = Workload::build(name);
    let alone = workload.run(workload_args);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .args(args)
        .workload(&workload, workload_args);
    check::whole_visits(&recording.trace(), &truth);
    check::unharmed(&recording, &alone);
    (recording, truth)
}

/// The median of what visits of the items of a class have of something.
fn median(visits: &[Visit], class: u64, of: impl Fn(&Visit) -> Option<i64>) -> i64 {
    let of_class = visits.iter().filter(|visit| visit.item_id % 3 == class);
    let mut values: Vec<i64> = of_class.filter_map(of).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// Interrupts count for the items that they come into, and for no others; so does what they leave for later.
#[test]
fn interrupts() {
    need!(machine::root());
    let args = ["--with", "irq", "--reset", "1000000"];
    let (recording, truth) = record("interrupts", &args, &["90"]);
    let visits = recording.trace().visits();
    let ran_out = truth.calls.iter().filter(|call| call.name == "timer");
    let timers: HashMap<u64, u64> = ran_out.map(|call| (call.item, call.leave)).collect();
    for visit in &visits {
        let irq = visit.irq_ns.unwrap();
        let both = irq + visit.softirq_ns.unwrap();
        assert!(both <= visit.oncpu_ns.unwrap(), "{visit:?}");
        assert_eq!((visit.fault_ns, visit.major_faults), (None, None));
        if timers[&visit.item_id] > 0 {
            // An interrupt takes more than one ns.
            assert!(irq > timers[&visit.item_id] as i64, "{visit:?}");
        }
    }
    assert_eq!(median(&visits, 0, |visit| visit.irq_ns), 0);
    assert_eq!(median(&visits, 0, |visit| visit.softirq_ns), 0);
    assert!(median(&visits, 2, |visit| visit.softirq_ns) > 20);
}

/// The interrupts in which samples are taken are the recording's own: they do not count.
#[test]
fn samples_are_no_interrupts() {
    need!(machine::root());
    let args = ["--with", "irq", "--reset", "20000"];
    let (recording, _) = record("calls", &args, &["50"]);
    let trace = recording.trace();
    let visits = trace.visits();
    let samples: u64 = visits.iter().map(|visit| visit.samples).sum();
    let irq: i64 = visits.iter().filter_map(|visit| visit.irq_ns).sum();
    let oncpu: i64 = visits.iter().filter_map(|visit| visit.oncpu_ns).sum();
    assert!(samples > 100, "{samples}");
    // Handling the interrupt of a sample takes more than a twentieth of 20 us here.
    assert!(irq < oncpu / 20, "{irq} of {oncpu} ns");
}

/// Each page touched for the first time takes its item time, none had to be read.
#[test]
fn minor_faults() {
    need!(machine::root());
    let (recording, _) = record("faults", &["--with", "faults"], &["100"]);
    for visit in recording.trace().visits() {
        let faults = visit.page_faults.unwrap();
        let ns = visit.fault_ns.unwrap();
        assert_eq!(faults > 0, ns > 0, "{visit:?}");
        assert!(ns < visit.duration_ns.unwrap(), "{visit:?}");
        assert_eq!((visit.irq_ns, visit.softirq_ns), (None, None));
        assert!(visit.major_faults <= visit.page_faults, "{visit:?}");
        if visit.item_id > 0 {
            assert_eq!(visit.major_faults, Some(0), "{visit:?}");
        }
    }
}

/// Pages of a file that is not in memory are read: that is a major fault, and its time is longer than the wait.
#[test]
fn major_faults() {
    need!(machine::root());
    let (recording, truth) = record("reads", &["--with", "faults"], &["30"]);
    let trace = recording.trace();
    let waits = trace.waits();
    let read = truth.notes["read"];
    let majors: u64 = trace
        .visits()
        .iter()
        .filter_map(|visit| visit.major_faults)
        .sum();
    assert!(majors >= read, "{majors} of {read}");
    for visit in trace.visits().iter().filter(|visit| visit.item_id > 0) {
        let of_visit = waits.iter().filter(|it| it.visit_id == visit.visit_id);
        let slept = of_visit.filter(|it| it.state == "uninterruptible");
        let slept: i64 = slept.map(pebs_tests::trace::Wait::length_ns).sum();
        assert!(visit.fault_ns.unwrap() >= slept, "{visit:?} {slept}");
        if visit.item_id % 2 == 0 {
            assert_eq!(visit.major_faults, Some(0), "{visit:?}");
        }
    }
    let dir = recording.dir();
    let explained = pebs_trace(["explain".as_ref(), dir.as_os_str(), "--slow=p70".as_ref()]);
    let named = explained.stdout.contains("page faults within it");
    assert!(named || read == 0, "{explained}");
}

/// Without `--with` nothing is said of them; together all is.
#[test]
fn others_are_null() {
    need!(machine::root());
    let of = |visit: &Visit| {
        let ns = [visit.irq_ns, visit.softirq_ns, visit.fault_ns];
        ns.map(|ns| ns.is_some())
    };
    let (recording, _) = record("calls", &[], &["4"]);
    let visits = recording.trace().visits();
    assert!(
        visits
            .iter()
            .all(|visit| of(visit) == [false; 3] && visit.major_faults.is_none())
    );
    let (recording, _) = record("calls", &["--with", "waits,irq,faults"], &["4"]);
    let visits = recording.trace().visits();
    assert!(
        visits.iter().all(|visit| of(visit) == [true; 3]),
        "{visits:?}"
    );
}
