//! What a recording says was lost of it: ranges without full data.

use rustc_hash::FxHashMap;

use crate::correlate::LONGEST_TICK_NS;
use crate::perf::record::{RawRecord, Record, What};
use crate::pipeline::ToldLoss;
use crate::units::{Cpu, KtimeNs, Tid};

/// Most lost records that one record may report; more is malformed.
const LOST_MAX: u64 = u32::MAX as u64;

/// `PERF_RECORD_MISC_LOST_SAMPLES_BPF`: left out by the filter of `perf record --filter`, which is a program.
const LEFT_OUT: u32 = 1 << 15;

/// Since when a counter stands still, and where.
type Stopped = (u64, Option<Cpu>, Option<Tid>);

/// Ranges that whoever reads on while the file is read was told of.
#[derive(Debug, Default)]
struct Told {
    /// Ranges that were looked at.
    seen: usize,
    /// Those of them that begin later than what was asked for.
    later: Vec<ToldLoss>,
    /// Up to when all was asked for.
    until: u64,
    /// One became known after that.
    missed: bool,
}

/// What a recording says was lost, in the making.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Ranges that were reported.
    ranges: Vec<ToldLoss>,
    /// Counters that stand still.
    stopped: FxHashMap<(u64, u64), Stopped>,
    /// Time of the record before, in the file.
    before: u64,
    /// Time of the last record of each CPU, which is of its ring; 0: of none.
    by_cpu: Vec<u64>,
    first: Option<u64>,
    newest: u64,
    /// Newest time when all rings had been read once more, the last such time last.
    rounds: [u64; ROUNDS],
    /// Records lost, by the kernel's records in the rings, and by what perf counted in the end.
    told: u64,
    counted: u64,
    left_out: u64,
    on_the_way: Told,
}

/// A ring that was full was read in the same round as the record that reports it, or in the one before, and what it
/// held then is newer than all of two rounds before that.
pub(super) const ROUNDS: usize = 3;

impl Losses {
    /// There were records up to a time.
    #[inline]
    pub(super) fn see(&mut self, time: u64, cpu: Option<Cpu>) {
        self.before = time;
        self.first = self.first.or(Some(time));
        self.newest = self.newest.max(time);
        if let Some(cpu) = cpu {
            let cpu = usize::from(cpu.0);
            if self.by_cpu.len() <= cpu {
                self.by_cpu.resize(cpu + 1, 0);
            }
            self.by_cpu[cpu] = self.by_cpu[cpu].max(time);
        }
    }

    /// All rings were read once.
    pub(super) fn round(&mut self) {
        self.rounds.rotate_left(1);
        self.rounds[ROUNDS - 1] = self.newest;
    }

    /// LOST, LOST_SAMPLES: some were lost up to a record's time.
    pub(super) fn lost(&mut self, raw: RawRecord<'_>, record: &Record<'_>, cpu: Option<Cpu>) {
        let (records, in_hardware) = match record.what {
            What::Lost { records } => (records.min(LOST_MAX), false),
            What::LostSamples { records } => (records.min(LOST_MAX), true),
            _ => return,
        };
        if in_hardware && raw.has(LEFT_OUT) {
            self.left_out += records;
            return;
        }
        let Some(time) = record.time() else {
            // perf's own, at the end: all that the kernel counted, what records in the ring reported included.
            // Source: tools/perf/builtin-record.c (`record__read_lost_samples`).
            if in_hardware {
                self.counted += records;
            } else {
                self.told += records;
                self.range(self.before, self.before, cpu, Some(records));
            }
            return;
        };
        if !in_hardware {
            self.told += records;
        }
        self.range(self.whole_until(cpu).min(time), time, cpu, Some(records));
    }

    /// Time of the last record that the ring held before what is read now. Rings are read one after the other, so that
    /// the record before in the file may be another ring's.
    fn whole_until(&self, cpu: Option<Cpu>) -> u64 {
        let last = cpu.and_then(|cpu| self.by_cpu.get(usize::from(cpu.0)));
        match last.copied().unwrap_or(0) {
            0 if self.rounds[ROUNDS - 1] == 0 => self.before,
            0 => self.rounds[0].max(self.first.unwrap_or(0)),
            last => last,
        }
    }

    /// THROTTLE, UNTHROTTLE of a counter.
    pub(super) fn throttle(&mut self, stopped: bool, counter: (u64, u64), at: Stopped) {
        let was = if stopped {
            self.stopped.insert(counter, at)
        } else {
            self.stopped.remove(&counter)
        };
        if let Some(was) = was {
            self.stood_still(was, at.0);
        }
    }

    /// A counter goes on at the next tick, or sooner. That is recorded only once its thread runs again, but what lies
    /// between is no time in which it could have counted.
    fn stood_still(&mut self, (begin, cpu, tid): Stopped, end: u64) {
        self.ranges.push(ToldLoss {
            begin: KtimeNs(begin),
            end: KtimeNs(end.clamp(begin, tick_after(begin))),
            cpu,
            tid,
            records: None,
        });
    }

    fn range(&mut self, begin: u64, end: u64, cpu: Option<Cpu>, records: Option<u64>) {
        self.ranges.push(ToldLoss {
            begin: KtimeNs(begin),
            end: KtimeNs(end),
            cpu,
            tid: None,
            records,
        });
    }

    /// While reading, with a round just over: the ranges not given before that begin before a time, by begin, of a
    /// recording from `first` on; and up to when that is all.
    pub(super) fn due(&mut self, frontier: u64, first: u64) -> (Vec<ToldLoss>, u64) {
        let frontier = self.settle_stopped(frontier);
        let told = &mut self.on_the_way;
        let new = self.ranges[told.seen..].iter();
        told.later.extend(new.map(|range| within(*range, first)));
        told.seen = self.ranges.len();
        told.missed |= told.later.iter().any(|range| range.begin.0 < told.until);
        told.until = frontier.max(told.until);
        told.later.sort_by_key(|loss| (loss.begin, loss.end));
        let due = told.later.partition_point(|loss| loss.begin.0 < frontier);
        (told.later.drain(..due).collect(), frontier)
    }

    /// Whether [`Losses::due`] did not know of a range in time.
    pub(super) const fn has_missed(&self) -> bool {
        self.on_the_way.missed
    }

    /// Counters that stand still since before a time do so for a tick, if that is over. Gives the time up to which all
    /// is known of them.
    fn settle_stopped(&mut self, frontier: u64) -> u64 {
        // No older record follows.
        let over = self.rounds[ROUNDS - 2];
        let mut known = frontier;
        let mut ended = Vec::new();
        for (counter, (begin, ..)) in &self.stopped {
            match tick_after(*begin) <= over {
                true => ended.push(*counter),
                false => known = known.min(*begin),
            }
        }
        for counter in ended {
            if let Some(was) = self.stopped.remove(&counter) {
                self.stood_still(was, u64::MAX);
            }
        }
        known
    }

    /// All ranges by their begin, of a recording from `first` to `end`, and the samples that were left out as asked.
    pub(super) fn close(mut self, (first, end): (u64, u64)) -> (Vec<ToldLoss>, u64) {
        self.end(end);
        for range in &mut self.ranges {
            *range = within(*range, first);
        }
        self.ranges.sort_by_key(|loss| (loss.begin, loss.end));
        (self.ranges, self.left_out)
    }

    /// Nothing follows, and `end` was the last time.
    pub(super) fn end(&mut self, end: u64) {
        for was in std::mem::take(&mut self.stopped).into_values() {
            self.stood_still(was, end);
        }
        // Rings that were full in the end, so that no record of theirs could tell.
        let untold = self.counted.saturating_sub(self.told);
        if untold > 0 {
            self.counted = 0;
            self.range(end, end, None, Some(untold));
        }
    }
}

/// When the tick after an instant is over.
const fn tick_after(begin: u64) -> u64 {
    begin.saturating_add(LONGEST_TICK_NS.unsigned_abs())
}

/// The part of a range within a recording. Before the first record nobody knows since when: the recording begins with it.
fn within(range: ToldLoss, first: u64) -> ToldLoss {
    ToldLoss {
        begin: KtimeNs(range.begin.0.max(first.min(range.end.0))),
        ..range
    }
}
