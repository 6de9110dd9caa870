//! A comparison as text, for people.

use std::fmt::Write;

use super::model::{Change, Diff, ProbeDiff, RowDiff};
use crate::analysis::explain::model::CauseKind;
use crate::analysis::report::brief;
use crate::analysis::report::human::{count, percent, plural, safe, time};
use crate::analysis::report::text::lists::{lines, show};
use crate::analysis::report::text::{NAME_WIDTH, SPEC_WIDTH, line};

/// Rows that changed beyond chance, and others, that are shown.
const MOST_CHANGED: usize = 30;
const MOST_OTHERS: usize = 5;

/// Changes of less than this share of an item are not worth a line unless they are certain.
const LEAST_SHARE: f64 = 0.005;

/// The comparison as text, each line ended.
#[must_use]
pub fn render(diff: &Diff) -> String {
    let mut out = String::new();
    for probe in &diff.probes {
        section(&mut out, probe);
        out.push('\n');
    }
    if let Some(limit) = diff.fail_above {
        line(&mut out, "limit", &verdict(diff, limit));
    }
    let compared = count(diff.comparisons);
    line(
        &mut out,
        "95 %",
        &format!(
            "intervals hold for all {compared} figures at once; of what changes within a run, not of \
         what differs between runs as wholes"
        ),
    );
    for note in &diff.notes {
        line(&mut out, "note", &safe(note, 2 * SPEC_WIDTH));
    }
    line(&mut out, "before", &safe(&diff.before, 2 * SPEC_WIDTH));
    line(&mut out, "after", &safe(&diff.after, 2 * SPEC_WIDTH));
    out
}

fn verdict(diff: &Diff, limit: f64) -> String {
    let limit = percent(limit);
    if diff.failed.is_empty() {
        return format!("nothing grew by more than {limit}, as far as the intervals tell");
    }
    format!("above {limit}: {}", diff.failed.join(", "))
}

fn section(out: &mut String, probe: &ProbeDiff) {
    let _ = writeln!(
        out,
        "{}: {} before, {} after",
        brief::spec(&probe.spec_after, SPEC_WIDTH),
        plural(probe.items_before, "item"),
        count(probe.items_after)
    );
    line(out, "changed", &changed(probe));
    for it in &probe.durations {
        line(out, figure_name(it.figure), &figure(&it.change));
    }
    rows(out, probe);
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

/// A figure of the durations in words.
pub(super) fn figure_name(figure: &'static str) -> &'static str {
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

fn rows(out: &mut String, probe: &ProbeDiff) {
    let certain = probe
        .rows
        .iter()
        .filter(|it| it.change.changed)
        .take(MOST_CHANGED);
    let worth = |it: &&RowDiff| !it.change.changed && it.change.share.abs() >= LEAST_SHARE;
    let others = probe.rows.iter().filter(worth).take(MOST_OTHERS);
    let mut table = lines([
        "", "before", "after", "change", "95 %", "of item", "samples", "",
    ]);
    let mut shown = 0;
    for it in certain.chain(others) {
        let change = &it.change;
        let interval = match (change.change_low_ns, change.change_high_ns) {
            (Some(low), Some(high)) => format!("{} .. {}", signed_time(low), signed_time(high)),
            _ => String::new(),
        };
        table.add_row([
            what(it),
            time(change.before_ns),
            time(change.after_ns),
            signed_time(change.change_ns),
            interval,
            signed(change.share),
            format!("{}, {}", count(it.before_samples), count(it.after_samples)),
            verdict_of(change).to_owned(),
        ]);
        shown += 1;
    }
    show(out, "time per item", &table, &[1, 2, 3, 4, 5, 6], shown);
}

const fn verdict_of(change: &Change) -> &'static str {
    match change {
        Change { fails: true, .. } => "above the limit",
        Change { changed: true, .. } => "changed",
        _ => "may be chance",
    }
}

/// A row in words.
pub(super) fn what(row: &RowDiff) -> String {
    let module = row.module.as_deref().unwrap_or("no module");
    let kernel = if row.kernel { " [kernel]" } else { "" };
    let name = row
        .name
        .as_deref()
        .map(|it| brief::function(it, NAME_WIDTH) + kernel);
    let module = || safe(module, NAME_WIDTH);
    match (row.kind, name, row.state.as_deref()) {
        (CauseKind::Preempted, ..) => "preempted (off the CPU)".to_owned(),
        (CauseKind::Handover, Some(name), _) => format!("waiting for stage {name}"),
        (CauseKind::Others, Some(name), _) => format!("others of the batch in {name}"),
        (_, name, Some(state)) => {
            let name = name.unwrap_or_else(module);
            format!("{name} ({}, off the CPU)", safe(state, NAME_WIDTH))
        }
        (_, Some(name), None) => name,
        (_, None, None) => format!("rest of {}", module()),
    }
}

fn signed(share: f64) -> String {
    let sign = if share < 0.0 { "-" } else { "+" };
    format!("{sign}{}", percent(share.abs()))
}

fn signed_time(ns: f64) -> String {
    let sign = if ns < 0.0 { "" } else { "+" };
    format!("{sign}{}", time(ns))
}
