//! A thread of the target, and its registers in samples.

use crate::arch::Register;
use crate::units::{Pid, Tid};

/// A thread of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Thread {
    pub pid: Pid,
    pub tid: Tid,
}

/// The value of a register among those of a mask, the lowest first.
pub(super) fn value(mask: u64, values: &[u64], register: Register) -> Option<u64> {
    let bit = register.perf_number();
    let place = (mask & ((1 << bit) - 1)).count_ones() as usize;
    let has = mask >> bit & 1 == 1;
    has.then(|| values.get(place).copied()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values are in the order of the mask's bits.
    #[test]
    fn values() {
        let mask = 1 << Register::STACK.perf_number() | 1 << Register::RESULT.perf_number();
        assert_eq!(value(mask, &[1, 2], Register::STACK), Some(2));
        assert_eq!(value(mask, &[1, 2], Register::FRAME), None);
    }
}
