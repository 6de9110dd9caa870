//! Collects rows before they are added to columns: many at once cost a column little more than one.

use std::fmt::Debug;

use crate::store::columns::Chunk;
use crate::store::row_columns::{Extend, RowColumns};

/// Rows waiting for their columns.
pub(in crate::store) trait Waiting<C>: Debug + Default {
    /// Number of rows.
    fn len(&self) -> usize;

    /// Appends the rows to the columns.
    fn add_to(&self, columns: &mut C);

    /// Drops the rows; keeps the memory.
    fn clear(&mut self);
}

/// Rows in the columns' own row type.
impl<C: Extend<Row>, Row: Debug> Waiting<C> for Vec<Row> {
    fn len(&self) -> usize {
        self.len()
    }

    fn add_to(&self, columns: &mut C) {
        columns.extend(self);
    }

    fn clear(&mut self) {
        self.clear();
    }
}

/// Columns, and rows waiting for them.
#[derive(Debug, Default)]
pub(in crate::store) struct Batched<C, W> {
    columns: C,
    waiting: W,
}

impl<C: RowColumns, W: Waiting<C>> Batched<C, W> {
    /// Adds waiting rows with `more`; from `many` rows on, appends all to the columns.
    #[inline]
    pub(super) fn wait(&mut self, many: usize, more: impl FnOnce(&mut W)) {
        more(&mut self.waiting);
        if self.waiting.len() >= many {
            self.settle();
        }
    }

    /// Adds rows to the columns directly, after the waiting ones.
    pub(super) fn add(&mut self, more: impl FnOnce(&mut C)) {
        if self.waiting.len() > 0 {
            self.settle();
        }
        more(&mut self.columns);
    }

    #[inline(never)]
    fn settle(&mut self) {
        self.waiting.add_to(&mut self.columns);
        self.waiting.clear();
    }
}

/// Rows per batch, for rows of some hundred bytes.
const ROWS: usize = 128;

impl<C: Extend<Row>, Row: Debug> Batched<C, Vec<Row>> {
    /// Appends a row, to be filled in place: a large row made elsewhere would be written twice.
    #[inline(always)]
    pub(in crate::store) fn push_default(&mut self) -> &mut Row
    where
        Row: Default,
    {
        if self.waiting.len() >= ROWS {
            self.settle();
        }
        let at = self.waiting.len();
        self.waiting.push(Row::default());
        &mut self.waiting[at]
    }
}

impl<C: RowColumns, W: Waiting<C>> RowColumns for Batched<C, W> {
    #[inline]
    fn rows(&self) -> usize {
        self.columns.rows() + self.waiting.len()
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.columns.is_full()
    }

    fn end(&mut self) -> Vec<Chunk<'_>> {
        self.settle();
        self.columns.end()
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.columns.clear();
    }

    fn end_segment(&mut self) {
        self.columns.end_segment();
    }
}
