//! Reads a table of a trace, a folder of Parquet segments, into plain vectors.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use arrow_select::concat::concat_batches;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// Last bytes of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// All rows of one table, in the order of its segments' names.
#[derive(Clone, Debug)]
pub struct Table {
    name: String,
    rows: RecordBatch,
}

impl Table {
    /// Reads every segment of the table in that folder of a trace.
    ///
    /// # Panics
    /// If there is no segment, one cannot be read, or they differ in their columns.
    #[must_use]
    pub fn read(trace: &Path, name: &str) -> Self {
        let dir = trace.join(name);
        let batches: Vec<RecordBatch> = segments(&dir).iter().flat_map(|s| read(s)).collect();
        let first = batches
            .first()
            .unwrap_or_else(|| panic!("{} has no segment", dir.display()));
        let rows = concat_batches(&first.schema(), &batches)
            .unwrap_or_else(|e| panic!("segments of {} differ: {e}", dir.display()));
        Self {
            name: name.to_owned(),
            rows,
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.num_rows()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names and types of the columns.
    #[must_use]
    pub fn columns(&self) -> Vec<(String, DataType)> {
        self.rows
            .schema()
            .fields()
            .iter()
            .map(|field| (field.name().clone(), plain(field.data_type())))
            .collect()
    }

    /// A column of whole numbers of any unsigned type.
    ///
    /// # Panics
    /// If there is no such column, or it has another type.
    #[must_use]
    pub fn u64(&self, column: &str) -> Vec<Option<u64>> {
        let array = self.cast(column, &DataType::UInt64);
        array.as_primitive::<UInt64Type>().iter().collect()
    }

    /// A column of whole numbers of any type.
    ///
    /// # Panics
    /// If there is no such column, or it has another type.
    #[must_use]
    pub fn i64(&self, column: &str) -> Vec<Option<i64>> {
        let array = self.cast(column, &DataType::Int64);
        array.as_primitive::<Int64Type>().iter().collect()
    }

    /// A column of lists of whole numbers of any unsigned type.
    ///
    /// # Panics
    /// If there is no such column, or it has another type.
    #[must_use]
    pub fn u64_lists(&self, column: &str) -> Vec<Vec<u64>> {
        let item = Field::new_list_field(DataType::UInt64, false);
        let array = self.cast(column, &DataType::List(Arc::new(item)));
        let lists = array.as_list::<i32>().iter().flatten();
        let numbers = lists.map(|list| list.as_primitive::<UInt64Type>().values().to_vec());
        numbers.collect()
    }

    /// A column of numbers.
    ///
    /// # Panics
    /// If there is no such column, or it has another type.
    #[must_use]
    pub fn f64(&self, column: &str) -> Vec<Option<f64>> {
        let array = self.cast(column, &DataType::Float64);
        array.as_primitive::<Float64Type>().iter().collect()
    }

    /// A column of truth values.
    ///
    /// # Panics
    /// If there is no such column, or it has another type.
    #[must_use]
    pub fn bool(&self, column: &str) -> Vec<Option<bool>> {
        self.cast(column, &DataType::Boolean)
            .as_boolean()
            .iter()
            .collect()
    }

    /// A column of text.
    ///
    /// # Panics
    /// If there is no such column, or it has another type.
    #[must_use]
    pub fn text(&self, column: &str) -> Vec<Option<String>> {
        self.cast(column, &DataType::Utf8)
            .as_string::<i32>()
            .iter()
            .map(|text| text.map(str::to_owned))
            .collect()
    }

    fn cast(&self, column: &str, to: &DataType) -> ArrayRef {
        let array = self.rows.column_by_name(column).unwrap_or_else(|| {
            panic!(
                "table {} has no column '{column}', but {:?}",
                self.name,
                self.columns()
            )
        });
        let cast = cast(array, to).unwrap_or_else(|e| panic!("{}.{column}: {e}", self.name));
        // A cast that does not fit gives null, not the value in the file.
        assert_eq!(
            cast.null_count(),
            array.null_count(),
            "{}.{column} is {:?}, not {to:?}",
            self.name,
            array.data_type()
        );
        cast
    }
}

/// Rows of an open segment, up to its last complete footer: those that a reader gets from the file
/// cut there.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
pub fn rows_of_open(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    rows_up_to_footer(&bytes)
}

/// Number of rows up to the last complete footer in these bytes, a truncated file.
fn rows_up_to_footer(bytes: &[u8]) -> usize {
    let ends = (MAGIC.len()..bytes.len()).rev();
    let footers = ends.filter(|at| bytes[*at..].starts_with(MAGIC));
    let rows = |at: usize| {
        let mut cut = tempfile::tempfile().expect("temporary file");
        cut.write_all(&bytes[..at + MAGIC.len()]).expect("room");
        let reader = ParquetRecordBatchReaderBuilder::try_new(cut).ok()?;
        Some(reader.metadata().file_metadata().num_rows() as usize)
    };
    footers.into_iter().find_map(rows).unwrap_or(0)
}

/// Rows of a table in a trace that is being written: all that a reader can have by now.
#[must_use]
pub fn rows_so_far(trace: &Path, name: &str) -> usize {
    let files = std::fs::read_dir(trace.join(name)).into_iter().flatten();
    let rows = |path: PathBuf| {
        if is_open(&path) {
            // It may have been closed in between.
            return Some(rows_up_to_footer(&std::fs::read(path).ok()?));
        }
        path.extension().filter(|end| *end == "parquet")?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).ok()?).ok()?;
        Some(reader.metadata().file_metadata().num_rows() as usize)
    };
    files.flatten().filter_map(|file| rows(file.path())).sum()
}

/// Whether a file is a segment that is being written, or was when its writer died: not closed.
#[must_use]
pub fn is_open(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_suffix(".parquet.open"))
        .is_some_and(|number| !path.with_file_name(format!("{number}.parquet")).exists())
}

/// Closed segments of a table, by name.
///
/// # Panics
/// If the folder cannot be listed.
#[must_use]
pub fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("cannot list {}: {e}", dir.display()))
        .map(|entry| entry.expect("listing goes on").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "parquet"))
        .collect();
    files.sort();
    files
}

fn read(path: &Path) -> Vec<RecordBatch> {
    let file = File::open(path).unwrap_or_else(|e| panic!("cannot open {}: {e}", path.display()));
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap_or_else(|e| panic!("{} is not Parquet: {e}", path.display()));
    let schema = builder.schema().clone();
    let reader = builder.build().expect("the file was understood");
    let mut batches: Vec<RecordBatch> = reader
        .map(|batch| batch.unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display())))
        .collect();
    // A segment without rows still has a schema.
    batches.push(RecordBatch::new_empty(schema));
    batches
}

fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        other => other.clone(),
    }
}
