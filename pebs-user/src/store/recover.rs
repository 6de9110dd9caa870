//! Completes a trace whose writer died: open segments are closed up to their last complete row group.
//!
//! Invariant: running it again, or after it was killed, does not change complete files.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::fields::table_schema;
use super::files::{Held, INFO_FILE, Owner, TraceLock, free_reserve, remove_if_there, temporary};
use super::reader::{ReadError, read_info};
use super::run::RunInfo;
use super::segment::{recover as recover_segment, write_empty};
use super::segment_files::SegmentFiles;
use super::table::Table;
use super::writer::WriteError;
use crate::failure::Hint;
use crate::watch::Watch;

/// Prefix of the remark in a recovered trace's `trace.json`.
const NOTE: &str = "recovered:";

/// Errors of recovering a trace.
#[derive(Debug, Error)]
pub enum RecoverError {
    /// Its writer is alive.
    #[error("cannot recover trace {}: it is being written", path.display())]
    Live {
        /// The trace's directory.
        path: PathBuf,
    },
    /// Not a trace, or not of a known version.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The recovered files can't be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Hint for RecoverError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Live { path } => Some(format!(
                "end the recording with Ctrl-C; 'fuser {}' shows who writes it",
                path.join(super::files::LOCK_FILE).display()
            )),
            Self::Read(error) => error.hint(),
            Self::Write(WriteError::DiskFull { path }) => Some(format!(
                "nothing was lost; 'df -h {}' shows the disk; free room and run it again",
                path.display()
            )),
            Self::Write(WriteError::Unwritable { path, .. }) => Some(format!(
                "nothing was lost; 'ls -ld {}' shows whose it is: run it as that user, or on a copy of the trace",
                path.display()
            )),
            Self::Write(error) => error.hint(),
        }
    }
}

/// Result for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredTable {
    pub table: Table,
    /// Segments that were open.
    pub segments: u32,
    /// Rows saved from them.
    pub rows: u64,
    /// Bytes at the segments' ends after the last complete row group: their rows are lost.
    pub lost_bytes: u64,
}

/// Result for a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The tables that had open segments.
    pub tables: Vec<RecoveredTable>,
}

impl Recovered {
    /// Rows saved.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Number of bytes that could not be recovered.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.lost_bytes).sum()
    }
}

/// Completes the trace in `dir`. `trace.json` keeps `complete: false`, and gets a note on the result; a complete
/// trace is unchanged.
///
/// Created files belong to the owner of the directory.
///
/// # Errors
/// The trace is being written, is not a trace, or can't be written to. Segments recovered until then stay closed,
/// others stay open.
pub fn recover(dir: &Path) -> Result<Recovered, RecoverError> {
    recover_watched(dir, &Watch::default())
}

/// As [`recover`], with progress reports.
///
/// # Errors
/// As [`recover`].
pub fn recover_watched(dir: &Path, watch: &Watch) -> Result<Recovered, RecoverError> {
    // First, so that no file is created in a directory that is not a trace.
    if read_info(dir)?.is_closed() && unfinished(dir)?.is_empty() {
        return Ok(Recovered::default());
    }
    let name = dir;
    let held = Held::open(dir).map_err(|error| WriteError::io(dir, error))?;
    let dir = &held.path();
    let owner = Owner::of_dir(dir).map_err(|error| WriteError::io(dir, error))?;
    let lock = TraceLock::take(dir, owner).map_err(|error| WriteError::io(dir, error))?;
    let Some(lock) = lock else {
        return Err(RecoverError::Live {
            path: name.to_owned(),
        });
    };
    // Again: the writer may have completed the trace before the lock was taken.
    let mut info = read_info(dir)?;
    let recovered = finish_tables(dir, &info, (owner, watch))?;
    let noted = info.notes.iter().any(|note| note.starts_with(NOTE));
    if !recovered.tables.is_empty() || !(info.is_closed() || noted) {
        info.notes.push(note(&recovered));
        owner
            .write_info(dir, &info)
            .map_err(|error| WriteError::io(&dir.join(INFO_FILE), error))?;
    }
    lock.retire().map_err(|error| WriteError::io(dir, error))?;
    Ok(recovered)
}

/// Whether nothing will be added to a trace that is not being written: it was closed, or recovered.
pub(crate) fn is_final(info: &RunInfo) -> bool {
    info.is_closed() || info.notes.iter().any(|note| note.starts_with(NOTE))
}

/// The tables of a trace, which may be of an earlier version.
fn tables_of(dir: &Path) -> impl Iterator<Item = Table> {
    let there = |table: &Table| !table.is_recent() || dir.join(table.name()).exists();
    Table::ALL.into_iter().filter(there)
}

/// Closes the open segments of a trace that nobody else writes.
///
/// # Errors
/// As [`recover`].
pub(super) fn close_tables(dir: &Path, info: &RunInfo, owner: Owner) -> Result<(), RecoverError> {
    finish_tables(dir, info, (owner, &Watch::default())).map(drop)
}

/// Tables with open segments.
fn unfinished(dir: &Path) -> Result<Vec<Table>, RecoverError> {
    let mut tables = Vec::new();
    for table in tables_of(dir) {
        if !list(&dir.join(table.name()))?.open.is_empty() {
            tables.push(table);
        }
    }
    Ok(tables)
}

fn list(folder: &Path) -> Result<SegmentFiles, RecoverError> {
    SegmentFiles::list(folder).map_err(|source| {
        let path = folder.to_owned();
        RecoverError::Read(match source.kind() {
            io::ErrorKind::NotFound => ReadError::Damaged {
                path,
                source: Box::new(source),
            },
            _ => ReadError::Io { path, source },
        })
    })
}

fn finish_tables(
    dir: &Path,
    info: &RunInfo,
    (owner, watch): (Owner, &Watch),
) -> Result<Recovered, RecoverError> {
    let at = WriteError::io;
    free_reserve(dir).map_err(|error| at(dir, error))?;
    remove_if_there(&temporary(&dir.join(INFO_FILE))).map_err(|error| at(dir, error))?;
    let mut recovered = Recovered::default();
    for (number, table) in (0..).zip(tables_of(dir)) {
        let what = format!("recovering {}", table.name());
        watch.report(&what, number, Table::ALL.len() as u64);
        let folder = dir.join(table.name());
        // A link in its place would lead out of the trace.
        let held = Held::open_itself(&folder).map_err(|error| at(&folder, error))?;
        let folder = held.path();
        let files = list(&folder)?;
        for path in &files.leftover {
            remove_if_there(path).map_err(|error| at(path, error))?;
        }
        let done = finish_table(table, &folder, &files, info, owner)?;
        if done.segments > 0 {
            recovered.tables.push(done);
        }
    }
    Ok(recovered)
}

fn finish_table(
    table: Table,
    folder: &Path,
    files: &SegmentFiles,
    info: &RunInfo,
    owner: Owner,
) -> Result<RecoveredTable, RecoverError> {
    let schema = table_schema(table, &info.columns);
    let mut done = RecoveredTable {
        table,
        segments: 0,
        rows: 0,
        lost_bytes: 0,
    };
    for (&number, path) in &files.open {
        let closed = recover_segment(folder, number, &schema, owner)
            .map_err(|error| WriteError::segment(path, error))?;
        done.segments += 1;
        done.rows += closed.rows;
        done.lost_bytes += closed.unread_bytes;
    }
    if files.closed.is_empty() && done.rows == 0 {
        write_empty(folder, 0, &schema, owner)
            .map_err(|error| WriteError::segment(folder, error))?;
    }
    Ok(done)
}

fn note(recovered: &Recovered) -> String {
    let rows: Vec<String> = recovered
        .tables
        .iter()
        .map(|t| format!("{} {}", t.rows, t.table.name()))
        .collect();
    let rows = if rows.is_empty() {
        "no open segment".to_owned()
    } else {
        format!("{} from open segments", rows.join(", "))
    };
    format!("{NOTE} {rows}, {} bytes lost", recovered.lost_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use arrow_array::types::Int64Type;
    use arrow_schema::Schema;
    use proptest::prelude::*;

    use super::super::columns::{Column as _, Required};
    use super::super::fixtures::rows::{self, complete, info};
    use super::super::options::WriterOptions;
    use super::super::reader::{Trace, TraceState};
    use super::super::segment::OpenSegment;
    use super::super::segment_files::{closed_path, open_path};
    use super::super::writer::TraceWriter;
    use super::*;

    /// A trace of 30 visits whose writer died: 20 flushed, 10 not.
    fn abandoned(dir: &Path) {
        let mut writer = TraceWriter::create(dir, &info(), WriterOptions::default()).unwrap();
        rows::write(&mut writer, 0, 10).unwrap();
        writer.tick(Duration::from_secs(1)).unwrap();
        rows::write(&mut writer, 10, 20).unwrap();
        writer.tick(Duration::from_secs(2)).unwrap();
        rows::write(&mut writer, 20, 30).unwrap();
    }

    fn listing(dir: &Path) -> BTreeSet<(PathBuf, u64, SystemTime)> {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::metadata(&path).unwrap();
            if meta.is_dir() {
                found.extend(listing(&path));
            } else {
                found.insert((path, meta.len(), meta.modified().unwrap()));
            }
        }
        found
    }

    // Flushed rows are recovered, the trace stays marked incomplete, and a second run changes no file.
    #[test]
    fn flushed_rows_are_saved() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        abandoned(&dir);
        fs::write(dir.join("visits/000007.parquet.tmp"), "half").unwrap();
        fs::write(dir.join("trace.json.tmp"), "half").unwrap();

        let recovered = recover(&dir).unwrap();
        let rows: Vec<_> = recovered.tables.iter().map(|t| (t.table, t.rows)).collect();
        let expected = [
            (Table::Visits, 20),
            (Table::VisitFunctions, 20),
            (Table::Samples, 200),
            (Table::Waits, 20),
            (Table::FunctionStats, 20),
            (Table::Functions, 20),
            (Table::Memory, 20),
        ];
        assert_eq!(rows, expected);
        assert_eq!(recovered.lost_bytes(), 0);

        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.state(), TraceState::Unfinished);
        assert_eq!(trace.open_segments(), []);
        for (table, rows) in expected {
            assert_eq!(trace.rows(table).unwrap(), rows);
        }
        assert_eq!(trace.rows(Table::Losses).unwrap(), 0);
        assert_eq!(trace.segments(Table::Losses).len(), 1);
        assert_eq!(
            trace.info.notes,
            [
                "recovered: 20 visits, 20 visit_functions, 200 samples, 20 waits, \
              20 function_stats, 20 functions, 20 memory from open segments, 0 bytes lost"
            ]
        );

        let before = listing(&dir);
        let hidden = |(path, ..): &(PathBuf, u64, SystemTime)| {
            !path
                .extension()
                .is_some_and(|e| e == "parquet" || e == "json")
        };
        assert_eq!(before.iter().find(|file| hidden(file)), None);
        assert_eq!(recover(&dir).unwrap(), Recovered::default());
        assert_eq!(listing(&dir), before);
    }

    // A complete trace is not changed.
    #[test]
    fn complete_trace_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let mut writer = TraceWriter::create(&dir, &info(), WriterOptions::default()).unwrap();
        rows::write(&mut writer, 0, 10).unwrap();
        writer.finish(&complete()).unwrap();
        let before = listing(&dir);
        assert_eq!(recover(&dir).unwrap(), Recovered::default());
        assert_eq!(listing(&dir), before);
    }

    // A trace with a live writer is not recovered, and not changed.
    #[test]
    fn live_trace_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let mut writer = TraceWriter::create(&dir, &info(), WriterOptions::default()).unwrap();
        rows::write(&mut writer, 0, 10).unwrap();
        writer.tick(Duration::from_secs(1)).unwrap();
        let before = listing(&dir);
        let error = recover(&dir).unwrap_err();
        assert!(
            error.to_string().ends_with("it is being written"),
            "{error}"
        );
        assert!(error.hint().unwrap().contains("trace.lock"));
        assert_eq!(listing(&dir), before);
    }

    // No file is created in a directory that is not a trace.
    #[test]
    fn foreign_directory_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let error = recover(dir.path()).unwrap_err();
        assert!(matches!(
            error,
            RecoverError::Read(ReadError::Foreign { .. })
        ));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    // Killed between the rename and the removal of the open file: no row is duplicated.
    #[test]
    fn closed_segment_is_not_closed_again() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        abandoned(&dir);
        let visits = dir.join("visits");
        let copy = fs::read(open_path(&visits, 0)).unwrap();
        recover(&dir).unwrap();
        fs::write(open_path(&visits, 0), copy).unwrap();
        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.open_segments(), []);
        recover(&dir).unwrap();
        assert!(!open_path(&visits, 0).exists());
        assert_eq!(Trace::open(&dir).unwrap().rows(Table::Visits).unwrap(), 20);
    }

    // An open segment with other columns than the trace's is an error, and kept.
    #[test]
    fn foreign_segment_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        abandoned(&dir);
        let path = open_path(&dir.join("visits"), 0);
        fs::copy(open_path(&dir.join("waits"), 0), &path).unwrap();
        let error = recover(&dir).unwrap_err();
        assert!(error.to_string().contains("000000.parquet.open"), "{error}");
        assert!(path.exists());
    }

    fn one_column() -> Arc<Schema> {
        Arc::new(Schema::new(vec![Required::<Int64Type>::field("n")]))
    }

    /// Writes an open segment of these row groups; returns for each its end.
    fn segment_of(folder: &Path, groups: &[usize]) -> Vec<(u64, u64)> {
        let schema = one_column();
        let mut open = OpenSegment::create(folder, 0, &schema, Owner::default()).unwrap();
        let mut ends = vec![(0, 0)];
        let mut column = Required::<Int64Type>::default();
        for &rows in groups {
            let first = open.rows as i64;
            let numbers: Vec<i64> = (first..first + rows as i64).collect();
            column.extend(&numbers, |n| *n);
            open.append(&[column.end()], rows as u64).unwrap();
            column.clear();
            ends.push((open.bytes, open.rows));
        }
        ends
    }

    fn close_cut(folder: &Path, bytes: &[u8]) -> super::super::segment::Closed {
        fs::write(open_path(folder, 0), bytes).unwrap();
        let schema = one_column();
        let owner = Owner::default();
        let closed = recover_segment(folder, 0, &schema, owner).unwrap();
        assert!(!open_path(folder, 0).exists());
        assert_eq!(closed_path(folder, 0).exists(), closed.rows > 0);
        remove_if_there(&closed_path(folder, 0)).unwrap();
        closed
    }

    // Truncated at any byte, an open segment gives exactly its complete row groups.
    #[test]
    fn every_cut_gives_the_whole_groups() {
        let dir = tempfile::tempdir().unwrap();
        let ends = segment_of(dir.path(), &[3, 1, 5]);
        let bytes = fs::read(open_path(dir.path(), 0)).unwrap();
        assert_eq!(bytes.len() as u64, ends[3].0);
        for cut in 0..=bytes.len() {
            let (end, rows) = *ends.iter().rfind(|(end, _)| *end <= cut as u64).unwrap();
            let closed = close_cut(dir.path(), &bytes[..cut]);
            assert_eq!(closed.rows, rows, "cut at {cut}");
            if end > 0 {
                assert_eq!(closed.unread_bytes, cut as u64 - end, "cut at {cut}");
            }
        }
    }

    // A bit that flips in the last footer's entry for the first group costs no group before that footer.
    #[test]
    fn turned_footer() {
        let dir = tempfile::tempdir().unwrap();
        let ends = segment_of(dir.path(), &[19, 45, 2]);
        let whole = fs::read(open_path(dir.path(), 0)).unwrap();
        for place in ends[2].0 as usize..whole.len() {
            for bit in [0, 3, 6] {
                let mut bytes = whole.clone();
                bytes[place] ^= 1 << bit;
                fs::write(open_path(dir.path(), 0), &bytes).unwrap();
                let closed = recover_segment(dir.path(), 0, &one_column(), Owner::default());
                assert!(
                    closed.is_err() || closed.unwrap().rows >= 64,
                    "byte {place}, bit {bit}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        // Any row groups, truncated anywhere and then padded with zeros, as some file systems do after a power cut.
        #[test]
        fn cut_and_zeros(batches in prop::collection::vec(1_usize..50, 1..6), cut in 0.0..1.0, zeros in 0_usize..64) {
            let dir = tempfile::tempdir().unwrap();
            let ends = segment_of(dir.path(), &batches);
            let mut bytes = fs::read(open_path(dir.path(), 0)).unwrap();
            bytes.truncate((bytes.len() as f64 * cut) as usize);
            let cut = bytes.len() as u64;
            let padded = ends.iter().any(|(end, _)| *end == cut);
            bytes.resize(bytes.len() + if padded { zeros } else { 0 }, 0);
            let (_, rows) = *ends.iter().rfind(|(end, _)| *end <= cut).unwrap();
            prop_assert_eq!(close_cut(dir.path(), &bytes).rows, rows);
        }

        // Flipped bits of a bad disk: batches before them are recovered, nothing panics.
        #[test]
        fn turned_bytes(batches in prop::collection::vec(1_usize..50, 1..6), place in 0.0..1.0, turn in 1_u8..) {
            let dir = tempfile::tempdir().unwrap();
            let ends = segment_of(dir.path(), &batches);
            let mut bytes = fs::read(open_path(dir.path(), 0)).unwrap();
            let place = (bytes.len() as f64 * place) as usize;
            bytes[place] ^= turn;
            fs::write(open_path(dir.path(), 0), &bytes).unwrap();
            let (_, rows) = *ends.iter().rfind(|(end, _)| *end <= place as u64).unwrap();
            let closed = recover_segment(dir.path(), 0, &one_column(), Owner::default());
            prop_assert!(closed.is_err() || closed.unwrap().rows >= rows);
        }
    }
}
