//! Real numbers byte by byte, compressed so that the first bytes have a code of their own, and so has each after them.
//!
//! zstd has one code for all bytes of a block. Blocks here end where a stream of bytes does. Whole numbers are not
//! written so, as DuckDB 1 does not read them.
//!
//! Source: parquet-format, Encodings.md, "Byte Stream Split".

use std::io::{self, Write as _};

use parquet::column::page::CompressedPage;
use zstd::stream::write::Encoder;

/// Streams of a page, which are the bytes of a number.
const STREAMS: usize = 8;

/// Level of zstd: streams have little in them that repeats.
const LEVEL: i32 = 1;

/// The bytes of a page compressed. `nullable`: it begins with levels.
pub(super) fn compressed(page: &CompressedPage, nullable: bool) -> io::Result<Vec<u8>> {
    let bytes = page.data();
    let levels = match bytes.first_chunk() {
        Some(length) if nullable => 4 + u32::from_le_bytes(*length) as usize,
        _ => 0,
    };
    let (levels, streams) = bytes.split_at(levels.min(bytes.len()));
    let mut zstd = Encoder::new(Vec::new(), LEVEL)?;
    zstd.set_pledged_src_size(Some(bytes.len() as u64))?;
    zstd.write_all(levels)?;
    for stream in streams.chunks((streams.len() / STREAMS).max(1)) {
        zstd.write_all(stream)?;
        zstd.flush()?;
    }
    zstd.finish()
}
