//! The method's Figure 10: latency with recording less latency without, predicted and measured.

use anyhow::{Context, Result};
use serde_json::Value;

use super::super::Lab;
use super::drift::Drift;
use crate::frame::pictures::{draw, intervals, line, medians, panel};
use crate::frame::realtime::Recording;
use crate::frame::statistics::{Spread, mean};
use crate::frame::table::Table;

/// A prediction is good within this part of the measured value.
const GOOD: f64 = 0.25;

/// Results of `pebs-trace calibrate`, ns: of a sample, and of marks by the class of their instruction.
pub struct Costs {
    alpha: f64,
    marks: Value,
}

impl Costs {
    pub fn measure(lab: &Lab) -> Result<Self> {
        let found = lab.calibration()?;
        let alpha = found["fit"]["alpha_ns"].as_f64();
        Ok(Self {
            alpha: alpha.context("calibrate printed no alpha")?,
            marks: found["marks"].clone(),
        })
    }

    /// The mean of these and of new measurements: on a busy machine they change.
    pub fn again(self, lab: &Lab) -> Result<Self> {
        let after = Self::measure(lab)?;
        let Value::Object(mut marks) = self.marks else {
            return Ok(after);
        };
        for (class, ns) in &mut marks {
            if let (Some(before), Some(after)) = (ns.as_f64(), after.marks[class.as_str()].as_f64())
            {
                *ns = f64::midpoint(before, after).into();
            }
        }
        Ok(Self {
            alpha: f64::midpoint(self.alpha, after.alpha),
            marks: Value::Object(marks),
        })
    }

    pub fn sample_us(&self) -> f64 {
        self.alpha / 1e3
    }

    /// Part of an interval that a sample takes.
    pub fn share(&self, reset: u64) -> f64 {
        self.alpha / reset as f64
    }

    /// Begin and end of an item, us, by the instructions that the recording put its probes on.
    fn of_marks(&self, classes: &[String]) -> f64 {
        let ns = |class: &String| self.marks[format!("{class}_ns")].as_f64();
        classes.iter().filter_map(ns).sum::<f64>() / 1e3
    }

    /// Predicted increase of the time of a packet of `alone` us by marks and by a sample every `reset` us, us.
    ///
    /// A tick of the clock comes every `reset` us of the whole time T, samples included: T = alone + marks + alpha T / reset.
    fn predicted(&self, alone: f64, classes: &[String], reset: f64) -> f64 {
        let marks = self.of_marks(classes);
        (alone + marks) / (1.0 - self.alpha / 1e3 / reset).max(0.0) - alone
    }

    /// The same costs where a sample takes `factor` times as long.
    fn drifted(&self, factor: f64) -> Self {
        Self {
            alpha: self.alpha * factor,
            marks: self.marks.clone(),
        }
    }
}

/// Latencies by reset value, mean of all types, us.
pub struct Latency {
    alone: Vec<f64>,
    /// By reset value: less that without recording in the same round.
    with: Vec<(u64, Vec<f64>)>,
    /// Classes of the instructions under the probes.
    classes: Vec<String>,
}

impl Latency {
    pub fn new(resets: &[u64]) -> Self {
        Self {
            alone: Vec::new(),
            with: resets.iter().map(|it| (*it, Vec::new())).collect(),
            classes: Vec::new(),
        }
    }

    /// Adds a round without recording, by type.
    pub fn add_alone(&mut self, by_type: [f64; 3]) {
        self.alone.push(mean(&by_type));
    }

    /// Adds a recording of the round of the last [`Self::add_alone`].
    pub fn add(&mut self, reset: u64, recording: &Recording, by_type: [f64; 3]) {
        let alone = self.alone.last().copied().unwrap_or(f64::NAN);
        if let Some((_, more)) = self.with.iter_mut().find(|it| it.0 == reset) {
            more.push(mean(&by_type) - alone);
        }
        let probes = recording.info["probes"].as_array().into_iter().flatten();
        let sites = probes.filter_map(|it| it["sites"].as_array()).flatten();
        let classes = sites.filter_map(|it| it["class"].as_str());
        self.classes = classes.map(str::to_owned).collect();
    }

    /// Predicted and measured, for each reset value in us. The prediction's interval is that of what a sample costs.
    fn rows(&self, (costs, drift): (&Costs, &Drift)) -> Vec<(f64, Spread, Spread)> {
        let alone = Spread::of(self.alone.clone()).median;
        let [low, high] = drift.factors().map(|it| costs.drifted(it));
        let row = |(reset, more): &(u64, Vec<f64>)| {
            let reset = *reset as f64 / 1e3;
            let predicted = |costs: &Costs| costs.predicted(alone, &self.classes, reset);
            let predicted = Spread {
                low: predicted(&low),
                median: predicted(costs),
                high: predicted(&high),
            };
            (reset, predicted, Spread::of(more.clone()))
        };
        self.with.iter().map(row).collect()
    }

    pub fn table(&self, (costs, drift): (&Costs, &Drift)) -> String {
        let mut table = Table::new("R, us: | predicted: | measured:");
        for (reset, predicted, measured) in self.rows((costs, drift)) {
            table.row(format_args!("{reset} | {predicted:.1} | {measured:.1}"));
        }
        format!(
            "{table}\nPredicted by what `pebs-trace calibrate` measures: (L + marks) / (1 - sample / R) - L with L = {:.1} us, marks {:.2} us, a sample \
             {:.2} us. The interval is that of a sample's cost in windows of a loop (see below); *inf* is no progress.\n",
            Spread::of(self.alone.clone()).median,
            costs.of_marks(&self.classes),
            costs.alpha / 1e3
        )
    }

    pub fn musts(&self, costs: (&Costs, &Drift)) -> Vec<(String, bool)> {
        let rows = self.rows(costs);
        let predicted_falls = rows
            .windows(2)
            .all(|two| two[1].1.median <= two[0].1.median);
        // Where samples are rare, two medians of rounds may be in any order.
        let rises = rows.windows(2).any(|two| two[1].2.is_above(two[0].2));
        let falls = matches!(&rows[..], [first, .., last] if first.2.is_above(last.2));
        let good = rows.iter().filter(|row| near(row.1, row.2)).count();
        vec![
            (
                "Figure 10's shape: predicted overhead falls with every larger R; measured overhead rises with none, and falls \
                 from the first to the last"
                    .to_owned(),
                predicted_falls && falls && !rises,
            ),
            (
                format!(
                    "predicted overhead is within {:.0} % of the measured one, or their intervals overlap, at most R ({good} of {})",
                    GOOD * 100.0,
                    rows.len()
                ),
                2 * good > rows.len(),
            ),
        ]
    }

    pub fn explained(&self, (costs, drift): (&Costs, &Drift)) -> String {
        let rows = self.rows((costs, drift));
        let marks = costs.of_marks(&self.classes);
        let rare = rows.last().map_or(f64::NAN, |row| row.2.median);
        format!(
            "*Overhead.* The curve falls as 1/(1 - sample/R), not as 1/R: a sample takes {:.1} us of interrupt here where PEBS \
             takes 0.25 us. It ends not at 0 but at the cost of two marks, which the paper's program makes itself by a line of \
             log. Experiment: at R = {:.0} us, where samples add little, {rare:.1} us are left; two marks were calibrated at \
             {marks:.1} us.",
            costs.alpha / 1e3,
            rows.last().map_or(f64::NAN, |row| row.0),
        )
    }

    pub fn picture(&self, costs: (&Costs, &Drift)) -> String {
        let rows = self.rows(costs);
        let of = |title: &str, rows: &[(f64, Spread, Spread)]| {
            let predicted = rows.iter().map(|row| (row.0, row.1.median)).collect();
            let measured = || rows.iter().map(|row| (row.0, row.2));
            let series = [line("predicted", predicted)].into_iter();
            let series = series.chain(intervals(measured()));
            let series = series.chain([medians("measured", measured())]);
            panel(title, "R, us", "us longer", series.collect())
        };
        let dense = rows
            .iter()
            .filter(|row| row.0 < 30.0)
            .copied()
            .collect::<Vec<_>>();
        let panels = [
            of("the paper's numbers", &dense),
            of("on to rare samples", &rows),
        ];
        draw(
            "Latency with recording less latency without (Figure 10)",
            &panels,
        )
    }
}

/// Whether a prediction is good.
fn near(predicted: Spread, measured: Spread) -> bool {
    let is_apart = predicted.is_above(measured) || measured.is_above(predicted);
    !is_apart || (predicted.median / measured.median - 1.0).abs() <= GOOD
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// If samples take half of the time it doubles; without them only the marks remain.
    #[test]
    fn predictions() {
        let costs = Costs {
            alpha: 10_000.0,
            marks: json!({"emulated_ns": 1000.0, "single_step_ns": 4000.0}),
        };
        let classes = ["emulated".to_owned(), "single_step".to_owned()];
        assert_eq!(costs.of_marks(&classes), 5.0);
        assert!((costs.predicted(10.0, &classes, 20.0) - 20.0).abs() < 1e-9);
        assert!((costs.predicted(10.0, &classes, 1e9) - 5.0).abs() < 1e-3);
        let of = |values: &[f64]| Spread::of(values.to_vec());
        let measured = of(&[18.0, 19.0, 20.0]);
        assert!(near(of(&[23.0]), measured) && near(of(&[18.1]), measured));
        assert!(!near(of(&[24.0]), measured) && near(of(&[20.0, 24.0, 26.0]), measured));
        assert_eq!(costs.drifted(1.5).sample_us(), 15.0);
    }
}
