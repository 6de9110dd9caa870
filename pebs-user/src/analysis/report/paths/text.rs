//! Time by call path as text, for people.

use std::fmt::Write;

use super::{PathReport, PathRow, PathSection};
use crate::analysis::report::brief;
use crate::analysis::report::human::{UNKNOWN, count, percent, plural, safe};
use crate::analysis::report::model::Cell;
use crate::analysis::report::text::callers::callers;
use crate::analysis::report::text::lists::{lines, show};
use crate::analysis::report::text::{NAME_WIDTH, SPEC_WIDTH, amount, file_name, name};

/// Said where no sample has a call stack.
pub const NOTHING: &str = "no sample of this trace has a call stack\n\
    hint: record with --call-graph fp; from perf: 'perf record --call-graph fp', then import\n";

/// The report as text; of each section the `top` rows that take the most.
#[must_use]
pub fn render(report: &PathReport, top: usize) -> String {
    if report.call_graph.is_none() {
        return NOTHING.to_owned();
    }
    let mut out = String::new();
    for part in &report.sections {
        section(&mut out, report.unit, part, top);
    }
    // Writing to a string can't fail.
    let _ = writeln!(
        out,
        "\ncallers: the nearest first, up to the function of the probe; {UNKNOWN} below {} samples",
        report.min_samples
    );
    out
}

fn section(out: &mut String, unit: &str, section: &PathSection, top: usize) {
    let mut table = lines([
        "", "slow", "typical", "mean", "95 %", "share", "samples", "",
    ]);
    for row in section.rows.iter().take(top) {
        let module = row.function.module.as_deref();
        table.add_row([
            what(row),
            amount(unit, row.slow.per_visit),
            amount(unit, row.typical.per_visit),
            amount(unit, row.all.per_visit),
            interval(unit, &row.all),
            row.all.share.map_or_else(|| UNKNOWN.to_owned(), percent),
            count(row.all.samples),
            module.map_or_else(String::new, |it| safe(file_name(it), NAME_WIDTH)),
        ]);
    }
    let spec = section.spec.as_deref().map_or_else(
        || format!("probe {} (not in trace.json)", section.probe_id),
        |spec| brief::spec(spec, SPEC_WIDTH),
    );
    let visits = section.visits.map_or_else(
        || "those kept, of which only slow ones can be told".to_owned(),
        |visits| plural(visits, "visit"),
    );
    let rows = section.rows.len();
    let more = if rows > top {
        format!(" ({top} of {}; --top N lists more)", count(rows as u64))
    } else {
        String::new()
    };
    let what = if unit == "ns" { "time" } else { "events" };
    let title = format!("{spec}, {what} per visit by call path, {visits}{more}");
    if rows == 0 {
        let _ = writeln!(out, "\n{title}: no samples");
    }
    show(out, &title, &table, &[1, 2, 3, 4, 5, 6], rows.min(top));
}

fn what(row: &PathRow) -> String {
    let name = name(&row.function);
    match row.others {
        Some(paths) => format!("{name} <- {} with few samples", plural(paths, "path")),
        None => format!("{name} {}", callers(&row.callers, row.truncated, row.known)),
    }
}

fn interval(unit: &str, cell: &Cell) -> String {
    match (cell.low, cell.high) {
        (Some(low), Some(high)) => {
            format!(
                "{} .. {}",
                amount(unit, Some(low)),
                amount(unit, Some(high))
            )
        }
        _ => String::new(),
    }
}
