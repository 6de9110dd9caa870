//! Figure 9 in the paper's proportions: items of as many classifications as a sample costs times what a record of PEBS
//! does, so that a sample is to an interval, and an interval to an item, what they are in the paper.

use std::path::Path;

use anyhow::Result;

use super::super::Lab;
use super::super::interval::{PUBLISHED, published_record_us, published_us};
use super::cost::Costs;
use super::{Estimates, FUNCTION, estimates, logged, panel, typical};
use crate::frame::pictures::Panel;
use crate::frame::statistics::Spread;
use crate::frame::table::Table;
use crate::frame::{realtime, workload};

/// Shortest interval of the software clock, us.
const SHORTEST_US: f64 = 10.0;

/// Classifications in a run, of all items: a quarter of a second, in which the machine's speed often stays the same.
const CLASSIFICATIONS: usize = 24_000;

const ROUNDS: usize = 11;

/// Least part of the triples of items that has to be in order: one standard deviation to one side.
const MOST: f64 = 0.84;

/// Index of R = 16,000, by which the order is judged.
const JUDGED: usize = 2;

pub struct Scaled {
    /// Classifications of one packet in an item.
    times: usize,
    /// Interval between samples for each published reset value, ns.
    resets: Vec<u64>,
    /// Mean time of a classification without recording, us, by type.
    baseline: [Spread; 3],
    /// Recordings by reset value.
    rounds: Vec<Vec<Estimates>>,
    sample_us: f64,
}

impl Scaled {
    pub fn measure(lab: &Lab, program: &Path, costs: &Costs) -> Result<Self> {
        let times = times(costs.sample_us());
        let resets: Vec<u64> = (0..PUBLISHED.len())
            .map(|at| (published_us(at) * times as f64).round() as u64 * 1000)
            .collect();
        let items = CLASSIFICATIONS / times / if lab.quick { 10 } else { 1 };
        let args = [items.to_string(), times.to_string()];
        let args = [args[0].as_str(), args[1].as_str()];
        let mut rounds: Vec<Vec<Estimates>> = resets.iter().map(|_| Vec::new()).collect();
        let mut baseline = [const { Vec::new() }; 3];
        for _ in 0..lab.rounds(ROUNDS) {
            let log = realtime::alone(lab, program, &args)?;
            let alone = logged(&log, times, workload::inside);
            for (all, us) in baseline.iter_mut().zip(alone) {
                all.push(us);
            }
            for (reset, rounds) in resets.iter().zip(&mut rounds) {
                let recording = realtime::record(lab, program, &args, FUNCTION, *reset)?;
                rounds.push(estimates(&recording, times, alone));
            }
        }
        Ok(Self {
            times,
            resets,
            baseline: baseline.map(Spread::of),
            rounds,
            sample_us: costs.sample_us(),
        })
    }

    /// The middle of single items in the median round, by reset value and type.
    fn own(&self, at: usize) -> [Spread; 3] {
        self.middle(at, |it| it.own)
    }

    fn middle(&self, at: usize, of: impl Fn(&Estimates) -> [Spread; 3]) -> [Spread; 3] {
        std::array::from_fn(|t| {
            let rounds: Vec<Spread> = self.rounds[at].iter().map(|it| of(it)[t]).collect();
            Spread::typical(&rounds)
        })
    }

    pub fn musts(&self) -> Vec<(String, bool)> {
        let [a, b, c] = self.own(JUDGED);
        let is_ordered = |at: usize| {
            let [a, b, c] = self.own(at).map(|it| it.median);
            a > b && b > c
        };
        let in_order = typical(&self.rounds[JUDGED], |it| it.ordered).median;
        vec![
            (
                format!(
                    "A above B above C in {:.0} % at least of triples of items that follow one another, at R = 16,000 ({} us), in the \
                     median round: {:.1} %",
                    100.0 * MOST,
                    self.resets[JUDGED] / 1000,
                    100.0 * in_order
                ),
                in_order >= MOST,
            ),
            (
                "A above B above C in single items at R = 16,000: the middle 68 % (one standard deviation to both sides) of all do \
                     not overlap, in the median round"
                    .to_owned(),
                a.is_above(b) && b.is_above(c),
            ),
            (
                "the same order of the medians at each of the published reset values".to_owned(),
                (0..self.resets.len()).all(is_ordered),
            ),
        ]
    }

    pub fn table(&self) -> String {
        let rounds = self.rounds[JUDGED].len();
        let mut table = Table::new(
            "R in the paper: | here, us: | A: | B: | C: | A, span: | B, span: | C, span: | samples an item, A, B, C: | \
             a sample: | in order, %:",
        );
        let [a, b, c] = self.baseline;
        table.row(format_args!(
            "baseline | | {a:.1} | {b:.1} | {c:.1} | | | | | |"
        ));
        for (at, (reset, rounds)) in self.resets.iter().zip(&self.rounds).enumerate() {
            let spreads = self.own(at).into_iter();
            let spreads = spreads.chain(self.middle(at, |it| it.span));
            let spreads: Vec<String> = spreads.map(|it| format!("{it:.1}")).collect();
            let [a, b, c] = [0, 1, 2].map(|t| typical(rounds, |it| it.samples[t]).median);
            let cost = typical(rounds, |it| it.cost);
            let ordered = typical(rounds, |it| it.ordered).median * 100.0;
            table.row(format_args!(
                "{:.0} | {} | {} | {a:.1}, {b:.1}, {c:.1} | {cost:.1} | {ordered:.1}",
                PUBLISHED[at].0,
                reset / 1000,
                spreads.join(" | ")
            ));
        }
        format!(
            "Items of {} classifications of one packet, for the paper's proportions: a sample takes {:.1} us here and {:.2} us \
             there, and intervals are the paper's times {}. Median of single items and the middle 68 % of them, us a classification, \
             in place of the paper's mean and standard deviation; medians of {rounds} rounds of {} items, each with its own middle. *Span* \
             is the published estimate, last sample less first. *A sample* is what one took by the program's log, us: how much longer \
             items took than just before without recording; where the machine's own speed changed in between, that is in it. *In order*: triples of \
             items that follow one another in which A is above B and B above C.\n\n{table}",
            self.times,
            self.sample_us,
            published_record_us(),
            self.times,
            CLASSIFICATIONS / self.times,
        )
    }

    pub fn explained(&self) -> String {
        let spans = self.middle(JUDGED, |it| it.span);
        let off = |of: [Spread; 3]| {
            let off = |t: usize| {
                let off = of[t].median / self.baseline[t].median - 1.0;
                format!("{:+.0}", off * 100.0)
            };
            [off(0), off(1), off(2)].join(", ")
        };
        format!(
            "*Intervals.* The paper's 16,000 micro-operations are {:.1} us, less than the {SHORTEST_US} us that a software clock takes at \
             the least (see the figure of intervals), so no packet has two samples here, and the published estimate (last less first \
             sample) is 0. Experiment: items that are as much longer as a sample costs more. They are {} % off the log at R = 16,000, \
             the published estimate, which misses the time before the first sample and after the last, but holds the time of samples, \
             {} %.",
            published_us(JUDGED),
            off(self.own(JUDGED)),
            off(spans),
        )
    }

    pub fn panel(&self) -> Panel {
        let rows: Vec<(f64, [Spread; 3])> = (0..self.resets.len())
            .map(|at| (self.resets[at] as f64 / 1e3, self.own(at)))
            .collect();
        panel(
            &format!("single items of {}; middle 68 %", self.times),
            self.baseline,
            &rows,
        )
    }
}

/// Classifications in an item for the paper's proportions, if a sample takes `sample_us`.
fn times(sample_us: f64) -> usize {
    let least = (SHORTEST_US / published_us(0)).ceil();
    (sample_us / published_record_us()).round().max(least) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many times as a sample costs more, but no interval is too short for the clock.
    #[test]
    fn proportions() {
        assert_eq!(times(12.0), (12.0 / published_record_us()).round() as usize);
        assert_eq!(times(0.1), 14);
        assert!(times(0.1) as f64 * published_us(0) >= SHORTEST_US);
    }
}
