//! A writer killed with SIGKILL.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::store::fixtures::rows::{self, info};
use crate::store::options::WriterOptions;
use crate::store::reader::{Trace, TraceState};
use crate::store::recover::{RecoverError, recover};
use crate::store::schema::Table;
use crate::store::schema::visits;
use crate::store::writer::TraceWriter;

/// Set in the process to be killed: its output directory.
const DIR: &str = "PEBS_TRACE_TEST_KILLED";

/// Rows of a flush.
const FLUSH: u64 = 100;

/// Flushes of a segment.
const SEGMENT: u64 = 10;

/// A trace that grows until the process is killed.
fn write_for_ever(dir: &Path) {
    let mut writer = TraceWriter::create(dir, &info(), WriterOptions::default()).unwrap();
    for second in 1.. {
        let from = (second - 1) * FLUSH;
        rows::write(&mut writer, from, from + FLUSH).unwrap();
        writer.tick(Duration::from_secs(second)).unwrap();
        sleep(Duration::from_millis(2));
    }
}

/// This test program, run with only the test below, as the writer.
fn writer(dir: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "store::tests::killed::flushed_rows_survive"])
        .env(DIR, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until the trace has a closed segment and a complete row group in an open one.
fn wait_for_segments(dir: &Path) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if let Ok(trace) = Trace::open(dir)
            && trace.segments(Table::Visits).len() >= 2
            && trace.open_segments().iter().any(|s| s.bytes > 0)
        {
            assert_eq!(trace.state(), TraceState::Live);
            return;
        }
        sleep(Duration::from_millis(1));
    }
    panic!("no segment in {}", dir.display());
}

fn visit_ids(dir: &Path) -> Vec<u64> {
    let trace = Trace::open(dir).unwrap();
    let mut ids = Vec::new();
    visits::each(&trace, |row| ids.push(row.visit_id)).unwrap();
    // Compacted segments are sorted by thread.
    ids.sort_unstable();
    ids
}

// Killed at any time, a writer loses at most unflushed rows: after recovery the visits are 1, 2, 3 and so on,
// without gap or repetition, in complete flushes.
#[test]
fn flushed_rows_survive() {
    if let Some(dir) = env::var_os(DIR) {
        write_for_ever(&PathBuf::from(dir));
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    for delay in 0..5 {
        let dir = parent.path().join(delay.to_string());
        let mut child = writer(&dir);
        wait_for_segments(&dir);
        assert!(matches!(recover(&dir), Err(RecoverError::Live { .. })));
        sleep(Duration::from_millis(delay * 3));
        child.kill().unwrap();
        child.wait().unwrap();

        let closed = visit_ids(&dir).len() as u64;
        assert!(closed >= 2 * SEGMENT * FLUSH - FLUSH);
        recover(&dir).unwrap();
        let ids = visit_ids(&dir);
        assert!(ids.len() as u64 >= closed);
        assert_eq!(ids.len() as u64 % FLUSH, 0);
        assert!(ids.iter().zip(1..).all(|(id, n)| *id == n));
        assert_eq!(Trace::open(&dir).unwrap().open_segments(), []);
    }
}
