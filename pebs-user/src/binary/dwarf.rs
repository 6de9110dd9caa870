//! Debug information of a binary, loaded when it is asked for.

use std::borrow::Cow;

use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian};
use object::{CompressionFormat, Object, ObjectSection};

use super::debug_data;
use super::elf::{Binary, Elf};

/// Reader of borrowed sections.
pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The debug sections, uncompressed, of the binary or of its debug file.
#[derive(Default)]
pub(crate) struct DebugInfo {
    sections: DwarfSections<Cow<'static, [u8]>>,
}

impl DebugInfo {
    /// Loads them; `None` if the binary has none.
    pub(crate) fn load(binary: &Binary) -> Option<Self> {
        let file = binary.elf()?;
        if let Some(info) = Self::of(&file) {
            return Some(info);
        }
        let (_, data) = debug_data::find(&binary.path, &file)?;
        Self::of(&Elf::parse(&*data).ok()?)
    }

    fn of(file: &Elf<'_>) -> Option<Self> {
        file.section_by_name(".debug_info")
            .filter(|section| section.size() > 0)?;
        let load = |id: gimli::SectionId| -> Result<Cow<'static, [u8]>, object::Error> {
            Ok(match file.section_by_name(id.name()) {
                Some(section) => Cow::Owned(content(&section)?),
                None => Cow::Borrowed(&[]),
            })
        };
        let sections = DwarfSections::load(load).ok()?;
        Some(Self { sections })
    }

    /// A view for reading.
    pub(crate) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        self.sections
            .borrow(|section| EndianSlice::new(section, LittleEndian))
    }
}

/// What a compressed section holds at most, as a multiple of its size in the file: compilers reach 10.
const MAX_RATIO: u64 = 64;

/// What any compressed section may hold, bytes.
const ALWAYS: u64 = 1 << 20;

/// The bytes of a section, uncompressed. One that says it holds far more than it can
/// counts as empty.
pub(crate) fn content<'data>(section: &impl ObjectSection<'data>) -> object::Result<Vec<u8>> {
    let data = section.compressed_data()?;
    let most = (data.data.len() as u64)
        .saturating_mul(MAX_RATIO)
        .max(ALWAYS);
    if data.format != CompressionFormat::None && data.uncompressed_size > most {
        return Ok(Vec::new());
    }
    Ok(data.decompress()?.into_owned())
}
