//! Sets up the session, waits for its end, and tears it down.

mod clocks;
mod cpus;
mod ended;
mod pause;
mod waits;
mod workers;

use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::Sender;
use pebs_common::config::{KernelCode, OwnBreakpoints, PageOffsets, step_kind};
use tokio::runtime::Runtime;

use clocks::Choice;
use cpus::next;
use ended::Targets;
use pause::{LOOK_FOR_START, State, Waits};
use workers::{Signals, Workers};

use super::budget;
use super::cost::{self, ClockSpans, KnownCosts, Measuring, Prices};
use super::event::{Emit, Event, Growth, Status};
use super::finish::{self, Stopped};
use super::governor::Governor;
use super::pace::{self, Count};
use super::placement;
use super::plan::Plan;
use super::remote::{Order, Remote};
use super::stacks;
use super::waits::Verdict;
use crate::binary::process;
use crate::collect::behind::Behind;
use crate::collect::bulk::BulkRing;
use crate::collect::clock::now;
use crate::collect::command::{self, Held};
use crate::collect::cpu_time::CpuTimes;
use crate::collect::frequency::{self, Frequencies};
use crate::collect::hotplug::CpuMessages;
use crate::collect::privileges;
use crate::collect::session::{Rings, Session, SessionPlan, Spent};
use crate::collect::sideband::{Sideband, SidebandOpener};
use crate::cost::calibrate::UnitCosts;
use crate::failure::{Context as _, Failure, Result, Warning};
use crate::pipeline::{Load, Progress};
use crate::pmu::attr::{EventClass, ResolvedEvent};
use crate::pmu::jitter::Clocks;
use crate::pmu::open::Times;
use crate::probe::breakpoint;
use crate::store::options::WriterOptions;
use crate::store::run::{ClockChange, JitterInfo, ResetChange, RunInfo};
use crate::store::writer::TraceWriter;
use crate::symbolize::kernel_code;
use crate::units::{EventId, KtimeNs, Pid, ResetValue, TraceNs};

/// Interval of looking for CPUs that came or went, where the kernel does not report it.
const LOOK: Duration = Duration::from_millis(500);

/// Interval of checking the overhead.
const GOVERN: Duration = Duration::from_millis(50);

/// Factors of these intervals for a recorder that is patient: of looking and reporting, and of the others.
const PATIENCE: (u32, u32) = (4, 10);

/// Interval at which such a one does all of this while nothing happens.
const IDLE: Duration = Duration::from_secs(2);

/// Interval of looking for threads that need a counter of their own.
const FOLLOW: Duration = Duration::from_millis(50);

/// Interval of reporting progress.
const REPORT: Duration = Duration::from_millis(250);

/// Time to wait for an order before the start.
const GLANCE: Duration = Duration::from_millis(1);

/// Rows reach the open segment after this time.
const FLUSH: Duration = Duration::from_secs(1);

/// Records until the end.
pub(super) fn record(plan: &mut Plan, remote: &Remote, emit: &mut Emit<'_>) -> Result<Stopped> {
    let runtime = runtime()?;
    let Prepared {
        mut session,
        rings,
        held,
        targets,
        named,
        costs,
        first_clocks,
        counting,
        behind: _behind,
    } = prepare(plan, &runtime, remote, emit)?;
    let plan = &*plan;
    let session_plan = priced_session_plan(plan, &costs);
    let prices = Prices::new(plan, &costs.units);
    let governor = match plan.overhead {
        Some(bounds) if !plan.counting => Governor::new(&bounds, plan, &prices)?,
        _ => None,
    };
    let origin = now();
    let (mut info, sideband, more_sideband) = describe(plan, &costs, &session, origin, emit);
    let options = WriterOptions {
        segment: plan.segment,
        flush: FLUSH,
        ..WriterOptions::default()
    };
    let writer = TraceWriter::create(&plan.output, &info, options)?;
    let place = writer.place();
    let bulk = session.take_bulk_rings();
    let workers = Workers::start(plan, rings, bulk, sideband, writer, origin);
    workers.know_costs(&costs.units, &prices);
    workers.wait_until_ready(emit);
    let started = check_not_ended(&runtime, remote)
        .and_then(|()| start(&mut session, &session_plan, plan, &named, &workers.signals));
    match started {
        Ok(warning) => warning.into_iter().for_each(|warning| {
            info.notes.push(warning.text.clone());
            emit(Event::Warning(warning));
        }),
        Err(error) => {
            drop(session);
            workers.abandon(plan);
            return Err(error);
        }
    }
    drop(counting);
    let at_once = plan.starts_at_once();
    if at_once && !plan.pausable {
        session.place_no_more();
    }
    let budget = first_budget(plan, &costs.units, governor.as_ref());
    if at_once {
        emit(Event::Started {
            budget: budget.clone(),
        });
    }
    let mut control = Control {
        plan: &session_plan,
        session: &mut session,
        progress: Arc::clone(&workers.progress),
        signals: Arc::clone(&workers.signals),
        more_bulk: workers.more_bulk.clone(),
        more_sideband,
        targets,
        looked: origin,
        prices,
        governor,
        frequencies: &plan.frequencies,
        clocks: ClockSpans::default(),
        choice: Choice::default(),
        waits: None,
        state: match at_once {
            true => State::Records,
            false => State::Waits(Waits::new(budget)),
        },
        debuggers: Vec::new(),
        info: &mut info,
        output: &place,
        cpu: CpuTimes::default(),
        whole: plan,
        first_moments: !plan.force && !plan.counting,
        looks: 0,
        remote,
        emit,
        status: Status::default(),
        reported: Load::default(),
    };
    if let Some((_, change)) = first_clocks {
        control.clocks_changed(change);
    }
    control.price_switches();
    control.look_at_cpu();
    let waited = wait(&mut control, runtime, plan.duration, held);
    let (cpu, clocks) = control.finish();
    let end = now();
    workers.signals.end.store(end.0, Ordering::Release);
    session.stop();
    session.flush_log();
    let times = session.times();
    finish::note_times(&mut info, &times);
    let (ended_by, command) = match waited {
        Ok(ended) => ended,
        Err(error) => {
            drop(session);
            workers.abandon(plan);
            return Err(error);
        }
    };
    let outcome = workers.stop(end)?;
    let target_cpu_ns = target_cpu_ns(plan, &times, cpu, &clocks);
    Ok(Stopped {
        session,
        costs,
        clocks,
        target_cpu_ns,
        times,
        outcome,
        info,
        command,
        ended_by,
    })
}

/// A session whose programs are loaded and whose events are open; nothing is attached.
struct Prepared {
    session: Session,
    rings: Rings,
    /// The command, which waits for its start.
    held: Option<Held>,
    targets: Targets,
    /// The processes that were asked for, without those that they started.
    named: Vec<Pid>,
    costs: KnownCosts,
    /// Clocks to begin with, where they are not the default ones.
    first_clocks: Option<(Clocks, ClockChange)>,
    /// Probes of the short count before the recording: they are taken off after those of the recording are placed.
    counting: Option<Spent>,
    behind: Option<Behind>,
}

/// Starts the command, holding it; loads the programs; finds what samples and marks cost and how often they come; opens the
/// events.
fn prepare(
    plan: &mut Plan,
    runtime: &Runtime,
    remote: &Remote,
    emit: &mut Emit<'_>,
) -> Result<Prepared> {
    let measured = stacks::choose(plan, emit);
    let held = (!plan.command.is_empty())
        .then(|| command::start(&plan.command, &plan.former_limits))
        .transpose()?;
    if let Some(held) = &held {
        plan.pids = vec![held.pid];
    }
    // Not before the command, which would have it, too.
    let behind = Behind::begin();
    place_breakpoints(plan)?;
    let code = thread::spawn(kernel_code);
    let measuring = Measuring::begin(plan);
    let (mut session, rings) = Session::load(&session_plan(plan))?;
    plan.symbolize.own_programs = Some(session.symbols());
    session.follow_tasks()?;
    let targets = Targets::open(&plan.pids, &plan.threads);
    let named = plan.pids.clone();
    plan.pids = session.trace(&named)?;
    let count = Count::begin(plan, &session, &session_plan(plan), &rings.counters)?;
    if measuring.takes_time(plan) && !measured {
        emit(Event::Measuring);
    }
    let mut costs = measuring.finish(plan);
    check_not_ended(runtime, remote)?;
    let counted = count.map(|count| count.finish(&session, &rings.counters));
    let (counted, counting) = counted.transpose()?.unzip();
    if let Some(counted) = &counted
        && pace::check(plan, &costs.units, counted).is_err()
    {
        costs.measure_marks_again(plan);
        pace::check(plan, &costs.units, counted)?;
    }
    pace::set_first(plan, &costs.units, counted.as_ref(), emit);
    let first_clocks = clocks::first(plan, counted.as_ref(), &costs.units);
    if let Some((Clocks::OfCpus, _)) = first_clocks {
        clocks::raise_reset(plan, &costs.units);
    }
    if let Ok(code) = code.join() {
        session.set_kernel_code(&KernelCode {
            marks: own_breakpoints(plan),
            ..code
        })?;
    }
    let session_plan = priced_session_plan(plan, &costs);
    if let Some((which, _)) = &first_clocks {
        session.set_clocks(&session_plan, *which)?;
    }
    session.open_events(&session_plan)?;
    // Their children may have ended.
    if let Some(gone) = named.iter().find(|pid| !process::exists(**pid)) {
        return Err(Failure::new(
            format!("process {} ended before it could be traced", gone.0),
            "'pgrep NAME' finds the pids of those that run".to_owned(),
        ));
    }
    Ok(Prepared {
        session,
        rings,
        held,
        targets,
        named,
        costs,
        first_clocks,
        counting,
        behind,
    })
}

/// First content of `trace.json`, and mappings as the kernel reports them, where it does.
fn describe(
    plan: &Plan,
    costs: &KnownCosts,
    session: &Session,
    origin: KtimeNs,
    emit: &mut Emit<'_>,
) -> (RunInfo, Option<Sideband>, Option<SidebandOpener>) {
    let mut info = finish::run_info(plan, origin);
    info.unit_costs = Some(costs.source());
    let mut notes = notes(plan, costs, session);
    let (sideband, opener) = match Sideband::open(&plan.host.online) {
        Ok((sideband, opener)) => (Some(sideband), Some(opener)),
        Err(error) => {
            notes.push(format!(
                "mappings are read from /proc only, as {error}: functions of short-lived processes may stay unnamed"
            ));
            (None, None)
        }
    };
    for note in notes {
        emit(Event::Note(note.clone()));
        info.notes.push(note);
    }
    (info, sideband, opener)
}

/// Attaches probes and events, unless the recording waits for something first.
fn start(
    session: &mut Session,
    session_plan: &SessionPlan<'_>,
    plan: &Plan,
    named: &[Pid],
    signals: &Signals,
) -> Result<Option<Warning>> {
    if !plan.starts_at_once() {
        return Ok(None);
    }
    let _ = signals.count_from.set(session.start_counting()?);
    session.start(session_plan)?;
    plan.files.check()?;
    placement::check(plan, named)
}

/// The line on the budget for overhead, if it is kept.
fn first_budget(plan: &Plan, costs: &UnitCosts, governor: Option<&Governor>) -> Option<String> {
    let bounds = plan.overhead.filter(|_| governor.is_some())?;
    let governed = budget::governed(&plan.events, costs);
    let events = governed.iter().map(|it| &plan.events[usize::from(it.0)]);
    Some(budget::first_line(&bounds, &events.collect::<Vec<_>>()))
}

/// Remarks on the costs and on what this machine can't do, for the first lines and for the trace.
fn notes(plan: &Plan, costs: &KnownCosts, session: &Session) -> Vec<String> {
    let restorer = session.restorer_error().map(|reason| {
        format!(
            "copies of probed code can't be restored, as {reason}: a program that moves its own code to huge pages is killed"
        )
    });
    let notes = [
        cost::counts_note(plan, &costs.units),
        costs.note.clone(),
        budget::no_bound(plan, &costs.units).filter(|_| !plan.counting),
        restorer,
    ];
    notes.into_iter().flatten().collect()
}

/// The event loop that waits for the end, on the calling thread.
fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Started later by the calling thread, to wait for the command.
        .on_thread_start(privileges::give_up_on_this_thread)
        .build()
        .context("cannot start the control loop")
}

/// Returns at once unless it was asked to end.
///
/// # Errors
/// Names the reason.
fn check_not_ended(runtime: &Runtime, remote: &Remote) -> Result<()> {
    // An order may be on its way; a change of the budget is looked for again later.
    let glance = async { tokio::time::timeout(GLANCE, remote.ordered()).await };
    let _ = runtime.block_on(glance);
    match remote.has_ended() {
        Some(why) => Err(Failure::bare(format!(
            "ended before it began ({why}): nothing was recorded"
        ))),
        None => Ok(()),
    }
}

/// The plan of a session for which it is known what samples cost.
fn priced_session_plan<'a>(plan: &'a Plan, costs: &KnownCosts) -> SessionPlan<'a> {
    SessionPlan {
        sample_ns: costs.units.sample_ns,
        ..session_plan(plan)
    }
}

fn session_plan(plan: &Plan) -> SessionPlan<'_> {
    SessionPlan {
        host: &plan.host,
        probes: &plan.probes,
        events: &plan.events,
        counted: &plan.counted,
        count_interval: plan.count_interval,
        pids: &plan.pids,
        threads: &plan.threads,
        cgroup: plan.cgroup.as_deref(),
        ring_bytes: plan.ring_bytes,
        jitter: plan.jitter,
        sample_ns: None,
        transport: plan.transport.how,
        kinds: plan.kinds,
        stacks: plan.stacks,
        counting: plan.counting,
        patient: plan.patient,
        log: tracing::enabled!(tracing::Level::TRACE),
    }
}

/// Looks up the addresses of breakpoints, which differ from process to process.
fn place_breakpoints(plan: &mut Plan) -> Result<()> {
    let binaries: Vec<_> = plan
        .probes
        .probes
        .iter()
        .filter_map(|p| p.sites.first())
        .collect();
    let default = binaries.first().map(|site| site.path.clone());
    let counted = plan.counted.iter_mut().filter_map(|it| it.counter_mut());
    for event in plan.events.iter_mut().chain(counted) {
        if let EventClass::Breakpoint {
            symbol: Some(symbol),
            access,
            has_len,
        } = &event.class
        {
            let data = !access.execute;
            let found = breakpoint::find(symbol, data, default.as_deref(), &plan.pids)?;
            event.attr.bp_addr = found.address;
            if data {
                let bytes = event.attr.bp_len as u32;
                event.attr.bp_len = found.watch(symbol, *has_len, bytes)?.into();
            }
        }
    }
    Ok(())
}

/// Returns the properties that distinguish breakpoints of marks from those of other tools.
fn own_breakpoints(plan: &Plan) -> OwnBreakpoints {
    let sites = || plan.probes.probes.iter().flat_map(|probe| &probe.sites);
    let counted = plan.counted.iter().filter_map(|it| it.counter());
    let mut events = plan.events.iter().chain(counted);
    let hardware = events.any(|it| matches!(it.class, EventClass::Breakpoint { .. }));
    let returns = sites().any(|site| site.uretprobe);
    // A `ret` that the mark program does leads anywhere.
    let leads_anywhere = sites().any(|site| site.config.step.kind == step_kind::RETURN);
    let first = |unknown: bool| match unknown {
        true => PageOffsets::ALL,
        false => PageOffsets::NONE,
    };
    // Uretprobes have places of their own, by which own breakpoints can't be told.
    let (mut places, mut stands) = (first(returns), first(returns || leads_anywhere));
    for site in sites() {
        places.add(site.address);
        stands.add(site.address);
        // Until the kernel has found the probe, the instruction pointer is behind the breakpoint, which is one byte.
        stands.add(site.address + 1);
        site.goes_on.iter().for_each(|it| stands.add(*it));
    }
    OwnBreakpoints {
        places,
        stands,
        returns: u32::from(returns),
        hardware: u32::from(hardware),
    }
}

/// Locks a mutex even if it is poisoned.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CPU time of the target, ns: by its counters if they count nothing else, else by its processes' clocks.
fn target_cpu_ns(
    plan: &Plan,
    times: &[Option<Times>],
    processes: u64,
    clocks: &ClockSpans,
) -> Option<f64> {
    let is_clock = |event: &ResolvedEvent| event.class == EventClass::Clock;
    let of_threads = !plan.pids.is_empty() && !clocks.were_of_cpus();
    if of_threads && plan.events.first().is_some_and(is_clock) {
        return times.first().copied().flatten().map(|it| it.value as f64);
    }
    (processes > 0).then_some(processes as f64)
}

/// State of the waiting loop.
struct Control<'a, 'b> {
    plan: &'a SessionPlan<'b>,
    session: &'a mut Session,
    progress: Arc<Progress>,
    more_bulk: Sender<BulkRing>,
    /// `None` if the kernel does not report mappings.
    more_sideband: Option<SidebandOpener>,
    signals: Arc<Signals>,
    /// Requested processes.
    targets: Targets,
    /// Time of the last look after CPUs, within the trace.
    looked: KtimeNs,
    prices: Prices<'a>,
    governor: Option<Governor>,
    frequencies: &'a Frequencies,
    /// The clocks so far, and what the last choice of them saw.
    clocks: ClockSpans,
    choice: Choice,
    /// Last decision on recording who ends waits.
    waits: Option<Verdict>,
    /// Whether it records.
    state: State,
    /// The debuggers of requested processes that were reported.
    debuggers: Vec<Pid>,
    /// Content of `trace.json`.
    info: &'a mut RunInfo,
    output: &'a Path,
    /// CPU time of the traced processes.
    cpu: CpuTimes,
    /// All of the plan.
    whole: &'a Plan,
    /// Whether the cost of marks is still to be found acceptable.
    first_moments: bool,
    /// Number of checks of the cost of marks so far.
    looks: usize,
    remote: &'a Remote,
    emit: &'a mut Emit<'a>,
    /// The last report, and the load that it was made from.
    status: Status,
    reported: Load,
}

/// Waits for the end of the recording; returns its reason and the command's exit status.
fn wait(
    control: &mut Control<'_, '_>,
    runtime: Runtime,
    duration: Option<Duration>,
    held: Option<Held>,
) -> Result<(&'static str, Option<ExitStatus>)> {
    let result = runtime.block_on(control.until_end(duration, held));
    (control.emit)(Event::Ending);
    if control.records() {
        control.look();
    }
    // Do not wait for a command that goes on after Ctrl-C.
    runtime.shutdown_background();
    result
}

impl Control<'_, '_> {
    async fn until_end(
        &mut self,
        duration: Option<Duration>,
        held: Option<Held>,
    ) -> Result<(&'static str, Option<ExitStatus>)> {
        let waits_for_targets = held.is_none() && !self.plan.pids.is_empty();
        let has_command = held.is_some();
        if self.waits() {
            self.begin_to_wait()?;
        }
        let running = held.map(Held::release);
        let command = tokio::task::spawn_blocking(move || running.map(command::Running::wait));
        let end_of_time = tokio::time::sleep(duration.unwrap_or(Duration::MAX / 8));
        tokio::pin!(command, end_of_time);
        let (slow, slower) = if self.whole.patient { PATIENCE } else { (1, 1) };
        let mut report = tokio::time::interval(REPORT * slow);
        let cpus = CpuMessages::open().ok();
        let mut look = tokio::time::interval(LOOK * slow);
        let mut govern = tokio::time::interval(GOVERN * slower);
        let mut follow = tokio::time::interval(FOLLOW * slower);
        let mut start = tokio::time::interval(LOOK_FOR_START);
        let mut follows = self.session.follows_threads(self.plan);
        // Without switches it stays as the first look found.
        let chooses = clocks::can_choose(self.plan) && self.plan.kinds.switches;
        // Limits are checked at each turn of the loop.
        let limited = self.whole.stop_after.is_some() || self.whole.max_size.is_some();
        let mut frequency = tokio::time::interval(frequency::PERIOD);
        let remote = self.remote;
        loop {
            if let Some(why) = self.obey().or_else(|| self.limit()) {
                return Ok((why, None));
            }
            tokio::select! {
                () = remote.ordered() => {}
                _ = start.tick(), if self.waits() => self.look_for_start()?,
                () = &mut end_of_time => return Ok(("duration", None)),
                exit = &mut command, if has_command => {
                    let exit = exit.context("cannot wait for the command")?;
                    return Ok(("the command ended", exit.transpose().context("cannot wait for the command")?));
                }
                _ = report.tick() => {
                    if self.is_idle() {
                        report.reset_after(IDLE);
                    }
                    self.take_stock();
                    if self.signals.failed.load(Ordering::Relaxed) {
                        return Ok(("writing failed", None));
                    }
                    if waits_for_targets && self.targets.have_ended() {
                        return Ok((Targets::ended(self.plan.threads), None));
                    }
                }
                _ = look.tick() => {
                    if self.is_idle() {
                        look.reset_after(IDLE * 2);
                    }
                    if self.records() {
                        self.look();
                    }
                    self.note_debuggers();
                }
                () = next(cpus.as_ref()), if self.records() => self.look(),
                _ = govern.tick(), if self.records()
                    && (limited || chooses || self.governor.is_some() || self.first_moments) => {
                    self.check_marks()?;
                    if self.is_idle() {
                        govern.reset_after(IDLE);
                    }
                    if chooses {
                        self.choose_clocks();
                    }
                    self.govern();
                    self.choose_waits();
                }
                _ = follow.tick(), if follows && self.records() => {
                    if let Err(error) = self.session.follow_threads(self.plan) {
                        tracing::debug!("samples of new threads come at equal distances: {error}");
                        follows = false;
                    }
                    self.price_switches();
                    if self.is_idle() {
                        follow.reset_after(IDLE);
                    }
                }
                _ = frequency.tick(), if !self.frequencies.is_empty() => {
                    self.frequencies.read(now(), &mut locked(&self.signals.frequencies));
                }
            }
        }
    }

    /// Adds what is known at the end to the content of `trace.json`; returns the CPU time of the traced processes and the
    /// clocks that sampled them.
    fn finish(mut self) -> (u64, ClockSpans) {
        self.end_pause();
        self.note_changes();
        let together = self.session.clocks(self.plan) as u64;
        self.info.jitter = self.session.drawn().map(|drawn| JitterInfo {
            percent: self.whole.jitter,
            clocks: together,
            changes: drawn.changes,
            every_ns: drawn.every_ns,
        });
        self.note_copies();
        self.note_keeper();
        (self.cpu.sum(), self.clocks)
    }

    /// Reports progress, and what else is new.
    fn take_stock(&mut self) {
        self.look_at_cpu();
        self.note_copies();
        self.note_keeper();
        self.report();
        self.session.flush_log();
    }

    /// Reports which processes copied probed code.
    fn note_copies(&mut self) {
        for copy in self.session.copies() {
            let text = copy.to_string();
            if !self.info.copied.contains(&text) {
                self.problem(&text);
                self.info.copied.push(text);
            }
        }
    }

    /// Reports once that the process that keeps the probes is gone; the recording goes on.
    fn note_keeper(&mut self) {
        let Some(ended) = self.session.keeper_ended() else {
            return;
        };
        let text = format!(
            "{ended}: the recording goes on, but kill -9 of pebs-trace may now leave probes in the kernel"
        );
        if !self.info.notes.contains(&text) {
            self.problem(&text);
            self.info.notes.push(text);
        }
    }

    /// Reports once each debugger of a requested process.
    fn note_debuggers(&mut self) {
        for pid in &self.whole.pids {
            if let Some(debugger) = placement::debugger(*pid)
                && !self.debuggers.contains(&debugger)
            {
                let warning = placement::debugger_came(debugger, *pid);
                self.debuggers.push(debugger);
                self.info.notes.push(warning.text.clone());
                (self.emit)(Event::Warning(warning));
            }
        }
    }

    /// Whether a patient recorder saw no item since the last report.
    fn is_idle(&self) -> bool {
        let visits = self.progress.visits.load(Ordering::Relaxed);
        self.whole.patient && visits == self.status.visits
    }

    /// Updates the CPU time of the traced processes.
    fn look_at_cpu(&mut self) {
        // A failed listing is retried next time.
        if let Ok(pids) = self.session.traced() {
            self.cpu.look(&pids);
        }
    }

    /// Checks the cost of marks a few times in the first moments.
    ///
    /// # Errors
    /// Marks take more than half of the target's CPU time.
    fn check_marks(&mut self) -> Result<()> {
        if !self.first_moments {
            return Ok(());
        }
        let plan = self.whole;
        self.look_at_cpu();
        let load = self.load();
        let cpu_ns = self.cpu.sum() as f64;
        let Some(look_ns) = pace::LOOKS_NS.get(self.looks) else {
            self.first_moments = false;
            return Ok(());
        };
        if cpu_ns < *look_ns || load.marks.by.is_empty() {
            return Ok(());
        }
        self.looks += 1;
        let mut refused = pace::refuse_seen(plan, &self.prices, &load, cpu_ns);
        if refused.is_err() {
            let again = cost::marks_again(plan, self.prices.costs());
            refused = pace::refuse_seen(plan, &Prices::new(plan, &again), &load, cpu_ns);
        }
        if refused.is_err() && !plan.command.is_empty() {
            let pid = plan.pids.first().map_or(0, |pid| pid.0);
            self.problem(&format!(
                "the command (process {pid}) goes on without probes"
            ));
        }
        refused
    }

    /// The load up to now.
    fn load(&self) -> Load {
        let load = self.progress.load.lock();
        load.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks after the overhead.
    fn govern(&mut self) {
        let load = self.load();
        let Some(governor) = &mut self.governor else {
            return;
        };
        if let Some((resets, change)) = governor.look(&load, self.cpu.sum(), &self.prices)
            && let Err(error) = self.change_resets(&resets, change.overhead)
            && let Some(governor) = &mut self.governor
        {
            let text = governor.failed(&error.to_string());
            self.problem(&text);
        }
        if let Some(event) = self.governor.as_mut().and_then(Governor::warning) {
            (self.emit)(event);
        }
    }

    /// Changes reset values, because of that overhead.
    ///
    /// # Errors
    /// The kernel refused one: the former one stays in force, and those after it.
    fn change_resets(
        &mut self,
        resets: &[(EventId, ResetValue)],
        overhead: Option<f64>,
    ) -> Result<()> {
        let changed = resets
            .iter()
            .try_for_each(|(event, reset)| self.change_reset(*event, *reset, overhead));
        self.note_changes();
        self.write_info();
        changed
    }

    fn change_reset(
        &mut self,
        event: EventId,
        reset: ResetValue,
        overhead: Option<f64>,
    ) -> Result<()> {
        let old = self.reset(event);
        let pending = self.signals.resets.lock();
        let mut pending = pending.unwrap_or_else(PoisonError::into_inner);
        self.session.set_reset(self.plan, event, reset)?;
        let at = now();
        pending.push((at, event, reset));
        drop(pending);
        let time_ns = TraceNs(at.0.saturating_sub(self.info.monotonic_ns) as i64);
        if let Some(governor) = &mut self.governor {
            governor.changed(time_ns, event, reset);
        }
        self.info.resets.push(ResetChange {
            time_ns,
            event,
            old,
            new: reset.0.get(),
            overhead,
        });
        (self.emit)(Event::Changed {
            event,
            old,
            new: reset.0.get(),
            overhead,
        });
        Ok(())
    }

    /// Makes the changes that were asked for; returns why to end, if that was asked for.
    fn obey(&mut self) -> Option<&'static str> {
        for order in self.remote.take_changes() {
            let done = match (order, self.plan.events) {
                (Order::PauseOrResume, _) if self.records() => self.pause(),
                (Order::Pause, _) => self.pause(),
                (Order::Resume | Order::PauseOrResume, _) => self.resume(),
                (Order::Note(text), _) => self.note(text),
                (Order::Snapshot(to), _) => self.snapshot(to),
                _ if self.plan.counting => Err(Failure::bare(
                    "cannot change the reset value: nothing is sampled",
                )),
                (Order::MaxOverhead(share), _) => self.bound(share),
                (Order::Reset(reset), [_]) => self.change_resets(&[(EventId(0), reset)], None),
                (Order::Reset(_), _) => Err(Failure::bare(
                    "cannot change the reset value: there are several events",
                )),
            };
            if let Err(error) = done {
                self.failed(&error);
            }
        }
        self.remote.has_ended()
    }

    /// Keeps the slow-down of items below this share from now on.
    ///
    /// # Errors
    /// It can't be kept.
    fn bound(&mut self, share: f64) -> Result<()> {
        let (reset, max_reset) = (self.whole.reset, self.whole.max_reset);
        let bounds = budget::asked_bounds(share, self.plan.events, reset, max_reset)?;
        if self.governor.is_none() {
            self.governor = Governor::new(&bounds, self.whole, &self.prices)?;
        }
        let Some(governor) = &mut self.governor else {
            return Ok(());
        };
        // The new bounds may not hold the values in force.
        let resets = governor.keep_to(&bounds);
        self.keep_above_clocks();
        match resets.as_slice() {
            [] => Ok(()),
            resets => self.change_resets(resets, None),
        }
    }

    /// Reports something that is not as it should be.
    fn problem(&mut self, text: &str) {
        (self.emit)(Event::Problem(text.to_owned()));
    }

    /// Reports progress.
    fn report(&mut self) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let load = self.load();
        if load.until > self.reported.until {
            let slowdown = |before: &Load| self.prices.window(before, &load)?.overhead();
            self.status.last_slowdown = slowdown(&self.reported);
            self.status.slowdown = slowdown(&Load::default());
            self.reported = load;
        }
        let governed = self.governor.as_ref().map(Governor::leader);
        let governed = governed.and_then(|(event, reset)| {
            let event = self.plan.events.get(usize::from(event.0))?;
            Some((reset, event.reset_unit()))
        });
        let bytes = get(&self.progress.bytes);
        let seconds = self.info.recorded_seconds(self.trace_time(now()).0);
        self.status = Status {
            visits: get(&self.progress.visits),
            slow: get(&self.progress.slow),
            durations: locked(&self.progress.durations).clone(),
            samples: get(&self.progress.samples),
            lost: get(&self.progress.lost),
            bytes,
            growth: seconds.and_then(|it| Growth::of(bytes, it, self.whole.max_size)),
            reset: governed,
            slowdown: self.status.slowdown,
            last_slowdown: self.status.last_slowdown,
        };
        self.remote.report(self.status.clone());
        (self.emit)(Event::Status(self.status.clone()));
    }

    /// Updates the content of `trace.json`.
    fn note_changes(&mut self) {
        if let Some(governor) = &self.governor {
            self.info.max_overhead = Some(governor.info());
            let failure = governor.failure().map(str::to_owned);
            let new = failure.filter(|text| !self.info.notes.contains(text));
            self.info.notes.extend(new);
        }
    }

    /// The reset value of an event in force.
    fn reset(&self, event: EventId) -> u64 {
        let mut changes = self.info.resets.iter().rev();
        let last = changes.find(|it| it.event == event);
        let first = || self.plan.events[usize::from(event.0)].reset.0.get();
        last.map_or_else(first, |it| it.new)
    }
}
