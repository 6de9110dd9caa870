//! Memory that is written soon.

#![expect(unsafe_code, reason = "an instruction that there is no function for")]

use std::arch::asm;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches the cache lines of some of `values` for writing, without waiting for them.
///
/// If another core read them last, and shares no cache with this one, a store waits 160 ns for its line, and so do the
/// stores behind it. A CPU without the instruction does nothing (AMD64 manual, volume 3: PREFETCHW).
#[inline(always)]
pub(crate) fn will_write<T>(values: &[T], from: usize, count: usize) {
    let soon = values.get(from..).unwrap_or_default();
    let soon = &soon[..count.min(soon.len())];
    for line in soon.chunks(LINE / size_of::<T>().clamp(1, LINE)) {
        // SAFETY: the instruction is a hint; it changes no memory and no register, and does not fault.
        unsafe {
            asm!(
                "prefetchw [{}]",
                in(reg) line.as_ptr(),
                options(nostack, preserves_flags, readonly)
            );
        }
    }
}
