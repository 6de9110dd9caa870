//! The truth that a workload logs. Formats: `workloads/README.md`.

use std::collections::BTreeMap;
use std::path::Path;

/// One item that a workload handled. Times are ns on `CLOCK_MONOTONIC`; `None`: not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemTruth {
    /// Item id.
    pub id: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Before the call of the probed function.
    pub before: Option<u64>,
    /// First instant inside it.
    pub enter: Option<u64>,
    /// Last instant inside it.
    pub leave: Option<u64>,
    /// After the call.
    pub after: Option<u64>,
}

/// A call of a function within an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTruth {
    /// The function.
    pub name: String,
    pub item: u64,
    /// Thread.
    pub tid: u32,
    /// Entered, ns on `CLOCK_MONOTONIC`.
    pub enter: u64,
    /// Left, ns on `CLOCK_MONOTONIC`.
    pub leave: u64,
}

/// The whole log of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Items handled to the end.
    pub items: Vec<ItemTruth>,
    /// Ids of items that began, whether or not they ended.
    pub begun: Vec<u64>,
    /// Calls within items.
    pub calls: Vec<CallTruth>,
    /// Named numbers.
    pub notes: BTreeMap<String, u64>,
}

impl Truth {
    /// Reads a truth file.
    ///
    /// # Panics
    /// If it cannot be read or has a line of an unknown form.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        Self::try_read(path).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Reads a truth file.
    ///
    /// # Errors
    /// It cannot be read or has a line of an unknown form.
    pub fn try_read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read the truth {}: {e}", path.display()))?;
        Self::parse(&text)
    }

    /// Parses truth lines. An incomplete last line (of a workload that was killed) is ignored.
    ///
    /// # Errors
    /// A line has an unknown form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut truth = Self::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let taken = truth.take_line(line);
            taken.ok_or_else(|| format!("not a line of truth: '{line}'"))?;
        }
        Ok(truth)
    }

    /// The item with that id.
    ///
    /// # Panics
    /// If there is no such item.
    #[must_use]
    pub fn item(&self, id: u64) -> &ItemTruth {
        self.items
            .iter()
            .find(|item| item.id == id)
            .unwrap_or_else(|| panic!("the truth has no item {id}"))
    }

    /// Ids of all items handled to the end, sorted.
    #[must_use]
    pub fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.items.iter().map(|item| item.id).collect();
        ids.sort_unstable();
        ids
    }

    fn take_line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words.get(n)?.parse::<u64>().ok();
        let thread = |n: usize| words.get(n)?.parse::<u32>().ok();
        let time = |n: usize| Some(number(n)?).map(|ns| (ns > 0).then_some(ns));
        match (*words.first()?, words.len()) {
            ("item", 8) => self.items.push(ItemTruth {
                id: number(1)?,
                pid: thread(2)?,
                tid: thread(3)?,
                before: time(4)?,
                enter: time(5)?,
                leave: time(6)?,
                after: time(7)?,
            }),
            ("begin", 5) => self.begun.push(number(1)?),
            ("call", 6) => self.calls.push(CallTruth {
                name: words[1].to_owned(),
                item: number(2)?,
                tid: thread(3)?,
                enter: number(4)?,
                leave: number(5)?,
            }),
            ("note", 3) => {
                self.notes.insert(words[1].to_owned(), number(2)?);
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of line is parsed, 0 is "unknown", and half a line is ignored.
    #[test]
    fn lines() {
        let truth = Truth::parse(
            "item 7 10 11 1 2 0 4\nbegin 8 10 11 5\ncall f3 7 11 2 3\nnote unwound 40\nitem 9 1",
        )
        .unwrap();
        assert_eq!(truth.ids(), [7]);
        assert_eq!(truth.item(7).leave, None);
        assert_eq!(truth.item(7).after, Some(4));
        assert_eq!(truth.begun, [8]);
        assert_eq!(truth.calls[0].name, "f3");
        assert_eq!(truth.notes["unwound"], 40);
    }

    /// A line of no known form is an error.
    #[test]
    fn unknown_line() {
        let error = Truth::parse("items 3\n").unwrap_err();
        assert_eq!(error, "not a line of truth: 'items 3'");
    }
}
