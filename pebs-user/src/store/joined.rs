//! Joins segments of a table into one file, for places where many small files cost more than few large ones.
//!
//! Row groups are copied as they are: nothing is decoded, and the same segments give the same bytes.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::read_error::ReadError;
use super::scan::{guarded, open_parquet};
use crate::files::open_regular;

/// Bytes of a joined file at most, unless a segment alone is larger: it is held in memory.
const PART_BYTES: u64 = 32 << 20;

/// Segments of a table that become one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// In their order, at least one.
    pub segments: Vec<PathBuf>,
    pub rows: u64,
    pub bytes: u64,
}

/// Divides segments into parts; those without rows are left out.
///
/// # Errors
/// A segment is damaged.
pub(crate) fn parts(segments: &[PathBuf]) -> Result<Vec<Part>, ReadError> {
    let mut parts: Vec<Part> = Vec::new();
    let mut last_schema = None;
    for path in segments {
        let builder = open_parquet(path)?;
        let file = builder.metadata().file_metadata();
        let rows = u64::try_from(file.num_rows()).map_err(|it| ReadError::damaged(path, it))?;
        if rows == 0 {
            continue;
        }
        let bytes = open_regular(path).and_then(|it| it.metadata());
        let bytes = bytes.map_err(|it| ReadError::io(path, it))?.len();
        let schema = file.schema_descr().root_schema_ptr();
        let is_same = last_schema.as_ref() == Some(&schema);
        match parts.last_mut() {
            Some(part) if is_same && part.bytes + bytes <= PART_BYTES => {
                part.segments.push(path.clone());
                part.rows += rows;
                part.bytes += bytes;
            }
            _ => parts.push(Part {
                segments: vec![path.clone()],
                rows,
                bytes,
            }),
        }
        last_schema = Some(schema);
    }
    Ok(parts)
}

/// The file of these segments, which have one schema.
///
/// # Errors
/// A segment is damaged.
pub(crate) fn join(segments: &[PathBuf]) -> Result<Vec<u8>, ReadError> {
    let mut joined: Option<SerializedFileWriter<Vec<u8>>> = None;
    let mut last: &Path = Path::new("");
    for path in segments {
        let builder = open_parquet(path)?;
        let file = open_regular(path).map_err(|it| ReadError::io(path, it))?;
        let metadata = builder.metadata();
        guarded(path, || {
            let writer = match &mut joined {
                Some(writer) => writer,
                none => none.insert(begin(metadata)?),
            };
            append(writer, &file, metadata)
        })?;
        last = path;
    }
    let close = || joined.map_or_else(|| Ok(Vec::new()), SerializedFileWriter::into_inner);
    guarded(last, close)
}

/// An empty file like that of a segment.
fn begin(like: &ParquetMetaData) -> Result<SerializedFileWriter<Vec<u8>>, ParquetError> {
    let file = like.file_metadata();
    let properties = WriterProperties::builder()
        .set_key_value_metadata(file.key_value_metadata().cloned())
        .set_created_by(file.created_by().unwrap_or_default().to_owned())
        .build();
    let schema = file.schema_descr().root_schema_ptr();
    SerializedFileWriter::new(Vec::new(), schema, properties.into())
}

fn append(
    writer: &mut SerializedFileWriter<Vec<u8>>,
    file: &File,
    metadata: &ParquetMetaData,
) -> Result<(), ParquetError> {
    for group in metadata.row_groups() {
        let mut to = writer.next_row_group()?;
        for column in group.columns() {
            let close = ColumnCloseResult {
                bytes_written: u64::try_from(column.compressed_size()).unwrap_or(0),
                rows_written: u64::try_from(group.num_rows()).unwrap_or(0),
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            to.append_column(file, close)?;
        }
        to.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::rows::{self, complete, info};
    use super::super::options::WriterOptions;
    use super::super::reader::Trace;
    use super::super::table::Table;
    use super::super::writer::TraceWriter;
    use super::*;
    use std::time::Duration;

    /// A joined file has the rows of its segments in their order, and the same segments give the same file.
    #[test]
    fn rows_stay() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("t");
        let mut writer = TraceWriter::create(&dir, &info(), WriterOptions::default()).unwrap();
        rows::write(&mut writer, 0, 10).unwrap();
        writer.tick(Duration::from_secs(10)).unwrap();
        rows::write(&mut writer, 10, 20).unwrap();
        writer.finish(&complete()).unwrap();
        let trace = Trace::open(&dir).unwrap();
        let batches = |trace: &Trace, table| {
            let schema = trace.schema(table);
            let names: Vec<&str> = schema.fields().iter().map(|it| &**it.name()).collect();
            let scan = trace.scan(table, &names).unwrap();
            arrow_select::concat::concat_batches(
                &schema,
                &scan.map(Result::unwrap).collect::<Vec<_>>(),
            )
            .unwrap()
        };
        for table in Table::ALL {
            let segments = trace.segments(table).to_vec();
            let parts = parts(&segments).unwrap();
            let before = batches(&trace, table);
            assert_eq!(
                parts.iter().map(|it| it.rows).sum::<u64>(),
                before.num_rows() as u64
            );
            let Some(part) = parts.first() else { continue };
            assert_eq!(parts.len(), 1);
            let file = join(&part.segments).unwrap();
            assert_eq!(file, join(&part.segments).unwrap());
            for segment in &segments {
                std::fs::remove_file(segment).unwrap();
            }
            std::fs::write(&segments[0], file).unwrap();
            assert_eq!(batches(&Trace::open(&dir).unwrap(), table), before);
        }
    }

    /// A damaged segment is an error that names it.
    #[test]
    fn damaged() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("000000.parquet");
        std::fs::write(&path, "PAR1 or not").unwrap();
        let error = parts(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains("000000.parquet"), "{error}");
        assert!(join(&[path]).is_err());
    }
}
