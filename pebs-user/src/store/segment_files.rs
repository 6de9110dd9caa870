//! Names of the segments' files in the folder of a table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Ending of an open segment's file.
const OPEN: &str = ".parquet.open";

/// Ending of a closed segment's file.
const CLOSED: &str = ".parquet";

/// Files of a table's folder by segment number.
#[derive(Debug, Default)]
pub(super) struct SegmentFiles {
    /// Parquet files.
    pub(super) closed: BTreeMap<u32, PathBuf>,
    /// Files of segments that are open.
    pub(super) open: BTreeMap<u32, PathBuf>,
    /// Files left by a writer that died: unfinished temporaries, open files of closed segments.
    pub(super) leftover: Vec<PathBuf>,
}

impl SegmentFiles {
    /// Lists a table's folder. Files with other names are ignored.
    pub(super) fn list(folder: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if let Some(number) = number_of(name, CLOSED) {
                files.closed.insert(number, path);
            } else if let Some(number) = number_of(name, OPEN) {
                files.open.insert(number, path);
            } else if number_of(name, ".parquet.tmp").is_some() {
                files.leftover.push(path);
            }
        }
        for number in files.closed.keys() {
            files.leftover.extend(files.open.remove(number));
        }
        Ok(files)
    }
}

fn number_of(name: &str, ending: &str) -> Option<u32> {
    name.strip_suffix(ending)?.parse().ok()
}

/// Path of a closed segment.
pub(super) fn closed_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:06}{CLOSED}"))
}

/// Path of an open segment.
pub(super) fn open_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:06}{OPEN}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Segments are sorted by number, not by name, and files of other programs are ignored.
    #[test]
    fn folders_are_listed_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "1000000.parquet",
            "000002.parquet",
            "000010.parquet.open",
            "000002.parquet.open",
            "000011.parquet.tmp",
            "notes.parquet",
            "x",
        ];
        for name in names {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let files = SegmentFiles::list(folder.path()).unwrap();
        assert_eq!(files.closed.into_keys().collect::<Vec<_>>(), [2, 1_000_000]);
        assert_eq!(files.open.into_keys().collect::<Vec<_>>(), [10]);
        let mut leftover = files.leftover;
        leftover.sort();
        let expected = ["000002.parquet.open", "000011.parquet.tmp"];
        assert_eq!(leftover, expected.map(|name| folder.path().join(name)));
    }
}
