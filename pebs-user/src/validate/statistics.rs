//! Means, standard deviations and the chi-square test.

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
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    let is_odd = sorted.len() % 2 == 1;
    Some(if is_odd {
        upper
    } else {
        f64::midpoint(sorted[middle - 1], upper)
    })
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
            p: upper_gamma((counts.len() - 1) as f64 / 2.0, value / 2.0),
        })
    }
}

/// The regularised upper incomplete gamma function Q(a, x), by its series below a + 1 and its continued fraction (Lentz)
/// above.
///
/// Source: Press et al., Numerical Recipes, section 6.2.
fn upper_gamma(a: f64, x: f64) -> f64 {
    const STEPS: u32 = 1_000;
    const SMALL: f64 = 1e-300;
    if x <= 0.0 {
        return 1.0;
    }
    let scale = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for step in 1..STEPS {
            term *= x / (a + f64::from(step));
            sum += term;
        }
        return (1.0 - sum * scale).clamp(0.0, 1.0);
    }
    let mut below = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / SMALL, 1.0 / below);
    let mut fraction = d;
    for step in 1..STEPS {
        let step = f64::from(step);
        let factor = -step * (step - a);
        below += 2.0;
        d = 1.0 / (factor * d + below);
        c = below + factor / c;
        fraction *= d * c;
    }
    (scale * fraction).clamp(0.0, 1.0)
}

/// ln of the gamma function of a half or whole number above 0: it is built up from 1/2 or 1.
fn ln_gamma(a: f64) -> f64 {
    let is_whole = a.fract() == 0.0;
    let (mut from, mut ln) = if is_whole {
        (1.0, 0.0)
    } else {
        (0.5, std::f64::consts::PI.sqrt().ln())
    };
    while from < a - 0.25 {
        ln += f64::ln(from);
        from += 1.0;
    }
    ln
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against tables: 3 degrees of freedom have 5 % beyond 7.815 and 0.1 % beyond 16.266; 2 have exp(-x / 2).
    #[test]
    fn tails() {
        for (degrees, x, p) in [
            (1.0, 3.841, 0.05),
            (3.0, 7.815, 0.05),
            (3.0, 16.266, 0.001),
            (2.0, 4.0, (-2.0f64).exp()),
            (6.0, 2.0, 0.919_699),
        ] {
            let got = upper_gamma(degrees / 2.0, x / 2.0);
            assert!(
                (got / p - 1.0).abs() < 2e-3,
                "{degrees} {x}: {got}, not {p}"
            );
        }
    }

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
