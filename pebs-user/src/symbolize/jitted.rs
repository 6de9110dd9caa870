//! Names of just-in-time compiled code, from a file written by its compiler: a perf map or a jit dump.
//!
//! The file grows while the process runs, or is written anew (`jcmd PID Compiler.perfmap`). Anyone can write to
//! `/tmp`, so a file is used only if it belongs to the process's user or to root, and is not a link.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::functions::{Description, Functions};
use crate::binary::open::{open_not_link, open_root};
use crate::units::{FunctionId, Pid};

/// Maximum number of functions of all files together; further ones are not read. About 100 bytes each.
pub(super) const ENTRIES_MAX: usize = 1 << 20;

/// Maximum bytes of a file read at once: some 100 ms of work.
pub(super) const READ_AT_ONCE: u64 = 64 << 20;

/// Maximum bytes of a file in total: a sparse file costs its author nothing.
const READ_MAX: u64 = 1 << 30;

/// Minimum time between two checks of the file.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Number of bytes compared to tell a file that has grown from one that was written anew: a few lines of a map.
const COMPARED: u64 = 256;

/// A compiled function.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Jitted {
    end: u64,
    name: Box<str>,
    function: Option<FunctionId>,
}

/// Compiled functions by address; newer code replaces older.
#[derive(Clone, Debug, Default)]
pub(super) struct JitTable {
    by_start: BTreeMap<u64, Jitted>,
}

impl JitTable {
    /// Functions in it.
    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Adds a function.
    pub(super) fn push(&mut self, start: u64, end: u64, name: String) {
        if let Some(old) = self.by_start.get(&start)
            && old.end == end
            && *old.name == *name
        {
            return;
        }
        // Code that is overlapped by newer code is removed.
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

    /// Records that the code at an address has moved to another.
    pub(super) fn moved(&mut self, from: u64, to: u64) {
        if let Some(old) = self.by_start.remove(&from) {
            self.push(to, to.saturating_add(old.end - from), old.name.into());
        }
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

/// Reads the new part of a file, until the table has a given number of functions.
type ReadOn = fn(&mut Source, &mut JitTable, usize) -> io::Result<()>;

/// The perf map or jit dump of one process.
#[derive(Debug)]
pub(super) struct JitFile {
    path: PathBuf,
    read_on: ReadOn,
    /// The process's root, held open if it differs from ours.
    root: Option<OwnedFd>,
    /// The process's user.
    owner: u32,
    table: JitTable,
    file: Option<Source>,
    looked: Option<Instant>,
    /// Number of functions that all files may still add.
    left: Rc<Cell<usize>>,
}

/// The file as it was when last read.
#[derive(Debug)]
pub(super) struct Source {
    pub file: File,
    inode: u64,
    /// Bytes read so far: complete lines or records only.
    pub read: u64,
    /// The last of them, at most [`COMPARED`].
    last: Vec<u8>,
    /// The file has another format, or is too large.
    pub given_up: bool,
}

impl Source {
    pub(super) const fn new(file: File, inode: u64) -> Self {
        Self {
            file,
            inode,
            read: 0,
            last: Vec::new(),
            given_up: false,
        }
    }

    /// Whether what was read is still there, up to its last bytes; the file may be longer by now.
    fn is_unchanged(&self) -> bool {
        self.last_read().is_ok_and(|last| last == self.last)
    }

    /// The last of the bytes read so far, as they are in the file now.
    fn last_read(&self) -> io::Result<Vec<u8>> {
        let start = self.read.saturating_sub(COMPARED);
        let mut last = vec![0; (self.read - start) as usize];
        self.file.read_exact_at(&mut last, start)?;
        Ok(last)
    }
}

impl JitFile {
    /// A file of a process; `None` if the process is gone. Reads nothing yet.
    ///
    /// Usable after the end of the process, as long as the file exists. `left` is the number of functions that all
    /// files together may still add, initially [`ENTRIES_MAX`].
    #[must_use]
    pub(super) fn new(
        pid: Pid,
        path: PathBuf,
        read_on: ReadOn,
        left: Rc<Cell<usize>>,
    ) -> Option<Self> {
        let process = fs::metadata(format!("/proc/{}", pid.0)).ok()?;
        let root = format!("/proc/{}/root", pid.0);
        let root_is_ours = same_file(&fs::metadata(&root).ok()?, &fs::metadata("/").ok()?);
        Some(Self {
            path,
            read_on,
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

    /// Whether it is the file of this path.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }

    /// Whether there was a file when it was last looked for.
    #[must_use]
    pub(super) const fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// The function at an address; `None` if the file has none.
    ///
    /// Cost: O(log functions), a `stat` every 50 ms, and reading the new part of the file.
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

    /// Reads the new part of the file, at most every [`LOOK_AGAIN`].
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
            // The file was unlinked; the open one is still complete.
            self.read_on();
            return;
        };
        match &mut self.file {
            Some(source) if source.inode != metadata.ino() => {
                self.forget();
                self.file = Some(Source::new(file, metadata.ino()));
            }
            // Functions that are in it as before keep their numbers.
            Some(source) if !source.is_unchanged() => *source = Source::new(file, metadata.ino()),
            Some(_) => {}
            None => self.file = Some(Source::new(file, metadata.ino())),
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
        let before = self.table.len();
        let most = before + self.left.get();
        // A failed read is treated as the end of the file.
        let _ = (self.read_on)(source, &mut self.table, most);
        source.last = source.last_read().unwrap_or_default();
        source.given_up |= source.read > READ_MAX;
        self.left.set(most - self.table.by_start.len());
    }

    fn forget(&mut self) {
        self.left.set(self.left.get() + self.table.by_start.len());
        self.table = JitTable::default();
    }
}

impl Drop for JitFile {
    fn drop(&mut self) {
        self.forget();
    }
}

fn same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The name of the function at an address.
#[cfg(test)]
pub(super) fn name(table: &mut JitTable, address: u64) -> Option<String> {
    table.get_mut(address).map(|(_, j)| j.name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::perf_map;

    fn all_left() -> Rc<Cell<usize>> {
        Rc::new(Cell::new(ENTRIES_MAX))
    }

    /// A map that is a link, a pipe, or another user's is not read; functions of retired maps make room.
    #[test]
    fn maps_of_others() {
        let me = Pid(std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map");
        let left = all_left();
        let mut map = perf_map::file(me, Rc::clone(&left)).unwrap();
        map.path.clone_from(&path);
        let mut functions = Functions::default();
        let mut found = |map: &mut JitFile| {
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

    /// Code compiled over older code replaces all of it.
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
        let mut map = perf_map::file(me, all_left()).unwrap();
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

    /// A map that is written anew over the old one is read from its start, longer or not; what has not changed
    /// keeps its number.
    #[test]
    fn written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut map = perf_map::file(Pid(std::process::id()), all_left()).unwrap();
        map.path = dir.path().join("map");
        let mut functions = Functions::default();
        let mut at = |map: &mut JitFile, address| {
            map.looked = None;
            map.function(address, &mut functions)
        };
        let path = map.path.clone();
        fs::write(&path, "1000 100 stays\n2000 100 old\n").unwrap();
        let (stays, old) = (at(&mut map, 0x1000), at(&mut map, 0x2000));
        for text in [
            "3000 100 another\n2000 100 new\n1000 100 stays\n4000 100 more\n",
            "2000 40 newer\n",
        ] {
            fs::write(&path, text).unwrap();
            assert_ne!(at(&mut map, 0x2000), old, "{text}");
            assert_eq!(at(&mut map, 0x1000), stays, "{text}");
        }
        assert!(at(&mut map, 0x4000).is_some());
    }
}
