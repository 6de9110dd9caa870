//! Compacted segments: the pages of a closed segment, compressed as they are, in fewer row groups.
//!
//! No value is decoded. Row groups are joined where each column's dictionary begins with the dictionary of the group
//! before, as [`super::pages`] makes them; the last dictionary then serves all.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use bytes::{Buf as _, Bytes, buf::Reader};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, SortOrder, Type, ZstdLevel};
use parquet::column::page::Page;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnIndexBuilder, RowGroupMetaData};
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::file::properties::{ReaderProperties, WriterProperties};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, Strategy};

use super::columns::Chunk;
use super::descriptions::key_values;
use super::pages::{PageKind, PageStatistics, header};

/// Maximum rows of a row group, unless one source group has more.
const GROUP_ROWS: u64 = 1 << 20;

/// zstd level of data pages.
const LEVEL: i32 = 1;

/// zstd level of dictionaries, which are small.
const DICTIONARY_LEVEL: i32 = 3;

/// For pages of indices: log2 of the size of zstd's hash table (the smallest possible), and the minimum length of a
/// match. With these zstd finds repetitions of the rows just before and hardly any others: for matches farther back the
/// encoded distance costs about what the match saves, and the search takes a quarter more time.
///
/// Source: measurements, bytes per index at level 1 and with these: functions of a synthetic stream 0.56 and 0.49, of a
/// server 0.42 and 0.45; its addresses 0.55 and 0.57; its counts 0.53 and 0.47.
const INDICES: (u32, u32) = (6, 7);

/// Part of a file in memory, addressed by offsets in the file.
pub(super) struct Part {
    begin: u64,
    bytes: Bytes,
}

impl Part {
    /// The bytes of a row group.
    pub(super) fn of_group(file: &File, group: &RowGroupMetaData) -> io::Result<Self> {
        let ranges = || group.columns().iter().map(ColumnChunkMetaData::byte_range);
        let begin = ranges().map(|(begin, _)| begin).min().unwrap_or(0);
        let end = ranges().map(|(begin, bytes)| begin + bytes).max();
        let mut bytes = vec![0; (end.unwrap_or(begin) - begin) as usize];
        file.read_exact_at(&mut bytes, begin)?;
        let bytes = bytes.into();
        Ok(Self { begin, bytes })
    }

    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let begin = start.checked_sub(self.begin).map(|it| it as usize);
        let begin = begin.filter(|begin| *begin <= self.bytes.len());
        let begin = begin.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(self.bytes.slice(begin..))
    }
}

impl From<Vec<u8>> for Part {
    fn from(bytes: Vec<u8>) -> Self {
        let bytes = bytes.into();
        Self { begin: 0, bytes }
    }
}

impl Length for Part {
    fn len(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }
}

impl ChunkReader for Part {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let rest = self.from(start)?;
        match length <= rest.len() {
            true => Ok(rest.slice(..length)),
            false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

/// An uncompressed data page.
struct DataPage {
    bytes: Bytes,
    values: u32,
    encoding: Encoding,
    statistics: Option<PageStatistics>,
}

/// An uncompressed dictionary page.
#[derive(Clone, Default)]
struct Dictionary {
    bytes: Bytes,
    values: u32,
}

impl Dictionary {
    /// The longer of two dictionaries, if it begins with the other; else `None`.
    fn longer<'a>(&'a self, other: &'a Self) -> Option<&'a Self> {
        let (short, long) = match self.bytes.len() <= other.bytes.len() {
            true => (self, other),
            false => (other, self),
        };
        long.bytes.starts_with(&short.bytes).then_some(long)
    }
}

/// The pages of a column chunk, with verified checksums.
pub(super) struct ChunkPages {
    metadata: ColumnChunkMetaData,
    dictionary: Option<Dictionary>,
    pages: Vec<DataPage>,
}

impl ChunkPages {
    /// Splits a chunk into its pages.
    ///
    /// # Errors
    /// If bytes are invalid, or a checksum is wrong.
    pub(super) fn read(
        part: &Arc<Part>,
        metadata: ColumnChunkMetaData,
        rows: u64,
    ) -> Result<Self, ParquetError> {
        let properties = ReaderProperties::builder()
            .set_read_page_statistics(true)
            .build();
        let reader = SerializedPageReader::new_with_properties(
            Arc::clone(part),
            &metadata,
            rows as usize,
            None,
            Arc::new(properties),
        )?;
        let (mut dictionary, mut pages) = (None, Vec::new());
        for page in reader {
            match page? {
                Page::DictionaryPage {
                    buf, num_values, ..
                } if pages.is_empty() => {
                    dictionary = Some(Dictionary {
                        bytes: buf,
                        values: num_values,
                    });
                }
                Page::DataPage {
                    buf,
                    num_values,
                    encoding,
                    statistics,
                    ..
                } => pages.push(DataPage {
                    bytes: buf,
                    values: num_values,
                    encoding,
                    statistics: statistics.as_ref().and_then(of_page),
                }),
                _ => return Err(ParquetError::General("a page out of place".to_owned())),
            }
        }
        let values: i64 = pages.iter().map(|page| i64::from(page.values)).sum();
        if values != metadata.num_values() {
            return Err(ParquetError::EOF("pages are missing".to_owned()));
        }
        Ok(Self {
            metadata,
            dictionary,
            pages,
        })
    }

    /// Name of the column.
    pub(super) fn name(&self) -> String {
        self.metadata.column_path().string()
    }

    /// The same column with the `rows` values of `chunk` instead.
    pub(super) fn replaced(&self, chunk: &Chunk<'_>, rows: u64) -> Result<Self, ParquetError> {
        let column = self.metadata.column_descr_ptr();
        let bytes: Vec<u8> = chunk.slices().flatten().copied().collect();
        Self::read(
            &Arc::new(bytes.into()),
            chunk.metadata(&column, rows, 0)?,
            rows,
        )
    }
}

/// Statistics of a page; `None` if there are none of a supported type.
fn of_page(statistics: &Statistics) -> Option<PageStatistics> {
    let nulls = statistics.null_count_opt()? as u32;
    let (range, bytes) = match statistics {
        Statistics::Int32(it) => {
            let wide = |it: Option<&i32>| it.copied().map(i64::from);
            (wide(it.min_opt()).zip(wide(it.max_opt())), 4)
        }
        Statistics::Int64(it) => (it.min_opt().copied().zip(it.max_opt().copied()), 8),
        _ => return None,
    };
    Some(PageStatistics {
        range,
        bytes,
        nulls,
    })
}

/// A compacted segment being written.
pub(super) struct CompactedWriter<'a> {
    file: SerializedFileWriter<&'a File>,
    zstd: Zstd,
    columns: Vec<Column>,
    /// Rows of the current row group.
    rows: u64,
}

/// A zstd compressor for each kind of page, and a buffer.
struct Zstd {
    data: Compressor<'static>,
    indices: Compressor<'static>,
    dictionary: Compressor<'static>,
    room: Vec<u8>,
}

impl<'a> CompactedWriter<'a> {
    pub(super) fn new(file: &'a File, schema: &SchemaRef) -> Result<Self, ParquetError> {
        let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties(schema)))?;
        let (file, _) = writer.into_serialized_writer()?;
        let columns = file.schema_descr().columns().iter();
        Ok(Self {
            columns: columns.map(Column::new).collect(),
            file,
            zstd: Zstd::new()?,
            rows: 0,
        })
    }

    /// Appends a row group; `chunks`: one per column.
    pub(super) fn write(&mut self, chunks: &[ChunkPages], rows: u64) -> Result<(), ParquetError> {
        let mut pairs = self.columns.iter().zip(chunks);
        let is_joined =
            self.rows + rows <= GROUP_ROWS && pairs.all(|(column, chunk)| column.joins(chunk));
        if !is_joined {
            self.end_group()?;
        }
        for (column, chunk) in self.columns.iter_mut().zip(chunks) {
            column.add(chunk, &mut self.zstd)?;
        }
        self.rows += rows;
        Ok(())
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            let (bytes, close) = column.close(self.rows, &mut self.zstd)?;
            group.append_column(&bytes, close)?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    /// Writes the last row group and the footer.
    pub(super) fn close(mut self) -> Result<(), ParquetError> {
        self.end_group()?;
        self.file.close()?;
        Ok(())
    }
}

fn properties(schema: &Schema) -> WriterProperties {
    WriterProperties::builder()
        .set_key_value_metadata(key_values(schema))
        .build()
}

/// A column of the current row group.
struct Column {
    description: ColumnDescPtr,
    dictionary: Option<Dictionary>,
    /// Data pages, compressed, with their headers.
    bytes: Vec<u8>,
    /// Size of `bytes` before compression.
    uncompressed: usize,
    values: i64,
    encodings: Vec<Encoding>,
    statistics: Option<Statistics>,
    pages: Vec<PageLocation>,
    /// Statistics of each page; `None` if a page has none.
    index: Option<Vec<PageStatistics>>,
}

impl Column {
    fn new(description: &ColumnDescPtr) -> Self {
        Self {
            description: Arc::clone(description),
            dictionary: None,
            bytes: Vec::new(),
            uncompressed: 0,
            values: 0,
            encodings: Vec::new(),
            statistics: None,
            pages: Vec::new(),
            index: Some(Vec::new()),
        }
    }

    /// Whether one dictionary can serve the column and this chunk.
    fn joins(&self, chunk: &ChunkPages) -> bool {
        match (&self.dictionary, &chunk.dictionary) {
            (Some(ours), Some(other)) => ours.longer(other).is_some(),
            _ => true,
        }
    }

    /// Adds a chunk for which [`Column::joins`] is true.
    fn add(&mut self, chunk: &ChunkPages, zstd: &mut Zstd) -> Result<(), ParquetError> {
        if let Some(dictionary) = &chunk.dictionary {
            let ours = self.dictionary.take().unwrap_or_default();
            self.dictionary = ours.longer(dictionary).cloned();
        }
        let metadata = &chunk.metadata;
        for encoding in metadata.encodings() {
            if !self.encodings.contains(&encoding) {
                self.encodings.push(encoding);
            }
        }
        let is_unsigned = self.description.sort_order() == SortOrder::UNSIGNED;
        self.statistics = match (self.statistics.take(), metadata.statistics()) {
            (Some(ours), Some(more)) => joined(&ours, more, is_unsigned),
            (None, first) if self.values == 0 => first.cloned(),
            _ => None,
        };
        for page in &chunk.pages {
            self.push(page, zstd)?;
        }
        Ok(())
    }

    fn push(&mut self, page: &DataPage, zstd: &mut Zstd) -> Result<(), ParquetError> {
        let offset = self.bytes.len();
        let statistics = page.statistics.as_ref();
        let kind = PageKind::Data { statistics };
        self.uncompressed += zstd.put(
            &mut self.bytes,
            kind,
            page.values,
            page.encoding,
            &page.bytes,
        )?;
        self.pages.push(PageLocation {
            offset: offset as i64,
            compressed_page_size: (self.bytes.len() - offset) as i32,
            first_row_index: self.values,
        });
        self.values += i64::from(page.values);
        match (&mut self.index, &page.statistics) {
            (Some(index), Some(statistics)) => index.push(statistics.clone()),
            (index, _) => *index = None,
        }
        Ok(())
    }

    /// The chunk of `rows` rows and its footer entry. The column is empty afterwards.
    fn close(
        &mut self,
        rows: u64,
        zstd: &mut Zstd,
    ) -> Result<(Bytes, ColumnCloseResult), ParquetError> {
        let Self {
            description,
            dictionary,
            bytes: data,
            mut uncompressed,
            values,
            encodings,
            statistics,
            mut pages,
            index,
        } = std::mem::replace(self, Self::new(&Arc::clone(&self.description)));
        let mut bytes = Vec::with_capacity(data.len());
        if let Some(dictionary) = &dictionary {
            let kind = PageKind::Dictionary;
            uncompressed += zstd.put(
                &mut bytes,
                kind,
                dictionary.values,
                Encoding::PLAIN,
                &dictionary.bytes,
            )?;
        }
        let first = bytes.len() as i64;
        bytes.extend_from_slice(&data);
        pages.iter_mut().for_each(|page| page.offset += first);
        let mut metadata = ColumnChunkMetaData::builder(Arc::clone(&description))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_encodings(encodings)
            .set_num_values(values)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(uncompressed as i64)
            .set_dictionary_page_offset(dictionary.map(|_| 0))
            .set_data_page_offset(first);
        if let Some(statistics) = statistics {
            metadata = metadata.set_statistics(statistics);
        }
        // Without decoding the levels, the first row of a page of lists is unknown: no index.
        let is_flat = description.max_rep_level() == 0;
        let index = index.filter(|_| is_flat);
        let size = bytes.len() as u64;
        Ok((
            bytes.into(),
            ColumnCloseResult {
                bytes_written: size,
                rows_written: rows,
                metadata: metadata.build()?,
                bloom_filter: None,
                column_index: match index {
                    Some(index) => Some(page_index(description.physical_type(), index).build()?),
                    None => None,
                },
                offset_index: is_flat.then_some(OffsetIndexMetaData {
                    page_locations: pages,
                    unencoded_byte_array_data_bytes: None,
                }),
            },
        ))
    }
}

/// The column index of pages.
fn page_index(physical: Type, pages: Vec<PageStatistics>) -> ColumnIndexBuilder {
    let mut index = ColumnIndexBuilder::new(physical);
    for page in pages {
        let bytes = |value: i64| value.to_le_bytes()[..page.bytes].to_vec();
        let range = page.range.map(|(low, high)| (bytes(low), bytes(high)));
        let is_null = range.is_none();
        let (low, high) = range.unwrap_or_default();
        index.append(is_null, low, high, i64::from(page.nulls), None);
    }
    index
}

impl Zstd {
    fn new() -> io::Result<Self> {
        let mut indices = Compressor::new(LEVEL)?;
        indices.set_parameter(CParameter::Strategy(Strategy::ZSTD_fast))?;
        indices.set_parameter(CParameter::HashLog(INDICES.0))?;
        indices.set_parameter(CParameter::MinMatch(INDICES.1))?;
        Ok(Self {
            data: Compressor::new(LEVEL)?,
            indices,
            dictionary: Compressor::new(DICTIONARY_LEVEL)?,
            room: Vec::new(),
        })
    }

    /// Appends a compressed page with its header; returns its uncompressed size, bytes.
    fn put(
        &mut self,
        out: &mut Vec<u8>,
        kind: PageKind<'_>,
        values: u32,
        encoding: Encoding,
        content: &[u8],
    ) -> io::Result<usize> {
        self.room.clear();
        self.room
            .reserve(zstd::zstd_safe::compress_bound(content.len()));
        let zstd = match (kind, encoding) {
            (PageKind::Dictionary, _) => &mut self.dictionary,
            (PageKind::Data { .. }, Encoding::RLE_DICTIONARY) => &mut self.indices,
            (PageKind::Data { .. }, _) => &mut self.data,
        };
        zstd.compress_to_buffer(content, &mut self.room)?;
        let begin = out.len();
        header(
            out,
            kind,
            values,
            encoding,
            [&self.room[..], &[]],
            content.len(),
        );
        let head = out.len() - begin;
        out.extend_from_slice(&self.room);
        Ok(head + content.len())
    }
}

/// Statistics of two chunks together; `None` if their types differ.
fn joined(a: &Statistics, b: &Statistics, is_unsigned: bool) -> Option<Statistics> {
    let nulls = a.null_count_opt().zip(b.null_count_opt());
    let nulls = nulls.map(|(a, b)| a + b);
    Some(match (a, b) {
        (Statistics::Int32(a), Statistics::Int32(b)) => {
            let order = |it: &i32| match is_unsigned {
                true => i64::from(it.cast_unsigned()),
                false => i64::from(*it),
            };
            let min = [a.min_opt(), b.min_opt()];
            let (min, max) = range(min, [a.max_opt(), b.max_opt()], order);
            Statistics::int32(min, max, None, nulls, false)
        }
        (Statistics::Int64(a), Statistics::Int64(b)) => {
            let order = |it: &i64| match is_unsigned {
                true => i128::from(it.cast_unsigned()),
                false => i128::from(*it),
            };
            let min = [a.min_opt(), b.min_opt()];
            let (min, max) = range(min, [a.max_opt(), b.max_opt()], order);
            Statistics::int64(min, max, None, nulls, false)
        }
        (Statistics::Double(_), Statistics::Double(_)) => {
            Statistics::double(None, None, None, nulls, false)
        }
        (Statistics::Boolean(_), Statistics::Boolean(_)) => {
            Statistics::boolean(None, None, None, nulls, false)
        }
        (Statistics::ByteArray(_), Statistics::ByteArray(_)) => {
            Statistics::byte_array(None, None, None, nulls, false)
        }
        _ => return None,
    })
}

/// Smallest and largest of four values, those of two chunks; `None` for a chunk of nulls.
fn range<T: Copy, K: Ord>(
    smallest: [Option<&T>; 2],
    largest: [Option<&T>; 2],
    order: impl Fn(&T) -> K,
) -> (Option<T>, Option<T>) {
    let smallest = smallest.into_iter().flatten().copied();
    let largest = largest.into_iter().flatten().copied();
    (smallest.min_by_key(&order), largest.max_by_key(&order))
}

#[cfg(test)]
mod tests;
