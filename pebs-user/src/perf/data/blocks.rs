//! Sequential reads of a part of a file, in large blocks.
//!
//! Not mapped: if another process truncated the file, an access would kill this one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use super::sections::Section;
use crate::watch::Watch;

/// Block size, bytes: a block stays in the second-level cache until it is used.
const BLOCK: usize = 256 << 10;

/// A part of a file, read from begin to end.
#[derive(Debug)]
pub(super) struct Blocks {
    file: Arc<File>,
    watch: Watch,
    /// Begin and end of the part in the file, for progress reports.
    span: (u64, u64),
    /// File offset of the next byte.
    at: u64,
    /// File offset of the end of the part.
    end: u64,
    block: Vec<u8>,
    /// Unread bytes of the block.
    begin: usize,
    filled: usize,
}

impl Blocks {
    pub(super) fn new(file: Arc<File>, section: Section, watch: Watch) -> Self {
        let end = section.offset.saturating_add(section.size);
        // The end of an unfinished recording is unknown.
        let length = file.metadata().map_or(end, |metadata| metadata.len());
        Self {
            file,
            watch,
            span: (section.offset, end.min(length).max(section.offset)),
            at: section.offset,
            end,
            block: vec![0; BLOCK],
            begin: 0,
            filled: 0,
        }
    }

    /// File offset of the next byte.
    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    /// Number of bytes up to the end of the part.
    pub(super) const fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// Next bytes, as far as they are in memory.
    #[inline]
    pub(super) fn ahead(&self) -> &[u8] {
        &self.block[self.begin..self.filled]
    }

    /// Returns the next `len` bytes without passing them; at most a block.
    #[inline]
    pub(super) fn next(&mut self, len: usize) -> Result<&[u8], String> {
        if self.filled - self.begin < len {
            self.fill(len)?;
        }
        Ok(&self.block[self.begin..self.begin + len])
    }

    /// Returns the last `len` bytes passed.
    #[inline]
    pub(super) fn last(&self, len: usize) -> &[u8] {
        &self.block[self.begin - len..self.begin]
    }

    /// Passes bytes that were returned.
    #[inline]
    pub(super) const fn pass(&mut self, len: usize) {
        self.begin += len;
        self.at += len as u64;
    }

    /// Skips bytes, which need not be in memory.
    pub(super) fn leave_out(&mut self, len: u64) {
        let here = len.min((self.filled - self.begin) as u64) as usize;
        self.pass(here);
        self.at += len - here as u64;
    }

    /// Takes any number of bytes.
    pub(super) fn take(&mut self, len: u64, into: &mut Vec<u8>) -> Result<(), String> {
        into.clear();
        let mut left = len;
        while left > 0 {
            let step = left.min(BLOCK as u64) as usize;
            into.extend_from_slice(self.next(step)?);
            self.pass(step);
            left -= step as u64;
        }
        Ok(())
    }

    /// Skips everything that is left.
    pub(super) fn end(&mut self) {
        self.leave_out(self.left());
    }

    /// Reads until at least `len` bytes are in memory.
    #[cold]
    fn fill(&mut self, len: usize) -> Result<(), String> {
        self.block.copy_within(self.begin..self.filled, 0);
        (self.begin, self.filled) = (0, self.filled - self.begin);
        while self.filled < len {
            let from = self.at + self.filled as u64;
            let left = self.end.saturating_sub(from);
            let room = (self.block.len() - self.filled).min(left.try_into().unwrap_or(usize::MAX));
            let room = &mut self.block[self.filled..self.filled + room];
            match self.file.read_at(room, from) {
                Ok(0) => return Err("cannot be read: the file ends there".to_owned()),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("cannot be read: {error}")),
            }
        }
        let (begin, end) = self.span;
        let come = self.at + self.filled as u64;
        self.watch
            .report("reading records", come - begin, end - begin);
        Ok(())
    }
}
