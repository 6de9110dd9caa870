//! Events, by the names of perf or by the types of perf-event2.

use std::fmt;
use std::str::FromStr;

use perf_event::Builder;
use perf_event::events::{
    Breakpoint, BreakpointAccess, Cache, CacheId, CacheOp, CacheResult, Event as Kind, Hardware,
    Raw, Software,
};

use crate::Error;

/// Generic hardware events; the first name of each is perf's own.
const HARDWARE: [(&str, Hardware); 14] = [
    ("cycles", Hardware::CPU_CYCLES),
    ("cpu-cycles", Hardware::CPU_CYCLES),
    ("instructions", Hardware::INSTRUCTIONS),
    ("cache-references", Hardware::CACHE_REFERENCES),
    ("cache-misses", Hardware::CACHE_MISSES),
    ("branches", Hardware::BRANCH_INSTRUCTIONS),
    ("branch-instructions", Hardware::BRANCH_INSTRUCTIONS),
    ("branch-misses", Hardware::BRANCH_MISSES),
    ("bus-cycles", Hardware::BUS_CYCLES),
    ("stalled-cycles-frontend", Hardware::STALLED_CYCLES_FRONTEND),
    ("idle-cycles-frontend", Hardware::STALLED_CYCLES_FRONTEND),
    ("stalled-cycles-backend", Hardware::STALLED_CYCLES_BACKEND),
    ("idle-cycles-backend", Hardware::STALLED_CYCLES_BACKEND),
    ("ref-cycles", Hardware::REF_CPU_CYCLES),
];

const SOFTWARE: [(&str, Software); 14] = [
    ("cpu-clock", Software::CPU_CLOCK),
    ("task-clock", Software::TASK_CLOCK),
    ("page-faults", Software::PAGE_FAULTS),
    ("faults", Software::PAGE_FAULTS),
    ("context-switches", Software::CONTEXT_SWITCHES),
    ("cs", Software::CONTEXT_SWITCHES),
    ("cpu-migrations", Software::CPU_MIGRATIONS),
    ("migrations", Software::CPU_MIGRATIONS),
    ("minor-faults", Software::PAGE_FAULTS_MIN),
    ("major-faults", Software::PAGE_FAULTS_MAJ),
    ("alignment-faults", Software::ALIGNMENT_FAULTS),
    ("emulation-faults", Software::EMULATION_FAULTS),
    ("cgroup-switches", Software::CGROUP_SWITCHES),
    ("dummy", Software::DUMMY),
];

const CACHES: [(&str, CacheId); 7] = [
    ("L1-dcache", CacheId::L1D),
    ("L1-icache", CacheId::L1I),
    ("LLC", CacheId::LL),
    ("dTLB", CacheId::DTLB),
    ("iTLB", CacheId::ITLB),
    ("branch", CacheId::BPU),
    ("node", CacheId::NODE),
];

const CACHE_ACCESSES: [(&str, CacheOp, CacheResult); 6] = [
    ("loads", CacheOp::READ, CacheResult::ACCESS),
    ("load-misses", CacheOp::READ, CacheResult::MISS),
    ("stores", CacheOp::WRITE, CacheResult::ACCESS),
    ("store-misses", CacheOp::WRITE, CacheResult::MISS),
    ("prefetches", CacheOp::PREFETCH, CacheResult::ACCESS),
    ("prefetch-misses", CacheOp::PREFETCH, CacheResult::MISS),
];

/// `PERF_TYPE_SOFTWARE`, `PERF_TYPE_TRACEPOINT` and `PERF_TYPE_BREAKPOINT`: never on a counter that `rdpmc` reads.
const WITHOUT_COUNTER: [u32; 3] = [1, 2, 5];

/// An event to count.
///
/// By name, as perf has it: `cycles`, `L1-dcache-load-misses`, `page-faults`, `r01c2` (raw), `mem:0xADDR[/LEN]:x`
/// (breakpoint: `r`, `w`, `rw` or `x`), each with `:u` (user space alone) or `:k` (kernel alone).
#[derive(Clone)]
pub struct Event {
    name: String,
    builder: Builder<'static>,
}

impl Event {
    /// An event of user space and kernel, given as a type of [`perf_events`](crate::perf_events).
    ///
    /// The name is for messages.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: impl Kind) -> Self {
        let mut builder = Builder::new(kind);
        builder.include_kernel();
        Self {
            name: name.into(),
            builder,
        }
    }

    /// Counts in user space alone.
    #[must_use]
    pub fn user(mut self) -> Self {
        self.builder.exclude_kernel(true).exclude_user(false);
        self.name += ":u";
        self
    }

    /// Counts in the kernel alone.
    #[must_use]
    pub fn kernel(mut self) -> Self {
        self.builder.exclude_kernel(false).exclude_user(true);
        self.name += ":k";
        self
    }

    /// Its name, with the modifier.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn builder(&self) -> Builder<'static> {
        self.builder.clone()
    }

    /// Whether the event can be on a hardware counter, so that `rdpmc` may read it.
    pub(crate) fn may_have_counter(&self) -> bool {
        !WITHOUT_COUNTER.contains(&self.builder.attrs().type_)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Event").field(&self.name).finish()
    }
}

impl FromStr for Event {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownEvent {
            name: text.to_owned(),
        };
        let (name, modifier) = split(text);
        let event = named(name).ok_or_else(unknown)?;
        match modifier {
            None => Ok(event),
            Some("u") => Ok(event.user()),
            Some("k") => Ok(event.kernel()),
            Some("uk" | "ku") => Ok(event),
            Some(_) => Err(unknown()),
        }
    }
}

/// A name and its modifier. How memory is accessed is part of a breakpoint's name.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        None | Some(("mem", _)) => (text, None),
        Some((name, last)) if name.starts_with("mem:") && access(last).is_some() => (text, None),
        Some((name, modifier)) => (name, Some(modifier)),
    }
}

/// Events by their names, with commas between.
///
/// # Errors
/// Unknown names: [`Error::UnknownEvent`].
pub fn events(names: &str) -> Result<Vec<Event>, Error> {
    names.split(',').map(|name| name.trim().parse()).collect()
}

fn named(name: &str) -> Option<Event> {
    let find = |known: &str| known == name;
    if let Some((_, kind)) = HARDWARE.iter().find(|(known, _)| find(known)) {
        return Some(Event::new(name, *kind));
    }
    if let Some((_, kind)) = SOFTWARE.iter().find(|(known, _)| find(known)) {
        return Some(Event::new(name, *kind));
    }
    if let Some(place) = name.strip_prefix("mem:") {
        return Some(Event::new(name, breakpoint(place)?));
    }
    if let Some(cache) = cache(name) {
        return Some(Event::new(name, cache));
    }
    let config = u64::from_str_radix(name.strip_prefix('r')?, 16).ok()?;
    Some(Event::new(name, Raw::new(config)))
}

fn cache(name: &str) -> Option<Cache> {
    CACHES.iter().find_map(|(cache, which)| {
        let access = name.strip_prefix(cache)?.strip_prefix('-')?;
        let (_, operation, result) = CACHE_ACCESSES.iter().find(|(known, ..)| *known == access)?;
        Some(Cache {
            which: *which,
            operation: *operation,
            result: *result,
        })
    })
}

/// Parses the kind of memory access; the inner `None` is execution.
fn access(text: &str) -> Option<Option<BreakpointAccess>> {
    match text {
        "x" => Some(None),
        "r" => Some(Some(BreakpointAccess::READ)),
        "w" => Some(Some(BreakpointAccess::WRITE)),
        "rw" | "wr" => Some(Some(BreakpointAccess::READ_WRITE)),
        _ => None,
    }
}

/// `0xADDR[/LEN][:rwx]`; without an access it is `rw`, as perf has it.
fn breakpoint(place: &str) -> Option<Breakpoint> {
    let (place, how) = place.split_once(':').unwrap_or((place, "rw"));
    let (addr, len) = match place.split_once('/') {
        Some((addr, len)) => (addr, Some(len.parse().ok()?)),
        None => (place, None),
    };
    let addr = match addr.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => addr.parse().ok()?,
    };
    match access(how)? {
        None if len.is_some() => None,
        None => Some(Breakpoint::execute(addr)),
        Some(access) => Some(Breakpoint::Data {
            access,
            addr,
            len: len.unwrap_or(4),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type, config and breakpoint of a name, as `linux/perf_event.h` has them.
    #[test]
    fn names() {
        for (name, kind, config) in [
            ("cycles", 0, 0),
            ("instructions:u", 0, 1),
            ("stalled-cycles-backend", 0, 8),
            ("task-clock", 1, 1),
            ("cs", 1, 3),
            ("cgroup-switches", 1, 11),
            ("L1-dcache-loads", 3, 0),
            ("L1-dcache-load-misses:k", 3, 0x1_0000),
            ("LLC-store-misses", 3, 0x1_0102),
            ("dTLB-prefetches", 3, 0x203),
            ("branch-load-misses", 3, 0x1_0005),
            ("r01c2", 4, 0x1c2),
        ] {
            let event: Event = name.parse().unwrap();
            let builder = event.builder();
            assert_eq!(
                (builder.attrs().type_, builder.attrs().config),
                (kind, config),
                "{name}"
            );
            assert_eq!(event.name(), name);
            assert_eq!(event.may_have_counter(), kind != 1, "{name}");
        }
        for (name, kind, len) in [
            ("mem:0x1000:x", 4, 8),
            ("mem:4096/8:w", 2, 8),
            ("mem:0x1000/1:rw:u", 3, 1),
            ("mem:0x1000:r", 1, 4),
            ("mem:0x1000", 3, 4),
        ] {
            let event: Event = name.parse().unwrap();
            let builder = event.builder();
            let attr = builder.attrs();
            assert_eq!((attr.type_, attr.bp_type), (5, kind), "{name}");
            assert!(!event.may_have_counter());
            assert_eq!(breakpoint_len(name), Some(len), "{name}");
        }
    }

    fn breakpoint_len(name: &str) -> Option<u64> {
        let place = name.strip_prefix("mem:")?.trim_end_matches(":u");
        Some(match breakpoint(place)? {
            Breakpoint::Data { len, .. } => len,
            Breakpoint::Code { .. } => 8,
        })
    }

    /// Modifiers select whose events are counted.
    #[test]
    fn modifiers() {
        let of = |name: &str| {
            let builder = name.parse::<Event>().unwrap().builder();
            (
                builder.attrs().exclude_user(),
                builder.attrs().exclude_kernel(),
            )
        };
        assert_eq!(of("faults"), (0, 0));
        assert_eq!(of("faults:uk"), (0, 0));
        assert_eq!(of("faults:u"), (0, 1));
        assert_eq!(of("faults:k"), (1, 0));
        assert_eq!(of("mem:0x10:x:k"), (1, 0));
        assert_eq!(of("mem:0x10:x"), (0, 0));
    }

    /// Unknown events are named in the error.
    #[test]
    fn unknown() {
        for name in [
            "",
            "r",
            "rxyz",
            "cycles:x",
            "page-fault",
            "L1-dcache",
            "L1-dcache-",
            "mem:",
            "mem:zz:x",
            "mem:0x1/2:x",
            "mem:1:y",
            "cycles:u:u",
            ":u",
        ] {
            let error = name.parse::<Event>().unwrap_err();
            assert_eq!(error.to_string(), format!("unknown event '{name}'"));
        }
        let names: Vec<String> = events("cs, faults:u")
            .unwrap()
            .iter()
            .map(Event::to_string)
            .collect();
        assert_eq!(names, ["cs", "faults:u"]);
        assert!(events("cs,,faults").is_err());
    }
}
