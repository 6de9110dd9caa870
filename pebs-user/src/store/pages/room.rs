//! Bytes that are written in place.

use std::mem;

/// Bytes to which room is added many at a time: clearing it for every few would take as long as filling it.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: Vec<u8>,
    filled: usize,
}

/// Room is added by so much: what is cleared is to be in the L1 cache still when it is filled.
const STEP: usize = 2 << 10;

impl Room {
    #[cfg(test)]
    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// The next `N` bytes, whose content is of no meaning.
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

    /// Of what was ahead so much is filled now.
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

    /// Swaps what is filled for an empty buffer, which is made as large at once.
    pub(super) fn swap(&mut self, other: &mut Vec<u8>) {
        self.bytes.truncate(self.filled);
        mem::swap(&mut self.bytes, other);
        self.bytes.reserve(self.filled + STEP);
        self.clear();
    }

    /// Forgets everything, keeps the room.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }
}
