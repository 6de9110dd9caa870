//! Differences within a block, computed in 32 bits.
//!
//! In nearly all blocks the numbers differ only in their lowest 31 bits: times within two seconds, ids, counts.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "vectors from and to arrays")
)]

use super::integer::Integer;
use super::pack::{BLOCK, GROUP, GROUPS};

/// Numbers are near if they differ in these bits only.
const NEAR: u64 = i32::MAX as u64;

/// Result of comparing the numbers of a full block.
pub(super) struct Compared {
    /// Whether they differ in their lowest 31 bits only. If not, the other fields are meaningless.
    pub(super) are_near: bool,
    /// The lowest 32 bits of each number's difference to the next one.
    pub(super) differences: [u32; BLOCK],
    /// The smallest difference.
    pub(super) smallest: i32,
    pub(super) largest: [i32; GROUPS],
    /// Smallest and largest of the lowest 32 bits, without the first number.
    low: (u32, u32),
}

impl Compared {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            are_near: false,
            differences: [0; BLOCK],
            smallest: 0,
            largest: [0; GROUPS],
            low: (0, 0),
        }
    }

    /// Smallest and largest of `numbers`, the numbers compared.
    #[inline(always)]
    pub(super) fn range<T: Integer>(&self, numbers: &[T; BLOCK + 1]) -> (T, T) {
        let first = numbers[0];
        let (min, max) = (first.with_low(self.low.0), first.with_low(self.low.1));
        (first.min(min), first.max(max))
    }
}

#[inline(always)]
pub(super) fn compare<T: Integer>(numbers: &[T; BLOCK + 1], to: &mut Compared) {
    let (first, rest) = (numbers[0], &numbers[1..]);
    let Compared {
        differences,
        largest,
        ..
    } = to;
    for (index, difference) in differences.iter_mut().enumerate() {
        *difference = numbers[index + 1].low().wrapping_sub(numbers[index].low());
    }
    for (group, to) in differences.as_chunks::<GROUP>().0.iter().zip(largest) {
        *to = group.iter().fold(i32::MIN, |a, b| a.max(*b as i32));
    }
    let range = |(min, max): (u32, u32), number: &T| (min.min(number.low()), max.max(number.low()));
    to.smallest = differences.iter().fold(i32::MAX, |a, b| a.min(*b as i32));
    to.are_near = T::unlike(rest, first) <= NEAR;
    to.low = rest.iter().fold((u32::MAX, 0), range);
}

/// With AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use super::{BLOCK, Compared, GROUP, Integer, NEAR};

    /// [`super::compare`] of numbers of 64 bits, in one pass.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in super::super) fn compare_64<T: Integer>(numbers: &[T; BLOCK + 1], to: &mut Compared) {
        let first = _mm256_set1_epi64x(numbers[0].stored().into());
        let mut unlike = _mm256_setzero_si256();
        let Compared {
            differences,
            largest,
            ..
        } = to;
        let mut smallest = _mm256_set1_epi32(i32::MAX);
        let (mut min, mut max) = (_mm256_set1_epi32(-1), _mm256_setzero_si256());
        let (groups, _) = differences.as_chunks_mut::<GROUP>();
        for (group, (differences, to)) in groups.iter_mut().zip(largest).enumerate() {
            let mut largest = _mm256_set1_epi32(i32::MIN);
            for (eight, to) in differences.as_chunks_mut().0.iter_mut().enumerate() {
                let at = group * GROUP + 8 * eight;
                let (one, two) = (four(numbers, at + 1), four(numbers, at + 5));
                let apart = |numbers| _mm256_xor_si256(numbers, first);
                unlike = _mm256_or_si256(unlike, _mm256_or_si256(apart(one), apart(two)));
                // The lower halves of eight numbers; their order does not matter here.
                let low = lower(one, two);
                (min, max) = (_mm256_min_epu32(min, low), _mm256_max_epu32(max, low));
                let one = _mm256_sub_epi64(one, four(numbers, at));
                let two = _mm256_sub_epi64(two, four(numbers, at + 4));
                let difference = _mm256_permute4x64_epi64::<0b11_01_10_00>(lower(one, two));
                smallest = _mm256_min_epi32(smallest, difference);
                largest = _mm256_max_epi32(largest, difference);
                *to = array(difference);
            }
            *to = array(largest)
                .into_iter()
                .fold(i32::MIN, |a, b| a.max(b as i32));
        }
        let smallest = array(smallest).into_iter();
        to.smallest = smallest.fold(i32::MAX, |a, b| a.min(b as i32));
        to.are_near = _mm256_testc_si256(_mm256_set1_epi64x(NEAR as i64), unlike) == 1;
        to.low = (
            array(min).into_iter().fold(u32::MAX, u32::min),
            array(max).into_iter().fold(0, u32::max),
        );
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn four<T: Integer>(numbers: &[T; BLOCK + 1], at: usize) -> __m256i {
        let four: &[T; 4] = match numbers[at..].first_chunk() {
            Some(four) if size_of::<T>() == 8 => four,
            _ => return _mm256_setzero_si256(),
        };
        // SAFETY: there are 32 bytes, and they need not be aligned.
        unsafe { _mm256_loadu_si256(four.as_ptr().cast()) }
    }

    /// The lower halves of eight numbers: two of `one`, two of `two`, and so on.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn lower(one: __m256i, two: __m256i) -> __m256i {
        let (one, two) = (_mm256_castsi256_ps(one), _mm256_castsi256_ps(two));
        _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(one, two))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn array(vector: __m256i) -> [u32; 8] {
        // SAFETY: both are 32 bytes, of which any are valid.
        unsafe { std::mem::transmute(vector) }
    }
}
