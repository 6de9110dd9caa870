//! Reads tables of a trace as rows.

use std::collections::HashMap;

use pebs_user::estimate::sketch::{Sketch, bucket};
use pebs_user::store::reader::Trace;
use pebs_user::store::schema::{self, VisitFunctionRow, VisitRow};

pub fn visits(trace: &Trace) -> Vec<VisitRow> {
    let mut rows = Vec::new();
    schema::visits::each(trace, |row| rows.push(row)).unwrap();
    rows
}

/// Number of samples in the table, by visit.
pub fn samples_by_visit(trace: &Trace) -> HashMap<u64, u32> {
    let mut counts = HashMap::new();
    schema::samples::each(trace, |row| {
        if let Some(visit) = row.visit_id {
            *counts.entry(visit).or_default() += 1;
        }
    })
    .unwrap();
    counts
}

pub fn functions(trace: &Trace) -> Vec<VisitFunctionRow> {
    let mut rows = Vec::new();
    schema::visit_functions::each(trace, |row| rows.push(row)).unwrap();
    rows
}

/// A row of `function_stats`, or several merged.
pub struct Stat {
    pub begin_ns: i64,
    measure: String,
    function_id: Option<u32>,
    pub visits: u64,
    pub visits_with: u64,
    pub samples: u64,
    pub samples_squared: f64,
    pub sum_ns: f64,
    pub min_ns: f64,
    pub max_ns: f64,
    sketch: Sketch,
}

impl Stat {
    /// Merges the rows of a measure and function over all intervals.
    pub fn merged(stats: &[Self], measure: &str, function_id: Option<u32>) -> Self {
        let mut rows = stats
            .iter()
            .filter(|stat| stat.measure == measure && stat.function_id == function_id);
        let mut sum = rows.next().unwrap().copied();
        for row in rows {
            sum.visits += row.visits;
            sum.visits_with += row.visits_with;
            sum.samples += row.samples;
            sum.samples_squared += row.samples_squared;
            sum.sum_ns += row.sum_ns;
            sum.min_ns = sum.min_ns.min(row.min_ns);
            sum.max_ns = sum.max_ns.max(row.max_ns);
            sum.sketch.merge(&row.sketch);
        }
        sum
    }

    fn copied(&self) -> Self {
        Self {
            measure: self.measure.clone(),
            sketch: self.sketch.clone(),
            ..*self
        }
    }

    pub fn quantile(&self, share: f64) -> f64 {
        self.sketch.quantile(share).unwrap() as f64
    }
}

pub fn stats(trace: &Trace) -> Vec<Stat> {
    let mut rows = Vec::new();
    schema::function_stats::each(trace, |row| {
        assert!(!row.loss);
        let mut sketch = Sketch::default();
        let buckets = row.bucket_ns.iter().zip(&row.bucket_count);
        buckets.for_each(|(ns, count)| sketch.add_bucket(bucket(*ns as u64), *count));
        rows.push(Stat {
            begin_ns: row.begin_ns.0,
            measure: row.measure.to_owned(),
            function_id: row.function_id.map(|id| id.0),
            visits: row.visits,
            visits_with: row.visits_with,
            samples: row.samples.unwrap_or(0),
            samples_squared: row.samples_squared.unwrap_or(0.0),
            sum_ns: row.sum_ns.unwrap_or(0.0),
            min_ns: row.min_ns.unwrap_or(0.0),
            max_ns: row.max_ns.unwrap_or(0.0),
            sketch,
        });
    })
    .unwrap();
    rows
}
