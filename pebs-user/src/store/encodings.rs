//! How the columns of a compacted segment are encoded.

use arrow::datatypes::{DataType, Field, Schema};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{
    DeltaBinaryPackedEncoderOptions, EnabledStatistics, WriterProperties,
};
use parquet::schema::types::ColumnPath;

/// Rows of a Parquet page at most.
pub(super) const PAGE_ROWS: usize = 64 * 1024;

/// How the columns of a table are encoded, but for those that [`repeats`].
///
/// What rises (times, visit and item ids) as packed differences, each group of 32 by itself, all else by dictionary.
/// Then zstd level 1.
/// Source: measurements in bytes a row, on 9 M synthetic samples and 273,000 of redis-server: times 1.5..2.3,
/// 1.8..2.8 without [`super::order`] and in groups of 64, 2.1..2.8 as they are with zstd at its best.
pub(super) fn properties(schema: &Schema) -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_delta_binary_packed_encoder_options(DeltaBinaryPackedEncoderOptions::try_new(128, 4)?)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?));
    for field in schema.fields() {
        let encoding = match field.data_type() {
            kind if kind.is_integer() => Encoding::DELTA_BINARY_PACKED,
            _ => continue,
        };
        let column = ColumnPath::new(vec![field.name().clone()]);
        builder = builder
            .set_column_encoding(column.clone(), encoding)
            .set_column_dictionary_enabled(column, false);
    }
    Ok(builder.build())
}

/// Whether a column has numbers that don't mostly rise from row to row.
pub(super) fn repeats(field: &Field) -> bool {
    const RISING: [&str; 7] = [
        "time_ns", "begin_ns", "end_ns", "first_ns", "last_ns", "visit_id", "item_id",
    ];
    let kind = field.data_type();
    (kind.is_integer() || *kind == DataType::Float64) && !RISING.contains(&field.name().as_str())
}
