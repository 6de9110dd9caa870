//! What `perf stat -x` writes: a line an event, at each interval, for each CPU or thread.
//!
//! `[time] [CPU, thread, core ..] [number of CPUs] count unit event [variation%] [ran for ns] [ran for %] [metric unit]`
//!
//! Source: `print_counter_aggrdata` and `printout` of tools/perf/util/stat-display.c. Versions differ in what follows the event.

use std::collections::HashMap;
use std::io::BufRead;

use super::fields::{SEPARATORS, number, split};
use super::{CsvError, Lines, Table};
use crate::series::{Event, Segment, Series};

/// One line.
#[derive(Clone, Debug, PartialEq)]
struct Count<'a> {
    time: Option<f64>,
    /// Of which CPU, thread, core.
    part: &'a str,
    value: Value,
    event: String,
    /// Share of the time in which it was counted.
    share: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Counted(f64),
    NotCounted,
    NotSupported,
}

/// The separator with which the line is one of perf's.
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
    // The count is the first field that has a unit (or none) and a name behind it.
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
    // cpu/event=0x3c,umask=1/ is one name, whatever separates the fields.
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
        // Nothing was enabled: the thread did not run, and nothing happened. Of an event that had no turn the share is 0.
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

/// Counts of one CPU or thread, in order of time.
#[derive(Default)]
struct Part {
    name: String,
    times: Vec<Option<f64>>,
    /// Row, event, value, share.
    cells: Vec<(usize, usize, Value, f32)>,
    /// Events of the last row.
    seen: Vec<usize>,
}

const HINT: &str = "write it anew: LC_ALL=C perf stat -x';' -I 100 -o FILE ..";

pub(super) fn read<R: BufRead>(
    lines: &mut Lines<'_, R>,
    separator: char,
) -> Result<Table, CsvError> {
    let mut names: Vec<String> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut parts: Vec<Part> = Vec::new();
    let mut of_part: HashMap<String, usize> = HashMap::new();
    let (mut unsupported, mut metrics) = (Vec::new(), 0);
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
        let at = *of_part.entry(count.part.to_owned()).or_insert_with(|| {
            parts.push(Part {
                name: count.part.to_owned(),
                ..Part::default()
            });
            parts.len() - 1
        });
        let part = &mut parts[at];
        if part.times.last() != Some(&count.time) {
            part.times.push(count.time);
            part.seen.clear();
        }
        // The same name a second time is another event.
        let mut name = count.event.clone();
        let mut event;
        let mut copy = 1;
        loop {
            event = *numbers.entry(name.clone()).or_insert_with(|| {
                names.push(name.clone());
                names.len() - 1
            });
            if !part.seen.contains(&event) {
                break;
            }
            copy += 1;
            name = format!("{} #{copy}", count.event);
        }
        part.seen.push(event);
        if count.value == Value::NotSupported && !unsupported.contains(&event) {
            unsupported.push(event);
        }
        part.cells
            .push((part.times.len() - 1, event, count.value, count.share));
    }
    let rows: usize = parts.iter().map(|it| it.times.len()).sum();
    let mut events: Vec<Event> = names
        .iter()
        .map(|name| Event {
            name: name.clone(),
            counts: vec![f64::NAN; rows],
            running: vec![0.0; rows],
        })
        .collect();
    let mut series = Series::default();
    let mut first = 0;
    for part in parts {
        for (row, event, value, share) in part.cells {
            if let Value::Counted(count) = value {
                events[event].counts[first + row] = count;
                events[event].running[first + row] = share;
            }
        }
        let end = first + part.times.len();
        series
            .labels
            .extend(part.times.iter().enumerate().map(|(row, time)| {
                let time = time.map_or_else(|| row.to_string(), |time| time.to_string());
                if part.name.is_empty() {
                    time
                } else {
                    format!("{} {time}", part.name)
                }
            }));
        series.segments.push(Segment {
            name: part.name,
            rows: first..end,
        });
        first = end;
    }
    series.events = events;
    let mut notes = Vec::new();
    if !unsupported.is_empty() {
        let names: Vec<&str> = unsupported.iter().map(|&it| &*names[it]).collect();
        notes.push(format!(
            "not supported where it was counted: {}",
            names.join(", ")
        ));
    }
    let twice = names.iter().filter(|it| it.contains(" #")).count();
    if twice > 0 {
        notes.push(format!(
            "{twice} events share the name of another one: they get the suffixes #2, #3 .."
        ));
    }
    if metrics > 0 {
        notes.push(format!(
            "{metrics} lines of metrics without a count are left out"
        ));
    }
    Ok(Table {
        series,
        is_timed: true,
        notes,
    })
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
