//! A report as CSV, for programs and spreadsheets: one table at a time.
//!
//! The first line names the columns. Times are ns, unknown is empty, text is quoted where needed
//! (RFC 4180, with `\n` line ends).

use crate::compare::names::FunctionName;
use crate::compare::report::model::{Cell, EventCells, Report, Row, SlowVisit};
use crate::present::csv::Line;
use crate::store::schema::{ArgValue, InterferenceColumns};

/// Tables of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CsvTable {
    /// A row for each function or wait of either list.
    #[default]
    Functions,
    /// A row for each of the slowest visits.
    Items,
}

#[must_use]
pub(crate) fn render(report: &Report, table: CsvTable) -> String {
    match table {
        CsvTable::Functions => functions(report),
        CsvTable::Items => items(report),
    }
}

/// The line that names these columns.
pub(crate) fn header(columns: impl IntoIterator<Item = String>) -> String {
    let mut line = Line::default();
    columns.into_iter().for_each(|column| line.text(&column));
    line.end()
}

/// Names of the columns of a row's cells.
pub(crate) fn cell_columns() -> impl Iterator<Item = String> {
    ["all", "slow", "typical"].into_iter().flat_map(|class| {
        ["samples", "per_visit", "low", "high", "share"].map(|column| format!("{class}_{column}"))
    })
}

/// Adds the cells of a row.
pub(crate) fn cells(line: &mut Line, cells: [&Cell; 3]) {
    for cell in cells {
        let Cell {
            samples,
            per_visit,
            low,
            high,
            share,
        } = cell;
        line.number(samples);
        for value in [per_visit, low, high, share] {
            line.maybe(*value);
        }
    }
}

/// Names of the columns of [`function`].
pub(crate) const FUNCTION: [&str; 6] = [
    "function_id",
    "function",
    "module",
    "kernel",
    "kernel_entry",
    "system_call",
];

/// Adds a function: its id, name and module, whether it is the kernel's, and how that was entered.
pub(crate) fn function(line: &mut Line, function: &FunctionName) {
    let FunctionName {
        function_id,
        name,
        module,
        kernel,
        inlined: _,
        kernel_entry,
        system_call,
        called_from: _,
    } = function;
    line.maybe(*function_id);
    line.maybe(name.as_deref());
    line.maybe(module.as_deref());
    line.number(kernel);
    line.maybe(kernel_entry.as_deref());
    line.maybe(system_call.as_deref());
}

fn functions(report: &Report) -> String {
    let names = ["probe_id"].into_iter().chain(FUNCTION);
    let names = names.chain(["state", "unit"]).map(str::to_owned);
    let names = names.chain(cell_columns()).chain(["difference".to_owned()]);
    let further = report.further_events.iter().flat_map(|event| {
        let columns = std::iter::once("events".to_owned()).chain(cell_columns());
        columns.map(|column| format!("{} {column}", event.name))
    });
    let mut out = header(names.chain(further));
    for probe in &report.probes {
        let only_spread = probe.spread.iter().filter(|row| {
            let same = |other: &Row| (&other.function, &other.state) == (&row.function, &row.state);
            !probe.largest.iter().any(same)
        });
        for row in probe.largest.iter().chain(only_spread) {
            let mut line = function_line(probe.probe_id, row);
            for at in 0..report.further_events.len() {
                event_cells(&mut line, row.further.get(at).copied().unwrap_or_default());
            }
            out.push_str(&line.end());
        }
    }
    out
}

fn function_line(probe_id: u16, row: &Row) -> Line {
    let mut line = Line::default();
    line.number(probe_id);
    function(&mut line, &row.function);
    line.maybe(row.state.as_deref());
    line.text(row.unit.name());
    cells(&mut line, [&row.all, &row.slow, &row.typical]);
    line.maybe(row.difference);
    line
}

/// Adds the cells of a further event.
fn event_cells(line: &mut Line, of: EventCells) {
    let EventCells {
        events,
        all,
        slow,
        typical,
    } = of;
    line.maybe(events);
    cells(line, [&all, &slow, &typical]);
}

fn items(report: &Report) -> String {
    let fixed = [
        "probe_id",
        "visit_id",
        "item_id",
        "pid",
        "tid",
        "begin_ns",
        "duration_ns",
        "oncpu_ns",
        "samples",
        "flags",
        "switches",
        "migrations",
        "page_faults",
    ];
    let fixed = fixed
        .into_iter()
        .chain(InterferenceColumns::NAMES.iter().copied());
    let top = [
        "top_function",
        "top_function_self_ns",
        "top_function_samples",
        "top_wait_function",
        "top_wait_state",
        "top_wait_ns",
    ];
    let args = report.run.columns.iter().map(|column| column.name.clone());
    let columns = fixed.map(str::to_owned).chain(args);
    let mut out = header(columns.chain(top.into_iter().map(str::to_owned)));
    for probe in &report.probes {
        for visit in &probe.slowest {
            out.push_str(&item_line(probe.probe_id, visit).end());
        }
    }
    out
}

fn item_line(probe_id: u16, visit: &SlowVisit) -> Line {
    let mut line = Line::default();
    line.number(probe_id);
    line.number(visit.visit_id);
    line.number(visit.item_id);
    line.number(visit.pid.0);
    line.number(visit.tid.0);
    line.number(visit.begin_ns.0);
    line.number(visit.duration_ns());
    line.maybe(visit.oncpu_ns);
    line.number(visit.samples);
    line.text(&visit.flag_names().join("|"));
    for count in visit.counts().values() {
        line.maybe(count);
    }
    for value in visit.interference().values() {
        line.maybe(value);
    }
    for arg in &visit.args {
        match &arg.value {
            None => line.text(""),
            Some(ArgValue::U64(number)) => line.number(number),
            Some(ArgValue::I64(number)) => line.number(number),
            Some(ArgValue::Str(text)) => line.text(text),
        }
    }
    let function = visit.functions.first();
    line.maybe(function.and_then(|top| top.function.name.as_deref()));
    line.maybe(function.and_then(|top| top.self_ns));
    line.maybe(function.map(|top| top.samples));
    let wait = visit.waits.first();
    line.maybe(wait.and_then(|top| top.function.name.as_deref()));
    line.maybe(wait.map(|top| top.state.as_str()));
    line.maybe(wait.map(|top| top.ns));
    line
}
