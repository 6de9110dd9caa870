//! Time of functions by call path: `report --by path`.
//!
//! A row is a function with one call path, up to the function of the probe (`compare/paths.rs`); paths with too few
//! samples are merged into one row of their function. Means over visits are pooled as those of functions are
//! ([`crate::compare::pool`]), so that the rows of a function sum to its figure in `report`.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::model::Cell;
use super::rank::cell;
use super::section::{ClassSums, Runs, Section};
use crate::compare::event::report_event;
use crate::compare::names::{FunctionName, Names};
use crate::compare::paths::{Paths, Weights};
use crate::compare::pool::{MIN_SAMPLES, Pooled, Quantity};
use crate::compare::probe;
use crate::compare::report::passes::{first_pass, gather};
use crate::compare::report::request::{ReportError, ReportOptions};
use crate::compare::rows::samples;
use crate::compare::waits::States;
use crate::store::reader::Trace;
use crate::store::run::EventInfo;
use crate::store::schema::Table;
use crate::units::{CountUnit, FunctionId};

/// Version of the JSON keys; grows when one changes its meaning or goes away.
pub(crate) const PATH_REPORT_VERSION: u32 = 1;

/// A report of one trace by call path.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PathReport {
    /// [`PATH_REPORT_VERSION`].
    pub path_report_version: u32,
    /// Path of the trace, as given.
    pub trace: String,
    /// Least number of samples for an estimate of time.
    pub min_samples: u64,
    /// The event that was sampled.
    pub event: Option<EventInfo>,
    /// Unit of the rows: `ns`, or `events` if no sampled event is a clock.
    pub unit: CountUnit,
    /// Kind of call stacks; null: the trace has none, and so no sections.
    pub call_graph: Option<String>,
    /// By probe.
    pub sections: Vec<PathSection>,
}

/// The call paths in the visits of one probe.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PathSection {
    /// Number of the probe.
    pub probe_id: u16,
    /// SPEC as typed.
    pub spec: Option<String>,
    /// Visits with known details; null if not all were kept.
    pub visits: Option<u64>,
    pub slow_visits: u64,
    /// Typical ones; null if not all were kept.
    pub typical_visits: Option<u64>,
    /// Rows, the largest first.
    pub rows: Vec<PathRow>,
}

/// A function, called in one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PathRow {
    pub function: FunctionName,
    /// Callers, the nearest first, up to the function of the probe.
    pub callers: Vec<FunctionName>,
    /// Outer callers are not known.
    pub truncated: bool,
    /// Whether samples had a call stack: if not, nothing is known of callers.
    pub known: bool,
    /// Number of merged call paths that have too few samples to be distinguished; null: this is a single path.
    pub others: Option<u64>,
    /// In all visits counted.
    pub all: Cell,
    /// In slow visits.
    pub slow: Cell,
    /// In typical visits.
    pub typical: Cell,
}

/// Makes the report of a trace by call path.
///
/// Cost: reads `visits` and `samples` twice, `visit_functions`, `stacks` and `functions` once, only the columns needed.
/// Memory: four bytes a visit, 12 KiB a call path with [`MIN_SAMPLES`].
///
/// # Errors
/// If the trace can't be read, or has no such probe.
pub(crate) fn build(trace: &Trace, options: &ReportOptions) -> Result<PathReport, ReportError> {
    probe::check(trace, options.probe)?;
    let event = report_event(&trace.info);
    // Samples have no times of their own: where the event is no clock they count events.
    let quantity = match event.is_none_or(|it| it.unit.is_time()) {
        true => Quantity::Time,
        false => Quantity::Events,
    };
    let mut report = PathReport {
        path_report_version: PATH_REPORT_VERSION,
        trace: trace.dir.display().to_string(),
        min_samples: MIN_SAMPLES,
        event: event.cloned(),
        unit: match quantity {
            Quantity::Time => CountUnit::Ns,
            Quantity::Events => CountUnit::Events,
        },
        call_graph: trace.info.call_graph.clone(),
        sections: Vec::new(),
    };
    let Some(event) = event.filter(|_| trace.info.call_graph.is_some()) else {
        return Ok(report);
    };
    if trace.rows(Table::Stacks)? == 0 {
        report.call_graph = None;
        return Ok(report);
    }
    let runs = Runs::of(trace)?;
    let sections = first_pass(trace, options)?
        .map(|probe, tally| Section::new(probe, tally, &trace.info.columns, options, &runs));
    let mut gathered = gather(trace, options, sections, &mut States::default())?;
    let mut paths = Paths::read(trace)?;
    let lines = Lines::read(trace, event, &mut paths, |visit| {
        gathered.classes.get(visit).is_some_and(|it| it.pooled)
    })?;
    let weights = Weights::read(trace, event)?;
    samples(trace, event.id, |visit, function, stack| {
        let Some(class) = gathered.classes.get(visit).filter(|it| it.pooled) else {
            return;
        };
        let line = lines.of(paths.of(stack, function));
        let events = weights.of(visit, function).round() as u64;
        for sums in gathered.sections.at(class.slot).classes_of(class.class) {
            sums.pool.add_samples(visit, line, (1, events));
        }
    })?;
    let ids = paths.all().flat_map(|path| path.frames.iter().copied());
    let names = Names::of(trace, ids)?;
    let context = RowContext {
        paths: &paths,
        lines: &lines,
        names: &names,
        quantity,
        is_kept_whole: trace.info.keep.is_none(),
    };
    for (probe_id, section) in gathered.sections {
        let spec = trace.info.probes.iter().find(|it| it.id.0 == probe_id);
        let spec = spec.map(|it| it.spec.to_string());
        report
            .sections
            .push(context.section(probe_id, spec, section));
    }
    Ok(report)
}

/// Rows to which samples go, as numbers that a pool takes for functions.
#[derive(Default)]
struct Lines {
    /// Row of each path with too few samples: that of the merged paths of its function.
    few: FxHashMap<u32, FunctionId>,
    /// Function of each of these rows, and its number of paths.
    others: FxHashMap<FunctionId, (u32, u64)>,
}

impl Lines {
    fn read(
        trace: &Trace,
        event: &EventInfo,
        paths: &mut Paths,
        is_counted: impl Fn(u64) -> bool,
    ) -> Result<Self, ReportError> {
        let mut counts: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        samples(trace, event.id, |visit, function, stack| {
            if is_counted(visit) {
                *counts
                    .entry((function, paths.of(stack, function)))
                    .or_default() += 1;
            }
        })?;
        let (mut lines, mut rows) = (Self::default(), FxHashMap::default());
        for ((function, path), _) in counts.into_iter().filter(|it| it.1 < MIN_SAMPLES) {
            // Paths count from 0, these from the other end.
            let next = FunctionId(u32::MAX - rows.len() as u32);
            let row = *rows.entry(function).or_insert(next);
            lines.few.insert(path, row);
            lines.others.entry(row).or_insert((function, 0)).1 += 1;
        }
        Ok(lines)
    }

    fn of(&self, path: u32) -> FunctionId {
        self.few.get(&path).copied().unwrap_or(FunctionId(path))
    }
}

/// A class of visits with its resamples drawn.
struct Class {
    pooled: Pooled,
    mean_ns: f64,
}

impl Class {
    fn new(sums: ClassSums, quantity: Quantity) -> Self {
        Self {
            mean_ns: sums.pooled_duration_ns / sums.pooled as f64,
            pooled: sums.pool.close(quantity),
        }
    }

    fn cell(&self, line: FunctionId, quantity: Quantity) -> Cell {
        cell(self.pooled.function(line), quantity, self.mean_ns)
    }
}

/// From sums to rows.
struct RowContext<'a> {
    paths: &'a Paths,
    lines: &'a Lines,
    names: &'a Names,
    quantity: Quantity,
    /// Whether the details of all visits were kept.
    is_kept_whole: bool,
}

impl RowContext<'_> {
    fn section(&self, probe_id: u16, spec: Option<String>, section: Section) -> PathSection {
        let counted = |visits: u64| self.is_kept_whole.then_some(visits);
        let (visits, typical_visits) = (section.all.visits, section.typical.visits);
        let slow_visits = section.slow.visits - section.slow_condensed;
        let [all, slow, typical] = [section.all, section.slow, section.typical]
            .map(|sums| Class::new(sums, self.quantity));
        let mut lines: Vec<(FunctionId, f64)> = all
            .pooled
            .functions()
            .map(|(line, _)| (line, all.pooled.per_item(line).unwrap_or(0.0)))
            .collect();
        lines.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        // If only slow visits were kept, a mean of all is unknown.
        let if_whole = |cell: Cell| match self.is_kept_whole {
            true => cell,
            false => Cell {
                samples: cell.samples,
                ..Cell::default()
            },
        };
        let row = |(line, _): (FunctionId, f64)| PathRow {
            all: if_whole(all.cell(line, self.quantity)),
            slow: slow.cell(line, self.quantity),
            typical: if_whole(typical.cell(line, self.quantity)),
            ..self.named(line)
        };
        PathSection {
            probe_id,
            spec,
            visits: counted(visits),
            slow_visits,
            typical_visits: counted(typical_visits),
            rows: lines.into_iter().map(row).collect(),
        }
    }

    fn named(&self, line: FunctionId) -> PathRow {
        let others = self.lines.others.get(&line).copied();
        let path = others.is_none().then(|| self.paths.get(line.0));
        let function = others.map(|it| it.0).or(path.and_then(|it| it.function()));
        let callers = path.map_or(&[][..], |path| path.callers());
        PathRow {
            function: self.names.get(function),
            callers: callers.iter().map(|id| self.names.get(Some(*id))).collect(),
            truncated: path.is_some_and(|path| path.truncated),
            known: path.is_none_or(|path| path.known),
            others: others.map(|it| it.1),
            all: Cell::default(),
            slow: Cell::default(),
            typical: Cell::default(),
        }
    }
}
