//! Visits joined with their functions: a row for each function of each visit.
//!
//! A visit without functions has one row, with these columns empty. The first line names the columns;
//! they are those of the tables `visits` and `visit_functions`. Times are ns, unknown is empty, text is
//! quoted where needed (RFC 4180, with `\n` line ends). Memory: [`AT_ONCE`] visits; the table of
//! functions is read once for each so many.

use std::io::Write;
use std::mem;

use rustc_hash::FxHashMap;

use super::Input;
use super::error::ExportError;
use super::load::{self, Function, Visit, VisitFunction, arg_text};
use super::select::VisitSet;
use crate::present::csv::Line;

/// Visits held at a time.
const AT_ONCE: usize = 500_000;

const VISIT_COLUMNS: [&str; 22] = [
    "visit_id",
    "item_id",
    "probe_id",
    "probe",
    "pid",
    "tid",
    "begin_ns",
    "end_ns",
    "duration_ns",
    "oncpu_ns",
    "net_ns",
    "net_stderr_ns",
    "visit_samples",
    "flags",
    "switches",
    "migrations",
    "page_faults",
    "irq_ns",
    "softirq_ns",
    "fault_ns",
    "major_faults",
    "event",
];

const FUNCTION_COLUMNS: [&str; 11] = [
    "function_id",
    "function",
    "module",
    "kernel",
    "samples",
    "events",
    "first_ns",
    "last_ns",
    "span_ns",
    "self_ns",
    "self_stderr_ns",
];

/// Writes all rows.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let args = &input.trace.info.columns;
    let mut line = Line::default();
    for column in VISIT_COLUMNS {
        line.text(column);
    }
    for column in args {
        line.text(&column.name);
    }
    for column in FUNCTION_COLUMNS {
        line.text(column);
    }
    out.write_all(line.end().as_bytes())?;
    let mut join = Join {
        input,
        held: Vec::new(),
        out,
    };
    let mut result = Ok(());
    load::visits(input.trace, &input.chosen.visits, |visit| {
        join.held.push(visit);
        if join.held.len() >= AT_ONCE && result.is_ok() {
            result = join.release();
        }
    })?;
    result?;
    join.release()
}

/// Visits that wait for their functions.
struct Join<'a> {
    input: &'a Input<'a>,
    held: Vec<Visit>,
    out: &'a mut dyn Write,
}

impl Join<'_> {
    /// Writes the rows of the visits that are held.
    fn release(&mut self) -> Result<(), ExportError> {
        let held = mem::take(&mut self.held);
        let (mut places, mut set) = (FxHashMap::default(), VisitSet::default());
        for (place, visit) in held.iter().enumerate() {
            places.insert(visit.visit_id, place);
            set.insert(visit.visit_id);
        }
        let mut has_functions = vec![false; held.len()];
        let mut result = Ok(());
        load::functions(self.input.trace, &set, |row| {
            // Every visit of the set has its place.
            let place = places[&row.visit_id];
            has_functions[place] = true;
            if result.is_ok() {
                result = self.row(&held[place], Some(&row));
            }
        })?;
        result?;
        let without = has_functions.iter().zip(&held).filter(|(has, _)| !**has);
        for (_, visit) in without {
            self.row(visit, None)?;
        }
        Ok(())
    }

    fn row(&mut self, visit: &Visit, function: Option<&VisitFunction>) -> Result<(), ExportError> {
        let mut line = Line::default();
        line.number(visit.visit_id);
        line.number(visit.item_id);
        line.number(visit.probe);
        line.text(&self.input.probes.label(visit.probe));
        line.number(visit.pid);
        line.number(visit.tid);
        line.number(visit.begin_ns);
        line.maybe(visit.end_ns);
        line.maybe(visit.duration_ns);
        line.maybe(visit.oncpu_ns);
        line.maybe(visit.net_ns);
        line.maybe(visit.net_stderr_ns);
        line.number(visit.samples);
        line.text(&visit.flag_names());
        line.maybe(visit.switches);
        line.maybe(visit.migrations);
        line.maybe(visit.page_faults);
        line.maybe(visit.interference.irq_ns);
        line.maybe(visit.interference.softirq_ns);
        line.maybe(visit.interference.fault_ns);
        line.maybe(visit.interference.major_faults);
        let event = |row: &VisitFunction| {
            let events = &self.input.trace.info.events;
            let known = events.iter().find(|event| event.id.0 == row.event);
            known.map_or_else(|| row.event.to_string(), |event| event.name.clone())
        };
        line.maybe(function.map(event));
        for value in &visit.args {
            line.maybe(value.as_ref().map(arg_text));
        }
        match function {
            Some(row) => self.function(&mut line, row),
            None => FUNCTION_COLUMNS.iter().for_each(|_| line.text("")),
        }
        Ok(self.out.write_all(line.end().as_bytes())?)
    }

    fn function(&self, line: &mut Line, row: &VisitFunction) {
        let known = self.input.functions.get(row.function);
        let text = |of: fn(&Function) -> Option<&str>| known.and_then(of);
        line.number(row.function);
        line.maybe(text(|function| function.name.as_deref()));
        line.maybe(text(|function| function.module.as_deref()));
        line.maybe(known.map(|function| function.kernel));
        line.number(row.samples);
        line.maybe(row.events);
        line.number(row.first_ns);
        line.number(row.last_ns);
        line.number(row.span_ns);
        line.maybe(row.self_ns);
        line.maybe(row.self_stderr_ns);
    }
}
