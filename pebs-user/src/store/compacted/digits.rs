//! Indices of two bytes that zstd makes as small as their entropy.
//!
//! zstd has one code for all bytes of a block, be they the first or the second of an index. Where the first is any
//! byte and the second one of few, as in entries counted through, each index pays up to 2 bits to say which is which.
//! Nothing is lost if both bytes are as likely to be each value. So a byte here is a digit, and an entry has the
//! pair of digits whose shares multiply to its own share: 300 entries that are equally likely have 18 digits.
//!
//! Worked number: 300 entries, entropy 8.23 bits; counted through 10.53, as pairs 8.37.

/// Entries that have two digits at most.
pub(super) const PAIRS: usize = 1 << 16;

/// Values of a digit.
const DIGITS: usize = 1 << 8;

/// Rounds of [`pairs`]; more of them gain less than 0.01 bits.
const ROUNDS: usize = 3;

/// An index for each entry, of which there are [`PAIRS`] at most: its low and its high byte are a pair of digits.
///
/// `counts`: how often the entries occur, falling.
/// Cost: O(n log^2 n) for n entries.
pub(super) fn pairs(counts: &[u32]) -> Vec<u16> {
    // As if entry n^2 had digit n twice.
    let guess = |digit| counts.get(digit * digit).map_or(0.0, |it| f64::from(*it));
    let mut shares: Vec<f64> = (0..DIGITS).map(|digit| guess(digit).sqrt()).collect();
    let mut pairs = Vec::new();
    for _ in 0..ROUNDS {
        pairs = likeliest(&shares, counts.len());
        shares.fill(0.0);
        for (pair, count) in pairs.iter().zip(counts) {
            for digit in pair.to_le_bytes() {
                shares[usize::from(digit)] += f64::from(*count);
            }
        }
        shares.sort_by(|a, b| b.total_cmp(a));
    }
    pairs
}

/// The `count` pairs whose digits' shares multiply to most, most first. `shares`: falling.
fn likeliest(shares: &[f64], count: usize) -> Vec<u16> {
    let mut pairs = Vec::new();
    for (high, share) in shares.iter().enumerate() {
        // The pairs of lower digits than these are as likely at least, and enough.
        let digits = (count / (high + 1)).min(DIGITS);
        let pair = |low: usize| (share * shares[low], (high << 8 | low) as u16);
        pairs.extend((0..digits).map(pair));
    }
    pairs.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    pairs.truncate(count);
    pairs.into_iter().map(|(_, pair)| pair).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Bits of a number that has such a share of all.
    fn bits(counts: impl IntoIterator<Item = f64>) -> f64 {
        let counts: Vec<f64> = counts.into_iter().filter(|it| *it > 0.0).collect();
        let sum: f64 = counts.iter().sum();
        counts.iter().map(|it| it / sum * (sum / it).log2()).sum()
    }

    /// Bits of an index whose bytes all have the same code.
    fn cost(counts: &[u32], pairs: &[u16]) -> f64 {
        let mut bytes = [0.0; DIGITS];
        for (pair, count) in pairs.iter().zip(counts) {
            for digit in pair.to_le_bytes() {
                bytes[usize::from(digit)] += f64::from(*count);
            }
        }
        2.0 * bits(bytes)
    }

    // However many entries there are, each has a pair of its own.
    #[test]
    fn pairs_differ() {
        for entries in [1, 2, 17, 257, 300, 4800, 40_000, 65_000, 65_535, 65_536] {
            for counts in [
                vec![7; entries],
                (0..entries as u32).map(|n| 1_000_000 / (n + 1)).collect(),
            ] {
                let pairs = pairs(&counts);
                assert_eq!(pairs.len(), entries);
                let distinct: BTreeSet<u16> = pairs.into_iter().collect();
                assert_eq!(distinct.len(), entries);
            }
        }
    }

    // An index costs little more than its entropy, where entries are equally likely or many of them rare. It costs more
    // where one of them is most, as the second digit then follows from the first; zstd finds that where it repeats.
    #[test]
    fn pairs_cost_their_entropy() {
        let equal = vec![1000; 300];
        let falling: Vec<u32> = (1..5000).map(|n| 10_000_000 / n).collect();
        let mut one = vec![100; 1000];
        one[0] = 100_000;
        for (counts, most) in [(equal, 0.1), (falling, 0.3), (one, 0.9)] {
            let entropy = bits(counts.iter().map(|it| f64::from(*it)));
            let through: Vec<u16> = (0..counts.len() as u16).collect();
            let (pairs, through) = (cost(&counts, &pairs(&counts)), cost(&counts, &through));
            assert!(pairs < entropy + most, "{pairs} {entropy}");
            assert!(pairs < through - 0.5, "{pairs} {through}");
        }
    }
}
