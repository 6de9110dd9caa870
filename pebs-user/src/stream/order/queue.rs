//! The records of one kind that a lane holds.

use std::ops::Range;

use super::{Late, LateKind};
use crate::stream::decode::{Body, Record};
use crate::stream::samples::{RawSampleBuf, Rising, SampleSource};
use crate::units::{Cpu, TraceNs};

/// Records of one kind, in the order in which they came.
pub(super) trait Store: Default {
    fn len(&self) -> usize;
    fn time(&self, at: usize) -> TraceNs;
    fn late(&self, at: usize) -> Late;
    /// Sorts those from `begin` on by time; those of the same time stay as they came.
    fn sort(&mut self, begin: usize);
    /// Forgets the first ones.
    fn forget(&mut self, count: usize);
    /// How many there is room for.
    fn room(&self) -> usize;
    /// Gives room back, but for so many.
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

/// Records of one kind: those that are gone, those that were read, those below the frontier, those that wait.
#[derive(Debug)]
pub(super) struct Queue<S> {
    pub(super) records: S,
    gone: usize,
    pub(super) read: usize,
    pub(super) ready: usize,
    /// Time of the last one pushed.
    pub(super) last: TraceNs,
    unsorted: bool,
    /// So many waited before, and are sorted.
    pub(super) waited: usize,
    /// How many times in a row the room was far more than was used.
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

/// Records whose room a queue keeps though it does not need it.
pub(super) const KEPT_ROOM: usize = 1024;

/// Room is given back when it was too much so many times: rounds of a recording are large and small in turn.
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
    /// Sorts what waits and makes it ready up to the frontier.
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

    /// The first record of a range, which is sorted by time, from which on it holds.
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

    /// How many are not gone.
    pub(super) fn waiting(&self) -> usize {
        self.records.len() - self.gone
    }

    /// Time of the next one that is ready.
    #[inline]
    pub(super) fn next_time(&self) -> Option<TraceNs> {
        (self.read < self.ready).then(|| self.records.time(self.read))
    }

    /// Forgets what was ready. Cost: moves no more than was forgotten.
    pub(super) fn retire(&mut self) {
        self.gone = self.ready;
        self.waited = self.waiting();
        if self.gone >= self.waited {
            let (used, room) = (self.records.len(), self.records.room());
            self.records.forget(self.gone);
            self.gone = 0;
            // Of a thread that was busier once; one that is busy keeps its room.
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
