//! Call stacks from Intel's last branch records in call-stack mode, from Haswell on.
//!
//! A call adds an entry and its return removes it, so the entries are the calls that have not returned: user space
//! only, 8 to 32 entries. The kernel saves them for each sampled thread and writes them into perf's rings.

use perf_event_open_sys::bindings as sys;
use thiserror::Error;

use super::large_pebs::{self, NotBulk};
use super::{EventClass, EventError, HardwareUnit, ResolvedEvent};
use crate::pmu::host::{Host, Vendor};

/// Requested branches: calls in user space, without fields that are slow to write.
///
/// Source: `hsw_lbr_sel_map`, arch/x86/events/intel/lbr.c; `evsel__config_callchain`, tools/perf/util/evsel.c.
const CALLS: u32 = sys::PERF_SAMPLE_BRANCH_USER
    | sys::PERF_SAMPLE_BRANCH_CALL_STACK
    | sys::PERF_SAMPLE_BRANCH_NO_FLAGS
    | sys::PERF_SAMPLE_BRANCH_NO_CYCLES;

/// Intel models whose PEBS records have a time but no room for branches.
/// Source: arch/x86/events/intel/ds.c (`intel_ds_init`: `pebs_baseline`), arch/x86/include/asm/intel-family.h.
const WITHOUT_BRANCHES: [u32; 11] = [
    0x4e, 0x5e, 0x55, // Skylake, Cascade Lake
    0x8e, 0x9e, 0xa5, 0xa6, // Kaby, Coffee and Comet Lake
    0x66, // Cannon Lake
    0x5c, 0x5f, 0x7a, // Goldmont, Goldmont Plus
];

/// Why there is no record of calls at samples of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoCallRecord {
    /// Its samples are made by the kernel, a breakpoint or another unit.
    #[error("only events of the CPU's cores come with it")]
    NotCore,
    /// Only Intel CPUs have it.
    #[error("only Intel's CPUs keep one: AMD's keep branches")]
    NotIntel,
    /// The kernel does not offer the last branch records here.
    #[error(
        "this machine offers none (no caps/branches of its PMU: too old, or a virtual machine)"
    )]
    NotOffered,
    /// The records are of user space only.
    #[error("it holds calls in user space, which the event leaves out")]
    KernelOnly,
}

impl ResolvedEvent {
    /// Makes samples carry the open calls of user space, in perf's rings.
    ///
    /// # Errors
    /// The event or the machine does not support it.
    pub fn record_calls(&mut self, host: &Host) -> Result<(), EventError> {
        let refuse = |why| EventError::NoCallRecord {
            event: self.name.clone(),
            why,
        };
        let offered = |name: &str| host.pmu(name).is_some_and(|pmu| pmu.branches > 0);
        match self.class {
            EventClass::Hardware {
                unit: HardwareUnit::Core | HardwareUnit::Ibs,
                ..
            } if host.cpu.vendor != Vendor::Intel => return Err(refuse(NoCallRecord::NotIntel)),
            EventClass::Hardware {
                unit: HardwareUnit::Core,
                ..
            } => {}
            _ => return Err(refuse(NoCallRecord::NotCore)),
        }
        let mut cores = host.core_pmus().map(|pmu| pmu.name.as_str());
        if !cores.all(offered) {
            return Err(refuse(NoCallRecord::NotOffered));
        }
        if self.attr.exclude_user() == 1 {
            return Err(refuse(NoCallRecord::KernelOnly));
        }
        self.attr.sample_type |= u64::from(sys::PERF_SAMPLE_BRANCH_STACK);
        self.attr.branch_sample_type = CALLS.into();
        Ok(())
    }

    /// The sample field with the calls; 0 if not requested.
    pub(super) const fn calls_field(&self) -> u64 {
        self.attr.sample_type & sys::PERF_SAMPLE_BRANCH_STACK as u64
    }
}

/// Whether the hardware's own buffer holds branches: from Ice Lake and Tremont on.
pub(super) fn are_buffered(host: &Host) -> bool {
    let has_time = !matches!(
        large_pebs::available(host),
        Err(NotBulk::NoPebs | NotBulk::NoTime)
    );
    has_time && !WITHOUT_BRANCHES.contains(&host.cpu.model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::layout::Layout;
    use crate::pmu::attr::resolve;
    use crate::pmu::host::fixtures;
    use crate::pmu::target::Target;
    use crate::units::{Cpu, Tid};

    fn recorded(host: &Host, name: &str) -> Result<ResolvedEvent, NoCallRecord> {
        let reset = crate::pmu::attr::reset_value(16_000).unwrap();
        let mut event = resolve(&name.parse().unwrap(), host, reset).unwrap();
        match event.record_calls(host) {
            Ok(()) => Ok(event),
            Err(EventError::NoCallRecord { why, .. }) => Err(why),
            Err(other) => panic!("{other}"),
        }
    }

    /// Intel core events record calls, on every kind of cores and for every target.
    #[test]
    fn what_is_asked_for() {
        for (host, name) in [
            (fixtures::skylake(), "cycles"),
            (fixtures::skylake(), "uops_retired.all:pp"),
            (fixtures::ice_lake(), "instructions:pp"),
            (fixtures::alder_lake(), "cycles:P"),
        ] {
            let event = recorded(&host, name).unwrap();
            for target in [Target::Cpu(Cpu(0)), Target::ThreadOnCpu(Tid(1), Cpu(0))] {
                let layout = Layout::of(&event.bulk_attr(target, 1 << 19));
                assert!(layout.has(sys::PERF_SAMPLE_BRANCH_STACK), "{name}");
                // user, call stack, no flags, no cycles: include/uapi/linux/perf_event.h.
                assert_eq!(layout.branch_sample_type, 1 | 1 << 11 | 1 << 14 | 1 << 15);
                assert!(!layout.has(sys::PERF_SAMPLE_CALLCHAIN), "{name}");
            }
        }
    }

    /// From Ice Lake on PEBS writes them itself; before, each sample interrupts.
    #[test]
    fn who_is_buffered() {
        let buffered = |host: Host, name| recorded(&host, name).unwrap().is_buffered(&host);
        assert!(buffered(fixtures::ice_lake(), "instructions:pp"));
        assert!(buffered(fixtures::sapphire_rapids(), "instructions:pp"));
        assert!(!buffered(fixtures::skylake(), "uops_retired.all:pp"));
        assert!(!buffered(fixtures::cascade_lake(), "uops_retired.all:pp"));
        assert!(!buffered(fixtures::ice_lake(), "cycles"));
    }

    /// All other events are refused with a reason.
    #[test]
    fn what_is_refused() {
        let why = |host: &Host, name| recorded(host, name).err();
        let skylake = fixtures::skylake();
        for name in ["cpu-clock", "page-faults", "mem:0x1000:x"] {
            assert_eq!(why(&skylake, name), Some(NoCallRecord::NotCore), "{name}");
        }
        assert_eq!(why(&skylake, "cycles:k"), Some(NoCallRecord::KernelOnly));
        let guest = fixtures::skylake_guest();
        assert_eq!(why(&guest, "cycles"), None);
        let mut without = guest;
        without.pmus.iter_mut().for_each(|pmu| pmu.branches = 0);
        assert_eq!(why(&without, "cycles"), Some(NoCallRecord::NotOffered));
        for zen in [fixtures::zen2(), fixtures::zen4()] {
            for name in ["cycles", "ibs_op//"] {
                assert_eq!(why(&zen, name), Some(NoCallRecord::NotIntel), "{name}");
            }
        }
    }
}
