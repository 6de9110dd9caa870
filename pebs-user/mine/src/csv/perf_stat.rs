//! Parses the output of `perf stat -x` and `perf stat -j`: one line per event, interval, and CPU or thread.
//!
//! `[time] [CPU, thread, core ..] [number of CPUs] count unit event [variation%] [ran for ns] [ran for %] [metric unit]`
//!
//! With `-j` a line is a JSON object with the same fields. With `--summary` the total of all intervals follows them, in
//! lines without a time, with or without the word `summary`.
//!
//! Source: `print_counter_aggrdata` and `printout` of tools/perf/util/stat-display.c. The fields after the event differ
//! between versions.

use std::borrow::Cow;
use std::io::BufRead;

use serde::Deserialize;

use super::fields::{SEPARATORS, number, split};
use super::{CsvError, Lines, Table};
use crate::intervals::{Cell, Intervals, Value};

/// One line.
#[derive(Clone, Debug, PartialEq)]
struct Count<'a> {
    time: Option<f64>,
    /// CPU, thread or core.
    part: Cow<'a, str>,
    value: Value,
    event: String,
    /// Share of the time in which it was counted, 0..1.
    share: f32,
}

/// Format of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `-x`, with this separator.
    Fields(char),
    /// `-j`.
    Json,
}

impl Form {
    /// The form in which the line parses as perf's; `None`: not a line of perf.
    pub(super) fn of(line: &str) -> Option<Self> {
        if line.trim_start().starts_with('{') {
            let object = serde_json::from_str::<Object>(line).ok()?;
            return object.is_of_perf().then_some(Self::Json);
        }
        let known = |separator: &char| parse(line, *separator).is_some();
        SEPARATORS.into_iter().find(known).map(Self::Fields)
    }

    fn option(self) -> String {
        match self {
            Self::Fields(separator) => format!("-x{separator}"),
            Self::Json => "-j".to_owned(),
        }
    }
}

/// A line of `-j`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    interval: Option<f64>,
    counter_value: Option<String>,
    event: Option<String>,
    event_runtime: Option<f64>,
    pcnt_running: Option<f64>,
    metric_unit: Option<String>,
    cpu: Option<String>,
    thread: Option<String>,
    core: Option<String>,
    die: Option<String>,
    socket: Option<String>,
    node: Option<String>,
}

impl Object {
    /// Whether it has the fields of a count, or of a further metric.
    fn is_of_perf(&self) -> bool {
        (self.counter_value.is_some() && self.event.is_some()) || self.metric_unit.is_some()
    }

    /// The count; `None` if there is none.
    fn count(self) -> Option<Count<'static>> {
        let percent = self.pcnt_running.unwrap_or(100.0);
        let parts = [
            self.cpu,
            self.thread,
            self.core,
            self.die,
            self.socket,
            self.node,
        ];
        let part = parts.into_iter().flatten().next().unwrap_or_default();
        Some(Count {
            time: self.interval,
            part: Cow::Owned(part),
            // Some versions follow the locale.
            value: value_of(&self.counter_value?, ';', self.event_runtime, percent)?,
            event: self.event?,
            share: (percent / 100.0) as f32,
        })
    }
}

/// Content of a line.
enum Content<'a> {
    Count(Count<'a>),
    /// A further metric of the event above.
    Metric,
    /// Nothing known.
    Other,
}

fn content(line: &str, form: Form) -> Content<'_> {
    match form {
        Form::Json => match serde_json::from_str::<Object>(line) {
            Ok(object) if object.is_of_perf() => {
                object.count().map_or(Content::Metric, Content::Count)
            }
            _ => Content::Other,
        },
        Form::Fields(separator) => match parse(line, separator) {
            Some(count) => Content::Count(count),
            None if is_metric(line, separator) => Content::Metric,
            None => Content::Other,
        },
    }
}

/// Whether a line has a metric and no count.
fn is_metric(line: &str, separator: char) -> bool {
    let fields = split(line, separator);
    let fits = |it: &&str| it.is_empty() || number(it, separator).is_some() || !it.starts_with('<');
    fields.iter().take(5).all(fits) && fields.iter().filter(|it| it.is_empty()).count() >= 3
}

/// A value; one that was never enabled, as the thread did not run, is 0. An event that merely had no turn was counted in
/// no part of its time.
fn value_of(text: &str, separator: char, ran: Option<f64>, percent: f64) -> Option<Value> {
    Some(match value(text, separator)? {
        Value::NotCounted if ran == Some(0.0) && percent >= 100.0 => Value::Counted(0.0),
        value => value,
    })
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
    let value = value_of(fields[at], separator, ran, percent)?;
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
        part: Cow::Borrowed(part),
        value,
        event,
        share: (percent / 100.0) as f32,
    })
}

const HINT: &str = "write it anew: LC_ALL=C perf stat -x';' -I 100 -o FILE ..";

pub(super) fn read<R: BufRead>(lines: &mut Lines<'_, R>, form: Form) -> Result<Table, CsvError> {
    let mut intervals = Intervals::default();
    let (mut metrics, mut totals, mut is_timed) = (0, 0, false);
    while let Some(line) = lines.next_line()? {
        let count = match content(&line, form) {
            Content::Count(count) => count,
            Content::Metric => {
                metrics += 1;
                continue;
            }
            Content::Other => {
                let what = format!(
                    "not a line of 'perf stat {}': '{}'",
                    form.option(),
                    shortened(&line)
                );
                return Err(lines.error(what, HINT));
            }
        };
        if form == Form::Fields(',') && is_torn(&line) {
            return Err(lines.error(
                "the comma separates fields and is the decimal point, too".to_owned(),
                HINT,
            ));
        }
        is_timed |= count.time.is_some();
        if is_timed && count.time.is_none() {
            totals += 1;
            continue;
        }
        intervals.add(&Cell {
            part: &count.part,
            time: count.time,
            event: &count.event,
            value: count.value,
            share: count.share,
        });
    }
    let mut table = intervals.finish();
    let left_out = [
        (metrics, "lines of metrics without a count"),
        (totals, "totals of all intervals"),
    ];
    for (lines, what) in left_out.into_iter().filter(|it| it.0 > 0) {
        table.notes.push(format!("{lines} {what} are left out"));
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
