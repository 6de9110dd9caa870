//! Why a trace or item can't be exported.

use std::io;

use thiserror::Error;

use super::NoneSlow;
use crate::compare::classes::CPU_TIME_HINT;
use crate::failure::Hint;
use crate::store::reader::ReadError;

/// Why a trace was not exported.
#[derive(Debug, Error)]
pub(crate) enum ExportError {
    /// The trace can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No visit was recorded.
    #[error("no visits in trace {trace}")]
    NoVisits { trace: String },
    /// No visit has this item id.
    #[error("no item {item} in trace {trace}")]
    NoItem {
        trace: String,
        /// The requested id.
        item: u64,
        /// Ids of the items of the longest visits, longest first.
        slowest: Vec<u64>,
    },
    /// No visit is slow by the rule, or none with complete data.
    #[error("no slow visits in trace {trace}: {reason}")]
    NoneSlow { trace: String, reason: NoneSlow },
    /// Slow visits by time on the CPU were selected, and that is unknown.
    #[error(
        "cannot set visits of trace {trace} apart by time on the CPU: switches were not recorded"
    )]
    NoCpuTime { trace: String },
    /// Visits were selected, and all were left out.
    #[error(
        "nothing to export of trace {trace}: {loss} overlap a loss, of {open} the end is unknown"
    )]
    Nothing { trace: String, loss: u64, open: u64 },
    /// Nothing has a weight.
    #[error("nothing to export of trace {trace}: the visits have no samples and no waits")]
    Empty { trace: String },
    /// The result can't be written.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
}

impl Hint for ExportError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Read(error) => error.hint(),
            Self::NoVisits { trace } => Some(format!(
                "'pebs-trace report {trace}' says what was recorded and what was lost"
            )),
            Self::NoItem { slowest, .. } => {
                let ids: Vec<String> = slowest.iter().map(u64::to_string).collect();
                Some(format!("the slowest items are {}", ids.join(", ")))
            }
            Self::NoneSlow { .. } => {
                Some("give a lower limit, such as --slow p90, or leave --slow out".to_owned())
            }
            Self::NoCpuTime { .. } => Some(CPU_TIME_HINT.to_owned()),
            Self::Nothing { .. } | Self::Empty { .. } => {
                Some("--all takes visits that overlap a loss, too".to_owned())
            }
            Self::Write(error) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Some("name a file on a disk with more room".to_owned())
                }
                _ => None,
            },
        }
    }
}
