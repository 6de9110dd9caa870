//! Reads a trace.
//!
//! Only closed segments are read: they never change, so a trace can be read while it is being written.

use std::cell::OnceCell;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use arrow_array::{Int64Array, UInt64Array};
use arrow_schema::SchemaRef;
use serde::Deserialize;

use super::fields::table_schema;
use super::files::{INFO_FILE, TraceLock};
pub use super::read_error::ReadError;
use super::run::RunInfo;
pub use super::scan::{Scan, Source};
use super::scan::{VISIT_ID, open_from, open_parquet};
use super::segment_files::SegmentFiles;
use super::table::{OLDEST_SCHEMA, SCHEMA_VERSION, Table};
use super::values::{Values, View as _};
use super::visit_set::VisitSet;
use crate::files::read_regular;
use crate::watch::Watch;

/// An open segment of a trace whose writer died or still runs; it is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadSegment {
    /// The table that it belongs to.
    pub table: Table,
    /// Its file.
    pub path: PathBuf,
    /// Size of the file.
    pub bytes: u64,
}

/// State of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceState {
    /// Written completely.
    Complete,
    /// It has not ended: it is being written.
    Live,
    /// Its writer died or could not continue.
    Unfinished,
}

/// A trace to read.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The trace's directory.
    pub dir: PathBuf,
    /// `trace.json`.
    pub info: RunInfo,
    /// Progress reporting.
    pub watch: Watch,
    state: TraceState,
    closed: [Vec<PathBuf>; Table::ALL.len()],
    open: Vec<UnreadSegment>,
    /// The visits to read, if not all: of those that began in a range of time.
    only: Option<(Range<i64>, Arc<VisitSet>)>,
    /// `None`: all is here.
    source: Option<Arc<dyn Source>>,
    /// See [`Self::own_function`].
    pub(super) own_function: OnceCell<Option<u32>>,
}

impl Trace {
    /// Opens a trace: reads `trace.json` and lists the segments.
    ///
    /// Segments closed later by a running writer are not included. Segments are opened, and errors found, by
    /// [`Trace::scan`] and [`Trace::rows`].
    ///
    /// # Errors
    /// There is no trace, or this version can't read it.
    pub fn open(dir: &Path) -> Result<Self, ReadError> {
        let info = read_info(dir)?;
        // Checked before the segments are listed: if the writer ends in between, no segment is open.
        let state = if TraceLock::is_held(dir) {
            TraceState::Live
        } else if info.is_closed() {
            TraceState::Complete
        } else {
            TraceState::Unfinished
        };
        let mut trace = Self {
            dir: dir.to_owned(),
            info,
            watch: Watch::default(),
            state,
            closed: Default::default(),
            open: Vec::new(),
            only: None,
            source: None,
            own_function: OnceCell::new(),
        };
        for table in Table::ALL {
            trace.list(table)?;
        }
        Ok(trace)
    }

    /// Has what is read brought from there, and calls the trace by this name.
    pub(crate) fn come_from(&mut self, name: PathBuf, source: Arc<dyn Source>) {
        self.dir = name;
        self.source = Some(source);
    }

    /// Opens a trace like [`Trace::open`]; if it is being written, including the flushed part of open segments.
    ///
    /// Reading may fail because of the writer: then open it again.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn open_live(dir: &Path) -> Result<Self, ReadError> {
        let mut trace = Self::open(dir)?;
        if trace.state == TraceState::Live {
            for segment in std::mem::take(&mut trace.open) {
                if open_parquet(&segment.path).is_ok() {
                    trace.closed[segment.table as usize].push(segment.path);
                } else {
                    trace.open.push(segment);
                }
            }
        }
        Ok(trace)
    }

    fn list(&mut self, table: Table) -> Result<(), ReadError> {
        let folder = self.dir.join(table.name());
        let listed = SegmentFiles::list(&folder);
        if table.is_recent()
            && matches!(&listed, Err(error) if error.kind() == io::ErrorKind::NotFound)
        {
            return Ok(());
        }
        let files = listed.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::damaged(&folder, error),
            _ => ReadError::io(&folder, error),
        })?;
        self.closed[table as usize] = files.closed.into_values().collect();
        for path in files.open.into_values() {
            // Gone if a running writer just closed it.
            if let Ok(meta) = fs::metadata(&path) {
                self.open.push(UnreadSegment {
                    table,
                    path,
                    bytes: meta.len(),
                });
            }
        }
        Ok(())
    }

    /// State of the trace.
    #[must_use]
    pub const fn state(&self) -> TraceState {
        self.state
    }

    /// Segments that are not read because they are open. If the trace is not
    /// [`TraceState::Live`], `pebs-trace recover DIR` makes them readable.
    #[must_use]
    pub fn open_segments(&self) -> &[UnreadSegment] {
        &self.open
    }

    /// Remark and hint for the results of an incomplete trace; `None` if it is complete.
    #[must_use]
    pub fn remark(&self) -> Option<(String, String)> {
        let dir = self.dir.display();
        match self.state {
            TraceState::Complete => None,
            TraceState::Live => Some((
                format!("trace {dir} is being written: the last seconds are missing"),
                "read it again when the recording has ended".to_owned(),
            )),
            TraceState::Unfinished if self.open.is_empty() => None,
            TraceState::Unfinished => Some((
                match self.open.len() {
                    1 => format!("trace {dir} was not finished: its open segment is not read"),
                    open => {
                        format!("trace {dir} was not finished: {open} open segments are not read")
                    }
                },
                format!("pebs-trace recover {dir}"),
            )),
        }
    }

    /// Files of a table's closed segments, in order.
    #[must_use]
    pub fn segments(&self, table: Table) -> &[PathBuf] {
        &self.closed[table as usize]
    }

    /// Arrow schema of a table of this trace.
    #[must_use]
    pub fn schema(&self, table: Table) -> SchemaRef {
        table_schema(table, &self.info.columns)
    }

    /// Rows of a table, from the segments' footers.
    ///
    /// # Errors
    /// If a segment is damaged.
    pub fn rows(&self, table: Table) -> Result<u64, ReadError> {
        let mut rows = 0;
        for path in self.segments(table) {
            let builder = open_from(path, self.source.as_deref())?;
            let metadata = builder.metadata().file_metadata();
            rows += u64::try_from(metadata.num_rows())
                .map_err(|error| ReadError::damaged(path, error))?;
        }
        Ok(rows)
    }

    /// Number of consecutive visits in which distances between samples are one draw; 1 if they are equal.
    ///
    /// # Errors
    /// If a segment is damaged.
    pub(crate) fn visits_in_stretch(&self) -> Result<NonZeroU64, ReadError> {
        let Some((stretch, duration)) = self.info.stretch_ns().zip(self.info.duration_ns) else {
            return Ok(NonZeroU64::MIN);
        };
        // Numbered as they close.
        let visits = self.rows(Table::Visits)? as f64;
        let run = visits * stretch as f64 / duration.max(1) as f64;
        Ok(NonZeroU64::new(run.round() as u64).unwrap_or(NonZeroU64::MIN))
    }

    /// Reads columns of a table, in the given order, segment by segment.
    ///
    /// Within a segment rows are in the order written or, if it is compacted, grouped by thread in parts: rows of a
    /// thread, and those of a visit, are in order either way. A failing segment ends the scan with its error.
    /// Without columns the batches still have their numbers of rows.
    ///
    /// # Errors
    /// The table has no such column.
    pub fn scan(&self, table: Table, columns: &[&str]) -> Result<Scan, ReadError> {
        let schema = self.schema(table);
        let mut fields = Vec::with_capacity(columns.len());
        for &column in columns {
            let Some((_, field)) = schema.fields().find(column) else {
                return Err(ReadError::NoColumn {
                    path: self.dir.clone(),
                    table,
                    column: column.to_owned(),
                    known: schema.fields().iter().map(|f| f.name().clone()).collect(),
                });
            };
            fields.push(Arc::clone(field));
        }
        let visit = schema.fields().find(VISIT_ID);
        let only = self
            .only
            .as_ref()
            .zip(visit)
            .map(|((_, only), (_, field))| {
                if !columns.contains(&VISIT_ID) {
                    fields.push(Arc::clone(field));
                }
                Arc::clone(only)
            });
        let segments = self.segments(table).to_vec();
        let what = format!("reading {}", table.name());
        let watch = (what, self.watch.clone());
        let source = self.source.clone();
        Ok(Scan::new(fields, segments, source, only, watch))
    }

    /// Reads from now on only visits that began in this range, ns since the begin of the trace, and what tables have of
    /// them; returns their number. Other rows, such as sums over all visits, are still read.
    ///
    /// # Errors
    /// As [`Trace::scan`].
    pub fn only(&mut self, range: Range<i64>) -> Result<u64, ReadError> {
        let (mut only, mut visits) = (VisitSet::default(), 0);
        self.only = None;
        for batch in self.scan(Table::Visits, &[VISIT_ID, "begin_ns"])? {
            let batch = batch?;
            let ids = Values::<UInt64Array>::of(batch.column(0).as_ref());
            let begins = Values::<Int64Array>::of(batch.column(1).as_ref());
            for (ids, begins) in ids.into_iter().zip(begins) {
                let began = |row: &usize| range.contains(&begins.get(*row));
                for row in (0..batch.num_rows()).filter(began) {
                    only.insert(ids.get(row));
                    visits += 1;
                }
            }
        }
        self.only = Some((range, Arc::new(only)));
        Ok(visits)
    }

    /// The range of [`Trace::only`]: begin and end, within the trace.
    #[must_use]
    pub fn within(&self) -> Option<[i64; 2]> {
        let (range, _) = self.only.as_ref()?;
        let end = self.info.duration_ns.unwrap_or(range.end);
        Some([range.start.max(0), range.end.min(end)])
    }

    /// Reads columns of `visits`, and all named arguments.
    ///
    /// # Errors
    /// As [`Trace::scan`].
    pub fn scan_with_args(&self, columns: &[&str]) -> Result<Scan, ReadError> {
        let args = self.info.columns.iter().map(|it| it.name.as_str());
        let columns: Vec<&str> = columns.iter().copied().chain(args).collect();
        self.scan(Table::Visits, &columns)
    }
}

/// Largest `trace.json` that is read.
const MAX_INFO: u64 = 256 << 20;

/// The part of `trace.json` that every version has.
#[derive(Deserialize)]
struct Version {
    schema_version: u32,
    #[serde(default)]
    tool_version: String,
}

/// The bytes of `trace.json`.
///
/// # Errors
/// As for every file; it is larger than any that this program writes.
pub(crate) fn info_text(dir: &Path) -> io::Result<Vec<u8>> {
    read_regular(&dir.join(INFO_FILE), MAX_INFO)
}

/// Reads `trace.json`.
pub(crate) fn read_info(dir: &Path) -> Result<RunInfo, ReadError> {
    let foreign = |reason: &str| ReadError::Foreign {
        path: dir.to_owned(),
        reason: reason.to_owned(),
    };
    let meta = fs::metadata(dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ReadError::Missing {
            path: dir.to_owned(),
        },
        _ => ReadError::io(dir, error),
    })?;
    if !meta.is_dir() {
        return Err(foreign("not a directory"));
    }
    let path = dir.join(INFO_FILE);
    let text = info_text(dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => foreign("no trace.json in it"),
        _ => ReadError::io(&path, error),
    })?;
    let damaged = |source| ReadError::Info {
        path: path.clone(),
        readable: closed_table(dir),
        source,
    };
    let json: serde_json::Value = serde_json::from_slice(&text).map_err(damaged)?;
    if json.get("schema_version").is_none() {
        return Err(foreign("trace.json has no schema_version"));
    }
    let version = Version::deserialize(&json).map_err(damaged)?;
    if version.schema_version > SCHEMA_VERSION {
        return Err(ReadError::Future {
            path: dir.to_owned(),
            tool: version.tool_version,
            schema: version.schema_version,
        });
    }
    if version.schema_version < OLDEST_SCHEMA {
        return Err(ReadError::Past {
            path: dir.to_owned(),
            tool: version.tool_version,
            schema: version.schema_version,
        });
    }
    RunInfo::deserialize(&json).map_err(damaged)
}

/// The first table with a closed segment.
fn closed_table(dir: &Path) -> Option<Table> {
    let has_closed = |table: &Table| {
        SegmentFiles::list(&dir.join(table.name())).is_ok_and(|files| !files.closed.is_empty())
    };
    Table::ALL.into_iter().find(has_closed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow_array::UInt64Array;
    use proptest::prelude::*;

    use super::super::fixtures::rows::{self, complete, info};
    use super::super::options::WriterOptions;
    use super::super::schema::visits;
    use super::super::view::{Nullables, view, view_of};
    use super::super::writer::TraceWriter;
    use super::*;
    use crate::failure::Hint as _;

    /// A complete trace of two segments with 20 visits.
    fn write(dir: &Path) {
        let mut writer = TraceWriter::create(dir, &info(), WriterOptions::default()).unwrap();
        rows::write(&mut writer, 0, 10).unwrap();
        writer.tick(Duration::from_secs(10)).unwrap();
        rows::write(&mut writer, 10, 20).unwrap();
        writer.finish(&complete()).unwrap();
    }

    fn scan_all(trace: &Trace, table: Table) -> Result<u64, ReadError> {
        let schema = trace.schema(table);
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let mut rows = 0;
        for batch in trace.scan(table, &names)? {
            rows += batch?.num_rows() as u64;
        }
        Ok(rows)
    }

    // Every table can be scanned with all its columns; without columns the rows are still counted.
    #[test]
    fn every_table_scans() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        write(&dir);
        let trace = Trace::open(&dir).unwrap();
        assert_eq!(trace.remark(), None);
        for table in Table::ALL {
            let rows = trace.rows(table).unwrap();
            assert_eq!(scan_all(&trace, table).unwrap(), rows);
            let scan = trace.scan(table, &[]).unwrap();
            let counted: usize = scan.map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(counted as u64, rows);
        }
    }

    // Of a period only its visits are read, and what tables have of them; sums over all are still read.
    #[test]
    fn visits_of_a_period() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        write(&dir);
        let mut trace = Trace::open(&dir).unwrap();
        let mut begins: Vec<i64> = (0..20).map(|n| rows::visit(n).begin_ns.0).collect();
        begins.sort_unstable();
        let (from, to) = (begins[5], begins[12]);
        let within = begins.iter().filter(|it| (from..to).contains(it)).count() as u64;
        assert!(within > 0 && within < 20, "{begins:?}");
        assert_eq!(trace.only(from..to).unwrap(), within);
        assert_eq!(scan_all(&trace, Table::Visits).unwrap(), within);
        // One sample in ten is in no visit.
        assert_eq!(scan_all(&trace, Table::Samples).unwrap(), within * 9);
        let counted: usize = trace
            .scan(Table::Samples, &[])
            .unwrap()
            .map(|batch| batch.unwrap().num_rows())
            .sum();
        assert_eq!(counted as u64, within * 9);
        assert_eq!(scan_all(&trace, Table::FunctionStats).unwrap(), 20);
        assert_eq!(trace.only(i64::MIN..i64::MAX).unwrap(), 20);
        assert_eq!(scan_all(&trace, Table::Visits).unwrap(), 20);
    }

    // Errors for a missing column and a wrong type name the column; the former also lists the existing ones.
    #[test]
    fn wrong_columns_are_reported() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        write(&dir);
        let trace = Trace::open(&dir).unwrap();
        let error = trace.scan(Table::Losses, &["begin"]).err().unwrap();
        let dir = dir.display();
        assert_eq!(
            error.to_string(),
            format!("no column 'begin' in table losses of trace {dir}")
        );
        let hint = "there are begin_ns, end_ns, cpu, tid, reason, records";
        assert_eq!(error.hint().as_deref(), Some(hint));
        let batch = trace.scan(Table::Visits, &["tid"]).unwrap().next().unwrap();
        let batch = batch.unwrap();
        let error = view::<visits::item_id>(&batch).err().unwrap();
        assert_eq!(error.to_string(), "column 'item_id' was not read");
        assert!(view::<visits::tid>(&batch).is_ok());
        let error = view_of::<Nullables<'_, UInt64Array>>(&batch, "tid");
        assert_eq!(error.err().unwrap().to_string(), "column 'tid' is UInt32");
    }

    // Each kind of foreign directory has its own error and hint.
    #[test]
    fn foreign_traces_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let at = dir.display().to_string();
        let check = |expected: &str| {
            let error = Trace::open(&dir).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(error.hint().is_some(), "{expected}");
        };
        check(&format!("cannot read trace {at}: no such directory"));
        fs::write(&dir, "PERFILE2").unwrap();
        check(&format!("cannot read {at}: not a trace (not a directory)"));
        fs::remove_file(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        check(&format!(
            "cannot read {at}: not a trace (no trace.json in it)"
        ));
        let json = |text: &str| fs::write(dir.join("trace.json"), text).unwrap();
        json("{\"traceEvents\": []}");
        check(&format!(
            "cannot read {at}: not a trace (trace.json has no schema_version)"
        ));
        json("{\"schema_version\": 1, \"tool");
        check(&format!("cannot read {at}/trace.json: damaged"));
        json("{\"schema_version\": 1}");
        check(&format!("cannot read {at}/trace.json: damaged"));
        json("{\"schema_version\": 7, \"tool_version\": \"3.2.1\", \"new\": [1]}");
        check(&format!(
            "cannot read trace {at}: written by pebs-trace 3.2.1, schema 7; this one reads up to 1"
        ));
        json("{\"schema_version\": 0, \"tool_version\": \"0.0.9\"}");
        check(&format!(
            "cannot read trace {at}: written by pebs-trace 0.0.9, schema 0; this one reads from 1 on"
        ));
        let hint = Trace::open(&dir).unwrap_err().hint();
        assert_eq!(hint.as_deref(), Some("read it with pebs-trace 0.0.9"));
    }

    // Without trace.json, the hint to query the trace is given only if segments are closed.
    #[test]
    fn hint_without_info() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        write(&dir);
        fs::write(dir.join("trace.json"), "{").unwrap();
        let hint = || Trace::open(&dir).unwrap_err().hint().unwrap();
        assert!(hint().contains(&format!("'{}/visits/*.parquet'", dir.display())));
        for table in Table::ALL {
            for path in SegmentFiles::list(&dir.join(table.name()))
                .unwrap()
                .closed
                .values()
            {
                fs::rename(path, format!("{}.open", path.display())).unwrap();
            }
        }
        assert!(!hint().contains("*.parquet"), "{}", hint());
        assert!(
            hint().contains("no segment of its tables is closed"),
            "{}",
            hint()
        );
    }

    // A missing table and a segment of another table are errors that name it.
    #[test]
    fn incomplete_copies_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        write(&dir);
        let segment = dir.join("visits/000001.parquet");
        fs::copy(dir.join("waits/000000.parquet"), &segment).unwrap();
        let trace = Trace::open(&dir).unwrap();
        let error = scan_all(&trace, Table::Visits).unwrap_err();
        assert!(
            error.to_string().contains("visits/000001.parquet"),
            "{error}"
        );
        fs::remove_dir_all(dir.join("samples")).unwrap();
        let error = Trace::open(&dir).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("/samples: truncated or damaged")
        );
    }

    // A segment truncated anywhere gives an error with its file, never fewer rows.
    #[test]
    fn truncated_segments_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        write(&dir);
        let segment = dir.join("visits/000000.parquet");
        let bytes = fs::read(&segment).unwrap();
        let trace = Trace::open(&dir).unwrap();
        for cut in (0..bytes.len()).step_by(97) {
            fs::write(&segment, &bytes[..cut]).unwrap();
            let error = scan_all(&trace, Table::Visits).unwrap_err();
            let name = segment.display().to_string();
            assert_eq!(
                error.to_string(),
                format!("cannot read {name}: truncated or damaged")
            );
            assert!(error.hint().unwrap().contains(&name));
            assert!(trace.rows(Table::Visits).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        // Flipped bits give an error or rows, never a panic.
        #[test]
        fn turned_bytes(places in prop::collection::vec((0.0..1.0, 1_u8..), 1..4)) {
            let parent = tempfile::tempdir().unwrap();
            let dir = parent.path().join("t");
            write(&dir);
            let segment = dir.join("visits/000000.parquet");
            let mut bytes = fs::read(&segment).unwrap();
            for (place, turn) in places {
                let place = (bytes.len() as f64 * place) as usize;
                bytes[place] ^= turn;
            }
            fs::write(&segment, &bytes).unwrap();
            let trace = Trace::open(&dir).unwrap();
            let _ = scan_all(&trace, Table::Visits);
            let _ = trace.rows(Table::Visits);
        }
    }

    /// Pipes in place of `trace.json` and of a segment are refused at once, without blocking.
    #[test]
    fn pipes() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("trace");
        write(&trace);
        let pipe = |path: &Path| {
            fs::remove_file(path).unwrap();
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        };
        let reader = Trace::open(&trace).unwrap();
        let segment = reader.segments(Table::Visits)[0].clone();
        pipe(&segment);
        let error = open_parquet(&segment).map(drop).unwrap_err();
        assert!(matches!(error, ReadError::Io { .. }), "{error}");
        pipe(&trace.join(INFO_FILE));
        let error = read_info(&trace).map(drop).unwrap_err();
        assert!(matches!(error, ReadError::Io { .. }), "{error}");
    }
}
