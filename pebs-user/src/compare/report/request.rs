//! Options of a report, and the errors.

use thiserror::Error;

use crate::compare::classes::{CPU_TIME_HINT, RankBy, SlowBy};
use crate::compare::losses::LossVisits;
use crate::failure::Hint;
use crate::store::reader::{ReadError, Trace};
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
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace has no such probe.
    #[error("no probe {} in trace {trace}", probe.0)]
    NoProbe {
        trace: String,
        /// The requested probe.
        probe: ProbeId,
        /// Numbers and SPECs of the probes of the trace.
        known: Vec<String>,
    },
    /// Time on the CPU was asked for, and is unknown.
    #[error(
        "cannot set items of trace {trace} apart by time on the CPU: switches were not recorded"
    )]
    NoCpuTime { trace: String },
}

impl Hint for ReportError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Read(error) => error.hint(),
            Self::NoProbe { known, .. } if known.is_empty() => Some("it has none".to_owned()),
            Self::NoProbe { known, .. } => Some(format!("there are {}", known.join(", "))),
            Self::NoCpuTime { .. } => Some(CPU_TIME_HINT.to_owned()),
        }
    }
}

pub(crate) fn check_probe(trace: &Trace, options: &ReportOptions) -> Result<(), ReportError> {
    let probes = &trace.info.probes;
    match options.probe {
        Some(probe) if probes.iter().all(|known| known.id != probe) => Err(ReportError::NoProbe {
            trace: trace.dir.display().to_string(),
            probe,
            known: probes
                .iter()
                .map(|known| format!("{} ({})", known.id.0, known.spec))
                .collect(),
        }),
        _ => Ok(()),
    }
}

/// Whether time on the CPU takes the place of durations.
pub(crate) fn by_cpu_time(options: &ReportOptions) -> bool {
    options.slow.is_some_and(|it| it.by == RankBy::CpuTime)
}
