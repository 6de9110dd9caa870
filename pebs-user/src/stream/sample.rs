//! A sample as it goes from stage to stage: kept small, as there are many.

use std::fmt;

use pebs_common::config::MAX_EVENTS;
use pebs_common::record::{MAX_SYSTEM_CALLS, entry};

use crate::stream::stacks::StackKey;
use crate::units::{Cpu, EventId, Ip, TraceNs};

/// A sample without its thread. 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSample {
    pub time: TraceNs,
    pub ip: Ip,
    /// User stack pointer; 0 for a sample in kernel mode. Where item ids are sampled, the id of the thread's current
    /// item: there are no frames to match then.
    pub sp: u64,
    /// Fields that mostly equal those of neighbouring samples.
    pub kind: SampleKind,
}

/// A sample without its thread and stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareSample {
    pub time: TraceNs,
    pub ip: Ip,
    /// Fields that mostly equal those of neighbouring samples.
    pub kind: SampleKind,
}

/// Entry of a thread from user mode to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelEntry {
    /// By the system call of this number.
    SystemCall(u16),
    /// By a page fault.
    PageFault,
    /// By an interrupt: of a timer, a device, or another CPU.
    Interrupt,
    /// By another exception.
    Exception,
    /// By a breakpoint or a single step of another tool.
    Breakpoint,
    /// By a mark of pebs-trace.
    Mark,
}

/// Fields of a sample that mostly equal those of its neighbours: CPU, event, exact and kernel flags, entry to the
/// kernel and call stack. Packed in one word so that they are copied and compared at once.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleKind(u64);

impl SampleKind {
    const EXACT: u64 = 1 << 24;
    const KERNEL: u64 = 1 << 25;
    /// Shift of the entry to the kernel, as in [`pebs_common::record::Sample::sp`], 9 bits.
    const ENTRY: u32 = 26;
    const ENTRY_MASK: u64 = entry::MARK << Self::ENTRY;
    /// Shift of the call stack's number.
    const STACK: u32 = 35;

    /// Returns the kind of a sample without a call stack. `exact`: the kernel reports the ip as exact; `kernel`: it was
    /// taken in kernel mode.
    #[inline(always)]
    #[must_use]
    pub const fn new(cpu: Cpu, event: EventId, (exact, kernel): (bool, bool)) -> Self {
        let exact = if exact { Self::EXACT } else { 0 };
        let kernel = if kernel { Self::KERNEL } else { 0 };
        Self(cpu.0 as u64 | (event.0 as u64) << 16 | exact | kernel)
    }

    /// Adds a call stack.
    #[must_use]
    pub const fn with_stack(self, stack: StackKey) -> Self {
        let mask = (1 << Self::STACK) - 1;
        Self(self.0 & mask | (stack.number() as u64) << Self::STACK)
    }

    /// Adds the entry to the kernel, as in [`pebs_common::record::Sample::sp`]. Values out of range count as unknown.
    #[inline(always)]
    #[must_use]
    pub const fn with_entry(self, entry: u64) -> Self {
        let entry = if entry <= entry::MARK { entry } else { 0 };
        Self(self.0 & !Self::ENTRY_MASK | entry << Self::ENTRY)
    }

    const fn entry_number(self) -> u64 {
        (self.0 & Self::ENTRY_MASK) >> Self::ENTRY
    }

    /// Returns the entry to the kernel in which it was taken; `None`: in user mode, or unknown.
    #[inline(always)]
    #[must_use]
    pub const fn entry(self) -> Option<KernelEntry> {
        match self.entry_number() {
            call @ 1..=MAX_SYSTEM_CALLS => Some(KernelEntry::SystemCall(call as u16 - 1)),
            entry::PAGE_FAULT => Some(KernelEntry::PageFault),
            entry::INTERRUPT => Some(KernelEntry::Interrupt),
            entry::EXCEPTION => Some(KernelEntry::Exception),
            entry::BREAKPOINT => Some(KernelEntry::Breakpoint),
            entry::MARK => Some(KernelEntry::Mark),
            _ => None,
        }
    }

    /// Removes the entry to the kernel: what is left is stored in a table row.
    #[inline(always)]
    #[must_use]
    pub const fn of_row(self) -> Self {
        Self(self.0 & !Self::ENTRY_MASK)
    }

    /// Bits in which it differs from another.
    #[inline(always)]
    #[must_use]
    pub const fn differs(self, other: Self) -> u64 {
        self.0 ^ other.0
    }

    /// Whether CPUs are among the bits returned by [`differs`](SampleKind::differs).
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

    /// Whether anything but the entry to the kernel is among the bits returned by [`differs`](SampleKind::differs).
    #[inline(always)]
    #[must_use]
    pub const fn differ_in_row(bits: u64) -> bool {
        bits & !Self::ENTRY_MASK != 0
    }

    /// Whether the entry to the kernel of any of the samples is known.
    #[inline(always)]
    #[must_use]
    pub fn any_entry(kinds: &[Self]) -> bool {
        kinds.iter().fold(0, |bits, kind| bits | kind.0) & Self::ENTRY_MASK != 0
    }

    #[inline(always)]
    #[must_use]
    pub const fn event(self) -> EventId {
        EventId((self.0 >> 16) as u8)
    }

    /// Whether the kernel reports the ip as exact.
    #[inline(always)]
    #[must_use]
    pub const fn is_exact(self) -> bool {
        self.0 & Self::EXACT != 0
    }

    /// Whether it was taken in kernel mode.
    #[inline(always)]
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        self.0 & Self::KERNEL != 0
    }

    #[inline(always)]
    #[must_use]
    pub const fn stack(self) -> StackKey {
        StackKey::from_number((self.0 >> Self::STACK) as u32)
    }
}

/// Numbers of samples, by event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplesBy([u64; MAX_EVENTS]);

impl SamplesBy {
    /// Samples of one event.
    #[must_use]
    pub fn of_event(event: EventId, samples: u64) -> Self {
        let mut by = Self::default();
        by.add(event, samples);
        by
    }

    /// Adds samples of an event.
    #[inline]
    pub fn add(&mut self, event: EventId, samples: u64) {
        if let Some(sum) = self.0.get_mut(usize::from(event.0)) {
            *sum += samples;
        }
    }

    /// Adds samples; only if they are `mixed` each one's event is looked at.
    #[inline]
    pub fn count(&mut self, kinds: &[SampleKind], mixed: bool) {
        match kinds.first() {
            Some(first) if !mixed => self.add(first.event(), kinds.len() as u64),
            _ => kinds.iter().for_each(|kind| self.add(kind.event(), 1)),
        }
    }

    /// Those since an earlier state.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|n| {
            self.0[n].saturating_sub(before.0[n])
        }))
    }

    /// Samples of all events.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each event with its number of samples.
    pub fn iter(&self) -> impl Iterator<Item = (EventId, u64)> {
        (0..).map(EventId).zip(self.0)
    }
}

impl std::ops::AddAssign for SamplesBy {
    fn add_assign(&mut self, other: Self) {
        other
            .iter()
            .for_each(|(event, samples)| self.add(event, samples));
    }
}

impl fmt::Debug for SampleKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SampleKind")
            .field("cpu", &self.cpu())
            .field("event", &self.event())
            .field("is_exact", &self.is_exact())
            .field("is_kernel", &self.is_kernel())
            .field("entry", &self.entry())
            .field("stack", &self.stack())
            .finish()
    }
}

const _: () = assert!(size_of::<RawSample>() == 32);

// Largest value of the field.
const _: () = assert!(entry::MARK == (1 << (SampleKind::STACK - SampleKind::ENTRY)) - 1);
const _: () = assert!(MAX_SYSTEM_CALLS < entry::PAGE_FAULT && entry::BREAKPOINT < entry::MARK);

impl RawSample {
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

    /// The fields of the word don't overlap: extreme values change no other field.
    #[test]
    fn parts() {
        let stack = StackKey::from_number((1 << 29) - 1);
        for (cpu, event) in [(0, 0), (u16::MAX, u8::MAX)] {
            let kind = SampleKind::new(Cpu(cpu), EventId(event), (true, true));
            let last = MAX_SYSTEM_CALLS as u16 - 1;
            for (entry, expected) in [
                (0, None),
                (1, Some(KernelEntry::SystemCall(0))),
                (MAX_SYSTEM_CALLS, Some(KernelEntry::SystemCall(last))),
                (entry::PAGE_FAULT, Some(KernelEntry::PageFault)),
                (entry::INTERRUPT, Some(KernelEntry::Interrupt)),
                (entry::EXCEPTION, Some(KernelEntry::Exception)),
                (entry::BREAKPOINT, Some(KernelEntry::Breakpoint)),
                (entry::MARK, Some(KernelEntry::Mark)),
                (entry::MARK - 1, None),
            ] {
                let full = kind.with_entry(entry).with_stack(stack);
                assert_eq!((full.cpu(), full.event()), (Cpu(cpu), EventId(event)));
                assert!(full.is_exact() && full.is_kernel());
                assert_eq!(full.entry(), expected);
                assert_eq!(full.stack(), stack);
                assert_eq!(full.of_row(), kind.with_stack(stack));
                assert!(!SampleKind::differ_in_row(
                    full.differs(kind.with_stack(stack))
                ));
            }
            assert_eq!(kind.with_entry(entry::MARK + 1), kind);
        }
    }
}
