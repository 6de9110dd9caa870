//! Time by call path as text, for people.

use crate::compare::names::file_name;
use crate::compare::report::model::Cell as Figures;
use crate::compare::report::paths::{PathReport, PathRow, PathSection};
use crate::present::callers::callers;
use crate::present::functions::{NAME_WIDTH, SPEC_WIDTH, name_within};
use crate::present::human::{UNKNOWN, count, percent, plural, safe};
use crate::present::items::amount;
use crate::present::table::{Cell, Column, Table};
use crate::present::{Page, Tone, brief};
use crate::terminal::PIPE_WIDTH;
use crate::units::CountUnit;

/// Said where no sample has a call stack.
pub(crate) const NOTHING: &str = "no sample of this trace has a call stack\n\
    hint: record with -g; from perf: 'perf record --call-graph dwarf', then import\n";

/// The report as text for a pipe; of each section the `top` rows that take the most.
#[cfg(test)]
#[must_use]
pub fn render(report: &PathReport, top: usize) -> String {
    page(report, top, PIPE_WIDTH).plain()
}

/// The same, laid out for a width.
#[must_use]
pub(crate) fn page(report: &PathReport, top: usize, width: usize) -> Page {
    let mut out = Page::new(width);
    if report.call_graph.is_none() {
        NOTHING.lines().for_each(|line| out.paragraph(line));
        return out;
    }
    for part in &report.sections {
        section(&mut out, report.unit, part, top);
    }
    out.gap();
    out.paragraph(&format!(
        "callers: the nearest first, up to the function of the probe; {UNKNOWN} below {} samples",
        report.min_samples
    ));
    out
}

fn section(out: &mut Page, unit: CountUnit, section: &PathSection, top: usize) {
    let mut table = Table::new([
        Column::names("", 32),
        Column::number("slow").tone(Tone::Slow),
        Column::number("typical").rank(1),
        Column::number("mean"),
        Column::number("95 %").rank(4),
        Column::number("share"),
        Column::number("samples").rank(2),
        Column::names("", 10).rank(3).tone(Tone::Faint),
    ]);
    for row in section.rows.iter().take(top) {
        let module = row.function.module.as_deref();
        table.row([
            what(row),
            amount(unit, row.slow.per_visit).into(),
            amount(unit, row.typical.per_visit).into(),
            amount(unit, row.all.per_visit).into(),
            interval(unit, &row.all).into(),
            row.all
                .share
                .map_or_else(|| UNKNOWN.to_owned(), percent)
                .into(),
            count(row.all.samples).into(),
            module
                .map_or_else(String::new, |it| safe(file_name(it), NAME_WIDTH))
                .into(),
        ]);
    }
    let spec = section.spec.as_deref().map_or_else(
        || format!("probe {} (not in trace.json)", section.probe_id),
        |spec| brief::spec(spec, SPEC_WIDTH),
    );
    let visits = section.visits.map_or_else(
        || "those kept; only slow ones are told apart".to_owned(),
        |visits| plural(visits, "visit"),
    );
    let rows = section.rows.len();
    let more = if rows > top {
        format!(" ({top} of {}; --top N lists more)", count(rows as u64))
    } else {
        String::new()
    };
    let what = if unit.is_time() { "time" } else { "events" };
    let title = format!("{spec}, {what} per visit by call path, {visits}{more}");
    if rows == 0 {
        out.gap();
        out.paragraph(&format!("{title}: no samples"));
    }
    out.table(&title, &table);
}

/// The function and its callers.
fn what(row: &PathRow) -> Cell {
    let callers = match row.others {
        Some(paths) => format!("<- {} with few samples", plural(paths, "path")),
        None => callers(&row.callers, row.truncated, row.known, PIPE_WIDTH),
    };
    let function = row.function.clone();
    Cell::detailed(move |width| name_within(&function, width), " ", callers)
}

fn interval(unit: CountUnit, cell: &Figures) -> String {
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
