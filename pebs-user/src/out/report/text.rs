//! A report as text, for people.
//!
//! The first lines give the slow items and where their time goes. Unknown values are `-`; an estimate has its samples
//! beside it.

pub(crate) mod lists;
mod stages;

use crate::compare::arguments::SharedArg;
use crate::compare::classes::RankBy;
use crate::compare::report::model::{ProbeReport, Report, Row, SlowClass};
use crate::compare::waits::{ELSEWHERE, IDLE, OTHER_ITEMS};
use crate::present::causes::{Others, on_cpu};
use crate::present::chain::{self, Sentence};
use crate::present::functions::{
    ARG_WIDTH, NAME_WIDTH, SPEC_WIDTH, name, name_within, of_module, wait,
};
use crate::present::human::{UNKNOWN, count, percent, plural, safe, time};
use crate::present::items::{
    LEAST_NAMED, NAMED, NO_SWITCHES, but_for, heading, noun, on_the_cpu, own_times, quantiles,
    slow_because, slow_because_of, time_shared, typed, with_unexplained,
};
use crate::present::{Page, Tone, account, brief, counted, further, mix, toned};
use crate::store::run::VisitRule;
use crate::store::schema::visit_flag;
use crate::terminal::PIPE_WIDTH;
use crate::units::CountUnit;

/// Least part of the whole of time elsewhere.
const LEAST_SHARE: f64 = 0.005;

/// Least part of the visits for functions that call each other.
const NESTED: f64 = 0.9;

/// Visits of an id from which on it is one that is used again, as an address is, and not the id of one item.
const VISITS_OF_AN_ID: u64 = 100;

/// The report as text for a pipe, each line ended.
#[must_use]
pub(crate) fn render(report: &Report) -> String {
    page(report, PIPE_WIDTH).plain()
}

/// The report, laid out for a width.
#[must_use]
pub(crate) fn page(report: &Report, width: usize) -> Page {
    let mut out = Page::new(width);
    for probe in &report.probes {
        section(&mut out, report, probe);
        out.gap();
    }
    if let Some(stages) = &report.stages {
        stages::write(&mut out, stages);
        out.gap();
    }
    if report.probes.iter().any(|probe| probe.counted > 0) {
        for note in further::notes(&report.further_events) {
            out.line("note", &toned(Tone::Warning, &note));
        }
    }
    account::write(&mut out, (&report.run, &report.trace), &report.losses);
    out
}

fn section(out: &mut Page, report: &Report, probe: &ProbeReport) {
    let noun = noun(probe);
    out.paragraph(&title(report, probe));
    out.line(
        "shared",
        &time_shared(of_shared_time(probe), probe.visits, noun),
    );
    if probe.counted > 0 {
        let others = Others::of(
            (&probe.slow_for_kind, probe.kinds_part),
            (noun, &report.trace),
        );
        others.first.iter().for_each(|it| out.paragraph(it));
        let because = because(probe, noun);
        if !because.is_empty() {
            out.paragraph(&format!(
                "{} {because}",
                toned(Tone::Strong, slow_because_of(probe.by))
            ));
        }
        let on_cpu = on_cpu(probe.slow_on_cpu.as_deref(), noun, &report.trace);
        let dear = probe.mix.as_ref().and_then(mix::dear);
        let then = on_cpu.iter().chain(&others.then).chain(&dear);
        then.for_each(|it| out.paragraph(it));
        out.line("slow", &slow(probe, noun));
        out.line(heading(probe.by), &durations(probe));
        out.line("items", &batches(probe));
        if let Some(mix) = &probe.mix {
            out.line("costs", &mix::costs(mix));
        }
        out.line("time", &time_split(probe));
        if let Some(own) = &probe.own {
            out.line("own time", &own_times(own, noun));
        }
    }
    out.line(
        "nested",
        &toned(Tone::Warning, &nested(report, probe, noun)),
    );
    out.line("left out", &toned(Tone::Warning, &left_out(probe, noun)));
    out.line("flagged", &flagged(probe));
    lists::spread(out, &report.further_events, probe, noun);
    lists::largest(out, &report.further_events, probe, noun);
    lists::interference(out, probe, noun);
    counted::table(out, &probe.counted_events, noun);
    lists::slowest(out, (probe, &report.run), noun);
}

fn title(report: &Report, probe: &ProbeReport) -> String {
    let spec = probe.spec.as_deref().map_or_else(
        || format!("probe {} (not in trace.json)", probe.probe_id),
        |spec| brief::spec(spec, SPEC_WIDTH),
    );
    let visits = plural(probe.visits, "visit");
    let in_visits = |items| format!("{} in {visits}", plural(items, "item"));
    let items = probe.batches.map_or(probe.items, |it| Some(it.items));
    let amount = match items {
        Some(items) if probe.batches.is_some() => in_visits(items),
        Some(items) if items == probe.visits => plural(items, "item"),
        Some(ids) if ids > 0 && probe.visits >= ids * VISITS_OF_AN_ID => {
            format!("{visits} with {}", plural(ids, "id"))
        }
        Some(items) => in_visits(items),
        None => visits,
    };
    let within = report.within_ns.map(|[from, to]| to - from);
    let during = within
        .or(report.run.duration_ns)
        .map_or_else(String::new, |ns| format!(" in {}", time(ns as f64)));
    format!("{spec}: {amount}{during}")
}

fn slow(probe: &ProbeReport, noun: &str) -> String {
    if let Some(why) = &probe.never_ended {
        return format!("{UNKNOWN} ({why})");
    }
    let Some(slow) = &probe.slow else {
        return format!("{UNKNOWN} (no {noun} took longer than the others)");
    };
    let range = if slow.from_ns == slow.to_ns {
        time(slow.to_ns as f64)
    } else {
        format!(
            "{} .. {}",
            time(slow.from_ns as f64),
            time(slow.to_ns as f64)
        )
    };
    let range = range + on_the_cpu(probe.by);
    let amount = plural(slow.visits, noun);
    let text = match slow.rule.as_str() {
        "gap" => {
            let but = but_for(slow.between);
            format!(
                "{amount} of {range}, set apart by a gap{but}{}",
                others(slow)
            )
        }
        "p99" => format!("{amount} of {range}: the slowest 1 %"),
        rule => format!("{amount} of {range}, by --slow {}", typed(probe.by, rule)),
    };
    let lacking = match slow.without_details {
        0 => String::new(),
        n if n == slow.visits => "; no details of them were kept".to_owned(),
        n => format!("; details of {} of them were not kept", count(n)),
    };
    text + &lacking + &shared(&slow.shared)
}

fn others(slow: &SlowClass) -> String {
    slow.others_up_to_ns
        .map_or_else(String::new, |ns| format!(" (at most {})", time(ns as f64)))
}

fn shared(args: &[SharedArg]) -> String {
    if args.is_empty() {
        return String::new();
    }
    let args: Vec<String> = args
        .iter()
        .map(|arg| {
            let more = if arg.whole { "" } else { "…" };
            format!(
                "{}={}{more}",
                safe(&arg.name, ARG_WIDTH),
                safe(&arg.value, ARG_WIDTH)
            )
        })
        .collect();
    format!("; all have {}", args.join(" "))
}

/// The rows that are most of the slow items' additional time.
fn because(probe: &ProbeReport, noun: &str) -> String {
    let parts = probe.spread.iter();
    let parts = parts.filter_map(|row| Some((part_of_spread(probe, row)?, row)));
    let large = parts.filter(|(part, _)| *part >= LEAST_NAMED).take(NAMED);
    let large: Vec<(f64, &Row)> = large.collect();
    let named = large.iter().map(|(part, row)| {
        let (reason, of) = match row.waited_for.as_ref().and_then(chain::sentence) {
            Some(Sentence::For(whom, did)) => (format!("waited for {whom}"), did),
            Some(Sentence::Several(each)) => (reason(row), Some(each)),
            None => (reason(row), None),
        };
        let of = of.map_or_else(|| members(probe, row), |it| format!(" ({it})"));
        format!("{reason} {}{of}", percent(*part))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let longer = probe.slow.as_ref().zip(probe.typical.as_ref());
    let unexplained = probe
        .spread_unexplained_ns
        .zip(longer)
        .map_or(0.0, |(ns, (slow, typical))| {
            ns / (slow.mean_ns - typical.mean_ns)
        });
    let largest = large.first().map_or(0.0, |it| it.0);
    let named = with_unexplained(named, largest, unexplained);
    match (&probe.slow, &probe.typical, large.first()) {
        (_, _, Some((_, first))) if !first.unit.is_time() => format!("{named} (of their events)"),
        (Some(slow), Some(typical), _) if slow.mean_ns > typical.mean_ns => {
            slow_because(&named, slow.mean_ns - typical.mean_ns, noun)
        }
        _ => String::new(),
    }
}

/// The largest functions of a row that is several, in brackets, with their parts of the additional time.
fn members(probe: &ProbeReport, row: &Row) -> String {
    let (Some(slow), Some(typical), CountUnit::Ns) = (&probe.slow, &probe.typical, row.unit) else {
        return String::new();
    };
    let longer = slow.mean_ns - typical.mean_ns;
    let large = row.functions.iter().map(|it| (it, it.difference / longer));
    let large = large.filter(|(_, part)| *part >= LEAST_NAMED).take(NAMED);
    let large: Vec<String> = large
        .map(|(it, part)| format!("{} {}", name(&it.function), percent(part)))
        .collect();
    match large.is_empty() {
        true => String::new(),
        false => format!(" ({})", large.join(", ")),
    }
}

/// The part of the slow visits' additional time that a row carries, 0..1.
fn part_of_spread(probe: &ProbeReport, row: &Row) -> Option<f64> {
    if !row.unit.is_time() {
        return row.slow.share;
    }
    let (slow, typical) = (probe.slow.as_ref()?, probe.typical.as_ref()?);
    Some(row.difference? / (slow.mean_ns - typical.mean_ns))
}

fn durations(probe: &ProbeReport) -> String {
    probe.duration.map_or_else(String::new, |it| {
        quantiles([it.p50_ns, it.p90_ns, it.p99_ns, it.max_ns])
    })
}

/// The items of visits that serve several.
fn batches(probe: &ProbeReport) -> String {
    let Some(it) = &probe.batches else {
        return String::new();
    };
    let each = it.items as f64 / (probe.visits - it.unsized_visits).max(1) as f64;
    let mut text = format!("{each:.1} a visit, {} at most", count(it.largest.into()));
    if let Some(share) = it.share {
        let share = quantiles([share.p50_ns, share.p90_ns, share.p99_ns, share.max_ns]);
        text += &format!("; an item's share {share}");
    }
    if it.unknown > 0 {
        text += &format!("; {} without a known id", count(it.unknown));
    }
    if it.unsized_visits > 0 {
        let visits = plural(it.unsized_visits, "visit");
        text += &format!("; {visits} of an unknown number");
    }
    text
}

/// Number of visits for which some time may be another's.
fn of_shared_time(probe: &ProbeReport) -> u64 {
    let mut flags = probe.flags.iter();
    let found = flags.find(|it| it.flag == visit_flag::name(visit_flag::TIME_SHARED));
    found.map_or(0, |it| it.visits)
}

/// Note on functions of one pattern that call each other, so that nearly all visits hold one or are in one.
fn nested(report: &Report, probe: &ProbeReport, noun: &str) -> String {
    let mut flags = probe.flags.iter();
    let overlapped = flags.find(|it| it.flag == visit_flag::name(visit_flag::OVERLAPPED));
    let [info] = &*report.run.probes else {
        return String::new();
    };
    let begins = info.sites.iter().filter(|it| it.role == "begin");
    let names = begins.map(|it| {
        it.place
            .rsplit_once("+0x")
            .map_or(&*it.place, |(name, _)| name)
    });
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    let all = probe.visits as f64;
    match overlapped {
        Some(it)
            if info.rule == VisitRule::Call
                && names.len() > 1
                && it.visits as f64 >= NESTED * all =>
        {
            names.truncate(NAMED);
            let names: Vec<String> = names
                .iter()
                .map(|it| brief::function(it, NAME_WIDTH))
                .collect();
            format!(
                "nearly every {noun} holds another or is in one, as the probed functions call each other: probe one of \
                 {}",
                names.join(", ")
            )
        }
        _ => String::new(),
    }
}

fn time_split(probe: &ProbeReport) -> String {
    let Some(split) = &probe.time else {
        if probe.by == RankBy::CpuTime {
            return String::new();
        }
        // The line on shared time has given the reason.
        if of_shared_time(probe) > 0 {
            return String::new();
        }
        return format!("off the CPU: - ({NO_SWITCHES})");
    };
    if split.duration_ns <= 0.0 {
        return String::new();
    }
    let share = |ns: f64| percent(ns / split.duration_ns);
    let mut parts = vec![format!("on the CPU {}", share(split.oncpu_ns))];
    let waits = split.waits.iter();
    parts.extend(waits.map(|state| format!("{} {}", state_words(&state.state), share(state.ns))));
    // Less is the rounding of clocks.
    if split.elsewhere_ns / split.duration_ns >= LEAST_SHARE {
        let idle_too = if split.waits.iter().any(|it| it.state == IDLE) {
            ""
        } else {
            ", or idle"
        };
        parts.push(format!(
            "in other visits of the thread{idle_too} {}",
            share(split.elsewhere_ns)
        ));
    }
    parts.join(", ")
}

/// A state of a thread off the CPU.
fn state_words(state: &str) -> String {
    match state {
        "runnable" => "waiting for a CPU".to_owned(),
        "uninterruptible" => "blocked in the kernel".to_owned(),
        IDLE => "idle between their turns".to_owned(),
        other => safe(other, ARG_WIDTH),
    }
}

fn left_out(probe: &ProbeReport, noun: &str) -> String {
    let mut parts = Vec::new();
    if probe.left_out_loss > 0 {
        let amount = plural(probe.left_out_loss, noun);
        parts.push(format!("{amount} overlapping a loss (--all counts them)"));
    }
    if probe.left_out_open > 0 {
        parts.push(format!(
            "{} without an end",
            plural(probe.left_out_open, noun)
        ));
    }
    parts.join(", ")
}

fn flagged(probe: &ProbeReport) -> String {
    let flags = probe.flags.iter();
    let parts: Vec<String> = flags
        .map(|it| format!("{} {}", it.flag, count(it.visits)))
        .collect();
    parts.join(", ")
}

/// A function, or what was waited for, within `width` columns.
fn what(row: &Row, width: usize) -> String {
    match &row.state {
        None if row.function.is_module() => of_module(&row.function),
        None => name_within(&row.function, width),
        Some(state) => wait(state, &row.function, &[], width),
    }
}

/// The same as a part of a sentence.
fn reason(row: &Row) -> String {
    match &row.state {
        None if row.function.is_module() => format!("in {}", what(row, NAME_WIDTH)),
        None => format!("in {}", name(&row.function)),
        Some(state) if state == ELSEWHERE || state == OTHER_ITEMS => {
            format!("in {}", what(row, NAME_WIDTH))
        }
        Some(_) => what(row, NAME_WIDTH + 24),
    }
}
