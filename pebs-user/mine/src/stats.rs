//! Means, quantiles and ranks.

/// Mean and standard deviation of a population, each value with its weight; zeros if there is no weight.
#[must_use]
pub fn weighted_moments(values: impl Iterator<Item = (f64, f64)> + Clone) -> (f64, f64) {
    let weight: f64 = values.clone().map(|(_, weight)| weight).sum();
    if weight <= 0.0 {
        return (0.0, 0.0);
    }
    let mean = values
        .clone()
        .map(|(value, weight)| value * weight)
        .sum::<f64>()
        / weight;
    let squares: f64 = values
        .map(|(value, weight)| (value - mean).powi(2) * weight)
        .sum();
    (mean, (squares / weight).sqrt())
}

/// Mean and standard deviation of a population.
#[must_use]
pub fn moments(values: &[f64]) -> (f64, f64) {
    weighted_moments(values.iter().map(|&value| (value, 1.0)))
}

/// Arithmetic mean; 0 if there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Quantile of sorted values, interpolated; NaN if there are none.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// Median; NaN if there are no values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// Ranks from 1, ties at their mean.
#[must_use]
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let mut end = first + 1;
        while end < order.len() && values[order[end]] == values[order[first]] {
            end += 1;
        }
        let rank = (first + 1 + end) as f64 / 2.0;
        for &at in &order[first..end] {
            ranks[at] = rank;
        }
        first = end;
    }
    ranks
}

/// Pearson's correlation; 0 if either side is constant.
#[must_use]
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, std_a) = moments(a);
    let (mean_b, std_b) = moments(b);
    let scale = std_a * std_b * a.len() as f64;
    if scale <= 0.0 {
        return 0.0;
    }
    let both = a.iter().zip(b).map(|(x, y)| (x - mean_a) * (y - mean_b));
    (both.sum::<f64>() / scale).clamp(-1.0, 1.0)
}

/// Spearman's rank correlation.
#[must_use]
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    correlation(&ranks(a), &ranks(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand, ties included.
    #[test]
    fn by_hand() {
        assert_eq!(moments(&[1.0, 3.0]), (2.0, 1.0));
        assert_eq!(
            weighted_moments([(1.0, 3.0), (5.0, 1.0)].into_iter()).0,
            2.0
        );
        assert_eq!(median(vec![4.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile(&[0.0, 10.0], 0.25), 2.5);
        assert!(quantile(&[], 0.5).is_nan());
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 9.0]), [2.5, 1.0, 2.5, 4.0]);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[1.0, 8.0, 9.0]), 1.0);
        assert_eq!(correlation(&[1.0, 2.0], &[7.0, 7.0]), 0.0);
    }
}
