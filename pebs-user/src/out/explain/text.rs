//! Explanations as text, for people.
//!
//! The first three lines of a section give the slow items, the argument that separates them, and the
//! causes. Unknown values are `-`; an estimate has its samples and its interval beside it.

pub(crate) mod item;
mod kinds;
mod tables;

use crate::compare::batches::is_batched;
use crate::compare::explain::Unit;
use crate::compare::explain::contrast::PAGE_FAULTS;
use crate::compare::explain::model::{
    Cause, CauseKind, Durations, Explanation, Group, InterferenceRow, Label, LeftOut,
    ProbeExplanation, Slow, Split, SplitTest, Typical, TypicalRule,
};
use crate::compare::names::FunctionName;
use crate::compare::waits::OTHER_ITEMS;
use crate::out::report::text::{
    ARG_WIDTH, LEAST_NAME, LEAST_NAMED, NAME_WIDTH, NAMED, SPEC_WIDTH, but_for, heading, name,
    name_within, of_module, on_the_cpu, own_times, quantiles, slow_because, slow_because_of,
    time_shared, typed, wait,
};
use crate::present::human::{UNKNOWN, count, percent, plural, safe, time};
use crate::present::{Page, Tone, brief, counted, toned};
use crate::store::schema::kernel_entry;
use crate::terminal::shown;

/// Least share of the gap of interruptions named there.
const LEAST_INTERFERED: f64 = 0.1;

/// Width of the column with the reason of a wait, beside its place.
const REASON_WIDTH: usize = 24;

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
        section(
            &mut out,
            probe,
            noun(explanation.unit, probe),
            &explanation.trace,
        );
        out.gap();
    }
    if let Some(event) = &explanation.event {
        let how = match (&explanation.no_function_times, explanation.event_is_clock) {
            (Some(reason), _) => reason.clone(),
            (None, true) => {
                let reset = event.reset;
                let every = match explanation.event_resets.unwrap_or((reset, reset)) {
                    (least, most) if least == most => time(least as f64),
                    (least, most) => format!("{} .. {}", time(least as f64), time(most as f64)),
                };
                format!("{} every {every}", event.name)
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
    for note in &explanation.notes {
        out.line("note", &toned(Tone::Warning, &safe(note, NOTE_WIDTH)));
    }
    out.line("trace", &shown(&explanation.trace));
    out
}

/// Noun for what is counted: "visit" only if several visits have the same id and are not merged.
fn noun(unit: Unit, probe: &ProbeExplanation) -> &'static str {
    if unit == Unit::Visit && probe.specs.iter().any(|spec| is_batched(spec)) {
        "visit"
    } else if unit == Unit::Item || probe.item_ids == probe.items {
        "item"
    } else {
        "visit"
    }
}

fn section(out: &mut Page, probe: &ProbeExplanation, noun: &str, trace: &str) {
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
    out.paragraph(&format!("{spec}: {}", plural(probe.items, noun)));
    out.line("shared", &time_shared(probe.time_shared, probe.items, noun));
    if let Some(whole) = &probe.whole {
        group(
            out,
            whole,
            noun,
            &on_cpu(probe.slow_on_cpu.as_deref(), noun, trace),
        );
    }
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
        group(out, found, noun, "");
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

/// The arguments that the items of a group share.
fn labels(labels: &[Label]) -> String {
    if labels.is_empty() {
        return "all".to_owned();
    }
    let one = |it: &Label| match &it.value {
        None => format!("{} unknown", safe(&it.argument, ARG_WIDTH)),
        Some(value) => test(&it.argument, it.test, value),
    };
    labels.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A test of an argument: `n=5`, `key=big:…`, `n>=4`.
fn test(argument: &str, test: SplitTest, value: &str) -> String {
    let least_one = value == "1" && matches!(test, SplitTest::AtLeast | SplitTest::Equal);
    if let Some(spec) = argument.strip_prefix("visits of ").filter(|_| least_one) {
        return format!("a visit of {}", safe(spec, ARG_WIDTH));
    }
    let value = match (argument, value.parse::<i64>()) {
        ("begin_ns", Ok(ns)) => time(ns as f64),
        _ => safe(value, ARG_WIDTH),
    };
    let argument = safe(argument, ARG_WIDTH);
    match test {
        SplitTest::Equal => format!("{argument}={value}"),
        SplitTest::Begins => format!("{argument}={value}…"),
        SplitTest::AtLeast => format!("{argument}>={value}"),
        SplitTest::AtMost => format!("{argument}<={value}"),
    }
}

/// The items that are slow on the CPU and not as a whole, and why; empty if there are none.
pub(crate) fn on_cpu(group: Option<&Group>, noun: &str, trace: &str) -> String {
    let Some((group, slow)) = group.and_then(|it| Some((it, it.slow.as_ref()?))) else {
        return String::new();
    };
    let others = slow.others_up_to_ns.map_or_else(String::new, |ns| {
        format!(" (the others at most {})", time(ns as f64))
    });
    let but = but_for(slow.between);
    let reasons = match cause(group, noun) {
        reasons if reasons.is_empty() => String::new(),
        reasons => format!(", {reasons}"),
    };
    format!(
        "{} {}, {} of CPU time, set apart by a gap{but}{others}{reasons}; see: pebs-trace explain {} --slow cpu",
        toned(Tone::Strong, "slow on the CPU:"),
        plural(slow.items, noun),
        range(slow.from_ns, slow.to_ns),
        shown(trace)
    )
}

/// A group. `on_cpu`: what is slow on the CPU in it.
fn group(out: &mut Page, group: &Group, noun: &str, on_cpu: &str) {
    let reasons = cause(group, noun);
    if !reasons.is_empty() {
        let because = toned(Tone::Strong, slow_because_of(group.by));
        out.paragraph(&format!("{because} {reasons}"));
    }
    if !on_cpu.is_empty() {
        out.paragraph(on_cpu);
    }
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
        tables::causes(out, group, gap, noun);
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

fn range(from: i64, to: i64) -> String {
    if from == to {
        time(to as f64)
    } else {
        format!("{} .. {}", time(from as f64), time(to as f64))
    }
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

/// The causes of most of the slow items' additional time.
fn cause(group: &Group, noun: &str) -> String {
    let Some(gap) = &group.gap else {
        return group
            .too_little
            .as_ref()
            .map_or_else(String::new, |why| format!("{UNKNOWN} ({why})"));
    };
    let large = |it: &&Cause| it.figures.share >= LEAST_NAMED;
    let named: Vec<&Cause> = gap.causes.iter().filter(large).take(NAMED).collect();
    let more_faults = more_faults(group);
    let mut remark = interfered(&group.interference);
    if let Some(more) = more_faults
        && gap.kernel.share >= LEAST_INTERFERED
        && !named.iter().any(|it| is_page_faults(it))
    {
        remark.push_str(&format!("; {} page faults more each", count(more)));
    }
    if let Some(why) = &group.too_little {
        remark.push_str(&format!("; {why}"));
    }
    let named = causes(&named, more_faults);
    slow_because(&named, gap.gap_ns, noun) + &remark
}

/// Page faults that a slow item has more than a typical one, if that is not by chance.
fn more_faults(group: &Group) -> Option<u64> {
    let faults = group.counts.iter().find(|it| it.count == PAGE_FAULTS)?;
    let is_sure = faults.excess >= 1.0 && faults.excess_low.is_some_and(|low| low > 0.0);
    is_sure.then(|| faults.excess.round() as u64)
}

fn is_page_faults(cause: &Cause) -> bool {
    cause.kind == CauseKind::Module
        && cause.function.kernel_entry.as_deref() == Some(kernel_entry::PAGE_FAULT)
}

/// Interrupts, page faults and the like that make up a good part of the gap.
fn interfered(rows: &[InterferenceRow]) -> String {
    let large = rows.iter().filter(|row| row.share >= LEAST_INTERFERED);
    let parts = large.map(|row| {
        let ends = ends(row.share_low, row.share_high);
        format!("; {} {}{ends} within these", row.what, share(row.share))
    });
    parts.collect()
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

/// A cause as text, within this many columns.
fn what(cause: &Cause, width: usize) -> String {
    let path = cause.blocked.as_ref().map_or(&[][..], |it| &it.functions);
    kind(
        cause.kind,
        &cause.function,
        (cause.state.as_deref(), path),
        width,
    )
}

/// Causes and their shares as part of a sentence, with their member functions. `more_faults`: page faults that a slow
/// item has more, if known.
fn causes(causes: &[&Cause], more_faults: Option<u64>) -> String {
    let mut out = String::new();
    let mut separator = "";
    for cause in causes {
        let members = members(cause);
        let is_list = cause.function.is_uncalled() && !members.is_empty();
        let more = more_faults.filter(|_| is_page_faults(cause));
        let more = more.map_or_else(String::new, |it| format!(" ({} more each)", count(it)));
        let of = match (members.is_empty(), is_list) {
            (true, _) => String::new(),
            (_, true) => format!(": {members}"),
            _ => format!(" ({members})"),
        };
        let share = share(cause.figures.share);
        out.push_str(&format!("{separator}{} {share}{more}{of}", reason(cause)));
        separator = if is_list { "; " } else { ", " };
    }
    out
}

/// The largest member functions of a cause, with their shares.
fn members(cause: &Cause) -> String {
    let large = |it: &&Cause| it.figures.share >= LEAST_NAMED;
    let members = cause.functions.iter().filter(large).take(NAMED);
    let members: Vec<String> = members
        .map(|it| format!("{} {}", member(it, NAME_WIDTH), share(it.figures.share)))
        .collect();
    members.join(", ")
}

/// A member function of a cause; the cause names the module.
fn member(cause: &Cause, width: usize) -> String {
    let function = FunctionName {
        kernel: false,
        ..cause.function.clone()
    };
    name_within(&function, width)
}

/// The same as a part of a sentence.
fn reason(cause: &Cause) -> String {
    match cause.kind {
        CauseKind::Function => format!("in {}", name(&cause.function)),
        CauseKind::Module if cause.function.is_uncalled() => what(cause, NAME_WIDTH),
        CauseKind::Module => format!("in {}", what(cause, NAME_WIDTH)),
        CauseKind::Elsewhere => format!("in {}", what(cause, NAME_WIDTH)),
        _ => what(cause, NAME_WIDTH + REASON_WIDTH),
    }
}

/// Words for a kind of time.
pub(crate) enum KindWords {
    /// These words, for any function.
    Whole(&'static str),
    /// These words, then the function.
    Before(&'static str),
    /// Words from its function and the state.
    Own,
}

/// Words for a kind of time, here and in `diff`.
pub(crate) const fn kind_words(kind: CauseKind) -> KindWords {
    match kind {
        CauseKind::Preempted => KindWords::Whole("waited for a CPU"),
        CauseKind::Stopped => KindWords::Whole("was stopped"),
        CauseKind::Handover => KindWords::Before("waited for stage "),
        CauseKind::Others => KindWords::Before("others of the batch in "),
        CauseKind::Function | CauseKind::Module | CauseKind::Wait | CauseKind::Elsewhere => {
            KindWords::Own
        }
    }
}

fn kind(
    kind: CauseKind,
    function: &FunctionName,
    (state, path): (Option<&str>, &[FunctionName]),
    width: usize,
) -> String {
    let with = |words: &str| {
        let left = width.saturating_sub(words.len()).max(LEAST_NAME);
        format!("{words}{}", name_within(function, left))
    };
    match kind_words(kind) {
        KindWords::Whole(words) => return words.to_owned(),
        KindWords::Before(words) => return with(words),
        KindWords::Own => {}
    }
    match (kind, state) {
        (CauseKind::Module, _) => of_module(function),
        (CauseKind::Elsewhere, Some(OTHER_ITEMS)) => "other items of the thread".to_owned(),
        (CauseKind::Elsewhere, _) => "other items of the thread, or idle".to_owned(),
        (CauseKind::Wait, Some(state)) => wait(state, function, path, width),
        _ => name_within(function, width),
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

/// A share in percent, with its sign if it is negative.
fn share(share: f64) -> String {
    match share {
        share if share <= -0.001 => format!("-{}", percent(-share)),
        // Less than a thousandth of the gap is shown as 0.
        share => percent(share),
    }
}

/// An interval of a share, in brackets; empty if unknown.
fn ends(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        // Adding 0 makes -0 one.
        (Some(low), Some(high)) => {
            let [low, high] = [low, high].map(|end| (end * 100.0).round() + 0.0);
            format!(" ({low} .. {high} %)")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests of arguments in the syntax of SPECs, with foreign text escaped.
    #[test]
    fn tests_of_arguments() {
        assert_eq!(test("n", SplitTest::AtLeast, "5"), "n>=5");
        assert_eq!(test("key", SplitTest::Begins, "big:"), "key=big:…");
        assert_eq!(
            test("begin_ns", SplitTest::AtMost, "2500000"),
            "begin_ns<=2.50 ms"
        );
        assert!(!test("key", SplitTest::Equal, "a\x1b[2J").contains('\x1b'));
        let unknown = Label {
            argument: "n".to_owned(),
            test: SplitTest::Equal,
            value: None,
        };
        assert_eq!(labels(&[unknown]), "n unknown");
    }

    /// Chances and shares at their borders.
    #[test]
    fn small_numbers() {
        assert_eq!(chance(0.0), "p < 1e-12");
        assert_eq!(chance(0.000_23), "p = 2e-4");
        assert_eq!([share(-0.2), share(0.41)], ["-20 %", "41 %"]);
        assert_eq!(ends(Some(0.381), Some(0.449)), " (38 .. 45 %)");
        assert_eq!(ends(None, None), "");
    }
}
