//! 229 events over 20 runs of which each counts a fifth, with two parameters and a neighbour: what was planted is named in
//! order, and nothing else.

use std::time::Instant;

use anyhow::Result;
use pebs_mine::known::{Found, PlantedRuns, known_runs};
use pebs_mine::rank::Options;
use pebs_mine::runs::{RESAMPLES, rank_runs};
use pebs_stats::summary::{mean, spearman};

use super::Musts;

/// Seeds of the data with influences, and of that without.
const SEEDS: (std::ops::Range<u64>, std::ops::Range<u64>) = (100..105, 200..220);

/// Events and rows of a run without influences: fewer, so that there can be more seeds.
const NOTHING: (usize, usize) = (80, 400);

fn found(plan: &PlantedRuns, beside: &PlantedRuns, seed: u64) -> Result<Found> {
    let options = Options {
        seed,
        resamples: RESAMPLES,
        ..Options::default()
    };
    let [alone, beside] =
        [(plan, seed), (beside, seed + 1_000)].map(|(it, seed)| known_runs(seed, it));
    let names = PlantedRuns::parameter_names();
    Ok(Found::of(&rank_runs(&alone, &beside, &names, &options)?))
}

/// Rank correlation of planted events in the order in which they were found with the order of their shares; those that
/// were not found come last.
fn order(plan: &PlantedRuns, found: &Found) -> f64 {
    let planted = plan.order();
    let place = |name: &String| found.events.iter().position(|it| it == name);
    let places: Vec<f64> = planted
        .iter()
        .map(|it| place(it).unwrap_or(found.events.len()) as f64)
        .collect();
    let truth: Vec<f64> = (0..planted.len()).map(|it| it as f64).collect();
    spearman(&places, &truth)
}

/// Adds the requirements.
pub(super) fn musts(musts: &mut Musts) -> Result<()> {
    let plan = PlantedRuns::default();
    let (mut orders, mut seconds) = (Vec::new(), Vec::new());
    let (mut all, mut named, mut wrong) = (0, 0, 0);
    for seed in SEEDS.0 {
        let began = Instant::now();
        let found = found(&plan, &plan.with_neighbour(), seed)?;
        seconds.push(began.elapsed().as_secs_f64());
        orders.push(order(&plan, &found));
        let pairs = [["event0", "event2"], ["event1", "workers"]];
        let pairs = pairs
            .iter()
            .filter(|it| found.pairs.iter().any(|pair| pair == *it));
        let changed = PlantedRuns::CHANGED.iter();
        let changed = changed.filter(|it| found.changed.iter().any(|name| name == *it));
        let parameters = ["workers", "buffer"].iter();
        let parameters = parameters.filter(|it| found.parameters.iter().any(|name| name == *it));
        all += 6;
        named += pairs.count() + changed.count() + parameters.count();
        let others = found.others(&plan);
        wrong += usize::from(others > 0);
        eprintln!("{seed}: {found:?}");
    }
    let results = orders.len();
    let least = orders.iter().copied().fold(1.0, f64::min);
    musts.row(
        "229 events over 20 runs: 1 - least rank correlation with the planted order",
        1.0 - least,
        0.1,
        "",
    );
    musts.row(
        "the same: parameters, pairs and changed events that are not named",
        100.0 * (1.0 - named as f64 / all as f64),
        5.0,
        " %",
    );
    musts.row(
        "the same: seconds with a neighbour, mean",
        mean(&seconds),
        60.0,
        " s",
    );
    let mut nothing = results;
    for seed in SEEDS.1 {
        for plan in [PlantedRuns::nothing(), PlantedRuns::default()] {
            let plan = PlantedRuns {
                events: NOTHING.0,
                rows: NOTHING.1,
                ..plan
            };
            let found = found(&plan, &plan, seed)?;
            nothing += 1;
            if found.others(&plan) + found.changed.len() > 0 {
                wrong += 1;
                eprintln!("{seed}: {found:?}");
            }
        }
    }
    musts.row(
        &format!("{nothing} results that name anything that was not planted"),
        100.0 * wrong as f64 / nothing as f64,
        5.0,
        " %",
    );
    Ok(())
}
