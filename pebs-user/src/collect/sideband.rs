//! Process events during a run: mappings, forks, execs, exits.
//!
//! A dummy event on each CPU, whose ring the kernel fills with records about all processes there. Events of one CPU
//! are in order of time; the reader merges those of different CPUs.

use std::os::fd::AsFd as _;

use crossbeam_channel::{Receiver, Sender, unbounded};
use perf_event_open_sys::bindings as sys;

use super::perf_ring::{PerfRing, PerfRingError};
use crate::failure::Hint;
use crate::pmu::attr::READ_FORMAT;
use crate::pmu::open::{OpenError, OpenErrorKind, PerfEvent};
use crate::pmu::target::Target;
use crate::stream::sideband::{SidebandEvent, decode};
use crate::units::Cpu;

/// Size of each ring: at 2 ms between polls room for more than 100 program starts.
const RING_BYTES: usize = 64 << 10;

/// About as many records as fit in a ring.
pub(crate) const RING_RECORDS: usize = 500;

/// Process records are not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SidebandError {
    /// The event was refused.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A ring was refused, or is broken.
    #[error("cannot follow processes on cpu {}", cpu.0)]
    Ring {
        cpu: Cpu,
        /// Why.
        #[source]
        source: PerfRingError,
    },
    /// Every CPU named is offline.
    #[error("cannot follow processes: no cpu is online")]
    NoCpu,
}

impl Hint for SidebandError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Open(error) => error.hint(),
            Self::Ring { source, .. } => source.hint(),
            Self::NoCpu => None,
        }
    }
}

/// Follows all processes on some CPUs.
pub(crate) struct Sideband {
    rings: Vec<CpuRing>,
    /// Rings of CPUs that came later.
    more: Receiver<CpuRing>,
}

/// Opens further CPUs for a [`Sideband`] that is being read by another thread.
pub(crate) struct SidebandOpener {
    rings: Sender<CpuRing>,
    build_ids: bool,
}

struct CpuRing {
    cpu: Cpu,
    ring: PerfRing,
    /// Must be open as long as records are wanted.
    _event: PerfEvent,
    /// The CPU went offline and has a newer ring; no more records come here.
    is_over: bool,
}

impl Sideband {
    /// Opens one event on each CPU, skipping CPUs that are offline. Records from now on.
    ///
    /// The kernel puts build ids into the records if it can (5.12), so that files can be identified without their
    /// inode.
    ///
    /// # Errors
    /// The kernel refused: it needs `CAP_PERFMON`, or `kernel.perf_event_paranoid` below 1.
    pub(crate) fn open(cpus: &[Cpu]) -> Result<(Self, SidebandOpener), SidebandError> {
        let (rings, more) = unbounded();
        let mut opener = SidebandOpener {
            rings,
            build_ids: true,
        };
        for cpu in cpus {
            opener.add(*cpu)?;
        }
        if more.is_empty() {
            return Err(SidebandError::NoCpu);
        }
        let rings = Vec::with_capacity(cpus.len());
        Ok((Self { rings, more }, opener))
    }

    /// Whether one of the rings is filled by more than this part.
    pub(crate) fn is_filled(&self, part: usize) -> bool {
        let rings = self.rings.iter().map(|it| &it.ring);
        rings
            .into_iter()
            .any(|it| it.waiting() as usize > it.capacity() / part)
    }

    /// Passes all waiting events to `f`, CPU by CPU. Returns the number of records of any kind.
    ///
    /// Cost: some ns per CPU if there are none.
    ///
    /// # Errors
    /// A ring is broken; its records are lost, and the next poll continues.
    pub(crate) fn poll(&mut self, mut f: impl FnMut(SidebandEvent)) -> Result<u64, SidebandError> {
        let mut records = 0;
        for new in self.more.try_iter() {
            let old = self.rings.iter_mut().filter(|old| old.cpu == new.cpu);
            old.for_each(|old| old.is_over = true);
            self.rings.push(new);
        }
        for CpuRing { cpu, ring, .. } in &mut self.rings {
            let drained = ring.drain(|record| {
                if let Some(event) = decode(record) {
                    f(event);
                }
            });
            let cpu = *cpu;
            records += drained.map_err(|source| SidebandError::Ring { cpu, source })?;
        }
        self.rings.retain(|ring| !ring.is_over);
        Ok(records)
    }
}

impl SidebandOpener {
    /// Opens an event on a CPU that has none or was offline in between; skips one that is offline. Its records are
    /// in the next poll.
    ///
    /// # Errors
    /// The kernel refused the event.
    pub(crate) fn add(&mut self, cpu: Cpu) -> Result<(), SidebandError> {
        match self.open_cpu(cpu) {
            // Fails only if the recording is over.
            Ok(ring) => drop(self.rings.send(ring)),
            Err(SidebandError::Open(error)) if error.kind == OpenErrorKind::NoDevice => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether the kernel puts build ids into its records.
    #[cfg(test)]
    #[must_use]
    pub const fn has_build_ids(&self) -> bool {
        self.build_ids
    }

    fn open_cpu(&mut self, cpu: Cpu) -> Result<CpuRing, SidebandError> {
        let event = self.open_event(cpu)?;
        let pages = (RING_BYTES / rustix::param::page_size()).max(1);
        let ring = PerfRing::map(event.as_fd(), pages)
            .map_err(|source| SidebandError::Ring { cpu, source })?;
        Ok(CpuRing {
            cpu,
            ring,
            _event: event,
            is_over: false,
        })
    }

    /// Opens an event with build ids, or without if the kernel does not support them.
    fn open_event(&mut self, cpu: Cpu) -> Result<PerfEvent, OpenError> {
        let open =
            |build_ids| PerfEvent::open(&attr(build_ids), Target::Cpu(cpu), "process records");
        match open(self.build_ids) {
            Err(error) if self.build_ids && is_unknown(error.kind) => {
                self.build_ids = false;
                open(false)
            }
            result => result,
        }
    }
}

const fn is_unknown(kind: OpenErrorKind) -> bool {
    matches!(kind, OpenErrorKind::Invalid | OpenErrorKind::TooNew)
}

/// A dummy event that records process events, on `CLOCK_MONOTONIC`.
fn attr(build_ids: bool) -> sys::perf_event_attr {
    let mut attr = sys::perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: sys::PERF_COUNT_SW_DUMMY.into(),
        sample_type: (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_CPU).into(),
        read_format: READ_FORMAT,
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.set_use_clockid(1);
    attr.set_sample_id_all(1);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr.set_build_id(u64::from(build_ids));
    attr
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use rustix::time::{ClockId, clock_gettime};

    use super::*;
    use crate::binary::mapping::Backing;
    use crate::stream::sideband::SidebandKind;
    use crate::units::Pid;

    /// Serializes these tests: the processes of one would fill the rings of the others.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cpus() -> Vec<Cpu> {
        let cpus = std::thread::available_parallelism().unwrap().get();
        (0..u16::try_from(cpus).unwrap()).map(Cpu).collect()
    }

    fn now() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// A program's fork, name, mapping and exit are seen in that order, at times on the monotonic clock.
    #[test]
    fn follows_a_program() {
        let _alone = alone();
        let (mut sideband, opener) = match Sideband::open(&cpus()) {
            Ok(opened) => opened,
            Err(error) => return println!("SKIP {error}"),
        };
        let begin = now();
        let mut child = Command::new("/bin/true").spawn().unwrap();
        let pid = Pid(child.id());
        child.wait().unwrap();
        let end = now();
        let mut events = Vec::new();
        let records = sideband.poll(|event| events.push(event)).unwrap();
        assert!(records >= events.len() as u64);
        events.sort_by_key(|event| event.time);
        let mut seen = Vec::new();
        for event in events {
            let step = match event.what {
                SidebandKind::Fork { pid: child, .. } if child == pid => "fork",
                SidebandKind::Comm {
                    pid: child,
                    exec: true,
                    name,
                    ..
                } if child == pid => {
                    assert_eq!(&*name, "true");
                    "exec"
                }
                SidebandKind::Mapped {
                    pid: child,
                    mapping,
                    ..
                } if child == pid => match mapping.backing {
                    Backing::File(file) if file.path.ends_with("true") => {
                        assert_eq!(file.build_id.is_some(), opener.has_build_ids());
                        "code"
                    }
                    _ => continue,
                },
                SidebandKind::Exit { pid: child, .. } if child == pid => "exit",
                _ => continue,
            };
            assert!((begin..=end).contains(&event.time.0), "{step}");
            seen.push(step);
        }
        assert_eq!(seen, ["fork", "exec", "code", "exit"]);
    }

    /// With more records than a ring holds, the lost ones are counted: seen and lost make up all.
    #[test]
    fn losses_are_counted() {
        let _alone = alone();
        let mut sideband = match Sideband::open(&cpus()) {
            Ok((sideband, _)) => sideband,
            Err(error) => return println!("SKIP {error}"),
        };
        const RENAMES: u64 = 6000;
        let tid = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned();
        let (mut seen, mut lost) = (0, 0);
        let mut poll = |sideband: &mut Sideband| {
            let counted = sideband.poll(|event| match event.what {
                SidebandKind::Comm { tid: who, .. } if who.0 == tid => seen += 1,
                SidebandKind::Lost { records } => lost += records,
                _ => {}
            });
            counted.unwrap();
        };
        for _ in 0..RENAMES {
            rustix::thread::set_name(c"renamed").unwrap();
        }
        poll(&mut sideband);
        // The kernel reports a loss with the next record on the same CPU.
        for cpu in cpus() {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu.0.into());
            rustix::thread::sched_setaffinity(None, &set).unwrap();
            rustix::thread::set_name(c"renamed").unwrap();
        }
        poll(&mut sideband);
        assert!(lost > 0 && seen > 100, "{seen} seen, {lost} lost");
        assert!(seen + lost >= RENAMES, "{seen} seen, {lost} lost");
    }

    /// A CPU reopened while it is read has one ring afterwards, and no record of the old one is missed or read
    /// twice.
    #[test]
    fn opened_again() {
        let _alone = alone();
        let here = cpus();
        let (mut sideband, mut opener) = match Sideband::open(&here) {
            Ok(opened) => opened,
            Err(error) => return println!("SKIP {error}"),
        };
        let run = || {
            let mut child = Command::new("/bin/true").spawn().unwrap();
            child.wait().unwrap();
            Pid(child.id())
        };
        let first = run();
        sideband.poll(|_| {}).unwrap();
        let second = run();
        for &cpu in &here {
            opener.add(cpu).unwrap();
        }
        let third = run();
        let mut ends = Vec::new();
        let mut poll = |sideband: &mut Sideband| {
            let polled = sideband.poll(|event| {
                if let SidebandKind::Exit { pid, .. } = event.what {
                    ends.push(pid);
                }
            });
            polled.unwrap();
        };
        poll(&mut sideband);
        assert_eq!(sideband.rings.len(), here.len());
        let fourth = run();
        poll(&mut sideband);
        let times = |pid| ends.iter().filter(|end| **end == pid).count();
        assert_eq!([first, second, fourth].map(times), [0, 1, 1]);
        // While both are open, both have it.
        assert!((1..=2).contains(&times(third)), "{ends:?}");
    }

    /// With no CPU online there is nothing to follow.
    #[test]
    fn no_cpu() {
        let refused = Sideband::open(&[]).err().unwrap();
        assert!(matches!(refused, SidebandError::NoCpu));
    }
}
