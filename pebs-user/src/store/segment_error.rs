//! Errors of writing and reading segments.

use std::io;

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;
use thiserror::Error;

use super::read_error::ReadError;

/// A failure below the writer; the caller adds which file it was.
#[derive(Debug, Error)]
pub(super) enum SegmentError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("its columns are not those of its table in trace.json")]
    Foreign,
    #[error("{found} rows can be read back of {expected} written")]
    Short { expected: u64, found: u64 },
}
