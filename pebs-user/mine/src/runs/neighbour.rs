//! Events that change rank where a neighbour runs.

use super::effects::{Effects, Noise, OfGroup, of_group};
use super::{LEVEL, Run, RunsError};
use crate::rank::Scale;
use pebs_stats::summary::{discovery_rates, f_tail, mean, median, moments};

/// An event without and with the neighbour.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Number of the group of events.
    pub group: usize,
    /// Share of the variance within runs: without, with.
    pub shares: [f64; 2],
    /// Rank among the events that do better than noise, from 1; `None`: it does not.
    pub ranks: [Option<usize>; 2],
    /// Its amplitude with the neighbour, in units of that without and of what all events have in common.
    pub factor: Option<f64>,
    /// Chance of such a difference without any change.
    pub chance: f64,
    /// Least false discovery rate at which it is a finding.
    pub rate: f64,
    /// Whether its rank differs, and its amplitude by more than chance.
    pub is_changed: bool,
}

/// Fewest events that count as what all have in common.
const COMMON: usize = 3;

/// Weight of all events' spread beside the one event's own, runs.
const PRIOR: f64 = 4.0;

/// The runs without or with the neighbour.
pub(super) struct Side<'a> {
    runs: &'a [Run],
    effects: &'a [Effects],
    noise: &'a Noise,
    scale: Scale,
}

/// A group's amplitudes.
struct Amplitudes {
    /// For each run the square root of the variance that depends on it, as a share of the typical outcome.
    of_runs: Vec<f64>,
    /// Variance of one of them by resamples.
    of_resamples: f64,
    share: f64,
    chance: f64,
}

impl<'a> Side<'a> {
    pub(super) const fn of(
        runs: &'a [Run],
        effects: &'a [Effects],
        noise: &'a Noise,
        scale: Scale,
    ) -> Self {
        Self {
            runs,
            effects,
            noise,
            scale,
        }
    }

    /// Amplitudes of a group over the runs of some configurations.
    fn amplitudes(&self, group: usize, common: &[&[String]]) -> Option<Amplitudes> {
        let mut of = of_group(self.effects, group);
        of.retain(|it| common.contains(&self.runs[it.run].values.as_slice()));
        if of.is_empty() {
            return None;
        }
        let std = |it: &OfGroup| {
            let of_run = &self.effects[it.run];
            let unit = match self.scale {
                Scale::Linear => of_run.median.abs().max(f64::MIN_POSITIVE),
                Scale::Log => 1.0,
            };
            of_run.variance.sqrt() / unit
        };
        let of_runs = of.iter().map(|it| it.effect.max(0.0).sqrt() * std(it));
        // The square root's error is that of the effect over twice the root; of next to none, the error's own root.
        let errors = of.iter().map(|it| {
            let root = it.effect.max(it.spread).max(0.0).sqrt();
            (it.spread / (2.0 * root).max(1e-9) * std(it)).powi(2)
        });
        Some(Amplitudes {
            of_runs: of_runs.collect(),
            of_resamples: mean(&errors.collect::<Vec<f64>>()),
            share: mean(&of.iter().map(|it| it.effect).collect::<Vec<f64>>()),
            chance: self.noise.chance(&of),
        })
    }
}

/// For each event the place by share among those that do better than noise.
fn ranks(of: &[&Amplitudes]) -> Vec<Option<usize>> {
    let is_real = |it: &usize| of[*it].chance * of.len() as f64 <= LEVEL;
    let mut real: Vec<usize> = (0..of.len()).filter(is_real).collect();
    real.sort_by(|&a, &b| of[b].share.total_cmp(&of[a].share));
    let mut ranks = vec![None; of.len()];
    for (place, at) in real.into_iter().enumerate() {
        ranks[at] = Some(place + 1);
    }
    ranks
}

/// Compares events that were counted on both sides, those that change most first.
pub(super) fn compare(sides: &[Side<'_>; 2], groups: usize) -> Result<Vec<Change>, RunsError> {
    let [alone, beside] = sides;
    let has = |side: &Side<'_>, values: &[String]| side.runs.iter().any(|it| it.values == values);
    let common: Vec<&[String]> = alone
        .runs
        .iter()
        .map(|it| it.values.as_slice())
        .filter(|values| has(beside, values))
        .collect();
    if common.is_empty() {
        return Err(RunsError::NoCommonConfiguration);
    }
    let both: Vec<(usize, [Amplitudes; 2])> = (0..groups)
        .filter_map(|group| {
            let of = |side: &Side<'_>| side.amplitudes(group, &common);
            Some((group, [of(alone)?, of(beside)?]))
        })
        .collect();
    if both.is_empty() {
        return Err(RunsError::NoCommonEvent);
    }
    let of_side = |side: usize| ranks(&both.iter().map(|it| &it.1[side]).collect::<Vec<_>>());
    let ranks = [of_side(0), of_side(1)];
    let amplitude = |at: usize, side: usize| mean(&both[at].1[side].of_runs);
    // What changes all events alike is no change of rank.
    let ratios: Vec<f64> = (0..both.len())
        .filter(|&at| ranks[0][at].is_some() && ranks[1][at].is_some())
        .map(|at| amplitude(at, 1) / amplitude(at, 0).max(f64::MIN_POSITIVE))
        .collect();
    let common = if ratios.len() < COMMON {
        1.0
    } else {
        median(ratios)
    };
    let candidates: Vec<usize> = (0..both.len())
        .filter(|&at| ranks[0][at].is_some() || ranks[1][at].is_some())
        .collect();
    // Variance of one run's amplitude: (sum of squares, degrees of freedom) of a group on both sides.
    let spread = |at: usize| {
        let (mut squares, mut freedom) = (0.0, 0.0);
        for (side, unit) in [1.0, common].into_iter().enumerate() {
            let of = &both[at].1[side].of_runs;
            let std = moments(of).1 / unit;
            squares += std * std * of.len() as f64;
            freedom += of.len() as f64 - 1.0;
        }
        (squares, freedom)
    };
    let sums = candidates.iter().map(|&at| spread(at));
    let (squares, freedom) = sums.fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    let of_resamples = |at: usize| {
        let of = &both[at].1;
        (of[0].of_resamples + of[1].of_resamples / common.powi(2)) / 2.0
    };
    let chances: Vec<f64> = candidates
        .iter()
        .map(|&at| {
            let (own, own_freedom) = spread(at);
            let prior = if freedom > 0.0 {
                squares / freedom
            } else {
                of_resamples(at)
            };
            let weight = if freedom > 0.0 {
                freedom.min(PRIOR)
            } else {
                PRIOR
            };
            let variance = ((own + weight * prior) / (own_freedom + weight)).max(of_resamples(at));
            let runs = both[at].1.each_ref().map(|it| it.of_runs.len() as f64);
            let error = variance * (1.0 / runs[0] + 1.0 / runs[1]);
            let difference = amplitude(at, 1) / common - amplitude(at, 0);
            f_tail(
                difference.powi(2) / error.max(f64::MIN_POSITIVE),
                1.0,
                own_freedom + weight,
            )
        })
        .collect();
    let rates = discovery_rates(&chances);
    let mut changes: Vec<Change> = candidates
        .iter()
        .enumerate()
        .map(|(place, &at)| {
            let of = &both[at].1;
            let ranks = [ranks[0][at], ranks[1][at]];
            let before = amplitude(at, 0) * common;
            Change {
                group: both[at].0,
                shares: [of[0].share, of[1].share],
                ranks,
                factor: ranks[0].map(|_| amplitude(at, 1) / before.max(f64::MIN_POSITIVE)),
                chance: chances[place],
                rate: rates[place],
                is_changed: rates[place] <= LEVEL && ranks[0] != ranks[1],
            }
        })
        .collect();
    changes.sort_by(|a, b| (b.is_changed.cmp(&a.is_changed)).then(a.chance.total_cmp(&b.chance)));
    Ok(changes)
}
