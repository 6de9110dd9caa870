//! Ranking over runs that counted different events, with known influences.
#![expect(clippy::unwrap_used, reason = "tests: a panic is the report")]

use pebs_mine::known::{PlantedRuns, WEIGHTS, known_runs};
use pebs_mine::rank::Options;
use pebs_mine::runs::{AcrossRuns, Cause, RESAMPLES, Run, RunsError, rank_runs};
use pebs_mine::stats::spearman;

fn options(seed: u64) -> Options {
    Options {
        seed,
        resamples: RESAMPLES,
        ..Options::default()
    }
}

fn names() -> [String; 2] {
    ["workers", "buffer"].map(str::to_owned)
}

fn mined(alone: &[Run], beside: &[Run], seed: u64) -> AcrossRuns {
    rank_runs(alone, beside, &names(), &options(seed)).unwrap()
}

/// Name of a cause.
fn name(found: &AcrossRuns, cause: Cause) -> String {
    match cause {
        Cause::Events(group) => found.names[found.groups[group][0]].clone(),
        Cause::Parameter(at) => names()[at].clone(),
    }
}

/// The neighbour's influences: the fourth event no longer matters, and one that did not is now the second.
fn neighbour() -> PlantedRuns {
    let mut plan = PlantedRuns::default();
    plan.weights.resize(21, 0.0);
    plan.weights[3] = 0.0;
    plan.weights[20] = 10.0;
    plan
}

#[test]
#[ignore = "look"]
fn look() {
    for seed in std::env::var("FROM").map_or(0, |it| it.parse().unwrap())..std::env::var("TO").map_or(3, |it| it.parse().unwrap()) {
        let began = std::time::Instant::now();
        let found = mined(&known_runs(seed, &PlantedRuns::default()), &known_runs(seed + 1000, &neighbour()), seed);
        println!("{seed}: {:?} explained {:?} between {}", began.elapsed(), found.explained, found.between);
        for it in found.ranked.iter().take(16) {
            println!("  {} {:?} noise {} chance {:.2e} rate {:.2e} runs {} dir {:.2}", name(&found, it.cause), it.effect, it.is_noise, it.chance, it.rate, it.runs, it.direction);
        }
        for it in found.pairs.iter().take(8) {
            println!("  {} x {}: {:.4} {:.2e} runs {}", name(&found, it.causes[0]), name(&found, it.causes[1]), it.residual, it.chance, it.runs);
        }
        println!("apart {} untested {}", found.apart.len(), found.untested);
        for it in found.changes.unwrap().iter().take(10) {
            println!("  {} {:?} {:?} f {:?} chance {:.2e} rate {:.2e} {}", found.names[found.groups[it.group][0]], it.shares, it.ranks, it.factor, it.chance, it.rate, it.is_changed);
        }
    }
}

#[test]
#[ignore = "look"]
fn look_null() {
    let mut sums = [0; 5];
    for seed in std::env::var("FROM").map_or(0, |it| it.parse().unwrap())..std::env::var("TO").map_or(3, |it| it.parse().unwrap()) {
        let plan = PlantedRuns::nothing();
        let found = mined(&known_runs(seed, &plan), &known_runs(seed + 1000, &plan), seed);
        let events = found.ranked.iter().filter(|it| !it.is_noise && matches!(it.cause, Cause::Events(_))).count();
        let params = found.ranked.iter().filter(|it| !it.is_noise && !matches!(it.cause, Cause::Events(_))).count();
        let pairs = found.pairs.iter().filter(|it| it.is_sure()).count();
        let changes = found.changes.unwrap().iter().filter(|it| it.is_changed).count();
        println!("{seed}: {events} {params} {pairs} {changes}");
        for (sum, it) in sums.iter_mut().zip([events, params, pairs, changes, 1]) { *sum += usize::from(it > 0); }
    }
    println!("{sums:?}");
}
