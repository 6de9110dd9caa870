//! Addresses of a source line, from DWARF.

use std::collections::BTreeMap;

use gimli::{Dwarf, Unit};

use super::error::ResolveError;
use crate::binary::dwarf::{DebugInfo, Slice};
use crate::binary::elf::Binary;

/// The first instruction of the line in each function that has code of it: several where the
/// function was inlined or instantiated.
///
/// # Errors
/// [`ResolveError::Line`] without debug information, file or code; the nearest line that has some.
pub(super) fn addresses(binary: &Binary, file: &str, line: u32) -> Result<Vec<u64>, ResolveError> {
    let error = |why: String| ResolveError::Line {
        file: file.to_owned(),
        line,
        path: binary.path.clone(),
        why,
    };
    let info =
        DebugInfo::load(binary).ok_or_else(|| error("it has no debug information".to_owned()))?;
    let lines = scan(&info.dwarf(), file);
    let Some(found) = lines.get(&u64::from(line)) else {
        let nearest = lines
            .range(u64::from(line)..)
            .next()
            .or_else(|| lines.range(..u64::from(line)).next_back());
        return Err(error(match nearest {
            None => "its debug information has no such file".to_owned(),
            Some((nearest, _)) => {
                format!("no code comes from that line, the nearest is {nearest}")
            }
        }));
    };
    let mut first: BTreeMap<u64, u64> = BTreeMap::new();
    for address in found.iter().copied().filter(|a| binary.is_code(*a)) {
        let start = binary.start_of(address).unwrap_or(address);
        let slot = first.entry(start).or_insert(address);
        *slot = (*slot).min(address);
    }
    if first.is_empty() {
        return Err(error("its code was left out by the linker".to_owned()));
    }
    Ok(first.into_values().collect())
}

/// Statement addresses of every line of the files whose path ends in `file`.
fn scan(dwarf: &Dwarf<Slice<'_>>, file: &str) -> BTreeMap<u64, Vec<u64>> {
    let mut lines = BTreeMap::new();
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        if let Ok(unit) = dwarf.unit(header) {
            // A unit that can't be read contributes no lines; others may.
            let _ = scan_unit(dwarf, &unit, file, &mut lines);
        }
    }
    lines
}

fn scan_unit<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    file: &str,
    lines: &mut BTreeMap<u64, Vec<u64>>,
) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else {
        return Ok(());
    };
    let mut wanted: BTreeMap<u64, bool> = BTreeMap::new();
    let mut rows = program.rows();
    while let Some((header, row)) = rows.next_row()? {
        if row.end_sequence() || !row.is_stmt() {
            continue;
        }
        let index = row.file_index();
        let matches = *wanted.entry(index).or_insert_with(|| {
            header
                .file(index)
                .and_then(|entry| path_of(dwarf, unit, header, entry))
                .is_some_and(|path| ends_in(&path, file))
        });
        if let (true, Some(line)) = (matches, row.line()) {
            lines.entry(line.get()).or_default().push(row.address());
        }
    }
    Ok(())
}

fn path_of<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    header: &gimli::LineProgramHeader<Slice<'a>>,
    entry: &gimli::FileEntry<Slice<'a>>,
) -> Option<String> {
    let text = |value| {
        let slice = dwarf.attr_string(unit, value).ok()?;
        Some(slice.to_string_lossy().into_owned())
    };
    let name = text(entry.path_name())?;
    let folder = entry.directory(header).and_then(text);
    Some(match folder {
        Some(folder) if !name.starts_with('/') => format!("{folder}/{name}"),
        _ => name,
    })
}

/// `src/main.c` means `/build/src/main.c`, not `/build/othersrc/main.c`.
fn ends_in(path: &str, file: &str) -> bool {
    let file = file.trim_start_matches("./");
    path.strip_suffix(file)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('/') || file.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file is matched by the end of its path, by whole components.
    #[test]
    fn path_ends() {
        assert!(ends_in("/build/src/main.c", "main.c"));
        assert!(ends_in("/build/src/main.c", "./src/main.c"));
        assert!(ends_in("/build/src/main.c", "/build/src/main.c"));
        assert!(!ends_in("/build/src/main.c", "ain.c"));
    }
}
