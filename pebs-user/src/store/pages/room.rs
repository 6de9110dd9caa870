//! A growing buffer that is filled in place.

use std::mem;

/// A buffer that grows in steps: clearing a few bytes at a time would take as long as filling them.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: Vec<u8>,
    filled: usize,
}

/// Bytes per step: cleared bytes should still be in the L1 cache when they are filled.
const STEP: usize = 2 << 10;

impl Room {
    #[cfg(test)]
    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// The next `N` bytes; their content is meaningless.
    #[inline(always)]
    pub(super) fn ahead<const N: usize>(&mut self) -> &mut [u8; N] {
        if self.bytes.len() - self.filled < N {
            self.grow(N);
        }
        let (_, ahead) = self.bytes.split_at_mut(self.filled);
        match ahead.first_chunk_mut() {
            Some(ahead) => ahead,
            None => unreachable!("there is room now"),
        }
    }

    #[cold]
    fn grow(&mut self, by: usize) {
        self.bytes.resize(self.filled + by.max(STEP), 0);
    }

    /// Marks the next `filled` bytes as used.
    #[inline(always)]
    pub(super) fn advance(&mut self, filled: usize) {
        self.filled = (self.filled + filled).min(self.bytes.len());
    }

    /// Appends bytes.
    #[inline]
    pub(super) fn extend<const N: usize>(&mut self, bytes: [u8; N]) {
        *self.ahead() = bytes;
        self.advance(N);
    }

    /// Swaps the used bytes for an empty buffer of the same capacity.
    pub(super) fn swap(&mut self, other: &mut Vec<u8>) {
        self.bytes.truncate(self.filled);
        mem::swap(&mut self.bytes, other);
        self.bytes.reserve(self.filled + STEP);
        self.clear();
    }

    /// Drops everything but the memory.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }
}
