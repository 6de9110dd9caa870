//! A column chunk in one encoding, and how its pages are compressed.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array as _, ArrayRef, AsArray as _, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type,
};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType, Type, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::{
    ColumnCloseResult, ColumnWriter, ColumnWriterImpl, get_column_writer,
};
use parquet::data_type as physical;
use parquet::errors::ParquetError;
use parquet::file::properties::{
    DeltaBinaryPackedEncoderOptions, EnabledStatistics, WriterProperties,
};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, Strategy};

use super::differences::{BLOCK, Differences, GROUPS};
use super::streams;
use crate::store::encodings::PAGE_ROWS;

/// Binary logarithm of the places in zstd's table: the least there can be.
const TABLE_LOG: u32 = 6;

/// Bytes that are looked for at least: what is shorter costs more to point at than its bytes do.
const NEAR_BYTES: u32 = 7;

/// Level of zstd for dictionaries, which are small.
const DICTIONARY_LEVEL: i32 = 3;

/// A chunk's bytes, and what a footer says about it.
pub(super) type Chunk = (Bytes, ColumnCloseResult);

/// Writes a chunk in one encoding.
pub(super) struct Writer {
    writer: ColumnWriter<'static>,
    pub(super) nullable: bool,
    pages: Arc<Mutex<Vec<CompressedPage>>>,
}

impl Writer {
    /// Times, as packed differences.
    pub(super) fn times(column: &ColumnDescPtr) -> Result<Self, ParquetError> {
        let nullable = column.max_def_level() > 0;
        let codec = Codec::Differences(Box::new(Differences::new(nullable)?));
        Self::new(column, Some(codec))
    }

    /// Without a codec: by dictionary, not compressed.
    pub(super) fn new(column: &ColumnDescPtr, codec: Option<Codec>) -> Result<Self, ParquetError> {
        let encoding = match codec {
            Some(Codec::Streams { .. }) => Encoding::BYTE_STREAM_SPLIT,
            Some(Codec::Differences(_)) => Encoding::DELTA_BINARY_PACKED,
            _ => Encoding::PLAIN,
        };
        let blocks = DeltaBinaryPackedEncoderOptions::try_new(BLOCK, GROUPS)?;
        let properties = WriterProperties::builder()
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_dictionary_enabled(codec.is_none())
            .set_encoding(encoding)
            .set_delta_binary_packed_encoder_options(blocks)
            .set_compression(Compression::UNCOMPRESSED)
            .build();
        let pages = Arc::default();
        let out = Box::new(Pages {
            pages: Arc::clone(&pages),
            codec,
        });
        Ok(Self {
            writer: get_column_writer(Arc::clone(column), Arc::new(properties), out),
            nullable: column.max_def_level() > 0,
            pages,
        })
    }

    /// Appends rows.
    pub(super) fn write(&mut self, rows: &ArrayRef) -> Result<(), ParquetError> {
        let nullable = self.nullable;
        match &mut self.writer {
            ColumnWriter::Int32ColumnWriter(writer) => {
                let rows = match rows.as_primitive_opt::<UInt32Type>() {
                    Some(rows) => rows.unary::<_, Int32Type>(u32::cast_signed),
                    None => cast(rows, &DataType::Int32)?.as_primitive().clone(),
                };
                write_rows(writer, &rows, nullable)
            }
            ColumnWriter::Int64ColumnWriter(writer) => {
                let rows = match rows.as_primitive_opt::<UInt64Type>() {
                    Some(rows) => rows.unary::<_, Int64Type>(u64::cast_signed),
                    None => cast(rows, &DataType::Int64)?.as_primitive().clone(),
                };
                write_rows(writer, &rows, nullable)
            }
            ColumnWriter::DoubleColumnWriter(writer) => {
                let rows = rows.as_primitive_opt::<Float64Type>();
                let rows = rows.ok_or_else(|| ParquetError::General("no real numbers".to_owned()));
                write_rows(writer, rows?, nullable)
            }
            _ => Err(ParquetError::General("no numbers".to_owned())),
        }
    }

    pub(super) fn chunk(self) -> Result<Chunk, ParquetError> {
        let (pages, close) = self.close()?;
        placed(pages, close)
    }

    /// Its pages, and what a footer says about the chunk.
    pub(super) fn close(self) -> Result<(Vec<CompressedPage>, ColumnCloseResult), ParquetError> {
        let close = self.writer.close()?;
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((std::mem::take(&mut *pages), close))
    }
}

fn write_rows<T, P>(
    writer: &mut ColumnWriterImpl<'_, P>,
    rows: &PrimitiveArray<T>,
    nullable: bool,
) -> Result<(), ParquetError>
where
    T: ArrowPrimitiveType,
    P: physical::DataType<T = T::Native>,
{
    if !nullable {
        writer.write_batch(rows.values(), None, None)?;
        return Ok(());
    }
    let levels: Vec<i16> = (0..rows.len())
        .map(|row| rows.is_valid(row).into())
        .collect();
    if rows.null_count() == 0 {
        writer.write_batch(rows.values(), Some(&levels), None)?;
    } else {
        let values: Vec<_> = rows.iter().flatten().collect();
        writer.write_batch(&values, Some(&levels), None)?;
    }
    Ok(())
}

/// Takes pages in, each compressed if there is something to do it with.
struct Pages {
    pages: Arc<Mutex<Vec<CompressedPage>>>,
    codec: Option<Codec>,
}

/// How a page that has no dictionary is compressed.
pub(super) enum Codec {
    Near(Compressor<'static>),
    /// Byte by byte; `nullable`: pages begin with levels.
    Streams {
        nullable: bool,
    },
    /// Packed differences, or those in whole bytes.
    Differences(Box<Differences>),
}

impl Codec {
    /// That of a column of numbers that repeat.
    pub(super) fn of(column: &ColumnDescPtr) -> io::Result<Self> {
        let nullable = column.max_def_level() > 0;
        match column.physical_type() {
            Type::DOUBLE => Ok(Self::Streams { nullable }),
            _ => Ok(Self::Near(near_compressor()?)),
        }
    }

    fn compressed(&mut self, page: CompressedPage) -> Result<CompressedPage, ParquetError> {
        match self {
            Self::Near(zstd) => compressed(zstd, page),
            Self::Streams { nullable } => {
                let bytes = streams::compressed(&page, *nullable)?;
                Ok(with_bytes(&page, bytes, page.uncompressed_size()))
            }
            Self::Differences(differences) => differences.compressed(page),
        }
    }
}

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec, ParquetError> {
        let mut spec = PageWriteSpec::new();
        (spec.page_type, spec.num_values) = (page.page_type(), page.num_values());
        let page = match &mut self.codec {
            Some(codec) => codec.compressed(page)?,
            None => page,
        };
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.push(page);
        Ok(spec)
    }

    fn close(&mut self) -> Result<(), ParquetError> {
        Ok(())
    }
}

/// zstd that finds what is near.
pub(super) fn near_compressor() -> io::Result<Compressor<'static>> {
    let mut zstd = Compressor::new(1)?;
    zstd.set_parameter(CParameter::Strategy(Strategy::ZSTD_fast))?;
    zstd.set_parameter(CParameter::HashLog(TABLE_LOG))?;
    zstd.set_parameter(CParameter::MinMatch(NEAR_BYTES))?;
    Ok(zstd)
}

/// Compresses the pages of a chunk, each data page by `zstd`.
pub(super) fn compressed_chunk(
    pages: Vec<CompressedPage>,
    mut zstd: Compressor<'_>,
) -> Result<Vec<CompressedPage>, ParquetError> {
    let mut dictionary = Compressor::new(DICTIONARY_LEVEL)?;
    let pages = pages.into_iter().map(|page| match page.page_type() {
        PageType::DICTIONARY_PAGE => compressed(&mut dictionary, page),
        _ => compressed(&mut zstd, page),
    });
    pages.collect()
}

/// The page compressed, which it was not.
pub(super) fn compressed(
    zstd: &mut Compressor<'_>,
    page: CompressedPage,
) -> Result<CompressedPage, ParquetError> {
    let bytes = zstd.compress(page.data())?;
    Ok(with_bytes(&page, bytes, page.uncompressed_size()))
}

/// A page with other bytes, of so many when uncompressed.
pub(super) fn with_bytes(page: &CompressedPage, bytes: Vec<u8>, size: usize) -> CompressedPage {
    let mut page = page.compressed_page().clone();
    if let Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } = &mut page {
        *buf = bytes.into();
    }
    CompressedPage::new(page, size)
}

/// Puts pages one behind the other, and says in the description of the chunk where they are then.
pub(super) fn placed(
    pages: Vec<CompressedPage>,
    mut close: ColumnCloseResult,
) -> Result<Chunk, ParquetError> {
    let mut sink = TrackedWrite::new(Vec::new());
    let mut writer = SerializedPageWriter::new(&mut sink);
    let index = close.offset_index.as_mut();
    let mut locations = index.into_iter().flat_map(|it| &mut it.page_locations);
    let (mut data_begin, mut dictionary_begin, mut uncompressed) = (None, None, 0);
    for page in pages {
        let is_data = page.compressed_page().is_data_page();
        let spec = writer.write_page(page)?;
        uncompressed += spec.uncompressed_size;
        if !is_data {
            dictionary_begin = Some(spec.offset as i64);
            continue;
        }
        data_begin = data_begin.or(Some(spec.offset as i64));
        if let Some(location) = locations.next() {
            location.offset = spec.offset as i64;
            location.compressed_page_size = spec.compressed_size as i32;
        }
    }
    let bytes = sink.into_inner()?;
    close.bytes_written = bytes.len() as u64;
    close.metadata = close
        .metadata
        .into_builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_dictionary_page_offset(dictionary_begin)
        .set_data_page_offset(data_begin.unwrap_or(0))
        .set_total_compressed_size(bytes.len() as i64)
        .set_total_uncompressed_size(uncompressed as i64)
        .build()?;
    Ok((bytes.into(), close))
}
