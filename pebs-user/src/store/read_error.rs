//! Errors of reading a trace.

use crate::failure::Hint;
use std::io;
use std::path::{Path, PathBuf};

use arrow_schema::DataType;
use thiserror::Error;

use super::table::{OLDEST_SCHEMA, SCHEMA_VERSION, Table};

/// An error of reading a trace.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The path does not exist.
    #[error("cannot read trace {}: no such directory", path.display())]
    Missing {
        /// The trace's directory.
        path: PathBuf,
    },
    /// The path is not a trace of this program.
    #[error("cannot read {}: not a trace ({reason})", path.display())]
    Foreign {
        /// Path given as a trace.
        path: PathBuf,
        /// Reason for that.
        reason: String,
    },
    /// `trace.json` is malformed.
    #[error("cannot read {}: damaged", path.display())]
    Info {
        /// Path of `trace.json`.
        path: PathBuf,
        /// A table that can be read without `trace.json`; `None`: no segment is closed.
        readable: Option<Table>,
        source: serde_json::Error,
    },
    /// A later version wrote the trace.
    #[error(
        "cannot read trace {}: written by pebs-trace {tool}, schema {schema}; this one reads up to {SCHEMA_VERSION}",
        path.display()
    )]
    Future {
        /// The trace's directory.
        path: PathBuf,
        /// Version of the program that wrote it.
        tool: String,
        schema: u32,
    },
    /// The trace is of a version that is no longer read.
    #[error(
        "cannot read trace {}: written by pebs-trace {tool}, schema {schema}; this one reads from {OLDEST_SCHEMA} on",
        path.display()
    )]
    Past {
        /// The trace's directory.
        path: PathBuf,
        /// Version of the program that wrote it.
        tool: String,
        schema: u32,
    },
    /// A segment is incomplete, or not of its table.
    #[error("cannot read {}: truncated or damaged", path.display())]
    Damaged {
        /// The segment's file.
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The trace has no such column.
    #[error("no column '{column}' in table {} of trace {}", table.name(), path.display())]
    NoColumn {
        /// The trace's directory.
        path: PathBuf,
        table: Table,
        /// The requested column.
        column: String,
        /// Existing columns.
        known: Vec<String>,
    },
    /// A column was not among those read.
    #[error("column '{column}' was not read")]
    NotRead { column: String },
    /// A column has another type than in the schema.
    #[error("column '{column}' is {found}")]
    Type { column: String, found: DataType },
    /// Permission or disk.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        source: io::Error,
    },
}

impl ReadError {
    /// An I/O error at a path.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// A segment that is malformed.
    pub(super) fn damaged(
        path: &Path,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

impl Hint for ReadError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { path } => {
                Some(format!("'ls -d {}*' shows what there is", path.display()))
            }
            Self::Foreign { .. } => Some(
                "give the directory that pebs-trace named at the end of the run, the one with \
                 trace.json in it"
                    .to_owned(),
            ),
            Self::Info {
                path,
                readable: Some(table),
                ..
            } => Some(format!(
                "closed segments can still be queried, for example select * from '{}/{}/*.parquet'",
                path.parent().unwrap_or(Path::new(".")).display(),
                table.name()
            )),
            Self::Info { readable: None, .. } => Some(
                "no segment of its tables is closed, and open ones are recovered by it only; copy the whole trace \
                 again from where it was recorded"
                    .to_owned(),
            ),
            Self::Future { tool, .. } => Some(format!("read it with pebs-trace {tool} or later")),
            Self::Past { tool, .. } => Some(format!("read it with pebs-trace {tool}")),
            Self::Damaged { path, .. } if path.extension().is_some() => Some(format!(
                "copy it again from where the trace was recorded, or move {} away to read the rest",
                path.display()
            )),
            Self::Damaged { .. } => {
                Some("copy the whole trace again from where it was recorded".to_owned())
            }
            Self::NoColumn { known, .. } => Some(format!("there are {}", known.join(", "))),
            Self::Io { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some(format!(
                    "'ls -ld {}' shows who may read it; a trace belongs to the user who recorded it",
                    path.display()
                ))
            }
            Self::Io { .. } | Self::NotRead { .. } | Self::Type { .. } => None,
        }
    }
}
