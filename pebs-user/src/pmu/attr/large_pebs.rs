//! Whether an event can deliver many samples per interrupt. Pure.

use std::fmt;

use super::{EventClass, HardwareUnit, ResolvedEvent};
use crate::pmu::host::{Host, Vendor};

/// Why an event can't be sampled in bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBulk {
    /// The kernel counts it, or a unit outside of the cores.
    NotCore,
    /// IBS interrupts at each sample.
    Ibs,
    /// The cores have no PEBS here.
    NoPebs,
    /// Without a precise level samples are not PEBS records.
    NotPrecise,
    /// PEBS records have no time of their own before Skylake and Goldmont.
    NoTime,
}

impl fmt::Display for NotBulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCore => "not an event of the cores",
            Self::Ibs => "IBS interrupts at each sample",
            Self::NoPebs => "no PEBS here",
            Self::NotPrecise => "only with a precise level (:p)",
            Self::NoTime => "PEBS records of this CPU have no time",
        })
    }
}

/// Checks whether the kernel would collect many records of the event in one PEBS buffer, with each sample's own
/// time.
///
/// Other options (call stacks, a clock) can still prevent it.
///
/// # Errors
/// The obstacle.
/// Source: arch/x86/events/intel/core.c (`intel_pmu_hw_config`, `intel_pmu_large_pebs_flags`), ds.c (`intel_ds_init`).
pub(crate) fn check(event: &ResolvedEvent, host: &Host) -> Result<(), NotBulk> {
    match event.class {
        EventClass::Hardware {
            unit: HardwareUnit::Core,
            ..
        } => {}
        EventClass::Hardware {
            unit: HardwareUnit::Ibs,
            ..
        } => return Err(NotBulk::Ibs),
        _ => return Err(NotBulk::NotCore),
    }
    available(host)?;
    let levels = event.twins.iter().map(|twin| twin.precise);
    if event.precise_requested == 0 || levels.min() == Some(0) {
        return Err(NotBulk::NotPrecise);
    }
    Ok(())
}

/// Whether the machine supports it at all.
///
/// # Errors
/// Why not.
pub(crate) fn available(host: &Host) -> Result<(), NotBulk> {
    let pebs = host.cpu.vendor == Vendor::Intel && host.max_precise() > 0;
    if !pebs {
        return Err(NotBulk::NoPebs);
    }
    if host.cpu.family == 6 && WITHOUT_TIME.contains(&host.cpu.model) {
        return Err(NotBulk::NoTime);
    }
    Ok(())
}

/// Models with a PEBS format below 3, whose records have no time stamp.
/// Source: arch/x86/include/asm/intel-family.h.
const WITHOUT_TIME: [u32; 36] = [
    0x0f, 0x16, 0x17, 0x1d, // Core 2
    0x1a, 0x1e, 0x1f, 0x2e, // Nehalem
    0x25, 0x2c, 0x2f, // Westmere
    0x2a, 0x2d, // Sandy Bridge
    0x3a, 0x3e, // Ivy Bridge
    0x3c, 0x3f, 0x45, 0x46, // Haswell
    0x3d, 0x47, 0x4f, 0x56, // Broadwell
    0x1c, 0x26, 0x27, 0x35, 0x36, // Bonnell, Saltwell
    0x37, 0x4a, 0x4c, 0x4d, 0x5a, 0x5d, // Silvermont, Airmont
    0x57, 0x85, // Knights Landing and Mill
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::attr::{reset_value, resolve};
    use crate::pmu::host::fixtures;

    fn checked(host: &Host, event: &str) -> Result<(), NotBulk> {
        let reset = reset_value(16_000).unwrap();
        check(
            &resolve(&event.parse().unwrap(), host, reset).unwrap(),
            host,
        )
    }

    /// Only precise events of Intel's cores from Skylake on can; the others have a reason.
    #[test]
    fn what_can() {
        let skylake = fixtures::skylake();
        assert_eq!(checked(&skylake, "uops_retired.all:pp"), Ok(()));
        assert_eq!(checked(&fixtures::alder_lake(), "cycles:P"), Ok(()));
        assert_eq!(checked(&skylake, "cycles"), Err(NotBulk::NotPrecise));
        assert_eq!(checked(&skylake, "cpu-clock"), Err(NotBulk::NotCore));
        assert_eq!(checked(&fixtures::zen4(), "cycles:pp"), Err(NotBulk::Ibs));
        assert_eq!(checked(&fixtures::zen4(), "cycles"), Err(NotBulk::NoPebs));
        let guest = fixtures::skylake_guest();
        assert_eq!(checked(&guest, "cycles:p"), Err(NotBulk::NoPebs));
        let mut haswell = skylake;
        haswell.cpu.model = 0x3f;
        assert_eq!(checked(&haswell, "instructions:pp"), Err(NotBulk::NoTime));
    }
}
