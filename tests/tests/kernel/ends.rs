//! Every way in which a visit can end.

use pebs_tests::recording::Recorder;
use pebs_tests::trace::flag;
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need, process};
use rustix::process::Signal;

/// Records a workload in which every fifth item leaves its function without a return.
fn unwound(workload: &Workload, spec: &str, extra: &[&str]) {
    let alone = workload.run(&["200"]);
    let (recording, truth) = Recorder::new(spec)
        .beside()
        .args(extra)
        .workload(workload, &["200"]);
    let trace = recording.trace();
    let visits = trace.visits();
    check::same_items(&trace, &visits, &truth.ids());
    assert_eq!(truth.notes["unwound"], 40);
    for visit in &visits {
        let item = truth.item(visit.item_id);
        let left = visit.item_id % 5 == 0;
        // The end of the last one may be known only by its thread's end.
        let ended = visit.item_id == 200 && visit.has(flag::THREAD_ENDED);
        assert_eq!(visit.has(flag::UNWOUND) || ended, left, "{visit:?}");
        assert!(
            !visit.has(flag::END_MISSING | flag::OPEN_AT_END),
            "{visit:?}"
        );
        if left {
            // Closed when the frame was seen to be gone: not before it was, and no later than the
            // next item of the thread (or the thread's end).
            let begin_only = pebs_tests::truth::ItemTruth {
                after: None,
                ..*item
            };
            check::within_truth(&trace, visit, &begin_only);
            let next = visits.iter().find(|v| v.item_id == visit.item_id + 1);
            if let (Some(next), Some(end)) = (next, visit.end_ns) {
                assert!(end <= next.begin_ns, "{visit:?} reaches into {next:?}");
            }
        } else {
            check::within_truth(&trace, visit, item);
        }
    }
    check::unharmed(&recording, &alone);
}

/// C++ exceptions pass through the probed frame: the program works, and these visits are flagged.
#[test]
fn exceptions() {
    need!(machine::root());
    let workload = Workload::build("exceptions");
    let spec = workload.spec("shop::handle(id=*(arg1):u64)");
    unwound(&workload, &spec, &[]);
}

/// Rust panics, caught further up.
#[test]
fn panics() {
    need!(machine::root());
    let workload = Workload::build("panics");
    unwound(&workload, &workload.spec(super::ID), &[]);
}

/// longjmp over the probed frame.
#[test]
fn longjmp() {
    need!(machine::root());
    let workload = Workload::build("longjmp");
    unwound(&workload, &workload.spec(super::ID), &[]);
}

/// The same with return probes requested: longjmp does not endanger them.
#[test]
fn longjmp_with_uretprobe() {
    need!(machine::root());
    let workload = Workload::build("longjmp");
    unwound(
        &workload,
        &workload.spec(super::ID),
        &["--return", "uretprobe"],
    );
}

fn tail_calls(method: &str) {
    need!(machine::root());
    let workload = Workload::build("tailcall");
    let alone = workload.run(&[]);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--return", method])
        .workload(&workload, &[]);
    check::whole_visits(&recording.trace(), &truth);
    check::unharmed(&recording, &alone);
}

/// A function that ends in a jump ends there, with any way of marking returns.
#[test]
fn tail_call_auto() {
    tail_calls("auto");
}

/// With probes on the function's own `ret`s and jumps.
#[test]
fn tail_call_ret() {
    tail_calls("ret");
}

/// With a return probe, which fires when the function that was jumped to returns.
#[test]
fn tail_call_uretprobe() {
    tail_calls("uretprobe");
}

/// Ends at a branch that leaves on one side only are marked on that side, whatever the condition, also where the branch
/// goes to another function.
#[test]
fn sides_of_branches() {
    need!(machine::root());
    const CONDITIONS: [&str; 16] = [
        "o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g",
    ];
    let workload = Workload::build("sides");
    let alone = workload.run(&[]);
    let specs: Vec<String> = CONDITIONS
        .iter()
        .map(|condition| format!("if_{condition}"))
        .chain(["leaves".to_owned()])
        .map(|name| workload.spec(&format!("{name}(id=*(arg1):u64)")))
        .collect();
    let more = specs[1..].iter().flat_map(|spec| ["--uprobe", spec]);
    let (recording, truth) = Recorder::new(&specs[0])
        .beside()
        .args(&more.collect::<Vec<_>>())
        .workload(&workload, &[]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    check::unharmed(&recording, &alone);
    for probe in trace.json["probes"].as_array().expect("probes") {
        let sites = probe["sites"].as_array().expect("sites");
        let taken = sites.iter().filter(|site| {
            let instruction = site["instruction"].as_str().expect("text");
            site["class"] == "emulated" && instruction.ends_with(", taken")
        });
        assert_eq!(taken.count(), 1, "{probe:#}");
    }
}

/// Killed in the middle of an item: all items are recorded, the last one cut off by the thread's
/// end.
#[test]
fn killed() {
    need!(machine::root());
    let workload = Workload::build("killed");
    let mut target = workload.start(&[]);
    let live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .attach(target.process.pid());
    target.go();
    target.until_items(200);
    target.process.signal(Signal::KILL);
    let (finished, truth) = target.finish();
    assert_eq!(finished.signal(), Some(9), "{finished}");
    let trace = live.stop().trace();
    cut_off_at_most_the_last(&trace, &truth);
}

fn cut_off_at_most_the_last(trace: &pebs_tests::trace::Trace, truth: &Truth) {
    check::no_mark_lost(trace);
    let visits = trace.visits();
    let (done, begun) = (truth.items.len(), truth.begun.len());
    assert!(done > 100, "the target has worked: {done} items");
    // Between the lines "begin" and "item" the kill may come before, in, or after the visit.
    assert!(
        (done..=begun).contains(&visits.len()),
        "{} visits, {done}..{begun}",
        visits.len()
    );
    let cut = visits.iter().filter(|v| v.has(flag::THREAD_ENDED)).count();
    assert!(
        cut <= begun - done,
        "{cut} visits cut off, {begun} begun, {done} done"
    );
    for (i, visit) in visits.iter().enumerate() {
        assert_eq!(visit.item_id, i as u64 + 1, "in order");
        if i < done {
            assert!(!visit.has(flag::THREAD_ENDED), "{visit:?}");
            check::within_truth(trace, visit, truth.item(visit.item_id));
        }
    }
}

/// The program is replaced within an item: that visit is cut off; both lives are whole.
#[test]
fn exec_within_an_item() {
    need!(machine::root());
    let workload = Workload::build("execs");
    let alone = workload.run(&["50"]);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .workload(&workload, &["50"]);
    let trace = recording.trace();
    let visits = trace.visits();
    let mut ids = truth.ids();
    // The first life's log of whole items was written before the exec.
    assert_eq!((ids.len(), &truth.begun[..]), (100, &[51][..]));
    ids.push(51);
    check::same_items(&trace, &visits, &ids);
    for visit in &visits {
        assert_eq!(
            visit.has(flag::THREAD_ENDED),
            visit.item_id == 51,
            "{visit:?}"
        );
        if visit.item_id != 51 {
            check::within_truth(&trace, visit, truth.item(visit.item_id));
        }
    }
    check::unharmed(&recording, &alone);
}

/// The recording ends while an item is open: the visit's end is unknown, not now and not 0.
#[test]
fn open_at_end() {
    need!(machine::root());
    let workload = Workload::build("killed");
    let mut target = workload.start(&[]);
    let live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .attach(target.process.pid());
    target.go();
    target.until_items(100);
    let recording = live.stop();
    assert!(target.process.is_running(), "{}", recording.tool);
    target.process.signal(Signal::KILL);
    let (_, truth) = target.finish();
    let trace = recording.trace();
    let open: Vec<_> = trace
        .visits()
        .into_iter()
        .filter(|v| v.end_ns.is_none())
        .collect();
    assert!(open.len() <= 1, "one thread has one item open: {open:?}");
    for visit in &open {
        assert!(visit.has(flag::OPEN_AT_END), "{visit:?}");
        assert_eq!(
            (visit.duration_ns, visit.oncpu_ns, visit.cpu_end),
            (None, None, None)
        );
    }
    assert!((100..=truth.begun.len()).contains(&trace.visits().len()));
}

/// The longest chain of ends: a process that never exits by itself is ended by a command's own
/// timeout, and the tool ends with it.
#[test]
fn command_that_is_terminated() {
    need!(machine::root());
    let timeout = need!(machine::program("timeout"));
    // A copy with a unique name, to find out whether it still runs.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("endless");
    process::copy_program(&Workload::build("killed").path, &copy);
    let path = copy.display().to_string();
    let recording = Recorder::new(&format!("{path}:{}", super::ID))
        .beside()
        .command(&timeout, &["--signal=TERM", "1.5", &path]);
    let trace = recording.trace();
    check::no_mark_lost(&trace);
    assert!(trace.visits().len() >= 10, "{}", recording.tool);
    let left = process::run(std::process::Command::new("pgrep").args(["-f", &path]));
    assert_eq!(left.stdout, "", "nothing is left running");
}
