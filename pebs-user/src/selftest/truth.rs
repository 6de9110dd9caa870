//! The log of a workload: the items it handled, and the functions it ran, with times.
//!
//! Lines of words; times in ns on `CLOCK_MONOTONIC`. `tests/workloads/README.md` has the same:
//!
//! | line | meaning |
//! |---|---|
//! | `item ID PID TID BEFORE ENTER LEAVE AFTER` | BEFORE and AFTER were read by the caller of the probed function, ENTER and LEAVE inside it; 0: not known |
//! | `call FUNC ID TID ENTER LEAVE` | within item ID, FUNC ran from ENTER to LEAVE |
//! | `begin ID PID TID BEFORE` | an item whose end may never come |
//! | `note NAME NUMBER` | anything else |
//! | `disturbed ID NS` | something else stopped item ID for so long |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::failure::Hint;

/// Note of the log: how far its times may be from `CLOCK_MONOTONIC`, ns.
pub(crate) const CLOCK_NOTE: &str = "clock_error_ns";

/// Note of the log: duration of one note of a call, ns.
pub(crate) const STAMP_NOTE: &str = "stamp_ns";

/// Note of the log: duration of an interrupt of a function, ns: most are samples.
pub(crate) const STOP_NOTE: &str = "stop_ns";

/// Note of the log: share of functions' time in interrupts, millionths.
pub(crate) const STOPPED_NOTE: &str = "stopped_millionths";

/// Note of the log: the largest memory of the workload, KiB.
pub(crate) const PEAK_NOTE: &str = "peak_kib";

/// A log that can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TruthError {
    /// The file.
    #[error("cannot read the workload's log {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    #[error("{}:{line}: not a truth line: '{text}'", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number from 1.
        line: usize,
        /// Text of the line.
        text: String,
    },
}

impl Hint for TruthError {
    fn hint(&self) -> Option<String> {
        None
    }
}

/// One item that was handled. Times are ns on `CLOCK_MONOTONIC`; `None`: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ItemTruth {
    /// Item id.
    pub id: u64,
    /// Thread that handled it.
    pub tid: u32,
    /// Before the call of the probed function.
    pub before: Option<i64>,
    /// First instant inside it.
    pub enter: Option<i64>,
    /// Last instant inside it.
    pub leave: Option<i64>,
    /// After the call.
    pub after: Option<i64>,
    /// Something else (a long interrupt, the hypervisor) stopped it.
    pub disturbed: bool,
    /// Calls of functions within it, by time.
    pub calls: Vec<CallTruth>,
}

/// A call of a function: ns on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallTruth {
    /// Index in [`Truth::functions`].
    pub function: usize,
    /// Entered.
    pub enter: i64,
    /// Left.
    pub leave: i64,
}

/// The whole log of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    /// Items by id.
    pub items: BTreeMap<u64, ItemTruth>,
    /// Names of functions that were called within items.
    pub functions: Vec<String>,
    /// Named numbers.
    pub notes: BTreeMap<String, i64>,
}

impl Truth {
    /// Reads a log.
    ///
    /// # Errors
    /// If it can't be read or has a line of an unknown form.
    pub(crate) fn read(path: &Path) -> Result<Self, TruthError> {
        let text = std::fs::read_to_string(path).map_err(|source| TruthError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut truth = Self::default();
        for (n, line) in text.lines().enumerate() {
            truth.take_line(line).ok_or_else(|| TruthError::Line {
                path: path.to_owned(),
                line: n + 1,
                text: line.to_owned(),
            })?;
        }
        // A call may be logged before its item, and an item may be unknown.
        truth.items.retain(|_, item| item.after.is_some());
        for item in truth.items.values_mut() {
            item.calls.sort_by_key(|call| call.enter);
        }
        Ok(truth)
    }

    fn take_line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words.get(n)?.parse::<i64>().ok();
        let time = |n: usize| number(n).map(|ns| (ns > 0).then_some(ns));
        let id = |n: usize| words.get(n)?.parse::<u64>().ok();
        match (*words.first()?, words.len()) {
            ("item", 8) => {
                let item = self.items.entry(id(1)?).or_default();
                item.id = id(1)?;
                item.tid = words[3].parse().ok()?;
                item.before = time(4)?;
                item.enter = time(5)?;
                item.leave = time(6)?;
                item.after = time(7)?;
            }
            ("call", 6) => {
                let call = CallTruth {
                    function: self.function(words[1]),
                    enter: number(4)?,
                    leave: number(5)?,
                };
                self.items.entry(id(2)?).or_default().calls.push(call);
            }
            ("begin", 5) => {}
            ("disturbed", 3) => self.items.entry(id(1)?).or_default().disturbed = true,
            ("note", 3) => {
                self.notes.insert(words[1].to_owned(), number(2)?);
            }
            _ => return None,
        }
        Some(())
    }

    fn function(&mut self, name: &str) -> usize {
        let known = self.functions.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.functions.push(name.to_owned());
            self.functions.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Truth, TruthError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Truth::read(file.path())
    }

    /// Items come with their calls by time, whatever the order of lines; 0 is "not known".
    #[test]
    fn lines() {
        let truth = read(
            "call g 7 11 5 6\ncall f 7 11 2 3\nitem 7 10 11 1 0 7 9\nbegin 8 10 11 5\nnote n 4\n",
        )
        .unwrap();
        assert_eq!(truth.functions, ["g", "f"]);
        let item = &truth.items[&7];
        assert_eq!((item.before, item.enter), (Some(1), None));
        assert_eq!((item.leave, item.after), (Some(7), Some(9)));
        let order: Vec<usize> = item.calls.iter().map(|call| call.function).collect();
        assert_eq!(order, [1, 0]);
        assert_eq!(truth.notes["n"], 4);
        assert_eq!(truth.items.len(), 1);
    }

    /// A line of no known form is named.
    #[test]
    fn unknown_line() {
        let error = read("note a 1\nitems 3\n").unwrap_err().to_string();
        assert!(error.contains(":2: not a truth line: 'items 3'"), "{error}");
    }
}
