//! Counted events that explain how long items or intervals took: `pebs-trace mine`.
//!
//! The work is done by the crate `pebs_mine`; here its results get names and words.

pub mod across;
pub mod of_trace;

use pebs_mine::clean::{self, ChangeReason, Cleaned, clean};
use pebs_mine::csv::Table;
use pebs_mine::interact::{self, interact};
use pebs_mine::outcome::{Outcome, OutcomeError, take};
use pebs_mine::rank::{self, RankError, Ranking, Scale, Unusable, rank};
use pebs_mine::series::Series;
use pebs_stats::summary::quantile;
use serde::Serialize;

use self::across::{Across, AcrossError};

/// Counts that are cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleanWhen {
    /// Values known to be scaled, or missing in a time series.
    #[default]
    Scaled,
    /// All values.
    Always,
    /// None.
    Never,
}

/// Last step to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    /// Cleaned counts.
    Clean,
    /// Ranked events.
    Rank,
    /// Pairs of events.
    #[default]
    Interact,
}

/// Options of mining.
#[derive(Clone, Debug, Default)]
pub struct MineOptions {
    /// The column to explain.
    pub explain: Option<String>,
    /// Counts that are cleaned.
    pub clean: CleanWhen,
    /// Neighbours averaged to fill in missing values; `None`: by cross-validation.
    pub neighbours: Option<usize>,
    /// Quantity that models predict; `None`: derived from the outcomes.
    pub scale: Option<Scale>,
    /// The row to look at.
    pub item: Option<String>,
    /// Last step to run.
    pub until: Until,
    /// Seed of all that is drawn.
    pub seed: u64,
}

/// Why nothing can be mined.
#[derive(Debug, thiserror::Error)]
pub enum MineError {
    /// The outcome is missing or unclear.
    Outcome(#[from] OutcomeError),
    /// The events can't be ranked.
    Rank(#[from] RankError),
    /// The runs can't be mined together.
    Across(#[from] AcrossError),
    /// The pairs can't.
    Interact(#[from] pebs_mine::model::ModelError),
    /// No row is called so.
    NoItem {
        /// Name that was asked for.
        name: String,
        /// An existing name.
        example: String,
    },
}

/// A mean over resamples with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Mean over the resamples.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl From<rank::Interval> for Interval {
    fn from(it: rank::Interval) -> Self {
        Self {
            mean: it.mean,
            low: it.low,
            high: it.high,
        }
    }
}

/// Changes to one event by cleaning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CleanedEvent {
    /// Its name.
    pub event: String,
    /// `normal`, `long tail`, `constant`, or `never counted`.
    pub shape: &'static str,
    /// Anderson-Darling's statistic of the normal distribution.
    pub anderson_darling_normal: Option<f64>,
    /// The same of the generalised extreme value distribution.
    pub anderson_darling_gev: Option<f64>,
    /// Outlier threshold in standard deviations above the mean.
    pub deviations: Option<f64>,
    /// Values above are outliers.
    pub threshold: Option<f64>,
    /// Neighbours averaged to fill in missing values.
    pub neighbours: Option<usize>,
    /// Outliers that were replaced.
    pub outliers: usize,
    /// Values that were filled in.
    pub missing: usize,
    /// Zeros that can't be true, filled in.
    pub zeros: usize,
    /// Values counted in a part of their row only; the rest was filled in from the rows around.
    pub parts: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedValue {
    /// Name of the row.
    pub row: String,
    /// Name of the event.
    pub event: String,
    /// Old value; null: missing.
    pub before: Option<f64>,
    /// New value.
    pub after: f64,
    /// `outlier`, `missing`, `zero` or `part`.
    pub why: &'static str,
}

/// An event, or equivalent events, with their importance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedEvents {
    /// Their names, the most important first.
    pub events: Vec<String>,
    /// Share of the outcome's variance that depends on them.
    pub effect: Interval,
    /// Importance in the most accurate model.
    pub importance: f64,
    /// Share of all contributions to predictions (SHAP).
    pub contribution: Interval,
    /// Above 0 if the outcome grows with the count, -1..1.
    pub direction: f64,
    /// Chance that noise does as well.
    pub chance: f64,
    /// Whether they do no better than shuffled counts.
    pub is_noise: bool,
    /// Whether the most accurate model uses one of them.
    pub is_kept: bool,
}

/// A model of some number of events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelOf {
    /// The events, most important first.
    pub events: Vec<String>,
    /// Mean relative error on the held-out quarter.
    pub error: f64,
}

/// Two events whose effects do not add up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairOf {
    /// Their names.
    pub events: [String; 2],
    /// Residual variance as a share of the outcome's.
    pub residual: f64,
    /// Share of all pairs' residual variance.
    pub intensity: f64,
    /// Chance of as much without any interaction.
    pub chance: f64,
    /// Whether that is below 5 %.
    pub is_sure: bool,
}

/// An event in one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventOf {
    /// Its name.
    pub event: String,
    /// Its count there; null: not counted.
    pub count: Option<f64>,
    /// Its median over all rows.
    pub typical: f64,
    /// Contribution to the prediction, in units of the outcome; a factor, if the scale is logarithmic.
    pub adds: f64,
}

/// A row, with the contributions to its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowOf {
    /// Its name.
    pub row: String,
    pub outcome: Option<f64>,
    /// Prediction of the model.
    pub predicted: f64,
    /// Events of the model, that with the largest part first.
    pub events: Vec<EventOf>,
}

/// The ranking, if it was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// Rows with an outcome.
    pub rows: usize,
    /// Rows that models were fitted to and tested on: fewer, if there are very many.
    pub used: usize,
    /// Whether the models predict logarithms.
    pub is_log: bool,
    /// Share of the outcome's variance that all events together predict.
    pub explained: Interval,
    /// Best first.
    pub events: Vec<RankedEvents>,
    /// Events without any count.
    pub never_counted: Vec<String>,
    /// Events that do not vary.
    pub constant: Vec<String>,
    /// Models of ever fewer events.
    pub models: Vec<ModelOf>,
    /// Index of the most accurate step.
    pub best: usize,
    /// Pairs, strongest first.
    pub pairs: Option<Vec<PairOf>>,
    /// The row asked for, or the worst ones.
    pub worst: Vec<RowOf>,
}

/// A series before and after cleaning, to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// Name of the event.
    pub event: String,
    /// As it was read.
    pub before: Vec<f64>,
    /// As it is now.
    pub after: Vec<f64>,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mined {
    pub files: Vec<String>,
    /// Rows read.
    pub rows: usize,
    /// Whether rows are intervals of time (or runs), not items.
    pub is_timed: bool,
    /// Remarks on how they were read.
    pub notes: Vec<String>,
    /// Name of the outcome.
    pub outcome: Option<String>,
    /// Median and 99th percentile of it; for IPC the first percentile.
    pub typical_and_bad: Option<(f64, f64)>,
    /// Whether a lower value is the bad one.
    pub low_is_bad: bool,
    /// Changes by cleaning, event by event; null: nothing had to be cleaned.
    pub cleaning: Option<Vec<CleanedEvent>>,
    /// Every value that was changed.
    pub changes: Vec<ChangedValue>,
    pub ranking: Option<Ranked>,
    /// The ranking over runs that counted different events, or had parameters or a neighbour.
    pub across: Option<Across>,
    /// Series that cleaning changed most.
    #[serde(skip)]
    pub drawn: Vec<Drawn>,
    /// The cleaned series.
    #[serde(skip)]
    pub series: Series,
}

/// Rows shown by default.
const WORST: usize = 3;

/// Series that are drawn.
const DRAWN: usize = 4;

/// Cleans a table, ranks its events and finds pairs.
///
/// # Errors
/// If there is no outcome, or no event to explain it with.
pub fn mine(files: Vec<String>, table: Table, options: &MineOptions) -> Result<Mined, MineError> {
    let mut table = table;
    let mut mined = Mined::of(files);
    mined.rows = table.series.rows();
    mined.is_timed = table.is_timed;
    mined.notes = table.take_notes();
    cleaned_table(&mut table, "", options, &mut mined);
    let Table {
        mut series,
        is_timed,
        ..
    } = table;
    if options.until == Until::Clean {
        mined.series = series;
        return Ok(mined);
    }
    let whole = (mined.cleaning.is_some()).then(|| series.clone());
    let outcome = take(&mut series, options.explain.as_deref())?;
    let how = rank::Options {
        block: if is_timed {
            (series.rows() / 60).clamp(1, 10)
        } else {
            1
        },
        scale: options.scale,
        seed: options.seed,
        ..rank::Options::default()
    };
    let ranking = rank(&series, &outcome.values, &how)?;
    let pairs = if options.until == Until::Interact {
        let how = interact::Options {
            seed: options.seed,
            ..interact::Options::default()
        };
        Some(interact(&series, &outcome.values, &ranking, &how)?)
    } else {
        None
    };
    mined.typical_and_bad = Some(typical_and_bad_of(&outcome.values, outcome.low_is_bad));
    mined.low_is_bad = outcome.low_is_bad;
    let shown = shown_rows(&series, &outcome, options.item.as_deref())?;
    mined.ranking = Some(named(&series, &outcome, &ranking, pairs, &shown));
    mined.outcome = Some(outcome.name);
    mined.series = whole.unwrap_or(series);
    Ok(mined)
}

impl Mined {
    /// Nothing found yet.
    fn of(files: Vec<String>) -> Self {
        Self {
            files,
            rows: 0,
            is_timed: false,
            notes: Vec::new(),
            outcome: None,
            typical_and_bad: None,
            low_is_bad: false,
            cleaning: None,
            changes: Vec::new(),
            ranking: None,
            across: None,
            drawn: Vec::new(),
            series: Series::default(),
        }
    }
}

/// Cleans a table if it has to be, and adds what was changed; `file`: prefix of the rows' names, if there are several.
fn cleaned_table(table: &mut Table, file: &str, options: &MineOptions, mined: &mut Mined) {
    let is_scaled = table.series.events.iter().any(|it| !it.running.is_empty());
    let is_cleaned = match options.clean {
        CleanWhen::Scaled => is_scaled || table.is_timed,
        CleanWhen::Always => true,
        CleanWhen::Never => false,
    };
    if !is_cleaned {
        return;
    }
    let how = clean::Options {
        neighbours: options.neighbours,
        unscaled: options.clean == CleanWhen::Always,
    };
    let cleaned = clean(&table.series, &how);
    let of_file = |name: String| {
        if file.is_empty() {
            name
        } else {
            format!("{file}:{name}")
        }
    };
    let events = cleaned_events(&table.series, &cleaned)
        .into_iter()
        .map(|mut it| {
            it.event = of_file(it.event);
            it
        });
    mined.cleaning.get_or_insert_default().extend(events);
    mined
        .changes
        .extend(changes(&table.series, &cleaned).into_iter().map(|mut it| {
            it.row = of_file(it.row);
            it
        }));
    mined
        .drawn
        .extend(drawn(&table.series, &cleaned).into_iter().map(|mut it| {
            it.event = of_file(it.event);
            it
        }));
    mined.drawn.truncate(DRAWN);
    table.series = cleaned.series;
}

fn why(why: ChangeReason) -> &'static str {
    match why {
        ChangeReason::Outlier => "outlier",
        ChangeReason::Missing => "missing",
        ChangeReason::Zero => "zero",
        ChangeReason::Scaled => "part",
    }
}

fn changes(series: &Series, cleaned: &Cleaned) -> Vec<ChangedValue> {
    let of = |it: &clean::Change| ChangedValue {
        row: series.label(it.row),
        event: series.events[it.event].name.clone(),
        before: (!it.before.is_nan()).then_some(it.before),
        after: it.after,
        why: why(it.why),
    };
    cleaned.changes.iter().map(of).collect()
}

fn cleaned_events(series: &Series, cleaned: &Cleaned) -> Vec<CleanedEvent> {
    let of = |(number, event): (usize, &pebs_mine::series::Event)| {
        let found = cleaned.found[number];
        let count = |why: ChangeReason| {
            let changes = cleaned.changes.iter();
            changes
                .filter(|it| it.event == number && it.why == why)
                .count()
        };
        use pebs_mine::shape::Shape;
        CleanedEvent {
            event: event.name.clone(),
            shape: match found.map(|it| it.fit.shape) {
                None => "never counted",
                Some(Shape::Constant) => "constant",
                Some(Shape::Normal) => "normal",
                Some(Shape::LongTail) => "long tail",
            },
            anderson_darling_normal: found.map(|it| it.fit.normal),
            anderson_darling_gev: found.map(|it| it.fit.long_tail).filter(|it| it.is_finite()),
            deviations: found.map(|it| it.deviations),
            threshold: found.map(|it| it.threshold),
            neighbours: found.map(|it| it.neighbours),
            outliers: count(ChangeReason::Outlier),
            missing: count(ChangeReason::Missing),
            zeros: count(ChangeReason::Zero),
            parts: count(ChangeReason::Scaled),
        }
    };
    series.events.iter().enumerate().map(of).collect()
}

/// The events that cleaning changed in most rows, outliers and gaps before parts.
fn drawn(series: &Series, cleaned: &Cleaned) -> Vec<Drawn> {
    let mut changed = vec![0; series.events.len()];
    for change in &cleaned.changes {
        changed[change.event] += if change.why == ChangeReason::Scaled {
            1
        } else {
            1000
        };
    }
    let mut order: Vec<usize> = (0..changed.len())
        .filter(|&it| changed[it] > 0 && cleaned.found[it].is_some())
        .collect();
    order.sort_by_key(|&it| std::cmp::Reverse(changed[it]));
    order
        .into_iter()
        .take(DRAWN)
        .map(|it| Drawn {
            event: series.events[it].name.clone(),
            before: series.events[it].counts.clone(),
            after: cleaned.series.events[it].counts.clone(),
        })
        .collect()
}

/// Median, and the percentile that few are worse than.
fn typical_and_bad_of(outcomes: &[f64], low_is_bad: bool) -> (f64, f64) {
    let mut sorted: Vec<f64> = outcomes
        .iter()
        .copied()
        .filter(|it| it.is_finite())
        .collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let bad = if low_is_bad { 0.01 } else { 0.99 };
    (quantile(&sorted, 0.5), quantile(&sorted, bad))
}

/// The row asked for, else the worst ones.
fn shown_rows(
    series: &Series,
    outcome: &Outcome,
    asked: Option<&str>,
) -> Result<Vec<usize>, MineError> {
    if let Some(name) = asked {
        let row = (0..series.rows()).find(|&row| series.label(row) == name);
        return match row {
            Some(row) => Ok(vec![row]),
            None => Err(MineError::NoItem {
                name: name.to_owned(),
                example: series.label(0),
            }),
        };
    }
    let mut rows: Vec<usize> = (0..series.rows())
        .filter(|&row| outcome.values[row].is_finite())
        .collect();
    rows.sort_by(|&a, &b| {
        let order = outcome.values[b].total_cmp(&outcome.values[a]);
        if outcome.low_is_bad {
            order.reverse()
        } else {
            order
        }
    });
    rows.truncate(WORST);
    Ok(rows)
}

fn named(
    series: &Series,
    outcome: &Outcome,
    ranking: &Ranking,
    pairs: Option<Vec<interact::Pair>>,
    shown: &[usize],
) -> Ranked {
    let name = |it: usize| series.events[it].name.clone();
    let unusable = |why: Unusable| {
        let these = ranking.unusable.iter().filter(|it| it.1 == why);
        these.map(|it| name(it.0)).collect::<Vec<String>>()
    };
    let is_log = ranking.scale == Scale::Log;
    Ranked {
        rows: ranking.rows,
        used: ranking.used,
        is_log,
        explained: ranking.explained.into(),
        events: ranking
            .ranked
            .iter()
            .map(|it| RankedEvents {
                events: it.events.iter().map(|&it| name(it)).collect(),
                effect: it.effect.into(),
                importance: it.importance,
                contribution: it.contribution.into(),
                direction: it.direction,
                chance: it.chance,
                is_noise: it.is_noise,
                is_kept: it.is_kept,
            })
            .collect(),
        never_counted: unusable(Unusable::NeverCounted),
        constant: unusable(Unusable::Constant),
        models: ranking
            .steps
            .iter()
            .map(|it| ModelOf {
                events: it.events.iter().map(|&it| name(it)).collect(),
                error: it.error,
            })
            .collect(),
        best: ranking.best,
        pairs: pairs.map(|pairs| {
            let of = |it: &interact::Pair| PairOf {
                events: it.events.map(name),
                residual: it.residual,
                intensity: it.intensity,
                chance: it.chance,
                is_sure: it.chance < interact::LEVEL,
            };
            pairs.iter().map(of).collect()
        }),
        worst: shown
            .iter()
            .map(|&row| {
                let (predicted, events) = ranking.of_row(series, row);
                let unscaled = |it: f64| if is_log { it.exp() } else { it };
                RowOf {
                    row: series.label(row),
                    outcome: outcome.values.get(row).copied().filter(|it| it.is_finite()),
                    predicted: unscaled(predicted),
                    events: events
                        .into_iter()
                        .map(|it| EventOf {
                            event: name(it.event),
                            count: (!it.count.is_nan()).then_some(it.count),
                            typical: it.typical,
                            adds: unscaled(it.adds),
                        })
                        .collect(),
                }
            })
            .collect(),
    }
}
