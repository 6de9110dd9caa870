//! A small process that places uprobes and takes them away, so that no signal strikes meanwhile.
//!
//! The kernel writes a breakpoint into every process that maps the file while `perf_event_open` runs, and takes it out in the
//! `close` that is the last. If SIGKILL comes in between, both stop half way: the breakpoints that are left cost every
//! process that meets them a trap, until it ends or somebody probes that place again. The kernel says `failed to
//! unregister, leaking uprobe`. A process that has begun to end is not struck any more.
//!
//! So both are done by a child that nobody has a reason to kill: it is in a session of its own, has another name, and
//! blocks all signals that can be blocked. It opens an uprobe when it is asked to, passes it on, and keeps a copy, whose `close` is the
//! last one. When the recorder is gone, however it ended, the child closes what it has and ends.
//!
//! What remains: SIGKILL to both at once, as when a cgroup is killed, and to the child alone while it places a probe.
//!
//! The child is forked from a process that may have threads: it calls nothing but system calls and allocates nothing.
//!
//! Source: `__get_user_pages` (mm/gup.c) gives up on `fatal_signal_pending`; `uprobe_unregister_nosync` (kernel/events/uprobes.c).
#![expect(
    unsafe_code,
    reason = "fork, and passing descriptors, have no safe binding"
)]

use std::ffi::CStr;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use perf_event_open_sys as sys;
use perf_event_open_sys::bindings::perf_event_attr;

/// Name of the process.
const NAME: &CStr = c"uprobe-keeper";

/// Bytes of a path, with the zero behind it. Source: `PATH_MAX`, linux/limits.h.
const PATH_BYTES: usize = 4096;

/// What is asked of the child.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Wish {
    /// Place an uprobe, pass it on and keep it.
    Open,
    /// Take one away.
    Close,
    /// Give up all rights: no probe is placed any more.
    Seal,
}

/// A request. Plain bytes in both directions.
#[repr(C)]
struct Request {
    wish: u32,
    pid: libc::pid_t,
    cpu: libc::c_int,
    /// Of [`Wish::Close`]: the child's descriptor.
    kept: RawFd,
    attr: perf_event_attr,
    path: [u8; PATH_BYTES],
}

/// The answer to every request.
#[derive(Clone, Copy)]
#[repr(C)]
struct Answer {
    /// 0, or why not.
    errno: libc::c_int,
    /// Of [`Wish::Open`]: the child's descriptor.
    kept: RawFd,
}

/// The child of this process, if there is one: uprobes are the process's own, as descriptors are.
static CHILD: Mutex<Option<Child>> = Mutex::new(None);

struct Child {
    socket: OwnedFd,
    /// Who forked it: a child of that process that goes on by itself has none.
    owner: u32,
}

/// An uprobe that the child has as well. Dropping it takes the probe away; drop all other descriptors of it before.
#[derive(Debug)]
pub(super) struct Kept(RawFd);

impl Drop for Kept {
    fn drop(&mut self) {
        let request = Request::new(Wish::Close).of(self.0);
        let child = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
        // Where the child is gone, so is its copy.
        if let Some(child) = child.as_ref().filter(|it| it.is_ours()) {
            let _ = child.ask(&request);
        }
    }
}

/// Places an uprobe; `attr` has no path. Starts the child if there is none.
pub(super) fn open(
    attr: &perf_event_attr,
    path: &CStr,
    (pid, cpu): (libc::pid_t, libc::c_int),
) -> io::Result<(OwnedFd, Kept)> {
    let mut request = Request::new(Wish::Open);
    (request.attr, request.pid, request.cpu) = (*attr, pid, cpu);
    request.attr.size = size_of::<perf_event_attr>() as u32;
    let bytes = path.to_bytes_with_nul();
    let room = request.path.get_mut(..bytes.len());
    room.ok_or_else(|| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?
        .copy_from_slice(bytes);
    let mut child = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
    let child = match &*child {
        Some(ours) if ours.is_ours() => ours,
        _ => child.insert(Child::start()?),
    };
    let (answer, opened) = child.ask(&request)?;
    let kept = Kept(answer.kept);
    match opened {
        Some(opened) => Ok((opened, kept)),
        None => {
            // The lock is held: the child closes it when it ends.
            mem::forget(kept);
            Err(io::Error::other(
                "the process that places probes passed none on",
            ))
        }
    }
}

/// No uprobe will be placed any more: the child gives up its rights.
pub fn no_more_uprobes() {
    let child = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(child) = child.as_ref().filter(|it| it.is_ours())
        && let Err(error) = child.ask(&Request::new(Wish::Seal))
    {
        tracing::debug!("the process that places probes keeps its rights: {error}");
    }
}

impl Request {
    fn new(wish: Wish) -> Self {
        Self {
            wish: wish as u32,
            pid: 0,
            cpu: 0,
            kept: -1,
            attr: perf_event_attr::default(),
            path: [0; PATH_BYTES],
        }
    }

    fn of(self, kept: RawFd) -> Self {
        Self { kept, ..self }
    }
}

impl Child {
    fn start() -> io::Result<Self> {
        let mut ends: [RawFd; 2] = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two descriptors to the array.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us both, and nobody else has them.
        let [ours, theirs] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: the child runs `serve` alone, which makes system calls, allocates nothing, takes no lock and does not return.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: this is the child, which has one thread.
            0 => unsafe { serve(theirs.as_raw_fd()) },
            _ => Ok(Self {
                socket: ours,
                owner: std::process::id(),
            }),
        }
    }

    fn is_ours(&self) -> bool {
        self.owner == std::process::id()
    }

    /// Asks, and waits for the answer and what comes with it.
    fn ask(&self, request: &Request) -> io::Result<(Answer, Option<OwnedFd>)> {
        let socket = self.socket.as_raw_fd();
        // SAFETY: reads the request, which has no reference in it; all its bytes were written by us, padding is never looked at.
        let sent = unsafe {
            libc::send(
                socket,
                std::ptr::from_ref(request).cast(),
                size_of::<Request>(),
                libc::MSG_NOSIGNAL,
            )
        };
        if sent < 0 {
            return Err(gone(&io::Error::last_os_error()));
        }
        let mut answer = Answer { errno: 0, kept: -1 };
        loop {
            // SAFETY: the answer is plain numbers, any of which will do.
            return match unsafe { receive(socket, &mut answer) } {
                (got, _) if got < 0 => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => Err(error),
                },
                (got, _) if got as usize != size_of::<Answer>() => {
                    Err(gone(&io::ErrorKind::UnexpectedEof.into()))
                }
                (_, fd) => {
                    // SAFETY: the kernel just put it into our table, and nobody else has it.
                    let fd = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
                    match answer.errno {
                        0 => Ok((answer, fd)),
                        errno => Err(io::Error::from_raw_os_error(errno)),
                    }
                }
            };
        }
    }
}

fn gone(error: &io::Error) -> io::Error {
    io::Error::other(format!("the process that places probes is gone: {error}"))
}

/// Room for one descriptor beside a message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Beside([u8; 24]);

/// One descriptor beside a message. Source: `CMSG_SPACE(sizeof(int))`, cmsg(3).
const BESIDE: usize = 24;

fn message(iov: &mut libc::iovec, beside: &mut Beside) -> libc::msghdr {
    // SAFETY: all zeros are an empty message.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = iov;
    message.msg_iovlen = 1;
    message.msg_control = beside.0.as_mut_ptr().cast();
    message.msg_controllen = BESIDE;
    message
}

/// Receives a message as it is, and a descriptor; -1: none came.
///
/// # Safety
/// Any bytes are a `T`.
unsafe fn receive<T>(socket: RawFd, to: &mut T) -> (isize, RawFd) {
    let mut iov = libc::iovec {
        iov_base: std::ptr::from_mut(to).cast(),
        iov_len: size_of::<T>(),
    };
    let mut beside = Beside([0; BESIDE]);
    let mut message = message(&mut iov, &mut beside);
    // SAFETY: the message refers to `to` and to `beside`, which live through the call.
    let got = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let mut fd = -1;
    // SAFETY: the header is looked at if the kernel wrote one; it lies in `beside`, which is aligned for it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if got > 0 && !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            fd = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
        }
    }
    (got, fd)
}

/// What the child does until the recorder is gone.
///
/// # Safety
/// The calling process has one thread, and needs nothing but `socket` any more.
unsafe fn serve(socket: RawFd) -> ! {
    // SAFETY: system calls on numbers, and on memory of this function's that lives through them.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        let mut all: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        // Nothing of the recorder's is to live as long as we do: its lock, its output, its programs.
        libc::dup2(socket, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        let mut request = Request::new(Wish::Close);
        loop {
            let (got, _) = receive(0, &mut request);
            if got != size_of::<Request>() as isize {
                if got < 0 && *libc::__errno_location() == libc::EINTR {
                    continue;
                }
                // The kernel closes what is open as the process ends, when no signal can come any more.
                libc::_exit(0);
            }
            let (errno, fd) = fulfil(&mut request);
            if !answer(Answer { errno, kept: fd }) {
                libc::_exit(0);
            }
        }
    }
}

/// Does what is asked; gives the error and the descriptor to pass on.
///
/// # Safety
/// As [`serve`].
unsafe fn fulfil(request: &mut Request) -> (libc::c_int, RawFd) {
    const OPEN: u32 = Wish::Open as u32;
    const CLOSE: u32 = Wish::Close as u32;
    // SAFETY: as of `serve`; the attribute refers to the path in the same request, which ends with a zero as the recorder
    // wrote it there.
    unsafe {
        let result = match request.wish {
            OPEN => {
                request.attr.uprobe_path = request.path.as_ptr() as u64;
                let flags = sys::bindings::PERF_FLAG_FD_CLOEXEC.into();
                sys::perf_event_open(&raw mut request.attr, request.pid, request.cpu, -1, flags)
            }
            CLOSE => libc::close(request.kept),
            _ => drop_rights(),
        };
        match (result, request.wish) {
            (..0, _) => (*libc::__errno_location(), -1),
            (fd, OPEN) => (0, fd),
            _ => (0, -1),
        }
    }
}

/// Gives up every capability.
///
/// # Safety
/// As [`serve`].
unsafe fn drop_rights() -> libc::c_int {
    /// Version 3 of the call, on the calling thread.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    const NONE: [u32; 6] = [0; 6];
    // SAFETY: the kernel reads the header and both sets of numbers, which are constants.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_capset, HEADER.as_ptr(), NONE.as_ptr()) as libc::c_int
    }
}

/// Answers, with a descriptor if there is one; says whether somebody is there.
///
/// # Safety
/// As [`serve`].
unsafe fn answer(mut answer: Answer) -> bool {
    let mut iov = libc::iovec {
        iov_base: (&raw mut answer).cast(),
        iov_len: size_of::<Answer>(),
    };
    let mut beside = Beside([0; BESIDE]);
    let mut message = message(&mut iov, &mut beside);
    // SAFETY: the header lies in `beside`, which has room for it and a descriptor; the message lives through the call.
    unsafe {
        if answer.kept >= 0 {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(header)
                .cast::<RawFd>()
                .write_unaligned(answer.kept);
        } else {
            message.msg_controllen = 0;
        }
        libc::sendmsg(0, &raw const message, libc::MSG_NOSIGNAL) >= 0
    }
}
