//! The distribution of durations, as bars on a log scale.

use hdrhistogram::Histogram;

/// Significant digits of durations: 1 %, finer than a column of any screen.
const DIGITS: u8 = 2;

/// Durations are distinguished up to this one: 36 years.
const LONGEST_NS: u64 = 1 << 60;

/// Durations of the items of one group.
///
/// Memory: some 100 KiB at most, however many there are.
#[derive(Clone, Debug)]
pub(crate) struct Durations {
    counts: Histogram<u64>,
    /// Shortest and longest, ns.
    range: Option<(u64, u64)>,
}

/// Durations as columns from the shortest to the longest, each as wide as the next on a log scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bars {
    /// Items in each column.
    pub counts: Vec<u64>,
    /// Shortest and longest duration, ns.
    pub range: (u64, u64),
}

impl Default for Durations {
    fn default() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the constructor refuses only more than 5 digits"
        )]
        let counts = Histogram::new(DIGITS).expect("2 digits");
        Self {
            counts,
            range: None,
        }
    }
}

impl Durations {
    /// Adds a duration, ns.
    pub(crate) fn add(&mut self, ns: i64) {
        let ns = known(ns);
        let recorded = self.counts.record(ns);
        debug_assert!(recorded.is_ok(), "the histogram grows up to 2^62");
        let (low, high) = self.range.unwrap_or((ns, ns));
        self.range = Some((low.min(ns), high.max(ns)));
    }

    /// The durations as that many columns; `None` if there are no durations or no columns.
    #[must_use]
    pub(crate) fn bars(&self, columns: u16) -> Option<Bars> {
        let range = self.range.filter(|_| columns > 0)?;
        let mut bars = Bars {
            counts: vec![0; usize::from(columns)],
            range,
        };
        for step in self.counts.iter_recorded() {
            let column = self.column(&bars, step.value_iterated_to() as i64);
            bars.counts[column] += step.count_at_value();
        }
        Some(bars)
    }

    /// The column of a duration, ns; that at the end if it is beyond.
    #[must_use]
    pub(crate) fn column(&self, bars: &Bars, ns: i64) -> usize {
        let (low, high) = bars.range;
        let last = bars.counts.len() - 1;
        let factor = |ns: u64| (ns.max(1) as f64 / low.max(1) as f64).ln();
        if factor(high) <= 0.0 {
            return 0;
        }
        // Told apart as the counts are, an item is in the column that it is counted in.
        let ns = self.counts.highest_equivalent(known(ns));
        let place = factor(ns) / factor(high) * bars.counts.len() as f64;
        (place.max(0.0) as usize).min(last)
    }
}

impl Bars {
    /// Heights of the columns in eighths of a line, the highest one `lines` high; a column with an item is
    /// never 0.
    #[must_use]
    pub(crate) fn eighths(&self, lines: u16) -> Vec<u64> {
        let most = self.counts.iter().copied().max().unwrap_or(0).max(1);
        let full = u128::from(lines) * 8;
        let height = |&count: &u64| (u128::from(count) * full).div_ceil(u128::from(most)) as u64;
        self.counts.iter().map(height).collect()
    }
}

/// A duration that the counts know, ns.
fn known(ns: i64) -> u64 {
    ns.max(0).unsigned_abs().min(LONGEST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(ns: &[i64]) -> Durations {
        let mut all = Durations::default();
        ns.iter().for_each(|ns| all.add(*ns));
        all
    }

    fn bars(ns: &[i64], columns: u16) -> Option<Bars> {
        durations(ns).bars(columns)
    }

    /// Every item is in a column, equal factors are equally wide, and a rare one is still seen.
    #[test]
    fn columns() {
        let many = [vec![100; 5_000], vec![1_000, 10_000, 100_000]].concat();
        let all = durations(&many);
        let bars = all.bars(30).unwrap();
        assert_eq!(bars.counts.iter().sum::<u64>(), 5_003);
        let places = [0, 100, 1_000, 10_000, 100_000, i64::MAX].map(|ns| all.column(&bars, ns));
        assert_eq!(places, [0, 0, 10, 20, 29, 29]);
        let heights = bars.eighths(4);
        assert_eq!((heights[0], heights[1], heights[10]), (32, 0, 1));
    }

    /// No items, no columns, and items of equal duration.
    #[test]
    fn edges() {
        assert_eq!(bars(&[], 30), None);
        assert_eq!(bars(&[5], 0), None);
        assert_eq!(bars(&[0, 0], 3).unwrap().counts, [2, 0, 0]);
        assert_eq!(bars(&[7, 7, 7], 1).unwrap().counts, [3]);
        assert_eq!(bars(&[i64::MAX, -1], 2).unwrap().counts, [1, 1]);
    }
}
