//! A trace on a disk that fills up.

use crate::failure::Hint as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::store::fixtures::rows::{self, info};
use crate::store::options::WriterOptions;
use crate::store::reader::{Trace, TraceState};
use crate::store::recover::recover;
use crate::store::schema::{LossRow, Table};
use crate::store::writer::{TraceWriter, WriteError};

/// A small disk in memory, unmounted when dropped.
struct Disk {
    parent: tempfile::TempDir,
}

impl Disk {
    /// `None`, with the reason printed, if mounting is not allowed.
    fn mount(size: &str) -> Option<Self> {
        let parent = tempfile::tempdir().unwrap();
        let disk = Self { parent };
        fs::create_dir(disk.path()).unwrap();
        if disk.run(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]) {
            Some(disk)
        } else {
            println!("SKIP mounting a tmpfs needs root");
            None
        }
    }

    fn resize(&self, size: &str) {
        assert!(self.run(&["-o", &format!("remount,size={size}")]));
    }

    fn run(&self, args: &[&str]) -> bool {
        let mut mount = Command::new("mount");
        mount.args(args).arg(self.path());
        mount.output().is_ok_and(|output| output.status.success())
    }

    fn path(&self) -> PathBuf {
        self.parent.path().join("disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).output();
    }
}

/// Writes until the disk is full; returns the error.
fn fill(writer: &mut TraceWriter) -> WriteError {
    for round in 0..10_000 {
        let rows = rows::write(writer, round * 100, (round + 1) * 100);
        let ticked = writer.tick(Duration::from_millis(round * 500));
        if let Err(error) = rows.and(ticked) {
            return error;
        }
    }
    panic!("the disk never filled");
}

fn rows_on_disk(dir: &Path) -> Vec<u64> {
    let trace = Trace::open(dir).unwrap();
    Table::ALL
        .iter()
        .map(|table| trace.rows(*table).unwrap())
        .collect()
}

fn check(size: &str) {
    let Some(disk) = Disk::mount(size) else {
        return;
    };
    let dir = disk.path().join("t");
    let options = WriterOptions::default();
    let mut writer = TraceWriter::create(&dir, &info(), options).unwrap();
    let error = fill(&mut writer);
    assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
    assert!(error.hint().unwrap().contains("df -h"));

    // Later rows are refused, and counted.
    let (had, lost) = (writer.rows(Table::Losses), writer.lost_rows(Table::Losses));
    writer.add(&LossRow::numbered(1)).unwrap();
    assert!(writer.flush_all().is_err());
    assert_eq!(writer.rows(Table::Losses), had);
    assert_eq!(writer.lost_rows(Table::Losses), lost + 1);
    let written: Vec<u64> = Table::ALL.map(|table| writer.rows(table)).to_vec();
    assert!(written[Table::Samples as usize] > 1000);

    let mut last = info();
    last.complete = true;
    last.duration_ns = Some(1);
    let error = writer.finish(&last).unwrap_err();
    assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");

    // Closed segments can be read, and trace.json is the final one except for `complete`.
    let trace = Trace::open(&dir).unwrap();
    assert_eq!(trace.state(), TraceState::Unfinished);
    assert_eq!(trace.info.duration_ns, Some(1));
    assert!(!trace.info.complete);
    assert!(
        trace.info.notes[0].contains("disk full"),
        "{:?}",
        trace.info.notes
    );

    // With room again, every row reported as written can be read.
    disk.resize("64m");
    recover(&dir).unwrap();
    assert_eq!(rows_on_disk(&dir), written);
}

// Full in the first segment.
#[test]
fn in_the_first_segment() {
    check("2m");
}

// Full while segments are being closed.
#[test]
fn after_some_segments() {
    check("4m");
}

// A disk without room for the reserve: the trace is removed.
#[test]
fn at_once() {
    let Some(disk) = Disk::mount("256k") else {
        return;
    };
    let dir = disk.path().join("t");
    let error = TraceWriter::create(&dir, &info(), WriterOptions::default());
    assert!(matches!(error, Err(WriteError::DiskFull { .. })));
    assert!(!dir.exists());
}

// Recovery on a full disk keeps the files that it could not recover.
#[test]
fn while_recovering() {
    let Some(disk) = Disk::mount("2m") else {
        return;
    };
    let dir = disk.path().join("t");
    let mut writer = TraceWriter::create(&dir, &info(), WriterOptions::default()).unwrap();
    fill(&mut writer);
    assert!(writer.flush_all().is_err());
    let written: Vec<u64> = Table::ALL.map(|table| writer.rows(table)).to_vec();
    drop(writer);
    let rest = disk.path().join("rest");
    let _ = fs::write(&rest, vec![1_u8; 4 << 20]);
    // Only the reserve is free now, which is enough for some tables or for none.
    if let Err(error) = recover(&dir) {
        assert!(error.hint().unwrap().contains("run it again"), "{error}");
    }
    disk.resize("64m");
    recover(&dir).unwrap();
    assert_eq!(rows_on_disk(&dir), written);
}
