//! Packs 32 numbers of the same number of bits, lowest first.

/// Numbers packed at once.
pub(super) const GROUP: usize = 32;

/// Appends the lowest `width` bits of each number: `4 * width` bytes.
///
/// Numbers are below `2^width`, `width` is 64 at most.
#[inline]
pub(super) fn pack(numbers: &[u64; GROUP], width: usize, out: &mut Vec<u8>) {
    // A word of room at the end, as each width writes whole words.
    let mut words = [0u64; GROUP + 1];
    PACK[width](numbers, &mut words);
    let bytes = 4 * width;
    let start = out.len();
    // Whole words are copied, and what is too much is cut off again.
    for word in &words[..bytes.div_ceil(8)] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.truncate(start + bytes);
}

type Pack = fn(&[u64; GROUP], &mut [u64; GROUP + 1]);

/// One function a width: with the width known, every shift is.
#[inline(always)]
fn pack_width<const WIDTH: usize>(numbers: &[u64; GROUP], words: &mut [u64; GROUP + 1]) {
    for (index, &number) in numbers.iter().enumerate() {
        let (word, shift) = (index * WIDTH / 64, index * WIDTH % 64);
        words[word] |= number << shift;
        if shift + WIDTH > 64 {
            words[word + 1] |= number >> (64 - shift);
        }
    }
}

fn pack_none(_: &[u64; GROUP], _: &mut [u64; GROUP + 1]) {}

macro_rules! table {
    ($($width:literal)*) => {
        [pack_none, $(pack_width::<$width>),*]
    };
}

static PACK: [Pack; 65] = table!(
    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every bit comes out where the format says, at every width.
        #[test]
        fn bits_are_in_place(numbers: [u64; GROUP], width in 0usize..=64) {
            let numbers = numbers.map(|n| if width == 0 { 0 } else { n >> (64 - width) });
            let mut out = vec![7];
            pack(&numbers, width, &mut out);
            prop_assert_eq!(out.len(), 1 + 4 * width);
            let bit = |index: usize| u64::from(out[1 + index / 8] >> (index % 8) & 1);
            for (index, &number) in numbers.iter().enumerate() {
                let found = (0..width).fold(0, |n, b| n | bit(index * width + b) << b);
                prop_assert_eq!(found, number);
            }
        }
    }
}
