//! The clock of the kernel programs and rings.

use crate::units::KtimeNs;

/// `CLOCK_MONOTONIC` now.
#[must_use]
pub(crate) fn now() -> KtimeNs {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    KtimeNs(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
