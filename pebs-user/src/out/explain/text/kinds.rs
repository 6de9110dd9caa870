//! Kinds of slow items, and what only they do.

use super::{LEAST_NAMED, UNKNOWN, chance};
use crate::compare::explain::model::{Cause, Figures, Group, Kind, Only};
use crate::present::Page;
use crate::present::causes::{causes, kind};
use crate::present::functions::NAME_WIDTH;
use crate::present::human::{count, percent, plural, time};
use crate::present::items::range;

/// Causes named of a kind.
const NAMED: usize = 2;

/// Functions and waits named that only slow items have.
const ONLY: usize = 3;

/// Adds the lines on the kinds of slow items, on functions and waits that only they have, and the
/// share on the CPU.
pub(super) fn lines(out: &mut Page, group: &Group, noun: &str) {
    let (slow, below): (Vec<&Kind>, Vec<&Kind>) =
        group.kinds.iter().partition(|it| it.slow_items > 0);
    let mut list = |heading, lines: Vec<String>| {
        for (at, line) in lines.iter().enumerate() {
            out.line(if at == 0 { heading } else { "" }, line);
        }
    };
    if slow.len() > 1 {
        list("kinds", slow.iter().map(|it| of_kind(it, noun)).collect());
    }
    let like = slow.iter().filter(|it| !it.ordinary && slow.len() == 1);
    let like = like.filter_map(|it| like_them(it, noun));
    let below = below.iter().map(|it| of_kind(it, noun));
    list("not slow", like.chain(below).collect());
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
    let large = |cause: &&Cause| cause.figures.share >= LEAST_NAMED;
    let large: Vec<&Cause> = it.causes.iter().filter(large).take(NAMED).collect();
    let named = match (it.ordinary, large.is_empty()) {
        (_, true) => UNKNOWN.to_owned(),
        (true, _) => format!("{}, as in typical ones", causes(&large, None)),
        _ => causes(&large, None),
    };
    let only = only(&it.only, noun);
    let only = if only.is_empty() {
        only
    } else {
        format!(" (only they have {only})")
    };
    let (amount, range) = (plural(it.items, noun), range(it.from_ns, it.to_ns));
    let like = like_them(it, noun).filter(|_| !it.ordinary);
    let like = like.map_or_else(String::new, |it| format!("; {it}"));
    format!("{amount} of {range}: {named}{only}{like}")
}

/// `12 more items of 1.50 ms .. 1.90 ms are like them`.
fn like_them(it: &Kind, noun: &str) -> Option<String> {
    let (from, to) = it.others_range_ns?;
    let others = plural(it.others, &format!("more {noun}"));
    let are = if it.others == 1 { "is" } else { "are" };
    Some(format!("{others} of {} {are} like them", range(from, to)))
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
