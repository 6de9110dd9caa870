//! Repairs copies of probed code: some programs copy their code to memory of their own, as for huge pages. The
//! breakpoints in the copy, which the kernel does not handle, are removed before it runs.
//!
//! An eBPF program finds the copy and stops the process; a thread here restores the code and continues the process.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use aya::programs::tp_btf::BtfTracePointLink;
use pebs_common::config::{COPIED_RING, COPY_WINDOW, Copied, CopyPlace, MAX_COPY_PLACES};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::process::Signal;

use crate::arch::BREAKPOINT;
use crate::collect::programs::Programs;
use crate::collect::ring::Ring;
use crate::probe::set::{ProbeSet, Site};
use crate::units::Pid;

/// Pages have this size on the machines that there are programs for.
const PAGE: usize = 4096;

/// Bytes before a record in the ring.
const HEADER: usize = 8;

/// A record with them.
const RECORD: usize = HEADER + size_of::<Copied>();

/// A copy that a process made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// The process.
    pub pid: Pid,
    /// Probed places in it.
    pub places: usize,
    /// Reason if they could not be restored.
    pub failure: Option<String>,
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pid, places) = (self.pid.0, self.places);
        let probes = if places == 1 { "probe" } else { "probes" };
        match &self.failure {
            None => write!(
                f,
                "pid {pid} copied its code, with {places} {probes} in it, to memory of its own: the copy was restored \
                 and is not probed, so items are missing from then on"
            ),
            Some(error) => write!(
                f,
                "pid {pid} copied its code, with probes in it, to memory of its own, and the copy could not be \
                 restored ({error}): it may die of SIGTRAP"
            ),
        }
    }
}

/// A probed place: the pattern by which a copy is recognised, and the original bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    known_by: CopyPlace,
    /// Offset of the instruction in the page.
    at: usize,
    /// Original first byte of the instruction.
    original: [u8; BREAKPOINT.len()],
}

/// Restores copies until it is dropped.
pub(crate) struct CopyRestorer {
    link: Option<BtfTracePointLink>,
    /// Readable once the thread is to end.
    stop: Arc<OwnedFd>,
    found: Arc<Mutex<Vec<Copy>>>,
    thread: Option<JoinHandle<()>>,
}

impl CopyRestorer {
    /// Starts watching for copies of the probed places.
    ///
    /// # Errors
    /// The kernel does not support it, or this user may not continue other users' processes.
    pub(crate) fn start(programs: &mut Programs, probes: &ProbeSet) -> Result<Self, String> {
        let places = places(probes);
        if !may_restore() {
            return Err("CAP_KILL and CAP_SYS_PTRACE are missing".to_owned());
        }
        let known: Vec<CopyPlace> = places.iter().map(|place| place.known_by).collect();
        let text = |error: &dyn std::error::Error| match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        let (link, ring) = programs.watch_copies(&known).map_err(|it| text(&it))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|it| text(&it))?;
        let (stop, found) = (Arc::new(stop), Arc::default());
        let mut restorer = Self {
            link: Some(link),
            stop: Arc::clone(&stop),
            found: Arc::clone(&found),
            thread: None,
        };
        let to_poll = ring.try_clone().map_err(|it| text(&it))?;
        let ring = Ring::map(ring, COPIED_RING).map_err(|it| text(&it))?;
        let thread = std::thread::Builder::new().name("copies".to_owned());
        let thread =
            thread.spawn(move || restore_until_stopped(&places, (ring, &to_poll), &stop, &found));
        restorer.thread = Some(thread.map_err(|it| text(&it))?);
        Ok(restorer)
    }

    /// Copies found since the last call.
    #[must_use]
    pub(crate) fn take(&self) -> Vec<Copy> {
        let found = self.found.lock();
        std::mem::take(&mut *found.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for CopyRestorer {
    fn drop(&mut self) {
        // Processes stopped until now are continued by the thread's last round.
        self.link = None;
        // Fails only if the counter is full: then it is readable.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread can't be handled here.
            let _ = thread.join();
        }
    }
}

/// Whether other users' processes can be written to, and continued.
fn may_restore() -> bool {
    use rustix::thread::CapabilitySet;
    let needed = CapabilitySet::KILL | CapabilitySet::SYS_PTRACE;
    rustix::thread::capabilities(None).is_ok_and(|it| it.effective.contains(needed))
}

fn restore_until_stopped(
    places: &[Place],
    (mut ring, to_poll): (Ring, &OwnedFd),
    stop: &OwnedFd,
    found: &Mutex<Vec<Copy>>,
) {
    loop {
        let mut wait = [to_poll, stop].map(|it| PollFd::new(it, PollFlags::IN));
        // If it failed, the ring is looked at all the same.
        let _ = rustix::event::poll(&mut wait, None);
        let last = !wait[1].revents().is_empty();
        let mut bytes = Vec::new();
        // A record still being written is read in the next round: it wakes the thread again.
        ring.take(&mut bytes);
        for record in bytes.chunks_exact(RECORD) {
            let Some(copied) = decode(&record[HEADER..]) else {
                continue;
            };
            let copy = restore(places, copied);
            // A mapping of the file itself has no copied places.
            if copy.places != 0 || copy.failure.is_some() {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.push(copy);
            }
            let pid = rustix::process::Pid::from_raw(copied.pid.cast_signed());
            if let Some(pid) = pid {
                // Fails if the process was killed meanwhile.
                let _ = rustix::process::kill_process(pid, Signal::CONT);
            }
        }
        if last {
            return;
        }
    }
}

fn decode(bytes: &[u8]) -> Option<Copied> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(Copied {
        pid: word(0)? as u32,
        pad: 0,
        start: word(8)?,
        end: word(16)?,
    })
}

/// Restores the code that a process copied.
fn restore(places: &[Place], copied: Copied) -> Copy {
    let mut restored = 0;
    let failure = restore_in(places, copied, &mut restored).err();
    Copy {
        pid: Pid(copied.pid),
        places: restored,
        failure: failure.map(|error| error.to_string()),
    }
}

fn restore_in(places: &[Place], copied: Copied, restored: &mut usize) -> io::Result<()> {
    let path = format!("/proc/{}/mem", copied.pid);
    let memory = OpenOptions::new().read(true).write(true).open(path)?;
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", copied.pid))?;
    let of_files: Vec<Range<u64>> = maps.lines().filter_map(of_file).collect();
    let mut page = [0; PAGE];
    for at in (copied.start..copied.end).step_by(PAGE) {
        if of_files.iter().any(|it| it.contains(&at)) {
            continue;
        }
        // Unreadable memory can't be executed either.
        if memory.read_exact_at(&mut page, at).is_err() {
            continue;
        }
        for place in places {
            if place.is_in(&page) {
                memory.write_all_at(&place.original, at + place.at as u64)?;
                *restored += 1;
            }
        }
    }
    Ok(())
}

/// The addresses of a line of `maps`, if it has an inode.
///
/// Source: proc_pid_maps(5).
fn of_file(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    (fields.nth(3)? != "0").then_some(address(start)?..address(end)?)
}

impl Place {
    /// Whether a page contains it.
    fn is_in(&self, page: &[u8; PAGE]) -> bool {
        let CopyPlace {
            offset,
            expected,
            mask,
            ..
        } = self.known_by;
        let window = page[offset as usize..].first_chunk();
        window.map(words).is_some_and(|there| {
            mask != [0, 0] && [there[0] & mask[0], there[1] & mask[1]] == expected
        })
    }
}

fn words(bytes: &[u8; COPY_WINDOW]) -> [u64; 2] {
    let number = u128::from_le_bytes(*bytes);
    [number as u64, (number >> 64) as u64]
}

/// The places to look for.
fn places(probes: &ProbeSet) -> Vec<Place> {
    let mut sites: Vec<&Site> = probes.probes.iter().flat_map(|it| &it.sites).collect();
    let key = |site: &&Site| (site.path.clone(), site.file_offset);
    sites.sort_by_key(key);
    sites.dedup_by_key(|site| key(site));
    let others = |site: &Site| -> Vec<u64> {
        let same = sites.iter().filter(|it| it.path == site.path);
        same.map(|it| it.file_offset).collect()
    };
    let all = sites.iter().filter_map(|site| {
        let page = page_of(site)?;
        place_in(&page, site.file_offset, &others(site))
    });
    let mut all: Vec<Place> = all.take(MAX_COPY_PLACES as usize).collect();
    let count = all.len() as u32;
    for place in &mut all {
        place.known_by.places = count;
    }
    all
}

/// The page of the file that contains the place; zeros after the file's end.
fn page_of(site: &Site) -> Option<[u8; PAGE]> {
    let mut page = [0; PAGE];
    let file = File::open(&site.path).ok()?;
    let mut filled = 0;
    let start = site.file_offset - site.file_offset % PAGE as u64;
    while filled < PAGE {
        match file.read_at(&mut page[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(page)
}

/// The pattern of a place in its page; `probed` are all probed places of the file.
fn place_in(page: &[u8; PAGE], file_offset: u64, probed: &[u64]) -> Option<Place> {
    let at = (file_offset % PAGE as u64) as usize;
    let start = file_offset - at as u64;
    let from = at.min(PAGE - COPY_WINDOW);
    let mut code: [u8; COPY_WINDOW] = *page[from..].first_chunk()?;
    let mut counts = [u8::MAX; COPY_WINDOW];
    for other in probed.iter().filter_map(|it| it.checked_sub(start)) {
        let byte = (other as usize).checked_sub(from);
        let bytes = byte.and_then(|it| counts.get_mut(it..));
        for byte in bytes.into_iter().flatten().take(BREAKPOINT.len()) {
            *byte = 0;
        }
    }
    code[at - from..][..BREAKPOINT.len()].copy_from_slice(&BREAKPOINT);
    counts[at - from..][..BREAKPOINT.len()].fill(u8::MAX);
    let (code, mask) = (words(&code), words(&counts));
    Some(Place {
        known_by: CopyPlace {
            offset: from as u32,
            places: 0,
            expected: [code[0] & mask[0], code[1] & mask[1]],
            mask,
        },
        at,
        original: *page[at..].first_chunk()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code in which each byte is distinct.
    fn code() -> [u8; PAGE] {
        std::array::from_fn(|n| (n * 7 % 251) as u8)
    }

    /// A copy with a breakpoint is recognised, also at the end of a page and next to other probes; unmodified code
    /// is not.
    #[test]
    fn copies_are_recognised() {
        let page = code();
        let probed = [
            8192 + 100,
            8192 + 104,
            8192 + 4096 - BREAKPOINT.len() as u64,
        ];
        for offset in probed {
            let place = place_in(&page, offset, &probed).unwrap();
            assert!(!place.is_in(&page));
            let mut copy = page;
            for at in probed {
                let at = at as usize % PAGE;
                copy[at..at + BREAKPOINT.len()].copy_from_slice(&BREAKPOINT);
            }
            assert!(place.is_in(&copy), "{offset}");
            copy[(offset as usize + 50) % PAGE] ^= 1;
            assert!(place.is_in(&copy), "{offset}");
        }
    }

    /// File mappings are distinguished from the process's own memory.
    #[test]
    fn mappings() {
        let line = "5580-6000 r-xp 00001000 fe:00 1234       /bin/true (deleted)";
        assert_eq!(of_file(line), Some(0x5580..0x6000));
        assert_eq!(of_file("5580-6000 rwxp 00000000 00:00 0 "), None);
        assert_eq!(of_file("ff-100 r-xp 00000000 00:00 0  [vdso]"), None);
        assert_eq!(of_file(""), None);
    }
}
