//! Resolves an event on a machine to the kernel's settings. Pure.

use std::fmt;
use std::num::NonZeroU64;

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};

use crate::failure::Warning;
use crate::pmu::event::{Access, EventKind, EventSpec, Modifiers, Precise, SoftwareEvent};
use crate::pmu::host::Host;
use crate::pmu::sysfs::Config;
use crate::pmu::target::Target;
use crate::units::{CountUnit, Cpu, Ip, ResetValue};

pub(crate) mod access;
pub(crate) mod auto;
pub(crate) mod bulk;
mod draft;
mod error;
mod ibs_terms;
mod internal_events;
pub(crate) mod large_pebs;
mod lbr;

use draft::{Draft, forwards_to_ibs};
pub(crate) use error::EventError;
pub(crate) use internal_events::{Faults, calibrator, dummy, page_faults};

/// `read_format` of every event: value, time enabled, time running.
#[doc(alias = "PERF_FORMAT_TOTAL_TIME_ENABLED")]
#[doc(alias = "PERF_FORMAT_TOTAL_TIME_RUNNING")]
pub(crate) const READ_FORMAT: u64 =
    (sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// An event that can be opened on any CPU or thread, with the meaning of its samples.
#[derive(Clone)]
pub struct ResolvedEvent {
    /// Name for messages and for the trace.
    pub name: String,
    /// Settings for one interrupt per sample; see [`ResolvedEvent::attr_for`].
    pub attr: perf_event_attr,
    /// Source of the samples.
    pub class: EventClass,
    /// Reset value granted so far: IBS rounds it, a `period=` term replaces it.
    pub reset: ResetValue,
    /// Unit of the reset value; see [`Self::reset_unit`].
    pub unit: CountUnit,
    /// Whether samples may be taken in NMI context: their ring must not be shared with marks.
    pub nmi: bool,
    /// Whether samples carry the kernel's time for them, which is on the perf clock; otherwise the
    /// program reads `CLOCK_MONOTONIC`.
    pub perf_clock: bool,
    /// Requested `precise_ip`, 0..=3; for `P` the machine's maximum.
    pub precise_requested: u8,
    /// CPUs on which it can be opened; `None`: all.
    pub cpus: Option<Vec<Cpu>>,
    /// Modes that the sample program drops because the kernel can't exclude them for this event.
    pub drop_in_program: DropModes,
    /// `PERF_SAMPLE_*` bits that describe the memory access; 0 if samples have none.
    pub access: u64,
    /// Counters of the core that can count it, as in [`table`](crate::pmu::table); `None`: any.
    pub counters: Option<u32>,
    /// On a hybrid CPU, the same event on the other kinds of cores: opened with it and sampled as one event.
    pub twins: Vec<Twin>,
    /// Remarks that belong on the first lines of a run.
    pub notes: Vec<String>,
    /// Warnings with hints.
    pub warnings: Vec<Warning>,
}

/// An event on another kind of cores of a hybrid CPU. Everything else is as in the event's own attr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The PMU of these cores.
    pub pmu: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// Encoding of the event there.
    pub config: Config,
    /// `precise_ip`: requested; after opening, granted.
    pub precise: u8,
    /// CPUs of that kind.
    pub cpus: Vec<Cpu>,
    /// Counters there that can count it; `None`: any.
    pub counters: Option<u32>,
}

/// Source of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventClass {
    /// A timer of the kernel: `cpu-clock`, `task-clock`.
    Clock,
    /// Other software events of the kernel.
    Software,
    /// A hardware breakpoint.
    Breakpoint {
        /// Symbol whose address is looked up and put into `attr.bp_addr`; `None` if an address was given.
        symbol: Option<String>,
        /// Accesses that stop.
        access: Access,
        /// Whether its length was given, so that the symbol's does not count.
        has_len: bool,
    },
    /// A counter of the CPU.
    Hardware {
        unit: HardwareUnit,
        /// Whether it occurs all the time while code runs (cycles, instructions, uops), so that the sample rate
        /// follows from the reset value.
        steady: bool,
    },
}

/// Hardware that samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HardwareUnit {
    /// The core's counters, on Intel with PEBS.
    Core,
    /// AMD's instruction based sampling, also when `cycles:p` forwards to it.
    Ibs,
    /// Other PMUs.
    Other,
}

/// CPU modes whose samples are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropModes {
    /// Samples in user mode.
    pub user: bool,
    /// Samples in kernel mode.
    pub kernel: bool,
}

impl ResolvedEvent {
    /// Unit of the reset value: `ns` for clocks, else `events`.
    #[must_use]
    pub fn reset_unit(&self) -> &'static str {
        match self.class {
            EventClass::Clock => CountUnit::Ns.name(),
            _ => self.unit.name(),
        }
    }

    /// Settings for one target: for a CPU those of its kind of cores, for a thread those of the first kind.
    ///
    /// Threads: children are followed (`inherit`). CPUs: clocks exclude the idle task.
    #[must_use]
    pub fn attr_for(&self, target: Target) -> perf_event_attr {
        let twin = match target {
            Target::Cpu(cpu) | Target::ThreadOnCpu(_, cpu) => {
                self.twins.iter().find(|twin| twin.cpus.contains(&cpu))
            }
            Target::Thread(_) => None,
        };
        self.shared_for(target, twin)
    }

    /// Settings of every counter that a target needs. Threads move between the kinds of cores of a hybrid CPU, and
    /// the kernel counts each event only on its own kind.
    #[must_use]
    pub fn attrs_for(&self, target: Target) -> Vec<perf_event_attr> {
        let mut attrs = vec![self.attr_for(target)];
        if matches!(target, Target::Thread(_)) {
            let others = self.twins.iter();
            attrs.extend(others.map(|twin| self.shared_for(target, Some(twin))));
        }
        attrs
    }

    fn shared_for(&self, target: Target, twin: Option<&Twin>) -> perf_event_attr {
        let mut attr = self.attr;
        if let Some(twin) = twin {
            attr.type_ = twin.kind;
            twin.config.apply(&mut attr);
            attr.set_precise_ip(twin.precise.into());
        }
        match target {
            Target::Cpu(_) => attr.set_exclude_idle((self.class == EventClass::Clock).into()),
            Target::Thread(_) | Target::ThreadOnCpu(..) => attr.set_inherit(1),
        }
        attr
    }

    /// Whether it can be opened on this CPU.
    #[must_use]
    pub fn counts_on(&self, cpu: Cpu) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
            || self.twins.iter().any(|twin| twin.cpus.contains(&cpu))
    }

    fn set_twins(&mut self, twins: Vec<Twin>) {
        if !twins.is_empty() {
            let names: Vec<&str> = twins.iter().map(|twin| twin.pmu.as_str()).collect();
            self.notes.push(format!(
                "{} is opened on each kind of cores, on cpu_core and {}",
                self.name,
                names.join(" and ")
            ));
        }
        self.twins = twins;
    }

    /// Makes samples store a register as of the sampled instruction: in bulk all, as no program reads it, and those of
    /// PEBS, where it would have the value at the interrupt, some instructions later; elsewhere both are the same.
    pub fn keep_register(&mut self, number: u32) {
        self.attr.sample_regs_intr = 1 << number;
        let core = matches!(
            self.class,
            EventClass::Hardware {
                unit: HardwareUnit::Core,
                ..
            }
        );
        if core && self.attr.precise_ip() > 0 {
            self.attr.sample_type |= u64::from(sys::PERF_SAMPLE_REGS_INTR);
        }
    }

    /// Sets another reset value.
    pub fn set_reset(&mut self, reset: ResetValue) {
        self.reset = reset;
        self.attr.sample_period = reset.0.get();
    }

    /// Whether it is the kernel's count of page faults.
    #[must_use]
    pub fn is_page_faults(&self) -> bool {
        (self.attr.type_, self.attr.config)
            == (
                sys::PERF_TYPE_SOFTWARE,
                u64::from(sys::PERF_COUNT_SW_PAGE_FAULTS),
            )
    }

    /// Excludes kernel mode: in the kernel if it can, else in the sample program.
    ///
    /// # Errors
    /// The event occurs only in the kernel, or was requested only there.
    pub fn exclude_kernel(&mut self) -> Result<(), EventError> {
        let software = (self.attr.type_ == sys::PERF_TYPE_SOFTWARE)
            .then(|| SoftwareEvent::from_config(self.attr.config))
            .flatten();
        let only = software.is_some_and(SoftwareEvent::is_kernel_only)
            || self.attr.exclude_user() == 1
            || self.drop_in_program.user;
        if only {
            return Err(EventError::KernelOnly {
                event: self.name.clone(),
            });
        }
        if self.class == EventClass::Clock && self.attr.exclude_kernel() == 0 {
            self.notes.push(no_kernel_time(&self.name));
        }
        if self.filters_modes() {
            self.attr.set_exclude_kernel(1);
        } else {
            self.drop_in_program.kernel = true;
        }
        Ok(())
    }

    /// Allows a program to walk the call stack of a sample: for a precise event the kernel requires the flag when
    /// it is opened. A record has room for either the stack or the memory access, not both.
    /// Source: kernel/events/core.c (`__perf_event_set_bpf_handler`: `EPROTO`).
    pub fn with_call_stacks(&mut self) {
        self.attr.sample_type &= !self.access;
        self.access = 0;
        if self.attr.precise_ip() > 0 {
            self.attr.sample_type |= u64::from(sys::PERF_SAMPLE_CALLCHAIN);
        }
    }

    /// Whether the kernel filters modes for this event.
    fn filters_modes(&self) -> bool {
        let ibs = matches!(
            self.class,
            EventClass::Hardware {
                unit: HardwareUnit::Ibs,
                ..
            }
        );
        !ibs || self.attr.config2 & SWFILT != 0
    }
}

impl fmt::Debug for ResolvedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedEvent")
            .field("name", &self.name)
            .field("type", &self.attr.type_)
            .field("config", &format_args!("{:#x}", self.attr.config))
            .field("precise_ip", &self.attr.precise_ip())
            .field("class", &self.class)
            .field("reset", &self.reset)
            .field("twins", &self.twins)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

/// Checks that a typed number is a reset value at all.
///
/// # Errors
/// 0, or beyond the kernel's signed 64 bits.
pub(crate) fn reset_value(typed: u64) -> Result<ResetValue, EventError> {
    if typed > i64::MAX.cast_unsigned() {
        return Err(EventError::ResetTooLarge { reset: typed });
    }
    NonZeroU64::new(typed)
        .map(ResetValue)
        .ok_or(EventError::ResetZero)
}

/// Resolves an EVENT into settings for this machine.
///
/// `auto` becomes the first of [`auto::candidates`]; `open::open_auto` tries the next ones if the machine refuses
/// it.
///
/// # Errors
/// The machine has no such event, or can't open it as requested.
pub(crate) fn resolve(
    spec: &EventSpec,
    host: &Host,
    reset: ResetValue,
) -> Result<ResolvedEvent, EventError> {
    if spec.kind == EventKind::Auto {
        return resolve_auto(spec, host, reset);
    }
    let drafts = draft::drafts(spec, host)?;
    let mut drafts = drafts.into_iter();
    let Some(main) = drafts.next().filter(|draft| !draft.lacks_pmu(host)) else {
        return Err(EventError::NoPmu {
            event: spec.to_string(),
            reason: host.no_pmu_reason().unwrap_or_default(),
        });
    };
    let twins = drafts
        .map(|draft| twin(&draft, spec, host))
        .collect::<Result<Vec<_>, _>>()?;
    let mut event = finish(main, spec, host, reset)?;
    event.set_twins(twins);
    Ok(event)
}

/// The same event on the next kind of cores.
fn twin(draft: &Draft, spec: &EventSpec, host: &Host) -> Result<Twin, EventError> {
    let precise = precise_level(draft, spec.modifiers, host);
    Ok(Twin {
        pmu: draft.pmu.clone().unwrap_or_default(),
        kind: draft.attr.type_,
        config: Config::of(&draft.attr),
        precise: precise.ok_or_else(|| EventError::NoPreciseLevel {
            event: spec.to_string(),
        })?,
        cpus: draft.cpus.clone().unwrap_or_default(),
        counters: draft.listed.as_ref().map(|listed| listed.counters),
    })
}

fn resolve_auto(
    spec: &EventSpec,
    host: &Host,
    reset: ResetValue,
) -> Result<ResolvedEvent, EventError> {
    let Some(best) = auto::candidates(host).into_iter().next() else {
        return Err(EventError::NoPmu {
            event: spec.to_string(),
            reason: "no candidate".into(),
        });
    };
    best.resolve(spec.modifiers, host, reset)
}

/// Modifiers, reset value, and the settings that all events share.
fn finish(
    mut draft: Draft,
    spec: &EventSpec,
    host: &Host,
    reset: ResetValue,
) -> Result<ResolvedEvent, EventError> {
    let event = || spec.to_string();
    let precise = precise_level(&draft, spec.modifiers, host)
        .ok_or_else(|| EventError::NoPreciseLevel { event: event() })?;
    let warnings = draft.warnings(precise);
    let access = access::of_draft(&draft, precise);
    if spec.modifiers.exclude_user() && spec.modifiers.exclude_kernel() {
        return Err(EventError::NoMode { event: event() });
    }
    if draft.kernel_only && spec.modifiers.exclude_kernel() {
        return Err(EventError::KernelOnly { event: event() });
    }
    if precise > 0 && forwards_to_ibs(host, &draft.attr) {
        draft.class = EventClass::Hardware {
            unit: HardwareUnit::Ibs,
            steady: true,
        };
        draft.swfilt = host
            .pmu("ibs_op")
            .is_some_and(|ibs| ibs.formats.contains_key("swfilt"));
    }
    let mut notes = Vec::new();
    let own = draft.period.or(spec.modifiers.period);
    let typed = own.map_or(Ok(reset), reset_value)?;
    let reset = match draft.class {
        EventClass::Hardware {
            unit: HardwareUnit::Ibs,
            ..
        } => ibs_reset(typed, &mut notes),
        _ => typed,
    };
    shared_settings(&mut draft.attr, &draft.class, reset);
    draft.attr.set_precise_ip(precise.into());
    draft.attr.set_pinned(spec.modifiers.pinned.into());
    let drop_in_program = modes(&mut draft, spec.modifiers, &mut notes);
    let hardware = matches!(draft.class, EventClass::Hardware { .. });
    let unit = unit(&draft, &event(), &mut notes);
    let perf_clock = hardware && host.programs_see_sample_time();
    if hardware && !perf_clock {
        notes.push(NO_SAMPLE_TIME.to_owned());
    }
    let mut event = ResolvedEvent {
        // Its reset value is known beside its name.
        name: draft
            .name
            .unwrap_or_else(|| spec.without_period().to_string()),
        attr: draft.attr,
        unit,
        nmi: hardware || watches_kernel(&draft.class, &draft.attr),
        class: draft.class,
        reset,
        perf_clock,
        precise_requested: precise,
        cpus: draft.cpus,
        drop_in_program,
        counters: draft.listed.map(|listed| listed.counters),
        access: 0,
        twins: Vec::new(),
        notes,
        warnings,
    };
    event.set_access(access);
    // Lost records of a ring beside the program are reported with their time.
    event.attr.set_sample_id_all(event.leaves_rest().into());
    let mut cores = host.core_pmus();
    if access::loads_leader(&event.attr).is_some()
        && cores.any(|pmu| pmu.events.contains_key("mem-loads-aux"))
    {
        event.notes.push(format!(
            "{} is counted beside mem-loads-aux, as this CPU asks for: that takes a counter more",
            event.name
        ));
    }
    Ok(event)
}

/// Unit of the event: `ns` for a clock that runs in both modes. A clock that excludes user or kernel mode does not
/// measure all time on the CPU.
fn unit(draft: &Draft, event: &str, notes: &mut Vec<String>) -> CountUnit {
    let (no_user, no_kernel) = (draft.attr.exclude_user(), draft.attr.exclude_kernel());
    if draft.class != EventClass::Clock {
        return CountUnit::Events;
    }
    if no_user != 0 {
        notes.push(format!(
            "{event} sees no time in user space: what functions take is in events (ns of this \
             clock, samples x reset value), not in parts of the time on the CPU"
        ));
        return CountUnit::Events;
    }
    if no_kernel != 0 {
        notes.push(no_kernel_time(event));
    }
    CountUnit::Ns
}

fn no_kernel_time(event: &str) -> String {
    format!(
        "{event} sees no time in the kernel: it counts for the functions of user space sampled \
         before and after"
    )
}

/// Note for events whose samples have no time of their own.
pub(crate) const NO_SAMPLE_TIME: &str =
    "before Linux 6.3 the program does not see a sample's own time: samples are timed when it runs";

/// The requested precise level; `None` if the event can't have it.
fn precise_level(draft: &Draft, modifiers: Modifiers, host: &Host) -> Option<u8> {
    let ceiling = match draft.class {
        EventClass::Hardware {
            unit: HardwareUnit::Core,
            ..
        } if draft.max_precise.is_none() => host.max_precise(),
        EventClass::Hardware {
            unit: HardwareUnit::Core,
            ..
        } => draft.max_precise?,
        EventClass::Hardware {
            unit: HardwareUnit::Ibs,
            ..
        } => 2,
        _ => 0,
    };
    let hardware = matches!(draft.class, EventClass::Hardware { .. });
    match modifiers.precise {
        Precise::Max if hardware => Some(ceiling),
        Precise::Level(level) if hardware || level == 0 => Some(level),
        _ => None,
    }
}

/// Rounds up to the steps of 16 in which IBS counts; other values are `EINVAL`.
/// Source: arch/x86/events/amd/ibs.c (`perf_ibs_init`).
fn ibs_reset(reset: ResetValue, notes: &mut Vec<String>) -> ResetValue {
    const STEP: u64 = 16;
    let value = reset.0.get();
    let rounded = value
        .checked_next_multiple_of(STEP)
        .unwrap_or(value / STEP * STEP);
    if rounded != value {
        notes.push(format!(
            "IBS counts in steps of 16: reset value {value} became {rounded}"
        ));
    }
    NonZeroU64::new(rounded).map_or(reset, ResetValue)
}

/// Settings of every event of the `bpf` transport: one interrupt per sample, fixed period.
///
/// `wakeup_events = 1` without a watermark turns multi-record PEBS off. The clock is set only for software events:
/// on PEBS and IBS it would replace the record's own time.
/// Source: arch/x86/events/intel/core.c (`intel_pmu_large_pebs_flags`).
#[doc(alias = "PERF_SAMPLE_TIME")]
fn shared_settings(attr: &mut perf_event_attr, class: &EventClass, reset: ResetValue) {
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.sample_period = reset.0.get();
    // No PERF_SAMPLE_PERIOD: the period is fixed, and with that bit the kernel takes a sample at
    // every software event and breakpoint, whatever the period.
    // Source: kernel/events/core.c (`perf_swevent_event`).
    attr.sample_type =
        u64::from(sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME);
    attr.read_format = READ_FORMAT;
    attr.set_disabled(1);
    attr.wakeup_events = 1;
    attr.set_watermark(0);
    match class {
        EventClass::Hardware {
            unit: HardwareUnit::Core,
            ..
        } => {
            attr.set_exclude_hv(1);
            attr.set_exclude_guest(1);
        }
        EventClass::Hardware { .. } => {}
        EventClass::Clock => monotonic(attr),
        EventClass::Software | EventClass::Breakpoint { .. } => {
            monotonic(attr);
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_ADDR);
        }
    }
}

#[doc(alias = "use_clockid")]
fn monotonic(attr: &mut perf_event_attr) {
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
}

/// `config2` bit of IBS that has the kernel filter modes, since Linux 6.14.
const SWFILT: u64 = 1;

/// Sets the exclude bits, or returns the modes that the program has to drop.
///
/// IBS refuses every exclude bit without `swfilt`, and `exclude_guest` and `exclude_idle` always.
/// Source: arch/x86/events/amd/ibs.c (`perf_ibs_init`).
fn modes(draft: &mut Draft, modifiers: Modifiers, notes: &mut Vec<String>) -> DropModes {
    let unwanted = DropModes {
        user: modifiers.exclude_user(),
        kernel: modifiers.exclude_kernel(),
    };
    let ibs = matches!(
        draft.class,
        EventClass::Hardware {
            unit: HardwareUnit::Ibs,
            ..
        }
    );
    if ibs && draft.swfilt {
        draft.attr.config2 |= SWFILT;
    }
    if ibs && !draft.swfilt {
        if unwanted != DropModes::default() {
            notes
                .push("IBS filters modes in the sample program: needs Linux 6.14 otherwise".into());
        }
        return unwanted;
    }
    draft.attr.set_exclude_user(unwanted.user.into());
    draft.attr.set_exclude_kernel(unwanted.kernel.into());
    DropModes::default()
}

/// Whether a breakpoint can be hit in kernel mode, where its handler runs like an NMI: the kernel writes to user
/// memory, but never executes it.
/// Source: arch/x86/kernel/traps.c (`exc_debug_kernel`).
fn watches_kernel(class: &EventClass, attr: &perf_event_attr) -> bool {
    let EventClass::Breakpoint { access, .. } = class else {
        return false;
    };
    let kernel_address = Ip(attr.bp_addr).is_kernel();
    attr.exclude_kernel() == 0 && (kernel_address || !access.execute)
}

#[cfg(test)]
mod encodings;
#[cfg(test)]
mod tests;
