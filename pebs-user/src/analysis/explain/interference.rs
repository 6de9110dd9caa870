//! What came between an item's threads and their work, by item: time that is part of its others.

use arrow::array::{Array, Int64Array, RecordBatch};

use crate::store::reader::{ReadError, column_i64};

/// Columns of `visits` that are needed.
pub(super) const COLUMNS: [&str; 3] = ["irq_ns", "softirq_ns", "fault_ns"];

/// Times of an item in the order of [`COLUMNS`], ns; `None`: not recorded. In half the bytes of the columns, and
/// exact to a 16-millionth.
pub(in crate::analysis) type Times = [Option<f32>; 3];

/// The columns of a batch.
pub(super) struct TimeArrays<'a>([&'a Int64Array; 3]);

impl<'a> TimeArrays<'a> {
    /// The columns from `first` on.
    pub(super) fn of(batch: &'a RecordBatch, first: usize) -> Result<Self, ReadError> {
        Ok(Self([
            column_i64(batch, first)?,
            column_i64(batch, first + 1)?,
            column_i64(batch, first + 2)?,
        ]))
    }

    /// The times of a row.
    pub(super) fn get(&self, row: usize) -> Times {
        let value = |array: &Int64Array| array.is_valid(row).then(|| array.value(row) as f32);
        self.0.map(value)
    }
}

/// Adds the times of another visit; what is not known of one is not of both.
pub(super) fn add(own: &mut Times, more: Times) {
    for (own, more) in own.iter_mut().zip(more) {
        *own = own.zip(more).map(|(own, more)| own + more);
    }
}
