//! A group of events that count together.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};

use perf_event::{Counter, ReadFormat};

use crate::page::Unreadable;
use crate::sys::{self, Mapped};
use crate::{Count, Error, Event};

/// Mapping of the pages for `rdpmc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// With `MAP_POPULATE`: in the page table from the start.
    #[default]
    Populate,
    /// Without, but touched once when the group is opened.
    Touch,
    /// Without: on kernels before 6.14 or so the first read is a page fault, thousands of cycles long.
    OnDemand,
    /// Not mapped: each read is a system call.
    Never,
}

/// Options of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Count the threads and processes, too, that the thread starts after the group was opened.
    ///
    /// `rdpmc` can't read what children counted: every read is a system call.
    pub inherit: bool,
    /// Mapping of the pages for `rdpmc`.
    pub mapping: Mapping,
}

impl Options {
    /// Opens a group, stopped.
    ///
    /// The kernel schedules the events all together or not at all: more than there are counters are refused.
    ///
    /// # Errors
    /// Names the event that the kernel refused; see [`Error::hint`].
    pub fn open(self, events: impl IntoIterator<Item = Event>) -> Result<Group, Error> {
        let events: Vec<Event> = events.into_iter().collect();
        let mut counters: Vec<Counter> = Vec::with_capacity(events.len());
        for event in &events {
            let mut builder = event.builder();
            let others = counters.len();
            // Members wait for their leader, which starts and stops them all. Starting each by PERF_IOC_FLAG_GROUP
            // leaves members of another PMU than the leader's (task-clock beside page-faults) uncounted until the
            // thread is switched, seen on 6.18.
            builder
                .inherit(self.inherit)
                .read_format(FORMAT)
                .enabled(others > 0);
            let opened = match counters.first_mut() {
                Some(leader) => builder.build_with_group(LedBy(leader)),
                None => builder.build(),
            };
            counters.push(opened.map_err(|error| Error::open(event.name(), others, error))?);
        }
        let name = events.first().ok_or(Error::NoEvent)?.to_string();
        let (pages, path) = match self.pages(&events, &counters) {
            Ok(pages) => (pages, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let nothing = vec![Count::default(); counters.len()];
        Ok(Group {
            name,
            pages,
            reason: path,
            buffer: vec![0; (HEADER + ENTRY * counters.len()) * size_of::<u64>()],
            base: nothing.clone(),
            counts: nothing,
            counters,
            in_thread: PhantomData,
        })
    }

    /// A page for each counter, if `rdpmc` may ever read them all.
    fn pages(self, events: &[Event], counters: &[Counter]) -> Result<Vec<Mapped>, SyscallReason> {
        if self.mapping == Mapping::Never {
            return Err(SyscallReason::NotMapped);
        }
        if !cfg!(target_arch = "x86_64") {
            return Err(SyscallReason::Architecture);
        }
        if self.inherit {
            return Err(SyscallReason::Inherited);
        }
        if !events.iter().all(Event::may_have_counter) {
            return Err(SyscallReason::NoCounter);
        }
        let map = |counter| Mapped::new(counter, self.mapping == Mapping::Populate);
        let pages: io::Result<Vec<Mapped>> = counters.iter().map(map).collect();
        let pages = pages.map_err(|_| SyscallReason::NotMapped)?;
        if self.mapping == Mapping::Touch {
            for page in &pages {
                // The result is irrelevant: the page is in the page table now.
                let _ = page.read(|_| 0, || 0);
            }
        }
        Ok(pages)
    }
}

/// Gives perf-event2 the leader of a group that is in a vector.
struct LedBy<'a>(&'a mut Counter);

impl AsMut<Counter> for LedBy<'_> {
    fn as_mut(&mut self) -> &mut Counter {
        self.0
    }
}

/// All values in one `read()`, with the times of the group.
const FORMAT: ReadFormat = ReadFormat::GROUP
    .union(ReadFormat::TOTAL_TIME_ENABLED)
    .union(ReadFormat::TOTAL_TIME_RUNNING);

/// Words before the values: their number, time enabled, time running.
const HEADER: usize = 3;
/// Words of each entry: value and id, which perf-event2 requests in every group.
const ENTRY: usize = 2;

/// Way in which a group is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// `rdpmc`, without a system call.
    Rdpmc,
    /// One `read()` for the whole group.
    Syscall(SyscallReason),
}

/// Why `rdpmc` did not read a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallReason {
    /// An event is not on a hardware counter: stopped, it was others' turn, or it is a software event or breakpoint.
    NoCounter,
    /// The kernel does not let user space read it: `/sys/devices/cpu/rdpmc` is 0, or the kernel is older than 3.12.
    NotAllowed,
    /// Children count, too.
    Inherited,
    /// The event is multiplexed, and user space can't compute the time since its last turn (guests with the clock
    /// kvm-clock).
    NoTime,
    /// The kernel changed the page again and again while it was read.
    Busy,
    /// Its pages are not mapped: [`Mapping::Never`], or `kernel.perf_event_mlock_kb` was exhausted.
    NotMapped,
    /// The CPU is not x86-64.
    Architecture,
}

impl fmt::Display for SyscallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCounter => "it is not on a hardware counter",
            Self::NotAllowed => "the kernel does not allow it (/sys/devices/cpu/rdpmc)",
            Self::Inherited => "children are counted, too",
            Self::NoTime => "it takes turns, and the time is unknown to user space",
            Self::Busy => "its page kept changing",
            Self::NotMapped => "its page is not mapped",
            Self::Architecture => "only x86-64 has it",
        })
    }
}

impl From<Unreadable> for SyscallReason {
    fn from(why: Unreadable) -> Self {
        match why {
            Unreadable::NotAllowed | Unreadable::Width => Self::NotAllowed,
            Unreadable::NoCounter => Self::NoCounter,
            Unreadable::NoTime => Self::NoTime,
            Unreadable::Busy => Self::Busy,
        }
    }
}

/// Events of one thread that start, stop and take turns together.
///
/// It stays in the thread that opened it: in another thread `rdpmc` would read that thread's counters.
pub struct Group {
    /// Name of its first event.
    name: String,
    /// The first leads. Closed behind its members' pages.
    counters: Vec<Counter>,
    /// One for each counter, or empty.
    pages: Vec<Mapped>,
    /// Why there are no pages, or why the last read could not use them.
    reason: Option<SyscallReason>,
    buffer: Vec<u8>,
    /// Counts at the last reset.
    base: Vec<Count>,
    counts: Vec<Count>,
    in_thread: PhantomData<*const ()>,
}

impl Group {
    /// Opens a group of this thread alone, stopped, its pages populated.
    ///
    /// # Errors
    /// Names the event that the kernel refused; see [`Error::hint`].
    pub fn open(events: impl IntoIterator<Item = Event>) -> Result<Self, Error> {
        Options::default().open(events)
    }

    /// Starts counting, from the value at which it stopped.
    ///
    /// # Errors
    /// The kernel's.
    #[doc(alias = "PERF_EVENT_IOC_ENABLE")]
    pub fn start(&mut self) -> Result<(), Error> {
        let started = self.counters[0].enable();
        started.map_err(|error| self.failed("start", error))
    }

    /// Ends counting. Counts are kept.
    ///
    /// # Errors
    /// The kernel's.
    #[doc(alias = "PERF_EVENT_IOC_DISABLE")]
    pub fn stop(&mut self) -> Result<(), Error> {
        let stopped = self.counters[0].disable();
        stopped.map_err(|error| self.failed("stop", error))
    }

    /// Counts from 0 again, times included.
    ///
    /// No `ioctl`: the kernel's resets neither times nor counts of children. The current values are subtracted from
    /// each later read.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn reset(&mut self) -> Result<(), Error> {
        self.read_all()?;
        self.base.copy_from_slice(&self.counts);
        Ok(())
    }

    /// Counts since the group was opened or reset, in the order of its events.
    ///
    /// # Errors
    /// Errors of the kernel; `rdpmc` has none.
    pub fn read(&mut self) -> Result<&[Count], Error> {
        self.read_all()?;
        for (count, base) in self.counts.iter_mut().zip(&self.base) {
            *count = count.since(base);
        }
        Ok(&self.counts)
    }

    /// Returns the way of the last read; before the first, the way tried first.
    #[must_use]
    pub fn read_path(&self) -> ReadPath {
        self.reason.map_or(ReadPath::Rdpmc, ReadPath::Syscall)
    }

    /// Number of its events.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no group is empty")]
    pub fn len(&self) -> usize {
        self.counters.len()
    }

    fn read_all(&mut self) -> Result<(), Error> {
        if !self.pages.is_empty() {
            match self.read_pages() {
                Ok(()) => {
                    self.reason = None;
                    return Ok(());
                }
                Err(why) => self.reason = Some(why.into()),
            }
        }
        let read = self.read_file();
        read.map_err(|error| self.failed("read", error))
    }

    fn read_pages(&mut self) -> Result<(), Unreadable> {
        for (count, page) in self.counts.iter_mut().zip(&self.pages) {
            *count = page.read(sys::rdpmc, sys::tsc)?;
        }
        Ok(())
    }

    fn read_file(&mut self) -> io::Result<()> {
        let len = rustix::io::read(sys::file(&self.counters[0]), &mut self.buffer[..])?;
        // A group that could not be kept on its counters reads as 0 bytes.
        if len < self.buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (words, _) = self.buffer.as_chunks::<{ size_of::<u64>() }>();
        let word = |n: usize| u64::from_ne_bytes(words[n]);
        for (n, count) in self.counts.iter_mut().enumerate() {
            *count = Count {
                value: word(HEADER + ENTRY * n),
                enabled_ns: word(1),
                running_ns: word(2),
                is_running: false,
            };
        }
        Ok(())
    }

    fn failed(&self, attempt: &'static str, source: io::Error) -> Error {
        Error::Use {
            attempt,
            event: self.name.clone(),
            source,
        }
    }
}

/// The file of its first event. A `read()` of it returns all counts: number, ns enabled, ns running, then value and id
/// of each.
impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        sys::file(&self.counters[0])
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.read_path();
        f.debug_struct("Group")
            .field("first", &self.name)
            .field("events", &self.len())
            .field("read_path", &path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events;

    /// Whether this kernel leaves the page out of the page table until it is touched: those before 6.14, and some releases
    /// that had the change from elsewhere may not.
    fn maps_on_demand() -> Option<bool> {
        let uname = rustix::system::uname();
        let release = uname.release().to_str().unwrap();
        let mut numbers = release
            .split(['.', '-'])
            .map_while(|part| part.parse().ok());
        let version: (u32, u32) = (numbers.next()?, numbers.next()?);
        match version {
            (..=6, _) if version < (6, 12) => Some(true),
            (6, 12..=15) => None,
            _ => Some(false),
        }
    }

    /// The kernel's page of a software event shows no counter. The first read of a populated page never faults; of
    /// others it does where the kernel maps on demand.
    #[test]
    fn first_reads_of_pages() {
        let mut faults = match Group::open(events("page-faults:u").unwrap()) {
            Ok(group) => group,
            Err(Error::Denied { .. }) => return eprintln!("SKIP perf_event_open is not allowed"),
            Err(error) => panic!("{error}"),
        };
        let dummy = || events("dummy:u").unwrap()[0].builder().build().unwrap();
        faults.start().unwrap();
        // Faults in everything that reading needs the first time.
        let first = Mapped::new(&dummy(), true).unwrap();
        assert_eq!(first.read(|_| 0, || 0), Err(Unreadable::NotAllowed));
        for populate in [true, false, true, false] {
            let counter = dummy();
            let page = Mapped::new(&counter, populate).unwrap();
            faults.reset().unwrap();
            let found = page.read(|_| 0, || 0);
            let seen = faults.read().unwrap()[0].value;
            match maps_on_demand() {
                Some(true) if !populate => assert_eq!(seen, 1),
                None if !populate => assert!(seen <= 1),
                _ => assert_eq!(seen, 0, "populated: {populate}"),
            }
            assert_eq!(found, Err(Unreadable::NotAllowed));
        }
    }
}
