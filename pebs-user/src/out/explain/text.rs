//! Explanations as text, for people.
//!
//! The first three lines of a section give the slow items, the argument that separates them, and the
//! causes. Unknown values are `-`; an estimate has its samples and its interval beside it.

pub(crate) mod item;
mod kinds;
mod tables;
mod when;

use crate::compare::explain::Unit;
use crate::compare::explain::model::{
    Cause, Durations, Explanation, Group, LeftOut, ProbeExplanation, Slow, Split, Typical,
    TypicalRule,
};
use crate::compare::further::FurtherEvent;
use crate::compare::names::FunctionName;
use crate::present::causes::{Others, cause, on_cpu};
use crate::present::functions::{SPEC_WIDTH, name};
use crate::present::human::{UNKNOWN, count, plural, safe, time};
use crate::present::items::{
    LEAST_NAMED, but_for, heading, labels, on_the_cpu, own_times, quantiles, range,
    slow_because_of, test, time_shared, typed,
};
use crate::present::{Page, Tone, brief, counted, further, mix, toned};
use crate::store::run::RecordedSpec;
use crate::terminal::shown;

/// Characters of a remark.
const NOTE_WIDTH: usize = 200;

/// Functions of a call stack.
const MOST_FRAMES: usize = 10;

/// Chances below this one are shown as such.
const LEAST_CHANCE: f64 = 1e-12;

/// The explanation as text for a pipe, each line ended.
#[cfg(test)]
#[must_use]
pub fn render(explanation: &Explanation) -> String {
    page(explanation, crate::terminal::PIPE_WIDTH).plain()
}

/// The explanation, laid out for a width.
#[must_use]
pub(crate) fn page(explanation: &Explanation, width: usize) -> Page {
    let mut out = Page::new(width);
    for probe in &explanation.probes {
        section(&mut out, explanation, probe);
        out.gap();
    }
    if let Some(event) = &explanation.event {
        let how = match (&explanation.no_function_times, explanation.event_is_clock) {
            (Some(reason), _) => reason.to_string(),
            (None, true) => {
                let reset = event.reset;
                let every = match explanation.event_resets.unwrap_or((reset, reset)) {
                    (least, most) if least == most => time(least as f64),
                    (least, most) => format!("{} .. {}", time(least as f64), time(most as f64)),
                };
                format!("{} every {every}", event.name)
            }
            (None, false) if event.has_times => {
                format!(
                    "{}: a function's time is that between its samples, at its own rate",
                    event.name
                )
            }
            (None, false) => {
                format!(
                    "{}: time on the CPU is divided in proportion to it",
                    event.name
                )
            }
        };
        out.line("event", &safe(&how, NOTE_WIDTH));
    }
    out.line(
        "95 %",
        &format!(
            "middle of {} replicates of a bootstrap over items; typical: see 'compared'",
            count(explanation.replicates.into())
        ),
    );
    for note in further::notes(&explanation.further_events) {
        out.line("note", &toned(Tone::Warning, &note));
    }
    for note in &explanation.notes {
        out.line(
            "note",
            &toned(Tone::Warning, &safe(&note.to_string(), NOTE_WIDTH)),
        );
    }
    out.line("trace", &shown(&explanation.trace));
    out
}

/// Noun for what is counted: "visit" only if several visits have the same id and are not merged.
fn noun(unit: Unit, probe: &ProbeExplanation) -> &'static str {
    if unit == Unit::Visit && probe.specs.iter().any(RecordedSpec::is_batched) {
        "visit"
    } else if unit == Unit::Item || probe.item_ids == probe.items {
        "item"
    } else {
        "visit"
    }
}

fn section(out: &mut Page, explanation: &Explanation, probe: &ProbeExplanation) {
    let (noun, trace) = (noun(explanation.unit, probe), &explanation.trace);
    let events = &explanation.further_events;
    let specs: Vec<String> = probe
        .specs
        .iter()
        .map(|it| brief::spec(it, SPEC_WIDTH))
        .collect();
    let spec = if specs.is_empty() {
        format!("probe {:?} (not in trace.json)", probe.probe_ids)
    } else {
        specs.join(" and ")
    };
    // Of one probe: an item has several visits.
    let visits = match probe.specs.len() {
        1 if noun == "item" && probe.visits > probe.items => {
            format!(" in {}", plural(probe.visits, "visit"))
        }
        _ => String::new(),
    };
    out.paragraph(&format!("{spec}: {}{visits}", plural(probe.items, noun)));
    out.line("shared", &time_shared(probe.time_shared, probe.items, noun));
    for mix in &probe.mixes {
        out.line("costs", &mix::costs(mix));
    }
    if let Some(whole) = &probe.whole {
        let part = probe.grouped.as_ref().map(|it| it.part);
        let mut others = Others::of((&probe.slow_for_kind, part), (noun, trace));
        let on_cpu = on_cpu(probe.slow_on_cpu.as_deref(), noun, trace);
        others.then.splice(0..0, on_cpu);
        others.then.extend(probe.mixes.iter().filter_map(mix::dear));
        group(out, (whole, events), noun, others);
    }
    when::lines(out, probe, noun);
    tables::compared(out, probe, noun);
    let asked = probe.whole.is_none();
    let answered = probe.groups.iter().filter(|it| asked && has_answer(it));
    for found in answered {
        out.gap();
        out.paragraph(&format!(
            "{}: {}",
            labels(&found.labels),
            plural(found.items, noun)
        ));
        group(out, (found, events), noun, Others::default());
    }
    if let Some(grouped) = &probe.grouped {
        tables::groups(out, grouped, &probe.groups, noun);
    }
    out.line("left out", &left_out(probe.left_out, noun));
}

/// Whether something is known about why items of the group are slow.
fn has_answer(group: &Group) -> bool {
    let causes = group.gap.iter().flat_map(|it| &it.causes);
    causes.count() > 0 || !group.because.is_empty()
}

fn left_out(left_out: LeftOut, noun: &str) -> String {
    let LeftOut {
        loss,
        open,
        headless,
    } = left_out;
    let mut parts = Vec::new();
    if loss > 0 {
        parts.push(format!(
            "{} overlapping a loss (--all counts them)",
            plural(loss, noun)
        ));
    }
    if open > 0 {
        parts.push(format!("{} without an end", plural(open, noun)));
    }
    if headless > 0 {
        parts.push(format!(
            "{} whose first stage was not seen",
            plural(headless, noun)
        ));
    }
    parts.join(", ")
}

/// A group, with the further events. `others`: what else is slow in it.
fn group(out: &mut Page, (group, events): (&Group, &[FurtherEvent]), noun: &str, others: Others) {
    others.first.iter().for_each(|it| out.paragraph(it));
    let reasons = cause(group, noun);
    if !reasons.is_empty() {
        let because = toned(Tone::Strong, slow_because_of(group.by));
        out.paragraph(&format!("{because} {reasons}"));
    }
    others.then.iter().for_each(|it| out.paragraph(it));
    out.line("slow", &slow(group, noun));
    out.line("because", &because(&group.because, noun));
    if let (Some(slow), Some(typical)) = (&group.slow, &group.typical) {
        out.line("compared", &compared(slow, typical, noun));
    }
    out.line(heading(group.by), &durations(&group.duration));
    if let Some(own) = &group.own {
        out.line("own time", &own_times(own, noun));
    }
    kinds::lines(out, group, noun);
    if let Some(gap) = &group.gap {
        tables::causes(out, (group, events), gap, noun);
        tables::counts(out, &group.counts, noun);
        tables::interference(out, &group.interference, ["slow", noun]);
    }
    counted::table(out, &group.counted_events, noun);
    if let Some(variance) = &group.variance {
        tables::variance(out, variance, noun);
    }
}

fn durations(it: &Durations) -> String {
    quantiles([it.p50_ns, it.p90_ns, it.p99_ns, it.max_ns])
}

fn slow(group: &Group, noun: &str) -> String {
    let Some(slow) = &group.slow else {
        return format!("{UNKNOWN} (no {noun} took longer than the others)");
    };
    let amount = format!("{} of {}", count(slow.items), plural(group.items, noun));
    let took = range(slow.from_ns, slow.to_ns) + on_the_cpu(group.by);
    let others = slow.others_up_to_ns.map_or_else(String::new, |ns| {
        format!(" (the others at most {})", time(ns as f64))
    });
    let lacking = match slow.without_details {
        0 => String::new(),
        n if n == slow.items => "; no details of them are known".to_owned(),
        n => format!("; details of {} of them are not known", count(n)),
    };
    match slow.rule.as_str() {
        "gap" => {
            let but = but_for(slow.between);
            format!("{amount}: {took}, set apart by a gap{but}{others}{lacking}")
        }
        "p99" => format!("{amount}: {took}, the slowest 1 %{lacking}"),
        rule => {
            let rule = typed(group.by, rule);
            format!("{amount}: {took}, by --slow {rule}{lacking}")
        }
    }
}

/// The best test that separates slow items from others, with its evidence.
fn because(splits: &[Split], noun: &str) -> String {
    let Some(best) = splits.first() else {
        return String::new();
    };
    let whole = best.slow_with == best.slow_items;
    let with = if whole {
        format!("all {} slow {noun}s", count(best.slow_items))
    } else {
        format!(
            "{} of {} slow {noun}s",
            count(best.slow_with),
            count(best.slow_items)
        )
    };
    let others = match best.other_with {
        0 => format!("none of the {} others", count(best.other_items)),
        n => format!("{} of {} others", count(n), count(best.other_items)),
    };
    let also: Vec<String> = splits[1..]
        .iter()
        .filter(|it| it.effect >= best.effect - 0.05)
        .map(|it| test(&it.argument, it.test, &it.value))
        .collect();
    let also = if also.is_empty() {
        String::new()
    } else {
        format!("; so does {}", also.join(", "))
    };
    let held = test(&best.argument, best.test, &best.value);
    format!(
        "{held} holds for {with} and {others} ({}){also}",
        chance(best.chance)
    )
}

/// A chance as a power of ten that it is below.
fn chance(p: f64) -> String {
    if p < LEAST_CHANCE {
        return "p < 1e-12".to_owned();
    }
    format!("p = {p:.0e}")
}

fn compared(slow: &Slow, typical: &Typical, noun: &str) -> String {
    let mean = slow.mean_ns.map_or_else(|| UNKNOWN.to_owned(), time);
    let samples = |n: u64| plural(n, "sample");
    let which = match typical.rule {
        TypicalRule::MiddleHalf => format!(
            "the middle half, {} of {}",
            plural(typical.items, noun),
            range(typical.from_ns, typical.to_ns)
        ),
        TypicalRule::NotKept => format!(
            "the {} whose details were not kept (function_stats)",
            plural(typical.items, noun)
        ),
    };
    format!(
        "slow {mean} ({}) with typical {} ({}): {which}",
        samples(slow.samples),
        time(typical.mean_ns),
        samples(typical.samples)
    )
}

/// Evidence of a cause: its samples or waits.
fn evidence(cause: &Cause) -> String {
    if cause.state.is_some() {
        plural(cause.figures.slow_samples, "wait")
    } else {
        count(cause.figures.slow_samples)
    }
}

/// A call stack at which a thread blocked: the kernel function that blocked, then those in user space.
fn wait_path(functions: &[FunctionName]) -> String {
    let in_kernel = functions.iter().take_while(|it| it.kernel).count();
    let first = functions.iter().take(in_kernel.min(1));
    let mut shown: Vec<String> = first
        .chain(functions.iter().skip(in_kernel))
        .take(MOST_FRAMES)
        .map(name)
        .collect();
    if functions.len() - in_kernel.saturating_sub(1) > MOST_FRAMES {
        shown.push("…".to_owned());
    }
    shown.join(" <- ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chances at their borders.
    #[test]
    fn small_numbers() {
        assert_eq!(chance(0.0), "p < 1e-12");
        assert_eq!(chance(0.000_23), "p = 2e-4");
    }
}
