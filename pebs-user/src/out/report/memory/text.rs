//! Memory accesses as text, for people.

use std::fmt::Write;

use crate::compare::names::file_name;
use crate::compare::report::memory::{
    AccessCell, AccessRow, AccessSection, EventAccesses, MemoryReport,
};
use crate::present::functions::{NAME_WIDTH, SPEC_WIDTH, name_within};
use crate::present::human::{UNKNOWN, count, events, plural, safe};
use crate::present::table::{Cell, Column, Table};
use crate::present::{Page, Tone, brief};

/// Shown where no sample has a memory access.
pub(crate) const NOTHING: &str = "no sample of this trace has a memory access\n\
    hint: record page-faults, on Intel an event of loads or stores with a precise level (--event mem-loads:P, \
    mem_load_retired.l3_miss:pp), on AMD --event ibs_op// --memory; from perf: 'perf mem record', then import\n";

/// The report as text for a pipe; of each section the `top` rows with the most events.
#[cfg(test)]
#[must_use]
pub fn render(report: &MemoryReport, top: usize) -> String {
    page(report, top, crate::terminal::PIPE_WIDTH).plain()
}

/// The same, laid out for a width.
#[must_use]
pub(crate) fn page(report: &MemoryReport, top: usize, width: usize) -> Page {
    let mut out = Page::new(width);
    if report.events.is_empty() {
        NOTHING.lines().for_each(|line| out.paragraph(line));
        return out;
    }
    for event in &report.events {
        head(&mut out, event);
        for part in &event.sections {
            section(&mut out, part, top);
        }
        out.gap();
    }
    out.paragraph(&format!(
        "events are samples x reset value, +- 1.96 standard errors; {UNKNOWN} below {} samples",
        report.min_samples
    ));
    out
}

fn head(out: &mut Page, it: &EventAccesses) {
    let event = &it.event;
    let every = match event.frequency {
        Some(frequency) => format!("{frequency} times a second"),
        None => format!("every {}", count(event.reset)),
    };
    let mut text = format!(
        "{} {every}: {}, {} with their memory access",
        safe(&event.name, SPEC_WIDTH),
        plural(it.samples, "sample"),
        count(it.with_access),
    );
    if it.left_out > 0 {
        text += &format!(
            "; {} in items that are left out (--all counts those that overlap a loss)",
            count(it.left_out)
        );
    }
    out.paragraph(&text);
}

fn section(out: &mut Page, section: &AccessSection, top: usize) {
    let in_items = section.probe_id.is_some();
    let mut table = Table::new([
        Column::names("", 20),
        Column::names("access", 8),
        Column::names("snoop", 6).rank(6),
        Column::names("TLB", 6).rank(5),
        Column::words("").rank(4),
        Column::number("slow").tone(Tone::Slow),
        Column::number("typical").rank(1),
        Column::number("all"),
        Column::number("+-").rank(7),
        Column::number("samples").rank(3),
        Column::number("cycles p50, p99").rank(2),
        Column::names("", 10).rank(8).tone(Tone::Faint),
    ]);
    for row in section.rows.iter().take(top) {
        let per_visit = |cell: &AccessCell| {
            if in_items {
                shown(cell.per_visit)
            } else {
                String::new()
            }
        };
        let (all, error) = if section.visits.is_some() {
            let visits = section.visits.unwrap_or(1) as f64;
            (
                row.all.per_visit,
                row.all.events_stderr.map(|it| it / visits),
            )
        } else {
            (row.all.events, row.all.events_stderr)
        };
        let module = row.function.module.as_deref();
        let function = row.function.clone();
        table.row([
            Cell::fitted(move |width| name_within(&function, width)),
            access(row).into(),
            text(row.snoop.as_deref()).into(),
            text(row.tlb.as_deref()).into(),
            if row.locked == Some(true) {
                "locked".into()
            } else {
                "".into()
            },
            per_visit(&row.slow).into(),
            per_visit(&row.typical).into(),
            shown(all).into(),
            shown(error.map(|error| 1.96 * error)).into(),
            count(row.all.samples).into(),
            latency(&row.all).into(),
            module
                .map_or_else(String::new, |it| safe(file_name(it), NAME_WIDTH))
                .into(),
        ]);
    }
    let rows = section.rows.len();
    let mut title = match (&section.spec, section.probe_id) {
        (Some(spec), _) => format!("{}, events per visit", brief::spec(spec, SPEC_WIDTH)),
        (None, Some(probe)) => format!("probe {probe} (not in trace.json), events per visit"),
        (None, None) => "in no item, events".to_owned(),
    };
    if rows > top {
        let _ = write!(
            title,
            " ({top} of {} kinds; --top N lists more)",
            count(rows as u64)
        );
    }
    out.table(&title, &table);
}

/// `load L1 hit`.
fn access(row: &AccessRow) -> String {
    let parts: Vec<&str> = [&row.op, &row.level]
        .into_iter()
        .filter_map(Option::as_deref)
        .collect();
    if parts.is_empty() {
        return UNKNOWN.to_owned();
    }
    safe(&parts.join(" "), NAME_WIDTH)
}

fn text(value: Option<&str>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |it| safe(it, NAME_WIDTH))
}

fn shown(n: Option<f64>) -> String {
    n.map_or_else(|| UNKNOWN.to_owned(), events_of_few)
}

/// Less than one a visit has its digits, too.
fn events_of_few(n: f64) -> String {
    if n < 9.995 {
        format!("{n:.2}")
    } else {
        events(n)
    }
}

fn latency(cell: &AccessCell) -> String {
    match (cell.latency_p50, cell.latency_p99) {
        (Some(p50), Some(p99)) => format!("{}, {}", count(p50), count(p99)),
        _ => UNKNOWN.to_owned(),
    }
}
