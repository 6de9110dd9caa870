//! What came between a thread and its work, and how long it took.

use pebs_common::record::Interference;

use crate::store::schema::InterferenceColumns;

/// What is recorded of it, page faults aside that are only counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interferences {
    /// Interrupts.
    pub irq: bool,
    /// The time of page faults.
    pub faults: bool,
}

/// What it took of a visit while this was the thread's current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    irq_ns: u64,
    softirq_ns: u64,
    fault_ns: u64,
    major_faults: u32,
}

impl Taken {
    /// Adds one interference.
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
        }
    }

    /// The columns: null where it was not recorded.
    #[must_use]
    pub fn columns(&self, recorded: Interferences) -> InterferenceColumns {
        let Interferences { irq, faults } = recorded;
        let ns = |is_known: bool, ns: u64| is_known.then_some(ns as i64);
        InterferenceColumns {
            irq_ns: ns(irq, self.irq_ns),
            softirq_ns: ns(irq, self.softirq_ns),
            fault_ns: ns(faults, self.fault_ns),
            major_faults: faults.then_some(self.major_faults),
        }
    }
}
