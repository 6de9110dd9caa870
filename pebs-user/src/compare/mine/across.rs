//! Events of several runs that counted different ones, with the runs' parameters and a neighbour.

use pebs_mine::csv::{self, Table};
use pebs_mine::outcome::take;
use pebs_mine::rank::{self, LEAST_ROWS, Scale};
use pebs_mine::runs::{self, AcrossRuns, Cause, Run, RunsError, rank_runs};
use pebs_mine::series::{Event, Series};
use serde::Serialize;

use super::{Interval, MineError, MineOptions, Mined, Until, cleaned_table, typical_and_bad_of};

/// The counts of one run, and its place among the runs.
pub struct RunTable {
    /// Its file.
    pub name: String,
    /// The counts.
    pub table: Table,
    /// Value of each parameter.
    pub values: Vec<String>,
    /// Class of each row; empty: all are of one class.
    pub classes: Vec<String>,
}

/// Runs to mine together.
pub struct Runs {
    /// Those to explain.
    pub alone: Vec<RunTable>,
    /// Those beside a neighbour.
    pub beside: Vec<RunTable>,
    /// Names of the parameters.
    pub parameters: Vec<String>,
    /// Column of the classes.
    pub class: Option<String>,
}

/// Why runs can't be mined together.
#[derive(Debug, thiserror::Error)]
pub enum AcrossError {
    /// Their common events or columns do not suffice.
    Runs(#[from] RunsError),
    /// The files have different outcomes.
    Outcomes {
        /// Two files with their outcomes.
        files: [String; 2],
        names: [String; 2],
    },
    /// Rows of several runs have no common label.
    Item,
}

/// Events that vary together, or a parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseOf {
    /// Names of the events; of a parameter one.
    pub names: Vec<String>,
    pub is_parameter: bool,
    /// Runs that counted it; of a parameter all.
    pub runs: usize,
    /// Rows in which it was counted, of those used.
    pub rows: usize,
    /// Share of the outcome's variance, over all runs, that depends on it.
    pub effect: Interval,
    /// Share of all contributions to predictions (SHAP), in the runs that counted it; null: a parameter.
    pub contribution: Option<f64>,
    /// Above 0 if the outcome grows with it, -1..1; 0: a parameter of words.
    pub direction: f64,
    /// Chance of as much without any influence.
    pub chance: f64,
    /// The same for any of the events, or of the parameters: times their number.
    pub chance_of_any: f64,
    /// Whether it does no better than shuffled counts, or than chance.
    pub is_noise: bool,
}

/// Two events or parameters whose effects do not add up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CausePairOf {
    /// Their names.
    pub causes: [String; 2],
    /// Runs that have both.
    pub runs: usize,
    /// Share of the outcome's variance that depends on both together only.
    pub residual: f64,
    /// Share of all pairs' residual variance.
    pub intensity: f64,
    /// Chance of as much without any interaction, times the number of pairs.
    pub chance: f64,
    /// Whether that is 1 % at most.
    pub is_sure: bool,
}

/// A class of rows that all runs have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassOf {
    pub name: String,
    /// Its share of the rows that are used of each run.
    pub share: f64,
}

/// An event without and with the neighbour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeOf {
    /// Names of the events that vary together.
    pub events: Vec<String>,
    /// Share of the variance within runs: without, with the neighbour.
    pub shares: [f64; 2],
    /// Rank among the events that do better than shuffled counts; null: it does not.
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

/// The comparison with the runs beside a neighbour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BesideOf {
    pub files: Vec<String>,
    /// Events that do better than shuffled counts on either side, those that change most first.
    pub events: Vec<ChangeOf>,
}

/// The ranking over runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Across {
    /// Runs without the neighbour.
    pub runs: usize,
    /// Parts of runs in which other events were counted, as they took turns; `runs` if they did not.
    pub sets: usize,
    /// Events of all runs together, without the unusable ones.
    pub events: usize,
    /// Rows used, of all runs.
    pub rows: usize,
    /// Whether the models predict logarithms.
    pub is_log: bool,
    /// Column of the classes; null: none was given.
    pub class: Option<String>,
    /// Classes that all runs have.
    pub classes: Vec<ClassOf>,
    /// Rows that are not used: of other classes, or beyond the common shares.
    pub left_out: usize,
    /// Best first.
    pub causes: Vec<CauseOf>,
    /// Share of the variance within a run that its events together predict.
    pub explained: Interval,
    /// Share of the variance of all rows that lies between runs.
    pub between: f64,
    /// Pairs, strongest first; null: not looked for.
    pub pairs: Option<Vec<CausePairOf>>,
    /// Pairs of important events that no run counted both of: whether they interact, or one stands for the other, is
    /// unknown.
    pub apart: Vec<[String; 2]>,
    /// Pairs with a parameter that too few runs have with different values.
    pub untested: usize,
    /// Events that were counted in too few rows of every run, or do not vary.
    pub unusable: Vec<String>,
    pub beside: Option<BesideOf>,
}

/// Fewest rows in which the same events were counted, for them to be a set.
const LEAST_SET: usize = LEAST_ROWS;

/// Least share of the rows in which the sets were counted.
const LEAST_IN_SETS: f64 = 0.5;

/// The rows of each set of events that were counted together; one set if events did not take turns.
fn sets(series: &Series, outcome: &[f64]) -> Vec<Vec<usize>> {
    let mut sets: Vec<(Vec<bool>, Vec<usize>)> = Vec::new();
    let rows: Vec<usize> = (0..outcome.len())
        .filter(|&it| outcome[it].is_finite())
        .collect();
    for &row in &rows {
        let counted = series.events.iter().map(|it| !it.counts[row].is_nan());
        let counted: Vec<bool> = counted.collect();
        match sets.iter().position(|it| it.0 == counted) {
            Some(at) => sets[at].1.push(row),
            // So many sets are no turns.
            None if sets.len() >= rows.len() / LEAST_SET => return vec![rows],
            None => sets.push((counted, vec![row])),
        }
    }
    let ever: Vec<bool> = series
        .events
        .iter()
        .map(|it| rows.iter().any(|&row| !it.counts[row].is_nan()))
        .collect();
    // Where some rows have all events, the others merely lack some.
    let has_all = sets.iter().any(|it| it.0 == ever);
    sets.retain(|it| it.1.len() >= LEAST_SET && it.0.contains(&true));
    let in_sets: usize = sets.iter().map(|it| it.1.len()).sum();
    if has_all || sets.len() < 2 || (in_sets as f64) < LEAST_IN_SETS * rows.len() as f64 {
        return vec![rows];
    }
    sets.into_iter().map(|it| it.1).collect()
}

/// Names of the events that were counted in any row.
fn counted(series: &Series) -> Vec<&str> {
    let events = series.events.iter();
    let counted = events.filter(|it| it.counts.iter().any(|it| !it.is_nan()));
    let mut names: Vec<&str> = counted.map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    names
}

/// Whether tables have to be ranked run by run: they counted different events, each in enough rows.
#[must_use]
pub fn are_apart(tables: &[(String, Table)]) -> bool {
    let Some((first, others)) = tables.split_first() else {
        return false;
    };
    let events = counted(&first.1.series);
    if others.is_empty() {
        let series = &first.1.series;
        return !first.1.is_timed && sets(series, &vec![0.0; series.rows()]).len() > 1;
    }
    tables.iter().all(|it| it.1.series.rows() >= LEAST_ROWS)
        && others.iter().any(|it| counted(&it.1.series) != events)
}

/// The rows of a series.
fn part(series: &Series, rows: &[usize]) -> Series {
    let events = series.events.iter().map(|it| Event {
        name: it.name.clone(),
        counts: rows.iter().map(|&row| it.counts[row]).collect(),
        running: Vec::new(),
    });
    Series::of(events.collect())
}

/// Outcomes of all runs of one side.
struct Taken {
    runs: Vec<Run>,
    /// Name of the outcome, and the first file that has it.
    outcome: Option<(String, String)>,
    low_is_bad: bool,
    values: Vec<f64>,
    cleaned: Vec<(String, Table)>,
}

/// Cleans each table, takes its outcome, and divides it by the events that were counted together.
fn taken(
    tables: Vec<RunTable>,
    options: &MineOptions,
    mined: &mut Mined,
) -> Result<Taken, MineError> {
    let mut all = Taken {
        runs: Vec::new(),
        outcome: None,
        low_is_bad: false,
        values: Vec::new(),
        cleaned: Vec::new(),
    };
    let files = tables.len();
    let are_several = files > 1;
    // A remark on all files is made once.
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for (recording, one) in tables.into_iter().enumerate() {
        let RunTable {
            name,
            mut table,
            values,
            classes,
        } = one;
        mined.rows += table.series.rows();
        mined.is_timed &= table.is_timed;
        for note in table.take_notes() {
            match notes.iter_mut().find(|it| it.0 == note) {
                Some(it) => it.1.push(name.clone()),
                None => notes.push((note, vec![name.clone()])),
            }
        }
        let prefix = if are_several { name.as_str() } else { "" };
        cleaned_table(&mut table, prefix, options, mined);
        let mut series = table.series.clone();
        let outcome = take(&mut series, options.explain.as_deref())?;
        match &all.outcome {
            Some((of, file)) if *of != outcome.name => {
                return Err(AcrossError::Outcomes {
                    files: [file.clone(), name],
                    names: [of.clone(), outcome.name],
                }
                .into());
            }
            _ => {}
        }
        for rows in sets(&series, &outcome.values) {
            all.runs.push(Run {
                name: name.clone(),
                recording,
                series: part(&series, &rows),
                outcome: rows.iter().map(|&row| outcome.values[row]).collect(),
                classes: rows
                    .iter()
                    .filter_map(|&row| classes.get(row).cloned())
                    .collect(),
                values: values.clone(),
            });
        }
        all.low_is_bad = outcome.low_is_bad;
        all.values.extend(outcome.values);
        all.outcome.get_or_insert((outcome.name, name.clone()));
        all.cleaned.push((name, table));
    }
    for (note, of) in notes {
        if of.len() == files {
            mined.notes.push(note);
        } else {
            mined
                .notes
                .extend(of.iter().map(|file| format!("{file}: {note}")));
        }
    }
    Ok(all)
}

/// Mines runs that counted different events, had different parameters, or a neighbour.
///
/// # Errors
/// If they have nothing in common, or too little of it.
pub fn mine_runs(runs: Runs, options: &MineOptions) -> Result<Mined, MineError> {
    if options.item.is_some() {
        return Err(AcrossError::Item.into());
    }
    let files_of = |tables: &[RunTable]| tables.iter().map(|it| it.name.clone()).collect();
    let mut mined = Mined::of(files_of(&runs.alone));
    mined.is_timed = true;
    let (files_beside, recordings) = (files_of(&runs.beside), runs.alone.len());
    let alone = taken(runs.alone, options, &mut mined)?;
    // What is said of rows and cleaning is of the runs that are explained.
    let mut of_beside = Mined::of(Vec::new());
    let beside = taken(runs.beside, options, &mut of_beside)?;
    if let (Some((a, of_a)), Some((b, of_b))) = (&alone.outcome, &beside.outcome)
        && a != b
    {
        return Err(AcrossError::Outcomes {
            files: [of_a.clone(), of_b.clone()],
            names: [a.clone(), b.clone()],
        }
        .into());
    }
    let how = rank::Options {
        resamples: runs::RESAMPLES,
        block: if mined.is_timed { BLOCK } else { 1 },
        scale: options.scale,
        seed: options.seed,
        ..rank::Options::default()
    };
    let found =
        rank_runs(&alone.runs, &beside.runs, &runs.parameters, &how).map_err(AcrossError::from)?;
    mined.typical_and_bad = Some(typical_and_bad_of(&alone.values, alone.low_is_bad));
    mined.low_is_bad = alone.low_is_bad;
    mined.outcome = alone.outcome.map(|it| it.0);
    mined.series = csv::join(alone.cleaned).series;
    let mut across = named(&found, &runs.parameters, options.until == Until::Interact);
    (across.runs, across.sets) = (recordings, alone.runs.len());
    across.class = runs.class;
    if let Some(beside) = &mut across.beside {
        beside.files = files_beside;
    }
    mined.across = Some(across);
    Ok(mined)
}

/// Intervals that are resampled together.
const BLOCK: usize = 5;

fn named(found: &AcrossRuns, parameters: &[String], with_pairs: bool) -> Across {
    let events = |group: usize| -> Vec<String> {
        let events = found.groups[group].iter();
        events.map(|&it| found.names[it].clone()).collect()
    };
    let names = |cause: Cause| match cause {
        Cause::Events(group) => events(group),
        Cause::Parameter(at) => vec![parameters[at].clone()],
    };
    let first = |cause: Cause| names(cause).swap_remove(0);
    Across {
        runs: found.recordings,
        sets: found.recordings,
        events: found.names.len() - found.unusable.len(),
        rows: found.rows,
        is_log: found.scale == Scale::Log,
        class: None,
        classes: found
            .classes
            .iter()
            .map(|it| ClassOf {
                name: it.name.clone(),
                share: it.share,
            })
            .collect(),
        left_out: found.left_out,
        causes: found
            .ranked
            .iter()
            .map(|it| CauseOf {
                names: names(it.cause),
                is_parameter: matches!(it.cause, Cause::Parameter(_)),
                runs: it.runs,
                rows: it.rows,
                effect: it.effect.into(),
                contribution: it.contribution,
                direction: it.direction,
                chance: it.chance,
                chance_of_any: it.chance_of_any,
                is_noise: it.is_noise,
            })
            .collect(),
        explained: found.explained.into(),
        between: found.between,
        pairs: with_pairs.then(|| {
            let pairs = found.pairs.iter().map(|it| CausePairOf {
                causes: it.causes.map(first),
                runs: it.runs,
                residual: it.residual,
                intensity: it.intensity,
                chance: it.chance,
                is_sure: it.is_sure(),
            });
            pairs.collect()
        }),
        apart: found
            .apart
            .iter()
            .map(|it| it.map(|it| first(Cause::Events(it))))
            .collect(),
        untested: found.untested,
        unusable: found
            .unusable
            .iter()
            .map(|&it| found.names[it].clone())
            .collect(),
        beside: found.changes.as_ref().map(|changes| BesideOf {
            files: Vec::new(),
            events: changes
                .iter()
                .map(|it| ChangeOf {
                    events: events(it.group),
                    shares: it.shares,
                    ranks: it.ranks,
                    factor: it.factor,
                    chance: it.chance,
                    rate: it.rate,
                    is_changed: it.is_changed,
                })
                .collect(),
        }),
    }
}
