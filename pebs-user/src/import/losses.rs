//! Losses that a recording reports: ranges without full data.

use rustc_hash::FxHashMap;

use crate::correlate::LONGEST_TICK_NS;
use crate::perf::record::{RawRecord, Record, RecordKind};
use crate::pipeline::ReportedLoss;
use crate::units::{Cpu, KtimeNs, Tid};

/// Largest loss count accepted from one record; a larger one is malformed and clamped.
const LOST_MAX: u64 = u32::MAX as u64;

/// `PERF_RECORD_MISC_LOST_SAMPLES_BPF`: dropped by the BPF program of `perf record --filter`.
const LEFT_OUT: u32 = 1 << 15;

/// A stopped counter: since when, on which CPU, of which thread.
type Stopped = (u64, Option<Cpu>, Option<Tid>);

/// Progress of [`Losses::due`].
#[derive(Debug, Default)]
struct DueProgress {
    /// Number of ranges taken from `Losses::ranges`.
    seen: usize,
    /// Taken ranges that begin at the last frontier or later.
    later: Vec<ReportedLoss>,
    /// The last frontier.
    until: u64,
    /// Whether a range that begins before `until` was found too late.
    missed: bool,
}

/// Collects the losses while the file is read.
#[derive(Debug, Default)]
pub(super) struct Losses {
    ranges: Vec<ReportedLoss>,
    /// Stopped counters, by event and stream id.
    stopped: FxHashMap<(u64, u64), Stopped>,
    /// Time of the previous record in the file.
    before: u64,
    /// Time of the newest record of each CPU's ring; 0: none.
    by_cpu: Vec<u64>,
    first: Option<u64>,
    newest: u64,
    /// Newest time at the end of each of the last rounds, oldest first.
    rounds: [u64; ROUNDS],
    /// Records lost: as reported by records in the rings, and as counted by perf at the end.
    reported: u64,
    counted: u64,
    left_out: u64,
    due_progress: DueProgress,
}

/// Rounds to look back. A LOST record is read in the same round as the full ring that it reports, or in the next; what
/// that ring held is newer than everything two rounds earlier.
pub(super) const ROUNDS: usize = 3;

impl Losses {
    /// Notes the time of the newest record read.
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

    /// Ends a round: all rings were read once.
    pub(super) fn round(&mut self) {
        self.rounds.rotate_left(1);
        self.rounds[ROUNDS - 1] = self.newest;
    }

    /// Takes LOST and LOST_SAMPLES: records lost up to the record's time.
    pub(super) fn lost(&mut self, raw: RawRecord<'_>, record: &Record<'_>, cpu: Option<Cpu>) {
        let (records, in_hardware) = match record.kind {
            RecordKind::Lost { records } => (records.min(LOST_MAX), false),
            RecordKind::LostSamples { records } => (records.min(LOST_MAX), true),
            _ => return,
        };
        if in_hardware && raw.has(LEFT_OUT) {
            self.left_out += records;
            return;
        }
        let Some(time) = record.time() else {
            // Written by perf at the end: the kernel's total, which includes what records in the rings reported.
            // Source: tools/perf/builtin-record.c (`record__read_lost_samples`).
            if in_hardware {
                self.counted += records;
            } else {
                self.reported += records;
                self.range(self.before, self.before, cpu, Some(records));
            }
            return;
        };
        if !in_hardware {
            self.reported += records;
        }
        self.range(self.whole_until(cpu).min(time), time, cpu, Some(records));
    }

    /// Time of the last record read earlier from the CPU's ring; if there is none, a lower bound. Rings are read one
    /// after another, so the previous record in the file may be another ring's.
    fn whole_until(&self, cpu: Option<Cpu>) -> u64 {
        let last = cpu.and_then(|cpu| self.by_cpu.get(usize::from(cpu.0)));
        match last.copied().unwrap_or(0) {
            0 if self.rounds[ROUNDS - 1] == 0 => self.before,
            0 => self.rounds[0].max(self.first.unwrap_or(0)),
            last => last,
        }
    }

    /// Takes THROTTLE and UNTHROTTLE of a counter.
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

    /// Adds the range of a stopped counter, at most one tick long: the counter restarts at the next tick or sooner. The
    /// record of the restart waits until the thread runs again, but the thread could not have counted before that.
    fn stood_still(&mut self, (begin, cpu, tid): Stopped, end: u64) {
        self.ranges.push(ReportedLoss {
            begin: KtimeNs(begin),
            end: KtimeNs(end.clamp(begin, tick_after(begin))),
            cpu,
            tid,
            records: None,
        });
    }

    fn range(&mut self, begin: u64, end: u64, cpu: Option<Cpu>, records: Option<u64>) {
        self.ranges.push(ReportedLoss {
            begin: KtimeNs(begin),
            end: KtimeNs(end),
            cpu,
            tid: None,
            records,
        });
    }

    /// The ranges that begin before `frontier` and were not returned before, sorted by begin and cut at `first`, the
    /// recording's begin; and the time up to which they are complete. Call it after a round, while reading.
    pub(super) fn due(&mut self, frontier: u64, first: u64) -> (Vec<ReportedLoss>, u64) {
        let frontier = self.settle_stopped(frontier);
        let progress = &mut self.due_progress;
        let new = self.ranges[progress.seen..].iter();
        progress
            .later
            .extend(new.map(|range| within(*range, first)));
        progress.seen = self.ranges.len();
        progress.missed |= progress
            .later
            .iter()
            .any(|range| range.begin.0 < progress.until);
        progress.until = frontier.max(progress.until);
        progress.later.sort_by_key(|loss| (loss.begin, loss.end));
        let due = progress
            .later
            .partition_point(|loss| loss.begin.0 < frontier);
        (progress.later.drain(..due).collect(), frontier)
    }

    /// Whether [`Losses::due`] missed a range that was found only later.
    pub(super) const fn has_missed(&self) -> bool {
        self.due_progress.missed
    }

    /// Ends the ranges of counters that were stopped more than a tick ago, one tick after the stop. Returns the time up
    /// to which all stopped counters are settled: `frontier` or earlier.
    fn settle_stopped(&mut self, frontier: u64) -> u64 {
        // No record older than this follows.
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

    /// All ranges of a recording from `first` to `end`, sorted by begin; and the samples dropped by `perf record
    /// --filter`.
    pub(super) fn close(mut self, (first, end): (u64, u64)) -> (Vec<ReportedLoss>, u64) {
        self.end(end);
        for range in &mut self.ranges {
            *range = within(*range, first);
        }
        self.ranges.sort_by_key(|loss| (loss.begin, loss.end));
        (self.ranges, self.left_out)
    }

    /// Adds what is known only at the end of the file; `end`: time of the last record.
    pub(super) fn end(&mut self, end: u64) {
        for was in std::mem::take(&mut self.stopped).into_values() {
            self.stood_still(was, end);
        }
        // Rings that were still full at the end have no LOST record.
        let unreported = self.counted.saturating_sub(self.reported);
        if unreported > 0 {
            self.counted = 0;
            self.range(end, end, None, Some(unreported));
        }
    }
}

/// The latest end of the tick after an instant.
const fn tick_after(begin: u64) -> u64 {
    begin.saturating_add(LONGEST_TICK_NS.unsigned_abs())
}

/// Cuts a range at the recording's begin, which is its first record.
fn within(range: ReportedLoss, first: u64) -> ReportedLoss {
    ReportedLoss {
        begin: KtimeNs(range.begin.0.max(first.min(range.end.0))),
        ..range
    }
}
