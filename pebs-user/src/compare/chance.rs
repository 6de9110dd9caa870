//! Probability that chance alone produces a finding.

use statrs::function::factorial::ln_binomial;

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
/// Cost: O(the smaller of `slow` and `with`), less where terms fall below the rounding; `statrs`'s hypergeometric
/// distribution sums all of them.
pub(crate) fn fisher(table: Table) -> f64 {
    let Table {
        items,
        slow,
        with,
        both,
    } = table;
    let all = ln_binomial(items, slow);
    let most = slow.min(with);
    let mut sum = 0.0;
    for k in both..=most {
        if items - with < slow - k {
            continue;
        }
        let term = (ln_binomial(with, k) + ln_binomial(items - with, slow - k) - all).exp();
        sum += term;
        // Terms fall from here on: the rest is below the rounding.
        if term < sum * 1e-16 {
            break;
        }
    }
    sum.min(1.0)
}

/// The 95 % interval of a share that was found in `n` independent cases (Wilson).
///
/// *Worked number*: a share of 0 in 35 cases is at most 9.9 %.
pub(crate) fn wilson(share: f64, n: u64) -> [f64; 2] {
    const Z: f64 = 1.96;
    if n == 0 {
        return [0.0, 1.0];
    }
    let n = n as f64;
    let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let spread = (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let half = Z * spread / (1.0 + Z * Z / n);
    [(middle - half).max(0.0), (middle + half).min(1.0)]
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

    /// Known values: the lady tasting tea.
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
    }

    /// Intervals contain the share, and narrow with the number of cases.
    #[test]
    fn intervals_of_shares() {
        let [low, high] = wilson(0.3, 100);
        near(low, 0.219, 0.01);
        near(high, 0.396, 0.01);
        near(wilson(0.0, 35)[1], 0.0989, 0.01);
        assert_eq!((wilson(0.0, 35)[0], wilson(1.0, 35)[1]), (0.0, 1.0));
        assert_eq!(wilson(0.5, 0), [0.0, 1.0]);
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
