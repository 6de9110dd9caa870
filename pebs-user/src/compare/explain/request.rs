//! Options of an explanation, and the errors.

use serde::Serialize;
use thiserror::Error;

use crate::compare::classes::SlowBy;
use crate::compare::losses::LossVisits;
use crate::compare::probe::NoProbe;
use crate::compare::remarks::NeverEnded;
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
    /// Whether changes over the recording are searched.
    pub when: bool,
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
            when: false,
        }
    }
}

/// The item to look at.
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
    Read(#[from] ReadError),
    NoProbe(#[from] NoProbe),
    /// No column to group by.
    NoColumn {
        trace: String,
        /// As typed.
        column: String,
        /// The columns that there are, the closest first.
        known: Vec<String>,
    },
    /// Details of typical items of a group are not there.
    NotKept {
        trace: String,
        /// As typed.
        column: String,
        /// `slow` or `none`.
        kept: String,
    },
    /// The trace has no items to explain.
    NoItems {
        trace: String,
        reason: NoItems,
    },
    /// Most items never ended.
    NeverEnded {
        trace: String,
        ended: NeverEnded,
    },
    /// Time on the CPU was asked for, and is unknown.
    NoCpuTime {
        trace: String,
    },
    /// Time on the CPU was asked for, of one item.
    OneByCpuTime,
    /// No visit has this number.
    NoVisit {
        trace: String,
        visit_id: u64,
        /// The last visit that counts.
        last: u64,
    },
    /// No item has this id.
    NoItem {
        trace: String,
        item_id: u64,
        reason: NoItem,
    },
}

/// Why a trace has no items to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoItems {
    NoVisits,
    NoneEnded {
        visits: u64,
    },
    /// Each overlaps a loss or did not end.
    NoneWhole {
        visits: u64,
    },
}

/// Why an item can't be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoItem {
    /// It overlaps a loss or did not end.
    LeftOut,
    InNoGroup,
    /// There is none; the ids that there are.
    Unknown {
        first: u64,
        last: u64,
        closest: u64,
    },
}
