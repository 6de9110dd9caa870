//! Options of an explanation, and the errors.

use serde::Serialize;
use thiserror::Error;

use crate::compare::classes::{CPU_TIME_HINT, SlowBy};
use crate::compare::losses::LossVisits;
use crate::compare::remarks::NeverEnded;
use crate::failure::Hint;
use crate::store::reader::ReadError;
use crate::units::ProbeId;

/// Unit to explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Each visit separately.
    #[default]
    Visit,
    /// All visits with the same item id, from the first begin to the last end.
    Item,
}

/// Options of an explanation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExplainOptions {
    /// Only this probe.
    pub probe: Option<ProbeId>,
    /// Arguments to group by; empty: grouped automatically.
    pub group_by: Vec<String>,
    /// Rule for slow items; `None`: beyond a gap in the durations, else p99.
    pub slow: Option<SlowBy>,
    /// Unit to explain; `None`: derived from the probes.
    pub unit: Option<Unit>,
    /// Visits that overlap a loss.
    pub losses: LossVisits,
    /// Causes to list.
    pub top: usize,
}

impl Default for ExplainOptions {
    fn default() -> Self {
        Self {
            probe: None,
            group_by: Vec::new(),
            slow: None,
            unit: None,
            losses: LossVisits::LeaveOut,
            top: 15,
        }
    }
}

/// Which item to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemChoice {
    /// The longest with this id.
    Item(u64),
    Visit(u64),
}

/// Why there is no explanation.
#[derive(Debug, Error)]
pub(crate) enum ExplainError {
    /// The trace can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace has no such probe.
    #[error("no probe {probe} in trace {trace}")]
    NoProbe {
        trace: String,
        /// The requested probe.
        probe: u16,
        /// Numbers and SPECs of the probes of the trace.
        known: Vec<String>,
    },
    /// No column to group by.
    #[error("cannot group by '{column}': trace {trace} has no such argument")]
    NoColumn {
        trace: String,
        /// As typed.
        column: String,
        /// The columns that there are, the closest first.
        known: Vec<String>,
    },
    /// Details of typical items of a group are not there.
    #[error("cannot group by '{column}': trace {trace} kept the details of {kept} items only")]
    NotKept {
        trace: String,
        /// As typed.
        column: String,
        /// `slow` or `none`.
        kept: String,
    },
    /// The trace has no items to explain.
    #[error("cannot explain trace {trace}: {reason}")]
    Nothing {
        trace: String,
        /// Why.
        reason: String,
        /// Advice to the user.
        hint: String,
    },
    /// Most items never ended.
    #[error("cannot explain trace {trace}: {ended}")]
    NeverEnded { trace: String, ended: NeverEnded },
    /// Time on the CPU was asked for, and is unknown.
    #[error(
        "cannot set items of trace {trace} apart by time on the CPU: switches were not recorded"
    )]
    NoCpuTime { trace: String },
    /// Time on the CPU was asked for, of one item.
    #[error("cannot show one item by time on the CPU")]
    OneByCpuTime,
    /// No such item.
    #[error("no {what} {number} in trace {trace}")]
    NoItem {
        trace: String,
        /// `item` or `visit`.
        what: &'static str,
        /// As typed.
        number: u64,
        /// Advice: the items there are.
        hint: String,
    },
}

impl Hint for ExplainError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Read(error) => error.hint(),
            Self::NoProbe { known, .. } if known.is_empty() => Some("it has none".to_owned()),
            Self::NoProbe { known, .. } => Some(format!("there are {}", known.join(", "))),
            Self::NoColumn { known, .. } => Some(format!("there are {}", known.join(", "))),
            Self::NotKept { .. } => Some(
                "leave --group-by out, or record without --keep to compare within groups"
                    .to_owned(),
            ),
            Self::NeverEnded { .. } => {
                Some("give id= at both ends of the SPEC, and record again".to_owned())
            }
            Self::NoCpuTime { .. } => Some(CPU_TIME_HINT.to_owned()),
            Self::OneByCpuTime => Some(
                "leave 'cpu' out of --slow: its time on the CPU and its functions are shown"
                    .to_owned(),
            ),
            Self::Nothing { hint, .. } | Self::NoItem { hint, .. } => Some(hint.clone()),
        }
    }
}
