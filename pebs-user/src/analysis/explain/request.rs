//! What can be asked of an explanation, and why there may be none.

use serde::Serialize;
use thiserror::Error;

use crate::analysis::report::LossVisits;
use crate::estimate::baseline::Rule;
use crate::failure::Hint;
use crate::store::reader::ReadError;
use crate::units::ProbeId;

/// What is explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Each visit by itself.
    #[default]
    Visit,
    /// All visits with the same item id, from the first begin to the last end.
    Item,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExplainOptions {
    /// Only this probe.
    pub probe: Option<ProbeId>,
    /// Arguments whose values make groups; none: found by themselves.
    pub group_by: Vec<String>,
    /// What is slow; none: beyond a gap in the durations, else p99.
    pub slow: Option<Rule>,
    /// What is explained; none: what follows from the probes.
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
pub(crate) enum Which {
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
        /// The probe asked for.
        probe: u16,
        /// Numbers and SPECs of those that there are.
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
    /// Nothing to explain.
    #[error("cannot explain trace {trace}: {reason}")]
    Nothing {
        trace: String,
        /// Why.
        reason: String,
        /// What to do.
        hint: String,
    },
    /// No such item.
    #[error("no {what} {number} in trace {trace}")]
    NoItem {
        trace: String,
        /// `item` or `visit`.
        what: &'static str,
        /// As typed.
        number: u64,
        /// What there is instead.
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
            Self::Nothing { hint, .. } | Self::NoItem { hint, .. } => Some(hint.clone()),
        }
    }
}
