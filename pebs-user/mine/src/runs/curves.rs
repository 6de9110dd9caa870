//! Slope of the outcome over each event in each run, beside the mean of all runs.

use super::Studied;
use super::effects::Counted;
use super::linear::{Basis, slope};
use crate::rank::scaled;
use pebs_stats::summary::{moments, quantile};

/// In one run: slope of the outcome over the event's curve, 1 on the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slope {
    /// Number of the run.
    pub(super) run: usize,
    pub(super) slope: f64,
    /// Its standard error, of the rows.
    pub(super) error: f64,
}

/// The curve of one group of events.
pub(super) struct Curve {
    /// The runs that counted it.
    pub(super) slopes: Vec<Slope>,
    /// Variance of the scaled outcome that follows it in one run.
    pub(super) variance: f64,
}

/// Curves of the best groups of events.
pub(super) struct Curves {
    /// In the order of the groups.
    pub(super) of: Vec<Curve>,
}

/// Quantiles at which a curve bends.
const BENDS: [f64; 3] = [0.25, 0.5, 0.75];

impl Curves {
    /// Fits one curve to all runs for each group, so that a curved effect is no difference between runs that count more
    /// or less of the event; and in each run a slope to each curve.
    pub(super) fn of(studied: &Studied<'_>) -> Self {
        let &Studied {
            runs,
            rows,
            effects,
            joint,
            best,
            scale,
        } = studied;
        let outcomes: Vec<Vec<f64>> = runs
            .iter()
            .zip(rows)
            .zip(effects)
            .map(|((run, rows), effects)| {
                let mut sorted: Vec<f64> = rows.iter().map(|&row| run.outcome[row]).collect();
                sorted.sort_unstable_by(f64::total_cmp);
                let scaled = scaled(&run.outcome, &sorted, scale);
                rows.iter().map(|&row| scaled[row] - effects.mean).collect()
            })
            .collect();
        let counted = |run: usize, group: usize| -> Option<&Counted> {
            joint.of_run[run].iter().find(|it| it.group == group)
        };
        // For each group and run that counted it, the curve's value at each row.
        let mut values: Vec<Vec<(usize, Vec<f64>)>> = Vec::new();
        for &group in best {
            let mut counts: Vec<(usize, Vec<f64>)> = Vec::new();
            for run in 0..runs.len() {
                if let Some(it) = counted(run, group) {
                    let of = &runs[run].series.events[it.events[0]].counts;
                    counts.push((run, known(rows[run].iter().map(|&row| of[row]).collect())));
                }
            }
            values.push(fitted(counts, &outcomes));
        }
        let of = values.iter().enumerate().map(|(at, of_group)| {
            let mut slopes = Vec::new();
            let mut variance = 0.0;
            for (run, curve) in of_group {
                let mut others = Basis::default();
                for (_, of_other) in values.iter().enumerate().filter(|it| it.0 != at) {
                    if let Some((_, column)) = of_other.iter().find(|it| it.0 == *run) {
                        others.add(column);
                    }
                }
                variance += moments(curve).1.powi(2) / of_group.len() as f64;
                if let Some((slope, error)) = slope(curve, &others, &outcomes[*run]) {
                    slopes.push(Slope {
                        run: *run,
                        slope,
                        error,
                    });
                }
            }
            Curve { slopes, variance }
        });
        Self { of: of.collect() }
    }
}

/// Counts with their mean for those that are unknown.
fn known(mut counts: Vec<f64>) -> Vec<f64> {
    let sum: f64 = counts.iter().filter(|it| !it.is_nan()).sum();
    let known = counts.iter().filter(|it| !it.is_nan()).count().max(1);
    for it in counts.iter_mut().filter(|it| it.is_nan()) {
        *it = sum / known as f64;
    }
    counts
}

/// The curve that fits all these runs best, each around its own mean.
fn fitted(counts: Vec<(usize, Vec<f64>)>, outcomes: &[Vec<f64>]) -> Vec<(usize, Vec<f64>)> {
    let mut sorted: Vec<f64> = counts.iter().flat_map(|it| it.1.iter().copied()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut bends: Vec<f64> = BENDS.iter().map(|&it| quantile(&sorted, it)).collect();
    bends.insert(0, f64::NEG_INFINITY);
    bends.dedup();
    let mut basis = Basis::default();
    for bend in bends {
        let mut column = Vec::with_capacity(sorted.len());
        for (_, counts) in &counts {
            let bent = counts.iter().map(|&it| {
                if bend == f64::NEG_INFINITY {
                    it
                } else {
                    (it - bend).max(0.0)
                }
            });
            let bent: Vec<f64> = bent.collect();
            let mean = moments(&bent).0;
            column.extend(bent.iter().map(|it| it - mean));
        }
        basis.add(&column);
    }
    let all: Vec<f64> = counts
        .iter()
        .flat_map(|it| outcomes[it.0].iter().copied())
        .collect();
    let rest = basis.rest(&all);
    let mut values = all.iter().zip(&rest).map(|(all, rest)| all - rest);
    counts
        .iter()
        .map(|(run, counts)| (*run, values.by_ref().take(counts.len()).collect()))
        .collect()
}
