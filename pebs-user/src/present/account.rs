//! The end of a text report: what was recorded and lost, and the overhead.

use crate::compare::losses::LossSum;
use crate::ledger::{Account, Ledger};
use crate::present::human::{UNKNOWN, count, events, percent, plural, safe, time};
use crate::present::{Page, Tone, toned};
use crate::store::run::{
    ClockChange, CostInfo, EventInfo, Extra, ExtraLimit, KeepInfo, Paused, ResetChange, RunInfo,
    UnwoundStacks,
};

/// Characters of a note that are shown.
const NOTE_WIDTH: usize = 200;

/// Reason of a loss that was asked for.
const PAUSED: &str = "paused";

/// Pauses and moments that are listed.
const PAUSES: usize = 5;
const MOMENTS: usize = 20;

/// Writes the account of the run whose trace this is.
pub(crate) fn write(out: &mut Page, (run, trace): (&RunInfo, &str), losses: &[LossSum]) {
    match &run.ledger {
        None => out.line(
            "ledger",
            &format!("{UNKNOWN} (the run did not end normally)"),
        ),
        Some(ledger) => write_ledger(out, ledger),
    }
    if let Some(keep) = &run.keep {
        out.line("kept", &kept(keep));
    }
    let redacted = run.redacted.iter();
    let redacted: Vec<String> = redacted
        .map(|(name, rule)| format!("{} ({})", safe(name, NOTE_WIDTH), safe(rule, NOTE_WIDTH)))
        .collect();
    out.line("redacted", &redacted.join(", "));
    let lost: Vec<LossSum> = losses
        .iter()
        .filter(|it| it.reason != PAUSED)
        .cloned()
        .collect();
    out.line("losses", &ranges(&lost));
    out.line("paused", &pauses(&run.pauses));
    for moment in run.moments.iter().take(MOMENTS) {
        let at = time(moment.time_ns.0 as f64);
        out.line(
            "noted",
            &format!("after {at}: {}", safe(&moment.text, NOTE_WIDTH)),
        );
    }
    if let Some(more) = run.moments.len().checked_sub(MOMENTS + 1) {
        out.line(
            "",
            &format!("and {} more in trace.json", count(more as u64 + 1)),
        );
    }
    out.line(
        "cost",
        &run.cost
            .as_ref()
            .map_or_else(String::new, |it| cost(it, run.unit_costs.as_deref())),
    );
    out.line("slow-down", &overhead(run));
    for event in &run.events {
        out.line("event", &describe(event, &run.resets));
    }
    if let Some(change) = run.clock_changes.last() {
        out.line("clocks", &clocks(change, run.clock_changes.len()));
    }
    out.line("transport", &transport(run));
    if let Some(unwound) = &run.unwound {
        out.line("stacks", &stacks(unwound));
    }
    if let Some(waits) = &run.waits {
        let why = waits.why.strip_prefix("waits: ").unwrap_or(&waits.why);
        out.line("waits", &safe(why, NOTE_WIDTH));
    }
    for note in &run.notes {
        out.line("note", &safe(note, NOTE_WIDTH));
    }
    out.line("trace", &safe(trace, NOTE_WIDTH));
}

/// `from 0 ns to 1.2 s, from 4 s to the end`.
fn pauses(pauses: &[Paused]) -> String {
    let span = |it: &Paused| {
        let end = it
            .end_ns
            .map_or_else(|| "the end".to_owned(), |it| time(it.0 as f64));
        format!("from {} to {end}", time(it.begin_ns.0 as f64))
    };
    let mut spans: Vec<String> = pauses.iter().take(PAUSES).map(span).collect();
    if let Some(more) = pauses.len().checked_sub(PAUSES + 1) {
        spans.push(format!("and {} more", plural(more as u64 + 1, "time")));
    }
    spans.join(", ")
}

fn write_ledger(out: &mut Page, ledger: &Ledger) {
    let totals = ledger.totals();
    let mut samples = account("samples", &totals.samples);
    for (n, what) in [
        (ledger.samples_unmatched, "in no item"),
        (ledger.samples_unresolved, "without a symbol"),
    ] {
        if n > 0 {
            samples += &format!("; {} {what}", count(n));
        }
    }
    out.line("ledger", &samples);
    out.line("", &account("marks", &totals.marks));
    out.line("", &account("switches and tasks", &totals.tasks));
    let mut others = Vec::new();
    if ledger.argument_faults > 0 {
        let n = plural(ledger.argument_faults, "argument");
        others.push(format!("{n} could not be read"));
    }
    if ledger.item_faults > 0 {
        let n = plural(ledger.item_faults, "sample");
        others.push(format!("the item id of {n} could not be read"));
    }
    if ledger.stacks_refused > 0 {
        let n = plural(ledger.stacks_refused, "sample");
        others.push(format!("{n} without their call stack: raise --max-memory"));
    }
    match ledger.throttled {
        Some(0) => {}
        Some(n) => others.push(format!("sampling was throttled {}", plural(n, "time"))),
        None => others.push("throttling: - (unknown)".to_owned()),
    }
    out.line("", &others.join("; "));
    for fault in ledger.check() {
        out.line("FAULT", &toned(Tone::Warning, &fault));
    }
}

/// `12,345 call stacks unwound: 12,300 to the thread's first function, 45 truncated (40 not copied as far, ..)`.
fn stacks(unwound: &UnwoundStacks) -> String {
    let all = plural(unwound.all(), "call stack");
    let whole = count(unwound.whole);
    let reasons = [
        (unwound.too_long, "longer than is kept"),
        (unwound.not_copied, "not copied as far"),
        (unwound.no_table, "in code without unwind table"),
        (unwound.no_code, "with a return address in no code"),
        (unwound.unusable, "by tables that can't be used"),
    ];
    let reasons = reasons.into_iter().filter(|(n, _)| *n > 0);
    let reasons: Vec<String> = reasons
        .map(|(n, what)| format!("{} {what}", count(n)))
        .collect();
    match unwound.truncated() {
        0 => format!("{all} unwound, all to the thread's first function"),
        truncated => format!(
            "{all} unwound: {whole} to the thread's first function, {} truncated ({})",
            count(truncated),
            reasons.join(", ")
        ),
    }
}

/// `40,080 marks = 40,078 written + 2 late`.
fn account(what: &str, account: &Account) -> String {
    let reasons = account.reasons.iter();
    let reasons: String = reasons
        .map(|(reason, n)| format!(" + {} {}", count(*n), reason.name()))
        .collect();
    format!(
        "{} {what} seen = {} written{reasons}",
        count(account.seen),
        count(account.written)
    )
}

/// `details of 312 visits (--keep slow --slow p99): 200 slow, 100 of the warm-up; of the others ...`.
fn kept(keep: &KeepInfo) -> String {
    let rule = keep.slow.as_ref();
    let rule = rule.map_or_else(String::new, |rule| format!(" --slow {}", safe(rule, 40)));
    let option = format!("--keep {}{rule}", safe(&keep.keep, 40));
    let Some(kept) = keep.visits else {
        return format!("{UNKNOWN} ({option}; the run did not end normally)");
    };
    let reasons = [
        (kept.slow, "slow"),
        (kept.slow_function, "with a slow function"),
        (kept.slow_for_kind, "slow for their kind"),
        (kept.warm_up, "before there was a baseline"),
        (kept.unknown, "overlapping a loss or without an end"),
    ];
    let reasons = reasons.iter().filter(|(n, _)| *n > 0);
    let reasons: Vec<String> = reasons
        .map(|(n, what)| format!("{} {what}", count(*n)))
        .collect();
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(": {}", reasons.join(", "))
    };
    let visits = plural(kept.sum(), "visit");
    format!("details of {visits} ({option}){reasons}; of all others sums and distributions")
}

fn ranges(losses: &[LossSum]) -> String {
    let sums = losses.iter().map(|sum| {
        let records = sum.records.map(count);
        let records = records.map_or_else(String::new, |records| format!("{records} records, "));
        let ranges = plural(sum.ranges, "range");
        format!(
            "{ranges} of {}, {records}{}",
            time(sum.ns as f64),
            safe(&sum.reason, 40)
        )
    });
    sums.collect::<Vec<_>>().join("; ")
}

fn cost(cost: &CostInfo, source: Option<&str>) -> String {
    let slowdown = match cost.slowdown_least {
        Some(least) => format!("at least {}", percent(least)),
        None => cost.slowdown.map_or_else(|| UNKNOWN.to_owned(), percent),
    };
    let target = cost.target_cpu;
    let target = target.map_or_else(|| UNKNOWN.to_owned(), |it| format!("+{}", percent(it)));
    let part = |name: &str, ns: Option<f64>| {
        ns.map_or_else(String::new, |ns| format!(" ({name} {})", time(ns)))
    };
    let faults = match cost.page_faults {
        0 => String::new(),
        n => format!(
            ", {}{}",
            plural(n, "page fault"),
            part("counting them about", cost.page_faults_ns)
        ),
    };
    let switches = match cost.switches_ns {
        // Clocks of CPUs cost nothing there.
        Some(ns) if ns <= 0.0 => String::new(),
        _ if cost.switches == 0 => String::new(),
        ns => format!(
            ", {} switches{}",
            count(cost.switches),
            part("recording them about", ns)
        ),
    };
    let extras = [
        (cost.interrupts, "interrupt", cost.interrupts_ns),
        (cost.encounters, "wake-up", cost.encounters_ns),
        (cost.ticks, "counted interval", cost.ticks_ns),
    ];
    let extras = extras.into_iter().filter(|(n, ..)| *n > 0);
    let extras = extras.map(|(n, noun, ns)| format!(", {}{}", plural(n, noun), part("about", ns)));
    let others = switches + &faults + &extras.collect::<String>();
    let source = source.map_or_else(String::new, |source| {
        format!(" (costs {})", safe(source, 40))
    });
    format!(
        "slow-down of items {slowdown}, CPU of the target {target}{source}: {}{}, {}{}{others}; pebs-trace used {} of CPU time",
        plural(cost.marks, "mark"),
        marks(cost),
        plural(cost.samples, "sample"),
        part("about", cost.samples_ns),
        time(cost.tool_cpu_ns as f64),
    )
}

/// Time that marks took, and how it is known.
fn marks(cost: &CostInfo) -> String {
    let Some(ns) = cost.marks_ns else {
        return String::new();
    };
    match cost.marks_measured_ns {
        Some(measured) => format!(
            " (about {} by {} that met them, {} as measured)",
            time(ns),
            plural(cost.marks_met, "sample"),
            time(measured)
        ),
        None => format!(" (about {})", time(ns)),
    }
}

/// Result of a bound on the slow-down.
fn overhead(run: &RunInfo) -> String {
    let Some(bound) = &run.max_overhead else {
        return String::new();
    };
    let event = run.events.iter().find(|event| event.id == bound.event);
    let last = match bound.last {
        Some(last) => percent(last),
        None if bound.marks_alone => format!("{UNKNOWN} (beyond measure)"),
        None => format!("{UNKNOWN} (too little ran)"),
    };
    let last = match bound.is_of_before(&run.resets) {
        true => format!("{last} before the last change (too little ran after it)"),
        false => format!("last measured {last}"),
    };
    let asked = match bound.by_default {
        true => format!("goal {}", percent(bound.most)),
        false => format!("limit {}", percent(bound.most)),
    };
    let mut text = format!(
        "{asked}; {last}; a sample every {} after {}",
        event.map_or_else(|| events(bound.reset as f64), |it| period(bound.reset, it)),
        plural(run.resets.len() as u64, "change"),
    );
    if bound.marks_alone {
        text += "; marks alone cost more";
        text += &bound
            .last_marks
            .map_or_else(String::new, |share| format!(" ({})", percent(share)));
    }
    if let Some(extra) = &bound.extra {
        text += "; ";
        text += &samples_may(extra);
    }
    text
}

/// Cost that samples may have beyond the bound, and why.
pub(crate) fn samples_may(extra: &Extra) -> String {
    let limit = match extra.limit {
        None => "",
        Some(ExtraLimit::Marks) => " (twice what marks cost)",
        Some(ExtraLimit::Cpu) => " (a hundredth of a CPU with the marks)",
        Some(ExtraLimit::Items) => " (the most without --reset)",
    };
    format!(
        "samples may add {}{limit}, with which the slowest {} of the items have {} in {}",
        percent(extra.share),
        percent(extra.slowest),
        extra.samples,
        time(extra.takes_ns)
    )
}

/// A reset value with its unit.
fn period(reset: u64, event: &EventInfo) -> String {
    if event.is_clock() {
        time(reset as f64)
    } else {
        events(reset as f64)
    }
}

fn describe(event: &EventInfo, changes: &[ResetChange]) -> String {
    let (least, most) = ResetChange::span(event, changes);
    let period = match least == most {
        true => period(event.reset, event),
        false => format!("{} .. {}", period(least, event), period(most, event)),
    };
    let precise = match (event.precise_requested, event.precise_granted) {
        (0, 0) => String::new(),
        (asked, granted) if asked == granted => format!(", precise level {granted}"),
        (asked, granted) => {
            let why = event.precise_reason.as_deref().unwrap_or(UNKNOWN);
            format!(
                ", precise level {granted} instead of {asked}: {}",
                safe(why, NOTE_WIDTH)
            )
        }
    };
    let often = match event.frequency {
        Some(hertz) => format!("{} times a second", count(hertz)),
        None => format!("every {period}"),
    };
    format!("{} {often}{precise}", safe(&event.name, NOTE_WIDTH))
}

/// The clocks that sampled at the end, and why.
fn clocks(last: &ClockChange, changes: usize) -> String {
    let since = time(last.time_ns.0 as f64);
    let more = match changes {
        1 => String::new(),
        _ => format!(", after {}", plural(changes as u64 - 1, "other change")),
    };
    format!(
        "{} since {since}{more}: threads switched {} times a second",
        safe(&last.of, NOTE_WIDTH),
        count(last.switches_per_second)
    )
}

fn transport(run: &RunInfo) -> String {
    if run.transport.is_empty() {
        return String::new();
    }
    let clock = run.clock_error.map_or_else(String::new, |error| {
        let (p50, p99) = (time(error.p50_ns), time(error.p99_ns));
        format!("; clocks agree within {p50} (p50), {p99} (p99)")
    });
    let reason = safe(&run.transport_reason, NOTE_WIDTH);
    format!("{} ({reason}){clock}", safe(&run.transport, NOTE_WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_changed() {
        let last = ClockChange {
            time_ns: crate::units::TraceNs(210_000_000),
            of: "several of each CPU".to_owned(),
            switches_per_second: 33_021,
        };
        let text = "several of each CPU since 210 ms: threads switched 33,021 times a second";
        assert_eq!(clocks(&last, 1), text);
        assert!(clocks(&last, 3).contains("since 210 ms, after 2 other changes: "));
    }

    /// The reset value of a clock is a time, also where the clock is blind to user space.
    #[test]
    fn periods() {
        let shown = |name: &str, r#type, config| {
            let event = serde_json::json!({
                "id": 0, "name": name, "reset": 16_000, "unit": "events", "type": r#type, "config": config,
                "precise_requested": 0, "precise_granted": 0, "precise_reason": null
            });
            describe(&serde_json::from_value(event).unwrap(), &[])
        };
        assert_eq!(shown("cpu-clock:k", 1, 0), "cpu-clock:k every 16.0 us");
        assert_eq!(shown("task-clock:k", 1, 1), "task-clock:k every 16.0 us");
        assert_eq!(shown("page-faults", 1, 2), "page-faults every 16.0 k");
        assert_eq!(shown("instructions", 0, 1), "instructions every 16.0 k");
    }
}
