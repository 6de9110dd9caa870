//! Parses a table: a line of names, then one line per item, one column per event.

use std::collections::HashMap;
use std::io::BufRead;

use super::fields::{SEPARATORS, is_missing, number, split};
use super::{CsvError, Lines, Table, Words};
use crate::series::{Event, Series};

/// Column names that identify the item.
const LABELS: [&str; 6] = ["id", "item", "item_id", "visit", "label", "name"];

pub(super) fn read<R: BufRead>(lines: &mut Lines<'_, R>) -> Result<Table, CsvError> {
    let neither = || CsvError::Neither {
        name: lines.name.to_owned(),
    };
    let header = lines.held.clone().unwrap_or_default();
    let separator = SEPARATORS
        .into_iter()
        .max_by_key(|&it| {
            (
                header.matches(it).count(),
                std::cmp::Reverse(SEPARATORS.iter().position(|x| *x == it)),
            )
        })
        .filter(|&it| header.contains(it))
        .ok_or_else(neither)?;
    let names = column_names(&split(&header, separator));
    if names.iter().all(|it| number(it, separator).is_some()) {
        return Err(neither());
    }
    let label = names
        .iter()
        .position(|name| LABELS.iter().any(|it| name.eq_ignore_ascii_case(it)));
    lines.next_line()?;
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    // The first word of each column with its line, and the fields of columns that have no number so far.
    let mut words: Vec<Option<(usize, String)>> = vec![None; names.len()];
    let mut texts: Vec<Option<Vec<String>>> = vec![Some(Vec::new()); names.len()];
    let mut labels = Vec::new();
    while let Some(line) = lines.next_line()? {
        let fields = split(&line, separator);
        if fields.len() != names.len() {
            return Err(other_fields(lines, fields.len(), names.len(), separator));
        }
        for (at, field) in fields.iter().enumerate() {
            if Some(at) == label {
                labels.push((*field).to_owned());
                continue;
            }
            let value = number(field, separator);
            if value.is_none() && !is_missing(field) && words[at].is_none() {
                words[at] = Some((lines.number, (*field).to_owned()));
            }
            columns[at].push(value.unwrap_or(f64::NAN));
            if value.is_some() {
                texts[at] = None;
            } else if let Some(texts) = &mut texts[at] {
                let is_missing = is_missing(field);
                texts.push(if is_missing {
                    String::new()
                } else {
                    (*field).to_owned()
                });
            }
        }
    }
    let (mut events, mut of_words) = (Vec::new(), Vec::new());
    for (at, (name, counts)) in names.into_iter().zip(columns).enumerate() {
        if Some(at) == label {
            continue;
        }
        match (&words[at], texts[at].take()) {
            // A column of words has no counts; a single word among numbers is damage.
            (Some(_), Some(values)) => of_words.push(Words { name, values }),
            (Some((line, word)), None) => {
                return Err(CsvError::Line {
                    name: lines.name.to_owned(),
                    line: *line,
                    what: format!("'{word}' is not a number, in column '{name}'"),
                    hint: "leave the field empty where nothing was counted".to_owned(),
                });
            }
            (None, _) => events.push(Event {
                name,
                counts,
                running: Vec::new(),
            }),
        }
    }
    let mut series = Series::of(events);
    if series.rows() == 0 {
        return Err(CsvError::Empty {
            name: lines.name.to_owned(),
        });
    }
    series.labels = labels;
    Ok(Table {
        series,
        is_timed: false,
        words: of_words,
        notes: Vec::new(),
    })
}

/// Names of columns: numbered where they have none, or one that was there before.
fn column_names(fields: &[&str]) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let name = |(at, field): (usize, &&str)| {
        let name = match *field {
            "" => format!("column {}", at + 1),
            field => field.to_owned(),
        };
        let count = seen.entry(name.clone()).or_insert(0);
        *count += 1;
        match *count {
            1 => name,
            count => format!("{name} #{count}"),
        }
    };
    fields.iter().enumerate().map(name).collect()
}

/// The error of a line with more or fewer fields than there are columns.
fn other_fields<R: BufRead>(
    lines: &Lines<'_, R>,
    fields: usize,
    columns: usize,
    separator: char,
) -> CsvError {
    let hint = match separator {
        ',' => "a decimal comma needs another separator, such as ';'",
        _ => "every line needs a field for each name of the first line",
    };
    lines.error(
        format!("{fields} fields, the line of names has {columns}"),
        hint,
    )
}
