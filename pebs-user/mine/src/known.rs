//! Synthetic counts with a known influence on the outcome, to test a ranking.

use crate::rng::Rng;
use crate::series::{Event, Series};
use crate::stats::moments;

/// Weights of the events that matter, in units of their standard deviation.
pub const WEIGHTS: [f64; 8] = [12.0, 9.0, 7.0, 5.0, 4.0, 3.0, 2.2, 1.6];

/// Pairs whose product matters as well, with its weight.
pub const PAIRS: [(usize, usize, f64); 2] = [(0, 2, 5.0), (1, 4, 4.0)];

/// Makes `count` event series, the first [`WEIGHTS`] of which matter, in random order, and an outcome that is a known
/// function of them with 2 % of error. Counts have the long tail of real ones.
#[must_use]
pub fn known(seed: u64, rows: usize, count: usize) -> (Series, Vec<f64>) {
    let mut rng = Rng::new(seed);
    let mut outcome: Vec<f64> = (0..rows).map(|_| 100.0 + 2.0 * rng.normal()).collect();
    let mut units: Vec<Vec<f64>> = Vec::new();
    let mut events: Vec<Event> = (0..count)
        .map(|number| {
            let scale = 10f64.powi((number % 5) as i32 + 1);
            let counts: Vec<f64> = (0..rows)
                .map(|_| (scale * (0.4 * rng.normal()).exp()).round())
                .collect();
            if let Some(weight) = WEIGHTS.get(number) {
                let (mean, std) = moments(&counts);
                let unit: Vec<f64> = counts.iter().map(|it| (it - mean) / std).collect();
                outcome
                    .iter_mut()
                    .zip(&unit)
                    .for_each(|(sum, it)| *sum += weight * it);
                units.push(unit);
            }
            Event {
                name: format!("event{number}"),
                counts,
                running: Vec::new(),
            }
        })
        .collect();
    for (a, b, weight) in PAIRS {
        if let (Some(a), Some(b)) = (units.get(a), units.get(b)) {
            let products = a.iter().zip(b).map(|(a, b)| weight * a * b);
            outcome
                .iter_mut()
                .zip(products)
                .for_each(|(sum, it)| *sum += it);
        }
    }
    rng.shuffle(&mut events);
    (Series::of(events), outcome)
}

/// Contribution of an event of [`known()`] to the outcome's variance, its products included.
#[must_use]
pub fn truth(name: &str) -> f64 {
    let number: Option<usize> = name.strip_prefix("event").and_then(|it| it.parse().ok());
    let Some(number) = number else {
        return 0.0;
    };
    let own = WEIGHTS.get(number).map_or(0.0, |weight| weight * weight);
    let pairs = PAIRS
        .iter()
        .filter(|&&(a, b, _)| a == number || b == number);
    own + pairs.map(|pair| pair.2 * pair.2).sum::<f64>()
}
