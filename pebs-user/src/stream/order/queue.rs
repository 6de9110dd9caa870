//! The queue of one kind of records in a lane.

use std::ops::Range;

use super::{Late, LateKind};
use crate::stream::decode::{Body, Record};
use crate::stream::samples::{RawSampleBuf, Rising, SampleSource};
use crate::units::{Cpu, TraceNs};

/// Records of one kind, in order of arrival.
pub(super) trait Store: Default {
    fn len(&self) -> usize;
    fn time(&self, at: usize) -> TraceNs;
    fn late(&self, at: usize) -> Late;
    /// Sorts the records from `begin` on by time, stably.
    fn sort(&mut self, begin: usize);
    /// Removes the first `count` records.
    fn forget(&mut self, count: usize);
    /// Capacity, records.
    fn room(&self) -> usize;
    /// Reduces the capacity to `room`, but not below the length.
    fn shrink(&mut self, room: usize);
}

impl Store for RawSampleBuf {
    fn len(&self) -> usize {
        self.len()
    }

    fn time(&self, at: usize) -> TraceNs {
        self.times()[at]
    }

    fn late(&self, at: usize) -> Late {
        let kinds = self.range(at, at + 1).samples.kinds;
        Late {
            cpu: kinds.first().map_or(Cpu::UNKNOWN, |kind| kind.cpu()).0,
            kind: LateKind::Sample,
            time: self.time(at),
        }
    }

    fn sort(&mut self, begin: usize) {
        self.sort(begin);
    }

    fn forget(&mut self, count: usize) {
        self.forget(count);
    }

    fn room(&self) -> usize {
        self.room()
    }

    fn shrink(&mut self, room: usize) {
        self.shrink(room);
    }
}

impl Store for Vec<Record> {
    fn len(&self) -> usize {
        self.len()
    }

    fn time(&self, at: usize) -> TraceNs {
        self[at].time
    }

    fn late(&self, at: usize) -> Late {
        let Record {
            time, cpu, body, ..
        } = &self[at];
        let kind = match body {
            Body::Mark { .. } => LateKind::Mark,
            _ => LateKind::Task,
        };
        Late {
            cpu: cpu.0,
            kind,
            time: *time,
        }
    }

    fn sort(&mut self, begin: usize) {
        self[begin..].sort_by_key(|record| record.time);
    }

    fn forget(&mut self, count: usize) {
        self.drain(..count);
    }

    fn room(&self) -> usize {
        self.capacity()
    }

    fn shrink(&mut self, room: usize) {
        self.shrink_to(room);
    }
}

/// Records of one kind, in this order: removed ones, read ones, ready ones (below the frontier), waiting
/// ones.
#[derive(Debug)]
pub(super) struct Queue<S> {
    pub(super) records: S,
    gone: usize,
    pub(super) read: usize,
    pub(super) ready: usize,
    /// Time of the last record pushed.
    pub(super) last: TraceNs,
    unsorted: bool,
    /// Number of records that waited at the last frontier; they are sorted.
    pub(super) waited: usize,
    /// Number of times in a row that the capacity was far more than was used.
    roomy: u32,
}

impl<S: Default> Default for Queue<S> {
    fn default() -> Self {
        Self {
            records: S::default(),
            gone: 0,
            read: 0,
            ready: 0,
            last: TraceNs(i64::MIN),
            unsorted: false,
            waited: 0,
            roomy: 0,
        }
    }
}

/// Capacity up to which a queue is never shrunk, records.
pub(super) const KEPT_ROOM: usize = 1024;

/// A queue is shrunk when its capacity was too large this many times in a row: rounds of a recording are
/// large and small in turn.
pub(super) const ROOMY: u32 = 32;

impl Queue<RawSampleBuf> {
    #[inline(always)]
    pub(super) fn extend(&mut self, samples: &(impl SampleSource + ?Sized)) {
        let mut rising = Rising {
            last: self.last,
            so_far: !self.unsorted,
        };
        self.records.extend(samples, &mut rising);
        (self.last, self.unsorted) = (rising.last, !rising.so_far);
    }

    #[inline]
    pub(super) fn ready(&self) -> &[TraceNs] {
        &self.records.times()[self.read..self.ready]
    }
}

impl Queue<Vec<Record>> {
    #[inline(always)]
    pub(super) fn push(&mut self, record: Record) {
        self.unsorted |= record.time < self.last;
        self.last = record.time;
        self.records.push(record);
    }

    #[inline]
    pub(super) fn ready(&self) -> &[Record] {
        &self.records[self.read..self.ready]
    }

    pub(super) fn waiting_mut(&mut self) -> &mut [Record] {
        &mut self.records[self.gone..]
    }
}

impl<S: Store> Queue<S> {
    /// Sorts waiting records and makes those below `frontier` ready; those before `before`, the last
    /// frontier, are late.
    pub(super) fn settle(
        &mut self,
        before: TraceNs,
        frontier: TraceNs,
        late: &mut impl FnMut(Late),
    ) {
        let (gone, end) = (self.gone, self.records.len());
        if std::mem::take(&mut self.unsorted) {
            let new = gone + self.waited;
            let earliest = (new..end).map(|at| self.records.time(at)).min();
            let begin = self.first(gone..new, |time| Some(time) > earliest);
            self.records.sort(begin);
        }
        let last = (end > gone).then(|| self.records.time(end - 1));
        let read = self.first(gone..end, |time| time >= before);
        let ready = match last {
            Some(last) if last < frontier => end,
            _ => self.first(gone..end, |time| time >= frontier).max(read),
        };
        (self.read, self.ready) = (read, ready);
        self.last = last.unwrap_or(self.last);
        (gone..read).for_each(|at| late(self.records.late(at)));
    }

    /// Binary search in a sorted range: index of the first record for which `holds` is true.
    pub(super) fn first(&self, range: Range<usize>, holds: impl Fn(TraceNs) -> bool) -> usize {
        let Range { mut start, mut end } = range;
        while start < end {
            let middle = start.midpoint(end);
            if holds(self.records.time(middle)) {
                end = middle;
            } else {
                start = middle + 1;
            }
        }
        start
    }

    /// Number of records that are not removed.
    pub(super) fn waiting(&self) -> usize {
        self.records.len() - self.gone
    }

    /// Time of the next ready record.
    #[inline]
    pub(super) fn next_time(&self) -> Option<TraceNs> {
        (self.read < self.ready).then(|| self.records.time(self.read))
    }

    /// Removes ready records. Cost: moves no more than are removed.
    pub(super) fn retire(&mut self) {
        self.gone = self.ready;
        self.waited = self.waiting();
        if self.gone >= self.waited {
            let (used, room) = (self.records.len(), self.records.room());
            self.records.forget(self.gone);
            self.gone = 0;
            // The thread was busier once; one that is busy keeps its capacity.
            let roomy = room > KEPT_ROOM && used < room / 8;
            self.roomy = if roomy { self.roomy + 1 } else { 0 };
            if self.roomy == ROOMY {
                self.records.shrink(room / 2);
                self.roomy = 0;
            }
        }
        (self.read, self.ready) = (self.gone, self.gone);
    }
}
