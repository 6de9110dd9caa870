//! Ranking of data with known weights.
#![expect(clippy::unwrap_used, reason = "tests: a panic is the report")]

use pebs_mine::interact::{self, interact};
use pebs_mine::known::{PAIRS, WEIGHTS, known, truth};
use pebs_mine::model::{COARSE, Params};
use pebs_mine::rank::{Options, Ranking, rank};
use pebs_mine::series::{Event, Series};
use pebs_stats::rng::Rng;
use pebs_stats::summary::spearman;

/// Number of events; those without a weight are noise.
const EVENTS: usize = 20;

fn options(seed: u64) -> Options {
    Options {
        seed,
        resamples: 8,
        params: Params {
            bins: COARSE,
            ..Params::default()
        },
        ..Options::default()
    }
}

fn ranked(seed: u64) -> (Series, Ranking) {
    let (series, outcome) = known(seed, 1_000, EVENTS);
    let ranking = rank(&series, &outcome, &options(seed)).unwrap();
    (series, ranking)
}

/// Events with a weight are ranked in the order of their weights, and noise below all of them.
#[test]
fn known_weights() {
    order_of_weights(5);
}

#[test]
#[ignore = "a minute: cargo test -p pebs-mine --test known -- --ignored"]
fn known_weights_of_20_seeds() {
    order_of_weights(20);
}

fn order_of_weights(seeds: usize) {
    let (mut correlations, mut clean, mut classified) = (Vec::new(), 0, 0);
    for seed in 0..seeds as u64 {
        let (series, ranking) = ranked(seed);
        let of = |at: usize| truth(&series.events[ranking.ranked[at].events[0]].name);
        let real: Vec<usize> = (0..EVENTS).filter(|&at| of(at) > 0.0).collect();
        let places: Vec<f64> = real.iter().map(|&at| -(at as f64)).collect();
        let truths: Vec<f64> = real.iter().map(|&at| of(at)).collect();
        correlations.push(spearman(&places, &truths));
        clean += usize::from(real == (0..WEIGHTS.len()).collect::<Vec<_>>());
        let right = (0..EVENTS).filter(|&at| ranking.ranked[at].is_noise == (of(at) == 0.0));
        classified += right.count();
        assert!(
            ranking.explained.mean > 0.8,
            "{seed}: {:?}",
            ranking.explained
        );
        assert!(ranking.steps[ranking.best].error < 0.063, "{seed}");
    }
    let least = correlations.iter().copied().fold(1.0, f64::min);
    assert!(least >= 0.9, "{correlations:?}");
    assert!(
        20 * clean >= 19 * seeds,
        "noise is below every real event in {clean} of {seeds}"
    );
    let all = EVENTS * seeds;
    assert!(
        100 * classified >= 96 * all,
        "{classified} of {all} events are rightly distinguished from noise"
    );
}

/// Pairs whose product is in the outcome come first, and hardly any other pair is reported.
#[test]
fn known_pairs() {
    let mut others = 0;
    for seed in 100..103 {
        let (series, outcome) = known(seed, 1_500, EVENTS);
        let ranking = rank(&series, &outcome, &options(seed)).unwrap();
        let how = interact::Options {
            seed,
            ..interact::Options::default()
        };
        let pairs = interact(&series, &outcome, &ranking, &how).unwrap();
        let is_known = |pair: &interact::Pair| {
            let number = |it: usize| series.events[it].name[5..].parse::<usize>().unwrap();
            let [a, b] = pair.events.map(number);
            PAIRS
                .iter()
                .any(|pair| (pair.0, pair.1) == (a.min(b), a.max(b)))
        };
        assert!(pairs[..2].iter().all(is_known), "{seed}: {pairs:?}");
        assert!(
            pairs[..2].iter().all(|it| it.chance < interact::LEVEL),
            "{seed}: {pairs:?}"
        );
        others += pairs[2..]
            .iter()
            .filter(|it| it.chance < interact::LEVEL)
            .count();
        assert!((pairs.iter().map(|it| it.intensity).sum::<f64>() - 1.0).abs() < 1e-9);
    }
    assert!(others <= 2, "{others} pairs interact by chance");
}

/// If no event has an influence, at most one is reported over all seeds.
#[test]
fn noise_only() {
    noise(5);
}

#[test]
#[ignore = "a minute: cargo test -p pebs-mine --test known -- --ignored"]
fn noise_only_of_20_seeds() {
    noise(20);
}

fn noise(seeds: u64) {
    let mut named = 0;
    for seed in 0..seeds {
        let (series, _) = known(seed, 400, 12);
        let mut rng = Rng::new(seed + 1_000);
        let outcome: Vec<f64> = (0..400).map(|_| 50.0 + rng.normal()).collect();
        let ranking = rank(&series, &outcome, &options(seed)).unwrap();
        named += ranking.ranked.iter().filter(|it| !it.is_noise).count();
        assert!(ranking.explained.mean < 0.1, "{:?}", ranking.explained);
    }
    assert!(named <= 1, "{named} events of {seeds} seeds");
}

/// Equivalent events are ranked as one; a row with twelve times the faults is explained by them; unusable rows and
/// events are listed.
#[test]
fn groups_and_rows() {
    let (mut series, outcome) = known(3, 1_000, EVENTS);
    let first = series.find("event0").unwrap();
    let mut twin = series.events[first].clone();
    twin.name = "twin".to_owned();
    twin.counts.iter_mut().for_each(|it| *it = 3.0 * *it + 1.0);
    series.events.push(twin);
    for (name, value) in [("constant", 4.0), ("never", f64::NAN)] {
        series.events.push(Event {
            name: name.to_owned(),
            counts: vec![value; 1_000],
            running: Vec::new(),
        });
    }
    let ranking = rank(&series, &outcome, &options(3)).unwrap();
    let mut best = ranking.ranked[0].events.clone();
    best.sort_unstable();
    assert_eq!(best, [first, EVENTS]);
    assert!(ranking.ranked[0].direction > 0.8);
    assert_eq!(ranking.unusable.len(), 2);
    let row = (0..1_000)
        .max_by(|&a, &b| series.events[first].counts[a].total_cmp(&series.events[first].counts[b]))
        .unwrap();
    let (predicted, parts) = ranking.of_row(&series, row);
    assert!(best.contains(&parts[0].event), "{parts:?}");
    assert!(parts[0].count > 2.0 * parts[0].typical && parts[0].adds > 0.0);
    assert!((predicted - outcome[row]).abs() < 0.25 * outcome[row]);
}

/// Input that can't be ranked gives a one-line error.
#[test]
fn refused() {
    let (series, outcome) = known(1, 100, 3);
    let error = |series: &Series, outcome: &[f64]| {
        rank(series, outcome, &options(1))
            .err()
            .unwrap()
            .to_string()
    };
    assert!(error(&series, &[1.0, 2.0]).contains("2 rows"));
    assert!(error(&series, &[f64::NAN; 100]).contains("0 rows"));
    assert!(error(&series, &[7.0; 100]).contains("the same in all 100 rows"));
    let mut flat = series.clone();
    flat.events.iter_mut().for_each(|it| it.counts.fill(1.0));
    flat.events[0].counts.fill(f64::NAN);
    assert_eq!(
        error(&flat, &outcome),
        "no event varies: 2 are constant, 1 were never counted"
    );
}
