//! Go functions: visits of goroutines, which change threads and stacks within an item.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::process::Command;

use pebs_tests::recording::Recorder;
use pebs_tests::trace::{Trace, Visit, Wait, flag};
use pebs_tests::truth::{ItemTruth, Truth};
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need, process};

/// Distance within which a visit's begin and end are to be from the program's own log, ns; and the share of items that
/// may be further off, as the kernel took the CPU between the mark and the reading of the clock.
const NEAR_NS: i64 = 50_000;
const SHARE_FAR: f64 = 0.03;

/// More requests than are open at the same time.
const MOST_OPEN: usize = 32;

/// Kinds of items of `go_items` that return.
const KINDS: [&str; 8] = [
    "plain", "yield", "sleep", "channel", "deep", "syscall", "inner", "shrink",
];

/// Times from the begin mark to ENTER and from LEAVE to the end mark, ns.
fn distances(trace: &Trace, visit: &Visit, item: &ItemTruth) -> [i64; 2] {
    let zero = trace.monotonic_ns();
    let (Some(enter), Some(leave), Some(end)) = (item.enter, item.leave, visit.end_ns) else {
        panic!("{item:?}, {visit:?}");
    };
    [
        enter as i64 - zero - visit.begin_ns,
        end - (leave as i64 - zero),
    ]
}

/// Every item has one visit, which begins and ends with it.
#[track_caller]
fn close_to_truth(trace: &Trace, truth: &Truth) {
    let visits: HashMap<u64, Visit> = trace
        .visits()
        .into_iter()
        .map(|it| (it.item_id, it))
        .collect();
    let mut far = Vec::new();
    for item in &truth.items {
        let visit = visits.get(&item.id).unwrap_or_else(|| panic!("{item:?}"));
        let broken = flag::UNWOUND | flag::END_MISSING | flag::OPEN_AT_END | flag::THREAD_ENDED;
        assert!(!visit.has(broken | flag::LOSS), "{visit:?}");
        check::within_truth(trace, visit, item);
        let distances = distances(trace, visit, item);
        // Other tests take the CPU, too: between the mark and the reading of the clock as well.
        let is_preempted = visit.has(flag::PREEMPTED);
        if distances.iter().any(|ns| *ns > NEAR_NS) && !is_preempted {
            far.push((distances, visit.clone()));
        }
    }
    let most = truth.items.len() as f64 * SHARE_FAR;
    assert!((far.len() as f64) < most, "{} far: {far:?}", far.len());
}

/// Without being asked, a Go function is matched by goroutine: whatever the goroutine does within the item, on any
/// thread, and whether or not its stack moves.
#[test]
fn kinds() {
    need!(machine::root());
    let workload = need!(Workload::try_build("go_items"));
    let spec = workload.spec("main.Handle(id=arg1)");
    for kind in KINDS {
        let (recording, truth) = Recorder::new(&spec)
            .args(&["--reset", "1000000"])
            .workload(&workload, &[kind, "8", "40"]);
        let trace = recording.trace();
        assert_eq!(trace.visits().len(), truth.items.len(), "{kind}");
        close_to_truth(&trace, &truth);
        assert_eq!(trace.json["probes"][0]["rule"], "go_call");
        check::ledger(&trace);
        check::no_mark_lost(&trace);
    }
}

/// Items of all kinds at once, of which some panic or end their goroutine: these are flagged, and no other item
/// suffers.
#[test]
fn items_that_do_not_return() {
    need!(machine::root());
    let workload = need!(Workload::try_build("go_items"));
    let alone = workload.run(&[]);
    let spec = workload.spec("main.Handle(id=arg1)");
    let (recording, truth) = Recorder::new(&spec)
        .args(&["--reset", "1000000"])
        .workload(&workload, &[]);
    let trace = recording.trace();
    close_to_truth(&trace, &truth);
    let begun: HashSet<u64> = truth.begun.iter().copied().collect();
    assert_eq!(begun.len(), 12 * 10);
    for visit in trace.visits() {
        assert_eq!(
            visit.has(flag::UNWOUND),
            begun.contains(&visit.item_id),
            "{visit:?}"
        );
    }
    check::unharmed(&recording, &alone);
}

/// The time of an item on the CPU is what its goroutine took by the clock of its threads, not what the scheduler and
/// other goroutines took there.
#[test]
fn cpu_time() {
    need!(machine::root());
    let workload = need!(Workload::try_build("go_items"));
    let spec = workload.spec("main.Handle(id=arg1)");
    for kind in ["plain", "yield", "sleep", "channel", "syscall"] {
        let (recording, truth) = Recorder::new(&spec)
            .args(&["--reset", "10000000"])
            .workload(&workload, &[kind, "8", "100"]);
        let trace = recording.trace();
        let mut cpu: HashMap<u64, i64> = HashMap::new();
        for call in truth.calls.iter().filter(|it| it.name == "cpu") {
            *cpu.entry(call.item).or_default() += call.leave as i64 - call.enter as i64;
        }
        let mut more: Vec<f64> = Vec::new();
        for visit in trace.visits() {
            let oncpu = visit.oncpu_ns.expect("switches are recorded");
            let own = visit.duration_ns.unwrap() - visit.net_ns.unwrap();
            more.push((oncpu - own - cpu[&visit.item_id]) as f64);
        }
        // The runtime may move a goroutine to another thread, and its clock, at any time.
        more.sort_by(f64::total_cmp);
        let of_all = |share: f64| more[(more.len() as f64 * share) as usize];
        let (low, middle, high) = (of_all(0.1), of_all(0.5), of_all(0.9));
        println!(
            "{kind}: {low} {middle} {high} ns more than {:?}",
            cpu.values().max()
        );
        // Its way into the scheduler and back is not in the log.
        let switches = if kind == "channel" { 6.0 } else { 1.0 };
        // Threads that switch have clocks of their own, or a part of those of CPUs: what that costs has an error.
        let unsure = trace.json["own_time"]["switch"]["stderr_ns"].as_f64();
        let unsure = 2.0 * switches * unsure.unwrap_or(0.0);
        assert!(low > -2_000.0 - unsure, "{kind}: {unsure} {more:?}");
        assert!(middle < 10_000.0 * switches, "{kind}: {more:?}");
    }
}

/// Calls within calls, and places instead of calls: each is matched by goroutine, also in a program without symbols.
#[test]
fn nested_and_stripped() {
    need!(machine::root());
    let workload = need!(Workload::try_build("go_items"));
    let folder = tempfile::tempdir().expect("a folder");
    let stripped = folder.path().join("stripped");
    let strip = need!(machine::program("strip"));
    let mut command = Command::new(strip);
    let done = process::run(command.arg("-o").arg(&stripped).arg(&workload.path));
    assert_eq!(done.code(), Some(0), "{done}");
    for program in [&workload.path, &stripped] {
        let path = program.display();
        let inner = format!("{path}:main.helper(id=*(arg1):u64)");
        let between = format!("{path}:main.Handle(id=arg1)..main.Handle%return");
        let recording = Recorder::new(&format!("{path}:main.Handle(id=arg1)"))
            .args(&["-u", &inner, "-u", &between, "--reset", "1000000"])
            .command(program, &["inner", "8", "40"]);
        let trace = recording.trace();
        assert_eq!(trace.json["probes"][2]["rule"], "by_goroutine");
        let mut of_probe = [const { BTreeMap::new() }; 3];
        for visit in trace.visits() {
            let broken = flag::UNWOUND | flag::END_MISSING | flag::OPEN_AT_END;
            assert!(!visit.has(broken | flag::THREAD_ENDED), "{visit:?}");
            let ends = (visit.begin_ns, visit.end_ns.expect("an end"));
            of_probe[visit.probe_id as usize].insert(visit.item_id, ends);
        }
        let [outer, inner, between] = of_probe;
        assert_eq!((outer.len(), inner.len()), (320, 320), "{}", recording.tool);
        let mut far = 0;
        for (id, (begin, end)) in &outer {
            assert!(*begin <= inner[id].0 && inner[id].1 <= *end, "item {id}");
            // The same instructions are the begin and end of both.
            let (start, stop) = between[id];
            far += usize::from((start - begin).abs().max((stop - end).abs()) > NEAR_NS);
        }
        assert!((far as f64) < outer.len() as f64 * SHARE_FAR, "{far} far");
        check::no_mark_lost(&trace);
    }
}

/// A goroutine waits in the function that parked it.
#[test]
fn reasons() {
    need!(machine::root());
    let workload = need!(Workload::try_build("go_items"));
    let spec = workload.spec("main.Handle(id=arg1)");
    for (kind, function) in [("sleep", "time.Sleep"), ("channel", "runtime.chan")] {
        let (recording, truth) = Recorder::new(&spec)
            .args(&["--reset", "10000000"])
            .workload(&workload, &[kind, "4", "50"]);
        let trace = recording.trace();
        let names = trace.function_names();
        let name = |it: Wait| it.function_id.and_then(|id| names.get(&id)).cloned();
        let waits = trace.waits().into_iter();
        let parked = waits.filter(|it| it.state == "parked").filter_map(name);
        let parked: Vec<String> = parked.collect();
        // A channel's other end may be there already.
        let least = truth.items.len() / 10;
        assert!(parked.len() > least, "{kind}: {} waits", parked.len());
        let other = parked.iter().find(|it| !it.starts_with(function));
        assert_eq!(other, None, "{kind}");
    }
}

/// Go functions that C calls, on its own threads and within a goroutine.
#[test]
fn callbacks() {
    need!(machine::root());
    let workload = need!(Workload::try_build("go_callbacks"));
    let alone = workload.run(&[]);
    let spec = workload.spec("main.work(id=arg1:u32)");
    let (recording, truth) = Recorder::new(&spec)
        .args(&["--reset", "10000000"])
        .workload(&workload, &[]);
    let trace = recording.trace();
    assert_eq!(trace.visits().len(), truth.items.len());
    close_to_truth(&trace, &truth);
    check::no_mark_lost(&trace);
    check::unharmed(&recording, &alone);
}

/// The requests of a net/http server, with default options: each is one visit that begins and ends with it, although
/// its goroutine waits within, and those that panic are flagged.
#[test]
fn http_server() {
    need!(machine::root());
    let workload = need!(Workload::try_build("go_server"));
    let alone = workload.run(&["3000", "16"]);
    let spec = workload.spec("main.(*app).ServeHTTP");
    let (recording, truth) = Recorder::new(&spec)
        .own_pace()
        .workload(&workload, &["3000", "16"]);
    let trace = recording.trace();
    let visits = trace.visits().into_iter();
    let (unwound, visits): (Vec<Visit>, Vec<Visit>) = visits.partition(|it| it.has(flag::UNWOUND));
    assert_eq!(unwound.len() as u64, truth.notes["panics"]);
    assert_eq!(visits.len(), truth.items.len());
    let far = far_of_unnamed(&trace, visits, &truth);
    let most = truth.items.len() as f64 * SHARE_FAR;
    assert!((far.len() as f64) < most, "{} far: {far:?}", far.len());
    check::ledger(&trace);
    check::no_mark_lost(&trace);
    // No argument was asked for, and goroutines that have not run yet, as one of each connection, have no caller to read.
    assert_eq!(trace.json["ledger"]["argument_faults"], 0);
    check::unharmed(&recording, &alone);
}

/// Distances of requests that are not near their visits. Items and visits have no common number: the visit of a request
/// is the one that fits best of those that end around its end.
fn far_of_unnamed(trace: &Trace, mut visits: Vec<Visit>, truth: &Truth) -> Vec<[i64; 2]> {
    let mut items = truth.items.clone();
    items.sort_by_key(|it| it.leave);
    visits.sort_by_key(|it| it.end_ns);
    let mut far = Vec::new();
    for item in &items {
        let worst = |visit: &Visit| {
            let both = distances(trace, visit, item);
            both.map(|ns| {
                if ns < -check::CLOCK_SLACK_NS {
                    i64::MAX
                } else {
                    ns
                }
            })
            .into_iter()
            .max()
        };
        let open = 0..visits.len().min(MOST_OPEN);
        let Some(at) = open.min_by_key(|at| worst(&visits[*at])) else {
            panic!("no visit is left for {item:?}");
        };
        let distances = distances(trace, &visits.remove(at), item);
        if distances.iter().any(|ns| ns.abs() > NEAR_NS) {
            far.push(distances);
        }
    }
    far
}
