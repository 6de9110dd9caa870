//! Series that are known exactly, multiplexed and cleaned.

use pebs_mine::clean::{Options, clean};
use pebs_mine::dtw;
use pebs_mine::multiplex::{Exact, Rotation};
use pebs_mine::series::Series;
use pebs_stats::rng::Rng;
use pebs_stats::summary::mean;

const EVENTS: usize = 16;

/// A run of a program that goes through phases: the same ones each time, at a speed and with rates that wander.
fn run(seed: u64) -> Exact {
    let slices = 2_000;
    let mut phases = Rng::new(1);
    let rates: Vec<Vec<f64>> = (0..6)
        .map(|_| (0..EVENTS).map(|_| 200.0 * phases.normal().exp()).collect())
        .collect();
    let mut rng = Rng::new(seed);
    let mut wander = [0.0; EVENTS];
    let mut events: Vec<(String, Vec<f64>)> = (0..EVENTS)
        .map(|event| (format!("e{event}"), Vec::new()))
        .collect();
    let mut lengths = Vec::new();
    for slice in 0..slices {
        let phase = &rates[(slice / 170) % rates.len()];
        for (event, wander) in wander.iter_mut().enumerate() {
            *wander = 0.9 * *wander + 0.1 * rng.normal();
            let noise = 0.3 * rng.normal();
            let count = phase[event] * (*wander + noise).exp();
            events[event].1.push(count.round());
        }
        lengths.push((0.1 * rng.normal()).exp());
    }
    Exact::new(events, &lengths)
}

/// Errors of equation 4 before and after, and mean distances from the truth of the same run.
fn errors(events: usize) -> [f64; 4] {
    let runs: Vec<Exact> = (10..13).map(|seed| run(seed).first(events)).collect();
    let truth: Vec<Series> = runs.iter().map(|it| it.counted(10.0)).collect();
    let mut before: Vec<Series> = runs
        .iter()
        .zip(0..)
        .map(|(it, seed)| {
            it.multiplexed(&Rotation {
                counters: 4,
                turn: 1.0,
                interval: 10.0,
                lateness: 0.2,
                seed,
            })
        })
        .collect();
    let how = Options {
        neighbours: None,
        unscaled: false,
    };
    let after: Vec<Series> = before.iter().map(|it| clean(it, &how).series).collect();
    for event in before.iter_mut().flat_map(|it| &mut it.events) {
        let missing = event.counts.iter_mut().filter(|it| it.is_nan());
        missing.for_each(|it| *it = 0.0);
    }
    let mut sums = [const { Vec::new() }; 4];
    for event in 0..events {
        let counts = |series: &Series| series.events[event].counts.clone();
        let between = |a: &[Series], b: &[Series]| {
            let pairs = (0..3).flat_map(|i| (0..3).filter(move |&j| i != j).map(move |j| (i, j)));
            let distances = pairs.map(|(i, j)| dtw::distance(&counts(&a[i]), &counts(&b[j])));
            mean(&distances.collect::<Vec<f64>>())
        };
        let off = |measured: &[Series]| {
            let all = measured.iter().zip(&truth).flat_map(|(a, b)| {
                let pairs = counts(a).into_iter().zip(counts(b));
                pairs
                    .map(|(a, b)| (a - b).abs() / (b + 1.0))
                    .collect::<Vec<f64>>()
            });
            mean(&all.collect::<Vec<f64>>())
        };
        let reference = between(&truth, &truth);
        sums[0].extend(dtw::error(reference, between(&before, &truth)));
        sums[1].extend(dtw::error(reference, between(&after, &truth)));
        sums[2].push(off(&before));
        sums[3].push(off(&after));
    }
    sums.map(|it| mean(&it))
}

/// Ten events on four counters: as measured by the paper, the error is below the paper's after cleaning, and each run
/// is hardly farther from its own truth.
#[test]
fn ten_events() {
    let [raw, cleaned, off_before, off_after] = errors(10);
    assert!(raw > 1.5 * cleaned && cleaned < 0.077, "{raw} {cleaned}");
    assert!(off_after < 1.05 * off_before, "{off_before} {off_after}");
}

/// Sixteen events: some intervals have no turn of an event, and after cleaning every count is nearer to the truth.
#[test]
fn sixteen_events() {
    let [raw, cleaned, off_before, off_after] = errors(16);
    assert!(raw > 2.0 * cleaned && cleaned < 0.171, "{raw} {cleaned}");
    assert!(off_after < 0.75 * off_before, "{off_before} {off_after}");
}
