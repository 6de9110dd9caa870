//! Size of a long trace, and the benefit of a separate table with the time of every function in every visit: "p50
//! and p99 of self time per function" queried from that table, and from the samples.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::sizes::Sizes;
use crate::frame::verdict::word;
use crate::frame::{installed, shell};

/// Records to make: 50 million samples, and the marks and switches between them.
const RECORDS: &str = "lengths=5.6e7";

/// The answer from the table takes at most this part of the time that it takes from samples.
const MOST_TIME: f64 = 0.1;

/// A function's p50 and p99 differ by this much at most between the two.
const MOST_DIFFERENCE: f64 = 0.01;

/// The kinds of queries, as in `queries.py`.
const TABLE: &str = "visit_functions";
const SAMPLES: &str = "samples";
const COUNTS: &str = "counts of samples";

/// Records the trace, runs the queries, prints a table, and returns whether all is within its limits.
pub fn compare(dir: &Path, rounds: usize) -> Result<bool> {
    let Some(python) = installed::readers() else {
        println!("SKIP queries: no DuckDB; see cargo xtask setup");
        return Ok(true);
    };
    fs::create_dir_all(dir)?;
    let trace = dir.join("long");
    if trace.exists() {
        fs::remove_dir_all(&trace)?;
    }
    let mut command = shell::cargo(&["bench", "--package", "pebs-trace", "--bench", "stages"]);
    command.args(["--", RECORDS]);
    shell::run(command.arg(format!("trace={}", trace.display())))?;
    eprintln!("bench: asking DuckDB, {rounds} rounds");
    let mut command = Command::new(python);
    command.args(["-c", include_str!("queries.py")]).arg(&trace);
    let text = shell::output(command.arg(rounds.to_string()))?;
    let found: Value = serde_json::from_str(&text)?;
    let (text, is_within) = table(&found, &Sizes::of(&trace)?, rounds)?;
    println!("{text}\ntrace: {}", trace.display());
    Ok(is_within)
}

/// The table for printing, and whether all is within its limits.
fn table(found: &Value, sizes: &Sizes, rounds: usize) -> Result<(String, bool)> {
    let samples = found["samples"].as_f64().context("no samples")?;
    let (size, mut is_within) = sizes.describe(samples);
    let mut text = format!(
        "a trace of {:.1} million samples: {size}\n\
         p50 and p99 of self time per function, DuckDB {}, one thread, CPU time, best of {rounds}\n",
        samples / 1e6,
        found["duckdb"].as_str().unwrap_or_default(),
    );
    let table = Answer::of(found, TABLE)?;
    text += &format!("  from {TABLE:<18} {:>7.2} s\n", table.seconds);
    for name in [SAMPLES, COUNTS] {
        let answer = Answer::of(found, name)?;
        let part = table.seconds / answer.seconds;
        let (p50, p99) = table.difference(&answer)?;
        text += &format!(
            "  from {name:<18} {:>7.2} s: the table takes 1/{:.1} of it; p50 differs by {:.1} % at most, p99 by {:.1} %",
            answer.seconds,
            1.0 / part,
            p50 * 100.0,
            p99 * 100.0
        );
        // Counts are a different estimate, which need not be equal.
        if name == SAMPLES {
            let ok = part <= MOST_TIME && p50.max(p99) <= MOST_DIFFERENCE;
            text += &format!(
                " (limits 1/{:.0}, {:.0} %): {}",
                1.0 / MOST_TIME,
                MOST_DIFFERENCE * 100.0,
                word(ok)
            );
            is_within &= ok;
        }
        text.push('\n');
    }
    Ok((text, is_within))
}

/// Result of one kind of query.
struct Answer {
    seconds: f64,
    /// Function, p50, p99.
    rows: Vec<(u64, f64, f64)>,
}

impl Answer {
    fn of(found: &Value, name: &str) -> Result<Self> {
        let way = &found["ways"][name];
        let row = |row: &Value| Some((row[0].as_u64()?, row[1].as_f64()?, row[2].as_f64()?));
        let rows = way["rows"].as_array().context("no rows")?;
        let rows: Option<_> = rows.iter().map(row).collect();
        Ok(Self {
            seconds: way["seconds"].as_f64().context("no time")?,
            rows: rows.context("a quantile is unknown")?,
        })
    }

    /// Largest relative differences of p50 and p99.
    ///
    /// # Errors
    /// If the functions are not the same.
    fn difference(&self, other: &Self) -> Result<(f64, f64)> {
        let functions = |answer: &Self| answer.rows.iter().map(|row| row.0).collect::<Vec<_>>();
        anyhow::ensure!(functions(self) == functions(other), "other functions");
        let pairs = || self.rows.iter().zip(&other.rows);
        let most =
            |parts: &mut dyn Iterator<Item = f64>| parts.fold(0.0, |a: f64, b| a.max(b.abs()));
        Ok((
            most(&mut pairs().map(|(a, b)| b.1 / a.1 - 1.0)),
            most(&mut pairs().map(|(a, b)| b.2 / a.2 - 1.0)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(seconds: f64, p99: f64) -> Value {
        let way = |seconds, p99| json!({"seconds": seconds, "rows": [[0, 100.0, 200.0], [1, 100.0, p99]]});
        json!({"duckdb": "1.0", "samples": 100, "ways": {
            TABLE: way(1.0, 400.0), SAMPLES: way(seconds, p99), COUNTS: way(5.0, 999.0)}})
    }

    /// Each limit alone decides: the time, the values, the size.
    #[test]
    fn limits() {
        let is_within = |found: &Value, size| table(found, &Sizes([size, 100, 100]), 3).unwrap().1;
        let good = found(11.0, 403.0);
        assert!(is_within(&good, 400));
        assert!(!is_within(&good, 401));
        assert!(!is_within(&found(9.0, 403.0), 400));
        assert!(!is_within(&found(11.0, 500.0), 400));
        let (text, _) = table(&good, &Sizes([100, 200, 0]), 3).unwrap();
        assert!(
            text.contains(
                "3.00 bytes each (samples 1.00, visit_functions 2.00, visits 0.00; limit 6): ok"
            ),
            "{text}"
        );
    }

    /// Other functions are no answer.
    #[test]
    fn other_functions() {
        let mut other = found(11.0, 403.0);
        other["ways"][SAMPLES]["rows"][1][0] = json!(7);
        assert!(table(&other, &Sizes([1, 1, 1]), 3).is_err());
    }
}
