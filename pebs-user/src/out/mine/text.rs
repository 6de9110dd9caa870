//! Result of mining as text: the verdict first.

use super::across;
use super::cells::{LEAST_NAME, NAME_WIDTH, chance, joined, more_is, share_range};
use crate::compare::mine::{Mined, PairOf, Ranked, RankedEvents, RowOf};
use crate::present::human::{UNKNOWN, count, events, percent, plural, safe, time};
use crate::present::table::{Cell, Column, Table};
use crate::present::{Page, Tone, toned};
use crate::terminal::{PIPE_WIDTH, shown};

/// Events named in the verdict.
const NAMED: usize = 3;

/// Least share of the variance of an event named there.
const LEAST_NAMED: f64 = 0.05;

/// Share of the variance below which the events together count as explaining next to nothing.
const LEAST_EXPLAINED: f64 = 0.1;

/// Characters of a remark.
const NOTE_WIDTH: usize = 300;

/// Files that are listed.
const MOST_FILES: usize = 6;

/// Cleaned events that are listed.
const CLEANED: usize = 12;

/// Least ratio to the typical count for a row's count to be named.
const STANDS_OUT: f64 = 2.0;

/// Result of mining as text, for a pipe.
#[must_use]
pub fn render(mined: &Mined, top: usize) -> String {
    page(mined, top, PIPE_WIDTH).plain()
}

/// Result of mining, laid out for a width; `top`: number of events and pairs listed.
#[must_use]
pub fn page(mined: &Mined, top: usize, width: usize) -> Page {
    let mut out = Page::new(width);
    let noun = row_noun(mined);
    match (&mined.outcome, &mined.ranking, &mined.across) {
        (Some(outcome), Some(ranked), _) => {
            let outcome = safe(outcome, NAME_WIDTH);
            out.paragraph(&toned(Tone::Strong, &verdict(&outcome, ranked)));
            outcomes(&mut out, mined, &outcome, ranked.rows);
            ranking(&mut out, mined, &outcome, ranked, top);
        }
        (Some(outcome), None, Some(across)) => {
            let outcome = safe(outcome, NAME_WIDTH);
            let verdict = across::verdict(&outcome, across);
            out.paragraph(&toned(Tone::Strong, &verdict));
            outcomes(&mut out, mined, &outcome, mined.rows);
            across::ranking(&mut out, mined, across, &outcome, top);
        }
        _ => out.paragraph(&toned(Tone::Strong, &cleaned(mined, noun))),
    }
    if mined.outcome.is_some() && mined.cleaning.is_some() {
        out.gap();
        out.line("cleaned", &cleaned(mined, noun));
    }
    cleaning(&mut out, mined);
    out.gap();
    for note in &mined.notes {
        out.line("note", &toned(Tone::Warning, &safe(note, NOTE_WIDTH)));
    }
    match &mined.files[..] {
        [first, .., last] if mined.files.len() > MOST_FILES => out.line(
            "files",
            &format!(
                "{}, from {} to {}",
                count(mined.files.len() as u64),
                shown(first),
                shown(last)
            ),
        ),
        files => files.iter().for_each(|it| out.line("file", &shown(it))),
    }
    out
}

fn row_noun(mined: &Mined) -> &'static str {
    if mined.is_timed { "interval" } else { "item" }
}

fn names(events: &[String]) -> String {
    let first = events
        .first()
        .map_or_else(String::new, |it| safe(it, NAME_WIDTH));
    match events.len() {
        0 | 1 => first,
        2 => format!(
            "{first} or {}, which varies with it",
            safe(&events[1], NAME_WIDTH)
        ),
        n => format!("{first} or {} others that vary with it", n - 1),
    }
}

/// Events with a significant effect on items that the models have not seen.
fn found(ranked: &Ranked) -> Vec<&RankedEvents> {
    let predicts = ranked.explained.mean >= LEAST_EXPLAINED;
    let events = ranked.events.iter();
    events.filter(|it| predicts && !it.is_noise).collect()
}

/// One sentence: the events that the outcome depends on, or that there are none.
fn verdict(outcome: &str, ranked: &Ranked) -> String {
    let explained = ranked.explained.mean.max(0.0);
    let real = found(ranked);
    if real.is_empty() {
        return format!(
            "none of the counted events explains {outcome}: together they predict {} of its variance",
            percent(explained)
        );
    }
    let mut named: Vec<String> = real
        .iter()
        .take(NAMED)
        .filter(|it| it.effect.mean >= LEAST_NAMED)
        .map(|it| {
            format!(
                "{} ({} of its variance, {} .. {})",
                names(&it.events),
                percent(it.effect.mean.min(1.0)),
                percent(it.effect.low),
                percent(it.effect.high.min(1.0))
            )
        })
        .collect();
    if named.is_empty() {
        named.push(format!("{}, by a little", names(&real[0].events)));
    }
    let rest = if ranked.explained.mean < 0.5 {
        format!(
            "; all events together predict {} of it only: most has another cause",
            percent(explained)
        )
    } else {
        format!("; all events together predict {} of it", percent(explained))
    };
    format!("{outcome} depends on {}{rest}", named.join(", "))
}

/// Formats a value of the outcome; its name gives the unit.
fn value(outcome: &str, value: f64) -> String {
    if outcome.ends_with("_ns") {
        time(value)
    } else {
        number(value)
    }
}

/// A number: three digits, whatever its size.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", events(v))
        }
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.01 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

/// Typical and bad values of the outcome, of this many rows.
fn outcomes(out: &mut Page, mined: &Mined, outcome: &str, rows: usize) {
    if let Some((typical, bad)) = mined.typical_and_bad {
        let tail = if mined.low_is_bad {
            "lowest 1 % below"
        } else {
            "highest 1 % above"
        };
        out.line(
            "outcome",
            &format!(
                "{outcome}: median {}, {tail} {}, of {}",
                value(outcome, typical),
                value(outcome, bad),
                plural(rows as u64, row_noun(mined))
            ),
        );
    }
}

fn ranking(out: &mut Page, mined: &Mined, outcome: &str, ranked: &Ranked, top: usize) {
    let noun = row_noun(mined);
    for row in &ranked.worst {
        out.line(noun, &of_row(row, outcome, ranked));
    }
    if let Some(best) = ranked.models.get(ranked.best) {
        let all = ranked.models.first().map_or(0, |it| it.events.len());
        let mut text = format!(
            "error {} on the quarter of the rows held out, with {} of {}",
            percent(best.error),
            count(best.events.len() as u64),
            plural(all as u64, "event")
        );
        if best.events.len() < all {
            text += &format!(" (all: {})", percent(ranked.models[0].error));
        }
        if ranked.used < ranked.rows {
            text += &format!(
                "; fitted to a sample of {}",
                plural(ranked.used as u64, noun)
            );
        }
        if ranked.is_log {
            text += "; of the logarithm, as the outcomes span a decade";
        }
        out.line("model", &text);
    }
    ranked_table(out, ranked, top);
    if let Some(pairs) = &ranked.pairs {
        pairs_table(out, pairs, top);
    }
    for (names, what) in [
        (&ranked.never_counted, "never counted"),
        (&ranked.constant, "the same in all rows"),
    ] {
        if !names.is_empty() {
            out.line(
                "left out",
                &format!("{what}: {}", safe(&names.join(", "), NOTE_WIDTH)),
            );
        }
    }
}

/// Names the striking values of a row: `this one had 12 times the page-faults`.
fn of_row(row: &RowOf, outcome: &str, ranked: &Ranked) -> String {
    let observed = row.outcome.map(|it| value(outcome, it));
    let mut text = format!(
        "{}: {}",
        safe(&row.row, NAME_WIDTH),
        observed.unwrap_or_else(|| UNKNOWN.to_owned())
    );
    let real = found(ranked);
    if real.is_empty() {
        return text;
    }
    text += &format!(", expected {}", value(outcome, row.predicted));
    let is_real = |name: &String| real.iter().any(|it| it.events.contains(name));
    let (mut parts, mut unknown) = (Vec::new(), Vec::new());
    for event in row
        .events
        .iter()
        .filter(|it| is_real(&it.event))
        .take(NAMED)
    {
        let name = safe(&event.event, NAME_WIDTH);
        let Some(counted) = event.count else {
            unknown.push(name);
            continue;
        };
        if event.typical > 0.0 {
            let times = counted / event.typical;
            if times >= STANDS_OUT {
                parts.push(format!("{} times the {name}", number(times)));
            } else if times <= 1.0 / STANDS_OUT {
                parts.push(format!("{} of the {name}", percent(times)));
            }
        } else if counted > 0.0 {
            let counted = if counted < 1000.0 && counted.fract() == 0.0 {
                format!("{counted}")
            } else {
                number(counted)
            };
            parts.push(format!("{counted} {name} where others have none"));
        }
    }
    if !parts.is_empty() {
        text += &format!("; it had {}", parts.join(", "));
    }
    if !unknown.is_empty() {
        text += &format!("; not known of it: {}", unknown.join(", "));
    } else if parts.is_empty() {
        text += "; its counts are as usual";
    }
    text
}

fn ranked_table(out: &mut Page, ranked: &Ranked, top: usize) {
    let mut table = Table::new([
        Column::number("variance"),
        Column::number("95 %").rank(3),
        Column::number("importance").rank(2),
        Column::number("SHAP").rank(4),
        Column::words("more is").rank(5),
        Column::names("event", LEAST_NAME),
    ]);
    let real = found(ranked);
    for it in real.iter().take(top) {
        table.row([
            Cell::from(percent(it.effect.mean.min(1.0))),
            Cell::from(share_range(it.effect.low, it.effect.high)),
            Cell::from(percent(it.importance)),
            Cell::from(percent(it.contribution.mean)),
            Cell::from(more_is(it.direction)),
            Cell::from(joined(&it.events)),
        ]);
    }
    out.table(
        "events by the share of the variance that depends on them ('=': they vary together)",
        &table,
    );
    if real.len() > top {
        out.line("others", &format!("{} more", real.len() - top));
    }
    let names_of = |noise: bool| {
        let events = ranked.events.iter().filter(|it| it.is_noise == noise);
        let names = events.flat_map(|it| it.events.iter().map(String::as_str));
        names.collect::<Vec<&str>>()
    };
    let (noise, others) = (names_of(true), names_of(false));
    if real.is_empty() && !others.is_empty() {
        let names = safe(&others.join(", "), NOTE_WIDTH);
        out.line(
            "no use",
            &format!("what was learnt of {names} does not hold for other rows"),
        );
    }
    if !noise.is_empty() {
        out.line(
            "noise",
            &format!(
                "{} no better than shuffled counts: {}",
                if noise.len() == 1 {
                    "1 event is".to_owned()
                } else {
                    format!("{} events are", noise.len())
                },
                safe(&noise.join(", "), NOTE_WIDTH)
            ),
        );
    }
}

fn pairs_table(out: &mut Page, pairs: &[PairOf], top: usize) {
    let sure: Vec<&PairOf> = pairs.iter().filter(|it| it.is_sure).collect();
    if sure.is_empty() {
        if !pairs.is_empty() {
            out.line("pairs", "no two events interact");
        }
        return;
    }
    let mut table = Table::new([
        Column::number("intensity"),
        Column::number("variance").rank(2),
        Column::number("chance").rank(3),
        Column::names("events", LEAST_NAME),
    ]);
    for it in sure.iter().take(top) {
        let [a, b] = it.events.each_ref().map(|it| safe(it, NAME_WIDTH));
        table.row([
            Cell::from(percent(it.intensity)),
            Cell::from(percent(it.residual)),
            Cell::from(chance(it.chance)),
            Cell::from(format!("{a} x {b}")),
        ]);
    }
    out.table("pairs of events that interact", &table);
}

/// Summary of the cleaning.
fn cleaned(mined: &Mined, noun: &str) -> String {
    let Some(cleaning) = &mined.cleaning else {
        return format!(
            "nothing to clean: {} were counted throughout",
            plural(mined.rows as u64, noun)
        );
    };
    let sum = |of: fn(&crate::compare::mine::CleanedEvent) -> usize| {
        plural_of(cleaning.iter().map(of).sum())
    };
    if mined.changes.is_empty() {
        return format!(
            "nothing had to be changed in {}",
            plural(mined.rows as u64, noun)
        );
    }
    let values = mined.rows * cleaning.len();
    format!(
        "of {} values {} outliers were replaced, {} missing ones and {} false zeros filled in, {} counted in part completed",
        count(values as u64),
        sum(|it| it.outliers),
        sum(|it| it.missing),
        sum(|it| it.zeros),
        sum(|it| it.parts)
    )
}

fn plural_of(n: usize) -> String {
    count(n as u64)
}

fn cleaning(out: &mut Page, mined: &Mined) {
    let Some(cleaning) = &mined.cleaning else {
        return;
    };
    let mut changed: Vec<_> = cleaning
        .iter()
        .filter(|it| it.outliers + it.missing + it.zeros + it.parts > 0 || it.threshold.is_none())
        .collect();
    changed.sort_by_key(|it| std::cmp::Reverse((it.outliers + it.missing + it.zeros, it.parts)));
    let mut table = Table::new([
        Column::number("outliers"),
        Column::number("missing"),
        Column::number("zeros").rank(4),
        Column::number("in part").rank(3),
        Column::number("above").rank(5),
        Column::words("shape").rank(2),
        Column::names("event", LEAST_NAME),
    ]);
    for it in changed.iter().take(CLEANED) {
        table.row([
            Cell::from(plural_of(it.outliers)),
            Cell::from(plural_of(it.missing)),
            Cell::from(plural_of(it.zeros)),
            Cell::from(plural_of(it.parts)),
            Cell::from(
                it.deviations
                    .map_or_else(|| UNKNOWN.to_owned(), |n| format!("{n:.0} std")),
            ),
            Cell::from(it.shape),
            Cell::from(safe(&it.event, NAME_WIDTH)),
        ]);
    }
    out.table("values changed by cleaning", &table);
    if changed.len() > CLEANED {
        out.line(
            "others",
            &format!(
                "{} more events (--format json, --cleaned FILE)",
                changed.len() - CLEANED
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use pebs_mine::csv::Table;
    use pebs_mine::known::known;
    use pebs_mine::series::{Event, Series};
    use pebs_stats::rng::Rng;

    use super::*;
    use crate::compare::mine::{MineOptions, Until, mine};

    fn mined(series: Series, is_timed: bool, until: Until) -> Mined {
        let table = Table {
            series,
            is_timed,
            ..Table::default()
        };
        let options = MineOptions {
            explain: Some("duration".to_owned()),
            until,
            seed: 1,
            ..MineOptions::default()
        };
        mine(vec!["f.csv".to_owned()], table, &options).unwrap()
    }

    fn with_duration(mut series: Series, counts: Vec<f64>) -> Series {
        series.events.push(Event {
            name: "duration".to_owned(),
            counts,
            running: Vec::new(),
        });
        series
    }

    /// The verdict comes first and names the event with most weight; all lines fit.
    #[test]
    fn verdict_first() {
        let (series, outcome) = known(2, 600, 12);
        let mined = mined(with_duration(series, outcome), false, Until::Interact);
        let text = render(&mined, 12);
        assert!(text.starts_with("duration depends on event0 ("), "{text}");
        assert!(text.contains("event0 x event2"), "{text}");
        assert!(
            text.contains("events are no better than shuffled counts: "),
            "{text}"
        );
        for width in [40, 72, 120] {
            let page = page(&mined, 12, width).plain();
            assert!(page.lines().all(|it| it.chars().count() <= width), "{page}");
        }
    }

    /// If no event matters, that is the verdict.
    #[test]
    fn nothing_explains_it() {
        let mut rng = Rng::new(3);
        let (series, _) = known(3, 400, 6);
        let noise = (0..400).map(|_| 50.0 + rng.normal()).collect();
        let text = render(&mined(with_duration(series, noise), false, Until::Rank), 12);
        assert!(
            text.starts_with("none of the counted events explains duration"),
            "{text}"
        );
    }

    /// Changes are listed event by event, even without a ranking, and the page shows them.
    #[test]
    fn cleaned_series() {
        let (mut series, outcome) = known(4, 300, 3);
        series.events[0].name = "<b>&".to_owned();
        series.events[0].running = vec![0.4; 300];
        series.events[0].counts[7] = f64::NAN;
        let mined = mined(with_duration(series, outcome), true, Until::Clean);
        let text = render(&mined, 12);
        assert!(text.contains("1 missing ones"), "{text}");
        assert!(
            mined
                .changes
                .iter()
                .any(|it| it.row == "7" && it.before.is_none() && it.why == "missing")
        );
        let mut html = Vec::new();
        super::super::page::write(&mined, 12, &mut html).unwrap();
        let html = String::from_utf8(html).unwrap();
        assert!(
            html.contains("<polyline") && !html.contains("<b>"),
            "{html}"
        );
    }
}
