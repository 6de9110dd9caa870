//! Memory accesses as CSV: a row for each function and kind of access.
//!
//! The first line names the columns; unknown is empty.

use crate::compare::report::memory::{
    AccessCell, AccessRow, AccessSection, EventAccesses, MemoryReport,
};
use crate::out::report::csv::{FUNCTION, function, header};
use crate::present::csv::Line;

/// Names of the columns between the function and the cells.
const ACCESS: [&str; 5] = ["op", "level", "snoop", "tlb", "locked"];

const CELL: [&str; 6] = [
    "samples",
    "events",
    "events_stderr",
    "per_visit",
    "latency_p50",
    "latency_p99",
];

/// The report, rows of no visit without a probe.
#[must_use]
pub(crate) fn render(report: &MemoryReport) -> String {
    let classes = ["all", "slow", "typical"].into_iter();
    let cells = classes.flat_map(|class| CELL.map(|column| format!("{class}_{column}")));
    let key = ["event", "probe_id"]
        .into_iter()
        .chain(FUNCTION)
        .chain(ACCESS);
    let mut out = header(key.map(str::to_owned).chain(cells));
    for event in &report.events {
        for section in &event.sections {
            for row in &section.rows {
                out.push_str(&line(event, section, row));
            }
        }
    }
    out
}

fn line(event: &EventAccesses, section: &AccessSection, row: &AccessRow) -> String {
    let mut line = Line::default();
    line.text(&event.event.name);
    line.maybe(section.probe_id);
    function(&mut line, &row.function);
    for text in [&row.op, &row.level, &row.snoop, &row.tlb] {
        line.maybe(text.as_deref());
    }
    line.maybe(row.locked);
    for cell in [&row.all, &row.slow, &row.typical] {
        let AccessCell {
            samples,
            events,
            events_stderr,
            per_visit,
            latency_p50,
            latency_p99,
        } = cell;
        line.number(samples);
        for value in [events, events_stderr, per_visit] {
            line.maybe(*value);
        }
        line.maybe(*latency_p50);
        line.maybe(*latency_p99);
    }
    line.end()
}
