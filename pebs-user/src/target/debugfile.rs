//! The separate debug file of a stripped binary.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Object;

use super::elf::{Elf, MAX_FILE};
use crate::files::read_regular;

/// Where distributions put debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// Finds and reads the debug file: by build id, then by `.gnu_debuglink` beside the binary. One that
/// belongs to another build is not taken.
pub(super) fn find(binary: &Path, file: &Elf<'_>) -> Option<(PathBuf, Vec<u8>)> {
    let build_id = file.build_id().ok().flatten();
    let by_id = build_id.and_then(|id| {
        let (first, rest) = id.split_first()?;
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Path::new(DEBUG_ROOT).join(format!(".build-id/{first:02x}/{rest}.debug")))
    });
    let by_link = file.gnu_debuglink().ok().flatten();
    let beside = by_link
        .iter()
        .flat_map(|(name, _)| link_candidates(binary, name));
    for path in by_id.into_iter().chain(beside) {
        if path == binary {
            continue;
        }
        let Ok(data) = read_regular(&path, MAX_FILE) else {
            continue;
        };
        if belongs(&data, build_id, by_link.map(|(_, crc)| crc)) {
            return Some((path, data));
        }
    }
    None
}

/// The places that gdb searches for a debug link.
fn link_candidates(binary: &Path, name: &[u8]) -> Vec<PathBuf> {
    let Some(folder) = binary.parent() else {
        return Vec::new();
    };
    let name = OsStr::from_bytes(name);
    // A name, not a path that leads elsewhere.
    if Path::new(name).file_name() != Some(name) {
        return Vec::new();
    }
    let global = Path::new(DEBUG_ROOT).join(folder.strip_prefix("/").unwrap_or(folder));
    vec![
        folder.join(name),
        folder.join(".debug").join(name),
        global.join(name),
    ]
}

/// Whether a debug file is that of the build: same build id, or, where either has none, the checksum.
fn belongs(data: &[u8], build_id: Option<&[u8]>, crc: Option<u32>) -> bool {
    let Ok(debug) = Elf::parse(data) else {
        return false;
    };
    match (build_id, debug.build_id().ok().flatten()) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => crc == Some(crc32(data)),
    }
}

/// CRC-32 as `.gnu_debuglink` has it (IEEE, reflected).
fn crc32(data: &[u8]) -> u32 {
    let mut table = [0_u32; 256];
    for (value, slot) in (0_u32..).zip(table.iter_mut()) {
        *slot = (0..8).fold(value, |crc, _| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        });
    }
    !data.iter().fold(!0_u32, |crc, byte| {
        table[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum is the usual one.
    #[test]
    fn checksum() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
