//! The rings of the eBPF programs: one or two per CPU.

use std::io;
use std::os::fd::AsFd;

use pebs_common::config::MAX_CPUS;

use super::SessionPlan;
use crate::collect::error::SessionError;
use crate::collect::kernel_map;
use crate::collect::programs::Programs;
use crate::collect::ring::Ring;
use crate::pmu::host::Host;
use crate::units::Cpu;

/// Maximum delay from a sample's own time until it is in the ring, ns: it may wait in a hardware buffer, or the CPU
/// may be taken away in between.
const SAMPLE_LAG_NS: u64 = 2_000_000;

/// CPUs that can come online without a reboot.
///
/// Source: Documentation/ABI/testing/sysfs-devices-system-cpu.
pub(super) fn present_cpus(host: &Host) -> Vec<Cpu> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/present").unwrap_or_default();
    let mut cpus: Vec<Cpu> = text
        .trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
        })
        .flatten()
        .map(Cpu)
        .collect();
    cpus.extend(&host.online);
    cpus.sort_unstable();
    cpus.dedup();
    cpus.retain(|cpu| u32::from(cpu.0) < MAX_CPUS);
    cpus
}

/// The rings of all CPUs and the counters, for the draining thread.
pub(crate) struct Rings {
    /// Rings with their CPUs; two per CPU if samples have their own.
    pub rings: Vec<(Cpu, Ring)>,
    pub counters: kernel_map::Counters,
    /// See [`crate::collect::drain::Drain::lag_ns`].
    pub lag_ns: u64,
}

impl Rings {
    pub(super) fn make(
        programs: &Programs,
        plan: &SessionPlan<'_>,
        separate: bool,
    ) -> Result<Self, SessionError> {
        let cpus = present_cpus(plan.host);
        let (marks, samples) = (programs.map("RINGS")?, programs.map("SAMPLE_RINGS")?);
        let bytes = plan.ring_bytes;
        let failed = |cpu: Cpu| {
            move |source| SessionError::Ring {
                bytes,
                cpu: cpu.0,
                source,
            }
        };
        let make =
            || -> io::Result<Ring> { Ring::map(kernel_map::create_ring(bytes)?, bytes as usize) };
        let make = || {
            let rings = cpus
                .iter()
                .map(|cpu| Ok((*cpu, make().map_err(failed(*cpu))?)));
            rings.collect::<Result<Vec<(Cpu, Ring)>, SessionError>>()
        };
        let set = |map, rings: &[(Cpu, Ring)]| {
            let fds = rings
                .iter()
                .map(|(cpu, ring)| (u32::from(cpu.0), ring.fd().as_fd()));
            let first = cpus.first().copied().unwrap_or(Cpu(0));
            kernel_map::set_maps(map, &fds.collect::<Vec<_>>()).map_err(failed(first))
        };
        let mut rings = make()?;
        set(marks, &rings)?;
        if separate {
            let own = make()?;
            set(samples, &own)?;
            rings.extend(own);
            rings.sort_by_key(|(cpu, _)| *cpu);
        } else {
            set(samples, &rings)?;
        }
        let own_time = plan.events.iter().any(|event| event.perf_clock);
        let rows = cpus.last().map_or(0, |cpu| usize::from(cpu.0) + 1);
        let counters = kernel_map::Counters::map(programs.map("COUNTERS")?, rows)
            .map_err(SessionError::Counters)?;
        Ok(Self {
            rings,
            counters,
            lag_ns: if own_time { SAMPLE_LAG_NS } else { 0 },
        })
    }
}
