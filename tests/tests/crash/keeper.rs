//! The process that places probes is killed; nothing of it is left behind.

use std::fs;
use std::path::Path;
use std::process::Command;

use pebs_tests::recording::{Live, Recorder};
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, process};

use super::ids;
use super::random::probes_gone;

/// Its name, and its command line.
const NAME: &str = "uprobe-keeper";

/// Children of a process, whichever of its threads started them.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let all: String = threads.filter_map(of).collect();
    let pids = all.split_whitespace();
    pids.map(|pid| pid.parse().unwrap()).collect()
}

/// The process that keeps a recording's probes. The one that counts marks before the start has ended, as `--force`
/// skips that count.
fn keeper_of(live: &Live) -> u32 {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let keepers = || children(live.tool.pid()).into_iter();
    process::wait_until("not one keeper", || {
        keepers().filter(|pid| name(pid).trim() == NAME).count() == 1
    });
    keepers().find(|pid| name(pid).trim() == NAME).unwrap()
}

/// If it is killed alone, the recording loses no data, and reports it in one line, here and in the trace.
#[test]
fn kill_9_of_the_keeper() {
    need!(machine::root());
    let workload = Workload::build("answers");
    let mut target = workload.start(&[]);
    let pid = target.process.pid();
    let mut live = Recorder::new(&workload.spec("handle(id=arg1)")).attach(pid);
    target.go();
    live.until_rows("visits", 1);
    let keeper = keeper_of(&live);
    let killed = process::run(Command::new("kill").args(["-9", &keeper.to_string()]));
    assert_eq!(killed.code(), Some(0), "{killed}");
    let says = format!("warning: {NAME} (process {keeper}) was killed by signal 9: ");
    live.tool.wait_for_line(&says);
    // Recording continues.
    let rows = pebs_tests::table::rows_so_far(&live.dir(), "visits");
    live.until_rows("visits", rows + 100);
    let recording = live.stop();
    let warnings = recording.tool.stderr.matches(NAME).count();
    assert_eq!(warnings, 1, "{}", recording.tool);
    let trace = recording.trace();
    let notes = trace.json["notes"].to_string();
    assert!(notes.contains("was killed by signal 9"), "{notes}");
    let ids = ids(&trace);
    assert_eq!(
        ids.len() as u64,
        ids.last().unwrap() - ids.first().unwrap() + 1
    );
    probes_gone(pid, &workload.path);
    target.answers_stop();
}

/// A kill of `pebs-trace` by its command line does not hit it; it ends with its recording, and leaves no zombie.
#[test]
fn keeper_ends_with_its_recording() {
    need!(machine::root());
    let workload = Workload::build("answers");
    let mut target = workload.start(&[]);
    let pid = target.process.pid();
    let live = Recorder::new(&workload.spec("handle(id=arg1)")).attach(pid);
    target.go();
    live.until_rows("visits", 1);
    let keeper = format!("/proc/{}", keeper_of(&live));
    let line = fs::read_to_string(format!("{keeper}/cmdline")).unwrap();
    assert_eq!(line, format!("{NAME}\0"));
    let recording = live.stop();
    assert!(!Path::new(&keeper).exists(), "{}", recording.tool);
    probes_gone(pid, &workload.path);
    assert_eq!(recording.trace().json["complete"], true);
    target.answers_stop();
}
