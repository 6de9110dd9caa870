//! The records of a `perf.data`, borrowed one at a time.

use std::fs::File;
use std::io;
use std::sync::Arc;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use super::blocks::Blocks;
use super::sections::Section;
use crate::perf::bytes::Bytes;
use crate::perf::record::RawRecord;
use crate::watch::Watch;

/// Message of perf (`[ perf record: Woken up ...`), which ends a stream into which stderr was sent too.
const MESSAGE: &[u8; HEADER] = b"[ perf r";

/// Size of a record's header, bytes.
const HEADER: usize = 8;

/// Records that perf itself adds. Source: `enum perf_user_event_type`, tools/lib/perf/include/perf/event.h.
pub(super) mod user {
    pub(crate) const FIRST: u32 = 64;
    pub(crate) const ATTR: u32 = 64;
    pub(crate) const TRACING_DATA: u32 = 66;
    pub(crate) const BUILD_ID: u32 = 67;
    pub(crate) const FINISHED_ROUND: u32 = 68;
    pub(crate) const AUXTRACE_INFO: u32 = 70;
    pub(crate) const AUXTRACE: u32 = 71;
    pub(crate) const THREAD_MAP: u32 = 73;
    pub(crate) const STAT_CONFIG: u32 = 75;
    pub(crate) const STAT: u32 = 76;
    pub(crate) const STAT_ROUND: u32 = 77;
    pub(crate) const EVENT_UPDATE: u32 = 78;
    pub(crate) const FEATURE: u32 = 80;
    pub(crate) const COMPRESSED: u32 = 81;
    pub(crate) const COMPRESSED2: u32 = 83;
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    /// A record of the kernel, or synthesized by perf in the same format.
    Event(RawRecord<'a>),
    /// End of a round in which perf read all rings once: see [`crate::import`].
    Round,
    /// One of perf's own records, for [`super::reader::PerfData::learn`].
    Perf {
        kind: u32,
        /// `misc` of the header.
        misc: u16,
        /// Bytes behind the header.
        body: &'a [u8],
    },
}

/// Reason why reading ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// File offset up to which everything was read.
    pub at: u64,
    /// Description of the error.
    pub what: String,
}

/// Buffer size of decompression, bytes.
const STEP: usize = 128 << 10;

/// The records of a file, borrowed one at a time.
pub struct Records {
    input: Blocks,
    /// Data that followed the current record.
    behind: Vec<u8>,
    packed: Packed,
    fault: Option<Fault>,
}

/// Compressed records.
#[derive(Default)]
struct Packed {
    decoder: Option<Decoder<'static>>,
    /// Bytes to be decompressed.
    input: Vec<u8>,
    taken: usize,
    /// Whether the decoder may have more output than there was room for.
    holds_more: bool,
    /// Decompressed bytes, including those of records already returned.
    plain: Vec<u8>,
    lent: usize,
}

/// Location of the current record's body.
#[derive(Clone, Copy)]
enum Place {
    /// In a block of the file.
    Block { len: usize },
    /// In the decompressed bytes.
    Packed { begin: usize, end: usize },
    /// In the data that followed the record.
    Behind,
}

/// The current record.
#[derive(Clone, Copy)]
struct CurrentRecord {
    kind: u32,
    misc: u16,
    place: Place,
}

impl Records {
    pub(super) fn new(file: Arc<File>, section: Section, watch: Watch) -> Self {
        Self {
            input: Blocks::new(file, section, watch),
            behind: Vec::new(),
            packed: Packed::default(),
            fault: None,
        }
    }

    /// Reason why the records ended early, if they did. Known once there are no more.
    #[must_use]
    pub const fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// File offset up to which records were read.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.input.position()
    }

    /// Bytes of the next records that are already in memory: the last one may be cut, and there may be
    /// none.
    #[inline]
    #[must_use]
    pub fn ahead(&self) -> &[u8] {
        if self.fault.is_some() {
            return &[];
        }
        match &self.packed.plain[self.packed.lent..] {
            [] => self.input.ahead(),
            plain => plain,
        }
    }

    /// Skips whole records of which all bytes are in [`Records::ahead`].
    #[inline]
    pub fn skip(&mut self, bytes: usize) {
        if self.packed.lent < self.packed.plain.len() {
            self.packed.lent += bytes;
        } else {
            self.input.pass(bytes);
        }
    }

    /// Returns the next record; `None` at the end or after a fault.
    #[inline]
    pub fn next_item(&mut self) -> Option<Item<'_>> {
        if self.fault.is_some() {
            return None;
        }
        match self.find() {
            Ok(found) => found.map(|found| self.item(found)),
            Err(what) => {
                let at = self.position();
                self.fault = Some(Fault { at, what });
                None
            }
        }
    }

    #[inline]
    fn item(&self, found: CurrentRecord) -> Item<'_> {
        let CurrentRecord { kind, misc, place } = found;
        let body = match place {
            Place::Block { len } => self.input.last(len),
            Place::Packed { begin, end } => &self.packed.plain[begin..end],
            Place::Behind => &self.behind,
        };
        match kind {
            user::FINISHED_ROUND => Item::Round,
            user::FIRST.. => Item::Perf { kind, misc, body },
            _ => Item::Event(RawRecord { kind, misc, body }),
        }
    }

    /// Makes the next record the current one. An error describes the damage.
    #[inline]
    fn find(&mut self) -> Result<Option<CurrentRecord>, String> {
        loop {
            if let Some(found) = self.packed.next()? {
                return Ok(Some(found));
            }
            if self.input.left() == 0 {
                return match self.packed.plain.len() - self.packed.lent {
                    0 => Ok(None),
                    left => Err(format!("{left} bytes of a compressed record")),
                };
            }
            if let Some(found) = self.read_record()? {
                return Ok(Some(found));
            }
        }
    }

    /// Reads a record from the file; `None` if it is not to be returned.
    fn read_record(&mut self) -> Result<Option<CurrentRecord>, String> {
        let left = self.input.left();
        if left < HEADER as u64 {
            return Err(format!("{left} bytes of a record"));
        }
        let header = self.input.next(HEADER)?;
        if header == MESSAGE {
            self.input.end();
            return Ok(None);
        }
        let mut bytes = Bytes(header);
        let parts = (|| Some((bytes.u32()?, bytes.u16()?, bytes.u16()?)))();
        let (kind, misc, size) = parts.unwrap_or_default();
        let size = usize::from(size);
        if size < HEADER {
            return Err(format!("a record of {size} bytes"));
        }
        if size as u64 > left {
            return Err(format!(
                "a record of {size} bytes, of which only {left} are in the file"
            ));
        }
        let body = &self.input.next(size)?[HEADER..];
        let behind = behind(kind, body)?;
        let left = left - size as u64;
        if behind > left {
            return Err(format!(
                "{behind} bytes of data, of which only {left} are in the file"
            ));
        }
        let mut place = Place::Block { len: body.len() };
        match kind {
            user::COMPRESSED | user::COMPRESSED2 => {
                let taken = self.packed.take(kind, body);
                self.input.pass(size);
                return taken.map(|()| None);
            }
            user::TRACING_DATA => {
                self.input.pass(size);
                // At most what is left of the file.
                self.input.take(behind, &mut self.behind)?;
                place = Place::Behind;
            }
            _ => self.input.pass(size),
        }
        if behind > 0 && kind == user::AUXTRACE {
            self.input.leave_out(behind);
            return Ok(None);
        }
        Ok(Some(CurrentRecord { kind, misc, place }))
    }
}

/// Number of bytes that follow a record and are not included in its size.
#[inline]
fn behind(kind: u32, body: &[u8]) -> Result<u64, String> {
    let mut bytes = Bytes(body);
    let size = match kind {
        user::TRACING_DATA => bytes.u32().map(|size| u64::from(size).next_multiple_of(8)),
        user::AUXTRACE => bytes.u64(),
        _ => return Ok(0),
    };
    size.ok_or_else(|| format!("a record of kind {kind} that is cut"))
}

impl Packed {
    /// Takes the content of a compressed record; all earlier content was decompressed.
    fn take(&mut self, kind: u32, body: &[u8]) -> Result<(), String> {
        let mut bytes = Bytes(body);
        let content = if kind == user::COMPRESSED2 {
            // u64 length, the content, then padding.
            let content = bytes.u64().and_then(|len| bytes.take_u64(len));
            content.ok_or_else(|| "a compressed record that is cut".to_owned())?
        } else {
            body
        };
        self.input.clear();
        self.input.extend_from_slice(content);
        self.taken = 0;
        Ok(())
    }

    /// Returns the next decompressed record, if there is a complete one.
    #[inline]
    fn next(&mut self) -> Result<Option<CurrentRecord>, String> {
        if self.decoder.is_none() && self.input.is_empty() {
            return Ok(None);
        }
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

    fn whole(&mut self) -> Result<Option<CurrentRecord>, String> {
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
        let end = self.lent;
        let place = Place::Packed { begin, end };
        Ok(Some(CurrentRecord { kind, misc, place }))
    }

    /// Decompresses more bytes.
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
