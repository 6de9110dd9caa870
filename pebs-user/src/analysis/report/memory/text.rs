//! Memory accesses as text, for people.

use std::fmt::Write;

use super::{AccessCell, AccessRow, AccessSection, EventAccesses, MemoryReport};
use crate::analysis::report::brief;
use crate::analysis::report::human::{UNKNOWN, count, events, plural, safe};
use crate::analysis::report::text::lists::{lines, show};
use crate::analysis::report::text::{NAME_WIDTH, SPEC_WIDTH, file_name, name};

/// Said where no sample tells of an access.
pub const NOTHING: &str = "no sample of this trace says anything of a memory access\n\
    hint: record page-faults, on Intel an event of loads or stores with a precise level (--event mem-loads:P,\n      \
    mem_load_retired.l3_miss:pp), on AMD --event ibs_op// --memory; from perf: 'perf mem record', then import\n";

/// The report as text; of each section the `top` rows with the most events.
#[must_use]
pub fn render(report: &MemoryReport, top: usize) -> String {
    if report.events.is_empty() {
        return NOTHING.to_owned();
    }
    let mut out = String::new();
    for event in &report.events {
        head(&mut out, event);
        for part in &event.sections {
            section(&mut out, part, top);
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "events are samples x reset value, +- 1.96 standard errors; {UNKNOWN} below {} samples",
        report.min_samples
    );
    out
}

fn head(out: &mut String, it: &EventAccesses) {
    let event = &it.event;
    let every = match event.frequency {
        Some(frequency) => format!("{frequency} times a second"),
        None => format!("every {}", count(event.reset)),
    };
    // Writing to a string can't fail.
    let _ = write!(
        out,
        "{} {every}: {}, {} of which say something of their access",
        safe(&event.name, SPEC_WIDTH),
        plural(it.samples, "sample"),
        count(it.told),
    );
    if it.left_out > 0 {
        let _ = write!(
            out,
            "; {} in items that are left out (--all counts those that overlap a loss)",
            count(it.left_out)
        );
    }
    out.push('\n');
}

fn section(out: &mut String, section: &AccessSection, top: usize) {
    let in_items = section.probe_id.is_some();
    let mut table = lines([
        "",
        "access",
        "snoop",
        "TLB",
        "",
        "slow",
        "typical",
        "all",
        "+-",
        "samples",
        "cycles p50, p99",
        "",
    ]);
    for row in section.rows.iter().take(top) {
        let per_visit = |cell: &AccessCell| shown(cell.per_visit);
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
        table.add_row([
            name(&row.function),
            access(row),
            text(row.snoop.as_deref()),
            text(row.tlb.as_deref()),
            if row.locked == Some(true) {
                "locked".to_owned()
            } else {
                String::new()
            },
            per_visit(&row.slow),
            per_visit(&row.typical),
            shown(all),
            shown(error.map(|error| 1.96 * error)),
            count(row.all.samples),
            latency(&row.all),
            module.map_or_else(String::new, |it| safe(file_name(it), NAME_WIDTH)),
        ]);
    }
    if !in_items {
        for column in [5, 6] {
            if let Some(column) = table.column_mut(column) {
                column.set_constraint(comfy_table::ColumnConstraint::Hidden);
            }
        }
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
    show(out, &title, &table, &[5, 6, 7, 8, 9, 10], rows.min(top));
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

fn text(said: Option<&str>) -> String {
    said.map_or_else(|| UNKNOWN.to_owned(), |it| safe(it, NAME_WIDTH))
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
