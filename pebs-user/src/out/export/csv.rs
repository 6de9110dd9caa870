//! Visits joined with their functions: a row for each function of each visit.
//!
//! A visit without functions has one row, with these columns empty. The first line names the columns; they are those of
//! the tables `visits` and `visit_functions`, and for each counted event its count (`count.NAME`) and the state of the
//! count (`count_state.NAME`). Times are ns, unknown is empty, text is quoted where needed (RFC 4180, with `\n` line
//! ends). Memory: [`AT_ONCE`] visits; the table of functions is read once for each [`AT_ONCE`] visits.

use std::io::Write;
use std::mem;

use rustc_hash::FxHashMap;

use super::Input;
use crate::compare::counted;
use crate::compare::load::{self, Visit, arg_text};
use crate::compare::select::VisitSet;
use crate::compare::select::error::ExportError;
use crate::present::csv::Line;
use crate::store::schema::{VisitFunctionRow, VisitRow};
use crate::store::view::Cell;

/// Visits held at a time.
const AT_ONCE: usize = 500_000;

/// Writes all rows.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let args = &input.trace.info.columns;
    let mut line = Line::default();
    VisitRow::default().each_cell(|column, _| match column {
        "probe_id" => ["probe_id", "probe"].iter().for_each(|it| line.text(it)),
        "samples" => line.text("visit_samples"),
        _ => line.text(column),
    });
    line.text("event");
    for column in args {
        line.text(&column.name);
    }
    VisitFunctionRow::default().each_cell(|column, _| match column {
        "visit_id" | "item_id" | "event" => {}
        "function_id" => {
            let place = ["function_id", "function", "module", "kernel"];
            place.iter().for_each(|it| line.text(it));
        }
        _ => line.text(column),
    });
    for event in &input.trace.info.counted {
        ["count", "count_state"]
            .iter()
            .for_each(|it| line.text(&format!("{it}.{}", event.name)));
    }
    out.write_all(line.end().as_bytes())?;
    let mut join = Join {
        input,
        held: Vec::new(),
        counts: Vec::new(),
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
    /// Counts and their states, event by event.
    counts: Vec<Option<(Option<u64>, String)>>,
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
        self.count(&places)?;
        let mut has_functions = vec![false; held.len()];
        let mut result = Ok(());
        load::functions(self.input.trace, &set, |row| {
            // Every visit of the set has its place.
            let place = places[&row.visit_id];
            has_functions[place] = true;
            if result.is_ok() {
                result = self.row((place, &held[place]), Some(&row));
            }
        })?;
        result?;
        let without = has_functions.iter().zip(held.iter().enumerate());
        for (_, visit) in without.filter(|(has, _)| !**has) {
            self.row(visit, None)?;
        }
        Ok(())
    }

    /// Reads the counts of the visits at these places.
    fn count(&mut self, places: &FxHashMap<u64, usize>) -> Result<(), ExportError> {
        let trace = self.input.trace;
        let events = trace.info.counted.len();
        self.counts = vec![None; places.len() * events];
        counted::each(trace, |count| {
            let at = places
                .get(&count.visit_id)
                .map(|place| place * events + usize::from(count.event));
            if let Some(of) = at.and_then(|at| self.counts.get_mut(at)) {
                *of = Some((count.count, count.state.to_owned()));
            }
        })?;
        Ok(())
    }

    fn row(
        &mut self,
        (place, visit): (usize, &Visit),
        function: Option<&VisitFunctionRow>,
    ) -> Result<(), ExportError> {
        let mut line = Line::default();
        visit.each_cell(|column, cell| match column {
            "probe_id" => {
                add(&mut line, cell);
                line.text(&self.input.probes.label(visit.probe_id.0));
            }
            "flags" => line.text(&visit.flag_names()),
            _ => add(&mut line, cell),
        });
        let event = |row: &VisitFunctionRow| {
            let events = &self.input.trace.info.events;
            let known = events.iter().find(|event| event.id == row.event);
            known.map_or_else(|| row.event.0.to_string(), |event| event.name.clone())
        };
        line.maybe(function.map(event));
        for value in &visit.args {
            line.maybe(value.as_ref().map(arg_text));
        }
        self.function(&mut line, function);
        let events = self.input.trace.info.counted.len();
        for count in &self.counts[place * events..(place + 1) * events] {
            line.maybe(count.as_ref().and_then(|it| it.0));
            line.maybe(count.as_ref().map(|it| it.1.as_str()));
        }
        Ok(self.out.write_all(line.end().as_bytes())?)
    }

    fn function(&self, line: &mut Line, row: Option<&VisitFunctionRow>) {
        let known = row.and_then(|row| self.input.functions.get(row.function_id.0));
        // Without functions the cells are empty.
        let cells = row.cloned().unwrap_or_default();
        cells.each_cell(|column, cell| match column {
            "visit_id" | "item_id" | "event" => {}
            "function_id" => {
                add(line, row.map_or(Cell::Null, |_| cell));
                line.maybe(known.and_then(|it| it.name.as_deref()));
                line.maybe(known.and_then(|it| it.module.as_deref()));
                line.maybe(known.map(|it| it.kernel));
            }
            _ => add(line, row.map_or(Cell::Null, |_| cell)),
        });
    }
}

/// Adds a value of a column; an unknown one is empty.
fn add(line: &mut Line, cell: Cell<'_>) {
    match cell {
        Cell::Null => line.text(""),
        Cell::Unsigned(number) => line.number(number),
        Cell::Signed(number) => line.number(number),
        Cell::Real(number) => line.number(number),
        Cell::Truth(truth) => line.number(truth),
        Cell::Text(text) => line.text(text),
        Cell::Unsigneds(list) => line.text(&joined(list)),
        Cell::Keys(list) => line.text(&joined(list)),
        Cell::Signeds(list) => line.text(&joined(list)),
    }
}

fn joined(list: &[impl ToString]) -> String {
    let numbers: Vec<String> = list.iter().map(ToString::to_string).collect();
    numbers.join(" ")
}
