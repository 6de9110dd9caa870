//! Finds the reset value for a goal, from counts made without sampling.

use serde::Serialize;

use super::{Native, predict, smallest_reset};
use crate::cost::overhead::Counts;

/// Samples with which a function's time is worth showing.
pub(crate) const SHOWN: f64 = 5.0;

/// Counts of a run with marks but without samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    /// Length of the counting, ns.
    pub wall_ns: f64,
    /// Time on the CPU of all threads, ns.
    pub cpu_ns: f64,
    /// Events in it; for clocks the same time in ns.
    pub events: f64,
    /// Time on the CPU within visits with all of their marks, ns.
    pub oncpu_ns: f64,
    /// Cost of marks and counted page faults, ns.
    pub fixed_ns: f64,
    pub visits: u64,
    /// Number of items with known time on the CPU.
    pub items: u64,
    /// Their median time on the CPU, ns.
    pub item_ns: f64,
}

/// Cost of a sample of the event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Price {
    pub alpha_ns: f64,
    /// Upper end of its confidence interval, ns, used to keep bounds.
    pub alpha_at_most_ns: f64,
    /// Effect of a sample on the event's count.
    pub counts: Counts,
}

/// The goal of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Goal {
    /// Maximum slow-down of items, 0.02 = 2 %.
    pub overhead: f64,
    /// Samples in the median item at least.
    pub samples: f64,
    /// Smallest reset value that the machine accepts.
    pub least: u64,
}

/// Prediction for a reset value. `None`: samples would take all of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The reset value.
    pub reset: u64,
    /// Slow-down of items, 0.02 = 2 %.
    pub overhead: Option<f64>,
    /// CPU time that one second of the traced threads' work would take, s: the same on each core if they share the
    /// work evenly.
    pub second_takes_s: Option<f64>,
    /// Samples a second of all threads, as they ran.
    pub samples_per_s: Option<f64>,
    /// Samples in the median item.
    pub samples_per_item: Option<f64>,
    /// Shortest function with [`SHOWN`] samples per item on average, ns without sampling.
    pub shortest_ns: Option<f64>,
}

/// Result of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub(crate) enum Verdict {
    /// This reset value keeps both bounds.
    Met { reset: u64 },
    /// With the smallest reset value for the overhead, items have too few samples.
    FewSamples {
        reset: u64,
        /// The largest reset value with enough samples; null if the machine allows none.
        wanted: Option<u64>,
        /// Its overhead; null if it can't be computed.
        overhead: Option<f64>,
    },
    /// Marks and page faults alone cost more than the bound.
    MarksAbove {
        /// Their cost; infinite if it can't be computed.
        overhead: f64,
    },
}

impl Counted {
    /// All work of the threads, without marks.
    #[must_use]
    pub(crate) fn whole(&self) -> Native {
        Native {
            elapsed_ns: self.cpu_ns - self.fixed_ns,
            events: self.events,
            fixed_ns: self.fixed_ns,
        }
    }

    /// The part of it within visits. Events are assumed to be spread evenly.
    #[must_use]
    pub(crate) fn within(&self) -> Native {
        Native {
            elapsed_ns: self.oncpu_ns - self.fixed_ns,
            events: self.rate() * self.oncpu_ns,
            fixed_ns: self.fixed_ns,
        }
    }

    /// Events in a ns on the CPU.
    #[must_use]
    pub(crate) fn rate(&self) -> f64 {
        self.events / self.cpu_ns
    }

    /// Predicts the effect of a reset value.
    #[must_use]
    pub(crate) fn row(&self, reset: u64, price: &Price) -> Row {
        let of = |native| predict(native, reset, price.alpha_ns, price.counts);
        let (within, whole) = (self.within(), self.whole());
        let (items, all) = (of(&within), of(&whole));
        // The median item's share of all samples is that of its time.
        let share = self.item_ns / self.oncpu_ns;
        let samples_per_item = items.map(|it| it.samples * share);
        Row {
            reset,
            overhead: items.map(|it| it.overhead),
            second_takes_s: all.map(|it| it.elapsed_ns / whole.elapsed_ns),
            samples_per_s: all.map(|it| it.samples / self.wall_ns * 1e9),
            samples_per_item,
            shortest_ns: samples_per_item.map(|samples| SHOWN * self.item_ns / samples),
        }
    }

    /// Finds the reset value for a goal.
    #[must_use]
    pub(crate) fn judge(&self, goal: &Goal, price: &Price) -> Verdict {
        let within = self.within();
        let alpha = price.alpha_at_most_ns;
        let Some(cheap) = smallest_reset(&within, alpha, price.counts, goal.overhead) else {
            // Marks of very short visits seem to cost more than the whole time.
            let overhead = match within.elapsed_ns > 0.0 {
                true => within.fixed_ns / within.elapsed_ns,
                false => f64::INFINITY,
            };
            return Verdict::MarksAbove { overhead };
        };
        let reset = cheap.max(goal.least);
        let samples = self.row(reset, price).samples_per_item;
        if samples.is_some_and(|samples| samples >= goal.samples) {
            return Verdict::Met { reset };
        }
        let wanted = self.reset_for(goal.samples, price);
        let wanted = wanted.filter(|wanted| *wanted >= goal.least);
        let overhead = wanted.and_then(|wanted| self.row(wanted, price).overhead);
        Verdict::FewSamples {
            reset,
            wanted,
            overhead,
        }
    }

    /// The largest reset value with this number of samples in the median item.
    ///
    /// Work: R = events/samples of the item. A clock ticks on meanwhile: with T of the item, marks included,
    /// T/(R - alpha) samples, so R = T/samples + alpha.
    fn reset_for(&self, samples: f64, price: &Price) -> Option<u64> {
        let reset = match price.counts {
            Counts::Work => self.rate() * self.item_ns / samples,
            Counts::Time => self.item_ns / samples + price.alpha_ns,
        };
        (reset >= 1.0).then_some(reset as u64)
    }
}

/// Reset values for a table: doubling from the smallest, until the goal is met or too few samples are left.
#[must_use]
pub(crate) fn resets(first: u64, enough: u64) -> Vec<u64> {
    const LEAST: usize = 8;
    const MOST: usize = 20;
    let doubling = (0..MOST as u32).map(|n| first.saturating_mul(1 << n));
    let mut resets = Vec::new();
    for reset in doubling {
        let is_enough = resets.last().is_some_and(|last| *last >= enough);
        if is_enough && resets.len() >= LEAST {
            break;
        }
        resets.push(reset);
    }
    resets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two threads that are on the CPU for a second each: 2,000 items of 0.5 ms each, half of the time.
    const COUNTED: Counted = Counted {
        wall_ns: 1e9,
        cpu_ns: 2e9,
        events: 2e9,
        oncpu_ns: 1e9,
        fixed_ns: 2e6,
        visits: 2_000,
        items: 2_000,
        item_ns: 500_000.0,
    };
    const CLOCK: Price = Price {
        alpha_ns: 2_500.0,
        alpha_at_most_ns: 2_600.0,
        counts: Counts::Time,
    };

    fn goal(overhead: f64, samples: f64) -> Goal {
        Goal {
            overhead,
            samples,
            least: 10_000,
        }
    }

    /// Worked numbers: at 50 us a clock's sample takes 5 % of the time, so items take 1/0.95 of theirs.
    #[test]
    fn worked_row() {
        let row = COUNTED.row(50_000, &CLOCK);
        let overhead = 1e9 / 0.95 / 0.998e9 - 1.0;
        assert!((row.overhead.unwrap() - overhead).abs() < 1e-9, "{row:?}");
        // 500 us / 47.5 us.
        assert!(
            (row.samples_per_item.unwrap() - 10.526).abs() < 0.01,
            "{row:?}"
        );
        assert!(
            (row.samples_per_s.unwrap() - 2e9 / 0.95 / 50e3).abs() < 1.0,
            "{row:?}"
        );
        assert!(
            (row.shortest_ns.unwrap() - 237_500.0).abs() < 1.0,
            "{row:?}"
        );
        assert_eq!(COUNTED.row(2_500, &CLOCK).overhead, None);
    }

    /// A goal that can be met, one that needs too many samples, and one that marks alone exceed.
    #[test]
    fn verdicts() {
        let Verdict::Met { reset } = COUNTED.judge(&goal(0.06, 10.0), &CLOCK) else {
            panic!("can be met");
        };
        assert!((47_000..50_000).contains(&reset), "{reset}");
        let verdict = COUNTED.judge(&goal(0.03, 10.0), &CLOCK);
        let Verdict::FewSamples {
            reset,
            wanted,
            overhead,
        } = verdict
        else {
            panic!("{verdict:?}");
        };
        assert!((94_000..97_000).contains(&reset), "{reset}");
        assert_eq!(wanted, Some(52_500));
        assert!((0.05..0.055).contains(&overhead.unwrap()), "{overhead:?}");
        let none = COUNTED.judge(&goal(0.03, 1_000.0), &CLOCK);
        assert!(
            matches!(none, Verdict::FewSamples { wanted: None, .. }),
            "{none:?}"
        );
        let marks = COUNTED.judge(&goal(0.001, 1.0), &CLOCK);
        assert!(
            matches!(marks, Verdict::MarksAbove { overhead } if overhead > 0.001),
            "{marks:?}"
        );
        // Even if it were cheap enough, the reset value is not below the machine's minimum.
        assert_eq!(
            COUNTED.judge(&goal(0.9, 1.0), &CLOCK),
            Verdict::Met { reset: 10_000 }
        );
    }

    /// Tables go on until the goal is in them, within reason.
    #[test]
    fn tables() {
        assert_eq!(resets(10_000, 0).len(), 8);
        let long = resets(10_000, 3_000_000);
        assert_eq!(long.last(), Some(&5_120_000));
        assert_eq!(resets(1 << 62, u64::MAX).len(), 8);
        assert_eq!(resets(1, u64::MAX).len(), 20);
    }

    proptest! {
        /// A goal reported as met is met according to the row of the reset value, for events of both kinds.
        #[test]
        fn met_is_met(
            rate in 0.01..4.0f64, item_ns in 1e4..1e7f64, fixed in 0.0..0.05f64,
            overhead in 0.005..0.5f64, samples in 0.5..50.0f64, clock: bool,
        ) {
            let (rate, counts) = if clock { (1.0, Counts::Time) } else { (rate, Counts::Work) };
            let counted = Counted { events: rate * 2e9, item_ns, fixed_ns: fixed * 1e9, ..COUNTED };
            let price = Price { counts, ..CLOCK };
            let goal = goal(overhead, samples);
            match counted.judge(&goal, &price) {
                Verdict::Met { reset } => {
                    let row = counted.row(reset, &price);
                    prop_assert!(reset >= goal.least);
                    prop_assert!(row.overhead.unwrap() <= overhead * (1.0 + 1e-9), "{row:?}");
                    prop_assert!(row.samples_per_item.unwrap() >= samples, "{row:?}");
                }
                Verdict::FewSamples { wanted: Some(wanted), .. } => {
                    let row = counted.row(wanted, &price);
                    // The reset value is a whole number.
                    prop_assert!(row.samples_per_item.unwrap() >= samples * 0.999, "{row:?}");
                }
                Verdict::FewSamples { .. } => {}
                Verdict::MarksAbove { overhead: marks } => prop_assert!(marks >= overhead),
            }
        }
    }
}
