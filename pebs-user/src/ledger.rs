//! The account of every record: in = written + each reason.
//!
//! Invariant: [`Ledger::check`] succeeds at the end of every run. A stage books here every record that it does
//! not pass on; nothing is lost without a reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Least number of samples of which it matters how many are in no item.
const MANY: u64 = 100;

/// Least part of them that is nearly all.
const NEARLY_ALL: f64 = 0.95;

/// Why a record did not reach the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The kernel program found no room in the ring, or kept the last room for marks.
    DroppedRingFull,
    /// The CPU had no ring.
    DroppedNoRing,
    /// The sample came without a time stamp.
    DroppedNoTime,
    /// User space was over `--max-memory`.
    DroppedMemory,
    /// The disk was full or writing failed.
    DroppedDisk,
    /// Came behind the frontier.
    Late,
    /// The bytes made no sense.
    Malformed,
    /// An end mark without an open visit: the item began before the trace, or its begin mark is
    /// itself among the dropped.
    UnmatchedMark,
    /// Not lost: an end mark of an item known to have begun before the recording.
    BeganBefore,
    /// Not lost: an end mark of an item that began after the end of the recording. Probes on begins are removed
    /// first, so that items under way get their end.
    BeganAfter,
    /// A kernel ring of the perf subsystem was full (mappings, throttling and bulk samples).
    LostPerfRing,
    /// Not lost: its visit was not slow (`--keep`), so the sample is only in `function_stats`.
    NotKept,
}

impl Reason {
    /// The reason's name in `losses.reason`, `trace.json` and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DroppedRingFull => "dropped_ring_full",
            Self::DroppedNoRing => "dropped_no_ring",
            Self::DroppedNoTime => "dropped_no_time",
            Self::DroppedMemory => "dropped_memory",
            Self::DroppedDisk => "dropped_disk",
            Self::Late => "late",
            Self::Malformed => "malformed",
            Self::UnmatchedMark => "unmatched_mark",
            Self::BeganBefore => "began_before",
            Self::BeganAfter => "began_after",
            Self::LostPerfRing => "lost_perf_ring",
            Self::NotKept => "not_kept",
        }
    }
}

/// Account of one kind of record.
///
/// Units: records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Records seen by the kernel programs and not filtered.
    pub seen: u64,
    /// Records written to the trace as rows: samples, and marks as begins and ends of visits.
    pub written: u64,
    /// Records not written, by reason.
    pub reasons: BTreeMap<Reason, u64>,
}

impl Account {
    /// Books `n` records under a reason.
    pub fn book(&mut self, reason: Reason, n: u64) {
        if n > 0 {
            *self.reasons.entry(reason).or_default() += n;
        }
    }

    /// Records with a reason.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        self.reasons.values().sum()
    }

    /// Records booked under a reason.
    #[must_use]
    pub fn of(&self, reason: Reason) -> u64 {
        self.reasons.get(&reason).copied().unwrap_or(0)
    }

    /// Lost records: those with a reason, except samples left out on purpose, and ends of visits that began
    /// before or after the trace.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses().map(|(_, records)| records).sum()
    }

    /// The same by reason.
    pub fn losses(&self) -> impl Iterator<Item = (Reason, u64)> {
        let no_loss = [Reason::NotKept, Reason::BeganBefore, Reason::BeganAfter];
        let each = self
            .reasons
            .iter()
            .map(|(reason, records)| (*reason, *records));
        each.filter(move |(reason, _)| !no_loss.contains(reason))
    }

    /// Share of the records seen that were lost, 0..1; 0 if no record was seen. Marks without a partner (items
    /// that began before the trace) are not counted as lost.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        if self.seen == 0 {
            0.0
        } else {
            (self.lost() - self.of(Reason::UnmatchedMark)) as f64 / self.seen as f64
        }
    }

    /// Whether in = out + reasons.
    #[must_use]
    pub fn balances(&self) -> bool {
        self.seen == self.written + self.unwritten()
    }

    fn add(&mut self, other: &Self) {
        let Self {
            seen,
            written,
            reasons,
        } = other;
        self.seen += seen;
        self.written += written;
        for (&reason, &n) in reasons {
            self.book(reason, n);
        }
    }
}

/// Accounts of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLedger {
    /// The CPU; 65535: records without a CPU.
    pub cpu: u16,
    pub samples: Account,
    pub marks: Account,
    /// Switch, fork, exec, exit, page fault, throttle and clock records.
    pub tasks: Account,
}

/// The account of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Accounts by CPU, sorted.
    pub cpus: Vec<CpuLedger>,
    /// Samples that belong to no visit, whether they were written or not.
    pub samples_unmatched: u64,
    /// Samples whose address has no symbol, written or not.
    pub samples_unresolved: u64,
    /// Samples of other processes that the kernel programs filtered out.
    pub samples_filtered: u64,
    /// Samples written without their call stack for lack of memory.
    #[serde(default)]
    pub stacks_refused: u64,
    /// Argument reads that failed.
    pub argument_faults: u64,
    /// Samples in no item because the item id could not be read.
    #[serde(default)]
    pub item_faults: u64,
    /// Times that the kernel throttled sampling; null if it could not be determined.
    pub throttled: Option<u64>,
}

impl Ledger {
    /// Sum over CPUs of samples, marks and task records.
    #[must_use]
    pub fn totals(&self) -> CpuLedger {
        let mut total = CpuLedger::default();
        for CpuLedger {
            cpu: _,
            samples,
            marks,
            tasks,
        } in &self.cpus
        {
            total.samples.add(samples);
            total.marks.add(marks);
            total.tasks.add(tasks);
        }
        total
    }

    /// Number of samples without a symbol, and of all samples looked up, if the former are the majority.
    #[must_use]
    pub fn unnamed(&self) -> Option<(u64, u64)> {
        let samples = self.totals().samples;
        // Samples that were not kept were looked up as well.
        let all = samples.written + samples.of(Reason::NotKept);
        let unnamed = self.samples_unresolved;
        (unnamed > all / 2).then_some((unnamed, all))
    }

    /// Share of the samples that are in no item, if these are nearly all.
    #[must_use]
    pub fn outside(&self) -> Option<f64> {
        let samples = self.totals().samples;
        let all = samples.written + samples.of(Reason::NotKept);
        let share = self.samples_unmatched as f64 / all as f64;
        (all >= MANY && share >= NEARLY_ALL).then_some(share)
    }

    /// One line for each account that does not balance; empty when all do.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for cpu in &self.cpus {
            for (name, account) in [
                ("samples", &cpu.samples),
                ("marks", &cpu.marks),
                ("task records", &cpu.tasks),
            ] {
                if !account.balances() {
                    faults.push(format!(
                        "{name} of cpu {} do not balance: {} seen, {} written, {} with a reason",
                        cpu.cpu,
                        account.seen,
                        account.written,
                        account.unwritten()
                    ));
                }
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples that were named and then not kept count as well.
    #[test]
    fn most_have_no_name() {
        let ledger = |samples_unresolved, written, not_kept| {
            let mut cpu = CpuLedger::default();
            cpu.samples.written = written;
            cpu.samples.book(Reason::NotKept, not_kept);
            cpu.samples.book(Reason::DroppedRingFull, 100);
            Ledger {
                cpus: vec![cpu],
                samples_unresolved,
                ..Ledger::default()
            }
        };
        assert_eq!(ledger(0, 0, 0).unnamed(), None);
        assert_eq!(ledger(3, 6, 0).unnamed(), None);
        assert_eq!(ledger(4, 6, 0).unnamed(), Some((4, 6)));
        assert_eq!(ledger(4, 1, 7).unnamed(), None);
        assert_eq!(ledger(5, 0, 8).unnamed(), Some((5, 8)));
    }
    /// Nearly all samples are in no item; a few samples tell nothing.
    #[test]
    fn most_are_in_no_item() {
        let outside = |samples_unmatched, written, not_kept| {
            let mut cpu = CpuLedger::default();
            cpu.samples.written = written;
            cpu.samples.book(Reason::NotKept, not_kept);
            let ledger = Ledger {
                cpus: vec![cpu],
                samples_unmatched,
                ..Ledger::default()
            };
            ledger.outside()
        };
        assert_eq!(outside(960, 1_000, 0), Some(0.96));
        assert_eq!(outside(960, 1_000, 1_000), None);
        assert_eq!(outside(99, 99, 0), None);
    }
}
