//! Which events' samples say something of a memory access, and what has to be asked for.

use perf_event_open_sys::bindings as sys;

use super::draft::Draft;
use super::{EventClass, HardwareUnit, ResolvedEvent};

/// What PEBS and IBS can say: the data's address, where the data came from, and how long it took.
const HARDWARE: u64 =
    (sys::PERF_SAMPLE_ADDR | sys::PERF_SAMPLE_DATA_SRC | sys::PERF_SAMPLE_WEIGHT_STRUCT) as u64;

/// IBS's own registers, which only the kernel's rings carry.
const REGISTERS: u64 = sys::PERF_SAMPLE_RAW as u64;

/// Codes of Intel's cores whose records have the data's address and source: 0xcd loads by latency and
/// sampled stores, 0xd0..0xd4 retired loads and stores by where they hit.
///
/// Source: `intel_skl_pebs_event_constraints`, `intel_glc_pebs_event_constraints`, arch/x86/events/intel/ds.c.
const fn is_access_code(config: u64) -> bool {
    matches!(config & 0xff, 0xcd | 0xd0..=0xd4)
}

/// Bits of `sample_type` that an event's samples have by themselves; 0: they say nothing of accesses.
pub(super) fn of_draft(draft: &Draft, precise: u8) -> u64 {
    let EventClass::Hardware { unit, .. } = draft.class else {
        let faults = [
            sys::PERF_COUNT_SW_PAGE_FAULTS,
            sys::PERF_COUNT_SW_PAGE_FAULTS_MIN,
            sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
            sys::PERF_COUNT_SW_ALIGNMENT_FAULTS,
        ];
        let is_fault = draft.class == EventClass::Software
            && draft.attr.type_ == sys::PERF_TYPE_SOFTWARE
            && faults.map(u64::from).contains(&draft.attr.config);
        return if is_fault {
            sys::PERF_SAMPLE_ADDR.into()
        } else {
            0
        };
    };
    let listed = draft.listed.as_ref().is_some_and(|it| it.has_address);
    match unit {
        HardwareUnit::Core
            if precise > 0 && (listed || is_access_code(draft.attr.config)) && is_code(draft) =>
        {
            HARDWARE
        }
        // A bound on the latency of loads was typed.
        HardwareUnit::Ibs if draft.attr.config1 != 0 => HARDWARE | REGISTERS,
        _ => 0,
    }
}

/// Whether `config` is a code of the core's, not a number of the kernel's.
const fn is_code(draft: &Draft) -> bool {
    !matches!(
        draft.attr.type_,
        sys::PERF_TYPE_HARDWARE | sys::PERF_TYPE_HW_CACHE
    )
}

impl ResolvedEvent {
    /// Has samples say what they can of their memory access or op; gives whether they can.
    ///
    /// On Intel a precise event can: all of Ice Lake and later, before that those that are accesses. On AMD
    /// all of IBS.
    pub fn ask_access(&mut self) -> bool {
        let asked = match self.class {
            EventClass::Hardware {
                unit: HardwareUnit::Core,
                ..
            } if self.attr.precise_ip() > 0 => HARDWARE,
            EventClass::Hardware {
                unit: HardwareUnit::Ibs,
                ..
            } => HARDWARE | REGISTERS,
            _ => self.access,
        };
        self.set_access(asked);
        asked != 0
    }

    pub(super) const fn set_access(&mut self, access: u64) {
        self.access = access;
        // A program can't see the registers: no need for them then.
        self.attr.sample_type |= access & !REGISTERS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::attr::bulk::check_buffered;
    use crate::pmu::attr::resolve;
    use crate::pmu::host::{Host, fixtures};
    use crate::pmu::open::Target;
    use crate::units::Cpu;

    fn resolved(host: &Host, name: &str) -> ResolvedEvent {
        let reset = crate::pmu::reset::reset_value(16_000).unwrap();
        resolve(&name.parse().unwrap(), host, reset).unwrap()
    }

    /// Events of memory accesses have it by themselves, others do not; page faults have an address.
    #[test]
    fn by_themselves() {
        let skylake = fixtures::skylake();
        for name in ["mem_load_retired.l1_miss:pp", "mem-loads,ldlat=30:P"] {
            let event = resolved(&skylake, name);
            assert_eq!(event.access, HARDWARE, "{name}");
            assert_eq!(event.attr.sample_type & HARDWARE, HARDWARE);
            let bulk = event.bulk_attr(Target::Cpu(Cpu(0)), 1 << 19);
            assert_eq!(bulk.sample_type & HARDWARE, HARDWARE);
            assert_eq!(check_buffered(&bulk), Ok(()), "{name} stays in bulk");
        }
        // Not a record of PEBS's: nobody would fill the fields.
        assert_eq!(resolved(&skylake, "mem_load_retired.l1_miss").access, 0);
        assert_eq!(resolved(&skylake, "instructions:pp").access, 0);
        let faults = resolved(&skylake, "page-faults");
        assert_eq!(faults.access, u64::from(sys::PERF_SAMPLE_ADDR));
        assert_eq!(resolved(&skylake, "cpu-clock").access, 0);
        let zen = fixtures::zen4();
        assert_eq!(resolved(&zen, "ibs_op/cnt_ctl=1/").access, 0);
    }

    /// Others have it if asked, as far as they can; only the kernel's rings carry registers.
    #[test]
    fn asked_for() {
        let zen = fixtures::zen4();
        let mut ibs = resolved(&zen, "ibs_op/cnt_ctl=1/");
        assert!(ibs.ask_access());
        assert_eq!(ibs.attr.sample_type & (HARDWARE | REGISTERS), HARDWARE);
        let bulk = ibs.bulk_attr(Target::Cpu(Cpu(0)), 1 << 19);
        assert_eq!(bulk.sample_type & REGISTERS, REGISTERS);
        let ice = fixtures::ice_lake();
        assert!(resolved(&ice, "instructions:pp").ask_access());
        assert!(!resolved(&ice, "instructions").ask_access());
        assert!(!resolved(&ice, "cpu-clock").ask_access());
        assert!(resolved(&ice, "page-faults").ask_access());
    }
}
