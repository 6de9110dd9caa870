//! The archive that a kernel unpacks as its root file system.
//!
//! Source: Documentation/driver-api/early-userspace/buffer-format.rst ("newc").

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

/// File type and mode bits as stat(2) has them.
const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const CHARACTER: u32 = 0o020_600;

/// Ends the archive.
const TRAILER: &str = "TRAILER!!!";

/// Writes entries that all belong to root; folders are added as needed.
pub struct Archive<W> {
    to: W,
    folders: BTreeSet<String>,
    entries: u32,
}

struct Entry<'a> {
    /// Without the leading slash.
    name: &'a str,
    mode: u32,
    /// Device number of a special file.
    device: (u32, u32),
    data: &'a [u8],
}

impl<W: Write> Archive<W> {
    /// An empty archive.
    pub fn new(to: W) -> Self {
        Self {
            to,
            folders: BTreeSet::new(),
            entries: 0,
        }
    }

    /// Adds a folder and those above it.
    pub fn folder(&mut self, path: &Path) -> io::Result<()> {
        let name = relative(path);
        for (end, _) in name.match_indices('/').chain([(name.len(), "")]) {
            let folder = &name[..end];
            if !folder.is_empty() && self.folders.insert(folder.to_owned()) {
                self.entry(&Entry {
                    name: folder,
                    mode: DIRECTORY,
                    device: (0, 0),
                    data: &[],
                })?;
            }
        }
        Ok(())
    }

    /// Adds a file that may be executed.
    pub fn file(&mut self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.folder(path.parent().unwrap_or(path))?;
        self.entry(&Entry {
            name: &relative(path),
            mode: EXECUTABLE,
            device: (0, 0),
            data,
        })
    }

    /// Adds a character device.
    pub fn device(&mut self, path: &Path, device: (u32, u32)) -> io::Result<()> {
        self.folder(path.parent().unwrap_or(path))?;
        self.entry(&Entry {
            name: &relative(path),
            mode: CHARACTER,
            device,
            data: &[],
        })
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(&Entry {
            name: TRAILER,
            mode: 0,
            device: (0, 0),
            data: &[],
        })?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.entries += 1;
        let too_large = |_| io::Error::other(format!("{} is too large", entry.name));
        let length = u32::try_from(entry.data.len()).map_err(too_large)?;
        let name_length = u32::try_from(entry.name.len() + 1).map_err(too_large)?;
        let (major, minor) = entry.device;
        // Number, mode, owner, group, links, time, length, device of the file system, of the
        // file, length of the name with its NUL, checksum.
        let numbers = [
            self.entries,
            entry.mode,
            0,
            0,
            1,
            0,
            length,
            0,
            0,
            major,
            minor,
            name_length,
            0,
        ];
        let mut header = String::from("070701");
        for number in numbers {
            header += &format!("{number:08x}");
        }
        header += entry.name;
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(entry.data)
    }

    /// Writes bytes and fills up to a multiple of four: every part of an entry begins at one.
    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        let pad = bytes.len().next_multiple_of(4) - bytes.len();
        self.to.write_all(&[0; 3][..pad])
    }
}

fn relative(path: &Path) -> String {
    path.to_string_lossy().trim_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header of 110 bytes and name are padded to a multiple of four, data too; folders come before
    /// their contents, once.
    #[test]
    fn layout() {
        let mut archive = Archive::new(Vec::new());
        archive.file(Path::new("/a/bc/run"), b"12345").unwrap();
        archive.file(Path::new("/a/other"), b"").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<&str> = text
            .split("070701")
            .skip(1)
            .map(|entry| entry[104..].split('\0').next().unwrap())
            .collect();
        assert_eq!(names, ["a", "a/bc", "a/bc/run", "a/other", TRAILER]);
        let run = text.split("070701").nth(3).unwrap();
        assert_eq!(&run[8..16], "000081ed", "an executable file");
        assert_eq!(&run[48..56], "00000005", "its length");
        assert_eq!(&run[104..], "a/bc/run\x00\x0012345\0\0\0");
    }
}
