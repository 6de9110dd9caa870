//! Meaning of an event spec on this machine, before modifiers and reset value.

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};

use super::{EventClass, EventError, HardwareUnit};
use crate::failure::Warning;
use crate::pmu::event::{
    Breakpoint, CacheEvent, EventKind, EventSpec, HardwareEvent, Place, SoftwareEvent, raw_code,
};
use crate::pmu::host::{Host, Vendor};
use crate::pmu::sysfs::{Config, Pmu, is_core_pmu};
use crate::pmu::table::Precision;
use crate::units::Cpu;

mod names;

use names::Names;

/// An event before modifiers and reset value.
pub(super) struct Draft {
    pub attr: perf_event_attr,
    pub class: EventClass,
    /// PMU name, if it was given or is one of several.
    pub pmu: Option<String>,
    pub cpus: Option<Vec<Cpu>>,
    /// The PMU's maximum precise level.
    pub max_precise: Option<u8>,
    pub name: Option<String>,
    pub period: Option<u64>,
    pub kernel_only: bool,
    pub needs_core_pmu: bool,
    pub swfilt: bool,
    /// The event's entry in the vendor's table.
    pub listed: Option<Listed>,
}

/// An event's entry in the vendor's table.
pub(super) struct Listed {
    name: String,
    precision: Option<Precision>,
    pub has_address: bool,
    pub counters: u32,
}

impl Draft {
    fn new(kind: u32, config: u64, class: EventClass) -> Self {
        let attr = perf_event_attr {
            type_: kind,
            config,
            ..perf_event_attr::default()
        };
        Self {
            attr,
            class,
            pmu: None,
            cpus: None,
            max_precise: None,
            name: None,
            period: None,
            kernel_only: false,
            needs_core_pmu: false,
            swfilt: false,
            listed: None,
        }
    }

    /// Copies the PMU's properties.
    fn on(mut self, pmu: &Pmu) -> Self {
        self.pmu = Some(pmu.name.clone());
        self.cpus.clone_from(&pmu.cpus);
        self.max_precise = pmu.max_precise;
        self.swfilt = pmu.formats.contains_key("swfilt");
        self
    }

    /// Whether it needs a core PMU and there is none.
    pub(super) fn lacks_pmu(&self, host: &Host) -> bool {
        self.needs_core_pmu && host.no_pmu_reason().is_some()
    }

    /// The vendor's warnings about the requested precise level.
    pub(super) fn warnings(&self, precise: u8) -> Vec<Warning> {
        let Some(Listed {
            name, precision, ..
        }) = &self.listed
        else {
            return Vec::new();
        };
        let (text, hint) = match (precision, precise) {
            (Some(Precision::NotPrecise), 1..) => (
                format!(
                    "Intel does not call {name} precise: samples skid, whatever the kernel grants"
                ),
                "leave out ':p'; 'pebs-trace events' shows which events are precise".to_owned(),
            ),
            (Some(Precision::OnlyPrecise), 0) => (
                format!("Intel says that {name} counts right only when precise"),
                format!("use {name}:p"),
            ),
            _ => return Vec::new(),
        };
        vec![Warning { text, hint }]
    }
}

/// Resolves a spec to one event, or to one per kind of cores of a hybrid CPU.
pub(super) fn drafts(spec: &EventSpec, host: &Host) -> Result<Vec<Draft>, EventError> {
    let kind = match &spec.kind {
        EventKind::Software(event) => return Ok(vec![software(*event)]),
        EventKind::Breakpoint(breakpoint) => return Ok(vec![breakpoint_draft(breakpoint)?]),
        EventKind::Pmu { pmu, terms } => return Ok(vec![Names::of(host).pmu(pmu, terms)?]),
        EventKind::Alias { name, terms } => return Names::of(host).alias(name, terms),
        EventKind::Auto => return Ok(Vec::new()),
        EventKind::Hardware(event) => Generic {
            kind: sys::PERF_TYPE_HARDWARE,
            config: event.config(),
            steady: is_steady(*event),
        },
        EventKind::Cache(event) => Generic {
            kind: sys::PERF_TYPE_HW_CACHE,
            config: event.config(),
            steady: false,
        },
        EventKind::Raw(code) => Generic {
            kind: sys::PERF_TYPE_RAW,
            config: *code,
            steady: is_steady_code(host.cpu.vendor, *code),
        },
    };
    let pmus: Vec<&Pmu> = host.core_pmus().collect();
    let mut drafts: Vec<Draft> = match pmus[..] {
        [] | [_] => vec![kind.draft()],
        _ => pmus.iter().map(|pmu| kind.on(pmu)).collect(),
    };
    if kind.kind == sys::PERF_TYPE_RAW {
        let names = Names::of(host);
        for (draft, pmu) in drafts.iter_mut().zip(pmus) {
            draft.listed = names.by_code(pmu, Config::of(&draft.attr));
        }
    }
    Ok(drafts)
}

/// A generic event of the kernel, named without a PMU.
#[derive(Clone, Copy)]
pub(super) struct Generic {
    kind: u32,
    config: u64,
    steady: bool,
}

impl Generic {
    /// A generic name of perf's, or `rHEX`, within `PMU/.../`.
    fn named(name: &str, vendor: Vendor) -> Option<Self> {
        let hardware = |event: HardwareEvent| Self {
            kind: sys::PERF_TYPE_HARDWARE,
            config: event.config(),
            steady: is_steady(event),
        };
        let cache = |event: CacheEvent| Self {
            kind: sys::PERF_TYPE_HW_CACHE,
            config: event.config(),
            steady: false,
        };
        let raw = |code| Self {
            kind: sys::PERF_TYPE_RAW,
            config: code,
            steady: is_steady_code(vendor, code),
        };
        HardwareEvent::from_name(name)
            .map(hardware)
            .or_else(|| CacheEvent::from_name(name).map(cache))
            .or_else(|| raw_code(name).map(raw))
    }

    fn draft(self) -> Draft {
        let class = EventClass::Hardware {
            unit: HardwareUnit::Core,
            steady: self.steady,
        };
        let mut draft = Draft::new(self.kind, self.config, class);
        draft.needs_core_pmu = true;
        draft
    }

    /// The event on one kind of cores: the PMU's type is in the upper half of `config`, or is the type of a raw
    /// code.
    ///
    /// Source: include/uapi/linux/perf_event.h (`PERF_PMU_TYPE_SHIFT`), since Linux 5.13.
    fn on(self, pmu: &Pmu) -> Draft {
        let mut draft = self.draft().on(pmu);
        if self.kind == sys::PERF_TYPE_RAW {
            draft.attr.type_ = pmu.kind;
        } else {
            draft.attr.config |= u64::from(pmu.kind) << PMU_TYPE_SHIFT;
        }
        draft
    }
}

#[doc(alias = "PERF_PMU_TYPE_SHIFT")]
const PMU_TYPE_SHIFT: u32 = 32;

fn software(event: SoftwareEvent) -> Draft {
    let class = if event.is_clock() {
        EventClass::Clock
    } else {
        EventClass::Software
    };
    let mut draft = Draft::new(sys::PERF_TYPE_SOFTWARE, event.config(), class);
    draft.kernel_only = event.is_kernel_only();
    draft
}

fn breakpoint_draft(breakpoint: &Breakpoint) -> Result<Draft, EventError> {
    let access = breakpoint.access;
    if access.read && !access.write {
        return Err(EventError::ReadOnlyBreakpoint {
            event: breakpoint.to_string(),
        });
    }
    let (address, symbol) = match &breakpoint.place {
        Place::Address(address) => (*address, None),
        Place::Symbol(symbol) => (0, Some(symbol.clone())),
    };
    // Execute: the kernel requires the size of a long. Data: perf's default is 4 bytes.
    let default = if access.execute { 8 } else { 4 };
    let len = breakpoint.len.unwrap_or(default).into();
    if !access.execute && !u64::is_multiple_of(address, len) {
        return Err(EventError::UnalignedBreakpoint {
            event: breakpoint.to_string(),
            len,
        });
    }
    let mut draft = Draft::new(
        sys::PERF_TYPE_BREAKPOINT,
        0,
        EventClass::Breakpoint {
            symbol,
            access,
            has_len: breakpoint.len.is_some(),
        },
    );
    draft.attr.bp_type = [
        (access.read, sys::HW_BREAKPOINT_R),
        (access.write, sys::HW_BREAKPOINT_W),
        (access.execute, sys::HW_BREAKPOINT_X),
    ]
    .iter()
    .filter_map(|&(set, bit)| set.then_some(bit))
    .sum();
    draft.attr.bp_addr = address;
    draft.attr.bp_len = len;
    Ok(draft)
}

pub(super) fn pmu_class(host: &Host, pmu: &Pmu, config: u64) -> EventClass {
    let hardware = |unit, steady| EventClass::Hardware { unit, steady };
    match (pmu.name.as_str(), config) {
        ("software", 0 | 1) => EventClass::Clock,
        ("software" | "tracepoint" | "breakpoint" | "kprobe" | "uprobe", _) => EventClass::Software,
        (name, _) if is_core_pmu(name) => {
            hardware(HardwareUnit::Core, is_steady_code(host.cpu.vendor, config))
        }
        ("ibs_op" | "ibs_fetch", _) => hardware(HardwareUnit::Ibs, true),
        _ => hardware(HardwareUnit::Other, false),
    }
}

const fn is_steady(event: HardwareEvent) -> bool {
    matches!(
        event,
        HardwareEvent::Cycles | HardwareEvent::Instructions | HardwareEvent::RefCycles
    )
}

/// Whether a core's code counts cycles, instructions or uops.
///
/// Intel: 0x3c cycles, 0xc0 instructions, 0xc2 uops retired, 0x0e uops issued, 0x00 the fixed
/// counters. AMD: 0x76 cycles, 0xc0 instructions, 0xc1 ops retired.
/// Source: the vendors' event lists; the umask is not looked at.
const fn is_steady_code(vendor: Vendor, config: u64) -> bool {
    match vendor {
        Vendor::Intel => matches!(config & 0xff, 0x00 | 0x0e | 0x3c | 0xc0 | 0xc2),
        Vendor::Amd => matches!(config & 0xf_0000_00ff, 0x76 | 0xc0 | 0xc1),
        Vendor::Other => false,
    }
}

/// Whether the kernel forwards an event of AMD's core with a precise level to IBS.
/// Source: arch/x86/events/amd/ibs.c (`core_pmu_ibs_config`).
pub(super) fn forwards_to_ibs(host: &Host, attr: &perf_event_attr) -> bool {
    let forwarded = match attr.type_ {
        sys::PERF_TYPE_HARDWARE => attr.config == HardwareEvent::Cycles.config(),
        sys::PERF_TYPE_RAW => matches!(attr.config, 0x76 | 0xc1),
        _ => false,
    };
    forwarded && host.cpu.vendor == Vendor::Amd && host.pmu("ibs_op").is_some()
}
