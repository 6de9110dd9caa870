//! Integers as packed differences: DELTA_BINARY_PACKED.
//!
//! A block has 128 differences in four groups of 32: the smallest difference, then each one minus the smallest, in as
//! few bits as the largest of its group needs. A repeated number takes 5 bytes per block; rising times take about as
//! many bits as their step has.

use parquet::basic::Encoding;

pub(crate) use super::integer::Integer;
use super::levels::Levels;
pub(in crate::store) use super::pack::BLOCK;
use super::room::Room;
use super::{PAGE_VALUES, PageStatistics, Pages, block, pack, varint, zigzag};

/// A block of equal numbers: the smallest difference and four widths, all 0.
const UNCHANGED: [u8; 1 + pack::GROUPS] = [0; 1 + pack::GROUPS];

/// Extends a range by two numbers.
fn include<T: Ord + Copy>(range: Option<(T, T)>, min: T, max: T) -> Option<(T, T)> {
    let (low, high) = range.unwrap_or((min, max));
    Some((low.min(min), high.max(max)))
}

/// Whether all numbers equal `one`. No early exit, so that it vectorizes.
fn all_are<T: PartialEq>(numbers: &[T], one: T) -> bool {
    let same = |same, number: &T| same & (*number == one);
    numbers.iter().fold(true, same)
}

/// The numbers of a column chunk.
#[derive(Debug)]
pub(in crate::store) struct Deltas<T> {
    /// The number before the block's first, then the block's so far. Boxed: a writer has a hundred of these, and is
    /// moved over stacks.
    block: Box<[T; BLOCK + 1]>,
    len: usize,
    /// Encoded blocks of the current page.
    blocks: Room,
    /// Values in `blocks`, including the first.
    values: usize,
    first: T,
    /// Smallest and largest number of the current page.
    page_range: Option<(T, T)>,
    /// Smallest and largest number of the pages before.
    range: Option<(T, T)>,
}

impl<T: Integer> Default for Deltas<T> {
    fn default() -> Self {
        Self {
            block: Box::new([T::default(); BLOCK + 1]),
            len: 0,
            blocks: Room::default(),
            values: 0,
            first: T::default(),
            page_range: None,
            range: None,
        }
    }
}

impl<T: Integer> Deltas<T> {
    /// Appends a number; returns whether the page is full and [`Deltas::end_page`] is due.
    #[inline(always)]
    #[must_use]
    pub(in crate::store) fn push(&mut self, value: T) -> bool {
        self.block[self.len] = value;
        self.len += 1;
        self.len == BLOCK + 1 && self.end_block()
    }

    /// Appends the numbers of rows, up to the end of the page; returns the remaining rows. If there are any,
    /// [`Deltas::end_page`] is due before them.
    #[inline(always)]
    #[must_use]
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        mut rows: &'a [R],
        number: impl Fn(&'a R) -> T,
    ) -> &'a [R] {
        while !rows.is_empty() {
            let room = &mut self.block[self.len..];
            let (now, later) = rows.split_at(room.len().min(rows.len()));
            for (to, row) in room.iter_mut().zip(now) {
                *to = number(row);
            }
            self.len += now.len();
            rows = later;
            if self.len == BLOCK + 1 && self.end_block() {
                break;
            }
        }
        rows
    }

    /// Appends the numbers of the first rows, if each of them has one. Returns how many rows it examined, and how many
    /// of those have a number. [`Deltas::end_page`] may be due afterwards.
    #[inline(always)]
    #[must_use]
    pub(in crate::store) fn extend_if_all<'a, R>(
        &mut self,
        rows: &'a [R],
        number: impl Fn(&'a R) -> Option<T>,
    ) -> (usize, usize) {
        let room = &mut self.block[self.len..];
        let (count, mut present) = (room.len().min(rows.len()), 0);
        for (to, row) in room.iter_mut().zip(rows) {
            let number = number(row);
            present += usize::from(number.is_some());
            *to = number.unwrap_or_default();
        }
        if present == count {
            self.len += count;
            if self.len == BLOCK + 1 {
                self.end_block();
            }
        }
        (count, present)
    }

    /// Appends a number `times` times, up to the end of the page; returns the remaining times. If any,
    /// [`Deltas::end_page`] is due before them.
    #[inline]
    #[must_use]
    pub(in crate::store) fn repeat(&mut self, value: T, mut times: usize) -> usize {
        while times > 0 {
            let is_unchanged = self.len == 1 && self.values > 0 && self.block[0] == value;
            if is_unchanged && times >= BLOCK {
                self.blocks.extend(UNCHANGED);
                self.values += BLOCK;
                times -= BLOCK;
                if self.is_full() {
                    break;
                }
                continue;
            }
            let now = times.min(BLOCK + 1 - self.len);
            self.block[self.len..self.len + now].fill(value);
            self.len += now;
            times -= now;
            if self.len == BLOCK + 1 && self.end_block() {
                break;
            }
        }
        times
    }

    /// Whether [`Deltas::end_page`] is due.
    pub(in crate::store) const fn is_full(&self) -> bool {
        self.values >= PAGE_VALUES
    }

    /// Smallest and largest number in the pages since the last [`Deltas::clear`].
    pub(in crate::store) const fn range(&self) -> Option<(T, T)> {
        self.range
    }

    /// Encodes a full block; returns whether the page is full.
    #[inline(never)]
    fn end_block(&mut self) -> bool {
        self.encode();
        self.block[0] = self.block[BLOCK];
        self.len = 1;
        self.values >= PAGE_VALUES
    }

    /// Encodes the numbers in the block.
    fn encode(&mut self) {
        let numbers = &self.block[..self.len];
        let [first, rest @ ..] = numbers else { return };
        if self.values == 0 {
            (self.first, self.values) = (*first, 1);
            self.page_range = include(self.page_range, *first, *first);
        }
        self.values += rest.len();
        if rest.is_empty() {
            return;
        }
        if rest.len() == BLOCK && rest[BLOCK - 1] == *first && all_are(rest, *first) {
            self.blocks.extend(UNCHANGED);
            return;
        }
        let (min, max) = block::encode(numbers, &mut self.blocks);
        self.page_range = include(self.page_range, min, max);
    }

    /// Ends the page, if it has a row. `levels`: which of its rows are null; `None`: no row is.
    pub(in crate::store) fn end_page(&mut self, pages: &mut Pages, levels: Option<&mut Levels>) {
        self.encode();
        let (values, first) = (self.values as u64, self.first.stored().into());
        let rows = levels
            .as_ref()
            .map_or(values as u32, |levels| levels.rows());
        if rows > 0 {
            let stored = |it: T| it.stored().into();
            let statistics = PageStatistics {
                range: self
                    .page_range
                    .map(|(low, high)| (stored(low), stored(high))),
                bytes: size_of::<T::Stored>(),
                nulls: rows - values as u32,
            };
            pages.end_with(
                Some(&statistics),
                rows,
                Encoding::DELTA_BINARY_PACKED,
                |begin, rest| {
                    if let Some(levels) = levels {
                        levels.take(begin);
                    }
                    varint(begin, BLOCK as u64);
                    varint(begin, pack::GROUPS as u64);
                    varint(begin, values);
                    varint(begin, zigzag(first));
                    self.blocks.swap(rest);
                },
            );
        }
        self.blocks.clear();
        (self.len, self.values, self.first) = (0, 0, T::default());
        if let Some((low, high)) = self.page_range.take() {
            self.range = include(self.range, low, high);
        }
    }

    /// Drops everything but the memory.
    pub(in crate::store) fn clear(&mut self) {
        self.blocks.clear();
        (self.len, self.values) = (0, 0);
        (self.page_range, self.range) = (None, None);
    }
}
