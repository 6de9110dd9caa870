//! Measures the cost of a mark, a page fault and a sample on this machine, in this process, before a recording.
//!
//! Marks: an empty function of this program is called with and without a probe on it. Samples: a loop of known
//! work, which uses the first-level cache as programs do, runs with and without sampling, or with and without its
//! page faults being counted. All use the real programs, with rings of their own. The whole takes well below a
//! second and affects no other process.
//!
//! Assumption: a mark or sample costs the target as much as it does here; of the target's cache lines that it
//! evicts, only those of the first level are counted.
#![expect(
    unsafe_code,
    reason = "calls functions written in assembly, to know their instructions"
)]

use std::hint::black_box;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pebs_common::config::{ArgProgram, MAX_ARGS, MAX_CPUS, MAX_EVENTS, SiteConfig, Step};
use pebs_common::record::Role;
use serde::{Deserialize, Serialize};

use super::pause;
use crate::collect::clock::now;
use crate::collect::error::SessionError;
use crate::collect::kernel_map;
use crate::collect::programs::{Programs, Settings, StackLimits};
use crate::estimate::Pause;
use crate::estimate::cold::Coldness;
use crate::failure::Failure;
use crate::pmu::attr::{EventClass, Faults, ResolvedEvent, page_faults};
use crate::pmu::counted::{self, CountedEvent};
use crate::pmu::jitter::Clocks;
use crate::pmu::open::{
    BpfLink, Keeper, PerfEvent, UprobeAt, UprobeScope, UprobeSite, open_uprobe,
};
use crate::pmu::sysfs::UprobePmu;
use crate::pmu::target::Target;
use crate::store::run::EntryClass;
use crate::stream::clock::Clock;
use crate::stream::decode::{Body, Record, RecordKinds, Unordered, decode};
use crate::stream::sample::RawSample;
use crate::units::{Cpu, EventId, KtimeNs, Pid, Tid};

pub(crate) mod counts;
pub(crate) mod measured;
pub(crate) mod saved;
pub(crate) mod speed;
pub(crate) mod sweep;
pub(crate) mod with_options;

use saved::SavedMarks;
use with_options::{ExtraCosts, Extras, OnOneCpu};

/// Calls in a round: their marks fit into the ring.
const CALLS: u32 = 100;
/// Rounds, of which the faster ones count, as any disturbance makes a round slower. Short, so that some are
/// undisturbed on a busy machine.
const ROUNDS: u32 = 12;
/// Times that the pause of a sample is measured.
const PAUSE_ROUNDS: u32 = 3;
/// Bytes of the ring.
const RING_BYTES: u32 = 64 << 10;
/// The same where samples copy stacks: those of a round, which are more than a hundred. A sample without room costs less.
const RING_OF_COPIES: u32 = 4 << 20;
/// Pages that are touched in a round.
const PAGES: usize = 256;
/// Minimum samples for their cost to be known.
const LEAST_SAMPLES: f64 = 10.0;
/// The largest reset value of clocks with which there are enough samples in a short time, ns.
const SHORT_CLOCK: u64 = 20_000;
/// Number of marks that are apart, and of those right after another.
const APART: u32 = 150;
/// Words used by a loop of known work: they fit the first-level cache of any CPU.
const TABLE_WORDS: usize = 4096;
/// Work in a round of sampling.
const WORK: Duration = Duration::from_millis(1);

unsafe extern "C" {
    fn pebs_calibrate_emulated();
    fn pebs_calibrate_apart();
    fn pebs_calibrate_single_step();
    fn pebs_calibrate_returns();
}

/// Unit costs, ns; `None` if not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnitCosts {
    /// A mark at an instruction that the kernel emulates.
    pub emulated_ns: Option<f64>,
    /// A mark at an instruction that is single-stepped.
    pub single_step_ns: Option<f64>,
    /// A mark by a uretprobe, without its entry.
    pub uretprobe_ns: Option<f64>,
    /// Additional time of any of these if the thread slept since the last mark.
    pub apart: Option<Apart>,
    /// Time that the program of a mark at a single-stepped instruction had run when it read the clock, right after
    /// another: single steps leave the caches colder.
    pub single_step_ran_ns: Option<f64>,
    /// Cost of reading the counters of events that are counted for each visit.
    pub count_ns: Option<f64>,
    /// Cost of a tick, the end of an interval of counts, at which the same counters are read: an interrupt of its own.
    pub tick_ns: Option<f64>,
    /// Cost of counting a page fault.
    pub page_fault_ns: Option<f64>,
    /// Cost of a switch.
    pub switch: Option<SwitchCosts>,
    /// Cost of a sample of the run's first event, if that is a clock, an event that occurs all the time while code
    /// runs, or page faults.
    pub sample_ns: Option<f64>,
    /// The same of each further event.
    pub more_samples_ns: [Option<f64>; MAX_EVENTS - 1],
    /// Time that a sample of it stops the code, and when in that time the sample's time is read.
    pub pause: Option<Pause>,
    /// Costs of the `--with` data.
    pub extras: ExtraCosts,
}

/// Cost of a switch out or in, with its record, by the clocks that stop or start there, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwitchCosts {
    /// Several clocks of the thread; or the counters of another event.
    pub several_ns: f64,
    /// One clock of the thread.
    pub one_ns: f64,
    /// No clock of the thread.
    pub none_ns: f64,
}

impl SwitchCosts {
    /// Cost of a switch with these clocks, ns.
    #[must_use]
    pub(crate) const fn of(&self, clocks: Clocks) -> f64 {
        match clocks {
            Clocks::Several => self.several_ns,
            Clocks::One => self.one_ns,
            Clocks::OfCpus => self.none_ns,
        }
    }

    /// The costs as they were measured: more clocks cost no less, though measured times may differ the other way.
    pub(crate) fn ordered(none_ns: f64, one_ns: f64, several_ns: f64) -> Self {
        let none_ns = none_ns.max(0.0);
        let one_ns = one_ns.max(none_ns);
        Self {
            several_ns: several_ns.max(one_ns),
            one_ns,
            none_ns,
        }
    }

    /// The costs as `of` changes them.
    pub(crate) fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self {
            several_ns: of(self.several_ns),
            one_ns: of(self.one_ns),
            none_ns: of(self.none_ns),
        }
    }
}

/// The costs to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Classes of the instructions that are probed.
    pub classes: &'a [EntryClass],
    /// Whether there are uretprobes.
    pub uretprobes: bool,
    /// Whether page faults are counted.
    pub page_faults: bool,
    /// Whether switches are recorded.
    pub switches: bool,
    /// The sampled event, to measure how long a sample stops the code.
    pub event: Option<&'a ResolvedEvent>,
    /// Whether to measure the cost of its samples, too.
    pub sample: bool,
    /// Further events, to measure the cost of their samples.
    pub more: [Option<&'a ResolvedEvent>; MAX_EVENTS - 1],
    pub stacks: StackLimits,
    /// The `--with` data.
    pub extras: Extras,
}

/// The programs needed for measuring, being loaded on a thread of their own.
pub(crate) struct Preparing(JoinHandle<Result<Bench, SessionError>>);

/// Loads the programs needed for measuring, which takes much of the total time and is not measured itself.
#[must_use]
pub(crate) fn prepare(pmu: &UprobePmu, stacks: StackLimits, extras: Extras) -> Preparing {
    let pmu = pmu.clone();
    let bytes = if stacks.copied > 0 && !stacks.by_pointers {
        RING_OF_COPIES
    } else {
        RING_BYTES
    };
    let load = move || Bench::new(&pmu, bytes, stacks, extras);
    Preparing(std::thread::spawn(load))
}

/// Measures the wanted costs; those that fail are `None`, and why the first one did is the second value.
#[must_use]
pub(crate) fn measure(pmu: &UprobePmu, wanted: Wanted<'_>) -> (UnitCosts, Option<String>) {
    measure_with(prepare(pmu, wanted.stacks, wanted.extras), wanted)
}

/// The same with prepared programs, for the same call stacks and extra data.
#[must_use]
pub(crate) fn measure_with(prepared: Preparing, wanted: Wanted<'_>) -> (UnitCosts, Option<String>) {
    let mut bench = match prepared.0.join() {
        Ok(Ok(bench)) => bench,
        Ok(Err(error)) => {
            let why = Failure::from(error).to_string();
            return (UnitCosts::default(), Some(why));
        }
        Err(_) => {
            let why = "the thread that loads the programs panicked: this is a bug".to_owned();
            return (UnitCosts::default(), Some(why));
        }
    };
    let costs = bench.costs(wanted);
    let why = bench.failure.take();
    // The kernel waits at each probe that is taken away.
    std::thread::spawn(move || drop(bench));
    (costs, why)
}

impl Bench {
    fn costs(&mut self, wanted: Wanted<'_>) -> UnitCosts {
        let wants = |class| wanted.classes.contains(&class);
        let entry = |function| self.mark(function, UprobeAt::Instruction);
        let mark = |class, function| wants(class).then(|| entry(function)).flatten();
        let uretprobe = || self.mark(pebs_calibrate_returns, UprobeAt::Return);
        let single_step_ns = mark(EntryClass::SingleStep, pebs_calibrate_single_step);
        // Those of the last round.
        let stepped = single_step_ns.map_or_else(Vec::new, |_| self.take_marks());
        UnitCosts {
            emulated_ns: mark(EntryClass::Emulated, pebs_calibrate_emulated),
            single_step_ns,
            single_step_ran_ns: usual(stepped.iter().map(|(_, ran_ns)| f64::from(*ran_ns))),
            uretprobe_ns: wanted.uretprobes.then(uretprobe).flatten(),
            count_ns: None,
            tick_ns: None,
            apart: (!wanted.classes.is_empty()).then(|| self.apart()).flatten(),
            page_fault_ns: wanted.page_faults.then(|| self.page_fault()).flatten(),
            sample_ns: wanted
                .event
                .filter(|_| wanted.sample)
                .and_then(|event| self.sample(event)),
            more_samples_ns: wanted.more.map(|event| self.sample(event?)),
            pause: wanted.event.and_then(|event| self.pause(event)),
            extras: self.extras(wanted.extras),
            switch: wanted.switches.then(|| self.switch(wanted.event)).flatten(),
        }
    }
}

impl UnitCosts {
    /// Replaces `costs` where they are known here.
    pub fn fill(&self, costs: &mut Self) {
        SavedMarks::from(self).apply(costs);
        costs.switch = self.switch.or(costs.switch);
        costs.sample_ns = self.sample_ns.or(costs.sample_ns);
        let more = self.more_samples_ns.iter().zip(&mut costs.more_samples_ns);
        more.for_each(|(known, cost)| *cost = known.or(*cost));
        costs.pause = self.pause.or(costs.pause);
        let waits = &mut costs.extras.encounter_ns;
        *waits = self.extras.encounter_ns.or(*waits);
        costs.count_ns = self.count_ns.or(costs.count_ns);
        costs.tick_ns = self.tick_ns.or(costs.tick_ns);
    }

    /// Cost of a sample of an event, ns.
    #[must_use]
    pub fn of_sample(&self, event: EventId) -> Option<f64> {
        match usize::from(event.0) {
            0 => self.sample_ns,
            n => self.more_samples_ns.get(n - 1).copied().flatten(),
        }
    }

    /// Cost of a mark at a site, as programs pay it that sleep between marks, ns.
    #[must_use]
    pub fn of_mark(&self, class: EntryClass, uretprobe: bool) -> Option<f64> {
        let more = self.apart.map_or(0.0, |it| it.extra_ns());
        Some(self.of_warm_mark(class, uretprobe)? + more)
    }

    /// Cost of a mark right after another one, ns.
    #[must_use]
    pub fn of_warm_mark(&self, class: EntryClass, uretprobe: bool) -> Option<f64> {
        let more = self.count_ns.unwrap_or(0.0);
        Some(self.next_to_another(class, uretprobe)? + more)
    }

    /// Cost of a mark right after another one, ns.
    const fn next_to_another(&self, class: EntryClass, uretprobe: bool) -> Option<f64> {
        match class {
            _ if uretprobe => self.uretprobe_ns,
            EntryClass::Emulated | EntryClass::InProgram => self.emulated_ns,
            EntryClass::SingleStep => self.single_step_ns,
        }
    }

    /// Cost of a mark before and after its time is read, ns.
    ///
    /// The minimum: that of a mark right after another one. The time is read about half way through a mark without
    /// single step; single-stepping an instruction comes after all of that.
    /// Source: `handle_swbp`, kernel/events/uprobes.c.
    #[must_use]
    pub fn parts_of_mark(&self, class: EntryClass, uretprobe: bool) -> Option<(f64, f64)> {
        let whole = self.next_to_another(class, uretprobe)?;
        let without_step = match class {
            EntryClass::SingleStep if !uretprobe => self.emulated_ns?.min(whole),
            _ => whole,
        };
        // Counters are read before.
        let before = without_step / 2.0 + self.count_ns.unwrap_or(0.0);
        Some((before, whole - without_step / 2.0))
    }
}

/// Additional time of a mark if the thread slept since the last one, and how its program shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Apart {
    /// Before the mark's time is read, ns.
    pub before_ns: f64,
    /// After that, ns.
    pub after_ns: f64,
    /// Time that the mark's program had run when it read the clock, ns: right after another mark, and after a sleep.
    pub ran_ns: [f64; 2],
}

impl Apart {
    /// Least difference of the program's times that is significant, ns: they are rounded to as much.
    const LEAST_NS: f64 = 8.0;

    /// Before and after the mark's time, ns.
    #[must_use]
    pub fn extra_ns(&self) -> f64 {
        self.before_ns + self.after_ns
    }

    pub(crate) fn times(&self, scale: f64) -> Self {
        Self {
            before_ns: self.before_ns * scale,
            after_ns: self.after_ns * scale,
            ran_ns: self.ran_ns.map(|ns| ns * scale),
        }
    }

    /// Relation of a mark's time to that of its program; `single_step_ran_ns`: time of the program of a single-stepped mark
    /// right after another. Default: no mark takes longer than one right after another.
    #[must_use]
    pub fn coldness(&self, single_step_ran_ns: Option<f64>) -> Coldness {
        let [warm_ns, apart_ns] = self.ran_ns;
        let longer = apart_ns - warm_ns;
        if longer < Self::LEAST_NS {
            return Coldness::default();
        }
        Coldness {
            warm_ns: [warm_ns, single_step_ran_ns.unwrap_or(0.0)],
            before: self.before_ns / longer,
            after: self.after_ns / longer,
        }
    }
}

type Function = unsafe extern "C" fn();

/// Our own programs and ring.
pub(crate) struct Bench {
    pmu: UprobePmu,
    programs: Programs,
    ring: std::cell::RefCell<crate::collect::ring::Ring>,
    /// Probes on functions that are not called any more.
    probes: std::cell::RefCell<Vec<(BpfLink, PerfEvent)>>,
    /// The process that places them.
    keeper: std::cell::RefCell<Keeper>,
    /// Why the first measurement that failed did.
    failure: std::cell::RefCell<Option<String>>,
}

impl Bench {
    fn new(
        pmu: &UprobePmu,
        ring_bytes: u32,
        stacks: StackLimits,
        extras: Extras,
    ) -> Result<Self, SessionError> {
        Self::with(pmu, ring_bytes, (stacks, None), extras)
    }

    /// A bench whose marks and ticks read the counters of these events.
    fn counting(pmu: &UprobePmu, counted: &[CountedEvent]) -> Result<Self, SessionError> {
        Self::with(
            pmu,
            RING_BYTES,
            (StackLimits::default(), Some(counted)),
            Extras::default(),
        )
    }

    fn with(
        pmu: &UprobePmu,
        ring_bytes: u32,
        (stacks, counting): (StackLimits, Option<&[CountedEvent]>),
        extras: Extras,
    ) -> Result<Self, SessionError> {
        let counted = counting.unwrap_or_default();
        let settings = Settings {
            counters: counted::counters(counted),
            count_always: counted::always(counted),
            count_intervals: counting.is_some(),
            stacks,
            kinds: RecordKinds {
                switches: true,
                page_faults: true,
                encounters: extras.encounters,
                encounters_later: extras.waits_later,
                interference: extras.interference,
            },
            ..Settings::default()
        };
        let keeper = Keeper::start()?;
        let programs = Programs::load(&settings)?;
        programs.trace(Pid(std::process::id()))?;
        let site = SiteConfig {
            probe: 0,
            role: Role::Begin as u8,
            args: 0,
            has_id: 0,
            payload: 0,
            condition: 0,
            may_lack: 0,
            sp_adjust: 0,
            step: Step::NONE,
            goid: 0,
            id: ArgProgram::NONE,
            count: ArgProgram::NONE,
            named: [ArgProgram::NONE; MAX_ARGS],
            lengths: [ArgProgram::NONE; MAX_ARGS],
        };
        programs.set_site(0, &site)?;
        let no_ring = |source| SessionError::Ring {
            bytes: ring_bytes,
            cpu: 0,
            source,
        };
        let fd = kernel_map::create_ring(ring_bytes).map_err(no_ring)?;
        let (marks, samples) = (programs.map("RINGS")?, programs.map("SAMPLE_RINGS")?);
        // One ring serves whichever CPU we run on.
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32;
        let all: Vec<_> = (0..cpus.clamp(64, MAX_CPUS))
            .map(|cpu| (cpu, fd.as_fd()))
            .collect();
        kernel_map::set_maps(marks, &all).map_err(no_ring)?;
        kernel_map::set_maps(samples, &all).map_err(no_ring)?;
        let ring = crate::collect::ring::Ring::map(fd, ring_bytes as usize).map_err(no_ring)?;
        Ok(Self {
            pmu: pmu.clone(),
            programs,
            ring: std::cell::RefCell::new(ring),
            probes: std::cell::RefCell::default(),
            keeper: std::cell::RefCell::new(keeper),
            failure: std::cell::RefCell::default(),
        })
    }

    /// Loads programs for samples without call stacks, and a ring of `ring_bytes`; `None` if the kernel refuses
    /// one.
    pub(crate) fn load(pmu: &UprobePmu, ring_bytes: u32) -> Option<Self> {
        Self::new(pmu, ring_bytes, StackLimits::default(), Extras::default()).ok()
    }

    /// The program for the samples of an event, to be attached to it.
    pub(crate) fn sample_program(&self) -> Option<BorrowedFd<'_>> {
        self.programs.sample(EventId(0)).ok()
    }

    /// Takes the samples out of the ring.
    pub(crate) fn take_samples(&self) -> Vec<RawSample> {
        let samples = self.take().samples.into_iter();
        samples.map(|(.., sample)| sample).collect()
    }

    fn take(&self) -> Unordered {
        let mut bytes = Vec::new();
        self.ring.borrow_mut().take(&mut bytes);
        let mut inbox = Unordered::default();
        decode(Cpu(0), &bytes, &mut Clock::new(KtimeNs(0)), &mut inbox);
        inbox
    }

    /// The value; `None` after an error, of which the first is kept.
    pub(super) fn kept<T, E>(&self, result: Result<T, E>) -> Option<T>
    where
        Failure: From<E>,
    {
        let failed = |error: E| {
            let mut failure = self.failure.borrow_mut();
            failure.get_or_insert_with(|| Failure::from(error).to_string());
        };
        result.map_err(failed).ok()
    }

    /// Empties the ring, so that the next round's records find room.
    fn empty(&self) {
        self.ring.borrow_mut().take(&mut Vec::new());
    }

    /// ns of a mark at a function's first instruction, or at its return; each function is measured once.
    fn mark(&self, function: Function, at: UprobeAt) -> Option<f64> {
        let plain = self.call_ns(function);
        let probe = self.attach(function, at)?;
        let probed = self.call_ns(function);
        self.probes.borrow_mut().push(probe);
        Some((probed - plain).max(0.0))
    }

    /// Compares marks after a sleep with marks right after another.
    fn apart(&self) -> Option<Apart> {
        let function: Function = pebs_calibrate_apart;
        // So that nothing else runs on this CPU while it sleeps.
        let _here = OnOneCpu::stay();
        let calls = std::cell::RefCell::new(Vec::new());
        let call = || {
            let begin = now();
            // SAFETY: the function is ours, takes nothing, and returns.
            unsafe { black_box(function)() };
            calls.borrow_mut().push((begin.0, now().0));
        };
        let close = || (0..APART).for_each(|_| call());
        let apart = || Self::wakes(None, APART, call);
        // Reading the clock takes longer after a sleep, too.
        let plain = [&close as &dyn Fn(), &apart].map(|round| {
            round();
            let calls = calls.take();
            usual(calls.iter().map(|(begin, end)| (end - begin) as f64))
        });
        let probe = self.attach(function, UprobeAt::Instruction)?;
        let of = |round: &dyn Fn(), plain: f64| {
            self.empty();
            round();
            let calls = calls.take();
            let marks = self.take_marks();
            let with_mark = || {
                let mark_of = |begin: u64, end: u64| {
                    let at = marks.partition_point(|(time, _)| *time < begin);
                    marks.get(at).filter(|(time, _)| *time <= end)
                };
                let all = calls.iter();
                all.filter_map(move |(begin, end)| Some((*begin, *mark_of(*begin, *end)?, *end)))
            };
            // The clock is read half before and half after.
            let before = with_mark().map(|(begin, (time, _), _)| (time - begin) as f64);
            let after = with_mark().map(|(_, (time, _), end)| (end - time) as f64);
            let before = usual(before)? - plain / 2.0;
            Some([
                before,
                usual(after)? - plain / 2.0,
                usual(with_mark().map(|(_, (_, ran_ns), _)| f64::from(ran_ns)))?,
            ])
        };
        let close = of(&close, plain[0]?)?;
        let apart = of(&apart, plain[1]?)?;
        self.probes.borrow_mut().push(probe);
        Some(Apart {
            before_ns: (apart[0] - close[0]).max(0.0),
            after_ns: (apart[1] - close[1]).max(0.0),
            ran_ns: [close[2], apart[2]],
        })
    }

    /// Takes the marks out of the ring: times, ns, and how long their programs had run.
    fn take_marks(&self) -> Vec<(u64, u16)> {
        let mark = |record: &Record| match record.body {
            Body::Mark { ran_ns, .. } => Some((record.time.0.cast_unsigned(), ran_ns?)),
            _ => None,
        };
        self.take().records.iter().filter_map(mark).collect()
    }

    fn attach(&self, function: Function, at: UprobeAt) -> Option<(BpfLink, PerfEvent)> {
        let (path, file_offset) = place_of(function as usize as u64)?;
        let site = UprobeSite {
            path,
            file_offset,
            at,
            semaphore: None,
        };
        let scope = UprobeScope::Process(Pid(std::process::id()));
        let mut keeper = self.keeper.borrow_mut();
        let event = self.kept(open_uprobe(&mut keeper, &self.pmu, &site, scope))?;
        let program = self.kept(self.programs.mark())?;
        let link = self.kept(event.attach(program, Some(0)))?;
        Some((link, event))
    }

    /// Time of a call, ns: the lower quartile of the rounds, as the median is that of a disturbed round if half of
    /// them were disturbed.
    fn call_ns(&self, function: Function) -> f64 {
        // SAFETY: the function is ours, takes nothing, and returns.
        let call = || unsafe { black_box(function)() };
        let round = || {
            self.empty();
            timed(|| (0..CALLS).for_each(|_| call()))
        };
        let mut rounds: Vec<Duration> = (0..ROUNDS).map(|_| round()).collect();
        rounds.sort_unstable();
        rounds[rounds.len() / 4].as_nanos() as f64 / f64::from(CALLS)
    }

    /// Cost of a sample, ns, from the fastest rounds with and without sampling. It does not depend on the reset
    /// value, so a small one is used, for many samples.
    fn sample(&self, event: &ResolvedEvent) -> Option<f64> {
        let work = Work::of(event)?;
        let reset = event.reset.0.get().min(work.largest_reset());
        let mut attr = event.attr_for(own_thread());
        attr.__bindgen_anon_1.sample_period = reset;
        let counter = self.kept(PerfEvent::open(&attr, own_thread(), &event.name))?;
        let program = self.kept(self.programs.sample(EventId(0)))?;
        let _link = self.kept(counter.attach(program, None))?;
        let (plain, sampled, events) = self.compare(work, &counter)?;
        let events = match work {
            // The clock of the thread, which ticked on meanwhile.
            Work::Spin(_) if event.class == EventClass::Clock => sampled.as_nanos() as f64,
            _ => events as f64,
        };
        let samples = events / reset as f64;
        let each = sampled.saturating_sub(plain).as_nanos() as f64 / samples;
        (samples >= LEAST_SAMPLES).then_some(each)
    }

    /// ns that counting a page fault adds to it, by the fastest rounds with and without.
    fn page_fault(&self) -> Option<f64> {
        let attr = page_faults(Faults::All, own_thread());
        let counter = self.kept(PerfEvent::open(&attr, own_thread(), "page-faults"))?;
        let program = self.kept(self.programs.page_fault(Faults::All))?;
        let _link = self.kept(counter.attach(program, None))?;
        let (plain, counted, events) = self.compare(Work::Touch, &counter)?;
        let each = counted.saturating_sub(plain).as_nanos() as f64 / events as f64;
        (events > 0).then_some(each)
    }

    /// Fastest rounds of some work without and with a counter, and the events of the latter.
    fn compare(&self, work: Work, counter: &PerfEvent) -> Option<(Duration, Duration, u64)> {
        let mut plain = Duration::MAX;
        let mut counted = (Duration::MAX, 0);
        // Interleaved, so that a slow period affects both.
        for _ in 0..ROUNDS {
            plain = plain.min(timed(|| work.run()));
            self.empty();
            let before = self.kept(counter.times())?.value;
            self.kept(counter.enable())?;
            let round = timed(|| work.run());
            self.kept(counter.disable())?;
            if round < counted.0 {
                counted = (round, self.kept(counter.times())?.value - before);
            }
        }
        Some((plain, counted.0, counted.1))
    }
}

/// Work that makes events happen.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// A number of steps.
    Spin(u64),
    /// [`PAGES`] pages are touched for the first time.
    Touch,
}

impl Work {
    /// Work that makes this event occur; `None` if there is none.
    fn of(event: &ResolvedEvent) -> Option<Self> {
        match event.class {
            EventClass::Clock | EventClass::Hardware { steady: true, .. } => {
                Some(Self::Spin(work_for(WORK, &TABLE)))
            }
            EventClass::Software if event.is_page_faults() => Some(Self::Touch),
            _ => None,
        }
    }

    /// The largest reset value with enough samples.
    const fn largest_reset(self) -> u64 {
        match self {
            Self::Spin(_) => SHORT_CLOCK,
            Self::Touch => 4,
        }
    }

    fn run(self) {
        match self {
            Self::Spin(steps) => spin(steps, &TABLE),
            Self::Touch => touch(),
        }
    }
}

/// Touches [`PAGES`] pages for the first time; none if there is no memory for them.
fn touch() {
    use rustix::mm;
    let page = rustix::param::page_size();
    let (protection, flags) = (
        mm::ProtFlags::READ | mm::ProtFlags::WRITE,
        mm::MapFlags::PRIVATE,
    );
    let bytes = PAGES * page;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let mapping = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
    let Ok(mapping) = mapping else { return };
    // SAFETY: the mapping is ours. Without small pages there are fewer faults, which are counted.
    let _ = unsafe { mm::madvise(mapping, bytes, mm::Advice::LinuxNoHugepage) };
    for n in 0..PAGES {
        // SAFETY: the byte lies within the mapping, which may be written.
        unsafe { mapping.cast::<u8>().add(n * page).write_volatile(1) };
    }
    // SAFETY: the mapping is ours and nothing points into it any more.
    let _ = unsafe { mm::munmap(mapping, bytes) };
}

impl Bench {
    /// The pause that a sample causes.
    fn pause(&self, event: &ResolvedEvent) -> Option<Pause> {
        if event.class != EventClass::Clock || event.perf_clock {
            return None;
        }
        let interval = event.reset.0.get().min(SHORT_CLOCK);
        let mut attr = event.attr_for(own_thread());
        attr.__bindgen_anon_1.sample_period = interval;
        let counter = self.kept(PerfEvent::open(&attr, own_thread(), &event.name))?;
        let program = self.kept(self.programs.sample(EventId(0)))?;
        let _link = self.kept(counter.attach(program, None))?;
        // The minimum, as disturbance only makes it longer.
        let interval = Duration::from_nanos(interval);
        let rounds = (0..PAUSE_ROUNDS).filter_map(|_| self.pause_once(interval, &counter));
        rounds.min_by_key(|pause| pause.before + pause.after)
    }

    fn pause_once(&self, interval: Duration, counter: &PerfEvent) -> Option<Pause> {
        self.empty();
        self.kept(counter.enable())?;
        let jumps = pause::watch(pause::time_to_watch(interval));
        self.kept(counter.disable())?;
        let samples = self.take_samples().into_iter();
        let samples = samples.map(|sample| KtimeNs(sample.time.0.cast_unsigned()));
        pause::pause(&jumps, &samples.collect::<Vec<_>>())
    }
}

/// Mean of the values between the lower quartile and the median, as any disturbance makes a value larger; `None` without a
/// value.
fn usual(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let usual = &values[values.len() / 4..values.len().div_ceil(2)];
    (!usual.is_empty()).then(|| usual.iter().sum::<f64>() / usual.len() as f64)
}

fn own_thread() -> Target {
    Target::Thread(Tid(rustix::thread::gettid().as_raw_nonzero().get() as u32))
}

/// CPU time of this thread for some work.
fn timed(work: impl FnOnce()) -> Duration {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let start = now();
    work();
    now().saturating_sub(start)
}

fn fastest(mut round: impl FnMut() -> Duration) -> Duration {
    (0..ROUNDS).map(|_| round()).min().unwrap_or_default()
}

/// Memory of the loop of known work.
static TABLE: [AtomicU64; TABLE_WORDS] = [const { AtomicU64::new(0) }; TABLE_WORDS];

fn spin(steps: u64, table: &[AtomicU64]) {
    let mut value = 1u64;
    for step in 0..steps {
        let word = &table[(value >> 32) as usize % table.len()];
        value = black_box(
            value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(step)
                .wrapping_add(word.load(Ordering::Relaxed)),
        );
    }
}

/// Steps of [`spin`] that take about this time.
fn work_for(time: Duration, table: &[AtomicU64]) -> u64 {
    const TRIAL: u64 = 20_000;
    let trial = fastest(|| timed(|| spin(TRIAL, table))).as_nanos().max(1) as u64;
    TRIAL * time.as_nanos() as u64 / trial
}

/// File and offset of an address of this program.
pub(crate) fn place_of(address: u64) -> Option<(PathBuf, u64)> {
    let maps = procfs_maps()?;
    maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        let offset = hex(fields.nth(1)?)?;
        (start..end)
            .contains(&address)
            .then(|| ("/proc/self/exe".into(), address - start + offset))
    })
}

fn procfs_maps() -> Option<String> {
    std::fs::read_to_string("/proc/self/maps").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The PMU for the probes; `None` if not possible here, with a message.
    pub(super) fn uprobes() -> Option<UprobePmu> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP not root");
            return None;
        }
        let pmu = UprobePmu::read(std::path::Path::new("/"));
        if pmu.is_none() {
            println!("SKIP the kernel has no uprobe PMU");
        }
        pmu
    }

    /// The time of a mark's program shows that of the mark only where it is longer after a sleep.
    #[test]
    fn marks_tell() {
        let apart = Apart {
            before_ns: 200.0,
            after_ns: 100.0,
            ran_ns: [80.0, 120.0],
        };
        let coldness = apart.coldness(Some(100.0));
        let more = coldness.more(false, Some(120));
        assert_eq!(coldness.more(true, Some(140)), more);
        assert_eq!((more.before_ns, more.after_ns), (200, 100));
        assert_eq!(
            apart
                .times(2.0)
                .coldness(None)
                .more(false, Some(240))
                .after_ns,
            200
        );
        let alike = Apart {
            ran_ns: [80.0, 85.0],
            ..apart
        };
        assert_eq!(alike.coldness(None), Coldness::default());
    }

    /// The ring holds the samples of a round with their copied stacks: else what a sample without room costs is measured.
    #[test]
    fn copies_have_room() {
        let Some(pmu) = uprobes() else { return };
        let host = crate::pmu::host::Host::probe(std::path::Path::new("/"));
        let reset = crate::pmu::attr::reset_value(16_000).unwrap();
        let event = crate::pmu::attr::resolve(&"cpu-clock".parse().unwrap(), &host, reset);
        let stacks = StackLimits {
            frames: 127,
            copied: 16 << 10,
            by_pointers: false,
        };
        let bench = prepare(&pmu, stacks, Extras::default()).0.join().unwrap();
        let bench = bench.unwrap();
        assert!(bench.sample(&event.unwrap()).is_some());
        // Those of the last round, of 1 ms of work or more.
        let kept = bench.take_samples().len();
        assert!(kept > 40, "{kept}");
    }

    /// Every cost can be measured on this machine, and a single-stepped mark costs most.
    #[test]
    fn all_costs() {
        let Some(pmu) = uprobes() else { return };
        let host = crate::pmu::host::Host::probe(std::path::Path::new("/"));
        let reset = crate::pmu::attr::reset_value(16_000).unwrap();
        let spec = "cpu-clock".parse().unwrap();
        let event = crate::pmu::attr::resolve(&spec, &host, reset).unwrap();
        let classes = [EntryClass::Emulated, EntryClass::SingleStep];
        let wanted = Wanted {
            classes: &classes,
            uretprobes: true,
            page_faults: true,
            switches: true,
            event: Some(&event),
            more: [None; MAX_EVENTS - 1],
            sample: true,
            stacks: StackLimits::default(),
            extras: Extras::default(),
        };
        let start = std::time::Instant::now();
        let (costs, why) = measure(&pmu, wanted);
        assert_eq!(why, None);
        println!("{costs:?} in {:?}", start.elapsed());
        assert!(costs.single_step_ns > costs.emulated_ns, "{costs:?}");
        assert!(costs.uretprobe_ns.is_some(), "{costs:?}");
        if let Some(pause) = costs.pause {
            assert!(pause.before > 0 && pause.after > 0, "{costs:?}");
        }
        assert!(costs.page_fault_ns.is_some(), "{costs:?}");
        // Differences of times may be 0 beside other work.
        let ordered = |it: SwitchCosts| it.several_ns >= it.one_ns && it.one_ns >= it.none_ns;
        assert!(costs.switch.is_some_and(ordered), "{costs:?}");
        let spec = "page-faults".parse().unwrap();
        let reset = crate::pmu::attr::reset_value(1).unwrap();
        let faults = crate::pmu::attr::resolve(&spec, &host, reset).unwrap();
        let wanted = Wanted {
            classes: &[],
            event: Some(&faults),
            ..wanted
        };
        let (of_faults, _) = measure(&pmu, wanted);
        assert!(of_faults.sample_ns.is_some(), "{of_faults:?}");
        assert!(
            costs.sample_ns.is_some_and(|ns| ns < 100_000.0),
            "{costs:?}"
        );
    }
}
