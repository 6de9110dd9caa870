//! The tables of an explanation.

use super::{LEAST_NAMED, evidence, labels, wait_path};
use crate::compare::explain::model::{
    CallPath, Cause, CountRow, EventFigures, Gap, Group, Grouped, InterferenceRow, OtherCauses,
    ProbeExplanation, Variance, WaitActor, WithEvents,
};
use crate::compare::further::FurtherEvent;
use crate::compare::names::{FunctionName, file_name};
use crate::compare::waits::PREEMPTED;
use crate::present::callers::callers;
use crate::present::causes::{cause, kind, reason, share, what};
use crate::present::chain;
use crate::present::functions::{ARG_WIDTH, NAME_WIDTH};
use crate::present::human::{UNKNOWN, count, percent, plural, safe, shorten, time};
use crate::present::table::{Cell, Column, Table};
use crate::present::{Page, Tone, further};

/// Groups that are listed.
const GROUPS_TOP: usize = 20;

/// Parts of the variance that are shown.
const VARIANCE_TOP: usize = 5;

/// Least share of the kernel's part and of remainders that are shown.
const LEAST_SHARE: f64 = 0.005;

/// Table of the causes of the gap.
pub(super) fn causes(
    out: &mut Page,
    (group, events): (&Group, &[FurtherEvent]),
    gap: &Gap,
    noun: &str,
) {
    let columns = [
        Column::names("", 24),
        Column::number("of gap").tone(Tone::Slow),
        Column::number("95 %").rank(5),
        Column::number("slow"),
        Column::number("typical").rank(1),
        Column::number("samples").rank(4),
    ];
    let further = further::columns(events, "typical", [2, 3, 6]);
    let module_column = Column::names("", 10).rank(7).tone(Tone::Faint);
    let columns = columns.into_iter().chain(further);
    let mut table = Table::new(columns.chain([module_column]));
    for it in &gap.causes {
        let cells = figures(named(it), it).into_iter();
        let cells = cells.chain(of_events(events, &it.further));
        table.row(cells.chain([module(&it.function).into()]));
        paths(&mut table, it);
        for member in &it.functions {
            let indented = member.clone();
            let named = Cell::fitted(move |width| {
                format!(
                    "  {}",
                    crate::present::causes::member(&indented, width.saturating_sub(2))
                )
            });
            let cells = figures(named, member).into_iter();
            table.row(cells.chain(of_events(events, &member.further)));
            paths(&mut table, member);
        }
    }
    for it in &gap.with_events {
        let cells = with_events(it, 5).into_iter();
        let cells = cells.chain(of_events(events, &it.further));
        table.row(cells.chain([module(&it.function).into()]));
    }
    if gap.others.causes > 0 {
        rest(&mut table, &plural(gap.others.causes, "other"), &gap.others);
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
    }
    all_events(&mut table, (events, &group.further), 5);
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
    out.table(&title, &table);
    blocked(out, &gap.causes);
    chains(out, &gap.causes);
    if gap.kernel.share.abs() >= LEAST_SHARE {
        let text = format!(
            "  of it in the kernel, on the CPU: {}",
            share(gap.kernel.share)
        );
        out.paragraph(&text);
    }
}

/// The cells of a cause before those of its events.
fn figures(named: Cell, cause: &Cause) -> [Cell; 6] {
    [
        named,
        share(cause.figures.share).into(),
        ends(cause.figures.share_low, cause.figures.share_high).into(),
        time(cause.figures.slow_ns).into(),
        time(cause.figures.typical_ns).into(),
        evidence(cause).into(),
    ]
}

/// The cells of further events.
pub(super) fn of_events(events: &[FurtherEvent], figures: &[EventFigures]) -> Vec<Cell> {
    if figures.is_empty() {
        return further::empty(events);
    }
    let each = events.iter().zip(figures);
    let cells = each.flat_map(|(event, it)| {
        let two = [it.slow, it.typical].map(|it| further::amount(event, it));
        further::cells(event, two, it.slow_samples)
    });
    cells.collect()
}

/// The name of a function that is listed for its events, and as many empty cells.
pub(super) fn with_events(it: &WithEvents, empty: usize) -> Vec<Cell> {
    let function = it.clone();
    let name =
        Cell::fitted(move |width| kind(function.kind, &function.function, (None, &[]), width));
    let empty = (0..empty).map(|_| "".into());
    std::iter::once(name).chain(empty).collect()
}

/// Row of the events of all functions, if there are any, with as many empty cells before them.
pub(super) fn all_events(
    table: &mut Table,
    (events, all): (&[FurtherEvent], &[EventFigures]),
    empty: usize,
) {
    if !all.is_empty() {
        let empty = (0..empty).map(|_| "".into());
        let cells = std::iter::once("events of all functions".into()).chain(empty);
        table.row(cells.chain(of_events(events, all)));
    }
}

/// A cause that can be shortened.
pub(super) fn named(cause: &Cause) -> Cell {
    let by = cause.by.as_ref().map(|by| ended_by(by, cause));
    let cause = cause.clone();
    let what = move |width| what(&cause, width);
    match by {
        Some(by) => Cell::detailed(what, ", ", by),
        None => Cell::fitted(what),
    }
}

/// The thread that ended a wait, or took the CPU.
fn ended_by(by: &WaitActor, cause: &Cause) -> String {
    let did = match cause.state.as_deref() {
        Some(PREEMPTED) => "the CPU was taken by",
        _ => "woken by",
    };
    let thread = by
        .tid
        .map_or_else(String::new, |tid| format!(" (thread {tid})"));
    let at = by
        .item_id
        .map_or_else(String::new, |item| format!(", then at item {item}"));
    let name = safe(&by.name, ARG_WIDTH);
    format!("{did} {name}{thread} for {} of it{at}", percent(by.part))
}

/// Writes the call stacks with which waits began, if known: one line a wait.
pub(super) fn blocked(out: &mut Page, causes: &[Cause]) {
    for cause in causes {
        if let Some(known) = &cause.blocked {
            out.paragraph(&format!(
                "  {}: {} of it at {}",
                what(cause, NAME_WIDTH),
                percent(known.part),
                wait_path(&known.functions),
            ));
        }
    }
}

/// Whom the waits waited for, if that is known: a table a wait.
pub(super) fn chains(out: &mut Page, causes: &[Cause]) {
    for cause in causes {
        let known = cause.waited_for.as_ref();
        let Some(waited_for) = known.filter(|it| !it.links.is_empty()) else {
            continue;
        };
        let mut table = Table::new([Column::number("of it"), Column::names("", 24)]);
        for (part, words) in chain::rows(waited_for) {
            let named = move |width| shorten(words.clone(), width);
            table.row([percent(part).into(), Cell::fitted(named)]);
        }
        let what = what(cause, NAME_WIDTH);
        let waits = chain::waits(waited_for);
        let title = format!("{what} ({waits}): for whom, and what those did meanwhile");
        out.table(&title, &table);
    }
}

/// Rows of the call paths of a function.
fn paths(table: &mut Table, cause: &Cause) {
    let shown = worth_rows(cause);
    for it in shown {
        table.row([
            called(it),
            share(it.figures.share).into(),
            ends(it.figures.share_low, it.figures.share_high).into(),
            time(it.figures.slow_ns).into(),
            time(it.figures.typical_ns).into(),
            count(it.figures.slow_samples).into(),
        ]);
    }
    let others = cause
        .other_paths
        .as_ref()
        .filter(|it| !shown.is_empty() && it.share.abs() >= LEAST_SHARE);
    if let Some(others) = others {
        let what = format!("  <- {}", plural(others.causes, "other"));
        rest(table, &what, others);
    }
}

/// The call paths worth a row: not the only path of a function without a caller in the item.
pub(super) fn worth_rows(cause: &Cause) -> &[CallPath] {
    match &cause.paths[..] {
        [only] if only.callers.is_empty() => &[],
        paths => paths,
    }
}

/// The callers of a function, indented below it.
pub(super) fn called(path: &CallPath) -> Cell {
    let path = path.clone();
    Cell::fitted(move |width| {
        let left = width.saturating_sub(2);
        let callers = callers(&path.callers, path.truncated, path.known, left);
        format!("  {callers}")
    })
}

fn gap_ends(gap: &Gap) -> String {
    match (gap.gap_low_ns, gap.gap_high_ns) {
        (Some(low), Some(high)) => format!(" ({} .. {})", time(low), time(high)),
        _ => String::new(),
    }
}

fn rest(table: &mut Table, what: &str, rest: &OtherCauses) {
    table.row([
        what.into(),
        share(rest.share).into(),
        ends(rest.share_low, rest.share_high).into(),
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

/// Counts of the threads in which slow items differ.
pub(super) fn counts(out: &mut Page, rows: &[CountRow], noun: &str) {
    let mut table = Table::new([
        Column::words(""),
        Column::number("slow"),
        Column::number("typical"),
        Column::number("more").rank(1),
        Column::number("95 %").rank(2),
        Column::number("goes with").rank(3),
    ]);
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
        table.row([
            row.count.replace('_', " ").into(),
            format!("{:.2}", row.slow).into(),
            format!("{:.2}", row.typical).into(),
            format!("{:.2}", row.excess).into(),
            interval.into(),
            format!("{part} of the variance").into(),
        ]);
    }
    let title =
        format!("what happened to them, mean of one {noun}; already part of the times above");
    out.table(&title, &table);
}

/// Interrupts, page faults and the like, if there were any.
pub(super) fn interference(out: &mut Page, rows: &[InterferenceRow], [whose, noun]: [&str; 2]) {
    let mut table = Table::new([
        Column::words(""),
        Column::number(whose),
        Column::number("typical").rank(1),
        Column::number("of gap"),
        Column::number("95 %").rank(2),
        Column::number("goes with").rank(3),
    ]);
    let met = rows
        .iter()
        .filter(|row| row.slow_ns > 0.0 || row.typical_ns > 0.0);
    for row in met {
        let part = row
            .variance_part
            .map_or_else(|| UNKNOWN.to_owned(), percent);
        table.row([
            row.what.into(),
            time(row.slow_ns).into(),
            time(row.typical_ns).into(),
            share(row.share).into(),
            ends(row.share_low, row.share_high).into(),
            format!("{part} of the variance").into(),
        ]);
    }
    let title = format!("interruptions, mean of one {noun}; already part of the times above");
    out.table(&title, &table);
}

/// Table of the parts of the variance.
pub(super) fn variance(out: &mut Page, variance: &Variance, noun: &str) {
    let mut table = Table::new([
        Column::names("", 24),
        Column::number("of variance"),
        Column::number("95 %").rank(2),
        Column::number("samples").rank(1),
        Column::names("", 10).rank(3).tone(Tone::Faint),
    ]);
    let (shown, hidden) = variance
        .parts
        .split_at(variance.parts.len().min(VARIANCE_TOP));
    for it in shown {
        let samples = if it.state.is_some() {
            plural(it.samples, "wait")
        } else {
            count(it.samples)
        };
        let part = it.clone();
        let what = move |width| {
            kind(
                part.kind,
                &part.function,
                (part.state.as_deref(), &[]),
                width,
            )
        };
        table.row([
            Cell::fitted(what),
            share(it.share).into(),
            ends(it.share_low, it.share_high).into(),
            samples.into(),
            module(&it.function).into(),
        ]);
    }
    let others = variance.others + hidden.iter().map(|it| it.share).sum::<f64>();
    for (what, part) in [("others", others), ("unexplained", variance.unexplained)] {
        if part.abs() >= LEAST_SHARE {
            table.row([what.into(), share(part).into()]);
        }
    }
    let title = format!(
        "what the time of all {noun}s varies with (standard deviation {})",
        time(variance.stddev_ns)
    );
    out.table(&title, &table);
}

/// The causes of a group's slow items, if there are enough of them.
fn group_cause(group: &Group, noun: &str) -> String {
    match (&group.gap, &group.slow) {
        (Some(gap), Some(slow)) if gap.gap_low_ns.is_none() => {
            let few = slow.items - slow.without_details;
            format!(
                "{UNKNOWN} (too few slow {noun}s ({}): record longer or lower --slow)",
                count(few)
            )
        }
        (Some(gap), _) => {
            let named = gap
                .causes
                .iter()
                .filter(|it| it.figures.share >= LEAST_NAMED);
            let named = named
                .take(2)
                .map(|it| format!("{} {}", reason(it), share(it.figures.share)));
            named.collect::<Vec<_>>().join(", ")
        }
        _ => cause(group, noun),
    }
}

/// Table of the groups asked for: which of them are slow among all items, and what makes items slow within each.
pub(super) fn compared(out: &mut Page, probe: &ProbeExplanation, noun: &str) {
    if probe.compared.is_empty() {
        return;
    }
    let mut table = Table::new([
        Column::names("", 16),
        Column::number(format!("{noun}s")),
        Column::number("mean"),
        Column::number("p50").rank(3),
        Column::number("p99").rank(2),
        Column::number("slow"),
        Column::number("of slow"),
        Column::number("of time").rank(1),
        Column::names("slow in it because", 24).rank(4),
    ]);
    for it in probe.compared.iter().take(GROUPS_TOP) {
        let explained = probe.groups.iter().find(|group| group.labels == it.labels);
        let explained = explained.filter(|group| super::has_answer(group));
        let cause = explained.map_or_else(|| UNKNOWN.to_owned(), |it| group_cause(it, noun));
        table.row([
            labels(&it.labels).into(),
            count(it.items).into(),
            time(it.duration.mean_ns).into(),
            time(it.duration.p50_ns as f64).into(),
            time(it.duration.p99_ns as f64).into(),
            count(it.slow_items).into(),
            percent(it.slow_part).into(),
            percent(it.time_part).into(),
            cause.into(),
        ]);
    }
    let more = match probe.compared.len().saturating_sub(GROUPS_TOP) {
        0 => String::new(),
        n => format!("; {} more", count(n as u64)),
    };
    let groups = plural(probe.compared.len() as u64, "group");
    let title = format!("{groups}, the one with most slow {noun}s beyond chance first{more}");
    out.table(&title, &table);
}

/// Groups that were found, one a line.
pub(super) fn groups(out: &mut Page, grouped: &Grouped, groups: &[Group], noun: &str) {
    let mut table = Table::new([
        Column::names("", 16),
        Column::number(""),
        Column::number("p50").rank(1),
        Column::number("p99").rank(2),
        Column::number("slow"),
        Column::names("because", 24),
    ]);
    for group in groups {
        let slow = group.slow.as_ref();
        table.row([
            labels(&group.labels).into(),
            plural(group.items, noun).into(),
            time(group.duration.p50_ns as f64).into(),
            time(group.duration.p99_ns as f64).into(),
            slow.map_or_else(|| UNKNOWN.to_owned(), |slow| count(slow.items))
                .into(),
            group_cause(group, noun).into(),
        ]);
    }
    let argument = safe(&grouped.argument, ARG_WIDTH);
    let title = format!(
        "groups of like {noun}s: {argument} explains {} of the spread of durations ({}); \
         --group-by {argument} shows each",
        percent(grouped.part),
        super::chance(grouped.chance)
    );
    out.table(&title, &table);
}
