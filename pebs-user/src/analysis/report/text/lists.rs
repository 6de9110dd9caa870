//! The lists of a text report: functions and slowest items.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::{ARG_WIDTH, NAME_WIDTH, amount, file_name, name, part_of_spread, what};
use crate::analysis::report::human::{UNKNOWN, count, percent, plural, safe, time};
use crate::analysis::report::model::{
    Cell, InterferenceRow, NamedArg, ProbeReport, Row, SlowVisit, TypicalCounts, TypicalRule,
};
use crate::analysis::report::{MIN_SAMPLES, MIN_VISIT_SAMPLES};
use crate::store::schema::{ArgValue, visit_flag};

/// Functions and waits named for one visit.
const VISIT_PARTS: usize = 3;

/// What slow items spend more time in than typical ones.
pub(super) fn spread(out: &mut String, probe: &ProbeReport, noun: &str) {
    let mut table = lines(["", "slow", "95 %", "typical", "part", "samples", ""]);
    for row in &probe.spread {
        let part = part_of_spread(probe, row).map_or_else(|| UNKNOWN.to_owned(), percent);
        table.add_row([
            what(row),
            per_visit(row, &row.slow),
            interval(row, &row.slow),
            amount(row.unit, row.typical.per_visit),
            part,
            samples(row, &row.slow),
            module(row),
        ]);
    }
    let typical = match probe.typical.map(|typical| typical.rule) {
        Some(TypicalRule::NotKept) => " (typical: those whose details were not kept)",
        _ => "",
    };
    let title = format!("what slow {noun}s take more time for, mean of one {noun}{typical}");
    show(out, &title, &table, &[1, 2, 3, 4, 5], probe.spread.len());
}

/// What takes the largest share of all items.
pub(super) fn largest(out: &mut String, probe: &ProbeReport, noun: &str) {
    let mut table = lines(["", "mean", "95 %", "share", "samples", ""]);
    for row in &probe.largest {
        let share = row.all.share.map_or_else(|| UNKNOWN.to_owned(), percent);
        table.add_row([
            what(row),
            per_visit(row, &row.all),
            interval(row, &row.all),
            share,
            samples(row, &row.all),
            module(row),
        ]);
    }
    let title = format!("where the time of all {noun}s goes, mean of one {noun}");
    show(out, &title, &table, &[1, 2, 3, 4], probe.largest.len());
}

/// What came between threads and their work, where it was recorded.
pub(super) fn interference(out: &mut String, probe: &ProbeReport, noun: &str) {
    let mut table = lines(["", "slow", "typical", "part", "all"]);
    let longer = probe.slow.as_ref().zip(probe.typical.as_ref());
    let longer = longer.map(|(slow, typical)| slow.mean_ns - typical.mean_ns);
    for row in &probe.interference {
        let more = row.slow.zip(row.typical).filter(|_| row.unit == "ns");
        let part = more.zip(longer).filter(|(_, longer)| *longer > 0.0);
        let part = part.map(|((slow, typical), longer)| percent((slow - typical) / longer));
        table.add_row([
            row.what.to_owned(),
            row.mean(row.slow),
            row.mean(row.typical),
            part.unwrap_or_default(),
            row.mean(row.all),
        ]);
    }
    let title = format!("what came between, mean of one {noun}; part of the times above");
    show(out, &title, &table, &[1, 2, 3, 4], probe.interference.len());
}

/// The slowest items.
pub(super) fn slowest(out: &mut String, probe: &ProbeReport, noun: &str) {
    let mut table = lines(["took", "on CPU", "item", "", "samples", "most of it"]);
    let typical = probe.typical.map_or_else(Default::default, |it| it.counts);
    for visit in &probe.slowest {
        let oncpu = visit.oncpu_ns.filter(|_| visit.duration_ns > 0);
        let oncpu = oncpu.map(|ns| percent(ns as f64 / visit.duration_ns as f64));
        table.add_row([
            time(visit.duration_ns as f64),
            oncpu.unwrap_or_else(|| UNKNOWN.to_owned()),
            visit.item_id.to_string(),
            marks(visit, &typical, &probe.interference),
            count(u64::from(visit.samples)),
            parts(visit),
        ]);
    }
    let title = format!("the slowest {noun}s");
    show(out, &title, &table, &[0, 1, 2, 4], probe.slowest.len());
}

pub(in crate::analysis) fn lines<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    table
}

/// Writes a table of `rows` rows under its title; nothing if it has none.
pub(in crate::analysis) fn show(
    out: &mut String,
    title: &str,
    table: &Table,
    numbers: &[usize],
    rows: usize,
) {
    if rows == 0 {
        return;
    }
    let mut table = table.clone();
    for column in numbers {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(out, "\n{title}");
    for line in table.lines() {
        let _ = writeln!(out, " {}", line.trim_end());
    }
}

fn per_visit(row: &Row, cell: &Cell) -> String {
    if row.state.is_none() && cell.samples > 0 && cell.samples < MIN_SAMPLES {
        return format!("too few samples ({})", cell.samples);
    }
    amount(row.unit, cell.per_visit)
}

fn interval(row: &Row, cell: &Cell) -> String {
    match (cell.low, cell.high) {
        (Some(low), Some(high)) => format!(
            "{} .. {}",
            amount(row.unit, Some(low)),
            amount(row.unit, Some(high))
        ),
        _ => String::new(),
    }
}

/// Samples of an estimate, or the number of waits observed.
fn samples(row: &Row, cell: &Cell) -> String {
    match row.state {
        None => count(cell.samples),
        Some(_) => plural(cell.samples, "wait"),
    }
}

fn module(row: &Row) -> String {
    let module = row.function.module.as_deref();
    module.map_or_else(String::new, |module| safe(file_name(module), NAME_WIDTH))
}

/// Arguments and flags of a visit, and what happened to its thread more often than is typical.
fn marks(visit: &SlowVisit, typical: &TypicalCounts, between: &[InterferenceRow]) -> String {
    let args = visit.args.iter().filter_map(argument);
    let flags = visit.flags.iter().filter(|flag| visit_flag::is_own(flag));
    let flags = flags.map(|flag| format!("[{flag}]"));
    let striking = visit.counts.striking(typical);
    let counts = striking.into_iter().map(|(n, noun)| plural(n, noun));
    let between = visit.interference.striking(visit.duration_ns, between);
    let counts: Vec<String> = counts.chain(between).collect();
    let counts = (!counts.is_empty()).then(|| counts.join(", "));
    args.chain(flags)
        .chain(counts)
        .collect::<Vec<_>>()
        .join(" ")
}

pub(in crate::analysis) fn argument(arg: &NamedArg) -> Option<String> {
    let value = match arg.value.as_ref()? {
        ArgValue::U64(number) => number.to_string(),
        ArgValue::I64(number) => number.to_string(),
        ArgValue::Str(text) => safe(text, ARG_WIDTH),
    };
    Some(format!("{}={value}", safe(&arg.name, ARG_WIDTH)))
}

/// What most of a visit's time went to, on the CPU and off it.
fn parts(visit: &SlowVisit) -> String {
    let known = |samples: u32| samples >= MIN_VISIT_SAMPLES;
    let functions = visit.functions.iter().filter(|it| known(it.samples));
    let functions = functions.map(|it| {
        let name = name(&it.function);
        match it.self_ns {
            Some(ns) => (
                ns,
                format!("{name} {} ({})", time(ns), count(it.samples.into())),
            ),
            None => (0.0, format!("{name} ({})", count(it.samples.into()))),
        }
    });
    let waits = visit.waits.iter().map(|it| {
        let state = safe(&it.state, ARG_WIDTH);
        let text = format!("{} {} {state}", name(&it.function), time(it.ns as f64));
        (it.ns as f64, text)
    });
    let mut parts: Vec<(f64, String)> = functions.chain(waits).collect();
    parts.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    parts.truncate(VISIT_PARTS);
    let samples: u64 = visit.functions.iter().map(|it| u64::from(it.samples)).sum();
    if parts.is_empty() && visit.is_condensed() {
        return "not kept".to_owned();
    }
    if parts.is_empty() {
        return match samples {
            0 => UNKNOWN.to_owned(),
            n => format!("too few samples ({n})"),
        };
    }
    let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    parts.join(", ")
}
