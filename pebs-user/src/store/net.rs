//! `visits.net_ns` and its error: written with the costs known by then, and recomputed when a segment is compacted.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_array::types::Int64Type;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::columns::{Column as _, Nullable};
use super::compacted::ChunkPages;
use super::prefix::Prefix;
use super::read_error::ReadError;
use super::schema::{visit_flag, visits};
use super::segment_error::SegmentError;
use super::view::{Named, Select as _, View as _, columns};
use crate::estimate::net::SampleCost;

/// Costs of a sample for items over the run. Shared: the trace writer's owner adds them, the compacting thread uses
/// them.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleCosts(Arc<Mutex<Vec<(u64, SampleCost)>>>);

impl SampleCosts {
    /// Sets the cost from this visit on.
    pub(super) fn change(&self, visit_id: u64, cost: SampleCost) {
        self.locked().push((visit_id, cost));
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<(u64, SampleCost)>> {
        // A panic elsewhere leaves the costs valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Recomputes the chunks of a row group of `visits` with the costs known now. `read` reads the group.
    ///
    /// Chunks of other tables are unchanged. Visits that overlap others are unchanged, too: their rows do not have
    /// the number of the others' samples.
    pub(super) fn finish(
        &self,
        chunks: &mut [ChunkPages],
        read: impl FnOnce() -> ParquetRecordBatchReaderBuilder<Prefix>,
    ) -> Result<(), SegmentError> {
        let costs = self.locked().clone();
        let place = |name| chunks.iter().position(|chunk| chunk.name() == name);
        let (Some(net), Some(stderr), Some((_, last))) = (place(NET), place(STDERR), costs.last())
        else {
            return Ok(());
        };
        let (mut nets, mut stderrs) = <(Nulled, Nulled)>::default();
        let reader = read();
        let mask =
            ProjectionMask::columns(reader.parquet_schema(), Finished::NAMES.iter().copied());
        let mut rows = 0;
        for batch in reader.with_projection(mask).build()? {
            let batch = batch?;
            rows += batch.num_rows() as u64;
            let (net, stderr) = finished(&batch, &costs, last)?;
            nets.extend(&net, |it| *it);
            stderrs.extend(&stderr, |it| *it);
        }
        for (place, column) in [(net, &mut nets), (stderr, &mut stderrs)] {
            chunks[place] = chunks[place].replaced(&column.end(), rows)?;
        }
        Ok(())
    }
}

/// Integers with null.
type Nulled = Nullable<Int64Type>;

const NET: &str = <visits::net_ns as Named>::NAME;
const STDERR: &str = <visits::net_stderr_ns as Named>::NAME;

/// Values of a nullable column.
type Numbers = Vec<Option<i64>>;

/// Net times of some visits, and their errors.
fn finished(
    batch: &RecordBatch,
    costs: &[(u64, SampleCost)],
    last: &SampleCost,
) -> Result<(Numbers, Numbers), ReadError> {
    let columns = Finished::of(batch)?;
    let row = |row: usize| {
        let (net, stderr) = (columns.net_ns.get(row), columns.net_stderr_ns.get(row));
        let number = u64::from(columns.samples[row]);
        let known = costs.partition_point(|(id, _)| *id <= columns.visit_id[row]);
        let was = known.checked_sub(1).and_then(|at| costs.get(at));
        let alone = columns.flags[row] & visit_flag::OVERLAPPED == 0;
        match (net, was) {
            (Some(net), Some((_, was))) if alone && number > 0 => {
                let change = was.of(number).round() - last.of(number).round();
                let stderr = last.stderr_of(number).round() as i64;
                (Some((net + change as i64).max(0)), Some(stderr))
            }
            _ => (net, stderr),
        }
    };
    Ok((0..batch.num_rows()).map(row).unzip())
}

columns! {
    struct Finished of visits { visit_id, samples, flags, net_ns, net_stderr_ns }
}
