//! The end of a recording: `trace.json`, and the remarks on the trace.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use pebs_common::record::Role;

use super::Counting;
use super::cost::{ClockSpans, KnownCosts};
use super::plan::Plan;
use crate::binary::process;
use crate::collect::session::Session;
use crate::correlate::Crash;
use crate::cost::calibrate::UnitCosts;
use crate::estimate::EventTime;
use crate::estimate::positions::Fell;
use crate::failure::{Failure, Result, Warning};
use crate::pipeline::{Keep, Outcome};
use crate::pmu::counted::{CountSource, CountedEvent};
use crate::pmu::open::Times;
use crate::present::human::{plural, time};
use crate::probe::item::Item;
use crate::probe::set::{Probe, ProbeSet, Site};
use crate::store::run::{
    CountedInfo, EventInfo, HostInfo, KeepInfo, PositionsInfo, ProbeInfo, RunInfo, SiteInfo,
    WaitsInfo, has_times,
};
use crate::store::schema::SCHEMA_VERSION;
use crate::store::writer::WriteError;
use crate::units::{EventId, KtimeNs, Pid, ProbeId, TraceNs};

/// Returns the rules of redacted arguments that probes read; presets may have rules for others.
fn redacted(plan: &Plan) -> BTreeMap<String, String> {
    let is_read = |name: &String| plan.probes.columns.iter().any(|it| it.name == *name);
    let rules = plan.redact.iter().filter(|it| is_read(it.0));
    rules
        .map(|(name, rule)| (name.clone(), rule.to_string()))
        .collect()
}

/// The run's description, as far as it is known at the start.
pub(super) fn run_info(plan: &Plan, origin: KtimeNs) -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        command_line: std::env::args_os()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect(),
        complete: false,
        redacted: redacted(plan),
        pauses: Vec::new(),
        moments: Vec::new(),
        crashes: Vec::new(),
        copied: Vec::new(),
        host: host_info(plan),
        wall_clock_ns: wall_clock_of(origin),
        monotonic_ns: origin.0,
        duration_ns: None,
        events: events(plan),
        counted: counted(plan),
        count_interval_ns: plan.count_interval.map(|it| it.as_nanos() as u64),
        transport: plan.transport.how.name().to_owned(),
        transport_reason: plan.transport_reason(),
        clock_error: None,
        probes: probes(&plan.probes, |it| !it.resumes),
        resumes: probes(&plan.probes, |it| it.resumes && !it.rule.is_of_goroutine()),
        goroutines: probes(&plan.probes, |it| it.resumes && it.rule.is_of_goroutine()),
        columns: plan.probes.columns.clone(),
        switches: plan.kinds.switches,
        waits: plan.kinds.encounters.then(|| WaitsInfo {
            from_ns: Some(TraceNs(0)),
            why: "waits: who ends them is recorded (--with waits)".to_owned(),
        }),
        page_faults: plan.kinds.page_faults,
        call_graph: plan.call_graph.map(|how| how.name().to_owned()),
        unwound: None,
        keep: keep_info(plan.keep),
        ledger: None,
        cost: None,
        unit_costs: None,
        own_time: None,
        max_overhead: None,
        resets: Vec::new(),
        jitter: None,
        clock_changes: Vec::new(),
        positions: Vec::new(),
        import: None,
        notes: plan
            .notes
            .iter()
            .cloned()
            .chain(plan.warnings.iter().map(|w| w.text.clone()))
            .collect(),
    }
}

fn counted(plan: &Plan) -> Vec<CountedInfo> {
    let info = |(id, event): (u8, &CountedEvent)| CountedInfo {
        id: EventId(id),
        name: event.name.clone(),
        unit: event.unit,
        group: event.group as u32,
        source: match event.source {
            CountSource::Counter(_) => "counter",
            CountSource::Switches => "switches",
            CountSource::Times => "times",
        }
        .to_owned(),
    };
    (0..).zip(&plan.counted).map(info).collect()
}

fn keep_info(keep: Keep) -> Option<KeepInfo> {
    let (name, rule) = match keep {
        Keep::All => return None,
        Keep::Slow(slow) => ("slow", Some(slow)),
        Keep::None => ("none", None),
    };
    Some(KeepInfo {
        keep: name.to_owned(),
        slow: rule.map(|rule| rule.to_string()),
        warm_up: rule.map_or(0, |it| it.rule.unwrap_or_default().warm_up()),
        visits: None,
    })
}

/// `CLOCK_REALTIME` at an instant of `CLOCK_MONOTONIC`, ns since 1970.
fn wall_clock_of(origin: KtimeNs) -> i64 {
    let real = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let since = crate::collect::clock::now().0 - origin.0;
    real.tv_sec * 1_000_000_000 + real.tv_nsec - since as i64
}

fn host_info(plan: &Plan) -> HostInfo {
    let uname = rustix::system::uname();
    HostInfo {
        name: uname.nodename().to_string_lossy().into_owned(),
        kernel: plan.host.release.clone(),
        cpu: plan.host.cpu.name.clone(),
        cpus: plan.host.online.len() as u32,
        hypervisor: plan.host.hypervisor.clone(),
        line_bytes: plan.host.line_bytes,
    }
}

fn events(plan: &Plan) -> Vec<EventInfo> {
    let one = |(n, event): (usize, &crate::pmu::attr::ResolvedEvent)| {
        let granted = &plan.granted[n];
        EventInfo {
            id: EventId(n as u8),
            name: event.name.clone(),
            reset: event.reset.0.get(),
            unit: event.unit,
            frequency: None,
            has_times: has_times(&event.name, event.unit),
            enabled_ns: None,
            running_ns: None,
            r#type: event.attr.type_,
            config: event.attr.config,
            precise_requested: event.precise_requested,
            precise_granted: granted.precise,
            precise_reason: granted.reason.clone(),
        }
    };
    plan.events.iter().enumerate().map(one).collect()
}

/// Fraction of its time that an event must have been counted for its counts to be complete.
const WHOLE: f64 = 0.99;

/// Stores how long each event was counted, and adds a note on those not counted all the time.
pub(super) fn note_times(info: &mut RunInfo, times: &[Option<Times>]) {
    for (event, times) in info.events.iter_mut().zip(times) {
        let Some(times) = times else { continue };
        (event.enabled_ns, event.running_ns) = (Some(times.enabled_ns), Some(times.running_ns));
        let part = times.running_ns as f64 / times.enabled_ns.max(1) as f64;
        if times.enabled_ns > 0 && part < WHOLE {
            info.notes.push(format!(
                "{} was counted {:.0} % of the time: it took turns with others or was throttled, and has \
                 fewer samples by as much",
                event.name,
                part * 100.0
            ));
        }
    }
}

/// Stores where samples fell in items, and adds a note on probes whose items they beat with.
fn note_positions(info: &mut RunInfo, positions: &[(ProbeId, Fell)]) {
    for (probe, fell) in positions {
        info.positions.push(PositionsInfo {
            probe_id: *probe,
            samples: fell.samples,
            shares: fell.shares.to_vec(),
            off: fell.off,
            beats: fell.beats,
        });
        if fell.beats {
            let spec = info.probes.iter().find(|it| it.id == *probe);
            let spec = spec.map_or("", |it| &*it.spec);
            let advice = match info.jitter {
                None => "; record without --jitter 0",
                Some(_) => "",
            };
            info.notes.push(format!(
                "samples beat with items: {:.0} % of those in {spec} are at other places than the items' time is, and \
                 functions may be off by as much{advice}",
                fell.off * 100.0
            ));
        }
    }
}

/// The probes of one kind.
fn probes(set: &ProbeSet, is_of_kind: impl Fn(&Probe) -> bool) -> Vec<ProbeInfo> {
    let item = set.item.as_ref();
    let of_kind = set.probes.iter().filter(|it| is_of_kind(it));
    of_kind.map(|it| probe_info(it, item)).collect()
}

fn probe_info(probe: &Probe, item: Option<&Item>) -> ProbeInfo {
    ProbeInfo {
        id: probe.id,
        spec: probe.spec.clone().into(),
        rule: probe.rule,
        sites: probe.sites.iter().map(site_info).collect(),
        item: item.map(|item| item.info.clone()),
    }
}

fn site_info(site: &Site) -> SiteInfo {
    let role = match site.role {
        Role::Begin => "begin",
        Role::End => "end",
        Role::Return => "return",
        Role::Next => "next",
    };
    SiteInfo {
        path: site.path.display().to_string(),
        place: site.place.clone(),
        file_offset: site.file_offset,
        role: role.to_owned(),
        kind: if site.uretprobe {
            "uretprobe"
        } else {
            "uprobe"
        }
        .to_owned(),
        instruction: site.instruction.clone(),
        class: site.class,
    }
}

/// A recording that ended, and whose trace is not yet closed.
pub(super) struct Stopped {
    /// Its remaining state in the kernel.
    pub session: Session,
    pub outcome: Outcome,
    pub info: RunInfo,
    pub costs: KnownCosts,
    /// The clocks that sampled.
    pub clocks: ClockSpans,
    /// Count of each event, and how long it was counted.
    pub times: Vec<Option<Times>>,
    /// CPU time of the target, ns, if known.
    pub target_cpu_ns: Option<f64>,
    pub command: Option<ExitStatus>,
    pub ended_by: &'static str,
}

/// Result of a recording. Dropping it removes what is left of it in the kernel, which waits at each probe.
#[derive(Debug)]
pub struct Recorded {
    /// Directory of the trace.
    pub trace: PathBuf,
    /// Content of its `trace.json`: probes, events, ledger, costs, notes.
    pub info: RunInfo,
    /// Number of visits.
    pub visits: u64,
    /// Why it ended.
    pub ended_by: &'static str,
    /// Exit status of the command, if it ended.
    pub command: Option<ExitStatus>,
    /// Warnings, the most important one first.
    pub warnings: Vec<Warning>,
    /// Accounts that do not balance.
    pub faults: Vec<String>,
    /// Why the trace holds only what was written before, if it does.
    pub cut: Option<WriteError>,
    /// Number of probed places.
    pub places: usize,
    /// Bytes of each CPU's ring.
    pub ring_bytes: u32,
    /// The process of the command, if there is one.
    command_pid: Option<Pid>,
    #[expect(dead_code, reason = "held, not read")]
    session: Rest,
}

/// Remaining state of a recording in the kernel.
struct Rest(#[expect(dead_code, reason = "held, not read")] Session);

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rest")
    }
}

impl Recorded {
    /// The process of the command, if it still runs.
    #[must_use]
    pub fn command_that_goes_on(&self) -> Option<Pid> {
        let command = self.command_pid.filter(|_| self.command.is_none())?;
        let runs = process::exists(command) && !process::is_zombie(command);
        runs.then_some(command)
    }

    /// The content of `trace.json`, if the command was recorded to its end and all of the trace was written.
    ///
    /// # Errors
    /// Why not.
    pub fn complete(self) -> Result<RunInfo> {
        if let Some(error) = self.cut {
            return Err(error.into());
        }
        match self.command {
            Some(status) if status.success() => Ok(self.info),
            Some(status) => Err(Failure::bare(format!(
                "the command that was recorded failed: {status}"
            ))),
            None => Err(Failure::bare(format!(
                "the recording was ended early: {}",
                self.ended_by
            ))),
        }
    }
}

/// A closed trace and the remarks on it.
struct Closed {
    info: RunInfo,
    visits: u64,
    /// Accounts that do not balance.
    faults: Vec<String>,
    /// Why the trace is cut, if it is.
    cut: Option<WriteError>,
    /// Remark on the cost of the recording.
    heavy: Option<Warning>,
    /// Remarks on probed files that changed.
    replaced: Vec<String>,
}

/// Completes `trace.json` and closes the trace.
fn close(
    plan: &Plan,
    outcome: Outcome,
    mut info: RunInfo,
    costs: &UnitCosts,
    command: Option<ExitStatus>,
    target_cpu_ns: Option<f64>,
    clocks: &ClockSpans,
) -> Closed {
    let source = info.unit_costs.as_deref();
    info.own_time = super::cost::own_time(plan, costs, source, &outcome, clocks.last());
    let learnt = info.own_time.as_ref().and_then(|own| own.sample.as_ref());
    let sample_ns = learnt.map(|cost| cost.ns);
    let cost = super::cost::total(plan, costs, &outcome, sample_ns, target_cpu_ns, clocks);
    let heavy = super::cost::remark(plan, costs, &cost);
    let faults = outcome.ledger.check();
    note_positions(&mut info, &outcome.positions);
    info.unwound = outcome.unwound;
    if outcome.mappings_lost > 0 {
        info.notes.push(format!(
            "{} mapping events were lost: some functions may be unnamed",
            outcome.mappings_lost
        ));
    }
    if outcome.missing_switches > 0 {
        info.notes.push(format!(
            "{} missing: a wait without one ends at the thread's next record",
            plural(outcome.missing_switches, "switch-in event")
        ));
    }
    if let (waits @ 1.., ns) = outcome.mark_waits {
        info.notes.push(format!(
            "marks waited {} for the lock of their process's mappings (mmap_lock), {} in all: left out of net times",
            plural(waits, "time"),
            time(ns as f64)
        ));
    }
    if outcome.resumed_elsewhere > 0 {
        info.notes.push(format!(
            "{} were resumed on another thread than they began on: their time on the CPU is unknown",
            plural(outcome.resumed_elsewhere, "item")
        ));
    }
    if let Some(share) = outcome.ledger.outside().filter(|_| outcome.visits > 0)
        && plan.event_times().first() == Some(&EventTime::Clock)
        && let [probe, ..] = &*info.probes
    {
        info.notes.push(format!(
            "{:.0} % of the traced threads' time on the CPU is in no item: does {} begin and end all of an item's work?",
            (share * 100.0).floor(),
            probe.spec
        ));
    }
    info.notes.extend(faults.iter().cloned());
    let replaced = plan.files.remarks();
    info.notes.extend(replaced.iter().cloned());
    info.crashes = crashes(&outcome.crashes, command);
    info.complete = info.crashes.is_empty() && info.copied.is_empty();
    info.duration_ns = Some(outcome.end.0);
    info.clock_error = outcome.clock_error;
    if let Some(keep) = &mut info.keep {
        keep.visits = Some(outcome.kept);
    }
    info.ledger = Some(outcome.ledger);
    info.cost = Some(cost);
    let written = outcome.writer.finish(&info);
    Closed {
        info,
        visits: outcome.visits,
        faults,
        cut: outcome.write_error.or(written.err()),
        heavy,
        replaced,
    }
}

/// Processes that died of a signal that a probe can cause: followed processes, else the command.
fn crashes(seen: &[Crash], command: Option<ExitStatus>) -> Vec<String> {
    let text = |crash: &Crash| format!("pid {} died of {}", crash.pid.0, crash.name());
    let mut texts: Vec<String> = seen.iter().map(text).collect();
    let signal = command.and_then(|status| status.signal());
    if let Some(signal) = signal.and_then(|signal| u8::try_from(signal).ok())
        && Crash::is_one(signal)
        && texts.is_empty()
    {
        let crash = Crash {
            pid: Pid(0),
            signal,
        };
        texts.push(format!("the command died of {}", crash.name()));
    }
    texts
}

/// Warning of processes that died.
fn crashed(plan: &Plan, crashes: &[String]) -> Option<Warning> {
    let first = crashes.first()?;
    let more = match crashes.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    let sites = || plan.probes.probes.iter().flat_map(|probe| &probe.sites);
    let is_ret = |site: &Site| site.role != Role::Return || site.instruction.starts_with("ret");
    let hint = if sites().any(|site| site.uretprobe) {
        "leave out '--return uretprobe': it kills programs that throw or switch stacks"
    } else if sites().all(is_ret) {
        "run it without pebs-trace: if it survives, probe fewer functions, and report this"
    } else {
        "run it without pebs-trace: if it survives, try '--return ret', or fewer probes, and report this"
    };
    Some(Warning {
        text: format!("{first} while probed{more}: the trace is incomplete"),
        hint: hint.to_owned(),
    })
}

/// Closes the trace.
pub(super) fn finish(plan: &Plan, stopped: Stopped) -> Recorded {
    let closed = close(
        plan,
        stopped.outcome,
        stopped.info,
        &stopped.costs.units,
        stopped.command,
        stopped.target_cpu_ns,
        &stopped.clocks,
    );
    let warning = |text: String, hint: &str| Warning {
        text,
        hint: hint.to_owned(),
    };
    let mut warnings = Vec::new();
    warnings.extend(crashed(plan, &closed.info.crashes));
    if closed.visits == 0 {
        warnings.push(warning(
            "no item was recorded".to_owned(),
            &no_item_hint(plan),
        ));
    }
    let replaced = closed.replaced.into_iter();
    warnings.extend(replaced.map(|text| warning(text, "record again, to trace the new file")));
    warnings.extend(unnamed(&closed.info).map(|text| warning(text, NAMES)));
    warnings.extend(closed.heavy);
    warnings.extend(super::governor::remark(&closed.info));
    let command = plan.pids.first().filter(|_| !plan.command.is_empty());
    Recorded {
        trace: plan.output.clone(),
        info: closed.info,
        visits: closed.visits,
        ended_by: stopped.ended_by,
        command: stopped.command,
        warnings,
        faults: closed.faults,
        cut: closed.cut,
        places: plan.probes.probes.iter().map(|it| it.sites.len()).sum(),
        ring_bytes: plan.ring_bytes,
        command_pid: command.copied(),
        session: Rest(stopped.session),
    }
}

/// Closes the trace of a counting run, whichever way it ended, without output.
pub(super) fn close_counted(plan: Plan, stopped: Stopped) -> Result<Counting> {
    let Stopped {
        outcome,
        info,
        costs,
        times,
        ended_by,
        target_cpu_ns,
        clocks,
        ..
    } = stopped;
    let most_ring_bytes = outcome.most_ring_bytes;
    let closed = close(
        &plan,
        outcome,
        info,
        &costs.units,
        None,
        target_cpu_ns,
        &clocks,
    );
    if let Some(error) = closed.cut {
        return Err(error.into());
    }
    Ok(Counting {
        most_ring_bytes,
        source: costs.source(),
        stacks: plan.stacks_chosen.clone(),
        no_item: no_item_hint(&plan),
        host: plan.host,
        events: plan.events,
        times,
        units: costs.units,
        calibration: costs.calibration,
        note: costs.note,
        info: closed.info,
        visits: closed.visits,
        ended_by,
    })
}

/// Hint for code without symbol names.
const NAMES: &str = "names of generated code come from /tmp/perf-PID.map ('jcmd PID Compiler.perfmap' \
    before recording, 'node --perf-basic-prof') or a jit dump ('node --perf-prof'), those of a stripped binary from its debug file";

/// Whether most samples have no name.
fn unnamed(info: &RunInfo) -> Option<String> {
    let (unnamed, all) = info.ledger.as_ref()?.unnamed()?;
    Some(format!("{unnamed} of {all} samples have no name"))
}

fn no_item_hint(plan: &Plan) -> String {
    let unmarked = plan.probes.item.as_ref();
    if let Some(item) = unmarked.filter(|_| !plan.probes.is_marked_and_sampled()) {
        let (place, none) = (&item.info.place, item.info.none);
        return format!(
            "{place} was {none} or unreadable at every sample (the ledger says how often): does the \
             traced program set it?"
        );
    }
    let place = plan
        .probes
        .probes
        .first()
        .and_then(|probe| probe.sites.last());
    match place {
        Some(site) if plan.pids.is_empty() => {
            let of = match &plan.cgroup {
                Some(cgroup) => format!(" of cgroup {}", cgroup.path.display()),
                None => String::new(),
            };
            format!(
                "no process{of} called {} in {} while it was recorded",
                site.place,
                site.path.display()
            )
        }
        Some(site) if !plan.threads.is_empty() => {
            format!("the traced threads did not call {}", site.place)
        }
        Some(site) => format!("the traced processes did not call {}", site.place),
        None => "give another --uprobe".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports only deaths that a probe can cause; for a command whose end was not seen, by its exit status.
    #[test]
    fn deaths() {
        let status = |wait| Some(ExitStatus::from_raw(wait));
        let seen = [Crash {
            pid: Pid(7),
            signal: 5,
        }];
        assert_eq!(crashes(&seen, status(5)), ["pid 7 died of SIGTRAP"]);
        assert_eq!(
            crashes(&[], status(0x80 | 11)),
            ["the command died of SIGSEGV"]
        );
        for (wait, ended) in [(0, "by itself"), (15, "by SIGTERM"), (5 << 8, "with 5")] {
            assert!(crashes(&[], status(wait)).is_empty(), "{ended}");
        }
        assert!(crashes(&[], None).is_empty());
    }
}
