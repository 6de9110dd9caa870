//! Handles files that are truncated while they are mapped.
//!
//! blazesym maps binaries. The owner of a file that is not a running program can truncate it at any time; reading
//! the mapping beyond the new end raises `SIGBUS`, which would end the recording. The handler maps a page of zeros
//! there and counts it: data read since the last check is then discarded.
#![expect(unsafe_code, reason = "signal handlers have no safe binding")]

use std::cell::Cell;
use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// Pages replaced so far by reads of this thread: the signal goes to the reading thread. Needs no constructor
    /// and destructor, so that a handler may use it.
    static REPLACED: Cell<u64> = const { Cell::new(0) };
}

/// Size of a page, for the handler.
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Installs the handler: from now on reading a truncated file gives zeros. Called once per process.
pub(crate) fn survive() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
        if let Err(error) = install() {
            tracing::debug!("cannot catch SIGBUS: {error}");
        }
    });
}

/// Number of pages replaced so far by reads of this thread.
#[must_use]
pub(crate) fn replaced() -> u64 {
    REPLACED.get()
}

fn install() -> io::Result<()> {
    // SAFETY: all zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler makes system calls, reads an atomic and changes a number of its own thread only.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo, and SIGBUS has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let page = PAGE.load(Ordering::Relaxed);
    if code == libc::BUS_ADRERR && put_zeros(address & !(page - 1), page) {
        REPLACED.set(REPLACED.get() + 1);
        return;
    }
    // Not a truncated file: the access is repeated, and ends the process as without the handler.
    // SAFETY: the default action is always valid.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Maps a page of zeros over one that can't be read.
fn put_zeros(start: usize, page: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page is mapped from a file that no longer reaches there: nobody can have read it, and later
    // reads return zeros. Read only, like the mappings of such files.
    let mapped = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            page,
            libc::PROT_READ,
            flags,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}
