//! The page that the kernel shares, the instructions that read counters, and files of perf-event2 as borrowed ones.
#![expect(
    unsafe_code,
    reason = "a mapping and two instructions have no safe binding"
)]

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;

use perf_event::Counter;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::page::UserPage;

/// The file of a counter.
pub(crate) fn file(counter: &Counter) -> BorrowedFd<'_> {
    // SAFETY: the counter owns the file and is borrowed for as long as the returned value.
    unsafe { BorrowedFd::borrow_raw(counter.as_raw_fd()) }
}

/// A counter's page, mapped for reading.
pub(crate) struct Mapped {
    page: NonNull<UserPage>,
    len: usize,
}

impl Mapped {
    /// Maps the page; populated, so that its first access is no page fault.
    ///
    /// # Errors
    /// The kernel refuses pages of inherited events, and pages beyond `kernel.perf_event_mlock_kb`.
    pub(crate) fn new(counter: &Counter, populate: bool) -> io::Result<Self> {
        let len = rustix::param::page_size();
        let flags = match populate {
            true => MapFlags::SHARED | MapFlags::POPULATE,
            false => MapFlags::SHARED,
        };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                flags,
                file(counter),
                0,
            )
        }?;
        match NonNull::new(page.cast()) {
            Some(page) => Ok(Self { page, len }),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

impl Deref for Mapped {
    type Target = UserPage;

    fn deref(&self) -> &UserPage {
        // SAFETY: mapped until `self` is dropped, one page long and page-aligned. The kernel writes to it concurrently,
        // and every field is an atomic that is only loaded.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more. A failure would only leave it mapped.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), self.len) };
    }
}

// Both instructions are written without `nomem`: the compiler must not move them out of the page's sequence lock. The
// CPU may reorder them, but takes the interrupts in which the kernel changes the page between instructions. Source:
// tools/lib/perf/mmap.c, `perf_mmap__read_self`.

/// Reads a hardware counter of this CPU.
///
/// `index` is one less than the page's `index`; the page's `cap_user_rdpmc` must be set.
#[cfg(target_arch = "x86_64")]
pub(crate) fn rdpmc(index: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register. Callers pass an index from the kernel together with its permission (cap_user_rdpmc),
    // for which it has set CR4.PCE; without it this faults, which is not undefined behaviour.
    unsafe {
        std::arch::asm!("rdpmc", in("ecx") index, out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The time stamp counter.
#[cfg(target_arch = "x86_64")]
pub(crate) fn tsc() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register that every x86-64 has; Linux lets user space read it unless the process forbade it by prctl.
    unsafe {
        std::arch::asm!("rdtsc", out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn rdpmc(_index: u32) -> u64 {
    unreachable!("pages are mapped on x86-64 alone")
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn tsc() -> u64 {
    unreachable!("pages are mapped on x86-64 alone")
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The time increases, across both halves of the register.
    #[test]
    fn time_goes_on() {
        let before = tsc();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let ticks = tsc() - before;
        // 0.1 to 10 GHz, and a machine that may be busy.
        assert!((200_000..1_000_000_000_000).contains(&ticks), "{ticks}");
    }
}
