//! Rows wait until there are many: a column takes many at once for little more than one.

use std::fmt::Debug;

use super::{Chunk, RowColumns};

/// Columns that rows of a type can be added to.
pub trait Extend<Row>: RowColumns {
    /// Appends rows, column by column.
    fn extend(&mut self, rows: &[Row]);
}

/// Rows that wait for their columns.
pub trait Waiting<C>: Debug + Default {
    /// How many there are.
    fn len(&self) -> usize;

    /// Adds them to the columns, where they count.
    fn add_to(&self, columns: &mut C);

    /// Forgets them, keeps the room.
    fn clear(&mut self);
}

/// Rows that are columns' rows already.
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

/// Columns, and rows that wait for them.
#[derive(Debug, Default)]
pub struct Batched<C, W> {
    columns: C,
    waiting: W,
}

impl<C: RowColumns, W: Waiting<C>> Batched<C, W> {
    /// Lets rows wait; if that makes `many`, all go to the columns.
    #[inline]
    pub(super) fn wait(&mut self, many: usize, more: impl FnOnce(&mut W)) {
        more(&mut self.waiting);
        if self.waiting.len() >= many {
            self.settle();
        }
    }

    /// Adds rows to the columns behind those that wait.
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

/// Rows at once where each takes some hundred bytes.
const ROWS: usize = 128;

impl<C: Extend<Row>, Row: Debug> Batched<C, Vec<Row>> {
    /// Appends a row, to be filled where it lies: a large one that is made elsewhere is written twice.
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
