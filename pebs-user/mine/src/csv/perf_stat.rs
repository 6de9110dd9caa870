//! Parses the output of `perf stat -x`: one line per event, interval, and CPU or thread.
//!
//! `[time] [CPU, thread, core ..] [number of CPUs] count unit event [variation%] [ran for ns] [ran for %] [metric unit]`
//!
//! Source: `print_counter_aggrdata` and `printout` of tools/perf/util/stat-display.c. The fields after the event differ
//! between versions.

use std::io::BufRead;

use super::fields::{SEPARATORS, number, split};
use super::{CsvError, Lines, Table};
use crate::intervals::{Cell, Intervals, Value};

/// One line.
#[derive(Clone, Debug, PartialEq)]
struct Count<'a> {
    time: Option<f64>,
    /// CPU, thread or core.
    part: &'a str,
    value: Value,
    event: String,
    /// Share of the time in which it was counted, 0..1.
    share: f32,
}

/// The separator with which the line parses as perf's; `None`: not a line of perf.
pub(super) fn separator(line: &str) -> Option<char> {
    SEPARATORS
        .into_iter()
        .find(|&separator| parse(line, separator).is_some())
}

fn value(text: &str, separator: char) -> Option<Value> {
    match text {
        "<not counted>" => Some(Value::NotCounted),
        "<not supported>" => Some(Value::NotSupported),
        _ => number(text, separator).map(Value::Counted),
    }
}

fn parse(line: &str, separator: char) -> Option<Count<'_>> {
    let fields = split(line, separator);
    // The count is the first field followed by a unit (or an empty one) and a name.
    let at = (0..4).find(|&at| {
        let (Some(unit), Some(event)) = (fields.get(at + 1), fields.get(at + 2)) else {
            return false;
        };
        value(fields[at], separator).is_some()
            && number(unit, separator).is_none()
            && !unit.starts_with('<')
            && unit.len() <= 12
            && event.contains(|c: char| c.is_ascii_alphabetic())
            && !event.starts_with('<')
    })?;
    // cpu/event=0x3c,umask=1/ is one name, even if the separator is a comma.
    let mut event = fields[at + 2].to_owned();
    let mut rest = &fields[at + 3..];
    while event.matches('/').count() == 1 && rest.iter().any(|it| it.contains('/')) {
        event.push(separator);
        event.push_str(rest[0]);
        rest = &rest[1..];
    }
    if rest.first().is_some_and(|it| it.ends_with('%')) {
        rest = &rest[1..];
    }
    let numbers: Vec<Option<f64>> = rest
        .iter()
        .take(2)
        .map(|it| number(it, separator))
        .collect();
    let (ran, percent) = match numbers[..] {
        [Some(ran), Some(percent)] => (Some(ran), percent),
        [] | [None, ..] => (None, 100.0),
        _ => return None,
    };
    if !(0.0..=100.01).contains(&percent) {
        return None;
    }
    let value = match value(fields[at], separator)? {
        // Never enabled: the thread did not run, so the count is 0. An event that merely had no turn has share 0.
        Value::NotCounted if ran == Some(0.0) && percent >= 100.0 => Value::Counted(0.0),
        value => value,
    };
    let (time, part) = match at {
        0 => (None, ""),
        1 => match number(fields[0], separator) {
            Some(time) => (Some(time), ""),
            None => (None, fields[0]),
        },
        _ => (
            number(fields[0], separator),
            if number(fields[0], separator).is_some() {
                fields[1]
            } else {
                fields[0]
            },
        ),
    };
    Some(Count {
        time,
        part,
        value,
        event,
        share: (percent / 100.0) as f32,
    })
}

const HINT: &str = "write it anew: LC_ALL=C perf stat -x';' -I 100 -o FILE ..";

pub(super) fn read<R: BufRead>(
    lines: &mut Lines<'_, R>,
    separator: char,
) -> Result<Table, CsvError> {
    let mut intervals = Intervals::default();
    let mut metrics = 0;
    while let Some(line) = lines.next_line()? {
        let Some(count) = parse(&line, separator) else {
            let fields = split(&line, separator);
            // A further metric of the event above has a line without a count.
            if fields
                .iter()
                .take(5)
                .all(|it| it.is_empty() || number(it, separator).is_some() || !it.starts_with('<'))
                && fields.iter().filter(|it| it.is_empty()).count() >= 3
            {
                metrics += 1;
                continue;
            }
            return Err(lines.error(
                format!(
                    "not a line of 'perf stat -x{separator}': '{}'",
                    shortened(&line)
                ),
                HINT,
            ));
        };
        if separator == ',' && is_torn(&line) {
            return Err(lines.error(
                "the comma separates fields and is the decimal point, too".to_owned(),
                HINT,
            ));
        }
        intervals.add(&Cell {
            part: count.part,
            time: count.time,
            event: &count.event,
            value: count.value,
            share: count.share,
        });
    }
    let mut table = intervals.finish();
    if metrics > 0 {
        table.notes.push(format!(
            "{metrics} lines of metrics without a count are left out"
        ));
    }
    Ok(table)
}

/// Whether a time was cut in two at its decimal comma: `0` and nine digits.
fn is_torn(line: &str) -> bool {
    let fields = split(line, ',');
    let digits = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    matches!(&fields[..], [whole, part, ..] if digits(whole) && part.len() == 9 && digits(part) && whole.len() < 7)
}

fn shortened(line: &str) -> String {
    line.chars()
        .filter(|it| !it.is_control())
        .take(60)
        .collect()
}
