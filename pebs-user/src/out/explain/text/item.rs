//! One item as text.

use super::tables::{
    all_events, blocked, called, interference, named, of_events, with_events, worth_rows,
};
use super::{evidence, labels, wait_path};
use crate::compare::explain::item_model::{ItemReport, Moment, MomentType};
use crate::compare::explain::model::{Cause, Gap, TypicalRule};
use crate::compare::waits::PREEMPTED;
use crate::present::causes::{REASON_WIDTH, causes, share};
use crate::present::chain;
use crate::present::functions::{ARG_WIDTH, NAME_WIDTH, SPEC_WIDTH, name, wait};
use crate::present::human::{UNKNOWN, count, percent, plural, safe, shorten, time};
use crate::present::items::{NO_MARKS, argument, range};
use crate::present::table::{Cell, Column, Table};
use crate::present::{Page, Tone, brief, further, toned};
use crate::store::schema::{is_own_flag, visit_flag};
use crate::terminal::shown;

/// Largest number of causes named in the line on where the time went.
const NAMED: usize = 4;

/// The item as text for a pipe, each line ended.
#[cfg(test)]
#[must_use]
pub fn render(report: &ItemReport) -> String {
    page(report, crate::terminal::PIPE_WIDTH).plain()
}

/// The item, laid out for a width.
#[must_use]
pub(crate) fn page(report: &ItemReport, width: usize) -> Page {
    let mut out = Page::new(width);
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
    out.paragraph(&format!("{what}{args} of {}", specs.join(" and ")));
    let (verdict, reasons) = cause(report);
    if !reasons.is_empty() {
        out.paragraph(&format!("{} {reasons}", toned(Tone::Strong, verdict)));
    }
    out.line("took", &took(report));
    out.line("rank", &rank(report));
    out.line("where", &place(report));
    if let Some(gap) = &report.account.gap {
        account(&mut out, report, gap);
        interference(&mut out, &report.interference, ["this", "item"]);
    }
    moments(&mut out, report);
    out.gap();
    for note in further::notes(&report.further_events) {
        out.line("note", &note);
    }
    for note in &report.notes {
        out.line("note", &note.to_string());
    }
    if has_no_marks(report) {
        out.line("note", NO_MARKS);
    }
    out.line("trace", &shown(&report.trace));
    out
}

fn has_no_marks(report: &ItemReport) -> bool {
    report
        .flags
        .contains(&visit_flag::name(visit_flag::SAMPLED_BOUNDS))
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
        .filter(|flag| is_own_flag(flag))
        .map(|flag| format!(" [{flag}]"))
        .collect();
    format!(
        "{}{oncpu}{typical}{}",
        time(report.latency_ns as f64),
        flags.concat()
    )
}

/// The verdict, and its evidence.
fn cause(report: &ItemReport) -> (&'static str, String) {
    let account = &report.account;
    let remark = account.too_little.map(|it| it.to_string());
    let Some(gap) = &account.gap else {
        return ("not explained:", remark.unwrap_or_default());
    };
    let named = gap.causes.iter().filter(|it| it.figures.share >= 0.02);
    let named: Vec<&Cause> = named.take(NAMED).collect();
    let named = match causes(&named, None) {
        none if none.is_empty() => UNKNOWN.to_owned(),
        named => named,
    };
    let remark = remark.map_or_else(String::new, |why| format!("; {why}"));
    let gap = time(gap.gap_ns);
    let reasons = format!("{named} (of the {gap} beyond typical){remark}");
    ("slow because:", reasons)
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
        // Rounded down, so that only the longest item is called longer than all others.
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

fn account(out: &mut Page, report: &ItemReport, gap: &Gap) {
    let events = &report.further_events;
    let columns = [
        Column::names("", 24),
        Column::number("beyond").tone(Tone::Slow),
        Column::number("this"),
        Column::number("typical").rank(2),
        Column::number("samples").rank(1),
    ];
    let further = further::columns(events, "typical", [3, 4, 5]);
    let mut table = Table::new(columns.into_iter().chain(further));
    for it in &gap.causes {
        let cells = [
            named(it),
            share(it.figures.share).into(),
            time(it.figures.slow_ns).into(),
            time(it.figures.typical_ns).into(),
            evidence(it).into(),
        ];
        table.row(cells.into_iter().chain(of_events(events, &it.further)));
        for it in worth_rows(it) {
            table.row([
                called(it),
                share(it.figures.share).into(),
                time(it.figures.slow_ns).into(),
                time(it.figures.typical_ns).into(),
                count(it.figures.slow_samples).into(),
            ]);
        }
    }
    for it in &gap.with_events {
        let cells = with_events(it, 4).into_iter();
        table.row(cells.chain(of_events(events, &it.further)));
    }
    let few = match gap.unexplained.slow_samples {
        0 => "unexplained".to_owned(),
        n => format!("unexplained: too few samples ({n})"),
    };
    let others = plural(gap.others.causes, "other");
    for (what, rest) in [(others, &gap.others), (few, &gap.unexplained)] {
        if rest.share.abs() >= 0.005 {
            table.row([what.into(), share(rest.share).into()]);
        }
    }
    all_events(&mut table, (events, &report.account.further), 4);
    let samples = plural(report.samples.into(), "sample");
    let title = format!("what this item took more time for, from its {samples}");
    out.table(&title, &table);
    blocked(out, &gap.causes);
}

/// The time line.
fn moments(out: &mut Page, report: &ItemReport) {
    let threads = report.moments.iter().any(|it| it.tid != report.tid);
    let marks = if has_no_marks(report) { "" } else { "mark " };
    let mut table = Table::new([
        Column::number("at"),
        Column::number("for"),
        Column::number("samples").rank(1),
        Column::names("", 32),
        Column::words("").rank(2),
    ]);
    for moment in &report.moments {
        let samples: u32 = moment.functions.iter().map(|it| it.1).sum();
        let length = match moment.kind {
            MomentType::Ran if moment.ns == 0 => String::new(),
            MomentType::Ran | MomentType::Waited => time(moment.ns as f64),
            MomentType::Begin | MomentType::End => String::new(),
        };
        let thread = match threads {
            true => format!("thread {}", moment.tid),
            false => String::new(),
        };
        let what = happened(moment, marks);
        table.row([
            time(moment.at_ns as f64).into(),
            length.into(),
            match samples {
                0 => "".into(),
                n => count(n.into()).into(),
            },
            match blocked_at(moment) {
                Some(path) => Cell::detailed(move |_| what.clone(), ", ", path),
                None => what.into(),
            },
            thread.into(),
        ]);
        let chain = moment.waited_for.as_ref().map(chain::rows);
        for (part, words) in chain.unwrap_or_default() {
            let words = format!("  {words}");
            table.row([
                "".into(),
                time(part * moment.ns as f64).into(),
                "".into(),
                Cell::fitted(move |width| shorten(words.clone(), width)),
            ]);
        }
    }
    out.table("in order, from its begin", &table);
    let (waits, ns) = report.other_waits;
    if waits > 0 {
        let waits = plural(waits, "shorter wait");
        out.paragraph(&format!("  and {waits}, {} in all", time(ns as f64)));
    }
}

/// The call stack at which a wait began; `None` if it has none or was a preemption.
fn blocked_at(moment: &Moment) -> Option<String> {
    let waited = moment.kind == MomentType::Waited && moment.state.as_deref() != Some(PREEMPTED);
    (waited && !moment.path.is_empty()).then(|| format!("at {}", wait_path(&moment.path)))
}

fn happened(moment: &Moment, mark: &str) -> String {
    let spec = || {
        moment
            .spec
            .as_ref()
            .map_or_else(String::new, |it| safe(it.function(), ARG_WIDTH))
    };
    let first = match moment.functions.first() {
        _ if !moment.path.is_empty() => wait_path(&moment.path),
        Some((function, _)) => name(function),
        None => String::new(),
    };
    match moment.kind {
        MomentType::Begin => format!("begin {mark}of {}", spec()),
        MomentType::End => format!("end {mark}of {}", spec()),
        MomentType::Waited => {
            let state = moment.state.as_deref().unwrap_or(UNKNOWN);
            let by = moment.by.as_deref().map(|by| safe(by, ARG_WIDTH));
            let function = moment.functions.first().map(|it| it.0.clone());
            let function = function.unwrap_or_default();
            let what = wait(state, &function, &moment.path, NAME_WIDTH + REASON_WIDTH);
            match (state, by) {
                (PREEMPTED, None) => format!("{what}, in {first}"),
                (PREEMPTED, Some(by)) => format!("{what}, taken by {by}, in {first}"),
                (_, None) => what,
                (_, Some(by)) => format!("{what}, woken by {by}"),
            }
        }
        MomentType::Ran if moment.functions.len() == 1 => first,
        MomentType::Ran => {
            let parts = moment
                .functions
                .iter()
                .map(|(it, n)| format!("{} ({n})", name(it)));
            parts.collect::<Vec<_>>().join(", ")
        }
    }
}
