//! The causes of a gap: as a sentence, and each within a number of columns.

use super::chain::{self, Sentence};
use super::functions::{LEAST_NAME, NAME_WIDTH, name, name_within, of_module, wait};
use super::human::{UNKNOWN, count, percent, plural, safe, time};
use super::items::{
    LEAST_NAMED, NAMED, but_for, labels, on_the_cpu, range, slow_because, with_unexplained,
};
use super::{Tone, toned};
use crate::compare::explain::contrast::PAGE_FAULTS;
use crate::compare::explain::model::{Cause, CauseType, Gap, Group, InterferenceRow};
use crate::compare::names::FunctionName;
use crate::compare::waits::OTHER_ITEMS;
use crate::store::schema::kernel_entry;
use crate::terminal::shown;

/// Least share of the gap of interruptions named there.
pub(crate) const LEAST_INTERFERED: f64 = 0.1;

/// Width of the column with the reason of a wait, beside its place.
pub(crate) const REASON_WIDTH: usize = 24;

/// Groups of which it is said that some of their items are slow for their kind.
const KINDS_NAMED: usize = 3;

/// Part of the spread of durations that an argument explains from which on items are first compared with those of their
/// kind: those that are slow among all have such arguments.
const BY_KIND_FIRST: f64 = 0.5;

/// Sentences beside the one on the slow items.
#[derive(Default)]
pub(crate) struct Others {
    pub first: Vec<String>,
    pub then: Vec<String>,
}

impl Others {
    /// Sentences on items that are slow for their kind, of an argument that explains this part of the spread of
    /// durations. Without a cause they do not come first.
    pub(crate) fn of((groups, part): (&[Group], Option<f64>), (noun, trace): (&str, &str)) -> Self {
        let said = groups.iter().take(KINDS_NAMED);
        let mut said: Vec<String> = said.filter_map(|it| for_kind(it, noun)).collect();
        let label = groups.first().and_then(|it| it.labels.first());
        if let (Some(last), Some(label)) = (said.last_mut(), label) {
            let (trace, argument) = (shown(trace), shown(&label.argument));
            last.push_str(&format!(
                "; see: pebs-trace explain {trace} --group-by {argument}"
            ));
        }
        let is_known = |it: &Group| it.gap.as_ref().is_some_and(Gap::has_causes);
        match part {
            Some(part) if part >= BY_KIND_FIRST && groups.first().is_some_and(is_known) => Self {
                first: said,
                then: Vec::new(),
            },
            _ => Self {
                first: Vec::new(),
                then: said,
            },
        }
    }
}

/// The items of a group that are slow for their kind, and why.
fn for_kind(group: &Group, noun: &str) -> Option<String> {
    let slow = group.slow.as_ref()?;
    let reasons = match &group.too_little {
        Some(why) if !group.gap.as_ref().is_some_and(Gap::has_causes) => {
            format!("cause unknown ({why})")
        }
        _ => cause(group, noun),
    };
    let others = slow.others_up_to_ns.map_or_else(String::new, |ns| {
        format!(", the others at most {}", time(ns as f64))
    });
    Some(format!(
        "{} {}, {}{} (the middle one takes {}{others}), {reasons}",
        toned(
            Tone::Strong,
            &format!("slow for {}:", labels(&group.labels))
        ),
        plural(slow.items, noun),
        range(slow.from_ns, slow.to_ns),
        on_the_cpu(group.by),
        time(group.duration.p50_ns as f64),
    ))
}

/// The items that are slow on the CPU and not as a whole, and why.
pub(crate) fn on_cpu(group: Option<&Group>, noun: &str, trace: &str) -> Option<String> {
    let (group, slow) = group.and_then(|it| Some((it, it.slow.as_ref()?)))?;
    let others = slow.others_up_to_ns.map_or_else(String::new, |ns| {
        format!(" (the others at most {})", time(ns as f64))
    });
    let but = but_for(slow.between);
    let reasons = match cause(group, noun) {
        reasons if reasons.is_empty() => String::new(),
        reasons => format!(", {reasons}"),
    };
    Some(format!(
        "{} {}, {} of CPU time, set apart by a gap{but}{others}{reasons}; see: pebs-trace explain {} --slow cpu",
        toned(Tone::Strong, "slow on the CPU:"),
        plural(slow.items, noun),
        range(slow.from_ns, slow.to_ns),
        shown(trace)
    ))
}

/// The causes of most of the slow items' additional time.
pub(crate) fn cause(group: &Group, noun: &str) -> String {
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
    let largest = named.first().map_or(0.0, |it| it.figures.share);
    let named = with_unexplained(causes(&named, more_faults), largest, gap.unexplained.share);
    slow_because(&named, gap.gap_ns, noun) + &remark
}

/// Page faults that a slow item has more than a typical one, if that is not by chance.
pub(crate) fn more_faults(group: &Group) -> Option<u64> {
    let faults = group.counts.iter().find(|it| it.count == PAGE_FAULTS)?;
    let is_sure = faults.excess >= 1.0 && faults.excess_low.is_some_and(|low| low > 0.0);
    is_sure.then(|| faults.excess.round() as u64)
}

pub(crate) fn is_page_faults(cause: &Cause) -> bool {
    cause.kind == CauseType::Module
        && cause.function.kernel_entry.as_deref() == Some(kernel_entry::PAGE_FAULT)
}

/// Interrupts, page faults and the like that make up a good part of the gap.
pub(crate) fn interfered(rows: &[InterferenceRow]) -> String {
    let large = rows.iter().filter(|row| row.share >= LEAST_INTERFERED);
    let parts = large.map(|row| {
        let ends = ends(row.share_low, row.share_high);
        format!("; {} {}{ends} within these", row.what, share(row.share))
    });
    parts.collect()
}

/// Causes and their shares as part of a sentence, with their member functions. `more_faults`: page faults that a slow
/// item has more, if known.
pub(crate) fn causes(causes: &[&Cause], more_faults: Option<u64>) -> String {
    let mut out = String::new();
    let mut separator = "";
    for cause in causes {
        let members = match chain(cause) {
            Some(Sentence::For(_, did)) => did.unwrap_or_default(),
            Some(Sentence::Several(each)) => each,
            None => members(cause),
        };
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
pub(crate) fn members(cause: &Cause) -> String {
    let large = |it: &&Cause| it.figures.share >= LEAST_NAMED;
    let members = cause.functions.iter().filter(large).take(NAMED);
    let members: Vec<String> = members
        .map(|it| format!("{} {}", member(it, NAME_WIDTH), share(it.figures.share)))
        .collect();
    members.join(", ")
}

/// A member function of a cause; the cause names the module.
pub(crate) fn member(cause: &Cause, width: usize) -> String {
    let function = FunctionName {
        kernel: false,
        ..cause.function.clone()
    };
    name_within(&function, width)
}

/// Whom a cause mostly waited for, and what that did meanwhile, if it is known.
fn chain(cause: &Cause) -> Option<Sentence> {
    cause.waited_for.as_ref().and_then(chain::sentence)
}

/// The same as a part of a sentence.
pub(crate) fn reason(cause: &Cause) -> String {
    if let Some(Sentence::For(whom, _)) = chain(cause) {
        return format!("waited for {whom}");
    }
    match cause.kind {
        CauseType::Function => format!("in {}", name(&cause.function)),
        CauseType::Module if cause.function.is_uncalled() => what(cause, NAME_WIDTH),
        CauseType::Module => format!("in {}", what(cause, NAME_WIDTH)),
        CauseType::Elsewhere => format!("in {}", what(cause, NAME_WIDTH)),
        _ => what(cause, NAME_WIDTH + REASON_WIDTH),
    }
}

/// A cause as text, within this many columns.
pub(crate) fn what(cause: &Cause, width: usize) -> String {
    let path = cause.blocked.as_ref().map_or(&[][..], |it| &it.functions);
    kind(
        cause.kind,
        &cause.function,
        (cause.state.as_deref(), path),
        width,
    )
}

/// Words for a cause.
pub(crate) enum CauseWords {
    /// These words, for any function.
    Whole(&'static str),
    /// These words, then the function.
    Before(&'static str),
    /// Words from its function and the state.
    Own,
}

/// Words for a cause of this type.
pub(crate) const fn cause_words(kind: CauseType) -> CauseWords {
    match kind {
        CauseType::Preempted => CauseWords::Whole("waited for a CPU"),
        CauseType::Stopped => CauseWords::Whole("was stopped"),
        CauseType::Handover => CauseWords::Before("waited for stage "),
        CauseType::Others => CauseWords::Before("others of the batch in "),
        CauseType::Function | CauseType::Module | CauseType::Wait | CauseType::Elsewhere => {
            CauseWords::Own
        }
    }
}

pub(crate) fn kind(
    kind: CauseType,
    function: &FunctionName,
    (state, path): (Option<&str>, &[FunctionName]),
    width: usize,
) -> String {
    let with = |words: &str| {
        let left = width.saturating_sub(words.len()).max(LEAST_NAME);
        format!("{words}{}", name_within(function, left))
    };
    match cause_words(kind) {
        CauseWords::Whole(words) => return words.to_owned(),
        CauseWords::Before(words) => return with(words),
        CauseWords::Own => {}
    }
    match (kind, state) {
        (CauseType::Module, _) => of_module(function),
        (CauseType::Elsewhere, Some(OTHER_ITEMS)) => "other items of the thread".to_owned(),
        (CauseType::Elsewhere, _) => "other items of the thread, or idle".to_owned(),
        (CauseType::Wait, Some(state)) => wait(state, function, path, width),
        _ => name_within(function, width),
    }
}

/// A function or wait that is known by its name, module and state only, as in several traces, within this many columns.
pub(crate) fn by_name(
    (kind, kernel): (CauseType, bool),
    [name, module, state]: [Option<&str>; 3],
    width: usize,
) -> String {
    let function = FunctionName {
        name: name.map(str::to_owned),
        kernel,
        ..FunctionName::default()
    };
    let with = |words: &str| {
        let left = width.saturating_sub(words.len()).max(LEAST_NAME);
        match name {
            Some(_) => format!("{words}{}", name_within(&function, left)),
            None => format!("{words}{}", safe(module.unwrap_or("no module"), left)),
        }
    };
    match (cause_words(kind), name, state) {
        (CauseWords::Whole(words), ..) => words.to_owned(),
        (CauseWords::Before(words), Some(_), _) => with(words),
        (_, Some(_), Some(state)) => wait(state, &function, &[], width),
        (_, None, Some(state)) => {
            let what = wait(state, &FunctionName::default(), &[], width);
            format!("{what} in {}", with(""))
        }
        (_, Some(_), None) => with(""),
        (_, None, None) => with("rest of "),
    }
}

/// A share in percent, with its sign if it is negative.
pub(crate) fn share(share: f64) -> String {
    match share {
        share if share <= -0.001 => format!("-{}", percent(-share)),
        // Less than a thousandth of the gap is shown as 0.
        share => percent(share),
    }
}

/// An interval of a share, in brackets; empty if unknown.
pub(crate) fn ends(low: Option<f64>, high: Option<f64>) -> String {
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

    /// Shares and their intervals, of either sign.
    #[test]
    fn shares() {
        assert_eq!([share(-0.2), share(0.41)], ["-20 %", "41 %"]);
        assert_eq!(ends(Some(0.381), Some(0.449)), " (38 .. 45 %)");
        assert_eq!(ends(None, None), "");
    }
}
