//! The rows of `samples`, which come visit by visit and go to the columns by the thousand.

use super::SampleColumns;
use super::batched::{Batched, Waiting};
use crate::store::schema::{SampleRow, SamplesOf};
use crate::symbolize::Slot;
use crate::units::{Cpu, EventId, FunctionId, Ip, StackId, Tid};

/// Rows that wait before they are added to columns: few enough for the L1 cache, a column at a time.
const BATCH_ROWS: usize = 1024;

/// What samples that follow one another have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Common {
    visit_id: Option<u64>,
    tid: Tid,
    cpu: Cpu,
    event: EventId,
    flags: u32,
    stack_id: Option<StackId>,
}

/// The table.
pub(in crate::store) type Samples = Batched<SampleColumns, SampleRows>;

/// Rows that wait.
#[derive(Debug, Default)]
pub(in crate::store) struct SampleRows {
    times: Vec<i64>,
    functions: Vec<u32>,
    ips: Vec<u64>,
    slots: Vec<Slot>,
    /// And how many rows have it.
    runs: Vec<(Common, usize)>,
}

impl Samples {
    /// Appends a row.
    pub(in crate::store) fn push(&mut self, row: &SampleRow) {
        self.wait(BATCH_ROWS, |rows| rows.push(row));
    }

    /// Appends the samples of a visit. `named`: as many as there are samples.
    #[inline]
    pub(in crate::store) fn extend<N>(
        &mut self,
        of: &SamplesOf<'_>,
        named: &[N],
        function: impl Fn(&N) -> FunctionId,
    ) {
        self.wait(BATCH_ROWS, |rows| rows.extend(of, named, function));
    }
}

impl SampleRows {
    fn push(&mut self, row: &SampleRow) {
        self.times.push(row.time_ns.0);
        self.functions.push(row.function_id.0);
        self.ips.push(row.ip);
        self.slots.push(Slot::any(Ip(row.ip)));
        let common = Common {
            visit_id: row.visit_id,
            tid: row.tid,
            cpu: row.cpu,
            event: row.event,
            flags: row.flags,
            stack_id: row.stack_id,
        };
        self.runs.push((common, 1));
    }

    #[inline]
    fn extend<N>(&mut self, of: &SamplesOf<'_>, named: &[N], function: impl Fn(&N) -> FunctionId) {
        let samples = of.samples;
        self.times.extend(samples.iter().map(|it| it.time.0));
        self.functions.extend(named.iter().map(|it| function(it).0));
        self.ips.extend(samples.iter().map(|it| it.ip.0));
        if of.slots.is_empty() {
            self.slots.extend(samples.iter().map(|it| Slot::any(it.ip)));
        } else {
            self.slots.extend(&of.slots[..samples.len()]);
        }
        let common = |index: usize| Common {
            visit_id: of.visit_id,
            tid: of.tid,
            cpu: samples[index].cpu,
            event: samples[index].event,
            flags: of.flags(&samples[index]),
            stack_id: of.stacks.get(index).copied().flatten(),
        };
        if of.alike && of.near.is_none() && !samples.is_empty() {
            self.runs.push((common(0), samples.len()));
        } else {
            let each = (0..samples.len()).map(|index| (common(index), 1));
            self.runs.extend(each);
        }
    }
}

impl Waiting<SampleColumns> for SampleRows {
    #[inline]
    fn len(&self) -> usize {
        self.times.len()
    }

    /// One column after the other.
    fn add_to(&self, columns: &mut SampleColumns) {
        columns.rows += self.times.len();
        columns.time_ns.extend(&self.times, |time| *time);
        columns.function_id.extend(&self.functions, |id| *id);
        columns.ip.extend_at(&self.ips, &self.slots);
        for (common, times) in &self.runs {
            columns.visit_id.repeat(common.visit_id, *times);
        }
        for (common, times) in &self.runs {
            columns.tid.repeat(common.tid.0, *times);
        }
        for (common, times) in &self.runs {
            columns.cpu.repeat(common.cpu.known(), *times);
        }
        for (common, times) in &self.runs {
            columns.event.repeat(common.event.0, *times);
        }
        for (common, times) in &self.runs {
            columns.flags.repeat(common.flags, *times);
        }
        for (common, times) in &self.runs {
            let stack_id = common.stack_id.map(|id| id.0);
            columns.stack_id.repeat(stack_id, *times);
        }
    }

    fn clear(&mut self) {
        self.times.clear();
        self.functions.clear();
        self.ips.clear();
        self.slots.clear();
        self.runs.clear();
    }
}
