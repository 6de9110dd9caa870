//! Whom waits waited for, in words.

use super::functions::{ARG_WIDTH, NAME_WIDTH, name, wait_until};
use super::human::{percent, plural, safe};
use super::items::argument;
use crate::compare::explain::chain_model::{Activity, Awaited, Doing, Link, WaitedFor};

/// Part of a wait from which on a link or what it did stands for all of it in a sentence.
const MOST: f64 = 0.5;

/// Part of waits that stands for all.
const ALL: f64 = 0.9;

/// Least part of one of several in a sentence.
const ONE_OF: f64 = 0.2;

/// Least part that is listed.
const LEAST: f64 = 0.02;

/// Rows of a list.
const ROWS: usize = 12;

/// Explanation of a wait, as parts of a sentence.
pub(crate) enum Sentence {
    /// Most of it for one: `items with cmd=COMMIT`, and what that did: `96 % of it while those waited for the disk in
    /// fdatasync`.
    For(String, Option<String>),
    /// For several: `49 % of it for thread a, 34 % for items of b`.
    Several(String),
}

/// Whom a wait was for. `None`: most of it is for nothing that is known.
pub(crate) fn sentence(waited_for: &WaitedFor) -> Option<Sentence> {
    let Some(main) = main_link(waited_for) else {
        let links = waited_for.links.iter();
        let large = links.take_while(|it| it.part >= ONE_OF * waited_for.part);
        let large: Vec<&Link> = large.collect();
        let known: f64 = large.iter().map(|it| it.part).sum();
        if known < MOST * waited_for.part {
            return None;
        }
        let each = large.into_iter().zip(0..).map(|(link, number)| {
            let of = if number == 0 { " of it" } else { "" };
            let part = percent(link.part / waited_for.part);
            format!("{part}{of} for {}{}", whom(link), which_did(link))
        });
        return Some(Sentence::Several(each.collect::<Vec<_>>().join(", ")));
    };
    let those = match is_one(main) {
        true => "that",
        false => "those",
    };
    let did = main_doing(main).map(|doing| {
        let part = percent(doing.part / main.part);
        format!("{part} of it while {those} {}", did(doing))
    });
    Some(Sentence::For(whom(main), did))
}

/// Returns its main activity, as a clause.
fn which_did(link: &Link) -> String {
    main_doing(link).map_or_else(String::new, |doing| format!(", which {}", did(doing)))
}

/// Rows of a list: part of the wait, and words indented by level.
pub(crate) fn rows(waited_for: &WaitedFor) -> Vec<(f64, String)> {
    let mut rows = Vec::new();
    add_rows(waited_for, 0, &mut rows);
    rows.truncate(ROWS);
    rows
}

fn add_rows(waited_for: &WaitedFor, level: usize, rows: &mut Vec<(f64, String)>) {
    let indent = "  ".repeat(level);
    for link in waited_for.links.iter().filter(|it| it.part >= LEAST) {
        rows.push((
            link.part,
            format!("{indent}{}{}", whom(link), longest(link)),
        ));
        for doing in link.doing.iter().filter(|it| it.part >= LEAST) {
            let samples = match doing.kind {
                Activity::Ran if doing.count > 0 => {
                    format!(" ({})", plural(doing.count, "sample"))
                }
                _ => String::new(),
            };
            let did = did_itself(doing);
            rows.push((doing.part, format!("{indent}  {did}{samples}")));
            if let Some(next) = &doing.waited_for {
                add_rows(next, level + 2, rows);
            }
        }
    }
    let rest = [
        (waited_for.no_cpu, "was woken, but had no CPU"),
        (waited_for.itself, "the other side waited for this one"),
    ];
    for (part, words) in rest.into_iter().filter(|it| it.0 >= LEAST) {
        rows.push((part, format!("{indent}{words}")));
    }
}

/// Number of waits that were followed, and the length of the queue if there is one.
pub(crate) fn waits(waited_for: &WaitedFor) -> String {
    let waits = plural(waited_for.waits, "wait");
    match waited_for.queue {
        queue if queue >= 1.5 => format!("{waits}, each for {queue:.1} items"),
        _ => waits,
    }
}

const fn is_one(link: &Link) -> bool {
    !matches!(link.kind, Awaited::Items) || link.items == 1
}

/// Whom: `items with cmd=COMMIT`.
pub(crate) fn whom(link: &Link) -> String {
    let args: Vec<String> = link.args.iter().filter_map(argument).collect();
    let with = match args.is_empty() {
        true => String::new(),
        false => format!(" with {}", args.join(" ")),
    };
    let name = safe(&link.name, ARG_WIDTH);
    match (link.kind, link.item_id) {
        (Awaited::Items, Some(item)) if link.items == 1 => format!("item {item}{with}"),
        (Awaited::Items, _) if with.is_empty() => format!("items of {name}"),
        (Awaited::Items, _) => format!("items{with}"),
        (Awaited::Thread, _) => format!("thread {name}"),
        (Awaited::Untraced, _) => format!("thread {name} of another program"),
    }
}

fn longest(link: &Link) -> String {
    match (link.kind, link.item_id) {
        (Awaited::Items, Some(_)) if link.items == 1 => format!(" (thread {})", link.tid),
        (Awaited::Items, Some(item)) => {
            let items = plural(link.items, "item");
            format!(" ({items}; longest for {item}, thread {})", link.tid)
        }
        (Awaited::Thread, _) => format!(" ({}), at no item", link.tid),
        _ => format!(" ({})", link.tid),
    }
}

fn main_link(waited_for: &WaitedFor) -> Option<&Link> {
    let first = waited_for.links.first();
    first.filter(|it| it.part >= MOST * waited_for.part)
}

fn main_doing(link: &Link) -> Option<&Doing> {
    let first = link.doing.first();
    first.filter(|it| it.part >= MOST * link.part && is_telling(it))
}

/// Whether it says more than that the thread was on the CPU.
fn is_telling(doing: &Doing) -> bool {
    doing.kind != Activity::Ran || doing.function.function_id.is_some()
}

/// Returns the activity, down to the last known link of its chain.
fn did(doing: &Doing) -> String {
    let Some(next) = doing.waited_for.as_ref().and_then(main_link) else {
        return did_itself(doing);
    };
    format!("waited for {}{}", whom(next), which_did(next))
}

fn did_itself(doing: &Doing) -> String {
    match doing.kind {
        Activity::Ran if doing.function.function_id.is_none() => {
            "was on the CPU (no samples)".to_owned()
        }
        Activity::Ran => format!("ran {}", name(&doing.function)),
        Activity::Preempted => match &doing.by {
            Some(by) => format!("waited for a CPU, taken by {}", safe(by, ARG_WIDTH)),
            None => "waited for a CPU".to_owned(),
        },
        Activity::Waited => {
            let state = doing.state.as_deref().unwrap_or_default();
            let ended = doing.waited_for.as_ref();
            let is_interrupt = ended.is_some_and(|it| it.interrupts >= ALL * it.part);
            let state = (state, is_interrupt);
            wait_until(state, &doing.function, &doing.path, NAME_WIDTH)
        }
    }
}
