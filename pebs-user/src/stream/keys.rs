//! Sorting records by time without moving them.
//!
//! A least-significant-digit radix sort of (time, index): stable, and linear in the number of keys.
//! Its digits cover only the bits in which the times differ.
//! Source: Knuth, The Art of Computer Programming, volume 3, 5.2.5, algorithm R.

use crate::stream::decode::Record;
use crate::units::TraceNs;

/// Bits of a digit at most. Its counts take 16 KiB, which the L1 cache holds.
const DIGIT_BITS: u32 = 12;

/// Below this many keys, clearing the counts would cost more than comparing keys.
const RADIX_FROM: usize = 512;

/// Time and place of a record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key {
    time: TraceNs,
    index: u32,
}

impl Key {
    /// Where the record stands.
    pub const fn index(&self) -> usize {
        self.index as usize
    }
}

/// Keys of records.
#[derive(Debug, Default)]
pub(super) struct Keys {
    keys: Vec<Key>,
    spare: Vec<Key>,
    counts: Vec<u32>,
}

impl Keys {
    /// Takes the keys of all records below the frontier. There are less than 2^32 records.
    pub fn fill(&mut self, records: &[Record], frontier: TraceNs) {
        self.keys.clear();
        let below = |(record, index): (&Record, u32)| {
            let key = Key {
                time: record.time,
                index,
            };
            (record.time < frontier).then_some(key)
        };
        self.keys.extend(records.iter().zip(0..).filter_map(below));
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// The keys in order of time, then of index.
    pub fn sorted(&mut self) -> &[Key] {
        if self.keys.len() < RADIX_FROM {
            self.keys.sort_by_key(|key| key.time);
        } else {
            self.sort_by_digits();
        }
        &self.keys
    }

    fn sort_by_digits(&mut self) {
        let times = self.keys.iter().map(|key| key.time);
        let first = times.clone().min().unwrap_or_default();
        let last = times.max().unwrap_or_default();
        let bits = u64::BITS - offset(last, first).leading_zeros();
        let digits = bits.div_ceil(DIGIT_BITS);
        let width = bits.div_ceil(digits.max(1));
        self.spare.resize(self.keys.len(), Key::default());
        for digit in 0..digits {
            let mask = (1 << width) - 1;
            let digit = |key: &Key| (offset(key.time, first) >> (digit * width) & mask) as usize;
            self.counts.clear();
            self.counts.resize(1 << width, 0);
            distribute(&self.keys, &mut self.spare, &mut self.counts, digit);
            std::mem::swap(&mut self.keys, &mut self.spare);
        }
    }
}

/// Time since the first one, ns. Right even where the difference does not fit an `i64`.
const fn offset(time: TraceNs, first: TraceNs) -> u64 {
    time.0.wrapping_sub(first.0) as u64
}

/// Copies keys to their places by one digit, equal ones in the order in which they stand. `counts`
/// is 0 for every digit.
fn distribute(from: &[Key], to: &mut [Key], counts: &mut [u32], digit: impl Fn(&Key) -> usize) {
    from.iter().for_each(|key| counts[digit(key)] += 1);
    let mut place = 0;
    for count in counts.iter_mut() {
        place += std::mem::replace(count, place);
    }
    for key in from {
        let place = &mut counts[digit(key)];
        to[*place as usize] = *key;
        *place += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::decode::Body;
    use crate::units::{Cpu, Pid, Tid};
    use proptest::prelude::*;

    fn record(time: i64) -> Record {
        let (pid, tid, cpu) = (Pid(1), Tid(1), Cpu(0));
        Record {
            time: TraceNs(time),
            pid,
            tid,
            cpu,
            body: Body::SwitchIn,
        }
    }

    fn check(times: &[i64], frontier: i64) {
        let records: Vec<Record> = times.iter().map(|time| record(*time)).collect();
        let mut expected: Vec<usize> = (0..times.len())
            .filter(|index| times[*index] < frontier)
            .collect();
        expected.sort_by_key(|index| times[*index]);
        let mut keys = Keys::default();
        // Twice: what one sort leaves behind does not disturb the next.
        for _ in 0..2 {
            keys.fill(&records, TraceNs(frontier));
            let sorted: Vec<usize> = keys.sorted().iter().map(Key::index).collect();
            assert_eq!(sorted, expected);
        }
    }

    proptest! {
        /// Many keys of any spread of times come out as a stable sort gives them.
        #[test]
        fn as_a_stable_sort(
            times in prop::collection::vec(any::<i64>(), RADIX_FROM..3 * RADIX_FROM),
            shift in 0u32..64,
            frontier: i64,
        ) {
            let times: Vec<i64> = times.iter().map(|time| time >> shift).collect();
            check(&times, frontier >> shift);
            check(&times, i64::MAX);
        }
    }

    /// Equal times need no digit at all; few keys take the other way.
    #[test]
    fn few_and_equal() {
        check(&[5; 2 * RADIX_FROM], 6);
        check(&[5; 2 * RADIX_FROM], 5);
        check(&[3, 1, 2, 1], 3);
        check(&[], 0);
        check(&[i64::MIN, i64::MAX - 1, 0].repeat(RADIX_FROM), i64::MAX);
    }
}
