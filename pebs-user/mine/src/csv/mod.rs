//! Reads series of counts from text: output of `perf stat -x` or `-j`, or tables with a column for each event.

mod fields;
mod items;
mod perf_stat;

use std::io::{self, BufRead};

use crate::series::{Event, Segment, Series};

/// Parsed series.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The counts.
    pub series: Series,
    /// Whether rows are intervals of time (or runs), not items.
    pub is_timed: bool,
    /// Columns without counts.
    pub words: Vec<Words>,
    /// Remarks on how the input was read.
    pub notes: Vec<String>,
}

/// A column of words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Its name.
    pub name: String,
    /// A value each row; empty: missing.
    pub values: Vec<String>,
}

impl Table {
    /// Takes out a column of words, or of numbers as words.
    pub fn take_words(&mut self, name: &str) -> Option<Vec<String>> {
        if let Some(at) = self.words.iter().position(|it| it.name == name) {
            return Some(self.words.remove(at).values);
        }
        let at = self.series.find(name)?;
        let counts = self.series.events.remove(at).counts.into_iter();
        let word = |it: f64| {
            if it.is_nan() {
                String::new()
            } else {
                it.to_string()
            }
        };
        Some(counts.map(word).collect())
    }

    /// Remarks, also on columns that are of no use any more.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        let words = self.words.drain(..);
        notes.extend(words.map(|it| format!("column '{}' holds words: left out", it.name)));
        notes
    }
}

/// Why a text can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// The file failed.
    #[error("{name}: cannot read it")]
    Read {
        /// Name of the file.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file has no content.
    #[error("{name}: no counts in it")]
    Empty {
        /// Name of the file.
        name: String,
    },
    /// A line does not match the others.
    #[error("{name}:{line}: {what}")]
    Line {
        /// Name of the file.
        name: String,
        /// From 1.
        line: usize,
        /// The problem.
        what: String,
        /// Advice to the user.
        hint: String,
    },
    /// Text without numbers.
    #[error(
        "{name}: neither output of 'perf stat -x,' or 'perf stat -j' nor a table with a column an event"
    )]
    Neither {
        /// Name of the file.
        name: String,
    },
}

impl CsvError {
    /// Advice to the user; `None` if there is none.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => None,
            Self::Line { hint, .. } => Some(hint.clone()),
            Self::Empty { .. } | Self::Neither { .. } => Some(
                "'perf stat -I 100 -x, -e EVENTS -o FILE CMD' writes one; a table has a line of names first".to_owned(),
            ),
        }
    }
}

/// Reads one file.
///
/// # Errors
/// If it is of neither kind, or damaged.
pub fn read(name: &str, input: impl BufRead) -> Result<Table, CsvError> {
    let mut lines = Lines {
        name,
        input,
        number: 0,
        held: None,
    };
    let Some(first) = lines.next_line()? else {
        return Err(CsvError::Empty {
            name: name.to_owned(),
        });
    };
    let form = perf_stat::Form::of(&first);
    if form.is_none() && first.trim_start().starts_with('{') {
        return Err(CsvError::Neither {
            name: name.to_owned(),
        });
    }
    lines.held = Some(first);
    match form {
        Some(form) => perf_stat::read(&mut lines, form),
        None => items::read(&mut lines),
    }
}

/// Lines with content: no remarks, no empty ones.
struct Lines<'a, R> {
    name: &'a str,
    input: R,
    number: usize,
    held: Option<String>,
}

impl<R: BufRead> Lines<'_, R> {
    fn next_line(&mut self) -> Result<Option<String>, CsvError> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = self.input.read_until(b'\n', &mut bytes);
            let count = read.map_err(|source| CsvError::Read {
                name: self.name.to_owned(),
                source,
            })?;
            if count == 0 {
                return Ok(None);
            }
            self.number += 1;
            let text = String::from_utf8_lossy(&bytes);
            let text = text
                .trim_start_matches('\u{feff}')
                .trim_end_matches(['\n', '\r']);
            if !text.trim().is_empty() && !text.trim_start().starts_with('#') {
                return Ok(Some(text.to_owned()));
            }
        }
    }

    fn error(&self, what: String, hint: &str) -> CsvError {
        CsvError::Line {
            name: self.name.to_owned(),
            line: self.number,
            what,
            hint: hint.to_owned(),
        }
    }
}

/// Puts the rows of several files below one another; an event that a file lacks was not counted there.
#[must_use]
pub fn join(tables: Vec<(String, Table)>) -> Table {
    let several = tables.len() > 1;
    let mut out = Table {
        is_timed: tables.iter().all(|it| it.1.is_timed),
        ..Table::default()
    };
    let mut rows = 0;
    for (name, mut table) in tables {
        let more = table.series.rows();
        let notes = table.take_notes();
        for event in table.series.events {
            let at = out.series.find(&event.name).unwrap_or_else(|| {
                out.series.events.push(Event {
                    name: event.name.clone(),
                    counts: vec![f64::NAN; rows],
                    running: Vec::new(),
                });
                out.series.events.len() - 1
            });
            let to = &mut out.series.events[at];
            to.counts.extend(event.counts);
            if !event.running.is_empty() || !to.running.is_empty() {
                to.running.resize(rows, 1.0);
                to.running.extend(event.running);
                to.running.resize(rows + more, 1.0);
            }
        }
        for event in &mut out.series.events {
            event.counts.resize(rows + more, f64::NAN);
            if !event.running.is_empty() {
                event.running.resize(rows + more, 0.0);
            }
        }
        for segment in table.series.segments {
            out.series.segments.push(Segment {
                name: if several {
                    format!("{name} {}", segment.name).trim_end().to_owned()
                } else {
                    segment.name
                },
                rows: segment.rows.start + rows..segment.rows.end + rows,
            });
        }
        let labels = (0..more).map(|row| match table.series.labels.get(row) {
            Some(label) if several => format!("{name}:{label}"),
            Some(label) => label.clone(),
            None if several => format!("{name}:{row}"),
            None => row.to_string(),
        });
        out.series.labels.extend(labels);
        out.notes.extend(notes.into_iter().map(|note| {
            if several {
                format!("{name}: {note}")
            } else {
                note
            }
        }));
        rows += more;
    }
    out
}

#[cfg(test)]
mod tests;
