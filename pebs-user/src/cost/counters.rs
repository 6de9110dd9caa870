//! Cost to a program of counting its own events: start, stop and read, by each way there is.
//!
//! Each round opens a new group in every way, starts it, reads it ten times and stops it, taking the time between
//! the calls, so that all ways see the same state of the machine. The group, its kernel structures and its page are
//! new each time, so the first read costs as much as for a program that reads once. In this process the code has
//! run before, as in a program that counts now and then. New processes, as in the paper, run everything for the
//! first time: they are built with the machine's C compiler, since the work of the dynamic linker at the first call
//! depends on how a program is linked.
//!
//! Source: Weaver 2015, sections III and IV; Figures 1 and 3 (ways), 5 (repeated reads), 6 (start), 7 (stop), 8 (events).

pub(crate) mod boxes;
mod program;
mod raw;
mod spread;

use std::path::Path;
use std::time::{Duration, Instant};

use pebs_selfcount::{Error, Event, Group, Mapping, Options, ReadPath};
use pebs_stats::summary::upper_median;
use rustix::fd::AsFd as _;
use serde::Serialize;

use crate::cost::calibrate::counts::CountingMarks;
use crate::pmu::counted::{self, CountedEvent};
use crate::pmu::host::Host;
use crate::pmu::sysfs::UprobePmu;
use program::{Program, STATIC};
use raw::{read_by_libc, ticks};
pub(crate) use spread::Spread;

/// Reads of a group in a round.
pub(crate) const READS: usize = 10;
/// Calls of a round: start, reads, stop.
const CALLS: usize = READS + 2;
/// Events of the largest group.
pub(crate) const MOST_EVENTS: usize = 8;
/// Rounds, if there is time: as many as in the paper.
pub(crate) const ROUNDS: usize = 1_024;
/// Bytes returned by `read()` for the largest group: number, two times, value and id of each.
const BYTES: usize = (3 + 2 * MOST_EVENTS) * size_of::<u64>();

/// The kernel's list of PMUs.
const PMUS: &str = "/sys/bus/event_source/devices";

/// A way to read counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// The C library's `read()`.
    Read,
    /// The system call in line.
    Syscall,
    /// `rdpmc`, the page mapped and not touched before the first read.
    Rdpmc,
    /// `rdpmc`, the page mapped with `MAP_POPULATE`.
    RdpmcPopulate,
    /// `rdpmc`, the page touched once before.
    RdpmcTouch,
    /// An eBPF program at a mark.
    Mark,
    /// In a new process: the C library's `read()`, resolved at its first call.
    NewLazy,
    /// In a new process: the C library's `read()`, resolved at the start of the program.
    NewBound,
    /// In a new process: the C library's `read()`, in a static program.
    NewStatic,
    /// In a new process: the system call in line, in a static program.
    NewSyscall,
}

impl Way {
    /// All, in the order of the tables.
    pub(crate) const ALL: [Self; 10] = [
        Self::Read,
        Self::Syscall,
        Self::Rdpmc,
        Self::RdpmcPopulate,
        Self::RdpmcTouch,
        Self::Mark,
        Self::NewLazy,
        Self::NewBound,
        Self::NewStatic,
        Self::NewSyscall,
    ];

    /// Name in tables.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read()",
            Self::Syscall => "syscall",
            Self::Rdpmc => "rdpmc",
            Self::RdpmcPopulate => "rdpmc, populated",
            Self::RdpmcTouch => "rdpmc, touched",
            Self::Mark => "eBPF at a mark",
            Self::NewLazy => "new: read(), lazily bound",
            Self::NewBound => "new: read(), bound at start",
            Self::NewStatic => "new: read(), static",
            Self::NewSyscall => "new: syscall, static",
        }
    }

    /// Returns the mapping of a group's pages; `None`: not read by `rdpmc`.
    const fn mapping(self) -> Option<Mapping> {
        match self {
            Self::Rdpmc => Some(Mapping::OnDemand),
            Self::RdpmcPopulate => Some(Mapping::Populate),
            Self::RdpmcTouch => Some(Mapping::Touch),
            _ => None,
        }
    }
}

/// Times of the calls in one round, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Round {
    pub start: f64,
    /// Each read in order.
    pub reads: [f64; READS],
    pub stop: f64,
}

impl Round {
    /// Start, one read, stop: the minimum cost of a measurement.
    #[must_use]
    pub(crate) const fn total(&self) -> f64 {
        self.start + self.reads[0] + self.stop
    }
}

/// Costs of groups of a number of events.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OfEvents {
    /// Number of events.
    pub events: usize,
    pub start: Spread,
    /// To read, for the first time and again.
    pub reads: Vec<Spread>,
    pub stop: Spread,
    /// Start, first read, stop.
    pub total: Spread,
}

impl OfEvents {
    fn new(events: usize, rounds: &[Round]) -> Option<Self> {
        let of = |cost: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(cost));
        Some(Self {
            events,
            start: of(&|round| round.start)?,
            reads: (0..READS)
                .map(|n| of(&|round| round.reads[n]))
                .collect::<Option<_>>()?,
            stop: of(&|round| round.stop)?,
            total: of(&Round::total)?,
        })
    }

    /// The first read of a group.
    #[must_use]
    pub(crate) fn first(&self) -> &Spread {
        &self.reads[0]
    }

    /// The last of its reads.
    #[must_use]
    pub(crate) fn last(&self) -> &Spread {
        &self.reads[READS - 1]
    }
}

/// A way and its costs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OfWay {
    pub way: Way,
    /// Why there are no costs; `None` if there are.
    pub not_measured: Option<String>,
    /// By the number of events, from 1 on.
    pub by_events: Vec<OfEvents>,
}

/// All ways on this machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Counters {
    /// The counted events; a group of n has the first n.
    pub events: Vec<String>,
    /// Whether these are counted by a PMU.
    pub is_hardware: bool,
    /// Time of reading the clock, ns; subtracted from each cost.
    pub clock_ns: f64,
    pub ways: Vec<OfWay>,
}

/// Events of a kernel event type, with their numbers: the group leader, then its members.
struct Events {
    kind: u32,
    events: [(&'static str, u64); MOST_EVENTS],
}

/// `PERF_TYPE_HARDWARE`, the most widely supported ones first.
const HARDWARE: Events = Events {
    kind: 0,
    events: [
        ("instructions:u", 1),
        ("cycles:u", 0),
        ("branches:u", 4),
        ("branch-misses:u", 5),
        ("cache-references:u", 2),
        ("cache-misses:u", 3),
        ("ref-cycles:u", 9),
        ("bus-cycles:u", 6),
    ],
};

/// `PERF_TYPE_SOFTWARE`, without clocks, which have PMUs of their own.
const SOFTWARE: Events = Events {
    kind: 1,
    events: [
        ("page-faults:u", 2),
        ("context-switches:u", 3),
        ("cpu-migrations:u", 4),
        ("minor-faults:u", 5),
        ("major-faults:u", 6),
        ("alignment-faults:u", 7),
        ("emulation-faults:u", 8),
        ("dummy:u", 9),
    ],
};

impl Events {
    fn names(&self, number: usize) -> impl Iterator<Item = &'static str> {
        self.events[..number].iter().map(|(name, _)| *name)
    }

    fn group(&self, number: usize, mapping: Mapping) -> Result<Group, Error> {
        let events: Result<Vec<Event>, Error> = self.names(number).map(str::parse).collect();
        let options = Options {
            inherit: false,
            mapping,
        };
        options.open(events?)
    }

    /// Events of the largest group that this machine's counters hold.
    fn most(&self) -> usize {
        let fits = |number: &usize| self.group(*number, Mapping::Never).is_ok();
        (1..=MOST_EVENTS).take_while(fits).count()
    }
}

/// Measures until all rounds are done or the time is over; at least one round.
///
/// # Errors
/// This user may not count events.
pub(crate) fn measure(most: Duration, mut progress: impl FnMut(usize)) -> Result<Counters, Error> {
    let events = match HARDWARE.group(1, Mapping::Never) {
        Ok(_) => &HARDWARE,
        Err(Error::Denied { .. } | Error::Unsupported { .. }) => &SOFTWARE,
        Err(error) => return Err(error),
    };
    events.group(1, Mapping::Never)?;
    let number = events.most();
    let mut runs: Vec<Run> = Way::ALL.map(|way| Run::new(way, events, number)).into();
    let (begin, from) = (Instant::now(), ticks());
    for round in 0..ROUNDS {
        if round > 0 && begin.elapsed() >= most {
            break;
        }
        progress(round + 1);
        for run in &mut runs {
            run.round(events);
        }
    }
    let ticks_a_ns = (ticks() - from) as f64 / begin.elapsed().as_nanos() as f64;
    let clock = clock_ticks();
    let ns = |ticks: u64| ticks.saturating_sub(clock) as f64 / ticks_a_ns;
    Ok(Counters {
        events: events.names(number).map(str::to_owned).collect(),
        is_hardware: events.kind == HARDWARE.kind,
        clock_ns: clock as f64 / ticks_a_ns,
        ways: runs.into_iter().map(|run| run.result(&ns)).collect(),
    })
}

/// Median ticks between two readings of the clock with nothing between.
fn clock_ticks() -> u64 {
    let taken = (0..1_001)
        .map(|_| {
            let before = ticks();
            ticks() - before
        })
        .collect();
    upper_median(taken).unwrap_or_default()
}

/// Ticks of the calls of a round, in their order.
type Calls = [u64; CALLS];

/// Ways to measure.
enum Means {
    /// In this process.
    Here,
    /// By a program that is started for each round.
    Program(Program),
    /// At a mark, and ticks of the clock between two readings.
    Mark(Box<CountingMarks>, u64),
    /// Not measured, with the reason.
    None(String),
}

/// A way while it is measured.
struct Run {
    way: Way,
    means: Means,
    /// By number of events, from 1 on.
    rounds: Vec<Vec<Calls>>,
}

impl Run {
    fn new(way: Way, events: &Events, number: usize) -> Self {
        let built = |built: Result<Program, String>| built.map_or_else(Means::None, Means::Program);
        let means = match way {
            Way::Read | Way::Syscall => Means::Here,
            Way::NewLazy => built(Program::build("read", "-Wl,-z,lazy")),
            Way::NewBound => built(Program::build("read", "-Wl,-z,now")),
            Way::NewStatic => built(Program::build("read", STATIC)),
            Way::NewSyscall => built(Program::build("syscall", STATIC)),
            Way::Rdpmc | Way::RdpmcPopulate | Way::RdpmcTouch => match no_rdpmc(events) {
                Some(reason) => Means::None(reason),
                None => Means::Here,
            },
            Way::Mark => at_a_mark(number),
        };
        Self {
            way,
            means,
            rounds: vec![Vec::new(); number],
        }
    }

    /// Measures groups of each size once. Occasional failures, as of a group that is not scheduled, are skipped.
    fn round(&mut self, events: &Events) {
        for (n, rounds) in self.rounds.iter_mut().enumerate() {
            let calls = match &self.means {
                // The first round warms up the caches, which the second one finds filled with its own code and the
                // kernel's.
                Means::Here => {
                    here(self.way, events, n + 1).and_then(|_| here(self.way, events, n + 1))
                }
                Means::Program(program) => {
                    let configs = events.events[..=n].iter().map(|(_, config)| *config);
                    program.run(events.kind, configs)
                }
                Means::Mark(marks, clock) => at_marks(marks, n, *clock),
                Means::None(_) => None,
            };
            rounds.extend(calls);
        }
    }

    fn result(self, ns: &impl Fn(u64) -> f64) -> OfWay {
        let by_events: Vec<OfEvents> = self
            .rounds
            .iter()
            .enumerate()
            .filter_map(|(n, rounds)| {
                let rounds: Vec<Round> = rounds.iter().map(|calls| round_of(calls, ns)).collect();
                OfEvents::new(n + 1, &rounds)
            })
            .collect();
        let not_measured = match self.means {
            Means::None(reason) => Some(reason),
            _ if by_events.is_empty() => Some("each try failed".to_owned()),
            _ => None,
        };
        OfWay {
            way: self.way,
            not_measured,
            by_events,
        }
    }
}

fn round_of(calls: &Calls, ns: &impl Fn(u64) -> f64) -> Round {
    Round {
        start: ns(calls[0]),
        reads: std::array::from_fn(|n| ns(calls[n + 1])),
        stop: ns(calls[CALLS - 1]),
    }
}

/// Reads counters in an eBPF program at a mark: the cost of a mark with them minus that of one without.
/// Source: `bpf_perf_event_read_value`, kernel/trace/bpf_trace.c.
fn at_a_mark(number: usize) -> Means {
    let host = Host::probe(Path::new("/"));
    let Some(pmu) = UprobePmu::read(Path::new("/")) else {
        return Means::None("this kernel has no uprobes".to_owned());
    };
    let names = match host.no_pmu_reason() {
        None => AT_MARKS_HARDWARE,
        Some(_) => AT_MARKS_SOFTWARE,
    };
    let names: Vec<String> = names
        .iter()
        .take(number)
        .map(|it| (*it).to_owned())
        .collect();
    let all = counted::parse(&names).and_then(|specs| counted::resolve_all(&specs, &host));
    let all = match all {
        Ok(all) => all,
        Err(error) => return Means::None(error.to_string()),
    };
    let sets: Vec<&[CountedEvent]> = (1..=all.len()).map(|n| &all[..n]).collect();
    match CountingMarks::place(&pmu, &sets, &host) {
        Ok(marks) => Means::Mark(Box::new(marks), clock_ticks()),
        Err(why) => Means::None(format!(
            "marks can't be placed, or CPUs not be counted: {why}"
        )),
    }
}

/// Events that are read at a mark, the same as for the other ways.
const AT_MARKS_HARDWARE: [&str; MOST_EVENTS] = [
    "instructions",
    "cycles",
    "branches",
    "branch-misses",
    "cache-references",
    "cache-misses",
    "page-faults",
    "cpu-migrations",
];

/// The same without a PMU.
const AT_MARKS_SOFTWARE: [&str; MOST_EVENTS] = [
    "page-faults",
    "minor-faults",
    "major-faults",
    "cpu-migrations",
    "alignment-faults",
    "emulation-faults",
    "page-faults:u",
    "page-faults:k",
];

/// A round of marks: counting needs no start and no stop. The difference of two marks does not contain the time of
/// the clock, which is subtracted from each call, so it is added here.
fn at_marks(marks: &CountingMarks, set: usize, clock: u64) -> Option<Calls> {
    let mut calls = [0; CALLS];
    for call in &mut calls[1..CALLS - 1] {
        *call = marks.once(set, ticks)? + clock;
    }
    Some(calls)
}

/// Why `rdpmc` can't be measured.
fn no_rdpmc(events: &Events) -> Option<String> {
    if events.kind != HARDWARE.kind {
        return Some(format!(
            "it needs a PMU, and there is none for this user in {PMUS}"
        ));
    }
    let path = events.group(1, Mapping::Populate).and_then(|mut group| {
        group.start()?;
        group.read()?;
        Ok(group.read_path())
    });
    match path {
        Ok(ReadPath::Rdpmc) => None,
        Ok(ReadPath::Syscall(reason)) => Some(reason.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// One round in this process; `None` if a call failed or `rdpmc` could not be used.
fn here(way: Way, events: &Events, number: usize) -> Option<Calls> {
    let mapping = way.mapping();
    let mut group = events
        .group(number, mapping.unwrap_or(Mapping::Never))
        .ok()?;
    let mut bytes = [0; BYTES];
    let mut at = [0; CALLS + 1];
    at[0] = ticks();
    group.start().ok()?;
    at[1] = ticks();
    for read_at in &mut at[2..CALLS] {
        let is_read = match way {
            Way::Read => read_by_libc(group.as_fd(), &mut bytes),
            Way::Syscall => rustix::io::read(&group, &mut bytes[..]).is_ok(),
            _ => group.read().is_ok(),
        };
        *read_at = ticks();
        if !is_read {
            return None;
        }
    }
    let path = group.read_path();
    group.stop().ok()?;
    at[CALLS] = ticks();
    (mapping.is_none() || path == ReadPath::Rdpmc)
        .then(|| std::array::from_fn(|n| at[n + 1] - at[n]))
}
