//! Finds rows that stand for the same work in all runs: equal shares of each class of items, and within a class evenly
//! spaced quantiles of the outcome.

use std::collections::BTreeMap;

use super::{Run, RunsError};
use crate::rank::LEAST_ROWS;

/// Most rows of a run: more would take time, and tell little more.
const MOST_ROWS: usize = 2_000;

/// A class of items that all runs have.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name; empty if there is only one.
    pub name: String,
    /// Its share of the rows of each run.
    pub share: f64,
}

/// Rows to use of each run.
pub(super) struct Aligned {
    pub(super) classes: Vec<Class>,
    /// For each run its rows, in their order.
    pub(super) rows: Vec<Vec<usize>>,
    /// Rows with an outcome that are not used.
    pub(super) left_out: usize,
}

/// The rows of each class of a run that have an outcome, by outcome; without those whose class is unknown.
fn by_class(run: &Run) -> BTreeMap<&str, Vec<usize>> {
    let mut classes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (row, outcome) in run.outcome.iter().enumerate() {
        let class = run.classes.get(row).map_or("", String::as_str);
        let is_known = run.classes.is_empty() || !class.is_empty();
        if outcome.is_finite() && is_known {
            classes.entry(class).or_default().push(row);
        }
    }
    for rows in classes.values_mut() {
        rows.sort_by(|&a, &b| run.outcome[a].total_cmp(&run.outcome[b]));
    }
    classes
}

/// Aligns runs: of each common class as large a share in every run, the share that it can have in all of them.
pub(super) fn align(runs: &[&Run]) -> Result<Aligned, RunsError> {
    let by_class: Vec<_> = runs.iter().map(|run| by_class(run)).collect();
    let count = |of: &BTreeMap<&str, Vec<usize>>, class: &str| of.get(class).map_or(0, Vec::len);
    let mut common: Vec<(&str, usize)> = Vec::new();
    let mut missing = None;
    for &class in by_class.iter().flat_map(BTreeMap::keys) {
        if common.iter().any(|it| it.0 == class) {
            continue;
        }
        let fewest = (0..runs.len()).min_by_key(|&run| count(&by_class[run], class));
        let Some(run) = fewest else { continue };
        match count(&by_class[run], class) {
            0 => missing = missing.or(Some((class, run))),
            rows => common.push((class, rows)),
        }
    }
    if common.is_empty() {
        return Err(match missing {
            Some((class, run)) if !class.is_empty() => RunsError::NoCommonClass {
                runs: runs.len(),
                class: class.to_owned(),
                name: runs[run].name.clone(),
            },
            _ => RunsError::TooFewRows {
                name: runs.first().map_or_else(String::new, |it| it.name.clone()),
                rows: 0,
            },
        });
    }
    let all: usize = common.iter().map(|it| it.1).sum();
    let classes: Vec<Class> = common
        .iter()
        .map(|&(name, rows)| Class {
            name: name.to_owned(),
            share: rows as f64 / all as f64,
        })
        .collect();
    let (mut rows, mut left_out) = (Vec::new(), 0);
    for (run, of_run) in runs.iter().zip(&by_class) {
        // The most rows with these shares.
        let most = classes
            .iter()
            .map(|class| count(of_run, &class.name) as f64 / class.share)
            .fold(MOST_ROWS as f64, f64::min);
        let mut used = Vec::new();
        for class in &classes {
            let Some(sorted) = of_run.get(class.name.as_str()) else {
                continue;
            };
            let wanted = ((most * class.share).round() as usize).clamp(1, sorted.len());
            used.extend((0..wanted).map(|it| sorted[(2 * it + 1) * sorted.len() / (2 * wanted)]));
        }
        if used.len() < LEAST_ROWS {
            return Err(RunsError::TooFewRows {
                name: run.name.clone(),
                rows: used.len(),
            });
        }
        used.sort_unstable();
        left_out += of_run.values().map(Vec::len).sum::<usize>() - used.len();
        rows.push(used);
    }
    Ok(Aligned {
        classes,
        rows,
        left_out,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, classes: &[(&str, usize)]) -> Run {
        let classes: Vec<String> = classes
            .iter()
            .flat_map(|&(class, rows)| vec![class.to_owned(); rows])
            .collect();
        Run {
            name: name.to_owned(),
            outcome: (0..classes.len()).rev().map(|it| it as f64).collect(),
            classes,
            ..Run::default()
        }
    }

    /// Every run has the same share of each class; a class that a run lacks is left out; quantiles are evenly spaced.
    #[test]
    fn shares_of_classes() {
        let a = run("a", &[("get", 300), ("set", 100), ("scan", 7)]);
        let b = run("b", &[("set", 50), ("get", 50)]);
        let aligned = align(&[&a, &b]).unwrap();
        let names: Vec<&str> = aligned.classes.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["get", "set"]);
        assert_eq!((aligned.rows[0].len(), aligned.rows[1].len()), (200, 100));
        let of_get = aligned.rows[0].iter().filter(|&&row| row < 300);
        let of_get: Vec<usize> = of_get.copied().collect();
        assert_eq!(of_get.len(), 100);
        assert!(of_get.windows(2).all(|it| it[1] - it[0] == 3), "{of_get:?}");
        assert_eq!(aligned.left_out, 207);
    }

    /// No common class, and too few rows of it.
    #[test]
    fn refused() {
        let (a, b) = (run("a", &[("get", 50)]), run("b", &[("set", 50)]));
        let error = align(&[&a, &b]).err().unwrap().to_string();
        assert_eq!(
            error,
            "no class of items is in all 2 runs: 'get' is not in b"
        );
        let c = run("c", &[("get", 39), ("set", 9)]);
        let error = align(&[&a, &c]).err().unwrap().to_string();
        assert!(error.starts_with("c: 39 rows of the common"), "{error}");
    }
}
