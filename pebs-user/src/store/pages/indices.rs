//! Indices into a dictionary, packed page by page.

use parquet::basic::Encoding;

use super::pack::{GROUP, pack_all};
use super::{Pages, varint, zeros};

/// Indices per page. With twice as many zstd gains 5 %, with a quarter it loses 8 %.
const PAGE_ROWS: usize = 16 << 10;

/// Widths up to this many bits are always packed without gaps.
const PACKED: u32 = 4;

/// Indices take whole bytes if at least one in this many equals that of the row before.
const REPEATED: usize = 16;

/// Bits per index for a dictionary of `entries`: whole bytes if indices repeat, as zstd finds no match in numbers that
/// begin within a byte; else no more than needed, as there is nothing to be found.
///
/// Source: measurements, bytes per index after zstd, whole bytes and packed: functions of a server 0.44 and 0.56, its
/// addresses 0.55 and 0.62; addresses of a synthetic stream 1.75 and 1.63.
fn width(entries: usize, indices: &[u32]) -> usize {
    let largest = entries.saturating_sub(1) as u32;
    let bits = u32::BITS - largest.leading_zeros();
    let pairs = indices.iter().zip(indices.iter().skip(1));
    let is_whole =
        bits > PACKED && pairs.filter(|(a, b)| a == b).count() * REPEATED > indices.len();
    match is_whole {
        true => bits.next_multiple_of(u8::BITS) as usize,
        false => bits.max(1) as usize,
    }
}

/// The indices of the current page.
#[derive(Debug)]
pub(super) struct Indices {
    numbers: Box<[u32; PAGE_ROWS]>,
    rows: usize,
}

impl Default for Indices {
    fn default() -> Self {
        Self {
            numbers: zeros(),
            rows: 0,
        }
    }
}

impl Indices {
    /// Space for the next indices: fill the first of it, then call [`Indices::add`].
    #[inline(always)]
    pub(super) fn room(&mut self) -> &mut [u32] {
        &mut self.numbers[self.rows..]
    }

    /// Adds the `count` indices filled into [`Indices::room`].
    #[inline(always)]
    pub(super) const fn add(&mut self, count: usize) {
        self.rows += count;
    }

    /// Number of indices.
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// Whether [`Indices::end_page`] is due.
    pub(super) const fn is_full(&self) -> bool {
        self.rows == PAGE_ROWS
    }

    /// Ends the page of `values` rows, including nulls; `fill` writes the bytes before the indices.
    pub(super) fn end_page(
        &mut self,
        pages: &mut Pages,
        dictionary: usize,
        values: u32,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let width = width(dictionary, &self.numbers[..self.rows]);
        pages.end(values, Encoding::RLE_DICTIONARY, |begin, body| {
            fill(begin);
            body.push(width as u8);
            // One bit-packed run of groups of 8; the last group is padded beyond the rows.
            let packed = self.rows.next_multiple_of(GROUP);
            varint(body, (packed as u64 / 8) << 1 | 1);
            self.numbers[self.rows..packed].fill(0);
            pack_all(&self.numbers[..packed], width, body);
        });
        self.rows = 0;
    }

    /// Drops all indices.
    pub(super) const fn clear(&mut self) {
        self.rows = 0;
    }
}
