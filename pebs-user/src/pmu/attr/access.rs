//! Events whose samples describe a memory access, and the settings they need.

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};

use super::draft::Draft;
use super::{EventClass, HardwareUnit, ResolvedEvent};
use crate::pmu::watch::Watch;

/// Fields of PEBS and IBS: data address, data source, latency.
const HARDWARE: u64 =
    (sys::PERF_SAMPLE_ADDR | sys::PERF_SAMPLE_DATA_SRC | sys::PERF_SAMPLE_WEIGHT_STRUCT) as u64;

/// IBS registers, available only in the kernel's rings.
const REGISTERS: u64 = sys::PERF_SAMPLE_RAW as u64;

/// Intel core event codes whose records have the data's address and source: 0xcd loads by latency and sampled
/// stores, 0xd0..0xd4 retired loads and stores by where they hit.
///
/// Source: `intel_skl_pebs_event_constraints`, `intel_glc_pebs_event_constraints`, arch/x86/events/intel/ds.c.
const fn is_access_code(config: u64) -> bool {
    matches!(config & 0xff, 0xcd | 0xd0..=0xd4)
}

/// Event and umask of a core's code.
const CODE: u64 = 0xffff;

/// Loads by their latency, `mem-loads`.
const LOADS: u64 = 0x01cd;

/// Event that must be counted beside them on Golden Cove and later, `mem-loads-aux`.
const LOADS_AUX: u64 = 0x8203;

/// The group leader for an event of loads by latency, on CPUs where the kernel returns ENODATA without it: there
/// such loads are reported correctly only while it counts. Its own count does not matter.
///
/// `None` for all other events. On the same PMU and in the same modes; it takes no samples and is enabled at once.
/// Source: `require_mem_loads_aux_event` and `intel_pmu_hw_config`, arch/x86/events/intel/core.c.
#[must_use]
pub(crate) fn loads_leader(attr: &perf_event_attr) -> Option<perf_event_attr> {
    let generic = matches!(
        attr.type_,
        sys::PERF_TYPE_HARDWARE | sys::PERF_TYPE_HW_CACHE | sys::PERF_TYPE_SOFTWARE
    );
    let has_source = attr.sample_type & u64::from(sys::PERF_SAMPLE_DATA_SRC) != 0;
    if generic || !has_source || attr.config & CODE != LOADS {
        return None;
    }
    let mut leader = perf_event_attr {
        type_: attr.type_,
        config: LOADS_AUX,
        read_format: super::READ_FORMAT,
        ..perf_event_attr::default()
    };
    leader.set_exclude_user(attr.exclude_user());
    leader.set_exclude_kernel(attr.exclude_kernel());
    leader.set_exclude_hv(attr.exclude_hv());
    leader.set_exclude_guest(attr.exclude_guest());
    leader.set_exclude_idle(attr.exclude_idle());
    leader.set_inherit(attr.inherit());
    Some(leader)
}

/// Bits of `sample_type` that an event's samples have by default; 0: no memory access.
pub(super) fn of_draft(draft: &Draft, precise: u8) -> u64 {
    if Watch::of(&draft.attr).is_some() {
        return sys::PERF_SAMPLE_ADDR.into();
    }
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
    /// Makes samples carry their memory access or op; returns whether they can.
    ///
    /// On Intel precise events can: from Ice Lake on all, before that those of accesses. On AMD all of IBS can.
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
        // Not requested: a program can't see the registers.
        self.attr.sample_type |= access & !REGISTERS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::attr::bulk::check_buffered;
    use crate::pmu::attr::resolve;
    use crate::pmu::host::{Host, fixtures};
    use crate::pmu::target::Target;
    use crate::units::Cpu;

    fn resolved(host: &Host, name: &str) -> ResolvedEvent {
        let reset = crate::pmu::attr::reset_value(16_000).unwrap();
        resolve(&name.parse().unwrap(), host, reset).unwrap()
    }

    /// Events of memory accesses have it by default, others do not; page faults have an address.
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
        // No PEBS record, so nothing would fill the fields.
        assert_eq!(resolved(&skylake, "mem_load_retired.l1_miss").access, 0);
        assert_eq!(resolved(&skylake, "instructions:pp").access, 0);
        let written = resolved(&skylake, "mem:0x1000/8:w");
        assert_eq!(written.access, u64::from(sys::PERF_SAMPLE_ADDR));
        assert_eq!(resolved(&skylake, "mem:0x1000:x").access, 0);
        let faults = resolved(&skylake, "page-faults");
        assert_eq!(faults.access, u64::from(sys::PERF_SAMPLE_ADDR));
        assert_eq!(resolved(&skylake, "cpu-clock").access, 0);
        let zen = fixtures::zen4();
        assert_eq!(resolved(&zen, "ibs_op/cnt_ctl=1/").access, 0);
    }

    /// If sysfs has `mem-loads-aux`, it leads loads on the same PMU; other events, and loads without a requested data
    /// source, have no leader.
    #[test]
    fn loads_are_led() {
        for (host, name) in [
            (fixtures::sapphire_rapids(), "mem-loads,ldlat=30:P"),
            (fixtures::alder_lake(), "cpu_core/mem-loads,ldlat=30/P"),
        ] {
            let loads = resolved(&host, name);
            let attr = loads.bulk_attr(Target::ThreadOnCpu(crate::units::Tid(1), Cpu(0)), 1 << 19);
            let leader = loads_leader(&attr).unwrap();
            let pmu = host.core_pmus().next().unwrap();
            let aux = resolved(&host, &format!("{}/mem-loads-aux/", pmu.name));
            assert_eq!(
                (leader.type_, leader.config),
                (aux.attr.type_, aux.attr.config),
                "{name}"
            );
            assert_eq!((leader.inherit(), leader.exclude_guest()), (1, 1));
            let samples = (leader.sample_type, leader.sample_period);
            assert_eq!((samples, leader.disabled()), ((0, 0), 0));
            let noted = |event: &ResolvedEvent| event.notes.iter().any(|it| it.contains("-aux"));
            assert!(noted(&loads) && !noted(&aux));
            let counted = perf_event_attr {
                sample_type: sys::PERF_SAMPLE_IP.into(),
                ..attr
            };
            assert!(loads_leader(&counted).is_none());
            assert!(loads_leader(&resolved(&host, "mem-stores:P").attr).is_none());
        }
        let clock = resolved(&fixtures::skylake(), "cpu-clock");
        assert!(loads_leader(&clock.attr).is_none());
    }

    /// Other events have it on request, as far as they can; only the kernel's rings carry registers.
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
