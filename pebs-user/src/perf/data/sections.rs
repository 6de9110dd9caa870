//! Sections of a file, limited by its size.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::perf::bytes::Bytes;

/// Position and size of a part of the file, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub offset: u64,
    pub size: u64,
}

impl Section {
    pub(super) fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self {
            offset: bytes.u64()?,
            size: bytes.u64()?,
        })
    }

    pub(super) const fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }
}

/// Reads sections, which together may not be larger than the file.
#[derive(Debug)]
pub(super) struct Sections<'a> {
    file: &'a File,
    len: u64,
    left: u64,
}

impl<'a> Sections<'a> {
    pub(super) const fn new(file: &'a File, len: u64) -> Self {
        Self {
            file,
            len,
            left: len,
        }
    }

    /// Reads a section; `None` if it is not within the file, or the sections read so far are too
    /// large.
    pub(super) fn bytes(&mut self, section: Section) -> io::Result<Option<Vec<u8>>> {
        let Some(left) = self.left.checked_sub(section.size) else {
            return Ok(None);
        };
        let (Some(end), Ok(size)) = (section.end(), usize::try_from(section.size)) else {
            return Ok(None);
        };
        if end > self.len {
            return Ok(None);
        }
        self.left = left;
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, section.offset)?;
        Ok(Some(bytes))
    }
}
