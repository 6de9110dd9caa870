//! Tables of a trace as rows.

use std::collections::HashMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int64Type, UInt64Type};
use pebs_user::estimate::sketch::{Sketch, bucket};
use pebs_user::store::reader::{
    Trace, column_bool, column_f64, column_i64, column_str, column_u32, column_u64,
};
use pebs_user::store::schema::Table;

pub struct VisitRow {
    pub visit_id: u64,
    pub item_id: u64,
    pub duration_ns: i64,
    pub samples: u32,
    pub flags: u32,
}

pub fn visits(trace: &Trace) -> Vec<VisitRow> {
    let columns = ["visit_id", "item_id", "duration_ns", "samples", "flags"];
    let mut rows = Vec::new();
    for batch in trace.scan(Table::Visits, &columns).unwrap() {
        let batch = batch.unwrap();
        let (ids, items) = (
            column_u64(&batch, 0).unwrap(),
            column_u64(&batch, 1).unwrap(),
        );
        let durations = column_i64(&batch, 2).unwrap();
        let (samples, flags) = (
            column_u32(&batch, 3).unwrap(),
            column_u32(&batch, 4).unwrap(),
        );
        rows.extend((0..batch.num_rows()).map(|row| VisitRow {
            visit_id: ids.value(row),
            item_id: items.value(row),
            duration_ns: durations.value(row),
            samples: samples.value(row),
            flags: flags.value(row),
        }));
    }
    rows
}

/// Number of samples in the table, by visit.
pub fn samples_by_visit(trace: &Trace) -> HashMap<u64, u32> {
    let mut counts = HashMap::new();
    for batch in trace.scan(Table::Samples, &["visit_id"]).unwrap() {
        let batch = batch.unwrap();
        for visit in column_u64(&batch, 0).unwrap().iter().flatten() {
            *counts.entry(visit).or_default() += 1;
        }
    }
    counts
}

pub struct FunctionRow {
    pub visit_id: u64,
    pub function_id: u32,
    pub samples: u32,
    pub self_ns: f64,
}

pub fn functions(trace: &Trace) -> Vec<FunctionRow> {
    let columns = ["visit_id", "function_id", "samples", "self_ns"];
    let mut rows = Vec::new();
    for batch in trace.scan(Table::VisitFunctions, &columns).unwrap() {
        let batch = batch.unwrap();
        let (visits, ids) = (
            column_u64(&batch, 0).unwrap(),
            column_u32(&batch, 1).unwrap(),
        );
        let (samples, own) = (
            column_u32(&batch, 2).unwrap(),
            column_f64(&batch, 3).unwrap(),
        );
        rows.extend((0..batch.num_rows()).map(|row| FunctionRow {
            visit_id: visits.value(row),
            function_id: ids.value(row),
            samples: samples.value(row),
            self_ns: own.value(row),
        }));
    }
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
    /// The rows of a measure and function, of all intervals, as one.
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
    let columns = [
        "begin_ns",
        "measure",
        "function_id",
        "visits",
        "visits_with",
        "samples",
        "samples_squared",
        "sum_ns",
        "min_ns",
        "max_ns",
        "bucket_ns",
        "bucket_count",
        "loss",
    ];
    let mut rows = Vec::new();
    for batch in trace.scan(Table::FunctionStats, &columns).unwrap() {
        let batch = batch.unwrap();
        let number = |column, row| column_u64(&batch, column).unwrap().value(row);
        let float = |column, row| column_f64(&batch, column).unwrap().value(row);
        let functions = column_u32(&batch, 2).unwrap();
        let (middles, counts) = (
            batch.column(10).as_list::<i32>(),
            batch.column(11).as_list::<i32>(),
        );
        for row in 0..batch.num_rows() {
            assert!(!column_bool(&batch, 12).unwrap().value(row));
            let (middles, counts) = (middles.value(row), counts.value(row));
            let pairs = middles.as_primitive::<Int64Type>().values().iter();
            let pairs = pairs.zip(counts.as_primitive::<UInt64Type>().values());
            let mut sketch = Sketch::default();
            pairs.for_each(|(ns, count)| sketch.add_bucket(bucket(*ns as u64), *count));
            rows.push(Stat {
                begin_ns: column_i64(&batch, 0).unwrap().value(row),
                measure: column_str(&batch, 1).unwrap().value(row).to_owned(),
                function_id: functions.is_valid(row).then(|| functions.value(row)),
                visits: number(3, row),
                visits_with: number(4, row),
                samples: number(5, row),
                samples_squared: float(6, row),
                sum_ns: float(7, row),
                min_ns: float(8, row),
                max_ns: float(9, row),
                sketch,
            });
        }
    }
    rows
}
