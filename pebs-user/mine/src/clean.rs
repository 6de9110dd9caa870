//! Repairs counts of multiplexed events: outliers and missing values.

use std::ops::{Range, RangeInclusive};

use crate::joint::{self, CountedValue};
use crate::series::{Event, Segment, Series, WHOLE};
use crate::shape::{self, Fit, Shape};
use pebs_stats::summary::{median, weighted_moments};

/// Options of [`clean()`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Neighbours averaged to fill in a missing value; `None`: chosen for each event by cross-validation.
    pub neighbours: Option<usize>,
    /// Also clean values that are not known to be scaled: those without a share, and whole ones.
    pub unscaled: bool,
}

/// Share of an event's values that lie below its threshold at least (section III-B of the paper).
const BELOW: f64 = 0.99;

/// Largest and smallest number of neighbours tried.
const NEIGHBOURS: RangeInclusive<usize> = 3..=8;

/// Rows averaged to fill in the part of a row in which an event was not counted: the row itself and one on either side.
///
/// More would smooth differences between rows (`cargo xtask counterminer` shows by how much).
const PART: usize = 3;

/// Why a value was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeReason {
    /// Above the threshold.
    Outlier,
    /// Not counted.
    Missing,
    /// Counted as 0 where that can't be.
    Zero,
    /// Counted in a part of the row, and brought nearer to the rows around it.
    Scaled,
}

/// A value that was changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Number of the event.
    pub event: usize,
    /// Number of the row.
    pub row: usize,
    /// Old value; NaN: missing.
    pub before: f64,
    /// New value.
    pub after: f64,
    pub why: ChangeReason,
}

/// Findings about one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventFindings {
    /// Distribution of its values.
    pub fit: Fit,
    /// Outlier threshold in standard deviations above the mean.
    pub deviations: f64,
    /// Values above are outliers.
    pub threshold: f64,
    /// Neighbours averaged to fill in missing values.
    pub neighbours: usize,
}

/// Cleaned series, with every change.
#[derive(Clone, Debug)]
pub struct Cleaned {
    /// Without missing values, except for events that were never counted.
    pub series: Series,
    /// Every value that was changed.
    pub changes: Vec<Change>,
    /// For each event; `None`: it was never counted.
    pub found: Vec<Option<EventFindings>>,
}

/// Cleans each event. Outliers and impossible values are found in each event independently. Parts that were not counted
/// are estimated from all events together where much is missing and there is enough to learn from, else from the event's
/// own rows around them.
#[must_use]
pub fn clean(series: &Series, options: &Options) -> Cleaned {
    let segments = &series.segments;
    let judged = |event: &Event| judge(event, segments, options);
    let mut judged: Vec<Option<Judged>> = series.events.iter().map(judged).collect();
    let known: Vec<&[CountedValue]> = judged.iter().flatten().map(|it| &it.known[..]).collect();
    let joint = match options.neighbours {
        None => joint::fill(&known, segments),
        Some(_) => None,
    };
    let mut joint = joint.unwrap_or_default().into_iter();
    let mut out = Cleaned {
        series: series.clone(),
        changes: Vec::new(),
        found: judged.iter().map(|it| Some(it.as_ref()?.found)).collect(),
    };
    for (event, judged) in judged.iter_mut().enumerate() {
        let Some(judged) = judged else { continue };
        match joint.next() {
            Some(means) => judged.take(&means),
            None => judged.complete(segments),
        }
        for (row, why) in judged.why.iter().enumerate() {
            if let Some(why) = *why {
                out.changes.push(Change {
                    event,
                    row,
                    before: series.events[event].counts[row],
                    after: judged.counts[row],
                    why,
                });
            }
        }
        out.series.events[event].counts = std::mem::take(&mut judged.counts);
    }
    out
}

/// An event with its classified values.
struct Judged {
    found: EventFindings,
    mean: f64,
    counts: Vec<f64>,
    why: Vec<Option<ChangeReason>>,
    /// Count of each row, scaled to the whole row, and the share of the row in which it was counted.
    known: Vec<CountedValue>,
}

impl Judged {
    /// Completes rows from their neighbours.
    fn complete(&mut self, segments: &[Segment]) {
        let known = &self.known;
        for segment in segments {
            for row in segment.rows.clone().filter(|&row| known[row].1 < WHOLE) {
                let (value, share) = known[row];
                let count = if share > 0.0 {
                    PART
                } else {
                    self.found.neighbours
                };
                let rest = rate(row, &segment.rows, known, count, true).unwrap_or(self.mean);
                self.counts[row] = share * value + (1.0 - share) * rest;
                self.why[row].get_or_insert(ChangeReason::Scaled);
            }
        }
    }

    /// Replaces rows that were not counted throughout by `means`.
    fn take(&mut self, means: &[f64]) {
        for (row, mean) in means.iter().enumerate() {
            if self.known[row].1 < WHOLE {
                self.counts[row] = *mean;
                self.why[row].get_or_insert(ChangeReason::Scaled);
            }
        }
    }
}

/// Finds missing values, impossible zeros and outliers; `None`: the event was never counted.
fn judge(event: &Event, segments: &[Segment], options: &Options) -> Option<Judged> {
    let mut counts = event.counts.clone();
    let values: Vec<f64> = counts.iter().copied().filter(|it| !it.is_nan()).collect();
    if values.is_empty() {
        return None;
    }
    let fit = shape::fit(&values);
    let weighted = || {
        let rows = (0..counts.len()).filter(|&row| !counts[row].is_nan());
        rows.map(|row| (counts[row], event.share(row).unwrap_or(1.0)))
    };
    let (mean, std) = weighted_moments(weighted());
    let deviations = deviations(&values, fit.shape, mean, std);
    let threshold = mean + deviations * std;
    let is_suspect =
        |row: usize| options.unscaled || event.share(row).is_some_and(|_| !event.is_whole(row));
    let mut why: Vec<Option<ChangeReason>> = (0..counts.len())
        .map(|row| {
            if counts[row].is_nan() {
                Some(ChangeReason::Missing)
            } else if counts[row] > threshold && is_suspect(row) && fit.shape != Shape::Constant {
                Some(ChangeReason::Outlier)
            } else {
                None
            }
        })
        .collect();
    // Count and counted share of each row; share 0: unknown.
    let mut known: Vec<CountedValue> = counts
        .iter()
        .enumerate()
        .map(|(row, &count)| {
            let share = event.share(row).unwrap_or(1.0).min(1.0);
            if why[row].is_some() {
                (0.0, 0.0)
            } else {
                (count, share)
            }
        })
        .collect();
    for segment in segments {
        for row in segment
            .rows
            .clone()
            .filter(|&row| counts[row] == 0.0 && is_suspect(row))
        {
            if is_impossible(row, &segment.rows, &known) {
                why[row] = Some(ChangeReason::Zero);
            }
        }
        for row in segment
            .rows
            .clone()
            .filter(|&row| why[row] == Some(ChangeReason::Outlier))
        {
            counts[row] = interval_median(row, &segment.rows, &known).unwrap_or(threshold);
        }
    }
    for row in 0..counts.len() {
        if why[row] == Some(ChangeReason::Zero) {
            known[row] = (0.0, 0.0);
        }
    }
    // An outlier's own share was too small to be of use; its replacement has the weight of its interval.
    for row in 0..counts.len() {
        if why[row] == Some(ChangeReason::Outlier) {
            known[row] = (counts[row], event.share(row).unwrap_or(1.0));
        }
    }
    let neighbours = options
        .neighbours
        .unwrap_or_else(|| best_neighbours(&known, segments));
    Some(Judged {
        found: EventFindings {
            fit,
            deviations,
            threshold,
            neighbours,
        },
        mean,
        counts,
        why,
        known,
    })
}

/// A 0 is taken for a missing value if at least this count is expected: a Poisson distribution then yields 0 once in
/// 1,000.
const EXPECTED: f64 = 7.0;

/// Whether a 0 can't be true: all of the four nearest rows predict at least [`EXPECTED`] events in the counted part.
///
/// If an event really pauses for a while, its neighbours are 0 as well.
fn is_impossible(row: usize, rows: &Range<usize>, known: &[(f64, f64)]) -> bool {
    let share = known[row].1;
    let before = (rows.start..row)
        .rev()
        .filter(|&it| known[it].1 > 0.0)
        .take(2);
    let after = (row + 1..rows.end).filter(|&it| known[it].1 > 0.0).take(2);
    let near: Vec<usize> = before.chain(after).collect();
    near.len() == 4 && near.iter().all(|&it| known[it].0 * share >= EXPECTED)
}

/// The median of the interval around a row (equation 7), as long as the square root of the number of rows.
///
/// The equation divides the range of *values* by that root. But the interval of values around an outlier holds little
/// else, so its median would return the outlier. Hence the interval is one of rows.
fn interval_median(row: usize, rows: &Range<usize>, known: &[(f64, f64)]) -> Option<f64> {
    let reach = ((rows.len() as f64).sqrt().ceil() as usize / 2).max(1);
    let window = row.saturating_sub(reach).max(rows.start)..(row + reach + 1).min(rows.end);
    let near: Vec<f64> = window
        .map(|it| known[it])
        .filter(|it| it.1 > 0.0)
        .map(|it| it.0)
        .collect();
    (!near.is_empty()).then(|| median(near))
}

/// Estimates a row from its nearest rows: their mean, weighted by the share in which each was counted; `own`: include
/// the row itself.
fn rate(
    row: usize,
    rows: &Range<usize>,
    known: &[(f64, f64)],
    neighbours: usize,
    own: bool,
) -> Option<f64> {
    let (mut sum, mut weight, mut found) = (0.0, 0.0, 0);
    for distance in usize::from(!own)..rows.len() {
        let sides = [
            row.checked_sub(distance).filter(|it| *it >= rows.start),
            Some(row + distance),
        ];
        for at in sides
            .into_iter()
            .take(if distance == 0 { 1 } else { 2 })
            .flatten()
        {
            if at < rows.end && known[at].1 > 0.0 {
                sum += known[at].0 * known[at].1;
                weight += known[at].1;
                found += 1;
            }
        }
        if found >= neighbours {
            break;
        }
    }
    (weight > 0.0).then(|| sum / weight)
}

/// Largest number of rows used for cross-validation.
const VALIDATED: usize = 2_000;

/// Number of neighbours that predicts known rows best from those around them.
fn best_neighbours(known: &[(f64, f64)], segments: &[Segment]) -> usize {
    let step = known.len().div_ceil(VALIDATED).max(1);
    let error = |neighbours: usize| {
        let mut sum = 0.0;
        for segment in segments {
            for row in segment
                .rows
                .clone()
                .step_by(step)
                .filter(|&row| known[row].1 > 0.0)
            {
                if let Some(rate) = rate(row, &segment.rows, known, neighbours, false) {
                    sum += known[row].1 * (rate - known[row].0).powi(2);
                }
            }
        }
        sum
    };
    NEIGHBOURS
        .map(|it| (it, error(it)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(*NEIGHBOURS.start(), |it| it.0)
}

/// Standard deviations such that [`BELOW`] of the values are below: 3 of a normal distribution, else as few as it takes.
fn deviations(known: &[f64], shape: Shape, mean: f64, std: f64) -> f64 {
    if shape != Shape::LongTail {
        return 3.0;
    }
    let below = |n: f64| known.iter().filter(|&&it| it <= mean + n * std).count() as f64;
    let needed = BELOW * known.len() as f64;
    let mut n = 3.0;
    while below(n) < needed && n < 1e6 {
        n += 1.0;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use pebs_stats::rng::Rng;

    const OPTIONS: Options = Options {
        neighbours: Some(5),
        unscaled: false,
    };

    fn cleaned(counts: &[f64], running: &[f32], options: &Options) -> Cleaned {
        let series = Series::of(vec![Event {
            name: "e".to_owned(),
            counts: counts.to_vec(),
            running: running.to_vec(),
        }]);
        clean(&series, options)
    }

    fn steady(rows: usize) -> Vec<f64> {
        let mut rng = Rng::new(5);
        (0..rows)
            .map(|_| (1000.0 + 20.0 * rng.normal()).round())
            .collect()
    }

    /// Outliers, gaps and impossible zeros are found, replaced and marked; whole counts are never changed.
    #[test]
    fn mended_and_marked() {
        let (mut counts, mut running) = (steady(400), vec![1.0; 400]);
        counts[50] = 9000.0;
        running[50] = 0.02;
        counts[80] = f64::NAN;
        running[80] = 0.0;
        counts[120] = 0.0;
        running[120] = 0.3;
        counts[150] = 9000.0;
        let out = cleaned(&counts, &running, &OPTIONS);
        let changed: Vec<(usize, ChangeReason)> =
            out.changes.iter().map(|it| (it.row, it.why)).collect();
        assert_eq!(
            changed,
            [
                (50, ChangeReason::Outlier),
                (80, ChangeReason::Missing),
                (120, ChangeReason::Zero)
            ]
        );
        for change in &out.changes {
            assert!((950.0..1050.0).contains(&change.after), "{change:?}");
            assert_eq!(out.series.events[0].counts[change.row], change.after);
        }
        assert_eq!(out.series.events[0].counts[150], 9000.0);
        let unchanged = (0..400).filter(|row| ![50, 80, 120].contains(row));
        assert!(
            unchanged
                .into_iter()
                .all(|row| out.series.events[0].counts[row] == counts[row])
        );
    }

    /// A phase without events stays at 0, however small the share in which it was counted.
    #[test]
    fn true_zeros() {
        let mut counts = steady(100);
        counts[40..60].fill(0.0);
        let out = cleaned(&counts, &[0.4; 100], &OPTIONS);
        assert!(out.changes.iter().all(|it| it.why == ChangeReason::Scaled));
        assert!(
            out.series.events[0].counts[42..58]
                .iter()
                .all(|&it| it == 0.0)
        );
    }

    /// The counted half of a row makes up half of its value; the other half comes from the rows around it.
    #[test]
    fn parts() {
        let mut counts = vec![100.0; 9];
        counts[4] = 400.0;
        let mut running = vec![1.0; 9];
        running[4] = 0.5;
        let out = cleaned(&counts, &running, &OPTIONS);
        // Its rest: 100 and 100 as whole rows, 400 as half of one.
        assert_eq!(out.series.events[0].counts[4], 0.5 * 400.0 + 0.5 * 160.0);
    }

    /// Gaps at the ends, in a segment of their own, and series of gaps only.
    #[test]
    fn edges() {
        let nan = f64::NAN;
        let out = cleaned(&[nan, 5.0, nan], &[], &OPTIONS);
        assert_eq!(out.series.events[0].counts, [5.0; 3]);
        let out = cleaned(&[nan; 3], &[], &OPTIONS);
        assert!(out.found[0].is_none() && out.changes.is_empty());
        let mut series = Series::of(vec![Event {
            name: "e".to_owned(),
            counts: vec![1.0, 1.0, nan, nan],
            running: Vec::new(),
        }]);
        series.segments = vec![
            Segment {
                name: "a".to_owned(),
                rows: 0..2,
            },
            Segment {
                name: "b".to_owned(),
                rows: 2..4,
            },
        ];
        // The second thread has no counts of its own: it gets the overall ones.
        assert_eq!(clean(&series, &OPTIONS).series.events[0].counts, [1.0; 4]);
    }

    /// Values without shares are cleaned only on request.
    #[test]
    fn unscaled_values() {
        let mut counts = steady(300);
        counts[7] = 1e6;
        assert!(cleaned(&counts, &[], &OPTIONS).changes.is_empty());
        let asked = Options {
            unscaled: true,
            neighbours: None,
        };
        let out = cleaned(&counts, &[], &asked);
        assert!(
            out.changes
                .iter()
                .any(|it| it.row == 7 && it.why == ChangeReason::Outlier && it.after < 1100.0)
        );
        assert!(out.changes.len() < 6);
    }
}
