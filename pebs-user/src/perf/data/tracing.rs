//! Formats of tracepoints in a recording: a copy of tracefs.
//!
//! Source: tools/perf/util/trace-event-read.c, `trace_report()`.

use std::collections::HashMap;

use super::format::Format;
use crate::perf::bytes::Bytes;

/// Magic of the section.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Formats of a recording's tracepoints by id, which is the config of their events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    by_id: HashMap<u64, (String, Format)>,
}

impl Formats {
    /// Parses a section; formats before a malformed part are kept.
    #[must_use]
    pub fn read(section: &[u8]) -> Self {
        let mut formats = Self::default();
        let _ = formats.fill(&mut Bytes(section));
        formats
    }

    /// Format of a tracepoint.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Format> {
        self.by_id.get(&id).map(|(_, format)| format)
    }

    /// Name of a tracepoint: `system:name`.
    #[must_use]
    pub fn name(&self, id: u64) -> Option<String> {
        let (system, format) = self.by_id.get(&id)?;
        Some(format!("{system}:{}", format.name))
    }

    fn fill(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        if bytes.take(MAGIC.len())? != MAGIC {
            return None;
        }
        let _version = bytes.c_string()?;
        let (_big_endian, _long_size, _page_size) = (bytes.u8()?, bytes.u8()?, bytes.u32()?);
        for _ in ["header_page", "header_event"] {
            let _name = bytes.c_string()?;
            sized(bytes)?;
        }
        for _ in 0..bytes.u32()? {
            sized(bytes)?;
        }
        for _ in 0..bytes.u32()? {
            let system = String::from_utf8_lossy(bytes.c_string()?).into_owned();
            for _ in 0..bytes.u32()? {
                let text = String::from_utf8_lossy(sized(bytes)?);
                if let Some((id, format)) = Format::parse(&text) {
                    self.by_id.insert(id, (system.clone(), format));
                }
            }
        }
        Some(())
    }
}

/// u64 length, then the bytes.
fn sized<'a>(bytes: &mut Bytes<'a>) -> Option<&'a [u8]> {
    let len = bytes.u64()?;
    bytes.take_u64(len)
}
