//! Coverage and bias over many recordings.

use std::collections::BTreeMap;

use super::{Estimate, Figure, LEAST, Outcome};
use crate::frame::statistics::{Z_95, mean, stderr};
use crate::frame::table::Table;

/// Coverage that is right.
const RIGHT: (f64, f64) = (0.93, 0.97);

/// Bias that is right.
const UNBIASED: f64 = 0.02;

/// Intervals that hold the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Coverage {
    intervals: usize,
    share: f64,
    /// Its own interval of 95 %.
    low: f64,
    high: f64,
}

impl Coverage {
    /// Of runs, each with some intervals and how many of them hold; `None` without intervals.
    ///
    /// Intervals of a run depend on each other: Wilson's interval is that of as many independent ones as have the
    /// variance that is found between runs, and not more than there are.
    fn of(runs: &[(usize, usize)]) -> Option<Self> {
        let intervals: usize = runs.iter().map(|(all, _)| all).sum();
        let holds: usize = runs.iter().map(|(_, holds)| holds).sum();
        if intervals == 0 {
            return None;
        }
        let n = intervals as f64;
        let share = holds as f64 / n;
        let off = |(all, holds): &(usize, usize)| (*holds as f64 - share * *all as f64).powi(2);
        let between = runs.iter().map(off).sum::<f64>() / (n * n);
        let independent = share * (1.0 - share) / n;
        let more = if independent > 0.0 {
            (between / independent).max(1.0)
        } else {
            1.0
        };
        let (low, high) = wilson(share, n / more);
        Some(Self {
            intervals,
            share,
            low,
            high,
        })
    }

    fn is_right(self) -> bool {
        self.intervals < LEAST || self.high >= RIGHT.0 && self.low <= RIGHT.1
    }
}

/// Interval of 95 % of a share of n. Source: Wilson, JASA 22, 1927.
fn wilson(share: f64, n: f64) -> (f64, f64) {
    let z = Z_95 * Z_95 / n;
    let middle = share + z / 2.0;
    let half = Z_95 * (share * (1.0 - share) / n + z / n / 4.0).sqrt();
    ((middle - half) / (1.0 + z), (middle + half) / (1.0 + z))
}

/// Mean difference from the truth, as a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bias {
    runs: usize,
    mean: f64,
    stderr: f64,
}

impl Bias {
    /// `None` for fewer than two values.
    fn of(values: &[f64]) -> Option<Self> {
        (values.len() > 1).then(|| Self {
            runs: values.len(),
            mean: mean(values),
            stderr: stderr(values),
        })
    }

    /// By the rule of the module docs.
    fn is_right(self) -> bool {
        self.runs < LEAST || self.mean.abs() <= UNBIASED.max(self.stderr)
    }
}

/// Coverage over the outcomes of some figures.
fn coverage<'a>(
    outcomes: impl Iterator<Item = &'a Outcome>,
    estimate: Estimate,
) -> Option<Coverage> {
    let runs: Vec<(usize, usize)> = outcomes
        .map(|outcome| {
            let of = outcome.figures.iter().filter(|it| it.estimate == estimate);
            let holds: Vec<bool> = of.filter_map(Figure::covers).collect();
            (holds.len(), holds.iter().filter(|it| **it).count())
        })
        .collect();
    Coverage::of(&runs)
}

/// Bias of each function.
fn biases<'a>(
    outcomes: impl Iterator<Item = &'a Outcome>,
    estimate: Estimate,
) -> BTreeMap<&'a str, Bias> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let figures = outcomes.flat_map(|it| &it.figures);
    for figure in figures.filter(|it| it.estimate == estimate) {
        values
            .entry(&figure.function)
            .or_default()
            .push(figure.bias());
    }
    let known = values
        .into_iter()
        .filter_map(|(name, values)| Some((name, Bias::of(&values)?)));
    known.collect()
}

/// The tables, and how many figures are not right.
pub(super) fn tables(all: &[Outcome]) -> (String, usize) {
    let judged = || all.iter().filter(|it| !it.beats);
    let mut table = Table::new(
        "estimate | runs: | intervals: | hold the truth, %: | 95 % of that, % | bias by function, % ± standard error |",
    );
    let mut misses = 0;
    for estimate in [
        Estimate::Pooled,
        Estimate::Share,
        Estimate::MeanSelf,
        Estimate::Excess,
        Estimate::OnCpu,
        Estimate::Counted,
    ] {
        let covered = coverage(judged(), estimate);
        let biases = biases(judged(), estimate);
        let is_of = |it: &&Outcome| it.figures.iter().any(|it| it.estimate == estimate);
        let runs = judged().filter(is_of).count();
        let is_right =
            covered.is_none_or(Coverage::is_right) && biases.values().all(|bias| bias.is_right());
        misses += usize::from(!is_right);
        let each = biases.iter().map(|(name, bias)| {
            format!(
                "{name} {:+.2} ± {:.2}",
                bias.mean * 100.0,
                bias.stderr * 100.0
            )
        });
        table.row(format_args!(
            "{} | {runs} | {} | {} | {}",
            estimate.name(),
            cells(covered),
            each.collect::<Vec<_>>().join(", "),
            if is_right { "" } else { "missed" }
        ));
    }
    let beating = all.len() - judged().count();
    let unsteady = all.iter().filter(|it| it.figures.is_empty()).count();
    let mut text = format!(
        "{table}\n{} runs; in {unsteady} the truth is not known, as the CPU's speed changed or a count is unknown; in {beating} a single clock beats with \
         items by pebs-trace's own word, which are left out of the table above. Missed: a coverage whose \
         interval lies outside of {:.0} to {:.0} %, or a function's bias above {:.0} % and above its standard error; of \
         {LEAST} intervals or more.\n\n",
        all.len(),
        RIGHT.0 * 100.0,
        RIGHT.1 * 100.0,
        UNBIASED * 100.0
    );
    let mut table = Table::new(
        "pooled time | runs: | intervals: | hold the truth, %: | 95 % of that, % | bias of nine, seven, four, %",
    );
    let mut parts: BTreeMap<(usize, String), Vec<&Outcome>> = BTreeMap::new();
    for outcome in all.iter().filter(|it| !it.figures.is_empty()) {
        let draw = &outcome.draw;
        let reset = draw.reset.map_or_else(
            || "no reset value".to_owned(),
            |it| format!("reset {it:>6}"),
        );
        let length = match draw.item_us {
            ..20.0 => "below 20 us",
            20.0..100.0 => "20 to 100 us",
            100.0..1_000.0 => "0.1 to 1 ms",
            _ => "1 ms and more",
        };
        let beats = if outcome.beats {
            "samples beat"
        } else {
            "others"
        };
        let rank = if draw.item_us < 1_000.0 { 1 } else { 2 };
        for key in [
            (0, draw.order.name().to_owned()),
            (rank, length.to_owned()),
            (3, reset),
            (4, beats.to_owned()),
        ] {
            parts.entry(key).or_default().push(outcome);
        }
    }
    for ((_, name), outcomes) in parts {
        let biases = biases(outcomes.iter().copied(), Estimate::Pooled);
        let each = ["nine", "seven", "four"].map(|name| {
            biases
                .get(name)
                .map_or_else(|| "-".to_owned(), |it| format!("{:+.1}", it.mean * 100.0))
        });
        table.row(format_args!(
            "{name} | {} | {} | {}",
            outcomes.len(),
            cells(coverage(outcomes.iter().copied(), Estimate::Pooled)),
            each.join(" ")
        ));
    }
    text += &table.to_string();
    (text, misses)
}

/// Number of intervals, how many hold, and the interval of that.
fn cells(covered: Option<Coverage>) -> String {
    covered.map_or_else(
        || "- | - | -".to_owned(),
        |it| {
            format!(
                "{} | {:.1} | {:.1} .. {:.1}",
                it.intervals,
                it.share * 100.0,
                it.low * 100.0,
                it.high * 100.0
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::draw::Draw;
    use super::*;

    /// Intervals that depend on each other count less; few are not judged, many are.
    #[test]
    fn coverage_of_runs() {
        assert_eq!(Coverage::of(&[(0, 0)]), None);
        let apart = Coverage::of(
            &[(1, 1); 90]
                .into_iter()
                .chain([(1, 0); 10])
                .collect::<Vec<_>>(),
        );
        let together = Coverage::of(
            &[(10, 10); 9]
                .into_iter()
                .chain([(10, 0)])
                .collect::<Vec<_>>(),
        );
        let (apart, together) = (apart.unwrap(), together.unwrap());
        assert_eq!((apart.share, together.share), (0.9, 0.9));
        // Newcombe 1998: 90 of 100 is 0.826 to 0.945; 9 of 10 is 0.596 to 0.982.
        assert!((apart.low - 0.826).abs() < 1e-3 && (apart.high - 0.945).abs() < 1e-3);
        assert!((together.low - 0.596).abs() < 1e-3 && (together.high - 0.982).abs() < 1e-3);
        assert!(apart.is_right() && together.is_right());
        let wrong = |all: usize| Coverage::of(&vec![(10, 8); all]).unwrap().is_right();
        assert!(wrong(3) && !wrong(40));
        // Too wide is wrong as well.
        assert!(!Coverage::of(&[(1, 1); 400]).unwrap().is_right());
    }

    /// A bias matters from 2 % on, unless it may be chance.
    #[test]
    fn bias_of_runs() {
        let of = |values: &[f64]| Bias::of(values).unwrap();
        assert_eq!(Bias::of(&[0.1]), None);
        let off = of(&[0.03, 0.05].repeat(30));
        assert!((off.mean - 0.04).abs() < 1e-12 && (off.stderr - 0.0013).abs() < 1e-4);
        assert!(!off.is_right());
        assert!(of(&[0.01, 0.02].repeat(30)).is_right());
        assert!(of(&[-1.0, 1.05].repeat(30)).is_right());
    }

    /// Every estimate has its row, misses are counted, and a run without a truth is none.
    #[test]
    fn rows() {
        let figure = |value: f64| Figure {
            estimate: Estimate::Pooled,
            function: "nine".to_owned(),
            truth: 100.0,
            value,
            interval: Some((value - 1.0, value + 1.0)),
        };
        let outcome = |seed: u64, figures: Vec<Figure>| Outcome {
            seed,
            draw: Draw::new(seed),
            beats: false,
            figures,
        };
        let right: Vec<Outcome> = (0..50)
            .map(|seed| outcome(seed, vec![figure(if seed < 48 { 100.5 } else { 98.0 })]))
            .collect();
        let (text, misses) = tables(&right);
        assert!(text.contains("| 50 | 50 | 96.0 | "), "{text}");
        assert_eq!(misses, 0, "{text}");
        let mut wrong: Vec<Outcome> = (0..50)
            .map(|seed| outcome(seed, vec![figure(103.0)]))
            .collect();
        wrong.push(outcome(50, Vec::new()));
        let (text, misses) = tables(&wrong);
        assert_eq!(misses, 1, "{text}");
        assert!(text.contains("51 runs; in 1 "), "{text}");
        assert!(text.contains("nine +3.00 ± 0.00 | missed |"), "{text}");
        wrong.iter_mut().for_each(|it| it.beats = true);
        let (text, misses) = tables(&wrong);
        assert_eq!(misses, 0, "{text}");
    }
}
