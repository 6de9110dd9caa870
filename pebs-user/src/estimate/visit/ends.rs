//! Finds the ends of runs of samples of one function.

use crate::units::FunctionId;

/// Number of samples handled together.
const BLOCK: usize = 64;

/// Number of neighbouring pairs that are compared by a few instructions.
const PAIRS: usize = 8;

/// Number of functions in [`PAIRS`] pairs.
const WINDOW: usize = PAIRS + 1;

/// Iterates over the index of the last sample of each run, in order.
///
/// The ends are unpredictable, so neighbours are compared many at once without a branch for each.
pub(super) struct RunEnds<'a> {
    functions: &'a [FunctionId],
    /// First sample of the current block.
    begin: usize,
    /// One bit per sample of the block: a run ends there, and it was not returned yet.
    mask: u64,
}

impl<'a> RunEnds<'a> {
    #[inline(always)]
    pub(super) fn of(functions: &'a [FunctionId]) -> Self {
        Self {
            functions,
            begin: 0,
            mask: ends(functions),
        }
    }
}

impl Iterator for RunEnds<'_> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.mask == 0 {
            if self.functions.len() <= self.begin + BLOCK {
                return None;
            }
            (self.begin, self.mask) = next_block(self.functions, self.begin)?;
        }
        let bit = self.mask.trailing_zeros() as usize;
        self.mask &= self.mask - 1;
        Some(self.begin + bit)
    }
}

/// Returns the next block in which a run ends, and its mask.
#[cold]
fn next_block(functions: &[FunctionId], begin: usize) -> Option<(usize, u64)> {
    let begins = (begin + BLOCK..functions.len()).step_by(BLOCK);
    let mut masks = begins.map(|begin| (begin, ends(&functions[begin..])));
    masks.find(|(_, mask)| *mask != 0)
}

/// One bit for each of the first [`BLOCK`] samples: whether a run ends with it.
#[inline(always)]
fn ends(functions: &[FunctionId]) -> u64 {
    match functions.len() {
        0 => 0,
        rest if rest <= BLOCK => changes(functions) | 1 << (rest - 1),
        _ => changes(&functions[..=BLOCK]),
    }
}

/// One bit for each pair of neighbours that differ, at most [`BLOCK`].
#[inline(never)]
fn changes(functions: &[FunctionId]) -> u64 {
    // The last window, which may overlap the others.
    let Some(last) = functions.last_chunk() else {
        return one_by_one(functions);
    };
    let (mut mask, mut begin) = (compare(last) << (functions.len() - WINDOW), 0);
    let mut rest = functions;
    while let Some(window) = rest.first_chunk() {
        mask |= compare(window) << begin;
        rest = &rest[PAIRS..];
        begin += PAIRS;
    }
    mask
}

/// One bit for each pair of neighbours that differ.
#[inline(always)]
fn compare(functions: &[FunctionId; WINDOW]) -> u64 {
    let mut bytes = [0; PAIRS];
    mark(functions, &mut bytes);
    gathered(bytes)
}

/// One byte for each pair of neighbours: 1 where they differ.
///
/// Never inlined: on its own it is compiled to few vector instructions.
#[inline(never)]
fn mark(functions: &[FunctionId; WINDOW], bytes: &mut [u8; PAIRS]) {
    for (byte, (one, next)) in bytes.iter_mut().zip(functions.iter().zip(&functions[1..])) {
        *byte = u8::from(one != next);
    }
}

/// Gathers the lowest bit of each byte, all of which are 0 or 1.
#[inline(always)]
const fn gathered(bytes: [u8; PAIRS]) -> u64 {
    // Moves each byte's bit to its own place in the highest byte, without collisions.
    u64::from_le_bytes(bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

fn one_by_one(functions: &[FunctionId]) -> u64 {
    let pairs = functions.windows(2).enumerate();
    let bits = pairs.map(|(bit, pair)| u64::from(pair[0] != pair[1]) << bit);
    bits.fold(0, |mask, bit| mask | bit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every end is found, at any distance from the blocks' bounds, and no other.
        #[test]
        fn as_one_by_one(functions in prop::collection::vec(0_u32..3, 0..300), same in any::<bool>()) {
            let functions = functions.into_iter().map(|id| FunctionId(if same { id / 2 } else { id }));
            let functions: Vec<_> = functions.collect();
            let ends = |index: &usize| functions.get(index + 1) != Some(&functions[*index]);
            let expected: Vec<_> = (0..functions.len()).filter(ends).collect();
            prop_assert_eq!(RunEnds::of(&functions).collect::<Vec<_>>(), expected);
        }
    }
}
