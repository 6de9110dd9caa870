//! Estimates uncounted values from all events together: at each instant some events had a counter, and their counts
//! predict the others.
//!
//! Model: a vector autoregression of first order over rows, x(t+1) = A x(t) + e, with e normal and of covariance Q. Q
//! holds the correlation between events, A how long phases last. It is fitted to the counted values by expectation
//! maximization; a Kalman filter and smoother give the mean of each value.
//!
//! Source: Shumway and Stoffer 1982, "An approach to time series smoothing and forecasting using the EM algorithm".

mod matrix;

use std::ops::Range;

use crate::series::{Segment, WHOLE};
use matrix::Matrix;
use pebs_stats::summary::weighted_moments;

/// Number of events for which this is done: one has nothing to predict it, and for more the covariances can't be
/// estimated.
const EVENTS: std::ops::RangeInclusive<usize> = 2..=40;

/// Smallest share of uncounted values for which this is done.
const MISSING: f64 = 0.2;

/// Smallest mean share of a row in which an event with a turn in it is counted: below, rows are longer than turns, and
/// events counted in different parts of a row predict each other badly (`cargo xtask counterminer`).
const COUNTED: f64 = 0.6;

/// Fewest rows to learn from.
const LEAST_ROWS: usize = 100;

/// Number of rows smoothed together.
const BLOCK: usize = 2_000;

/// Number of blocks that the model is learnt from, and number of iterations.
const LEARNT: (usize, usize) = (2, 12);

/// Largest rows x events^3; more would take minutes.
const MOST_WORK: f64 = 2e10;

/// Share of the variance added where a matrix may be singular, as when events are sums of others.
const RIDGE: f64 = 1e-6;

/// The same for the equation that gives A.
const STEP_RIDGE: f64 = 1e-4;

/// Largest eigenvalue of A, approximately: a model whose values grow without bounds can't predict.
const LARGEST: f64 = 0.98;

/// Value of an event in a row: its count, scaled to the whole row, and the share in which it was counted; (0, 0):
/// unknown.
pub type CountedValue = (f64, f64);

/// Returns the mean of each row for each event, given all counts; `None` if it is not worthwhile, or too much work.
///
/// `known`: by event, each with at least one known value.
pub(crate) fn fill(known: &[&[CountedValue]], segments: &[Segment]) -> Option<Vec<Vec<f64>>> {
    is_worth_it(known)
        .then(|| means(known, known, segments))
        .flatten()
}

fn is_worth_it(known: &[&[CountedValue]]) -> bool {
    let (events, rows) = (known.len(), known.first().map_or(0, |it| it.len()));
    let missing = known
        .iter()
        .flat_map(|it| it.iter())
        .filter(|it| it.1 == 0.0);
    let missing = missing.count() as f64 / (events * rows).max(1) as f64;
    let shares: f64 = known.iter().flat_map(|it| it.iter()).map(|it| it.1).sum();
    let is_counted = shares >= COUNTED * (1.0 - missing) * (events * rows) as f64;
    let work = rows as f64 * (events as f64).powi(3);
    let is_enough = rows >= LEAST_ROWS && missing >= MISSING && is_counted;
    EVENTS.contains(&events) && is_enough && work <= MOST_WORK
}

/// Returns the mean of each row for each event, given `known`, by a model learnt from `like`, which has as many rows.
/// `None` without rows.
///
/// Learnt from exact counts, this is the best that a linear model can predict about uncounted values.
#[must_use]
pub fn means(
    known: &[&[CountedValue]],
    like: &[&[CountedValue]],
    segments: &[Segment],
) -> Option<Vec<Vec<f64>>> {
    let (events, rows) = (known.len(), known.first().map_or(0, |it| it.len()));
    let scales: Vec<(f64, f64)> = like
        .iter()
        .map(|it| weighted_moments(it.iter().copied()))
        .map(|(mean, std)| (mean, if std > 0.0 { std } else { 1.0 }))
        .collect();
    // Values are limited to the range of known ones.
    let ranges: Vec<(f64, f64)> = known
        .iter()
        .map(|it| it.iter().filter(|it| it.1 > 0.0).map(|it| it.0))
        .map(|it| it.fold((f64::MAX, 0.0), |all, it| (it.min(all.0), it.max(all.1))))
        .map(|(least, most): (f64, f64)| (least.min(most), most))
        .collect();
    let blocks: Vec<Range<usize>> = segments.iter().flat_map(|it| blocks(&it.rows)).collect();
    let standard = |of: &[&[CountedValue]], block: &Range<usize>| -> Vec<Vec<CountedValue>> {
        let row = |row: usize| {
            let values = of.iter().zip(&scales);
            let value = values.map(|(it, (mean, std))| ((it[row].0 - mean) / std, it[row].1));
            value.collect()
        };
        block.clone().map(row).collect()
    };
    let step = blocks.len().div_ceil(LEARNT.0).max(1);
    let learnt: Vec<Vec<Vec<CountedValue>>> = blocks
        .iter()
        .step_by(step)
        .map(|block| standard(like, block))
        .collect();
    let mut model = Model::first(events);
    // Rows without gaps need one iteration.
    let is_whole = like.iter().all(|it| it.iter().all(|it| it.1 >= WHOLE));
    for _ in 0..if is_whole { 1 } else { LEARNT.1 } {
        let mut sums = Sums::new(events);
        learnt.iter().for_each(|it| {
            model.smooth(it, Some(&mut sums));
        });
        model = sums.model()?;
    }
    let mut filled = vec![vec![0.0; rows]; events];
    for block in &blocks {
        for (row, means) in block
            .clone()
            .zip(model.smooth(&standard(known, block), None))
        {
            for (event, mean) in means.into_iter().enumerate() {
                let (least, most) = ranges[event];
                filled[event][row] = (mean * scales[event].1 + scales[event].0).clamp(least, most);
            }
        }
    }
    Some(filled)
}

/// Splits rows into blocks of about equal length.
fn blocks(rows: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let number = rows.len().div_ceil(BLOCK).max(1);
    let length = rows.len().div_ceil(number).max(1);
    let end = rows.end;
    rows.clone()
        .step_by(length)
        .map(move |begin| begin..(begin + length).min(end))
}

/// A vector autoregression around 0.
struct Model {
    /// A.
    step: Matrix,
    /// Q.
    noise: Matrix,
    /// Covariance of a row without known values.
    start: Matrix,
}

impl Model {
    /// Initial model, for values of variance 1.
    fn first(events: usize) -> Self {
        Self {
            step: Matrix::diagonal(events, 0.7),
            noise: Matrix::diagonal(events, 0.5),
            start: Matrix::diagonal(events, 1.0),
        }
    }

    /// Returns the mean of each row given all of them; adds the statistics for the next model to `sums`.
    fn smooth(&self, rows: &[Vec<CountedValue>], sums: Option<&mut Sums>) -> Vec<Vec<f64>> {
        let events = self.start.side();
        let mut mean = vec![0.0; events];
        let mut cov = self.start.clone();
        let (mut predicted, mut means) = (Vec::new(), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            if at > 0 {
                mean = self.step.times_vector(&mean);
                cov = self.step.times(&cov).times_transposed(&self.step);
                cov.add(&self.noise);
            }
            predicted.push((mean.clone(), cov.clone()));
            for (event, &(value, share)) in row.iter().enumerate() {
                if share > 0.0 {
                    // A part of the row differs from the whole row by the variation of the rest.
                    let noise = self.noise.at(event, event) * (1.0 - share.min(1.0)) / share;
                    let noise = if share >= WHOLE { 0.0 } else { noise } + RIDGE;
                    see(&mut mean, &mut cov, event, value, noise);
                }
            }
            means.push((mean.clone(), cov.clone()));
        }
        self.back(&predicted, &mut means, sums);
        means.into_iter().map(|it| it.0).collect()
    }

    /// Smoother, from the last row to the first: corrects earlier rows by later ones.
    fn back(
        &self,
        predicted: &[(Vec<f64>, Matrix)],
        means: &mut [(Vec<f64>, Matrix)],
        mut sums: Option<&mut Sums>,
    ) {
        let Some(last) = means.len().checked_sub(1) else {
            return;
        };
        for at in (0..last).rev() {
            let (expected, spread) = &predicted[at + 1];
            let gain = spread
                .solve(&self.step.times(&means[at].1), RIDGE)
                .transposed();
            let (after, before) = (means[at + 1].clone(), &mut means[at]);
            let surprise: Vec<f64> = after.0.iter().zip(expected).map(|(x, y)| x - y).collect();
            for (mean, more) in before.0.iter_mut().zip(gain.times_vector(&surprise)) {
                *mean += more;
            }
            let mut less = after.1.clone();
            less.subtract(spread);
            before.1.add(&gain.times(&less).times_transposed(&gain));
            if let Some(sums) = &mut sums {
                sums.pair(&means[at], &after, &after.1.times_transposed(&gain));
            }
        }
    }
}

/// Updates mean and covariance of all events by a value of one.
fn see(mean: &mut [f64], cov: &mut Matrix, event: usize, value: f64, noise: f64) {
    let column: Vec<f64> = (0..mean.len()).map(|it| cov.at(it, event)).collect();
    // Rounding may make a variance of 0 negative.
    let whole = column[event].max(0.0) + noise;
    let surprise = (value - mean[event]) / whole;
    for (row, of_row) in column.iter().enumerate() {
        mean[row] += of_row * surprise;
        for (it, of_it) in column.iter().enumerate() {
            *cov.at_mut(row, it) -= of_row * of_it / whole;
        }
    }
}

/// Sums of products of the values in consecutive rows.
struct Sums {
    pairs: f64,
    /// Products earlier x earlier, later x later, and later x earlier.
    products: [Matrix; 3],
}

impl Sums {
    fn new(events: usize) -> Self {
        Self {
            pairs: 0.0,
            products: std::array::from_fn(|_| Matrix::diagonal(events, 0.0)),
        }
    }

    fn pair(&mut self, before: &(Vec<f64>, Matrix), after: &(Vec<f64>, Matrix), between: &Matrix) {
        self.pairs += 1.0;
        let [earlier, later, both] = &mut self.products;
        for (sum, (x, y, cov)) in [
            (earlier, (&before.0, &before.0, &before.1)),
            (later, (&after.0, &after.0, &after.1)),
            (both, (&after.0, &before.0, between)),
        ] {
            sum.add(cov);
            sum.add_product(x, y);
        }
    }

    /// Maximum-likelihood model; `None` without rows.
    fn model(self) -> Option<Model> {
        if self.pairs == 0.0 {
            return None;
        }
        let [earlier, later, both] = self.products;
        let mut step = earlier.solve(&both.transposed(), STEP_RIDGE).transposed();
        step.scale((LARGEST / step.radius()).min(1.0));
        // later - A both' - both A' + A earlier A', which is never negative.
        let mut noise = later.clone();
        let crossed = step.times_transposed(&both);
        noise.subtract(&crossed);
        noise.subtract(&crossed.transposed());
        noise.add(&step.times(&earlier).times_transposed(&step));
        noise.scale(1.0 / self.pairs);
        let mut start = later;
        start.scale(1.0 / self.pairs);
        (0..noise.side()).for_each(|it| *noise.at_mut(it, it) += RIDGE * start.at(it, it));
        Some(Model { step, noise, start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pebs_stats::rng::Rng;

    /// Makes events that follow two hidden random walks, and take turns on half as many counters.
    fn wandering(events: usize, rows: usize) -> (Vec<Vec<f64>>, Vec<Vec<CountedValue>>) {
        let mut rng = Rng::new(3);
        let mut hidden = [0.0; 2];
        let (mut truth, mut known) = (vec![Vec::new(); events], vec![Vec::new(); events]);
        for row in 0..rows {
            hidden = hidden.map(|it: f64| 0.8 * it + 0.6 * rng.normal());
            for event in 0..events {
                let angle = event as f64;
                let of_hidden = angle.cos() * hidden[0] + angle.sin() * hidden[1];
                let value = 1000.0 + 100.0 * of_hidden + 10.0 * rng.normal();
                truth[event].push(value);
                let seen = (event + events - row % events) % events < events / 2;
                known[event].push(if seen { (value, 1.0) } else { (0.0, 0.0) });
            }
        }
        (truth, known)
    }

    fn whole(rows: usize) -> [Segment; 1] {
        [Segment {
            name: String::new(),
            rows: 0..rows,
        }]
    }

    /// Other events at the same time predict a value better than the event's own neighbours.
    #[test]
    fn others_tell() {
        let (truth, known) = wandering(6, 3000);
        let refs: Vec<&[CountedValue]> = known.iter().map(|it| &it[..]).collect();
        let filled = fill(&refs, &whole(3000)).unwrap();
        let (mut sum, mut number) = (0.0, 0.0);
        for event in 0..6 {
            for row in 0..3000 {
                let off = filled[event][row] - truth[event][row];
                if known[event][row].1 > 0.0 {
                    assert!(off.abs() < 0.1, "what was counted stays: {off}");
                } else {
                    sum += off * off;
                    number += 1.0;
                }
            }
        }
        let off: f64 = sum / number;
        println!("off by {:.1}; events have a deviation of 100", off.sqrt());
        assert!(off.sqrt() < 25.0, "{off}");
    }

    /// Events that are sums of others, constants, and too few rows or gaps are handled.
    #[test]
    fn singular() {
        let (_, mut known) = wandering(4, 400);
        let sum = (0..400).map(|row| {
            let both = [known[0][row], known[1][row]];
            let seen = both.iter().all(|it| it.1 > 0.0);
            if seen {
                (both[0].0 + both[1].0, 1.0)
            } else {
                (0.0, 0.0)
            }
        });
        known.push(sum.collect());
        known.push(vec![(5.0, 1.0); 400]);
        let refs: Vec<&[CountedValue]> = known.iter().map(|it| &it[..]).collect();
        let filled = fill(&refs, &whole(400)).unwrap();
        assert!(filled.iter().flatten().all(|it| it.is_finite()));
        assert!(filled[5].iter().all(|it| (it - 5.0).abs() < 1e-6));
        let whole_ones = vec![(1.0, 1.0); 400];
        assert!(fill(&[&whole_ones, &whole_ones], &whole(400)).is_none());
        assert!(fill(&[refs[0]], &whole(400)).is_none());
    }
}
