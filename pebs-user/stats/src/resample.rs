//! Draws of blocks for pooled estimates, which need fewer replicates than [`crate::blocks`] has, of more blocks.

use crate::rng::Rng;

/// Blocks of items. The width of an interval is then itself known to 1/sqrt(2 x 512) = 3 %.
pub const BLOCKS: usize = 512;

/// Number of times that each block is drawn.
pub type Weights = Box<[u16; BLOCKS]>;

/// As many of these blocks as there are, drawn with replacement.
#[must_use]
pub fn drawn(of: &[usize], rng: &mut Rng) -> Weights {
    let mut weights = Box::new([0; BLOCKS]);
    for _ in of {
        weights[of[rng.below(of.len())]] += 1;
    }
    weights
}

/// Sum over the blocks, in as many parts as are computed at a time.
#[must_use]
pub fn weighted(weights: &Weights, values: &[f64; BLOCKS]) -> f64 {
    const PARTS: usize = 8;
    let mut sums = [0.0; PARTS];
    let (weights, _) = weights.as_chunks::<PARTS>();
    let (values, _) = values.as_chunks::<PARTS>();
    for (weights, values) in weights.iter().zip(values) {
        for ((sum, weight), value) in sums.iter_mut().zip(weights).zip(values) {
            *sum += f64::from(*weight) * value;
        }
    }
    sums.iter().sum()
}
