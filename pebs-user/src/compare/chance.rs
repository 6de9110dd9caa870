//! Probability that chance alone produces a finding.

/// Natural logarithm of n!, to 1e-10.
///
/// Source: Stirling's series, Abramowitz and Stegun 6.1.41.
fn ln_factorial(n: u64) -> f64 {
    if n < 16 {
        return (2..=n).map(|k| (k as f64).ln()).sum();
    }
    let n = n as f64;
    let half_ln_two_pi = 0.918_938_533_204_672_7;
    let series = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5));
    (n + 0.5) * n.ln() - n + half_ln_two_pi + series
}

fn ln_choose(n: u64, k: u64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// Items; some are slow, and some have a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub items: u64,
    pub slow: u64,
    /// Items with the property.
    pub with: u64,
    /// Slow items with it.
    pub both: u64,
}

/// Probability that chance puts at least this many of the items with the property among the slow
/// ones (Fisher's exact test, one-sided).
///
/// *Worked number*: of 4 items 2 are slow, 2 have the property, both are the same: 1 / C(4,2) = 1/6.
/// Cost: O(the smaller of `slow` and `with`).
pub(crate) fn fisher(table: Table) -> f64 {
    let Table {
        items,
        slow,
        with,
        both,
    } = table;
    let all = ln_choose(items, slow);
    let most = slow.min(with);
    let mut sum = 0.0;
    for k in both..=most {
        if items - with < slow - k {
            continue;
        }
        let term = (ln_choose(with, k) + ln_choose(items - with, slow - k) - all).exp();
        sum += term;
        // Terms fall from here on: the rest is below the rounding.
        if term < sum * 1e-16 {
            break;
        }
    }
    sum.min(1.0)
}

/// Upper tail probability of the standard normal distribution; error below 2e-7.
///
/// Source: Abramowitz and Stegun 26.2.17; beyond z = 6 the leading term of 26.2.12.
pub(crate) fn normal_tail(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() * 0.398_942_280_401_432_7;
    if z < 0.0 {
        return 1.0 - normal_tail(-z);
    }
    if z > 6.0 {
        return density / z;
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let factors = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    density
        * factors
            .iter()
            .rev()
            .fold(0.0, |sum, factor| (sum + factor) * t)
}

/// Upper quantile of the standard normal distribution, 0 < p <= 0.5.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 38.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if normal_tail(middle) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Upper tail probability of the chi-squared distribution: by the cube root's normal approximation,
/// within a sixth of it down to 1e-3.
///
/// Source: Wilson and Hilferty, PNAS 17 (1931).
pub(crate) fn chi_squared_tail(x: f64, degrees: f64) -> f64 {
    let spread = 2.0 / (9.0 * degrees);
    normal_tail(((x / degrees).cbrt() - (1.0 - spread)) / spread.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64, share: f64) {
        assert!(
            (found / wanted - 1.0).abs() < share,
            "{found}, not {wanted}"
        );
    }

    /// Known values: a hand-made table, the lady tasting tea, tables of the normal and chi-squared
    /// distributions.
    #[test]
    fn known_values() {
        let tea = |both| Table {
            items: 8,
            slow: 4,
            with: 4,
            both,
        };
        near(fisher(tea(4)), 1.0 / 70.0, 1e-9);
        near(fisher(tea(3)), 17.0 / 70.0, 1e-9);
        near(fisher(tea(0)), 1.0, 1e-9);
        near(normal_tail(1.959_964), 0.025, 1e-4);
        near(normal_tail(-1.0), 0.841_344_7, 1e-5);
        near(normal_quantile(0.025), 1.959_964, 1e-4);
        near(normal_quantile(0.000_5), 3.290_5, 1e-3);
        near(chi_squared_tail(5.991, 2.0), 0.05, 0.03);
        near(chi_squared_tail(18.467, 4.0), 0.001, 0.15);
        near(ln_factorial(20), 2_432_902_008_176_640_000_f64.ln(), 1e-12);
    }

    /// Forty slow items of 20,040 that are exactly those with the property: hopeless for chance.
    #[test]
    fn beyond_chance() {
        let table = Table {
            items: 20_040,
            slow: 40,
            with: 40,
            both: 40,
        };
        assert!(fisher(table) < 1e-100);
        let half = Table { both: 1, ..table };
        assert!((0.05..0.1).contains(&fisher(half)));
    }
}
