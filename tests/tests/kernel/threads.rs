//! Threads: many, late, more than CPUs, and on the move.

use std::collections::BTreeMap;

use pebs_tests::recording::Recorder;
use pebs_tests::trace::flag;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Many threads at once, attached before they exist.
#[test]
fn many_threads() {
    need!(machine::root());
    let workload = Workload::build("threads");
    let args = ["24", "100", "20"];
    let alone = workload.run(&args);
    let mut target = workload.start(&args);
    let live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .attach(target.process.pid());
    target.go();
    let (finished, truth) = target.finish();
    check::whole_visits(&live.stop().trace(), &truth);
    check::same_end(&finished, &alone);
}

/// Threads born one after the other, by other threads, long after attaching.
#[test]
fn late_threads() {
    need!(machine::root());
    let workload = Workload::build("late_threads");
    let mut target = workload.start(&[]);
    let live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .attach(target.process.pid());
    target.go();
    let (_, truth) = target.finish();
    check::whole_visits(&live.stop().trace(), &truth);
}

/// More threads than CPUs and items longer than a time slice: time off the CPU is reported as
/// preemption, not as the item's own.
#[test]
fn oversubscribed() {
    need!(machine::root());
    let workload = Workload::build("threads");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (threads, us_per_item) = ((4 * cpus).to_string(), 8_000);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .workload(&workload, &[&threads, "5", &us_per_item.to_string()]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let mut off: BTreeMap<u64, i64> = BTreeMap::new();
    let mut runnable: BTreeMap<u64, i64> = BTreeMap::new();
    for wait in trace.waits() {
        *off.entry(wait.visit_id).or_default() += wait.length_ns();
        if wait.state == "runnable" {
            *runnable.entry(wait.visit_id).or_default() += wait.length_ns();
        }
    }
    let mut preempted = 0;
    let mut did_ns = 0;
    for visit in trace.visits() {
        let (duration, oncpu) = (visit.duration_ns.unwrap(), visit.oncpu_ns.unwrap());
        let waited = off.get(&visit.visit_id).copied().unwrap_or(0);
        assert_eq!(oncpu + waited, duration, "{visit:?}");
        did_ns += oncpu;
        let was = runnable.contains_key(&visit.visit_id);
        assert_eq!(visit.has(flag::PREEMPTED), was, "{visit:?}");
        preempted += u32::from(was);
    }
    assert!(preempted > 0, "four threads to a CPU and no preemption");
    // For all items together: the scheduler starts a thread's account before the switch and this tool after it, so a
    // single item lacks the time that a host takes in between.
    let asked_ns = us_per_item * 1000 * truth.ids().len() as i64;
    assert!(
        10 * did_ns >= 9 * asked_ns,
        "{did_ns} ns of CPU time in items of {asked_ns}"
    );
}

/// Items that move to another CPU are flagged, others are not; begin and end have the CPU.
#[test]
fn migration() {
    need!(machine::root());
    need!(machine::cpus(2));
    let workload = Workload::build("migrate");
    let spec = workload.spec("handle(id=*(arg1):u64, from=*(arg1+8):u32, to=*(arg1+12):u32)");
    let (recording, truth) = Recorder::new(&spec).workload(&workload, &["100"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let (from, to) = (trace.number_argument("from"), trace.number_argument("to"));
    for visit in trace.visits() {
        let moves = visit.item_id % 2 == 0;
        assert_eq!(visit.has(flag::MIGRATED), moves, "{visit:?}");
        assert_eq!(Some(visit.cpu_begin), from[&visit.visit_id], "{visit:?}");
        assert_eq!(visit.cpu_end, to[&visit.visit_id], "{visit:?}");
    }
}

/// `-t` traces that thread and none of those that it starts.
#[test]
fn only_the_thread_asked_for() {
    need!(machine::root());
    let workload = Workload::build("late_threads");
    let mut target = workload.start(&["4", "20"]);
    let first = target.process.pid();
    let live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&[
            "-t",
            &first.to_string(),
            "--event",
            "cpu-clock",
            "--reset",
            "50000",
        ])
        .start();
    target.go();
    let (_, mut truth) = target.finish();
    let recording = live.finish();
    let ended = recording
        .tool
        .stderr
        .contains("recording ended: the thread ended");
    assert!(ended, "{}", recording.tool);
    let others = truth.items.iter().filter(|item| item.tid != first).count();
    assert_eq!(
        others, 60,
        "four threads, of which the first handles twice as many"
    );
    truth.items.retain(|item| item.tid == first);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    assert!(
        trace
            .samples()
            .iter()
            .all(|sample| sample.tid == u64::from(first))
    );
}

/// Threads that come and go, and more at once than get several clocks: each is sampled from its first item to its last,
/// about as often as its time on the CPU and the reset value make expect, and the ledger balances. New threads inherit a
/// distance, which is between a third of the reset value and twice as much.
#[test]
fn samples_of_threads() {
    need!(machine::root());
    const RESET_NS: u64 = 100_000;
    let workload = Workload::build("threads");
    // At a time, items of each, us of each item, and how many come one after the other.
    for [at_a_time, items, us, generations] in
        [[4, 4, 1_000, 60], [96, 12, 1_000, 1], [80, 3, 1_000, 4]]
    {
        let args = [at_a_time, items, us, generations].map(|it: u64| it.to_string());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut target = workload.start(&args);
        let reset = RESET_NS.to_string();
        let live = Recorder::new(&workload.spec(super::ID))
            .args(&["--event", "cpu-clock", "--reset", &reset])
            .attach(target.process.pid());
        target.go();
        let (_, truth) = target.finish();
        let recording = live.stop();
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        check::ledger(&trace);
        assert!(trace.json["jitter"].is_object(), "{}", recording.tool);
        let mut by_thread: BTreeMap<u64, u64> = BTreeMap::new();
        for item in &truth.items {
            by_thread.entry(item.id / 1_000_000).or_default();
        }
        let threads = at_a_time * generations;
        assert_eq!(by_thread.len() as u64, threads, "{args:?}");
        let items_of: BTreeMap<u64, u64> = trace
            .visits()
            .iter()
            .map(|visit| (visit.visit_id, visit.item_id))
            .collect();
        for sample in trace.samples() {
            if let Some(item) = sample.visit_id.map(|visit| items_of[&visit]) {
                *by_thread.entry(item / 1_000_000).or_default() += 1;
            }
        }
        let expected = (items * us * 1_000) as f64 / RESET_NS as f64;
        let of = |threads: &[u64]| threads.iter().sum::<u64>() as f64 / threads.len() as f64;
        let counts: Vec<u64> = by_thread.values().copied().collect();
        println!("{args:?}: {:.1} of {expected} {counts:?}", of(&counts));
        // All, and those of the first and the last generation.
        let generation = at_a_time as usize;
        for some in [
            &counts[..],
            &counts[..generation],
            &counts[counts.len() - generation..],
        ] {
            let ratio = of(some) / expected;
            assert!(
                (0.4..4.0).contains(&ratio),
                "{args:?}: {:.1} samples a thread, not {expected}: {counts:?}\n{}",
                of(some),
                recording.tool
            );
        }
        let unseen = counts.iter().filter(|samples| **samples == 0).count();
        assert!(
            unseen * 50 <= counts.len(),
            "{args:?}: {unseen} threads without a sample: {counts:?}\n{}",
            recording.tool
        );
    }
}
