//! Items without marks: their ids are read at samples.

use std::collections::{BTreeMap, HashMap, HashSet};

use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::trace::{SAMPLE_KERNEL, Sample, Trace, Visit, flag};
use pebs_tests::truth::{CallTruth, ItemTruth, Truth};
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Between two samples, ns.
const RESET: &str = "50000";

/// Largest delay with which an interrupt that began before an instant reads its time, ns.
const INTERRUPT_NS: i64 = 20_000;

/// Time of the C library between setting an id and reading the clock, ns.
const SWITCH_NS: i64 = 3_000;

fn recorder(place: &[&str]) -> Recorder {
    Recorder::plain()
        .beside()
        .args(place)
        .args(&["--event", "cpu-clock", "--reset", RESET])
}

/// Times of a truth on the trace clock: before, enter, leave, after.
fn times(trace: &Trace, item: &ItemTruth) -> [i64; 4] {
    let zero = trace.monotonic_ns();
    [item.before, item.enter, item.leave, item.after].map(|ns| ns.map_or(0, |ns| ns as i64 - zero))
}

/// Checks that every sample well within an item of its thread is in a visit of that item, and every one well outside
/// of all is in none. Returns the number within.
fn in_the_right_item(trace: &Trace, truth: &Truth, id_of: fn(&ItemTruth) -> u64) -> usize {
    let items: HashMap<u64, u64> = trace
        .visits()
        .iter()
        .map(|v| (v.visit_id, v.item_id))
        .collect();
    let mut threads: BTreeMap<u64, Vec<([i64; 4], u64)>> = BTreeMap::new();
    for item in &truth.items {
        let of_thread = threads.entry(u64::from(item.tid)).or_default();
        of_thread.push((times(trace, item), id_of(item)));
    }
    for slices in threads.values_mut() {
        slices.sort_unstable();
    }
    let in_bulk = trace.json["transport"] == "bulk";
    let mut within = 0;
    for sample in trace.samples() {
        let Some(slices) = threads.get(&sample.tid) else {
            continue;
        };
        let found = sample.visit_id.map(|visit| items[&visit]);
        let at = slices.partition_point(|(times, _)| times[0] <= sample.time_ns);
        let Some(([_, enter, leave, after], id)) = at.checked_sub(1).map(|at| &slices[at]) else {
            // At the program's start no id has been set yet.
            continue;
        };
        let time = sample.time_ns;
        // In bulk a sample in kernel mode is of no item where the thread's item changes next.
        if in_bulk && found.is_none() && sample.flags & SAMPLE_KERNEL != 0 {
            continue;
        }
        if time > enter + INTERRUPT_NS && time < leave - SWITCH_NS {
            assert_eq!(found, Some(*id), "{sample:?} in {enter}..{leave}");
            within += 1;
        } else if time > after + INTERRUPT_NS
            && slices.get(at).is_some_and(|(next, _)| time < next[0])
        {
            assert_eq!(found, None, "{sample:?} after {after}");
        }
    }
    within
}

/// The visits of each item, and the entry of trace.json on where ids were read.
fn by_item(trace: &Trace, source: &str) -> BTreeMap<u64, Vec<Visit>> {
    let probe = &trace.json["probes"][0];
    assert_eq!(probe["rule"], "same_id", "{probe}");
    assert_eq!(probe["item"]["source"], source, "{probe}");
    assert_eq!(trace.account("marks").seen, 0, "no mark is made");
    let mut items: BTreeMap<u64, Vec<Visit>> = BTreeMap::new();
    for visit in trace.visits() {
        assert!(visit.has(flag::SAMPLED_BOUNDS), "{visit:?}");
        items.entry(visit.item_id).or_default().push(visit);
    }
    items
}

/// First and last sample of each visit.
fn outer_samples(samples: &[Sample]) -> HashMap<u64, (i64, i64)> {
    let mut outer = HashMap::new();
    for sample in samples {
        let Some(visit) = sample.visit_id else {
            continue;
        };
        let (first, last) = outer
            .entry(visit)
            .or_insert((sample.time_ns, sample.time_ns));
        *first = sample.time_ns.min(*first);
        *last = sample.time_ns.max(*last);
    }
    outer
}

/// User-level threads that a timer takes away, with their ids in r13: no sample is in a wrong item, and the
/// time of each item is right within its stated error. What reads such a trace copes with it.
#[test]
fn fibers() {
    need!(machine::root());
    let workload = Workload::build("fibers");
    let (recording, truth) = recorder(&["--item-reg", "r13"])
        .before_others()
        .workload(&workload, &["8", "400", "500"]);
    let trace = recording.trace();
    let within = in_the_right_item(&trace, &truth, |item| item.id);
    assert!(within > 500, "{within} samples in fibers");
    let items = by_item(&trace, "register");
    let samples = trace.samples();
    let outer = outer_samples(&samples);
    for id in 7000..7008 {
        let slices = truth.items.iter().filter(|item| item.id == id);
        let (mut least, mut most) = (0, 0);
        for slice in slices {
            let [before, enter, leave, after] = times(&trace, slice);
            least += leave - enter;
            most += after - before;
        }
        let (mut estimate, mut variance) = (0, 0.0);
        for visit in &items[&id] {
            let (first, last) = outer[&visit.visit_id];
            let end = visit.end_ns.unwrap();
            estimate += end - visit.begin_ns;
            for part in [first - visit.begin_ns, end - last] {
                variance += (part as f64).powi(2) / 3.0;
            }
        }
        let slack = (5.0 * variance.sqrt()) as i64;
        assert!(
            (least - slack..most + slack).contains(&estimate),
            "fiber {id}: {estimate} ns, {least}..{most} in truth, slack {slack}"
        );
    }
    let visits: HashMap<u64, u64> = items
        .values()
        .flatten()
        .map(|v| (v.visit_id, v.item_id))
        .collect();
    let in_kernel = samples.iter().any(|sample| {
        let odd = sample.visit_id.is_some_and(|visit| visits[&visit] % 2 == 1);
        sample.flags & SAMPLE_KERNEL != 0 && odd
    });
    assert!(in_kernel, "the register is read in the kernel too");
    let dir = recording.dir().display().to_string();
    for command in ["report", "explain"] {
        let done = pebs_trace([command, &dir]);
        assert_eq!(done.code(), Some(0), "{done}");
        assert!(done.stdout.contains("reg:r13"), "{done}");
    }
    let done = pebs_trace(["explain", &dir, "--item", "7003"]);
    assert_eq!(done.stdout.matches("sampled_bounds").count(), 1, "{done}");
    let page = recording.dir().with_file_name("page.html");
    let done = pebs_trace(["html", &dir, "-o", &page.display().to_string()]);
    assert_eq!(done.code(), Some(0), "{done}");
}

/// In bulk no program reads the register: the kernel writes it beside the sample.
#[test]
fn fibers_in_bulk() {
    need!(machine::root());
    let workload = Workload::build("fibers");
    let (recording, truth) = recorder(&["--item-reg", "r13", "--transport", "bulk"])
        .before_others()
        .workload(&workload, &["8", "400", "500"]);
    let within = in_the_right_item(&recording.trace(), &truth, |item| item.id);
    assert!(within > 500, "{within} samples in fibers");
}

/// A thousand fibers on four threads that take them from each other, ten of which do more in each turn: without an option
/// these ten and their function are named, by time on the CPU, which is that of the program's own clock.
#[test]
fn fibers_that_are_stolen() {
    need!(machine::root());
    let workload = Workload::build("stealing");
    let (recording, truth) =
        recorder(&["--item-reg", "r13"]).workload(&workload, &["1000", "10", "300", "10", "4"]);
    let trace = recording.trace();
    let items = by_item(&trace, "register");
    let took = |id: u64| -> i64 {
        let visits = items.get(&id).into_iter().flatten();
        visits.filter_map(|it| it.oncpu_ns).sum()
    };
    let threads = |id: u64| -> HashSet<u64> { items[&id].iter().map(|it| it.tid).collect() };
    let (slow, usual): (Vec<&CallTruth>, Vec<&CallTruth>) =
        truth.calls.iter().partition(|it| it.name == "slow");
    assert_eq!((slow.len(), usual.len()), (10, 990));
    for of in [&slow, &usual] {
        let [found, known] = [
            of.iter().map(|it| took(it.item) as f64).sum::<f64>(),
            of.iter().map(|it| it.leave as f64).sum(),
        ];
        let off = found / known - 1.0;
        assert!(off.abs() < 0.01, "{found} of {known}: {off}");
    }
    let moved = slow.iter().filter(|it| threads(it.item).len() > 1).count();
    assert!(moved > 5, "{moved} of ten changed their thread");
    let dir = recording.dir().display().to_string();
    let done = pebs_trace(["explain", &dir, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    let whole = &json["probes"][0]["whole"];
    // The first samples of a thread may find anything in the register: one more item at most.
    let items = whole["slow"]["items"].as_u64().expect("slow items");
    assert!((10..=11).contains(&items), "{done}");
    let first = &whole["gap"]["causes"][0];
    assert_eq!(first["function"]["name"], "rebuild", "{first:#}");
    assert!(first["share"].as_f64() > Some(0.9), "{first:#}");
}

/// The thread that ended a wait is known for items without marks as well: the wait is assigned at the next sample,
/// after the switch.
#[test]
fn who_wakes_fibers() {
    need!(machine::root());
    let workload = Workload::build("fibers");
    let (recording, _) = recorder(&["--item-reg", "r13", "--with", "waits"])
        .before_others()
        .workload(&workload, &["4", "200", "2000", "1"]);
    let trace = recording.trace();
    let waits = trace.waits();
    let sleeps: Vec<_> = waits.iter().filter(|it| it.state == "sleeping").collect();
    assert!(sleeps.len() > 20, "{waits:?}");
    // The kernel runs no program within itself: a wake-up in an interrupt of another one is not seen.
    let known = sleeps.iter().filter(|it| it.woken_by.is_some());
    assert!(known.clone().count() * 10 > sleeps.len() * 9, "{waits:?}");
    for wait in known {
        assert_eq!(wait.woken_by.as_deref(), Some("[interrupt]"), "{wait:?}");
        let runnable = wait.runnable_ns.unwrap_or(-1);
        assert!((0..=wait.length_ns()).contains(&runnable), "{wait:?}");
    }
    let items: HashMap<u64, u64> = trace
        .visits()
        .iter()
        .map(|v| (v.visit_id, v.item_id))
        .collect();
    let odd = |it: &&&pebs_tests::trace::Wait| !items[&it.visit_id].is_multiple_of(2);
    // None of these sleeps. But an item that slept before its first sample is not seen, and its wait is assigned to
    // the item before or after it.
    let odd = sleeps.iter().filter(odd).count();
    assert!(odd * 20 < sleeps.len(), "{odd} of {}", sleeps.len());
}

/// A variable of the program, in position-independent programs and in others: each item is one visit, sleeps in
/// items are theirs, and sleeps between items are in none.
#[test]
fn variable() {
    need!(machine::root());
    for (name, place) in [
        ("ids", "current_id"),
        ("ids_no_pie", "current_id:u64"),
        ("ids", "current_item->0:u32"),
    ] {
        let workload = Workload::build(name);
        let (recording, truth) = recorder(&["--item-mem", place])
            .before_others()
            .workload(&workload, &["1", "100", "600"]);
        let trace = recording.trace();
        let within = in_the_right_item(&trace, &truth, |item| item.id);
        assert!(within > 200, "{within} samples in items");
        let items = by_item(&trace, "memory");
        assert_eq!(items.len(), 100, "items: {:?}", items.keys());
        let slept: Vec<u64> = trace
            .waits()
            .iter()
            .filter(|wait| wait.state == "sleeping")
            .map(|wait| wait.visit_id)
            .collect();
        for (id, visits) in &items {
            let [visit] = visits.as_slice() else {
                panic!("item {id} in pieces: {visits:?}");
            };
            let sleeps = slept.iter().filter(|of| **of == visit.visit_id).count();
            assert_eq!(sleeps, usize::from(id % 4 == 0), "{visit:?}");
        }
    }
}

/// A variable of a library: in a program that loads it later, in one that has, and in its children.
#[test]
fn variable_of_a_library() {
    need!(machine::root());
    let workload = Workload::build("ids_library");
    let library = workload.beside("libids_library.so");
    let place = format!("{}:lib_id:u64", library.display());
    let recorder = || recorder(&["--item-mem", &place]).before_others();
    let check = |trace: &Trace, truth: &Truth| {
        let within = in_the_right_item(trace, truth, |item| item.id);
        assert!(within > 200, "{within} samples in items");
        let items = by_item(trace, "memory");
        // An item whose CPU was taken away has no sample.
        assert!(items.len() > 60, "items: {:?}", items.keys());
        assert!(items.keys().all(|id| (1..=80).contains(id)), "{items:?}");
    };
    for fork in ["0", "1"] {
        let (recording, truth) = recorder().workload(&workload, &["80", "600", fork]);
        check(&recording.trace(), &truth);
        let mut target = workload.start(&["80", "600", fork]);
        let live = recorder().attach(target.process.pid());
        target.go();
        let (_, truth) = target.finish();
        check(&live.stop().trace(), &truth);
    }
}

/// A thread-local variable, of threads that start later in a process that runs already; -1 means no item.
#[test]
fn thread_local_variable() {
    need!(machine::root());
    for (place, none, id_of) in [
        ("own_id:u32", "0", (|item| item.id) as fn(&ItemTruth) -> u64),
        ("own_item->0:u64", "0", |item| item.id),
        ("own_kind:i16", "-1", |item| item.id % 1_000_000 % 3),
    ] {
        let workload = Workload::build("ids");
        let mut target = workload.start(&["3", "40", "600"]);
        let live =
            recorder(&["--item-tls", place, "--item-none", none]).attach(target.process.pid());
        target.go();
        let (_, truth) = target.finish();
        let trace = live.stop().trace();
        let within = in_the_right_item(&trace, &truth, id_of);
        assert!(within > 200, "{within} samples in items");
        by_item(&trace, "tls");
    }
}

/// In processes that start later the variable is read at its place in each; those that run another program have no
/// items, and the ledger counts their samples.
#[test]
fn later_processes() {
    need!(machine::root());
    let workload = Workload::build("ids");
    let program = workload.path.display().to_string();
    let place = format!("{program}:current_id:u64");
    let script = format!(
        "{program} 1 40 600; {program} 1 40 600; n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done"
    );
    let recording = recorder(&["--item-mem", &place])
        .before_others()
        .command("/bin/sh".as_ref(), &["-c", &script]);
    let trace = recording.trace();
    let items = by_item(&trace, "memory");
    assert_eq!(items.len(), 40, "items: {:?}", items.keys());
    for (id, visits) in items {
        let pids: Vec<u64> = visits.iter().map(|visit| visit.pid).collect();
        assert_eq!(pids.len(), 2, "item {id}: {pids:?}");
        assert_ne!(pids[0], pids[1], "item {id}");
    }
    let faults = trace.json["ledger"]["item_faults"].as_u64();
    assert!(
        faults.is_some_and(|n| n > 0),
        "the shell has no such variable"
    );
    check::ledger(&trace);
}

/// Go keeps the goroutine in r14: the samples of a function that one goroutine runs have one id.
#[test]
fn goroutines() {
    need!(machine::root());
    let workload = need!(Workload::try_build("goroutines"));
    let recording = recorder(&["--item-reg", "r14"]).command(&workload.path, &["400"]);
    let trace = recording.trace();
    let items: HashMap<u64, u64> = trace
        .visits()
        .iter()
        .map(|v| (v.visit_id, v.item_id))
        .collect();
    let names = trace.function_names();
    let mut ids: BTreeMap<&str, BTreeMap<Option<u64>, usize>> = BTreeMap::new();
    for sample in trace.samples() {
        let name = names.get(&sample.function_id).map_or("", String::as_str);
        let work = ["main.first", "main.second", "main.third", "main.fourth"];
        if work.contains(&name) {
            let id = sample.visit_id.map(|visit| items[&visit]);
            *ids.entry(name).or_default().entry(id).or_default() += 1;
        }
    }
    assert_eq!(ids.len(), 4, "{ids:?}");
    let mut all: Vec<u64> = Vec::new();
    for (name, ids) in &ids {
        let one: Vec<_> = ids.iter().collect();
        let [(Some(id), samples)] = one.as_slice() else {
            panic!("{name} in several goroutines: {ids:?}");
        };
        assert!(**samples > 50, "{name}: {samples} samples");
        all.push(*id);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4, "four goroutines: {ids:?}");
}
