//! Shared cache lines as CSV: a row for each kind of access of each thread.
//!
//! The first line names the columns; unknown is empty.

use crate::compare::report::lines::{Access, Count, LineReport, SharedLine, Thread};
use crate::out::report::csv::{FUNCTION, function, header};
use crate::present::csv::Line;

/// Names of the columns before the function.
const BEFORE: [&str; 12] = [
    "rank",
    "line",
    "line_pid",
    "physical",
    "sharing",
    "same_bytes_least",
    "same_bytes_most",
    "contended_samples",
    "contended_events",
    "contended_stderr",
    "pid",
    "tid",
];

/// Names of the columns behind it.
const BEHIND: [&str; 12] = [
    "op",
    "offset",
    "bytes",
    "data_symbol",
    "data_object",
    "data_offset",
    "samples",
    "events",
    "events_stderr",
    "hit_modified",
    "items",
    "slow_items",
];

#[must_use]
pub(crate) fn render(report: &LineReport) -> String {
    let columns = BEFORE.into_iter().chain(FUNCTION).chain(BEHIND);
    let mut out = header(columns.map(str::to_owned));
    for (shared, rank) in report.lines.iter().zip(1..) {
        for thread in &shared.threads {
            for access in &thread.accesses {
                out.push_str(&line((rank, shared), thread, access));
            }
        }
    }
    out
}

fn line((rank, shared): (u64, &SharedLine), thread: &Thread, access: &Access) -> String {
    let mut line = Line::default();
    line.number(rank);
    line.text(&format!("{:#x}", shared.address));
    line.maybe(shared.pid);
    let physical = shared.physical.map(|it| format!("{it:#x}"));
    line.maybe(physical.as_deref());
    line.text(super::text::kind(shared.sharing));
    let [least, most] = shared.same_bytes;
    line.number(least);
    line.number(most);
    count(&mut line, &shared.contended);
    line.maybe(thread.pid);
    line.number(thread.tid);
    function(&mut line, &access.function);
    line.text(access.op);
    line.number(access.offset);
    line.maybe(access.bytes);
    let data = access.data.as_ref();
    line.maybe(data.and_then(|it| it.symbol.as_deref()));
    line.maybe(data.and_then(|it| it.object.as_deref()));
    line.maybe(data.map(|it| it.offset));
    count(&mut line, &access.all);
    line.number(access.hit_modified);
    line.number(access.items);
    line.number(access.slow_items);
    line.end()
}

fn count(line: &mut Line, count: &Count) {
    let Count {
        samples,
        events,
        events_stderr,
    } = count;
    line.number(samples);
    line.maybe(*events);
    line.maybe(*events_stderr);
}
