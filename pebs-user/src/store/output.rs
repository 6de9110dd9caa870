//! The tables of a trace on disk while it is written: open and closed segments.
//!
//! Invariant: after the first failure nothing more is written, except to finish the trace.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::compactor::{Compactor, Job};
use super::fields::table_schema;
use super::files::{Held, INFO_FILE, Owner, free_reserve};
use super::options::WriterOptions;
use super::row_columns::RowColumns;
use super::run::RunInfo;
use super::segment::{OpenSegment, write_empty};
use super::segment_files::SegmentFiles;
use super::table::Table;
use super::tables::Columns;
use super::write_error::WriteError;
use crate::estimate::net::SampleCost;

/// Maximum row groups of a segment: each has a footer that lists all before it.
pub(super) const SEGMENT_GROUPS: usize = 32;

/// Maximum bytes of an open segment.
const SEGMENT_BYTES: u64 = 256 << 20;

/// A table's place on disk.
struct TableFiles {
    folder: PathBuf,
    schema: SchemaRef,
    open: Option<OpenSegment>,
    next: u32,
    /// Rows on disk.
    rows: u64,
    /// Rows that could not be written.
    lost: u64,
}

impl TableFiles {
    /// Writes the rows in memory; returns their size in the file, bytes.
    fn write(&mut self, columns: &mut dyn RowColumns, owner: Owner) -> Result<u64, WriteError> {
        let Self { folder, schema, .. } = self;
        let at_folder = |error| WriteError::segment(folder, error);
        let rows = columns.rows() as u64;
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let made = OpenSegment::create(folder, self.next, schema, owner);
                self.next += 1;
                none.insert(made.map_err(at_folder)?)
            }
        };
        let before = open.bytes;
        open.append(&columns.end(), rows).map_err(at_folder)?;
        Ok(open.bytes - before)
    }

    /// Whether the open segment has reached its maximum size.
    fn is_large(&self) -> bool {
        let is_large =
            |it: &OpenSegment| it.groups() >= SEGMENT_GROUPS || it.bytes >= SEGMENT_BYTES;
        self.open.as_ref().is_some_and(is_large)
    }

    /// Ends the open segment.
    fn take_job(&mut self) -> Option<Job> {
        self.open.take().map(|open| Job {
            folder: self.folder.clone(),
            number: open.number,
            schema: Arc::clone(&self.schema),
            rows: open.rows,
            bytes: open.bytes,
        })
    }
}

/// The first failure, kept to be reported again.
#[derive(Clone, Debug)]
enum Failure {
    DiskFull { path: PathBuf },
    Other { path: PathBuf, text: String },
}

impl Failure {
    fn of(dir: &Path, error: &WriteError) -> Self {
        match error {
            WriteError::DiskFull { path } => Self::DiskFull { path: path.clone() },
            WriteError::Io { path, source } => Self::Other {
                path: path.clone(),
                text: source.to_string(),
            },
            other => Self::Other {
                path: dir.to_owned(),
                text: other.to_string(),
            },
        }
    }

    fn to_error(&self) -> WriteError {
        match self {
            Self::DiskFull { path } => WriteError::DiskFull { path: path.clone() },
            Self::Other { path, text } => WriteError::Io {
                path: path.clone(),
                source: io::Error::other(text.clone()),
            },
        }
    }
}

/// The tables on disk.
pub(super) struct Output {
    /// Path as given.
    dir: PathBuf,
    held: Held,
    owner: Owner,
    tables: [TableFiles; Table::ALL.len()],
    compactor: Compactor,
    /// Segments that could not be closed.
    unclosed: Vec<Job>,
    failed: Option<Failure>,
    /// Bytes written to open segments since the trace began.
    open_bytes: u64,
    /// The tables' folders, until the compactor is done with them.
    _folders: Vec<Held>,
}

impl Output {
    /// Starts with the directories of a trace, which must exist.
    pub(super) fn start(
        dir: &Path,
        held: Held,
        folders: Vec<Held>,
        info: &RunInfo,
        owner: Owner,
        options: &WriterOptions,
    ) -> Result<Self, WriteError> {
        Ok(Self {
            dir: dir.to_owned(),
            held,
            owner,
            tables: Table::ALL.map(|table| TableFiles {
                folder: folders[table as usize].path(),
                schema: table_schema(table, &info.columns),
                open: None,
                next: 0,
                rows: 0,
                lost: 0,
            }),
            compactor: Compactor::start(dir, owner, options)?,
            unclosed: Vec::new(),
            failed: None,
            open_bytes: 0,
            _folders: folders,
        })
    }

    /// The trace's directory, wherever it is by now.
    pub(super) fn place(&self) -> PathBuf {
        self.held.path()
    }

    /// See [`super::writer::TraceWriter::sample_cost`].
    pub(super) fn sample_cost(&self, visit_id: u64, cost: SampleCost) {
        self.compactor.costs.change(visit_id, cost);
    }

    /// Bytes of the tables on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.open_bytes
            .saturating_add_signed(self.compactor.growth())
    }

    /// Rows of a table on disk.
    pub(super) fn rows(&self, table: Table) -> u64 {
        self.tables[table as usize].rows
    }

    /// Number of rows of a table that could not be written.
    pub(super) fn lost(&self, table: Table) -> u64 {
        self.tables[table as usize].lost
    }

    /// Checks that writing has not failed.
    ///
    /// # Errors
    /// The first failure since the trace began, at every call.
    pub(super) fn check(&self) -> Result<(), WriteError> {
        self.failed.as_ref().map_or(Ok(()), |f| Err(f.to_error()))
    }

    /// Moves the rows in memory to the open segment, or counts them as lost.
    pub(super) fn append(
        &mut self,
        table: Table,
        columns: &mut dyn RowColumns,
    ) -> Result<(), WriteError> {
        let rows = columns.rows() as u64;
        if rows == 0 {
            return Ok(());
        }
        let files = &mut self.tables[table as usize];
        let written = match &self.failed {
            None => files.write(columns, self.owner),
            Some(failure) => Err(failure.to_error()),
        };
        columns.clear();
        match written {
            Ok(bytes) => {
                files.rows += rows;
                self.open_bytes += bytes;
                if files.is_large() {
                    self.close_segment(table, columns);
                }
                Ok(())
            }
            Err(error) => {
                files.lost += rows;
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// Closes the open segment; it is compacted later. `columns` have no rows.
    pub(super) fn close_segment(&mut self, table: Table, columns: &mut dyn RowColumns) {
        columns.end_segment();
        if let Some(job) = self.tables[table as usize].take_job() {
            match job.close() {
                Ok(()) => self.compactor.submit(job),
                Err(error) => {
                    self.unclosed.push(job);
                    self.fail(&error);
                }
            }
        }
    }

    /// Closes every segment and replaces `trace.json` by `info`; returns the bytes of the tables.
    ///
    /// After a failure `trace.json` has `complete: false`; room for it was reserved.
    ///
    /// # Errors
    /// The first failure since the trace began.
    pub(super) fn finish(
        &mut self,
        info: &RunInfo,
        columns: &mut Columns,
    ) -> Result<u64, WriteError> {
        for table in Table::ALL {
            self.close_segment(table, columns.of_mut(table));
        }
        self.compactor.finish();
        free_reserve(&self.place()).map_err(|error| WriteError::io(&self.dir, error))?;
        let mut bytes = self.bytes();
        if let Some(failure) = self.failed.clone() {
            let error = failure.to_error();
            let mut info = info.clone();
            info.complete = false;
            info.crashes.clear();
            info.copied.clear();
            let source = std::error::Error::source(&error);
            let source = source.map_or_else(String::new, |it| format!(": {it}"));
            let note = format!("writing stopped: {error}{source}");
            info.notes.push(note);
            self.write_info(&info)?;
            self.unclosed.retain(|job| job.close().is_err());
            // Without room for an empty table it is missing, which recovery mends.
            let _ = self.write_empty_tables();
            return Err(error);
        }
        bytes += self.write_empty_tables()?;
        self.write_info(info)?;
        Ok(bytes)
    }

    fn write_info(&self, info: &RunInfo) -> Result<(), WriteError> {
        self.owner
            .write_info(&self.place(), info)
            .map_err(|error| WriteError::io(&self.dir.join(INFO_FILE), error))
    }

    /// Creates an empty segment for each table without one, so that it can be read like the others. Returns their
    /// bytes.
    fn write_empty_tables(&self) -> Result<u64, WriteError> {
        let mut bytes = 0;
        for files in &self.tables {
            let TableFiles { folder, schema, .. } = files;
            let there = SegmentFiles::list(folder).map_err(|e| WriteError::io(folder, e))?;
            if there.closed.is_empty() && there.open.is_empty() {
                bytes += write_empty(folder, files.next, schema, self.owner)
                    .map_err(|error| WriteError::segment(folder, error))?;
            }
        }
        Ok(bytes)
    }

    /// Writing has failed, unless it had before.
    pub(super) fn fail(&mut self, error: &WriteError) {
        if self.failed.is_none() {
            self.failed = Some(Failure::of(&self.dir, error));
        }
    }
}
