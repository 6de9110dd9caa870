//! Events that are counted for each visit, not sampled: from `--count` to the counters of each CPU.
//!
//! ```text
//! COUNT = ITEM[,ITEM..]        ITEM = auto | EVENT | {EVENT[,EVENT..]} | {EVENT[,EVENT..]}:MODS
//! ```
//!
//! A counter belongs to a CPU and counts whatever runs there; eBPF programs read it when a traced thread is
//! switched in, makes a mark and is switched out, so that the differences belong to the thread. Events that the
//! kernel counts only after the program at a switch has run would be attributed to the next thread: switches are
//! counted from their records, and cgroup changes not at all. Clocks are replaced by the time on the CPU from marks
//! and switches.
//! Source: `__schedule`, kernel/sched/core.c; `perf_event_read_local`, kernel/events/core.c.

use perf_event_open_sys::bindings::perf_event_attr;

use crate::failure::Hint;
use crate::pmu::attr::{EventClass, EventError, HardwareUnit, ResolvedEvent, resolve};
use crate::pmu::counters::TooManyEvents;
use crate::pmu::event::{
    EventKind, EventSpec, HardwareEvent, Modifiers, ParseError, Precise, SoftwareEvent,
};
use crate::pmu::host::Host;
use crate::pmu::target::Target;
use crate::units::{CountUnit, Cpu, ResetValue};
use pebs_common::config::MAX_COUNTS;

mod beside;
pub(crate) use beside::serve_samples_first;

/// An event that is counted.
#[derive(Clone, Debug)]
pub(crate) struct CountedEvent {
    /// Source of its counts.
    pub source: CountSource,
    /// Name for messages and for the trace.
    pub name: String,
    /// Group number; the events of a group are counted at the same time or not at all.
    pub group: usize,
    /// `ns` of a clock, else `events`.
    pub unit: CountUnit,
}

/// Source of counts.
#[derive(Clone, Debug)]
pub(crate) enum CountSource {
    /// A counter on each CPU.
    Counter(Box<ResolvedEvent>),
    /// Records of switches.
    Switches,
    /// Times of marks and switches: the kernel's clock events use another clock, which in virtual machines jumps by
    /// ms.
    Times,
}

impl CountedEvent {
    /// The event of its counters, if it has some.
    #[must_use]
    pub(crate) fn counter(&self) -> Option<&ResolvedEvent> {
        match &self.source {
            CountSource::Counter(event) => Some(event),
            CountSource::Switches | CountSource::Times => None,
        }
    }

    /// The same, mutable.
    pub(crate) fn counter_mut(&mut self) -> Option<&mut ResolvedEvent> {
        match &mut self.source {
            CountSource::Counter(event) => Some(event),
            CountSource::Switches | CountSource::Times => None,
        }
    }

    /// Whether it was asked to take no turns, with its group.
    pub(super) fn is_pinned(&self) -> bool {
        self.counter().is_some_and(|event| event.attr.pinned() == 1)
    }

    /// Settings of its counter on a CPU; `None` if it has none there.
    #[must_use]
    pub(crate) fn attr(&self, cpu: Cpu) -> Option<perf_event_attr> {
        let event = self.counter().filter(|event| event.counts_on(cpu))?;
        let mut attr = event.attr_for(Target::Cpu(cpu));
        attr.sample_type = 0;
        attr.__bindgen_anon_1.sample_period = 0;
        attr.__bindgen_anon_2.wakeup_events = 0;
        attr.set_sample_id_all(0);
        attr.set_use_clockid(0);
        attr.clockid = 0;
        attr.set_exclude_idle(0);
        Some(attr)
    }
}

/// An event that can't be counted for visits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CountError {
    /// No event.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// An unclosed or nested brace.
    #[error("malformed group '{0}'")]
    Group(String),
    /// An empty entry between commas.
    #[error("an event is missing in '{0}'")]
    Missing(String),
    /// Not available on this machine.
    #[error("cannot count for each item: {0}")]
    Event(#[source] EventError),
    /// More events than programs can read.
    #[error("{0} events are too many to be counted for each item")]
    TooMany(usize),
    /// A group that needs more counters than exist.
    #[error("cannot count {events} beside what takes samples or is pinned")]
    NoTurn {
        /// Its events.
        events: String,
        /// Number of events that do fit.
        #[source]
        source: TooManyEvents,
    },
    /// Recording of switches or marks is off, and counts need it.
    #[error("cannot count for each item without {0}")]
    Needs(&'static str),
    /// An event given twice.
    #[error("'{0}' is to be counted twice")]
    Twice(String),
    /// An event that does not occur within items, or can't be attributed to a thread.
    #[error("cannot count '{event}' for each item: {why}")]
    NotOfItems {
        /// As typed.
        event: String,
        /// Why not.
        why: &'static str,
        /// The hint.
        hint: &'static str,
    },
}

impl Hint for CountError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Parse(error) => return error.hint(),
            Self::Group(_) => "a group is {EVENT,EVENT}, of events that are counted together: \
                 --count '{cycles,instructions},page-faults'"
                .to_owned(),
            Self::Missing(_) => "for example --count page-faults,context-switches".to_owned(),
            Self::Event(EventError::NoPmu { .. }) => {
                "--count auto takes what there is; software events (page-faults, cpu-migrations, task-clock) and \
                 breakpoints (mem:FUNC:x) need no PMU"
                    .to_owned()
            }
            Self::Event(error) => return error.hint(),
            Self::TooMany(_) => format!(
                "give at most {MAX_COUNTS}, and the others in another run: 'pebs-trace mine' takes several traces"
            ),
            Self::Twice(_) => "give it once".to_owned(),
            Self::NoTurn { .. } => {
                "count fewer together: events without braces take turns; cpu-clock takes samples without a counter".to_owned()
            }
            Self::Needs("marks") => "items whose id is read at samples have no marks: use --uprobe".to_owned(),
            Self::Needs(_) => "leave out --no-switches".to_owned(),
            Self::NotOfItems { hint, .. } => (*hint).to_owned(),
        })
    }
}

/// Number of events with a counter.
#[must_use]
pub(crate) fn counters(counted: &[CountedEvent]) -> u32 {
    counted.iter().filter_map(CountedEvent::counter).count() as u32
}

/// Bit n: the n-th event with a counter never shares it, as the kernel schedules them.
#[must_use]
pub(crate) fn always(counted: &[CountedEvent]) -> u32 {
    let counters = counted.iter().filter_map(CountedEvent::counter);
    let is_hardware = |event: &ResolvedEvent| matches!(event.class, EventClass::Hardware { .. });
    let bits = counters.enumerate();
    bits.map(|(n, event)| u32::from(!is_hardware(event)) << n)
        .sum()
}

/// Parses groups of events; a single event is a group of its own.
pub(crate) fn parse(typed: &[String]) -> Result<Vec<Vec<EventSpec>>, CountError> {
    let mut groups = Vec::new();
    for text in typed {
        for item in split(text)? {
            groups.push(group(item)?);
        }
    }
    Ok(groups)
}

/// The parts of a list, at commas that are not within braces, a PMU's slashes or a name's terms.
fn split(text: &str) -> Result<Vec<&str>, CountError> {
    let missing = || CountError::Missing(text.to_owned());
    let mut items = Vec::new();
    let mut rest = text;
    loop {
        let length = item_length(rest).ok_or_else(|| CountError::Group(rest.to_owned()))?;
        let (item, behind) = rest.split_at(length);
        if item.is_empty() {
            return Err(missing());
        }
        items.push(item);
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok(items),
        }
    }
}

/// Length of the first entry of a list, bytes; `None` if its brace is not closed.
fn item_length(text: &str) -> Option<usize> {
    let comma = |from: usize| text[from..].find(',').map_or(text.len(), |at| from + at);
    if text.starts_with('{') {
        return text.find('}').map(comma);
    }
    let first = comma(0);
    let slash = text[..first].find('/');
    if let Some(open) = slash.filter(|_| !text.starts_with("mem:")) {
        // An unclosed slash is reported by the event parser.
        let close = text[open + 1..].find('/').map(|at| open + 1 + at);
        return Some(close.map_or(text.len(), comma));
    }
    let mut end = first;
    // `mem-loads,ldlat=30`: no event's name has a `=`.
    while text.get(end + 1..).is_some_and(|next| {
        let next = &next[..next.find(',').unwrap_or(next.len())];
        next.contains('=') && !next.contains('/')
    }) {
        end = comma(end + 1);
    }
    Some(end)
}

fn group(item: &str) -> Result<Vec<EventSpec>, CountError> {
    let Some(inside) = item.strip_prefix('{') else {
        return Ok(vec![item.parse()?]);
    };
    let malformed = || CountError::Group(item.to_owned());
    let (events, letters) = inside.rsplit_once('}').ok_or_else(malformed)?;
    if events.contains(['{', '}']) || !(letters.is_empty() || letters.starts_with(':')) {
        return Err(malformed());
    }
    // Modifiers after a group apply to each event in it.
    let of_all = match letters {
        "" => Modifiers::default(),
        letters => format!("cycles{letters}").parse::<EventSpec>()?.modifiers,
    };
    let events = split(events)?.into_iter().map(|event| {
        let mut spec: EventSpec = event.parse()?;
        if spec.kind == EventKind::Auto {
            return Err(malformed());
        }
        spec.modifiers = spec.modifiers.with(of_all);
        Ok(spec)
    });
    let mut events = events.collect::<Result<Vec<_>, _>>()?;
    // A group has its counters by its first event: only that can be pinned.
    let pinned = events.iter().any(|spec| spec.modifiers.pinned);
    for (at, spec) in events.iter_mut().enumerate() {
        spec.modifiers.pinned = pinned && at == 0;
    }
    Ok(events)
}

/// Resolves the requested events on this machine. `auto` is every available event of a fixed list: the CPU's, and
/// the kernel's.
///
/// # Errors
/// The first event that can't be counted, or too many events.
pub(crate) fn resolve_all(
    groups: &[Vec<EventSpec>],
    host: &Host,
) -> Result<Vec<CountedEvent>, CountError> {
    let mut counted: Vec<CountedEvent> = Vec::new();
    let mut number = 0;
    for group in groups {
        let specs = match &group[..] {
            [
                EventSpec {
                    kind: EventKind::Auto,
                    modifiers,
                },
            ] => auto(*modifiers, host),
            _ => vec![group.clone()],
        };
        for group in specs {
            for spec in group {
                let event = resolve_one(&spec, number, host)?;
                if counted.iter().any(|other| other.name == event.name) {
                    return Err(CountError::Twice(event.name));
                }
                counted.push(event);
            }
            number += 1;
        }
    }
    if counted.len() > MAX_COUNTS {
        return Err(CountError::TooMany(counted.len()));
    }
    Ok(counted)
}

fn resolve_one(spec: &EventSpec, group: usize, host: &Host) -> Result<CountedEvent, CountError> {
    let not_of_items = |why, hint| CountError::NotOfItems {
        event: spec.to_string(),
        why,
        hint,
    };
    if spec.modifiers.precise != Precise::Level(0) {
        return Err(not_of_items("precision is a sample's", "leave out ':p'"));
    }
    // It takes no samples, so the reset value does not matter.
    let any = ResetValue(std::num::NonZeroU64::MAX);
    let event = resolve(spec, host, any).map_err(CountError::Event)?;
    let has_modes = spec.modifiers.exclude_user() || spec.modifiers.exclude_kernel();
    match (&event.class, &spec.kind) {
        (EventClass::Clock, _) if has_modes => {
            return Err(not_of_items(
                "the kernel's clocks count all time of a thread, in whatever mode",
                "leave out ':u' and ':k'",
            ));
        }
        (_, EventKind::Software(SoftwareEvent::CgroupSwitches)) => {
            return Err(not_of_items(
                "the kernel counts it once the next thread has the CPU",
                "use context-switches",
            ));
        }
        (
            EventClass::Hardware {
                unit: HardwareUnit::Ibs,
                ..
            },
            _,
        ) => {
            return Err(not_of_items(
                "IBS takes samples, and counts nothing",
                "use an event of the cores, such as cycles",
            ));
        }
        (
            EventClass::Hardware {
                unit: HardwareUnit::Other,
                ..
            },
            _,
        ) if event.cpus.is_some() => {
            return Err(not_of_items(
                "its counter is that of several CPUs together",
                "use an event of the cores, such as LLC-load-misses",
            ));
        }
        _ => {}
    }
    let software = |event| spec.kind == EventKind::Software(event);
    Ok(CountedEvent {
        name: event.name.clone(),
        group,
        unit: match event.class {
            EventClass::Clock => CountUnit::Ns,
            _ => CountUnit::Events,
        },
        source: match &event.class {
            EventClass::Clock => CountSource::Times,
            _ if software(SoftwareEvent::ContextSwitches) => CountSource::Switches,
            _ => CountSource::Counter(Box::new(event)),
        },
    })
}

/// The events of `auto`: with a PMU cycles, instructions and causes of stalls in the core; and the kernel's events.
fn auto(modifiers: Modifiers, host: &Host) -> Vec<Vec<EventSpec>> {
    let hardware: &[&[HardwareEvent]] = match host.no_pmu_reason() {
        Some(_) => &[],
        None => &[
            &[HardwareEvent::Cycles, HardwareEvent::Instructions],
            &[HardwareEvent::BranchMisses],
            &[HardwareEvent::CacheMisses],
        ],
    };
    let hardware = hardware.iter().map(|group| {
        let specs = group.iter().map(|event| EventSpec {
            kind: EventKind::Hardware(*event),
            modifiers,
        });
        specs.collect()
    });
    let software = [
        SoftwareEvent::PageFaults,
        SoftwareEvent::MajorFaults,
        SoftwareEvent::ContextSwitches,
        SoftwareEvent::CpuMigrations,
    ];
    // Events of the kernel alone have no mode.
    let software = software.map(|event| {
        let modes = if event.is_kernel_only() {
            Modifiers::default()
        } else {
            modifiers
        };
        vec![EventSpec {
            kind: EventKind::Software(event),
            modifiers: modes,
        }]
    });
    hardware.chain(software).collect()
}

#[cfg(test)]
mod tests;
