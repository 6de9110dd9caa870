//! Distribution of costs, as shown by a box plot.

use pebs_stats::summary::{moments, quantile};
use serde::Serialize;

/// Distance from the box, in box heights, beyond which a cost is an outlier.
const FAR: f64 = 1.5;

/// Costs of one call over many rounds, ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub rounds: usize,
    /// Lowest cost.
    pub min: f64,
    /// First quartile: the lower side of the box.
    pub p25: f64,
    /// The line in the box.
    pub median: f64,
    /// Third quartile: the upper side of the box.
    pub p75: f64,
    /// Highest cost.
    pub max: f64,
    /// Mean: the middle of the error bars.
    pub mean: f64,
    /// Standard deviation: half of the error bars.
    pub deviation: f64,
    /// Costs further than 1.5 heights of the box from it, sorted.
    pub outliers: Vec<f64>,
}

impl Spread {
    /// Distribution of these costs; `None` if there are none.
    #[must_use]
    pub(crate) fn of(costs: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut costs: Vec<f64> = costs.into_iter().collect();
        costs.sort_by(f64::total_cmp);
        let (min, max) = (*costs.first()?, *costs.last()?);
        let (mean, deviation) = moments(&costs);
        let (p25, p75) = (quantile(&costs, 0.25), quantile(&costs, 0.75));
        let far = FAR * (p75 - p25);
        let is_far = |cost: &f64| *cost < p25 - far || *cost > p75 + far;
        Some(Self {
            rounds: costs.len(),
            min,
            p25,
            median: quantile(&costs, 0.5),
            p75,
            max,
            mean,
            deviation,
            outliers: costs.iter().copied().filter(is_far).collect(),
        })
    }

    /// Both ends of the error bars: one standard deviation from the mean, limited to the observed range.
    #[must_use]
    pub(crate) fn error_bars(&self) -> (f64, f64) {
        let low = (self.mean - self.deviation).clamp(self.min, self.p25);
        let high = (self.mean + self.deviation).clamp(self.p75, self.max);
        (low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quartiles, error bars and outliers of a row of numbers.
    #[test]
    fn spread() {
        let spread = Spread::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.p25, spread.median, spread.p75), (2.0, 3.0, 4.0));
        assert_eq!((spread.rounds, spread.min, spread.max), (5, 1.0, 5.0));
        assert_eq!(spread.deviation, 2.0_f64.sqrt());
        assert_eq!(
            spread.error_bars(),
            (3.0 - 2.0_f64.sqrt(), 3.0 + 2.0_f64.sqrt())
        );
        assert!(spread.outliers.is_empty());
        let spread = Spread::of([1.0, 2.0, 3.0, 4.0, 100.0]).unwrap();
        assert_eq!(spread.outliers, [100.0]);
        // The bars never end within the box.
        let (low, high) = spread.error_bars();
        assert!(low <= spread.p25 && high >= spread.p75);
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([]), None);
    }
}
