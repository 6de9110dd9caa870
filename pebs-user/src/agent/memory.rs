//! Memory that is free goes back to the system.
#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "the allocator's own call has no safe binding")
)]

/// Gives back what a recording needed to start: with glibc each of its threads would keep some ten MiB for later.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
