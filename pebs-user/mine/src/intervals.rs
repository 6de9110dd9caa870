//! Collects counts that arrive one by one (CPU or thread, interval, event) into a table.

use std::collections::HashMap;

use crate::csv::Table;
use crate::series::{Event, Segment, Series};

/// Value of an event in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Scaled to the whole interval.
    Counted(f64),
    /// It had no turn on a counter.
    NotCounted,
    /// It can't be counted there.
    NotSupported,
}

/// A count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell<'a> {
    /// CPU or thread; empty if there is only one.
    pub part: &'a str,
    /// Time that labels the row, s; `None`: a whole run.
    pub time: Option<f64>,
    pub event: &'a str,
    pub value: Value,
    /// Share of the interval in which the event was counted, 0..1.
    pub share: f32,
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

/// A table being built: each CPU or thread becomes a segment.
#[derive(Default)]
pub struct Intervals {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
    parts: Vec<Part>,
    of_part: HashMap<String, usize>,
    unsupported: Vec<usize>,
}

impl Intervals {
    /// Adds a count. Cells of one part must come in order of time, and those of one interval
    /// consecutively.
    pub fn add(&mut self, cell: &Cell<'_>) {
        let Cell {
            part,
            time,
            event,
            value,
            share,
        } = *cell;
        let at = match self.of_part.get(part) {
            Some(&at) => at,
            None => {
                self.of_part.insert(part.to_owned(), self.parts.len());
                self.parts.push(Part {
                    name: part.to_owned(),
                    ..Part::default()
                });
                self.parts.len() - 1
            }
        };
        let part = &mut self.parts[at];
        if part.times.last() != Some(&time) {
            part.times.push(time);
            part.seen.clear();
        }
        // The same name a second time is another event.
        let mut name = event.to_owned();
        let mut number;
        let mut copy = 1;
        loop {
            number = *self.numbers.entry(name.clone()).or_insert_with(|| {
                self.names.push(name.clone());
                self.names.len() - 1
            });
            if !part.seen.contains(&number) {
                break;
            }
            copy += 1;
            name = format!("{event} #{copy}");
        }
        part.seen.push(number);
        if value == Value::NotSupported && !self.unsupported.contains(&number) {
            self.unsupported.push(number);
        }
        part.cells
            .push((part.times.len() - 1, number, value, share));
    }

    /// Returns everything added, with remarks.
    #[must_use]
    pub fn finish(self) -> Table {
        let rows: usize = self.parts.iter().map(|it| it.times.len()).sum();
        let mut events: Vec<Event> = self
            .names
            .iter()
            .map(|name| Event {
                name: name.clone(),
                counts: vec![f64::NAN; rows],
                running: vec![0.0; rows],
            })
            .collect();
        let mut series = Series::default();
        let mut first = 0;
        for part in self.parts {
            for (row, event, value, share) in part.cells {
                if let Value::Counted(count) = value {
                    events[event].counts[first + row] = count;
                    events[event].running[first + row] = share;
                }
            }
            let end = first + part.times.len();
            let times = part.times.iter().enumerate();
            series.labels.extend(times.map(|(row, time)| {
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
        Table {
            series,
            is_timed: true,
            words: Vec::new(),
            notes: notes(&self.names, &self.unsupported),
        }
    }
}

fn notes(names: &[String], unsupported: &[usize]) -> Vec<String> {
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
    notes
}
