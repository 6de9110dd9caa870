//! A comparison of a fleet's groups as text, for people.

use crate::compare::fleet::model::{
    Common, Contrast, Fleet, FleetCause, GroupRow, ProbeFleet, Slower, TooFew, Units,
};
use crate::compare::fleet::{HOST, LEAST_HOSTS};
use crate::present::causes::{by_name, share};
use crate::present::functions::{NAME_WIDTH, SPEC_WIDTH};
use crate::present::human::{count, percent, plural, safe, signed_time, time};
use crate::present::moment::wall_clock;
use crate::present::table::{Cell, Column, Table};
use crate::present::{Page, Tone, brief, toned};

/// Groups that are shown, and causes in a sentence.
const MOST_GROUPS: usize = 20;
const NAMED: usize = 3;

/// Characters of a value.
const VALUE_WIDTH: usize = 40;

/// A cause that has less of the difference is not worth a line.
const LEAST_SHARE: f64 = 0.01;

/// The comparison, laid out for a width.
#[must_use]
pub(crate) fn page(fleet: &Fleet, width: usize) -> Page {
    let mut out = Page::new(width);
    for probe in &fleet.probes {
        section(&mut out, probe, &fleet.by);
        out.gap();
    }
    out.line(
        "traces",
        &format!(
            "{} of {}, {} .. {}",
            count(fleet.traces),
            plural(fleet.hosts, "host"),
            wall_clock(fleet.since_ns),
            wall_clock(fleet.until_ns)
        ),
    );
    if fleet.twice > 0.0 {
        let share = percent(fleet.twice);
        out.line(
            "twice",
            &format!("{share} of their time overlaps: its items count in two traces"),
        );
    }
    for it in &fleet.unread {
        let why = format!("{}: {}", it.trace, it.error);
        out.line("left out", &safe(&why, 2 * SPEC_WIDTH));
    }
    out
}

fn section(out: &mut Page, probe: &ProbeFleet, by: &str) {
    out.paragraph(&format!(
        "{}: {}, {} each (median {}, p99 {})",
        brief::spec(&probe.spec, SPEC_WIDTH),
        plural(probe.items, "item"),
        time(probe.mean_ns),
        time(probe.p50_ns as f64),
        time(probe.p99_ns as f64),
    ));
    for slower in &probe.slower {
        out.paragraph(&format!(
            "{} {}",
            toned(Tone::Strong, "slower:"),
            sentence(slower, by)
        ));
    }
    if let Some(why) = probe.too_few {
        let text = match why {
            TooFew::Groups => format!("not compared: all traces have the same {by}"),
            TooFew::Hosts => {
                format!("not compared: it takes {LEAST_HOSTS} hosts to tell that one is slow")
            }
            TooFew::Traces => {
                "not compared: it takes three traces to know how much they differ".to_owned()
            }
        };
        out.paragraph(&text);
    } else if probe.slower.is_empty() {
        out.paragraph("none is slower than the others beyond chance");
    }
    groups(out, probe, by);
    for slower in &probe.slower {
        causes(out, slower, by);
    }
    if !probe.slower.is_empty() {
        let units = match probe.units {
            Units::Hosts => "what differs from host to host",
            Units::Traces => "what differs from trace to trace, as there are too few hosts",
        };
        out.line(
            "95 %",
            &format!("intervals hold for all groups at once; they cover {units}"),
        );
    }
}

/// Values, a few of them by name.
fn values(slower: &Slower, by: &str) -> String {
    let named = slower.values.iter().take(NAMED);
    let named: Vec<String> = named.map(|it| value(it.as_deref())).collect();
    let more = slower.values.len() - named.len();
    let more = if more > 0 {
        format!(" and {more} others")
    } else {
        String::new()
    };
    format!("{by} {}{more}", named.join(", "))
}

fn value(value: Option<&str>) -> String {
    value.map_or_else(|| "(none)".to_owned(), |it| safe(it, VALUE_WIDTH))
}

/// Returns the slower group, the difference, its cause, its begin, and the properties in common.
fn sentence(slower: &Slower, by: &str) -> String {
    let is_worth = |it: &&FleetCause| it.time.is_more() && it.share >= LEAST_SHARE;
    let certain = slower.causes.iter().filter(is_worth).take(NAMED);
    let certain: Vec<String> = certain
        .map(|it| format!("{} {}", what(it, NAME_WIDTH), share(it.share)))
        .collect();
    let hosts = if by == HOST {
        String::new()
    } else {
        format!("{}, ", plural(slower.hosts, "host"))
    };
    let (longer, of) = match slower.mean.is_more() || !slower.on_cpu.is_more() {
        true => (&slower.mean, ""),
        false => (&slower.on_cpu, " on the CPU"),
    };
    let mut text = format!(
        "{} ({hosts}{}): {} an item{of}{}",
        values(slower, by),
        plural(slower.items, "item"),
        signed_time(longer.change),
        interval(longer),
    );
    if certain.is_empty() {
        text += ", no function or wait beyond chance";
    } else {
        text += &format!(", {}", certain.join(", "));
    }
    text += &format!(
        "; {} of its items are above that p99, {} of the others'",
        percent(slower.slow_share.here),
        percent(slower.slow_share.others)
    );
    if let Some(since) = slower.since_ns {
        text += &format!("; since about {}", wall_clock(since));
    }
    for it in slower.common.iter().take(NAMED) {
        text += &format!("; {}", common(it));
    }
    text
}

fn common(it: &Common) -> String {
    format!(
        "{} of {} have {}={}, {} of {} others",
        count(it.slow),
        count(it.of_slow),
        safe(&it.property, VALUE_WIDTH),
        safe(&it.value, VALUE_WIDTH),
        count(it.others),
        count(it.of_others)
    )
}

fn interval(contrast: &Contrast) -> String {
    match (contrast.low, contrast.high) {
        (Some(low), Some(high)) => format!(" ({} .. {})", signed_time(low), signed_time(high)),
        _ => String::new(),
    }
}

fn groups(out: &mut Page, probe: &ProbeFleet, by: &str) {
    let mut table = Table::new([
        Column::names(by, 12),
        Column::number("hosts").rank(3),
        Column::number("traces").rank(4),
        Column::number("items").rank(2),
        Column::number("mean"),
        Column::number("p50").rank(1),
        Column::number("p99"),
        Column::number("> p99"),
        Column::words("").tone(Tone::Slow),
    ]);
    for GroupRow {
        value: name,
        hosts,
        traces,
        items,
        mean_ns,
        p50_ns,
        p99_ns,
        slow_share,
        is_slower,
    } in probe.groups.iter().take(MOST_GROUPS)
    {
        let verdict = if *is_slower { "slower" } else { "" };
        table.row([
            value(name.as_deref()).into(),
            count(*hosts).into(),
            count(*traces).into(),
            count(*items).into(),
            time(*mean_ns).into(),
            time(*p50_ns as f64).into(),
            time(*p99_ns as f64).into(),
            percent(*slow_share).into(),
            verdict.into(),
        ]);
    }
    let more = probe.groups.len().saturating_sub(MOST_GROUPS);
    let title = if more > 0 {
        format!("by {by} (and {more} that take less)")
    } else {
        format!("by {by}")
    };
    out.table(&title, &table);
}

fn causes(out: &mut Page, slower: &Slower, by: &str) {
    let mut table = Table::new([
        Column::names("", 24),
        Column::number("here"),
        Column::number("others").rank(1),
        Column::number("change").tone(Tone::Slow),
        Column::number("95 %").rank(3),
        Column::number("share").rank(2),
        Column::number("samples").rank(4),
    ]);
    let is_worth = |it: &&FleetCause| it.share.abs() >= LEAST_SHARE;
    for cause in slower.causes.iter().filter(is_worth) {
        let row = cause.clone();
        let time_of = &cause.time;
        table.row([
            Cell::fitted(move |width| what(&row, width)),
            time(time_of.here).into(),
            time(time_of.others).into(),
            signed_time(time_of.change).into(),
            interval(time_of).trim().trim_matches(['(', ')']).into(),
            share(cause.share).into(),
            format!("{}, {}", count(cause.samples), count(cause.others_samples)).into(),
        ]);
    }
    out.table(&format!("time per item, {}", values(slower, by)), &table);
}

fn what(cause: &FleetCause, width: usize) -> String {
    let names = [&cause.name, &cause.module, &cause.state].map(Option::as_deref);
    by_name((cause.kind, cause.kernel), names, width)
}
