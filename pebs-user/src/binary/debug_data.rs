//! The separate debug file of a stripped binary, and the symbols within it.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;
use object::{Object, ObjectSection};

use super::debuginfod;
use super::object_file::{ALWAYS, Elf, MAX_FILE, MAX_RATIO};
use crate::files::read_regular;

/// Directory of debug files in distributions.
const DEBUG_ROOT: &str = "/usr/lib/debug";

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn in_debug_root(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
    Some(Path::new(DEBUG_ROOT).join(name))
}

/// Reads the file with the part of a file's debug information that several binaries share (`dwz -m`).
///
/// # Errors
/// Its name, if it is not on this machine.
pub(crate) fn shared(path: &Path, file: &Elf<'_>) -> Option<Result<Vec<u8>, PathBuf>> {
    let (name, build_id) = file.gnu_debugaltlink().ok().flatten()?;
    let name = Path::new(OsStr::from_bytes(name));
    let linked = path.parent().map(|folder| folder.join(name));
    let fetched = debuginfod::cached(&hex(build_id));
    let candidates = [linked, in_debug_root(build_id), fetched];
    let found = candidates.into_iter().flatten().find_map(|path| {
        let data = read_regular(&path, MAX_FILE).ok()?;
        belongs(&data, Some(build_id), None).then_some(data)
    });
    Some(found.ok_or_else(|| name.to_owned()))
}

/// Finds and reads the debug file: by build id, then by `.gnu_debuglink` beside the binary, then in debuginfod's
/// cache. A file of another build is not used.
pub(crate) fn find(binary: &Path, file: &Elf<'_>) -> Option<(PathBuf, Vec<u8>)> {
    let build_id = file.build_id().ok().flatten();
    let by_id = build_id.and_then(in_debug_root);
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

/// Memory for decompressing, KiB: `xz -9` has a dictionary of 64 MiB.
const DECOMPRESSION_KIB: u32 = 80 << 10;

/// The ELF file within a stripped one, with the symbols that `.dynsym` lacks and no DWARF; `None` if the file is not
/// stripped, has none, or one of an implausible size.
///
/// Fedora and RHEL ship it as `.gnu_debugdata` (MiniDebugInfo), compressed by xz.
pub(crate) fn embedded<'data>(file: &impl Object<'data>) -> Option<Vec<u8>> {
    let section = file.section_by_name(".gnu_debugdata")?;
    if file.symbol_table().is_some() {
        return None;
    }
    let compressed = section.data().ok()?;
    let most = (compressed.len() as u64)
        .saturating_mul(MAX_RATIO)
        .max(ALWAYS);
    let reader = XzReader::new_mem_limit(compressed, false, DECOMPRESSION_KIB);
    let mut data = Vec::new();
    reader.take(most + 1).read_to_end(&mut data).ok()?;
    (data.len() as u64 <= most).then_some(data)
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
