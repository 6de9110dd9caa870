//! Cost of the items of batches, and the batches that are dearer, as sentences.

use super::functions::ARG_WIDTH;
use super::human::{count, safe, time};
use super::items::labels;
use super::{Tone, toned};
use crate::compare::explain::model::{Cost, Costs, DearBatch, ItemCost, Mix, NoCosts};
use crate::terminal::shown;

/// Dear batches in a sentence.
const NAMED: usize = 3;

/// The costs, by kind if they differ.
pub(crate) fn costs(mix: &Mix) -> String {
    let Some(costs) = &mix.costs else {
        return mix
            .unknown
            .map_or_else(String::new, |why| unknown(mix, why));
    };
    let mut text = by_kind(costs);
    if let Some(on_cpu) = mix.on_cpu.as_ref().filter(|it| differ(it, costs)) {
        text += &format!("; on the CPU {}", by_kind(on_cpu));
    }
    if !mix.inside.is_empty() {
        text += &format!(
            "; by the marks inside {}",
            each(&mix.inside, &[]).join(", ")
        );
    }
    if mix.left_out > 0 {
        let left_out = batches(mix.left_out);
        text += &format!("; {left_out} with items of an unknown kind left out");
    }
    text
}

/// Name of the binary, as in a SPEC.
fn binary(mix: &Mix) -> String {
    let path = mix.spec.binary().unwrap_or("BIN");
    let name = path.rsplit('/').next().unwrap_or(path);
    shown(name).into_owned()
}

fn batches(n: u64) -> String {
    let noun = if n == 1 { "batch" } else { "batches" };
    format!("{} {noun}", count(n))
}

/// Whether some cost differs by more than the intervals.
fn differ(a: &Costs, b: &Costs) -> bool {
    let mut pairs = a.kinds.iter().zip(&b.kinds);
    pairs.any(|(a, b)| a.cost.high_ns < b.cost.low_ns || b.cost.high_ns < a.cost.low_ns)
}

fn by_kind(costs: &Costs) -> String {
    let each = each(&costs.kinds, &costs.arguments).join(", ");
    match costs.fixed {
        Some(fixed) => format!("a batch costs {}, and {each}", with_error(fixed)),
        None => format!(
            "{each}, each with its part of what a batch costs by itself, as all hold equally many"
        ),
    }
}

/// Each kind with its cost; of a single one, the arguments that make no difference.
fn each(kinds: &[ItemCost], arguments: &[String]) -> Vec<String> {
    let of = |it: &ItemCost| {
        let cost = with_error(it.cost);
        match (it.labels.is_empty(), arguments) {
            (false, _) => format!("{cost} for each {}", labels(&it.labels)),
            (true, []) => format!("{cost} for each item"),
            (true, arguments) => {
                let names: Vec<String> = arguments.iter().map(|it| safe(it, ARG_WIDTH)).collect();
                format!("{cost} for each item, whatever its {}", names.join(" or "))
            }
        }
    };
    kinds.iter().map(of).collect()
}

/// A cost with half the width of its interval.
fn with_error(cost: Cost) -> String {
    let half = (cost.high_ns - cost.low_ns) / 2.0;
    format!("{} (+-{})", time(cost.ns), time(half))
}

fn unknown(mix: &Mix, why: NoCosts) -> String {
    match why {
        NoCosts::NoArgument => {
            let binary = binary(mix);
            format!(
                "unknown by kind, as no argument of the items is recorded; name one where each is admitted: \
                 --uprobe '{binary}:FUNC(id=EXPR, kind=EXPR)'"
            )
        }
        NoCosts::NotRead { batches, of } => format!(
            "unknown by kind: the arguments of some items of {} of {} are unknown",
            count(batches),
            self::batches(of)
        ),
        NoCosts::TooFew { batches } => {
            format!("unknown by kind: too few batches ({})", count(batches))
        }
        NoCosts::Alike => {
            "unknown by kind: all batches hold the same, or the kinds in the same proportions"
                .to_owned()
        }
    }
}

/// The batches that take longer than what they hold; `None` if there are none.
pub(crate) fn dear(mix: &Mix) -> Option<String> {
    if mix.dear.is_empty() {
        return None;
    }
    let named: Vec<String> = mix.dear.iter().take(NAMED).map(one).collect();
    let more = match mix.dear_batches - named.len() as u64 {
        0 => String::new(),
        n => format!(" and {} more", count(n)),
    };
    let waited = mix.dear.iter().filter(|it| it.waited_ns > 0).count() as u64;
    let more = match waited {
        0 => more,
        n => format!("{more} ({} lost the CPU meanwhile)", count(n)),
    };
    let has_items = mix.dear.iter().any(|it| it.item.is_some());
    let which = if has_items {
        String::new()
    } else {
        let binary = binary(mix);
        let function = shown(mix.spec.function());
        format!(
            "; only a mark inside tells which of its items it was: --uprobe '{binary}:FUNC(id=EXPR)' on a function that \
             {function} calls for each"
        )
    };
    Some(format!(
        "{} {} of {}, {}{more}{which}",
        toned(Tone::Strong, "slow for what they hold:"),
        batches(mix.dear_batches),
        count(mix.batches),
        named.join(", "),
    ))
}

fn one(batch: &DearBatch) -> String {
    let item = batch.item.map_or_else(String::new, |it| {
        format!(
            " (item {} in it took {})",
            it.item_id,
            time(it.net_ns as f64)
        )
    });
    format!(
        "visit {} by {}{item}",
        batch.visit_id,
        time(batch.beyond_ns)
    )
}
