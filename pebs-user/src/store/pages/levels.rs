//! Which rows of a page are null: definition levels in run-length encoding.
//!
//! Rows come in long runs of either kind here, so only the format's repeated runs are used: a
//! varint of twice the length, and a byte.

use super::varint;

/// The levels of the page at hand, and the nulls of the chunk.
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

    /// Appends some rows of a kind.
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

    /// Writes the levels as a data page begins with them, and starts the next page's.
    pub(super) fn take(&mut self, body: &mut Vec<u8>) {
        self.end_run();
        body.extend((self.runs.len() as u32).to_le_bytes());
        body.extend_from_slice(&self.runs);
        self.runs.clear();
        self.rows = 0;
    }

    /// Forgets everything, keeps the room.
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
