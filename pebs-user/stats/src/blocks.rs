//! Sums over items by block, for replicates of a bootstrap.
//!
//! A bootstrap over items draws as many items as there are, with replacement. To bound cost and
//! memory for any number of items, they are put into [`BLOCKS`] blocks by a hash of their index, and
//! whole blocks are drawn: with fewer items than blocks that is nearly the bootstrap over single
//! items. The seed is fixed, so the same trace gives the same intervals. Source: Efron and
//! Tibshirani, "An Introduction to the Bootstrap", chapters 6 and 13.

use crate::rng::{Rng, mix};

/// Blocks of items. The width of an interval is then itself known to 1/sqrt(2 x 256) = 4 %.
pub const BLOCKS: usize = 256;

/// Replicates: the ends of a 95 % interval are the 26th values from either end.
pub const REPLICATES: usize = 1000;

/// Least number of non-empty blocks for an interval.
pub const MIN_ITEMS: usize = 8;

/// Seed of the resampling.
const SEED: u64 = 0x6578_706c;

pub const fn block_of(item: u32) -> usize {
    (mix(item as u64) % BLOCKS as u64) as usize
}

/// One sum for each block.
///
/// Memory: 2 KiB once something was added.
#[derive(Clone, Debug, Default)]
pub struct Blocks(Option<Box<[f64; BLOCKS]>>);

impl Blocks {
    /// Puts the whole sum into one block; it has no replicates.
    pub fn fixed(sum: f64) -> Self {
        let mut blocks = Self::default();
        blocks.add(0, sum);
        blocks
    }

    pub fn add(&mut self, block: usize, value: f64) {
        self.0.get_or_insert_with(|| Box::new([0.0; BLOCKS]))[block] += value;
    }

    /// Adds other sums, block by block.
    pub fn merge(&mut self, other: &Self) {
        if let Some(other) = &other.0 {
            let own = self.0.get_or_insert_with(|| Box::new([0.0; BLOCKS]));
            own.iter_mut()
                .zip(other.iter())
                .for_each(|(own, more)| *own += more);
        }
    }

    /// Takes other sums away, block by block.
    pub fn take_away(&mut self, other: &Self) {
        if let Some(other) = &other.0 {
            let own = self.0.get_or_insert_with(|| Box::new([0.0; BLOCKS]));
            (own.iter_mut().zip(other.iter())).for_each(|(own, less)| *own -= less);
        }
    }

    /// The sum of a block.
    pub fn get(&self, block: usize) -> f64 {
        self.0.as_ref().map_or(0.0, |blocks| blocks[block])
    }

    /// The sum over all blocks.
    pub fn total(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |blocks| blocks.iter().sum())
    }

    /// The sum with each block taken as often as a replicate drew it.
    pub fn weighted(&self, draw: &Draw) -> f64 {
        let Some(blocks) = &self.0 else { return 0.0 };
        draw.0
            .iter()
            .map(|(block, weight)| blocks[*block] * weight)
            .sum()
    }

    /// Non-empty blocks.
    fn filled(&self) -> Vec<usize> {
        let blocks = self.0.as_ref().map_or(&[][..], |blocks| &blocks[..]);
        (0..blocks.len())
            .filter(|&block| blocks[block] > 0.0)
            .collect()
    }
}

/// Number of times that a replicate drew each block.
#[derive(Clone, Debug)]
pub struct Draw(Vec<(usize, f64)>);

/// Replicates of the items of a class; empty if it has too few.
#[derive(Clone, Debug)]
pub struct Draws(pub Vec<Draw>);

impl Draws {
    /// Draws from the non-empty blocks. A class of a fixed sum is the same in every replicate.
    pub fn of(items: &Blocks, stream: u64) -> Self {
        let filled = items.filled();
        let fixed = filled.len() == 1 && items.total() >= MIN_ITEMS as f64;
        if filled.len() < MIN_ITEMS && !fixed {
            return Self(Vec::new());
        }
        let mut rng = Rng::new(SEED ^ mix(stream));
        let mut draw = || {
            let mut weights = vec![0.0; filled.len()];
            for _ in &filled {
                weights[rng.below(filled.len())] += 1.0;
            }
            let drawn = filled.iter().copied().zip(weights).filter(|it| it.1 > 0.0);
            Draw(drawn.collect())
        };
        Self((0..REPLICATES).map(|_| draw()).collect())
    }
}

/// The middle 95 % of replicates; `None` if there are none, or more than one in forty is not finite.
pub fn interval(mut values: Vec<f64>) -> Option<(f64, f64)> {
    let all = values.len();
    values.retain(|value| value.is_finite());
    if values.is_empty() || (all - values.len()) * 40 > all {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 40;
    Some((values[cut], values[values.len() - 1 - cut]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replicates vary as a mean of this many items does.
    #[test]
    fn width_of_a_mean() {
        let (mut items, mut sum) = (Blocks::default(), Blocks::default());
        let mut rng = Rng::new(3);
        for item in 0..4000 {
            items.add(block_of(item), 1.0);
            sum.add(block_of(item), rng.below(1000) as f64);
        }
        let draws = Draws::of(&items, 0);
        let means = draws
            .0
            .iter()
            .map(|it| sum.weighted(it) / items.weighted(it));
        let (low, high) = interval(means.collect()).unwrap();
        let expected = 2.0 * 1.96 * 288.7 / 4000_f64.sqrt();
        let ratio = (high - low) / expected;
        assert!((0.85..1.15).contains(&ratio), "{ratio}");
        assert!(low < 499.5 && 499.5 < high, "{low} {high}");
    }

    /// Few items give no replicates; a fixed class gives equal ones.
    #[test]
    fn few_and_fixed() {
        let mut few = Blocks::default();
        (0..5).for_each(|item| few.add(block_of(item), 1.0));
        assert!(Draws::of(&few, 0).0.is_empty());
        let fixed = Blocks::fixed(500.0);
        let draws = Draws::of(&fixed, 0);
        assert!(draws.0.iter().all(|draw| fixed.weighted(draw) == 500.0));
        assert_eq!(interval(Vec::new()), None);
        assert_eq!(interval(vec![f64::NAN; 10]), None);
    }
}
