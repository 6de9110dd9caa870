//! Whole numbers as packed differences: DELTA_BINARY_PACKED.
//!
//! Blocks of 128 differences, in four groups of 32: the smallest difference, then each one less
//! the smallest in as few bits as the largest of its group needs. What repeats takes 5 bytes a
//! block; rising times take about as many bits as their step has.

use parquet::basic::Encoding;

use super::levels::Levels;
use super::pack::{GROUP, pack};
use super::{PAGE_VALUES, Pages, varint, zigzag};

/// Differences in a block.
pub(in crate::store) const BLOCK: usize = 128;

/// A whole number as Parquet stores it: 32 bits up to `u32`, else 64.
pub(in crate::store) trait Whole: Copy + Default + Ord {
    /// This number less another as the format has it: wrapping at 32 or at 64 bits.
    fn less(self, other: Self) -> i64;
    /// A difference less the smallest one, at the same width.
    fn offset(difference: i64, smallest: i64) -> u64;
    /// The number as the format's header has it.
    fn first(self) -> i64;
}

macro_rules! whole {
    ($($type:ty => $wide:ty, $unsigned:ty;)*) => {$(
        impl Whole for $type {
            #[inline(always)]
            fn less(self, other: Self) -> i64 {
                i64::from((self as $wide).wrapping_sub(other as $wide))
            }

            #[inline(always)]
            fn offset(difference: i64, smallest: i64) -> u64 {
                u64::from(difference.wrapping_sub(smallest) as $unsigned)
            }

            #[inline(always)]
            fn first(self) -> i64 {
                i64::from(self as $wide)
            }
        }
    )*};
}

whole! {
    u8 => i32, u32;
    u16 => i32, u32;
    u32 => i32, u32;
    i64 => i64, u64;
    u64 => i64, u64;
}

/// 128 rises of twice this cannot wrap around, at 32 bits neither.
const SMALL: i64 = 1 << 23;

/// A range that has two more numbers in it.
fn include<T: Ord + Copy>(range: Option<(T, T)>, min: T, max: T) -> Option<(T, T)> {
    let (low, high) = range.unwrap_or((min, max));
    Some((low.min(min), high.max(max)))
}

/// The numbers of a column chunk.
#[derive(Debug)]
pub(in crate::store) struct Deltas<T> {
    /// The number before the block's first, and the block's so far.
    block: [T; BLOCK + 1],
    len: usize,
    /// Encoded blocks of the page at hand.
    blocks: Vec<u8>,
    /// Values in `blocks`, the first included.
    values: usize,
    first: T,
    range: Option<(T, T)>,
}

impl<T: Whole> Default for Deltas<T> {
    fn default() -> Self {
        Self {
            block: [T::default(); BLOCK + 1],
            len: 0,
            blocks: Vec::new(),
            values: 0,
            first: T::default(),
            range: None,
        }
    }
}

impl<T: Whole> Deltas<T> {
    /// Appends a number; says whether the page is full and [`Deltas::end_page`] is due.
    #[inline(always)]
    #[must_use]
    pub(in crate::store) fn push(&mut self, value: T) -> bool {
        self.block[self.len] = value;
        self.len += 1;
        self.len == BLOCK + 1 && self.end_block()
    }

    /// Appends a number some times, up to the end of the page; says how many times are left. If any,
    /// [`Deltas::end_page`] is due before them.
    #[inline]
    #[must_use]
    pub(in crate::store) fn repeat(&mut self, value: T, mut times: usize) -> usize {
        while times > 0 {
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

    /// Smallest and largest number since the last [`Deltas::clear`].
    pub(in crate::store) const fn range(&self) -> Option<(T, T)> {
        self.range
    }

    /// Encodes a whole block; says whether the page is full.
    #[inline(never)]
    fn end_block(&mut self) -> bool {
        self.encode();
        self.block[0] = self.block[BLOCK];
        self.len = 1;
        self.values >= PAGE_VALUES
    }

    /// Encodes what is in the block.
    fn encode(&mut self) {
        let numbers = &self.block[..self.len];
        let [first, rest @ ..] = numbers else { return };
        if self.values == 0 {
            (self.first, self.values) = (*first, 1);
            self.range = include(self.range, *first, *first);
        }
        self.values += rest.len();
        let Some(last) = rest.last() else { return };
        if rest.len() == BLOCK && rest.iter().all(|number| number == first) {
            // The smallest difference and the four widths.
            self.blocks.extend([0; 5]);
            return;
        }
        let mut differences = [0i64; BLOCK];
        let mut smallest = i64::MAX;
        for (difference, pair) in differences.iter_mut().zip(numbers.windows(2)) {
            *difference = pair[1].less(pair[0]);
            smallest = smallest.min(*difference);
        }
        let count = rest.len();
        // What a short block lacks is as good as the smallest difference: it takes no bits.
        differences[count..].fill(smallest);
        varint(&mut self.blocks, zigzag(smallest));
        let widths = self.blocks.len();
        self.blocks.extend([0; BLOCK / GROUP]);
        let mut all_bits = 0;
        for (index, group) in differences.chunks_exact(GROUP).enumerate() {
            if index * GROUP >= count {
                break;
            }
            let mut offsets = [0u64; GROUP];
            let mut bits = 0;
            for (offset, difference) in offsets.iter_mut().zip(group) {
                *offset = T::offset(*difference, smallest);
                bits |= *offset;
            }
            all_bits |= bits;
            let width = (u64::BITS - bits.leading_zeros()) as usize;
            self.blocks[widths + index] = width as u8;
            pack(&offsets, width, &mut self.blocks);
        }
        // Small rises cannot wrap, so that the last number is the largest.
        let rising = smallest >= 0 && smallest < SMALL && all_bits < SMALL as u64 && first <= last;
        let (min, max) = if rising {
            (*first, *last)
        } else {
            let least = rest.iter().fold(*first, |a, b| a.min(*b));
            (least, rest.iter().fold(*first, |a, b| a.max(*b)))
        };
        self.range = include(self.range, min, max);
    }

    /// Ends the page, if it has a row. `levels`: which of its rows are null; none without them.
    pub(in crate::store) fn end_page(&mut self, pages: &mut Pages, levels: Option<&mut Levels>) {
        self.encode();
        let (values, first) = (self.values as u64, self.first.first());
        let rows = levels
            .as_ref()
            .map_or(values as u32, |levels| levels.rows());
        if rows > 0 {
            pages.end(rows, Encoding::DELTA_BINARY_PACKED, |body| {
                if let Some(levels) = levels {
                    levels.take(body);
                }
                varint(body, BLOCK as u64);
                varint(body, (BLOCK / GROUP) as u64);
                varint(body, values);
                varint(body, zigzag(first));
                body.extend_from_slice(&self.blocks);
            });
        }
        self.blocks.clear();
        (self.len, self.values, self.first) = (0, 0, T::default());
    }

    /// Forgets everything, keeps the room.
    pub(in crate::store) fn clear(&mut self) {
        self.blocks.clear();
        (self.len, self.values, self.range) = (0, 0, None);
    }
}
