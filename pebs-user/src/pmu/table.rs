//! Built-in list of Intel's events by name.
//!
//! Text form, made by `cargo xtask events`: one list for each kind of cores, followed by its events.
//!
//! ```text
//! # where it comes from
//! @skylakex <tab> cpu <tab> 6-55-01234 <tab> v1.37 <tab> f <tab> 7       name, PMU, CPUs, version, counters
//! uops_retired.all <tab> event=0xc2,umask=0x1 <tab> p <tab> <tab> Actually retired uops
//! ```
//!
//! CPUs are `FAMILY-MODEL` or `FAMILY-MODEL-STEPPINGS` in hexadecimal. Counters are bits: general ones from bit 0,
//! fixed ones from bit 16; if missing, all general ones. Flags: `p` precise, `P` precise only, `n` not precise,
//! none of these: unknown; `a` samples have the data's address; `d` deprecated.

use std::fmt;

use crate::pmu::host::{CpuModel, Vendor};

/// Compressed text of the table.
static PACKED: &[u8] = include_bytes!("../../data/events/intel.tsv.zst");

/// Intel's events, unpacked. Unpacking takes some ms and 3 MB.
#[derive(Clone, Debug)]
pub(crate) struct EventTable {
    text: String,
}

/// The events of one kind of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuList<'a> {
    /// The vendor's name for these CPUs: `skylakex`.
    pub name: &'a str,
    /// The PMU in sysfs: `cpu`, on hybrid CPUs `cpu_core`, `cpu_atom`, `cpu_lowpower`.
    pub pmu: &'a str,
    /// Version of the vendor's list.
    pub version: &'a str,
    /// General counters that each hardware thread has, as bits.
    pub general: u32,
    /// Fixed counters, as bits.
    pub fixed: u32,
    cpus: &'a str,
    body: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VendorEvent<'a> {
    /// Name, lower case.
    pub name: &'a str,
    /// Terms of the PMU: `event=0xc2,umask=0x1`.
    pub terms: &'a str,
    /// Precision according to the vendor; `None` if unknown.
    pub precision: Option<Precision>,
    /// Whether precise samples have the address of the data.
    pub has_address: bool,
    /// Whether the vendor advises against it.
    pub deprecated: bool,
    /// Counters that can count it, as bits: general ones from 0, fixed ones from 16.
    pub counters: u32,
    /// The vendor's description, one line.
    pub description: &'a str,
}

/// An event's precision according to the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Can be precise.
    Precise,
    /// Counts correctly only when precise.
    OnlyPrecise,
    /// Not precise: samples skid at any level that the kernel accepts.
    NotPrecise,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Precise => "yes",
            Self::OnlyPrecise => "only",
            Self::NotPrecise => "no",
        })
    }
}

/// Bit of the first fixed counter.
pub(crate) const FIRST_FIXED: u32 = 16;

impl EventTable {
    /// The table that is built in.
    #[must_use]
    pub(crate) fn embedded() -> Self {
        // The built-in data unpacks, as a test checks. An empty table just knows no names.
        let bytes = zstd::decode_all(PACKED).unwrap_or_default();
        Self {
            text: String::from_utf8(bytes).unwrap_or_default(),
        }
    }

    /// Source of the table, one line.
    #[must_use]
    pub(crate) fn source(&self) -> &str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches(['#', ' '])
    }

    /// All lists, by name.
    pub(crate) fn lists(&self) -> impl Iterator<Item = CpuList<'_>> {
        self.text.split("\n@").skip(1).filter_map(CpuList::parse)
    }

    /// The lists of a CPU: one, on hybrid CPUs one for each kind of cores, or none.
    #[must_use]
    pub(crate) fn of(&self, cpu: &CpuModel) -> Vec<CpuList<'_>> {
        self.lists().filter(|list| list.is_of(cpu)).collect()
    }

    /// Names of the CPUs that have an event of that name, each once.
    #[must_use]
    pub(crate) fn cpus_with(&self, event: &str) -> Vec<&str> {
        let having = self.lists().filter(|list| list.event(event).is_some());
        let mut names: Vec<&str> = having.map(|list| list.name).collect();
        names.dedup();
        names
    }
}

impl<'a> CpuList<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (head, body) = text.split_once('\n').unwrap_or((text, ""));
        let mut cells = head.split('\t');
        let list = Self {
            name: cells.next()?,
            pmu: cells.next()?,
            cpus: cells.next()?,
            version: cells.next()?,
            general: u32::from_str_radix(cells.next()?, 16).ok()?,
            fixed: u32::from_str_radix(cells.next()?, 16).ok()?,
            body,
        };
        Some(list)
    }

    /// Whether the list is of that CPU.
    #[must_use]
    pub(crate) fn is_of(&self, cpu: &CpuModel) -> bool {
        let number = |text: Option<&str>| u32::from_str_radix(text?, 16).ok();
        let fits = |entry: &str| {
            let mut parts = entry.split('-');
            let same =
                number(parts.next()) == Some(cpu.family) && number(parts.next()) == Some(cpu.model);
            let steppings = parts.next();
            let own = char::from_digit(cpu.stepping, 16).map(|digit| digit.to_ascii_uppercase());
            same && steppings.is_none_or(|set| own.is_some_and(|own| set.contains(own)))
        };
        cpu.vendor == Vendor::Intel && self.cpus.split(' ').any(fits)
    }

    /// The event of that name, in any case.
    #[must_use]
    pub(crate) fn event(&self, name: &str) -> Option<VendorEvent<'a>> {
        let fits = |line: &&str| {
            let found = line.as_bytes().get(..name.len());
            found.is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
                && line.as_bytes().get(name.len()) == Some(&b'\t')
        };
        let line = self.body.lines().find(fits)?;
        self.parse_event(line)
    }

    /// All events, by name.
    pub(crate) fn events(&self) -> impl Iterator<Item = VendorEvent<'a>> + use<'a> {
        let list = *self;
        self.body
            .lines()
            .filter_map(move |line| list.parse_event(line))
    }

    fn parse_event(&self, line: &'a str) -> Option<VendorEvent<'a>> {
        let mut cells = line.splitn(5, '\t');
        let (name, terms, flags) = (cells.next()?, cells.next()?, cells.next()?);
        let counters = cells.next()?;
        let precision = flags.chars().find_map(|flag| match flag {
            'p' => Some(Precision::Precise),
            'P' => Some(Precision::OnlyPrecise),
            'n' => Some(Precision::NotPrecise),
            _ => None,
        });
        Some(VendorEvent {
            name,
            terms,
            precision,
            has_address: flags.contains('a'),
            deprecated: flags.contains('d'),
            counters: u32::from_str_radix(counters, 16).unwrap_or(self.general),
            description: cells.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::event::EventSpec;

    fn cpu(model: u32, stepping: u32) -> CpuModel {
        CpuModel {
            vendor: Vendor::Intel,
            family: 6,
            model,
            stepping,
            name: String::new(),
        }
    }

    /// CPUs find their lists: steppings distinguish Skylake-SP from Cascade Lake, hybrid CPUs have two.
    #[test]
    fn cpus_find_their_lists() {
        let table = EventTable::embedded();
        let names = |cpu: &CpuModel| -> Vec<String> {
            let lists = table.of(cpu).into_iter();
            lists.map(|l| format!("{}/{}", l.name, l.pmu)).collect()
        };
        assert_eq!(names(&cpu(0x55, 4)), ["skylakex/cpu"]);
        assert_eq!(names(&cpu(0x55, 7)), ["cascadelakex/cpu"]);
        assert_eq!(names(&cpu(0x8f, 8)), ["sapphirerapids/cpu"]);
        assert_eq!(
            names(&cpu(0x97, 2)),
            ["alderlake/cpu_atom", "alderlake/cpu_core"]
        );
        assert!(names(&cpu(0xff, 0)).is_empty());
        let amd = CpuModel {
            vendor: Vendor::Amd,
            ..cpu(0x55, 4)
        };
        assert!(names(&amd).is_empty());
    }

    /// The supported generations are included, and no line of the table is malformed.
    #[test]
    fn the_table_is_whole() {
        let table = EventTable::embedded();
        assert!(table.source().contains("Intel"), "{}", table.source());
        let mut events = 0;
        for list in table.lists() {
            let lines = list.body.lines().count();
            assert_eq!(list.events().count(), lines, "{} {}", list.name, list.pmu);
            assert!(list.general != 0 && !list.cpus.is_empty(), "{list:?}");
            for event in list.events() {
                let text = format!("cpu/{}/", event.terms);
                assert!(text.parse::<EventSpec>().is_ok(), "{text}");
                assert!(!event.name.is_empty() && event.counters != 0, "{event:?}");
            }
            events += lines;
        }
        assert!(events > 15_000, "{events}");
        for name in [
            "sandybridge",
            "haswell",
            "broadwellx",
            "skylakex",
            "icelakex",
            "sapphirerapids",
            "emeraldrapids",
            "graniterapids",
            "sierraforest",
            "alderlake",
            "meteorlake",
            "lunarlake",
            "arrowlake",
            "goldmont",
            "silvermont",
        ] {
            assert!(table.lists().any(|list| list.name == name), "{name}");
        }
    }

    /// Names are found in any case; flags and counters are the vendor's.
    #[test]
    fn events_are_found() {
        let table = EventTable::embedded();
        let list = table.of(&cpu(0x55, 4))[0];
        let event = list
            .event("UOPS_RETIRED.ALL")
            .unwrap_or_else(|| panic!("no event"));
        assert_eq!(event.terms, "event=0xc2,umask=0x1");
        assert_eq!(
            (event.precision, event.counters),
            (Some(Precision::Precise), 0xf)
        );
        let event = list.event("mem_trans_retired.load_latency_gt_64").unwrap();
        assert_eq!(event.terms, "event=0xcd,umask=0x1,ldlat=0x40");
        assert_eq!(event.precision, Some(Precision::OnlyPrecise));
        assert!(event.has_address);
        let event = list.event("l2_rqsts.miss").unwrap();
        assert_eq!(event.precision, Some(Precision::NotPrecise));
        assert_eq!(list.event("uops_retired"), None);
        let where_ = table.cpus_with("inst_retired.prec_dist");
        assert!(
            where_.contains(&"icelakex") && !where_.contains(&"goldmont"),
            "{where_:?}"
        );
    }
}
