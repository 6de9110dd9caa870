//! Jit dumps: `jit-PID.dump`, which a JIT compiler writes while it compiles; it maps one page of it, by which it is
//! found.
//!
//! A header, then records: code was created (its address, size and name, then the code itself), or moved to another
//! address. Other records (lines, unwinding) are skipped. Numbers are in the machine's byte order.
//! Source: tools/perf/Documentation/jitdump-specification.txt.

use std::cell::Cell;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::rc::Rc;

use super::jitted::{JitFile, JitTable, READ_AT_ONCE, Source};
use crate::binary::demangle::NAME_MAX;
use crate::units::Pid;

/// `JiTD`.
const MAGIC: u32 = 0x4A69_5444;

/// Number of header bytes that are read; a field in them has the real length.
const HEADER: u64 = 12;

/// Bytes of a record before its fields: kind, size, time.
const PREFIX: u64 = 16;

/// Size of a code record's fields before the name, and of a move record, bytes.
const CODE: u64 = 40;
const MOVED: u64 = 48;

/// Kinds of records.
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;

/// Whether a mapped file is a dump, by its name.
pub(super) fn is_dump(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let pid = name.and_then(|name| name.strip_prefix("jit-")?.strip_suffix(".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The dump that a process mapped from this path; see [`JitFile::new`].
pub(super) fn file(pid: Pid, path: &Path, left: Rc<Cell<usize>>) -> Option<JitFile> {
    JitFile::new(pid, path.to_owned(), read_records, left)
}

/// Reads complete records until the table has `most` functions.
fn read_records(source: &mut Source, table: &mut JitTable, most: usize) -> io::Result<()> {
    let end = source.file.metadata()?.len();
    source.file.seek(SeekFrom::Start(source.read))?;
    let mut reader = BufReader::with_capacity(64 << 10, &source.file);
    if source.read == 0 {
        if end < HEADER {
            return Ok(());
        }
        let header = fields::<{ HEADER as usize }>(&mut reader)?;
        let size = u64::from(u32_at(&header, 8));
        if u32_at(&header, 0) != MAGIC || size < HEADER {
            source.given_up = true;
            return Ok(());
        }
        reader.seek_relative((size - HEADER) as i64)?;
        source.read = size;
    }
    let mut looked = 0;
    while table.len() < most && looked < READ_AT_ONCE && source.read + PREFIX <= end {
        let prefix = fields::<{ PREFIX as usize }>(&mut reader)?;
        let (kind, size) = (u32_at(&prefix, 0), u64::from(u32_at(&prefix, 4)));
        if size < PREFIX {
            source.given_up = true;
            break;
        }
        if source.read + size > end {
            // Its end is not written yet.
            break;
        }
        let used = match kind {
            CODE_LOAD if size > PREFIX + CODE => {
                let code = fields::<{ CODE as usize }>(&mut reader)?;
                let (at, len) = (u64_at(&code, 16), u64_at(&code, 24));
                let room = (size - PREFIX - CODE).min(NAME_MAX as u64);
                let mut name = Vec::with_capacity(room as usize);
                (&mut reader).take(room).read_to_end(&mut name)?;
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                let name = String::from_utf8_lossy(name);
                if let Some(end) = at.checked_add(len).filter(|_| len > 0 && !name.is_empty()) {
                    table.push(at, end, name.into_owned());
                }
                PREFIX + CODE + room
            }
            CODE_MOVE if size >= PREFIX + MOVED => {
                let code = fields::<{ MOVED as usize }>(&mut reader)?;
                table.moved(u64_at(&code, 16), u64_at(&code, 24));
                PREFIX + MOVED
            }
            _ => PREFIX,
        };
        reader.seek_relative((size - used) as i64)?;
        looked += used;
        source.read += size;
    }
    Ok(())
}

fn fields<const N: usize>(reader: &mut impl io::Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(field)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::symbolize::jitted::{ENTRIES_MAX, name};

    fn header() -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in [MAGIC, 1, 40, 62, 0, 7] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend([0; 16]);
        bytes
    }

    fn record(kind: u32, numbers: &[u64], rest: &[u8]) -> Vec<u8> {
        let size = PREFIX as usize + 8 + 8 * numbers.len() + rest.len();
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((size as u32).to_ne_bytes());
        bytes.extend([0; 8 + 8]);
        numbers.iter().for_each(|it| bytes.extend(it.to_ne_bytes()));
        bytes.extend(rest);
        bytes
    }

    fn code(at: u64, len: u64, name: &str) -> Vec<u8> {
        let rest = [name.as_bytes(), &[0], &vec![0x90; len as usize]].concat();
        record(CODE_LOAD, &[at, at, len, 1], &rest)
    }

    fn source(bytes: &[u8]) -> Source {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Source::new(file, 0)
    }

    /// Code is named, also after it has moved; other records are skipped.
    #[test]
    fn records() {
        let bytes = [
            header(),
            code(0x1000, 0x20, "first"),
            record(2, &[1, 2, 3], b"lines"),
            code(0x2000, 0x10, "second"),
            record(CODE_MOVE, &[0x1000, 0x1000, 0x3000, 0x20, 1], b""),
        ];
        let mut table = JitTable::default();
        let mut source = source(&bytes.concat());
        read_records(&mut source, &mut table, ENTRIES_MAX).unwrap();
        assert!(!source.given_up);
        assert_eq!(name(&mut table, 0x200f).as_deref(), Some("second"));
        assert_eq!(name(&mut table, 0x1000), None);
        assert_eq!(name(&mut table, 0x301f).as_deref(), Some("first"));
    }

    /// A growing file is read on from the first incomplete record.
    #[test]
    fn grows() {
        let first = [header(), code(0x1000, 0x20, "first")].concat();
        let second = code(0x2000, 0x20, "second");
        let mut source = source(&[&first[..], &second[..30]].concat());
        let mut table = JitTable::default();
        read_records(&mut source, &mut table, ENTRIES_MAX).unwrap();
        assert_eq!((table.len(), source.read), (1, first.len() as u64));
        source.file.seek(SeekFrom::End(0)).unwrap();
        source.file.write_all(&second[30..]).unwrap();
        read_records(&mut source, &mut table, ENTRIES_MAX).unwrap();
        assert_eq!(name(&mut table, 0x2000).as_deref(), Some("second"));
    }

    /// Files that are no dump, or of another byte order, are given up, as are records without a size; the table is
    /// limited.
    #[test]
    fn garbage() {
        let mut swapped = header();
        swapped[..4].reverse();
        let empty = [header(), vec![0; 64]].concat();
        for bytes in [vec![7; 100], swapped, empty] {
            let mut source = source(&bytes);
            let mut table = JitTable::default();
            read_records(&mut source, &mut table, ENTRIES_MAX).unwrap();
            assert!(source.given_up && table.len() == 0);
        }
        let many: Vec<u8> = (1..100).flat_map(|at| code(at << 12, 8, "f")).collect();
        let mut source = source(&[header(), many].concat());
        let mut table = JitTable::default();
        read_records(&mut source, &mut table, 7).unwrap();
        assert_eq!(table.len(), 7);
    }

    /// Names of files that are dumps.
    #[test]
    fn names() {
        assert!(is_dump(Path::new("/home/me/.debug/jit/x/jit-17.dump")));
        for other in ["/tmp/jit-.dump", "/tmp/jit-a.dump", "/tmp/jit-17.so", "jit"] {
            assert!(!is_dump(Path::new(other)), "{other}");
        }
    }

    proptest::proptest! {
        /// Any bytes after a header are handled without a panic.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let mut source = source(&[header(), bytes].concat());
            let mut table = JitTable::default();
            read_records(&mut source, &mut table, ENTRIES_MAX).unwrap();
            table.check();
        }
    }
}
