//! Differences between a visit and typical ones besides its time: counts, interrupts and faults.

use super::human::{UNKNOWN, count, plural, time};
use crate::compare::counts::{Counts, TypicalCounts};
use crate::compare::interrupts_and_faults::InterferenceRow;
use crate::store::schema::{InterferenceColumns, MAJOR_FAULTS};

/// Nouns of the counts, as in a report.
const NOUNS: [&str; 3] = ["switch", "migration", "page fault"];

/// Least ratio to the mean of typical visits for a count or an interruption to be named.
const STRIKING: f64 = 2.0;

/// Least part of a visit's duration of an interruption that is named.
const LEAST_PART: f64 = 0.01;

impl Counts {
    /// The counts that set this visit apart from typical ones, with their nouns.
    ///
    /// Switches are left out: waits are more informative.
    pub(crate) fn striking(&self, typical: &TypicalCounts) -> Vec<(u64, &'static str)> {
        let counts = self.values().into_iter().zip(typical.values()).zip(NOUNS);
        let strikes = |((count, typical), noun): ((Option<u32>, Option<f64>), &'static str)| {
            let count = count.filter(|&n| n > 0)?;
            let usual = STRIKING * typical.unwrap_or(0.0);
            (f64::from(count) > usual).then_some((u64::from(count), noun))
        };
        counts.skip(1).filter_map(strikes).collect()
    }
}

impl InterferenceColumns {
    /// Interruptions in which this visit exceeds typical ones; `rows`: those of its probe.
    pub(crate) fn striking(&self, duration_ns: i64, rows: &[InterferenceRow]) -> Vec<String> {
        let strikes = |(value, what): (Option<i64>, &'static str)| {
            let value = value.filter(|&it| it > 0)?;
            let row = rows.iter().find(|row| row.what == what);
            let usual = row.and_then(|row| row.typical).unwrap_or(0.0);
            let is_large =
                what == MAJOR_FAULTS || value as f64 >= LEAST_PART * duration_ns.max(0) as f64;
            (is_large && value as f64 > STRIKING * usual).then(|| amount(what, value))
        };
        let values = self.values().into_iter().zip(Self::WORDS);
        values.filter_map(strikes).collect()
    }

    /// All interruptions recorded for its probe, beside typical values; empty: not recorded.
    pub(crate) fn beside(&self, rows: &[InterferenceRow]) -> String {
        let values = self.values();
        let texts = rows.iter().map(|row| {
            let at = Self::WORDS.iter().position(|what| *what == row.what);
            let own = match at.and_then(|at| values[at]) {
                Some(value) => amount(row.what, value),
                None => format!("{} {UNKNOWN}", row.what),
            };
            format!("{own} (typical {})", row.mean(row.typical))
        });
        texts.collect::<Vec<_>>().join(", ")
    }
}

impl InterferenceRow {
    /// A mean as text.
    pub(crate) fn mean(&self, value: Option<f64>) -> String {
        match value {
            None => UNKNOWN.to_owned(),
            Some(value) if self.what == MAJOR_FAULTS && value >= 100.0 => {
                count(value.round() as u64)
            }
            Some(value) if self.what == MAJOR_FAULTS => format!("{value:.2}"),
            Some(ns) => time(ns),
        }
    }
}

/// `interrupts 12.0 us`, `2 major faults`
fn amount(what: &str, value: i64) -> String {
    if what == MAJOR_FAULTS {
        return plural(value.max(0).unsigned_abs(), "major fault");
    }
    format!("{what} {}", time(value as f64))
}
