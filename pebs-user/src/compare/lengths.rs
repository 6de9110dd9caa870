//! Exact distribution of lengths of time.

use pebs_stats::summary::exact_quantile;
use serde::Serialize;

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

/// Quantiles of durations, exact: each is one of the durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50_ns: i64,
    /// 90th percentile.
    pub p90_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// Longest.
    pub max_ns: i64,
    pub mean_ns: f64,
}

/// The duration that this share of items, at least one and sorted, does not exceed: one of theirs; 0 if there are none.
pub(crate) fn quantile(sorted: &[i64], share: f64) -> i64 {
    exact_quantile(sorted, share).unwrap_or_default()
}
