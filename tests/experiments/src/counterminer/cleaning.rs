//! Errors of multiplexed counts before and after cleaning.

use anyhow::{Context as _, Result, ensure};
use pebs_mine::clean::{Options, clean};
use pebs_mine::dtw;
use pebs_mine::joint::{self, CountedValue};
use pebs_mine::multiplex::Rotation;
use pebs_mine::series::{Event, Series};
use pebs_stats::summary::mean;

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

/// Largest delay of a reading, ms.
const LATENESS: f64 = 0.2;

/// Parameters of a simulated measurement.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Length of a turn, ms.
    pub turn: f64,
    /// Time between two readings, ms.
    pub read: f64,
    /// Standard deviation of the logarithm of the machine's speed.
    pub unrest: f64,
}

/// Mean errors over a program's events.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    /// Of counts scaled as by the kernel.
    pub raw: f64,
    /// After cleaning.
    pub clean: f64,
    /// Of a linear model fitted to the exact counts of the run itself.
    pub best: f64,
}

/// Runs of a program: exact, measured, cleaned, and best possible; a row per reading.
pub struct Measured {
    read: f64,
    /// Exact, clean, best, raw; by run.
    series: [Vec<Series>; 4],
}

impl Measured {
    /// Measures and cleans the first `events` events of each run.
    pub fn of(runs: &[Counts], events: usize, how: &Measure) -> Result<Self> {
        let mut series = [(); 4].map(|()| Vec::new());
        for (run, seed) in runs.iter().zip(0..) {
            let exact = run.exact(events, how.unrest, seed);
            let truth = exact.counted(how.read);
            let measured = exact.multiplexed(&Rotation {
                counters: COUNTERS,
                turn: how.turn,
                interval: how.read,
                lateness: LATENESS,
                seed,
            });
            let options = Options {
                neighbours: None,
                unscaled: false,
            };
            let cleaned = clean(&measured, &options).series;
            let best = best(&measured, &truth)?;
            for (all, one) in series.iter_mut().zip([truth, cleaned, best, measured]) {
                all.push(one);
            }
        }
        Ok(Self {
            read: how.read,
            series,
        })
    }

    /// Errors by equation 4 for intervals of this length (ms), averaged over events.
    ///
    /// Distances are means over all pairs of runs: between exact ones, and between the measured and the exact series of
    /// different runs.
    pub fn errors(&self, interval: f64) -> Result<Errors> {
        let readings = (interval / self.read).round() as usize;
        let summed = self.series.each_ref().map(|runs| {
            let runs = runs.iter().map(|run| summed(run, readings));
            runs.collect::<Vec<Vec<Vec<f64>>>>()
        });
        let [truth, others @ ..] = &summed;
        let events = truth.first().map_or(0, Vec::len);
        let between = |a: &[Vec<Vec<f64>>], event: usize| {
            let pairs = (0..a.len()).flat_map(|i| {
                (0..truth.len())
                    .filter(move |&j| i != j)
                    .map(move |j| (i, j))
            });
            let distances = pairs.map(|(i, j)| dtw::distance(&a[i][event], &truth[j][event]));
            mean(&distances.collect::<Vec<f64>>())
        };
        let mut errors = [(); 3].map(|()| Vec::new());
        for event in 0..events {
            let reference = between(truth, event);
            for (errors, of) in errors.iter_mut().zip(others) {
                errors.extend(dtw::error(reference, between(of, event)));
            }
        }
        ensure!(!errors[0].is_empty(), "no event differs between runs");
        let [clean, best, raw] = errors.map(|it| mean(&it));
        Ok(Errors { raw, clean, best })
    }
}

/// The best estimate of the values not counted: by a linear model fitted to the truth.
fn best(measured: &Series, truth: &Series) -> Result<Series> {
    let of = |series: &Series| -> Vec<Vec<CountedValue>> {
        let known = |event: &Event| {
            let rows = event.counts.iter().zip(&event.running);
            let rows = rows.map(|(count, share)| match count.is_nan() {
                true => (0.0, 0.0),
                false => (*count, f64::from(*share)),
            });
            rows.collect()
        };
        series.events.iter().map(known).collect()
    };
    let (known, like) = (of(measured), of(truth));
    let [known, like] = [&known, &like].map(|it| it.iter().map(|it| &it[..]).collect::<Vec<_>>());
    let means = joint::means(&known, &like, &measured.segments).context("no rows")?;
    let mut best = measured.clone();
    for (event, counts) in best.events.iter_mut().zip(means) {
        event.counts = counts;
    }
    Ok(best)
}

/// By event: counts of `rows` consecutive rows as sums; if some are missing, the rest scaled as by the kernel.
fn summed(series: &Series, rows: usize) -> Vec<Vec<f64>> {
    let of = |event: &Event| {
        let counts = event.counts.chunks_exact(rows);
        let both = counts.zip(event.running.chunks_exact(rows));
        let sum = |(counts, shares): (&[f64], &[f32])| {
            if counts.iter().all(|it| !it.is_nan()) {
                return counts.iter().sum();
            }
            let known = counts.iter().zip(shares).filter(|it| !it.0.is_nan());
            let (mut counted, mut share) = (0.0, 0.0);
            for (count, part) in known {
                counted += count * f64::from(*part);
                share += f64::from(*part);
            }
            if share > 0.0 {
                rows as f64 * counted / share
            } else {
                0.0
            }
        };
        both.map(sum).collect()
    };
    series.events.iter().map(of).collect()
}
