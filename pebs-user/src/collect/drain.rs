//! The draining thread: reads every ring in turn and passes the bytes on.
//!
//! Invariant: a cycle's frontier is a time below which no record can still arrive. A program reads the time of its
//! record after reserving room, so once a ring was seen without reserved records, it is complete up to the instant
//! at which the check began.
//!
//! Memory: the bytes waiting for the pipeline are bounded. At the bound the rings fill up, and the eBPF programs
//! refuse samples first, and count them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use crate::collect::bulk::BulkRing;
use crate::collect::clock::now;
use crate::collect::kernel_map::Counters;
use crate::collect::lookout::{Filling, Watched};
use crate::collect::ring::{ReadExtent, Ring};
use crate::collect::sideband::{RING_RECORDS, Sideband};
use crate::stream::cycle::{BulkStream, Cycle};
use crate::units::{Cpu, KtimeNs};

/// Pause between two rounds while records flow.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// Pause while there is little data: an empty ring can't fill up in that time.
const QUIET_PAUSE: Duration = Duration::from_millis(8);
/// A ring is complete up to this time before the check, ns. A program reads the time right after the store that
/// reserves its room, and the reader may see that store a moment later.
const STORE_DELAY_NS: u64 = 10_000;
/// A round is quiet if it took less than this part of every ring. A round costs the same however little it takes.
const QUIET_SHARE: usize = 16;
/// Pause of a patient recorder, unless a ring fills up ([`Watched`]).
const PATIENT_PAUSE: Duration = Duration::from_millis(250);
/// Its pause once there was no data for [`IDLE_ROUNDS`].
const IDLE_PAUSE: Duration = Duration::from_secs(2);
/// Rounds of a patient recorder with hardly any records of the target after which nothing seems to happen: a second.
const IDLE_ROUNDS: u32 = 4;
/// A patient recorder is woken once so much of a ring of process events is filled: each start of a program is a KiB.
const SIDEBAND_SHARE: usize = 4;
/// Bytes of a round that has hardly any: each CPU's clock is compared now and then.
const FEW_BYTES: usize = 1024;
/// Rounds without bytes between two cycles that are handed on all the same.
const HEARTBEAT: u32 = 12;

/// The rings and the way out.
pub(crate) struct Drain {
    /// Every ring and its CPU.
    pub rings: Vec<(Cpu, Ring)>,
    /// Rings of the bulk transport.
    pub bulk: Vec<BulkRing>,
    /// Further rings, of CPUs that came online.
    pub more_bulk: Receiver<BulkRing>,
    /// The kernel programs' counters.
    pub counters: Counters,
    /// Mapping events, where the kernel grants them.
    pub sideband: Option<Sideband>,
    /// Maximum age of a record when it is put into the ring, ns: 0 unless samples carry an earlier time of their
    /// own.
    pub lag_ns: u64,
    /// Full cycles go here.
    pub full: Sender<Cycle>,
    /// Empty cycles are returned here.
    pub empty: Receiver<Cycle>,
    /// Bytes handed on that the pipeline has not taken in yet; whoever does subtracts them.
    pub waiting_bytes: Arc<AtomicUsize>,
    /// Rings are not read while more bytes wait.
    pub max_waiting_bytes: usize,
    /// Whether it sleeps longer where nothing happens.
    pub patient: bool,
    /// Set to end the thread after one last round.
    pub stop: Arc<AtomicBool>,
}

impl Drain {
    /// Drains until asked to stop or until the receiver is gone; the last round is after the stop. Wake its thread for that.
    pub(crate) fn run(self) {
        let mut whole = vec![KtimeNs(0); self.rings.len() + self.bulk.len()];
        let (mut quiet_rounds, mut idle_rounds) = (0, 0_u32);
        let shared = Arc::new(Mutex::new(self));
        let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
        // Declared after what it watches.
        let watched = lock()
            .is_patient()
            .then(|| Watched::begin(&shared))
            .flatten();
        loop {
            let mut drain = lock();
            let last = drain.stop.load(Ordering::Acquire);
            let waiting = drain.waiting_bytes.load(Ordering::Acquire);
            if waiting > drain.max_waiting_bytes && !last {
                drop(drain);
                thread::sleep(BUSY_PAUSE);
                continue;
            }
            let new: Vec<BulkRing> = drain.more_bulk.try_iter().collect();
            drain.bulk.extend(new);
            whole.resize(drain.rings.len() + drain.bulk.len(), KtimeNs(0));
            let mut cycle = drain.empty.try_recv().unwrap_or_default();
            let Taken {
                bytes,
                of_target,
                is_quiet,
            } = drain.round(&mut cycle, &mut whole, last);
            idle_rounds = match of_target < FEW_BYTES {
                true => idle_rounds.saturating_add(1),
                false => 0,
            };
            quiet_rounds = if bytes == 0 { quiet_rounds + 1 } else { 0 };
            drain
                .waiting_bytes
                .fetch_add(cycle.bytes(), Ordering::AcqRel);
            let is_due = watched.is_some() || quiet_rounds % HEARTBEAT == 0;
            let hand_on = bytes > 0 || quiet_rounds <= 1 || is_due || last;
            if hand_on && drain.full.send(cycle).is_err() || last {
                return;
            }
            drop(drain);
            match (is_quiet, &watched) {
                (true, Some(_)) if idle_rounds > IDLE_ROUNDS => thread::park_timeout(IDLE_PAUSE),
                (true, Some(_)) => thread::park_timeout(PATIENT_PAUSE),
                (true, None) => thread::sleep(QUIET_PAUSE),
                (false, _) => thread::sleep(BUSY_PAUSE),
            }
        }
    }

    /// Whether it sleeps until a ring fills up. Hardware's buffers have to be emptied before.
    fn is_patient(&self) -> bool {
        self.patient && self.bulk.is_empty()
    }

    /// Reads every ring.
    fn round(&mut self, cycle: &mut Cycle, whole: &mut [KtimeNs], last: bool) -> Taken {
        cycle
            .streams
            .resize_with(self.rings.len(), || (Cpu(0), Vec::new()));
        let mut taken = Taken {
            bytes: 0,
            of_target: 0,
            is_quiet: true,
        };
        for (n, (cpu, ring)) in self.rings.iter_mut().enumerate() {
            let (stream_cpu, stream) = &mut cycle.streams[n];
            *stream_cpu = *cpu;
            stream.clear();
            let looked_at = now();
            if ring.take(stream) == ReadExtent::Everything {
                whole[n] = KtimeNs(looked_at.0.saturating_sub(STORE_DELAY_NS + self.lag_ns));
            }
            taken.add(stream.len(), ring.capacity());
        }
        self.bulk_round(cycle, &mut whole[self.rings.len()..], (last, &mut taken));
        taken.of_target = taken.bytes;
        cycle.frontier = whole.iter().copied().min().unwrap_or_default();
        cycle.sideband.clear();
        if let Some(sideband) = &mut self.sideband {
            // A broken ring loses names, not samples; the next round continues.
            let _ = sideband.poll(|event| cycle.sideband.push(event));
        }
        cycle.counters.clear();
        cycle
            .counters
            .extend((0..self.counters.cpus()).map(|cpu| self.counters.row(cpu)));
        cycle.counted_at = now();
        taken.add(cycle.sideband.len(), RING_RECORDS);
        taken
    }

    /// Reads the rings of the bulk transport.
    fn bulk_round(
        &mut self,
        cycle: &mut Cycle,
        whole: &mut [KtimeNs],
        (last, taken): (bool, &mut Taken),
    ) {
        cycle.bulk.resize_with(self.bulk.len(), BulkStream::default);
        for ((ring, stream), whole) in self.bulk.iter_mut().zip(&mut cycle.bulk).zip(whole) {
            *whole = ring.take(stream, last);
            taken.add(stream.bytes.len(), ring.capacity());
        }
    }
}

impl Filling for Drain {
    fn is_filling(&self) -> bool {
        let is_filled = |ring: &Ring| ring.waiting() > ring.capacity() / QUIET_SHARE;
        let sideband = self.sideband.as_ref();
        self.rings.iter().any(|(_, ring)| is_filled(ring))
            || sideband.is_some_and(|it| it.is_filled(SIDEBAND_SHARE))
    }
}

/// Amount taken from all rings in a round.
struct Taken {
    /// Number of bytes and events.
    bytes: usize,
    /// Bytes without the events, which come of all processes.
    of_target: usize,
    is_quiet: bool,
}

impl Taken {
    /// Adds what was in a ring of this capacity.
    const fn add(&mut self, bytes: usize, capacity: usize) {
        self.bytes += bytes;
        self.is_quiet &= bytes < capacity / QUIET_SHARE;
    }
}

#[cfg(test)]
mod tests;
