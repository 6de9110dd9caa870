//! First pass over the visits: counts, flags and durations of each probe.

use arrow::array::{Array, RecordBatch};

use super::classes::IdSet;
use super::model::FlagCount;
use super::{LossVisits, slots::Slots};
use crate::analysis::classes::{Ranks, Standing, Took};
use crate::store::reader::{ReadError, column_i64, column_u16, column_u32, column_u64};
use crate::store::schema::visit_flag;

/// Columns of the pass.
pub(super) const COLUMNS: [&str; 6] = [
    "probe_id",
    "item_id",
    "duration_ns",
    "flags",
    "samples",
    "net_ns",
];

/// What the first pass knows of one probe.
#[derive(Debug)]
pub(super) struct Tally {
    pub visits: u64,
    pub counted: u64,
    pub loss: u64,
    pub open: u64,
    pub samples: u64,
    pub items: IdSet,
    flags: [u64; visit_flag::NAMES.len()],
    pub ranks: Ranks,
}

impl Tally {
    /// An empty tally; `ranks`: those of no item.
    pub(super) fn new(ranks: Ranks) -> Self {
        Self {
            visits: 0,
            counted: 0,
            loss: 0,
            open: 0,
            samples: 0,
            items: IdSet::default(),
            flags: [0; visit_flag::NAMES.len()],
            ranks,
        }
    }

    fn add(&mut self, standing: Standing, flags: u32) {
        self.visits += 1;
        for (bit, count) in self.flags.iter_mut().enumerate() {
            *count += u64::from(flags >> bit & 1);
        }
        match standing {
            Standing::Open => self.open += 1,
            Standing::Loss => self.loss += 1,
            Standing::Counted(rank) => {
                self.counted += 1;
                self.samples += u64::from(rank.samples);
                self.ranks.add(rank);
            }
        }
    }

    /// Flags that any visit has.
    pub(super) fn flags(&self) -> Vec<FlagCount> {
        let counts = visit_flag::NAMES.into_iter().zip(self.flags);
        counts
            .filter(|(_, visits)| *visits > 0)
            .map(|(flag, visits)| FlagCount { flag, visits })
            .collect()
    }
}

/// Adds a batch of visits, with [`COLUMNS`], to their probes' tallies.
pub(super) fn add(
    batch: &RecordBatch,
    losses: LossVisits,
    slots: &mut Slots<Tally>,
) -> Result<(), ReadError> {
    let probes = column_u16(batch, 0)?.values();
    let items = column_u64(batch, 1)?.values();
    let durations = column_i64(batch, 2)?;
    let flags = column_u32(batch, 3)?.values();
    let samples = column_u32(batch, 4)?.values();
    let nets = column_i64(batch, 5)?;
    for row in 0..batch.num_rows() {
        let Some((_, tally)) = slots.of(probes[row]) else {
            continue;
        };
        let took = Took {
            duration_ns: durations.is_valid(row).then(|| durations.value(row)),
            net_ns: nets.is_valid(row).then(|| nets.value(row)),
            samples: samples[row],
        };
        tally.items.insert(items[row]);
        let standing = Standing::of(took, flags[row], losses);
        tally.add(standing, flags[row]);
    }
    Ok(())
}
