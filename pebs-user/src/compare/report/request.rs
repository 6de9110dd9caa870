//! Options of a report, and the errors.

use thiserror::Error;

use crate::compare::classes::{RankBy, SlowBy};
use crate::compare::losses::LossVisits;
use crate::compare::probe::NoProbe;
use crate::store::reader::ReadError;
use crate::units::ProbeId;

/// Options of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportOptions {
    /// Only this probe.
    pub probe: Option<ProbeId>,
    /// Number of the slowest visits to list, for each probe.
    pub slowest: usize,
    /// Number of functions to list, in each list.
    pub top: usize,
    /// Visits that overlap a loss.
    pub losses: LossVisits,
    /// Rule for slow visits; `None`: beyond a gap in the durations, else p99.
    pub(crate) slow: Option<SlowBy>,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            probe: None,
            slowest: 10,
            top: 15,
            losses: LossVisits::LeaveOut,
            slow: None,
        }
    }
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The trace can't be read.
    Read(#[from] ReadError),
    NoProbe(#[from] NoProbe),
    /// Time on the CPU was asked for, and is unknown.
    NoCpuTime {
        trace: String,
    },
}

/// Whether time on the CPU takes the place of durations.
pub(crate) fn by_cpu_time(options: &ReportOptions) -> bool {
    options.slow.is_some_and(|it| it.by == RankBy::CpuTime)
}
