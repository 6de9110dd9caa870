//! Time by call path as CSV: a row for each probe, function and call path.
//!
//! The first line names the columns; unknown is empty. `path` is as in folded stacks: outermost first, `;` between.

use crate::compare::names::FunctionName;
use crate::compare::report::paths::{PathReport, PathRow, PathSection};
use crate::out::report::csv::{FUNCTION, cell_columns, cells, function, header};
use crate::present::csv::Line;
use crate::units::CountUnit;

/// Names of the columns between the function and the cells.
const PATH: [&str; 5] = ["path", "truncated", "known", "others", "unit"];

#[must_use]
pub(crate) fn render(report: &PathReport) -> String {
    let key = ["probe_id"].into_iter().chain(FUNCTION).chain(PATH);
    let mut out = header(key.map(str::to_owned).chain(cell_columns()));
    for section in &report.sections {
        for row in &section.rows {
            out.push_str(&line(report.unit, section, row));
        }
    }
    out
}

fn line(unit: CountUnit, section: &PathSection, row: &PathRow) -> String {
    let mut line = Line::default();
    line.number(section.probe_id);
    function(&mut line, &row.function);
    line.text(&path(row));
    line.number(row.truncated);
    line.number(row.known);
    line.maybe(row.others);
    line.text(unit.name());
    cells(&mut line, [&row.all, &row.slow, &row.typical]);
    line.end()
}

/// `handle;lookup;compare`
fn path(row: &PathRow) -> String {
    let frames = row.callers.iter().rev().chain([&row.function]);
    frames.map(frame).collect::<Vec<_>>().join(";")
}

/// A name without the characters that end a frame.
fn frame(function: &FunctionName) -> String {
    let known = function.name.as_deref().or(function.module.as_deref());
    known.unwrap_or("[unknown]").replace(';', ",")
}
