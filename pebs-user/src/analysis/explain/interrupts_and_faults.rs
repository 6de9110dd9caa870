//! Interrupt, softirq and page-fault time per item, which is included in its other times. So is the time lost
//! to a slower clock.

use crate::analysis::report::interrupts_and_faults;
use crate::store::view::{View as _, columns};

columns! {
    /// Columns of `visits` that are needed: all that are times.
    pub(super) struct TimeColumns of visits { irq_ns, softirq_ns, fault_ns }
}

/// Names, in the order of [`Times`].
pub(super) const WHAT: [&str; KINDS] = {
    let [irq, softirq, fault, _major] = interrupts_and_faults::WHAT;
    [irq, softirq, fault, "slower clock"]
};

/// Number of kinds: those of [`TimeColumns`], and [`SLOWER_CLOCK`].
pub(super) const KINDS: usize = 4;

/// Place of the time that a clock as fast as the fastest of the recording would have saved.
pub(super) const SLOWER_CLOCK: usize = 3;

/// Times of an item, ns; `None`: not recorded. In half the bytes of the columns, and exact to a 16-millionth.
pub(in crate::analysis) type Times = [Option<f32>; KINDS];

impl TimeColumns<'_> {
    pub(super) fn get(&self, row: usize) -> Times {
        let columns = [&self.irq_ns, &self.softirq_ns, &self.fault_ns];
        let [irq, softirq, fault] = columns.map(|it| it.get(row).map(|ns| ns as f32));
        [irq, softirq, fault, None]
    }
}

/// Subtracts pebs-trace's own time during page faults.
pub(super) fn take_own(times: &mut Times, oncpu_ns: i64, own_ns: i64) {
    let [_, _, faults, _] = times;
    *faults =
        faults.map(|ns| ns - interrupts_and_faults::own_during(ns as i64, oncpu_ns, own_ns) as f32);
}

/// Adds the times of another visit; a kind unknown in one is unknown in the sum.
pub(super) fn add(own: &mut Times, more: Times) {
    for (own, more) in own.iter_mut().zip(more) {
        *own = own.zip(more).map(|(own, more)| own + more);
    }
}
