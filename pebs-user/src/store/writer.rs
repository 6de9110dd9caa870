//! Writes a trace.
//!
//! Rows go to columns in memory, encoded at once; every [`WriterOptions::flush`] these become a row group
//! of the open segment on disk; and every [`WriterOptions::segment`] the open segments are closed, and
//! compacted by a thread of their own.
//! Invariant: at any instant the directory holds every row flushed so far, in a form that
//! `recover` can finish.
//! Invariant: rows handed over = [`TraceWriter::rows`] + [`TraceWriter::lost_rows`].

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, slice};

use super::files::{Owner, TraceLock};
use super::output::Output;
use super::run::RunInfo;
use super::schema::{
    ArgValue, BatchItemRow, FrequencyRow, FunctionRow, FunctionStatRow, LossRow, MemoryRow,
    SampleRow, SamplesOf, StackRow, Table, VisitFunctionRow, VisitRow, WaitRow,
};
use super::tables::{
    BatchItemColumns, Batched, Extend as _, FrequencyColumns, FunctionColumns, FunctionStatColumns,
    LossColumns, MemoryColumns, RowColumns, Samples, StackColumns, VisitColumns,
    VisitFunctionColumns, WaitColumns, check_columns,
};
pub use super::write_error::WriteError;
use crate::units::FunctionId;

/// How often the trace goes to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// Time after which an open segment is closed.
    pub segment: Duration,
    /// Time after which rows in memory are written to the open segment: what `kill -9` costs.
    pub flush: Duration,
    /// Whether closed segments are compacted, beside the run, which costs several times what writing
    /// them does.
    pub compact: bool,
}

impl Default for WriterOptions {
    /// Segments of 10 s, flushed every second and compacted.
    fn default() -> Self {
        Self {
            segment: Duration::from_secs(10),
            flush: Duration::from_secs(1),
            compact: true,
        }
    }
}

/// What a finished writer has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The trace's directory.
    pub dir: PathBuf,
    /// Bytes of the trace.
    pub bytes: u64,
    /// Rows on disk, in the order of [`Table::ALL`].
    pub rows: [u64; Table::ALL.len()],
}

/// Rows of a visit that are added before the next look at how full the columns are.
const ROWS_AT_ONCE: usize = 16 * 1024;

/// Columns of all tables.
#[derive(Debug)]
struct Columns {
    visits: VisitColumns,
    visit_functions: Batched<VisitFunctionColumns, Vec<VisitFunctionRow>>,
    samples: Samples,
    waits: WaitColumns,
    function_stats: FunctionStatColumns,
    functions: FunctionColumns,
    losses: LossColumns,
    memory: MemoryColumns,
    stacks: StackColumns,
    batch_items: BatchItemColumns,
    frequencies: FrequencyColumns,
}

impl Columns {
    fn new(info: &RunInfo) -> Self {
        Self {
            visits: VisitColumns::new(&info.columns),
            visit_functions: Batched::default(),
            samples: Samples::default(),
            waits: WaitColumns::default(),
            function_stats: FunctionStatColumns::default(),
            functions: FunctionColumns::default(),
            losses: LossColumns::default(),
            memory: MemoryColumns::default(),
            stacks: StackColumns::default(),
            batch_items: BatchItemColumns::default(),
            frequencies: FrequencyColumns::default(),
        }
    }

    fn of(&self, table: Table) -> &dyn RowColumns {
        match table {
            Table::Visits => &self.visits,
            Table::VisitFunctions => &self.visit_functions,
            Table::Samples => &self.samples,
            Table::Waits => &self.waits,
            Table::FunctionStats => &self.function_stats,
            Table::Functions => &self.functions,
            Table::Losses => &self.losses,
            Table::Memory => &self.memory,
            Table::Stacks => &self.stacks,
            Table::BatchItems => &self.batch_items,
            Table::Frequencies => &self.frequencies,
        }
    }

    fn of_mut(&mut self, table: Table) -> &mut dyn RowColumns {
        match table {
            Table::Visits => &mut self.visits,
            Table::VisitFunctions => &mut self.visit_functions,
            Table::Samples => &mut self.samples,
            Table::Waits => &mut self.waits,
            Table::FunctionStats => &mut self.function_stats,
            Table::Functions => &mut self.functions,
            Table::Losses => &mut self.losses,
            Table::Memory => &mut self.memory,
            Table::Stacks => &mut self.stacks,
            Table::BatchItems => &mut self.batch_items,
            Table::Frequencies => &mut self.frequencies,
        }
    }
}

/// Writes one trace.
///
/// Errors are reported by the call that meets them, those of closing a segment by the next
/// [`TraceWriter::tick`] or full row group. After the first error nothing more is written: rows are
/// counted by [`TraceWriter::lost_rows`], every further flush returns the same kind of error, and
/// [`TraceWriter::finish`] keeps what is there.
/// Cost of a row: a push per column, no allocation, no system call but once per 256 Ki rows.
pub struct TraceWriter {
    columns: Columns,
    output: Output,
    options: WriterOptions,
    flushed_at: Duration,
    closed_at: Duration,
    lock: TraceLock,
}

// It moves through the frames of the thread that it is for.
const _: () = assert!(size_of::<TraceWriter>() < 64 << 10);

impl TraceWriter {
    /// Makes the trace's directory (mode 0700, files 0600, owned by the invoking user under sudo)
    /// with a `trace.json` that says `complete: false`.
    ///
    /// # Errors
    /// If the directory exists or can't be made, or `info.columns` collide with fixed columns.
    /// What was made by then is removed again.
    pub fn create(dir: &Path, info: &RunInfo, options: WriterOptions) -> Result<Self, WriteError> {
        check_columns(&info.columns)?;
        let owner = Owner::of_process();
        owner
            .make_dir(dir)
            .map_err(|error| creation_error(dir, error))?;
        Self::fill(dir, info, options, owner).inspect_err(|_| {
            // The directory is ours, just made; the first error is the one to report.
            let _ = fs::remove_dir_all(dir);
        })
    }

    fn fill(
        dir: &Path,
        info: &RunInfo,
        options: WriterOptions,
        owner: Owner,
    ) -> Result<Self, WriteError> {
        let at_dir = |error| WriteError::io(dir, error);
        let lock = TraceLock::take(dir, owner).map_err(at_dir)?;
        let lock = lock.ok_or_else(|| WriteError::Busy {
            path: dir.to_owned(),
        })?;
        owner.make_reserve(dir).map_err(at_dir)?;
        for table in Table::ALL {
            owner.make_dir(&dir.join(table.name())).map_err(at_dir)?;
        }
        let info = RunInfo {
            complete: false,
            ..info.clone()
        };
        owner.write_info(dir, &info).map_err(at_dir)?;
        Ok(Self {
            columns: Columns::new(&info),
            output: Output::start(dir, &info, owner, options.compact)?,
            options,
            flushed_at: Duration::ZERO,
            closed_at: Duration::ZERO,
            lock,
        })
    }

    /// Replaces `trace.json` during the run by what is known so far. For any thread; the trace stays
    /// incomplete.
    ///
    /// # Errors
    /// I/O errors; the `trace.json` from before then stays.
    pub fn rewrite_info(dir: &Path, info: &RunInfo) -> Result<(), WriteError> {
        let at_dir = |error| WriteError::io(dir, error);
        Owner::of_process().write_info(dir, info).map_err(at_dir)
    }

    /// Adds a visit. `args` has a value per argument column; missing ones are null.
    ///
    /// # Errors
    /// As [`TraceWriter`] says; an argument of the wrong type (written as null).
    #[inline]
    pub fn visit(&mut self, row: &VisitRow, args: &[Option<ArgValue>]) -> Result<(), WriteError> {
        let pushed = self.columns.visits.push(row, args);
        self.flush_if_full(Table::Visits, self.columns.visits.is_full())?;
        pushed.map_err(|index| WriteError::Argument { index })
    }

    /// Adds the functions of a visit.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    #[inline]
    pub fn visit_functions(
        &mut self,
        rows: impl IntoIterator<Item = VisitFunctionRow>,
    ) -> Result<(), WriteError> {
        for row in rows {
            self.columns.visit_functions.push(row);
        }
        let full = self.columns.visit_functions.is_full();
        self.flush_if_full(Table::VisitFunctions, full)
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    #[inline]
    pub fn sample(&mut self, row: &SampleRow) -> Result<(), WriteError> {
        self.columns.samples.push(row);
        self.flush_if_full(Table::Samples, self.columns.samples.is_full())
    }

    /// Adds the samples of a visit. `named`: what says the function of each, in the same order.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    pub fn samples<N>(
        &mut self,
        of: &SamplesOf<'_>,
        named: &[N],
        function: impl Fn(&N) -> FunctionId,
    ) -> Result<(), WriteError> {
        let mut result = Ok(());
        let (mut stacks, mut slots) = (of.stacks, of.slots);
        let named = named.chunks(ROWS_AT_ONCE);
        for (samples, named) in of.samples.chunks(ROWS_AT_ONCE).zip(named) {
            let chunk = SamplesOf {
                samples,
                stacks,
                slots,
                ..*of
            };
            self.columns.samples.extend(&chunk, named, &function);
            stacks = stacks.get(samples.len()..).unwrap_or_default();
            slots = slots.get(samples.len()..).unwrap_or_default();
            if self.columns.samples.is_full() {
                result = result.and(self.flush_full(Table::Samples));
            }
        }
        result
    }

    /// Adds an interval off the CPU.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    #[inline]
    pub fn wait(&mut self, row: &WaitRow) -> Result<(), WriteError> {
        self.columns.waits.extend(slice::from_ref(row));
        self.flush_if_full(Table::Waits, self.columns.waits.is_full())
    }

    /// Adds a distribution.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    pub fn function_stat(&mut self, row: &FunctionStatRow) -> Result<(), WriteError> {
        self.columns.function_stats.extend(slice::from_ref(row));
        self.flush_if_full(Table::FunctionStats, self.columns.function_stats.is_full())
    }

    /// Adds a function.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    pub fn function(&mut self, row: &FunctionRow) -> Result<(), WriteError> {
        self.columns.functions.extend(slice::from_ref(row));
        self.flush_if_full(Table::Functions, self.columns.functions.is_full())
    }

    /// Adds a call stack.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    pub fn stack(&mut self, row: &StackRow) -> Result<(), WriteError> {
        self.columns.stacks.extend(slice::from_ref(row));
        self.flush_if_full(Table::Stacks, self.columns.stacks.is_full())
    }

    /// Adds an item of a visit that serves several.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    pub fn batch_item(&mut self, row: &BatchItemRow) -> Result<(), WriteError> {
        self.columns.batch_items.extend(slice::from_ref(row));
        self.flush_if_full(Table::BatchItems, self.columns.batch_items.is_full())
    }

    /// Adds a reading of a CPU's frequency.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    pub fn frequency(&mut self, row: &FrequencyRow) -> Result<(), WriteError> {
        self.columns.frequencies.extend(slice::from_ref(row));
        self.flush_if_full(Table::Frequencies, self.columns.frequencies.is_full())
    }

    /// Adds a time range without full data.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    pub fn loss(&mut self, row: &LossRow) -> Result<(), WriteError> {
        self.columns.losses.extend(slice::from_ref(row));
        self.flush_if_full(Table::Losses, self.columns.losses.is_full())
    }

    /// Adds what a sample says of its memory access.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    pub fn memory(&mut self, row: &MemoryRow<'_>) -> Result<(), WriteError> {
        self.columns.memory.extend(slice::from_ref(row));
        self.flush_if_full(Table::Memory, self.columns.memory.is_full())
    }

    /// Writes and closes what is due. To be called several times a second, `elapsed` being the time
    /// since the trace began.
    ///
    /// # Errors
    /// As [`TraceWriter`] says.
    pub fn tick(&mut self, elapsed: Duration) -> Result<(), WriteError> {
        self.output.check()?;
        let close = elapsed.saturating_sub(self.closed_at) >= self.options.segment;
        if close || elapsed.saturating_sub(self.flushed_at) >= self.options.flush {
            self.flushed_at = elapsed;
            for table in Table::ALL {
                self.flush(table)?;
            }
        }
        if close {
            self.closed_at = elapsed;
            for table in Table::ALL {
                self.output.close_segment(table);
            }
        }
        Ok(())
    }

    /// Bytes of the trace on disk. Shrinks when a segment is closed, which compresses it.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.output.bytes()
    }

    /// Rows of a table that are on disk or still in memory.
    #[must_use]
    pub fn rows(&self, table: Table) -> u64 {
        self.output.rows(table) + self.columns.of(table).rows() as u64
    }

    /// Rows of a table that could not be written.
    #[must_use]
    pub fn lost_rows(&self, table: Table) -> u64 {
        self.output.lost(table)
    }

    /// The trace's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.output.dir()
    }

    /// Writes the rows in memory to disk, so that [`TraceWriter::lost_rows`] is final: to be called
    /// before the ledger is made that goes into the last `trace.json`.
    ///
    /// # Errors
    /// As [`TraceWriter`] says. Every table is tried, whatever becomes of the others.
    pub fn flush_all(&mut self) -> Result<(), WriteError> {
        let mut result = self.output.check();
        for table in Table::ALL {
            let flushed = self.flush(table);
            result = result.and(flushed);
        }
        result
    }

    /// Writes what is left, closes every segment, and replaces `trace.json` by `info`.
    ///
    /// If the disk is full, `trace.json` is written into the room kept for it, with `complete: false`
    /// and a note. Segments that can't be closed stay open, for `recover`.
    ///
    /// # Errors
    /// The first error of the run, if there was one, else of finishing.
    pub fn finish(mut self, info: &RunInfo) -> Result<Finished, WriteError> {
        // Its error is remembered, and returned below.
        let _ = self.flush_all();
        let bytes = self.output.finish(info);
        let dir = self.output.dir().to_owned();
        let retired = self.lock.retire();
        let bytes = bytes?;
        retired.map_err(|error| WriteError::io(&dir, error))?;
        Ok(Finished {
            rows: Table::ALL.map(|table| self.output.rows(table)),
            dir,
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
        let _ = self.output.check();
        self.flush(table)
    }

    fn flush(&mut self, table: Table) -> Result<(), WriteError> {
        self.output.append(table, self.columns.of_mut(table))
    }
}

/// Why the trace's directory could not be made.
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
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::output::SEGMENT_GROUPS;
    use super::super::reader::{Trace, TraceState, column_i64, column_str, column_u64};
    use super::super::segment::open_path;
    use super::super::tests::fixture::{self, info};
    use super::*;

    /// No segment is closed, and nothing flushed, but by the tests' own ticks.
    const OPTIONS: WriterOptions = WriterOptions {
        segment: Duration::from_secs(10),
        flush: Duration::from_secs(1),
        compact: true,
    };

    fn create(dir: &Path) -> TraceWriter {
        TraceWriter::create(dir, &info(), OPTIONS).unwrap()
    }

    fn complete() -> RunInfo {
        RunInfo {
            complete: true,
            ..info()
        }
    }

    // What is written over several segments and flushes is what is read, in order, nulls included.
    #[test]
    fn rows_come_back() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let mut writer = create(&dir);
        for second in 0..25 {
            fixture::write(&mut writer, second * 100, (second + 1) * 100).unwrap();
            writer.tick(Duration::from_secs(second)).unwrap();
        }
        assert_eq!(writer.rows(Table::Samples), 25_000);
        let finished = writer.finish(&complete()).unwrap();
        assert_eq!(
            finished.rows,
            [2500, 2500, 25_000, 2500, 2500, 300, 0, 2500, 0, 0, 0]
        );

        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.state(), TraceState::Complete);
        assert_eq!(trace.info, complete());
        assert_eq!(trace.segments(Table::Visits).len(), 3);
        for table in Table::ALL {
            assert_eq!(trace.rows(table).unwrap(), finished.rows[table as usize]);
        }
        let mut n = 0;
        let columns = ["key", "item_id", "end_ns", "delta", "key"];
        for batch in trace.scan(Table::Visits, &columns).unwrap() {
            let batch = batch.unwrap();
            let keys = column_str(&batch, 0).unwrap();
            let items = column_u64(&batch, 1).unwrap();
            let ends = column_i64(&batch, 2).unwrap();
            let deltas = column_i64(&batch, 3).unwrap();
            let again = column_str(&batch, 4).unwrap();
            for row in 0..batch.num_rows() {
                let visit = fixture::visit(n);
                let key = (n % 3 != 0).then(|| format!("key:{n}"));
                assert_eq!(keys.iter().nth(row).unwrap(), key.as_deref());
                assert_eq!(again.iter().nth(row).unwrap(), key.as_deref());
                assert_eq!(items.value(row), visit.item_id);
                let end = visit.end_ns.map(|time| time.0);
                assert_eq!(ends.iter().nth(row).unwrap(), end);
                assert_eq!(deltas.value(row), -(n as i64));
                n += 1;
            }
        }
        assert_eq!(n, 2500);
    }

    // Nobody else can read a trace, and nothing but the tables and trace.json is left in it.
    #[test]
    fn directory_is_private_and_tidy() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        create(&dir).finish(&complete()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&dir.join("trace.json")), 0o600);
        assert_eq!(mode(&dir.join("visits/000000.parquet")), 0o600);
        let mut names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected = [
            "batch_items",
            "frequencies",
            "function_stats",
            "functions",
            "losses",
            "memory",
            "samples",
            "stacks",
            "trace.json",
            "visit_functions",
            "visits",
            "waits",
        ];
        assert_eq!(names, expected);
    }

    // Rows flushed to disk are there before the segment is closed, and the trace says that it is
    // not complete and being written.
    #[test]
    fn flushed_rows_are_on_disk() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let mut writer = create(&dir);
        fixture::write(&mut writer, 0, 10).unwrap();
        assert_eq!(writer.bytes_written(), 0);
        writer.tick(Duration::from_millis(1001)).unwrap();
        let path = open_path(&dir.join("visits"), 0);
        assert!(fs::metadata(path).unwrap().len() > 1000);
        assert!(writer.bytes_written() > 1000);
        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.state(), TraceState::Live);
        assert!(!trace.info.complete);
        assert_eq!(trace.open_segments().len(), 7);
        drop(writer);
        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.state(), TraceState::Unfinished);
        let (remark, hint) = trace.remark().unwrap();
        assert!(remark.contains("7 open segments"), "{remark}");
        assert!(hint.starts_with("pebs-trace recover "), "{hint}");
    }

    // A segment is closed by its row groups too, so that footers stay few without a tick.
    #[test]
    fn groups_bound_a_segment() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let mut writer = create(&dir);
        let rows = SEGMENT_GROUPS as u64 + 5;
        for n in 0..rows {
            writer.sample(&fixture::sample(n)).unwrap();
            writer.flush_all().unwrap();
        }
        writer.finish(&complete()).unwrap();
        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.segments(Table::Samples).len(), 2);
        assert_eq!(trace.rows(Table::Samples).unwrap(), rows);
    }

    // A segment that can't be closed is told, stays open on disk, and is closed by finishing if it can
    // be by then.
    #[test]
    fn failure_to_close_is_told() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let mut writer = create(&dir);
        let obstacle = dir.join("visits/000000.parquet");
        fs::create_dir(&obstacle).unwrap();
        fixture::write(&mut writer, 0, 10).unwrap();
        let _ = writer.tick(Duration::from_secs(10));
        let error = writer.tick(Duration::from_secs(10)).unwrap_err();
        assert!(matches!(error, WriteError::Io { .. }), "{error}");
        writer.sample(&fixture::sample(0)).unwrap();
        assert!(writer.flush_all().is_err());
        assert_eq!(writer.rows(Table::Samples), 100);
        assert_eq!(writer.lost_rows(Table::Samples), 1);
        fs::remove_dir(&obstacle).unwrap();
        assert!(writer.finish(&complete()).is_err());
        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.state(), TraceState::Unfinished);
        assert_eq!(trace.rows(Table::Visits).unwrap(), 10);
        assert_eq!(trace.open_segments(), []);
        assert!(trace.info.notes[0].starts_with("writing stopped: "));
    }

    // A segment that can't be compacted is as readable as before.
    #[test]
    fn failure_to_compact_costs_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let mut writer = create(&dir);
        let obstacle = dir.join("visits/000000.parquet.tmp");
        fs::create_dir(&obstacle).unwrap();
        fixture::write(&mut writer, 0, 10).unwrap();
        writer.tick(Duration::from_secs(10)).unwrap();
        writer.finish(&complete()).unwrap();
        fs::remove_dir(&obstacle).unwrap();
        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.state(), TraceState::Complete);
        assert_eq!(trace.rows(Table::Visits).unwrap(), 10);
    }

    // An argument of the wrong type is an error, and null in its column.
    #[test]
    fn wrong_argument_is_told() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let mut writer = create(&dir);
        let row = fixture::visit(2);
        let mut args = fixture::args(2);
        args.swap(0, 1);
        let error = writer.visit(&row, &args).unwrap_err();
        assert!(matches!(error, WriteError::Argument { index: 0 }));
        writer.visit(&row, &[]).unwrap();
        let finished = writer.finish(&complete()).unwrap();
        assert_eq!(finished.rows[Table::Visits as usize], 2);
    }

    // A directory that is there is left as it is; one that can't be made says why.
    #[test]
    fn bad_directories() {
        let parent = tempfile::tempdir().unwrap();
        let error = |dir: &Path| match TraceWriter::create(dir, &info(), OPTIONS) {
            Ok(_) => panic!("created {}", dir.display()),
            Err(error) => (error.to_string(), error.hint().unwrap()),
        };
        let at = parent.path().display().to_string();
        let (text, hint) = error(parent.path());
        assert_eq!(text, format!("cannot create trace {at}: it exists"));
        assert!(hint.contains("-o"), "{hint}");

        let (text, hint) = error(&parent.path().join("a/b"));
        assert_eq!(
            text,
            format!("cannot create trace {at}/a/b: no directory {at}/a")
        );
        assert_eq!(hint, format!("mkdir -p {at}/a"));

        fs::write(parent.path().join("file"), "").unwrap();
        let (text, _) = error(&parent.path().join("file/t"));
        assert_eq!(text, format!("cannot write to {at}/file/t"));

        let (text, _) = error(Path::new("/proc/t"));
        assert!(text.starts_with("cannot create trace /proc/t"), "{text}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);

        let mut info = info();
        info.columns[0].name = "pid".to_owned();
        let dir = parent.path().join("t");
        let error = TraceWriter::create(&dir, &info, OPTIONS).err().unwrap();
        assert!(matches!(error, WriteError::Column(_)));
        assert!(!dir.exists());
    }
}
