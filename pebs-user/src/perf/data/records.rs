//! The records of a `perf.data`, lent one at a time.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use super::sections::Section;
use crate::perf::bytes::Bytes;
use crate::perf::record::RawRecord;
use crate::watch::Watch;

/// What ends a stream into which perf's own messages were sent as well (`[ perf record: Woken up ...`).
const MESSAGE: &[u8; HEADER] = b"[ perf r";

/// Bytes of a record's header.
const HEADER: usize = 8;

/// Records that perf itself adds. Source: `enum perf_user_event_type`, tools/lib/perf/include/perf/event.h.
pub(super) mod user {
    pub const FIRST: u32 = 64;
    pub const ATTR: u32 = 64;
    pub const TRACING_DATA: u32 = 66;
    pub const BUILD_ID: u32 = 67;
    pub const FINISHED_ROUND: u32 = 68;
    pub const AUXTRACE: u32 = 71;
    pub const EVENT_UPDATE: u32 = 78;
    pub const FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    /// The kernel's, or made by perf in its form.
    Event(RawRecord<'a>),
    /// All rings were read once: see [`crate::import`].
    Round,
    /// One of perf's own; for [`super::reader::PerfData::learn`].
    Perf {
        /// Its kind.
        kind: u32,
        /// Its header's misc.
        misc: u16,
        /// Its bytes.
        body: &'a [u8],
    },
}

/// Where reading had to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Byte of the file up to which all was read.
    pub at: u64,
    /// What is wrong there.
    pub what: String,
}

/// A part of the file, read in order.
#[derive(Debug)]
struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
    watch: Watch,
    /// Where it begins and ends in the file, for who watches.
    span: (u64, u64),
}

impl Read for Part {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer
            .len()
            .min((self.end - self.at).try_into().unwrap_or(usize::MAX));
        let taken = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at += taken as u64;
        let (begin, end) = self.span;
        self.watch
            .tell("reading records", self.at - begin, end - begin);
        Ok(taken)
    }
}

/// Bytes that are unpacked at a time.
const STEP: usize = 128 << 10;

/// The records of a file, lent one at a time.
pub struct Records {
    input: BufReader<Part>,
    /// Byte of the file at which the next record begins.
    at: u64,
    end: u64,
    /// The record at hand, header aside.
    body: Vec<u8>,
    packed: Packed,
    fault: Option<Fault>,
}

/// Records that were compressed.
#[derive(Default)]
struct Packed {
    decoder: Option<Decoder<'static>>,
    /// Bytes to be unpacked.
    input: Vec<u8>,
    taken: usize,
    /// The decoder may hold more than there was room for.
    holds_more: bool,
    /// Bytes that were unpacked, those of records that were lent before them.
    plain: Vec<u8>,
    lent: usize,
}

/// Where the record at hand is.
#[derive(Clone, Copy)]
struct Found {
    kind: u32,
    misc: u16,
    plain: Option<(usize, usize)>,
}

impl Records {
    pub(super) fn new(file: Arc<File>, section: Section, watch: Watch) -> Self {
        let end = section.offset.saturating_add(section.size);
        // Of an unfinished recording it is not known where records end.
        let length = file.metadata().map_or(end, |metadata| metadata.len());
        let part = Part {
            file,
            at: section.offset,
            end,
            watch,
            span: (section.offset, end.min(length).max(section.offset)),
        };
        Self {
            at: part.at,
            end: part.end,
            input: BufReader::with_capacity(STEP, part),
            body: Vec::new(),
            packed: Packed::default(),
            fault: None,
        }
    }

    /// What ended the records too soon, if something did. Known once there are no more.
    #[must_use]
    pub const fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Byte of the file up to which records were read.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.at
    }

    /// The next record; `None` at the end, or where it can't go on.
    pub fn next_item(&mut self) -> Option<Item<'_>> {
        if self.fault.is_some() {
            return None;
        }
        match self.find() {
            Ok(found) => found.map(|found| self.item(found)),
            Err(what) => {
                self.fault = Some(Fault { at: self.at, what });
                None
            }
        }
    }

    fn item(&self, found: Found) -> Item<'_> {
        let Found { kind, misc, plain } = found;
        let body = match plain {
            Some((begin, end)) => &self.packed.plain[begin..end],
            None => &self.body,
        };
        match kind {
            user::FINISHED_ROUND => Item::Round,
            user::FIRST.. => Item::Perf { kind, misc, body },
            _ => Item::Event(RawRecord { kind, misc, body }),
        }
    }

    /// Makes the next record be at hand. An error says what is wrong with the bytes.
    fn find(&mut self) -> Result<Option<Found>, String> {
        loop {
            if let Some(found) = self.packed.next()? {
                return Ok(Some(found));
            }
            if self.at >= self.end {
                return match self.packed.plain.len() - self.packed.lent {
                    0 => Ok(None),
                    left => Err(format!("{left} bytes of a compressed record")),
                };
            }
            let Some((kind, misc)) = self.read_record()? else {
                continue;
            };
            let plain = None;
            return Ok(Some(Found { kind, misc, plain }));
        }
    }

    /// Reads a record from the file; `None` if it is not one to be lent.
    fn read_record(&mut self) -> Result<Option<(u32, u16)>, String> {
        let left = self.end - self.at;
        let mut header = [0; HEADER];
        if left < HEADER as u64 {
            return Err(format!("{left} bytes of a record"));
        }
        self.fill(|input, _| input.read_exact(&mut header))?;
        if &header == MESSAGE {
            self.at = self.end;
            return Ok(None);
        }
        let mut bytes = Bytes(&header);
        let parts = (|| Some((bytes.u32()?, bytes.u16()?, bytes.u16()?)))();
        let (kind, misc, size) = parts.unwrap_or_default();
        let size = usize::from(size);
        if size < HEADER {
            return Err(format!("a record of {size} bytes"));
        }
        if size as u64 > left {
            return Err(format!(
                "a record of {size} bytes of which {left} are there"
            ));
        }
        self.body.resize(size - HEADER, 0);
        self.fill(|input, body| input.read_exact(body))?;
        let behind = self.behind(kind)?;
        if behind > left - size as u64 {
            return Err(format!(
                "{behind} bytes of data of which {} are there",
                left - size as u64
            ));
        }
        self.at += size as u64 + behind;
        match kind {
            user::COMPRESSED | user::COMPRESSED2 => {
                self.packed.take(kind, &mut self.body)?;
                Ok(None)
            }
            user::TRACING_DATA => {
                // No more than the file has left.
                self.body.resize(behind as usize, 0);
                self.fill(|input, body| input.read_exact(body))?;
                Ok(Some((kind, misc)))
            }
            _ if behind > 0 => {
                let behind = behind.cast_signed();
                self.fill(|input, _| input.seek_relative(behind))?;
                Ok(None)
            }
            _ => Ok(Some((kind, misc))),
        }
    }

    /// Bytes that follow a record and are not in its size.
    fn behind(&self, kind: u32) -> Result<u64, String> {
        let mut bytes = Bytes(&self.body);
        let size = match kind {
            user::TRACING_DATA => bytes.u32().map(|size| u64::from(size).next_multiple_of(8)),
            user::AUXTRACE => bytes.u64(),
            _ => Some(0),
        };
        size.ok_or_else(|| format!("a record of kind {kind} that is cut"))
    }

    fn fill(
        &mut self,
        read: impl FnOnce(&mut BufReader<Part>, &mut [u8]) -> io::Result<()>,
    ) -> Result<(), String> {
        read(&mut self.input, &mut self.body).map_err(|error| format!("cannot be read: {error}"))
    }
}

impl io::Seek for Part {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let target = match to {
            io::SeekFrom::Current(by) => self.at.checked_add_signed(by),
            io::SeekFrom::Start(_) | io::SeekFrom::End(_) => None,
        };
        let target = target.filter(|at| *at <= self.end);
        self.at = target.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(self.at)
    }
}

impl Packed {
    /// Takes the content of a record, of which all that came before was unpacked.
    fn take(&mut self, kind: u32, body: &mut Vec<u8>) -> Result<(), String> {
        if kind == user::COMPRESSED2 {
            // u64 length, then so many bytes, then padding.
            let len = Bytes(body).u64().and_then(|len| usize::try_from(len).ok());
            let end = len.and_then(|len| len.checked_add(8));
            let end = end.filter(|end| *end <= body.len());
            body.truncate(end.ok_or_else(|| "a compressed record that is cut".to_owned())?);
            body.drain(..8);
        }
        std::mem::swap(&mut self.input, body);
        self.taken = 0;
        Ok(())
    }

    /// The next record that was compressed, if there is a whole one.
    fn next(&mut self) -> Result<Option<Found>, String> {
        loop {
            if let Some(found) = self.whole()? {
                return Ok(Some(found));
            }
            if self.taken == self.input.len() && !self.holds_more {
                return Ok(None);
            }
            self.unpack()?;
        }
    }

    fn whole(&mut self) -> Result<Option<Found>, String> {
        let mut bytes = Bytes(&self.plain[self.lent..]);
        let header = (|| Some((bytes.u32()?, bytes.u16()?, bytes.u16()?)))();
        let Some((kind, misc, size)) = header else {
            return Ok(None);
        };
        let Some(len) = usize::from(size).checked_sub(HEADER) else {
            return Err(format!("a compressed record of {size} bytes"));
        };
        if bytes.len() < len {
            return Ok(None);
        }
        let begin = self.lent + HEADER;
        self.lent = begin + len;
        let plain = Some((begin, self.lent));
        Ok(Some(Found { kind, misc, plain }))
    }

    /// Unpacks some more.
    fn unpack(&mut self) -> Result<(), String> {
        self.plain.drain(..self.lent);
        self.lent = 0;
        let have = self.plain.len();
        self.plain.resize(have + STEP, 0);
        let failed = |error: io::Error| format!("cannot be unpacked: {error}");
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(Decoder::new().map_err(failed)?),
        };
        let mut input = InBuffer::around(&self.input[self.taken..]);
        let mut output = OutBuffer::around(&mut self.plain[have..]);
        decoder.run(&mut input, &mut output).map_err(failed)?;
        let (read, written) = (input.pos(), output.pos());
        self.taken += read;
        self.plain.truncate(have + written);
        self.holds_more = written == STEP;
        if read == 0 && written == 0 && self.taken < self.input.len() {
            return Err("cannot be unpacked: it does not go on".to_owned());
        }
        Ok(())
    }
}
