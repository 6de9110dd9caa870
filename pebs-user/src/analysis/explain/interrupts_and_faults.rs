//! What came between an item's threads and their work, by item: time that is part of its others. What a slower clock
//! took is such a time, too.

use arrow::array::{Array, Int64Array, RecordBatch};

use crate::analysis::report::interrupts_and_faults;
use crate::store::reader::{ReadError, column_i64};

/// Columns of `visits` that are needed: all that are times.
pub(super) const COLUMNS: [&str; 3] = times(interrupts_and_faults::COLUMNS);

/// What they tell, in the order of [`Times`].
pub(super) const WHAT: [&str; KINDS] = {
    let [irq, softirq, fault] = times(interrupts_and_faults::WHAT);
    [irq, softirq, fault, "slower clock"]
};

const fn times([irq, softirq, fault, _major]: [&str; 4]) -> [&str; 3] {
    [irq, softirq, fault]
}

/// How many there are: those of [`COLUMNS`], and [`SLOWER_CLOCK`].
pub(super) const KINDS: usize = 4;

/// Place of the time that a clock as fast as the fastest of the recording would have saved.
pub(super) const SLOWER_CLOCK: usize = 3;

/// Times of an item, ns; `None`: not recorded. In half the bytes of the columns, and exact to a 16-millionth.
pub(in crate::analysis) type Times = [Option<f32>; KINDS];

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
        let [irq, softirq, fault] = self.0.map(value);
        [irq, softirq, fault, None]
    }
}

/// Adds the times of another visit; what is not known of one is not of both.
pub(super) fn add(own: &mut Times, more: Times) {
    for (own, more) in own.iter_mut().zip(more) {
        *own = own.zip(more).map(|(own, more)| own + more);
    }
}
