//! Packed differences as whole bytes.
//!
//! A block of DELTA_BINARY_PACKED says its smallest difference, and each one less that in as many bits as the largest of
//! its group needs. Of a timer's samples most differences are much alike, but hardly a group is without one that came
//! late: all of the group take its bits, they count from another number in each block, and zstd finds nothing in bits.
//! Here differences take whole bytes, and the blocks of a page count from the same number where they can, so that
//! zstd's code is one for what is usual. To readers it is the same encoding.
//!
//! Where differences are as likely as one another, packed ones are smaller; a page now and then shows which is better.
//!
//! Source: parquet-format, Encodings.md, "Delta Encoding". Measurements, bytes a time, packed and so: samples of
//! `cpu-clock` every 10 us 2.05 and 1.88, first samples of functions 2.50 and 2.31; the synthetic ones 1.48 and 1.53.

use std::io;

use parquet::column::page::CompressedPage;
use parquet::errors::ParquetError;
use zstd::bulk::Compressor;

use super::chunk::{compressed, with_bytes};
use super::indices::varint;

/// Level of zstd: it finds little, and nothing more above.
const LEVEL: i32 = 3;

/// Pages of which the first is tried both ways.
const PAGES: usize = 4;

/// Differences in a block, and in a group of it.
pub(super) const BLOCK: usize = 128;
const GROUP: usize = 32;
pub(super) const GROUPS: usize = BLOCK / GROUP;

/// What two bytes hold.
const PAIR: u64 = 1 << 16;

/// Compresses the pages of a chunk, one after the other.
pub(super) struct Differences {
    zstd: Compressor<'static>,
    /// Pages begin with levels.
    nullable: bool,
    pages: usize,
    /// Whole bytes were smaller when both were tried.
    whole_bytes: bool,
}

impl Differences {
    pub(super) fn new(nullable: bool) -> io::Result<Self> {
        Ok(Self {
            zstd: Compressor::new(LEVEL)?,
            nullable,
            pages: 0,
            whole_bytes: false,
        })
    }

    pub(super) fn compressed(
        &mut self,
        page: CompressedPage,
    ) -> Result<CompressedPage, ParquetError> {
        let tries = self.pages.is_multiple_of(PAGES);
        self.pages += 1;
        if !tries && !self.whole_bytes {
            return compressed(&mut self.zstd, page);
        }
        let bytes = in_whole_bytes(page.data(), self.nullable).ok_or_else(damaged)?;
        let whole = with_bytes(&page, self.zstd.compress(&bytes)?, bytes.len());
        if tries {
            let packed = compressed(&mut self.zstd, page)?;
            self.whole_bytes = whole.compressed_size() < packed.compressed_size();
            if !self.whole_bytes {
                return Ok(packed);
            }
        }
        Ok(whole)
    }
}

fn damaged() -> ParquetError {
    ParquetError::General("a malformed page of differences".to_owned())
}

/// A page of packed differences with each of them in whole bytes; `None` if it is malformed.
fn in_whole_bytes(page: &[u8], nullable: bool) -> Option<Vec<u8>> {
    let levels = match nullable {
        true => 4 + u32::from_le_bytes(*page.first_chunk()?) as usize,
        false => 0,
    };
    let mut rest = page.get(levels..)?;
    let [block, groups, values, _first] = [(); 4].map(|()| varint(&mut rest));
    if (block?, groups?) != (BLOCK as u64, GROUPS as u64) {
        return None;
    }
    let begin = page.len() - rest.len();
    let count = usize::try_from(values?).ok()?.saturating_sub(1);
    let differences = unpacked(rest, count)?;
    let usual = usual(&differences[..count]);
    let mut out = Vec::with_capacity(page.len() + page.len() / 2);
    out.extend_from_slice(&page[..begin]);
    for block in differences.chunks(BLOCK) {
        write(block, usual, &mut out);
    }
    Some(out)
}

/// `count` differences, and what fills the last group; `None` if there are fewer.
fn unpacked(mut bytes: &[u8], count: usize) -> Option<Vec<i64>> {
    // A byte has no more than a block, whose widths are all 0.
    let mut out = Vec::with_capacity(count.min(bytes.len().saturating_mul(BLOCK)));
    while out.len() < count {
        let smallest = varint(&mut bytes)?;
        let smallest = (smallest >> 1).cast_signed() ^ -((smallest & 1).cast_signed());
        let (widths, rest) = bytes.split_first_chunk::<GROUPS>()?;
        bytes = rest;
        for width in widths.map(usize::from) {
            if width > 64 {
                return None;
            }
            if out.len() >= count {
                break;
            }
            let (packed, rest) = bytes.split_at_checked(width * GROUP / 8)?;
            bytes = rest;
            let (mut word, mut bits, mut packed) = (0_u128, 0, packed.iter());
            for _ in 0..GROUP {
                while bits < width {
                    word |= u128::from(*packed.next()?) << bits;
                    bits += 8;
                }
                let offset = word & ((1 << width) - 1);
                out.push(smallest.wrapping_add(offset as i64));
                word >>= width;
                bits -= width;
            }
        }
    }
    Some(out)
}

/// What differences count from, so that those near the middle one take two bytes.
fn usual(differences: &[i64]) -> i64 {
    let mut some: Vec<i64> = differences.iter().step_by(16).copied().collect();
    let middle = some.len() / 2;
    if some.is_empty() {
        return 0;
    }
    let (_, median, _) = some.select_nth_unstable(middle);
    median.wrapping_sub((PAIR / 2).cast_signed())
}

/// Appends a block of whole groups.
fn write(block: &[i64], usual: i64, out: &mut Vec<u8>) {
    let smallest = block.iter().copied().min().unwrap_or(0);
    // Where it has to count from less, the lowest two bytes stay as they are.
    let below = smallest < usual;
    let steps = usual.abs_diff(smallest).div_ceil(PAIR) * u64::from(below);
    let from = usual.wrapping_sub(steps.wrapping_mul(PAIR).cast_signed());
    let offset = |difference: &i64| difference.wrapping_sub(from).cast_unsigned();
    let size = |group: &[i64]| {
        let bits = group.iter().fold(0, |bits, it| bits | offset(it));
        (u64::BITS - bits.leading_zeros()).div_ceil(8) as usize
    };
    let mut zigzag = (from << 1 ^ from >> 63).cast_unsigned();
    while zigzag >= 0x80 {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
    let mut sizes = [0; GROUPS];
    for (group, to) in block.chunks(GROUP).zip(&mut sizes) {
        *to = size(group);
    }
    out.extend(sizes.map(|size| 8 * size as u8));
    for (group, size) in block.chunks(GROUP).zip(sizes) {
        for difference in group {
            out.extend_from_slice(&offset(difference).to_le_bytes()[..size]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A page without levels.
    fn page(differences: &[i64], first: u8) -> Vec<u8> {
        let mut page = vec![0x80, 1, GROUPS as u8];
        let mut values = differences.len() + 1;
        while values >= 0x80 {
            page.push(values as u8 | 0x80);
            values >>= 7;
        }
        page.extend([values as u8, first]);
        for block in differences.chunks(BLOCK) {
            let mut block = block.to_vec();
            block.resize(block.len().next_multiple_of(GROUP), block[0]);
            write(&block, block[0], &mut page);
        }
        page
    }

    /// What usual differences take, whatever is among them, and that they take the same in every block.
    #[test]
    fn usual_ones_take_two_bytes() {
        let mut differences = vec![10_000; 4 * BLOCK];
        for (n, it) in differences.iter_mut().enumerate() {
            *it += n as i64 * 37 % 200;
        }
        differences[BLOCK] = 1;
        let found = in_whole_bytes(&page(&differences, 8), false).unwrap();
        // The usual number takes three bytes, and so do what a page begins with and its widths.
        assert_eq!(found.len(), 6 + 4 * (3 + GROUPS + 2 * BLOCK));
        let high = |block: usize| found[6 + block * (3 + GROUPS + 2 * BLOCK) + 3 + GROUPS + 1];
        assert_eq!(
            [high(0), high(2), high(3)],
            [0x7f; 3].map(|it| it | high(0))
        );
    }

    proptest! {
        /// Whatever the differences, they stay what they are, and so does what stands before them.
        #[test]
        fn differences_stay(
            steps in prop::collection::vec((any::<i64>(), 0_u32..64), 0..600),
            levels in prop::option::of(prop::collection::vec(any::<u8>(), 0..9)),
        ) {
            let differences: Vec<i64> = steps.iter().map(|(it, shift)| it >> shift).collect();
            let nullable = levels.is_some();
            let mut begin = Vec::new();
            if let Some(levels) = levels {
                begin.extend((levels.len() as u32).to_le_bytes());
                begin.extend(levels);
            }
            let packed = [begin.clone(), page(&differences, 7)].concat();
            let whole = in_whole_bytes(&packed, nullable).unwrap();
            let head = packed.len() - page(&differences, 7).len() + page(&[], 7).len();
            let head = head + usize::from(differences.len() + 1 >= 0x80);
            prop_assert_eq!(&whole[..head], &packed[..head]);
            let found = unpacked(&whole[head..], differences.len()).unwrap();
            prop_assert_eq!(&found[..differences.len()], &differences[..]);
            prop_assert!(found.len() < differences.len() + GROUP);
        }

        /// Bytes that are not a page are refused.
        #[test]
        fn strange_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), nullable: bool) {
            let _ = in_whole_bytes(&bytes, nullable);
            let _ = in_whole_bytes(&[&[0x80, 1, 4][..], &bytes].concat(), false);
        }
    }
}
