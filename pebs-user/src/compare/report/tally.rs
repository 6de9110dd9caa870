//! First pass over the visits: counts, flags and durations of each probe.

use arrow_array::RecordBatch;

use super::classes::IdSet;
use super::model::FlagCount;
use crate::compare::classes::{Rank, RankBy, Ranker, Ranks, Standing, Took};
use crate::compare::losses::LossVisits;
use crate::compare::slots::Slots;
use crate::store::reader::ReadError;
use crate::store::schema::visit_flag;
use crate::store::view::{Select as _, View as _, columns};

columns! {
    /// Columns of the pass.
    pub(super) struct Visits of visits { probe_id, item_id, duration_ns, oncpu_ns, flags, samples, net_ns }
}

/// Data on one probe of the first pass.
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
    /// By time on the CPU, of the visits where that is known; empty if that is asked for, and ranks them anyway.
    pub on_cpu: Ranks,
}

impl Tally {
    /// An empty tally; `ranks`: empty ranks.
    pub(super) fn new(ranks: Ranks) -> Self {
        Self {
            visits: 0,
            counted: 0,
            loss: 0,
            open: 0,
            samples: 0,
            items: IdSet::default(),
            flags: [0; visit_flag::NAMES.len()],
            on_cpu: ranks.clone(),
            ranks,
        }
    }

    /// Adds a visit. `ranks`: what it is ranked by, given its rank by duration, and its rank by time on the CPU beside that.
    fn add(
        &mut self,
        standing: Standing,
        flags: u32,
        ranks: impl FnOnce(Rank) -> [Option<Rank>; 2],
    ) {
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
                let [rank, on_cpu] = ranks(rank);
                rank.into_iter().for_each(|it| self.ranks.add(it));
                on_cpu.into_iter().for_each(|it| self.on_cpu.add(it));
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

/// Adds a batch of [`Visits`] to their probes' tallies.
pub(super) fn add(
    batch: &RecordBatch,
    (losses, ranker): (LossVisits, &Ranker),
    slots: &mut Slots<Tally>,
) -> Result<(), ReadError> {
    let visits = Visits::of(batch)?;
    for row in 0..batch.num_rows() {
        let Some((_, tally)) = slots.of(visits.probe_id[row]) else {
            continue;
        };
        let took = Took {
            duration_ns: visits.duration_ns.get(row),
            net_ns: visits.net_ns.get(row),
            samples: visits.samples[row],
        };
        tally.items.insert(visits.item_id[row]);
        let flags = visits.flags[row];
        let (oncpu, of) = (visits.oncpu_ns.get(row), (visits.probe_id[row], flags));
        tally.add(Standing::of(took, flags, losses), flags, |rank| {
            let on_cpu = || ranker.net.rank(oncpu, rank, of);
            let beside = (ranker.by == RankBy::Duration).then(on_cpu).flatten();
            [ranker.rank(rank, oncpu, of), beside]
        });
    }
    Ok(())
}
