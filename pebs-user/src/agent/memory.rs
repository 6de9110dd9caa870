//! Memory that is free goes back to the system.
#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "the allocator's own calls have no safe binding")
)]

/// Smallest piece of memory that is asked of the system for itself, bytes: it goes back at once when it is free, and what of it
/// is not used takes no room. glibc alone would raise this with each larger piece that is freed.
#[cfg(target_env = "gnu")]
const OWN_PIECE: libc::c_int = 64 << 10;

/// Pools of smaller pieces. glibc alone has eight for each CPU, and what one has, another can't use.
#[cfg(target_env = "gnu")]
const POOLS: libc::c_int = 2;

/// Many recordings in one process have hundreds of threads, most of which wait: from now on their memory is shared.
pub(super) fn share() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets limits of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PIECE);
        libc::mallopt(libc::M_ARENA_MAX, POOLS);
    }
}

/// Gives back what a recording needed to start.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
