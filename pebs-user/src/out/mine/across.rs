//! Ranking over runs that counted different events, as lines and tables.

use super::cells::{LEAST_NAME, NAME_WIDTH, chance, joined, more_is, share_range};
use crate::compare::mine::Mined;
use crate::compare::mine::across::{Across, BesideOf, CauseOf, ChangeOf};
use crate::present::Page;
use crate::present::human::{count, percent, plural, safe};
use crate::present::table::{Cell, Column, Table};

/// Causes named in the verdict.
const NAMED: usize = 3;

/// Characters of a list of names.
const LIST_WIDTH: usize = 200;

/// Classes, and pairs that no run counted, that are listed.
const LISTED: usize = 6;

fn found(across: &Across) -> Vec<&CauseOf> {
    across.causes.iter().filter(|it| !it.is_noise).collect()
}

fn changed(beside: &BesideOf) -> Vec<&ChangeOf> {
    beside.events.iter().filter(|it| it.is_changed).collect()
}

/// `1st`, `22nd`.
fn place(rank: Option<usize>) -> String {
    let Some(rank) = rank else {
        return "noise".to_owned();
    };
    let end = match (rank % 10, rank % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{rank}{end}")
}

/// Sentences: what the outcome depends on, and which events change rank beside the neighbour.
pub(super) fn verdict(outcome: &str, across: &Across) -> String {
    let real = found(across);
    let mut text = if real.is_empty() {
        format!("none of the counted events explains {outcome}")
    } else {
        let named: Vec<String> = real
            .iter()
            .take(NAMED)
            .map(|it| {
                format!(
                    "{} ({} of its variance, {} .. {})",
                    joined(&it.names),
                    percent(it.effect.mean.min(1.0)),
                    percent(it.effect.low),
                    percent(it.effect.high.min(1.0))
                )
            })
            .collect();
        let sum: f64 = real.iter().map(|it| it.effect.mean.max(0.0)).sum();
        let others = match real.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        format!(
            "{outcome} depends on {}{others}; the shares add up to {} of its variance",
            named.join(", "),
            percent(sum.min(1.0))
        )
    };
    if let Some(beside) = &across.beside {
        let changed = changed(beside);
        let moved: Vec<String> = changed
            .iter()
            .take(NAMED)
            .map(|it| {
                let [from, to] = it.ranks.map(place);
                format!("{} from {from} to {to}", joined(&it.events))
            })
            .collect();
        text += &match changed.len() {
            0 => "; beside the neighbour no event changes rank by more than chance".to_owned(),
            n if n > NAMED => format!(
                "; beside the neighbour {n} events change rank: {}, ..",
                moved.join(", ")
            ),
            _ => format!(
                "; beside the neighbour the rank changes of {}",
                moved.join(", ")
            ),
        };
    }
    text
}

/// Writes the alignment of rows, the causes, their pairs, and the changes beside the neighbour.
pub(super) fn ranking(out: &mut Page, mined: &Mined, across: &Across, outcome: &str, top: usize) {
    out.line("runs", &runs(across));
    out.line("aligned", &aligned(mined, across, outcome));
    causes(out, across, top);
    pairs(out, across, top);
    if let Some(beside) = &across.beside {
        changes(out, beside, top);
    }
    if !across.unusable.is_empty() {
        let names = safe(&across.unusable.join(", "), LIST_WIDTH);
        let what = "counted in less than half of the rows of every run, or the same in all";
        out.line("left out", &format!("{what}: {names}"));
    }
}

fn runs(across: &Across) -> String {
    let mut text = format!(
        "{} of {} together",
        plural(across.runs as u64, "run"),
        plural(across.events as u64, "event")
    );
    if across.sets > across.runs {
        text += &format!(", which took turns in {} sets", count(across.sets as u64));
    }
    text + &format!(
        "; the events of one run predict {} of its variance on the mean; {} of all variance lies between runs",
        percent(across.explained.mean.max(0.0)),
        percent(across.between)
    )
}

fn aligned(mined: &Mined, across: &Across, outcome: &str) -> String {
    let by = match &across.class {
        Some(class) => {
            let listed: Vec<String> = across
                .classes
                .iter()
                .take(LISTED)
                .map(|it| format!("{} {}", safe(&it.name, NAME_WIDTH), percent(it.share)))
                .collect();
            let more = if across.classes.len() > LISTED {
                ", .."
            } else {
                ""
            };
            format!(
                "by {}, the same share of each class in every run ({}{more}), and by quantiles of {outcome} within a class",
                safe(class, NAME_WIDTH),
                listed.join(", ")
            )
        }
        None => format!("by quantiles of {outcome}: all rows are taken to be of one class"),
    };
    let noun = if mined.is_timed { "interval" } else { "item" };
    let mut text = format!("{by}; {} are used", plural(across.rows as u64, noun));
    if across.left_out > 0 {
        text += &format!(", {} are not", count(across.left_out as u64));
    }
    text
}

fn causes(out: &mut Page, across: &Across, top: usize) {
    let mut table = Table::new([
        Column::number("variance"),
        Column::number("95 %").rank(3),
        Column::number("SHAP").rank(5),
        Column::words("more is").rank(4),
        Column::number("runs").rank(2),
        Column::number("rows").rank(2),
        Column::names("event or parameter", LEAST_NAME),
    ]);
    let real = found(across);
    for it in real.iter().take(top) {
        let name = joined(&it.names);
        table.row([
            Cell::from(percent(it.effect.mean.min(1.0))),
            Cell::from(share_range(it.effect.low, it.effect.high)),
            Cell::from(it.contribution.map_or_else(String::new, percent)),
            Cell::from(more_is(it.direction)),
            Cell::from(count(it.runs as u64)),
            Cell::from(count(it.rows as u64)),
            Cell::from(if it.is_parameter {
                format!("{name} (parameter)")
            } else {
                name
            }),
        ]);
    }
    out.table(
        "events and parameters by the share of the variance that depends on them ('=': they vary together)",
        &table,
    );
    if real.len() > top {
        out.line("others", &format!("{} more", real.len() - top));
    }
    for (is_parameter, noun, than) in [
        (true, "parameter", "chance"),
        (false, "event", "shuffled counts"),
    ] {
        let noise = across.causes.iter();
        let noise = noise.filter(|it| it.is_noise && it.is_parameter == is_parameter);
        let names: Vec<&str> = noise
            .flat_map(|it| it.names.iter().map(String::as_str))
            .collect();
        if !names.is_empty() {
            let are = if names.len() == 1 { "is" } else { "are" };
            out.line(
                "noise",
                &format!(
                    "{} {are} no better than {than}: {}",
                    plural(names.len() as u64, noun),
                    safe(&names.join(", "), LIST_WIDTH)
                ),
            );
        }
    }
}

fn pairs(out: &mut Page, across: &Across, top: usize) {
    let Some(pairs) = &across.pairs else {
        return;
    };
    let mut table = Table::new([
        Column::number("intensity"),
        Column::number("variance").rank(2),
        Column::number("chance").rank(3),
        Column::number("runs").rank(2),
        Column::names("events and parameters", LEAST_NAME),
    ]);
    let sure: Vec<_> = pairs.iter().filter(|it| it.is_sure).collect();
    for it in sure.iter().take(top) {
        let [a, b] = it.causes.each_ref().map(|it| safe(it, NAME_WIDTH));
        table.row([
            Cell::from(percent(it.intensity)),
            Cell::from(percent(it.residual)),
            Cell::from(chance(it.chance)),
            Cell::from(count(it.runs as u64)),
            Cell::from(format!("{a} x {b}")),
        ]);
    }
    out.table("pairs that interact", &table);
    if sure.is_empty() && !pairs.is_empty() {
        out.line(
            "pairs",
            &format!("none of {} interacts", plural(pairs.len() as u64, "pair")),
        );
    }
    if !across.apart.is_empty() {
        let listed: Vec<String> = across
            .apart
            .iter()
            .take(LISTED)
            .map(|it| {
                let [a, b] = it.each_ref().map(|it| safe(it, NAME_WIDTH));
                format!("{a} with {b}")
            })
            .collect();
        let more = if across.apart.len() > LISTED {
            ", .."
        } else {
            ""
        };
        out.line(
            "unknown",
            &format!(
                "no run counted both of {}: {}{more}; count them in one run to see whether they interact, or one stands for the other",
                plural(across.apart.len() as u64, "pair"),
                listed.join(", ")
            ),
        );
    }
    if across.untested > 0 {
        let what = plural(across.untested as u64, "pair");
        out.line(
            "unknown",
            &format!("too few runs to test {what} with a parameter"),
        );
    }
}

fn changes(out: &mut Page, beside: &BesideOf, top: usize) {
    let mut table = Table::new([
        Column::words("rank"),
        Column::words("beside"),
        Column::number("variance").rank(2),
        Column::number("beside").rank(2),
        Column::number("factor").rank(3),
        Column::number("chance").rank(3),
        Column::names("event", LEAST_NAME),
    ]);
    for it in changed(beside).into_iter().take(top) {
        let [from, to] = it.ranks.map(place);
        let [before, after] = it.shares.map(|it| percent(it.clamp(0.0, 1.0)));
        table.row([
            Cell::from(from),
            Cell::from(to),
            Cell::from(before),
            Cell::from(after),
            Cell::from(it.factor.map_or_else(String::new, |it| format!("{it:.2}"))),
            Cell::from(chance(it.rate)),
            Cell::from(joined(&it.events)),
        ]);
    }
    out.table("events that change rank beside the neighbour", &table);
    let same = beside.events.iter().filter(|it| !it.is_changed).count();
    if same > 0 {
        out.line(
            "neighbour",
            &format!(
                "{} keep their rank, or differ by no more than chance",
                plural(same as u64, "event")
            ),
        );
    }
    if let [first, ..] = &beside.files[..] {
        let more = match beside.files.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        out.line("beside", &format!("{}{more}", safe(first, LIST_WIDTH)));
    }
}
