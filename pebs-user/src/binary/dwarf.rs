//! Debug information of a binary, loaded on demand.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian};
use object::{Object, ObjectSection};

use super::debug_data;
use super::elf::{Binary, with_libraries};
use super::object_file::{Elf, content};

/// Reader of borrowed sections.
pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

type Sections = DwarfSections<Cow<'static, [u8]>>;

/// The debug sections, uncompressed, of the binary or of its debug file.
#[derive(Default)]
pub(crate) struct DebugInfo {
    sections: Sections,
    /// Those of the file that several binaries share (`dwz -m`).
    shared: Option<Sections>,
    /// The name of that file, if it is not on this machine.
    pub lacks: Option<PathBuf>,
}

impl DebugInfo {
    /// Loads the debug information; `None` if the binary has none.
    pub(crate) fn load(binary: &Binary) -> Option<Self> {
        let file = binary.elf()?;
        if let Some(info) = Self::of(&binary.path, &file) {
            return Some(info);
        }
        let (path, data) = debug_data::find(&binary.path, &file)?;
        Self::of(&path, &Elf::parse(&*data).ok()?)
    }

    fn of(path: &Path, file: &Elf<'_>) -> Option<Self> {
        let sections = sections(file)?;
        let (shared, lacks) = match debug_data::shared(path, file) {
            Some(Ok(data)) => (
                Elf::parse(&*data).ok().and_then(|it| self::sections(&it)),
                None,
            ),
            Some(Err(name)) => (None, Some(name)),
            None => (None, None),
        };
        Some(Self {
            sections,
            shared,
            lacks,
        })
    }

    /// A view for reading.
    pub(crate) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        self.sections
            .borrow_with_sup(self.shared.as_ref(), |section| {
                EndianSlice::new(section, LittleEndian)
            })
    }
}

fn sections(file: &Elf<'_>) -> Option<Sections> {
    file.section_by_name(".debug_info")
        .filter(|section| section.size() > 0)?;
    let load = |id: gimli::SectionId| -> Result<Cow<'static, [u8]>, object::Error> {
        Ok(match file.section_by_name(id.name()) {
            Some(section) => Cow::Owned(content(&section)?),
            None => Cow::Borrowed(&[]),
        })
    };
    DwarfSections::load(load).ok()
}

/// A binary whose debug information is not on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// The file.
    pub path: PathBuf,
    /// Its build id in hex.
    pub build_id: String,
}

/// The binaries, and libraries they need, that have a build id but no debug information on this machine.
///
/// Cost: reads every file, and its debug file.
#[must_use]
pub(crate) fn lacking(binaries: Vec<PathBuf>) -> Vec<Lacking> {
    let without = with_libraries(binaries).filter(|binary| DebugInfo::load(binary).is_none());
    let mut lacking: Vec<Lacking> = without
        .filter_map(|binary| {
            let build_id = binary.build_id()?;
            let path = binary.path;
            Some(Lacking { path, build_id })
        })
        .collect();
    // The same file may have several paths.
    lacking.sort_by(|a, b| (&a.build_id, &a.path).cmp(&(&b.build_id, &b.path)));
    lacking.dedup_by(|b, a| a.build_id == b.build_id);
    lacking.sort_by(|a, b| a.path.cmp(&b.path));
    lacking
}
