//! Names of just-in-time compiled code, from the map file that its compiler writes.
//!
//! `/tmp/perf-PID.map` in the process's own root, PID as its own pid namespace counts: a line a function,
//! `START SIZE NAME`, numbers in hex. It grows while the process runs. Anyone can write to `/tmp`, so a file is
//! believed only if it belongs to the process's user or to root. Source: tools/perf/Documentation/jit-interface.txt.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::functions::{Description, Functions, NAME_MAX};
use super::open::{open_in_directory, open_in_root, open_root};
use crate::units::{FunctionId, Pid};

/// Functions kept of one map; what comes behind is not read. About 100 bytes each.
const ENTRIES_MAX: usize = 1 << 20;

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
pub struct JitTable {
    by_start: BTreeMap<u64, Jitted>,
}

impl JitTable {
    /// Takes in a line; one that is not understood is left out.
    pub fn push_line(&mut self, line: &[u8]) {
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
pub struct PerfMap {
    path: PathBuf,
    /// The process's root, held open if it is not ours.
    root: Option<OwnedFd>,
    /// The process's user.
    owner: u32,
    table: JitTable,
    file: Option<Source>,
    looked: Option<Instant>,
}

/// The file as it was when last read.
#[derive(Debug)]
struct Source {
    file: File,
    inode: u64,
    /// Up to here it has been read: whole lines only.
    read: u64,
}

impl PerfMap {
    /// Finds out where the process's map would be; `None` if the process has gone. Reads nothing yet.
    ///
    /// Works on after the end of the process, as long as the file is there.
    #[must_use]
    pub fn new(pid: Pid) -> Option<Self> {
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
        })
    }

    /// The function at an address; `None` if the map has none.
    ///
    /// Cost: O(log functions), a `stat` every 50 ms, and reading what the file has grown by.
    pub fn function(&mut self, address: u64, functions: &mut Functions) -> Option<FunctionId> {
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
            self.table = JitTable::default();
            self.file = Some(Source {
                file,
                inode: metadata.ino(),
                read: 0,
            });
        }
        self.read_on();
    }

    fn open(&self) -> Option<(File, fs::Metadata)> {
        let (file, metadata) = match &self.root {
            Some(root) => open_in_directory(root, &self.path)?,
            None => open_in_root("/", &self.path)?,
        };
        let owner = metadata.uid();
        (owner == 0 || owner == self.owner).then_some((file, metadata))
    }

    fn read_on(&mut self) {
        let Some(source) = &mut self.file else { return };
        // A failed read is the end of what there is.
        let _ = read_lines(source, &mut self.table);
    }
}

fn read_lines(source: &mut Source, table: &mut JitTable) -> std::io::Result<()> {
    source.file.seek(SeekFrom::Start(source.read))?;
    let mut reader = BufReader::with_capacity(64 << 10, &source.file);
    let mut line = Vec::new();
    while table.by_start.len() < ENTRIES_MAX {
        let (len, whole) = read_line(&mut reader, &mut line)?;
        if !whole {
            break;
        }
        source.read += len;
        table.push_line(&line);
    }
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
    use super::*;

    fn name(table: &mut JitTable, address: u64) -> Option<String> {
        table.get_mut(address).map(|(_, j)| j.name.to_string())
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
        let mut map = PerfMap::new(me).unwrap();
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
