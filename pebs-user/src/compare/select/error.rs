//! Why a trace or item can't be exported.

use std::io;

use thiserror::Error;

use super::NoneSlow;
use crate::store::reader::ReadError;

/// Why a trace was not exported.
#[derive(Debug, Error)]
pub(crate) enum ExportError {
    /// The trace can't be read.
    Read(#[from] ReadError),
    /// No visit was recorded.
    NoVisits { trace: String },
    /// No visit has this item id.
    NoItem {
        trace: String,
        /// The requested id.
        item: u64,
        /// Ids of the items of the longest visits, longest first.
        slowest: Vec<u64>,
    },
    /// No visit is slow by the rule, or none with complete data.
    NoneSlow { trace: String, reason: NoneSlow },
    /// Slow visits by time on the CPU were selected, and that is unknown.
    NoCpuTime { trace: String },
    /// Visits were selected, and all were left out.
    Nothing { trace: String, loss: u64, open: u64 },
    /// Nothing has a weight.
    Empty { trace: String },
    /// The result can't be written.
    Write(#[from] io::Error),
}
