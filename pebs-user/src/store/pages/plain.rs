//! Values without encoding: PLAIN.

use std::fmt::Debug;
use std::mem;

use parquet::basic::Encoding;

use super::Pages;
use super::levels::{Levels, ListLevels};

/// Approximate size of a page, bytes.
const PAGE_BYTES: usize = 64 << 10;

/// A number in a PLAIN page.
pub trait Number: Copy + Debug {
    /// Extends a range of integers by the number; floats have no range.
    fn including(range: Option<(Self, Self)>, number: Self) -> Option<(Self, Self)>;

    /// Its bits, distinct for distinct numbers.
    fn bits(self) -> u64;

    /// Appends its bytes.
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

/// The PLAIN values of a column chunk: floats and text.
#[derive(Debug, Default)]
pub(in crate::store) struct Plain {
    values: Vec<u8>,
}

impl Plain {
    /// Appends a number; returns whether the page is full and [`Plain::end_page`] is due.
    #[inline]
    #[must_use]
    pub(in crate::store) fn push(&mut self, number: impl Number) -> bool {
        number.put(&mut self.values);
        self.values.len() >= PAGE_BYTES
    }

    /// Bytes of the current page.
    pub(in crate::store) const fn bytes(&self) -> usize {
        self.values.len()
    }

    /// Appends the numbers of the first rows, if each of them has one; returns how many rows have. [`Plain::end_page`]
    /// may be due afterwards.
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

    /// Appends text; returns whether the page is full. Text beyond 4 GiB is cut; no caller has any.
    #[inline]
    #[must_use]
    pub(in crate::store) fn push_text(&mut self, text: &str) -> bool {
        self.values
            .extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.values.extend_from_slice(text.as_bytes());
        self.values.len() >= PAGE_BYTES
    }

    /// Ends the page, if it has a row. `rows`: rows of the page, in a column without nulls.
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

    /// Drops everything but the memory.
    pub(in crate::store) fn clear(&mut self) {
        self.values.clear();
    }
}

/// Swaps a page's bytes for an empty buffer of the same capacity.
fn swap(page: &mut Vec<u8>, bytes: &mut Vec<u8>) {
    mem::swap(page, bytes);
    bytes.reserve(page.len());
}

/// Booleans, one bit each.
#[derive(Debug, Default)]
pub(in crate::store) struct Bits {
    bytes: Vec<u8>,
    rows: u32,
}

impl Bits {
    /// Appends a value; returns whether the page is full and [`Bits::end_page`] is due.
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

    /// Drops everything but the memory.
    pub(in crate::store) fn clear(&mut self) {
        self.bytes.clear();
        self.rows = 0;
    }
}
