//! `visits.net_ns` and its error, which are written with what is known by then and finished when a segment is compacted.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow::error::ArrowError;

use super::schema::visit_flag;
use crate::estimate::net::SampleCost;

/// What a sample was taken to take of items over the run. Shared: the writer's owner learns it, the thread that compacts
/// segments uses it.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleCosts(Arc<Mutex<Vec<(u64, SampleCost)>>>);

impl SampleCosts {
    /// From this visit on it is taken to be that.
    pub(super) fn change(&self, visit_id: u64, cost: SampleCost) {
        self.locked().push((visit_id, cost));
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<(u64, SampleCost)>> {
        // A panic elsewhere does not make costs wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rows of `visits` with the cost that is known now in place of the one that they were written with.
    ///
    /// Rows of other tables stay as they are. Visits that overlap others stay: how many samples others had meanwhile is not in their row.
    pub(super) fn finish(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let costs = self.locked().clone();
        let column = |name| batch.column_by_name(name).map(|it| it.as_any());
        let (Some(ids), Some(samples), Some(flags), Some(net), Some(stderr), Some((_, last))) = (
            column("visit_id").and_then(|it| it.downcast_ref::<UInt64Array>()),
            column("samples").and_then(|it| it.downcast_ref::<UInt32Array>()),
            column("flags").and_then(|it| it.downcast_ref::<UInt32Array>()),
            column("net_ns").and_then(|it| it.downcast_ref::<Int64Array>()),
            column("net_stderr_ns").and_then(|it| it.downcast_ref::<Int64Array>()),
            costs.last(),
        ) else {
            return Ok(batch.clone());
        };
        let finished = |row: usize| {
            let number = u64::from(samples.value(row));
            let was = costs.partition_point(|(id, _)| *id <= ids.value(row));
            let (_, was) = costs.get(was.checked_sub(1)?)?;
            let alone = flags.value(row) & visit_flag::OVERLAPPED == 0;
            let change = was.of(number).round() - last.of(number).round();
            (alone && number > 0 && net.is_valid(row)).then(|| {
                let net = (net.value(row) + change as i64).max(0);
                (net, last.stderr_of(number).round() as i64)
            })
        };
        let (mut nets, mut stderrs) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let (was, was_stderr) = (
                net.is_valid(row).then(|| net.value(row)),
                stderr.is_valid(row).then(|| stderr.value(row)),
            );
            let now = finished(row);
            nets.push(now.map(|it| it.0).or(was));
            stderrs.push(now.map(|it| it.1).or(was_stderr));
        }
        let mut columns = batch.columns().to_vec();
        for (name, values) in [("net_ns", nets), ("net_stderr_ns", stderrs)] {
            let place = batch.schema_ref().index_of(name)?;
            columns[place] = Arc::new(Int64Array::from(values)) as ArrayRef;
        }
        RecordBatch::try_new(batch.schema(), columns)
    }
}
