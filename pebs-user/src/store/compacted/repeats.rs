//! A column chunk of numbers that repeat: addresses, functions, counts, durations, estimates.
//!
//! Three encodings compete for each chunk: a dictionary with packed indices; one whose indices are whole bytes, as zstd
//! finds nothing in packed ones, and pairs of [`digits`](super::digits) where they have two; and the numbers without a
//! dictionary. Those are whole ones as they are, which is smaller where most of a number's bytes are those of the one
//! before it, and real ones as [`streams`](super::streams).
//!
//! But for packed indices and streams, zstd looks for what repeats with a table of 64 places, so that it finds the rows
//! just before and hardly anything else: of what lies farther back the distances cost more than they save, and level 1
//! with its large table takes as long.
//! Source: measurements, bits a number, synthetic (300 functions) and `redis-server`: functions of samples 3.8 and 4.3
//! (with indices counted through instead of pairs 4.4 and 4.9), addresses 10.2 and 5.9 (10.2, 6.6), spans 10.9 and 3.7
//! (11.9, 4.2), estimates 14.3 and 14.6 (byte by byte with codes across streams 15.7, 16.6).

use arrow::array::ArrayRef;
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use super::chunk::{Chunk, Codec, Writer, compressed_chunk, near_compressor, placed};
use super::indices;

/// The column of a row group, in every encoding.
pub(super) struct Repeats {
    dictionary: Writer,
    plain: Writer,
}

impl Repeats {
    pub(super) fn new(column: &ColumnDescPtr) -> Result<Self, ParquetError> {
        Ok(Self {
            dictionary: Writer::new(column, None)?,
            plain: Writer::new(column, Some(Codec::of(column)?))?,
        })
    }

    /// Appends rows.
    pub(super) fn write(&mut self, rows: &ArrayRef) -> Result<(), ParquetError> {
        self.dictionary.write(rows)?;
        self.plain.write(rows)
    }

    /// The smallest chunk.
    pub(super) fn close(self) -> Result<Chunk, ParquetError> {
        let nullable = self.plain.nullable;
        let plain = self.plain.chunk()?;
        let (packed, close) = self.dictionary.close()?;
        let wide = indices::widened(&packed, nullable)?;
        let packed = compressed_chunk(packed, Compressor::new(1)?)?;
        let mut best = smaller(plain, placed(packed, close.clone())?);
        if let Some(wide) = wide {
            let wide = compressed_chunk(wide, near_compressor()?)?;
            best = smaller(best, placed(wide, close)?);
        }
        Ok(best)
    }
}

fn smaller(a: Chunk, b: Chunk) -> Chunk {
    if b.0.len() < a.0.len() { b } else { a }
}
