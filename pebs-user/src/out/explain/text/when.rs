//! Changes over the recording.

use crate::compare::explain::model::{Cause, Change, ChangeShape, ProbeExplanation};
use crate::present::Page;
use crate::present::causes::causes;
use crate::present::human::{UNKNOWN, count, plural, time};
use crate::present::items::{LEAST_NAMED, NAMED};

/// Lines on the changes, if they were asked for.
pub(super) fn lines(out: &mut Page, probe: &ProbeExplanation, noun: &str) {
    let Some(changes) = &probe.changes else {
        return;
    };
    if changes.is_empty() {
        out.line("when", "no step, drift or period beyond chance");
    }
    for (number, change) in changes.iter().enumerate() {
        let heading = if number == 0 { "when" } else { "" };
        out.line(heading, &words(change, noun));
    }
}

fn words(change: &Change, noun: &str) -> String {
    let reasons = reasons(change);
    let (before, after) = (time(change.before_ns), time(change.after_ns));
    let (from, to) = (time(change.from_ns as f64), time(change.to_ns as f64));
    let items = plural(change.items, noun);
    match (change.kind, change.every_ns) {
        (ChangeShape::Period, Some(every)) => {
            let length = change
                .for_ns
                .map_or_else(|| UNKNOWN.to_owned(), |it| time(it as f64));
            let others = match change.others {
                0 => String::new(),
                n => format!(", {} others not", count(n)),
            };
            format!(
                "every {} for {length}: {} from {from} to {to}, {items} of {after} instead of {before} in them{others}: \
                 {reasons}",
                time(every),
                plural(change.bursts, "burst"),
            )
        }
        (ChangeShape::Drift, _) => {
            format!("from {before} in the first quarter to {after} in the last one: {reasons}")
        }
        _ => format!("from {from} to {to}, {items}: {after}, {before} before it: {reasons}"),
    }
}

/// Returns the causes of the difference.
fn reasons(change: &Change) -> String {
    let all = change.gap.iter().flat_map(|it| &it.causes);
    let large = all.filter(|it| it.figures.share >= LEAST_NAMED);
    let large: Vec<&Cause> = large.take(NAMED).collect();
    match causes(&large, None) {
        none if none.is_empty() => format!("cause {UNKNOWN}"),
        named => named,
    }
}
