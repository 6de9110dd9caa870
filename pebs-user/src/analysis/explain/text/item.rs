//! One item as text.

use std::fmt::Write;

use super::tables::{blocked, interference, path, told};
use super::{evidence, labels, range, share, wait_path, what};
use crate::analysis::explain::model::{Gap, ItemReport, Moment, MomentKind, TypicalRule};
use crate::analysis::explain::stump::short;
use crate::analysis::report::brief;
use crate::analysis::report::human::{UNKNOWN, count, percent, plural, safe, time};
use crate::analysis::report::text::lists::{argument, lines, show};
use crate::analysis::report::text::{ARG_WIDTH, NO_MARKS, SPEC_WIDTH, line, name};
use crate::store::schema::visit_flag;

/// Causes named in the line that says what the time went to.
const NAMED: usize = 4;

/// The item as text, each line ended.
#[must_use]
pub fn render(report: &ItemReport) -> String {
    let mut out = String::new();
    let specs: Vec<String> = report
        .specs
        .iter()
        .map(|it| brief::spec(it, SPEC_WIDTH))
        .collect();
    let args: Vec<String> = report.args.iter().filter_map(argument).collect();
    let what = match report.batch {
        Some(items) => format!(
            "batch {} ({})",
            report.item_id,
            plural(items.into(), "item")
        ),
        None => format!("item {}", report.item_id),
    };
    let args: String = args.iter().map(|arg| format!(" {arg}")).collect();
    let _ = writeln!(out, "{what}{args} of {}", specs.join(" and "));
    line(&mut out, "took", &took(report));
    line(&mut out, "cause", &cause(report));
    line(&mut out, "rank", &rank(report));
    line(&mut out, "where", &place(report));
    if let Some(gap) = &report.account.gap {
        account(&mut out, report, gap);
        interference(&mut out, &report.interference, ["this", "item"]);
    }
    moments(&mut out, report);
    out.push('\n');
    for note in &report.notes {
        line(&mut out, "note", note);
    }
    if has_no_marks(report) {
        line(&mut out, "note", NO_MARKS);
    }
    line(&mut out, "trace", &safe(&report.trace, 200));
    out
}

fn has_no_marks(report: &ItemReport) -> bool {
    report.flags.contains(&visit_flag::SAMPLED_BOUNDS_NAME)
}

fn took(report: &ItemReport) -> String {
    let oncpu = report.oncpu_ns.map_or_else(String::new, |ns| {
        let part = ns as f64 / (report.latency_ns as f64).max(1.0);
        format!(", {} of it on the CPU", percent(part))
    });
    let typical = report.account.typical.map_or_else(String::new, |typical| {
        let which = match typical.rule {
            TypicalRule::MiddleHalf => {
                format!("the middle half, {}", range(typical.from_ns, typical.to_ns))
            }
            TypicalRule::NotKept => "mean of those whose details were not kept".to_owned(),
        };
        format!("; typical {} ({which})", time(typical.mean_ns))
    });
    let flags: Vec<String> = report
        .flags
        .iter()
        .filter(|flag| visit_flag::is_own(flag))
        .map(|flag| format!(" [{flag}]"))
        .collect();
    format!(
        "{}{oncpu}{typical}{}",
        time(report.latency_ns as f64),
        flags.concat()
    )
}

fn cause(report: &ItemReport) -> String {
    let account = &report.account;
    let remark = account.too_little.as_deref();
    let Some(gap) = &account.gap else {
        return remark.map_or_else(String::new, |why| format!("{UNKNOWN} ({why})"));
    };
    let named: Vec<String> = gap
        .causes
        .iter()
        .filter(|it| it.figures.share >= 0.02)
        .take(NAMED)
        .map(|it| format!("{} {}", what(it), share(it.figures.share)))
        .collect();
    let named = if named.is_empty() {
        UNKNOWN.to_owned()
    } else {
        named.join(", ")
    };
    let remark = remark.map_or_else(String::new, |why| format!("; {why}"));
    format!("{named} of the {} beyond typical{remark}", time(gap.gap_ns))
}

fn rank(report: &ItemReport) -> String {
    let account = &report.account;
    let place = match account.rank {
        1 => "the slowest".to_owned(),
        n => format!("number {} from the slowest", count(n)),
    };
    let group = if account.labels.is_empty() {
        String::new()
    } else {
        format!(" with {}", labels(&account.labels))
    };
    format!(
        "{place} of {}{group}: longer than {:.1} % of them (p50 {}, p99 {})",
        plural(account.items, "item"),
        // Cut, so that only what is longer than all is said to be.
        (account.percentile * 1000.0).floor() / 10.0,
        time(account.duration.p50_ns as f64),
        time(account.duration.p99_ns as f64)
    )
}

fn place(report: &ItemReport) -> String {
    let visits: Vec<String> = report
        .visit_ids
        .iter()
        .take(8)
        .map(u64::to_string)
        .collect();
    let more = if report.visit_ids.len() > 8 {
        ", …"
    } else {
        ""
    };
    let others = match report.others_with_id {
        0 => String::new(),
        n => format!(
            "; {} more with this id, --visit looks at one of them",
            count(n)
        ),
    };
    format!(
        "visit {}{more}, thread {} of process {}, begun at {}{others}",
        visits.join(", "),
        report.tid,
        report.pid,
        time(report.begin_ns as f64)
    )
}

fn account(out: &mut String, report: &ItemReport, gap: &Gap) {
    let mut table = lines(["", "beyond", "this", "typical", "samples"]);
    let mut rows = 0;
    for it in &gap.causes {
        table.add_row([
            what(it),
            share(it.figures.share),
            time(it.figures.slow_ns),
            time(it.figures.typical_ns),
            evidence(it),
        ]);
        let paths = told(it);
        for it in paths {
            table.add_row([
                path(it),
                share(it.figures.share),
                time(it.figures.slow_ns),
                time(it.figures.typical_ns),
                count(it.figures.slow_samples),
            ]);
        }
        rows += 1 + paths.len();
    }
    let few = match gap.unexplained.slow_samples {
        0 => "unexplained".to_owned(),
        n => format!("unexplained: too few samples ({n})"),
    };
    let others = plural(gap.others.causes, "other");
    for (what, rest) in [(others, &gap.others), (few, &gap.unexplained)] {
        if rest.share.abs() >= 0.005 {
            table.add_row([
                what,
                share(rest.share),
                String::new(),
                String::new(),
                String::new(),
            ]);
            rows += 1;
        }
    }
    let samples = plural(report.samples.into(), "sample");
    let title = format!("what this item took more time for, from its {samples}");
    show(out, &title, &table, &[1, 2, 3, 4], rows);
    blocked(out, &gap.causes);
}

/// The time line.
fn moments(out: &mut String, report: &ItemReport) {
    let threads = report.moments.iter().any(|it| it.tid != report.tid);
    let marks = if has_no_marks(report) { "" } else { "mark " };
    let mut table = lines(["at", "for", "samples", "", ""]);
    for moment in &report.moments {
        let samples: u32 = moment.functions.iter().map(|it| it.1).sum();
        let length = match moment.kind {
            MomentKind::Ran if moment.ns == 0 => String::new(),
            MomentKind::Ran | MomentKind::Waited => time(moment.ns as f64),
            MomentKind::Begin | MomentKind::End => String::new(),
        };
        table.add_row([
            time(moment.at_ns as f64),
            length,
            if samples > 0 {
                count(samples.into())
            } else {
                String::new()
            },
            // It may be long.
            happened(moment, marks),
            if threads {
                format!("thread {}", moment.tid)
            } else {
                String::new()
            },
        ]);
    }
    show(
        out,
        "in order, from its begin",
        &table,
        &[0, 1, 2],
        report.moments.len(),
    );
    let (waits, ns) = report.other_waits;
    if waits > 0 {
        let waits = plural(waits, "shorter wait");
        let _ = writeln!(out, "  and {waits}, {} in all", time(ns as f64));
    }
}

fn happened(moment: &Moment, mark: &str) -> String {
    let spec = || {
        moment
            .spec
            .as_deref()
            .map_or_else(String::new, |it| safe(&short(it), ARG_WIDTH))
    };
    let first = match moment.functions.first() {
        _ if !moment.path.is_empty() => wait_path(&moment.path),
        Some((function, _)) => name(function),
        None => String::new(),
    };
    match moment.kind {
        MomentKind::Begin => format!("begin {mark}of {}", spec()),
        MomentKind::End => format!("end {mark}of {}", spec()),
        MomentKind::Waited => {
            let state = moment.state.as_deref().unwrap_or(UNKNOWN);
            let by = moment.by.as_deref().map(|by| safe(by, ARG_WIDTH));
            match (state, by) {
                ("runnable", None) => format!("preempted in {first}"),
                ("runnable", Some(by)) => format!("preempted in {first} by {by}"),
                (state, None) => format!("{} in {first}", safe(state, ARG_WIDTH)),
                (state, Some(by)) => {
                    format!("{} in {first}, woken by {by}", safe(state, ARG_WIDTH))
                }
            }
        }
        MomentKind::Ran if moment.functions.len() == 1 => first,
        MomentKind::Ran => {
            let parts = moment
                .functions
                .iter()
                .map(|(it, n)| format!("{} ({n})", name(it)));
            parts.collect::<Vec<_>>().join(", ")
        }
    }
}
