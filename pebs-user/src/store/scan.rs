//! Reads columns of a table, segment after segment.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use arrow_array::{
    ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array,
};
use arrow_schema::ArrowError;
use arrow_schema::{Field, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::read_error::ReadError;
use super::thrift::{check_footer, check_pages, is_tail_sound};
use super::values::{Nullables, View as _};
use super::visit_set::VisitSet;
use crate::files::open_regular;
use crate::watch::Watch;

/// Column of tables that have something of a visit.
pub(super) const VISIT_ID: &str = "visit_id";

/// Maximum number of rows in a batch that [`Scan`] returns.
const BATCH_ROWS: usize = 16 * 1024;

/// Source of a trace's files that are not here yet. They have their sizes, and paths below the trace's directory.
pub trait Source: fmt::Debug + Send + Sync {
    /// Brings what a file's footer is in.
    ///
    /// # Errors
    /// It can't be had.
    fn footer(&self, path: &Path) -> io::Result<()>;

    /// Brings these bytes of a file.
    ///
    /// # Errors
    /// They can't be had.
    fn ranges(&self, path: &Path, ranges: &[Range<u64>]) -> io::Result<()>;
}

/// Batches of a table's columns; made by [`super::reader::Trace::scan`].
pub struct Scan {
    fields: Vec<Arc<Field>>,
    segments: vec::IntoIter<PathBuf>,
    source: Option<Arc<dyn Source>>,
    current: Option<SegmentScan>,
    /// The visits whose rows are returned; `None`: all rows.
    only: Option<Arc<VisitSet>>,
    /// Number of segments begun, and of all.
    begun: (u64, u64),
    /// Label and receiver of progress reports.
    watch: (String, Watch),
}

/// A segment being read.
struct SegmentScan {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    /// For each requested column, its index in the reader's batches; `None` if the file is older than the column.
    order: Vec<Option<usize>>,
    /// The requested columns.
    schema: SchemaRef,
    /// Number of rows read, and of all.
    rows: (u64, u64),
}

impl SegmentScan {
    fn open(
        path: PathBuf,
        fields: &[Arc<Field>],
        source: Option<&dyn Source>,
    ) -> Result<Self, ReadError> {
        let builder = open_from(&path, source)?;
        let mut places = Vec::with_capacity(fields.len());
        for field in fields {
            let found = builder.schema().fields().find(field.name());
            match found {
                Some((place, found)) if found.data_type() == field.data_type() => {
                    places.push(Some(place));
                }
                None if field.is_nullable() => places.push(None),
                _ => {
                    let what =
                        format!("no column '{}' of type {}", field.name(), field.data_type());
                    return Err(ReadError::damaged(&path, what));
                }
            }
        }
        // The reader returns columns in the file's order, each once.
        let mut sorted: Vec<usize> = places.iter().copied().flatten().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let order = places
            .iter()
            .map(|place| place.map(|p| sorted.partition_point(|s| *s < p)))
            .collect();
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let rows = builder.metadata().file_metadata().num_rows();
        if let Some(source) = source {
            let groups = builder.metadata().row_groups().iter();
            let ranges = groups.flat_map(|group| {
                let columns = sorted.iter().filter_map(|it| group.columns().get(*it));
                columns.map(|it| it.byte_range())
            });
            let ranges = ranges.map(|(start, length)| start..start.saturating_add(length));
            let brought = source.ranges(&path, &ranges.collect::<Vec<_>>());
            brought.map_err(|error| ReadError::io(&path, error))?;
        }
        let file = open_regular(&path).map_err(|error| ReadError::io(&path, error))?;
        check_pages(&file, builder.metadata(), &sorted)
            .map_err(|error| ReadError::damaged(&path, error))?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), sorted);
        let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
        let reader = guarded(&path, || builder.build())?;
        Ok(Self {
            path,
            reader,
            order,
            schema,
            rows: (0, u64::try_from(rows).unwrap_or(0)),
        })
    }

    fn next_batch(&mut self) -> Option<Result<RecordBatch, ReadError>> {
        let Self {
            path,
            reader,
            order,
            schema,
            ..
        } = self;
        guarded(path, || match reader.next() {
            Some(batch) => arranged(&batch?, order, schema).map(Some),
            None => Ok(None),
        })
        .transpose()
    }
}

/// The rows of these visits. Rows of no visit are left out.
fn of_visits(batch: &RecordBatch, only: &VisitSet) -> Result<RecordBatch, ArrowError> {
    let column = batch.column_by_name(VISIT_ID);
    let visits = column.and_then(|it| Nullables::<UInt64Array>::of(it.as_ref()));
    let Some(visits) = visits else {
        return Ok(batch.clone());
    };
    let is_kept = |row| visits.get(row).is_some_and(|it| only.contains(it));
    let kept: Vec<bool> = (0..batch.num_rows()).map(is_kept).collect();
    filter_record_batch(batch, &BooleanArray::from(kept))
}

/// The requested columns in their order; columns missing in the file are null.
fn arranged(
    batch: &RecordBatch,
    order: &[Option<usize>],
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let rows = batch.num_rows();
    let columns = order.iter().zip(schema.fields());
    let columns = columns.map(|(place, field)| match place {
        Some(place) => ArrayRef::clone(batch.column(*place)),
        None => new_null_array(field.data_type(), rows),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect(), &options)
}

impl Iterator for Scan {
    type Item = Result<RecordBatch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(segment) = &mut self.current {
                match segment.next_batch() {
                    Some(Ok(batch)) => {
                        segment.rows.0 += batch.num_rows() as u64;
                        let batch = match &self.only {
                            Some(only) => guarded(&segment.path, || of_visits(&batch, only)),
                            None => Ok(batch),
                        };
                        self.report_progress();
                        return Some(batch);
                    }
                    Some(Err(error)) => {
                        self.end();
                        return Some(Err(error));
                    }
                    None => self.current = None,
                }
            }
            let path = self.segments.next()?;
            match SegmentScan::open(path, &self.fields, self.source.as_deref()) {
                Ok(segment) => {
                    self.current = Some(segment);
                    self.begun.0 += 1;
                }
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Scan {
    /// `only`: the visits whose rows are returned; `watch`: where progress is reported.
    pub(super) fn new(
        fields: Vec<Arc<Field>>,
        segments: Vec<PathBuf>,
        source: Option<Arc<dyn Source>>,
        only: Option<Arc<VisitSet>>,
        watch: (String, Watch),
    ) -> Self {
        Self {
            fields,
            begun: (0, segments.len() as u64),
            segments: segments.into_iter(),
            source,
            current: None,
            only,
            watch,
        }
    }

    /// Reports progress, in thousandths of a segment.
    fn report_progress(&self) {
        let rows = self.current.as_ref().map_or((0, 0), |it| it.rows);
        let part = (rows.0 * 1000).checked_div(rows.1).unwrap_or(0);
        let (begun, all) = self.begun;
        let (what, watch) = &self.watch;
        watch.report(what, begun.saturating_sub(1) * 1000 + part, all * 1000);
    }

    fn end(&mut self) {
        self.current = None;
        self.segments = Vec::new().into_iter();
    }
}

/// Opens a segment that may have to be brought, and reads its footer.
pub(super) fn open_from(
    path: &Path,
    source: Option<&dyn Source>,
) -> Result<ParquetRecordBatchReaderBuilder<File>, ReadError> {
    if let Some(source) = source {
        let brought = source.footer(path);
        brought.map_err(|error| ReadError::io(path, error))?;
    }
    open_parquet(path)
}

/// Opens a segment and reads its footer.
pub(super) fn open_parquet(
    path: &Path,
) -> Result<ParquetRecordBatchReaderBuilder<File>, ReadError> {
    let file = open_regular(path).map_err(|error| ReadError::io(path, error))?;
    check_footer(&file).map_err(|error| ReadError::damaged(path, error))?;
    guarded(path, || ParquetRecordBatchReaderBuilder::try_new(file))
}

/// Runs a step of the decoder and turns a panic into an error: some panics on flipped bits remain in it.
///
/// Objects used in the step must not be used again after an error.
pub(super) fn guarded<T, E>(
    path: &Path,
    step: impl FnOnce() -> Result<T, E>,
) -> Result<T, ReadError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    match panic::catch_unwind(AssertUnwindSafe(step)) {
        Ok(result) => result.map_err(|error| ReadError::damaged(path, error)),
        Err(_) => Err(ReadError::damaged(path, "the decoder gave up")),
    }
}

/// All rows of a file in memory, which may be anything.
pub(crate) fn rows_of(name: &Path, file: Bytes) -> Result<Vec<RecordBatch>, ReadError> {
    if !is_tail_sound(&file) {
        return Err(ReadError::damaged(name, "its footer is damaged"));
    }
    let reader = guarded(name, || {
        ParquetRecordBatchReaderBuilder::try_new(file)?.build()
    })?;
    guarded(name, || reader.collect::<Result<_, _>>())
}
