//! Effects of each run's own events on its outcome, and how large those of shuffled events are.

use std::collections::HashMap;

use super::{Run, RunsError};
use crate::groups::{Alike, alike};
use crate::model::Params;
use crate::rank::{Options, Scale, resampled, scaled, usable};
use crate::series::Event;
use pebs_stats::rng::Rng;
use pebs_stats::summary::{mean, median, moments, quantile};

/// Events of a run that belong to one group of all runs.
pub(super) struct Counted {
    pub(super) group: usize,
    /// Their numbers in the run.
    pub(super) events: Vec<usize>,
}

/// Events of all runs, numbered and grouped together.
pub(super) struct Joint {
    pub(super) names: Vec<String>,
    /// Numbers of names.
    pub(super) groups: Vec<Vec<usize>>,
    pub(super) unusable: Vec<usize>,
    pub(super) of_run: Vec<Vec<Counted>>,
}

/// Least share of a run's rows in which an event has to be counted.
const LEAST_COUNTED: f64 = 0.5;

impl Joint {
    /// Numbers the events. Two events are in one group if they vary together in every run that counted both.
    pub(super) fn of(runs: &[&Run], rows: &[Vec<usize>]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut number = HashMap::new();
        for event in runs.iter().flat_map(|run| &run.series.events) {
            number.entry(event.name.clone()).or_insert_with(|| {
                names.push(event.name.clone());
                names.len() - 1
            });
        }
        let mut counted: Vec<Vec<usize>> = Vec::new();
        let mut together = HashMap::new();
        let mut is_used = vec![false; names.len()];
        for (run, rows) in runs.iter().zip(rows) {
            let of_all = |event: usize| number[&run.series.events[event].name];
            let is_counted = |event: &usize| {
                let counts = &run.series.events[*event].counts;
                let known = rows.iter().filter(|&&row| !counts[row].is_nan()).count();
                known as f64 >= LEAST_COUNTED * rows.len() as f64
            };
            let events: Vec<usize> = usable(&run.series, rows).0;
            let events: Vec<usize> = events.into_iter().filter(is_counted).collect();
            events.iter().for_each(|&it| is_used[of_all(it)] = true);
            for group in alike(&run.series, &events, rows) {
                for (at, &a) in group.events.iter().enumerate() {
                    for &b in &group.events[at + 1..] {
                        let pair = (of_all(a).min(of_all(b)), of_all(a).max(of_all(b)));
                        *together.entry(pair).or_insert(0) += 1;
                    }
                }
            }
            counted.push(events);
        }
        let numbers: Vec<Vec<usize>> = runs
            .iter()
            .zip(&counted)
            .map(|(run, events)| {
                let names = events.iter().map(|&it| &run.series.events[it].name);
                names.map(|it| number[it]).collect()
            })
            .collect();
        let both = |a: usize, b: usize| {
            let runs = numbers.iter();
            runs.filter(|it| it.contains(&a) && it.contains(&b)).count()
        };
        let mut of: Vec<usize> = (0..names.len()).collect();
        let mut pairs: Vec<((usize, usize), usize)> = together.into_iter().collect();
        pairs.sort_unstable();
        for ((a, b), runs) in pairs {
            if runs == both(a, b) {
                let (from, to) = (of[a].max(of[b]), of[a].min(of[b]));
                of.iter_mut()
                    .filter(|it| **it == from)
                    .for_each(|it| *it = to);
            }
        }
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut group_of = vec![usize::MAX; names.len()];
        for event in (0..names.len()).filter(|&it| is_used[it]) {
            let first = (0..event).find(|&it| is_used[it] && of[it] == of[event]);
            let group = first.map_or(groups.len(), |it| group_of[it]);
            if group == groups.len() {
                groups.push(Vec::new());
            }
            groups[group].push(event);
            group_of[event] = group;
        }
        let of_run = counted.iter().zip(&numbers).map(|(events, numbers)| {
            let mut of_run: Vec<Counted> = Vec::new();
            for (&event, &number) in events.iter().zip(numbers) {
                let group = group_of[number];
                match of_run.iter_mut().find(|it| it.group == group) {
                    Some(it) => it.events.push(event),
                    None => of_run.push(Counted {
                        group,
                        events: vec![event],
                    }),
                }
            }
            of_run
        });
        Self {
            of_run: of_run.collect(),
            unusable: (0..names.len()).filter(|&it| !is_used[it]).collect(),
            names,
            groups,
        }
    }
}

/// Effects in a run.
pub(super) struct Effects {
    /// For each group counted: its number, mean effect, spread over resamples, contribution and direction.
    groups: Vec<OfGroup>,
    /// Mean effects of shuffled events.
    shadows: Vec<f64>,
    /// Their root mean square.
    noise: f64,
    /// Share of the run's variance that its events predict.
    pub(super) explained: f64,
    /// Mean of the scaled outcome.
    pub(super) mean: f64,
    /// Its variance.
    pub(super) variance: f64,
    /// Median of the outcome itself.
    pub(super) median: f64,
    /// Rows used.
    pub(super) rows: usize,
}

/// Effect of a group of events in one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfGroup {
    /// Number of the run.
    pub(super) run: usize,
    pub(super) group: usize,
    /// Share of the run's variance.
    pub(super) effect: f64,
    /// Standard deviation over resamples.
    pub(super) spread: f64,
    pub(super) contribution: f64,
    pub(super) direction: f64,
    /// The effect in units of what shuffled events have.
    beyond: f64,
}

/// Trees of a run's models, and their depth: its rows are few beside its events, and more trees would learn noise.
const TREES: usize = 100;
const DEPTH: usize = 3;

/// Shuffled events that stand for noise in each run.
const SHADOWS: usize = 20;

impl Effects {
    /// Ranks the events of a run, with events that are shuffled once: like one without an influence, such an event
    /// varies by chance with the outcome of these rows, in all resamples alike.
    pub(super) fn of(
        run: &Run,
        rows: &[usize],
        counted: &[Counted],
        scale: Scale,
        options: &Options,
    ) -> Result<Self, RunsError> {
        let mut sorted: Vec<f64> = rows.iter().map(|&row| run.outcome[row]).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        if sorted.first() == sorted.last() {
            return Err(RunsError::Constant {
                name: run.name.clone(),
            });
        }
        let scaled = scaled(&run.outcome, &sorted, scale);
        let used: Vec<f64> = rows.iter().map(|&row| scaled[row]).collect();
        let (mean_outcome, std) = moments(&used);
        let mut result = Self {
            groups: Vec::new(),
            shadows: Vec::new(),
            noise: 0.0,
            explained: 0.0,
            mean: mean_outcome,
            variance: std * std,
            median: median(sorted),
            rows: rows.len(),
        };
        if counted.is_empty() {
            return Ok(result);
        }
        let mut rng = Rng::new(options.seed ^ 0x5eed);
        let mut series = run.series.clone();
        let mut groups: Vec<Alike> = counted
            .iter()
            .map(|it| Alike {
                events: it.events.clone(),
            })
            .collect();
        for _ in 0..SHADOWS {
            let from = counted[rng.below(counted.len())].events[0];
            let mut counts = series.events[from].counts.clone();
            let mut values: Vec<f64> = rows.iter().map(|&row| counts[row]).collect();
            rng.shuffle(&mut values);
            for (&row, value) in rows.iter().zip(values) {
                counts[row] = value;
            }
            groups.push(Alike {
                events: vec![series.events.len()],
            });
            series.events.push(Event {
                counts,
                ..Event::default()
            });
        }
        let options = &Options {
            params: Params {
                trees: TREES,
                depth: DEPTH,
                ..options.params
            },
            ..*options
        };
        let resamples = resampled(&series, &scaled, rows, &groups, options)?;
        let of = |at: usize| -> Vec<f64> { resamples.iter().map(|it| it.effects[at]).collect() };
        result.shadows = (counted.len()..groups.len())
            .map(|at| mean(&of(at)))
            .collect();
        let squares: Vec<f64> = result.shadows.iter().map(|it| it * it).collect();
        result.noise = mean(&squares).sqrt().max(1e-12);
        result.groups = counted
            .iter()
            .enumerate()
            .map(|(at, counted)| {
                let (effect, std) = moments(&of(at));
                let count = resamples.len() as f64;
                let all = |figure: fn(&crate::rank::Resample) -> &[f64]| {
                    mean(
                        &resamples
                            .iter()
                            .map(|it| figure(it)[at])
                            .collect::<Vec<f64>>(),
                    )
                };
                OfGroup {
                    run: 0,
                    group: counted.group,
                    effect,
                    spread: std * (count / (count - 1.0).max(1.0)).sqrt(),
                    contribution: all(|it| &it.contributions),
                    direction: all(|it| &it.directions),
                    beyond: effect / result.noise,
                }
            })
            .collect();
        result.explained = mean(
            &resamples
                .iter()
                .map(|it| it.explained)
                .collect::<Vec<f64>>(),
        );
        Ok(result)
    }
}

/// Effects of a group in all runs that counted it.
pub(super) fn of_group(effects: &[Effects], group: usize) -> Vec<OfGroup> {
    effects
        .iter()
        .enumerate()
        .filter_map(|(run, of_run)| {
            let of = of_run.groups.iter().find(|it| it.group == group)?;
            Some(OfGroup { run, ..*of })
        })
        .collect()
}

/// Distribution of the mean effect of shuffled events over some number of runs.
pub(super) struct Noise {
    /// For each number of runs, from 1: a high quantile, and the mean of what exceeds it.
    tails: Vec<Tail>,
}

/// Upper tail of a distribution, taken to be exponential above a quantile.
struct Tail {
    sorted: Vec<f64>,
    above: f64,
    excess: f64,
}

/// Share of the distribution that the exponential tail is fitted to.
const TAIL: f64 = 0.1;

/// Means drawn for each number of runs.
const DRAWS: usize = 4_000;

impl Noise {
    pub(super) fn of(effects: &[Effects], seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7a11);
        let shadows: Vec<f64> = effects
            .iter()
            .flat_map(|it| it.shadows.iter().map(|shadow| shadow / it.noise))
            .collect();
        let tails = (1..=effects.len()).map(|runs| {
            let mut means: Vec<f64> = if shadows.is_empty() {
                Vec::new()
            } else if runs == 1 {
                shadows.clone()
            } else {
                let one = |rng: &mut Rng| shadows[rng.below(shadows.len())];
                let draw = |_| (0..runs).map(|_| one(&mut rng)).sum::<f64>() / runs as f64;
                (0..DRAWS).map(draw).collect()
            };
            means.sort_unstable_by(f64::total_cmp);
            let above = quantile(&means, 1.0 - TAIL);
            let beyond: Vec<f64> = means.iter().map(|it| it - above).collect();
            let beyond: Vec<f64> = beyond.into_iter().filter(|it| *it > 0.0).collect();
            Tail {
                excess: mean(&beyond),
                above,
                sorted: means,
            }
        });
        Self {
            tails: tails.collect(),
        }
    }

    /// Chance that a shuffled event has as large an effect as this one, on the mean of its runs.
    pub(super) fn chance(&self, of_group: &[OfGroup]) -> f64 {
        let beyond = mean(&of_group.iter().map(|it| it.beyond).collect::<Vec<f64>>());
        let tail = of_group
            .len()
            .checked_sub(1)
            .and_then(|it| self.tails.get(it));
        match tail {
            Some(it) if it.excess > 0.0 && beyond > it.above => {
                TAIL * (-(beyond - it.above) / it.excess).exp()
            }
            Some(it) if it.excess > 0.0 => {
                let below = it.sorted.partition_point(|&it| it < beyond);
                1.0 - below as f64 / it.sorted.len() as f64
            }
            _ => 1.0,
        }
    }
}
