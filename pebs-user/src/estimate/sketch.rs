//! A compact distribution: counts of values in buckets whose width grows with the value.
//!
//! Values below 64 have a bucket each; above, every factor of two is divided into 32 buckets of equal width.
//! So a bucket is at most 1/32 of its values wide, and its middle is within [`RELATIVE_ERROR`] = 1/64 = 1.6 %
//! of each of them. A quantile is the middle of the bucket that holds the value of its rank: its error is at
//! most that, whatever the distribution.
//!
//! Buckets are the same in every sketch, so two sketches merge by adding counts, without further error and in
//! any order: segments, threads, hosts. In a trace a sketch is two lists of the same length, `bucket_ns`
//! (middles, rising) and `bucket_count`, and a quantile is a few lines of SQL.
//!
//! *Worked number.* 1,000,000 ns is in the factor of two that begins at 2^19 = 524,288, whose buckets are
//! 2^14 = 16,384 wide: in the bucket 999,424..1,015,807, whose middle is 1,007,616, 0.8 % above the value.
//!
//! Source: HdrHistogram's layout; Masson, Rim, Lee, "DDSketch", VLDB 12 (2019), for merging and the
//! meaning of the relative error.

/// The largest error of a quantile, as a share of its value.
pub const RELATIVE_ERROR: f64 = 1.0 / 64.0;

/// The share of all visits that are the slowest ones.
pub const SLOWEST: f64 = 0.01;

/// Binary digits of a value kept by its bucket, besides the leading one.
const DIGITS: u32 = 5;

/// Buckets per factor of two.
const PER_OCTAVE: usize = 1 << DIGITS;

/// Number of buckets for 64-bit values.
pub const BUCKETS: usize = (64 - DIGITS as usize + 1) * PER_OCTAVE;

/// Bucket number of a value; rises with the value.
#[must_use]
pub const fn bucket(value: u64) -> usize {
    if value < PER_OCTAVE as u64 {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - DIGITS;
    shift as usize * PER_OCTAVE + (value >> shift) as usize
}

/// Bucket number of a value without its fraction; of a negative one 0.
///
/// The leading bits of a float are the exponent and the digits kept by a bucket: the same number as in
/// [`bucket`].
#[inline]
const fn bucket_of_real(value: f64) -> usize {
    if value >= PER_OCTAVE as f64 {
        let first = value.to_bits() >> (f64::MANTISSA_DIGITS - 1 - DIGITS);
        // Bias of the first such value, so that its bucket follows those of the smaller ones.
        let bias = (f64::MAX_EXP - 2) as usize + DIGITS as usize;
        let bucket = first as usize - bias * PER_OCTAVE;
        if bucket < BUCKETS {
            bucket
        } else {
            BUCKETS - 1
        }
    } else {
        value as usize
    }
}

/// Smallest value of a bucket.
#[must_use]
pub const fn lowest(bucket: usize) -> u64 {
    if bucket < 2 * PER_OCTAVE {
        return bucket as u64;
    }
    let shift = bucket / PER_OCTAVE - 1;
    ((bucket % PER_OCTAVE + PER_OCTAVE) as u64) << shift
}

/// Value that represents a bucket.
#[must_use]
pub const fn middle(bucket: usize) -> u64 {
    let half = if bucket < 2 * PER_OCTAVE {
        0
    } else {
        (1 << (bucket / PER_OCTAVE - 1)) / 2
    };
    lowest(bucket) + half
}

/// A distribution of values.
///
/// Memory: 8 bytes per bucket between the smallest value and the largest, typically 3 KiB, at most 15 KiB
/// ([`BUCKETS`]). Allocates only when a value lies outside of the earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// Bucket of the first count.
    first: usize,
    /// Counts by bucket; the first and the last are not 0.
    counts: Vec<u64>,
    total: u64,
}

impl Sketch {
    /// Adds a value.
    ///
    /// Cost: O(1), except for values smaller than all before.
    pub fn add(&mut self, value: u64) {
        self.add_to(bucket(value));
    }

    /// Adds a value without its fraction; a negative one counts as 0.
    #[inline]
    pub fn add_real(&mut self, value: f64) {
        self.add_to(bucket_of_real(value));
    }

    #[inline]
    fn add_to(&mut self, bucket: usize) {
        // Nearly always the value is between others.
        match self.counts.get_mut(bucket.wrapping_sub(self.first)) {
            Some(count) => {
                *count += 1;
                self.total += 1;
            }
            None => self.add_bucket(bucket, 1),
        }
    }

    /// Adds `count` values of a bucket. Bucket numbers that are too large count as the last one.
    pub fn add_bucket(&mut self, bucket: usize, count: u64) {
        if count == 0 {
            return;
        }
        let bucket = bucket.min(BUCKETS - 1);
        if self.counts.is_empty() {
            self.first = bucket;
        } else if bucket < self.first {
            let more = self.first - bucket;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        let index = bucket - self.first;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += count;
        self.total += count;
    }

    /// Adds the values of another sketch.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.buckets() {
            self.add_bucket(bucket, count);
        }
    }

    /// The values that came since it was this earlier one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = Self::default();
        for (bucket, count) in self.buckets() {
            let at = bucket.checked_sub(earlier.first);
            let before = at.and_then(|at| earlier.counts.get(at)).copied();
            since.add_bucket(bucket, count.saturating_sub(before.unwrap_or(0)));
        }
        since
    }

    /// Removes all values, keeps the allocation.
    pub fn clear(&mut self) {
        self.counts.clear();
        (self.first, self.total) = (0, 0);
    }

    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.total
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Buckets with a value, and their counts, rising.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        let counts = self.counts.iter().enumerate();
        counts
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (self.first + index, *count))
    }

    /// Smallest value that is not exceeded by this share of all values, within [`RELATIVE_ERROR`]; `None` if
    /// there is no value.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bucket, count) in self.buckets() {
            below += count;
            if below >= rank.min(self.total) {
                return Some(middle(bucket));
            }
        }
        None
    }

    /// Sum of the largest values, this share of all, within [`RELATIVE_ERROR`].
    #[must_use]
    pub fn sum_of_largest(&self, share: f64) -> f64 {
        let (mut left, mut sum) = (share * self.total as f64, 0.0);
        for (bucket, count) in self.buckets().rev() {
            let taken = left.min(count as f64);
            sum += taken * middle(bucket) as f64;
            left -= taken;
            if left <= 0.0 {
                break;
            }
        }
        sum
    }

    /// Smallest limit that at most `values` values reach or exceed. Limits lie between buckets.
    ///
    /// Values of one bucket are never divided: if the largest bucket has more than `values`, the limit is
    /// above it.
    #[must_use]
    pub fn tail(&self, values: f64) -> u64 {
        let mut above = 0;
        for (bucket, count) in self.buckets().rev() {
            above += count;
            if above as f64 > values {
                return lowest((bucket + 1).min(BUCKETS - 1));
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sketch(values: &[u64]) -> Sketch {
        let mut sketch = Sketch::default();
        values.iter().for_each(|&value| sketch.add(value));
        sketch
    }

    /// The difference to an earlier state holds what came since, whatever that state had.
    #[test]
    fn since() {
        let mut sketch = Sketch::default();
        assert!(sketch.since(&sketch).is_empty());
        [50, 70, 1 << 20].into_iter().for_each(|it| sketch.add(it));
        let before = sketch.clone();
        [10, 70, 1 << 30].into_iter().for_each(|it| sketch.add(it));
        let since = sketch.since(&before);
        let buckets: Vec<_> = since.buckets().collect();
        assert_eq!(buckets, [10, 70, 1 << 30].map(|it| (bucket(it), 1)));
        assert_eq!(sketch.since(&Sketch::default()), sketch);
    }

    /// Small and large values, like times: the logarithm is uniform.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (0_u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift);
        prop::collection::vec(value, 1..300)
    }

    /// The worked number, and the ends of the range.
    #[test]
    fn worked_number() {
        let bucket = bucket(1_000_000);
        assert_eq!(lowest(bucket), 999_424);
        assert_eq!(lowest(bucket + 1), 1_015_808);
        assert_eq!(middle(bucket), 1_007_616);
        assert_eq!(super::bucket(u64::MAX), BUCKETS - 1);
        assert_eq!((super::bucket(0), middle(0)), (0, 0));
    }

    /// An empty sketch has no quantile, and its limit is 0.
    #[test]
    fn nothing() {
        assert_eq!(Sketch::default().quantile(0.5), None);
        assert_eq!(Sketch::default().tail(1.0), 0);
        let mut cleared = sketch(&[7, 900]);
        cleared.clear();
        assert_eq!(cleared, Sketch::default());
    }

    /// Equal values are not divided: the limit is above them.
    #[test]
    fn equal_values() {
        let sketch = sketch(&[1000; 50]);
        assert!(sketch.tail(10.0) > 1000);
        assert!(sketch.tail(50.0) <= 1000);
    }

    /// A part of a bucket counts in part.
    #[test]
    fn largest() {
        let sketch = sketch(&[10, 20, 20, 30]);
        assert_eq!(sketch.sum_of_largest(0.25), 30.0);
        assert_eq!(sketch.sum_of_largest(0.5), 50.0);
        assert_eq!(sketch.sum_of_largest(0.375), 40.0);
        assert_eq!(sketch.sum_of_largest(1.0), 80.0);
        assert_eq!(Sketch::default().sum_of_largest(0.5), 0.0);
    }

    proptest! {
        /// Buckets follow one another without a gap, and the middle is near every value.
        #[test]
        fn buckets(value in any::<u64>(), shift in 0_u32..64) {
            let value = value >> shift;
            let bucket = bucket(value);
            prop_assert!(bucket < BUCKETS && lowest(bucket) <= value);
            prop_assert!(bucket + 1 == BUCKETS || value < lowest(bucket + 1));
            let error = middle(bucket).abs_diff(value) as f64;
            prop_assert!(error <= RELATIVE_ERROR * value as f64);
        }

        /// Reals are in the bucket of their whole part.
        #[test]
        fn reals(value in any::<f64>(), shift in 0_u32..64, whole in any::<u64>()) {
            prop_assert_eq!(bucket_of_real(value.abs()), bucket(value.abs() as u64));
            prop_assert_eq!(bucket_of_real(-value.abs()), 0);
            let whole = (whole >> shift) as f64;
            for near in [whole, whole.next_down(), whole.next_up(), whole + 0.5] {
                prop_assert_eq!(bucket_of_real(near), bucket(near as u64));
            }
        }

        /// Every quantile is the exact one within the relative error.
        #[test]
        fn quantiles(mut values in values(), share in 0.0..=1.0) {
            let found = sketch(&values).quantile(share).unwrap();
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let error = found.abs_diff(exact) as f64;
            prop_assert!(error <= RELATIVE_ERROR * exact as f64, "{found} for {exact}");
        }

        /// The tail's limit is the smallest that at most the allowed number of values reach.
        #[test]
        fn tails(values in values(), share in 0.0..1.0) {
            let allowed = share * values.len() as f64;
            let limit = sketch(&values).tail(allowed);
            let above = values.iter().filter(|&&value| value >= limit).count();
            // There is nothing above the last bucket.
            prop_assert!(above as f64 <= allowed || limit == lowest(BUCKETS - 1));
            if limit > 0 {
                let wider = lowest(bucket(limit) - 1);
                let above = values.iter().filter(|&&value| value >= wider).count();
                prop_assert!(above as f64 > allowed);
            }
        }

        /// Merging is adding: in any order, and the same as one sketch of all values.
        #[test]
        fn merging(a in values(), b in values(), c in values()) {
            let parts = [sketch(&a), sketch(&b), sketch(&c)];
            let merged = |order: [usize; 3]| {
                order.iter().fold(Sketch::default(), |mut sum, &n| {
                    sum.merge(&parts[n]);
                    sum
                })
            };
            let mut right = parts[1].clone();
            right.merge(&parts[2]);
            let mut nested = parts[0].clone();
            nested.merge(&right);
            prop_assert_eq!(&merged([0, 1, 2]), &nested);
            prop_assert_eq!(merged([2, 0, 1]), nested.clone());
            prop_assert_eq!(sketch(&[a, b, c].concat()), nested);
        }
    }
}
