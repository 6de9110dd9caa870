//! Parses `marks.csv`, a table of where items begin and end.
//!
//! ```text
//! time_ns,tid,mark,item_id
//! 2202936836000,16829,begin,1000
//! 2202937123000,16829,end,1000
//! ```
//!
//! `time_ns` is on the recording's clock, as `perf script --ns -F time` prints it, in ns; `mark` is `begin` or `end`.
//! `item_id` is optional, as a column and in each row: marks are matched by it if all have one, else by thread. Columns
//! may come in any order; others are ignored.

use crate::failure::Hint;
use crate::store::run::VisitRule;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkRow {
    /// ns on the recording's clock.
    pub time: u64,
    pub tid: u32,
    /// `true`: begin; `false`: end.
    pub begin: bool,
    pub id: Option<u64>,
}

/// Marks, sorted by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub Vec<MarkRow>);

impl Marks {
    /// The rule that pairs begins and ends.
    #[must_use]
    pub fn rule(&self) -> VisitRule {
        if !self.0.is_empty() && self.0.iter().all(|mark| mark.id.is_some()) {
            VisitRule::ById
        } else {
            VisitRule::ByThread
        }
    }

    /// Whether some have an id.
    #[must_use]
    pub fn has_id(&self) -> bool {
        self.0.iter().any(|mark| mark.id.is_some())
    }
}

/// A malformed table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MarksError {
    /// A required column is missing.
    #[error("no column '{missing}' in the first line: '{line}'")]
    NoColumn { missing: &'static str, line: String },
    /// The first line names a column twice.
    #[error("two columns '{column}' in the first line")]
    Twice { column: &'static str },
    /// A value has the wrong type.
    #[error("line {line}: {column} is '{value}', not {wanted}")]
    BadValue {
        /// Number of the line, from 1.
        line: usize,
        column: &'static str,
        /// The cell's text, at most 40 characters.
        value: String,
        wanted: &'static str,
    },
    /// The table has no rows.
    #[error("no mark in it")]
    Empty,
}

impl Hint for MarksError {
    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::NoColumn { .. } | Self::Twice { .. } | Self::Empty => {
                    "the first line is 'time_ns,tid,mark,item_id', each other one a mark: '2202936836000,16829,begin,1000'"
                }
                Self::BadValue { column, .. } if *column == TIME => {
                    "times are ns on the recording's clock: 'perf script --ns -F time,tid,event' shows them in seconds"
                }
                Self::BadValue { .. } => "mark is begin or end; tid and item_id are whole numbers",
            }
            .to_owned(),
        )
    }
}

const TIME: &str = "time_ns";

/// Indices of the columns.
struct Columns {
    time: usize,
    tid: usize,
    mark: usize,
    id: Option<usize>,
}

impl Columns {
    fn read(line: &str) -> Result<Self, MarksError> {
        let names: Vec<&str> = cells(line).collect();
        let place = |column: &'static str| {
            let named = |name: &(usize, &&str)| name.1.eq_ignore_ascii_case(column);
            let mut found = names.iter().enumerate().filter(named).map(|(at, _)| at);
            match (found.next(), found.next()) {
                (_, Some(_)) => Err(MarksError::Twice { column }),
                (first, None) => Ok(first),
            }
        };
        let needed = |missing: &'static str| {
            place(missing)?.ok_or_else(|| MarksError::NoColumn {
                missing,
                line: line.chars().take(80).collect(),
            })
        };
        Ok(Self {
            time: needed(TIME)?,
            tid: needed("tid")?,
            mark: needed("mark")?,
            id: place("item_id")?,
        })
    }

    fn row(&self, number: usize, line: &str) -> Result<MarkRow, MarksError> {
        let cell = |column: usize| cells(line).nth(column).unwrap_or_default();
        let bad = |column, place, wanted| MarksError::BadValue {
            line: number,
            column,
            value: cell(place).chars().take(40).collect(),
            wanted,
        };
        let id = self.id.map(cell).filter(|text| !text.is_empty());
        let id = id.map(|text| text.parse().ok().or_else(|| signed(text)));
        Ok(MarkRow {
            time: cell(self.time)
                .parse()
                .map_err(|_| bad(TIME, self.time, "a number of ns"))?,
            tid: cell(self.tid)
                .parse()
                .map_err(|_| bad("tid", self.tid, "a thread id"))?,
            begin: match cell(self.mark) {
                "begin" => true,
                "end" => false,
                _ => return Err(bad("mark", self.mark, "begin or end")),
            },
            id: match (id, self.id) {
                (Some(None), Some(place)) => return Err(bad("item_id", place, "a number")),
                (id, _) => id.flatten(),
            },
        })
    }
}

/// Parses a negative id; it is stored as its 64-bit two's complement.
fn signed(text: &str) -> Option<u64> {
    text.parse::<i64>().ok().map(i64::cast_unsigned)
}

fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|cell| cell.trim().trim_matches('"'))
}

/// Parses a table.
///
/// # Errors
/// If a column is missing or a value is malformed; no row is skipped.
pub(crate) fn parse(text: &str) -> Result<Marks, MarksError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = (1..).zip(text.lines());
    let mut lines = lines.by_ref().filter(|(_, line)| !line.trim().is_empty());
    let (_, first) = lines.next().ok_or(MarksError::Empty)?;
    let columns = Columns::read(first)?;
    let rows: Result<Vec<MarkRow>, MarksError> = lines
        .map(|(number, line)| columns.row(number, line))
        .collect();
    let mut rows = rows?;
    if rows.is_empty() {
        return Err(MarksError::Empty);
    }
    rows.sort_by_key(|mark| mark.time);
    Ok(Marks(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(time: u64, begin: bool, id: Option<u64>) -> MarkRow {
        MarkRow {
            time,
            tid: 7,
            begin,
            id,
        }
    }

    /// Columns in any order, unknown ones between them, ids where present; rows come out sorted by time.
    #[test]
    fn tables() {
        let text =
            "mark, tid, note, TIME_NS, item_id\r\nend,7,x,20,-1\r\n\r\n\"begin\",7,y,10,5\r\n";
        let marks = parse(text).unwrap();
        let expected = [mark(10, true, Some(5)), mark(20, false, Some(u64::MAX))];
        assert_eq!(marks.0, expected);
        assert_eq!(marks.rule(), VisitRule::ById);
        let plain = parse("time_ns,tid,mark\n10,7,begin\n").unwrap();
        assert_eq!(plain.0, [mark(10, true, None)]);
        assert_eq!((plain.rule(), plain.has_id()), (VisitRule::ByThread, false));
    }

    /// Malformed input is an error with its place and a hint.
    #[test]
    fn faults() {
        let cases = [
            ("", "no mark in it"),
            ("time_ns,tid,mark\n", "no mark in it"),
            (
                "ts,tid,mark\n1,2,begin\n",
                "no column 'time_ns' in the first line: 'ts,tid,mark'",
            ),
            (
                "time_ns,tid,TIME_NS,mark\n1,2,3,begin\n",
                "two columns 'time_ns' in the first line",
            ),
            (
                "time_ns,tid,mark\n1,2,start\n",
                "line 2: mark is 'start', not begin or end",
            ),
            (
                "time_ns,tid,mark\n1.5,2,end\n",
                "line 2: time_ns is '1.5', not a number of ns",
            ),
            (
                "time_ns,tid,mark\n1,,end\n",
                "line 2: tid is '', not a thread id",
            ),
            (
                "time_ns,tid,mark,item_id\n1,2,end,a\n",
                "line 2: item_id is 'a', not a number",
            ),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(error.hint().is_some());
        }
    }
}
