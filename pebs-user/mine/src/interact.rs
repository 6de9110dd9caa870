//! Finds pairs of events whose effects do not add up (section III-D of the paper).

use rayon::prelude::*;

use crate::model::{COARSE, Frame, Model, ModelError, Params};
use crate::rank::{Ranking, Scale};
use crate::series::Series;
use pebs_stats::rng::Rng;
use pebs_stats::summary::{mean, moments, quantile};

/// Options of [`interact()`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of best-ranked events whose pairs are examined.
    pub events: usize,
    /// Number of models fitted to outcomes without any interaction, for the null distribution.
    pub nulls: usize,
    /// Parameters of the trees.
    pub params: Params,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            events: 8,
            nulls: 10,
            params: Params {
                bins: COARSE,
                ..Params::default()
            },
            seed: 1,
        }
    }
}

/// A pair, with the difference between its effect and the sum of the two single effects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Numbers of the events, the better ranked one first.
    pub events: [usize; 2],
    /// Residual variance (equation 12), as a share of the outcome's variance.
    pub residual: f64,
    /// Share of all pairs' residual variance (equation 13).
    pub intensity: f64,
    /// Probability of this residual without any interaction, times the number of pairs.
    pub chance: f64,
    /// The same of this pair alone.
    pub chance_alone: f64,
}

/// Chance below which a pair is reported as interacting.
pub const LEVEL: f64 = 0.05;

/// Most rows that models are fitted to.
const MOST_ROWS: usize = 8_000;

/// Ranges of values of each event, equally many rows in each.
const RANGES: usize = 8;

/// Passes of backfitting: each event's own effect is fitted to the residuals of the other's.
const PASSES: usize = 12;

/// Finds the pairs of the best ranked events that interact, strongest first.
///
/// As in the paper, a model of all important events is evaluated over two of them while the others are at their means,
/// and an additive model is fitted to its answers: the residual is the interaction. The paper fits a straight line to
/// each event; here it is any function of the event, or else every event with a curved effect would interact with all
/// others.
///
/// The null distribution comes from outcomes without interaction: the prediction of a model of stumps, which is a sum
/// of functions of one event each, plus its own residuals, shuffled.
///
/// # Errors
/// If a model can't be fitted.
pub fn interact(
    series: &Series,
    outcome: &[f64],
    ranking: &Ranking,
    options: &Options,
) -> Result<Vec<Pair>, ModelError> {
    let events: Vec<usize> = ranking
        .ranked
        .iter()
        .filter(|it| !it.is_noise)
        .filter_map(|it| it.events.first().copied())
        .take(options.events)
        .collect();
    interact_events(series, outcome, &events, ranking.scale, options)
}

/// Finds the pairs of these events that interact, strongest first.
pub(crate) fn interact_events(
    series: &Series,
    outcome: &[f64],
    events: &[usize],
    scale: Scale,
    options: &Options,
) -> Result<Vec<Pair>, ModelError> {
    if events.len() < 2 {
        return Ok(Vec::new());
    }
    let mut rng = Rng::new(options.seed);
    let mut rows: Vec<usize> = (0..outcome.len())
        .filter(|&row| outcome[row].is_finite())
        .collect();
    rng.shuffle(&mut rows);
    rows.truncate(MOST_ROWS);
    let columns: Vec<&[f64]> = events
        .iter()
        .map(|&it| &series.events[it].counts[..])
        .collect();
    let frame = Frame::of(&columns, &rows);
    let outcomes: Vec<f64> = rows
        .iter()
        .map(|&row| match scale {
            Scale::Linear => outcome[row],
            Scale::Log => outcome[row].ln(),
        })
        .collect();
    let grids: Vec<(usize, usize, Grid)> = (0..events.len())
        .flat_map(|b| (0..b).map(move |a| (a, b)))
        .map(|(a, b)| (a, b, Grid::of(&frame, a, b, events.len())))
        .collect();
    let variance = moments(&outcomes).1.powi(2).max(f64::MIN_POSITIVE);
    let residuals = |outcomes: &[f64], seed: u64| -> Result<Vec<f64>, ModelError> {
        let model = Model::fit(
            &frame,
            outcomes,
            &Params {
                seed,
                ..options.params
            },
        )?;
        Ok(grids
            .iter()
            .map(|it| it.2.residual(&model) / variance)
            .collect())
    };
    let found = residuals(&outcomes, options.seed)?;

    let stumps = Params {
        depth: 1,
        trees: options.params.trees * 3,
        ..options.params
    };
    let sums = Model::fit(&frame, &outcomes, &stumps)?.predict(&frame);
    let rest: Vec<f64> = outcomes
        .iter()
        .zip(&sums)
        .map(|(outcome, sum)| outcome - sum)
        .collect();
    let seeds: Vec<u64> = (0..options.nulls).map(|_| rng.bits()).collect();
    let nulls: Vec<Vec<f64>> = seeds
        .into_par_iter()
        .map(|seed| {
            let mut shuffled = rest.clone();
            Rng::new(seed).shuffle(&mut shuffled);
            let made: Vec<f64> = sums
                .iter()
                .zip(&shuffled)
                .map(|(sum, rest)| sum + rest)
                .collect();
            residuals(&made, seed)
        })
        .collect::<Result<_, _>>()?;

    let all = found.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mut pairs: Vec<Pair> = grids
        .iter()
        .zip(&found)
        .enumerate()
        .map(|(at, ((a, b, _), &residual))| {
            let null: Vec<f64> = nulls.iter().map(|it| it[at]).collect();
            let chance_alone = above(residual, &null);
            Pair {
                events: [events[*a], events[*b]],
                residual,
                intensity: residual / all,
                chance: (chance_alone * found.len() as f64).min(1.0),
                chance_alone,
            }
        })
        .collect();
    pairs.sort_by(|a, b| {
        let key = |it: &Pair| (it.chance < LEVEL, it.residual);
        let ((a_sure, a), (b_sure, b)) = (key(a), key(b));
        b_sure.cmp(&a_sure).then(b.total_cmp(&a))
    });
    Ok(pairs)
}

/// Probability of a residual variance at least this large, if those of the null model are lognormal.
fn above(residual: f64, null: &[f64]) -> f64 {
    let logs: Vec<f64> = null.iter().map(|it| it.max(1e-12).ln()).collect();
    let (mean, std) = moments(&logs);
    let n = logs.len() as f64;
    if n < 3.0 {
        return 1.0;
    }
    // Student's t with n-1 degrees of freedom, for one more value of the same kind.
    let scale = std.max(0.05) * (n / (n - 1.0)).sqrt() * (1.0 + 1.0 / n).sqrt();
    let t = (residual.max(1e-12).ln() - mean) / scale;
    let freedom = n - 1.0;
    let tail =
        0.5 * statrs::function::beta::beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t));
    if t > 0.0 { tail } else { 1.0 - tail }
}

/// Ranges of values of two events: the points where the model is evaluated, and the number of rows in each cell.
struct Grid {
    /// A row for each cell that has rows, the other events at their means.
    asked: Frame,
    cells: Vec<(usize, usize)>,
    weights: Vec<f64>,
    sides: (usize, usize),
}

impl Grid {
    fn of(frame: &Frame, a: usize, b: usize, columns: usize) -> Self {
        let (ranges_a, middles_a) = ranges(frame.column(a));
        let (ranges_b, middles_b) = ranges(frame.column(b));
        let sides = (middles_a.len(), middles_b.len());
        let mut counts = vec![0.0; sides.0 * sides.1];
        for (&i, &j) in ranges_a.iter().zip(&ranges_b) {
            counts[i * sides.1 + j] += 1.0;
        }
        let (mut cells, mut weights) = (Vec::new(), Vec::new());
        let mut asked: Vec<Vec<f64>> = vec![Vec::new(); columns];
        let means: Vec<f64> = (0..columns).map(|it| mean(frame.column(it))).collect();
        for (i, &of_a) in middles_a.iter().enumerate() {
            for (j, &of_b) in middles_b.iter().enumerate() {
                let count: f64 = counts[i * sides.1 + j];
                if count > 0.0 {
                    cells.push((i, j));
                    weights.push(count / frame.rows() as f64);
                    for (column, (asked, &mean)) in asked.iter_mut().zip(&means).enumerate() {
                        asked.push(if column == a {
                            of_a
                        } else if column == b {
                            of_b
                        } else {
                            mean
                        });
                    }
                }
            }
        }
        let columns: Vec<&[f64]> = asked.iter().map(Vec::as_slice).collect();
        Self {
            asked: Frame::of(&columns, &(0..cells.len()).collect::<Vec<_>>()),
            cells,
            weights,
            sides,
        }
    }

    /// Residual variance of the model's answers after fitting a sum of one function of each event.
    fn residual(&self, model: &Model) -> f64 {
        let mut rest = model.predict(&self.asked);
        let sides = [self.sides.0, self.sides.1];
        for pass in 0..2 * PASSES {
            let side = pass % 2;
            let of = |cell: &(usize, usize)| if side == 0 { cell.0 } else { cell.1 };
            let mut sums = vec![(0.0, 0.0); sides[side]];
            for ((cell, weight), rest) in self.cells.iter().zip(&self.weights).zip(&rest) {
                sums[of(cell)].0 += weight * rest;
                sums[of(cell)].1 += weight;
            }
            for (cell, rest) in self.cells.iter().zip(&mut rest) {
                let (sum, weight) = sums[of(cell)];
                *rest -= sum / weight;
            }
        }
        rest.iter()
            .zip(&self.weights)
            .map(|(rest, weight)| weight * rest * rest)
            .sum()
    }
}

/// The range that each value lies in, and the middle of each range.
fn ranges(values: &[f64]) -> (Vec<usize>, Vec<f64>) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut ends: Vec<f64> = (1..RANGES)
        .map(|it| quantile(&sorted, it as f64 / RANGES as f64))
        .collect();
    ends.dedup();
    let range = |value: f64| ends.partition_point(|&end| end < value);
    let mut of_range: Vec<Vec<f64>> = vec![Vec::new(); ends.len() + 1];
    for &value in &sorted {
        of_range[range(value)].push(value);
    }
    let middles = of_range.iter().map(|it| {
        if it.is_empty() {
            0.0
        } else {
            quantile(it, 0.5)
        }
    });
    (
        values.iter().map(|&it| range(it)).collect(),
        middles.collect(),
    )
}
