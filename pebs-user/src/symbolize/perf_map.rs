//! Names of just-in-time compiled code, from the map file that its compiler writes.
//!
//! `/tmp/perf-PID.map` in the process's own root, PID as its own pid namespace counts: a line a function,
//! `START SIZE NAME`, numbers in hex. It grows while the process runs. Anyone can write to `/tmp`, so a file is
//! believed only if it belongs to the process's user or to root, and is no link to such a file. Source: tools/perf/Documentation/jit-interface.txt.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::functions::{Description, Functions};
use crate::binary::demangle::NAME_MAX;
use crate::binary::open::{open_not_link, open_root};
use crate::units::{FunctionId, Pid};

/// Functions kept of all maps together; what comes behind is not read. About 100 bytes each.
pub(super) const ENTRIES_MAX: usize = 1 << 20;

/// Most that is read of a map at one look, bytes: some 100 ms of work.
const READ_AT_ONCE: u64 = 64 << 20;

/// Most that is read of a map in all, bytes: a file with holes costs its author nothing.
const READ_MAX: u64 = 1 << 30;

/// Shortest time between two looks at the file's size.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A compiled function.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Jitted {
    end: u64,
    name: Box<str>,
    function: Option<FunctionId>,
}

/// Compiled functions by address; newer code takes the place of older.
#[derive(Clone, Debug, Default)]
pub(super) struct JitTable {
    by_start: BTreeMap<u64, Jitted>,
}

impl JitTable {
    /// Takes in a line; one that is not understood is left out.
    pub(super) fn push_line(&mut self, line: &[u8]) {
        if let Some((start, end, name)) = parse_line(line) {
            self.push(start, end, name);
        }
    }

    fn push(&mut self, start: u64, end: u64, name: String) {
        if let Some(old) = self.by_start.get(&start)
            && old.end == end
            && *old.name == *name
        {
            return;
        }
        // Code that is overlapped by newer code is gone.
        while let Some((&at, _)) = self
            .by_start
            .range(..end)
            .next_back()
            .filter(|(_, old)| start < old.end)
        {
            self.by_start.remove(&at);
        }
        let name = name.into_boxed_str();
        let function = None;
        self.by_start.insert(
            start,
            Jitted {
                end,
                name,
                function,
            },
        );
    }

    /// Checks that no two functions overlap.
    #[cfg(any(test, fuzzing))]
    pub fn check(&self) {
        let ranges: Vec<_> = self
            .by_start
            .iter()
            .map(|(at, jitted)| (*at, jitted.end))
            .collect();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }

    fn get_mut(&mut self, address: u64) -> Option<(u64, &mut Jitted)> {
        let (start, jitted) = self.by_start.range_mut(..=address).next_back()?;
        (address < jitted.end).then_some((*start, jitted))
    }
}

/// `START SIZE NAME`; the name may hold blanks.
fn parse_line(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = std::str::from_utf8(line).ok()?.trim();
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.trim_start().split_once(' ')?;
    let (start, size) = (hex(start)?, hex(size)?);
    let name = name.trim();
    let end = start.checked_add(size)?;
    (size > 0 && !name.is_empty()).then(|| (start, end, name.to_string()))
}

fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).ok()
}

/// The map of one process.
#[derive(Debug)]
pub(super) struct PerfMap {
    path: PathBuf,
    /// The process's root, held open if it is not ours.
    root: Option<OwnedFd>,
    /// The process's user.
    owner: u32,
    table: JitTable,
    file: Option<Source>,
    looked: Option<Instant>,
    /// Functions that all maps may still take in.
    left: Rc<Cell<usize>>,
}

/// The file as it was when last read.
#[derive(Debug)]
struct Source {
    file: File,
    inode: u64,
    /// Up to here it has been read: whole lines only.
    read: u64,
    /// It is no map, or too much of one.
    given_up: bool,
}

impl PerfMap {
    /// Finds out where the process's map would be; `None` if the process has gone. Reads nothing yet.
    ///
    /// Works on after the end of the process, as long as the file is there. `left` is the number of functions that
    /// all maps together may still take in, [`ENTRIES_MAX`] at first.
    #[must_use]
    pub(super) fn new(pid: Pid, left: Rc<Cell<usize>>) -> Option<Self> {
        let process = fs::metadata(format!("/proc/{}", pid.0)).ok()?;
        let root = format!("/proc/{}/root", pid.0);
        let root_is_ours = same_file(&fs::metadata(&root).ok()?, &fs::metadata("/").ok()?);
        Some(Self {
            path: PathBuf::from(format!("/tmp/perf-{}.map", own_pid(pid).0)),
            root: if root_is_ours {
                None
            } else {
                Some(open_root(&root)?)
            },
            owner: process.uid(),
            table: JitTable::default(),
            file: None,
            looked: None,
            left,
        })
    }

    /// Whether there was a file when it was last looked for.
    #[must_use]
    pub(super) const fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// The function at an address; `None` if the map has none.
    ///
    /// Cost: O(log functions), a `stat` every 50 ms, and reading what the file has grown by.
    pub(super) fn function(
        &mut self,
        address: u64,
        functions: &mut Functions,
    ) -> Option<FunctionId> {
        self.refresh();
        let (start, jitted) = self.table.get_mut(address)?;
        if let Some(function) = jitted.function {
            return Some(function);
        }
        let function = functions.add(Description {
            name: Some(jitted.name.to_string()),
            module: Some(self.path.display().to_string()),
            size: Some(jitted.end - start),
            ..Description::default()
        });
        jitted.function = Some(function);
        Some(function)
    }

    /// Reads what is new in the file, at most every [`LOOK_AGAIN`].
    fn refresh(&mut self) {
        let now = Instant::now();
        if self
            .looked
            .is_some_and(|looked| now.duration_since(looked) < LOOK_AGAIN)
        {
            return;
        }
        self.looked = Some(now);
        let Some((file, metadata)) = self.open() else {
            // Its name is gone; the file that is open holds all.
            self.read_on();
            return;
        };
        let same = self
            .file
            .as_ref()
            .is_some_and(|source| source.inode == metadata.ino() && source.read <= metadata.len());
        if !same {
            self.forget();
            self.file = Some(Source {
                file,
                inode: metadata.ino(),
                read: 0,
                given_up: false,
            });
        }
        self.read_on();
    }

    fn open(&self) -> Option<(File, fs::Metadata)> {
        let (file, metadata) = match &self.root {
            Some(root) => open_not_link(root, &self.path)?,
            None => open_not_link(&open_root("/")?, &self.path)?,
        };
        let owner = metadata.uid();
        (owner == 0 || owner == self.owner).then_some((file, metadata))
    }

    fn read_on(&mut self) {
        let Some(source) = self.file.as_mut().filter(|source| !source.given_up) else {
            return;
        };
        let before = self.table.by_start.len();
        let most = before + self.left.get();
        // A failed read is the end of what there is.
        let _ = read_lines(source, &mut self.table, most);
        self.left.set(most - self.table.by_start.len());
    }

    fn forget(&mut self) {
        self.left.set(self.left.get() + self.table.by_start.len());
        self.table = JitTable::default();
    }
}

impl Drop for PerfMap {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Takes in whole lines until the table has `most` functions.
fn read_lines(source: &mut Source, table: &mut JitTable, most: usize) -> std::io::Result<()> {
    source.file.seek(SeekFrom::Start(source.read))?;
    let limited = (&source.file).take(READ_AT_ONCE);
    let mut reader = BufReader::with_capacity(64 << 10, limited);
    let mut line = Vec::new();
    let mut read_now = 0;
    while table.by_start.len() < most {
        let (len, whole) = read_line(&mut reader, &mut line)?;
        if !whole {
            // A line that takes up all that is read at once is none.
            source.given_up = len == READ_AT_ONCE;
            break;
        }
        read_now += len;
        table.push_line(&line);
    }
    source.read += read_now;
    source.given_up |= source.read > READ_MAX;
    Ok(())
}

/// Reads up to the next newline, keeping no more of the line than a name can need.
/// Returns the bytes read and whether there was a newline.
fn read_line(
    reader: &mut impl std::io::BufRead,
    line: &mut Vec<u8>,
) -> std::io::Result<(u64, bool)> {
    const KEPT: usize = NAME_MAX + 64;
    line.clear();
    let mut len = 0;
    loop {
        let buffer = reader.fill_buf()?;
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let used = newline.map_or(buffer.len(), |at| at + 1);
        let room = KEPT.saturating_sub(line.len());
        line.extend_from_slice(&buffer[..used.min(room)]);
        reader.consume(used);
        len += used as u64;
        if newline.is_some() || used == 0 {
            return Ok((len, newline.is_some()));
        }
    }
}

fn same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The pid that a process has in its own, innermost pid namespace; the pid itself if that can't be read.
fn own_pid(pid: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.0)).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .and_then(|pids| pids.split_whitespace().next_back()?.parse().ok())
        .map_or(pid, Pid)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn name(table: &mut JitTable, address: u64) -> Option<String> {
        table.get_mut(address).map(|(_, j)| j.name.to_string())
    }

    fn all_left() -> Rc<Cell<usize>> {
        Rc::new(Cell::new(ENTRIES_MAX))
    }

    /// A file with holes of any size is given up soon, one with more functions than there is room for in time.
    #[test]
    fn garbage_without_end() {
        let garbage = |size: u64| {
            let file = tempfile::tempfile().unwrap();
            fs::write(format!("/proc/self/fd/{}", file.as_raw_fd()), "1000 10 f\n").unwrap();
            file.set_len(size).unwrap();
            Source {
                file,
                inode: 0,
                read: 0,
                given_up: false,
            }
        };
        let mut table = JitTable::default();
        let mut source = garbage(1 << 42);
        for _ in 0..3 {
            read_lines(&mut source, &mut table, ENTRIES_MAX).unwrap();
        }
        assert!(source.given_up && source.read == 10);
        assert_eq!(name(&mut table, 0x1000).as_deref(), Some("f"));
        let lines: String = (1..100).map(|at| format!("{at:x}0 8 f\n")).collect();
        let mut source = garbage(0);
        source.file.write_all(lines.as_bytes()).unwrap();
        let mut table = JitTable::default();
        read_lines(&mut source, &mut table, 7).unwrap();
        assert_eq!(table.by_start.len(), 7);
    }

    /// A map that is a link, a pipe, or another user's is not read; functions of maps that went make room.
    #[test]
    fn maps_of_others() {
        let me = Pid(std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map");
        let left = all_left();
        let mut map = PerfMap::new(me, Rc::clone(&left)).unwrap();
        map.path.clone_from(&path);
        let mut functions = Functions::default();
        let mut found = |map: &mut PerfMap| {
            map.looked = None;
            map.function(0x1001, &mut functions).is_some()
        };
        let target = dir.path().join("target");
        fs::write(&target, "1000 10 f\n").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(!found(&mut map), "a link");
        fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(!found(&mut map), "a pipe");
        fs::remove_file(&path).unwrap();
        fs::rename(&target, &path).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(!found(&mut map), "another user's");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        assert!(found(&mut map));
        assert_eq!(left.get(), ENTRIES_MAX - 1);
        drop(map);
        assert_eq!(left.get(), ENTRIES_MAX);
    }

    /// Garbage lines are left out, the others count.
    #[test]
    fn lines() {
        let mut table = JitTable::default();
        let text: &[u8] = b"1000 10 LazyCompile:~f a.js:1\n0x2000 0x20 g\n\nzz 10 h\n3000 0 none\n\
            4000 10\n\xff\xfe 1 x\nffffffffffffffff 10 wraps\n";
        text.split(|byte| *byte == b'\n')
            .for_each(|line| table.push_line(line));
        assert_eq!(table.by_start.len(), 2);
        assert_eq!(name(&mut table, 0x100f).unwrap(), "LazyCompile:~f a.js:1");
        assert_eq!(name(&mut table, 0x1010), None);
        assert_eq!(name(&mut table, 0x2000).unwrap(), "g");
    }

    /// Code compiled over older code takes its place, whole.
    #[test]
    fn newer_code_wins() {
        let mut table = JitTable::default();
        table.push(0x1000, 0x1100, "old".into());
        table.push(0x1080, 0x1200, "new".into());
        assert_eq!(name(&mut table, 0x1000), None);
        assert_eq!(name(&mut table, 0x1100).unwrap(), "new");
    }

    /// A map is found, read on as it grows, and a half-written line waits for its end.
    #[test]
    fn grows() {
        let me = Pid(std::process::id());
        let path = PathBuf::from(format!("/tmp/perf-{}.map", me.0));
        fs::write(&path, "1000 100 first\n2000 100 seco").unwrap();
        let mut functions = Functions::default();
        let mut map = PerfMap::new(me, all_left()).unwrap();
        assert_eq!(map.path, path);
        let first = map.function(0x1010, &mut functions);
        assert!(first.is_some());
        assert_eq!(map.function(0x2010, &mut functions), None);
        fs::write(&path, "1000 100 first\n2000 100 second\n").unwrap();
        map.looked = None;
        assert!(map.function(0x2010, &mut functions).is_some());
        assert_eq!(map.function(0x1010, &mut functions), first);
        fs::remove_file(&path).unwrap();
        let mut rows = Vec::new();
        functions.take_new(&mut rows);
        let names: Vec<_> = rows
            .iter()
            .map(|row| row.name.as_deref().unwrap())
            .collect();
        assert_eq!(names, ["first", "second"]);
    }

    proptest::proptest! {
        /// Any line is taken without a panic.
        #[test]
        fn any_line(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            JitTable::default().push_line(&line);
        }
    }
}
