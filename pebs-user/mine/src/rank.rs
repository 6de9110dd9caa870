//! Ranks the events that an outcome depends on (section III-C of the paper), with confidence intervals.

use rayon::prelude::*;

use crate::groups::{Alike, alike};
use crate::model::{COARSE, Frame, Model, ModelError, Params};
use crate::series::Series;
use pebs_stats::rng::Rng;
use pebs_stats::summary::{correlation, mean, moments, quantile};

/// Options of [`rank()`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Parameters of the trees.
    pub params: Params,
    /// Number of models fitted to resampled rows, for intervals and to detect noise.
    pub resamples: usize,
    /// Most rows that a model of all events is fitted to; of more, a sample.
    pub most_rows: usize,
    /// Number of consecutive, similar rows that are resampled and held out together.
    pub block: usize,
    /// Predicted quantity; `None`: derived from the outcomes.
    pub scale: Option<Scale>,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            params: Params::default(),
            resamples: 12,
            most_rows: 40_000,
            block: 1,
            scale: None,
            seed: 1,
        }
    }
}

/// Quantity that a model predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The outcome.
    Linear,
    /// Its logarithm: twice as long counts the same for short and long ones.
    Log,
}

/// A mean over resamples with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Mean over the resamples.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Mean and interval of the values of the resamples.
    pub(crate) fn of(values: &[f64]) -> Self {
        let (mean, std) = moments(values);
        let n = values.len() as f64;
        // The spread of resamples estimates the error of one figure, so it is not divided by sqrt(n).
        let half = if n > 1.0 {
            1.96 * std * (n / (n - 1.0)).sqrt()
        } else {
            f64::NAN
        };
        Self {
            mean,
            low: mean - half,
            high: mean + half,
        }
    }
}

/// Reasons why an event is not ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// No row has a count of it.
    NeverCounted,
    /// The same in every row.
    Constant,
}

/// One event, or events that rank the rows in nearly the same order, with their importance.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Their numbers in the series, the most important first.
    pub events: Vec<usize>,
    /// Importance in the most accurate model, of 1 (equation 11).
    pub importance: f64,
    /// Share of the outcome's variance that depends on them: half the growth of the squared error if they are shuffled
    /// together.
    pub effect: Interval,
    /// Share of all contributions to predictions (SHAP).
    pub contribution: Interval,
    /// Correlation of count and contribution: above 0 if the outcome grows with the count.
    pub direction: f64,
    /// Chance that noise does at least as well in as many resamples.
    pub chance: f64,
    /// Whether they do no better than shuffled events.
    pub is_noise: bool,
    /// Whether the most accurate model uses one of them.
    pub is_kept: bool,
}

/// A step of the refinement: a model of these events.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The events, most important first.
    pub events: Vec<usize>,
    /// Mean relative error on the held-out quarter (equation 14).
    pub error: f64,
}

/// Events ranked by importance.
pub struct Ranking {
    /// Rows with an outcome.
    pub rows: usize,
    /// Rows that models were fitted to and tested on.
    pub used: usize,
    /// Quantity that the models predict.
    pub scale: Scale,
    /// Events that take no part.
    pub unusable: Vec<(usize, Unusable)>,
    /// Best first.
    pub ranked: Vec<Ranked>,
    /// Models of ever fewer events.
    pub steps: Vec<Step>,
    /// Index of the most accurate step.
    pub best: usize,
    /// Share of the outcome's variance that all events together predict in rows that the model did not see.
    pub explained: Interval,
    /// The most accurate model.
    pub model: Model,
    /// The median of each event.
    typical: Vec<f64>,
}

/// Reasons why a series can't be ranked.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// Too few rows to hold out a quarter.
    #[error("{rows} rows have an outcome, ranking takes {LEAST_ROWS} at least")]
    TooFewRows {
        /// Rows with an outcome.
        rows: usize,
    },
    /// The outcome is constant.
    #[error("the outcome is the same in all {rows} rows")]
    ConstantOutcome {
        /// Rows with an outcome.
        rows: usize,
    },
    /// No event varies.
    #[error("no event varies: {constant} are constant, {never} were never counted")]
    NoEvents {
        constant: usize,
        /// Ones without any count.
        never: usize,
    },
    /// The trees failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Fewest rows that are ranked.
pub const LEAST_ROWS: usize = 40;

/// Family-wise chance below which an event counts as more than noise.
const LEVEL: f64 = 0.01;

/// Least number of shuffled events that represent noise.
const LEAST_SHADOWS: usize = 10;

/// Largest number of shuffled events that represent noise.
const MOST_SHADOWS: usize = 32;

/// Most rows of a resample, and most rows that it is tested on.
const RESAMPLE: (usize, usize) = (10_000, 2_000);

/// Fewest rows with an outcome at least as extreme; more extreme ones are clipped to it.
///
/// A leaf holds five of the rows that a resample and a tree see. A single row that lasted ten times as long would be
/// most of the variance, and could not be predicted from the others.
const ALIKE: usize = 10;

/// Up to this number of rows models use all their bins.
const FINE_ROWS: usize = 10_000;

/// If the 99th percentile is this many times the first, the logarithm of the outcome is predicted.
const DECADE: f64 = 10.0;

/// Ranks the events of a series by how well they predict the outcome; NaN: no outcome.
///
/// # Errors
/// If there are too few rows, or nothing varies.
pub fn rank(series: &Series, outcome: &[f64], options: &Options) -> Result<Ranking, RankError> {
    let mut rows: Vec<usize> = (0..outcome.len())
        .filter(|&row| outcome[row].is_finite())
        .collect();
    let all_rows = rows.len();
    if all_rows < LEAST_ROWS {
        return Err(RankError::TooFewRows { rows: all_rows });
    }
    let mut sorted: Vec<f64> = rows.iter().map(|&row| outcome[row]).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    if sorted.first() == sorted.last() {
        return Err(RankError::ConstantOutcome { rows: all_rows });
    }
    let scale = scale_of(&sorted, options.scale);
    let (usable, unusable) = usable(series, &rows);
    if usable.is_empty() {
        let never = unusable
            .iter()
            .filter(|it| it.1 == Unusable::NeverCounted)
            .count();
        return Err(RankError::NoEvents {
            constant: unusable.len() - never,
            never,
        });
    }
    let mut rng = Rng::new(options.seed);
    thin(&mut rows, options, &mut rng);
    let scaled = scaled(outcome, &sorted, scale);
    let data = Data {
        series,
        outcome,
        scaled: &scaled,
        scale,
        rows: &rows,
        options,
    };
    let groups = alike(series, &usable, &rows);
    let (steps, models) = data.refine(&usable, &mut rng)?;
    let best = (0..steps.len())
        .min_by(|&a, &b| steps[a].error.total_cmp(&steps[b].error).then(b.cmp(&a)))
        .unwrap_or(0);
    let mut models = models;
    let model = models.swap_remove(best);
    let importance = {
        let mut of_event = vec![0.0; series.events.len()];
        for (event, share) in steps[best].events.iter().zip(&model.1) {
            of_event[*event] = *share;
        }
        of_event
    };
    let shadows = groups.len().clamp(LEAST_SHADOWS, MOST_SHADOWS);
    let resamples = data.resample(&groups, shadows, &mut rng)?;
    let explained: Vec<f64> = resamples.iter().map(|it| it.explained).collect();
    let mut ranked: Vec<Ranked> = groups
        .into_iter()
        .enumerate()
        .map(|(at, Alike { mut events })| {
            events.sort_by(|&a, &b| importance[b].total_cmp(&importance[a]));
            let of = |figure: fn(&Resample) -> &[f64]| {
                let values: Vec<f64> = resamples.iter().map(|it| figure(it)[at]).collect();
                Interval::of(&values)
            };
            let hits = resamples
                .iter()
                .filter(|it| it.effects[at] > it.noise)
                .count();
            let chance = binomial_tail(resamples.len(), hits, 1.0 / (1.0 + shadows as f64));
            let directions: Vec<f64> = resamples.iter().map(|it| it.directions[at]).collect();
            Ranked {
                importance: events.iter().map(|&it| importance[it]).sum(),
                effect: of(|it| &it.effects),
                contribution: of(|it| &it.contributions),
                direction: mean(&directions),
                chance,
                is_noise: false,
                is_kept: events.iter().any(|it| steps[best].events.contains(it)),
                events,
            }
        })
        .collect();
    let count = ranked.len() as f64;
    for one in &mut ranked {
        one.is_noise = one.chance * count > LEVEL || one.effect.low <= 0.0;
    }
    ranked.sort_by(|a, b| {
        let key = |it: &Ranked| (!it.is_noise, it.effect.mean);
        let ((a_real, a), (b_real, b)) = (key(a), key(b));
        b_real.cmp(&a_real).then(b.total_cmp(&a))
    });
    let typical = series
        .events
        .iter()
        .map(|event| {
            let mut known: Vec<f64> = rows
                .iter()
                .map(|&row| event.counts[row])
                .filter(|it| !it.is_nan())
                .collect();
            known.sort_unstable_by(f64::total_cmp);
            quantile(&known, 0.5)
        })
        .collect();
    Ok(Ranking {
        rows: all_rows,
        used: rows.len(),
        scale,
        unusable,
        ranked,
        steps,
        best,
        explained: Interval::of(&explained),
        model: model.0,
        typical,
    })
}

/// The scale asked for, else the logarithm if the outcomes span a decade; of sorted outcomes.
pub(crate) fn scale_of(sorted: &[f64], asked: Option<Scale>) -> Scale {
    let is_positive = sorted.first().is_some_and(|&it| it > 0.0);
    let spread = quantile(sorted, 0.99) / quantile(sorted, 0.01);
    match asked {
        Some(Scale::Log) if !is_positive => Scale::Linear,
        Some(scale) => scale,
        None if is_positive && spread > DECADE => Scale::Log,
        None => Scale::Linear,
    }
}

/// The predicted values: outcomes without the most extreme ones, on a scale. `sorted`: those with a value.
pub(crate) fn scaled(outcome: &[f64], sorted: &[f64], scale: Scale) -> Vec<f64> {
    let least = (sorted.len() / 20).clamp(1, ALIKE);
    let (low, high) = (sorted[least - 1], sorted[sorted.len() - least]);
    outcome
        .iter()
        .map(|&it| {
            // An outcome that varies in fewer rows than that varies still.
            let it = if low < high { it.clamp(low, high) } else { it };
            if scale == Scale::Log { it.ln() } else { it }
        })
        .collect()
}

/// Effects of groups of events on scaled outcomes, one result a model of resampled rows.
pub(crate) fn resampled(
    series: &Series,
    scaled: &[f64],
    rows: &[usize],
    groups: &[Alike],
    options: &Options,
) -> Result<Vec<Resample>, ModelError> {
    let data = Data {
        series,
        outcome: scaled,
        scaled,
        scale: Scale::Linear,
        rows,
        options,
    };
    data.resample(groups, 0, &mut Rng::new(options.seed))
}

/// The events that vary, and those that do not.
pub(crate) fn usable(series: &Series, rows: &[usize]) -> (Vec<usize>, Vec<(usize, Unusable)>) {
    let (mut usable, mut unusable) = (Vec::new(), Vec::new());
    for (number, event) in series.events.iter().enumerate() {
        let mut known = rows
            .iter()
            .map(|&row| event.counts[row])
            .filter(|it| !it.is_nan());
        match known.next() {
            None => unusable.push((number, Unusable::NeverCounted)),
            Some(first) if known.all(|it| it == first) => {
                unusable.push((number, Unusable::Constant));
            }
            Some(_) => usable.push(number),
        }
    }
    (usable, unusable)
}

/// Reduces the rows to a sample of whole blocks if there are too many.
fn thin(rows: &mut Vec<usize>, options: &Options, rng: &mut Rng) {
    // A quarter is held out.
    let most = options.most_rows * 4 / 3;
    if rows.len() > most {
        let mut blocks: Vec<&[usize]> = rows.chunks(options.block.max(1)).collect();
        rng.shuffle(&mut blocks);
        let mut kept: Vec<usize> = blocks.concat();
        kept.truncate(most);
        kept.sort_unstable();
        *rows = kept;
    }
}

/// Chance of at least this many hits in this many tries.
fn binomial_tail(tries: usize, hits: usize, chance: f64) -> f64 {
    let mut tail = 0.0;
    let mut term = (1.0 - chance).powi(tries as i32);
    for k in 0..=tries {
        if k >= hits {
            tail += term;
        }
        term *= (tries - k) as f64 / (k + 1) as f64 * chance / (1.0 - chance);
    }
    tail.min(1.0)
}

struct Data<'a> {
    series: &'a Series,
    outcome: &'a [f64],
    /// Predicted values, on the scale.
    scaled: &'a [f64],
    scale: Scale,
    rows: &'a [usize],
    options: &'a Options,
}

/// Results of a model of resampled rows, by group.
pub(crate) struct Resample {
    pub(crate) effects: Vec<f64>,
    pub(crate) contributions: Vec<f64>,
    pub(crate) directions: Vec<f64>,
    /// The largest effect of a shuffled event.
    noise: f64,
    pub(crate) explained: f64,
}

type Fitted = (Model, Vec<f64>);

impl Data<'_> {
    fn frame(&self, events: &[usize], rows: &[usize]) -> Frame {
        let columns: Vec<&[f64]> = events
            .iter()
            .map(|&it| &self.series.events[it].counts[..])
            .collect();
        Frame::of(&columns, rows)
    }

    fn outcomes(&self, rows: &[usize]) -> Vec<f64> {
        rows.iter().map(|&row| self.scaled[row]).collect()
    }

    /// Rows to learn from and rows to test on: of each four blocks one.
    fn split(&self, rng: &mut Rng) -> (Vec<usize>, Vec<usize>) {
        let mut blocks: Vec<&[usize]> = self.rows.chunks(self.options.block.max(1)).collect();
        rng.shuffle(&mut blocks);
        let held = blocks.len().div_ceil(4);
        (blocks[held..].concat(), blocks[..held].concat())
    }

    /// Event importance refinement: models of ever fewer events, the least important left out each time.
    fn refine(
        &self,
        usable: &[usize],
        rng: &mut Rng,
    ) -> Result<(Vec<Step>, Vec<Fitted>), ModelError> {
        let (train, test) = self.split(rng);
        let outcomes = self.outcomes(&train);
        let mut events = usable.to_vec();
        let params = Params {
            bins: if train.len() > FINE_ROWS {
                COARSE
            } else {
                self.options.params.bins
            },
            ..self.options.params
        };
        let (mut steps, mut models) = (Vec::new(), Vec::new());
        while !events.is_empty() {
            let model = Model::fit(&self.frame(&events, &train), &outcomes, &params)?;
            let predicted = model.predict(&self.frame(&events, &test));
            let importance = model.importance();
            steps.push(Step {
                events: events.clone(),
                error: self.relative_error(&predicted, &test),
            });
            models.push((model, importance.clone()));
            let mut order: Vec<usize> = (0..events.len()).collect();
            order.sort_by(|&a, &b| importance[b].total_cmp(&importance[a]));
            order.truncate(events.len() - events.len().div_ceil(12));
            events = order.into_iter().map(|at| events[at]).collect();
        }
        Ok((steps, models))
    }

    /// Mean relative error (equation 14), over the rows whose outcome is not 0.
    fn relative_error(&self, predicted: &[f64], rows: &[usize]) -> f64 {
        let errors = rows.iter().zip(predicted).filter_map(|(&row, &predicted)| {
            let truth = self.outcome[row];
            let predicted = match self.scale {
                Scale::Linear => predicted,
                Scale::Log => predicted.exp(),
            };
            (truth != 0.0).then(|| ((truth - predicted) / truth).abs())
        });
        mean(&errors.collect::<Vec<f64>>())
    }

    fn resample(
        &self,
        groups: &[Alike],
        shadows: usize,
        rng: &mut Rng,
    ) -> Result<Vec<Resample>, ModelError> {
        let seeds: Vec<u64> = (0..self.options.resamples).map(|_| rng.bits()).collect();
        seeds
            .into_par_iter()
            .map(|seed| self.one_resample(groups, shadows, Rng::new(seed)))
            .collect()
    }

    /// Fits a model to rows drawn with replacement, with shuffled copies of events added, and tests it on rows that
    /// were not drawn.
    fn one_resample(
        &self,
        groups: &[Alike],
        shadows: usize,
        mut rng: Rng,
    ) -> Result<Resample, ModelError> {
        let blocks: Vec<&[usize]> = self.rows.chunks(self.options.block.max(1)).collect();
        let wanted = self.rows.len().min(RESAMPLE.0);
        let mut is_drawn = vec![false; blocks.len()];
        let mut train = Vec::with_capacity(wanted);
        while train.len() < wanted {
            let at = rng.below(blocks.len());
            is_drawn[at] = true;
            train.extend_from_slice(blocks[at]);
        }
        let mut others: Vec<&[usize]> = (0..blocks.len())
            .filter(|&it| !is_drawn[it])
            .map(|it| blocks[it])
            .collect();
        rng.shuffle(&mut others);
        let mut test: Vec<usize> = others.concat();
        test.truncate(RESAMPLE.1);

        let mut events: Vec<usize> = groups.iter().flat_map(|it| it.events.clone()).collect();
        let real = events.len();
        events.extend((0..shadows).map(|_| groups[rng.below(groups.len())].events[0]));
        let mut frame = self.frame(&events, &train);
        for shadow in real..events.len() {
            rng.shuffle(frame.column_mut(shadow));
        }
        let params = Params {
            seed: rng.bits(),
            bins: COARSE,
            ..self.options.params
        };
        let model = Model::fit(&frame, &self.outcomes(&train), &params)?;
        drop(frame);

        let truth = self.outcomes(&test);
        let variance = moments(&truth).1.powi(2).max(f64::MIN_POSITIVE);
        let mut frame = self.frame(&events, &test);
        for shadow in real..events.len() {
            rng.shuffle(frame.column_mut(shadow));
        }
        let squared = |predicted: &[f64]| {
            let squares = predicted.iter().zip(&truth).map(|(p, t)| (p - t).powi(2));
            squares.sum::<f64>() / truth.len().max(1) as f64
        };
        let error = squared(&model.predict(&frame));
        let mut order: Vec<usize> = (0..test.len()).collect();
        rng.shuffle(&mut order);
        let mut effect = |columns: &[usize]| {
            let kept: Vec<Vec<f64>> = columns
                .iter()
                .map(|&it| frame.column(it).to_vec())
                .collect();
            for (&column, kept) in columns.iter().zip(&kept) {
                let to = frame.column_mut(column);
                order
                    .iter()
                    .enumerate()
                    .for_each(|(at, &from)| to[at] = kept[from]);
            }
            let shuffled = squared(&model.predict(&frame));
            for (&column, kept) in columns.iter().zip(&kept) {
                frame.column_mut(column).copy_from_slice(kept);
            }
            (shuffled - error) / variance / 2.0
        };
        let mut first = 0;
        let columns: Vec<Vec<usize>> = groups
            .iter()
            .map(|group| {
                let columns = first..first + group.events.len();
                first = columns.end;
                columns.collect()
            })
            .collect();
        let effects: Vec<f64> = columns.iter().map(|it| effect(it)).collect();
        let noise = (real..events.len())
            .map(|it| effect(&[it]))
            .fold(0.0, f64::max);
        let (contributions, directions) =
            Self::contributions(&model, &frame, &columns, events.len());
        Ok(Resample {
            effects,
            contributions,
            directions,
            noise,
            explained: 1.0 - error / variance,
        })
    }

    /// For each group: its share of all contributions, and the correlation of these with its first event's counts.
    fn contributions(
        model: &Model,
        frame: &Frame,
        columns: &[Vec<usize>],
        count: usize,
    ) -> (Vec<f64>, Vec<f64>) {
        /// Largest number of rows whose contributions are computed.
        const MOST: usize = 300;
        let rows: Vec<usize> = (0..frame.rows().min(MOST)).collect();
        let all: Vec<&[f64]> = (0..count).map(|it| frame.column(it)).collect();
        let part = Frame::of(&all, &rows);
        let parts = model.contributions(&part);
        let mut sizes = vec![0.0; columns.len()];
        let mut directions = Vec::new();
        for (size, columns) in sizes.iter_mut().zip(columns) {
            let sums: Vec<f64> = parts
                .chunks(count + 1)
                .map(|parts| columns.iter().map(|&it| parts[it]).sum::<f64>())
                .collect();
            *size = sums.iter().map(|it| it.abs()).sum::<f64>();
            directions.push(
                columns
                    .first()
                    .map_or(0.0, |&it| correlation(part.column(it), &sums)),
            );
        }
        let all = sizes.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        sizes.iter_mut().for_each(|it| *it /= all);
        (sizes, directions)
    }
}

/// Contribution of an event to one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfRow {
    /// Number of the event.
    pub event: usize,
    /// Its count there.
    pub count: f64,
    /// Its median over all rows.
    pub typical: f64,
    /// Contribution to the prediction: in units of the outcome, or as the logarithm of a factor.
    pub adds: f64,
}

impl Ranking {
    /// The events of the most accurate model.
    #[must_use]
    pub fn kept(&self) -> &[usize] {
        &self.steps[self.best].events
    }

    /// Explains a row by the most accurate model: its prediction, and the contribution of each event, the largest
    /// first.
    #[must_use]
    pub fn of_row(&self, series: &Series, row: usize) -> (f64, Vec<OfRow>) {
        let columns: Vec<&[f64]> = self
            .kept()
            .iter()
            .map(|&it| &series.events[it].counts[..])
            .collect();
        let frame = Frame::of(&columns, &[row]);
        let parts = self.model.contributions(&frame);
        let predicted = parts.iter().sum();
        let mut of_row: Vec<OfRow> = self
            .kept()
            .iter()
            .zip(&parts)
            .map(|(&event, &adds)| OfRow {
                event,
                count: series.events[event].counts[row],
                typical: self.typical[event],
                adds,
            })
            .collect();
        of_row.sort_by(|a, b| b.adds.abs().total_cmp(&a.adds.abs()));
        (predicted, of_row)
    }

    /// Whether any of the events explains more than noise.
    #[must_use]
    pub fn explains(&self) -> bool {
        self.ranked.iter().any(|it| !it.is_noise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Binomial tails: at least 4, 3 or 0 heads of 4.
    #[test]
    fn tails() {
        assert!((binomial_tail(4, 4, 0.5) - 1.0 / 16.0).abs() < 1e-12);
        assert!((binomial_tail(4, 3, 0.5) - 5.0 / 16.0).abs() < 1e-12);
        assert!((binomial_tail(4, 0, 0.5) - 1.0).abs() < 1e-12);
    }
}
