//! How near to the truth cleaning brings counts that shared their counters.

use anyhow::{Context as _, Result};
use pebs_mine::clean::{Options, clean};
use pebs_mine::dtw;
use pebs_mine::multiplex::{Exact, Rotation};
use pebs_mine::series::Series;
use pebs_mine::stats::mean;

use super::events::Counts;

/// Events at once, and the paper's error before and after cleaning (figure 7).
pub const PAPER: [(usize, f64, f64); 7] = [
    (10, 0.37, 0.053),
    (16, 0.35, 0.1708),
    (20, 0.41, 0.068),
    (24, 0.55, 0.2361),
    (28, 0.50, 0.2896),
    (32, 0.44, 0.1338),
    (36, 0.54, 0.2939),
];

/// Counters of the simulated CPU.
const COUNTERS: usize = 4;

/// By how much a reading is late at most, in ms.
const LATENESS: f64 = 0.2;

/// Mean errors of a program's events before and after cleaning, and of what a measurement without any sharing would have.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    pub raw: f64,
    pub clean: f64,
}

/// Errors of equation 4, averaged over events.
///
/// Distances are means over all pairs of runs: between exact ones, and between the measured and the exact series of different runs.
pub fn errors(
    runs: &[Counts],
    events: usize,
    turn: f64,
    interval: f64,
    unrest: f64,
) -> Result<Errors> {
    let exact: Vec<Exact> = runs
        .iter()
        .zip(0..)
        .map(|(it, seed)| it.exact(events, unrest, seed))
        .collect();
    let truth: Vec<Series> = exact.iter().map(|it| it.counted(interval)).collect();
    let measured: Vec<Series> = exact
        .iter()
        .enumerate()
        .map(|(run, it)| {
            it.multiplexed(&Rotation {
                counters: COUNTERS,
                turn,
                interval,
                lateness: LATENESS,
                seed: run as u64,
            })
        })
        .collect();
    let how = Options {
        neighbours: None,
        unscaled: false,
    };
    let cleaned: Vec<Series> = measured.iter().map(|it| clean(it, &how).series).collect();
    let mut before = measured;
    for event in before.iter_mut().flat_map(|it| &mut it.events) {
        event
            .counts
            .iter_mut()
            .filter(|it| it.is_nan())
            .for_each(|it| *it = 0.0);
    }
    let (mut raw, mut clean) = (Vec::new(), Vec::new());
    for event in 0..events {
        let between = |a: &[Series], b: &[Series]| {
            let pairs = (0..a.len())
                .flat_map(|i| (0..b.len()).filter(move |&j| i != j).map(move |j| (i, j)));
            let distances = pairs.map(|(i, j)| {
                dtw::distance(&a[i].events[event].counts, &b[j].events[event].counts)
            });
            mean(&distances.collect::<Vec<f64>>())
        };
        let reference = between(&truth, &truth);
        raw.extend(dtw::error(reference, between(&before, &truth)));
        clean.extend(dtw::error(reference, between(&cleaned, &truth)));
    }
    (!raw.is_empty())
        .then_some(())
        .context("no event differs between runs")?;
    Ok(Errors {
        raw: mean(&raw),
        clean: mean(&clean),
    })
}
