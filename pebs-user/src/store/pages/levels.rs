//! Rows of a page that are null: definition levels in run-length encoding.
//!
//! Rows come in long runs here, so only the format's repeated runs are used: a varint of twice the length, and a byte.

use super::varint;

/// The levels of the current page, and the nulls of the chunk.
#[derive(Debug, Default)]
pub(in crate::store) struct Levels {
    runs: Vec<u8>,
    present: bool,
    run: u64,
    rows: u32,
    nulls: u64,
}

impl Levels {
    /// Appends a row.
    #[inline(always)]
    pub(in crate::store) fn push(&mut self, present: bool) {
        self.repeat(present, 1);
    }

    /// Appends `times` rows.
    #[inline(always)]
    pub(in crate::store) fn repeat(&mut self, present: bool, times: u32) {
        if present != self.present {
            self.end_run();
            self.present = present;
        }
        self.run += u64::from(times);
        self.rows += times;
        self.nulls += if present { 0 } else { u64::from(times) };
    }

    /// Rows of the page so far.
    pub(in crate::store) const fn rows(&self) -> u32 {
        self.rows
    }

    /// Nulls since the last [`Levels::clear`].
    pub(in crate::store) const fn nulls(&self) -> u64 {
        self.nulls
    }

    /// Writes the levels in the form that begins a data page, and starts the next page's.
    pub(super) fn take(&mut self, body: &mut Vec<u8>) {
        self.end_run();
        body.extend((self.runs.len() as u32).to_le_bytes());
        body.extend_from_slice(&self.runs);
        self.runs.clear();
        self.rows = 0;
    }

    /// Drops everything but the memory.
    pub(in crate::store) fn clear(&mut self) {
        self.runs.clear();
        (self.run, self.rows, self.nulls) = (0, 0, 0);
    }

    fn end_run(&mut self) {
        if self.run > 0 {
            varint(&mut self.runs, self.run << 1);
            self.runs.push(u8::from(self.present));
        }
        self.run = 0;
    }
}

/// Begins of the lists of a page, and which lists are empty: repetition and definition levels, in the same encoding. An
/// entry is a number or an empty list.
///
/// Source: "Dremel made simple with Parquet"; Encodings.md of the Parquet format.
#[derive(Debug, Default)]
pub(in crate::store) struct ListLevels {
    /// 0 where a list begins, else 1.
    repetition: Levels,
    /// 1 for a number, 0 for an empty list.
    definition: Levels,
}

impl ListLevels {
    /// Appends a list of `numbers` numbers.
    pub(in crate::store) fn push(&mut self, numbers: usize) {
        let numbers = numbers as u32;
        self.repetition.push(false);
        self.repetition.repeat(true, numbers.saturating_sub(1));
        self.definition.repeat(numbers > 0, numbers.max(1));
    }

    /// Entries of the page so far.
    pub(super) const fn entries(&self) -> u32 {
        self.definition.rows()
    }

    /// Writes the levels in the form that begins a data page, and starts the next page's.
    pub(super) fn take(&mut self, body: &mut Vec<u8>) {
        self.repetition.take(body);
        self.definition.take(body);
    }

    /// Drops everything but the memory.
    pub(in crate::store) fn clear(&mut self) {
        self.repetition.clear();
        self.definition.clear();
    }
}
