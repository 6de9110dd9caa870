//! Number of events that a core can count at once. Pure.
//!
//! The kernel does not refuse too many events: they take turns, and each is sampled only part of the time.

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};

use crate::failure::Hint;
use crate::pmu::attr::access::loads_leader;
use crate::pmu::attr::{EventClass, HardwareUnit, ResolvedEvent};
use crate::pmu::host::{CpuModel, Host, Vendor};
use crate::pmu::sysfs::Pmu;
use crate::pmu::table::{CpuList, EventTable, FIRST_FIXED};

/// More events than there are counters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{asked} events do not fit the counters of {place}: {fit} fit")]
pub(crate) struct TooManyEvents {
    /// Number of requested events that need such a counter.
    pub asked: usize,
    /// Number of them, in the given order, that fit at once.
    pub fit: usize,
    /// Name of the PMU.
    pub place: String,
    /// Events that take a second counter, for the group leader they need.
    pub led: Vec<String>,
    /// Whether the NMI watchdog takes a counter.
    watchdog: bool,
}

impl Hint for TooManyEvents {
    fn hint(&self) -> Option<String> {
        let mut fewer = format!(
            "give {} of them, record twice, or let them take turns (--multiplex)",
            self.fit
        );
        for event in &self.led {
            fewer += &format!("; {event} takes a second counter, for mem-loads-aux");
        }
        Some(match (self.place.starts_with("ibs"), self.watchdog) {
            (true, _) => "IBS tags one op at a time: one such event for each run".to_owned(),
            (false, true) => format!(
                "{fewer}; kernel.nmi_watchdog is 1 and holds one more: 'sudo sysctl kernel.nmi_watchdog=0'"
            ),
            (false, false) => fewer,
        })
    }
}

/// Counters of one kind of cores, as bits: general ones from 0, fixed ones from 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    /// General counters of each hardware thread.
    pub general: u32,
    /// Fixed counters, each for one event: instructions, cycles, reference cycles, slots.
    pub fixed: u32,
}

impl Counters {
    /// The counters of a PMU's cores: for Intel from the vendor's list, for AMD from the kernel's source; `None` if
    /// unknown.
    ///
    /// Intel's number is the one with hyper-threading; without it some CPUs have more.
    /// Source: arch/x86/events/amd/core.c (`amd_core_pmu_init`): six from family 0x15 on.
    #[must_use]
    pub(crate) fn of(cpu: &CpuModel, pmu: &str) -> Option<Self> {
        match cpu.vendor {
            Vendor::Intel => {
                let table = EventTable::embedded();
                let list = table.of(cpu).into_iter().find(|list| list.pmu == pmu)?;
                Some(Self {
                    general: list.general,
                    fixed: list.fixed << FIRST_FIXED,
                })
            }
            Vendor::Amd => Some(Self {
                general: if cpu.family >= 0x15 { 0x3f } else { 0xf },
                fixed: 0,
            }),
            Vendor::Other => None,
        }
    }
}

/// Checks that all events can be counted at once.
///
/// Covers the counters of the cores, and IBS, which has one for ops and one for fetches. Breakpoints are left to
/// the kernel.
///
/// # Errors
/// They do not fit; the error says how many do.
pub(crate) fn check(events: &[ResolvedEvent], host: &Host) -> Result<(), TooManyEvents> {
    ibs(events)?;
    let table = EventTable::embedded();
    for pmu in host.core_pmus() {
        let Some(counters) = Counters::of(&host.cpu, &pmu.name) else {
            continue;
        };
        let lists = table.of(&host.cpu).into_iter();
        let cores = Cores {
            pmu,
            counters,
            list: { lists }.find(|list| list.pmu == pmu.name),
            watchdog: host.limits.nmi_watchdog == Some(true),
        };
        cores.check(events)?;
    }
    Ok(())
}

/// One kind of cores.
struct Cores<'a> {
    pmu: &'a Pmu,
    counters: Counters,
    /// The vendor's list of its events.
    list: Option<CpuList<'a>>,
    /// Whether the NMI watchdog takes one counter.
    watchdog: bool,
}

impl Cores<'_> {
    fn check(&self, events: &[ResolvedEvent]) -> Result<(), TooManyEvents> {
        // The watchdog counts cycles.
        let cycles = self.counters.general | (self.counters.fixed & FIXED_CYCLES);
        let mut all: Vec<u32> = self.watchdog.then_some(cycles).into_iter().collect();
        let held = all.len();
        // Which event each counter is for.
        let (mut owners, mut led) = (Vec::new(), Vec::new());
        let here = events.iter().filter(|event| is_core(event));
        let here = here.filter_map(|event| Some((event, self.own(event)?)));
        let mut asked = 0;
        for (event, (attr, own)) in here {
            let leader = self.leader(&attr);
            led.extend(leader.map(|_| event.name.clone()));
            let needs = [Some(self.needs(event, &attr, own)), leader];
            for need in needs.into_iter().flatten() {
                owners.push(asked);
                all.push(need);
            }
            asked += 1;
        }
        let fit = fitting(&all);
        match owners.get(fit.saturating_sub(held)) {
            None => Ok(()),
            Some(&fit) => Err(TooManyEvents {
                asked,
                fit,
                place: self.pmu.name.clone(),
                led,
                watchdog: self.watchdog,
            }),
        }
    }

    /// The settings of an event on these cores, and its counters in the vendor's list; `None` if it is counted on
    /// other cores.
    fn own(&self, event: &ResolvedEvent) -> Option<(perf_event_attr, Option<u32>)> {
        match event.twins.iter().find(|twin| twin.pmu == self.pmu.name) {
            Some(twin) => {
                let mut attr = event.attr;
                attr.type_ = twin.kind;
                twin.config.apply(&mut attr);
                Some((attr, twin.counters))
            }
            None => (event.cpus == self.pmu.cpus || event.cpus.is_none())
                .then_some((event.attr, event.counters)),
        }
    }

    /// Counters for the leader of an event of loads, if these cores need one.
    fn leader(&self, attr: &perf_event_attr) -> Option<u32> {
        let asks = self.pmu.events.contains_key("mem-loads-aux");
        let leader = loads_leader(attr).filter(|_| asks)?;
        Some(self.listed(leader.config).unwrap_or(self.counters.general))
    }

    /// Counters of a code in the vendor's list, with any threshold; `None` if there are none or several sets.
    fn listed(&self, code: u64) -> Option<u32> {
        let first_term = format!("event={:#x}", code & 0xff);
        let mut same = (self.list?.events())
            .filter(|event| event.terms.split(',').next() == Some(&first_term))
            .filter(|event| {
                let encoded = self.pmu.encode_text(event.terms);
                encoded.is_some_and(|encoded| encoded.config == code)
            })
            .map(|event| event.counters);
        let first = same.next()?;
        same.all(|other| other == first).then_some(first)
    }

    /// Counters that can count an event.
    ///
    /// Before Ice Lake PEBS uses only the general counters.
    /// Source: arch/x86/events/intel/core.c (`x86_pmu.pebs_ept` and the event constraints).
    fn needs(&self, event: &ResolvedEvent, attr: &perf_event_attr, own: Option<u32>) -> u32 {
        let counters = self.counters;
        let loads = || loads_leader(attr).and_then(|_| self.listed(attr.config));
        let own = own.or_else(loads).unwrap_or(counters.general);
        let own = own & (counters.general | counters.fixed);
        let generic = attr.type_ == sys::PERF_TYPE_HARDWARE;
        let fixed = match (generic, attr.config & 0xffff_ffff) {
            // Only Intel has fixed counters.
            _ if counters.fixed == 0 => 0,
            (true, 1) | (false, 0xc0) => FIXED_INSTRUCTIONS,
            (true, 0) | (false, 0x3c) => FIXED_CYCLES,
            (true, 9) | (false, 0x300) => FIXED_REFERENCE,
            _ => return own,
        };
        let old_pebs = event.precise_requested > 0 && counters.general.count_ones() <= 4;
        let general = if attr.config & 0xffff == 0x300 {
            0
        } else {
            counters.general
        };
        match old_pebs {
            true => general,
            false => general | (counters.fixed & fixed),
        }
    }
}

/// Fixed counter of instructions.
const FIXED_INSTRUCTIONS: u32 = 1 << FIRST_FIXED;
/// Fixed counter of cycles.
const FIXED_CYCLES: u32 = 2 << FIRST_FIXED;
/// Fixed counter of reference cycles.
const FIXED_REFERENCE: u32 = 4 << FIRST_FIXED;

fn is_core(event: &ResolvedEvent) -> bool {
    let unit = HardwareUnit::Core;
    matches!(event.class, EventClass::Hardware { unit: own, .. } if own == unit)
}

/// Checks IBS: one event of each kind per CPU.
fn ibs(events: &[ResolvedEvent]) -> Result<(), TooManyEvents> {
    let unit = HardwareUnit::Ibs;
    let ibs = events.iter().filter(
        |event| matches!(event.class, EventClass::Hardware { unit: own, .. } if own == unit),
    );
    let mut kinds: Vec<bool> = ibs
        .map(|event| event.name.starts_with("ibs_fetch"))
        .collect();
    let asked = kinds.len();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.len() == asked {
        return Ok(());
    }
    Err(TooManyEvents {
        asked,
        fit: kinds.len(),
        place: "ibs".to_owned(),
        led: Vec::new(),
        watchdog: false,
    })
}

/// Number of events, in the given order, that can have a counter each.
///
/// Cost: at most events times counters steps for each event (augmenting paths of a bipartite matching).
fn fitting(needs: &[u32]) -> usize {
    let mut holders = [None; 32];
    (0..needs.len())
        .take_while(|&event| {
            let mut tried = 0;
            place(event, needs, &mut holders, &mut tried)
        })
        .count()
}

/// Finds a counter for an event, moving others if necessary.
fn place(event: usize, needs: &[u32], holders: &mut [Option<usize>; 32], tried: &mut u32) -> bool {
    for counter in 0..32 {
        let bit = 1 << counter;
        if needs[event] & bit == 0 || *tried & bit != 0 {
            continue;
        }
        *tried |= bit;
        let free = match holders[counter as usize] {
            None => true,
            Some(other) => place(other, needs, holders, tried),
        };
        if free {
            holders[counter as usize] = Some(event);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::attr::{reset_value, resolve};
    use crate::pmu::host::fixtures;

    fn checked(host: &Host, events: &[&str]) -> Result<(), TooManyEvents> {
        let reset = reset_value(16_000).unwrap();
        let resolved = |event: &&str| resolve(&event.parse().unwrap(), host, reset).unwrap();
        let events: Vec<ResolvedEvent> = events.iter().map(resolved).collect();
        check(&events, host)
    }

    fn with_watchdog(mut host: Host) -> Host {
        host.limits.nmi_watchdog = Some(true);
        host
    }

    const LOADS: [&str; 5] = [
        "mem_load_retired.l1_miss:pp",
        "mem_load_retired.l2_miss:pp",
        "mem_load_retired.l3_miss:pp",
        "mem_load_retired.l1_hit:pp",
        "mem_load_retired.l2_hit:pp",
    ];

    /// Skylake has four general counters per thread; fixed ones take cycles and instructions.
    #[test]
    fn skylake_has_four() {
        let host = fixtures::skylake();
        assert_eq!(checked(&host, &LOADS[..4]), Ok(()));
        let error = checked(&host, &LOADS).unwrap_err();
        assert_eq!(
            error.to_string(),
            "5 events do not fit the counters of cpu: 4 fit"
        );
        let hint = error.hint().unwrap();
        assert!(
            hint.starts_with("give 4 of them") && hint.contains("--multiplex"),
            "{hint}"
        );
        let mut more: Vec<&str> = LOADS[..4].to_vec();
        more.extend([
            "cycles",
            "instructions",
            "ref-cycles",
            "cpu-clock",
            "page-faults",
        ]);
        assert_eq!(checked(&host, &more), Ok(()));
        more.push("instructions:pp");
        assert_eq!(
            checked(&host, &more).unwrap_err().asked,
            8,
            "PEBS needs a general one"
        );
    }

    /// The watchdog takes the fixed counter of cycles, so cycles need a general one.
    #[test]
    fn the_watchdog_holds_one() {
        let host = with_watchdog(fixtures::skylake());
        assert_eq!(checked(&host, &LOADS[..4]), Ok(()));
        let events = ["cycles", LOADS[0], LOADS[1], LOADS[2], LOADS[3]];
        let error = checked(&host, &events).unwrap_err();
        assert_eq!((error.asked, error.fit), (5, 4));
        assert!(error.hint().unwrap().contains("kernel.nmi_watchdog=0"));
    }

    /// Ice Lake has eight, but loads use only the first four; other events can move away.
    #[test]
    fn constraints_move_events() {
        let host = fixtures::ice_lake();
        let events = [
            "uops_retired.slots",
            "br_inst_retired.near_call:p",
            "br_misp_retired.all_branches:p",
            "frontend_retired.dsb_miss:p",
            LOADS[0],
            LOADS[1],
            LOADS[2],
            LOADS[3],
        ];
        assert_eq!(checked(&host, &events), Ok(()));
        let error = checked(&host, &LOADS).unwrap_err();
        assert_eq!((error.asked, error.fit), (5, 4));
    }

    /// Each kind of cores is checked by itself: Gracemont has six, Golden Cove eight.
    #[test]
    fn hybrid_cores_differ() {
        let host = fixtures::alder_lake();
        let raw = ["r1c2", "r2c2", "r1c3", "r4c5", "r1d1", "r2d1", "r1d2"];
        assert_eq!(checked(&host, &raw[..6]), Ok(()));
        let error = checked(&host, &raw).unwrap_err();
        assert_eq!((error.place.as_str(), error.fit), ("cpu_atom", 6));
    }

    /// From Golden Cove on, loads by latency need a second counter, one of the four for retired loads, and can't
    /// use the first one themselves. The small cores of a hybrid CPU do not need it.
    #[test]
    fn loads_take_two() {
        let host = fixtures::sapphire_rapids();
        let mut events = vec!["mem-loads,ldlat=0x1e:P"];
        events.extend(&LOADS[..3]);
        assert_eq!(checked(&host, &events), Ok(()));
        events.push(LOADS[3]);
        let error = checked(&host, &events).unwrap_err();
        assert_eq!((error.asked, error.fit), (5, 4));
        assert_eq!(error.led, ["mem-loads,ldlat=0x1e:P"]);
        let hint = error.hint().unwrap();
        assert!(
            hint.contains("a second counter, for mem-loads-aux"),
            "{hint}"
        );
        // Two of them need four counters. The last event is one too many, wherever the loads are in the list.
        let twice = ["mem-loads,ldlat=0x1e:P", "mem-loads,ldlat=60:P"];
        assert_eq!(checked(&host, &[&twice[..], &LOADS[..2]].concat()), Ok(()));
        let error = checked(&host, &[&LOADS[..3], &twice[..]].concat()).unwrap_err();
        assert_eq!((error.asked, error.fit), (5, 4));
        let ice = fixtures::ice_lake();
        assert_eq!(checked(&ice, &[&LOADS[..4], &twice[..]].concat()), Ok(()));
        let hybrid = fixtures::alder_lake();
        let big = |loads: &[&'static str]| {
            let named = loads
                .iter()
                .map(|it| format!("cpu_core/{}/pp", it.trim_end_matches(":pp")));
            let mut events: Vec<String> = named.collect();
            events.insert(0, "cpu_core/mem-loads,ldlat=30/P".to_owned());
            let events: Vec<&str> = events.iter().map(String::as_str).collect();
            checked(&hybrid, &events)
        };
        assert_eq!(big(&LOADS[..3]), Ok(()));
        assert_eq!(big(&LOADS[..4]).unwrap_err().place, "cpu_core");
        let small = [
            "cpu_atom/mem-loads/P",
            "r1c2",
            "r2c2",
            "r1c3",
            "r4c5",
            "r1d1",
        ];
        assert_eq!(checked(&hybrid, &small), Ok(()));
    }

    /// IBS has one op and one fetch event, independent of the core's counters.
    #[test]
    fn ibs_has_one() {
        let host = fixtures::zen4();
        let core = ["r76", "rc0", "rc1", "rc2", "rc3", "r64"];
        let mut events = core.to_vec();
        events.extend(["ibs_op//", "ibs_fetch//"]);
        assert_eq!(checked(&host, &events), Ok(()));
        events.push("cycles:pp");
        let error = checked(&host, &events).unwrap_err();
        assert_eq!(
            (error.asked, error.fit, error.place.as_str()),
            (3, 2, "ibs")
        );
        assert!(error.hint().unwrap().contains("one op at a time"));
        let error = checked(&with_watchdog(host), &core).unwrap_err();
        assert_eq!((error.asked, error.fit), (6, 5));
    }

    /// Software events need no counter.
    #[test]
    fn software_is_free() {
        let events = ["cpu-clock", "task-clock", "page-faults", "cs", "migrations"];
        assert_eq!(checked(&fixtures::bare_guest(), &events), Ok(()));
    }
}
