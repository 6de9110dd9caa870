//! Columns of a batch, read by their declared names and types.

use arrow_array::RecordBatch;

use super::read_error::ReadError;
use super::reader::Trace;
use super::scan::Scan;
use super::table::Table;
pub use super::values::{Cell, Nullables, Values, View};

/// A column of a table, as declared in [`super::schema`].
pub trait Named {
    /// Type by which it is read.
    type View<'a>: View<'a>;
    const NAME: &'static str;
}

/// Finds a column of a batch.
///
/// # Errors
/// The column was not read, or is of another type.
pub fn view<N: Named>(batch: &RecordBatch) -> Result<N::View<'_>, ReadError> {
    view_of(batch, N::NAME)
}

/// Finds a column of a batch by a name that is not declared, such as an argument's.
pub(super) fn view_of<'a, V: View<'a>>(batch: &'a RecordBatch, name: &str) -> Result<V, ReadError> {
    let column = || name.to_owned();
    let array = batch.column_by_name(name);
    let array = array.ok_or_else(|| ReadError::NotRead { column: column() })?;
    V::of(array.as_ref()).ok_or_else(|| ReadError::Type {
        column: column(),
        found: array.data_type().clone(),
    })
}

/// Some columns of a table: made by [`columns!`](crate::columns), or all of them (`visits::All`).
pub trait Select<'a>: Sized {
    const TABLE: Table;
    /// Names of the columns.
    const NAMES: &'static [&'static str];

    /// Finds the columns in a batch, which may have others.
    ///
    /// # Errors
    /// The batch lacks one.
    fn of(batch: &'a RecordBatch) -> Result<Self, ReadError>;

    /// Reads these columns, as [`Trace::scan`] does.
    ///
    /// # Errors
    /// As [`Trace::scan`].
    fn scan(trace: &Trace) -> Result<Scan, ReadError> {
        trace.scan(Self::TABLE, Self::NAMES)
    }
}

pub use crate::columns;
