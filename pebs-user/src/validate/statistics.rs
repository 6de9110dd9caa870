//! Means, standard deviations and the chi-square test.

use pebs_stats::summary::{self, chi_squared_tail};

/// Mean of some values, their number and their standard deviation (of a sample: divided by n - 1; of one value: 0).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    /// Number of values.
    pub n: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

impl Summary {
    /// Summary of these values; `None` if there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (!values.is_empty()).then(|| Self {
            n: values.len() as u64,
            mean,
            deviation: (squares / (n - 1.0).max(1.0)).sqrt(),
        })
    }
}

/// The median; `None` if there are no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| summary::median(values.to_vec()))
}

/// Distance of counts from equal shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChiSquare {
    /// Sum of squared distances over expected counts.
    pub value: f64,
    /// Probability of such a value or a larger one under equal shares.
    pub p: f64,
}

impl ChiSquare {
    /// Test of counts that should be equal; `None` for fewer than two counts, or no events.
    pub(crate) fn of_equal(counts: &[u64]) -> Option<Self> {
        let all: u64 = counts.iter().sum();
        let expected = all as f64 / counts.len() as f64;
        let square = |count: &u64| (*count as f64 - expected).powi(2) / expected;
        let value: f64 = counts.iter().map(square).sum();
        (counts.len() >= 2 && all > 0).then(|| Self {
            value,
            p: chi_squared_tail(value, (counts.len() - 1) as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal counts have a large p, all events at one place a tiny one.
    #[test]
    fn equal_shares() {
        let equal = ChiSquare::of_equal(&[100, 100, 100, 100]).unwrap();
        assert_eq!((equal.value, equal.p), (0.0, 1.0));
        let biased = ChiSquare::of_equal(&[400, 0, 0, 0]).unwrap();
        assert_eq!(biased.value, 1200.0);
        assert!(biased.p < 1e-100);
        // 10, 20, 30: 10 / 2 = ((-10)^2 + 0 + 10^2) / 20 = 10.
        assert_eq!(ChiSquare::of_equal(&[10, 20, 30]).unwrap().value, 10.0);
        assert_eq!(ChiSquare::of_equal(&[7]), None);
        assert_eq!(ChiSquare::of_equal(&[0, 0]), None);
    }

    /// A single value has no deviation, and without values there is no summary.
    #[test]
    fn summaries() {
        let of = |values| Summary::of(values).map(|it| (it.n, it.mean, it.deviation));
        assert_eq!(of(&[2.0, 4.0, 6.0]), Some((3, 4.0, 2.0)));
        assert_eq!(of(&[5.0]), Some((1, 5.0, 0.0)));
        assert_eq!(of(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
