//! Packs 32 numbers of equal bit width, lowest first.
//!
//! Pairs of numbers are joined to one of twice the bits, pairs of those to one of four times, and so on, until the
//! result is whole bytes: at widths up to 16 bits, nearly always, in vector lanes.

#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "calling code that was compiled for newer CPUs, after asking for them; vectors from and to arrays"
    )
)]

/// Numbers packed at once.
pub(super) const GROUP: usize = 32;

/// Differences per block.
pub(in crate::store) const BLOCK: usize = 128;
/// Groups per block, each with its own bit width.
pub(super) const GROUPS: usize = BLOCK / GROUP;

/// Bytes that packing a group may write: it writes whole words, and the next group overwrites the surplus.
pub(super) const ROOM: usize = 8 * (GROUP + 1);

/// Writes the lowest `width` bits of each number minus `base`; returns their size, `4 * width` bytes.
///
/// Requires numbers minus `base` below `2^width`, and `width` at most 32.
#[inline(always)]
pub(super) fn pack(numbers: &[u32; GROUP], base: u32, width: usize, out: &mut [u8; ROOM]) -> usize {
    let quad = |quad: usize| {
        let numbers = numbers[4 * quad..4 * quad + 4].iter().rev();
        let less = numbers.map(|number| u128::from(number.wrapping_sub(base)));
        less.fold(0, |bits, number| bits << width | number)
    };
    put_quads(&std::array::from_fn(quad), width, out)
}

/// Writes quads (four packed numbers each) of at least half a byte per number.
#[inline(always)]
fn put_quads(quads: &[u128; GROUP / 4], width: usize, out: &mut [u8; ROOM]) -> usize {
    // Eight numbers are `width` bytes. The second four may begin within a byte.
    let (whole, odd) = (width / 2, width % 2 * 4);
    let mut put = |at: usize, bits: u128| {
        if let Some(out) = out[at..].first_chunk_mut() {
            *out = bits.to_le_bytes();
        }
    };
    for (index, [low, high]) in quads.as_chunks().0.iter().enumerate() {
        put(index * width, *low);
        put(
            index * width + whole,
            low.unbounded_shr(8 * whole as u32) | high << odd,
        );
    }
    4 * width
}

/// Like [`pack`], for numbers of up to 64 bits; several times slower.
pub(super) fn pack_wide(numbers: &[u64; GROUP], width: usize, out: &mut [u8; ROOM]) -> usize {
    // One word more, for the bits shifted out of the last one.
    let mut words = [0; GROUP + 1];
    for (index, &number) in numbers.iter().enumerate() {
        let (word, shift) = (index * width / 64, index * width % 64);
        words[word] |= number << shift;
        if shift + width > 64 {
            words[word + 1] |= number >> (64 - shift);
        }
    }
    out.copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
    4 * width
}

/// Appends the lowest `width` bits of each number; the count is a multiple of [`GROUP`].
pub(super) fn pack_all(numbers: &[u32], width: usize, out: &mut Vec<u8>) {
    let (groups, _) = numbers.as_chunks::<GROUP>();
    let start = out.len();
    let end = start + 4 * width * groups.len();
    out.resize(end + ROOM, 0);
    let room = &mut out[start..];
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has these instructions.
        unsafe { avx2::pack_all(groups, width, room) };
        return out.truncate(end);
    }
    pack_groups(groups, width, room, pack);
    out.truncate(end);
}

#[inline(always)]
fn pack_groups(
    groups: &[[u32; GROUP]],
    width: usize,
    mut out: &mut [u8],
    pack: impl Fn(&[u32; GROUP], u32, usize, &mut [u8; ROOM]) -> usize,
) {
    for group in groups {
        let Some(room) = out.first_chunk_mut() else {
            return;
        };
        let bytes = pack(group, 0, width, room);
        out = &mut out[bytes..];
    }
}

/// With AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use super::{GROUP, ROOM};

    /// [`super::pack`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in super::super) fn pack(
        numbers: &[u32; GROUP],
        base: u32,
        width: usize,
        out: &mut [u8; ROOM],
    ) -> usize {
        if width > 16 {
            return pack_long(numbers, base, width, out);
        }
        let base = _mm256_set1_epi32(base as i32);
        let fold = &FOLDS[width];
        let [first, second, third, fourth] = numbers.as_chunks().0 else {
            return 0;
        };
        let less = |numbers| _mm256_sub_epi32(load(numbers), base);
        let low = fold.sixteen(less(first), less(second));
        let high = fold.sixteen(less(third), less(fourth));
        // Eight numbers are `width` bytes.
        store(_mm256_castsi256_si128(low), &mut out[..]);
        store(_mm256_extracti128_si256::<1>(low), &mut out[width..]);
        store(_mm256_castsi256_si128(high), &mut out[2 * width..]);
        store(_mm256_extracti128_si256::<1>(high), &mut out[3 * width..]);
        4 * width
    }

    /// Like [`pack`] for widths above 16 bits: vectors do half of the work.
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    fn pack_long(numbers: &[u32; GROUP], base: u32, width: usize, out: &mut [u8; ROOM]) -> usize {
        let base = _mm256_set1_epi32(base as i32);
        let fold = &FOLDS[width % FOLDS.len()];
        let mut quads = [0; GROUP / 4];
        let (eights, pairs) = (numbers.as_chunks().0, quads.as_chunks_mut().0);
        for (numbers, quads) in eights.iter().zip(pairs) {
            let pairs = fold.pairs(_mm256_sub_epi32(load(numbers), base));
            store_pair(fold.quads(pairs), quads);
        }
        super::put_quads(&quads, width, out)
    }

    /// [`super::pack_groups`].
    #[target_feature(enable = "avx2")]
    pub(super) fn pack_all(groups: &[[u32; GROUP]], width: usize, out: &mut [u8]) {
        super::pack_groups(groups, width, out, |group, base, width, room| {
            pack(group, base, width, room)
        });
    }

    /// Constants for each width.
    static FOLDS: [Fold; 33] = {
        let mut folds = [const { Fold::new(0) }; 33];
        let mut width = 1;
        while width < folds.len() {
            folds[width] = Fold::new(width as u32);
            width += 1;
        }
        folds
    };

    /// Constants for packing at one width.
    ///
    /// Each step shifts the lower half of a lane up against the upper half, and then both down.
    #[repr(align(32))]
    struct Fold {
        /// Factors for the halves of a 32-bit lane: there is no shift of single 16-bit halves.
        up_32: [u32; 8],
        down_32: [u32; 8],
        up_64: [u32; 8],
        down_64: [u64; 4],
        /// Shifts of the upper half: the part that joins the lower word, and the rest.
        up_128: [u64; 4],
        down_128: [u64; 4],
    }

    impl Fold {
        const fn new(width: u32) -> Self {
            // Up to 16 bits the lanes have 16 bits; above, only the last two steps are used.
            let (free_32, width_32) = match width {
                0..=16 => (16 - width, 2 * width),
                _ => (0, width),
            };
            let (free_64, width_64) = (32 - width_32, 2 * width_32 as u64);
            Self {
                up_32: [1 << 16 | 1 << free_32; 8],
                down_32: [free_32; 8],
                up_64: [free_64, 0, free_64, 0, free_64, 0, free_64, 0],
                down_64: [free_64 as u64; 4],
                up_128: [0, width_64, 0, width_64],
                down_128: [64, 64 - width_64, 64, 64 - width_64],
            }
        }

        /// Packs sixteen numbers, eight per half.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn sixteen(&self, first: __m256i, second: __m256i) -> __m256i {
            // Packing interleaves the halves of both; then restore the order.
            let mixed = _mm256_packus_epi32(first, second);
            let of_16 = _mm256_permute4x64_epi64::<0b11_01_10_00>(mixed);
            let up = _mm256_mullo_epi16(of_16, load(&self.up_32));
            let of_32 = _mm256_srlv_epi32(up, load(&self.down_32));
            self.quads(self.pairs(of_32))
        }

        /// Joins two numbers in each 64-bit lane.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn pairs(&self, of_32: __m256i) -> __m256i {
            let up = _mm256_sllv_epi32(of_32, load(&self.up_64));
            _mm256_srlv_epi64(up, load_64(&self.down_64))
        }

        /// Joins two numbers in each 128-bit half.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn quads(&self, of_64: __m256i) -> __m256i {
            let up = _mm256_sllv_epi64(of_64, load_64(&self.up_128));
            let down = _mm256_srlv_epi64(of_64, load_64(&self.down_128));
            let apart = _mm256_blend_epi32::<0b1100_1100>(up, down);
            _mm256_or_si256(apart, _mm256_bsrli_epi128::<8>(up))
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(numbers: &[u32; 8]) -> __m256i {
        // SAFETY: there are 32 bytes, and they need not be aligned.
        unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_64(numbers: &[u64; 4]) -> __m256i {
        // SAFETY: there are 32 bytes, and they need not be aligned.
        unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(vector: __m128i, out: &mut [u8]) {
        if let Some(out) = out.first_chunk_mut::<16>() {
            // SAFETY: there are 16 bytes, and they need not be aligned.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), vector) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store_pair(vector: __m256i, out: &mut [u128; 2]) {
        // SAFETY: there are 32 bytes, and they need not be aligned.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), vector) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every bit is where the format says, at every width and for every base.
        #[test]
        fn bits_are_in_place(numbers: [u64; GROUP], width in 0usize..=64, base: u32) {
            let numbers = numbers.map(|n| if width == 0 { 0 } else { n >> (64 - width) });
            let bit = |out: &[u8], index: usize| u64::from(out[index / 8] >> (index % 8) & 1);
            let check = |out: &[u8]| {
                prop_assert_eq!(out.len(), 4 * width);
                for (index, &number) in numbers.iter().enumerate() {
                    let found = (0..width).fold(0, |n, b| n | bit(out, index * width + b) << b);
                    prop_assert_eq!(found, number);
                }
                Ok(())
            };
            let mut out = [7; ROOM];
            let bytes = pack_wide(&numbers, width, &mut out);
            check(&out[..bytes])?;
            if width <= 32 {
                let small = numbers.map(|n| n as u32);
                let raised = small.map(|n| n.wrapping_add(base));
                let bytes = pack(&raised, base, width, &mut out);
                check(&out[..bytes])?;
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") {
                    let mut out = [7; ROOM];
                    // SAFETY: the CPU has these instructions.
                    let bytes = unsafe { avx2::pack(&raised, base, width, &mut out) };
                    check(&out[..bytes])?;
                }
                let mut out = vec![7];
                pack_all(&[small, small].concat(), width, &mut out);
                prop_assert_eq!(out.len(), 1 + 8 * width);
                check(&out[1..1 + 4 * width])?;
                check(&out[1 + 4 * width..])?;
            }
        }
    }
}
