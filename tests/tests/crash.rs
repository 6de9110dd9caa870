//! The tool is killed in the middle of a recording.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

#[path = "crash/random.rs"]
mod random;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::trace::Trace;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// kill -9: the target is unharmed, closed segments are readable as they are, and recover saves the
/// open one.
#[test]
fn kill_9() {
    need!(machine::root());
    let workload = Workload::build("short_visits");
    let args = ["300000", "20000"];
    let alone = workload.run(&args);
    let mut target = workload.start(&args);
    let live = Recorder::new(&workload.spec("handle(id=arg1)"))
        .args(&["--segment", "2"])
        .attach(target.process.pid());
    target.go();
    wait_for_an_open_segment(&live.dir());
    assert!(target.process.is_running());
    let killed = live.kill();
    assert_eq!(killed.tool.signal(), Some(9), "{}", killed.tool);
    let (finished, _) = target.finish();
    check::same_end(&finished, &alone);

    let before = Trace::open(&killed.dir());
    assert_eq!(
        before.json["complete"], false,
        "it did not end in good order"
    );
    let closed = ids(&before);
    assert!(!closed.is_empty(), "segments are closed every two seconds");

    let recovery = pebs_trace(["recover".as_ref(), killed.dir().as_os_str()]);
    // 1: the kill cut a batch in the middle, whose bytes it says are lost.
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

/// Waits until a segment was closed and the next has a whole row group: its file has grown and stands still.
fn wait_for_an_open_segment(trace: &Path) {
    let open = trace.join("visits/000001.parquet.open");
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut before = 0;
    loop {
        let now = open.metadata().map_or(0, |file| file.len());
        if now > 0 && now == before {
            return;
        }
        before = now;
        assert!(
            Instant::now() < deadline,
            "{} does not grow",
            open.display()
        );
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// Items of the visits, each once.
fn ids(trace: &Trace) -> BTreeSet<u64> {
    let visits = trace.visits();
    let ids: BTreeSet<u64> = visits.iter().map(|visit| visit.item_id).collect();
    assert_eq!(ids.len(), visits.len(), "an item twice");
    ids
}

/// After the tool was killed nothing of it is left in the way: the same target can be traced at once.
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
