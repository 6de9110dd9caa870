//! Differences between runs: their mean outcome, and how much it follows each event, as their parameters explain it.
//!
//! A parameter has one value in a run, so a run is one observation of it, however many rows it has.

use super::curves::{Curve, Curves};
use super::effects::Effects;
use super::linear::Basis;
use super::{Cause, FoundPair, LEVEL, RankedCause, Run, RunsError};
use crate::rank::Interval;
use pebs_stats::summary::{correlation, f_tail, moments, ranks};

/// Fewest recordings beyond those that the values of the parameters take up.
pub const LEAST_REST: usize = 3;

/// Largest share of the recordings that the values of a parameter can be: of more values, numbers are compared by rank.
const MOST_VALUES: f64 = 1.0 / 3.0;

/// Mean outcome of a recording.
pub(super) struct Mean {
    /// Its number.
    recording: usize,
    /// Number of one of its runs.
    run: usize,
    /// Mean of the scaled outcome.
    pub(super) outcome: f64,
    rows: usize,
}

/// The mean outcome of each recording, over its runs.
pub(super) fn means(runs: &[Run], effects: &[Effects]) -> Vec<Mean> {
    let mut means: Vec<Mean> = Vec::new();
    for (at, (run, of)) in runs.iter().zip(effects).enumerate() {
        match means.iter_mut().find(|it| it.recording == run.recording) {
            Some(it) => {
                let rows = it.rows + of.rows;
                let sum = it.outcome * it.rows as f64 + of.mean * of.rows as f64;
                (it.outcome, it.rows) = (sum / rows as f64, rows);
            }
            None => means.push(Mean {
                recording: run.recording,
                run: at,
                outcome: of.mean,
                rows: of.rows,
            }),
        }
    }
    means
}

/// A parameter as columns of a linear model.
struct Coded {
    /// One value a recording in each.
    columns: Vec<Vec<f64>>,
    /// Ranks of the values, if they are numbers.
    ranks: Option<Vec<f64>>,
}

impl Coded {
    fn of(name: &str, values: &[&str]) -> Result<Self, RunsError> {
        let runs = values.len();
        let mut distinct = values.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if let [value] = distinct[..] {
            return Err(RunsError::OneValue {
                name: name.to_owned(),
                value: value.to_owned(),
                runs,
            });
        }
        let numbers: Result<Vec<f64>, _> = values.iter().map(|it| it.parse::<f64>()).collect();
        let ranks = numbers.ok().map(|it| ranks(&it));
        let few = (runs as f64 * MOST_VALUES).max(2.0);
        let columns = match &ranks {
            _ if distinct.len() as f64 <= few => distinct[1..]
                .iter()
                .map(|value| values.iter().map(|it| f64::from(it == value)).collect())
                .collect(),
            Some(ranks) => vec![ranks.clone()],
            None => {
                return Err(RunsError::TooManyWords {
                    name: name.to_owned(),
                    values: distinct.len(),
                    runs,
                });
            }
        };
        Ok(Self { columns, ranks })
    }

    /// These recordings only, times a weight each.
    fn chosen(&self, rows: &[usize], weights: &[f64]) -> Vec<Vec<f64>> {
        let of = |column: &Vec<f64>| {
            let rows = rows.iter().zip(weights);
            rows.map(|(&row, weight)| column[row] * weight).collect()
        };
        self.columns.iter().map(of).collect()
    }
}

/// The parameters of all recordings, with the recordings' outcomes.
pub(super) struct Design {
    coded: Vec<Coded>,
    outcomes: Vec<f64>,
    /// Place of each run's recording.
    place: Vec<usize>,
}

/// Comparison of a model with one that lacks some columns.
struct Test {
    /// Sum of squares that these columns alone explain.
    squares: f64,
    /// Sum of squares that all columns leave.
    rest: f64,
    /// Number of independent columns, and of observations beyond all.
    degrees: usize,
    of_rest: usize,
}

impl Test {
    fn of(without: &Basis, more: &[Vec<f64>], of: &[f64]) -> Self {
        let mut with = without.clone();
        for column in more {
            with.add(column);
        }
        let rest = with.squares(of);
        Self {
            squares: (without.squares(of) - rest).max(0.0),
            rest,
            degrees: with.rank() - without.rank(),
            of_rest: of.len().saturating_sub(with.rank()),
        }
    }

    /// Mean square of the rest.
    fn error(&self) -> f64 {
        self.rest / (self.of_rest as f64).max(1.0)
    }

    /// Squares without what chance adds.
    fn beyond_chance(&self, error: f64) -> f64 {
        (self.squares - self.degrees as f64 * error).max(0.0)
    }

    fn chance(&self, error: f64, of_rest: usize) -> f64 {
        if self.degrees == 0 || of_rest == 0 {
            return 1.0;
        }
        let degrees = self.degrees as f64;
        f_tail(
            self.squares / degrees / error.max(f64::MIN_POSITIVE),
            degrees,
            of_rest as f64,
        )
    }
}

impl Design {
    /// Checks that the parameters vary, and that their effects can be told apart.
    pub(super) fn of(names: &[String], runs: &[Run], means: &[Mean]) -> Result<Self, RunsError> {
        let coded: Vec<Coded> = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let values: Vec<&str> = means
                    .iter()
                    .map(|it| runs[it.run].values[at].as_str())
                    .collect();
                Coded::of(name, &values)
            })
            .collect::<Result<_, _>>()?;
        let place = |run: &Run| {
            let found = means.iter().position(|it| it.recording == run.recording);
            found.unwrap_or_default()
        };
        let design = Self {
            coded,
            outcomes: means.iter().map(|it| it.outcome).collect(),
            place: runs.iter().map(place).collect(),
        };
        let all: Vec<usize> = (0..means.len()).collect();
        for (at, name) in names.iter().enumerate() {
            let others = design.basis(&all, &vec![1.0; all.len()], Some(at));
            let test = Test::of(&others, &design.coded[at].columns, &design.outcomes);
            if test.degrees == 0 {
                return Err(RunsError::Confounded {
                    name: name.clone(),
                    runs: means.len(),
                });
            }
            if test.of_rest < LEAST_REST {
                return Err(RunsError::TooFewRuns {
                    runs: means.len(),
                    needed: means.len() - test.of_rest + LEAST_REST,
                });
            }
        }
        Ok(design)
    }

    /// The columns of all parameters but one.
    fn basis(&self, rows: &[usize], weights: &[f64], but: Option<usize>) -> Basis {
        let mut basis = Basis::default();
        basis.add(weights);
        for (_, coded) in self.coded.iter().enumerate().filter(|it| Some(it.0) != but) {
            for column in coded.chosen(rows, weights) {
                basis.add(&column);
            }
        }
        basis
    }

    fn test(&self, parameter: usize, rows: &[usize]) -> Test {
        let weights = vec![1.0; rows.len()];
        let of: Vec<f64> = rows.iter().map(|&row| self.outcomes[row]).collect();
        Test::of(
            &self.basis(rows, &weights, Some(parameter)),
            &self.coded[parameter].chosen(rows, &weights),
            &of,
        )
    }

    /// The parameters with their shares of a variance; intervals by leaving out one recording at a time.
    pub(super) fn ranked(&self, variance: f64, all_rows: usize) -> Vec<RankedCause> {
        let all: Vec<usize> = (0..self.outcomes.len()).collect();
        let count = all.len() as f64;
        let share = |test: &Test, count: f64| test.beyond_chance(test.error()) / count / variance;
        (0..self.coded.len())
            .map(|parameter| {
                let test = self.test(parameter, &all);
                let mean = share(&test, count);
                let without: Vec<f64> = all
                    .iter()
                    .map(|&left_out| {
                        let rows: Vec<usize> =
                            all.iter().copied().filter(|&it| it != left_out).collect();
                        share(&self.test(parameter, &rows), count - 1.0)
                    })
                    .collect();
                let half = 1.96 * (count - 1.0).sqrt() * moments(&without).1;
                let chance = test.chance(test.error(), test.of_rest);
                let chance_of_any = (chance * self.coded.len() as f64).min(1.0);
                let ranks = self.coded[parameter].ranks.as_ref();
                RankedCause {
                    cause: Cause::Parameter(parameter),
                    runs: all.len(),
                    rows: all_rows,
                    effect: Interval {
                        mean,
                        low: mean - half,
                        high: mean + half,
                    },
                    contribution: None,
                    direction: ranks.map_or(0.0, |it| correlation(it, &self.outcomes)),
                    chance,
                    chance_of_any,
                    is_noise: chance_of_any > LEVEL,
                }
            })
            .collect()
    }

    /// Pairs of two parameters, and of a parameter and an event; and the number of those that can't be tested.
    pub(super) fn pairs(&self, curves: &Curves, best: &[usize]) -> (Vec<FoundPair>, usize) {
        let (mut found, mut untested) = (Vec::new(), 0);
        let all: Vec<usize> = (0..self.outcomes.len()).collect();
        let alone = self.basis(&all, &vec![1.0; all.len()], None);
        for b in 0..self.coded.len() {
            for a in 0..b {
                let products: Vec<Vec<f64>> = self.coded[a]
                    .columns
                    .iter()
                    .flat_map(|of_a| self.coded[b].columns.iter().map(move |of_b| (of_a, of_b)))
                    .map(|(of_a, of_b)| of_a.iter().zip(of_b).map(|(a, b)| a * b).collect())
                    .collect();
                let test = Test::of(&alone, &products, &self.outcomes);
                if test.degrees == 0 || test.of_rest < LEAST_REST {
                    untested += 1;
                    continue;
                }
                found.push(FoundPair {
                    causes: [Cause::Parameter(a), Cause::Parameter(b)],
                    runs: all.len(),
                    variance: test.beyond_chance(test.error()) / all.len() as f64,
                    chance: test.chance(test.error(), test.of_rest),
                });
            }
        }
        for parameter in 0..self.coded.len() {
            let tests: Vec<(usize, Sloped)> = best
                .iter()
                .zip(&curves.of)
                .filter_map(|(&group, curve)| Some((group, self.slopes(parameter, curve)?)))
                .collect();
            // How much more slopes differ between runs than rows let expect, from all events together: of one event
            // there are too few runs to say.
            let of_rest: usize = tests.iter().map(|it| it.1.test.of_rest).sum();
            if of_rest < LEAST_REST {
                untested += best.len();
                continue;
            }
            untested += best.len() - tests.len();
            let rest: f64 = tests.iter().map(|it| it.1.test.rest).sum();
            let error = (rest / of_rest as f64).max(1.0);
            for (
                group,
                Sloped {
                    test,
                    weight,
                    variance,
                    runs,
                },
            ) in tests
            {
                found.push(FoundPair {
                    causes: [Cause::Parameter(parameter), Cause::Events(group)],
                    runs,
                    variance: test.beyond_chance(error) / weight * variance,
                    chance: test.chance(error, of_rest),
                });
            }
        }
        (found, untested)
    }

    /// Whether slopes over an event's curve depend on a parameter, given the others; `None`: too few runs.
    fn slopes(&self, parameter: usize, curve: &Curve) -> Option<Sloped> {
        let slopes: Vec<_> = curve.slopes.iter().filter(|it| it.error > 0.0).collect();
        let rows: Vec<usize> = slopes.iter().map(|it| self.place[it.run]).collect();
        let weights: Vec<f64> = slopes.iter().map(|it| 1.0 / it.error).collect();
        let of: Vec<f64> = slopes.iter().map(|it| it.slope / it.error).collect();
        let test = Test::of(
            &self.basis(&rows, &weights, Some(parameter)),
            &self.coded[parameter].chosen(&rows, &weights),
            &of,
        );
        (test.degrees > 0 && test.of_rest > 0).then(|| Sloped {
            test,
            weight: weights.iter().map(|it| it * it).sum(),
            variance: curve.variance,
            runs: super::recordings(rows.into_iter()),
        })
    }
}

/// Test of the slopes over one event's curve.
struct Sloped {
    test: Test,
    /// Sum of the weights of the runs.
    weight: f64,
    /// Variance that a slope of 1 makes.
    variance: f64,
    runs: usize,
}
