//! Resolves the options on this machine.

use std::path::{Path, PathBuf};

use super::event::{Emit, Event};
use super::plan::{Offer, Plan};
use super::recording::{CallGraph, KeepItems, Recording, SampleClock};
use super::redact::Rules;
use super::replaced::{self, ProbedFiles};
use super::start::Trigger;
use super::targets::RecordingTargets;
use super::transport;
use super::{budget, items, placement, preset, redact};
use crate::binary::build;
use crate::binary::debug_files;
use crate::binary::locate::{locate, mapped_files};
use crate::binary::process;
use crate::binary::process::FileId;
use crate::collect::command;
use crate::collect::counted::CountedCounters;
use crate::collect::frequency::Frequencies;
use crate::collect::programs::StackLimits;
use crate::collect::session::Transport;
use crate::cost::stepping;
use crate::estimate::EventTime;
use crate::estimate::slow_by::{RankBy, SlowBy};
use crate::failure::{Failure, Result, Warning};
use crate::limits;
use crate::pipeline::Keep;
use crate::pmu::attr::{self, EventClass, ResolvedEvent};
use crate::pmu::counted::{self, CountError, CountedEvent};
use crate::pmu::counters;
use crate::pmu::event::{EventKind, EventSpec};
use crate::pmu::host::{self, Host};
use crate::pmu::jitter::DEFAULT_PERCENT;
use crate::pmu::open::{self, Granted};
use crate::pmu::reset;
use crate::pmu::target::Target;
use crate::preset::Chosen;
use crate::probe::set::{ProbeSet, Site};
use crate::probe::{self, ResolveOptions};
use crate::spec::{End, Endpoint, Spec};
use crate::store::fields::check_columns;
use crate::store::run::event_time;
use crate::stream::decode::RecordKinds;
use crate::symbolize::{Inlining, SymbolizeOptions};
use crate::units::{Pid, ResetValue, Tid};
use pebs_common::record::MAX_FRAMES;

/// Bytes of a sample of an open visit.
const SAMPLE_BYTES: u64 = crate::stream::samples::SampleBuf::BYTES as u64;

/// Bytes of a sample's memory access, with the table that finds it.
const ACCESS_BYTES: u64 = 2 * size_of::<crate::stream::access::Access>() as u64;

/// Remark where the kernel does not report frequencies.
const NO_FREQUENCY: &str = "frequencies of CPUs are unknown: there is no \
    /sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq here (virtual machines rarely have it)";

/// Checks the options against the machine. Leaves nothing open.
///
/// # Errors
/// The first option that can't be satisfied, with a hint.
pub(super) fn resolve(recording: &Recording, emit: &mut Emit<'_>) -> Result<Plan> {
    // Errors of syntax first, even without privileges.
    let reset = attr::reset_value(recording.reset.unwrap_or(budget::PLAIN_RESET))?;
    let keep = keep(recording)?;
    check_extras(recording)?;
    let specs = parse_events(&recording.events)?;
    let counted_specs = counted::parse(&recording.counts)?;
    check_counts(recording)?;
    let targets = RecordingTargets::of(recording)?;
    // Before it is asked which files it runs.
    let process = targets.sees.map(|pid| (pid, replaced::deleted(pid)));
    let command = recording.command().first();
    let program = command.map(command::find).transpose()?;
    check_is_new(&recording.output)?;
    let options = ResolveOptions {
        return_mode: recording.return_mode,
        pid: targets.sees,
        program,
        steps: stepping::works(),
    };
    let missing = limits::missing_privileges();
    let debug_files = match missing {
        None => debug_files::fetch(
            || binaries(recording, &targets),
            |files| emit(Event::AskingDebuginfod(files)),
        ),
        Some(_) => debug_files::Fetched::default(),
    };
    let Marking {
        probes,
        redact,
        start,
        mut notes,
    } = marking(recording, &targets, &options, emit)?;
    check_may_record(missing)?;
    let former_limits = limits::raise();
    let host = Host::probe(Path::new("/"));
    check_kernel(&host)?;
    let Granting {
        mut events,
        granted,
        notes: mut event_notes,
        mut warnings,
    } = resolve_events(recording, &specs, reset, &host)?;
    let counted = counted::resolve_all(&counted_specs, &host)?;
    let turns = counted::serve_samples_first(&mut events, &counted, recording.multiplex, &host)?;
    try_counted(&counted, &host)?;
    notes.extend(probes.notes.iter().cloned());
    notes.extend(debug_files.note);
    notes.extend(
        targets
            .pids
            .iter()
            .filter_map(|pid| stranger(*pid, &probes)),
    );
    warnings.extend(debug_files.warning);
    notes.append(&mut event_notes);
    notes.extend(turns);
    if let Some(register) = probes.item.as_ref().and_then(|item| item.register) {
        let number = register.perf_number();
        events.iter_mut().for_each(|it| it.keep_register(number));
    }
    let transport = transport::choose(recording, &mut events, &host)?;
    if transport.how == Transport::Bulk {
        notes.retain(|note| note != attr::NO_SAMPLE_TIME);
    }
    // Events that collect many records per interrupt do not interrupt too often.
    let one_by_one =
        |event: &&ResolvedEvent| transport.how == Transport::Bpf || !event.is_buffered(&host);
    let interrupting = events.iter().filter(one_by_one);
    warnings.extend(interrupting.filter_map(|event| reset::throttle_warning(event, &host.limits)));
    warnings.extend(unsteady(recording, &events));
    let overhead = budget::bounds(recording, &events)?;
    let frequencies = frequencies(recording, &host, &mut notes);
    let jitter = default_jitter(recording, &events, transport.how);
    let max_stack_bytes = recording.stack_memory.unwrap_or(recording.max_memory / 8) as usize;
    let call_graph = recording
        .call_graph
        .filter(|it| *it != CallGraph::Affordable);
    let may_offer = transport.how == Transport::Bpf && overhead.is_some();
    let offer = (may_offer && suits(recording, &events)).then(|| Offer {
        stacks: limits_of(CallGraph::Eh, &host),
        ring_bytes: recording.ring_size_with_stacks,
        all_rings_bytes: recording.max_memory / 2,
        max_stack_bytes,
    });
    let may_record_waits = overhead.is_some() && may_record_waits(recording, &events);
    let mut plan = Plan {
        files: ProbedFiles::of(&probes, process),
        redact,
        probes,
        max_samples: max_samples(recording, &events),
        events,
        counted,
        count_interval: recording.count_interval,
        transport,
        granted,
        pids: targets.pids,
        threads: targets.threads,
        cgroup: targets.cgroup,
        command: recording.command().to_vec(),
        former_limits,
        start,
        pausable: recording.pausable,
        duration: recording.duration,
        stop_after: recording.stop_after,
        max_size: recording.max_size,
        kinds: RecordKinds {
            encounters_later: may_record_waits,
            ..recording.kinds
        },
        frequencies,
        ring_bytes: recording.ring_size,
        max_waiting_bytes: (recording.max_memory / 4) as usize,
        call_graph,
        stacks: call_graph.map_or_else(StackLimits::default, |it| limits_of(it, &host)),
        offer,
        stacks_chosen: None,
        max_stack_bytes: call_graph.map_or(0, |_| max_stack_bytes),
        output: recording.output.clone(),
        segment: recording.segment,
        overhead,
        jitter: recording.jitter.unwrap_or(jitter),
        reset: recording.reset,
        max_reset: recording.max_reset,
        force: recording.force,
        symbolize: SymbolizeOptions {
            inlined: match recording.inlined {
                true => Inlining::Innermost,
                false => Inlining::Physical,
            },
            debug_dirs: None,
            recorded: None,
            own_programs: None,
        },
        keep,
        notes,
        warnings,
        counting: false,
        patient: recording.patient,
        host,
    };
    let debuggers = placement::debuggers(&plan);
    plan.warnings.extend(debuggers);
    Ok(plan)
}

/// Checks that no trace would be overwritten.
fn check_is_new(output: &Path) -> Result<()> {
    if !output.exists() {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "cannot create trace {}: it exists already",
            output.display()
        ),
        "traces are never overwritten; give another -o DIR".to_owned(),
    ))
}

/// Checks that nothing is missing to record here.
fn check_may_record(missing: Option<String>) -> Result<()> {
    if let Some(missing) = missing {
        return Err(Failure::new(
            format!("cannot record: {missing}"),
            "use sudo, or 'pebs-trace doctor' for what is missing".to_owned(),
        ));
    }
    if limits::pid_namespace(Path::new("/")) == Some(true) {
        return Err(Failure::new(
            "cannot record in a pid namespace: the kernel reports other pids than those seen here"
                .to_owned(),
            limits::PIDS.to_owned(),
        ));
    }
    Ok(())
}

/// CPUs whose frequency is to be recorded.
fn frequencies(recording: &Recording, host: &Host, notes: &mut Vec<String>) -> Frequencies {
    if !recording.frequencies {
        return Frequencies::default();
    }
    let frequencies = Frequencies::open(Path::new("/"), &host.online);
    if frequencies.is_empty() {
        notes.push(NO_FREQUENCY.to_owned());
    }
    frequencies
}

/// Maximum number of samples held for open visits.
fn max_samples(recording: &Recording, events: &[ResolvedEvent]) -> usize {
    let has_access = events.iter().any(|event| event.access != 0);
    let sample_bytes = SAMPLE_BYTES + if has_access { ACCESS_BYTES } else { 0 };
    (recording.max_memory / 2 / sample_bytes) as usize
}

/// Probes of a recording, and what follows from them.
struct Marking {
    probes: ProbeSet,
    /// Rules for texts that may hold personal data.
    redact: Rules,
    start: Trigger,
    /// Parts of presets that were left out.
    notes: Vec<String>,
}

/// Resolves the probes that were typed, those of presets, and the source of item ids.
fn marking(
    recording: &Recording,
    targets: &RecordingTargets,
    options: &ResolveOptions,
    emit: &mut Emit<'_>,
) -> Result<Marking> {
    let is_unmarked = recording.typed_item().is_some() && recording.uprobes.is_empty();
    let presets = match is_unmarked {
        true => Vec::new(),
        false => preset::chosen(recording, options)?,
    };
    let (mut uprobes, mut resumes) = (recording.uprobes.clone(), recording.resumes.clone());
    let redact = redact::rules(recording, &presets)?;
    let mut notes = Vec::new();
    for preset in presets {
        let Chosen { name, left_out, .. } = &preset;
        notes.extend(left_out.iter().map(|it| format!("preset {name}: {it}")));
        uprobes.extend(preset.uprobes.iter().cloned());
        resumes.extend(preset.resumes.iter().cloned());
        emit(Event::Preset {
            name: preset.name,
            uprobes: preset.uprobes,
            resumes: preset.resumes,
        });
    }
    let mut marked = match is_unmarked {
        true => ProbeSet::default(),
        false => probe::resolve_with(&uprobes, &resumes, options)?,
    };
    redact::place(&mut marked, &redact, &recording.redact)?;
    let start = Trigger::resolve(&recording.start, options)?;
    let probes = match recording.typed_item() {
        Some(typed) => items::probes(recording, &targets.pids, typed, marked)?,
        None => marked,
    };
    check_columns(&probes.columns)?;
    Ok(Marking {
        probes,
        redact,
        start,
        notes,
    })
}

/// Binaries whose debug files a recording will need, as far as that is known before it starts: the probed ones, the
/// command, and the files mapped by the processes.
fn binaries(recording: &Recording, targets: &RecordingTargets) -> Vec<PathBuf> {
    let pid = targets.sees;
    let command = recording.command().first();
    let command = command.and_then(|command| command::find(command).ok());
    let file = |place: &Endpoint| match place.is_build {
        true => build::find(&place.binary, pid, command.as_deref()).ok(),
        false => locate(&place.binary, pid).ok(),
    };
    let mut found = Vec::new();
    let named = recording.presets.iter().filter_map(|it| it.split_once('='));
    found.extend(named.filter_map(|(_, bin)| locate(bin, pid).ok()));
    for spec in recording
        .uprobes
        .iter()
        .filter_map(|text| Spec::parse(text).ok())
    {
        found.extend(file(&spec.begin));
        if let End::At(end) = &spec.end {
            found.extend(file(end));
        }
    }
    found.extend(command);
    for pid in targets.pids.iter().copied() {
        found.extend(mapped_files(pid));
    }
    found
}

/// Returns the variation of distances between samples unless it is given, percent.
///
/// Samples of `--item-..` alone tell where items are: a long distance would miss some. Events of the CPU were never
/// recorded on hardware with varying distances.
fn default_jitter(recording: &Recording, events: &[ResolvedEvent], transport: Transport) -> f64 {
    let clocks = events.iter().all(|event| event.class == EventClass::Clock);
    let varies = recording.typed_item().is_none() && clocks && transport == Transport::Bpf;
    if varies { DEFAULT_PERCENT } else { 0.0 }
}

/// Warning if a process of `-p` runs none of the probed files.
fn stranger(pid: Pid, probes: &ProbeSet) -> Option<String> {
    let sites = || probes.probes.iter().flat_map(|probe| &probe.sites);
    let path = sites().next()?.path.display();
    let mapped = process::mappings(pid)?;
    // Device numbers differ in containers and on some file systems.
    let is_mapped = |path: &Path| {
        let inode = FileId::of(path).map(|file| file.inode);
        let name = path.file_name();
        mapped
            .iter()
            .any(|it| Some(it.file.inode) == inode || Path::new(&it.path).file_name() == name)
    };
    if sites().any(|site| is_mapped(&site.path)) {
        return None;
    }
    let was_there = |site: &Site| {
        let old = format!("{} (deleted)", site.path.display());
        mapped.iter().any(|it| it.path == old)
    };
    if let Some(site) = sites().find(|site| was_there(site)) {
        let name = site.path.file_name()?.to_string_lossy();
        return Some(format!(
            "process {} still runs the old {}, which was replaced on disk; the new file is probed: '{name}:..', \
             without a path, probes what the process runs",
            pid.0,
            site.path.display()
        ));
    }
    // A process that has ended has no executable.
    let exe = process::exe(pid)?;
    Some(format!(
        "process {} runs {} and has not loaded {path}: is it the right one?",
        pid.0,
        exe.display()
    ))
}

/// Says what is not known where no event goes on at all times, if it was asked for.
fn unsteady(recording: &Recording, events: &[ResolvedEvent]) -> Option<Warning> {
    let is_steady = |event: &ResolvedEvent| event_time(&event.name, event.unit) != EventTime::None;
    let first = events.first()?;
    if events.iter().any(is_steady) {
        return None;
    }
    let text = if recording.typed_item().is_some() {
        format!(
            "{} does not go on at all times: when a thread turns from one item to the next is known to its samples only, \
             however long ago the last one was",
            first.name
        )
    } else if recording.keep == KeepItems::Slow {
        format!(
            "{} does not count time: items are kept by their durations, and not by the times of their functions",
            first.name
        )
    } else {
        return None;
    };
    Some(Warning {
        text,
        hint: "--event cpu-clock, or cycles, as well".to_owned(),
    })
}

/// Returns the items that keep their details.
fn keep(recording: &Recording) -> Result<Keep> {
    let keep = match recording.keep {
        KeepItems::Slow => return Ok(Keep::Slow(kept_slow(recording)?)),
        KeepItems::All => Keep::All,
        KeepItems::None => Keep::None,
    };
    let Some(rule) = recording.slow else {
        return Ok(keep);
    };
    let what = if keep == Keep::All {
        "everything"
    } else {
        "nothing"
    };
    Err(Failure::new(
        format!("--slow {rule} says which items to keep, but {what} is kept"),
        format!("add --keep slow: '--keep slow --slow {rule}'"),
    ))
}

/// The rule for the items that are kept.
fn kept_slow(recording: &Recording) -> Result<SlowBy> {
    let slow = recording.slow.unwrap_or_default();
    if slow.by == RankBy::CpuTime && !recording.kinds.switches {
        return Err(Failure::new(
            format!("cannot keep items by time on the CPU (--slow {slow}) without switches"),
            "leave --no-switches out, or 'cpu' out of --slow".to_owned(),
        ));
    }
    // A gap is known at the end only.
    Ok(SlowBy {
        rule: Some(slow.rule.unwrap_or_default()),
        ..slow
    })
}

/// Limits of call stacks.
fn limits_of(call_graph: CallGraph, host: &Host) -> StackLimits {
    let most = MAX_FRAMES as u32;
    let set = host.limits.max_stack.and_then(|set| set.try_into().ok());
    StackLimits {
        frames: set.map_or(most, |set: u32| set.clamp(1, most)),
        copied: COPIED_BYTES,
        by_pointers: call_graph == CallGraph::Fp,
    }
}

/// Whether samples can have call stacks that were not asked for: nothing but a clock samples, as often as the budget pays
/// for, they are kept, and neither they nor waits carry anything else.
fn suits(recording: &Recording, events: &[ResolvedEvent]) -> bool {
    recording.call_graph == Some(CallGraph::Affordable)
        && recording.reset.is_none()
        && recording.typed_item().is_none()
        && !recording.kinds.encounters
        && recording.keep != KeepItems::None
        && matches!(events, [event] if event.class == EventClass::Clock && event.access == 0)
}

/// Whether it may be recorded from some time on who ends waits, though that was not asked for: the budget sets how often a
/// clock samples, and items have details.
fn may_record_waits(recording: &Recording, events: &[ResolvedEvent]) -> bool {
    recording.kinds.encounters_later
        && !recording.kinds.encounters
        && recording.kinds.switches
        && recording.reset.is_none()
        && recording.typed_item().is_none()
        && recording.keep != KeepItems::None
        && matches!(events, [event] if event.class == EventClass::Clock)
}

/// Maximum bytes of a user stack that are copied: more than most servers have in use.
const COPIED_BYTES: u32 = 16 << 10;

/// Checks that the options which `--with` needs are on.
fn check_extras(recording: &Recording) -> Result<()> {
    let (what, needed, option) =
        if !recording.kinds.page_faults && recording.kinds.interference.faults {
            ("faults", "page faults", "--no-page-faults")
        } else if !recording.kinds.switches && recording.kinds.encounters {
            ("waits", "switches", "--no-switches")
        } else {
            return Ok(());
        };
    Err(Failure::new(
        format!("--with {what} needs {needed}, which {option} leaves out"),
        "give one of them".to_owned(),
    ))
}

/// Checks that the options which `--count` needs are on.
fn check_counts(recording: &Recording) -> Result<(), CountError> {
    match recording {
        _ if recording.counts.is_empty() => Ok(()),
        _ if !recording.kinds.switches => Err(CountError::Needs("switches")),
        _ if recording.typed_item().is_some() && recording.uprobes.is_empty() => {
            Err(CountError::Needs("marks"))
        }
        _ => Ok(()),
    }
}

/// Opens the counters of one CPU to see what the machine grants. The address of a breakpoint given by name is known
/// only once there is a process.
fn try_counted(counted: &[CountedEvent], host: &Host) -> Result<()> {
    let is_named = |event: &ResolvedEvent| {
        let class = &event.class;
        matches!(
            class,
            EventClass::Breakpoint {
                symbol: Some(_),
                ..
            }
        )
    };
    if !counted
        .iter()
        .filter_map(CountedEvent::counter)
        .any(is_named)
    {
        let first = host.online.first();
        CountedCounters::open(counted, first.map_or(&[], std::slice::from_ref))?;
    }
    Ok(())
}

/// Refuses a kernel that is too old before anything is loaded: the verifier's message would be long and unclear.
fn check_kernel(host: &Host) -> Result<()> {
    if aya::features().bpf_cookie() {
        return Ok(());
    }
    let release = &host.release;
    Err(Failure::new(
        format!(
            "cannot record on Linux {release}: it has no cookies for perf links (Linux 5.15 has them)"
        ),
        format!(
            "{}; 'pebs-trace doctor' says what else is missing",
            host::NEWER
        ),
    ))
}

fn parse_events(typed: &[String]) -> Result<Vec<EventSpec>> {
    let specs = typed.iter().map(|text| text.parse::<EventSpec>());
    Ok(specs.collect::<Result<_, _>>()?)
}

/// The requested events as the machine grants them.
#[derive(Default)]
struct Granting {
    events: Vec<ResolvedEvent>,
    granted: Vec<Granted>,
    notes: Vec<String>,
    warnings: Vec<Warning>,
}

fn resolve_events(
    recording: &Recording,
    specs: &[EventSpec],
    reset: ResetValue,
    host: &Host,
) -> Result<Granting> {
    if specs.len() > pebs_common::config::MAX_EVENTS {
        return Err(Failure::new(
            format!("{} events are too many", specs.len()),
            format!("give at most {} --event", pebs_common::config::MAX_EVENTS),
        ));
    }
    let mut all = Granting::default();
    for spec in specs {
        let (mut event, granted) = grant(spec, host, reset)?;
        if recording.reset.is_none() && event.reset == reset {
            event.set_reset(reset::unasked(&event));
        }
        if recording.exclude_kernel {
            event.exclude_kernel()?;
        }
        match recording.sample_clock {
            SampleClock::Perf if host.programs_see_sample_time() => {
                event.attr.set_use_clockid(0);
                event.perf_clock = true;
            }
            SampleClock::Perf => all.notes.push(attr::NO_SAMPLE_TIME.to_owned()),
            SampleClock::Monotonic => {}
        }
        match recording.call_graph {
            Some(CallGraph::Lbr) => event.record_calls(host)?,
            Some(CallGraph::Fp | CallGraph::Eh) => event.with_call_stacks(),
            Some(CallGraph::Affordable) | None => {}
        }
        all.warnings.append(&mut reset::check_reset(&event)?);
        all.warnings.extend(granted.warning(&event.name));
        all.notes.append(&mut event.notes);
        all.warnings.append(&mut event.warnings);
        all.events.push(event);
        all.granted.push(granted);
    }
    if recording.memory {
        ask_access(&mut all.events)?;
    }
    if !recording.multiplex {
        counters::check(&all.events, host)?;
    }
    Ok(all)
}

/// Makes samples carry their memory accesses, where the events can.
fn ask_access(events: &mut [ResolvedEvent]) -> Result<()> {
    let able = events.iter_mut().map(ResolvedEvent::ask_access);
    if able.fold(false, |any, able| any | able) {
        return Ok(());
    }
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    Err(Failure::new(
        format!(
            "cannot record memory accesses: samples of {} have none",
            names.join(", ")
        ),
        "take page-faults, a precise event of Intel's such as mem-loads:P, or ibs_op// on AMD"
            .to_owned(),
    ))
}

/// Opens an event once to see what the machine grants.
pub(crate) fn grant(
    spec: &EventSpec,
    host: &Host,
    reset: ResetValue,
) -> Result<(ResolvedEvent, Granted)> {
    let tid = Tid(std::process::id());
    let own = Target::Thread(tid);
    if spec.kind == EventKind::Auto {
        let auto = open::open_auto(spec.modifiers, host, reset, own)?;
        let mut event = auto.event;
        event
            .attr
            .set_precise_ip(auto.opened.granted.precise.into());
        return Ok((event, auto.opened.granted));
    }
    let mut event = attr::resolve(spec, host, reset)?;
    // The address of a breakpoint is known only once there is a process.
    if matches!(
        event.class,
        EventClass::Breakpoint {
            symbol: Some(_),
            ..
        }
    ) {
        return Ok((event, Granted::default()));
    }
    let opened = open::open_stepping_down(&event, own)?;
    event.attr.set_precise_ip(opened.granted.precise.into());
    let lower = open::settle_twins(&mut event, tid)?;
    event.notes.extend(lower);
    Ok((event, opened.granted))
}
