//! Packs 32 numbers of the same number of bits, lowest first.

/// Numbers packed at once.
pub(super) const GROUP: usize = 32;

/// Words that a group takes at most: 32 numbers of 32 bits.
const WORDS: usize = GROUP / 2;

/// Appends the lowest `width` bits of each number: `4 * width` bytes.
///
/// Numbers are below `2^width`, `width` is 32 at most.
#[inline(always)]
pub(super) fn pack(numbers: &[u32; GROUP], width: usize, out: &mut Vec<u8>) {
    let mut words = [0; WORDS];
    PACK[width](numbers, &mut words);
    append(&words, width, out);
}

/// The same for widths up to 64, several times slower.
pub(super) fn pack_wide(numbers: &[u64; GROUP], width: usize, out: &mut Vec<u8>) {
    // A word of room at the end, for what is shifted out of the last one.
    let mut words = [0; GROUP + 1];
    for (index, &number) in numbers.iter().enumerate() {
        let (word, shift) = (index * width / 64, index * width % 64);
        words[word] |= number << shift;
        if shift + width > 64 {
            words[word + 1] |= number >> (64 - shift);
        }
    }
    append(&words, width, out);
}

/// Whole words are copied, and what is too much is cut off again.
#[inline(always)]
fn append<const N: usize>(words: &[u64; N], width: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
    out.truncate(start + 4 * width);
}

type Pack = fn(&[u32; GROUP], &mut [u64; WORDS]);

/// One function a width, and each number's line its own: so every shift and every word is known.
macro_rules! pack_width {
    ($($index:literal)*) => {
        fn pack_width<const WIDTH: usize>(numbers: &[u32; GROUP], out: &mut [u64; WORDS]) {
            let mut words = [0u64; WORDS + 1];
            $(
                let number = u64::from(numbers[$index]);
                let (word, shift) = ($index * WIDTH / 64, $index * WIDTH % 64);
                words[word] |= number << shift;
                if shift + WIDTH > 64 {
                    words[word + 1] |= number >> (64 - shift);
                }
            )*
            out.copy_from_slice(&words[..WORDS]);
        }
    };
}

pack_width!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);

macro_rules! table {
    ($($width:literal)*) => {
        [$(pack_width::<$width>),*]
    };
}

static PACK: [Pack; 33] = table!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
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
            let bit = |out: &[u8], index: usize| u64::from(out[1 + index / 8] >> (index % 8) & 1);
            let check = |out: &[u8]| {
                prop_assert_eq!(out.len(), 1 + 4 * width);
                for (index, &number) in numbers.iter().enumerate() {
                    let found = (0..width).fold(0, |n, b| n | bit(out, index * width + b) << b);
                    prop_assert_eq!(found, number);
                }
                Ok(())
            };
            let mut out = vec![7];
            pack_wide(&numbers, width, &mut out);
            check(&out)?;
            if width <= 32 {
                out.truncate(1);
                pack(&numbers.map(|n| n as u32), width, &mut out);
                check(&out)?;
            }
        }
    }
}
