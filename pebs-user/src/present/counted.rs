//! Counted events of slow and of typical items, as a table and beside an item.

use super::human::{self, UNKNOWN, events, percent, time};
use super::table::{Column, Table};
use super::{Page, Tone};
use crate::compare::counted::{CountedClass, CountedRow, CountedVisits, Excess};
use crate::compare::report::model::VisitEvent;
use crate::store::schema::count_state;
use crate::units::CountUnit;

/// Formats a count, or a time.
pub(crate) fn amount(unit: CountUnit, value: f64) -> String {
    match unit {
        CountUnit::Ns => time(value),
        _ if value.abs() >= 1000.0 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", events(value.abs()))
        }
        _ => small(value),
    }
}

/// A number below 1,000, with as many digits as needed.
fn small(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 0.1 => format!("{value:.2}"),
        v if v >= 0.01 => format!("{value:.3}"),
        v if v >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

fn rate(value: f64) -> String {
    amount(CountUnit::Events, value)
}

/// Counts of a visit that differ from typical ones, as text, the most unusual first; `without`: names of events to
/// leave out.
pub(crate) fn beside(counts: &[VisitEvent], rows: &[CountedRow], without: &[&str]) -> String {
    let row_of = |count: &VisitEvent| rows.iter().find(|row| row.event == count.event);
    let mut counts: Vec<&VisitEvent> = counts
        .iter()
        .filter(|it| !without.contains(&it.event.as_str()))
        .collect();
    // Ratio to the typical count.
    let factor = |it: &VisitEvent| {
        let typical = row_of(it)?.typical?.per_item;
        Some(((it.count? as f64 + 1.0) / (typical + 1.0)).ln().abs())
    };
    counts.sort_by(|a, b| {
        let [a, b] = [a, b].map(|it| factor(it).unwrap_or(-1.0));
        b.total_cmp(&a)
    });
    let words = counts.iter().map(|count| {
        let row = row_of(count);
        let unit = row.map_or(CountUnit::Events, |row| row.unit);
        let known = count.count.map(|count| match unit {
            CountUnit::Ns => time(count as f64),
            _ => human::count(count),
        });
        let state = match count.state.as_str() {
            count_state::EXACT => String::new(),
            state => format!(" ({state})"),
        };
        let typical = row.and_then(|row| row.typical);
        let typical = typical.map(|it| format!(" (typical {})", amount(unit, it.per_item)));
        format!(
            "{} {}{state}{}",
            count.event,
            known.unwrap_or_else(|| UNKNOWN.to_owned()),
            typical.unwrap_or_default()
        )
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The text table: slow items beside typical ones, or all items where none is slow.
pub(crate) fn table(out: &mut Page, rows: &[CountedRow], noun: &str) {
    let columns: [(&str, ClassSelector); 2] =
        [("slow", |row| row.slow), ("typical", |row| row.typical)];
    split(out, rows, (&columns, "more"), noun);
}

/// The same for two traces: `typical` holds the items before, `slow` those after.
pub(crate) fn changed(out: &mut Page, rows: &[CountedRow], noun: &str) {
    let columns: [(&str, ClassSelector); 2] =
        [("before", |row| row.typical), ("after", |row| row.slow)];
    split(out, rows, (&columns, "change"), noun);
}

/// Selects the figures of one set of items.
type ClassSelector = fn(&CountedRow) -> Option<CountedClass>;

/// Two columns with their titles, and the title of their difference.
fn split(
    out: &mut Page,
    rows: &[CountedRow],
    (columns, difference): (&[(&str, ClassSelector); 2], &str),
    noun: &str,
) {
    let is_split = rows
        .iter()
        .any(|row| row.slow.is_some() && row.typical.is_some());
    let titles = if is_split {
        [columns[0].0, columns[1].0, difference, "95 %"].map(str::to_owned)
    } else {
        ["all", "", "", ""].map(str::to_owned)
    };
    let [slow, typical, more, ends] = titles;
    let ends_us = if is_split {
        format!("95 % of {more}")
    } else {
        String::new()
    };
    let us = |title: &str| match title {
        "" => String::new(),
        title => format!("{title}/us"),
    };
    let (slow_us, typical_us) = (us(&slow), us(&typical));
    let mut table = Table::new([
        Column::words(""),
        Column::number(slow).tone(Tone::Slow),
        Column::number(typical).rank(1),
        Column::number(more).rank(2),
        Column::number(ends).rank(4),
        Column::number(slow_us),
        Column::number(typical_us).rank(1),
        Column::number(ends_us).rank(5),
        Column::words("").rank(3).tone(Tone::Faint),
    ]);
    for row in rows {
        let unit = row.unit;
        let unknown = || UNKNOWN.to_owned();
        let each =
            |of: Option<CountedClass>| of.map_or_else(unknown, |it| amount(unit, it.per_item));
        let us = |of: Option<CountedClass>| {
            of.and_then(|it| it.per_us)
                .filter(|_| !unit.is_time())
                .map_or_else(unknown, rate)
        };
        let between = |excess: Option<Excess>, words: &dyn Fn(f64) -> String| {
            let ends = excess.and_then(|it| it.low.zip(it.high));
            ends.map_or_else(String::new, |(low, high)| {
                format!("{} .. {}", words(low), words(high))
            })
        };
        let words = words(row.visits);
        let cells = if is_split {
            let more = row.excess.map_or_else(unknown, |it| amount(unit, it.value));
            let rates = row.rate_excess.filter(|_| !unit.is_time());
            [
                each(columns[0].1(row)),
                each(columns[1].1(row)),
                more,
                between(row.excess, &|it| amount(unit, it)),
                us(columns[0].1(row)),
                us(columns[1].1(row)),
                between(rates, &rate),
            ]
        } else {
            let none = String::new;
            [
                each(row.all),
                none(),
                none(),
                none(),
                us(row.all),
                none(),
                none(),
            ]
        };
        let first = [row.event.clone()].into_iter();
        let all = first.chain(cells).chain([words]);
        table.row(all.map(Into::into));
    }
    let title = format!("counted, mean of one {noun}, and for each us on the CPU");
    out.table(&title, &table);
}

/// As text; empty if all were counted throughout.
fn words(visits: CountedVisits) -> String {
    let CountedVisits {
        exact,
        scaled,
        no_turn,
        unknown,
    } = visits;
    let all = exact + scaled + no_turn + unknown;
    let parts = [
        ("scaled", scaled),
        ("had no turn", no_turn),
        ("unknown", unknown),
    ];
    let parts = parts.into_iter().filter(|(_, visits)| *visits > 0);
    let parts: Vec<String> = parts
        .map(|(what, visits)| format!("{} {what}", percent(visits as f64 / all as f64)))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Amounts are as short as they can be read.
    #[test]
    fn amounts() {
        assert_eq!(
            [CountUnit::Events, CountUnit::Ns].map(|unit| amount(unit, 12_345.0)),
            ["12.3 k", "12.3 us"]
        );
        assert_eq!(amount(CountUnit::Events, -2_000_000.0), "-2.00 M");
        assert_eq!(
            [0.0, 1.5, 0.0123, 4.2e-5].map(rate),
            ["0", "1.50", "0.012", "4.2e-5"]
        );
    }
}
