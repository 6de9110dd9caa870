//! Lists the events of a machine by name. Pure.

use serde::Serialize;

use crate::pmu::attr::{auto, large_pebs};
use crate::pmu::event::{CacheEvent, HardwareEvent, SoftwareEvent, Term, TermValue};
use crate::pmu::host::{Host, Vendor};
use crate::pmu::sysfs::Pmu;
use crate::pmu::table::{CpuList, EventTable, Precision};

/// An event and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    /// Text for `--event`.
    pub event: String,
    /// Source of the name.
    pub source: Source,
    /// Whether its samples can be precise: `yes`, `only` (counts correctly only then), `no`; `None` if unknown.
    pub precise: Option<&'static str>,
    /// Whether it delivers many samples per interrupt, at a precise level.
    pub bulk: bool,
    /// Whether precise samples have the address of the data.
    pub address: bool,
    /// Whether the vendor advises against it.
    pub deprecated: bool,
    /// Its code in the terms of the PMU, if known.
    pub code: Option<String>,
    /// Description in one line; empty if unknown.
    pub description: String,
}

/// Source of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase", tag = "by", content = "of")]
pub(crate) enum Source {
    /// The kernel's generic names.
    Kernel,
    /// A PMU in sysfs.
    Pmu(String),
    /// The vendor's list of a kind of cores.
    Vendor(String),
}

impl Entry {
    fn new(event: impl Into<String>, source: Source, description: impl Into<String>) -> Self {
        Self {
            event: event.into(),
            source,
            precise: None,
            bulk: false,
            address: false,
            deprecated: false,
            code: None,
            description: description.into(),
        }
    }

    fn precise(mut self, precision: Option<Precision>, host: &Host) -> Self {
        let precision = match host.max_precise() {
            0 => Some(Precision::NotPrecise),
            _ => precision,
        };
        self.precise = precision.map(word);
        let can = matches!(self.precise, Some("yes" | "only"));
        self.bulk = can && large_pebs::available(host).is_ok();
        self
    }
}

const fn word(precision: Precision) -> &'static str {
    match precision {
        Precision::Precise => "yes",
        Precision::OnlyPrecise => "only",
        Precision::NotPrecise => "no",
    }
}

/// All event names of a machine: the kernel's, those in sysfs, then the vendor's list.
#[must_use]
pub(crate) fn catalog(host: &Host, table: &EventTable) -> Vec<Entry> {
    let lists = table.of(&host.cpu);
    let mut entries = vec![automatic(host)];
    if host.core_pmu().is_some() {
        let hardware = HardwareEvent::all().map(|event| hardware(event, host, &lists));
        entries.extend(hardware);
    }
    entries.extend(
        SoftwareEvent::all()
            .map(|event| Entry::new(event.name(), Source::Kernel, event.description())),
    );
    entries.push(Entry::new(
        "mem:PLACE:ACCESS",
        Source::Kernel,
        "Hardware breakpoint: mem:BIN:FUNC:x, mem:0xADDR/8:w, mem:BIN:VARIABLE:rw",
    ));
    if host.core_pmu().is_some() {
        let caches = CacheEvent::all()
            .map(|event| Entry::new(event.to_string(), Source::Kernel, event.description()));
        entries.extend(caches);
        entries.push(Entry::new(
            "rHEX",
            Source::Kernel,
            "Code of the CPU's own, umask and event: r01c2",
        ));
    }
    for pmu in &host.pmus {
        entries.extend(of_pmu(pmu, host, &lists));
    }
    // Events of a missing PMU can't be counted.
    let usable = |list: &&CpuList<'_>| host.pmu(list.pmu).is_some();
    for list in lists.iter().filter(usable) {
        entries.extend(vendor(list, host, lists.len() > 1));
    }
    entries
}

fn automatic(host: &Host) -> Entry {
    let best = auto::candidates(host).into_iter().next();
    let description = best.map_or(String::new(), |best| {
        format!("Here: {} ({})", best.name, best.reason)
    });
    Entry::new("auto", Source::Kernel, description)
}

/// A generic hardware event. The kernel has precise replacements for cycles, and uses IBS for AMD's core.
fn hardware(event: HardwareEvent, host: &Host, lists: &[CpuList<'_>]) -> Entry {
    let entry = Entry::new(event.name(), Source::Kernel, event.description());
    let core = host.core_pmu();
    let code = core.and_then(|pmu| pmu.events.get(event.sysfs_name()));
    let precision = match (host.cpu.vendor, event) {
        (Vendor::Intel, HardwareEvent::Cycles | HardwareEvent::Instructions)
        | (Vendor::Amd, HardwareEvent::Cycles) => Some(Precision::Precise),
        (Vendor::Intel, _) => code.and_then(|code| by_code(code, lists.first()?)),
        _ => Some(Precision::NotPrecise),
    };
    entry.precise(precision, host)
}

/// The vendor's precision of the event with this code; `None` with filters or aliases, which change the event.
fn by_code(code: &str, list: &CpuList<'_>) -> Option<Precision> {
    let wanted = numbers(code)?;
    let same = |event: &crate::pmu::table::VendorEvent<'_>| numbers(event.terms) == Some(wanted);
    list.events().find(same)?.precision
}

/// Event and umask of plain terms; `None` if there are other terms.
fn numbers(terms: &str) -> Option<(u64, u64)> {
    let mut found = (None, 0);
    for term in terms.split(',') {
        let (name, value) = term.split_once('=')?;
        let value = u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()?;
        match name {
            "event" => found.0 = Some(value),
            "umask" => found.1 = value,
            _ => return None,
        }
    }
    Some((found.0?, found.1))
}

/// Events of a PMU in sysfs, and its format terms.
fn of_pmu(pmu: &Pmu, host: &Host, lists: &[CpuList<'_>]) -> Vec<Entry> {
    const NOT_EVENTS: [&str; 5] = ["software", "tracepoint", "breakpoint", "kprobe", "uprobe"];
    if NOT_EVENTS.contains(&pmu.name.as_str()) {
        return Vec::new();
    }
    let source = || Source::Pmu(pmu.name.clone());
    let list = lists.iter().find(|list| list.pmu == pmu.name);
    let mut entries: Vec<Entry> = pmu
        .events
        .iter()
        .map(|(name, code)| {
            let mut entry = Entry::new(format!("{}/{name}/", pmu.name), source(), "");
            entry.code = Some(code.clone());
            // Loads above a latency, and stores: only PEBS can count them.
            let memory = matches!(name.as_str(), "mem-loads" | "mem-stores");
            entry.address = memory;
            let precision = if memory {
                Some(Precision::OnlyPrecise)
            } else {
                list.and_then(|list| by_code(code, list))
            };
            if pmu.is_core() {
                entry.precise(precision, host)
            } else {
                entry
            }
        })
        .collect();
    if !pmu.formats.is_empty() {
        let terms: Vec<&str> = pmu.formats.keys().map(String::as_str).collect();
        let event = format!("{}/TERM=N,.../", pmu.name);
        let mut entry = Entry::new(event, source(), format!("Terms: {}", terms.join(", ")));
        if pmu.name.starts_with("ibs_") {
            entry.precise = Some("yes");
            entry.address = pmu.name == "ibs_op";
        }
        entries.push(entry);
    }
    if pmu.name == "ibs_op" {
        entries.push(ibs(pmu));
    }
    entries
}

/// The plain IBS event: cycles, or dispatched ops if it can.
fn ibs(pmu: &Pmu) -> Entry {
    let ops = Term {
        name: "cnt_ctl".to_owned(),
        value: TermValue::Number(1),
    };
    let (event, what) = if pmu.formats.contains_key(&ops.name) {
        (
            format!("ibs_op/{ops}/"),
            "Ops dispatched, tagged and followed to the end",
        )
    } else {
        (
            "ibs_op//".to_owned(),
            "Ops, one each so many cycles, followed to the end",
        )
    };
    let mut entry = Entry::new(
        event.replace("0x1", "1"),
        Source::Pmu("ibs_op".into()),
        what,
    );
    entry.precise = Some("yes");
    entry.address = true;
    entry
}

fn vendor<'a>(
    list: &CpuList<'a>,
    host: &'a Host,
    hybrid: bool,
) -> impl Iterator<Item = Entry> + use<'a> {
    let (pmu, name) = (list.pmu, list.name);
    list.events().map(move |event| {
        let typed = if hybrid {
            format!("{pmu}/{}/", event.name)
        } else {
            event.name.to_owned()
        };
        let mut entry = Entry::new(typed, Source::Vendor(name.to_owned()), event.description);
        entry.code = Some(event.terms.to_owned());
        entry.address = event.has_address;
        entry.deprecated = event.deprecated;
        entry.precise(event.precision, host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::attr::{reset_value, resolve};
    use crate::pmu::event::EventSpec;
    use crate::pmu::host::fixtures;

    fn find(entries: &[Entry], event: &str) -> Entry {
        let found = entries.iter().find(|entry| entry.event == event);
        found.unwrap_or_else(|| panic!("no {event}")).clone()
    }

    /// Every listed entry resolves on its machine, except patterns to be filled in.
    #[test]
    fn what_is_listed_resolves() {
        let table = EventTable::embedded();
        let reset = reset_value(16_000).unwrap();
        for host in [
            fixtures::skylake(),
            fixtures::alder_lake(),
            fixtures::zen5(),
            fixtures::bare_guest(),
        ] {
            let entries = catalog(&host, &table);
            let typed = entries.iter().filter(|e| {
                !e.event.contains("=N") && !["mem:PLACE:ACCESS", "rHEX"].contains(&e.event.as_str())
            });
            // Only every ninth: each resolution unpacks the table.
            for entry in typed.step_by(9) {
                let spec: EventSpec = entry.event.parse().unwrap();
                let event = resolve(&spec, &host, reset);
                assert!(
                    event.is_ok(),
                    "{} on {}: {event:?}",
                    entry.event,
                    host.cpu.name
                );
            }
        }
    }

    /// Precision and bulk follow the vendor and the machine.
    #[test]
    fn precision() {
        let table = EventTable::embedded();
        let skylake = catalog(&fixtures::skylake(), &table);
        let uops = find(&skylake, "uops_retired.all");
        assert_eq!((uops.precise, uops.bulk), (Some("yes"), true));
        let misses = find(&skylake, "l2_rqsts.miss");
        assert_eq!((misses.precise, misses.bulk), (Some("no"), false));
        let loads = find(&skylake, "mem_load_retired.l1_miss");
        assert!(
            loads.address && loads.description.contains("L1"),
            "{loads:?}"
        );
        assert_eq!(find(&skylake, "cpu/mem-loads/").precise, Some("only"));
        assert_eq!(find(&skylake, "cycles").precise, Some("yes"));
        assert!(!find(&skylake, "bus-cycles").bulk);
        let guest = catalog(&fixtures::skylake_guest(), &table);
        let uops = find(&guest, "uops_retired.all");
        assert_eq!((uops.precise, uops.bulk), (Some("no"), false));
    }

    /// Hybrid names contain their PMU; machines without a PMU list the kernel's events.
    #[test]
    fn machines() {
        let table = EventTable::embedded();
        let alder = catalog(&fixtures::alder_lake(), &table);
        find(&alder, "cpu_core/mem_load_retired.l1_miss/");
        find(&alder, "cpu_atom/mem_load_uops_retired.l2_hit/");
        let zen = catalog(&fixtures::zen4(), &table);
        assert_eq!(find(&zen, "ibs_op/cnt_ctl=1/").precise, Some("yes"));
        assert!(
            find(&zen, "ibs_op/TERM=N,.../")
                .description
                .contains("l3missonly")
        );
        assert_eq!(find(&zen, "cycles").precise, Some("yes"));
        assert_eq!(find(&zen, "instructions").precise, Some("no"));
        let guest = catalog(&fixtures::bare_guest(), &table);
        assert!(find(&guest, "auto").description.contains("cpu-clock"));
        assert!(!guest.iter().any(|entry| entry.event == "cycles"));
        find(&guest, "msr/tsc/");
    }
}
