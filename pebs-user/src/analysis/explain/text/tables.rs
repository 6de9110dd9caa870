//! The tables of an explanation.

use comfy_table::Table;

use super::{cause, evidence, kind, labels, share, wait_path, what};
use crate::analysis::explain::model::{
    CallPath, Cause, CountRow, Gap, Group, Grouped, InterferenceRow, Rest, Variance,
};
use crate::analysis::report::human::{UNKNOWN, count, percent, plural, safe, time};
use crate::analysis::report::model::FunctionName;
use crate::analysis::report::text::callers::callers;
use crate::analysis::report::text::lists::{lines, show};
use crate::analysis::report::text::{ARG_WIDTH, NAME_WIDTH, file_name, name};

/// Parts of the variance that are shown.
const VARIANCE_TOP: usize = 5;

/// Least share with which the kernel's part and the rests are shown.
const LEAST_SHARE: f64 = 0.005;

/// What makes slow items slow.
pub(super) fn causes(out: &mut String, group: &Group, gap: &Gap, noun: &str) {
    let mut table = lines(["", "of gap", "95 %", "slow", "typical", "samples", ""]);
    let mut rows = 0;
    for it in &gap.causes {
        table.add_row([
            what(it),
            share(it.figures.share),
            ends(it.figures.share_low, it.figures.share_high),
            time(it.figures.slow_ns),
            time(it.figures.typical_ns),
            evidence(it),
            module(&it.function),
        ]);
        rows += 1 + paths(&mut table, it);
    }
    if gap.others.causes > 0 {
        rest(&mut table, &plural(gap.others.causes, "other"), &gap.others);
        rows += 1;
    }
    let unexplained = match gap.unexplained.slow_samples {
        0 => "unexplained".to_owned(),
        n => format!(
            "unexplained: {} with too few samples ({n})",
            plural(gap.unexplained.causes, "function")
        ),
    };
    if gap.unexplained.share.abs() >= LEAST_SHARE || gap.unexplained.slow_samples > 0 {
        rest(&mut table, &unexplained, &gap.unexplained);
        rows += 1;
    }
    let few = group
        .slow
        .as_ref()
        .map_or(0, |slow| slow.items - slow.without_details);
    let certainty = if gap.gap_low_ns.is_none() && few > 0 {
        format!("; no intervals from {} slow {noun}s", count(few))
    } else {
        String::new()
    };
    let title = format!(
        "what slow {noun}s take more time for: {}{} each{certainty}",
        time(gap.gap_ns),
        gap_ends(gap)
    );
    show(out, &title, &table, &[1, 2, 3, 4, 5], rows);
    blocked(out, &gap.causes);
    if gap.kernel.share.abs() >= LEAST_SHARE {
        out.push_str(&format!(
            "  of it in the kernel, on the CPU: {}\n",
            share(gap.kernel.share)
        ));
    }
}

/// Where the waits began, where that is known: one line a wait.
pub(super) fn blocked(out: &mut String, causes: &[Cause]) {
    for cause in causes {
        if let Some(known) = &cause.blocked {
            out.push_str(&format!(
                "  blocked in {} ({} of {})\n",
                wait_path(&known.functions),
                percent(known.part),
                what(cause)
            ));
        }
    }
}

/// Rows of the call paths of a function; gives their number.
fn paths(table: &mut Table, cause: &Cause) -> usize {
    let shown = told(cause);
    for it in shown {
        table.add_row([
            path(it),
            share(it.figures.share),
            ends(it.figures.share_low, it.figures.share_high),
            time(it.figures.slow_ns),
            time(it.figures.typical_ns),
            count(it.figures.slow_samples),
            String::new(),
        ]);
    }
    let others = cause
        .other_paths
        .as_ref()
        .filter(|it| !shown.is_empty() && it.share.abs() >= LEAST_SHARE);
    if let Some(others) = others {
        rest(
            table,
            &format!("  <- {}", plural(others.causes, "other")),
            others,
        );
    }
    shown.len() + usize::from(others.is_some())
}

/// The call paths that are worth a row: not the only one, of a function that nobody in the item called.
pub(super) fn told(cause: &Cause) -> &[CallPath] {
    match &cause.paths[..] {
        [only] if only.callers.is_empty() => &[],
        paths => paths,
    }
}

pub(super) fn path(path: &CallPath) -> String {
    format!("  {}", callers(&path.callers, path.truncated, path.known))
}

fn gap_ends(gap: &Gap) -> String {
    match (gap.gap_low_ns, gap.gap_high_ns) {
        (Some(low), Some(high)) => format!(" ({} .. {})", time(low), time(high)),
        _ => String::new(),
    }
}

fn rest(table: &mut Table, what: &str, rest: &Rest) {
    table.add_row([
        what.to_owned(),
        share(rest.share),
        ends(rest.share_low, rest.share_high),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    ]);
}

fn ends(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("{} .. {}", share(low), share(high)),
        _ => String::new(),
    }
}

fn module(function: &FunctionName) -> String {
    let module = function.module.as_deref();
    module.map_or_else(String::new, |module| safe(file_name(module), NAME_WIDTH))
}

/// What happened to the threads of slow items more or less often.
pub(super) fn counts(out: &mut String, rows: &[CountRow], noun: &str) {
    let mut table = lines(["", "slow", "typical", "more", "95 %", "goes with"]);
    let mut shown = 0;
    for row in rows
        .iter()
        .filter(|row| row.slow > 0.0 || row.typical > 0.0)
    {
        let interval = match (row.excess_low, row.excess_high) {
            (Some(low), Some(high)) => format!("{low:.2} .. {high:.2}"),
            _ => String::new(),
        };
        let part = row
            .variance_part
            .map_or_else(|| UNKNOWN.to_owned(), percent);
        table.add_row([
            row.count.replace('_', " "),
            format!("{:.2}", row.slow),
            format!("{:.2}", row.typical),
            format!("{:.2}", row.excess),
            interval,
            format!("{part} of the variance"),
        ]);
        shown += 1;
    }
    let title = format!("what happened to them, mean of one {noun}; its time is in the list above");
    show(out, &title, &table, &[1, 2, 3, 4, 5], shown);
}

/// What came between threads and their work, if anything did.
pub(super) fn interference(out: &mut String, rows: &[InterferenceRow], [whose, noun]: [&str; 2]) {
    let mut table = lines(["", whose, "typical", "of gap", "95 %", "goes with"]);
    let met = rows
        .iter()
        .filter(|row| row.slow_ns > 0.0 || row.typical_ns > 0.0);
    let mut shown = 0;
    for row in met {
        let part = row
            .variance_part
            .map_or_else(|| UNKNOWN.to_owned(), percent);
        table.add_row([
            row.what.to_owned(),
            time(row.slow_ns),
            time(row.typical_ns),
            share(row.share),
            ends(row.share_low, row.share_high),
            format!("{part} of the variance"),
        ]);
        shown += 1;
    }
    let title = format!("what came between, mean of one {noun}; part of the times above");
    show(out, &title, &table, &[1, 2, 3, 4, 5], shown);
}

/// What the latency varies with.
pub(super) fn variance(out: &mut String, variance: &Variance, noun: &str) {
    let mut table = lines(["", "of variance", "95 %", "samples", ""]);
    let (shown, hidden) = variance
        .parts
        .split_at(variance.parts.len().min(VARIANCE_TOP));
    for it in shown {
        let samples = if it.state.is_some() {
            plural(it.samples, "wait")
        } else {
            count(it.samples)
        };
        table.add_row([
            kind(it.kind, &name(&it.function), it.state.as_deref()),
            share(it.share),
            ends(it.share_low, it.share_high),
            samples,
            module(&it.function),
        ]);
    }
    let others = variance.others + hidden.iter().map(|it| it.share).sum::<f64>();
    let mut rows = shown.len();
    for (what, part) in [("others", others), ("unexplained", variance.unexplained)] {
        if part.abs() >= LEAST_SHARE {
            table.add_row([
                what.to_owned(),
                share(part),
                String::new(),
                String::new(),
                String::new(),
            ]);
            rows += 1;
        }
    }
    let title = format!(
        "what the time of all {noun}s varies with (standard deviation {})",
        time(variance.stddev_ns)
    );
    show(out, &title, &table, &[1, 2, 3], rows);
}

/// What made a group's slow items slow, where there are enough of them.
fn group_cause(group: &Group, noun: &str) -> String {
    match (&group.gap, &group.slow) {
        (Some(gap), Some(slow)) if gap.gap_low_ns.is_none() => {
            let few = slow.items - slow.without_details;
            format!(
                "{UNKNOWN} (too few slow {noun}s ({}): record longer or lower --slow)",
                count(few)
            )
        }
        _ => cause(group, noun),
    }
}

/// Groups that were found, one a line.
pub(super) fn groups(out: &mut String, grouped: &Grouped, groups: &[Group], noun: &str) {
    let mut table = lines(["", "", "p50", "p99", "slow", "cause"]);
    for group in groups {
        table.add_row([
            labels(&group.labels),
            plural(group.items, noun),
            time(group.duration.p50_ns as f64),
            time(group.duration.p99_ns as f64),
            group
                .slow
                .as_ref()
                .map_or_else(|| UNKNOWN.to_owned(), |slow| count(slow.items)),
            group_cause(group, noun),
        ]);
    }
    let argument = safe(&grouped.argument, ARG_WIDTH);
    let title = format!(
        "groups of like {noun}s: {argument} explains {} of the spread of durations ({}); \
         --group-by {argument} tells all",
        percent(grouped.part),
        super::chance(grouped.chance)
    );
    show(out, &title, &table, &[1, 2, 3, 4], groups.len());
}
