//! Traits of the columns of every table.

use std::fmt::Debug;

use super::columns::Chunk;

/// Maximum rows of a row group; bounds the memory. With a quarter of it a trace would be 2 % larger.
pub(super) const GROUP_ROWS: usize = 256 * 1024;

/// Operations of the writer on the columns of any table.
pub(super) trait RowColumns: Debug {
    /// Rows held.
    fn rows(&self) -> usize;

    /// Whether the rows should be written before more are added.
    fn is_full(&self) -> bool;

    /// Ends the last pages and returns the chunks, in the schema's order.
    fn end(&mut self) -> Vec<Chunk<'_>>;

    /// Drops the rows; keeps the memory and the data shared by the row groups of a segment.
    fn clear(&mut self);

    /// Drops the data shared by the row groups of a segment. There are no rows.
    fn end_segment(&mut self);
}

/// Columns that can take rows of a type.
pub(super) trait Extend<Row>: RowColumns {
    /// Appends rows, column by column.
    fn extend(&mut self, rows: &[Row]);
}
