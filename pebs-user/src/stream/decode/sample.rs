//! A sample as it goes from stage to stage: small, as there are many.

use std::fmt;

use pebs_common::record::MAX_SYSTEM_CALLS;

use crate::stream::samples::BareSample;
use crate::stream::stacks::StackKey;
use crate::units::{Cpu, EventId, Ip, TraceNs};

/// A sample, its thread aside. 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSample {
    /// When.
    pub time: TraceNs,
    /// Instruction pointer.
    pub ip: Ip,
    /// User stack pointer; 0 for a sample in kernel mode. Where ids are read at samples, the id of the thread's
    /// current item: there are no frames to match then.
    pub sp: u64,
    /// What it mostly has in common with the samples around it.
    pub kind: SampleKind,
}

/// What samples that follow one another mostly have in common: CPU, event, two truths, the system call and the call stack,
/// in one word, so that it is copied and compared at once.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleKind(u64);

impl SampleKind {
    const EXACT: u64 = 1 << 24;
    const KERNEL: u64 = 1 << 25;
    /// Where the system call's number and 1 begins, of 9 bits.
    const CALL: u32 = 26;
    const CALL_MASK: u64 = MAX_SYSTEM_CALLS << Self::CALL;
    /// Where the call stack's number begins.
    const STACK: u32 = 35;

    /// Of a sample without a call stack. `exact`: the kernel said that the ip is exact; `kernel`: it was taken in
    /// kernel mode.
    #[inline(always)]
    #[must_use]
    pub const fn new(cpu: Cpu, event: EventId, (exact, kernel): (bool, bool)) -> Self {
        let exact = if exact { Self::EXACT } else { 0 };
        let kernel = if kernel { Self::KERNEL } else { 0 };
        Self(cpu.0 as u64 | (event.0 as u64) << 16 | exact | kernel)
    }

    /// The same with a call stack.
    #[must_use]
    pub const fn with_stack(self, stack: StackKey) -> Self {
        let mask = (1 << Self::STACK) - 1;
        Self(self.0 & mask | (stack.number() as u64) << Self::STACK)
    }

    /// The same in a system call, by its number and 1; 0: in none. Impossible numbers count as none.
    #[inline(always)]
    #[must_use]
    pub const fn with_system_call(self, call: u64) -> Self {
        let call = if call <= MAX_SYSTEM_CALLS { call } else { 0 };
        Self(self.0 & !Self::CALL_MASK | call << Self::CALL)
    }

    /// Number of the system call in which it was taken.
    #[inline(always)]
    #[must_use]
    pub const fn system_call(self) -> Option<u16> {
        (((self.0 & Self::CALL_MASK) >> Self::CALL) as u16).checked_sub(1)
    }

    /// Without the system call: what rows of the table have in common.
    #[inline(always)]
    #[must_use]
    pub const fn of_row(self) -> Self {
        Self(self.0 & !Self::CALL_MASK)
    }

    /// Bits in which it differs from another.
    #[inline(always)]
    #[must_use]
    pub const fn differs(self, other: Self) -> u64 {
        self.0 ^ other.0
    }

    /// Whether CPUs are among what [differs](SampleKind::differs).
    #[inline(always)]
    #[must_use]
    pub const fn differ_in_cpu(bits: u64) -> bool {
        bits as u16 != 0
    }

    #[inline(always)]
    #[must_use]
    pub const fn cpu(self) -> Cpu {
        Cpu(self.0 as u16)
    }

    /// Whether anything but system calls is among what [differs](SampleKind::differs).
    #[inline(always)]
    #[must_use]
    pub const fn differ_in_row(bits: u64) -> bool {
        bits & !Self::CALL_MASK != 0
    }

    /// Whether one of some samples was taken in a system call.
    #[inline(always)]
    #[must_use]
    pub fn any_system_call(kinds: &[Self]) -> bool {
        kinds.iter().fold(0, |bits, kind| bits | kind.0) & Self::CALL_MASK != 0
    }

    #[inline(always)]
    #[must_use]
    pub const fn event(self) -> EventId {
        EventId((self.0 >> 16) as u8)
    }

    /// The kernel said that the ip is exact.
    #[inline(always)]
    #[must_use]
    pub const fn is_exact(self) -> bool {
        self.0 & Self::EXACT != 0
    }

    /// Taken in kernel mode.
    #[inline(always)]
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        self.0 & Self::KERNEL != 0
    }

    /// Its call stack.
    #[inline(always)]
    #[must_use]
    pub const fn stack(self) -> StackKey {
        StackKey::from_number((self.0 >> Self::STACK) as u32)
    }
}

impl fmt::Debug for SampleKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SampleKind")
            .field("cpu", &self.cpu())
            .field("event", &self.event())
            .field("is_exact", &self.is_exact())
            .field("is_kernel", &self.is_kernel())
            .field("system_call", &self.system_call())
            .field("stack", &self.stack())
            .finish()
    }
}

const _: () = assert!(size_of::<RawSample>() == 32);

// What a number of 9 bits says, of which 0 is none.
const _: () = assert!(MAX_SYSTEM_CALLS == (1 << (SampleKind::STACK - SampleKind::CALL)) - 1);

impl RawSample {
    /// The sample without its stack pointer.
    #[must_use]
    pub const fn bare(&self) -> BareSample {
        BareSample {
            time: self.time,
            ip: self.ip,
            kind: self.kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part of the word is its own: numbers at their ends change no other.
    #[test]
    fn parts() {
        let stack = StackKey::from_number((1 << 29) - 1);
        for (cpu, event) in [(0, 0), (u16::MAX, u8::MAX)] {
            let kind = SampleKind::new(Cpu(cpu), EventId(event), (true, true));
            for call in [0, 1, MAX_SYSTEM_CALLS] {
                let full = kind.with_system_call(call).with_stack(stack);
                assert_eq!((full.cpu(), full.event()), (Cpu(cpu), EventId(event)));
                assert!(full.is_exact() && full.is_kernel());
                assert_eq!(full.system_call().map(u64::from), call.checked_sub(1));
                assert_eq!(full.stack(), stack);
                assert_eq!(full.of_row(), kind.with_stack(stack));
                assert!(!SampleKind::differ_in_row(
                    full.differs(kind.with_stack(stack))
                ));
            }
            assert_eq!(kind.with_system_call(MAX_SYSTEM_CALLS + 1), kind);
        }
    }
}
