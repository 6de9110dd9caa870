//! Writes the rows of `samples`, which come in blocks of columns.

use super::batched::{Batched, Waiting};
use crate::store::row_columns::Extend;
use crate::store::samples::{BLOCK_ROWS, Common, Part, SampleBlock};
use crate::store::schema::{SampleColumns, SampleRow};
use crate::units::StackId;

/// The table. Single rows wait in a block.
pub(in crate::store) type Samples = Batched<SampleColumns, SampleBlock>;

impl Extend<SampleRow> for Samples {
    fn extend(&mut self, rows: &[SampleRow]) {
        for row in rows {
            self.wait(BLOCK_ROWS, |block| block.push(row));
        }
    }
}

impl Samples {
    /// Appends rows of a block.
    pub(in crate::store) fn extend_part(&mut self, part: &Part<'_>) {
        self.add(|columns| columns.extend_part(part));
    }
}

impl SampleColumns {
    /// Appends the rows, one column after another.
    fn extend_part(&mut self, part: &Part<'_>) {
        self.rows += part.times.len();
        self.time_ns.extend(part.times, |time| time.0);
        self.function_id.extend(part.functions, |id| id.0);
        self.ip.extend_at(part.ips, part.slots);
        let runs = part.runs;
        repeated(runs, |it| it.visit_id, |id, n| self.visit_id.repeat(id, n));
        repeated(runs, |it| it.tid, |tid, n| self.tid.repeat(tid.known(), n));
        repeated(runs, |it| it.cpu, |cpu, n| self.cpu.repeat(cpu.known(), n));
        repeated(runs, |it| it.event, |it, n| self.event.repeat(it.0, n));
        repeated(runs, |it| it.flags, |flags, n| self.flags.repeat(flags, n));
        let mut stacks = |id: Option<StackId>, n| self.stack_id.repeat(id.map(|id| id.0), n);
        repeated(runs, |it| it.stack_id, &mut stacks);
    }
}

/// Joins adjacent runs of equal values; passes each value and its number of rows to `take`.
#[inline(always)]
fn repeated<T: PartialEq>(
    runs: &[(Common, usize)],
    value: impl Fn(&Common) -> T,
    mut take: impl FnMut(T, usize),
) {
    let mut runs = runs.iter().map(|(common, times)| (value(common), *times));
    let Some((mut last, mut times)) = runs.next() else {
        return;
    };
    for (value, more) in runs {
        if value == last {
            times += more;
        } else {
            take(
                std::mem::replace(&mut last, value),
                std::mem::replace(&mut times, more),
            );
        }
    }
    take(last, times);
}

impl Waiting<SampleColumns> for SampleBlock {
    #[inline]
    fn len(&self) -> usize {
        self.rows()
    }

    fn add_to(&self, columns: &mut SampleColumns) {
        self.parts().for_each(|part| columns.extend_part(&part));
    }

    fn clear(&mut self) {
        self.clear();
    }
}
