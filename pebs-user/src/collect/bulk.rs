//! The rings of the `bulk` transport, into which the kernel writes samples without a program.
//!
//! One ring per event and CPU. If processes are given, there is one counter per thread and CPU, as the kernel maps
//! no ring for an inherited counter that follows its thread; the counters of a CPU share its ring.
//!
//! If the hardware collects records in a buffer of its own, reading a counter makes the kernel flush that buffer
//! into the ring. This is done every 20 ms to advance the frontier.
//! Source: `intel_pmu_auto_reload_read`, arch/x86/events/intel/ds.c.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perf_event_open_sys::bindings::perf_event_attr;

use crate::binary::process;
use crate::collect::clock::now;
use crate::collect::error::SessionError;
use crate::collect::perf_ring::PerfRing;
use crate::collect::threads::{is_wanted, threads_of};
use crate::pmu::open::{ControlError, OpenErrorKind, PerfEvent};
use crate::pmu::target::Target;
use crate::stream::cycle::BulkStream;
use crate::units::{Cpu, EventId, KtimeNs, Pid, ResetValue, Tid};

pub(super) mod unseen_events;

/// Interval of flushing the hardware's buffers.
const FLUSH: Duration = Duration::from_millis(20);

/// Maximum delay from a sample's time until it is in the ring, ns: the CPU may be taken away in between.
const LAG_NS: u64 = 2_000_000;

/// Maximum size of a record, bytes.
const LARGEST_RECORD: u64 = 192;

/// Settings for opening the counters of an event.
pub(super) struct Recipe<'a> {
    pub id: EventId,
    /// Its name, for messages.
    pub name: &'a str,
    /// Settings for a target.
    pub attr: &'a dyn Fn(Target) -> perf_event_attr,
    /// Size of a ring.
    pub ring_bytes: u32,
    /// Whether the hardware has a buffer in front of the ring.
    pub buffered: bool,
    /// Threads of the processes to count; empty: all.
    pub only: &'a [Tid],
}

/// Counters of an event that write into rings.
#[derive(Default)]
pub(super) struct BulkCounters {
    counters: Vec<Arc<PerfEvent>>,
    /// Threads that have a counter of their own.
    threads: Vec<Tid>,
    rings: Vec<Fed>,
}

/// A ring, as the counters that write into it know it.
#[derive(Clone)]
struct Fed {
    cpu: Cpu,
    /// The counter by which it was mapped.
    owner: Arc<PerfEvent>,
    counters: Arc<Mutex<RingCounters>>,
}

/// The counters of a ring, for the thread that empties it.
#[derive(Default)]
struct RingCounters {
    open: Vec<OwnedFd>,
    /// Samples lost by those that are closed.
    lost_before: u64,
}

impl BulkCounters {
    /// Starts all.
    pub(super) fn enable(&self) -> Result<(), ControlError> {
        self.iter().try_for_each(PerfEvent::enable)
    }

    /// Adds other counters of the same event.
    pub(super) fn extend(&mut self, others: Self) {
        self.counters.extend(others.counters);
        self.threads.extend(others.threads);
        self.rings.extend(others.rings);
    }

    /// Every counter.
    pub(super) fn iter(&self) -> impl Iterator<Item = &PerfEvent> {
        self.counters.iter().map(|event| &**event)
    }

    /// Every counter with its distance between samples in reset values.
    pub(super) fn shared(&self) -> impl Iterator<Item = (&Arc<PerfEvent>, f64)> {
        self.counters.iter().map(|counter| (counter, 1.0))
    }

    /// Changes the reset value of all counters; that of threads of `pids` which inherited one as well. `recipe` has the new
    /// value.
    ///
    /// The kernel changes the given counter and what threads inherit later, not what they have inherited: then all are
    /// opened anew, one per thread, as [`super::counters::Counters::change`] does.
    pub(super) fn change(
        &mut self,
        recipe: &Recipe<'_>,
        pids: &[Pid],
        reset: ResetValue,
    ) -> Result<(), SessionError> {
        if !self.are_inherited(pids, recipe.only) {
            self.iter()
                .try_for_each(|counter| counter.set_reset(reset))?;
            // A thread created before its parent was changed has the old value.
            if !self.are_inherited(pids, recipe.only) {
                return Ok(());
            }
        }
        let mut opening = Opening::new(recipe);
        opening.counters.rings.clone_from(&self.rings);
        let cpus: Vec<Cpu> = self.rings.iter().map(|ring| ring.cpu).collect();
        opening.open_processes(pids, &cpus)?;
        opening.counters.enable()?;
        self.disable();
        // No ring is new.
        (*self, _) = opening.finish();
        Ok(())
    }

    /// Whether a thread of these processes has no counter of its own.
    fn are_inherited(&self, pids: &[Pid], only: &[Tid]) -> bool {
        let threads = pids.iter().filter_map(|pid| process::threads(*pid));
        threads
            .flatten()
            .any(|tid| is_wanted(only, tid) && !self.threads.contains(&tid))
    }

    /// Stops all counters. A counter that can't be stopped ends when it is dropped.
    pub(super) fn disable(&self) {
        self.counters.iter().for_each(|event| {
            let _ = event.disable();
        });
    }
}

impl RingCounters {
    /// These counters from now on.
    fn replace(&mut self, counters: Vec<OwnedFd>) {
        self.lost_before = self.lost().unwrap_or(self.lost_before);
        self.open = counters;
    }

    /// Number of samples lost so far because the ring was full: this includes losses at the end, which no record reports.
    /// `None` before Linux 6.0.
    fn lost(&self) -> Option<u64> {
        const WORDS: usize = 4;
        let mut lost = None;
        for counter in &self.open {
            let mut bytes = [0; 8 * WORDS];
            // The counter of an ended thread can't be read.
            if rustix::io::read(counter, &mut bytes) == Ok(bytes.len())
                && let Some(word) = bytes.last_chunk::<8>()
            {
                lost = Some(lost.unwrap_or(self.lost_before) + u64::from_ne_bytes(*word));
            }
        }
        lost
    }
}

/// The ring of an event on a CPU.
pub(crate) struct BulkRing {
    pub cpu: Cpu,
    pub event: EventId,
    ring: PerfRing,
    /// Its counters, if their number of lost samples can be read.
    counters: Arc<Mutex<RingCounters>>,
    /// Whether the hardware has a buffer in front of it.
    buffered: bool,
    whole: KtimeNs,
    flushed: KtimeNs,
}

impl BulkRing {
    /// Bytes that it holds.
    pub(crate) const fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Copies the ring's records unchanged, with headers; returns the time up to which it is complete. `last`: no
    /// more records will come.
    ///
    /// If the kernel's positions are inconsistent, the waiting records are lost; later ones may be fine.
    pub(crate) fn take(&mut self, stream: &mut BulkStream, last: bool) -> KtimeNs {
        let looked_at = now();
        let BulkStream {
            cpu,
            event,
            bytes,
            lost,
            broken,
        } = stream;
        (*cpu, *event) = (self.cpu, self.event);
        bytes.clear();
        let room = (self.ring.capacity() as u64).saturating_sub(self.ring.waiting());
        let is_full = room < LARGEST_RECORD;
        let is_due = looked_at.0 - self.flushed.0 >= FLUSH.as_nanos() as u64;
        if !self.buffered || is_due {
            if self.buffered {
                let _ = self.lost();
            }
            self.flushed = looked_at;
            self.whole = KtimeNs(looked_at.0.saturating_sub(LAG_NS));
        }
        let drained = self.ring.drain(|record| {
            // The header as in the ring: kind, misc, size.
            bytes.extend(record.kind.to_ne_bytes());
            bytes.extend(record.misc.to_ne_bytes());
            bytes.extend((record.body.len() as u16 + 8).to_ne_bytes());
            bytes.extend_from_slice(record.body);
        });
        *broken = drained.err().map(|error| {
            tracing::warn!("samples of cpu {} are lost: {error}", cpu.0);
            now()
        });
        let counted = (is_full || last).then(|| self.lost()).flatten();
        *lost = counted.map(|samples| (samples, now()));
        self.whole
    }

    /// As [`RingCounters::lost`].
    fn lost(&self) -> Option<u64> {
        locked(&self.counters).lost()
    }
}

fn locked(counters: &Mutex<RingCounters>) -> MutexGuard<'_, RingCounters> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counters of an event under construction.
struct Opening<'a> {
    recipe: &'a Recipe<'a>,
    counters: BulkCounters,
    /// The rings that are new.
    rings: Vec<BulkRing>,
    /// By ring of the counters: what empties it needs of them.
    of_rings: Vec<Vec<OwnedFd>>,
}

impl<'a> Opening<'a> {
    fn new(recipe: &'a Recipe<'a>) -> Self {
        Self {
            recipe,
            counters: BulkCounters::default(),
            rings: Vec::new(),
            of_rings: Vec::new(),
        }
    }

    /// Opens a counter on a CPU, if its thread and CPU are still there.
    fn open(&mut self, target: Target, cpu: Cpu) -> Result<(), SessionError> {
        let recipe = self.recipe;
        let event = match PerfEvent::open(&(recipe.attr)(target), target, recipe.name) {
            Ok(event) => Arc::new(event),
            // The thread has ended, or the CPU went offline meanwhile.
            Err(error)
                if matches!(
                    error.kind,
                    OpenErrorKind::ThreadGone | OpenErrorKind::NoDevice
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let rings = &mut self.counters.rings;
        let ring = match rings.iter().position(|ring| ring.cpu == cpu) {
            Some(ring) => {
                event.share_ring_of(&rings[ring].owner)?;
                ring
            }
            None => {
                let pages = recipe.ring_bytes as usize / rustix::param::page_size();
                let ring = PerfRing::map(event.as_fd(), pages.max(1))?;
                let counters = Arc::default();
                rings.push(Fed {
                    cpu,
                    owner: Arc::clone(&event),
                    counters: Arc::clone(&counters),
                });
                self.rings.push(BulkRing {
                    cpu,
                    event: recipe.id,
                    ring,
                    counters,
                    buffered: recipe.buffered,
                    whole: KtimeNs(0),
                    flushed: KtimeNs(0),
                });
                rings.len() - 1
            }
        };
        // Without this descriptor the hardware's buffer would not be flushed.
        let counter = cloned(&event, recipe.ring_bytes, cpu)?;
        self.of_rings
            .resize_with(self.counters.rings.len(), Vec::new);
        self.of_rings[ring].push(counter);
        self.counters.counters.push(event);
        Ok(())
    }

    /// Opens a counter for each thread of processes on each CPU; threads started later inherit it.
    ///
    /// Threads are listed until no new one is found, as with the bpf transport.
    fn open_processes(&mut self, pids: &[Pid], cpus: &[Cpu]) -> Result<(), SessionError> {
        for &pid in pids {
            loop {
                let threads = threads_of(pid, self.recipe.only)?;
                let known = &self.counters.threads;
                let new: Vec<Tid> = threads
                    .into_iter()
                    .filter(|tid| !known.contains(tid))
                    .collect();
                if new.is_empty() {
                    break;
                }
                for &tid in &new {
                    for &cpu in cpus {
                        self.open(Target::ThreadOnCpu(tid, cpu), cpu)?;
                    }
                }
                self.counters.threads.extend(new);
            }
        }
        Ok(())
    }

    /// The counters, with what empties their rings using them, and the new rings.
    fn finish(mut self) -> (BulkCounters, Vec<BulkRing>) {
        self.of_rings
            .resize_with(self.counters.rings.len(), Vec::new);
        for (ring, counters) in self.counters.rings.iter().zip(self.of_rings) {
            locked(&ring.counters).replace(counters);
        }
        (self.counters, self.rings)
    }
}

/// The counter once more, for the thread that empties its ring.
fn cloned(counter: &PerfEvent, bytes: u32, cpu: Cpu) -> Result<OwnedFd, SessionError> {
    let failed = |source| SessionError::Ring {
        bytes,
        cpu: cpu.0,
        source,
    };
    counter.as_fd().try_clone_to_owned().map_err(failed)
}

/// Opens an event on CPUs, for all that runs there.
pub(super) fn on_cpus<'a>(
    recipe: &Recipe<'_>,
    cpus: impl IntoIterator<Item = &'a Cpu>,
) -> Result<(BulkCounters, Vec<BulkRing>), SessionError> {
    let mut opening = Opening::new(recipe);
    for cpu in cpus {
        opening.open(Target::Cpu(*cpu), *cpu)?;
    }
    Ok(opening.finish())
}

/// Opens an event for the threads of processes, on each CPU; threads started later inherit it.
pub(super) fn on_processes(
    recipe: &Recipe<'_>,
    pids: &[Pid],
    cpus: &[Cpu],
) -> Result<(BulkCounters, Vec<BulkRing>), SessionError> {
    let mut opening = Opening::new(recipe);
    opening.open_processes(pids, cpus)?;
    Ok(opening.finish())
}
