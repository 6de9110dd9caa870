//! All clock arithmetic: `CLOCK_MONOTONIC` and the perf clock to the trace clock.
//!
//! The trace clock is `CLOCK_MONOTONIC` less the instant at which the trace began. The perf clock
//! drifts against it by some tens of ns a second and has another origin. Pairs of both clocks are
//! taken during the run; the second of a pair is read a moment after the first, so its offset is
//! never too small: the smallest offset of each window is the best one.
//!
//! Assumption: within a window of a second the drift is small against the delay between the
//! two reads (50 ns in a second against a p50 of 30..100 ns). Worked number: offsets 1030, 1004
//! and 1090 in a window give 1004, residuals 26, 0 and 86 ns.

use serde::{Deserialize, Serialize};

use pebs_common::record::MarkClock;

use crate::units::{KtimeNs, PerfNs, TraceNs};

/// Residual of the clock conversion, ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockError {
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile: the bound used for flagging.
    pub p99_ns: f64,
    /// Number of clock pairs measured.
    pub pairs: u64,
}

/// Length of a window of pairs.
const WINDOW_NS: u64 = 1_000_000_000;

/// Most residuals kept for the error's quantiles; beyond that, every n-th is kept.
const RESIDUALS: usize = 4096;

/// The smallest offset in a window.
#[derive(Clone, Copy, Debug)]
struct Knot {
    perf: u64,
    /// `CLOCK_MONOTONIC` - perf clock.
    offset: i64,
}

/// Converts both kernel clocks to the trace clock.
#[derive(Debug)]
pub struct Clock {
    origin: KtimeNs,
    /// Best pairs of the last two closed windows.
    closed: [Option<Knot>; 2],
    /// Best pair of the open window.
    current: Option<Knot>,
    window_start: u64,
    residuals: Vec<u32>,
    pairs: u64,
}

impl Clock {
    /// Returns a clock whose time 0 is `origin`.
    #[must_use]
    pub fn new(origin: KtimeNs) -> Self {
        Self {
            origin,
            closed: [None; 2],
            current: None,
            window_start: 0,
            residuals: Vec::new(),
            pairs: 0,
        }
    }

    /// Converts a time on `CLOCK_MONOTONIC`. Cost: a subtraction.
    #[must_use]
    pub const fn trace_of_ktime(&self, ktime: KtimeNs) -> TraceNs {
        TraceNs(ktime.0.wrapping_sub(self.origin.0) as i64)
    }

    /// Converts the time of a mark.
    #[must_use]
    pub const fn trace_of_mark(&self, clock: MarkClock) -> TraceNs {
        TraceNs(clock.since(self.origin.0))
    }

    /// Converts a time on the perf clock, by the latest offsets; unconverted before the first pair.
    #[must_use]
    pub fn trace_of_perf(&self, perf: PerfNs) -> TraceNs {
        let ktime = perf.0.wrapping_add_signed(self.offset_at(perf.0));
        self.trace_of_ktime(KtimeNs(ktime))
    }

    /// Whether perf times can be converted.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.current.is_some()
    }

    /// Adds a pair: the perf clock, and `CLOCK_MONOTONIC` read right after it.
    pub fn observe(&mut self, perf: PerfNs, ktime: KtimeNs) {
        let offset = ktime.0.wrapping_sub(perf.0) as i64;
        let knot = Knot {
            perf: perf.0,
            offset,
        };
        self.pairs += 1;
        match self.current {
            Some(_) if perf.0.wrapping_sub(self.window_start) as i64 >= WINDOW_NS as i64 => {
                self.closed = [self.closed[1], self.current.replace(knot)];
                self.window_start = perf.0;
            }
            Some(best) => {
                self.keep_residual(offset.wrapping_sub(self.offset_at(perf.0)).unsigned_abs());
                if offset < best.offset {
                    self.current = Some(knot);
                }
            }
            None => {
                self.current = Some(knot);
                self.window_start = perf.0;
            }
        }
    }

    /// Residual of the conversion; `None` before the second pair.
    #[must_use]
    pub fn error(&self) -> Option<ClockError> {
        let mut sorted = self.residuals.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let quantile = |q: f64| f64::from(sorted[(last as f64 * q).round() as usize]);
        Some(ClockError {
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            pairs: self.pairs,
        })
    }

    /// Offset at a perf time: on the line through the best pairs of the last two closed windows.
    /// Without two, or if they are too close for a slope, the latest of them.
    fn offset_at(&self, perf: u64) -> i64 {
        let [before, last] = self.closed;
        let Some(last) = last.or(self.current) else {
            return 0;
        };
        let Some(before) = before else {
            return last.offset;
        };
        let span = last.perf.wrapping_sub(before.perf) as i64;
        if span < WINDOW_NS as i64 / 2 {
            return last.offset;
        }
        let slope = last.offset.wrapping_sub(before.offset) as f64 / span as f64;
        let ahead = perf.wrapping_sub(last.perf) as i64;
        last.offset.wrapping_add((slope * ahead as f64) as i64)
    }

    fn keep_residual(&mut self, residual: u64) {
        let residual = u32::try_from(residual).unwrap_or(u32::MAX);
        if self.residuals.len() < RESIDUALS {
            self.residuals.push(residual);
        } else {
            self.residuals[self.pairs as usize % RESIDUALS] = residual;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a drift of 50 ns/s and delays of up to 500 ns, converted times are right to 100 ns.
    #[test]
    fn drift_and_delay() {
        let mut clock = Clock::new(KtimeNs(5_000_000_000));
        let truth = |perf: u64| 5_000_000_000 + perf + perf / 20_000_000;
        let mut seed = 1u64;
        for tick in 0..1000u64 {
            let perf = tick * 10_000_000;
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let delay = (seed >> 40) % 500;
            clock.observe(PerfNs(perf), KtimeNs(truth(perf) + delay));
            if tick > 250 {
                let later = perf + 7_000_000;
                let error =
                    clock.trace_of_perf(PerfNs(later)).0 - (truth(later) - 5_000_000_000) as i64;
                assert!(error.abs() < 100, "off by {error} ns at {later}");
            }
        }
        let error = clock.error().unwrap();
        assert!(error.p50_ns > 50.0 && error.p99_ns < 1000.0, "{error:?}");
    }
}
