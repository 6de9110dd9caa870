//! Reads a counter by its page, under the sequence lock.

use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use crate::Count;

/// `cap_bit0_is_deprecated`: set since Linux 3.12, when the other bits got their present meaning.
pub(crate) const CAP_BITS_ARE_VALID: u64 = 1 << 1;
/// `cap_user_rdpmc`: user space may read the counter.
pub(crate) const CAP_USER_RDPMC: u64 = 1 << 2;
/// `cap_user_time`: `time_mult`, `time_shift` and `time_offset` are valid.
pub(crate) const CAP_USER_TIME: u64 = 1 << 3;
/// `cap_user_time_short`: the time stamp counter has less than 64 bits; `time_cycles` and `time_mask` are valid.
pub(crate) const CAP_USER_TIME_SHORT: u64 = 1 << 5;

/// Tries before a page counts as busy. The kernel changes it some times per ms at most.
const TRIES: usize = 100;

/// `struct perf_event_mmap_page`, as far as counting goes. The kernel writes it.
///
/// Source: include/uapi/linux/perf_event.h.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct UserPage {
    pub(crate) version: AtomicU32,
    pub(crate) compat_version: AtomicU32,
    /// Odd, or another than before: the kernel changed something meanwhile.
    pub(crate) lock: AtomicU32,
    /// One more than the index for `rdpmc`; 0: on no counter.
    pub(crate) index: AtomicU32,
    /// To be added to the counter.
    pub(crate) offset: AtomicI64,
    /// ns, at the page's last change.
    pub(crate) time_enabled: AtomicU64,
    /// ns, at the page's last change.
    pub(crate) time_running: AtomicU64,
    pub(crate) capabilities: AtomicU64,
    /// Bits of the counter.
    pub(crate) pmc_width: AtomicU16,
    pub(crate) time_shift: AtomicU16,
    pub(crate) time_mult: AtomicU32,
    /// Makes of the time stamp counter the ns since the page's last change.
    pub(crate) time_offset: AtomicU64,
    pub(crate) time_zero: AtomicU64,
    pub(crate) size: AtomicU32,
    pub(crate) reserved: AtomicU32,
    pub(crate) time_cycles: AtomicU64,
    pub(crate) time_mask: AtomicU64,
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(UserPage, index) == 12);
    assert!(offset_of!(UserPage, offset) == 16);
    assert!(offset_of!(UserPage, capabilities) == 40);
    assert!(offset_of!(UserPage, pmc_width) == 48);
    assert!(offset_of!(UserPage, time_mult) == 52);
    assert!(offset_of!(UserPage, size) == 72);
    assert!(offset_of!(UserPage, time_mask) == 88);
    assert!(size_of::<UserPage>() == 96);
};

/// Why a count can't be read from a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The kernel does not let user space read it, or is older than 3.12.
    NotAllowed,
    /// It is on no hardware counter: stopped, others' turn, or no hardware event.
    NoCounter,
    /// The event is multiplexed, and user space can't compute the time since its last turn.
    NoTime,
    /// A width that no counter has.
    Width,
    /// It was never the same before and after.
    Busy,
}

impl UserPage {
    /// The count, with `pmc` to read a counter and `tsc` to read the time stamp counter.
    ///
    /// Must be called in the counted thread: `pmc` reads the register of the CPU that it runs on. The kernel then
    /// changes the page only in interrupts of this same CPU, or while the thread is off it. Acquire loads and the fence
    /// cost nothing on x86 and make it correct for a writer on another CPU, too.
    pub(crate) fn read(
        &self,
        pmc: impl Fn(u32) -> u64,
        tsc: impl Fn() -> u64,
    ) -> Result<Count, Unreadable> {
        for _ in 0..TRIES {
            let before = self.lock.load(Ordering::Acquire);
            let found = self.read_unlocked(&pmc, &tsc);
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.lock.load(Ordering::Relaxed) == before {
                return found;
            }
            std::hint::spin_loop();
        }
        Err(Unreadable::Busy)
    }

    /// Reads the page at this moment; the result may mix two states.
    fn read_unlocked(
        &self,
        pmc: impl Fn(u32) -> u64,
        tsc: impl Fn() -> u64,
    ) -> Result<Count, Unreadable> {
        const NEEDED: u64 = CAP_BITS_ARE_VALID | CAP_USER_RDPMC;
        let has = |bits: u64, needed: u64| bits & needed == needed;
        let capabilities = self.capabilities.load(Ordering::Relaxed);
        if !has(capabilities, NEEDED) {
            return Err(Unreadable::NotAllowed);
        }
        let Some(index) = self.index.load(Ordering::Relaxed).checked_sub(1) else {
            return Err(Unreadable::NoCounter);
        };
        let width = u32::from(self.pmc_width.load(Ordering::Relaxed));
        if !(1..=64).contains(&width) {
            return Err(Unreadable::Width);
        }
        let mut enabled_ns = self.time_enabled.load(Ordering::Relaxed);
        let mut running_ns = self.time_running.load(Ordering::Relaxed);
        if has(capabilities, CAP_USER_TIME) {
            let since = self.since_change(has(capabilities, CAP_USER_TIME_SHORT), tsc());
            enabled_ns = enabled_ns.wrapping_add(since);
            running_ns = running_ns.wrapping_add(since);
        } else if enabled_ns != running_ns {
            return Err(Unreadable::NoTime);
        }
        let counter = sign_extended(pmc(index), width);
        Ok(Count {
            value: self
                .offset
                .load(Ordering::Relaxed)
                .wrapping_add(counter)
                .cast_unsigned(),
            enabled_ns,
            running_ns,
            is_running: true,
        })
    }

    /// ns from the page's last change to the time `cycles`.
    fn since_change(&self, is_short: bool, mut cycles: u64) -> u64 {
        if is_short {
            let base = self.time_cycles.load(Ordering::Relaxed);
            let mask = self.time_mask.load(Ordering::Relaxed);
            cycles = base.wrapping_add(cycles.wrapping_sub(base) & mask);
        }
        // A shift of 64 or more is no kernel's.
        let shift = u32::from(self.time_shift.load(Ordering::Relaxed)) % 64;
        let mult = u64::from(self.time_mult.load(Ordering::Relaxed));
        let rest = cycles & ((1 << shift) - 1);
        let whole = (cycles >> shift).wrapping_mul(mult);
        let time = whole.wrapping_add(rest.wrapping_mul(mult) >> shift);
        time.wrapping_add(self.time_offset.load(Ordering::Relaxed))
    }
}

/// A counter of `width` bits (1..=64) as a number with a sign.
fn sign_extended(counter: u64, width: u32) -> i64 {
    let unused = 64 - width;
    (counter << unused).cast_signed() >> unused
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
