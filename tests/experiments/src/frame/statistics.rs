//! Medians, quantiles and means, and how well they are known.

use std::fmt;

use pebs_stats::summary::{correlation, moments, quantile};
pub use pebs_stats::summary::{mean, median};

/// Standard errors on each side of an interval of 95 %.
pub const Z_95: f64 = 1.96;

/// Quantiles of values in any order; NaN if there are none.
#[must_use]
pub fn quantiles<const N: usize>(mut values: Vec<f64>, shares: [f64; N]) -> [f64; N] {
    values.sort_by(f64::total_cmp);
    shares.map(|share| quantile(&values, share))
}

/// Mean of values and their standard deviation, as of a sample; NaN for fewer than two.
#[must_use]
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let (mean, deviation) = moments(values);
    match values.len() {
        0 | 1 => (mean, f64::NAN),
        _ => (mean, deviation * (n / (n - 1.0)).sqrt()),
    }
}

/// Standard error of a mean; NaN for fewer than two values.
#[must_use]
pub fn stderr(values: &[f64]) -> f64 {
    mean_and_deviation(values).1 / (values.len() as f64).sqrt()
}

/// The line of least squares through some points.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// 0 if all points have the same x.
    pub slope: f64,
    /// Value at 0.
    pub zero: f64,
    /// Part of the variance that the line explains.
    pub r2: f64,
}

/// Fits a line.
#[must_use]
pub fn fit(points: &[(f64, f64)]) -> Line {
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let ((mean_x, sd_x), (mean_y, sd_y)) = (moments(&x), moments(&y));
    let r = correlation(&x, &y);
    let slope = if sd_x > 0.0 { r * sd_y / sd_x } else { 0.0 };
    Line {
        slope,
        zero: mean_y - slope * mean_x,
        r2: r * r,
    }
}

/// A median with its interval of 95 % (the whole range below six values), by ranks: it assumes no distribution of the
/// values, and a round spoilt by the machine does not count more than another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    /// Of no values.
    pub const UNKNOWN: Self = Self {
        low: f64::NAN,
        median: f64::NAN,
        high: f64::NAN,
    };

    /// Spread of values in any order; NaN if there are none.
    ///
    /// The interval lies between the k-th value from below and from above, k = n/2 - 0.98 sqrt(n): of 25 values the 8th and
    /// the 18th.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let n = values.len();
        if n == 0 {
            return Self::UNKNOWN;
        }
        let left_out = (n as f64 / 2.0 - 0.98 * (n as f64).sqrt()).max(0.0) as usize;
        Self {
            low: values[left_out],
            median: quantile(&values, 0.5),
            high: values[n - 1 - left_out],
        }
    }

    /// The median and the range of the middle 68 % of the values: one standard deviation to both sides if they were
    /// normally distributed, which times are not on a machine that stops now and then.
    pub fn middle(values: Vec<f64>) -> Self {
        Self::between(values, 0.16, 0.84)
    }

    /// The median and two quantiles.
    pub fn between(mut values: Vec<f64>, low: f64, high: f64) -> Self {
        values.retain(|value| value.is_finite());
        let [low, median, high] = quantiles(values, [low, 0.5, high]);
        Self { low, median, high }
    }

    /// The median of each of the three over rounds: what one round has, if the machine's speed changed within another.
    pub fn typical(rounds: &[Self]) -> Self {
        let over = |of: fn(&Self) -> f64| median(rounds.iter().map(of).collect());
        Self {
            low: over(|it| it.low),
            median: over(|it| it.median),
            high: over(|it| it.high),
        }
    }

    /// All three in another unit.
    pub fn scaled(self, by: f64) -> Self {
        Self {
            low: self.low * by,
            median: self.median * by,
            high: self.high * by,
        }
    }

    /// Whether the whole interval lies above the other.
    pub fn is_above(self, other: Self) -> bool {
        self.low > other.high
    }

    pub fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// `12.3 (12.1 .. 12.9)` with the requested precision, or one digit.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        let Self { low, median, high } = self;
        if f.sign_plus() {
            write!(
                f,
                "{median:+.digits$} ({low:+.digits$} .. {high:+.digits$})"
            )
        } else {
            write!(f, "{median:.digits$} ({low:.digits$} .. {high:.digits$})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of one value nothing is known but itself.
    #[test]
    fn means() {
        let (mean, deviation) = mean_and_deviation(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (deviation - 1.0).abs() < 1e-12);
        assert!(stderr(&[1.0]).is_nan() && (stderr(&[1.0, 3.0]) - 1.0).abs() < 1e-12);
        assert_eq!(quantiles(vec![3.0, 1.0, 2.0], [0.5, 1.0]), [2.0, 3.0]);
    }

    /// Few values give their whole range, many the ranks in the middle.
    #[test]
    fn ranks() {
        let of = |n: u32| Spread::of((1..=n).rev().map(f64::from).collect());
        assert_eq!((of(5).low, of(5).median, of(5).high), (1.0, 3.0, 5.0));
        assert_eq!((of(25).low, of(25).median, of(25).high), (8.0, 13.0, 18.0));
        assert_eq!(of(4).median, 2.5);
        assert!(Spread::of(vec![]).median.is_nan());
        assert_eq!(format!("{:.0}", of(5)), "3 (1 .. 5)");
        assert!(of(25).scaled(4.0).is_above(of(5)) && !of(5).is_above(of(25)));
    }
}
