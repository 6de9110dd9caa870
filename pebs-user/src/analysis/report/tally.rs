//! First pass over the visits: counts, flags and durations of each probe.

use arrow::array::{Array, RecordBatch};
use hdrhistogram::Histogram;

use super::classes::IdSet;
use super::gap;
use super::model::{FlagCount, Quantiles, SlowRule};
use super::{LossVisits, slots::Slots};
use crate::store::reader::{ReadError, column_i64, column_u16, column_u32, column_u64};
use crate::store::schema::visit_flag;

/// Columns of the pass.
pub(super) const COLUMNS: [&str; 5] = ["probe_id", "item_id", "duration_ns", "flags", "samples"];

/// Digits to which durations are told apart: 0.1 %.
const DIGITS: u8 = 3;

/// Durations are told apart up to this one: 36 years.
const LONGEST_NS: u64 = 1 << 60;

/// Whether the statistics include a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Yes, with its duration.
    Counted(i64),
    /// Its end is unknown.
    Open,
    /// It overlaps a loss.
    Loss,
}

impl Standing {
    /// Standing of a visit with these columns.
    pub(super) fn of(duration_ns: Option<i64>, flags: u32, losses: LossVisits) -> Self {
        match duration_ns {
            None => Self::Open,
            Some(_) if flags & visit_flag::LOSS != 0 && losses == LossVisits::LeaveOut => {
                Self::Loss
            }
            Some(duration) => Self::Counted(duration.max(0)),
        }
    }
}

/// What the first pass knows of one probe.
#[derive(Debug)]
pub(super) struct Tally {
    pub visits: u64,
    pub counted: u64,
    pub loss: u64,
    pub open: u64,
    pub samples: u64,
    pub items: IdSet,
    flags: [u64; visit_flag::NAMES.len()],
    durations: Histogram<u64>,
    max_ns: i64,
    sum_ns: f64,
}

/// Where the slow visits begin and the typical ones end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// How `slow_from` was found.
    pub rule: SlowRule,
    /// Visits at or above are slow.
    pub slow_from: i64,
    /// Visits at or below are typical.
    pub typical_up_to: i64,
    /// Visits in the gap.
    pub between: u64,
}

impl Tally {
    /// An empty tally.
    pub(super) fn new() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the constructor refuses only more than 5 digits"
        )]
        let durations = Histogram::new(DIGITS).expect("3 digits");
        Self {
            visits: 0,
            counted: 0,
            loss: 0,
            open: 0,
            samples: 0,
            items: IdSet::default(),
            flags: [0; visit_flag::NAMES.len()],
            durations,
            max_ns: 0,
            sum_ns: 0.0,
        }
    }

    fn add(&mut self, standing: Standing, flags: u32, samples: u32) {
        self.visits += 1;
        for (bit, count) in self.flags.iter_mut().enumerate() {
            *count += u64::from(flags >> bit & 1);
        }
        match standing {
            Standing::Open => self.open += 1,
            Standing::Loss => self.loss += 1,
            Standing::Counted(ns) => {
                self.counted += 1;
                self.samples += u64::from(samples);
                let recorded = self.durations.record((ns as u64).min(LONGEST_NS));
                debug_assert!(recorded.is_ok(), "the histogram grows up to 2^62");
                self.max_ns = self.max_ns.max(ns);
                self.sum_ns += ns as f64;
            }
        }
    }

    /// Flags that any visit has.
    pub(super) fn flags(&self) -> Vec<FlagCount> {
        let counts = visit_flag::NAMES.into_iter().zip(self.flags);
        counts
            .filter(|(_, visits)| *visits > 0)
            .map(|(flag, visits)| FlagCount { flag, visits })
            .collect()
    }

    /// Durations of the visits counted; `None` if there are none.
    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        let at = |quantile| (self.durations.value_at_quantile(quantile) as i64).min(self.max_ns);
        (self.counted > 0).then(|| Quantiles {
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            max_ns: self.max_ns,
            mean_ns: self.sum_ns / self.counted as f64,
        })
    }

    /// Limits of the classes; `None` if nothing is counted or the durations do not differ.
    pub(super) fn limits(&self) -> Option<Limits> {
        let quantiles = self.quantiles()?;
        let mut descending: Vec<(u64, u64)> = self
            .durations
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        descending.reverse();
        let (rule, from, between) = match gap::find(descending.into_iter(), self.counted) {
            Some(gap) => (SlowRule::Gap, gap.from, gap.strays),
            None => (SlowRule::P99, quantiles.p99_ns as u64, 0),
        };
        let limits = Limits {
            rule,
            slow_from: self.durations.lowest_equivalent(from) as i64,
            typical_up_to: quantiles.p50_ns,
            between,
        };
        (limits.slow_from > limits.typical_up_to).then_some(limits)
    }
}

/// Adds a batch of visits, with [`COLUMNS`], to their probes' tallies.
pub(super) fn add(
    batch: &RecordBatch,
    losses: LossVisits,
    slots: &mut Slots<Tally>,
) -> Result<(), ReadError> {
    let probes = column_u16(batch, 0)?.values();
    let items = column_u64(batch, 1)?.values();
    let durations = column_i64(batch, 2)?;
    let flags = column_u32(batch, 3)?.values();
    let samples = column_u32(batch, 4)?.values();
    for row in 0..batch.num_rows() {
        let Some((_, tally)) = slots.of(probes[row]) else {
            continue;
        };
        let duration = durations.is_valid(row).then(|| durations.value(row));
        tally.items.insert(items[row]);
        let standing = Standing::of(duration, flags[row], losses);
        tally.add(standing, flags[row], samples[row]);
    }
    Ok(())
}
