//! A small deterministic random generator for resampling.

use pebs_stats::rng::Rng;
pub(crate) use pebs_stats::rng::mix;

/// SplitMix64. The same seed gives the same numbers on every machine, so that a report of the same trace is the same
/// text.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64(Rng);

impl SplitMix64 {
    /// A generator that starts at `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// The next 64 random bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number in `0..n`, by multiplication: biased by less than n / 2^32. `n` must be at least 1.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        (((self.next_u64() >> 32) * u64::from(n)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator returns the published sequence of seed 1234567.
    #[test]
    fn known_sequence() {
        let mut rng = SplitMix64::new(1_234_567);
        let got: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            got,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    /// `below` reaches both ends of its range and nothing beyond.
    #[test]
    fn below_covers_range() {
        let mut rng = SplitMix64::new(1);
        let mut seen = [false; 7];
        for _ in 0..500 {
            seen[rng.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
    }
}
