//! Reads /proc. Everything here races with the exit of processes: `None` means gone.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use crate::units::{Pid, Tid};

/// Maximum number of listings of the threads, for a process that starts threads all the time.
const MAX_ROUNDS: usize = 16;

/// Identity of a file in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId {
    /// Device, major and minor.
    pub device: (u32, u32),
    pub inode: u64,
}

impl FileId {
    /// The file at a path, symlinks followed.
    #[must_use]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        let device = meta.dev();
        Some(Self {
            device: (rustix::fs::major(device), rustix::fs::minor(device)),
            inode: meta.ino(),
        })
    }
}

/// A mapped part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address and end.
    pub start: u64,
    /// End address.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Holds code.
    pub executable: bool,
    /// The file; inode 0 if there is none.
    pub file: FileId,
    /// Its path as the process sees it, with ` (deleted)` appended if it is deleted.
    pub path: String,
}

impl Mapping {
    /// Address of an offset of a file, if it is mapped here.
    #[must_use]
    pub(crate) fn address_of(&self, file: FileId, offset: u64) -> Option<u64> {
        let within = offset.checked_sub(self.offset)?;
        (self.file == file && within < self.end - self.start).then(|| self.start + within)
    }
}

fn proc_path(pid: Pid, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/{name}", pid.0))
}

/// Whether the process exists. A zombie exists until its parent waits for it.
#[must_use]
pub(crate) fn exists(pid: Pid) -> bool {
    proc_path(pid, "stat").exists()
}

/// The process that a thread is of; itself, if it is a process's first.
#[must_use]
pub(crate) fn process_of(tid: Tid) -> Option<Pid> {
    pid_in_status(Pid(tid.0), "Tgid:")
}

/// The process that traces it with ptrace, as debuggers do.
#[must_use]
pub(crate) fn tracer(pid: Pid) -> Option<Pid> {
    pid_in_status(pid, "TracerPid:").filter(|tracer| tracer.0 != 0)
}

fn pid_in_status(pid: Pid, field: &str) -> Option<Pid> {
    let status = fs::read_to_string(proc_path(pid, "status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().parse().ok().map(Pid)
}

/// The name of the process.
#[must_use]
pub(crate) fn name(pid: Pid) -> Option<String> {
    let name = fs::read(proc_path(pid, "comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// Whether a thread has not ended.
#[must_use]
pub(crate) fn has_thread(pid: Pid, tid: Tid) -> bool {
    proc_path(pid, &format!("task/{}", tid.0)).exists()
}

/// Whether the process has ended and its parent has not waited for it. False if only its first thread has ended.
#[must_use]
pub(crate) fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(proc_path(pid, "stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, behind)| behind);
    state.is_some_and(|state| state.starts_with('Z'))
        && list_threads(pid).is_none_or(|threads| threads.len() <= 1)
}

/// The process's parent.
#[must_use]
pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    // Source: proc_pid_stat(5), (4) `ppid`.
    let parent = stat_field(&proc_path(pid, "stat"), 4)?;
    u32::try_from(parent).ok().map(Pid)
}

/// Start of the stack of the process's program.
#[must_use]
pub(crate) fn start_stack(pid: Pid) -> Option<u64> {
    // Source: proc_pid_stat(5), (28) `startstack`.
    stat_field(&proc_path(pid, "stat"), 28)
}

/// Returns the time since a thread started, within a tick of the kernel's clock.
#[must_use]
pub(crate) fn age(pid: Pid, tid: Tid) -> Option<Duration> {
    // Source: proc_pid_stat(5), (22) `starttime`: ticks after boot.
    let ticks = stat_field(&proc_path(pid, &format!("task/{}/stat", tid.0)), 22)?;
    let start = Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64);
    let now = clock_gettime(ClockId::Boottime);
    Some(Duration::new(now.tv_sec as u64, now.tv_nsec as u32).saturating_sub(start))
}

/// A number of `stat`, by its place counted from 1: 3 or higher.
fn stat_field(path: &Path, place: usize) -> Option<u64> {
    let stat = fs::read_to_string(path).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(place - 3)?.parse().ok()
}

/// Every thread of a process, listed repeatedly until no new one appears.
///
/// A thread started meanwhile is included if it exists at the last listing.
#[must_use]
pub(crate) fn threads(pid: Pid) -> Option<Vec<Tid>> {
    let mut known = BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let now = list_threads(pid)?;
        let before = known.len();
        known.extend(now);
        if known.len() == before {
            break;
        }
    }
    Some(known.into_iter().map(Tid).collect())
}

/// Number of times that the threads of a process were switched out so far.
#[must_use]
pub(crate) fn switches(pid: Pid) -> u64 {
    let of = |tid: Tid| {
        let status = fs::read_to_string(proc_path(pid, &format!("task/{}/status", tid.0))).ok()?;
        let lines = status.lines().filter(|it| it.contains("ctxt_switches:"));
        Some(
            lines
                .filter_map(|it| it.split_whitespace().nth(1)?.parse::<u64>().ok())
                .sum::<u64>(),
        )
    };
    // A thread that has ended has none.
    let threads = threads(pid).unwrap_or_default();
    threads.into_iter().filter_map(of).sum()
}

fn list_threads(pid: Pid) -> Option<Vec<u32>> {
    let entries = fs::read_dir(proc_path(pid, "task")).ok()?;
    let threads: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    (!threads.is_empty()).then_some(threads)
}

/// Every process that descends from `pid`, parents first, `pid` not included.
#[must_use]
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let mut found: Vec<Pid> = Vec::new();
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        for child in direct_children(parent) {
            if child != pid && !found.contains(&child) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found
}

fn direct_children(pid: Pid) -> Vec<Pid> {
    let threads = list_threads(pid).unwrap_or_default();
    let lists = threads
        .iter()
        .filter_map(|tid| fs::read_to_string(proc_path(pid, &format!("task/{tid}/children"))).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|word| word.parse().ok().map(Pid))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// All processes.
#[must_use]
pub(crate) fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid))
        .collect()
}

/// Path of the program as it was started; the file may have been replaced since.
#[must_use]
pub(crate) fn exe(pid: Pid) -> Option<PathBuf> {
    fs::read_link(proc_path(pid, "exe")).ok()
}

/// The program's file, as this process can open it: at its original path, if it is still there.
#[must_use]
pub(crate) fn exe_file(pid: Pid) -> Option<PathBuf> {
    let link = proc_path(pid, "exe");
    let file = FileId::of(&link)?;
    let path = exe(pid).filter(|path| FileId::of(path) == Some(file));
    Some(path.unwrap_or(link))
}

/// The mappings of a process.
#[must_use]
pub(crate) fn mappings(pid: Pid) -> Option<Vec<Mapping>> {
    let text = fs::read(proc_path(pid, "maps")).ok()?;
    let text = String::from_utf8_lossy(&text);
    Some(text.lines().filter_map(mapping).collect())
}

/// Parses a line of /proc/PID/maps.
fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_start();
        let (word, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail;
        word
    };
    let (start, end) = word().split_once('-')?;
    let permissions = word();
    let offset = word();
    let (major, minor) = word().split_once(':')?;
    let inode = word().parse().ok()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let device = |text: &str| u32::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        executable: permissions.contains('x'),
        file: FileId {
            device: (device(major)?, device(minor)?),
            inode,
        },
        path: rest.trim_start().to_owned(),
    })
}

/// Whether a process has code of the file mapped.
#[must_use]
pub(crate) fn maps(pid: Pid, file: FileId) -> bool {
    mappings(pid).is_some_and(|list| {
        list.iter()
            .any(|mapping| mapping.executable && mapping.file == file)
    })
}

/// Every process that has code of the file mapped now.
#[must_use]
pub(crate) fn users(file: FileId) -> Vec<Pid> {
    all().into_iter().filter(|pid| maps(*pid, file)).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn me() -> Pid {
        Pid(std::process::id())
    }

    /// A process sees itself, its threads and its children.
    #[test]
    fn own_process() {
        assert!(exists(me()));
        let handle = std::thread::spawn(|| {
            let tid = Tid(rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned());
            assert!(threads(me()).expect("alive").contains(&tid));
            assert_eq!(process_of(tid), Some(me()));
            assert!(has_thread(me(), tid));
            let age = age(me(), tid).expect("alive");
            assert!(age < Duration::from_secs(60), "{age:?}");
            assert_eq!(super::age(me(), Tid(0)), None);
        });
        handle.join().expect("thread");
        let mut child = Command::new("sleep").arg("20").spawn().expect("sleep");
        let pid = Pid(child.id());
        assert!(children(me()).contains(&pid));
        assert_eq!(parent(pid), Some(me()));
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(!exists(pid));
        assert_eq!(threads(pid), None);
        assert!(!children(me()).contains(&pid));
    }

    /// The file that a process runs is found among its mappings, and the process among its users.
    #[test]
    fn mapped_files() {
        let exe = exe(me()).expect("exe");
        let file = FileId::of(&exe).expect("file");
        assert!(maps(me(), file));
        assert!(users(file).contains(&me()));
        let other = FileId::of(Path::new("/etc/passwd")).expect("file");
        assert!(!maps(me(), other));
    }

    /// Lines of /proc/PID/maps, with blanks in the path.
    #[test]
    fn map_lines() {
        let m = mapping(
            "7f00-7fff r-xp 00001000 fe:01 42                         /opt/a b/c (deleted)",
        )
        .expect("parses");
        assert_eq!((m.start, m.end, m.offset), (0x7f00, 0x7fff, 0x1000));
        assert_eq!(m.file.device, (0xfe, 1));
        assert!(m.executable);
        assert_eq!(m.path, "/opt/a b/c (deleted)");
        let address = |offset| m.address_of(m.file, offset);
        assert_eq!(address(0x1010), Some(0x7f10));
        assert_eq!((address(0xfff), address(0x10ff)), (None, None));
        assert_eq!(
            mapping("7f00-7fff rw-p 0 00:00 0").expect("anonymous").path,
            ""
        );
        assert_eq!(mapping("nonsense"), None);
    }
}
