//! Signal dispositions at the start of this program.
//!
//! A shell starts background commands (`&` in a script) with SIGINT ignored, `nohup` with SIGHUP.
#![expect(unsafe_code, reason = "sigaction has no safe binding")]

use libc::c_int;

/// Makes SIGINT end this program even if it was started with SIGINT ignored: scripts end a background recording that
/// way. `perf record` does the same.
pub(crate) fn heed_interrupt() {
    if is_ignored(libc::SIGINT) {
        // SAFETY: the default takes no handler.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    }
}

/// Whether a signal is ignored.
#[must_use]
pub(crate) fn is_ignored(signal: c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; the kernel fills a live structure, which zeros are valid for.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rust ignores SIGPIPE in every program, and never SIGCHLD.
    #[test]
    fn ignored() {
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGCHLD));
    }
}
