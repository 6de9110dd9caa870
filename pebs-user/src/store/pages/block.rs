//! A block of DELTA_BINARY_PACKED: 128 differences, in four groups of 32.

#![expect(
    unsafe_code,
    reason = "calling code that was compiled for newer CPUs, after asking for them"
)]

use super::pack::{GROUP, pack, pack_wide};
use super::{varint, zigzag};

/// Differences in a block.
pub(in crate::store) const BLOCK: usize = 128;
/// Groups of a block, each with its own number of bits.
pub(super) const GROUPS: usize = BLOCK / GROUP;

/// A whole number as Parquet stores it: 32 bits up to `u32`, else 64.
pub(in crate::store) trait Whole: Copy + Default + Ord {
    /// The signed type of that width.
    type Stored: Stored;
    /// The number as it is stored.
    fn stored(self) -> Self::Stored;
}

/// `i32` or `i64`.
pub(in crate::store) trait Stored: Copy + Default + Ord + Into<i64> {
    const MAX: Self;
    /// This number less another, wrapping.
    fn less(self, other: Self) -> Self;
    /// The bits set in either.
    fn or(self, other: Self) -> Self;
    /// Its bits as those of a number without a sign.
    fn bits(self) -> u64;
}

macro_rules! stored {
    ($($stored:ty, $unsigned:ty: $($type:ty)*;)*) => {$(
        impl Stored for $stored {
            const MAX: Self = Self::MAX;

            #[inline(always)]
            fn less(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self as $unsigned)
            }
        }

        $(impl Whole for $type {
            type Stored = $stored;

            #[inline(always)]
            fn stored(self) -> $stored {
                self as $stored
            }
        })*
    )*};
}

stored! {
    i32, u32: u8 u16 u32;
    i64, u64: i64 u64;
}

/// Appends the block of the differences between `numbers`, of which there are 1 to 129; gives the
/// smallest and the largest of them.
#[inline]
pub(super) fn encode<T: Whole>(numbers: &[T], out: &mut Vec<u8>) -> (T, T) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has these instructions.
        return unsafe { encode_avx2(numbers, out) };
    }
    encode_any(numbers, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn encode_avx2<T: Whole>(numbers: &[T], out: &mut Vec<u8>) -> (T, T) {
    encode_any(numbers, out)
}

/// 128 rises of twice this cannot wrap around, at 32 bits neither.
const SMALL: i64 = 1 << 23;

#[inline(always)]
fn encode_any<T: Whole>(numbers: &[T], out: &mut Vec<u8>) -> (T, T) {
    let mut differences = [T::Stored::default(); BLOCK];
    let mut smallest = T::Stored::MAX;
    if let Ok(whole) = <&[T; BLOCK + 1]>::try_from(numbers) {
        for index in 0..BLOCK {
            differences[index] = whole[index + 1].stored().less(whole[index].stored());
            smallest = smallest.min(differences[index]);
        }
    } else {
        for (difference, pair) in differences.iter_mut().zip(numbers.windows(2)) {
            *difference = pair[1].stored().less(pair[0].stored());
            smallest = smallest.min(*difference);
        }
        // What a short block lacks is as good as the smallest difference: it takes no bits.
        differences[numbers.len().saturating_sub(1).min(BLOCK)..].fill(smallest);
    }
    let mut group_bits = [0; GROUPS];
    for (group, all) in differences
        .as_chunks_mut::<GROUP>()
        .0
        .iter_mut()
        .zip(&mut group_bits)
    {
        let mut bits = T::Stored::default();
        for difference in group {
            *difference = difference.less(smallest);
            bits = bits.or(*difference);
        }
        *all = bits.bits();
    }
    varint(out, zigzag(smallest.into()));
    out.extend_from_slice(&group_bits.map(width));
    for (group, bits) in differences.as_chunks::<GROUP>().0.iter().zip(group_bits) {
        match bits {
            0 => {}
            _ if bits <= u64::from(u32::MAX) => {
                let mut offsets = [0; GROUP];
                for (to, offset) in offsets.iter_mut().zip(group) {
                    *to = offset.bits() as u32;
                }
                pack(&offsets, width(bits).into(), out);
            }
            _ => pack_wide(&group.map(Stored::bits), width(bits).into(), out),
        }
    }
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let most = group_bits.iter().fold(0, |a, b| a | b);
    // Small rises cannot wrap, so that the last number is the largest.
    if (0..SMALL).contains(&smallest.into()) && most < SMALL as u64 && first <= last {
        return (first, last);
    }
    let range = |(low, high): (T, T), number: &T| (low.min(*number), high.max(*number));
    numbers.iter().fold((first, first), range)
}

/// Bits that a number needs.
#[inline(always)]
const fn width(bits: u64) -> u8 {
    (u64::BITS - bits.leading_zeros()) as u8
}
