//! A figure per item in some units and in others, and how certain the difference is.
//!
//! Items of a host are more alike than items of different hosts: there it is warm, a neighbour is busy, a disk is old. So
//! units (hosts, else traces) are what is drawn by chance. Of H units with the sums t of a figure and n items, the mean is
//! r = sum t / sum n, and its variance H / (H - 1) x sum (t - r n)² / (sum n)². A single unit has the variance that the
//! others have among each other. Intervals are by Student's t with Welch's degrees of freedom.
//!
//! *Worked number*: hosts of 1,000 items each, of 100, 102 and 98 us here and 80, 82, 78 there: means of 100 and 80, variances
//! of 3 / 2 x 8 / 9 = 1.33 us² each; the change is 20 us, its error 1.63, and with 4 degrees of freedom t = 2.78: 15.5 .. 24.5 us.
//!
//! Source: Cochran, "Sampling Techniques", 9A.2 (ratio to size of clusters); Welch, Biometrika 34 (1947).

use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

use super::model::Contrast;
use super::read::Sums;

/// Sum of a figure over the items of a unit, and their number.
pub(super) type Part = (f64, f64);

/// A mean with its variance and degrees of freedom.
#[derive(Clone, Copy, Debug)]
struct Figure {
    mean: f64,
    /// Of the mean; `None`: a single unit.
    variance: Option<(f64, f64)>,
    /// Of a single unit like these; `None`: a single unit.
    of_one: Option<(f64, f64)>,
}

fn figure(parts: &[Part]) -> Option<Figure> {
    let items: f64 = parts.iter().map(|it| it.1).sum();
    if items <= 0.0 {
        return None;
    }
    let mean = parts.iter().map(|it| it.0).sum::<f64>() / items;
    let known = parts.iter().filter(|it| it.1 > 0.0);
    let units = known.clone().count() as f64;
    let rest = units - 1.0;
    let spread: f64 = known.clone().map(|(t, n)| (t - mean * n).powi(2)).sum();
    let single: f64 = known.map(|(t, n)| (t / n - mean).powi(2)).sum();
    let is_known = units >= 2.0;
    Some(Figure {
        mean,
        variance: is_known.then(|| (units / rest * spread / (items * items), rest)),
        of_one: is_known.then(|| (single / rest, rest)),
    })
}

/// Compares a figure here and in the others, of `figures` that are compared at once.
pub(super) fn contrast(
    here: &[&Sums],
    others: &[&Sums],
    of: impl Fn(&Sums) -> Part,
    figures: usize,
) -> Contrast {
    let parts = |units: &[&Sums]| units.iter().map(|it| of(it)).collect::<Vec<Part>>();
    let (Some(a), Some(b)) = (figure(&parts(here)), figure(&parts(others))) else {
        return Contrast::default();
    };
    let variances = (a.variance.or(b.of_one), b.variance.or(a.of_one));
    let half = variances
        .0
        .zip(variances.1)
        .and_then(|((va, da), (vb, db))| {
            let both = va + vb;
            let degrees = match (a.variance, b.variance) {
                (Some(_), Some(_)) if both > 0.0 => both * both / (va * va / da + vb * vb / db),
                // One variance, used twice.
                _ => da.min(db),
            };
            Some(quantile(figures, degrees)? * both.sqrt())
        });
    let change = a.mean - b.mean;
    Contrast {
        here: a.mean,
        others: b.mean,
        change,
        low: half.map(|half| change - half),
        high: half.map(|half| change + half),
    }
}

/// Widens an interval to what chance makes of figures that rest on so many samples here and in the others, whose error is the
/// figure by the root of their number: hosts that never had a function do not spread.
pub(super) fn with_samples(found: Contrast, here: u64, others: u64, figures: usize) -> Contrast {
    let variance = |mean: f64, samples: u64| mean * mean / samples.max(1) as f64;
    let error = (variance(found.here, here) + variance(found.others, others)).sqrt();
    let half = Normal::standard().inverse_cdf(1.0 - 0.025 / figures.max(1) as f64) * error;
    Contrast {
        low: found.low.map(|it| it.min(found.change - half)),
        high: found.high.map(|it| it.max(found.change + half)),
        ..found
    }
}

/// The quantile of Student's t that makes intervals of so many figures hold at once in 95 of 100.
pub(super) fn quantile(figures: usize, degrees: f64) -> Option<f64> {
    let student = StudentsT::new(0.0, 1.0, degrees.max(1.0)).ok()?;
    let found = student.inverse_cdf(1.0 - 0.025 / figures.max(1) as f64);
    found.is_finite().then_some(found)
}

/// The step of time at which the difference began: before it there was less than half of it. `None`: all the time, or
/// not certain.
///
/// Of all places that divide the steps the one that explains most is taken, if chance makes none as good in 99 of 100.
pub(super) fn began(here: &[&Sums], others: &[&Sums]) -> Option<i64> {
    const LEAST: usize = 8;
    const EDGE: usize = 2;
    let points = differences(here, others);
    if points.len() < LEAST {
        return None;
    }
    let mean = |points: &[(i64, f64, f64)]| {
        let weight: f64 = points.iter().map(|it| it.2).sum();
        let sum: f64 = points.iter().map(|it| it.1 * it.2).sum();
        (sum / weight, weight)
    };
    let spread = |points: &[(i64, f64, f64)], mean: f64| -> f64 {
        points.iter().map(|it| it.2 * (it.1 - mean).powi(2)).sum()
    };
    let degrees = points.len() as f64 - 2.0;
    let mut best: Option<(f64, usize, [f64; 2])> = None;
    for at in EDGE..=points.len() - EDGE {
        let (before, after) = points.split_at(at);
        let ((low, w1), (high, w2)) = (mean(before), mean(after));
        let rest = (spread(before, low) + spread(after, high)) / degrees;
        let t = (high - low) / (rest * (1.0 / w1 + 1.0 / w2)).sqrt();
        if best.is_none_or(|it| t > it.0) {
            best = Some((t, at, [low, high]));
        }
    }
    let (t, at, [low, high]) = best?;
    // The same certainty as an interval of five times as many figures.
    let tried = 5 * (points.len() - 2 * EDGE + 1);
    let is_certain = t > quantile(tried, degrees)?;
    (is_certain && high > 0.0 && low < high / 2.0).then(|| points[at].0)
}

/// Step, difference of the means in it, and weight.
fn differences(here: &[&Sums], others: &[&Sums]) -> Vec<(i64, f64, f64)> {
    let series = |units: &[&Sums]| {
        let mut all = std::collections::BTreeMap::<i64, (u64, f64)>::new();
        for (at, (items, sum)) in units.iter().flat_map(|it| &it.series) {
            let step = all.entry(*at).or_default();
            step.0 += items;
            step.1 += sum;
        }
        all
    };
    let (here, others) = (series(here), series(others));
    let points = here.iter().filter_map(|(at, (n, sum))| {
        let (m, other) = others.get(at).filter(|it| it.0 > 0)?;
        let (n, m) = ((*n > 0).then_some(*n as f64)?, *m as f64);
        Some((*at, sum / n - other / m, n * m / (n + m)))
    });
    points.collect()
}
