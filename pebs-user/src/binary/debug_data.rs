//! The separate debug file of a stripped binary.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Object;

use super::debuginfod;
use super::object_file::{Elf, MAX_FILE};
use crate::files::read_regular;

/// Directory of debug files in distributions.
const DEBUG_ROOT: &str = "/usr/lib/debug";

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Finds and reads the debug file: by build id, then by `.gnu_debuglink` beside the binary, then in debuginfod's
/// cache. A file of another build is not used.
pub(crate) fn find(binary: &Path, file: &Elf<'_>) -> Option<(PathBuf, Vec<u8>)> {
    let build_id = file.build_id().ok().flatten();
    let by_id = build_id.and_then(|id| {
        let (first, rest) = id.split_first()?;
        let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
        Some(Path::new(DEBUG_ROOT).join(name))
    });
    let fetched = build_id.and_then(|id| debuginfod::cached(&hex(id)));
    let by_link = file.gnu_debuglink().ok().flatten();
    let beside = by_link
        .iter()
        .flat_map(|(name, _)| link_candidates(binary, name));
    for path in by_id.into_iter().chain(beside).chain(fetched) {
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

/// Whether a debug file belongs to the build: by build id, or, if either has none, by checksum.
fn belongs(data: &[u8], build_id: Option<&[u8]>, crc: Option<u32>) -> bool {
    let Ok(debug) = Elf::parse(data) else {
        return false;
    };
    match (build_id, debug.build_id().ok().flatten()) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => crc == Some(crc32fast::hash(data)),
    }
}
