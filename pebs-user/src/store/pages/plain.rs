//! Values as they are: PLAIN.

use std::fmt::Debug;
use std::mem;

use parquet::basic::Encoding;

use super::Pages;
use super::levels::{Levels, ListLevels};

/// Bytes of a page, about.
const PAGE_BYTES: usize = 64 << 10;

/// A number as it stands in a page.
pub trait Number: Copy + Debug {
    /// A range with the number in it, of whole numbers.
    fn including(range: Option<(Self, Self)>, number: Self) -> Option<(Self, Self)>;

    /// Its bits, other ones than those of another number.
    fn bits(self) -> u64;

    /// Appends it.
    fn put(self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn including(range: Option<(Self, Self)>, number: Self) -> Option<(Self, Self)> {
                let (low, high) = range.unwrap_or((number, number));
                Some((low.min(number), high.max(number)))
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                self as u64
            }

            #[inline(always)]
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

numbers! { u32 u64 i64 }

impl Number for f64 {
    #[inline(always)]
    fn including(_: Option<(Self, Self)>, _: Self) -> Option<(Self, Self)> {
        None
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.to_bits()
    }

    #[inline(always)]
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

/// The values of a column chunk that are kept as bytes: floats and text.
#[derive(Debug, Default)]
pub(in crate::store) struct Plain {
    values: Vec<u8>,
}

impl Plain {
    /// Appends a number; says whether the page is full and [`Plain::end_page`] is due.
    #[inline]
    #[must_use]
    pub(in crate::store) fn push(&mut self, number: impl Number) -> bool {
        number.put(&mut self.values);
        self.values.len() >= PAGE_BYTES
    }

    /// Bytes of the page at hand.
    pub(in crate::store) const fn bytes(&self) -> usize {
        self.values.len()
    }

    /// Appends the numbers of rows, if each of them has one. Says how many have. [`Plain::end_page`] may be due
    /// afterwards.
    #[inline(always)]
    #[must_use]
    pub(in crate::store) fn extend_if_all<'a, R>(
        &mut self,
        rows: &'a [R],
        number: impl Fn(&'a R) -> Option<f64>,
    ) -> usize {
        let (start, mut present) = (self.values.len(), 0);
        self.values.resize(start + 8 * rows.len(), 0);
        let (room, _) = self.values[start..].as_chunks_mut::<8>();
        for (to, row) in room.iter_mut().zip(rows) {
            let number = number(row);
            present += usize::from(number.is_some());
            *to = number.unwrap_or_default().to_le_bytes();
        }
        if present < rows.len() {
            self.values.truncate(start);
        }
        present
    }

    /// Whether [`Plain::end_page`] is due.
    pub(in crate::store) const fn is_full(&self) -> bool {
        self.values.len() >= PAGE_BYTES
    }

    /// Appends text; says whether the page is full. Text beyond 4 GiB is cut, which no caller has.
    #[inline]
    #[must_use]
    pub(in crate::store) fn push_text(&mut self, text: &str) -> bool {
        self.values
            .extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.values.extend_from_slice(text.as_bytes());
        self.values.len() >= PAGE_BYTES
    }

    /// Ends the page, if it has a row. `rows`: of the page, where no row can be null.
    pub(in crate::store) fn end_page(
        &mut self,
        pages: &mut Pages,
        rows: u32,
        levels: Option<&mut Levels>,
    ) {
        if rows > 0 {
            pages.end(rows, Encoding::PLAIN, |begin, rest| {
                if let Some(levels) = levels {
                    levels.take(begin);
                }
                swap(rest, &mut self.values);
            });
        }
        self.values.clear();
    }

    /// Ends a page of lists, if it has one.
    pub(in crate::store) fn end_page_of_lists(
        &mut self,
        pages: &mut Pages,
        levels: &mut ListLevels,
    ) {
        let entries = levels.entries();
        if entries > 0 {
            pages.end(entries, Encoding::PLAIN, |begin, rest| {
                levels.take(begin);
                swap(rest, &mut self.values);
            });
        }
        self.values.clear();
    }

    /// Forgets everything, keeps the room.
    pub(in crate::store) fn clear(&mut self) {
        self.values.clear();
    }
}

/// Swaps a page's bytes for an empty buffer, which is made as large at once: it is going to be.
fn swap(page: &mut Vec<u8>, bytes: &mut Vec<u8>) {
    mem::swap(page, bytes);
    bytes.reserve(page.len());
}

/// Truth values, a bit each.
#[derive(Debug, Default)]
pub(in crate::store) struct Bits {
    bytes: Vec<u8>,
    rows: u32,
}

impl Bits {
    /// Appends a value; says whether the page is full and [`Bits::end_page`] is due.
    #[inline]
    #[must_use]
    pub(in crate::store) fn push(&mut self, set: bool) -> bool {
        let bit = self.rows % 8;
        if bit == 0 {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(set) << bit;
        }
        self.rows += 1;
        self.bytes.len() > PAGE_BYTES
    }

    /// Ends the page, if it has a row.
    pub(in crate::store) fn end_page(&mut self, pages: &mut Pages) {
        if self.rows > 0 {
            pages.end(self.rows, Encoding::PLAIN, |_, all| {
                mem::swap(all, &mut self.bytes);
            });
        }
        self.clear();
    }

    /// Ends the page, if it has a row, null or not.
    pub(in crate::store) fn end_page_of_nullable(
        &mut self,
        pages: &mut Pages,
        levels: &mut Levels,
    ) {
        let rows = levels.rows();
        if rows > 0 {
            pages.end(rows, Encoding::PLAIN, |begin, rest| {
                levels.take(begin);
                mem::swap(rest, &mut self.bytes);
            });
        }
        self.clear();
    }

    /// Forgets everything, keeps the room.
    pub(in crate::store) fn clear(&mut self) {
        self.bytes.clear();
        self.rows = 0;
    }
}
