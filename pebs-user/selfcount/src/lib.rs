//! Self-monitoring: a thread counts its own events around a piece of its code.
//!
//! ```
//! use pebs_selfcount::{Group, events};
//!
//! let mut group = Group::open(events("page-faults:u,task-clock:u")?)?;
//! group.start()?;
//! let before = group.read()?.to_vec();
//! let block = vec![1_u8; 64 * 4096];
//! let after = group.read()?;
//! let faults = after[0].since(&before[0]).scaled();
//! assert!(faults.is_some_and(|faults| faults >= 1.0));
//! # drop(block);
//! # Ok::<(), pebs_selfcount::Error>(())
//! ```
//!
//! Events are named as perf names them, or are typed ([`events`](mod@perf_events)): hardware, cache, software, raw and
//! breakpoint events, of user space (`:u`), the kernel (`:k`) or both. A [`Group`] counts the thread that opened it, on
//! whatever CPU that runs, with [`Options::inherit`] also the threads and processes that it starts later.
//!
//! # How counts are read
//!
//! [`Group::read`] reads hardware counters by the instruction `rdpmc`, without a system call, from the register that
//! the kernel names in a page shared with the program. The page has a sequence lock; counters are sign-extended from
//! their width; the time since the page's last change comes from the time stamp counter. Where that is impossible (see
//! [`SyscallReason`]) the whole group is read by one `read()`, issued inline, not through the C library. A read
//! allocates nothing.
//!
//! Kernels before about 6.14 do not put the page into the page table until it is touched: the first read then takes a
//! page fault, which costs more than a system call. Hence the page is populated when it is mapped; [`Mapping`] has the
//! other ways, to compare. Later kernels map it at once (6.18: no fault in any way; the tests count them).
//!
//! # What a count says
//!
//! With more events than counters the kernel multiplexes groups. A [`Count`] holds the time enabled and the time
//! counted; [`Count::scaled`] extrapolates, and is `None` where the group had no turn: unknown, not 0.
//!
//! # What comes from perf-event2
//!
//! The crate [perf-event2](https://docs.rs/perf-event2) already has every event as a type, `perf_event_attr` behind a
//! builder, `perf_event_open` with and without a group, and the `ioctl`s that start and stop: these are used unchanged.
//! Its reading is not used:
//!
//! * Its groups allocate twice a read; this one reads into a buffer that it keeps.
//! * Its groups start member by member. On Linux 6.18 a member of another PMU than the leader's (`task-clock` beside
//!   `page-faults`) then counts nothing until the thread's next switch, and looks as if it had counted 0. Here members
//!   are opened enabled and wait for their leader, as in perf.
//! * Its `Sampler::read_user` reads one counter by `rdpmc`, without a fallback where the counter is not on the CPU,
//!   from a mapping that is never populated and always has room for samples. It may be sent to another thread, where it
//!   reads another counter. Here a group stays in its thread.
//! * Its `scaled_count` divides by the time that the counter ran, also where that is 0.
//! * Its reader can't be given a page and a counter made by hand; the tests of this one do, as many machines have no PMU.
//! * Its errors are the system's; here they name the event and have a [hint](Error::hint).
//!
//! # Limits
//!
//! `rdpmc` is used on x86-64 only. A group must not be read in a child of `fork`, where its pages are not mapped. If an
//! administrator writes 0 to `/sys/devices/cpu/rdpmc` while a program reads, the next `rdpmc` faults.
//!
//! Source: perf_event_open(2), section "MMAP layout"; Weaver, "Self-monitoring Overhead of the Linux perf_event
//! Performance Counter Interface", ISPASS 2015.

#![warn(missing_docs)]

mod count;
mod error;
mod event;
mod group;
mod page;
mod sys;

pub use count::Count;
pub use error::Error;
pub use event::{Event, events};
pub use group::{Group, Mapping, Options, ReadPath, SyscallReason};
/// The types of events, of the crate perf-event2: each is made an [`Event`] by [`Event::new`].
pub use perf_event::events as perf_events;
