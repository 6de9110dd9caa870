//! Indices into a dictionary, packed page by page.

use parquet::basic::Encoding;

use super::pack::{GROUP, pack_all};
use super::{Pages, varint};

/// Indices in a page. zstd makes 5 % less of pages of twice as many rows, and 8 % more of pages of a quarter.
const PAGE_ROWS: usize = 16 << 10;

/// Bits of an index up to which indices are always packed without gaps.
const PACKED: u32 = 4;

/// Of so many indices one is to be that of the row before, for them to take whole bytes.
const REPEATED: usize = 16;

/// Bits that each index takes where there are so many entries: whole bytes where indices repeat, as zstd finds nothing in
/// numbers that begin within a byte; else no more than needed, as there is nothing to be found.
///
/// Source: measurements, bytes an index after zstd, whole bytes and packed: functions of a server 0.44 and 0.56, its
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

/// The indices of the page at hand.
#[derive(Debug)]
pub(super) struct Indices {
    numbers: Box<[u32; PAGE_ROWS]>,
    rows: usize,
}

impl Default for Indices {
    fn default() -> Self {
        Self {
            numbers: Box::new([0; PAGE_ROWS]),
            rows: 0,
        }
    }
}

impl Indices {
    /// Room for those to come: the first of them are to be filled, and then [added](Self::add).
    #[inline(always)]
    pub(super) fn room(&mut self) -> &mut [u32] {
        &mut self.numbers[self.rows..]
    }

    /// Adds as many as were filled.
    #[inline(always)]
    pub(super) const fn add(&mut self, count: usize) {
        self.rows += count;
    }

    /// How many there are.
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// Whether [`Indices::end_page`] is due.
    pub(super) const fn is_full(&self) -> bool {
        self.rows == PAGE_ROWS
    }

    /// Ends the page of `values`, nulls included: indices into a dictionary of that length. `fill` writes what the page
    /// begins with.
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
            // One packed run of groups of 8; the last ones may have more than there are rows.
            let packed = self.rows.next_multiple_of(GROUP);
            varint(body, (packed as u64 / 8) << 1 | 1);
            self.numbers[self.rows..packed].fill(0);
            pack_all(&self.numbers[..packed], width, body);
        });
        self.rows = 0;
    }

    /// Forgets all.
    pub(super) const fn clear(&mut self) {
        self.rows = 0;
    }
}
