//! Interrupts, softirqs and page faults of a thread, and how long they took.

use std::ops::AddAssign;

use pebs_common::record::Interference;

use crate::store::schema::InterferenceColumns;
use crate::stream::decode::Interferences;

/// Number of interruptions that the kernel programs recorded (with `--with` and `--count-interval`
/// only).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraRecords {
    pub interrupts: u64,
    pub softirqs: u64,
    /// Wake-ups and displacements.
    pub encounters: u64,
    /// Ticks that read the thread's counters (`--count-interval`).
    pub ticks: u64,
}

impl ExtraRecords {
    /// Counts an interrupt or softirq; ignores the others.
    pub(super) fn add(&mut self, which: Interference) {
        self.interrupts += u64::from(which == Interference::Interrupt);
        self.softirqs += u64::from(which == Interference::SoftInterrupt);
    }

    /// Difference to an earlier state.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            interrupts: self.interrupts.saturating_sub(before.interrupts),
            softirqs: self.softirqs.saturating_sub(before.softirqs),
            encounters: self.encounters.saturating_sub(before.encounters),
            ticks: self.ticks.saturating_sub(before.ticks),
        }
    }
}

impl AddAssign for ExtraRecords {
    fn add_assign(&mut self, more: Self) {
        self.interrupts += more.interrupts;
        self.softirqs += more.softirqs;
        self.encounters += more.encounters;
        self.ticks += more.ticks;
    }
}

/// Interrupt, softirq and fault time of a visit while it was the thread's current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InterruptionTimes {
    irq_ns: u64,
    softirq_ns: u64,
    fault_ns: u64,
    reclaim_ns: u64,
    major_faults: u32,
}

impl AddAssign for InterruptionTimes {
    fn add_assign(&mut self, more: Self) {
        self.irq_ns += more.irq_ns;
        self.softirq_ns += more.softirq_ns;
        self.fault_ns += more.fault_ns;
        self.reclaim_ns += more.reclaim_ns;
        self.major_faults += more.major_faults;
    }
}

impl InterruptionTimes {
    pub(super) fn add(&mut self, which: Interference, ns: u64) {
        match which {
            Interference::PageFault => {}
            Interference::MinorFault => self.fault_ns += ns,
            Interference::MajorFault => {
                self.fault_ns += ns;
                self.major_faults += 1;
            }
            Interference::Interrupt => self.irq_ns += ns,
            Interference::SoftInterrupt => self.softirq_ns += ns,
            Interference::Reclaim => self.reclaim_ns += ns,
        }
    }

    /// Values of the columns: `None` where the kind was not recorded.
    #[must_use]
    pub(super) fn columns(&self, recorded: Interferences) -> InterferenceColumns {
        let Interferences { irq, faults } = recorded;
        let ns = |is_known: bool, ns: u64| is_known.then_some(ns as i64);
        InterferenceColumns {
            irq_ns: ns(irq, self.irq_ns),
            softirq_ns: ns(irq, self.softirq_ns),
            fault_ns: ns(faults, self.fault_ns),
            reclaim_ns: ns(faults, self.reclaim_ns),
            major_faults: faults.then_some(self.major_faults),
        }
    }
}
