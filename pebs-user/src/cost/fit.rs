//! The line through elapsed times over numbers of samples.

use serde::{Deserialize, Serialize};

/// The same work with a number of samples taken in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub samples: f64,
    /// Elapsed time of the work, ns.
    pub elapsed_ns: f64,
}

/// The best-fit line: elapsed = base + alpha * samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Cost of a sample, ns.
    pub alpha_ns: f64,
    /// Half of its 95 % interval, ns.
    pub alpha_error_ns: f64,
    /// Time of the work without samples, ns.
    pub base_ns: f64,
    /// Share of the variance that the line explains, 0..=1.
    pub r2: f64,
    pub points: u32,
}

impl Fit {
    /// Upper end of the interval of alpha, ns.
    #[must_use]
    pub fn alpha_at_most_ns(&self) -> f64 {
        self.alpha_ns + self.alpha_error_ns
    }
}

/// Two-sided 95 % quantiles of Student's t for 1..=30 degrees of freedom; from tables.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The quantile; beyond the table the first three terms of its expansion, right to 0.001.
/// Source: Abramowitz and Stegun 26.7.5.
fn t_95(degrees: usize) -> f64 {
    const Z: f64 = 1.959_964;
    if let Some(quantile) = T_95.get(degrees.wrapping_sub(1)) {
        return *quantile;
    }
    let degrees = degrees as f64;
    let second = (Z.powi(3) + Z) / (4.0 * degrees);
    let third = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * degrees * degrees);
    Z + second + third
}

/// Fits a line by least squares; `None` with fewer than three points, or if all have the same number of samples.
///
/// The interval assumes that the errors of the points are independent with the same variance.
/// *Worked number*: (0, 10), (1, 12), (2, 15), (3, 17) have the slope 2.4 and the base 9.9; residuals 0.1, -0.3,
/// 0.3, -0.1 leave a variance of 0.2/2 and the slope an error of sqrt(0.1/5) = 0.141, times 4.303 = 0.609.
#[must_use]
pub(crate) fn fit(points: &[Point]) -> Option<Fit> {
    let n = points.len();
    if n < 3 {
        return None;
    }
    let mean = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / n as f64;
    let (x, y) = (mean(|p| p.samples), mean(|p| p.elapsed_ns));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        let each = points.iter().map(|p| of(p.samples - x, p.elapsed_ns - y));
        each.sum()
    };
    let (xx, xy, yy) = (
        sum(&|dx, _| dx * dx),
        sum(&|dx, dy| dx * dy),
        sum(&|_, dy| dy * dy),
    );
    if xx <= 0.0 {
        return None;
    }
    let alpha = xy / xx;
    let left = sum(&|dx, dy| (dy - alpha * dx).powi(2));
    let degrees = n - 2;
    Some(Fit {
        alpha_ns: alpha,
        alpha_error_ns: t_95(degrees) * (left / degrees as f64 / xx).sqrt(),
        base_ns: y - alpha * x,
        r2: if yy > 0.0 { 1.0 - left / yy } else { 1.0 },
        points: n as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;

    fn points(all: &[(f64, f64)]) -> Vec<Point> {
        let point = |&(samples, elapsed_ns)| Point {
            samples,
            elapsed_ns,
        };
        all.iter().map(point).collect()
    }

    /// The worked number of the page.
    #[test]
    fn worked_number() {
        let fit = fit(&points(&[
            (0.0, 10.0),
            (1.0, 12.0),
            (2.0, 15.0),
            (3.0, 17.0),
        ]))
        .unwrap();
        assert!((fit.alpha_ns - 2.4).abs() < 1e-9, "{fit:?}");
        assert!((fit.base_ns - 9.9).abs() < 1e-9, "{fit:?}");
        assert!((fit.alpha_error_ns - 0.6085).abs() < 1e-3, "{fit:?}");
        assert!((fit.r2 - (1.0 - 0.2 / 29.0)).abs() < 1e-9, "{fit:?}");
    }

    /// Too few points, or all at the same number of samples, give no fit.
    #[test]
    fn nothing_to_fit() {
        assert_eq!(fit(&points(&[(0.0, 1.0), (1.0, 2.0)])), None);
        assert_eq!(fit(&points(&[(5.0, 1.0), (5.0, 2.0), (5.0, 3.0)])), None);
    }

    /// The table continues into the expansion without a step, and that into the normal's quantile.
    #[test]
    fn quantiles() {
        assert!((t_95(30) - t_95(31)).abs() < 0.005);
        assert!((t_95(100_000) - 1.96).abs() < 0.001);
    }

    /// With errors as assumed, the interval contains the truth in 95 of 100 cases.
    #[test]
    fn interval_covers() {
        let mut rng = SplitMix64::new(3);
        // Twelve uniforms have nearly a normal sum of variance 1.
        let mut normal = || {
            let uniform = |_| rng.below(1 << 30) as f64 / f64::from(1 << 30);
            (0..12).map(uniform).sum::<f64>() - 6.0
        };
        let trials = 2_000;
        let mut covered = 0;
        for _ in 0..trials {
            let all: Vec<(f64, f64)> = (0..9)
                .map(|n| {
                    (
                        f64::from(1 << n),
                        1e6 + 250.0 * f64::from(1 << n) + 900.0 * normal(),
                    )
                })
                .collect();
            let fit = fit(&points(&all)).unwrap();
            covered += u32::from((fit.alpha_ns - 250.0).abs() <= fit.alpha_error_ns);
        }
        let share = f64::from(covered) / f64::from(trials);
        assert!((0.935..0.965).contains(&share), "{share}");
    }

    proptest! {
        /// Points on a line give that line, with no error.
        #[test]
        fn finds_a_line(
            alpha in 1.0..10_000.0f64, base in 1e5..1e9f64, steps in prop::collection::vec(1u32..9_999, 3..20),
        ) {
            let mut samples = 0.0;
            let all: Vec<Point> = steps.iter().map(|step| {
                samples += f64::from(*step);
                Point { samples, elapsed_ns: base + alpha * samples }
            }).collect();
            let fit = fit(&all).unwrap();
            prop_assert!((fit.alpha_ns / alpha - 1.0).abs() < 1e-4, "{fit:?}");
            prop_assert!((fit.base_ns / base - 1.0).abs() < 1e-3, "{fit:?}");
            prop_assert!(fit.alpha_error_ns < 1e-3 * alpha && fit.r2 > 0.999, "{fit:?}");
        }
    }
}
