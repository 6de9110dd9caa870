//! eBPF links on perf events, by the bpf system call.
//!
//! aya opens perf events with its own attr, so its links can't be used with ours.
#![expect(unsafe_code, reason = "the bpf system call has no safe binding")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Number of the command in `bpf(2)`.
const BPF_LINK_CREATE: libc::c_int = 28;

/// Attach type of a program on a perf event.
const BPF_PERF_EVENT: u32 = 41;

/// A program's attachment to an event. Dropping it detaches, unless the kernel is too old for
/// links: then the program stays until the event is closed.
#[derive(Debug)]
pub(crate) struct BpfLink(
    #[cfg_attr(not(test), expect(dead_code, reason = "dropping it detaches"))] Option<OwnedFd>,
);

impl BpfLink {
    /// An attachment that lives as long as its event.
    pub(crate) const fn of_event() -> Self {
        Self(None)
    }

    /// The link's descriptor; `None` on kernels without perf event links.
    #[cfg(test)]
    #[must_use]
    pub const fn fd(&self) -> Option<&OwnedFd> {
        self.0.as_ref()
    }
}

/// `link_create` of `union bpf_attr` up to and including the cookie.
/// Source: include/uapi/linux/bpf.h.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    bpf_cookie: u64,
}

const _: () = assert!(size_of::<LinkCreate>() == 24);

/// Creates a link. Without a cookie the attr is zero there, which kernels before 5.15 accept.
pub(super) fn create(
    event: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    cookie: Option<u64>,
) -> io::Result<BpfLink> {
    let attr = LinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_fd: event.as_raw_fd().cast_unsigned(),
        attach_type: BPF_PERF_EVENT,
        flags: 0,
        bpf_cookie: cookie.unwrap_or(0),
    };
    // SAFETY: the attr is initialized, lives through the call and has the size given; both
    // descriptors are borrowed and so open.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_CREATE,
            &raw const attr,
            size_of::<LinkCreate>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, which fits an int, and nobody else has it.
    Ok(BpfLink(Some(unsafe {
        OwnedFd::from_raw_fd(fd as libc::c_int)
    })))
}
