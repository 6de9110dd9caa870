//! Segments: the files with a table's rows.
//!
//! `TABLE/NNNNNN.parquet.open` grows by complete row groups, each followed by a footer that covers all groups so
//! far: whenever the writer dies, the file is complete up to the last footer. `TABLE/NNNNNN.parquet` is always
//! complete: it is the open file renamed, and later a compacted one in its place.

use std::fs::{self, File};
use std::io::{self, IoSlice, Write as _};
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::schema::types::SchemaDescPtr;

use super::columns::Chunk;
use super::compacted::{ChunkPages, CompactedWriter, Part};
use super::descriptions::of_segment;
use super::files::{Owner, io_cause, remove_if_there};
use super::net::SampleCosts;
use super::prefix::Prefix;
use super::segment_error::SegmentError;
use super::segment_files::{closed_path, open_path};
use super::thrift::check_group;
use crate::files::open_regular;

/// First and last bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// Version of the format in a footer.
const FORMAT: i32 = 2;

/// An open segment being written.
pub(super) struct OpenSegment {
    file: File,
    columns: SchemaDescPtr,
    groups: Vec<RowGroupMetaData>,
    /// Its number within the table.
    pub(super) number: u32,
    /// Rows in the file.
    pub(super) rows: u64,
    /// Bytes in the file: where the last footer ends.
    pub(super) bytes: u64,
}

impl OpenSegment {
    /// Makes the file of a new segment.
    pub(super) fn create(
        folder: &Path,
        number: u32,
        schema: &Schema,
        owner: Owner,
    ) -> Result<Self, SegmentError> {
        Ok(Self {
            columns: Arc::new(ArrowSchemaConverter::new().convert(schema)?),
            file: owner.make_file(&open_path(folder, number))?,
            groups: Vec::new(),
            number,
            rows: 0,
            bytes: 0,
        })
    }

    /// Row groups in the file.
    pub(super) const fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Appends a row group. After a failure the file ends with the group before it.
    pub(super) fn append(&mut self, chunks: &[Chunk<'_>], rows: u64) -> Result<(), SegmentError> {
        match self.write(chunks, rows) {
            Ok(bytes) => {
                self.bytes += bytes;
                self.rows += rows;
                Ok(())
            }
            Err(error) => {
                // A reader would stop before the broken group anyway; this frees its room.
                let _ = self.file.set_len(self.bytes);
                Err(error)
            }
        }
    }

    fn write(&mut self, chunks: &[Chunk<'_>], rows: u64) -> Result<u64, SegmentError> {
        let magic: &[u8] = if self.bytes == 0 { MAGIC } else { &[] };
        let begin = self.bytes + magic.len() as u64;
        let group = group_metadata(&self.columns, chunks, rows, begin)?;
        self.groups.push(group);
        let result = self.footer(rows).map_err(SegmentError::from);
        let result = result.and_then(|footer| {
            let pages = chunks.iter().flat_map(Chunk::slices);
            let mut slices: Vec<IoSlice<'_>> = [magic]
                .into_iter()
                .chain(pages)
                .chain([footer.as_slice()])
                .filter(|bytes| !bytes.is_empty())
                .map(IoSlice::new)
                .collect();
            Ok(write_slices(&mut self.file, &mut slices)?)
        });
        if result.is_err() {
            self.groups.pop();
        }
        result
    }

    /// The footer of all groups, the last of which has `rows` rows.
    fn footer(&self, rows: u64) -> Result<Vec<u8>, ParquetError> {
        let file = FileMetaData::new(
            FORMAT,
            (self.rows + rows) as i64,
            Some(concat!("pebs-trace ", env!("CARGO_PKG_VERSION")).to_owned()),
            None,
            Arc::clone(&self.columns),
            None,
        );
        let metadata = ParquetMetaData::new(file, self.groups.clone());
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
        Ok(footer)
    }
}

/// Metadata of a row group whose chunks are adjacent from `begin` on.
fn group_metadata(
    columns: &SchemaDescPtr,
    chunks: &[Chunk<'_>],
    rows: u64,
    begin: u64,
) -> Result<RowGroupMetaData, ParquetError> {
    let mut at = begin;
    let mut described = Vec::with_capacity(chunks.len());
    for (column, chunk) in columns.columns().iter().zip(chunks) {
        let metadata = chunk.metadata(column, rows, at)?;
        at += metadata.compressed_size() as u64;
        described.push(metadata);
    }
    RowGroupMetaData::builder(Arc::clone(columns))
        .set_num_rows(rows as i64)
        .set_total_byte_size((at - begin) as i64)
        .set_file_offset(begin as i64)
        .set_column_metadata(described)
        .build()
}

/// Writes slices with few system calls; returns their bytes.
fn write_slices(file: &mut File, mut rest: &mut [IoSlice<'_>]) -> io::Result<u64> {
    let bytes = rest.iter().map(|slice| slice.len() as u64).sum();
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Result of recovering an open segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Closed {
    /// Rows in the Parquet file.
    pub(super) rows: u64,
    /// Bytes at the end of the open file that belong to no complete row group.
    pub(super) unread_bytes: u64,
}

/// Closes an open segment by renaming it: the file is valid Parquet already.
///
/// A segment without rows is removed.
///
/// # Errors
/// I/O errors. The segment then stays open.
pub(super) fn close(folder: &Path, number: u32, rows: u64) -> Result<(), SegmentError> {
    let open = open_path(folder, number);
    if rows > 0 {
        fs::rename(open, closed_path(folder, number))?;
    } else {
        remove_if_there(&open)?;
    }
    Ok(())
}

/// Rewrites a closed segment in a smaller form; returns its bytes.
///
/// # Errors
/// I/O errors, and fewer rows than expected. The segment is then unchanged.
pub(super) fn compact(
    path: &Path,
    schema: &SchemaRef,
    owner: Owner,
    expected: u64,
    costs: &SampleCosts,
) -> Result<u64, SegmentError> {
    let mut groups = Groups::open(path, schema)?;
    let first = groups.next_whole(Some(costs))?;
    owner.make_whole(path, |file| {
        match write_all(file, schema, first, &mut groups, Some(costs))? {
            found if found < expected => Err(SegmentError::Short { expected, found }),
            _ => Ok(()),
        }
    })?;
    Ok(fs::metadata(path)?.len())
}

/// Closes a segment whose writer died: its complete row groups are written to a new file, and the open file is
/// removed.
///
/// No file is created for a segment without a complete row group.
///
/// # Errors
/// I/O errors. The open file then still exists, and no closed one does.
pub(super) fn recover(
    folder: &Path,
    number: u32,
    schema: &SchemaRef,
    owner: Owner,
) -> Result<Closed, SegmentError> {
    let open = open_path(folder, number);
    let mut groups = Groups::open(&open, schema)?;
    let first = groups.next_whole(None)?;
    let mut closed = Closed::default();
    if first.is_some() {
        let path = closed_path(folder, number);
        owner.make_whole(&path, |file| {
            closed.rows = write_all(file, &of_segment(schema, number), first, &mut groups, None)?;
            Ok::<_, SegmentError>(())
        })?;
    }
    closed.unread_bytes = groups.file_bytes.saturating_sub(groups.whole_bytes);
    remove_if_there(&open)?;
    Ok(closed)
}

/// Writes row groups to a file; returns their rows.
fn write_all(
    file: &File,
    schema: &SchemaRef,
    first: Option<Group>,
    rest: &mut Groups,
    costs: Option<&SampleCosts>,
) -> Result<u64, SegmentError> {
    let mut writer = CompactedWriter::new(file, schema)?;
    let (mut next, mut rows) = (first, 0);
    while let Some(group) = next {
        rows += group.rows;
        writer.write(&group.chunks, group.rows)?;
        next = rest.next_whole(costs)?;
    }
    writer.close()?;
    Ok(rows)
}

/// Writes a closed segment without rows, so that an empty table can be read.
pub(super) fn write_empty(
    folder: &Path,
    number: u32,
    schema: &SchemaRef,
    owner: Owner,
) -> Result<u64, SegmentError> {
    let path = closed_path(folder, number);
    owner.make_whole::<_, SegmentError>(&path, |file| {
        CompactedWriter::new(file, &of_segment(schema, number))?.close()?;
        Ok(())
    })?;
    Ok(fs::metadata(&path)?.len())
}

/// Whether a file has these columns, ignoring their metadata.
fn has_columns(file: &Schema, expected: &Schema) -> bool {
    let columns = |schema: &Schema| -> Vec<_> {
        let fields = schema.fields().iter();
        fields
            .map(|it| (it.name().clone(), it.data_type().clone(), it.is_nullable()))
            .collect()
    };
    columns(file) == columns(expected)
}

/// A complete row group.
struct Group {
    chunks: Vec<ChunkPages>,
    rows: u64,
}

/// The complete row groups of an open segment's file, which may end anywhere.
struct Groups {
    file: Option<(Prefix, ArrowReaderMetadata)>,
    /// Groups not yet read.
    left: Range<usize>,
    file_bytes: u64,
    whole_bytes: u64,
}

impl Groups {
    fn open(path: &Path, schema: &Schema) -> Result<Self, SegmentError> {
        let file = open_regular(path)?;
        let mut groups = Self {
            file: None,
            left: 0..0,
            file_bytes: file.metadata()?.len(),
            whole_bytes: 0,
        };
        groups.read(Prefix::whole_parquet(file)?, 0)?;
        if let Some((_, metadata)) = &groups.file
            && !has_columns(metadata.schema(), schema)
        {
            return Err(SegmentError::Foreign);
        }
        Ok(groups)
    }

    /// Reads the groups from the `first` on by the last footer of this part of the file. Without a footer there is no
    /// complete row group.
    fn read(&mut self, whole: Option<Prefix>, first: usize) -> Result<(), SegmentError> {
        self.file = None;
        self.whole_bytes = whole.as_ref().map_or(0, Prefix::bytes);
        let Some(whole) = whole else { return Ok(()) };
        let load = || ArrowReaderMetadata::load(&whole, ArrowReaderOptions::new());
        if let Some(metadata) = guarded(load)? {
            self.left = first..metadata.metadata().num_row_groups();
            self.file = Some((whole, metadata));
        }
        Ok(())
    }

    /// The next row group, `None` at the first incomplete one. `costs`: costs of a sample, if visits are to be
    /// recomputed with them.
    fn next_whole(&mut self, costs: Option<&SampleCosts>) -> Result<Option<Group>, SegmentError> {
        let Some((index, mut group)) = self.next_readable()? else {
            return Ok(None);
        };
        let Some((file, metadata)) = &self.file else {
            return Ok(None);
        };
        if let Some(costs) = costs {
            costs.finish(&mut group.chunks, || {
                ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone())
                    .with_row_groups(vec![index])
            })?;
        }
        Ok(Some(group))
    }

    /// Returns the next group that can be read. In one that can't, or in its entry in the footer, bits have flipped: an
    /// earlier footer, which has that entry as well, is used from there on.
    fn next_readable(&mut self) -> Result<Option<(usize, Group)>, SegmentError> {
        let Some(index) = self.left.next() else {
            return Ok(None);
        };
        while let Some((file, metadata)) = &self.file
            && index < metadata.metadata().num_row_groups()
        {
            if let Some(group) = whole_group(file, metadata.metadata().row_group(index))? {
                return Ok(Some((index, group)));
            }
            let earlier = file.earlier()?;
            self.read(earlier, index + 1)?;
        }
        // Nothing more is read after a group that is damaged itself.
        self.file = None;
        Ok(None)
    }
}

/// Reads a row group; `None` if it is incomplete or damaged.
fn whole_group(file: &Prefix, group: &RowGroupMetaData) -> Result<Option<Group>, SegmentError> {
    match check_group(file.file(), group, 0..group.num_columns()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let rows = group.num_rows() as u64;
    guarded(|| {
        let part = Arc::new(Part::of_group(file.file(), group)?);
        let chunks = group.columns().iter();
        let chunks = chunks.map(|chunk| ChunkPages::read(&part, chunk.clone(), rows));
        let chunks = chunks.collect::<Result<_, _>>()?;
        Ok(Group { chunks, rows })
    })
}

/// Runs a step of the Parquet reader; `None` if it panics, as on some flipped bits, or the bytes are invalid.
fn guarded<T>(step: impl FnOnce() -> Result<T, ParquetError>) -> Result<Option<T>, SegmentError> {
    match panic::catch_unwind(AssertUnwindSafe(step)) {
        Ok(result) => readable(result),
        Err(_) => Ok(None),
    }
}

/// `None` if the bytes are invalid or end early; an error if the disk fails.
fn readable<T>(result: Result<T, ParquetError>) -> Result<Option<T>, SegmentError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match io_cause(&error) {
            Some(io) if io.kind() != io::ErrorKind::UnexpectedEof => Err(error.into()),
            _ => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use parquet::basic::{Compression, Encoding};
    use parquet::file::metadata::ColumnChunkMetaData;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    use super::*;
    use crate::store::fixtures::rows;
    use crate::store::options::WriterOptions;
    use crate::store::run::RunInfo;
    use crate::store::schema::Table;
    use crate::store::writer::TraceWriter;

    /// Column chunks of the first segment of a table of a small trace.
    fn chunks(table: Table) -> Vec<ColumnChunkMetaData> {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let info = rows::info();
        let mut writer = TraceWriter::create(&dir, &info, WriterOptions::default()).unwrap();
        rows::write(&mut writer, 0, 1000).unwrap();
        writer.finish(&RunInfo::default()).unwrap();
        let file = File::open(closed_path(&dir.join(table.name()), 0)).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        reader.metadata().row_group(0).columns().to_vec()
    }

    // Times and ids are packed differences, with an index of their pages; functions and addresses have a dictionary.
    #[test]
    fn columns_are_encoded_by_kind() {
        let coded = ["function_id", "ip", "stack_id"];
        for chunk in chunks(Table::Samples) {
            let name = chunk.column_path().string();
            let is_coded = coded.contains(&name.as_str());
            let mut encodings = chunk.encodings();
            let is_delta = encodings.any(|e| e == Encoding::DELTA_BINARY_PACKED);
            assert_eq!(is_delta, !is_coded, "{name}");
            assert_eq!(chunk.dictionary_page_offset().is_some(), is_coded, "{name}");
            let is_small = matches!(chunk.compression(), Compression::ZSTD(_));
            assert!(is_small, "{name}");
            assert!(chunk.statistics().is_some(), "{name}");
            assert!(chunk.offset_index_offset().is_some(), "{name}");
            assert_eq!(chunk.column_index_offset().is_some(), is_delta, "{name}");
        }
    }

    // A time costs less than two bytes, instead of eight.
    #[test]
    fn times_are_small() {
        let chunks = chunks(Table::Samples);
        let times = &chunks[0];
        assert_eq!(times.num_values(), 10_000);
        assert!(times.compressed_size() < 2 * 10_000);
    }
}
