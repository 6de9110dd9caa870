//! The tool is killed in the middle of a recording.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

#[path = "crash/aimed.rs"]
mod aimed;
#[path = "crash/keeper.rs"]
mod keeper;
#[path = "crash/random.rs"]
mod random;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pebs_tests::process::Signal;
use pebs_tests::recording::{Live, Recorder, pebs_trace};
use pebs_tests::trace::Trace;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need, process, table};

/// kill -9: the target is unharmed, closed segments are readable, and recover saves the open one.
#[test]
fn kill_9() {
    need!(machine::root());
    let workload = Workload::build("answers");
    let mut target = workload.start(&[]);
    let live = Recorder::new(&workload.spec("handle(id=arg1)"))
        .args(&["--segment", "2"])
        .attach(target.process.pid());
    target.go();
    stop_with_an_open_segment(&live);
    let killed = live.kill();
    assert_eq!(killed.tool.signal(), Some(9), "{}", killed.tool);
    target.answers_stop();

    let before = Trace::open(&killed.dir());
    assert_eq!(
        before.json["complete"], false,
        "it did not end in good order"
    );
    let closed = ids(&before);
    assert!(!closed.is_empty(), "segments are closed every two seconds");

    let recovery = pebs_trace(["recover".as_ref(), killed.dir().as_os_str()]);
    // 1: the kill cut a batch in the middle, whose bytes are reported as lost.
    let cut = recovery.stdout.contains("bytes lost");
    assert_eq!(recovery.code(), Some(i32::from(cut)), "{recovery}");
    let after = ids(&Trace::open(&killed.dir()));
    assert!(
        after.is_superset(&closed),
        "recovery keeps what is there\n{recovery}"
    );
    assert!(
        after.len() > closed.len(),
        "recovery saved nothing of the open segment\n{recovery}"
    );
    // From the first item on, without a gap.
    assert_eq!(after, (1..=after.len() as u64).collect());

    let report = pebs_trace(["report".as_ref(), killed.dir().as_os_str()]);
    assert_eq!(report.code(), Some(0), "{report}");
    let again = pebs_trace(["recover".as_ref(), killed.dir().as_os_str()]);
    assert_eq!(
        again.code(),
        Some(0),
        "a second recovery finds nothing to do\n{again}"
    );
    assert_eq!(ids(&Trace::open(&killed.dir())), after);
}

/// Stops the tool at a moment when a segment was closed and the next has rows.
fn stop_with_an_open_segment(live: &Live) {
    let visits = live.dir().join("visits");
    process::wait_until("no segment with rows behind a closed one", || {
        live.tool.signal(Signal::STOP);
        process::wait_until("it does not stop", || is_stopped(live.tool.pid()));
        let is_closed = visits.is_dir() && !table::segments(&visits).is_empty();
        let found = is_closed && open_segments(&visits).any(|it| table::rows_of_open(&it) > 0);
        if !found {
            live.tool.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(50));
        }
        found
    });
}

/// Whether every thread of a process is stopped.
fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut states = threads.into_iter().flatten().flatten().map(|it| {
        let stat = fs::read_to_string(it.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|it| it.chars().next())
    });
    states.all(|state| state == Some('T'))
}

/// Segments that are being written.
fn open_segments(table: &Path) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(table).into_iter().flatten().flatten();
    files.map(|it| it.path()).filter(|it| table::is_open(it))
}

/// Items of the visits, each once.
fn ids(trace: &Trace) -> BTreeSet<u64> {
    let visits = trace.visits();
    let ids: BTreeSet<u64> = visits.iter().map(|visit| visit.item_id).collect();
    assert_eq!(ids.len(), visits.len(), "an item twice");
    ids
}

/// After the tool was killed no leftovers are in the way: the same target can be traced at once.
#[test]
fn record_again_after_kill_9() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let mut target = workload.start(&["200"]);
    let spec = workload.spec("handle(id=*(arg1):u64)");
    let killed = Recorder::new(&spec).attach(target.process.pid()).kill();
    assert_eq!(killed.tool.signal(), Some(9), "{}", killed.tool);
    let live = Recorder::new(&spec).attach(target.process.pid());
    target.go();
    let (_, truth) = target.finish();
    check::whole_visits(&live.stop().trace(), &truth);
}
