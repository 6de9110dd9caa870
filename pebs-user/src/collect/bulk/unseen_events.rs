//! Rings for samples that a sample program does not see.
//!
//! If the hardware's buffer holds several records at an interrupt, the kernel runs the program only for the last
//! one and writes the others into the ring of their counter; without a ring it drops them, uncounted.
//!
//! There is a ring per event and CPU, of a dummy event; all counters on the CPU write into it. So followed threads
//! have one counter per CPU, as the kernel gives no ring to an inherited counter that follows its thread.
//! Source: `__intel_pmu_pebs_events`, arch/x86/events/intel/ds.c; `perf_mmap` and `perf_event_set_output`,
//! kernel/events/core.c.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::BulkRing;
use crate::collect::error::SessionError;
use crate::collect::perf_ring::PerfRing;
use crate::pmu::attr::dummy;
use crate::pmu::open::{ControlError, PerfEvent};
use crate::pmu::target::Target;
use crate::units::{Cpu, EventId, KtimeNs, Tid};

/// Size of a ring, bytes; it is usually empty.
const RING_BYTES: usize = 32 << 10;

/// The rings of an event; empty if its program sees every sample.
#[derive(Default)]
pub(in crate::collect) struct RestRings {
    owners: Vec<(Cpu, PerfEvent)>,
}

impl RestRings {
    /// Creates a ring for each of these CPUs that has none, even offline ones, and returns the new ones for the
    /// draining thread.
    pub(crate) fn add(
        &mut self,
        event: EventId,
        cpus: &[Cpu],
    ) -> Result<Vec<BulkRing>, SessionError> {
        let mut rings = Vec::new();
        for &cpu in cpus {
            if self.owner(cpu).is_some() {
                continue;
            }
            // Bound to a thread of ours: an event of the CPU alone would end when it goes offline.
            let target = Target::ThreadOnCpu(Tid(std::process::id()), cpu);
            let owner = PerfEvent::open(&dummy(), target, "ring for samples that no program sees")?;
            let pages = (RING_BYTES / rustix::param::page_size()).max(1);
            rings.push(BulkRing {
                cpu,
                event,
                ring: PerfRing::map(owner.as_fd(), pages)?,
                counters: Arc::default(),
                buffered: false,
                whole: KtimeNs(0),
                flushed: KtimeNs(0),
            });
            self.owners.push((cpu, owner));
        }
        Ok(rings)
    }

    /// The CPUs with a ring.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = Cpu> {
        self.owners.iter().map(|(cpu, _)| *cpu)
    }

    /// Makes the kernel write the samples of a counter that its program does not see into the ring of this CPU.
    pub(crate) fn catch(&self, counter: &PerfEvent, cpu: Cpu) -> Result<(), ControlError> {
        self.owner(cpu)
            .map_or(Ok(()), |owner| counter.share_ring_of(owner))
    }

    fn owner(&self, cpu: Cpu) -> Option<&PerfEvent> {
        let mut owners = self.owners.iter();
        owners.find(|(of, _)| *of == cpu).map(|(_, owner)| owner)
    }
}

#[cfg(test)]
mod tests;
