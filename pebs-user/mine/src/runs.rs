//! Ranks events over several runs, of which none counted all of them, with the runs' configuration.
//!
//! A model of all events would need rows in which all were counted. Filling in those of other runs would make up how
//! events vary together. So each run is explained by its own events, over rows that stand for the same work in all
//! runs (`align`); shares of the variance, which do not depend on what else was counted if events are independent,
//! are compared across runs. What differs between runs is explained by `parameters` only, with a run as the unit.

mod align;
mod curves;
mod effects;
mod linear;
mod neighbour;
mod parameters;

use std::collections::BTreeMap;

use rayon::prelude::*;

pub use self::align::Class;
use self::curves::Curves;
use self::effects::{Effects, Joint, Noise};
pub use self::neighbour::Change;
pub use self::parameters::LEAST_REST;
use crate::interact::{self, interact_events};
use crate::model::ModelError;
use crate::rank::{Interval, Options, Scale, scale_of};
use crate::series::Series;
use pebs_stats::summary::{chi_squared_tail, mean, moments};

/// Rows of one recording in which the same events were counted.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Its file.
    pub name: String,
    /// Number of its recording: rows with other events can be of the same one.
    pub recording: usize,
    /// Counts of the events of this run.
    pub series: Series,
    /// One a row; NaN: none.
    pub outcome: Vec<f64>,
    /// Class of each row, an empty name if it is unknown; empty: all are of one class.
    pub classes: Vec<String>,
    /// Value of each parameter.
    pub values: Vec<String>,
}

/// Events or parameters that take part, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Number of a group of events.
    Events(usize),
    /// Number of a parameter.
    Parameter(usize),
}

/// A cause with its share of the outcome's variance.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedCause {
    /// The cause itself.
    pub cause: Cause,
    /// Recordings in which it was counted; of a parameter all.
    pub runs: usize,
    /// Rows in which it was counted.
    pub rows: usize,
    /// Share of the variance of all rows of all runs that depends on it.
    pub effect: Interval,
    /// Share of all contributions to predictions (SHAP); `None`: a parameter.
    pub contribution: Option<f64>,
    /// Above 0 if the outcome grows with it; 0: a parameter of words.
    pub direction: f64,
    /// Chance of as much without any influence.
    pub chance: f64,
    /// The same for any of the events, or of the parameters: times their number.
    pub chance_of_any: f64,
    /// Whether it does no better than shuffled events, or than chance.
    pub is_noise: bool,
}

/// Two causes whose effects do not add up.
#[derive(Clone, Debug, PartialEq)]
pub struct CausePair {
    /// The better ranked one first.
    pub causes: [Cause; 2],
    /// Recordings that have both.
    pub runs: usize,
    /// Share of the outcome's variance that depends on both together only.
    pub residual: f64,
    /// Share of all pairs' residual variance (equation 13).
    pub intensity: f64,
    /// Chance of as much without any interaction, times the number of pairs.
    pub chance: f64,
}

impl CausePair {
    /// Whether it is more than chance.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.chance <= LEVEL
    }
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct AcrossRuns {
    /// Names of all events, in order of appearance.
    pub names: Vec<String>,
    /// Groups of events that vary together in all runs that counted several of them.
    pub groups: Vec<Vec<usize>>,
    /// Events that were counted in too few rows of every run, or do not vary.
    pub unusable: Vec<usize>,
    /// Quantity that the models predict.
    pub scale: Scale,
    /// Classes that all runs have, with the rows that stand for each in each run.
    pub classes: Vec<Class>,
    /// Rows with an outcome whose class some run lacks, or that are beyond what a run needs.
    pub left_out: usize,
    /// Recordings, and rows that were used of them.
    pub recordings: usize,
    pub rows: usize,
    /// Best first.
    pub ranked: Vec<RankedCause>,
    /// Share of the variance within a run that its events together predict; mean and interval over runs.
    pub explained: Interval,
    /// Share of the variance of all rows that lies between runs.
    pub between: f64,
    /// Pairs, strongest first.
    pub pairs: Vec<CausePair>,
    /// Pairs of important events that no run counted both of.
    pub apart: Vec<[usize; 2]>,
    /// Pairs of causes that can't be tested: too few runs have both with different values.
    pub untested: usize,
    /// Events of the runs beside the neighbour, compared; `None`: none were given.
    pub changes: Option<Vec<Change>>,
}

/// Reasons why runs can't be ranked.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// No class is in all runs.
    #[error("no class of items is in all {runs} runs: '{class}' is not in {name}")]
    NoCommonClass {
        runs: usize,
        /// A class of another run.
        class: String,
        /// The run that lacks it.
        name: String,
    },
    /// A run has too few rows of the common classes.
    #[error(
        "{name}: {rows} rows of the common classes have an outcome, each run needs {}",
        crate::rank::LEAST_ROWS
    )]
    TooFewRows { name: String, rows: usize },
    /// The outcome of a run is constant.
    #[error("{name}: the outcome is the same in all rows")]
    Constant { name: String },
    /// No run counted an event that varies.
    #[error("no event varies in any run")]
    NoEvents,
    /// A parameter has the same value in all runs.
    #[error("parameter '{name}' is {value} in all {runs} runs")]
    OneValue {
        name: String,
        value: String,
        runs: usize,
    },
    /// Two parameters, or combinations of several, determine each other.
    #[error("parameter '{name}' follows from the others in all {runs} runs")]
    Confounded { name: String, runs: usize },
    /// Too few runs for the number of values.
    #[error("{runs} runs are too few for the values of the parameters: {needed} are needed")]
    TooFewRuns { runs: usize, needed: usize },
    /// Neither numbers nor few.
    #[error("parameter '{name}' has {values} different words in {runs} runs")]
    TooManyWords {
        name: String,
        values: usize,
        runs: usize,
    },
    /// Nothing to compare.
    #[error("the runs with the neighbour have no event in common with the others")]
    NoCommonEvent,
    /// No configuration is on both sides.
    #[error("no run with the neighbour has the parameters of a run without it")]
    NoCommonConfiguration,
    /// The trees failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Chance that any event counts as more than noise without an influence, and so for parameters and pairs; and the false
/// discovery rate of changes. All four together are wrong in less than 5 % of all results.
const LEVEL: f64 = 0.01;

/// Models of resampled rows of each run.
pub const RESAMPLES: usize = 4;

/// Groups of events whose pairs are examined.
const PAIRED: usize = 8;

/// Ranks the events of several runs and their parameters; with runs beside a neighbour, tells which events change rank.
///
/// `parameters`: their names, in the order of [`Run::values`]. [`Options::resamples`] is for each run.
///
/// # Errors
/// If runs have nothing in common, or too few rows or runs.
pub fn rank_runs(
    alone: &[Run],
    beside: &[Run],
    parameters: &[String],
    options: &Options,
) -> Result<AcrossRuns, RunsError> {
    let runs: Vec<&Run> = alone.iter().chain(beside).collect();
    let aligned = align::align(&runs)?;
    let mut outcomes: Vec<f64> = Vec::new();
    for (run, rows) in runs.iter().zip(&aligned.rows) {
        outcomes.extend(rows.iter().map(|&row| run.outcome[row]));
    }
    outcomes.sort_unstable_by(f64::total_cmp);
    let scale = scale_of(&outcomes, options.scale);
    let joint = Joint::of(&runs, &aligned.rows);
    if joint.groups.is_empty() {
        return Err(RunsError::NoEvents);
    }
    let number: Vec<usize> = (0..runs.len()).collect();
    let effects: Vec<Effects> = number
        .into_par_iter()
        .map(|at| {
            Effects::of(
                runs[at],
                &aligned.rows[at],
                &joint.of_run[at],
                scale,
                &Options {
                    seed: options.seed.wrapping_add(at as u64),
                    ..*options
                },
            )
        })
        .collect::<Result<_, _>>()?;
    let (effects, effects_beside) = effects.split_at(alone.len());
    let noise = Noise::of(effects, options.seed);
    let means = parameters::means(alone, effects);
    let variance = Variance::of(effects, &means);
    let mut ranked = event_causes(alone, effects, &joint, &noise, &variance);
    let design = parameters::Design::of(parameters, alone, &means)?;
    ranked.extend(design.ranked(variance.all(), aligned_rows(effects)));
    ranked.sort_by(|a, b| {
        let key = |it: &RankedCause| (!it.is_noise, it.effect.mean);
        let ((a_real, a), (b_real, b)) = (key(a), key(b));
        b_real.cmp(&a_real).then(b.total_cmp(&a))
    });
    let best: Vec<usize> = ranked
        .iter()
        .filter(|it| !it.is_noise)
        .filter_map(|it| match it.cause {
            Cause::Events(group) => Some(group),
            Cause::Parameter(_) => None,
        })
        .take(PAIRED)
        .collect();
    let studied = Studied {
        runs: alone,
        rows: &aligned.rows,
        effects,
        joint: &joint,
        best: &best,
        scale,
    };
    let mut found = event_pairs(&studied, options.seed)?;
    let apart = apart(&joint.of_run[..alone.len()], &best);
    let curves = Curves::of(&studied);
    let (of_parameters, untested) = design.pairs(&curves, &best);
    found.extend(of_parameters);
    let pairs = weighed(found, &ranked, variance.all());
    let changes = if beside.is_empty() {
        None
    } else {
        let of_beside = Noise::of(effects_beside, options.seed);
        let sides = [
            neighbour::Side::of(alone, effects, &noise, scale),
            neighbour::Side::of(beside, effects_beside, &of_beside, scale),
        ];
        Some(neighbour::compare(&sides, joint.groups.len())?)
    };
    let explained: Vec<f64> = effects.iter().map(|it| it.explained).collect();
    Ok(AcrossRuns {
        names: joint.names,
        groups: joint.groups,
        unusable: joint.unusable,
        scale,
        classes: aligned.classes,
        left_out: aligned.left_out,
        recordings: means.len(),
        rows: aligned_rows(effects),
        ranked,
        explained: Interval::of(&explained),
        between: variance.between / variance.all(),
        pairs,
        apart,
        untested,
        changes,
    })
}

/// Rows used of all runs.
fn aligned_rows(effects: &[Effects]) -> usize {
    effects.iter().map(|it| it.rows).sum()
}

/// Variance of the scaled outcome.
struct Variance {
    /// Mean of the runs'.
    within: f64,
    /// That of the recordings' means.
    between: f64,
}

impl Variance {
    fn of(effects: &[Effects], means: &[parameters::Mean]) -> Self {
        let within: Vec<f64> = effects.iter().map(|it| it.variance).collect();
        let means: Vec<f64> = means.iter().map(|it| it.outcome).collect();
        Self {
            within: mean(&within),
            between: moments(&means).1.powi(2),
        }
    }

    fn all(&self) -> f64 {
        (self.within + self.between).max(f64::MIN_POSITIVE)
    }
}

/// Number of recordings that these runs are of.
fn recordings(runs: impl Iterator<Item = usize>) -> usize {
    let mut all: Vec<usize> = runs.collect();
    all.sort_unstable();
    all.dedup();
    all.len()
}

/// The groups of events with their shares over all runs that counted them.
fn event_causes(
    runs: &[Run],
    effects: &[Effects],
    joint: &Joint,
    noise: &Noise,
    variance: &Variance,
) -> Vec<RankedCause> {
    let mut causes = Vec::new();
    for group in 0..joint.groups.len() {
        let of_group = effects::of_group(effects, group);
        if of_group.is_empty() {
            continue;
        }
        let shares: Vec<f64> = of_group
            .iter()
            .map(|it| it.effect * effects[it.run].variance / variance.all())
            .collect();
        // Resamples of one run do not show how runs differ, and few runs show it badly: the larger of the two.
        let count = shares.len() as f64;
        let of_resamples: Vec<f64> = of_group
            .iter()
            .map(|it| (it.spread * effects[it.run].variance / variance.all()).powi(2))
            .collect();
        let of_runs = if count > 1.0 {
            moments(&shares).1.powi(2) * count / (count - 1.0)
        } else {
            0.0
        };
        let half = 1.96 * (mean(&of_resamples).max(of_runs) / count).sqrt();
        let effect = mean(&shares);
        let of = |figure: fn(&effects::OfGroup) -> f64| {
            mean(&of_group.iter().map(figure).collect::<Vec<f64>>())
        };
        causes.push(RankedCause {
            cause: Cause::Events(group),
            runs: recordings(of_group.iter().map(|it| runs[it.run].recording)),
            rows: of_group.iter().map(|it| effects[it.run].rows).sum(),
            effect: Interval {
                mean: effect,
                low: effect - half,
                high: effect + half,
            },
            contribution: Some(of(|it| it.contribution)),
            direction: of(|it| it.direction),
            chance: noise.chance(&of_group),
            chance_of_any: 1.0,
            is_noise: true,
        });
    }
    let tested = causes.len() as f64;
    for cause in &mut causes {
        cause.chance_of_any = (cause.chance * tested).min(1.0);
        cause.is_noise = cause.chance_of_any > LEVEL || cause.effect.low <= 0.0;
    }
    causes
}

/// A pair before all pairs are compared: its chance is that of the pair alone.
struct FoundPair {
    causes: [Cause; 2],
    runs: usize,
    /// In units of the scaled outcome's variance.
    variance: f64,
    chance: f64,
}

/// The runs that are explained, and the groups of events whose pairs are examined.
struct Studied<'a> {
    runs: &'a [Run],
    /// Aligned rows of each run.
    rows: &'a [Vec<usize>],
    effects: &'a [Effects],
    joint: &'a Joint,
    /// Numbers of groups, best first.
    best: &'a [usize],
    scale: Scale,
}

/// A pair of groups of events in one run.
struct PairOfRun {
    run: usize,
    groups: [usize; 2],
    /// In units of the scaled outcome's variance.
    variance: f64,
    /// Of this pair in this run alone.
    chance: f64,
}

impl Studied<'_> {
    /// The pairs of events that one run counted.
    fn pairs_of(&self, at: usize, seed: u64) -> Result<Vec<PairOfRun>, ModelError> {
        let run = &self.runs[at];
        let counted = self.joint.of_run[at].iter();
        let counted = counted.filter(|it| self.best.contains(&it.group));
        let events: Vec<(usize, usize)> = counted.map(|it| (it.events[0], it.group)).collect();
        let numbers: Vec<usize> = events.iter().map(|it| it.0).collect();
        let mut outcome = vec![f64::NAN; run.outcome.len()];
        for &row in &self.rows[at] {
            outcome[row] = run.outcome[row];
        }
        let how = interact::Options {
            seed: seed.wrapping_add(at as u64),
            ..interact::Options::default()
        };
        let pairs = interact_events(&run.series, &outcome, &numbers, self.scale, &how)?;
        let group = |event: usize| events.iter().find(|it| it.0 == event).map(|it| it.1);
        let of = |it: &interact::Pair| {
            let [a, b] = it.events.map(group);
            let (a, b) = (a?, b?);
            Some(PairOfRun {
                run: at,
                groups: [a.min(b), a.max(b)],
                variance: it.residual * self.effects[at].variance,
                chance: it.chance_alone,
            })
        };
        Ok(pairs.iter().filter_map(of).collect())
    }
}

/// Pairs of events that a run counted together: found in each of these runs, and combined (Fisher's method).
fn event_pairs(studied: &Studied<'_>, seed: u64) -> Result<Vec<FoundPair>, ModelError> {
    let numbers: Vec<usize> = (0..studied.runs.len()).collect();
    let of_runs: Vec<Vec<PairOfRun>> = numbers
        .into_par_iter()
        .map(|at| studied.pairs_of(at, seed))
        .collect::<Result<_, ModelError>>()?;
    let mut by_pair: BTreeMap<[usize; 2], Vec<PairOfRun>> = BTreeMap::new();
    for pair in of_runs.into_iter().flatten() {
        by_pair.entry(pair.groups).or_default().push(pair);
    }
    let found = by_pair.into_iter().map(|(groups, of)| {
        let logs: f64 = of.iter().map(|it| it.chance.max(1e-12).ln()).sum();
        let recording = |it: &PairOfRun| studied.runs[it.run].recording;
        FoundPair {
            causes: groups.map(Cause::Events),
            runs: recordings(of.iter().map(recording)),
            variance: mean(&of.iter().map(|it| it.variance).collect::<Vec<f64>>()),
            chance: chi_squared_tail(-2.0 * logs, 2.0 * of.len() as f64),
        }
    });
    Ok(found.collect())
}

/// Pairs of groups that no run counted both of.
fn apart(of_run: &[Vec<effects::Counted>], best: &[usize]) -> Vec<[usize; 2]> {
    let has =
        |counted: &[effects::Counted], group: usize| counted.iter().any(|it| it.group == group);
    let mut apart = Vec::new();
    for (at, &a) in best.iter().enumerate() {
        for &b in &best[at + 1..] {
            if !of_run.iter().any(|it| has(it, a) && has(it, b)) {
                apart.push([a, b]);
            }
        }
    }
    apart
}

/// The pairs with their share of all, surest and strongest first.
fn weighed(found: Vec<FoundPair>, ranked: &[RankedCause], variance: f64) -> Vec<CausePair> {
    let all = found.iter().map(|it| it.variance).sum::<f64>();
    let all = all.max(f64::MIN_POSITIVE);
    let tested = found.len() as f64;
    let place = |cause: &Cause| ranked.iter().position(|it| it.cause == *cause);
    let mut pairs: Vec<CausePair> = found
        .into_iter()
        .map(|it| {
            let mut causes = it.causes;
            causes.sort_by_key(place);
            CausePair {
                causes,
                runs: it.runs,
                residual: it.variance / variance,
                intensity: it.variance / all,
                chance: (it.chance * tested).min(1.0),
            }
        })
        .collect();
    pairs.sort_by(|a, b| (b.is_sure().cmp(&a.is_sure())).then(b.residual.total_cmp(&a.residual)));
    pairs
}
