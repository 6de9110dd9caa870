//! Reads the clock and a file without any overhead.
#![expect(
    unsafe_code,
    reason = "the time stamp counter and read() have no safe binding"
)]

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Ticks now, serialized with the instructions before and after; a tick is about a cycle.
#[cfg(target_arch = "x86_64")]
pub(super) fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 has these instructions.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

/// Nanoseconds now.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec * 1_000_000_000 + now.tv_nsec).cast_unsigned()
}

/// Reads by the C library's `read()`; returns whether there was data.
pub(super) fn read_by_libc(file: BorrowedFd<'_>, into: &mut [u8]) -> bool {
    // SAFETY: writes within the slice.
    let read = unsafe { libc::read(file.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) };
    read > 0
}
