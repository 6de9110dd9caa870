//! Checks the Thrift structures of a Parquet file before they are decoded.
//!
//! The decoder trusts the lengths of lists: a list of a few bytes that claims 2^31 elements costs it seconds, and
//! nested ones hours. Here every list must fit the remaining bytes.
//! Source: Thrift compact protocol; parquet-format, `PageHeader`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

/// Maximum nesting of structures; Parquet has 7.
const DEPTH: u32 = 24;

/// Maximum size of a footer, bytes: that of 10^9 rows is 10 MiB.
const FOOTER_MAX: u64 = 256 << 20;

/// Largest header of a page, bytes: it holds two values of the column, cut to 64 bytes.
const PAGE_HEADER_MAX: usize = 16 << 10;

/// Length of the footer and magic number, at the end of a file.
const TAIL: u64 = 8;

/// Maximum rows of a row group: they may be a few bytes, if all are equal. Writers make up to 2^20.
const GROUP_ROWS_MAX: i64 = 1 << 22;

/// Checks the footer of a file. A file without one is left to the decoder.
///
/// # Errors
/// I/O errors; `InvalidData` for an invalid footer.
pub(super) fn check_footer(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut tail = [0; TAIL as usize];
    let Some(end) = length.checked_sub(TAIL) else {
        return Ok(());
    };
    file.read_exact_at(&mut tail, end)?;
    let [a, b, c, d, ..] = tail;
    let size = u64::from(u32::from_le_bytes([a, b, c, d]));
    let Some(start) = end.checked_sub(size) else {
        return Ok(());
    };
    if size > FOOTER_MAX {
        return Err(wrong("footer"));
    }
    let mut footer = vec![0; size as usize];
    file.read_exact_at(&mut footer, start)?;
    if is_footer(&footer) {
        Ok(())
    } else {
        Err(wrong("footer"))
    }
}

/// Whether the footer at the end of a file in memory can be safely decoded.
pub(super) fn is_tail_sound(file: &[u8]) -> bool {
    let footer = || {
        let (rest, tail) = file.split_last_chunk::<{ TAIL as usize }>()?;
        let [a, b, c, d, ..] = *tail;
        let start = rest
            .len()
            .checked_sub(u32::from_le_bytes([a, b, c, d]) as usize)?;
        rest.get(start..)
    };
    footer().is_some_and(is_footer)
}

/// Whether bytes can be safely decoded as a footer.
pub(super) fn is_footer(bytes: &[u8]) -> bool {
    bytes.len() as u64 <= FOOTER_MAX && Walk::new(bytes).structure(0).is_some()
}

/// Checks the headers of all pages of some columns, and that no row group has too many rows.
///
/// Cost: a read of some hundred bytes per page.
///
/// # Errors
/// As [`check_footer`].
pub(super) fn check_pages(
    file: &File,
    metadata: &ParquetMetaData,
    columns: &[usize],
) -> io::Result<()> {
    let mut groups = metadata.row_groups().iter();
    groups.try_for_each(|group| check_group(file, group, columns.iter().copied()))
}

/// As [`check_pages`], for one row group.
///
/// # Errors
/// As [`check_footer`].
pub(super) fn check_group(
    file: &File,
    group: &RowGroupMetaData,
    columns: impl IntoIterator<Item = usize>,
) -> io::Result<()> {
    let mut buffer = vec![0; PAGE_HEADER_MAX];
    if group.num_rows() > GROUP_ROWS_MAX {
        return Err(wrong("row group"));
    }
    for column in columns {
        let Some(chunk) = group.columns().get(column) else {
            continue;
        };
        if chunk.num_values() > GROUP_ROWS_MAX {
            return Err(wrong("column"));
        }
        // The offset may be out of range; the decoder reports that.
        let first = chunk
            .dictionary_page_offset()
            .unwrap_or(chunk.data_page_offset());
        let first = u64::try_from(first).unwrap_or(u64::MAX);
        let size = u64::try_from(chunk.compressed_size()).unwrap_or(0);
        check_chunk(file, first, first.saturating_add(size), &mut buffer)?;
    }
    Ok(())
}

/// Checks the headers of pages from `at` on up to `end`.
fn check_chunk(file: &File, mut at: u64, end: u64, buffer: &mut [u8]) -> io::Result<()> {
    while at < end {
        let length = file.read_at(buffer, at)?;
        let mut walk = Walk::new(&buffer[..length]);
        if length == 0 {
            break;
        }
        walk.structure(0).ok_or_else(|| wrong("page"))?;
        let page = walk.page_size.ok_or_else(|| wrong("page"))?;
        at = at.saturating_add(walk.at as u64).saturating_add(page);
    }
    Ok(())
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a {what} that can't be"),
    )
}

/// Walks over structures and keeps only the size of a page.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Field 3 of the outermost structure: `compressed_page_size` of a `PageHeader`.
    page_size: Option<u64>,
}

/// The field of the outermost structure that is kept.
const COMPRESSED_PAGE_SIZE: i64 = 3;

impl<'a> Walk<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            page_size: None,
        }
    }

    const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn skip(&mut self, length: u64) -> Option<()> {
        let length = usize::try_from(length).ok()?;
        (length <= self.left()).then(|| self.at += length)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A structure: fields up to a zero byte. `None` if invalid.
    fn structure(&mut self, depth: u32) -> Option<()> {
        if depth > DEPTH {
            return None;
        }
        let mut field: i64 = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = match head >> 4 {
                0 => self.zigzag()?,
                more => field.wrapping_add(i64::from(more)),
            };
            let kind = head & 0xf;
            if depth == 0 && field == COMPRESSED_PAGE_SIZE && kind == I32 {
                self.page_size = Some(u64::try_from(self.zigzag()?).ok()?);
            } else {
                self.value(kind, depth)?;
            }
        }
    }

    fn value(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            // As a field. In lists decoders disagree on their length, and no list here has booleans.
            TRUE | FALSE => Some(()),
            BYTE => self.skip(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.skip(8),
            BINARY => {
                let length = self.varint()?;
                self.skip(length)
            }
            LIST | SET => self.list(depth),
            STRUCT => self.structure(depth + 1),
            _ => None,
        }
    }

    fn list(&mut self, depth: u32) -> Option<()> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            few => u64::from(few),
        };
        let kind = head & 0xf;
        if depth > DEPTH
            || count > self.left() as u64
            || (matches!(kind, TRUE | FALSE) && count > 0)
        {
            return None;
        }
        (0..count).try_for_each(|_| self.value(kind, depth + 1))
    }
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(bytes: &[u8]) -> Option<Option<u64>> {
        let mut walk = Walk::new(bytes);
        walk.structure(0).map(|()| walk.page_size)
    }

    /// Fields of every type are skipped; lists and strings must fit the remaining bytes.
    #[test]
    fn structures() {
        assert_eq!(walk(&[0]), Some(None));
        // 1: i32 0, 3: i32 300 by zigzag, a boolean, a text, a list of two i32, a structure.
        let whole = [
            0x15, 0, 0x25, 0xd8, 0x04, 0x11, 0x18, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0x1c, 0x15, 2,
            0, 0,
        ];
        assert_eq!(walk(&whole), Some(Some(300)));
        for cut in 0..whole.len() {
            assert_eq!(walk(&whole[..cut]), None, "{cut}");
        }
        // A list of 2^31 booleans, one of 2^31 structures, a text of 2^31 bytes.
        for kind in [0xf1, 0xfc] {
            assert_eq!(walk(&[0x19, kind, 0xff, 0xff, 0xff, 0xff, 7, 0, 0]), None);
        }
        assert_eq!(walk(&[0x18, 0xff, 0xff, 0xff, 0xff, 7, 0, 0]), None);
        // Endlessly nested structures.
        assert_eq!(walk(&[0x1c; 100]), None);
    }
}
