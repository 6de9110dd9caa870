//! One recording in the kernel: programs, rings, events and probes, put up in an order in which
//! nothing is seen half, and taken down by dropping.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use pebs_common::config::{Program, Scope};
use pebs_common::record::{Role, mark_flag};

use perf_event_open_sys::bindings::perf_event_attr;

use crate::binary::process;
use crate::collect::bulk::unseen_events::RestRings;
use crate::collect::bulk::{self, BulkCounters, BulkRing};
use crate::collect::copies::{Copy as CodeCopy, Mender};
use crate::collect::counted::CountedCounters;
use crate::collect::counters::{Counters, Recipe, times_of};
use crate::collect::drain::now;
use crate::collect::programs::{Log, Programs, Settings};
use crate::pmu::attr::{Faults, ResolvedEvent, calibrator, page_faults};
use crate::pmu::counted::{self, CountedEvent};
use crate::pmu::host::{Host, KernelVersion};
use crate::pmu::open::{
    BpfLink, Ended, Keeper, PerfEvent, READ_FORMAT, Target, Times, UprobeAt, UprobePmu,
    UprobeScope, UprobeSite, open_uprobe,
};
use crate::probe::cgroup::Cgroup;
use crate::probe::set::{ProbeSet, Site};
use crate::store::run::EntryClass;
use crate::stream::decode::Interferences;
use crate::units::{Cpu, EventId, KtimeNs, Pid, ResetValue, Tid};

mod cpus;
mod error;
mod rings;

pub(crate) use error::SessionError;
pub(crate) use rings::Rings;

use cpus::{Changed, OpenCpus};
use rings::present_cpus;

/// Samples may fill this much of a ring that they share with marks.
const SAMPLE_SHARE: (u64, u64) = (3, 4);

/// Ticks of the clock calibrator, ns: ten a second on each CPU.
const CLOCK_PERIOD: ResetValue = ResetValue(NonZeroU64::new(100_000_000).expect("not zero"));

/// Its first ticks, ns: before the first sample there has to be one, however short the recording.
const FIRST_CLOCK_PERIOD_NS: u64 = 1_000_000;

/// How long those last: a tick may be late.
const FIRST_CLOCKS: Duration = Duration::from_millis(4);

/// The last tick of an interval of counts, ns: soon.
const LAST_TICK: ResetValue = ResetValue(NonZeroU64::new(500_000).expect("not zero"));

/// How long it may take.
const LAST_TICKS: Duration = Duration::from_millis(1);

/// A cookie that belongs to no site: marks are counted, and go nowhere.
const NO_SITE: u64 = pebs_common::config::MAX_SITES as u64;

/// What to record.
pub(crate) struct SessionPlan<'a> {
    /// The machine.
    pub host: &'a Host,
    pub probes: &'a ProbeSet,
    /// Events, with the attr as granted.
    pub events: &'a [ResolvedEvent],
    /// Events that are counted for each visit.
    pub counted: &'a [CountedEvent],
    /// Length of the intervals in which they are counted as well.
    pub count_interval: Option<Duration>,
    /// Processes to trace; empty: every process that makes a mark.
    pub pids: &'a [Pid],
    /// Of those, the threads to trace alone; empty: all.
    pub threads: &'a [Tid],
    /// Without pids: the cgroup whose processes are traced.
    pub cgroup: Option<&'a Cgroup>,
    /// Size of each CPU's ring, bytes.
    pub ring_bytes: u32,
    /// How samples come.
    pub transport: Transport,
    /// Whether to record switches.
    pub switches: bool,
    /// Whether to record page faults.
    pub page_faults: bool,
    /// What else that comes between threads and their work to record.
    pub interference: Interferences,
    /// Whether to record who wakes and who displaces threads.
    pub encounters: bool,
    /// Frames of a sample's call stack at most, by mode; 0: samples have none.
    pub stack_frames: u32,
    /// Whether events are counted only, with no sample taken.
    pub counting: bool,
    /// Whether the kernel programs log what they do.
    pub log: bool,
}

/// How samples come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A program of ours sees each, and puts it into our rings.
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

/// The recording. Dropping it removes everything from the kernel.
pub(crate) struct Session {
    programs: Programs,
    log: Option<Log>,
    settings: Settings,
    /// Where visits begin.
    begins: Vec<Probe>,
    /// The other probes.
    ends: Vec<Probe>,
    /// Who places them. Below all probes: with it they go.
    keeper: Keeper,
    events: Vec<Counters>,
    bulk: Vec<BulkCounters>,
    /// By event: where samples go that its program does not see.
    rests: Vec<RestRings>,
    /// Until somebody takes them.
    bulk_rings: Vec<BulkRing>,
    /// By event: the reset value in force, once it was changed.
    resets: Vec<Option<ResetValue>>,
    counting: bool,
    faults: Counters,
    clocks: Counters,
    /// Of events that are counted for each visit.
    counted: CountedCounters,
    /// Of the ends of intervals of counts.
    ticks: Counters,
    /// CPUs that events were opened on.
    cpus: OpenCpus,
    /// Restores code that traced processes copied; or why nobody does. Dropped after the probes.
    mender: Result<Mender, String>,
}

/// A bit for each event that is so.
fn by_event(events: &[ResolvedEvent], is: impl Fn(&ResolvedEvent) -> bool) -> u32 {
    let bits = events.iter().enumerate();
    bits.map(|(n, event)| u32::from(is(event)) << n).sum()
}

impl Session {
    /// Loads the programs and makes the rings. Nothing is attached to the target yet.
    ///
    /// # Errors
    /// What the kernel refused.
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
            // A ring of their own may fill up.
            sample_limit: if nmi {
                u64::MAX
            } else {
                u64::from(plan.ring_bytes) * part / whole
            },
            switches: plan.switches,
            page_faults: plan.page_faults,
            ids_behind: plan.probes.reads_behind(),
            item: plan.probes.item.as_ref().map(|it| (it.source, it.config)),
            encounters: plan.encounters,
            interference: plan.interference,
            samples_interrupt: by_program && !nmi,
            events: plan.events.len(),
            counters: counted::counters(plan.counted),
            count_always: counted::always(plan.counted),
            count_intervals: plan.count_interval.is_some(),
            stack_frames: plan.stack_frames,
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
        let mender = Mender::start(&mut programs, plan.probes);
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
            faults: Counters::default(),
            clocks: Counters::default(),
            counted: CountedCounters::default(),
            ticks: Counters::default(),
            cpus: OpenCpus::default(),
            mender,
        };
        Ok((session, rings))
    }

    /// Traces processes and all their children, those that are there and those to come. Gives all
    /// that are there. Tasks must be followed already.
    ///
    /// # Errors
    /// What the kernel refused; a process that is not there.
    pub(crate) fn trace(&self, pids: &[Pid]) -> Result<Vec<Pid>, SessionError> {
        let mut traced: Vec<Pid> = Vec::new();
        let mut found: Vec<Pid> = pids.to_vec();
        // A child that a traced process starts is added by the kernel program; one that was
        // started before is found here, whoever it was that started it.
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
        if let Some(gone) = pids.iter().find(|pid| !process::exists(**pid)) {
            return Err(SessionError::Ended(*gone));
        }
        Ok(traced)
    }

    /// Attaches the programs that follow tasks: forks are followed from now on.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn follow_tasks(&mut self) -> Result<(), SessionError> {
        Ok(self.programs.attach_tasks()?)
    }

    /// Has a program see where the library with the items' ids lies in each process that loads it, and tells where it
    /// does in those that have.
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

    /// Has an event begin with another reset value than its own.
    pub(crate) fn begin_with(&mut self, id: EventId, reset: ResetValue) {
        self.resets[usize::from(id.0)] = Some(reset);
    }

    /// Opens every event for every target, not yet counting, and the calibrator if one is needed.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn open_events(&mut self, plan: &SessionPlan<'_>) -> Result<(), SessionError> {
        // Before what is to be opened anew on a CPU that goes and comes meanwhile.
        self.cpus.look(&plan.host.online);
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
        if plan.page_faults {
            self.faults = self.open_faults(plan, &plan.host.online)?;
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
        let attrs = |target| self.attrs(event, id, target);
        let recipe = Recipe {
            name: &event.name,
            attrs: &attrs,
            program: self.programs.sample(id)?,
            rest: self.rest(event, id),
            only: plan.threads,
        };
        if !plan.pids.is_empty() {
            return Counters::on_processes(&recipe, plan.pids);
        }
        let allowed = |cpu: &&Cpu| event.counts_on(**cpu);
        Counters::on_cpus(&recipe, cpus.iter().filter(allowed))
    }

    /// The same, and first rings for what the program does not see: threads may come to any CPU.
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

    /// Where samples go that the program of an event does not see; `None` if it sees all.
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
        let counts_lost = plan.host.at_least(KernelVersion(6, 0));
        let attr = |target| {
            let mut attr = event.bulk_attr(target, plan.ring_bytes);
            if !counts_lost {
                attr.read_format = READ_FORMAT;
            }
            if !plan.threads.is_empty() {
                attr.set_inherit(0);
            }
            attr
        };
        let recipe = bulk::Recipe {
            id,
            name: &event.name,
            attr: &attr,
            ring_bytes: plan.ring_bytes,
            buffered: event.is_buffered(plan.host),
            only: plan.threads,
        };
        let mut cpus = match plan.pids {
            [] => cpus.to_vec(),
            // Threads may come to a CPU that is offline now.
            _ => present_cpus(plan.host),
        };
        cpus.retain(|cpu| event.counts_on(*cpu));
        let (counters, rings) = if plan.pids.is_empty() {
            bulk::on_cpus(&recipe, &cpus)?
        } else {
            bulk::on_processes(&recipe, plan.pids, &cpus)?
        };
        self.bulk_rings.extend(rings);
        Ok(counters)
    }

    /// The rings of the bulk transport that are new, for the draining thread.
    pub(crate) fn take_bulk_rings(&mut self) -> Vec<BulkRing> {
        std::mem::take(&mut self.bulk_rings)
    }

    /// Settings of an event with the reset value in force.
    fn attrs(&self, event: &ResolvedEvent, id: EventId, target: Target) -> Vec<perf_event_attr> {
        let mut attrs = event.attrs_for(target);
        if let Some(reset) = self.resets.get(usize::from(id.0)).copied().flatten() {
            for attr in &mut attrs {
                attr.__bindgen_anon_1.sample_period = reset.0.get();
            }
        }
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
        attrs
    }

    fn open_faults(&self, plan: &SessionPlan<'_>, cpus: &[Cpu]) -> Result<Counters, SessionError> {
        let mut all = Counters::default();
        for &which in Faults::needed(plan.interference) {
            let recipe = Recipe {
                name: which.name(),
                attrs: &|target| vec![page_faults(which, target)],
                program: self.programs.page_fault(which)?,
                rest: None,
                only: plan.threads,
            };
            all.extend(if plan.pids.is_empty() {
                Counters::on_cpus(&recipe, cpus)?
            } else {
                Counters::on_processes(&recipe, plan.pids)?
            });
        }
        Ok(all)
    }

    /// Changes the reset value of an event for all threads and CPUs, those to come included.
    ///
    /// # Errors
    /// What the kernel refused; some counters may then have the new value already.
    pub(crate) fn set_reset(
        &mut self,
        plan: &SessionPlan<'_>,
        id: EventId,
        reset: ResetValue,
    ) -> Result<(), SessionError> {
        let index = usize::from(id.0);
        self.resets[index] = Some(reset);
        if plan.pids.is_empty() {
            return Ok(self.events[index].set_reset(reset)?);
        }
        let pids = self.programs.traced()?;
        let mut counters = std::mem::take(&mut self.events[index]);
        let event = &plan.events[index];
        let attrs = |target| self.attrs(event, id, target);
        let changed = self.programs.sample(id).map_err(SessionError::from);
        let changed = changed.and_then(|program| {
            let recipe = Recipe {
                name: &event.name,
                attrs: &attrs,
                program,
                rest: self.rest(event, id),
                only: plan.threads,
            };
            counters.change(&recipe, &pids, reset)
        });
        self.events[index] = counters;
        changed
    }

    /// A slow clock on each CPU whose program reads both kernel clocks, if they have to be compared.
    fn open_clocks(&self, cpus: &[Cpu]) -> Result<Counters, SessionError> {
        if self.settings.perf_clock_events == 0 {
            return Ok(Counters::default());
        }
        let recipe = Recipe {
            name: "clock calibrator",
            attrs: &|_| vec![calibrator(FIRST_CLOCK_PERIOD_NS)],
            program: self.programs.clock()?,
            rest: None,
            only: &[],
        };
        Counters::on_cpus(&recipe, cpus)
    }

    /// Clocks whose ticks end the intervals of counts.
    fn open_ticks(&self, plan: &SessionPlan<'_>, cpus: &[Cpu]) -> Result<Counters, SessionError> {
        let Some(interval) = plan.count_interval else {
            return Ok(Counters::default());
        };
        let recipe = Recipe {
            name: "clock of intervals",
            attrs: &|_| vec![calibrator(interval.as_nanos() as u64)],
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

    /// Starts the counters that programs read, and gives the instant at which the first interval of counts begins.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn start_counting(&self) -> Result<KtimeNs, SessionError> {
        self.counted.enable()?;
        let begin = now();
        self.ticks.enable()?;
        Ok(begin)
    }

    /// Records switches, attaches the probes, ends before begins, and starts sampling. Counters are started before. Somebody must drain the rings
    /// from now on.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn start(&mut self, plan: &SessionPlan<'_>) -> Result<(), SessionError> {
        self.clocks.enable()?;
        let begin = Instant::now();
        self.programs.attach_switches()?;
        let pmu = plan.host.uprobe.as_ref().ok_or(SessionError::NoUprobes)?;
        self.find_library(plan, pmu)?;
        let sites = plan.probes.probes.iter().flat_map(|probe| &probe.sites);
        let begins = |(_, site): &(u64, &Site)| matches!(site.role, Role::Begin | Role::Next);
        let (begins, ends): (Vec<_>, Vec<_>) = (0..).zip(sites).partition(begins);
        let program = self.programs.mark()?;
        // A visit that begins must be able to end.
        for (sites, probes) in [(ends, &mut self.ends), (begins, &mut self.begins)] {
            for (cookie, site) in sites {
                let (site, scope) = (uprobe_site(site), UprobeScope::Everyone);
                let event = open_uprobe(&mut self.keeper, pmu, &site, scope)?;
                let link = event.attach(program, Some(cookie))?;
                probes.push(Probe::new(event, link));
            }
        }
        if self.settings.perf_clock_events != 0 {
            std::thread::sleep(FIRST_CLOCKS.saturating_sub(begin.elapsed()));
            self.clocks.set_reset(CLOCK_PERIOD)?;
        }
        for counters in self.events.iter().chain([&self.faults]) {
            counters.enable()?;
        }
        self.bulk.iter().try_for_each(BulkCounters::enable)?;
        Ok(())
    }

    /// Opens what is open on each CPU on those that came online since the start, and gives these CPUs; closes what
    /// the kernel ended on those that went offline. New rings are to be taken afterwards.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn follow_cpus(
        &mut self,
        plan: &SessionPlan<'_>,
        online: &[Cpu],
    ) -> Result<Vec<Cpu>, SessionError> {
        // What the kernel refuses now it is not asked for again.
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
        // Counters of threads go along, or are there for each CPU that may come.
        if !new.is_empty() && plan.pids.is_empty() {
            for n in 0..self.events.len() {
                let opened = self.open_with_rest(plan, EventId(n as u8), &new)?;
                opened.enable()?;
                self.events[n].extend(opened);
            }
            for n in 0..self.bulk.len() {
                let opened = self.open_bulk(plan, EventId(n as u8), &new)?;
                opened.enable()?;
                self.bulk[n].extend(opened);
            }
            if plan.page_faults {
                let opened = self.open_faults(plan, &new)?;
                opened.enable()?;
                self.faults.extend(opened);
            }
        }
        Ok(new)
    }

    /// Stops sampling and recording: nothing is marked any more, begins first. The probes stay until the session is
    /// dropped, which takes long where there are many: the kernel waits at each.
    pub(crate) fn stop(&mut self) {
        self.tick_once_more();
        for counters in self.events.iter().chain([&self.faults]) {
            counters.disable();
        }
        self.bulk.iter().for_each(BulkCounters::disable);
        self.clocks.disable();
        detach(&mut self.begins);
        detach(&mut self.ends);
        // The last look at the rings comes before that at the counters: nothing may come in between.
        self.programs.detach_tracepoints();
        self.counted.disable();
    }

    /// Has the counts of threads that run read up to now.
    fn tick_once_more(&self) {
        // What can't be set goes without its last counts.
        if !self.ticks.is_empty() && self.ticks.set_reset(LAST_TICK).is_ok() {
            std::thread::sleep(LAST_TICKS);
        }
        self.ticks.disable();
    }

    /// By event: value and times of all its counters together; `None` where none can be read.
    #[must_use]
    pub(crate) fn times(&self) -> Vec<Option<Times>> {
        let by_program = self.events.iter().map(Counters::times);
        let bulk = (self.bulk.iter()).map(|counters| times_of(counters.iter(), None));
        by_program.chain(bulk).collect()
    }

    /// Code with probes in it that traced processes copied since the last look.
    #[must_use]
    pub(crate) fn copies(&self) -> Vec<CodeCopy> {
        self.mender.as_ref().map(Mender::take).unwrap_or_default()
    }

    /// Tells waits within marks from those of the target: by the kernel's function that deals with breakpoints.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn tell_breakpoints(&self, function: [u64; 2]) -> Result<(), SessionError> {
        Ok(self.programs.set_breakpoints(function)?)
    }

    /// Why a process that copies probed code would die; `None` if it would not.
    #[must_use]
    pub(crate) fn no_mender(&self) -> Option<&str> {
        self.mender.as_ref().err().map(String::as_str)
    }

    /// Passes on what the kernel programs logged.
    pub(crate) fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}

/// Begin marks that are counted and not recorded, until it is dropped.
pub(crate) struct MarkCount {
    probes: Vec<Probe>,
    /// Below them: with it they go.
    _keeper: Keeper,
}

/// Probes of a count that is over. Once this is dropped they are taken away, and nobody waits for that.
///
/// Not before others are placed: the kernel takes one away or places one at a time, and taking away takes long.
/// Source: `event_mutex` in `perf_uprobe_init` and `perf_uprobe_destroy`, kernel/trace/trace_event_perf.c.
#[expect(dead_code, reason = "its end is what it tells")]
pub(crate) struct Spent(std::sync::mpsc::Sender<std::convert::Infallible>);

impl MarkCount {
    /// Counts no more.
    pub(crate) fn end(mut self) -> Spent {
        let (spent, is_dropped) = std::sync::mpsc::channel();
        // Where there can be no thread, it is dropped here.
        let _ = std::thread::Builder::new().spawn(move || {
            detach(&mut self.probes);
            let _ = is_dropped.recv();
            drop(self);
        });
        Spent(spent)
    }
}

impl Session {
    /// Has begin marks counted, and nothing else: they come to no site, and programs count that.
    ///
    /// # Errors
    /// What the kernel refused.
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

    /// Beginnings of the symbols that the kernel gives the programs.
    #[must_use]
    pub(crate) fn symbols(&self) -> Vec<String> {
        self.programs.symbols()
    }

    /// Gives up the right to place probes.
    pub(crate) fn place_no_more(&mut self) {
        self.keeper.seal();
    }

    /// How the process ended that keeps the probes, if it did.
    #[must_use]
    pub(crate) fn keeper_ended(&self) -> Option<Ended> {
        self.keeper.ended()
    }

    /// The processes that are traced now.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn traced(&self) -> Result<Vec<Pid>, SessionError> {
        Ok(self.programs.traced()?)
    }
}

/// A probe, and what it runs.
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

/// Threads that take programs off probes: for each the kernel waits until all that run are over, of many at once but once.
const DETACHING: usize = 16;

/// Has probes run nothing any more.
///
/// Source: `synchronize_rcu_tasks_trace` in `perf_event_detach_bpf_prog`, kernel/trace/bpf_trace.c.
fn detach(probes: &mut [Probe]) {
    let each = probes.len().div_ceil(DETACHING).max(1);
    std::thread::scope(|scope| {
        for part in probes.chunks_mut(each) {
            let detach = move || part.iter_mut().for_each(|probe| probe.link = None);
            // Those of a thread that can't be started go with the session.
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
