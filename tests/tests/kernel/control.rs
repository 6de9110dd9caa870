//! Begin, pauses and end of a recording, and copies of it made meanwhile.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use pebs_tests::locks::Lock;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::{Trace, flag};
use pebs_tests::workload::{self, Workload};
use pebs_tests::{check, machine, need, process};
use rustix::process::Signal;

/// Items of the workload, of 1 ms or more each.
const ITEMS: usize = 1500;

fn order(fifo: &Path, lines: &str) {
    let mut fifo = fs::OpenOptions::new().write(true).open(fifo).unwrap();
    fifo.write_all(lines.as_bytes()).unwrap();
}

/// The first byte of a function in the memory of a process.
fn first_byte(pid: u32, workload: &Workload, function: &str) -> u8 {
    use std::os::unix::fs::FileExt as _;
    let address = workload::address_of(workload.path(), function);
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let name = workload.path().to_string_lossy();
    let first = maps.lines().find(|it| it.ends_with(&*name)).unwrap();
    let base = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
    let mut byte = [0];
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut byte, base + address).unwrap();
    byte[0]
}

/// While it is paused, the target has no probe and no item is recorded; what was open has no end. Before and after, every
/// item is whole, and nothing counts as lost.
#[test]
fn paused_and_resumed() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    let items = ITEMS.to_string();
    let alone = workload.run(&["20"]);
    // Others probe the same file.
    let lock = Lock::recording();
    let mut target = workload.start(&[&items]);
    let pid = target.process.pid();
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("orders");
    let original = first_byte(pid, &workload, "handle");
    let mut live = Recorder::new(&workload.spec(super::ID))
        .under(lock)
        .args(&["--return", "ret", "--control", fifo.to_str().unwrap()])
        .attach(pid);
    target.go();
    live.until_rows("visits", 200);
    order(&fifo, "note the first part is over\npause\n");
    live.tool.wait_for_line("paused");
    let while_paused = first_byte(pid, &workload, "handle");
    std::thread::sleep(Duration::from_millis(300));
    order(&fifo, "resume\n");
    live.tool.wait_for_line("recording again");
    let (finished, truth) = target.finish();
    check::same_end(&finished, &alone);
    let recording = live.finish();
    assert!(!fifo.exists(), "the FIFO that was made is removed");
    assert_eq!(while_paused, original, "no probe");
    let trace = recording.trace();
    check::ledger(&trace);
    check::no_mark_lost(&trace);
    let [pause] = &trace.json["pauses"].as_array().unwrap()[..] else {
        panic!("{}", trace.json["pauses"]);
    };
    let (begin, end) = (pause["begin_ns"].as_i64(), pause["end_ns"].as_i64());
    let (begin, end) = (begin.unwrap(), end.unwrap());
    assert!(end - begin > 300_000_000, "{begin} to {end}");
    let visits = trace.visits();
    let mut ids = BTreeSet::new();
    for visit in &visits {
        match visit.end_ns {
            Some(to) => {
                // Probes are removed from the begin of the pause on; the last part of it is after the message.
                let is_outside = visit.begin_ns < end - 250_000_000 || visit.begin_ns >= end;
                assert!(is_outside && to > visit.begin_ns, "{visit:?}");
                check::within_truth(&trace, visit, truth.item(visit.item_id));
            }
            None => assert!(visit.has(flag::END_MISSING), "{visit:?}"),
        }
        ids.insert(visit.item_id);
    }
    // All items but those that began in the pause, or ended in it.
    let zero = trace.monotonic_ns();
    for item in &truth.items {
        let (before, after) = (item.before.unwrap() as i64, item.after.unwrap() as i64);
        let outside = after - zero < begin || before - zero > end + 500_000_000;
        assert!(!outside || ids.contains(&item.id), "{item:?}");
    }
    assert!(
        visits.len() > 400 && visits.len() < ITEMS,
        "{}",
        visits.len()
    );
    assert!(trace.losses().iter().any(|it| it.reason == "paused"));
    let info = pebs_trace(["info".as_ref(), recording.dir().as_os_str()]);
    assert!(info.stdout.contains("the first part is over"), "{info}");
    assert!(info.stdout.contains("paused"), "{info}");
}

/// First and last id of the items that were recorded, all of which are whole.
fn span(recording: &Recording) -> (u64, u64) {
    let trace = recording.trace();
    check::ledger(&trace);
    let mut ids: Vec<u64> = trace.visits().iter().map(|it| it.item_id).collect();
    ids.sort_unstable();
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        panic!("no item: {}", recording.tool);
    };
    assert_eq!(last - first + 1, ids.len() as u64, "none is missing");
    (*first, *last)
}

/// A recording begins at a call with a value; the command runs before, without probes.
#[test]
fn begins_at_a_call() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    let call = format!("{}:handle(*(arg1):u64==300)", workload.path().display());
    let (recording, _) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--start-on", &call])
        .workload(&workload, &[&ITEMS.to_string()]);
    let (first, last) = span(&recording);
    assert!(first > 300 && first < ITEMS as u64, "{first}");
    assert_eq!(last, ITEMS as u64);
    assert!(recording.tool.stderr.contains("waiting for a call of"));
}

/// The same after a time.
#[test]
fn begins_after_a_time() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--delay", "0.5"])
        .workload(&workload, &[&ITEMS.to_string()]);
    let (first, _) = span(&recording);
    let at = |id: u64| truth.item(id).before.unwrap();
    assert!(at(first) - at(1) > 400_000_000, "{first}");
}

/// The same when a file is there, and at a signal, for a process.
#[test]
fn begins_when_told() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("begin");
    for signal in [None, Some(Signal::USR1)] {
        let when = match signal {
            None => format!("file:{}", file.display()),
            Some(_) => "resume".to_owned(),
        };
        // It does not wait for the recording.
        let lock = Lock::recording_beside();
        let mut target = workload.start(&["100000"]);
        target.go();
        let mut live = Recorder::new(&workload.spec(super::ID))
            .under(lock)
            .args(&["--start-on", &when, "-p", &target.process.pid().to_string()])
            .launch();
        live.tool.wait_for_line("waiting for");
        std::thread::sleep(Duration::from_millis(300));
        match signal {
            None => fs::write(&file, "").unwrap(),
            Some(signal) => live.tool.signal(signal),
        }
        live.wait_until_it_records();
        live.until_rows("visits", 50);
        target.process.signal(Signal::KILL);
        let (first, last) = span(&live.finish());
        assert!(first > 100 && first < last, "{when}: {first} to {last}");
    }
}

/// It ends after a number of items, or bytes.
#[test]
fn ends_by_its_limits() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    for (option, value, reason, least) in [
        ("--stop-after", "200", "enough items", 200),
        ("--max-size", "100KB", "large enough", 1),
    ] {
        let mut target = workload.start(&["100000"]);
        let live = Recorder::new(&workload.spec(super::ID))
            .beside()
            .args(&[option, value])
            .attach(target.process.pid());
        target.go();
        let recording = live.finish();
        let trace = recording.trace();
        assert!(trace.visits().len() >= least, "{}", recording.tool);
        let why = &recording.tool.stderr;
        assert!(why.contains(reason), "{}", recording.tool);
        target.process.signal(Signal::KILL);
    }
}

/// A snapshot is a trace of what was recorded so far, which goes on.
#[test]
fn snapshots() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    let mut target = workload.start(&[&ITEMS.to_string()]);
    let mut live = Recorder::new(&workload.spec(super::ID))
        .beside()
        .attach(target.process.pid());
    target.go();
    live.until_rows("visits", 300);
    live.tool.signal(Signal::USR2);
    live.tool.wait_for_line("snapshot in");
    let dir = live.dir().with_extension("1");
    let so_far = Trace::open(&dir).visits().len();
    assert!((290..ITEMS).contains(&so_far), "{so_far}");
    let report = pebs_trace(["report".as_ref(), dir.as_os_str()]);
    assert_eq!(report.code(), Some(0), "{report}");
    assert!(report.stdout.contains("a snapshot after"), "{report}");
    let (_, truth) = target.finish();
    let trace = live.finish().trace();
    check::whole_visits(&trace, &truth);
    process::wait_until("the snapshot stays", || dir.join("trace.json").exists());
}
