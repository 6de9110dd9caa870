//! The median of rounds, and how well it is known.

use std::fmt;

/// A median with its interval of 95 % (the whole range below six values), by ranks: it assumes no distribution of the
/// values, and a round spoilt by the machine does not count more than another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    /// Spread of values in any order; NaN if there are none.
    ///
    /// The interval lies between the k-th value from below and from above, k = n/2 - 0.98 sqrt(n): of 25 values the 8th and
    /// the 18th.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let n = values.len();
        if n == 0 {
            return Self {
                low: f64::NAN,
                median: f64::NAN,
                high: f64::NAN,
            };
        }
        let left_out = (n as f64 / 2.0 - 0.98 * (n as f64).sqrt()).max(0.0) as usize;
        Self {
            low: values[left_out],
            median: f64::midpoint(values[(n - 1) / 2], values[n / 2]),
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
        values.sort_by(f64::total_cmp);
        let at = |share| pebs_mine::stats::quantile(&values, share);
        Self {
            low: at(low),
            median: at(0.5),
            high: at(high),
        }
    }

    /// The median of each of the three over rounds: what one round has, if the machine's speed changed within another.
    pub fn typical(rounds: &[Self]) -> Self {
        let over = |of: fn(&Self) -> f64| pebs_mine::stats::median(rounds.iter().map(of).collect());
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
