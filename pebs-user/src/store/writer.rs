//! Writes a trace.
//!
//! Rows are encoded at once into columns in memory; every [`WriterOptions::flush`] these become a row group of the open
//! segment on disk; every [`WriterOptions::segment`] the open segments are closed, and compacted by another thread.
//! Invariant: at any instant the directory holds every row flushed so far, in a form that `recover` can complete.
//! Invariant: rows handed over = [`TraceWriter::rows`] + [`TraceWriter::lost_rows`].

mod encoder;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{fs, io, slice};

use encoder::{Encoder, Shared, locked};

use super::argument::ArgValue;
use super::estimates::EstimateBlock;
use super::fields::check_columns;
use super::files::{Held, Owner, TraceLock};
use super::options::WriterOptions;
use super::output::Output;
use super::row_columns::RowColumns;
use super::run::RunInfo;
use super::schema::VisitRow;
use super::table::Table;
use super::tables::{Columns, Row};
use super::visit_block::VisitBlock;
pub use super::write_error::WriteError;
use crate::estimate::VisitTimeline;
use crate::estimate::net::SampleCost;

/// Estimates a visit by [`EstimateBlock::fill`].
pub type Estimate = Box<dyn FnMut(&VisitTimeline<'_>, &mut EstimateBlock) + Send>;

/// Result of a finished writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The trace's directory.
    pub dir: PathBuf,
    /// Bytes of the trace.
    pub bytes: u64,
    /// Rows on disk, in the order of [`Table::ALL`].
    pub rows: [u64; Table::ALL.len()],
}

/// Writes one trace.
///
/// Errors are returned by the call that meets them, those of closing a segment by the next [`TraceWriter::tick`] or
/// full row group. After the first error nothing more is written: rows are counted by [`TraceWriter::lost_rows`], every
/// further flush returns the same kind of error, and [`TraceWriter::finish`] keeps the rows already written.
/// Rows that come in blocks are encoded and flushed by other threads, whose errors are returned by the next
/// [`TraceWriter::tick`].
/// Cost per row: a push per column; no allocation; a system call once per 256 Ki rows.
pub struct TraceWriter {
    /// Columns of the tables written row by row.
    columns: Columns,
    shared: Arc<Shared>,
    encoder: Encoder,
    options: WriterOptions,
    flushed_at: Duration,
    closed_at: Duration,
    /// Bytes on disk when they were last read.
    bytes: AtomicU64,
    dir: PathBuf,
    lock: TraceLock,
}

// It is moved through stack frames of its thread.
const _: () = assert!(size_of::<TraceWriter>() < 64 << 10);

impl TraceWriter {
    /// Creates the trace's directory (mode 0700, files 0600, owned by the invoking user under sudo) with a `trace.json`
    /// of `complete: false`.
    ///
    /// # Errors
    /// The directory exists or can't be created, or names in `info.columns` collide with fixed columns. Anything
    /// created by then is removed.
    pub fn create(dir: &Path, info: &RunInfo, options: WriterOptions) -> Result<Self, WriteError> {
        check_columns(&info.columns)?;
        let owner = Owner::of_process();
        let held = owner
            .make_dir(dir)
            .map_err(|error| creation_error(dir, error))?;
        Self::fill((dir, held), info, options, owner).inspect_err(|_| {
            // We just created the directory; the first error is the one to report.
            let _ = fs::remove_dir_all(dir);
        })
    }

    fn fill(
        (name, held): (&Path, Held),
        info: &RunInfo,
        options: WriterOptions,
        owner: Owner,
    ) -> Result<Self, WriteError> {
        let at_dir = |error| WriteError::io(name, error);
        let dir = &held.path();
        let lock = TraceLock::take(dir, owner).map_err(at_dir)?;
        let lock = lock.ok_or_else(|| WriteError::Busy {
            path: name.to_owned(),
        })?;
        owner.make_reserve(dir).map_err(at_dir)?;
        let mut folders = Vec::new();
        for table in Table::ALL {
            let made = owner.make_dir(&dir.join(table.name()));
            folders.push(made.map_err(at_dir)?);
        }
        let info = RunInfo {
            complete: false,
            ..info.clone()
        };
        owner.write_info(dir, &info).map_err(at_dir)?;
        let shared = Arc::new(Shared {
            samples: Mutex::new(Columns::new(&info.columns)),
            estimates: Mutex::new(Columns::new(&info.columns)),
            output: Mutex::new(Output::start(name, held, folders, &info, owner, &options)?),
        });
        Ok(Self {
            columns: Columns::new(&info.columns),
            encoder: Encoder::start(&shared).map_err(at_dir)?,
            shared,
            options,
            flushed_at: Duration::ZERO,
            closed_at: Duration::ZERO,
            bytes: AtomicU64::new(0),
            dir: name.to_owned(),
            lock,
        })
    }

    /// Replaces `trace.json` during the run by what is known so far; the trace stays incomplete. Can be called on any
    /// thread. `dir` is [`TraceWriter::place`].
    ///
    /// # Errors
    /// I/O errors; the previous `trace.json` then stays.
    pub fn rewrite_info(dir: &Path, info: &RunInfo) -> Result<(), WriteError> {
        let at_dir = |error| WriteError::io(dir, error);
        Owner::of_process().write_info(dir, info).map_err(at_dir)
    }

    /// Adds a visit. `args` has a value per argument column; missing ones are null.
    ///
    /// # Errors
    /// See [`TraceWriter`]; also for an argument of the wrong type, which is written as null.
    #[inline]
    pub fn visit(&mut self, row: &VisitRow, args: &[Option<ArgValue>]) -> Result<(), WriteError> {
        self.visit_with(args, |to| *to = *row)
    }

    /// Adds a visit filled in by `fill`.
    ///
    /// # Errors
    /// As [`TraceWriter::visit`].
    #[inline]
    pub fn visit_with(
        &mut self,
        args: &[Option<ArgValue>],
        fill: impl FnOnce(&mut VisitRow),
    ) -> Result<(), WriteError> {
        let pushed = self.columns.visits.push(args, fill);
        self.flush_if_full(Table::Visits, self.columns.visits.is_full())?;
        pushed.map_err(|index| WriteError::Argument { index })
    }

    /// Sets the cost of a sample for visits from `visit_id`, the next one, on. `net_ns` of earlier visits is updated
    /// when their segment is compacted.
    pub fn sample_cost(&self, visit_id: u64, cost: SampleCost) {
        self.output().sample_cost(visit_id, cost);
    }

    /// Adds a row.
    ///
    /// # Errors
    /// See [`TraceWriter`].
    #[inline]
    pub fn add<R: Row>(&mut self, row: &R) -> Result<(), WriteError> {
        self.extend(slice::from_ref(row))
    }

    /// Adds rows.
    ///
    /// # Errors
    /// See [`TraceWriter`].
    #[inline]
    pub fn extend<R: Row>(&mut self, rows: &[R]) -> Result<(), WriteError> {
        let full = match self.shared.columns(R::TABLE) {
            None => R::write(rows, &mut self.columns),
            Some(columns) => {
                self.settle();
                R::write(rows, &mut locked(columns))
            }
        };
        self.flush_if_full(R::TABLE, full)
    }

    /// Sets how visits in later blocks are estimated; before the first call they have no estimates.
    pub fn estimate_by(&self, estimate: Estimate) {
        self.encoder.estimate_by(estimate);
    }

    /// Takes the rows of a block, and estimates its visits.
    pub fn block(&mut self, block: &mut VisitBlock) {
        if block.samples.rows() > 0 {
            self.encoder.block(block);
        }
    }

    /// Whether [`TraceWriter::tick`] would write rows, so that rows still held elsewhere should be added first.
    #[must_use]
    pub fn is_due(&self, elapsed: Duration) -> bool {
        let is_flush_due = elapsed.saturating_sub(self.flushed_at) >= self.options.flush;
        is_flush_due || self.is_segment_due(elapsed)
    }

    fn is_segment_due(&self, elapsed: Duration) -> bool {
        elapsed.saturating_sub(self.closed_at) >= self.options.segment
    }

    /// Writes and closes what is due. Call it several times a second; `elapsed`: time since the trace began.
    ///
    /// # Errors
    /// See [`TraceWriter`].
    pub fn tick(&mut self, elapsed: Duration) -> Result<(), WriteError> {
        let close = self.is_segment_due(elapsed);
        if !self.is_due(elapsed) {
            // While another thread writes rows, the next tick reports its errors.
            return self
                .shared
                .output
                .try_lock()
                .map_or(Ok(()), |it| it.check());
        }
        if close {
            self.settle();
        }
        self.output().check()?;
        self.flushed_at = elapsed;
        let is_settled = self.encoder.is_settled();
        for table in Table::ALL {
            if is_settled || self.shared.columns(table).is_none() {
                self.flush(table)?;
            }
        }
        if !is_settled {
            self.encoder.flush();
        }
        if close {
            self.closed_at = elapsed;
            for table in Table::ALL {
                self.with(table, |output, columns| {
                    output.close_segment(table, columns);
                });
            }
        }
        Ok(())
    }

    /// Bytes of the trace on disk. Shrinks when a segment is closed, which compresses it.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        // While another thread writes rows, return the last value.
        if let Ok(output) = self.shared.output.try_lock() {
            self.bytes.store(output.bytes(), Ordering::Relaxed);
        }
        self.bytes.load(Ordering::Relaxed)
    }

    /// Rows of a table that are on disk or still in memory.
    #[must_use]
    pub fn rows(&self, table: Table) -> u64 {
        let waiting = match self.shared.columns(table) {
            None => self.columns.of(table).rows(),
            Some(columns) => {
                self.settle();
                locked(columns).of(table).rows()
            }
        };
        self.output().rows(table) + waiting as u64
    }

    /// Rows of a table that could not be written.
    #[must_use]
    pub fn lost_rows(&self, table: Table) -> u64 {
        self.output().lost(table)
    }

    /// The trace's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The trace's directory, even if it was renamed or moved; valid until the writer is dropped.
    #[must_use]
    pub fn place(&self) -> PathBuf {
        self.output().place()
    }

    /// Writes the rows in memory to disk, so that [`TraceWriter::lost_rows`] is final. Call it before making the ledger
    /// for the last `trace.json`.
    ///
    /// # Errors
    /// See [`TraceWriter`]. Every table is written, even if another one fails.
    pub fn flush_all(&mut self) -> Result<(), WriteError> {
        self.settle();
        let mut result = self.output().check();
        for table in Table::ALL {
            let flushed = self.flush(table);
            result = result.and(flushed);
        }
        result
    }

    /// Writes the remaining rows, closes every segment, and replaces `trace.json` by `info`.
    ///
    /// If the disk is full, `trace.json` is written into the reserved room, with `complete: false` and a note. Segments
    /// that can't be closed stay open, for `recover`.
    ///
    /// # Errors
    /// The first error of the run, else of finishing.
    pub fn finish(mut self, info: &RunInfo) -> Result<Finished, WriteError> {
        // Its error is remembered, and returned below.
        let _ = self.flush_all();
        let mut output = locked(&self.shared.output);
        let bytes = output.finish(info, &mut self.columns);
        let retired = self.lock.retire();
        let bytes = bytes?;
        retired.map_err(|error| WriteError::io(&self.dir, error))?;
        Ok(Finished {
            rows: Table::ALL.map(|table| output.rows(table)),
            dir: self.dir.clone(),
            bytes,
        })
    }

    #[inline]
    fn flush_if_full(&mut self, table: Table, full: bool) -> Result<(), WriteError> {
        if full { self.flush_full(table) } else { Ok(()) }
    }

    #[cold]
    fn flush_full(&mut self, table: Table) -> Result<(), WriteError> {
        // A failure found here is returned by the flush, which counts the rows as lost.
        let _ = self.output().check();
        self.flush(table)
    }

    fn flush(&mut self, table: Table) -> Result<(), WriteError> {
        self.with(table, |output, columns| output.append(table, columns))
    }

    /// Calls `act` with the files and the columns of a table.
    fn with<T>(
        &mut self,
        table: Table,
        act: impl FnOnce(&mut Output, &mut dyn RowColumns) -> T,
    ) -> T {
        match self.shared.columns(table) {
            Some(columns) => {
                let mut columns = locked(columns);
                act(&mut self.output(), columns.of_mut(table))
            }
            None => act(&mut locked(&self.shared.output), self.columns.of_mut(table)),
        }
    }

    /// Waits until all rows are in the columns. If a thread panicked, writing has failed.
    fn settle(&self) {
        if let Err(error) = self.encoder.settle() {
            self.output().fail(&WriteError::io(&self.dir, error));
        }
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        locked(&self.shared.output)
    }
}

/// The error for a directory that could not be created.
fn creation_error(dir: &Path, error: io::Error) -> WriteError {
    let path = dir.to_owned();
    match error.kind() {
        io::ErrorKind::AlreadyExists => WriteError::Exists { path },
        io::ErrorKind::NotFound => {
            let parent = dir.parent().unwrap_or(Path::new("/")).to_owned();
            WriteError::MissingParent { path, parent }
        }
        io::ErrorKind::NotADirectory => WriteError::Unwritable {
            path,
            source: error,
        },
        _ => WriteError::io(dir, error),
    }
}

#[cfg(test)]
mod tests;
