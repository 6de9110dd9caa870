//! A part of a file in order, in large blocks that are lent.
//!
//! Not mapped: who else truncates the file meanwhile would end this process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use super::sections::Section;
use crate::watch::Watch;

/// Bytes that are read at a time: they stay in the second cache until they are used.
const BLOCK: usize = 256 << 10;

/// A part of a file, read from begin to end.
#[derive(Debug)]
pub(super) struct Blocks {
    file: Arc<File>,
    watch: Watch,
    /// Where the part begins and ends in the file, for who watches.
    span: (u64, u64),
    /// Byte of the file up to which all was passed.
    at: u64,
    /// Byte of the file at which the part ends.
    end: u64,
    block: Vec<u8>,
    /// What of the block was read and is not passed yet.
    begin: usize,
    filled: usize,
}

impl Blocks {
    pub(super) fn new(file: Arc<File>, section: Section, watch: Watch) -> Self {
        let end = section.offset.saturating_add(section.size);
        // Of an unfinished recording it is not known where records end.
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

    /// Byte of the file up to which all was passed.
    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    /// Bytes up to the end of the part.
    pub(super) const fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// The bytes that come next, as far as they were read already.
    #[inline]
    pub(super) fn ahead(&self) -> &[u8] {
        &self.block[self.begin..self.filled]
    }

    /// The next bytes; at most as many as a block has.
    #[inline]
    pub(super) fn next(&mut self, len: usize) -> Result<&[u8], String> {
        if self.filled - self.begin < len {
            self.fill(len)?;
        }
        Ok(&self.block[self.begin..self.begin + len])
    }

    /// Bytes that were passed last.
    #[inline]
    pub(super) fn last(&self, len: usize) -> &[u8] {
        &self.block[self.begin - len..self.begin]
    }

    /// Goes on behind bytes that were lent.
    #[inline]
    pub(super) const fn pass(&mut self, len: usize) {
        self.begin += len;
        self.at += len as u64;
    }

    /// Goes on behind bytes that nobody wants to see.
    pub(super) fn leave_out(&mut self, len: u64) {
        let here = len.min((self.filled - self.begin) as u64) as usize;
        self.pass(here);
        self.at += len - here as u64;
    }

    /// Takes bytes out, however many.
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

    /// Nothing more is wanted.
    pub(super) fn end(&mut self) {
        self.leave_out(self.left());
    }

    /// Reads on until there are so many bytes.
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
            .tell("reading records", come - begin, end - begin);
        Ok(())
    }
}
