//! Means, quantiles, ranks and distributions.

use std::f64::consts::SQRT_2;

use statrs::function::beta::beta_reg;
use statrs::function::erf::erfc_inv;
use statrs::function::gamma::checked_gamma_ur;

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

/// Median that is one of the values, the upper one of the two in the middle; `None` if there are no values.
pub fn upper_median<T: Copy + Ord>(mut values: Vec<T>) -> Option<T> {
    let middle = values.len() / 2;
    let is_empty = values.is_empty();
    (!is_empty).then(|| *values.select_nth_unstable(middle).1)
}

/// Quantile that is one of the sorted values: the least that this share of them, at least one, does not exceed; `None`
/// if there are no values.
pub fn exact_quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    Some(sorted[rank.saturating_sub(1).min(last)])
}

/// Upper quantile of the standard normal distribution, 0 < p <= 0.5.
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    SQRT_2 * erfc_inv(2.0 * p)
}

/// Upper tail probability of the chi-squared distribution.
#[must_use]
pub fn chi_squared_tail(x: f64, degrees: f64) -> f64 {
    if x > 0.0 {
        // Of no finite value there is nothing above.
        checked_gamma_ur(degrees / 2.0, x / 2.0).unwrap_or(0.0)
    } else {
        1.0
    }
}

/// Upper tail probability of the F distribution; of Student's t both tails, for its square and 1 degree of freedom.
#[must_use]
pub fn f_tail(f: f64, degrees: f64, of_rest: f64) -> f64 {
    if f > 0.0 {
        beta_reg(
            of_rest / 2.0,
            degrees / 2.0,
            of_rest / (of_rest + degrees * f),
        )
    } else {
        1.0
    }
}

/// For each probability the least false discovery rate at which it is a finding (Benjamini and Hochberg).
#[must_use]
pub fn discovery_rates(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|&a, &b| chances[b].total_cmp(&chances[a]));
    let mut rates = vec![1.0; chances.len()];
    let mut least = 1.0_f64;
    for (above, &at) in order.iter().enumerate() {
        let rank = chances.len() - above;
        least = least.min(chances[at] * chances.len() as f64 / rank as f64);
        rates[at] = least;
    }
    rates
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
        assert_eq!(upper_median(vec![4, 1, 3, 2]), Some(3));
        assert_eq!(upper_median::<u64>(Vec::new()), None);
        let exact = |share| exact_quantile(&[1, 2, 3, 4], share);
        assert_eq!([0.0, 0.5, 0.51, 1.0].map(exact), [1, 2, 3, 4].map(Some));
        assert_eq!(exact_quantile::<u64>(&[], 0.5), None);
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 9.0]), [2.5, 1.0, 2.5, 4.0]);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[1.0, 8.0, 9.0]), 1.0);
        assert_eq!(correlation(&[1.0, 2.0], &[7.0, 7.0]), 0.0);
    }

    /// Against tables: 3 degrees of freedom have 5 % beyond 7.815 and 0.1 % beyond 16.266; 2 have exp(-x / 2).
    #[test]
    fn tables() {
        let near = |found: f64, wanted: f64, share: f64| {
            let is_near = (found / wanted - 1.0).abs() < share;
            assert!(is_near, "{found}, not {wanted}");
        };
        near(f_tail(10.128, 1.0, 3.0), 0.05, 1e-3);
        near(f_tail(4.103, 2.0, 10.0), 0.05, 1e-3);
        assert_eq!(f_tail(0.0, 1.0, 3.0), 1.0);
        let rates = discovery_rates(&[0.5, 0.01, 0.02, 0.04]);
        for (rate, wanted) in rates.into_iter().zip([0.5, 0.04, 0.04, 0.16 / 3.0]) {
            near(rate, wanted, 1e-9);
        }
        near(normal_quantile(0.025), 1.959_964, 1e-6);
        near(normal_quantile(0.000_5), 3.290_5, 1e-4);
        assert_eq!(chi_squared_tail(0.0, 2.0), 1.0);
        for (x, degrees, p) in [
            (3.841, 1.0, 0.05),
            (5.991, 2.0, 0.05),
            (4.0, 2.0, (-2.0_f64).exp()),
            (7.815, 3.0, 0.05),
            (16.266, 3.0, 0.001),
            (18.467, 4.0, 0.001),
            (2.0, 6.0, 0.919_699),
        ] {
            near(chi_squared_tail(x, degrees), p, 2e-3);
        }
    }
}
