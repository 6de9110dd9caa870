//! Debug information of a binary, loaded when it is asked for.

use std::borrow::Cow;
use std::fs;

use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian};
use object::{Object, ObjectSection};

use super::elf::{Binary, Elf};

/// Reader of borrowed sections.
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The debug sections, uncompressed, of the binary or of its debug file.
#[derive(Default)]
pub(super) struct DebugInfo {
    sections: DwarfSections<Cow<'static, [u8]>>,
}

impl DebugInfo {
    /// Loads them; `None` if the binary has none.
    pub(super) fn load(binary: &Binary) -> Option<Self> {
        if let Some(info) = binary.elf().and_then(|file| Self::of(&file)) {
            return Some(info);
        }
        let data = fs::read(binary.tables.debug_file.as_ref()?).ok()?;
        Self::of(&Elf::parse(&*data).ok()?)
    }

    fn of(file: &Elf<'_>) -> Option<Self> {
        file.section_by_name(".debug_info")
            .filter(|section| section.size() > 0)?;
        let load = |id: gimli::SectionId| -> Result<Cow<'static, [u8]>, object::Error> {
            Ok(match file.section_by_name(id.name()) {
                Some(section) => Cow::Owned(section.uncompressed_data()?.into_owned()),
                None => Cow::Borrowed(&[]),
            })
        };
        let sections = DwarfSections::load(load).ok()?;
        Some(Self { sections })
    }

    /// A view for reading.
    pub(super) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        self.sections
            .borrow(|section| EndianSlice::new(section, LittleEndian))
    }
}
