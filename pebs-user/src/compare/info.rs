//! Information on a trace: its recording, its tables, and its losses.

use std::fs;

use serde::Serialize;

use super::losses::{self, LossSum};
use crate::store::reader::{ReadError, Trace, TraceState};
use crate::store::run::RunInfo;
use crate::store::schema::Table;

/// Information on a trace without reading its rows, except those of `losses`.
#[derive(Debug, Serialize)]
pub(crate) struct Info {
    /// Directory, as typed.
    pub trace: String,
    /// `complete`, `live` or `unfinished`.
    pub state: &'static str,
    /// The tables that have rows.
    pub tables: Vec<Held>,
    /// Losses, by reason.
    pub losses: Vec<LossSum>,
    /// `trace.json`.
    pub run: RunInfo,
}

/// Size of a table.
#[derive(Debug, Serialize)]
pub(crate) struct Held {
    pub table: Table,
    pub rows: u64,
    /// Size of its closed segments.
    pub bytes: u64,
    /// Number of these segments.
    pub segments: usize,
}

/// Reads footers of the segments and the table of losses.
///
/// # Errors
/// If one of these is damaged.
pub(crate) fn read(trace: &Trace) -> Result<Info, ReadError> {
    let mut tables = Vec::new();
    for table in Table::ALL {
        let segments = trace.segments(table);
        // One that goes away meanwhile has no size.
        let sizes = segments.iter().filter_map(|path| fs::metadata(path).ok());
        let held = Held {
            table,
            rows: trace.rows(table)?,
            bytes: sizes.map(|file| file.len()).sum(),
            segments: segments.len(),
        };
        tables.extend((held.rows > 0).then_some(held));
    }
    Ok(Info {
        trace: trace.dir.display().to_string(),
        state: match trace.state() {
            TraceState::Complete => "complete",
            TraceState::Live => "live",
            TraceState::Unfinished => "unfinished",
        },
        tables,
        losses: losses::losses(trace)?,
        run: trace.info.clone(),
    })
}
