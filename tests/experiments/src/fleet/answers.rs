//! Answers of an engine to the questions about a lake, and whether two engines say the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::spark::Cluster;
use crate::frame::{installed, shell};

/// Largest relative difference of two numbers that are computed from the same sums in another order.
const SAME: f64 = 1e-9;

/// What `questions.py` prints.
#[derive(Deserialize)]
pub struct Answers {
    pub version: String,
    /// Until the views were there, s.
    pub begun_s: f64,
    /// That Spark's tasks read.
    pub bytes: Option<u64>,
    pub questions: BTreeMap<String, Answer>,
}

#[derive(Deserialize)]
pub struct Answer {
    pub seconds: f64,
    pub rows: Vec<Vec<Value>>,
}

impl Answers {
    /// Asks DuckDB, or a cluster.
    pub fn of(lake: &Path, tool: &Path, cluster: Option<&Cluster>) -> Result<Self> {
        let python = installed::spark().context("no pyspark")?;
        let questions = shell::workspace().join("tests/experiments/src/fleet/questions.sql");
        let mut command = Command::new(python);
        command.args(["-W", "ignore", "-c", include_str!("questions.py")]);
        command.arg(lake).arg(questions);
        command.env("PYTHONPATH", shell::workspace().join("pebs-user/python"));
        command.env("PEBS_TRACE", tool);
        if let Some(cluster) = cluster {
            cluster.used_by(&mut command);
            command.arg(cluster.address());
        }
        let text = shell::output(&mut command)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Seconds of all questions.
    pub fn seconds(&self) -> f64 {
        self.questions.values().map(|it| it.seconds).sum()
    }

    pub fn rows(&self, question: &str) -> Result<&[Vec<Value>]> {
        let answer = self.questions.get(question);
        Ok(&answer
            .with_context(|| format!("no question '{question}'"))?
            .rows)
    }

    /// Fails unless all rows are the same; returns how many there are of each question.
    pub fn same(&self, other: &Self) -> Result<Vec<(String, usize)>> {
        let names = |it: &Self| it.questions.keys().cloned().collect::<Vec<_>>();
        ensure!(names(self) == names(other), "other questions");
        let each = self.questions.iter().zip(other.questions.values());
        let compared = each.map(|((name, one), other)| {
            let rows = compare(&one.rows, &other.rows).with_context(|| name.clone())?;
            Ok((name.clone(), rows))
        });
        compared.collect()
    }
}

/// Columns of whole numbers and text are the key of a row.
fn keyed(rows: &[Vec<Value>]) -> Result<BTreeMap<String, Vec<f64>>> {
    let mut keyed = BTreeMap::new();
    for row in rows {
        let (floats, key): (Vec<&Value>, Vec<&Value>) = row.iter().partition(|it| it.is_f64());
        let floats = floats.into_iter().filter_map(Value::as_f64).collect();
        let key = serde_json::to_string(&key)?;
        if keyed.insert(key.clone(), floats).is_some() {
            bail!("two rows of {key}");
        }
    }
    Ok(keyed)
}

fn compare(one: &[Vec<Value>], other: &[Vec<Value>]) -> Result<usize> {
    let (one, other) = (keyed(one)?, keyed(other)?);
    ensure!(
        one.len() == other.len(),
        "{} rows and {}",
        one.len(),
        other.len()
    );
    for (key, numbers) in &one {
        let others = other.get(key).with_context(|| format!("no row {key}"))?;
        let is_same = |(a, b): (&f64, &f64)| (a - b).abs() <= SAME * a.abs().max(b.abs());
        let are_same = numbers.len() == others.len() && numbers.iter().zip(others).all(is_same);
        ensure!(are_same, "{key}: {numbers:?} and {others:?}");
    }
    Ok(one.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(value: &Value) -> Vec<Vec<Value>> {
        serde_json::from_value(value.clone()).unwrap()
    }

    /// Rows are the same in any order and up to rounding, and nothing else is.
    #[test]
    fn rows_of_two_engines() {
        let one = rows(&json!([["a", 1, 2.5], ["b", 2, 1e9]]));
        let other = rows(&json!([["b", 2, 1.000_000_000_1e9], ["a", 1, 2.5]]));
        assert_eq!(compare(&one, &other).unwrap(), 2);
        for wrong in [
            json!([["a", 1, 2.5]]),
            json!([["a", 1, 2.5], ["b", 3, 1e9]]),
            json!([["a", 1, 2.5], ["b", 2, 1.000_000_01e9]]),
            json!([["a", 1, 2.5], ["b", 2, null]]),
            json!([["a", 1, 2.5], ["a", 1, 2.5]]),
        ] {
            assert!(compare(&one, &rows(&wrong)).is_err(), "{wrong}");
        }
    }
}
