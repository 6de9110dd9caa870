//! Makes `trace.json` of an import.

use perf_event_open_sys::bindings as sys;

use super::roles::{Roles, Use};
use super::survey::{Counts, Survey};
use crate::perf::data::attr::{Attr, Event};
use crate::perf::data::reader::PerfData;
use crate::store::run::{
    EventInfo, HostInfo, ImportInfo, ImportedEvent, ProbeInfo, RunInfo, has_times,
};
use crate::store::schema::SCHEMA_VERSION;
use crate::units::{CountUnit, EventId, ProbeId};

const SECOND: u64 = 1_000_000_000;

/// `trace.json` as known before the records are fed. `origin`: ns 0 of the trace on the recording's clock; `spec`:
/// where items begin and end, for people.
#[must_use]
pub fn run_info(
    data: &PerfData,
    survey: &Survey,
    roles: &Roles,
    (origin, spec): (u64, &str),
) -> RunInfo {
    let features = &data.features;
    let wall = features
        .clock
        .filter(|clock| Some(clock.clock) == clock_of(data));
    let wall = wall.map(|clock| {
        let since = origin.wrapping_sub(clock.clock_ns).cast_signed();
        clock.wall_ns.cast_signed().wrapping_add(since)
    });
    let probe = |rule| ProbeInfo {
        id: ProbeId(0),
        spec: spec.to_owned().into(),
        rule,
        sites: Vec::new(),
        item: None,
    };
    RunInfo {
        schema_version: SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        command_line: std::env::args_os()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect(),
        host: HostInfo {
            name: features.hostname.clone().unwrap_or_default(),
            kernel: features.release.clone().unwrap_or_default(),
            cpu: features.cpu.clone().unwrap_or_default(),
            cpus: features.cpus.unwrap_or(0),
            hypervisor: None,
            line_bytes: features.line_bytes,
        },
        wall_clock_ns: wall.unwrap_or(0),
        monotonic_ns: origin,
        events: events(data, survey, roles),
        counted: Vec::new(),
        count_interval_ns: None,
        transport: "import".to_owned(),
        transport_reason: by_what(data),
        probes: roles.rule.map(probe).into_iter().collect(),
        switches: roles.switches,
        call_graph: has_stacks(data, roles).then(|| "recorded".to_owned()),
        notes: notes(data, survey, roles),
        import: Some(import_info(data, survey, roles, wall.is_some())),
        ..RunInfo::default()
    }
}

/// Whether an event used for samples or switches records call chains.
fn has_stacks(data: &PerfData, roles: &Roles) -> bool {
    let used = |used: &Use| matches!(used, Use::Samples(_) | Use::Switches);
    let events = data.events.iter().zip(&roles.uses);
    let mut used = events.filter(|(_, it)| used(it)).map(|(event, _)| event);
    used.any(|event| event.attr.layout.has(sys::PERF_SAMPLE_CALLCHAIN))
}

/// The clock id of the first event, taken for the whole recording; `None`: perf's own clock.
fn clock_of(data: &PerfData) -> Option<i32> {
    data.events.first().and_then(|event| event.attr.clock)
}

fn by_what(data: &PerfData) -> String {
    let version = data.features.version.as_deref();
    let version = version.map_or_else(String::new, |version| format!(" {version}"));
    format!("recorded by perf{version} in {}", data.path())
}

fn import_info(
    data: &PerfData,
    survey: &Survey,
    roles: &Roles,
    wall_clock_known: bool,
) -> ImportInfo {
    let clock = match clock_of(data) {
        None => "perf".to_owned(),
        Some(libc::CLOCK_MONOTONIC) => "monotonic".to_owned(),
        Some(other) => format!("clockid {other}"),
    };
    let counts = survey.names.names().iter().zip(&survey.counts);
    let events = counts
        .zip(&roles.uses)
        .map(|((name, counts), used)| ImportedEvent {
            name: name.clone(),
            used_for: match used {
                Use::Samples(_) => "samples",
                Use::Mark { begin: true, .. } => "begin",
                Use::Mark { begin: false, .. } => "end",
                Use::Switches => "switches",
                Use::LeftOut => "nothing",
            }
            .to_owned(),
            samples: counts.samples,
            exact: counts.exact,
        });
    ImportInfo {
        path: data.path().to_owned(),
        bytes: data.len,
        piped: data.piped,
        perf_version: data.features.version.clone(),
        clock,
        wall_clock_known,
        cut: cut(data, survey),
        events: events.collect(),
    }
}

/// Returns the place and reason of the file's early end; `None` if it is whole.
fn cut(data: &PerfData, survey: &Survey) -> Option<String> {
    let fault = survey.fault.as_ref();
    let fault = fault.map(|fault| format!("{} at byte {}", fault.what, fault.at));
    let behind = || data.incomplete.then(|| "behind its records".to_owned());
    let killed = || data.unfinished.then(|| "perf record was killed".to_owned());
    fault.or_else(behind).or_else(killed)
}

/// The sampled events, in the order of their trace ids.
pub(super) fn events(data: &PerfData, survey: &Survey, roles: &Roles) -> Vec<EventInfo> {
    let one = |(number, n): (usize, usize)| {
        let Event { attr, .. } = &data.events[n];
        let reset = reset(attr, &survey.counts[n]);
        // A clock that excludes user space counts something other than time on the CPU.
        let unit = match (attr.is_clock() && !attr.exclude_user, reset) {
            (_, None) => CountUnit::Samples,
            (true, Some(_)) => CountUnit::Ns,
            (false, Some(_)) => CountUnit::Events,
        };
        let name = &survey.names.names()[n];
        EventInfo {
            id: EventId(number as u8),
            name: name.clone(),
            reset: reset.unwrap_or(1),
            unit,
            frequency: attr.is_frequency.then_some(attr.period),
            has_times: has_times(name, unit),
            enabled_ns: None,
            running_ns: None,
            r#type: attr.kind,
            config: attr.config,
            precise_requested: attr.precise,
            precise_granted: attr.precise,
            precise_reason: None,
        }
    };
    roles.sampled().enumerate().map(one).collect()
}

/// The reset value of an event; `None` if it varied or is unknown.
pub(super) fn reset(attr: &Attr, counts: &Counts) -> Option<u64> {
    if attr.kind == sys::PERF_TYPE_TRACEPOINT {
        return Some(1);
    }
    match (attr.is_frequency, counts.periods) {
        (false, _) => Some(attr.period),
        // The kernel converts a clock's frequency to a period once and keeps it.
        (true, _) if attr.is_clock() => SECOND.checked_div(attr.period),
        (true, Some((least, most))) if least == most => Some(least),
        (true, _) => None,
    }
    .filter(|reset| *reset > 0)
}

/// Whether the CPU takes the event's samples, so that they may have the exact ip.
const fn can_be_exact(attr: &Attr) -> bool {
    !matches!(
        attr.kind,
        sys::PERF_TYPE_SOFTWARE | sys::PERF_TYPE_TRACEPOINT | sys::PERF_TYPE_BREAKPOINT
    )
}

/// Notes about the recording's limits, shown with the results.
fn notes(data: &PerfData, survey: &Survey, roles: &Roles) -> Vec<String> {
    let mut notes = Vec::new();
    let share = |(n, counts): (usize, &Counts)| {
        let name = &survey.names.names()[n];
        let Counts { samples, exact, .. } = *counts;
        let percent = 100.0 * exact as f64 / samples as f64;
        format!("{name}: {exact} of {samples} samples have the exact ip ({percent:.0} %)")
    };
    let sampled = roles.sampled().map(|n| (n, &survey.counts[n]));
    let tells =
        |&(n, counts): &(usize, &Counts)| counts.samples > 0 && can_be_exact(&data.events[n].attr);
    notes.extend(sampled.filter(tells).map(share));
    let guest: u64 = survey.counts.iter().map(|counts| counts.guest).sum();
    if guest > 0 {
        notes.push(format!(
            "{guest} samples were taken in guests, and left out"
        ));
    }
    if survey.left_out > 0 {
        notes.push(format!(
            "{} samples were left out by 'perf record --filter'",
            survey.left_out
        ));
    }
    if survey.left_over.0 > 0 {
        notes.push(format!(
            "{} samples are longer than their event says ({} bytes left over), and left out",
            survey.left_over.0, survey.left_over.1
        ));
    }
    if survey.far.samples > 0 {
        notes.push(format!(
            "{} samples have a time years away from the others', and are left out: the recording is damaged",
            survey.far.samples
        ));
    }
    let used = || {
        let events = data.events.iter().zip(&roles.uses);
        events.filter(|(_, used)| !matches!(used, Use::LeftOut))
    };
    if used().any(|(event, _)| event.attr.layout.reads_group()) {
        notes.push(
            "counts of the other events of a group (':S') are not imported; record these events by themselves"
                .to_owned(),
        );
    }
    let copies = |(event, _): (&Event, &Use)| event.attr.layout.has(sys::PERF_SAMPLE_STACK_USER);
    if let Some(arch) = data.features.foreign()
        && used().any(copies)
    {
        notes.push(format!(
            "stacks that were copied on {arch} ('--call-graph dwarf') can be unwound only there: callers in user space are \
             missing"
        ));
    }
    notes.extend(cut(data, survey).map(|cut| format!("the recording is cut: {cut}")));
    match (roles.switches, survey.switched.is_empty()) {
        (true, _) => {}
        (false, true) => notes
            .push("the recording has no context switches: time on the CPU is unknown".to_owned()),
        (false, false) => notes.push(
            "sched_switch does not say when the threads with items came back (it does with \
             'perf record -a'): time on the CPU is unknown"
                .to_owned(),
        ),
    }
    notes
}
