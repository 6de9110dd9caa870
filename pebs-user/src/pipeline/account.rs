//! Builds the ledger: what the kernel programs counted, against what was decoded.

use std::collections::BTreeMap;

use pebs_common::counter::Counter;
use pebs_common::record::Role;

use super::rows::{Rows, Used};
use super::{ColdNs, MarksBy, MarksMade, REFUSALS};
use crate::correlate::Lost;
use crate::estimate::cold::Coldness;
use crate::ledger::{Account, CpuLedger, Ledger, Reason};
use crate::stream::cycle::CounterRow;
use crate::stream::decode::{Body, Decoded, Record};
use crate::stream::order::{Late, LateKind, Ready};
use crate::units::{Cpu, ProbeId};

/// Running account of one CPU.
#[derive(Debug, Default)]
struct CpuAccount {
    counters: CounterRow,
    /// All decoded records.
    decoded: Decoded,
    /// The part of `decoded` that our kernel programs did not count.
    uncounted: Decoded,
    /// Bytes taken from its ring, headers included.
    ring_bytes: u64,
    ledger: CpuLedger,
}

/// Running accounts of all CPUs.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    cpus: BTreeMap<u16, CpuAccount>,
    /// Marks decoded.
    pub marks: Marks,
}

/// Counts marks and what they take.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub made: MarksMade,
    pub coldness: Coldness,
}

impl Marks {
    fn count(&mut self, (probe, role, stepped): (ProbeId, Role, bool), ran_ns: Option<u16>) {
        let MarksMade { by, cold } = &mut self.made;
        let probe = usize::from(probe.0);
        if probe >= by.len() {
            by.resize(probe + 1, MarksBy::default());
            cold.resize(probe + 1, ColdNs::default());
        }
        by[probe][role as usize + 4 * usize::from(stepped)] += 1;
        let more = self.coldness.more(stepped, ran_ns);
        cold[probe].whole += more.before_ns + more.after_ns;
        cold[probe].outside += match role {
            Role::Begin | Role::Next => more.before_ns,
            Role::End | Role::Return => more.after_ns,
        };
    }
}

impl Accounts {
    fn cpu(&mut self, cpu: Cpu) -> &mut CpuAccount {
        self.cpus.entry(cpu.0).or_default()
    }

    /// Counts records decoded from a CPU's ring.
    pub(super) fn decoded(&mut self, cpu: Cpu, decoded: &Decoded) {
        let Decoded {
            samples,
            marks,
            tasks,
            switches,
            clocks,
            counts,
            ticks,
            malformed,
        } = decoded;
        let account = self.cpu(cpu);
        account.ledger.tasks.written += clocks;
        let sum = &mut account.decoded;
        sum.samples += samples;
        sum.marks += marks;
        sum.tasks += tasks;
        sum.switches += switches;
        sum.clocks += clocks;
        sum.counts += counts;
        sum.ticks += ticks;
        sum.malformed += malformed;
    }

    /// Number of switches decoded, out and in.
    pub(super) fn switches(&self) -> u64 {
        self.cpus.values().map(|cpu| cpu.decoded.switches).sum()
    }

    /// Number of records of counts decoded.
    pub(super) fn counts(&self) -> u64 {
        self.cpus.values().map(|cpu| cpu.decoded.counts).sum()
    }

    /// Number of those at ticks.
    pub(super) fn ticks(&self) -> u64 {
        self.cpus.values().map(|cpu| cpu.decoded.ticks).sum()
    }

    /// Counts bytes taken from a CPU's ring.
    pub(super) fn taken(&mut self, cpu: Cpu, bytes: usize) {
        self.cpu(cpu).ring_bytes += bytes as u64;
    }

    /// Bytes of the ring with the most.
    pub(super) fn most_ring_bytes(&self) -> u64 {
        let each = self.cpus.values().map(|cpu| cpu.ring_bytes);
        each.max().unwrap_or(0)
    }

    /// Counts records of a CPU that our kernel programs did not count; malformed ones count as samples.
    pub(super) fn decoded_uncounted(&mut self, cpu: Cpu, decoded: &Decoded) {
        let uncounted = &mut self.cpu(cpu).uncounted;
        uncounted.samples += decoded.samples + decoded.malformed;
        uncounted.marks += decoded.marks;
        uncounted.tasks += decoded.tasks;
        self.decoded(cpu, decoded);
    }

    /// Counts records of a CPU that a recording reports as lost.
    pub(super) fn reported_lost(&mut self, cpu: Cpu, records: u64) {
        let samples = &mut self.cpu(cpu).ledger.samples;
        samples.seen += records;
        samples.book(Reason::LostPerfRing, records);
    }

    /// Counts samples of a recording that were left out: on purpose, and without a time.
    pub(super) fn left_out(&mut self, filtered: u64, untimed: u64) {
        if filtered + untimed > 0 {
            let counters = &mut self.cpu(Cpu::UNKNOWN).counters;
            counters[Counter::SampleFiltered as usize] += filtered;
            counters[Counter::SampleNoTime as usize] += untimed;
        }
    }

    /// Takes a CPU's counters; returns the records refused since the last call, by reason.
    pub(super) fn refused(&mut self, cpu: Cpu, now: &CounterRow) -> Vec<(Reason, u64)> {
        let account = self.cpus.get_mut(&cpu.0);
        if account.is_none() && now.iter().all(|&count| count == 0) {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.cpu(cpu).counters, *now);
        let mut refused: Vec<(Reason, u64)> = Vec::new();
        for (counter, reason) in REFUSALS {
            let n = now[counter as usize] - before[counter as usize];
            match refused.iter_mut().find(|(r, _)| *r == reason) {
                Some((_, sum)) => *sum += n,
                None => refused.push((reason, n)),
            }
        }
        refused.retain(|(_, n)| *n > 0);
        refused
    }

    /// Counts a record that came behind the frontier.
    pub(super) fn late(&mut self, late: Late) {
        let ledger = &mut self.cpu(Cpu(late.cpu)).ledger;
        let account = match late.kind {
            LateKind::Sample => &mut ledger.samples,
            LateKind::Mark => &mut ledger.marks,
            LateKind::Task => &mut ledger.tasks,
        };
        account.book(Reason::Late, 1);
    }

    /// Counts the records about to be correlated as written; [`Accounts::take_used`] moves those that can't be used to
    /// their reason.
    pub(super) fn ready(&mut self, ready: &Ready<'_>) {
        for records in ready.records_by_thread() {
            // Records of a CPU come in runs.
            for run in records.chunk_by(|a, b| a.cpu == b.cpu) {
                let marks = self.count_marks(run);
                let cpu = run.first().map_or(Cpu::UNKNOWN, |record| record.cpu);
                self.written(cpu, (marks, run.len() as u64 - marks));
            }
        }
    }

    /// Counts marks by probe and role; returns their number.
    fn count_marks(&mut self, records: &[Record]) -> u64 {
        let mut marks = 0;
        for record in records {
            if let Body::Mark {
                probe,
                role,
                stepped,
                ran_ns,
                ..
            } = record.body
            {
                marks += 1;
                self.marks.count((probe, role, stepped), ran_ns);
            }
        }
        marks
    }

    fn written(&mut self, cpu: Cpu, (marks, tasks): (u64, u64)) {
        if marks + tasks > 0 {
            let ledger = &mut self.cpu(cpu).ledger;
            ledger.marks.written += marks;
            ledger.tasks.written += tasks;
        }
    }

    /// Counts samples written and records lost.
    pub(super) fn take_used(&mut self, rows: &mut Rows) {
        for used in rows.used.drain(..) {
            match used {
                Used::Samples(cpu, n) => self.cpu(cpu).ledger.samples.written += n,
                Used::NotKept(cpu, n) => self.cpu(cpu).ledger.samples.book(Reason::NotKept, n),
                Used::Lost(cpu, Lost::Sample, reason) => {
                    self.cpu(cpu).ledger.samples.book(reason, 1);
                }
                Used::Lost(cpu, Lost::Mark, reason) => {
                    let marks = &mut self.cpu(cpu).ledger.marks;
                    marks.written -= 1;
                    marks.book(reason, 1);
                }
            }
        }
    }

    /// Samples decoded.
    pub(super) fn samples(&self) -> u64 {
        self.cpus.values().map(|cpu| cpu.decoded.samples).sum()
    }

    /// Marks decoded.
    pub(super) fn marks(&self) -> u64 {
        self.cpus.values().map(|cpu| cpu.decoded.marks).sum()
    }

    /// Samples and marks refused by the kernel programs or dropped by the stages.
    pub(super) fn lost(&self) -> u64 {
        let dropped = |account: &Account| account.lost() - account.of(Reason::UnmatchedMark);
        self.cpus
            .values()
            .map(|cpu| {
                let refused: u64 = REFUSALS
                    .iter()
                    .map(|(counter, _)| cpu.counters[*counter as usize])
                    .sum();
                let tasks = cpu.counters[Counter::TaskDropped as usize];
                refused - tasks + dropped(&cpu.ledger.samples) + dropped(&cpu.ledger.marks)
            })
            .sum()
    }

    /// The ledger of all records. Samples that could not be written to disk are moved from written to their reason.
    pub(super) fn ledger(&self, rows: &Rows, lost_samples: u64) -> Ledger {
        let sum = |counter: Counter| -> u64 {
            self.cpus
                .values()
                .map(|cpu| cpu.counters[counter as usize])
                .sum()
        };
        let mut cpus: Vec<CpuLedger> = self
            .cpus
            .iter()
            .map(|(&number, cpu)| cpu.close(number))
            .collect();
        move_lost(&mut cpus, lost_samples);
        Ledger {
            cpus,
            samples_unmatched: rows.strays,
            samples_unresolved: rows.unresolved,
            samples_filtered: sum(Counter::SampleFiltered) + sum(Counter::SampleExcluded),
            stacks_refused: rows.chains.refused(),
            argument_faults: sum(Counter::ArgumentFault),
            item_faults: sum(Counter::ItemFault),
            throttled: Some(rows.throttled),
        }
    }
}

impl CpuAccount {
    fn close(&self, number: u16) -> CpuLedger {
        let mut ledger = CpuLedger {
            cpu: number,
            ..self.ledger.clone()
        };
        let at = |counter: Counter| self.counters[counter as usize];
        let samples = Refused {
            emitted: at(Counter::SampleEmitted) + self.uncounted.samples,
            decoded: self.decoded.samples,
            full: at(Counter::SampleDropped),
            no_ring: at(Counter::SampleNoRing),
        };
        samples.book(&mut ledger.samples);
        ledger.samples.seen += at(Counter::SampleNoTime);
        ledger
            .samples
            .book(Reason::DroppedNoTime, at(Counter::SampleNoTime));
        let marks = Refused {
            emitted: at(Counter::MarkEmitted) + self.uncounted.marks,
            decoded: self.decoded.marks,
            full: at(Counter::MarkDropped),
            no_ring: at(Counter::MarkNoRing),
        };
        marks.book(&mut ledger.marks);
        let tasks = Refused {
            emitted: at(Counter::TaskEmitted) + self.uncounted.tasks,
            decoded: self.decoded.tasks,
            full: at(Counter::TaskDropped),
            no_ring: at(Counter::TaskNoRing),
        };
        tasks.book(&mut ledger.tasks);
        ledger
    }
}

/// Counters of one kind of record: from the kernel programs, and of records decoded.
struct Refused {
    emitted: u64,
    decoded: u64,
    full: u64,
    no_ring: u64,
}

impl Refused {
    fn book(&self, account: &mut Account) {
        account.seen += self.emitted + self.full + self.no_ring;
        account.book(Reason::DroppedRingFull, self.full);
        account.book(Reason::DroppedNoRing, self.no_ring);
        account.book(Reason::Malformed, self.emitted.saturating_sub(self.decoded));
    }
}

/// Moves samples that could not be written to their reason, CPU by CPU.
fn move_lost(cpus: &mut [CpuLedger], mut lost: u64) {
    for cpu in cpus {
        let here = lost.min(cpu.samples.written);
        cpu.samples.written -= here;
        cpu.samples.book(Reason::DroppedDisk, here);
        lost -= here;
    }
}
