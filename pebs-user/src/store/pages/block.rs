//! A block of DELTA_BINARY_PACKED: 128 differences, in four groups of 32.

#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "calling code that was compiled for newer CPUs, after asking for them"
    )
)]

use super::delta32::{Compared, compare};
use super::integer::{Integer, Stored as _};
use super::pack::{BLOCK, GROUP, GROUPS, ROOM as PACK_ROOM, pack, pack_wide};
use super::room::Room;
use super::zigzag;
#[cfg(target_arch = "x86_64")]
use super::{delta32, pack};

/// Appends the block of the differences between `numbers` (1 to 129 numbers); returns the smallest and largest number.
#[inline]
pub(super) fn encode<T: Integer>(numbers: &[T], out: &mut Room) -> (T, T) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has these instructions.
        return unsafe { encode_avx2(numbers, out) };
    }
    encode_with(numbers, out, compare, pack)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn encode_avx2<T: Integer>(numbers: &[T], out: &mut Room) -> (T, T) {
    let compare = |numbers: &[T; BLOCK + 1], to: &mut Compared| match size_of::<T>() {
        8 => delta32::avx2::compare_64(numbers, to),
        _ => compare(numbers, to),
    };
    encode_with(numbers, out, compare, |group, base, width, room| {
        pack::avx2::pack(group, base, width, room)
    })
}

#[inline(always)]
fn encode_with<T: Integer>(
    numbers: &[T],
    out: &mut Room,
    compare: impl Fn(&[T; BLOCK + 1], &mut Compared),
    pack: impl Fn(&[u32; GROUP], u32, usize, &mut [u8; PACK_ROOM]) -> usize,
) -> (T, T) {
    if let Ok(whole) = numbers.try_into() {
        let mut compared = Compared::new();
        compare(whole, &mut compared);
        if compared.are_near {
            encode_near(&compared, out, pack);
            return compared.range(whole);
        }
    }
    encode_any(numbers, out)
}

/// A whole block of near numbers ([`Compared::are_near`]): packed from 32-bit differences, in half the time.
#[inline(always)]
fn encode_near(
    numbers: &Compared,
    out: &mut Room,
    pack: impl Fn(&[u32; GROUP], u32, usize, &mut [u8; PACK_ROOM]) -> usize,
) {
    let smallest = numbers.smallest;
    let offset = |largest: i32| largest.wrapping_sub(smallest) as u32;
    let widths = numbers.largest.map(|largest| width(offset(largest).into()));
    let room = out.ahead::<BLOCK_ROOM>();
    let mut end = head(smallest.into(), widths, room);
    let (groups, _) = numbers.differences.as_chunks::<GROUP>();
    for (group, width) in groups.iter().zip(widths) {
        if width > 0
            && let Some(room) = room[end..].first_chunk_mut()
        {
            end += pack(group, smallest as u32, width.into(), room);
        }
    }
    out.advance(end);
}

/// Any numbers: the last ones of a page, and those that are far apart.
#[inline(always)]
fn encode_any<T: Integer>(numbers: &[T], out: &mut Room) -> (T, T) {
    let mut differences = [T::Stored::default(); BLOCK];
    let mut smallest = T::Stored::MAX;
    for (difference, pair) in differences.iter_mut().zip(numbers.windows(2)) {
        *difference = pair[1].stored().less(pair[0].stored());
        smallest = smallest.min(*difference);
    }
    // A short block is filled up with the smallest difference, which takes no bits.
    differences[numbers.len().saturating_sub(1).min(BLOCK)..].fill(smallest);
    let offsets = differences.map(|difference| difference.less(smallest).bits());
    let (groups, _) = offsets.as_chunks::<GROUP>();
    let mut widths = [0; GROUPS];
    for (group, to) in groups.iter().zip(&mut widths) {
        *to = width(group.iter().fold(0, |bits, offset| bits | offset));
    }
    let room = out.ahead::<BLOCK_ROOM>();
    let mut end = head(smallest.into(), widths, room);
    for (group, width) in groups.iter().zip(widths) {
        if let Some(room) = room[end..].first_chunk_mut() {
            end += pack_wide(group, width.into(), room);
        }
    }
    out.advance(end);
    let first = numbers[0];
    let range = |(low, high): (T, T), number: &T| (low.min(*number), high.max(*number));
    numbers.iter().fold((first, first), range)
}

/// Maximum size of a block, bytes: smallest difference, widths and 64 bits per difference, and what packing the last
/// group may overwrite.
const BLOCK_ROOM: usize = HEAD + 8 * BLOCK + PACK_ROOM;

/// Maximum bytes before the differences.
const HEAD: usize = 10 + GROUPS;

/// Writes the smallest difference and the groups' bit widths; returns their size, bytes.
#[inline(always)]
fn head(smallest: i64, widths: [u8; GROUPS], out: &mut [u8; BLOCK_ROOM]) -> usize {
    let (mut value, mut end) = (zigzag(smallest), 0);
    while value >= 0x80 && end < HEAD - GROUPS - 1 {
        out[end] = value as u8 | 0x80;
        value >>= 7;
        end += 1;
    }
    out[end] = value as u8;
    end += 1;
    out[end..end + GROUPS].copy_from_slice(&widths);
    end + GROUPS
}

/// Number of bits needed for a number.
#[inline(always)]
const fn width(bits: u64) -> u8 {
    (u64::BITS - bits.leading_zeros()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes numbers by every code path, and compares the results.
    fn check<T: Integer + std::fmt::Debug>(numbers: &[T]) -> Result<(), TestCaseError> {
        let (mut expected, mut found) = (Room::default(), Room::default());
        let range = encode_any(numbers, &mut expected);
        prop_assert_eq!(encode(numbers, &mut found), range);
        prop_assert_eq!(found.filled(), expected.filled());
        prop_assert_eq!(Some(range.0), numbers.iter().copied().min());
        prop_assert_eq!(Some(range.1), numbers.iter().copied().max());
        found.clear();
        prop_assert_eq!(encode_with(numbers, &mut found, compare, pack), range);
        prop_assert_eq!(found.filled(), expected.filled());
        Ok(())
    }

    /// Numbers with steps of up to 2^`bits`, in both directions or only upwards.
    fn numbers() -> impl Strategy<Value = Vec<i64>> {
        let steps = prop::collection::vec(any::<i64>(), BLOCK);
        let groups = prop::array::uniform4(0u32..64);
        (any::<i64>(), 0u32..64, steps, groups, any::<bool>()).prop_map(
            |(first, shift, steps, groups, rising)| {
                let mut number = first >> shift;
                let mut numbers = vec![number];
                for (index, step) in steps.iter().enumerate() {
                    let step = if rising { step & i64::MAX } else { *step };
                    number = number.wrapping_add(step >> groups[index / GROUP]);
                    numbers.push(number);
                }
                numbers
            },
        )
    }

    proptest! {
        /// The fast paths encode like the general one, for every type and distance.
        #[test]
        fn all_ways_are_the_same(numbers in numbers(), len in 1usize..=2 * BLOCK) {
            let numbers = &numbers[..len.min(BLOCK + 1)];
            check(numbers)?;
            check(&numbers.iter().map(|n| *n as u64).collect::<Vec<_>>())?;
            check(&numbers.iter().map(|n| *n as u32).collect::<Vec<_>>())?;
            check(&numbers.iter().map(|n| *n as u16).collect::<Vec<_>>())?;
            check(&numbers.iter().map(|n| *n as u8).collect::<Vec<_>>())?;
        }

        /// Numbers just near enough, and just too far.
        #[test]
        fn at_the_limit(first: i64, others in prop::collection::vec(any::<u32>(), BLOCK), bits in 29u32..=32) {
            let others = others.iter().map(|n| first ^ i64::from(n >> (32 - bits)));
            let numbers: Vec<i64> = std::iter::once(first).chain(others).collect();
            check(&numbers)?;
        }
    }
}
