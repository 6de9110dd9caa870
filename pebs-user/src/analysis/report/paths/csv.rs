//! Time by call path as CSV: a row for each probe, function and call path.
//!
//! The first line names the columns; unknown is empty. `path` is as in folded stacks: outermost first, `;` between.

use super::{PathReport, PathRow, PathSection};
use crate::analysis::report::model::{Cell, FunctionName};
use crate::csv::Line;

const KEY: [&str; 10] = [
    "probe_id",
    "function_id",
    "function",
    "module",
    "kernel",
    "path",
    "truncated",
    "known",
    "others",
    "unit",
];

const CELL: [&str; 5] = ["samples", "per_visit", "low", "high", "share"];

/// The report.
#[must_use]
pub fn render(report: &PathReport) -> String {
    let mut head = Line::default();
    KEY.iter().for_each(|column| head.text(column));
    for class in ["all", "slow", "typical"] {
        let names = CELL.iter().map(|column| format!("{class}_{column}"));
        names.for_each(|name| head.text(&name));
    }
    let mut out = head.end();
    for section in &report.sections {
        for row in &section.rows {
            out.push_str(&line(report.unit, section, row));
        }
    }
    out
}

fn line(unit: &str, section: &PathSection, row: &PathRow) -> String {
    let mut line = Line::default();
    line.number(section.probe_id);
    line.maybe(row.function.function_id);
    line.maybe(row.function.name.as_deref());
    line.maybe(row.function.module.as_deref());
    line.number(row.function.kernel);
    line.text(&path(row));
    line.number(row.truncated);
    line.number(row.known);
    line.maybe(row.others);
    line.text(unit);
    for cell in [&row.all, &row.slow, &row.typical] {
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
    line.end()
}

/// `handle;lookup;compare`
fn path(row: &PathRow) -> String {
    let frames = row.callers.iter().rev().chain([&row.function]);
    frames.map(frame).collect::<Vec<_>>().join(";")
}

/// A name without what ends a frame.
fn frame(function: &FunctionName) -> String {
    let known = function.name.as_deref().or(function.module.as_deref());
    known.unwrap_or("[unknown]").replace(';', ",")
}
