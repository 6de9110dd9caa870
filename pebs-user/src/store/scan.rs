//! Reads columns of a table, segment after segment.

use std::fs::File;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use arrow::array::{
    Array, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::read_error::ReadError;
use super::thrift::{check_footer, check_pages};

/// Rows of a batch that [`Scan`] returns, at most.
const BATCH_ROWS: usize = 16 * 1024;

/// Batches of a table's columns; made by [`super::reader::Trace::scan`].
pub struct Scan {
    fields: Vec<Arc<Field>>,
    segments: vec::IntoIter<PathBuf>,
    current: Option<SegmentScan>,
}

/// A segment being read.
struct SegmentScan {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    /// For each column asked for, its place in the reader's batches.
    order: Vec<usize>,
}

impl SegmentScan {
    fn open(path: PathBuf, fields: &[Arc<Field>]) -> Result<Self, ReadError> {
        let builder = open_parquet(&path)?;
        let mut places = Vec::with_capacity(fields.len());
        for field in fields {
            let found = builder.schema().fields().find(field.name());
            match found {
                Some((place, found)) if found.data_type() == field.data_type() => {
                    places.push(place);
                }
                _ => {
                    let what =
                        format!("no column '{}' of type {}", field.name(), field.data_type());
                    return Err(ReadError::damaged(&path, what));
                }
            }
        }
        // The reader returns columns in the file's order, each once.
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let order = places
            .iter()
            .map(|p| sorted.partition_point(|s| s < p))
            .collect();
        let file = File::open(&path).map_err(|error| ReadError::io(&path, error))?;
        check_pages(&file, builder.metadata(), &sorted)
            .map_err(|error| ReadError::damaged(&path, error))?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), sorted);
        let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
        let reader = guarded(&path, || builder.build())?;
        Ok(Self {
            path,
            reader,
            order,
        })
    }

    fn next_batch(&mut self) -> Option<Result<RecordBatch, ReadError>> {
        let Self {
            path,
            reader,
            order,
        } = self;
        guarded(path, || match reader.next() {
            Some(batch) => batch?.project(order).map(Some),
            None => Ok(None),
        })
        .transpose()
    }
}

impl Iterator for Scan {
    type Item = Result<RecordBatch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(segment) = &mut self.current {
                match segment.next_batch() {
                    Some(Ok(batch)) => return Some(Ok(batch)),
                    Some(Err(error)) => {
                        self.end();
                        return Some(Err(error));
                    }
                    None => self.current = None,
                }
            }
            match SegmentScan::open(self.segments.next()?, &self.fields) {
                Ok(segment) => self.current = Some(segment),
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Scan {
    pub(super) fn new(fields: Vec<Arc<Field>>, segments: Vec<PathBuf>) -> Self {
        Self {
            fields,
            segments: segments.into_iter(),
            current: None,
        }
    }

    fn end(&mut self) {
        self.current = None;
        self.segments = Vec::new().into_iter();
    }
}

/// Opens a segment and reads its footer.
pub(super) fn open_parquet(
    path: &Path,
) -> Result<ParquetRecordBatchReaderBuilder<File>, ReadError> {
    let file = File::open(path).map_err(|error| ReadError::io(path, error))?;
    check_footer(&file).map_err(|error| ReadError::damaged(path, error))?;
    guarded(path, || ParquetRecordBatchReaderBuilder::try_new(file))
}

/// Runs a step of the decoder, whose panics are damage too: it has some left on turned bits.
///
/// What the step used must not be used again after an error.
fn guarded<T, E>(path: &Path, step: impl FnOnce() -> Result<T, E>) -> Result<T, ReadError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    match panic::catch_unwind(AssertUnwindSafe(step)) {
        Ok(result) => result.map_err(|error| ReadError::damaged(path, error)),
        Err(_) => Err(ReadError::damaged(path, "the decoder gave up")),
    }
}

fn typed<T: Array + 'static>(
    batch: &RecordBatch,
    index: usize,
    wanted: DataType,
) -> Result<&T, ReadError> {
    let column = batch.column(index);
    column
        .as_any()
        .downcast_ref()
        .ok_or_else(|| ReadError::Type {
            column: batch.schema_ref().field(index).name().clone(),
            found: column.data_type().clone(),
            wanted,
        })
}

macro_rules! accessors {
    ($($(#[$doc:meta])* $name:ident -> $array:ty, $kind:ident;)+) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// If the column has another type.
            /// # Panics
            /// If the batch has no such column.
            pub fn $name(batch: &RecordBatch, index: usize) -> Result<&$array, ReadError> {
                typed(batch, index, DataType::$kind)
            }
        )+
    };
}

accessors! {
    /// The batch's column at `index` as `u64`.
    column_u64 -> UInt64Array, UInt64;
    /// The batch's column at `index` as `u32`.
    column_u32 -> UInt32Array, UInt32;
    /// The batch's column at `index` as `u16`.
    column_u16 -> UInt16Array, UInt16;
    /// The batch's column at `index` as `u8`.
    column_u8 -> UInt8Array, UInt8;
    /// The batch's column at `index` as `i64`.
    column_i64 -> Int64Array, Int64;
    /// The batch's column at `index` as `f64`.
    column_f64 -> Float64Array, Float64;
    /// The batch's column at `index` as truth values.
    column_bool -> BooleanArray, Boolean;
    /// The batch's column at `index` as strings.
    column_str -> StringArray, Utf8;
}
