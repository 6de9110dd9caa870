//! A comparison as text, for people.

use std::fmt::{self, Display, Formatter};

use serde::{Serialize, Serializer};

use crate::compare::diff::model::{Change, Diff, Failed, ProbeDiff, RowDiff};
use crate::present::causes::by_name;
use crate::present::functions::{NAME_WIDTH, SPEC_WIDTH};
use crate::present::human::{count, percent, plural, safe, signed_time, time};
use crate::present::table::{Cell, Column, Table};
use crate::present::{Page, Tone, brief, counted, toned};
use crate::terminal::shown;

/// Rows that changed beyond chance, and others, that are shown.
const MOST_CHANGED: usize = 30;
const MOST_OTHERS: usize = 5;

/// Changes of less than this share of an item are not worth a line unless they are certain.
const LEAST_SHARE: f64 = 0.005;

/// The comparison as text for a pipe, each line ended.
#[cfg(test)]
#[must_use]
pub fn render(diff: &Diff) -> String {
    page(diff, crate::terminal::PIPE_WIDTH).plain()
}

/// The comparison, laid out for a width.
#[must_use]
pub(crate) fn page(diff: &Diff, width: usize) -> Page {
    let mut out = Page::new(width);
    for probe in &diff.probes {
        section(&mut out, probe);
        out.gap();
    }
    if let Some(limit) = diff.fail_above {
        out.line("limit", &verdict(diff, limit));
    }
    let compared = count(diff.comparisons);
    out.line("95 %",
        &format!(
            "intervals hold for all {compared} figures at once; they cover what varies within a run, not \
             what differs between whole runs"
        ),
    );
    for note in &diff.notes {
        out.line("note", &safe(&note.to_string(), 2 * SPEC_WIDTH));
    }
    out.line("before", &shown(&diff.before));
    out.line("after", &shown(&diff.after));
    out
}

fn verdict(diff: &Diff, limit: f64) -> String {
    let limit = percent(limit);
    if diff.failed.is_empty() {
        return format!("nothing grew by more than {limit}, as far as the intervals tell");
    }
    format!("above {limit}: {}", {
        let failed: Vec<String> = diff.failed.iter().map(ToString::to_string).collect();
        failed.join(", ")
    })
}

fn section(out: &mut Page, probe: &ProbeDiff) {
    out.paragraph(&format!(
        "{}: {} before, {} after",
        brief::spec(&probe.spec_after, SPEC_WIDTH),
        plural(probe.items_before, "item"),
        count(probe.items_after)
    ));
    out.paragraph(&format!(
        "{} {}",
        toned(Tone::Strong, "changed:"),
        changed(probe)
    ));
    for it in &probe.durations {
        out.line(figure_name(it.figure), &figure(&it.change));
    }
    rows(out, probe);
    counted::changed(out, &probe.counted_events, "item");
}

/// The functions that changed beyond chance, the largest change first.
fn changed(probe: &ProbeDiff) -> String {
    if let Some(why) = &probe.too_little {
        return format!("functions: - ({why})");
    }
    let certain: Vec<&RowDiff> = probe.rows.iter().filter(|it| it.change.changed).collect();
    if certain.is_empty() {
        return "no function's time per item beyond chance".to_owned();
    }
    let is_large = |it: &&&RowDiff| it.change.share.abs() >= LEAST_SHARE;
    let large = certain.iter().filter(is_large).count();
    let named: Vec<String> = certain
        .iter()
        .filter(|it| large == 0 || is_large(it))
        .take(3)
        .map(|it| format!("{} {}", what(it), signed_time(it.change.change_ns)))
        .collect();
    let more = certain.len() - named.len();
    let more = if more > 0 {
        format!(" and {}", plural(more as u64, "other"))
    } else {
        String::new()
    };
    let little = if large == 0 {
        format!(": each less than {} of it", percent(LEAST_SHARE))
    } else {
        String::new()
    };
    format!("{} an item{more}{little}", named.join(", "))
}

impl Display for Failed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(figure) => f.write_str(figure_name(figure)),
            Self::Row(row) => f.write_str(&what(row)),
        }
    }
}

/// JSON has it in words.
impl Serialize for Failed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// A figure of the durations in words.
fn figure_name(figure: &'static str) -> &'static str {
    if figure == "on_cpu" { "on CPU" } else { figure }
}

fn figure(change: &Change) -> String {
    let interval = match (change.share_low, change.share_high) {
        (Some(low), Some(high)) => format!(" ({} .. {})", signed(low), signed(high)),
        _ => " (too few items for an interval)".to_owned(),
    };
    format!(
        "{} before, {} after: {}{interval}",
        time(change.before_ns),
        time(change.after_ns),
        signed(change.share)
    )
}

fn rows(out: &mut Page, probe: &ProbeDiff) {
    let certain = probe
        .rows
        .iter()
        .filter(|it| it.change.changed)
        .take(MOST_CHANGED);
    let worth = |it: &&RowDiff| !it.change.changed && it.change.share.abs() >= LEAST_SHARE;
    let others = probe.rows.iter().filter(worth).take(MOST_OTHERS);
    let mut table = Table::new([
        Column::names("", 24),
        Column::number("before").rank(1),
        Column::number("after").rank(2),
        Column::number("change").tone(Tone::Slow),
        Column::number("95 %").rank(4),
        Column::number("of item").rank(3),
        Column::number("samples").rank(5),
        Column::words(""),
    ]);
    for it in certain.chain(others) {
        let change = &it.change;
        let interval = match (change.change_low_ns, change.change_high_ns) {
            (Some(low), Some(high)) => format!("{} .. {}", signed_time(low), signed_time(high)),
            _ => String::new(),
        };
        let row = it.clone();
        table.row([
            Cell::fitted(move |width| what_within(&row, width)),
            time(change.before_ns).into(),
            time(change.after_ns).into(),
            signed_time(change.change_ns).into(),
            interval.into(),
            signed(change.share).into(),
            format!("{}, {}", count(it.before_samples), count(it.after_samples)).into(),
            verdict_of(change).into(),
        ]);
    }
    out.table("time per item", &table);
}

const fn verdict_of(change: &Change) -> &'static str {
    match change {
        Change { fails: true, .. } => "above the limit",
        Change { changed: true, .. } => "changed",
        _ => "may be chance",
    }
}

/// A row in words.
fn what(row: &RowDiff) -> String {
    what_within(row, NAME_WIDTH)
}

fn what_within(row: &RowDiff, width: usize) -> String {
    let names = [&row.name, &row.module, &row.state].map(Option::as_deref);
    by_name((row.kind, row.kernel), names, width)
}

fn signed(share: f64) -> String {
    let sign = if share < 0.0 { "-" } else { "+" };
    format!("{sign}{}", percent(share.abs()))
}
