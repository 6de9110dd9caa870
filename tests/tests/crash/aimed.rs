//! Recordings killed while the kernel inserts breakpoints into the target or removes them.
//!
//! A process killed during its own request stops half way and leaves breakpoints behind. So another process makes the
//! request.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pebs_tests::process::Signal;
use pebs_tests::recording::{Live, Recorder};
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, say_skip};

use super::keeper;
use super::random::{leaks, probes_gone};

/// Kills while probes are inserted, and as many while they are removed.
const KILLS: usize = 4;
/// Least number of kills within the moment: on a busy machine it may be over before it is seen.
const LEAST: usize = KILLS / 2;
/// Longest wait for the moment.
const PATIENCE: Duration = Duration::from_secs(20);
/// Kernel function at that moment. Source: kernel/events/uprobes.c.
const MOMENT: &str = "register_for_each_vma";

/// Whether the recorder is killed while its probes are inserted or removed, no probe stays.
#[test]
fn kill_9_at_the_worst_moment() {
    need!(machine::root());
    if stack("self").is_none_or(|it| it.is_empty()) {
        return say_skip(format_args!("/proc/PID/stack can't be read"));
    }
    let workload = Workload::build("answers");
    let mut target = workload.start(&[]);
    target.go();
    let pid = target.process.pid();
    let leaks_before = leaks();
    for is_end in [false, true] {
        let hits = (0..KILLS).filter(|_| kill(&workload, pid, is_end)).count();
        assert!(hits >= LEAST, "{hits} of {KILLS} in time, end: {is_end}");
        println!("{hits} of {KILLS} in time, end: {is_end}");
        probes_gone(pid, &workload.path);
    }
    match leaks_before.zip(leaks()) {
        Some((before, now)) => assert_eq!(now, before, "uprobes leaked"),
        None => say_skip(format_args!(
            "dmesg can't be read: whether uprobes leaked is not known"
        )),
    }
    target.answers_stop();
}

/// Kills one recording; returns whether it hit the moment.
fn kill(workload: &Workload, pid: u32, is_end: bool) -> bool {
    let mut live = Recorder::new(&workload.spec("handle(id=arg1)"))
        .args(&["-p", &pid.to_string()])
        .launch();
    if is_end {
        live.wait_until_it_records();
        live.tool.signal(Signal::INT);
    }
    let hit = meets_the_moment(&mut live);
    let killed = live.kill();
    hit && killed.tool.signal() == Some(9)
}

/// Returns true when the recorder or one of its children is there; false if it ended first.
fn meets_the_moment(live: &mut Live) -> bool {
    let tool = live.tool.pid();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let processes = std::iter::once(tool).chain(keeper::children(tool));
        let mut stacks = processes.flat_map(threads).filter_map(|it| read(&it));
        if stacks.any(|stack| stack.contains(MOMENT)) {
            return true;
        }
        if !live.tool.is_running() || Instant::now() > deadline {
            return false;
        }
    }
}

/// Files with the kernel's stacks of a process's threads.
fn threads(pid: u32) -> impl Iterator<Item = PathBuf> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    threads.map(|it| it.path().join("stack"))
}

fn stack(process: &str) -> Option<String> {
    read(Path::new(&format!("/proc/{process}/stack")))
}

/// `None`: it has ended, or may not be read.
fn read(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok()
}
