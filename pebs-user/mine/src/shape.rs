//! Distribution of an event's values: normal, or with a long tail.

use statrs::function::erf::erfc;
use statrs::function::gamma::gamma;

use pebs_stats::summary::moments;

/// A distribution that fits the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All values are equal.
    Constant,
    Normal,
    /// Generalised extreme value.
    LongTail,
}

/// A fit, with its test statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The better of the two.
    pub shape: Shape,
    /// Anderson-Darling's statistic of the normal distribution.
    pub normal: f64,
    /// The same of the generalised extreme value distribution.
    pub long_tail: f64,
}

/// Largest number of values used for a fit; of more, every n-th.
const MOST: usize = 20_000;

/// Critical value of the Anderson-Darling statistic for normality with unknown mean and variance, at 5 %.
///
/// Source: Stephens (1986), table 4.7, with the factor for the number of values below.
const CRITICAL: f64 = 0.752;

/// Finds the distribution of values: normal unless the test refuses it and a long tail fits better.
#[must_use]
pub fn fit(values: &[f64]) -> Fit {
    let step = values.len().div_ceil(MOST).max(1);
    let mut sorted: Vec<f64> = values.iter().copied().step_by(step).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let (mean, std) = moments(&sorted);
    if sorted.first() == sorted.last() || std <= 0.0 {
        return Fit {
            shape: Shape::Constant,
            normal: 0.0,
            long_tail: 0.0,
        };
    }
    let normal = anderson_darling(&sorted, |value| normal_logs((value - mean) / std));
    let long_tail = match Gev::fit(&sorted) {
        Some(gev) => anderson_darling(&sorted, |value| gev.logs(value)),
        None => f64::INFINITY,
    };
    let n = sorted.len() as f64;
    let refused = normal * (1.0 + 0.75 / n + 2.25 / (n * n)) > CRITICAL;
    Fit {
        shape: if refused && long_tail < normal {
            Shape::LongTail
        } else {
            Shape::Normal
        },
        normal,
        long_tail,
    }
}

/// Anderson-Darling's statistic of sorted values; `logs` returns the logarithms of the shares below and above a
/// value.
///
/// Logarithms of shares, as the shares themselves are 0 or 1 far out in a tail.
fn anderson_darling(sorted: &[f64], logs: impl Fn(f64) -> (f64, f64)) -> f64 {
    let n = sorted.len();
    let logs: Vec<(f64, f64)> = sorted.iter().map(|&value| logs(value)).collect();
    let sum: f64 = (0..n)
        .map(|i| (2 * i + 1) as f64 * (logs[i].0 + logs[n - 1 - i].1))
        .sum();
    -(n as f64) - sum / n as f64
}

/// Least logarithm of a share: a value outside the support would make the statistic infinite.
const LEAST_LOG: f64 = -700.0;

fn normal_logs(z: f64) -> (f64, f64) {
    (log_normal_below(z), log_normal_below(-z))
}

/// Logarithm of the share of a standard normal distribution below `z`.
fn log_normal_below(z: f64) -> f64 {
    if z > -30.0 {
        (0.5 * erfc(-z / std::f64::consts::SQRT_2)).ln()
    } else {
        // Mills' ratio: the share is the density over -z there.
        -0.5 * z * z - (-z).ln() - 0.5 * std::f64::consts::TAU.ln()
    }
    .max(LEAST_LOG)
}

/// The generalised extreme value distribution.
#[derive(Clone, Copy, Debug)]
struct Gev {
    location: f64,
    scale: f64,
    /// Hosking's sign: below 0 the upper tail is long.
    shape: f64,
}

impl Gev {
    /// Fits by probability-weighted moments.
    ///
    /// Source: Hosking, Wallis and Wood (1985), Technometrics 27(3), equations 14 and 15.
    fn fit(sorted: &[f64]) -> Option<Self> {
        let n = sorted.len() as f64;
        if n < 4.0 {
            return None;
        }
        let mut b = [0.0; 3];
        for (i, &value) in sorted.iter().enumerate() {
            let i = i as f64;
            b[0] += value / n;
            b[1] += value * i / (n - 1.0) / n;
            b[2] += value * i * (i - 1.0) / ((n - 1.0) * (n - 2.0)) / n;
        }
        let c = (2.0 * b[1] - b[0]) / (3.0 * b[2] - b[0]) - 2f64.ln() / 3f64.ln();
        let shape = (7.8590 * c + 2.9554 * c * c).clamp(-0.99, 5.0);
        let (scale, location) = if shape.abs() < 1e-6 {
            let scale = (2.0 * b[1] - b[0]) / 2f64.ln();
            (scale, b[0] - 0.577_215_664_901_532_9 * scale)
        } else {
            let g = gamma(1.0 + shape);
            let scale = (2.0 * b[1] - b[0]) * shape / (g * (1.0 - 2f64.powf(-shape)));
            (scale, b[0] + scale * (g - 1.0) / shape)
        };
        (scale.is_finite() && scale > 0.0 && location.is_finite()).then_some(Self {
            location,
            scale,
            shape,
        })
    }

    fn logs(&self, value: f64) -> (f64, f64) {
        let z = (value - self.location) / self.scale;
        // The reduced variate, exp(-y) being minus the logarithm of the share below.
        let y = if self.shape.abs() < 1e-6 {
            z
        } else {
            let inside = 1.0 - self.shape * z;
            if inside <= 0.0 {
                let above = self.shape > 0.0;
                return if above {
                    (0.0, LEAST_LOG)
                } else {
                    (LEAST_LOG, 0.0)
                };
            }
            -inside.ln() / self.shape
        };
        let below = -(-y).exp();
        let above = (-below.exp_m1()).ln();
        (below.max(LEAST_LOG), above.max(LEAST_LOG))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pebs_stats::rng::Rng;

    /// Values of known distributions are recognised in nearly every sample.
    #[test]
    fn known_distributions() {
        let mut right = [0; 2];
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let normal: Vec<f64> = (0..300).map(|_| 100.0 + 15.0 * rng.normal()).collect();
            let long: Vec<f64> = (0..300).map(|_| (0.8 * rng.normal()).exp()).collect();
            right[0] += usize::from(fit(&normal).shape == Shape::Normal);
            right[1] += usize::from(fit(&long).shape == Shape::LongTail);
        }
        assert!(right[0] >= 90 && right[1] >= 99, "{right:?}");
    }

    /// A fit to a sample of a known extreme value distribution recovers its parameters, and its statistic is small.
    #[test]
    fn fitted_parameters() {
        let mut rng = Rng::new(7);
        let truth = Gev {
            location: 50.0,
            scale: 10.0,
            shape: -0.2,
        };
        let mut values: Vec<f64> = (0..20_000)
            .map(|_| {
                let y = (-rng.unit().max(1e-300).ln()).powf(truth.shape);
                truth.location + truth.scale * (1.0 - y) / truth.shape
            })
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        let gev = Gev::fit(&values).unwrap();
        assert!((gev.location - 50.0).abs() < 0.5, "{gev:?}");
        assert!((gev.scale - 10.0).abs() < 0.5, "{gev:?}");
        assert!((gev.shape + 0.2).abs() < 0.02, "{gev:?}");
        let fit = fit(&values);
        assert!(fit.long_tail < 2.5 && fit.normal > 100.0, "{fit:?}");
    }

    /// Constants, two values and tails beyond any share leave finite figures.
    #[test]
    fn degenerate_values() {
        assert_eq!(fit(&[3.0; 9]).shape, Shape::Constant);
        assert_eq!(fit(&[]).shape, Shape::Constant);
        for values in [
            vec![0.0, 1.0],
            vec![0.0; 500].into_iter().chain([1e12]).collect(),
        ] {
            assert!(fit(&values).normal.is_finite());
        }
    }
}
