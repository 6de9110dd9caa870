//! Samples before they are written: columns that visits are appended to, encoded in blocks of 1,024 rows.

use std::ops::{Range, RangeInclusive};

use super::schema::{SampleRow, sample_flag};
use crate::arch::will_write;
use crate::stream::sample::{BareSample, SampleKind};
use crate::stream::samples::Samples;
use crate::units::Slot;
use crate::units::{Cpu, EventId, FunctionId, Ip, StackId, Tid, TraceNs};

/// Rows per encoding step: few enough for the L1 cache, one column at a time.
pub const BLOCK_ROWS: usize = 1024;

/// Rows sorted by thread at once: 1.5 MiB; with 16 busy threads each has thousands of consecutive rows. Half of it
/// costs up to a tenth less to encode, but each turn of a thread takes some 140 bytes.
pub const ORDERED_ROWS: usize = 64 * 1024;

/// Maximum number of rows of a [`Part`].
const PART_ROWS: usize = 16 * 1024;

/// Number of consecutive rows of a thread that are encoded where they lie.
const LONG_TURN: RangeInclusive<usize> = BLOCK_ROWS / 4..=PART_ROWS;

/// Rows prefetched for writing at once: more than most visits have.
const AHEAD: usize = 32;

/// Maximum rows of unneeded memory that a block keeps.
const KEPT_ROWS: usize = 2 * ORDERED_ROWS;

/// Properties shared by consecutive samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Common {
    pub visit_id: Option<u64>,
    pub tid: Tid,
    pub cpu: Cpu,
    pub event: EventId,
    pub flags: u32,
    pub stack_id: Option<StackId>,
}

/// Rows of `samples` of one thread in the same visit, or in none.
#[derive(Clone, Copy, Debug)]
pub struct SamplesOf<'a> {
    /// The visit; null: in no visit.
    pub visit_id: Option<u64>,
    /// Thread.
    pub tid: Tid,
    /// Other threads that took the later samples, each with the number of samples before.
    pub threads: &'a [(usize, Tid)],
    /// The samples; their functions are passed separately.
    pub samples: Samples<'a>,
    /// Whether all samples are known to have the same [`SampleKind`].
    pub alike: bool,
    /// Begin and end of the visit, and the distance from them below which a sample is flagged
    /// [`sample_flag::NEAR_BOUNDARY`], ns; null: no sample is.
    pub near: Option<(TraceNs, Option<TraceNs>, i64)>,
}

impl SamplesOf<'_> {
    /// The thread of sample `n`, and how many samples there are up to the next thread's.
    #[must_use]
    pub fn thread(&self, n: usize) -> (Tid, usize) {
        let next = self.threads.partition_point(|(before, _)| *before <= n);
        let tid = next
            .checked_sub(1)
            .map_or(self.tid, |at| self.threads[at].1);
        (
            tid,
            self.threads.get(next).map_or(usize::MAX, |(at, _)| *at),
        )
    }

    /// The [`sample_flag`] bits of a sample.
    #[must_use]
    pub fn flags(&self, sample: &BareSample) -> u32 {
        let mut flags = 0;
        if sample.kind.is_exact() {
            flags |= sample_flag::EXACT_IP;
        }
        if sample.kind.is_kernel() {
            flags |= sample_flag::KERNEL;
        }
        if let Some((begin, end, limit)) = self.near {
            let near = |boundary: TraceNs| (sample.time.0 - boundary.0).abs() < limit;
            if near(begin) || end.is_some_and(near) {
                flags |= sample_flag::NEAR_BOUNDARY;
            }
        }
        flags
    }
}

/// Samples in columns: first the rows of the table, then the samples of the current visit, which may become rows.
///
/// Memory: 24 bytes per sample.
#[derive(Debug, Default)]
pub struct SampleBlock {
    // Columns never shrink: their used part ends at `end`.
    times: Vec<TraceNs>,
    ips: Vec<Ip>,
    functions: Vec<FunctionId>,
    slots: Vec<Slot>,
    /// Events of the current samples; empty if they are all of one event.
    events: Vec<EventId>,
    rows: usize,
    end: usize,
    /// Shared properties of rows, and the number of these rows. A run ends at each multiple of [`PART_ROWS`].
    runs: Vec<(Common, usize)>,
}

/// Rows of a block.
pub(super) struct Part<'a> {
    pub times: &'a [TraceNs],
    pub ips: &'a [Ip],
    pub functions: &'a [FunctionId],
    pub slots: &'a [Slot],
    pub runs: &'a [(Common, usize)],
}

impl SampleBlock {
    /// Takes the samples of a visit; they replace those of the previous one, unless those were kept. `find` looks
    /// up the functions of addresses, and their cache slots. Returns whether all have the same [`SampleKind`].
    #[inline(always)]
    pub fn name(
        &mut self,
        samples: Samples<'_>,
        find: impl FnOnce(&[Ip], (&mut [FunctionId], &mut [Slot])),
    ) -> bool {
        let (begin, end) = (self.rows, self.rows + samples.len());
        if end > self.times.len() {
            self.make_room(end);
        }
        self.end = end;
        self.will_write(end);
        let names = (&mut self.functions[begin..end], &mut self.slots[begin..end]);
        find(samples.ips, names);
        self.events.clear();
        let alike = samples.are_alike();
        if !alike {
            self.store_events(samples.kinds);
        }
        alike
    }

    /// Prefetches the rows from `row` on, which are written next: the thread that encodes blocks had them last.
    #[inline(always)]
    fn will_write(&self, row: usize) {
        will_write(&self.times, row, AHEAD);
        will_write(&self.ips, row, AHEAD);
        will_write(&self.functions, row, AHEAD);
        will_write(&self.slots, row, AHEAD);
    }

    /// Stores the events of the current samples, if they have several.
    #[cold]
    fn store_events(&mut self, kinds: &[SampleKind]) {
        let events = || kinds.iter().map(|kind| kind.event());
        let first = events().next();
        if events().any(|event| Some(event) != first) {
            self.events.extend(events());
        }
    }

    #[cold]
    fn make_room(&mut self, rows: usize) {
        let rows = rows.next_multiple_of(BLOCK_ROWS);
        self.times.resize(rows, TraceNs(0));
        self.ips.resize(rows, Ip(0));
        self.functions.resize(rows, FunctionId(0));
        self.slots.resize(rows, Slot::default());
    }

    /// Functions of the current samples.
    #[must_use]
    pub fn functions(&self) -> &[FunctionId] {
        &self.functions[self.rows..self.end]
    }

    /// Changes the function of one of the current samples.
    pub fn rename(&mut self, at: usize, function: FunctionId) {
        self.functions[self.rows..self.end][at] = function;
    }

    /// Events of the current samples; empty if they are all of one event.
    #[must_use]
    pub fn events(&self) -> &[EventId] {
        &self.events
    }

    /// Makes rows of the current samples, which are those of `of`. `stacks`: the call stack of each; empty if there
    /// are none.
    #[inline]
    pub fn keep(&mut self, of: &SamplesOf<'_>, stacks: &[Option<StackId>]) {
        let at_hand = self.rows..self.end;
        self.times[at_hand.clone()].copy_from_slice(of.samples.times);
        self.ips[at_hand].copy_from_slice(of.samples.ips);
        let mut at = 0;
        while let Some(first) = of.samples.get(at) {
            let room = PART_ROWS - self.rows % PART_ROWS;
            let rest = &of.samples.kinds[at..];
            let like = match (of.near, of.alike) {
                (Some(_), _) => 1,
                (None, true) => rest.len(),
                (None, false) => {
                    let is_like = |kind: &&SampleKind| kind.of_row() == first.kind.of_row();
                    rest.iter().take_while(is_like).count()
                }
            };
            let (tid, end) = of.thread(at);
            let times = like.min(room).min(end - at);
            let common = Common {
                visit_id: of.visit_id,
                tid,
                cpu: first.kind.cpu(),
                event: first.kind.event(),
                flags: of.flags(&first),
                stack_id: stacks.get(at).copied().flatten(),
            };
            self.runs.push((common, times));
            self.rows += times;
            at += times;
        }
        will_write(self.runs.spare_capacity_mut(), 0, 2);
    }

    /// Appends a row.
    pub(super) fn push(&mut self, row: &SampleRow) {
        let rows = self.rows + 1;
        if rows > self.times.len() {
            self.make_room(rows);
        }
        self.times[self.rows] = row.time_ns;
        self.ips[self.rows] = Ip(row.ip);
        self.functions[self.rows] = row.function_id;
        self.slots[self.rows] = Slot::any(Ip(row.ip));
        let common = Common {
            visit_id: row.visit_id,
            tid: row.tid,
            cpu: row.cpu,
            event: row.event,
            flags: row.flags,
            stack_id: row.stack_id,
        };
        self.runs.push((common, 1));
        (self.rows, self.end) = (rows, rows);
    }

    /// Number of rows, without the current samples.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// The rows that the current samples become if they are kept.
    pub(super) const fn at_hand(&self) -> Range<usize> {
        self.rows..self.end
    }

    /// Times and functions of some rows.
    pub(super) fn times_and_functions(&self, rows: Range<usize>) -> (&[TraceNs], &[FunctionId]) {
        (&self.times[rows.clone()], &self.functions[rows])
    }

    /// All rows, some at a time.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let mut runs = self.runs.as_slice();
        (0..self.rows).step_by(PART_ROWS).map(move |begin| {
            let rows = begin..self.rows.min(begin + PART_ROWS);
            let mut left = rows.len();
            let ends = runs.iter().position(|(_, times)| {
                left -= times;
                left == 0
            });
            let (now, later) = runs.split_at(ends.map_or(runs.len(), |last| last + 1));
            runs = later;
            self.part(rows, now)
        })
    }

    fn part<'a>(&'a self, rows: Range<usize>, runs: &'a [(Common, usize)]) -> Part<'a> {
        Part {
            times: &self.times[rows.clone()],
            ips: &self.ips[rows.clone()],
            functions: &self.functions[rows.clone()],
            slots: &self.slots[rows],
            runs,
        }
    }

    /// Passes all rows on thread by thread, in parts. `room` holds the current part.
    ///
    /// The rings are drained thread by thread, again and again: times decrease at each turn, and delta encoding
    /// needs a wide block for each decrease. Rows of a thread keep their order.
    pub(super) fn ordered_parts(&self, room: &mut Self, mut take: impl FnMut(&Part<'_>)) {
        if self.runs.is_sorted_by_key(|(common, _)| common.tid) {
            return self.parts().for_each(|part| take(&part));
        }
        let mut begin = 0;
        let turns = self.runs.chunk_by(|(a, _), (b, _)| a.tid == b.tid);
        let mut turns: Vec<_> = turns
            .map(|runs| {
                let rows: usize = runs.iter().map(|(_, times)| times).sum();
                begin += rows;
                (begin - rows..begin, runs)
            })
            .collect();
        turns.sort_by_key(|(_, runs)| runs[0].0.tid);
        for (rows, runs) in turns {
            if LONG_TURN.contains(&rows.len()) {
                room.hand_out(&mut take);
                take(&self.part(rows, runs));
                continue;
            }
            let mut begin = rows.start;
            for &(common, mut times) in runs {
                while times > 0 {
                    let now = times.min(BLOCK_ROWS - room.rows);
                    room.copy(self, begin..begin + now, common);
                    (begin, times) = (begin + now, times - now);
                    if room.rows == BLOCK_ROWS {
                        room.hand_out(&mut take);
                    }
                }
            }
        }
        room.hand_out(&mut take);
    }

    /// Passes all rows on, then drops them.
    fn hand_out(&mut self, take: &mut impl FnMut(&Part<'_>)) {
        self.parts().for_each(|part| take(&part));
        self.clear();
    }

    /// Appends rows of another block.
    fn copy(&mut self, from: &Self, rows: Range<usize>, common: Common) {
        let end = self.rows + rows.len();
        if end > self.times.len() {
            self.make_room(end);
        }
        let to = self.rows..end;
        self.times[to.clone()].copy_from_slice(&from.times[rows.clone()]);
        self.ips[to.clone()].copy_from_slice(&from.ips[rows.clone()]);
        self.functions[to.clone()].copy_from_slice(&from.functions[rows.clone()]);
        self.slots[to].copy_from_slice(&from.slots[rows.clone()]);
        self.runs.push((common, rows.len()));
        (self.rows, self.end) = (end, end);
    }

    /// Drops all rows, and the current samples; keeps the memory, unless a very large visit needed it.
    pub fn clear(&mut self) {
        if self.times.len() > KEPT_ROWS {
            *self = Self::default();
        }
        (self.rows, self.end) = (0, 0);
        self.runs.clear();
        self.events.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::samples::SampleBuf;

    fn sample(n: usize, cpu: u16) -> BareSample {
        BareSample {
            time: TraceNs(n as i64),
            ip: Ip(n as u64 * 2),
            kind: SampleKind::new(Cpu(cpu), EventId(0), (false, false)),
        }
    }

    proptest! {
        /// Kept samples are rows, in order and complete, for any number of samples at a time; others leave no
        /// trace.
        #[test]
        fn kept_and_left_out(
            visits in prop::collection::vec((0_usize..3 * PART_ROWS / 2, any::<bool>(), any::<bool>()), 1..8),
        ) {
            let (mut block, mut rows, mut n) = (SampleBlock::default(), Vec::new(), 0);
            for (visit_id, &(count, alike, kept)) in (0..).zip(&visits) {
                let cpu = |index: usize| if alike { 1 } else { (index / 3 % 2) as u16 };
                let samples: SampleBuf = (0..count).map(|index| sample(n + index, cpu(index))).collect();
                let samples = samples.samples();
                n += count;
                let found = block.name(samples, |ips, (functions, slots)| {
                    for (ip, (function, slot)) in ips.iter().zip(functions.iter_mut().zip(slots)) {
                        (*function, *slot) = (FunctionId(ip.0 as u32 + 1), Slot(3));
                    }
                });
                prop_assert_eq!(found, alike || count <= 3);
                prop_assert_eq!(block.functions().len(), count);
                if kept {
                    block.keep(&SamplesOf {
                        visit_id: Some(visit_id),
                        tid: Tid(5),
                        threads: &[],
                        samples,
                        alike: found,
                        near: None,
                    }, &[]);
                    rows.extend(samples.iter().map(|it| (it.time, it.ip, it.kind.cpu(), Some(visit_id))));
                }
                prop_assert_eq!(block.rows(), rows.len());
            }
            let mut expected = rows.iter();
            for part in block.parts() {
                prop_assert!(part.times.len() <= PART_ROWS);
                let runs = part.runs.iter();
                let mut commons = runs.flat_map(|(common, times)| vec![*common; *times]);
                for (index, time) in part.times.iter().enumerate() {
                    let (common, ip) = (commons.next().unwrap(), part.ips[index]);
                    let row = (*time, ip, common.cpu, common.visit_id);
                    prop_assert_eq!(Some(&row), expected.next());
                    prop_assert_eq!(part.functions[index], FunctionId(ip.0 as u32 + 1));
                }
                prop_assert!(commons.next().is_none());
            }
            prop_assert!(expected.next().is_none());
        }
    }
}
