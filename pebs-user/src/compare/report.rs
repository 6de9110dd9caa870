//! Report of one trace: which items were slow, and which functions and waits take their time.
//!
//! The trace is read in streams, so that it may be larger than memory: visits once for their
//! durations, once more for the classes that follow from these (typical, slow), then the functions
//! and the waits of the visits of each class, then names. What is kept is twenty bytes a visit and
//! 2 KiB a function.
//!
//! Slow and typical visits are defined in `crate::compare::classes`. The time of a function per visit of a class is
//! pooled over the class ([`crate::compare::pool`]), so that visits shorter than the sample interval count as well.
//! Waits are observed, not estimated; they count for the function in which the thread blocked.
//!
//! Visits that are slow on the CPU only are explained by `crate::compare::explain`, which the report asks if times on the
//! CPU have a gap of their own: then it takes as much memory.
//!
//! A trace without the details of every visit (`--keep`) has sums over all visits in `function_stats`; the visits that
//! were not kept replace the typical ones: the sum over all less the kept ones.

mod batches;
mod classes;
pub(crate) mod detail;
pub(crate) mod lines;
pub(crate) mod memory;
pub mod model;
mod passes;
pub(crate) mod paths;
mod rank;
pub(crate) mod request;
pub(crate) mod section;
mod stages;
mod tally;
mod top;

use std::iter;

use rustc_hash::{FxHashMap, FxHashSet};

use self::detail::{Details, Drafts, FunctionColumns, WaitColumns};
use self::model::{REPORT_VERSION, Report, VisitEvent};
use self::passes::{first_pass, gather};
use self::rank::Ranking;
use self::request::by_cpu_time;
use self::section::{Gather, Runs, Section};
use crate::compare::called_from::{Callers, NamedCallers};
use crate::compare::counted;
use crate::compare::event::{quantity, report_event};
use crate::compare::explain::model::ProbeExplanation;
use crate::compare::explain::{ExplainError, ExplainOptions, Unit, explain};
use crate::compare::further::FurtherEvent;
use crate::compare::losses::losses;
use crate::compare::names::{FunctionName, Names};
use crate::compare::pool::{MIN_SAMPLES, Quantity};
use crate::compare::probe;
use crate::compare::report::model::{ProbeReport, Row};
use crate::compare::rows;
use crate::compare::slots::Slots;
use crate::compare::stats::{self, Stats};
use crate::compare::waits::States;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::EventInfo;
use crate::store::view::Select as _;
use crate::units::ProbeId;

pub use self::request::{ReportError, ReportOptions};
pub use crate::compare::probe::NoProbe;

/// Makes the report of a trace.
///
/// Cost: reads `visits` twice, once more where probes are stages, `visit_functions`, `waits`, `functions`, `losses` and, if details are
/// missing, `function_stats` once, only the columns needed; of a trace with call stacks, where functions have no names,
/// `samples` once and `stacks` twice.
///
/// # Errors
/// If the trace can't be read, or has no such probe.
pub fn build(trace: &Trace, options: &ReportOptions) -> Result<Report, ReportError> {
    probe::check(trace, options.probe)?;
    let event = report_event(&trace.info);
    let further = FurtherEvent::beside(&trace.info, event);
    let mut states = States::default();
    let runs = Runs::of(trace)?;
    let mut sections = first_pass(trace, options)?
        .map(|probe, tally| Section::new(probe, tally, &trace.info.columns, options, &runs));
    if trace.info.keep.is_some() {
        read_stats(trace, options, &mut sections, &mut states)?;
        for event in &further {
            read_further_stats(trace, options, &mut sections, event)?;
        }
    }
    let mut gathered = gather(trace, options, sections, &mut states)?;
    let mut drafts = take_drafts(&mut gathered.sections);
    count(trace, &mut gathered, &mut drafts)?;
    let mut details = Details {
        sections: &mut gathered.sections,
        classes: &gathered.classes,
        drafts: &mut drafts,
        states: &mut states,
    };
    if let Some(event) = event {
        let own = trace.own_function()?;
        for batch in FunctionColumns::scan(trace)? {
            let batch = batch?;
            details.add_functions(&batch, event, own)?;
            if !further.is_empty() {
                details.add_further(&batch, &further, own)?;
            }
        }
    }
    // Time on the CPU has no waits.
    if !by_cpu_time(options) {
        for batch in WaitColumns::scan(trace)? {
            details.add_waits(&batch?)?;
        }
    }
    let may_have_kinds = options.slow.is_none() && !trace.info.columns.is_empty();
    let apart = gathered.sections.iter();
    let apart = apart.filter(|(_, section)| section.is_apart_on_cpu || may_have_kinds);
    let apart: Vec<u16> = apart.map(|(probe, _)| probe).collect();
    let sections = gathered.sections.values_mut();
    let of_slow: Vec<u32> = sections
        .flat_map(|it| it.slow.pool.functions())
        .map(|it| it.0)
        .collect();
    let ranking = Ranking {
        names: &Names::of(trace, of_slow.into_iter())?,
        info: &trace.info,
        top: options.top,
        quantity: event.map_or(Quantity::Time, quantity),
        further: &further,
        states: &states,
        slow: options.slow.unwrap_or_default(),
    };
    let numbers: Vec<u16> = gathered.sections.iter().map(|it| it.0).collect();
    let mut probes = ranking.probes(gathered.sections, drafts);
    let ids = probes.iter().flat_map(mentioned);
    let names = Names::of(trace, ids.filter_map(|it| it.function_id))?;
    names.fill(probes.iter_mut().flat_map(mentioned_mut));
    if let Some(event) = event.filter(|_| trace.info.call_graph.is_some()) {
        let probe_of = |visit| Some(numbers[usize::from(gathered.classes.get(visit)?.slot)]);
        set_callers(trace, event, probe_of, &mut probes)?;
    }
    batches::fill(trace, options, &mut probes)?;
    let cost = trace.info.cost.as_ref();
    let has_wakers = cost.is_some_and(|it| it.encounters > 0);
    for probe in &mut probes {
        let is_apart = trace.info.switches && apart.contains(&probe.probe_id);
        let has_chains = has_wakers && has_waits(probe);
        let explained = match is_apart || has_chains {
            true => explained(trace, options, probe.probe_id)?,
            false => None,
        };
        if let Some(explained) = explained {
            take_over(explained, probe, is_apart);
        }
    }
    Ok(Report {
        report_version: REPORT_VERSION,
        trace: trace.dir.display().to_string(),
        within_ns: trace.within(),
        min_samples: MIN_SAMPLES,
        event: event.cloned(),
        further_events: further,
        probes,
        stages: stages::read(trace, options)?,
        losses: losses(trace)?,
        run: trace.info.clone(),
    })
}

/// Takes over what the report has from `explain`: whom waits were for and, where slow items are apart, those slow by their
/// time on the CPU or for their kind.
fn take_over(explained: ProbeExplanation, probe: &mut ProbeReport, is_apart: bool) {
    if is_apart {
        probe.slow_on_cpu = explained.slow_on_cpu;
        probe.slow_for_kind = explained.slow_for_kind;
        let grouped = explained
            .grouped
            .filter(|_| !probe.slow_for_kind.is_empty());
        probe.kinds_part = grouped.map(|it| it.part);
    }
    let gap = explained.whole.and_then(|it| it.gap);
    for cause in gap.map_or_else(Vec::new, |it| it.causes) {
        let is_its = |row: &&mut Row| {
            row.state == cause.state && row.function.function_id == cause.function.function_id
        };
        if let Some(row) = probe.spread.iter_mut().find(is_its) {
            row.waited_for = cause.waited_for;
        }
    }
}

/// Whether slow visits waited for something.
fn has_waits(probe: &ProbeReport) -> bool {
    let waited = |row: &Row| row.state.is_some() && row.difference.is_some_and(|it| it > 0.0);
    probe.spread.iter().any(waited)
}

/// The visits of a probe, as `explain` has them.
fn explained(
    trace: &Trace,
    options: &ReportOptions,
    probe: u16,
) -> Result<Option<ProbeExplanation>, ReadError> {
    let asked = ExplainOptions {
        probe: Some(ProbeId(probe)),
        unit: Some(Unit::Visit),
        losses: options.losses,
        ..ExplainOptions::default()
    };
    match explain(trace, &asked) {
        Ok(mut it) => Ok(it.probes.pop()),
        Err(ExplainError::Read(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Sums over all visits, of a trace that has not the details of each.
fn read_stats(
    trace: &Trace,
    options: &ReportOptions,
    sections: &mut Slots<Section>,
    states: &mut States,
) -> Result<(), ReadError> {
    let event = report_event(&trace.info);
    let own = trace.own_function()?;
    let switches = trace.info.switches;
    let mut all = Slots::new(&trace.info, options.probe, Stats::default);
    for batch in stats::Columns::scan(trace)? {
        stats::add(
            &batch?,
            event,
            own,
            options.losses,
            switches,
            &mut all,
            states,
        )?;
    }
    for (probe, mut stats) in all {
        if by_cpu_time(options) {
            stats.duration_ns = stats.functions.active_ns;
            stats.waits.clear();
        }
        if let Some((_, section)) = sections.of(probe) {
            section.stats = Some(stats);
        }
    }
    Ok(())
}

/// Sums of a further event over all visits, of such a trace.
fn read_further_stats(
    trace: &Trace,
    options: &ReportOptions,
    sections: &mut Slots<Section>,
    event: &FurtherEvent,
) -> Result<(), ReadError> {
    for (probe, stats) in stats::of_event(trace, event.id, options.probe, options.losses)? {
        if let Some((_, section)) = sections.of(probe) {
            section.further_stats.push(stats.functions);
        }
    }
    Ok(())
}

/// Adds up the counted events of the visits.
fn count(trace: &Trace, gathered: &mut Gather<'_>, drafts: &mut Drafts) -> Result<(), ReadError> {
    let events = &trace.info.counted;
    let Gather {
        sections, classes, ..
    } = gathered;
    counted::each(trace, |count| {
        let Some(of) = classes.get(count.visit_id) else {
            return;
        };
        let section = sections.at(of.slot);
        section.counted.add_visit(count, of.class);
        if let (Some(draft), Some(event)) = (
            drafts.0.get_mut(&count.visit_id),
            events.get(usize::from(count.event)),
        ) {
            draft.visit.counted_events.push(VisitEvent {
                event: event.name.clone(),
                count: count.count,
                state: count.state.to_owned(),
            });
        }
    })
}

/// The slowest visits of all sections, by number; the sections keep their numbers in order.
fn take_drafts(sections: &mut Slots<Section>) -> Drafts {
    let mut drafts = Drafts::default();
    for section in sections.values_mut() {
        for draft in section.take_slowest() {
            drafts.0.insert(draft.visit.visit_id, draft);
        }
    }
    drafts
}

/// Finds the callers of functions of rows that have no name, by the samples of all visits of the probe.
fn set_callers(
    trace: &Trace,
    event: &EventInfo,
    probe_of: impl Fn(u64) -> Option<u16>,
    probes: &mut [ProbeReport],
) -> Result<(), ReadError> {
    let mut nameless: Vec<(u16, u32, &mut FunctionName)> = Vec::new();
    for probe in probes {
        let rows = probe.spread.iter_mut().chain(&mut probe.largest);
        for row in rows.filter(|row| row.state.is_none()) {
            let members = row.functions.iter_mut().map(|it| &mut it.function);
            for function in iter::once(&mut row.function).chain(members) {
                if let Some(id) = function.function_id.filter(|_| function.is_nameless()) {
                    nameless.push((probe.probe_id, id, function));
                }
            }
        }
    }
    let functions: FxHashSet<u32> = nameless.iter().map(|it| it.1).collect();
    if functions.is_empty() {
        return Ok(());
    }
    let named = NamedCallers::read(trace, &functions)?;
    let mut found: FxHashMap<(u16, u32), Callers> = FxHashMap::default();
    rows::samples(trace, event.id, |visit, function, stack| {
        if functions.contains(&function)
            && let Some(probe) = probe_of(visit)
        {
            let callers = found.entry((probe, function)).or_default();
            callers.add(named.of(stack, function), 1.0);
        }
    })?;
    for (probe, id, function) in nameless {
        let callers = found.get(&(probe, id));
        function.called_from = callers.and_then(|it| named.name(it));
    }
    Ok(())
}

fn mentioned(probe: &ProbeReport) -> impl Iterator<Item = &FunctionName> {
    let rows = probe.spread.iter().chain(&probe.largest);
    let visits = probe.slowest.iter().flat_map(|visit| {
        let functions = visit.functions.iter().map(|it| &it.function);
        functions.chain(visit.waits.iter().map(|it| &it.function))
    });
    rows.map(|row| &row.function).chain(visits)
}

fn mentioned_mut(probe: &mut ProbeReport) -> impl Iterator<Item = &mut FunctionName> {
    let rows = probe.spread.iter_mut().chain(&mut probe.largest);
    let visits = probe.slowest.iter_mut().flat_map(|visit| {
        let functions = visit.functions.iter_mut().map(|it| &mut it.function);
        functions.chain(visit.waits.iter_mut().map(|it| &mut it.function))
    });
    rows.map(|row| &mut row.function).chain(visits)
}
