//! An open `perf.data` with its metadata.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use super::attr::{Attr, Event};
use super::error::DataError;
use super::features::{Features, feature};
use super::records::{Records, user};
use super::sections::{Section, Sections};
use crate::perf::bytes::Bytes;
use crate::watch::Watch;

/// Magic in this machine's byte order and in the other one.
const MAGIC: &[u8; 8] = b"PERFILE2";
const SWAPPED: &[u8; 8] = b"2ELIFREP";

/// Magic before 2012, in either byte order; the rest is the same.
/// Source: `check_magic_endian`, tools/perf/util/header.c.
const MAGIC_1: &[u8; 8] = b"PERFFILE";

/// Size of a pipe's header, bytes: magic, size.
const PIPE_HEADER: u64 = 16;

/// Size of a file's header, bytes.
const FILE_HEADER: u64 = 104;

/// Most events of a piped file. perf itself is limited by its number of open files.
const EVENTS_MAX: usize = 4096;

/// Whether a file that begins with these bytes is a `perf.data`.
#[must_use]
pub(crate) fn is_perf_data(begin: &[u8]) -> bool {
    [MAGIC, SWAPPED, MAGIC_1]
        .iter()
        .any(|magic| begin.starts_with(*magic))
}

/// Standard input: itself if it is a file, else a copy of all that it gives, as recordings are read twice.
fn standard_input() -> io::Result<File> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let kind = input.metadata()?.file_type();
    if !kind.is_fifo() && !kind.is_socket() {
        return Ok(input);
    }
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut input, &mut copy)?;
    Ok(copy)
}

/// `PERF_EVENT_UPDATE__NAME`.
const UPDATE_NAME: u64 = 2;

/// An open `perf.data`.
///
/// The metadata of a piped file is complete once all its records were passed to [`PerfData::learn`].
#[derive(Debug)]
pub struct PerfData {
    file: Arc<File>,
    path: String,
    records: Section,
    /// Recorded events.
    pub events: Vec<Event>,
    /// Machine and run information.
    pub features: Features,
    /// Size of the file, bytes.
    pub len: u64,
    /// Whether it was written as a stream.
    pub piped: bool,
    /// Whether `perf record` did not finish, so that the end of the records is not in the header.
    pub unfinished: bool,
    /// Whether some data that is written last is missing: names, formats, build ids, machine information.
    pub incomplete: bool,
    /// Whether it has counts of `perf stat record`.
    pub has_counts: bool,
    /// Whether it has a hardware trace (Intel PT, CoreSight), which is not decoded.
    pub has_hardware_trace: bool,
    /// Informed about the progress of reading.
    pub watch: Watch,
}

impl PerfData {
    /// Opens a file (`-`: standard input) and reads its metadata.
    ///
    /// # Errors
    /// If it can't be read, is no `perf.data`, or has another byte order.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let shown = path.display().to_string();
        let read = |source| DataError::Read {
            path: shown.clone(),
            source,
        };
        let file = if shown == "-" {
            standard_input().map_err(read)?
        } else {
            // Opening a pipe would block.
            File::options()
                .read(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
                .open(path)
                .map_err(read)?
        };
        let metadata = file.metadata().map_err(read)?;
        if metadata.is_dir() {
            return Err(DataError::Directory { path: shown });
        }
        if !metadata.is_file() {
            return Err(DataError::NotRegular { path: shown });
        }
        let mut data = Self {
            file: Arc::new(file),
            path: shown.clone(),
            records: Section::default(),
            events: Vec::new(),
            features: Features::default(),
            len: metadata.len(),
            piped: false,
            unfinished: false,
            incomplete: false,
            has_counts: false,
            has_hardware_trace: false,
            watch: Watch::default(),
        };
        data.read_header().map_err(read)??;
        Ok(data)
    }

    /// The path as given to [`PerfData::open`].
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the records, from the first on.
    #[must_use]
    pub fn records(&self) -> Records {
        Records::new(Arc::clone(&self.file), self.records, self.watch.clone())
    }

    fn damaged(&self, what: &str) -> DataError {
        DataError::Damaged {
            path: self.path.clone(),
            what: what.to_owned(),
        }
    }

    fn read_header(&mut self) -> io::Result<Result<(), DataError>> {
        let mut header = [0; FILE_HEADER as usize];
        let have = read_some(&self.file, &mut header)?;
        let begin = &header[..have.min(MAGIC.len())];
        if begin == SWAPPED {
            let path = self.path.clone();
            return Ok(Err(DataError::ByteOrder { path }));
        }
        if begin != MAGIC && begin != MAGIC_1 {
            return Ok(Err(DataError::NotPerfData {
                path: self.path.clone(),
                begin: describe(begin),
            }));
        }
        let mut rest = Bytes(&header[MAGIC.len()..have]);
        let Some(size) = rest.u64() else {
            return Ok(Err(self.damaged("it ends within its header")));
        };
        if begin == MAGIC_1 && size.swap_bytes() < size {
            let path = self.path.clone();
            return Ok(Err(DataError::ByteOrder { path }));
        }
        if size == PIPE_HEADER {
            self.piped = true;
            self.records = Section {
                offset: PIPE_HEADER,
                size: self.len.saturating_sub(PIPE_HEADER),
            };
            return Ok(Ok(()));
        }
        if size < FILE_HEADER || have < header.len() {
            return Ok(Err(self.damaged("it ends within its header")));
        }
        match FileHeader::read(&mut rest) {
            Some(header) => self.read_sections(&header),
            None => Ok(Err(self.damaged("its header is malformed"))),
        }
    }

    fn read_sections(&mut self, header: &FileHeader) -> io::Result<Result<(), DataError>> {
        let file = Arc::clone(&self.file);
        let mut sections = Sections::new(&file, self.len);
        let Some(attrs) = sections.bytes(header.attrs)? else {
            return Ok(Err(self.damaged("its events do not lie within it")));
        };
        let size = usize::try_from(header.attr_size).unwrap_or(usize::MAX);
        let Some(ids_at) = size.checked_sub(size_of::<Section>()) else {
            return Ok(Err(self.damaged("its events are malformed")));
        };
        for bytes in attrs.chunks_exact(size.max(1)) {
            let (attr, ids) = bytes.split_at(ids_at);
            let (Some(attr), Some(ids)) = (Attr::read(attr), Section::read(&mut Bytes(ids))) else {
                return Ok(Err(self.damaged("its events are malformed")));
            };
            let ids = sections.bytes(ids)?.unwrap_or_default();
            let (ids, _) = ids.as_chunks::<8>();
            self.events.push(Event {
                attr,
                ids: ids.iter().map(|id| u64::from_ne_bytes(*id)).collect(),
                name: None,
            });
        }
        self.unfinished = header.data.size == 0;
        let within = header.data.end().is_some_and(|end| end <= self.len);
        let room = self.len.saturating_sub(header.data.offset);
        self.records = Section {
            offset: header.data.offset,
            size: if self.unfinished || !within {
                room
            } else {
                header.data.size
            },
        };
        if !self.unfinished && within {
            self.read_features(header, &mut sections)?;
        }
        Ok(Ok(()))
    }

    /// Reads the feature sections; their table follows the records. Unreadable ones are ignored.
    fn read_features(
        &mut self,
        header: &FileHeader,
        sections: &mut Sections<'_>,
    ) -> io::Result<()> {
        let has =
            |feature: &u64| header.features[*feature as usize / 64] >> (feature % 64) & 1 != 0;
        let present: Vec<u64> = (0..feature::ALL).filter(has).collect();
        let table = Section {
            offset: header.data.offset.saturating_add(header.data.size),
            size: (present.len() * size_of::<Section>()) as u64,
        };
        let table = sections.bytes(table)?.unwrap_or_default();
        let mut table = Bytes(&table);
        for feature in present {
            let section = Section::read(&mut table);
            let bytes = section.map(|section| sections.bytes(section)).transpose()?;
            match bytes.flatten() {
                Some(bytes) => self.features.take(feature, &bytes, &mut self.events),
                None => self.incomplete = true,
            }
        }
        Ok(())
    }

    /// Handles a record of perf's own: metadata of a piped file.
    pub fn learn(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let mut bytes = Bytes(body);
        match kind {
            user::ATTR => {
                let room = self.events.len() < EVENTS_MAX;
                self.events.extend(header_attr(&mut bytes).filter(|_| room));
            }
            user::TRACING_DATA => self.features.tracing = body.to_vec(),
            user::BUILD_ID => self.features.build_id(misc, body),
            user::FEATURE => {
                if let Some(feature) = bytes.u64() {
                    self.features.take(feature, bytes.0, &mut self.events);
                }
            }
            user::STAT_CONFIG | user::STAT => self.has_counts = true,
            user::AUXTRACE_INFO => self.has_hardware_trace = true,
            user::EVENT_UPDATE => {
                let _ = self.update(&mut bytes);
            }
            _ => {}
        }
    }

    /// u64 what, id; a new name is text.
    fn update(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        let (what, id) = (bytes.u64()?, bytes.u64()?);
        if what == UPDATE_NAME {
            let event = self
                .events
                .iter_mut()
                .find(|event| event.ids.contains(&id))?;
            event.name = Some(String::from_utf8_lossy(bytes.text()).into_owned());
        }
        Some(())
    }
}

/// Parts of a file's header.
struct FileHeader {
    attr_size: u64,
    attrs: Section,
    data: Section,
    features: [u64; 4],
}

impl FileHeader {
    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let attr_size = bytes.u64()?;
        let (attrs, data) = (Section::read(bytes)?, Section::read(bytes)?);
        let _event_types = Section::read(bytes)?;
        Some(Self {
            attr_size,
            attrs,
            data,
            features: [bytes.u64()?, bytes.u64()?, bytes.u64()?, bytes.u64()?],
        })
    }
}

/// Parses an attr, whose size is in it, then ids.
fn header_attr(bytes: &mut Bytes<'_>) -> Option<Event> {
    let size = Bytes(bytes.0.get(4..)?).u32()?;
    // The first version had no size.
    let size = if size == 0 { 64 } else { size as usize };
    let attr = Attr::read(bytes.take(size)?)?;
    let (ids, _) = bytes.0.as_chunks::<8>();
    Some(Event {
        attr,
        ids: ids.iter().map(|id| u64::from_ne_bytes(*id)).collect(),
        name: None,
    })
}

/// Reads up to the buffer's size, or to the end of the file.
fn read_some(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read_at(&mut buffer[have..], have as u64) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// First bytes in readable form.
fn describe(begin: &[u8]) -> String {
    if begin.is_empty() {
        return "nothing: it is empty".to_owned();
    }
    format!("'{}'", begin.escape_ascii())
}
