//! Machine and run information in a `perf.data`.

use std::collections::HashMap;

use super::attr::{Attr, Event};
use super::machine;
use crate::binary::mapping::BuildId;
use crate::perf::bytes::Bytes;
use crate::pmu::host::{CpuModel, Vendor};

/// Feature sections that are used. Source: `HEADER_*`, tools/perf/util/header.h.
pub(super) mod feature {
    pub(crate) const TRACING_DATA: u64 = 1;
    pub(crate) const BUILD_ID: u64 = 2;
    pub(crate) const HOSTNAME: u64 = 3;
    pub(crate) const OSRELEASE: u64 = 4;
    pub(crate) const VERSION: u64 = 5;
    pub(crate) const ARCH: u64 = 6;
    pub(crate) const NRCPUS: u64 = 7;
    pub(crate) const CPUDESC: u64 = 8;
    pub(crate) const CPUID: u64 = 9;
    pub(crate) const EVENT_DESC: u64 = 12;
    pub(crate) const PMU_MAPPINGS: u64 = 16;
    pub(crate) const CACHE: u64 = 20;
    pub(crate) const CLOCK_DATA: u64 = 29;
    /// Number of bits in the feature bitmap.
    pub(crate) const ALL: u64 = 256;
}

/// `PERF_RECORD_MISC_BUILD_ID_SIZE` in the header of a build id: byte 20 is its length.
const BUILD_ID_SIZE: u16 = 1 << 15;

/// Bytes of a build id's record before the path: pid, id and padding.
const BUILD_ID_HEAD: usize = 28;

/// Machine and run information; `None` where it is not in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Host name.
    pub hostname: Option<String>,
    /// Kernel release.
    pub release: Option<String>,
    /// Version of perf.
    pub version: Option<String>,
    /// Architecture, as in `uname -m`.
    pub arch: Option<String>,
    /// CPUs online.
    pub cpus: Option<u32>,
    /// CPU model.
    pub cpu: Option<String>,
    /// Vendor, family, model and stepping, without the name.
    pub model: Option<CpuModel>,
    /// Size of a line of the first cache.
    pub line_bytes: Option<u32>,
    /// Names of PMUs by their type number on the recording machine.
    pub pmus: HashMap<u32, String>,
    /// Build ids by path.
    pub build_ids: HashMap<Vec<u8>, BuildId>,
    /// The recording's clock and the wall clock at one instant.
    pub clock: Option<ClockData>,
    /// Formats of tracepoints, and more; see [`super::tracing`].
    pub tracing: Vec<u8>,
}

/// One instant on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockData {
    /// `CLOCK_*`.
    pub clock: i32,
    /// Wall-clock time, ns since 1970.
    pub wall_ns: u64,
    pub clock_ns: u64,
}

impl Features {
    /// Parses one feature section; unused or malformed ones are ignored.
    pub(super) fn take(&mut self, feature: u64, section: &[u8], events: &mut [Event]) {
        let mut bytes = Bytes(section);
        match feature {
            feature::TRACING_DATA => self.tracing = section.to_vec(),
            feature::BUILD_ID => self.build_ids(section),
            feature::HOSTNAME => self.hostname = string(&mut bytes),
            feature::OSRELEASE => self.release = string(&mut bytes),
            feature::VERSION => self.version = string(&mut bytes),
            feature::ARCH => self.arch = string(&mut bytes),
            // Available, then online.
            feature::NRCPUS => self.cpus = bytes.pair().map(|(_, online)| online),
            feature::CPUDESC => self.cpu = string(&mut bytes),
            feature::CPUID => self.model = string(&mut bytes).and_then(|text| model(&text)),
            feature::PMU_MAPPINGS => {
                // The entries before a malformed one are kept.
                let _ = pmus(&mut bytes, &mut self.pmus);
            }
            feature::EVENT_DESC => {
                // The entries before a malformed one are kept.
                let _ = event_desc(&mut bytes, events);
            }
            feature::CACHE => self.line_bytes = line_bytes(&mut bytes),
            feature::CLOCK_DATA => self.clock = clock_data(&mut bytes),
            _ => {}
        }
    }

    /// Parses a table of build ids: records with a header each.
    fn build_ids(&mut self, section: &[u8]) {
        let mut bytes = Bytes(section);
        while let Some((_kind, misc, body)) = record(&mut bytes) {
            self.build_id(misc, body);
        }
    }

    /// Parses one build id: i32 pid, `u8 build_id[24]`, `char path[]`.
    pub(super) fn build_id(&mut self, misc: u16, body: &[u8]) {
        let Some((head, path)) = body.split_at_checked(BUILD_ID_HEAD) else {
            return;
        };
        let id = &head[4..24];
        let len = if misc & BUILD_ID_SIZE != 0 {
            usize::from(head[24]).min(id.len())
        } else {
            // Older versions of perf have no length; ids are padded with zeros.
            let last = id.iter().rposition(|byte| *byte != 0);
            last.map_or(0, |last| (last + 1).next_multiple_of(4))
        };
        if let Some(id) = BuildId::new(&id[..len]) {
            self.build_ids.insert(Bytes(path).text().to_vec(), id);
        }
    }

    /// The architecture, if its registers and machine code are not those that this program knows.
    #[must_use]
    pub fn foreign(&self) -> Option<&str> {
        let arch = self.arch.as_deref();
        arch.filter(|arch| machine::is_foreign(arch))
    }

    /// Build id of a mapped file, by its name.
    #[must_use]
    pub fn build_id_of(&self, name: &[u8]) -> Option<BuildId> {
        self.build_ids.get(name).copied()
    }
}

/// Takes a record with its header; returns kind, misc and body.
pub(super) fn record<'a>(bytes: &mut Bytes<'a>) -> Option<(u32, u16, &'a [u8])> {
    let kind = bytes.u32()?;
    let (misc, size) = (bytes.u16()?, bytes.u16()?);
    Some((kind, misc, bytes.take(usize::from(size).checked_sub(8)?)?))
}

/// Takes a u32 length and a padded string; `None` if it is empty.
fn string(bytes: &mut Bytes<'_>) -> Option<String> {
    let len = bytes.u32()?;
    let text = Bytes(bytes.take(len as usize)?).text();
    let text = String::from_utf8_lossy(text);
    (!text.is_empty()).then(|| text.into_owned())
}

/// Line size of the first cache: u32 version and number of caches; of each u32 level, line size, sets, ways, and texts.
///
/// Source: `write_cache`, tools/perf/util/header.c.
fn line_bytes(bytes: &mut Bytes<'_>) -> Option<u32> {
    let (_version, caches) = bytes.pair()?;
    let (_level, size) = bytes.pair()?;
    (caches > 0 && size.is_power_of_two()).then_some(size)
}

/// Parses `GenuineIntel,6,85,4`.
fn model(text: &str) -> Option<CpuModel> {
    let mut parts = text.split(',');
    let vendor = match parts.next()? {
        "GenuineIntel" => Vendor::Intel,
        "AuthenticAMD" => Vendor::Amd,
        _ => Vendor::Other,
    };
    let mut number = || parts.next()?.parse().ok();
    Some(CpuModel {
        vendor,
        family: number()?,
        model: number()?,
        stepping: number()?,
        name: String::new(),
    })
}

/// u32 count; for each PMU: u32 number, string name.
fn pmus(bytes: &mut Bytes<'_>, pmus: &mut HashMap<u32, String>) -> Option<()> {
    for _ in 0..bytes.u32()? {
        let number = bytes.u32()?;
        if let Some(name) = string(bytes) {
            pmus.insert(number, name);
        }
    }
    Some(())
}

/// u32 version, clock; u64 wall-clock time, time of the clock.
fn clock_data(bytes: &mut Bytes<'_>) -> Option<ClockData> {
    let (_version, clock) = bytes.pair()?;
    Some(ClockData {
        clock: clock.cast_signed(),
        wall_ns: bytes.u64()?,
        clock_ns: bytes.u64()?,
    })
}

/// u32 count, size of an attr; for each event: attr, u32 ids, string name, u64 ids[]. Sets the names of known
/// events.
fn event_desc(bytes: &mut Bytes<'_>, events: &mut [Event]) -> Option<()> {
    let (count, size) = bytes.pair()?;
    for n in 0..count as usize {
        let attr = Attr::read(bytes.take(size as usize)?)?;
        let ids = bytes.u32()?;
        let name = string(bytes);
        let ids = bytes.take_array(ids.into(), 8)?;
        let (ids, _) = ids.as_chunks::<8>();
        let ids: Vec<u64> = ids.iter().map(|id| u64::from_ne_bytes(*id)).collect();
        let same = |event: &Event| match (ids.first(), event.ids.is_empty()) {
            (Some(id), false) => event.ids.contains(id),
            _ => false,
        };
        let known = events.iter().position(same).or_else(|| {
            let by_place = events.get(n)?;
            (by_place.attr == attr).then_some(n)
        });
        if let Some(event) = known.and_then(|known| events.get_mut(known)) {
            event.name = name;
            if event.ids.is_empty() {
                event.ids = ids;
            }
        }
    }
    Some(())
}
