//! The rows of `samples`, which come in blocks of columns.

use super::SampleColumns;
use super::batched::{Batched, Waiting};
use crate::store::samples::{BLOCK_ROWS, Common, Part, SampleBlock};
use crate::store::schema::SampleRow;

/// The table. Rows that come one by one wait in a block.
pub(in crate::store) type Samples = Batched<SampleColumns, SampleBlock>;

impl Samples {
    /// Appends a row.
    pub(in crate::store) fn push(&mut self, row: &SampleRow) {
        self.wait(BLOCK_ROWS, |rows| rows.push(row));
    }

    /// Appends rows of a block.
    pub(in crate::store) fn extend(&mut self, part: &Part<'_>) {
        self.add(|columns| columns.extend(part));
    }
}

impl SampleColumns {
    /// One column after the other.
    fn extend(&mut self, part: &Part<'_>) {
        self.rows += part.times.len();
        self.time_ns.extend(part.times, |time| time.0);
        self.function_id.extend(part.functions, |id| id.0);
        self.ip.extend_at(part.ips, part.slots);
        for run in part
            .runs
            .chunk_by(|(a, _), (b, _)| a.visit_id == b.visit_id)
        {
            if let Some((common, rows)) = whole(run) {
                self.visit_id.repeat(common.visit_id, rows);
            }
        }
        // Visits of one thread come one after the other: what else their samples have in common changes seldom.
        for run in part.runs.chunk_by(|(a, _), (b, _)| a.is_like(b)) {
            let Some((common, rows)) = whole(run) else {
                continue;
            };
            self.tid.repeat(common.tid.0, rows);
            self.cpu.repeat(common.cpu.known(), rows);
            self.event.repeat(common.event.0, rows);
            self.flags.repeat(common.flags, rows);
            self.stack_id.repeat(common.stack_id.map(|id| id.0), rows);
        }
    }
}

/// What runs that are alike have in common, and how many rows there are of it.
#[inline(always)]
fn whole(runs: &[(Common, usize)]) -> Option<(&Common, usize)> {
    let (common, _) = runs.first()?;
    Some((common, runs.iter().map(|(_, rows)| rows).sum()))
}

impl Waiting<SampleColumns> for SampleBlock {
    #[inline]
    fn len(&self) -> usize {
        self.rows()
    }

    fn add_to(&self, columns: &mut SampleColumns) {
        self.parts().for_each(|part| columns.extend(&part));
    }

    fn clear(&mut self) {
        self.clear();
    }
}
