//! The lists of a text report: functions and slowest items.

use super::{part_of_spread, what};
use crate::compare::counts::TypicalCounts;
use crate::compare::further::FurtherEvent;
use crate::compare::interrupts_and_faults::InterferenceRow;
use crate::compare::names::file_name;
use crate::compare::pool::{MIN_SAMPLES, MIN_VISIT_SAMPLES};
use crate::compare::report::model::{
    Cell as Figures, EventCells, ProbeReport, Row, SlowVisit, TypicalRule,
};
use crate::compare::waits::{ELSEWHERE, OTHER_ITEMS, PREEMPTED};
use crate::present::functions::{NAME_WIDTH, name_within, wait};
use crate::present::human::{UNKNOWN, columns, count, percent, plural, safe, time};
use crate::present::items::{amount, argument, on_the_cpu};
use crate::present::table::{Cell, Column, Table};
use crate::present::{Page, Tone, further, moment};
use crate::store::run::RunInfo;
use crate::store::schema::is_own_flag;

/// Functions and waits named for one visit.
const VISIT_PARTS: usize = 3;

/// Rows with more time in slow items than in typical ones.
pub(super) fn spread(out: &mut Page, events: &[FurtherEvent], probe: &ProbeReport, noun: &str) {
    let columns = [
        Column::names("", 24),
        Column::number("slow").tone(Tone::Slow),
        Column::number("95 %").rank(7),
        Column::number("typical").rank(1),
        Column::number("part"),
        Column::number("samples").rank(4),
    ];
    let further = further::columns(events, "typical", [2, 3, 5]);
    let module_column = Column::names("", 10).rank(6).tone(Tone::Faint);
    let columns = columns.into_iter().chain(further);
    let mut table = Table::new(columns.chain([module_column]));
    for row in &probe.spread {
        let part = part_of_spread(probe, row).map_or_else(|| UNKNOWN.to_owned(), percent);
        let cells = [
            named(row),
            per_visit(row, &row.slow).into(),
            interval(row, &row.slow).into(),
            amount(row.unit, row.typical.per_visit).into(),
            part.into(),
            samples(row, &row.slow).into(),
        ];
        let further = of_events(events, row, |event, it| {
            let two = [it.slow, it.typical].map(|it| further::amount(event, it.per_visit));
            further::cells(event, two, it.slow.samples)
        });
        table.row(cells.into_iter().chain(further).chain([module(row).into()]));
    }
    let typical = match probe.typical.map(|typical| typical.rule) {
        Some(TypicalRule::NotKept) => " (typical: those whose details were not kept)",
        _ => "",
    };
    let title = format!("what slow {noun}s take more time for, mean of one {noun}{typical}");
    out.table(&title, &table);
}

/// Rows with the largest share of all items.
pub(super) fn largest(out: &mut Page, events: &[FurtherEvent], probe: &ProbeReport, noun: &str) {
    let columns = [
        Column::names("", 24),
        Column::number("mean"),
        Column::number("95 %").rank(6),
        Column::number("share"),
        Column::number("samples").rank(3),
    ];
    let further = further::columns(events, "share", [1, 2, 4]);
    let module_column = Column::names("", 10).rank(5).tone(Tone::Faint);
    let columns = columns.into_iter().chain(further);
    let mut table = Table::new(columns.chain([module_column]));
    for row in &probe.largest {
        let share = row.all.share.map_or_else(|| UNKNOWN.to_owned(), percent);
        let cells = [
            named(row),
            per_visit(row, &row.all).into(),
            interval(row, &row.all).into(),
            share.into(),
            samples(row, &row.all).into(),
        ];
        let further = of_events(events, row, |event, it| {
            let share = it.all.share.map_or_else(|| UNKNOWN.to_owned(), percent);
            let each = further::amount(event, it.all.per_visit);
            further::cells(event, [each, share], it.all.samples)
        });
        table.row(cells.into_iter().chain(further).chain([module(row).into()]));
    }
    let title = format!("where the time of all {noun}s goes, mean of one {noun}");
    out.table(&title, &table);
}

/// The cells of a row's further events; empty ones for time off the CPU.
fn of_events(
    events: &[FurtherEvent],
    row: &Row,
    cells: impl Fn(&FurtherEvent, &EventCells) -> [Cell; further::COLUMNS],
) -> Vec<Cell> {
    match row.further[..] {
        [] => further::empty(events),
        ref all => events
            .iter()
            .zip(all)
            .flat_map(|(event, it)| cells(event, it))
            .collect(),
    }
}

fn named(row: &Row) -> Cell {
    let row = row.clone();
    Cell::fitted(move |width| what(&row, width))
}

/// Interrupts, page faults and the like, where they were recorded.
pub(super) fn interference(out: &mut Page, probe: &ProbeReport, noun: &str) {
    let mut table = Table::new([
        Column::words(""),
        Column::number("slow"),
        Column::number("typical").rank(1),
        Column::number("part"),
        Column::number("all").rank(2),
    ]);
    let longer = probe.slow.as_ref().zip(probe.typical.as_ref());
    let longer = longer.map(|(slow, typical)| slow.mean_ns - typical.mean_ns);
    for row in &probe.interference {
        let more = row.slow.zip(row.typical).filter(|_| row.unit.is_time());
        let part = more.zip(longer).filter(|(_, longer)| *longer > 0.0);
        let part = part.map(|((slow, typical), longer)| percent((slow - typical) / longer));
        table.row([
            row.what.into(),
            row.mean(row.slow).into(),
            row.mean(row.typical).into(),
            part.unwrap_or_default().into(),
            row.mean(row.all).into(),
        ]);
    }
    let title = format!("interruptions, mean of one {noun}; already part of the times above");
    out.table(&title, &table);
}

/// The slowest items.
pub(super) fn slowest(out: &mut Page, (probe, run): (&ProbeReport, &RunInfo), noun: &str) {
    let mut table = Table::new([
        Column::words(if run.wall_clock_is_known() {
            "began"
        } else {
            ""
        })
        .rank(2),
        Column::number("took").tone(Tone::Slow),
        Column::number("on CPU").rank(1),
        Column::number("item"),
        Column::names("", 16).rank(3),
        Column::number("samples").rank(2),
        Column::names("most of it", 24),
    ]);
    let typical = probe.typical.map_or_else(Default::default, |it| it.counts);
    let shared = shared_arguments(&probe.slowest);
    for visit in &probe.slowest {
        let oncpu = visit.took_on_cpu_ns().filter(|_| visit.took_ns() > 0);
        let oncpu = oncpu.map(|ns| percent(ns as f64 / visit.took_ns() as f64));
        let of_visit = visit.clone();
        table.row([
            moment::time_of_day(visit.row.begin_ns.0, run)
                .unwrap_or_default()
                .into(),
            time(visit.took_ns() as f64).into(),
            oncpu.unwrap_or_else(|| UNKNOWN.to_owned()).into(),
            visit.item_id.to_string().into(),
            marks(visit, &shared, &typical, &probe.interference).into(),
            count(u64::from(visit.samples)).into(),
            Cell::fitted(move |width| parts(&of_visit, width)),
        ]);
    }
    let all_with = match shared.is_empty() {
        true => String::new(),
        false => format!(", all with {}", shared.join(" ")),
    };
    let title = format!("the slowest {noun}s{}{all_with}", on_the_cpu(probe.by));
    out.table(&title, &table);
}

fn per_visit(row: &Row, cell: &Figures) -> String {
    if row.state.is_none() && cell.samples > 0 && cell.samples < MIN_SAMPLES {
        return format!("too few samples ({})", cell.samples);
    }
    amount(row.unit, cell.per_visit)
}

fn interval(row: &Row, cell: &Figures) -> String {
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
fn samples(row: &Row, cell: &Figures) -> String {
    match row.state.as_deref() {
        None => count(cell.samples),
        Some(ELSEWHERE | OTHER_ITEMS) => UNKNOWN.to_owned(),
        Some(_) => plural(cell.samples, "wait"),
    }
}

fn module(row: &Row) -> String {
    let module = row.function.module.as_deref();
    module.map_or_else(String::new, |module| safe(file_name(module), NAME_WIDTH))
}

/// The arguments that are the same in all of several visits.
fn shared_arguments(visits: &[SlowVisit]) -> Vec<String> {
    let [first, others @ ..] = visits else {
        return Vec::new();
    };
    let is_shared =
        |it: &&_| !others.is_empty() && others.iter().all(|other| other.args.contains(it));
    first
        .args
        .iter()
        .filter(is_shared)
        .filter_map(argument)
        .collect()
}

/// Arguments of a visit but the shared ones, its flags, and counts of its thread above the typical ones.
fn marks(
    visit: &SlowVisit,
    shared: &[String],
    typical: &TypicalCounts,
    between: &[InterferenceRow],
) -> String {
    let args = visit.args.iter().filter_map(argument);
    let args = args.filter(|it| !shared.contains(it));
    let names = visit.flag_names();
    let flags = names.iter().filter(|flag| is_own_flag(flag));
    let flags = flags.map(|flag| format!("[{flag}]"));
    let striking = visit.counts().striking(typical);
    let counts = striking.into_iter().map(|(n, noun)| plural(n, noun));
    let between = visit.interference().striking(visit.took_ns(), between);
    let counts: Vec<String> = counts.chain(between).collect();
    let counts = (!counts.is_empty()).then(|| counts.join(", "));
    args.chain(flags)
        .chain(counts)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The largest parts of a visit's time, on the CPU and off it: as many as fit.
fn parts(visit: &SlowVisit, width: usize) -> String {
    let known = |samples: u32| samples >= MIN_VISIT_SAMPLES;
    let functions = visit.functions.iter().filter(|it| known(it.samples));
    let functions = functions.map(|it| {
        let what = name_within(&it.function, width.min(NAME_WIDTH));
        match it.self_ns {
            Some(ns) => (
                ns,
                format!("{what} {} ({})", time(ns), count(it.samples.into())),
            ),
            None => (0.0, format!("{what} ({})", count(it.samples.into()))),
        }
    });
    let mut parts: Vec<(f64, String)> = functions.collect();
    let mut for_cpu = 0;
    for it in &visit.waits {
        if it.state == PREEMPTED {
            for_cpu += it.ns;
        } else {
            let what = wait(&it.state, &it.function, &[], width.min(NAME_WIDTH + 16));
            parts.push((it.ns as f64, format!("{what} {}", time(it.ns as f64))));
        }
    }
    if for_cpu > 0 {
        let text = format!("waited for a CPU {}", time(for_cpu as f64));
        parts.push((for_cpu as f64, text));
    }
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
    let mut text = String::new();
    for (_, part) in parts {
        let between = if text.is_empty() { "" } else { ", " };
        if !text.is_empty() && columns(&text) + 2 + columns(&part) > width {
            break;
        }
        text.push_str(between);
        text.push_str(&part);
    }
    text
}
