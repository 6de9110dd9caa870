//! A recording in the kernel: programs, rings, events and probes, attached in an order that leaves no visit half
//! recorded, and detached by dropping.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pebs_common::config::{
    ArgProgram, KernelCode, Program, Scope, Step, Trigger, Waits, id_source,
};
use pebs_common::record::{Role, mark_flag};

use perf_event_open_sys::bindings::perf_event_attr;

use crate::binary::process;
use crate::collect::bulk::unseen_events::RestRings;
use crate::collect::bulk::{self, BulkCounters, BulkRing};
use crate::collect::clock::now;
use crate::collect::copies::{Copy as CodeCopy, CopyRestorer};
use crate::collect::counted::CountedCounters;
use crate::collect::counters::{Counters, On, Recipe, times_of};
use crate::collect::error::SessionError;
use crate::collect::jitter::{Drawn, Jitter};
use crate::collect::programs::{Log, Programs, Settings, StackLimits};
use crate::collect::threads::threads_of;
use crate::pmu::attr::{EventClass, Faults, READ_FORMAT, ResolvedEvent, calibrator, page_faults};
use crate::pmu::counted::{self, CountedEvent};
use crate::pmu::host::{Host, KernelVersion};
use crate::pmu::jitter::{self, Clocks};
use crate::pmu::open::{
    BpfLink, Ended, Keeper, PerfEvent, Times, UprobeAt, UprobeScope, UprobeSite, open_uprobe,
};
use crate::pmu::sysfs::UprobePmu;
use crate::pmu::target::Target;
use crate::probe::cgroup::Cgroup;
use crate::probe::set::{ProbeSet, Site};
use crate::store::run::EntryClass;
use crate::stream::decode::RecordKinds;
use crate::units::{Cpu, EventId, KtimeNs, Pid, ResetValue, Tid};

mod cpus;
mod rings;

pub(crate) use rings::Rings;

use cpus::{Changed, OpenCpus};
use rings::present_cpus;

/// Fraction of a ring shared with marks that samples may fill.
const SAMPLE_SHARE: (u64, u64) = (3, 4);

/// Ticks of the clock calibrator, ns: ten a second on each CPU.
const CLOCK_PERIOD: ResetValue = ResetValue(NonZeroU64::new(100_000_000).expect("not zero"));

/// Period of the calibrator's first ticks, ns: there must be a tick before the first sample, even in a short
/// recording.
const FIRST_CLOCK_PERIOD_NS: u64 = 1_000_000;

/// Duration of the first ticks; a tick may be late.
const FIRST_CLOCKS: Duration = Duration::from_millis(4);

/// The last tick of an interval of counts, ns: soon.
const LAST_TICK: ResetValue = ResetValue(NonZeroU64::new(500_000).expect("not zero"));

/// After a look for threads without a counter of their own there is none for this many times as long as it took.
const FOLLOW_REST: u32 = 200;

/// Looks at which no new thread was found before each thread gets several clocks; twice as many after each change back.
const CALM: u32 = 2;

/// Age of the newest thread from which on threads get several clocks from the start.
const SETTLED: Duration = Duration::from_millis(100);

/// Most threads that get several clocks.
const MOST_THREADS: usize = 64;

/// Maximum time for that tick.
const LAST_TICKS: Duration = Duration::from_millis(1);

/// A cookie without a site: marks are counted and dropped.
const NO_SITE: u64 = pebs_common::config::MAX_SITES as u64;

/// Settings of a recording.
pub(crate) struct SessionPlan<'a> {
    /// The machine.
    pub host: &'a Host,
    pub probes: &'a ProbeSet,
    /// Events, with the attr as granted.
    pub events: &'a [ResolvedEvent],
    /// Events that are counted for each visit.
    pub counted: &'a [CountedEvent],
    /// Length of the intervals in which they are also counted.
    pub count_interval: Option<Duration>,
    /// Processes to trace; empty: every process that makes a mark.
    pub pids: &'a [Pid],
    /// Threads of those processes to trace; empty: all.
    pub threads: &'a [Tid],
    /// Cgroup whose processes are traced, if there are no pids.
    pub cgroup: Option<&'a Cgroup>,
    /// Size of each CPU's ring, bytes.
    pub ring_bytes: u32,
    /// Variation of distances between samples, percent; 0: they are equal.
    pub jitter: f64,
    /// Expected cost of a sample, ns; `None` if it is unknown.
    pub sample_ns: Option<f64>,
    /// Transport of samples from the kernel.
    pub transport: Transport,
    /// Records beside marks and samples.
    pub kinds: RecordKinds,
    pub stacks: StackLimits,
    /// Whether events are counted only, with no sample taken.
    pub counting: bool,
    /// Whether threads sleep longer where nothing happens.
    pub patient: bool,
    /// Whether the eBPF programs log what they do.
    pub log: bool,
}

/// Transport of samples from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Our program handles each sample and writes it into our rings.
    #[default]
    Bpf,
    /// The kernel writes them into perf's rings.
    Bulk,
}

impl Transport {
    /// Its name in `trace.json`.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Bulk => "bulk",
        }
    }
}

fn all_sites(probes: &ProbeSet) -> impl Iterator<Item = &Site> {
    probes.probes.iter().flat_map(|probe| &probe.sites)
}

/// Whether the mark program does the site's instruction.
fn steps(site: &Site) -> bool {
    site.config.step != Step::NONE
}

/// The recording. Dropping it removes everything from the kernel.
pub(crate) struct Session {
    programs: Programs,
    log: Option<Log>,
    settings: Settings,
    /// Probes that begin visits.
    begins: Vec<Probe>,
    /// Probes that do not begin visits.
    ends: Vec<Probe>,
    /// The process that places them. Declared after all probes: dropping it removes them.
    keeper: Keeper,
    events: Vec<Counters>,
    bulk: Vec<BulkCounters>,
    /// By event: rings of the samples that its program does not see.
    rests: Vec<RestRings>,
    /// Rings not yet passed to the draining thread.
    bulk_rings: Vec<BulkRing>,
    /// By event: the current reset value, if it was changed.
    resets: Vec<Option<ResetValue>>,
    counting: bool,
    /// Draws distances between samples; `None` before the start, and if they are equal.
    jitter: Option<Jitter>,
    /// Draws before the last pause.
    drawn: Option<Drawn>,
    /// Time of the next look for threads without a counter of their own.
    follow: Instant,
    /// Clocks that sample the targets.
    which: Clocks,
    /// Looks since one was found, and how many have to pass before threads get several clocks.
    calm: u32,
    patience: u32,
    faults: Counters,
    clocks: Counters,
    /// Counters of events that are counted for each visit.
    counted: CountedCounters,
    /// Clocks that end the intervals of counts.
    ticks: Counters,
    /// CPUs that events were opened on.
    cpus: OpenCpus,
    /// Restores copied code; or why that is not possible. Dropped after the probes.
    restorer: Result<CopyRestorer, String>,
}

/// One bit per event: whether `is` holds for it.
fn by_event(events: &[ResolvedEvent], is: impl Fn(&ResolvedEvent) -> bool) -> u32 {
    let bits = events.iter().enumerate();
    bits.map(|(n, event)| u32::from(is(event)) << n).sum()
}

/// Whether the targets' threads are few, and none is new.
fn are_calm(plan: &SessionPlan<'_>) -> bool {
    let mut count = 0;
    plan.pids.iter().all(|pid| {
        let threads = threads_of(*pid, plan.threads).unwrap_or_default();
        count += threads.len();
        let is_old = |tid: &Tid| process::age(*pid, *tid).is_none_or(|it| it >= SETTLED);
        count <= MOST_THREADS && threads.iter().all(is_old)
    })
}

impl Session {
    /// Loads the programs and creates the rings. Nothing is attached to the target yet.
    ///
    /// # Errors
    /// The kernel refused a program, map or ring.
    pub(crate) fn load(plan: &SessionPlan<'_>) -> Result<(Self, Rings), SessionError> {
        let keeper = Keeper::start()?;
        let by_program = plan.transport == Transport::Bpf;
        let nmi = by_program && plan.events.iter().any(|event| event.nmi);
        let perf_clock_events = by_event(plan.events, |event| event.perf_clock);
        let (part, whole) = SAMPLE_SHARE;
        let settings = Settings {
            scope: match plan.cgroup {
                _ if !plan.pids.is_empty() => Scope::Table,
                Some(_) => Scope::Cgroup,
                None => Scope::Everyone,
            },
            only_threads: !plan.threads.is_empty(),
            exclude_kernel: by_event(plan.events, |event| event.drop_in_program.kernel),
            exclude_user: by_event(plan.events, |event| event.drop_in_program.user),
            perf_clock_events,
            access_events: by_event(plan.events, |event| event.access != 0),
            // A ring used only by samples may fill up.
            sample_limit: if nmi {
                u64::MAX
            } else {
                u64::from(plan.ring_bytes) * part / whole
            },
            steps: all_sites(plan.probes).any(steps),
            kinds: plan.kinds,
            ids_behind: plan.probes.reads_behind(),
            item: plan.probes.item.as_ref().map(|it| (it.source, it.config)),
            samples_interrupt: by_program && !nmi,
            events: plan.events.len(),
            counters: counted::counters(plan.counted),
            count_always: counted::always(plan.counted),
            count_intervals: plan.count_interval.is_some(),
            stacks: plan.stacks,
            log: plan.log,
        };
        let mut programs = Programs::load(&settings)?;
        let log = plan.log.then(|| programs.start_log()).and_then(Result::ok);
        let rings = Rings::make(&programs, plan, nmi)?;
        let sites = plan.probes.probes.iter().flat_map(|probe| &probe.sites);
        for (cookie, site) in (0u32..).zip(sites) {
            let mut config = site.config;
            if site.class == EntryClass::SingleStep && !site.uretprobe {
                config.role |= mark_flag::STEPPED;
            }
            programs.set_site(cookie, &config)?;
        }
        if let Some(cgroup) = plan.cgroup {
            programs.set_cgroup(cgroup)?;
        }
        for tid in plan.threads {
            programs.trace_thread(*tid)?;
        }
        // Before the first probe.
        let restorer = CopyRestorer::start(&mut programs, plan.probes);
        let session = Self {
            programs,
            log,
            settings,
            begins: Vec::new(),
            ends: Vec::new(),
            keeper,
            events: Vec::new(),
            bulk: Vec::new(),
            rests: plan.events.iter().map(|_| RestRings::default()).collect(),
            bulk_rings: Vec::new(),
            resets: vec![None; plan.events.len()],
            counting: plan.counting,
            jitter: None,
            drawn: None,
            follow: Instant::now(),
            which: Clocks::default(),
            calm: 0,
            patience: CALM,
            faults: Counters::default(),
            clocks: Counters::default(),
            counted: CountedCounters::default(),
            ticks: Counters::default(),
            cpus: OpenCpus::default(),
            restorer,
        };
        Ok((session, rings))
    }

    /// Traces processes and all their children, existing and future. Returns the existing ones. Tasks must be
    /// followed already.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn trace(&self, pids: &[Pid]) -> Result<Vec<Pid>, SessionError> {
        let mut traced: Vec<Pid> = Vec::new();
        let mut found: Vec<Pid> = pids.to_vec();
        // Children started by a traced process from now on are added by the eBPF program; those started before are
        // found here, whichever thread started them.
        while !found.is_empty() {
            for pid in &found {
                self.programs.trace(*pid)?;
            }
            traced.append(&mut found);
            if self.settings.only_threads {
                break;
            }
            let children = traced.iter().flat_map(|pid| process::children(*pid));
            found = children.filter(|child| !traced.contains(child)).collect();
            found.sort_unstable();
            found.dedup();
        }
        Ok(traced)
    }

    /// Attaches the programs that follow tasks: forks are followed from now on.
    ///
    /// # Errors
    /// The kernel refused an attachment.
    pub(crate) fn follow_tasks(&mut self) -> Result<(), SessionError> {
        Ok(self.programs.attach_tasks()?)
    }

    /// Attaches a program that finds the address of the item ids' library in each process that loads it, and sets
    /// the address for processes that already have.
    fn find_library(
        &mut self,
        plan: &SessionPlan<'_>,
        pmu: &UprobePmu,
    ) -> Result<(), SessionError> {
        let item = plan.probes.item.as_ref();
        let Some(library) = item.and_then(|item| item.library.as_ref()) else {
            return Ok(());
        };
        let site = UprobeSite {
            path: library.path.clone(),
            file_offset: library.entry_offset,
            at: UprobeAt::Instruction,
            semaphore: None,
        };
        let event = open_uprobe(&mut self.keeper, pmu, &site, UprobeScope::Everyone)?;
        let link = event.attach(self.programs.library()?, None)?;
        self.ends.push(Probe::new(event, link));
        for pid in plan.pids {
            let program = process::start_stack(*pid).map(Program);
            if let (Some(program), Some(base)) = (program, library.base(*pid)) {
                self.programs.set_library(program, base)?;
            }
        }
        Ok(())
    }

    /// Opens every event for every target, not yet counting, and the calibrator if one is needed.
    ///
    /// # Errors
    /// The kernel refused an event.
    pub(crate) fn open_events(&mut self, plan: &SessionPlan<'_>) -> Result<(), SessionError> {
        // First, so that CPUs which go and come from here on are noticed and reopened.
        self.cpus.look(&plan.host.online);
        if are_calm(plan) {
            self.calm = CALM;
        }
        for n in 0..plan.events.len() {
            let id = EventId(n as u8);
            match plan.transport {
                Transport::Bpf => {
                    let counters = self.open_with_rest(plan, id, &plan.host.online)?;
                    self.events.push(counters);
                }
                Transport::Bulk => {
                    let counters = self.open_bulk(plan, id, &plan.host.online)?;
                    self.bulk.push(counters);
                }
            }
        }
        if plan.kinds.page_faults {
            self.faults = self.open_faults(plan, self.on(plan, &plan.host.online, plan.pids))?;
        }
        self.clocks = self.open_clocks(&plan.host.online)?;
        self.counted = self.open_counted(plan, &plan.host.online)?;
        self.ticks = self.open_ticks(plan, &plan.host.online)?;
        Ok(())
    }

    fn open(
        &self,
        plan: &SessionPlan<'_>,
        id: EventId,
        cpus: &[Cpu],
    ) -> Result<Counters, SessionError> {
        let event = &plan.events[usize::from(id.0)];
        let attrs = |target| self.attrs(plan, id, target);
        let recipe = Recipe {
            name: &event.name,
            attrs: &attrs,
            program: self.programs.sample(id)?,
            rest: self.rest(event, id),
            only: plan.threads,
        };
        let cpus = self.counted_cpus(event, cpus.iter().copied());
        let on = match self.is_by_cpu(plan, id) {
            true => On::Cpus(&cpus),
            false => On::Processes(plan.pids),
        };
        Counters::open(&recipe, on)
    }

    /// Those CPUs on which an event can be counted.
    fn counted_cpus(&self, event: &ResolvedEvent, cpus: impl Iterator<Item = Cpu>) -> Vec<Cpu> {
        cpus.filter(|cpu| event.counts_on(*cpu)).collect()
    }

    /// Opens an event after creating the rings for samples that its program does not see: threads may move to any
    /// CPU.
    fn open_with_rest(
        &mut self,
        plan: &SessionPlan<'_>,
        id: EventId,
        cpus: &[Cpu],
    ) -> Result<Counters, SessionError> {
        let event = &plan.events[usize::from(id.0)];
        if self.rest(event, id).is_some() {
            let mut cpus = match plan.pids {
                [] => cpus.to_vec(),
                _ => present_cpus(plan.host),
            };
            cpus.retain(|cpu| event.counts_on(*cpu));
            let rings = self.rests[usize::from(id.0)].add(id, &cpus)?;
            self.bulk_rings.extend(rings);
        }
        self.open(plan, id, cpus)
    }

    /// Whether an event is counted on CPUs, whatever runs there, rather than on the targets' threads.
    fn is_by_cpu(&self, plan: &SessionPlan<'_>, id: EventId) -> bool {
        let is_clock = || plan.events[usize::from(id.0)].class == EventClass::Clock;
        plan.pids.is_empty() || self.which == Clocks::OfCpus && is_clock()
    }

    /// Counters of an event that sample together.
    ///
    /// A thread inherits counters at the start of their distances, and several clocks have longer ones: where threads
    /// come and go there is one clock, so that short lives have samples. Many threads disturb each other's samples anyway.
    fn together(&self, plan: &SessionPlan<'_>, id: EventId) -> &'static [f64] {
        let event = &plan.events[usize::from(id.0)];
        let apart =
            !self.is_by_cpu(plan, id) && (self.calm < self.patience || self.which == Clocks::One);
        let percent = if self.counting || apart {
            0.0
        } else {
            plan.jitter
        };
        jitter::together(event, self.reset(plan, id), percent, plan.sample_ns)
    }

    /// Whether the event's counters are not those that should sample it together.
    fn needs_others(&self, plan: &SessionPlan<'_>, id: EventId) -> bool {
        let counters = &self.events[usize::from(id.0)];
        let Some(of_cpus) = counters.are_of_cpus() else {
            return false;
        };
        of_cpus != self.is_by_cpu(plan, id)
            || counters.first_distance() != self.together(plan, id).first().copied()
    }

    /// Rings of the samples that an event's program does not see; `None` if it sees all.
    fn rest(&self, event: &ResolvedEvent, id: EventId) -> Option<&RestRings> {
        let rests = event.leaves_rest() && !self.counting;
        rests.then(|| &self.rests[usize::from(id.0)])
    }

    fn open_bulk(
        &mut self,
        plan: &SessionPlan<'_>,
        id: EventId,
        cpus: &[Cpu],
    ) -> Result<BulkCounters, SessionError> {
        let event = &plan.events[usize::from(id.0)];
        let mut cpus = match plan.pids {
            [] => cpus.to_vec(),
            // Threads may move to a CPU that is offline now.
            _ => present_cpus(plan.host),
        };
        cpus.retain(|cpu| event.counts_on(*cpu));
        let open = |recipe: &bulk::Recipe<'_>| match plan.pids {
            [] => bulk::on_cpus(recipe, &cpus),
            pids => bulk::on_processes(recipe, pids, &cpus),
        };
        let (counters, rings) = self.with_bulk_recipe(plan, id, open)?;
        self.bulk_rings.extend(rings);
        Ok(counters)
    }

    /// Changes the reset value of an event in bulk, which is in force already for counters that are opened.
    fn change_bulk(
        &mut self,
        plan: &SessionPlan<'_>,
        id: EventId,
        reset: ResetValue,
    ) -> Result<(), SessionError> {
        let pids = match plan.pids {
            [] => Vec::new(),
            _ => self.programs.traced()?,
        };
        let mut counters = std::mem::take(&mut self.bulk[usize::from(id.0)]);
        let change = |recipe: &bulk::Recipe<'_>| counters.change(recipe, &pids, reset);
        let changed = self.with_bulk_recipe(plan, id, change);
        self.bulk[usize::from(id.0)] = counters;
        changed
    }

    fn with_bulk_recipe<T>(
        &self,
        plan: &SessionPlan<'_>,
        id: EventId,
        open: impl FnOnce(&bulk::Recipe<'_>) -> T,
    ) -> T {
        let event = &plan.events[usize::from(id.0)];
        let counts_lost = plan.host.at_least(KernelVersion(6, 0));
        let reset = self.reset(plan, id).0.get();
        let attr = |target| {
            let mut attr = event.bulk_attr(target, plan.ring_bytes);
            attr.__bindgen_anon_1.sample_period = reset;
            if !counts_lost {
                attr.read_format = READ_FORMAT;
            }
            if !plan.threads.is_empty() {
                attr.set_inherit(0);
            }
            attr
        };
        open(&bulk::Recipe {
            id,
            name: &event.name,
            attr: &attr,
            ring_bytes: plan.ring_bytes,
            buffered: event.is_buffered(plan.host),
            only: plan.threads,
        })
    }

    /// The rings of the bulk transport that are new, for the draining thread.
    pub(crate) fn take_bulk_rings(&mut self) -> Vec<BulkRing> {
        std::mem::take(&mut self.bulk_rings)
    }

    /// Settings of an event with the reset value in force.
    fn attrs(
        &self,
        plan: &SessionPlan<'_>,
        id: EventId,
        target: Target,
    ) -> Vec<(perf_event_attr, f64)> {
        let mut attrs = plan.events[usize::from(id.0)].attrs_for(target);
        if self.settings.only_threads {
            for attr in &mut attrs {
                attr.set_inherit(0);
            }
        }
        if self.counting {
            for attr in &mut attrs {
                // PEBS without samples is refused.
                attr.__bindgen_anon_1.sample_period = 0;
                attr.set_precise_ip(0);
            }
        }
        let reset = self.reset(plan, id);
        let together = self.together(plan, id).iter();
        let each = together.flat_map(|times| attrs.iter().map(|attr| (*attr, *times)));
        let mut all: Vec<_> = each.collect();
        if !self.counting {
            for (attr, times) in &mut all {
                attr.__bindgen_anon_1.sample_period = reset.times(*times).0.get();
            }
        }
        all
    }

    /// Returns the CPUs or processes on which page faults are counted: as with clocks, a counter of a thread costs each
    /// of its switches.
    fn on<'a>(&self, plan: &SessionPlan<'_>, cpus: &'a [Cpu], pids: &'a [Pid]) -> On<'a> {
        match self.faults_by_cpu(plan) {
            true => On::Cpus(cpus),
            false => On::Processes(pids),
        }
    }

    fn faults_by_cpu(&self, plan: &SessionPlan<'_>) -> bool {
        plan.pids.is_empty() || self.which == Clocks::OfCpus
    }

    fn open_faults(&self, plan: &SessionPlan<'_>, on: On<'_>) -> Result<Counters, SessionError> {
        let mut all = Counters::default();
        for &which in Faults::needed(plan.kinds.interference) {
            let recipe = Recipe {
                name: which.name(),
                attrs: &|target| vec![(page_faults(which, target), 1.0)],
                program: self.programs.page_fault(which)?,
                rest: None,
                only: plan.threads,
            };
            all.extend(Counters::open(&recipe, on)?);
        }
        Ok(all)
    }

    /// Changes the reset value of an event for all threads and CPUs, including future ones.
    ///
    /// # Errors
    /// The kernel refused: the former reset value stays in force, and counters that already had the new one get it
    /// back.
    pub(crate) fn set_reset(
        &mut self,
        plan: &SessionPlan<'_>,
        id: EventId,
        reset: ResetValue,
    ) -> Result<(), SessionError> {
        let index = usize::from(id.0);
        let jitter = self.jitter.take();
        let mut held = jitter.as_ref().map(Jitter::hold);
        let former = self.resets[index].replace(reset);
        let changed = match plan.transport {
            Transport::Bpf => self.change_counters(plan, id, reset),
            Transport::Bulk => self.change_bulk(plan, id, reset),
        };
        if changed.is_err() {
            self.resets[index] = former;
            let former = former.unwrap_or(plan.events[index].reset);
            for (counter, times) in self.counters(plan, id) {
                // One that refuses this too has ended.
                let _ = counter.set_reset(former.times(times));
            }
        }
        if let Some(held) = &mut held {
            held.set(id, self.reset(plan, id), self.counters(plan, id));
        }
        drop(held);
        self.jitter = jitter;
        changed
    }

    /// Every counter of an event with its distance between samples in reset values.
    fn counters(
        &self,
        plan: &SessionPlan<'_>,
        id: EventId,
    ) -> impl Iterator<Item = (&Arc<PerfEvent>, f64)> {
        let index = usize::from(id.0);
        let (by_program, bulk) = match plan.transport {
            Transport::Bpf => (Some(self.events[index].shared()), None),
            Transport::Bulk => (None, Some(self.bulk[index].shared())),
        };
        let by_program = by_program.into_iter().flatten();
        by_program.chain(bulk.into_iter().flatten())
    }

    /// The reset value in force.
    fn reset(&self, plan: &SessionPlan<'_>, id: EventId) -> ResetValue {
        let index = usize::from(id.0);
        self.resets[index].unwrap_or(plan.events[index].reset)
    }

    fn change_counters(
        &mut self,
        plan: &SessionPlan<'_>,
        id: EventId,
        reset: ResetValue,
    ) -> Result<(), SessionError> {
        let others = self.needs_others(plan, id);
        self.with_recipe(plan, id, |counters, recipe, on| match others {
            true => counters.open_anew(recipe, on),
            false => counters.change(recipe, on, reset),
        })
    }

    /// Changes the counters of an event, which may open others.
    fn with_recipe(
        &mut self,
        plan: &SessionPlan<'_>,
        id: EventId,
        change: impl FnOnce(&mut Counters, &Recipe<'_>, On<'_>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let index = usize::from(id.0);
        let event = &plan.events[index];
        let cpus = self.counted_cpus(event, self.cpus.all());
        let by_cpu = self.is_by_cpu(plan, id);
        let pids = match by_cpu {
            true => Vec::new(),
            false => self.programs.traced()?,
        };
        let on = match by_cpu {
            true => On::Cpus(&cpus),
            false => On::Processes(&pids),
        };
        let mut counters = std::mem::take(&mut self.events[index]);
        let attrs = |target| self.attrs(plan, id, target);
        let changed = self.programs.sample(id).map_err(SessionError::from);
        let changed = changed.and_then(|program| {
            let recipe = Recipe {
                name: &event.name,
                attrs: &attrs,
                program,
                rest: self.rest(event, id),
                only: plan.threads,
            };
            change(&mut counters, &recipe, on)
        });
        self.events[index] = counters;
        changed
    }

    /// Whether distances between samples vary, and threads have to be followed for it.
    #[must_use]
    pub(crate) fn follows_threads(&self, plan: &SessionPlan<'_>) -> bool {
        self.jitter.is_some() && !plan.pids.is_empty() && plan.transport == Transport::Bpf
    }

    /// Gives threads that inherited a counter one of their own: the kernel keeps the distance of an inherited one. If
    /// there was none for a while, each thread gets the clocks that sample together.
    ///
    /// # Errors
    /// The kernel refused; the inherited counters remain.
    pub(crate) fn follow_threads(&mut self, plan: &SessionPlan<'_>) -> Result<(), SessionError> {
        let begin = Instant::now();
        if begin < self.follow || !self.follows_threads(plan) {
            return Ok(());
        }
        let pids = self.programs.traced()?;
        let inherited = |it: &Counters| {
            it.are_of_cpus() == Some(false) && it.are_inherited(&pids, plan.threads)
        };
        let inherit = self.events.iter().any(&inherited);
        let many = self.events.iter().any(|it| it.threads() > MOST_THREADS);
        if inherit || many {
            if self.calm >= self.patience {
                self.patience = self.patience.saturating_mul(2);
            }
            self.calm = 0;
        } else {
            self.calm = self.calm.saturating_add(1);
        }
        self.renew(plan, |counters| inherited(counters))?;
        self.follow = Instant::now() + begin.elapsed() * FOLLOW_REST;
        Ok(())
    }

    /// Samples the targets with these clocks from now on.
    ///
    /// # Errors
    /// The kernel refused; the former ones remain.
    pub(crate) fn set_clocks(
        &mut self,
        plan: &SessionPlan<'_>,
        which: Clocks,
    ) -> Result<(), SessionError> {
        let former = std::mem::replace(&mut self.which, which);
        let changed = self.renew_faults(plan);
        let changed = changed.and_then(|()| self.renew(plan, |_| false));
        if changed.is_err() {
            self.which = former;
        }
        changed
    }

    /// Counts page faults on CPUs or on threads, as the clocks are. None is counted twice; those within the some us of
    /// the change are not counted.
    fn renew_faults(&mut self, plan: &SessionPlan<'_>) -> Result<(), SessionError> {
        let by_cpu = self.faults_by_cpu(plan);
        if self.faults.are_of_cpus().is_none_or(|are| are == by_cpu) {
            return Ok(());
        }
        let cpus: Vec<Cpu> = self.cpus.all().collect();
        let pids = self.programs.traced()?;
        let new = self.open_faults(plan, self.on(plan, &cpus, &pids))?;
        self.faults.disable();
        new.enable()?;
        self.faults = new;
        Ok(())
    }

    /// The clocks that sample the targets.
    #[must_use]
    pub(crate) const fn which_clocks(&self) -> Clocks {
        self.which
    }

    /// The clocks that the targets have now: one of each thread while threads come and go.
    #[must_use]
    pub(crate) fn clocks_in_force(&self, plan: &SessionPlan<'_>) -> Clocks {
        let mut clocks = (0..)
            .zip(plan.events)
            .filter(|(_, event)| event.class == EventClass::Clock);
        match clocks.next() {
            Some((n, _))
                if self.which == Clocks::Several && self.together(plan, EventId(n)).len() == 1 =>
            {
                Clocks::One
            }
            _ => self.which,
        }
    }

    /// Opens those counters anew that are not the ones an event should have, or for which `renews` holds.
    fn renew(
        &mut self,
        plan: &SessionPlan<'_>,
        renews: impl Fn(&Counters) -> bool,
    ) -> Result<(), SessionError> {
        for n in 0..self.events.len() {
            let id = EventId(n as u8);
            if renews(&self.events[n]) || self.needs_others(plan, id) {
                self.with_recipe(plan, id, Counters::open_anew)?;
                if let Some(jitter) = &self.jitter {
                    let reset = self.reset(plan, id);
                    jitter.hold().set(id, reset, self.events[n].shared());
                }
            }
        }
        Ok(())
    }

    /// The counters of the events, whose distances vary from now on.
    fn start_jitter(&mut self, plan: &SessionPlan<'_>) {
        if self.counting {
            return;
        }
        self.jitter = Jitter::start(
            plan.events,
            plan.jitter,
            plan.sample_ns.unwrap_or(0.0),
            plan.patient,
        );
        let Some(jitter) = &self.jitter else { return };
        let mut held = jitter.hold();
        for n in 0..plan.events.len() {
            let id = EventId(n as u8);
            held.set(id, self.reset(plan, id), self.counters(plan, id));
        }
    }

    /// Most counters that sample an event together.
    #[must_use]
    pub(crate) fn clocks(&self, plan: &SessionPlan<'_>) -> usize {
        let ids = (0..plan.events.len()).map(|n| EventId(n as u8));
        ids.map(|id| self.together(plan, id).len())
            .max()
            .unwrap_or(1)
    }

    /// Returns the number of draws of distances so far; `None` if they are equal.
    #[must_use]
    pub(crate) fn drawn(&self) -> Option<Drawn> {
        let now = self.jitter.as_ref().map(Jitter::drawn);
        match (self.drawn, now) {
            (Some(before), Some(now)) => Some(Drawn {
                changes: before.changes + now.changes,
                ..now
            }),
            (before, now) => now.or(before),
        }
    }

    /// Opens a slow clock on each CPU whose program reads both kernel clocks, if they have to be compared.
    fn open_clocks(&self, cpus: &[Cpu]) -> Result<Counters, SessionError> {
        if self.settings.perf_clock_events == 0 {
            return Ok(Counters::default());
        }
        let recipe = Recipe {
            name: "clock calibrator",
            attrs: &|_| vec![(calibrator(FIRST_CLOCK_PERIOD_NS), 1.0)],
            program: self.programs.clock()?,
            rest: None,
            only: &[],
        };
        Counters::on_cpus(&recipe, cpus)
    }

    /// Opens the clocks whose ticks end the intervals of counts.
    fn open_ticks(&self, plan: &SessionPlan<'_>, cpus: &[Cpu]) -> Result<Counters, SessionError> {
        let Some(interval) = plan.count_interval else {
            return Ok(Counters::default());
        };
        let recipe = Recipe {
            name: "clock of intervals",
            attrs: &|_| vec![(calibrator(interval.as_nanos() as u64), 1.0)],
            program: self.programs.tick()?,
            rest: None,
            only: &[],
        };
        Counters::on_cpus(&recipe, cpus)
    }

    /// Counters of the events that are counted for each visit, which programs read from now on.
    fn open_counted(
        &self,
        plan: &SessionPlan<'_>,
        cpus: &[Cpu],
    ) -> Result<CountedCounters, SessionError> {
        let counters = CountedCounters::open(plan.counted, cpus)?;
        for (number, cpu, counter) in counters.iter() {
            self.programs.set_counter(number, cpu, counter)?;
        }
        Ok(counters)
    }

    /// Starts the counters that programs read; returns the start of the first interval of counts.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn start_counting(&self) -> Result<KtimeNs, SessionError> {
        self.counted.enable()?;
        let begin = now();
        self.ticks.enable()?;
        Ok(begin)
    }

    /// Records switches, attaches the probes (ends before begins), and starts sampling. Counters are started
    /// before. The rings must be drained from now on.
    ///
    /// # Errors
    /// The kernel refused an attachment.
    pub(crate) fn start(&mut self, plan: &SessionPlan<'_>) -> Result<(), SessionError> {
        self.clocks.enable()?;
        let begin = Instant::now();
        self.programs.attach_switches()?;
        let pmu = plan.host.uprobe.as_ref().ok_or(SessionError::NoUprobes)?;
        self.find_library(plan, pmu)?;
        self.place_marks(plan)?;
        if self.settings.perf_clock_events != 0 {
            std::thread::sleep(FIRST_CLOCKS.saturating_sub(begin.elapsed()));
            self.clocks.set_reset(CLOCK_PERIOD)?;
        }
        self.sample(plan)
    }

    /// Places the probes of marks.
    fn place_marks(&mut self, plan: &SessionPlan<'_>) -> Result<(), SessionError> {
        let pmu = plan.host.uprobe.as_ref().ok_or(SessionError::NoUprobes)?;
        let sites = plan.probes.probes.iter().flat_map(|probe| &probe.sites);
        let begins = |(_, site): &(u64, &Site)| matches!(site.role, Role::Begin | Role::Next);
        let (begins, ends): (Vec<_>, Vec<_>) = (0..).zip(sites).partition(begins);
        // A visit that begins must be able to end.
        for (sites, probes) in [(ends, &mut self.ends), (begins, &mut self.begins)] {
            for (cookie, site) in sites {
                let program = match steps(site) {
                    true => self.programs.mark_and_step()?,
                    false => self.programs.mark()?,
                };
                let (site, scope) = (uprobe_site(site), UprobeScope::Everyone);
                let event = open_uprobe(&mut self.keeper, pmu, &site, scope)?;
                let link = event.attach(program, Some(cookie))?;
                probes.push(Probe::new(event, link));
            }
        }
        Ok(())
    }

    /// Takes samples from now on.
    fn sample(&mut self, plan: &SessionPlan<'_>) -> Result<(), SessionError> {
        for counters in self.events.iter().chain([&self.faults]) {
            counters.enable()?;
        }
        self.bulk.iter().try_for_each(BulkCounters::enable)?;
        self.start_jitter(plan);
        Ok(())
    }

    /// Removes the probes of marks and stops sampling; switches of threads are still seen. The process that places probes
    /// must not have been told that there are no more. Returns until when all is seen: some of what follows may be, too.
    pub(crate) fn pause(&mut self) -> KtimeNs {
        let at = now();
        self.remove_marks();
        self.stop_samples();
        for probes in [&mut self.begins, &mut self.ends] {
            probes.clear();
        }
        self.keeper.remove();
        at
    }

    /// Places the probes again, and samples again.
    ///
    /// # Errors
    /// The kernel refused a probe or an event.
    pub(crate) fn resume(&mut self, plan: &SessionPlan<'_>) -> Result<(), SessionError> {
        self.place_marks(plan)?;
        self.sample(plan)
    }

    fn stop_samples(&mut self) {
        self.drawn = self.drawn();
        self.jitter = None;
        for counters in self.events.iter().chain([&self.faults]) {
            counters.disable();
        }
        self.bulk.iter().for_each(BulkCounters::disable);
    }

    /// Detaches the programs of marks, those of begins first.
    fn remove_marks(&mut self) {
        detach(&mut self.begins);
        detach(&mut self.ends);
    }

    /// Opens the per-CPU events on CPUs that came online since the start, and returns these CPUs; closes those of
    /// CPUs that went offline. New rings are to be fetched afterwards.
    ///
    /// # Errors
    /// The kernel refused an event.
    pub(crate) fn follow_cpus(
        &mut self,
        plan: &SessionPlan<'_>,
        online: &[Cpu],
    ) -> Result<Vec<Cpu>, SessionError> {
        // An event refused now is not tried again.
        let Changed { came: new, went } = self.cpus.look(online);
        let counters = self.events.iter_mut();
        counters
            .chain([&mut self.faults, &mut self.clocks, &mut self.ticks])
            .for_each(|it| it.close_on(&went));
        let clocks = self.open_clocks(&new)?;
        clocks.enable()?;
        clocks.set_reset(CLOCK_PERIOD)?;
        self.clocks.extend(clocks);
        self.counted.close_on(&went);
        let counted = self.open_counted(plan, &new)?;
        counted.enable()?;
        self.counted.extend(counted);
        let ticks = self.open_ticks(plan, &new)?;
        ticks.enable()?;
        self.ticks.extend(ticks);
        // Counters of threads follow them, or exist for each possible CPU.
        for n in 0..self.events.len() {
            let id = EventId(n as u8);
            if new.is_empty() || !self.is_by_cpu(plan, id) {
                continue;
            }
            let opened = self.open_with_rest(plan, id, &new)?;
            opened.enable()?;
            if let Some(jitter) = &self.jitter {
                jitter.hold().add(id, self.reset(plan, id), opened.shared());
            }
            self.events[n].extend(opened);
        }
        if plan.kinds.page_faults && !new.is_empty() && self.faults.are_of_cpus() == Some(true) {
            let opened = self.open_faults(plan, On::Cpus(&new))?;
            opened.enable()?;
            self.faults.extend(opened);
        }
        if !new.is_empty() && plan.pids.is_empty() {
            for n in 0..self.bulk.len() {
                let opened = self.open_bulk(plan, EventId(n as u8), &new)?;
                opened.enable()?;
                if let Some(jitter) = &self.jitter {
                    let id = EventId(n as u8);
                    jitter.hold().add(id, self.reset(plan, id), opened.shared());
                }
                self.bulk[n].extend(opened);
            }
        }
        Ok(new)
    }

    /// Stops sampling and marking, begins first. The probes stay until the session is dropped, which takes long if
    /// there are many: the kernel waits for each.
    pub(crate) fn stop(&mut self) {
        self.tick_once_more();
        self.stop_samples();
        self.clocks.disable();
        self.remove_marks();
        // Detach before the last read of the rings, so that the counters read after it match.
        self.programs.detach_tracepoints();
        self.counted.disable();
    }

    /// Makes the tick programs emit the counts of running threads up to now.
    fn tick_once_more(&self) {
        // If the reset value can't be set, the last counts are missing.
        if !self.ticks.is_empty() && self.ticks.set_reset(LAST_TICK).is_ok() {
            std::thread::sleep(LAST_TICKS);
        }
        self.ticks.disable();
    }

    /// By event: sum of values and times of its counters; `None` if none can be read.
    #[must_use]
    pub(crate) fn times(&self) -> Vec<Option<Times>> {
        let by_program = self.events.iter().map(Counters::times);
        let bulk = (self.bulk.iter()).map(|counters| times_of(counters.shared(), None));
        by_program.chain(bulk).collect()
    }

    /// Copies of probed code that traced processes made since the last call.
    #[must_use]
    pub(crate) fn copies(&self) -> Vec<CodeCopy> {
        self.restorer
            .as_ref()
            .map(CopyRestorer::take)
            .unwrap_or_default()
    }

    /// Sets the kernel's code that deals with marks, by which samples and waits within marks are distinguished from the
    /// target's own.
    ///
    /// # Errors
    /// The kernel refused the update.
    pub(crate) fn set_kernel_code(&self, code: &KernelCode) -> Result<(), SessionError> {
        Ok(self.programs.set_kernel_code(code)?)
    }

    /// Records wake-ups and preemptions from now on; returns the time from which all are.
    ///
    /// # Errors
    /// The kernel refused it.
    pub(crate) fn record_waits(&mut self) -> Result<KtimeNs, SessionError> {
        self.programs.record_waits(Waits::Encounters)?;
        Ok(now())
    }

    /// Reason why a process that copies probed code would die; `None` if it would not.
    #[must_use]
    pub(crate) fn restorer_error(&self) -> Option<&str> {
        self.restorer.as_ref().err().map(String::as_str)
    }

    /// Passes on the log messages of the eBPF programs.
    pub(crate) fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}

/// Counts begin marks without recording them, until it is dropped.
pub(crate) struct MarkCount {
    probes: Vec<Probe>,
    /// Declared after the probes: dropping it removes them.
    _keeper: Keeper,
}

/// Probes of a finished count. Dropping this removes them in the background.
///
/// Drop it only after the other probes are placed: the kernel places or removes one at a time, and removing takes
/// long.
/// Source: `event_mutex` in `perf_uprobe_init` and `perf_uprobe_destroy`, kernel/trace/trace_event_perf.c.
#[expect(dead_code, reason = "its end is what it tells")]
pub(crate) struct Spent(std::sync::mpsc::Sender<std::convert::Infallible>);

impl MarkCount {
    /// Stops counting.
    pub(crate) fn end(mut self) -> Spent {
        let (spent, is_dropped) = std::sync::mpsc::channel();
        // Without a new thread it is dropped here.
        let _ = std::thread::Builder::new().spawn(move || {
            detach(&mut self.probes);
            let _ = is_dropped.recv();
            drop(self);
        });
        Spent(spent)
    }
}

impl Session {
    /// Counts begin marks and nothing else: their cookie has no site, and the programs count such marks.
    ///
    /// # Errors
    /// The kernel refused a probe.
    pub(crate) fn count_marks(&self, plan: &SessionPlan<'_>) -> Result<MarkCount, SessionError> {
        let pmu = plan.host.uprobe.as_ref().ok_or(SessionError::NoUprobes)?;
        let sites = plan.probes.probes.iter().flat_map(|probe| &probe.sites);
        let begins = sites.filter(|site| matches!(site.role, Role::Begin | Role::Next));
        let program = self.programs.mark()?;
        let mut keeper = Keeper::start()?;
        let mut probes = Vec::new();
        for site in begins {
            let (site, scope) = (uprobe_site(site), UprobeScope::Everyone);
            let event = open_uprobe(&mut keeper, pmu, &site, scope)?;
            let link = event.attach(program, Some(NO_SITE))?;
            probes.push(Probe::new(event, link));
        }
        Ok(MarkCount {
            probes,
            _keeper: keeper,
        })
    }

    /// Waits for a call at these sites, with a value of the argument if one is given.
    ///
    /// # Errors
    /// The kernel refused a probe.
    pub(crate) fn wait_for(
        &mut self,
        plan: &SessionPlan<'_>,
        sites: &[Site],
        value: Option<u64>,
    ) -> Result<MarkCount, SessionError> {
        let pmu = plan.host.uprobe.as_ref().ok_or(SessionError::NoUprobes)?;
        let trigger = Trigger {
            hits: 0,
            value: value.unwrap_or(0),
            read: sites.first().map_or(ArgProgram::NONE, |it| it.config.id),
            source: value.map_or(id_source::NONE, |_| id_source::ONE).into(),
            unused: 0,
        };
        let program = self.programs.wait_for(&trigger)?;
        let mut keeper = Keeper::start()?;
        let mut probes = Vec::new();
        for site in sites {
            let (site, scope) = (uprobe_site(site), UprobeScope::Everyone);
            let event = open_uprobe(&mut keeper, pmu, &site, scope)?;
            let link = event.attach(program, None)?;
            probes.push(Probe::new(event, link));
        }
        keeper.seal();
        Ok(MarkCount {
            probes,
            _keeper: keeper,
        })
    }

    /// Whether the call that [`Session::wait_for`] waits for has come.
    pub(crate) fn was_called(&self) -> Result<bool, SessionError> {
        Ok(self.programs.calls()? > 0)
    }

    /// Prefixes of the programs' symbols in the kernel.
    #[must_use]
    pub(crate) fn symbols(&self) -> Vec<String> {
        self.programs.symbols()
    }

    /// Drops the right to place probes.
    pub(crate) fn place_no_more(&mut self) {
        self.keeper.seal();
    }

    /// Returns how the keeper process died, if it did.
    #[must_use]
    pub(crate) fn keeper_ended(&self) -> Option<Ended> {
        self.keeper.ended()
    }

    /// The processes traced now.
    ///
    /// # Errors
    /// The kernel refused the read.
    pub(crate) fn traced(&self) -> Result<Vec<Pid>, SessionError> {
        Ok(self.programs.traced()?)
    }
}

/// A probe and its program's link.
struct Probe {
    link: Option<BpfLink>,
    _event: PerfEvent,
}

impl Probe {
    const fn new(event: PerfEvent, link: BpfLink) -> Self {
        Self {
            link: Some(link),
            _event: event,
        }
    }
}

/// Threads that detach programs: the kernel waits for running programs at each detachment, but only once for
/// several at the same time.
const DETACHING: usize = 16;

/// Detaches the programs of probes.
///
/// Source: `synchronize_rcu_tasks_trace` in `perf_event_detach_bpf_prog`, kernel/trace/bpf_trace.c.
fn detach(probes: &mut [Probe]) {
    let each = probes.len().div_ceil(DETACHING).max(1);
    std::thread::scope(|scope| {
        for part in probes.chunks_mut(each) {
            let detach = move || part.iter_mut().for_each(|probe| probe.link = None);
            // If a thread can't be started, its probes are detached with the session.
            let _ = std::thread::Builder::new().spawn_scoped(scope, detach);
        }
    });
}

fn uprobe_site(site: &Site) -> UprobeSite {
    UprobeSite {
        path: site.path.clone(),
        file_offset: site.file_offset,
        at: if site.uretprobe {
            UprobeAt::Return
        } else {
            UprobeAt::Instruction
        },
        semaphore: (site.semaphore_offset != 0).then_some(site.semaphore_offset),
    }
}
