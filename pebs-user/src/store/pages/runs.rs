//! Whole numbers that come many times one after another, as packed differences: the encoding of [`delta`], at a
//! cost by the change and not by the number.
//!
//! [`delta`]: super::delta

use std::mem;

use parquet::basic::Encoding;

use super::block::{self, BLOCK, GROUPS, Stored, Whole};
use super::delta::{UNCHANGED, begin_page, include};
use super::levels::Levels;
use super::pack::GROUP;
use super::{PAGE_VALUES, Pages, varint, zigzag};

/// The numbers of a column chunk.
#[derive(Debug)]
pub(in crate::store) struct Runs<T: Whole> {
    /// The last number.
    last: T,
    /// The number before the block's first.
    before: T,
    /// Differences of the block that are not 0: their places and the numbers there.
    changes: Vec<(u8, T)>,
    /// Differences in the block.
    len: usize,
    /// Encoded blocks of the page at hand.
    blocks: Vec<u8>,
    /// Values in `blocks`, the first included; 0: there is no first yet.
    values: usize,
    first: T,
    range: Option<(T, T)>,
}

impl<T: Whole> Default for Runs<T> {
    fn default() -> Self {
        Self {
            last: T::default(),
            before: T::default(),
            changes: Vec::with_capacity(BLOCK),
            len: 0,
            blocks: Vec::new(),
            values: 0,
            first: T::default(),
            range: None,
        }
    }
}

impl<T: Whole> Runs<T> {
    /// Appends a number some times, up to the end of the page; says how many times are left. If any,
    /// [`Runs::end_page`] is due before them.
    #[inline]
    #[must_use]
    pub(in crate::store) fn repeat(&mut self, value: T, mut times: usize) -> usize {
        if times == 0 {
            return 0;
        }
        if self.values == 0 {
            (self.first, self.before, self.last, self.values) = (value, value, value, 1);
            self.range = include(self.range, value, value);
            times -= 1;
        } else if value != self.last {
            self.changes.push((self.len as u8, value));
            self.last = value;
            self.range = include(self.range, value, value);
        }
        while times > 0 {
            let now = times.min(BLOCK - self.len);
            self.len += now;
            times -= now;
            if self.len == BLOCK {
                self.end_block();
                if self.is_full() {
                    break;
                }
            }
        }
        times
    }

    /// Whether [`Runs::end_page`] is due.
    pub(in crate::store) const fn is_full(&self) -> bool {
        self.values >= PAGE_VALUES
    }

    /// Smallest and largest number since the last [`Runs::clear`].
    pub(in crate::store) const fn range(&self) -> Option<(T, T)> {
        self.range
    }

    /// Encodes the block.
    fn end_block(&mut self) {
        self.values += self.len;
        match self.rises() {
            _ if self.changes.is_empty() => self.blocks.extend(UNCHANGED),
            Some(rises) => put_rises(&rises, &mut self.blocks),
            None => self.put_all(),
        }
        self.changes.clear();
        self.before = self.last;
        self.len = 0;
    }

    /// The differences, by place, if none is negative, none is large and some are 0.
    fn rises(&self) -> Option<[[u32; GROUP]; GROUPS]> {
        if self.len < BLOCK || self.changes.len() == BLOCK {
            return None;
        }
        let (mut rises, mut before) = ([[0; GROUP]; GROUPS], self.before);
        for &(place, number) in &self.changes {
            let rise: i64 = number.stored().less(before.stored()).into();
            let place = usize::from(place);
            rises[place / GROUP % GROUPS][place % GROUP] = u32::try_from(rise).ok()?;
            before = number;
        }
        Some(rises)
    }

    /// Any block.
    #[cold]
    fn put_all(&mut self) {
        let mut numbers = [self.before; BLOCK + 1];
        for (index, &(place, number)) in self.changes.iter().enumerate() {
            let next = self.changes.get(index + 1);
            let end = next.map_or(self.len, |(place, _)| usize::from(*place));
            numbers[1 + usize::from(place)..=end].fill(number);
        }
        block::encode(&numbers[..=self.len], &mut self.blocks);
    }

    /// Ends the page, if it has a row. `levels`: which of its rows are null; none without them.
    pub(in crate::store) fn end_page(&mut self, pages: &mut Pages, levels: Option<&mut Levels>) {
        if self.len > 0 {
            self.end_block();
        }
        let (values, first) = (self.values as u64, self.first.stored().into());
        let rows = levels
            .as_ref()
            .map_or(values as u32, |levels| levels.rows());
        if rows > 0 {
            pages.end(rows, Encoding::DELTA_BINARY_PACKED, |begin, rest| {
                begin_page(begin, levels, values, first);
                mem::swap(rest, &mut self.blocks);
            });
        }
        self.blocks.clear();
        (self.values, self.first) = (0, T::default());
    }

    /// Forgets everything, keeps the room.
    pub(in crate::store) fn clear(&mut self) {
        self.blocks.clear();
        self.changes.clear();
        (self.len, self.values, self.range) = (0, 0, None);
    }
}

/// Appends the block of these differences, the smallest of which is 0.
fn put_rises(rises: &[[u32; GROUP]; GROUPS], out: &mut Vec<u8>) {
    let bits = rises.map(|group| group.iter().fold(0, |all, rise| all | rise));
    varint(out, zigzag(0));
    out.extend(bits.map(|bits| (u32::BITS - bits.leading_zeros()) as u8));
    for (group, bits) in rises.iter().zip(bits) {
        if bits > 0 {
            super::pack::pack(group, (u32::BITS - bits.leading_zeros()) as usize, out);
        }
    }
}
