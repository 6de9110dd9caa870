//! Kinds of slow items, and what only they do.

use super::{LEAST_NAMED, UNKNOWN, cause_and_share, chance, kind, range};
use crate::analysis::explain::model::{Figures, Group, Kind, Only};
use crate::analysis::report::human::{count, percent, plural, time};
use crate::analysis::report::text::NAME_WIDTH;
use crate::present::Page;

/// Causes named of a kind.
const NAMED: usize = 2;

/// Functions and waits named that only slow items have.
const ONLY: usize = 3;

/// Adds the lines on the kinds of slow items, on functions and waits that only they have, and the
/// share on the CPU.
pub(super) fn lines(out: &mut Page, group: &Group, noun: &str) {
    if group.kinds.len() > 1 {
        for (at, it) in group.kinds.iter().enumerate() {
            let heading = if at == 0 { "kinds" } else { "" };
            out.line(heading, &of_kind(it, noun));
        }
    }
    out.line("only slow", &only(&group.only_slow, noun));
    if let (Some(on), Some(off)) = (&group.on_cpu, &group.off_cpu) {
        let of = |figures: &Figures| {
            format!(
                "{} (typical {}, {} of the difference)",
                time(figures.slow_ns),
                time(figures.typical_ns),
                percent(figures.share)
            )
        };
        out.line(
            "time",
            &format!("on the CPU {}; off it {}", of(on), of(off)),
        );
    }
}

/// `24 items of 32.0 ms .. 43.0 ms: deflate 88 %`.
fn of_kind(it: &Kind, noun: &str) -> String {
    let causes = it.causes.iter();
    let causes = causes.filter(|cause| cause.figures.share >= LEAST_NAMED);
    let named: Vec<String> = causes.take(NAMED).map(cause_and_share).collect();
    let named = match (it.ordinary, named.is_empty()) {
        (true, _) => "more of what typical ones do".to_owned(),
        (_, true) => UNKNOWN.to_owned(),
        _ => named.join(", "),
    };
    let only = only(&it.only, noun);
    let only = if only.is_empty() {
        only
    } else {
        format!(" (only they have {only})")
    };
    let (amount, range) = (plural(it.items, noun), range(it.from_ns, it.to_ns));
    format!("{amount} of {range}: {named}{only}")
}

fn only(all: &[Only], noun: &str) -> String {
    let named: Vec<String> = all
        .iter()
        .take(ONLY)
        .map(|it| {
            format!(
                "{} ({}, {})",
                kind(
                    it.kind,
                    &it.function,
                    (it.state.as_deref(), &[]),
                    NAME_WIDTH
                ),
                plural(it.items, noun),
                chance(it.chance)
            )
        })
        .collect();
    let more = match all.len().saturating_sub(ONLY) {
        0 => String::new(),
        n => format!(" and {} more", count(n as u64)),
    };
    named.join(", ") + &more
}
