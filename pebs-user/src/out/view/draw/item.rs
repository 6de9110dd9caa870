//! One item beside the typical ones of its group.

use ratatui::text::Line;

use super::{bold, dim, list};
use crate::compare::counts::Counts;
use crate::compare::pool::{MIN_SAMPLES, MIN_VISIT_SAMPLES};
use crate::compare::report::model::{SlowVisit, TypicalClass, TypicalRule};
use crate::out::view::data::{Data, Group, Item, Part};
use crate::out::view::state::State;
use crate::present::brief;
use crate::present::counted::beside;
use crate::present::functions::name;
use crate::present::human::{UNKNOWN, count, events, maybe_time, percent, plural, safe, time};
use crate::present::items::{noun, on_the_cpu};
use crate::present::table::wrapped;
use crate::store::schema::is_own_flag;

/// Width of the numbers beside a function, including the spaces between them.
const NUMBERS: u16 = 56;

/// Columns before the text of a fact.
const FACTS: usize = 14;

/// Narrowest column of a function.
const NARROWEST: u16 = 16;

/// Everything about the item selected.
pub(super) fn lines(data: &Data, state: &State, width: u16) -> Vec<Line<'static>> {
    let Some(item) = state.item(data) else {
        return Vec::new();
    };
    let group = data.group(item);
    let noun = noun(&group.report);
    let mut lines = facts(item, group, noun, width);
    lines.push(Line::raw(""));
    let wide = usize::from(width.saturating_sub(NUMBERS).max(NARROWEST));
    let header = format!(
        " {:<wide$} {:>9} {:>10} {:>9} {:>9} {:>12}",
        "on the CPU, or [off it] in",
        format!("this {noun}"),
        "+-",
        "samples",
        "typical",
        "its samples"
    );
    lines.push(Line::styled(header, bold()));
    let parts = data.parts(item);
    lines.extend(parts.iter().map(|part| Line::raw(row(part, wide))));
    if parts.is_empty() {
        let why = if item.visit.is_condensed() {
            "details were not kept (--keep)"
        } else {
            "no sample and no wait"
        };
        lines.push(Line::raw(format!(" {why}")));
    }
    if let Some(typical) = group.report.typical {
        lines.extend(whose(&typical, noun).map(|text| Line::styled(text, dim())));
    }
    lines
}

fn facts(item: &Item, group: &Group, noun: &str, width: u16) -> Vec<Line<'static>> {
    let (visit, report) = (&item.visit, &group.report);
    let spec = report.spec.as_deref().unwrap_or(UNKNOWN);
    let title = format!(
        " {noun} {}, probe {} {}",
        visit.item_id,
        report.probe_id,
        brief::spec(spec, 200)
    );
    let oncpu = visit.took_on_cpu_ns().filter(|_| visit.took_ns() > 0);
    let share = oncpu.map_or_else(String::new, |ns| {
        format!(" ({})", percent(ns as f64 / visit.took_ns() as f64))
    });
    let ran = maybe_time(visit.oncpu_ns.map(|ns| ns as f64));
    let began = format!(
        "{} after the begin of the trace, pid {}, tid {}",
        list::seconds(visit.begin_ns.0),
        visit.pid.0,
        visit.tid.0
    );
    let typical = report.typical.map(|typical| typical.counts);
    let facts = [
        ("took", took(item, group, noun)),
        (
            "on CPU",
            format!("{ran}{share}, {}", plural(visit.samples.into(), "sample")),
        ),
        ("began", began),
        ("arguments", item.args.clone()),
        ("flags", flags(&visit.flag_names())),
        ("counted", counted(&visit.counts(), typical.as_ref())),
        ("between", visit.interference().beside(&report.interference)),
        (
            "events",
            beside(
                &visit.counted_events,
                &report.counted_events,
                &counted_above(visit),
            ),
        ),
    ];
    let facts = facts.into_iter().filter(|(_, text)| !text.is_empty());
    let mut lines = vec![Line::styled(title, bold())];
    for (what, text) in facts {
        let mut text = wrapped(&text, FACTS, usize::from(width).max(2 * FACTS));
        if let Some(first) = text.first_mut() {
            *first = format!("   {what:<10} {}", first.trim_start());
        }
        lines.extend(text.into_iter().map(Line::raw));
    }
    lines
}

/// Names of events that the line of switches, migrations and page faults has already.
fn counted_above(visit: &SlowVisit) -> Vec<&'static str> {
    let counts = visit.counts();
    let known = [
        (counts.switches, ["context-switches", "cs"]),
        (counts.migrations, ["cpu-migrations", "migrations"]),
        (counts.page_faults, ["page-faults", "faults"]),
    ];
    let known = known.into_iter().filter(|it| it.0.is_some());
    known.flat_map(|it| it.1).collect()
}

fn flags(flags: &[&str]) -> String {
    let own = flags.iter().copied().filter(|flag| is_own_flag(flag));
    own.collect::<Vec<_>>().join(", ")
}

/// The duration or the time on the CPU, and its place among those of the group.
fn took(item: &Item, group: &Group, noun: &str) -> String {
    let by = group.report.by;
    let took = time(item.ranked_ns as f64) + on_the_cpu(by);
    let Some(all) = group.report.duration else {
        return took;
    };
    let times = item.ranked_ns as f64 / all.p50_ns as f64;
    let times = if all.p50_ns > 0 {
        format!(", {times:.1} times the median")
    } else {
        ", the median".to_owned()
    };
    format!(
        "{took}{times} of {} ({}; p90 {}, p99 {})",
        plural(group.report.counted, noun),
        time(all.p50_ns as f64),
        time(all.p90_ns as f64),
        time(all.p99_ns as f64)
    )
}

/// Counts of its thread, beside the mean of typical items.
fn counted(counts: &Counts, typical: Option<&Counts<f64>>) -> String {
    let typical = typical.copied().unwrap_or_default();
    let counts = [
        ("switch", "es", counts.switches, typical.switches),
        ("migration", "s", counts.migrations, typical.migrations),
        ("page fault", "s", counts.page_faults, typical.page_faults),
    ];
    let texts = counts.into_iter().filter_map(|(noun, s, count_of, usual)| {
        let number = count_of?;
        let s = if number == 1 { "" } else { s };
        let usual = usual.map_or_else(String::new, |mean| match mean {
            0.0 => " (typical 0)".to_owned(),
            mean => format!(" (typical {mean:.2})"),
        });
        Some(format!("{} {noun}{s}{usual}", count(number.into())))
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn row(part: &Part<'_>, wide: usize) -> String {
    let what = match part.state {
        None => name(part.function),
        Some(state) => format!("[{}] {}", safe(state, 20), name(part.function)),
    };
    // A time is known from this many samples; a wait is observed, not sampled.
    let least = u64::from(MIN_VISIT_SAMPLES);
    let is_known = part.state.is_some() || part.samples >= least;
    let own = part.ns.filter(|_| is_known);
    let error = part.stderr_ns.filter(|_| is_known);
    let typical = part.row.map(|row| row.typical);
    let usual = part.row.and_then(|row| {
        let is_known = row.state.is_some() || row.typical.samples >= MIN_SAMPLES;
        let value = row.typical.per_visit.filter(|_| is_known)?;
        Some(if row.unit.is_time() {
            time(value)
        } else {
            events(value)
        })
    });
    let seen = |number: u64| match part.state {
        None => count(number),
        Some(_) => plural(number, "wait"),
    };
    format!(
        " {:<wide$} {:>9} {:>10} {:>9} {:>9} {:>12}",
        safe(&what, wide),
        maybe_time(own),
        error.map_or_else(String::new, |ns| format!("+-{}", time(ns))),
        seen(part.samples),
        usual.unwrap_or_else(|| UNKNOWN.to_owned()),
        typical.map_or_else(|| UNKNOWN.to_owned(), |cell| seen(cell.samples)),
    )
}

/// Explanation of "typical", and of a dash.
fn whose(typical: &TypicalClass, noun: &str) -> [String; 2] {
    let rule = match typical.rule {
        TypicalRule::MiddleHalf => "of the middle half",
        TypicalRule::NotKept => "that were not kept",
    };
    let visits = plural(typical.visits, noun);
    [
        format!(" typical: the mean of {visits} {rule}"),
        format!(
            " {UNKNOWN}: unknown: fewer than {MIN_VISIT_SAMPLES} samples here ({MIN_SAMPLES} in typical {noun}s), \
             or below 0.5 % of all"
        ),
    ]
}
