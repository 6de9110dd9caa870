//! Exact distribution of lengths of time.

use crate::compare::classes::quantile;
use crate::compare::report::model::Quantiles;

/// Lengths of time, exact. Memory: 8 bytes each.
#[derive(Default)]
pub(crate) struct Lengths {
    pub all: Vec<i64>,
    pub sum: i64,
}

impl Lengths {
    pub(crate) fn add(&mut self, ns: i64) {
        self.all.push(ns);
        self.sum = self.sum.saturating_add(ns);
    }

    pub(crate) fn quantiles(&mut self) -> Option<Quantiles> {
        self.all.sort_unstable();
        let last = self.all.len().checked_sub(1)?;
        Some(Quantiles {
            p50_ns: quantile(&self.all, 0.5),
            p90_ns: quantile(&self.all, 0.9),
            p99_ns: quantile(&self.all, 0.99),
            max_ns: self.all[last],
            mean_ns: self.sum as f64 / self.all.len() as f64,
        })
    }
}
