//! This machine's events for a piece of work, and their expected counts.

use super::report::Basis;
use super::work::{Chase, RoundEvent};
use crate::failure::{Failure, Result};
use crate::pmu::attr::{EventClass, HardwareUnit, ResolvedEvent, reset_value, resolve};
use crate::pmu::event::EventSpec;
use crate::pmu::host::{Host, Vendor};
use crate::pmu::open::{open_stepping_down, settle_twins};
use crate::pmu::target::Target;
use crate::units::Tid;

/// True count of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// Loads that miss the first level cache, or the execution of that load.
    Loads,
    /// Instructions.
    Instructions,
    /// New pages that are touched.
    Pages,
    /// ns on the CPU, by the thread's clock.
    CpuTime,
    /// The counter's own value.
    Counter,
}

/// An event that this machine may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Name in rows.
    pub label: String,
    /// As typed, the first one that there is.
    pub specs: Vec<String>,
    /// True count.
    pub truth: Truth,
    /// Reliability of the truth.
    pub basis: Basis,
    /// For IBS: only samples of loads that missed count.
    pub only_misses: bool,
}

impl Offer {
    pub(crate) fn new(label: &str, specs: &[&str], truth: Truth, basis: Basis) -> Self {
        Self {
            label: label.to_owned(),
            specs: specs.iter().map(|spec| (*spec).to_owned()).collect(),
            truth,
            basis,
            only_misses: false,
        }
    }

    /// Opens it once on this thread, to check that the machine grants it.
    ///
    /// # Errors
    /// The reason of a refusal, in one sentence.
    pub(crate) fn find(&self, host: &Host, reset: u64) -> Result<ResolvedEvent, String> {
        let mut why = String::new();
        for spec in &self.specs {
            match find(host, spec, reset, self.only_misses) {
                Ok(event) => return Ok(event),
                Err(error) => why = error,
            }
        }
        Err(why)
    }
}

/// Finds one event; with `access`, one whose samples have memory accesses.
fn find(host: &Host, spec: &str, reset: u64, access: bool) -> Result<ResolvedEvent, String> {
    let spec: EventSpec = spec
        .parse()
        .map_err(|error| Failure::from(error).to_string())?;
    let reset = reset_value(reset).map_err(|error| Failure::from(error).to_string())?;
    let resolved = resolve(&spec, host, reset);
    let mut event = resolved.map_err(|error| match host.no_pmu_reason() {
        Some(reason) => reason,
        None => Failure::from(error).to_string(),
    })?;
    if access && !event.ask_access() {
        return Err("its samples say nothing of their access".to_owned());
    }
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let target = Target::Thread(Tid(tid.cast_unsigned()));
    let opened =
        open_stepping_down(&event, target).map_err(|error| Failure::from(error).to_string())?;
    event.attr.set_precise_ip(opened.granted.precise.into());
    let settled = settle_twins(&mut event, Tid(tid.cast_unsigned()));
    settled.map_err(|error| Failure::from(error).to_string())?;
    Ok(event)
}

/// Whether it is counted by the CPU.
pub(crate) fn is_hardware(event: &ResolvedEvent) -> bool {
    matches!(event.class, EventClass::Hardware { .. })
}

/// Whether it is an event of IBS.
pub(crate) fn is_ibs(event: &ResolvedEvent) -> bool {
    matches!(
        event.class,
        EventClass::Hardware {
            unit: HardwareUnit::Ibs,
            ..
        }
    )
}

/// Names of a precise event of Intel CPUs, newer and older. The truth covers user mode only: the kernel's events, such
/// as those for each sample, are not in it.
const L1_MISSES: [&str; 2] = [
    "mem_load_retired.l1_miss:upp",
    "mem_load_uops_retired.l1_miss:upp",
];

/// Retired instructions: as evenly as there is, else as precisely.
const INSTRUCTIONS: [&str; 3] = [
    "inst_retired.prec_dist:uP",
    "instructions:uppp",
    "instructions:upp",
];

/// Loads of memory.
const LOADS: [&str; 3] = [
    "mem_inst_retired.all_loads:upp",
    "mem_uops_retired.all_loads:upp",
    "mem_uops_retired.load_uops:upp",
];

/// IBS by dispatched ops.
pub(crate) const OPS: &str = "ibs_op/cnt_ctl=1/";

/// Events that are counted while an array is chased, hardware first.
pub(crate) fn of_chase(host: &Host, chase: &Chase) -> Vec<Offer> {
    let exact = Basis::Exact;
    let mut offers = vec![
        Offer::new(
            "instructions retired",
            &INSTRUCTIONS,
            Truth::Instructions,
            exact,
        ),
        Offer::new("L1 load misses", &L1_MISSES, Truth::Loads, exact),
    ];
    // Without any PMU it is pointless to list both vendors' events.
    if host.cpu.vendor == Vendor::Amd || host.no_pmu_reason().is_some() {
        // Each instruction of the work is one op.
        offers.push(Offer::new("IBS ops", &[OPS], Truth::Instructions, exact));
        offers.push(Offer {
            only_misses: true,
            ..Offer::new("IBS ops, L1 load misses", &[OPS], Truth::Loads, exact)
        });
        let fetch = ["ibs_fetch//"];
        offers.push(Offer::new(
            "IBS fetches",
            &fetch,
            Truth::Counter,
            Basis::StandIn,
        ));
    }
    let load = format!("mem:{:#x}:x", chase.load());
    offers.push(Offer::new(
        "breakpoint on the load",
        &[&load],
        Truth::Loads,
        exact,
    ));
    offers
}

/// Page faults, which have other work.
pub(crate) fn page_faults() -> Offer {
    Offer::new("page-faults", &["page-faults"], Truth::Pages, Basis::Exact)
}

/// Clocks.
pub(crate) fn clocks() -> [Offer; 2] {
    ["cpu-clock", "task-clock"]
        .map(|name| Offer::new(name, &[name], Truth::CpuTime, Basis::StandIn))
}

/// Loads, for bias.
pub(crate) fn loads() -> Offer {
    Offer::new("loads retired", &LOADS, Truth::Loads, Basis::Exact)
}

/// Events of the loop of many kinds, on hardware.
pub(crate) fn of_kind(kind: RoundEvent) -> Offer {
    let specs: &[&str] = match kind {
        RoundEvent::Loads => &LOADS,
        RoundEvent::Stores => &[
            "mem_inst_retired.all_stores:upp",
            "mem_uops_retired.all_stores:upp",
            "mem_uops_retired.store_uops:upp",
        ],
        RoundEvent::Branches => &["br_inst_retired.all_branches:upp", "branches:upp"],
        RoundEvent::Taken => &["br_inst_retired.near_taken:upp"],
        RoundEvent::Returns => &["br_inst_retired.near_return:upp"],
        RoundEvent::Locked => &[
            "mem_inst_retired.lock_loads:upp",
            "mem_uops_retired.lock_loads:upp",
        ],
    };
    Offer::new(kind.name(), specs, Truth::Counter, Basis::Exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::host::fixtures;
    use crate::validate::work::Ratio;

    /// Each machine resolves the expected events: PEBS on Intel, IBS on AMD, neither in a guest.
    #[test]
    fn machines_have_them() {
        let chase = Chase::new(Ratio::In20);
        let resolved = |host: &Host, offer: &Offer| {
            let reset = reset_value(100_000).unwrap();
            { offer.specs.iter() }.find_map(|spec| {
                let spec: EventSpec = spec.parse().unwrap();
                resolve(&spec, host, reset).ok()
            })
        };
        let hardware = |host: &Host| -> Vec<String> {
            let offers = of_chase(host, &chase).into_iter();
            let here = offers
                .filter(|offer| resolved(host, offer).is_some_and(|event| is_hardware(&event)));
            here.map(|offer| offer.label).collect()
        };
        let pebs = ["instructions retired", "L1 load misses"];
        assert_eq!(hardware(&fixtures::skylake()), pebs);
        let ibs = hardware(&fixtures::zen4());
        assert!(
            ibs.contains(&"IBS ops".to_owned()) && ibs.contains(&"IBS fetches".to_owned()),
            "{ibs:?}"
        );
        assert_eq!(hardware(&fixtures::bare_guest()), [""; 0]);
        let skylake = fixtures::skylake();
        for kind in RoundEvent::ALL {
            assert!(resolved(&skylake, &of_kind(kind)).is_some(), "{kind:?}");
        }
        assert!(resolved(&skylake, &loads()).is_some());
    }
}
