//! Parquet pages, encoded as the values come.
//!
//! A general writer buffers values, chooses encodings and builds dictionaries; that costs several times what the other
//! stages do together. Here the data is known: numbers that rise or repeat. So there is one encoding for integers that
//! rise or stay ([`delta`]), one for addresses ([`addresses`]), one for functions, counts, durations and errors
//! ([`coded`]), and plain values for the rest ([`plain`]). No codec: the pages of closed segments are compressed later,
//! as they are, by another thread than the one that takes records.
//!
//! Invariant: any Parquet reader can read these pages; the tests compare with several. Source: the Parquet format,
//! <https://parquet.apache.org/docs/file-format/>: `Encodings.md`, `parquet.thrift`.

pub(super) mod addresses;
mod block;
pub(super) mod coded;
pub(super) mod delta;
mod delta32;
mod indices;
mod integer;
pub(super) mod levels;
mod pack;
pub(super) mod plain;
mod room;

use parquet::basic::Encoding;

/// Maximum non-null values in a data page: one and 511 blocks of 128 differences.
const PAGE_VALUES: usize = 1 + 511 * pack::BLOCK;

/// A zeroed table, allocated on the heap without passing through the stack: what of it is not used takes no memory.
fn zeros<T: Copy + Default, const N: usize>() -> Box<[T; N]> {
    let Ok(zeros) = vec![T::default(); N].into_boxed_slice().try_into() else {
        unreachable!("there are as many");
    };
    zeros
}

/// Kind of page.
#[derive(Clone, Copy, Debug)]
pub(super) enum PageKind<'a> {
    Data {
        statistics: Option<&'a PageStatistics>,
    },
    Dictionary,
}

/// Statistics in a page's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageStatistics {
    /// Smallest and largest value in stored form; `None`: all are null.
    pub(super) range: Option<(i64, i64)>,
    /// Size of a value, bytes.
    pub(super) bytes: usize,
    pub(super) nulls: u32,
}

/// A page in its final form.
#[derive(Debug, Default)]
struct Page {
    /// The header, and the bytes that are known only at the page's end.
    head: Vec<u8>,
    /// The other bytes, not copied until they go to the file.
    body: Vec<u8>,
}

/// The pages of a column chunk so far, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Pages in use, followed by spare ones.
    pages: Vec<Page>,
    used: usize,
    bytes: usize,
    /// Buffer for the bytes before the values, used within [`Pages::end`].
    begin: Vec<u8>,
}

impl Pages {
    /// Bytes of the finished pages.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of the finished pages, in order.
    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let pages = self.pages[..self.used].iter();
        pages.flat_map(|page| [page.head.as_slice(), page.body.as_slice()])
    }

    /// Drops all pages; keeps the memory.
    pub(super) const fn clear(&mut self) {
        self.used = 0;
        self.bytes = 0;
    }

    /// Ends a data page of `values` values, including nulls. `fill` writes the begin of the page to its first buffer,
    /// and the rest to its second; or it swaps the second for a buffer with the rest.
    fn end(
        &mut self,
        values: u32,
        encoding: Encoding,
        fill: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>),
    ) {
        self.end_with(None, values, encoding, fill);
    }

    /// [`Pages::end`] of a page whose header has statistics.
    fn end_with(
        &mut self,
        statistics: Option<&PageStatistics>,
        values: u32,
        encoding: Encoding,
        fill: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>),
    ) {
        let kind = PageKind::Data { statistics };
        self.put(kind, values, encoding, fill);
    }

    fn put(
        &mut self,
        kind: PageKind<'_>,
        values: u32,
        encoding: Encoding,
        fill: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>),
    ) {
        if self.used == self.pages.len() {
            self.pages.push(Page::default());
        }
        let Page { head, body } = &mut self.pages[self.used];
        self.begin.clear();
        head.clear();
        body.clear();
        fill(&mut self.begin, body);
        let size = self.begin.len() + body.len();
        header(head, kind, values, encoding, [&self.begin, body], size);
        head.extend_from_slice(&self.begin);
        self.used += 1;
        self.bytes += head.len() + body.len();
    }
}

/// Appends a page header in Thrift's compact protocol. `size`: uncompressed bytes of the content.
///
/// Each field starts with a byte: the high half is the difference to the previous field's number, the low half the type
/// (5: i32, 12: struct). Source: `PageHeader`, `DataPageHeader`, `DictionaryPageHeader`, parquet.thrift; Thrift's
/// compact protocol specification.
pub(super) fn header(
    out: &mut Vec<u8>,
    kind: PageKind<'_>,
    values: u32,
    encoding: Encoding,
    content: [&[u8]; 2],
    size: usize,
) {
    const NEXT_I32: u8 = 0x15;
    let i32_field = |out: &mut Vec<u8>, value: i32| {
        out.push(NEXT_I32);
        varint(out, zigzag(i64::from(value)));
    };
    let length = content.map(<[u8]>::len).iter().sum::<usize>() as i32;
    let mut crc = crc32fast::Hasher::new();
    content.iter().for_each(|part| crc.update(part));
    // Source: `PageType`, parquet.thrift.
    let page_type = match kind {
        PageKind::Data { .. } => 0,
        PageKind::Dictionary => 2,
    };
    i32_field(out, page_type);
    i32_field(out, size as i32);
    i32_field(out, length);
    i32_field(out, crc.finalize() as i32);
    match kind {
        // Field 5, the next one.
        PageKind::Data { statistics } => {
            out.push(0x1c);
            i32_field(out, values as i32);
            i32_field(out, encoding as i32);
            i32_field(out, Encoding::RLE as i32);
            i32_field(out, Encoding::RLE as i32);
            if let Some(statistics) = statistics {
                statistics.put(out);
            }
        }
        // Field 7: three more than the last.
        PageKind::Dictionary => {
            out.push(0x3c);
            i32_field(out, values as i32);
            i32_field(out, encoding as i32);
        }
    }
    out.extend([STOP, STOP]);
}

/// End of a struct.
const STOP: u8 = 0;

impl PageStatistics {
    /// Appends the statistics as the next field, the fifth of `DataPageHeader`. Source: `Statistics`, parquet.thrift.
    fn put(&self, out: &mut Vec<u8>) {
        out.push(0x1c);
        // Field 3, an i64.
        out.push(0x36);
        varint(out, zigzag(i64::from(self.nulls)));
        if let Some((low, high)) = self.range {
            // Fields 5 and 6, binary: two more than the last, and the next one.
            for (field, value) in [(0x28, high), (0x18, low)] {
                out.extend([field, self.bytes as u8]);
                out.extend_from_slice(&value.to_le_bytes()[..self.bytes]);
            }
        }
        out.push(STOP);
    }
}

/// Appends a number in 7-bit groups, lowest first.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps signed numbers near 0 to small unsigned ones.
const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}
