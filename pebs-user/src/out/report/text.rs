//! A report as text, for people.
//!
//! The first lines give the slow items and where their time goes. Unknown values are `-`; an estimate has its samples
//! beside it.

pub(crate) mod lists;
mod stages;

use crate::compare::arguments::SharedArg;
use crate::compare::classes::RankBy;
use crate::compare::names::FunctionName;
use crate::compare::pool::OwnTimes;
use crate::compare::report::model::{ProbeReport, Report, Row, SlowClass};
use crate::compare::waits::{ELSEWHERE, IDLE, OTHER_ITEMS};
use crate::out::explain::text::on_cpu;
use crate::present::human::{
    UNKNOWN, columns, count, events, maybe_time, percent, plural, safe, time,
};
use crate::present::words::{self, Frame};
use crate::present::{Page, Tone, account, brief, counted, toned};
use crate::store::run::VisitRule;
use crate::store::schema::{ANONYMOUS_MODULE, kernel_entry, visit_flag};
use crate::terminal::PIPE_WIDTH;

/// Characters of a SPEC, a function and an argument that are shown.
pub(crate) const SPEC_WIDTH: usize = 100;
/// Width below which no name is shortened.
pub(crate) const LEAST_NAME: usize = 12;
pub(crate) const NAME_WIDTH: usize = 48;
pub(crate) const ARG_WIDTH: usize = 40;

/// Shown once for items without marks, in place of a flag on each.
pub(crate) const NO_MARKS: &str =
    "begin and end lie between two samples, as items have no marks (sampled_bounds)";

/// Largest number of causes in the line on where the time went.
pub(crate) const NAMED: usize = 3;

/// Least share of a cause there.
pub(crate) const LEAST_NAMED: f64 = 0.02;

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
        let because = because(probe, noun);
        if !because.is_empty() {
            out.paragraph(&format!(
                "{} {because}",
                toned(Tone::Strong, slow_because_of(probe.by))
            ));
        }
        let on_cpu = on_cpu(probe.slow_on_cpu.as_deref(), noun, &report.trace);
        if !on_cpu.is_empty() {
            out.paragraph(&on_cpu);
        }
        out.line("slow", &slow(probe, noun));
        out.line(heading(probe.by), &durations(probe));
        out.line("items", &batches(probe));
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
    lists::spread(out, probe, noun);
    lists::largest(out, probe, noun);
    lists::interference(out, probe, noun);
    counted::table(out, &probe.counted_events, noun);
    lists::slowest(out, probe, noun);
}

/// Noun for what the rows count: items, unless these have several visits.
pub(crate) fn noun(probe: &ProbeReport) -> &'static str {
    if probe.batches.is_none() && probe.items == Some(probe.visits) {
        "item"
    } else {
        "visit"
    }
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
    let during = report
        .run
        .duration_ns
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

/// What begins the sentence of the causes.
pub(crate) const fn slow_because_of(by: RankBy) -> &'static str {
    match by {
        RankBy::Duration => "slow because:",
        RankBy::CpuTime => "slow on the CPU because:",
    }
}

/// Name of what ranks the items.
pub(crate) const fn heading(by: RankBy) -> &'static str {
    match by {
        RankBy::Duration => "duration",
        RankBy::CpuTime => "CPU time",
    }
}

/// Said after a time that ranks items.
pub(crate) const fn on_the_cpu(by: RankBy) -> &'static str {
    match by {
        RankBy::Duration => "",
        RankBy::CpuTime => " on the CPU",
    }
}

/// A rule as it is typed.
pub(crate) fn typed(by: RankBy, rule: &str) -> String {
    match by {
        RankBy::Duration => rule.to_owned(),
        RankBy::CpuTime => format!("cpu:{rule}"),
    }
}

/// Words for the strays in the gap.
pub(crate) fn but_for(between: u64) -> String {
    match between {
        0 => String::new(),
        n => format!(" with {} in it", plural(n, "item")),
    }
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

/// The causes named, and what their shares are of.
pub(crate) fn slow_because(named: &str, longer_ns: f64, noun: &str) -> String {
    let named = if named.is_empty() { UNKNOWN } else { named };
    let longer = time(longer_ns);
    format!("{named} (of the {longer} that a slow {noun} takes longer)")
}

/// The rows that are most of the slow items' additional time.
fn because(probe: &ProbeReport, noun: &str) -> String {
    let parts = probe.spread.iter();
    let parts = parts.filter_map(|row| Some((part_of_spread(probe, row)?, row)));
    let large = parts.filter(|(part, _)| *part >= LEAST_NAMED).take(NAMED);
    let large: Vec<(f64, &Row)> = large.collect();
    let named = large.iter().map(|(part, row)| {
        let members = members(probe, row);
        format!("{} {}{members}", reason(row), percent(*part))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match (&probe.slow, &probe.typical, large.first()) {
        (_, _, Some((_, first))) if first.unit != "ns" => format!("{named} (of their events)"),
        (Some(slow), Some(typical), _) if slow.mean_ns > typical.mean_ns => {
            slow_because(&named, slow.mean_ns - typical.mean_ns, noun)
        }
        _ => String::new(),
    }
}

/// The largest functions of a row that is several, in brackets, with their parts of the additional time.
fn members(probe: &ProbeReport, row: &Row) -> String {
    let (Some(slow), Some(typical), "ns") = (&probe.slow, &probe.typical, row.unit) else {
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
    if row.unit != "ns" {
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

/// pebs-trace's own time.
pub(crate) fn own_times(own: &OwnTimes, noun: &str) -> String {
    let of = |name: &str, ns: Option<f64>| ns.map(|ns| format!("{name} {}", time(ns)));
    let classes = [of("slow", own.slow_ns), of("typical", own.typical_ns)];
    let classes: Vec<String> = classes.into_iter().flatten().collect();
    let classes = match classes.is_empty() {
        true => String::new(),
        false => format!(" ({})", classes.join(", ")),
    };
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!(
        "pebs-trace's own marks and samples: {} {article} {noun}{classes}, left out of all times here",
        time(own.all_ns)
    )
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

/// Median, 90th and 99th percentile, and the largest, in words.
pub(crate) fn quantiles(ns: [i64; 4]) -> String {
    let names = ["p50", "p90", "p99", "max"].into_iter().zip(ns);
    let shown: Vec<String> = names
        .map(|(name, ns)| format!("{name} {}", time(ns as f64)))
        .collect();
    shown.join("   ")
}

/// Note on times if it is unknown when threads ran. Intervals cover the chance of sampling, and samples are all on
/// the CPU.
pub(crate) const NO_SWITCHES: &str = "switches were not recorded: time off the CPU counts as \
     the functions' own, and intervals do not cover it";

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

/// Note on items that overlapped on a thread, with the option that separates them; empty if none did.
pub(crate) fn time_shared(shared: u64, all: u64, noun: &str) -> String {
    if shared == 0 {
        return String::new();
    }
    let which = if shared == all {
        format!("all {}", plural(all, noun))
    } else {
        format!("{} of {}", count(shared), plural(all, noun))
    };
    format!(
        "{which} shared a thread with other open items, and no mark says whose time it was; \
         add --resume 'BIN:FUNC(id=EXPR)', the function that continues an item"
    )
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
        None => format!("in {}", what(row, NAME_WIDTH)),
        Some(state) if state == ELSEWHERE || state == OTHER_ITEMS => {
            format!("in {}", what(row, NAME_WIDTH))
        }
        Some(_) => what(row, NAME_WIDTH + 24),
    }
}

/// The reason and place of a wait in this state, by the call stack if known, within this many columns.
pub(crate) fn wait(
    state: &str,
    function: &FunctionName,
    path: &[FunctionName],
    width: usize,
) -> String {
    let stack = if path.is_empty() {
        std::slice::from_ref(function)
    } else {
        path
    };
    let frames: Vec<Frame<'_>> = stack
        .iter()
        .map(|it| Frame {
            name: it.name.as_deref(),
            module: it.module.as_deref(),
            is_kernel: it.kernel,
        })
        .collect();
    match state {
        ELSEWHERE => return "other items of the thread, or idle".to_owned(),
        OTHER_ITEMS => return "other items of the thread".to_owned(),
        IDLE => return "idle between its turns".to_owned(),
        _ => {}
    }
    let reason = words::wait(state, &frames);
    let named = |at: usize| stack.get(at).filter(|it| **it != FunctionName::default());
    let Some(place) = reason.place.and_then(named) else {
        return reason.what.to_owned();
    };
    let left = width.saturating_sub(reason.what.len() + " in ".len());
    match reason.caller.and_then(named) {
        // Both where there is room for both.
        Some(caller) if left >= 2 * LEAST_NAME => {
            let place = name_within(place, left / 2);
            let left = left.saturating_sub(columns(&place) + " <- ".len());
            let caller = name_within(caller, left);
            format!("{} in {place} <- {caller}", reason.what)
        }
        _ => format!("{} in {}", reason.what, name_within(place, left)),
    }
}

pub(crate) fn name(function: &FunctionName) -> String {
    name_within(function, NAME_WIDTH)
}

/// A function by name and attributes, within this many columns.
pub(crate) fn name_within(function: &FunctionName, width: usize) -> String {
    let with = |name: &str, remark: &str| {
        let room = width.saturating_sub(remark.len()).max(LEAST_NAME);
        format!("{}{remark}", brief::function(name, room))
    };
    match function {
        FunctionName {
            name: Some(name),
            kernel: true,
            system_call: Some(entry),
            ..
        }
        | FunctionName {
            name: Some(name),
            kernel: true,
            kernel_entry: Some(entry),
            ..
        } => with(name, &format!(" [kernel, {entry}]")),
        FunctionName {
            name: Some(name),
            kernel: true,
            ..
        } => with(name, " [kernel]"),
        FunctionName {
            name: Some(name),
            inlined: true,
            ..
        } => with(name, " (inlined)"),
        FunctionName {
            name: Some(name), ..
        } => with(name, ""),
        FunctionName {
            module: Some(module),
            ..
        } if module == ANONYMOUS_MODULE => "code made at run time".to_owned(),
        FunctionName {
            module: Some(module),
            ..
        } => with(file_name(module), " (no symbol)"),
        _ => "unknown function".to_owned(),
    }
}

/// Functions of a module, or of the kernel.
pub(crate) fn of_module(module: &FunctionName) -> String {
    match name(module).strip_suffix(" (no symbol)") {
        Some(_) if module.kernel => of_kernel(module),
        Some(module) => format!("functions of {module}"),
        None if module.module.as_deref() == Some(ANONYMOUS_MODULE) => name(module),
        None => "code of no module".to_owned(),
    }
}

/// Functions of the kernel, by how it was entered.
fn of_kernel(functions: &FunctionName) -> String {
    match (&functions.system_call, functions.kernel_entry.as_deref()) {
        (Some(call), _) => format!("system call {call}"),
        (None, Some(kernel_entry::BREAKPOINT)) => "breakpoints of another tool".to_owned(),
        (None, Some(entry)) => safe(&format!("{entry}s"), NAME_WIDTH),
        (None, None) => "functions of the kernel".to_owned(),
    }
}

pub(crate) use crate::present::brief::file_name;

pub(crate) fn amount(unit: &str, value: Option<f64>) -> String {
    match value {
        Some(value) if unit != "ns" => events(value),
        value => maybe_time(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a function without a name is called.
    #[test]
    fn nameless() {
        let of = |module: Option<&str>| {
            name(&FunctionName {
                function_id: Some(7),
                module: module.map(str::to_owned),
                ..FunctionName::default()
            })
        };
        assert_eq!(of(Some("/usr/lib/libx.so.1")), "libx.so.1 (no symbol)");
        assert_eq!(of(Some(ANONYMOUS_MODULE)), "code made at run time");
        assert_eq!(of(None), "unknown function");
    }
}
