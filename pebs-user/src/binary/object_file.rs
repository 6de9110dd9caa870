//! Headers and sections of an ELF file in memory.

use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{CompressionFormat, LittleEndian, ObjectSection};

/// Largest file that is read, debug files included.
pub(crate) const MAX_FILE: u64 = 4 << 30;

/// Parsed headers of a 64-bit little-endian ELF.
pub(crate) type Elf<'data> = ElfFile<'data, FileHeader64<LittleEndian>>;

/// Maximum ratio of a compressed section's size to its size in the file: compilers reach 10.
pub(super) const MAX_RATIO: u64 = 64;

/// Size that any compressed section may have, bytes.
pub(super) const ALWAYS: u64 = 1 << 20;

/// The bytes of a section, uncompressed. A section that claims an implausible size counts as empty.
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
