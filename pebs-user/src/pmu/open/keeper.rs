//! A child process that places and removes uprobes, out of reach of signals.
//!
//! The kernel writes a breakpoint into every process that maps the file during `perf_event_open`, and removes it in
//! the last `close`. SIGKILL during either stops it half way: the remaining breakpoints cost every process that
//! hits them a trap, until it ends or the same place is probed again. The kernel logs `failed to unregister,
//! leaking uprobe`. A process that has begun to exit is no longer interrupted.
//!
//! So both are done by a child that nobody has a reason to kill: it has its own session, name and command line, and
//! blocks all signals that can be blocked. It opens an uprobe on request, passes it on, and keeps a copy. When the
//! probes are no longer needed, or the recorder has ended in any way, the child exits, which closes the last
//! copies.
//!
//! Each set of probes with a common lifetime has its own child, as the kernel takes 70 to 100 ms to remove one.
//!
//! Not covered: SIGKILL to both at once, as when a cgroup is killed, and to the child while it places a probe.
//!
//! The child is forked from a process that may have threads: it makes only system calls and allocates nothing.
//!
//! Source: `__get_user_pages` (mm/gup.c) gives up on `fatal_signal_pending`; `uprobe_unregister_nosync` (kernel/events/uprobes.c).
#![expect(
    unsafe_code,
    reason = "fork, and passing descriptors, have no safe binding"
)]

use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use perf_event_open_sys as sys;
use perf_event_open_sys::bindings::perf_event_attr;

/// Name of the process.
const NAME: &CStr = c"uprobe-keeper";

/// Bytes of a path, with the zero behind it. Source: `PATH_MAX`, linux/limits.h.
const PATH_BYTES: usize = 4096;

/// A child process that places uprobes for this one.
///
/// It ends when this and all its probes are dropped. The drop waits until the probes are removed: drop the
/// programs' links first, and drop it on another thread if nothing has to wait.
#[derive(Debug)]
pub(crate) struct Keeper(Arc<Child>);

/// The child process can't be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a process that places probes")]
pub(crate) struct KeeperError(#[source] io::Error);

/// Death of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pid: libc::pid_t,
    /// `None` if it exited by itself, or unknown.
    signal: Option<libc::c_int>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, signal } = self;
        write!(f, "{} (process {pid})", NAME.to_string_lossy())?;
        match signal {
            Some(signal) => write!(f, " was killed by signal {signal}"),
            None => write!(f, " ended"),
        }
    }
}

/// Holds the child's copy of an uprobe, which is closed last. Drop all other descriptors of the uprobe before.
#[derive(Debug)]
pub(super) struct ChildHandle(#[expect(dead_code, reason = "held, not read")] Arc<Child>);

#[derive(Debug)]
struct Child {
    socket: OwnedFd,
    pid: libc::pid_t,
}

/// Kind of request.
#[derive(Clone, Copy)]
#[repr(u32)]
enum RequestKind {
    /// Place an uprobe, return its descriptor and keep a copy.
    Open,
    /// Give up all rights: no probe is placed any more.
    Seal,
    /// Close the copies of all uprobes, which removes those that nobody else has open.
    Close,
}

/// A request. Plain bytes in both directions.
#[repr(C)]
struct Request {
    kind: u32,
    pid: libc::pid_t,
    cpu: libc::c_int,
    unused: u32,
    attr: perf_event_attr,
    path: [u8; PATH_BYTES],
}

/// The answer to every request; may come with a descriptor.
#[derive(Clone, Copy)]
#[repr(C)]
struct Answer {
    /// 0, or why not.
    errno: libc::c_int,
}

impl Keeper {
    /// Starts the process. It copies this one's memory: start it early, while that is small.
    ///
    /// # Errors
    /// The kernel's reason.
    pub(crate) fn start() -> Result<Self, KeeperError> {
        Child::start()
            .map(|child| Self(Arc::new(child)))
            .map_err(KeeperError)
    }

    /// Places an uprobe; `attr` has no path.
    pub(super) fn open(
        &mut self,
        attr: &perf_event_attr,
        path: &CStr,
        (pid, cpu): (libc::pid_t, libc::c_int),
    ) -> io::Result<(OwnedFd, ChildHandle)> {
        let mut request = Request::new(RequestKind::Open);
        (request.attr, request.pid, request.cpu) = (*attr, pid, cpu);
        request.attr.size = size_of::<perf_event_attr>() as u32;
        let bytes = path.to_bytes_with_nul();
        let room = request.path.get_mut(..bytes.len());
        room.ok_or_else(|| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?
            .copy_from_slice(bytes);
        let opened = self.0.ask(&request)?;
        // It was passed on, but there was no descriptor left for it here.
        let opened = opened.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        Ok((opened, ChildHandle(Arc::clone(&self.0))))
    }

    /// No more uprobes will be placed: the process drops its privileges.
    pub(crate) fn seal(&mut self) {
        if let Err(error) = self.0.ask(&Request::new(RequestKind::Seal)) {
            tracing::debug!("the process that places probes keeps its privileges: {error}");
        }
    }

    /// Removes the uprobes, which were dropped here: waits for the kernel, up to 0.1 s for each.
    pub(crate) fn remove(&mut self) {
        if let Err(error) = self.0.ask(&Request::new(RequestKind::Close)) {
            tracing::debug!("probes stay in place until the end: {error}");
        }
    }

    /// Returns how it died, if it did: the probes remain, and end with this process's copies.
    #[must_use]
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.0.ended()
    }
}

impl Request {
    fn new(kind: RequestKind) -> Self {
        Self {
            kind: kind as u32,
            pid: 0,
            cpu: 0,
            unused: 0,
            attr: perf_event_attr::default(),
            path: [0; PATH_BYTES],
        }
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
        let arguments = arguments();
        let before = block_signals();
        // SAFETY: the child runs `serve` alone, which makes system calls, allocates nothing, takes no lock and does not return.
        let forked = match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: this is the child, which has one thread.
            0 => unsafe { serve(theirs.as_raw_fd(), arguments) },
            pid => Ok(Self { socket: ours, pid }),
        };
        // SAFETY: reads the set, which the kernel gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
        forked
    }

    /// Returns how it died; it is not yet reaped.
    fn ended(&self) -> Option<Ended> {
        // SAFETY: all zeros are a valid value, of a child that did not end.
        let mut info: libc::siginfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let id = self.pid.cast_unsigned();
        // SAFETY: the kernel writes to `info`, which lives through the call.
        let looked = unsafe { libc::waitid(libc::P_PID, id, &raw mut info, flags) };
        // SAFETY: the kernel filled in what it reports about a child, or left zeros.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        // Where SIGCHLD is ignored, the kernel keeps no status of an ended child.
        let ended = looked < 0 || pid == self.pid;
        let by_signal = matches!(info.si_code, libc::CLD_KILLED | libc::CLD_DUMPED);
        ended.then_some(Ended {
            pid: self.pid,
            signal: (looked == 0 && by_signal).then_some(status),
        })
    }

    /// Sends a request and waits for the answer and its descriptor.
    fn ask(&self, request: &Request) -> io::Result<Option<OwnedFd>> {
        let socket = self.socket.as_raw_fd();
        // SAFETY: reads the request, which has no reference in it; all its bytes were written by us, padding is never looked at.
        let sent = unsafe {
            libc::send(
                socket,
                ptr::from_ref(request).cast(),
                size_of::<Request>(),
                libc::MSG_NOSIGNAL,
            )
        };
        if sent < 0 {
            return Err(self.gone(&io::Error::last_os_error()));
        }
        let mut answer = Answer { errno: 0 };
        loop {
            // SAFETY: the answer is plain numbers, any of which will do.
            return match unsafe { receive(socket, &mut answer) } {
                (got, _) if got < 0 => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => Err(error),
                },
                (got, _) if got as usize != size_of::<Answer>() => {
                    Err(self.gone(&io::ErrorKind::UnexpectedEof.into()))
                }
                (_, fd) => {
                    // SAFETY: the kernel just put it into our table, and nobody else has it.
                    let fd = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
                    match answer.errno {
                        0 => Ok(fd),
                        errno => Err(io::Error::from_raw_os_error(errno)),
                    }
                }
            };
        }
    }

    /// Reason for a missing answer.
    fn gone(&self, error: &io::Error) -> io::Error {
        let (pid, name) = (self.pid, NAME.to_string_lossy());
        io::Error::other(match self.ended() {
            Some(ended) => ended.to_string(),
            None => format!("{name} (process {pid}) does not answer: {error}"),
        })
    }
}

impl Drop for Child {
    /// Ends the process and waits for it; the kernel has then removed the probes.
    fn drop(&mut self) {
        // SAFETY: a system call on our descriptor, which tells the child also where another process has a copy of it.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
        loop {
            // SAFETY: waits for our own child, and has nothing written.
            let waited = unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
            if waited >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }
}

/// Blocks all signals that can be blocked on the calling thread; returns the previous mask.
fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
    // SAFETY: both sets are written to, by `sigfillset` and by the kernel; all zeros are the empty set.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Address range of the command line; empty if unknown.
///
/// Source: proc(5), fields 48 and 49 of `/proc/PID/stat`; field 3 follows the name, which may contain any
/// character.
fn arguments() -> Range<usize> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit_once(')').map_or("", |it| it.1);
    let mut fields = behind_name.split_whitespace().skip(48 - 3);
    let mut address = || fields.next()?.parse().ok();
    let start = address().unwrap_or(0);
    start..address().unwrap_or(start)
}

/// Control buffer for one descriptor, aligned as the kernel requires.
#[repr(C, align(8))]
struct ControlBuffer([u8; 24]);

/// Size of the control buffer, bytes. Source: `CMSG_SPACE(sizeof(int))`, cmsg(3).
const CONTROL_BYTES: usize = 24;

/// Type of the length of control data, which differs between C libraries.
#[cfg(target_env = "musl")]
type ControlLength = u32;
#[cfg(not(target_env = "musl"))]
type ControlLength = usize;

fn message(iov: &mut libc::iovec, control: &mut ControlBuffer) -> libc::msghdr {
    // SAFETY: all zeros are an empty message.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = iov;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as ControlLength;
    message
}

/// Receives a message and a descriptor; -1 if there was none.
///
/// # Safety
/// Any bytes must be a valid `T`.
unsafe fn receive<T>(socket: RawFd, to: &mut T) -> (isize, RawFd) {
    let mut iov = libc::iovec {
        iov_base: ptr::from_mut(to).cast(),
        iov_len: size_of::<T>(),
    };
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut message = message(&mut iov, &mut control);
    // SAFETY: the message refers to `to` and to `control`, which live through the call.
    let got = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let mut fd = -1;
    // SAFETY: the header is looked at if the kernel wrote one; it lies in `control`, which is aligned for it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if got > 0 && !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            fd = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
        }
    }
    (got, fd)
}

/// Main loop of the child; ends with the recorder.
///
/// # Safety
/// The calling process has one thread, and needs only `socket` from now on; `arguments` is the address range of its
/// command line.
unsafe fn serve(socket: RawFd, arguments: Range<usize>) -> ! {
    // SAFETY: system calls on numbers, and on memory of this function's that lives through them.
    unsafe {
        libc::setsid();
        rename(arguments);
        // Close everything of the recorder's, such as its lock, output and programs: it must not stay open as long
        // as the child.
        libc::dup2(socket, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        let mut request = Request::new(RequestKind::Seal);
        loop {
            let (got, _) = receive(0, &mut request);
            if got != size_of::<Request>() as isize {
                if got < 0 && *libc::__errno_location() == libc::EINTR {
                    continue;
                }
                // The kernel closes open files while the process exits, when signals no longer interrupt it.
                libc::_exit(0);
            }
            let (errno, fd) = fulfil(&mut request);
            if !answer(Answer { errno }, fd) {
                libc::_exit(0);
            }
        }
    }
}

/// Changes the name and command line of the process, as the recorder may be killed by either.
///
/// # Safety
/// As [`serve`].
unsafe fn rename(arguments: Range<usize>) {
    let (name, room) = (NAME.to_bytes_with_nul(), arguments.len());
    let line: *mut u8 = ptr::with_exposed_provenance_mut(arguments.start);
    // SAFETY: as for `serve`; exec put the command line on the stack, and nobody reads it any more.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        if room > name.len() {
            ptr::write_bytes(line, 0, room);
            ptr::copy_nonoverlapping(name.as_ptr(), line, name.len());
            // If the last byte is not zero, the shown text ends at the first zero. Source: `get_mm_cmdline`,
            // fs/proc/base.c.
            line.add(room - 1).write(b' ');
        }
    }
}

/// Executes a request; returns the error and the descriptor to pass on.
///
/// # Safety
/// As [`serve`].
unsafe fn fulfil(request: &mut Request) -> (libc::c_int, RawFd) {
    const OPEN: u32 = RequestKind::Open as u32;
    const CLOSE: u32 = RequestKind::Close as u32;
    // SAFETY: as of `serve`; the attribute refers to the path in the same request, which ends with a zero as the recorder
    // wrote it there.
    unsafe {
        let result = match request.kind {
            OPEN => {
                request.attr.uprobe_path = request.path.as_ptr() as u64;
                let flags = sys::bindings::PERF_FLAG_FD_CLOEXEC.into();
                sys::perf_event_open(&raw mut request.attr, request.pid, request.cpu, -1, flags)
            }
            CLOSE => close_probes(),
            _ => drop_rights(),
        };
        match (result, request.kind) {
            (..0, _) => (*libc::__errno_location(), -1),
            (fd, OPEN) => (0, fd),
            _ => (0, -1),
        }
    }
}

/// Closes all descriptors but the socket, which is 0: nobody but the recorder has other copies.
///
/// # Safety
/// As [`serve`].
unsafe fn close_probes() -> libc::c_int {
    // SAFETY: as of `serve`.
    unsafe { libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) as libc::c_int }
}

/// Drops every capability.
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

/// Sends an answer, with a descriptor if there is one; returns whether the recorder is still there.
///
/// # Safety
/// As [`serve`].
unsafe fn answer(mut answer: Answer, fd: RawFd) -> bool {
    let mut iov = libc::iovec {
        iov_base: (&raw mut answer).cast(),
        iov_len: size_of::<Answer>(),
    };
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut message = message(&mut iov, &mut control);
    // SAFETY: the header lies in `control`, which has room for it and a descriptor; the message lives through the call.
    unsafe {
        if fd >= 0 {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as ControlLength;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        } else {
            message.msg_controllen = 0;
        }
        libc::sendmsg(0, &raw const message, libc::MSG_NOSIGNAL) >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(process: &str, name: &str) -> String {
        fs::read_to_string(format!("/proc/{process}/{name}")).unwrap()
    }

    fn blocked(process: &str) -> u64 {
        let status = file(process, "status");
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    }

    /// The child has another name and command line, blocks signals, and leaves nothing behind; this process is
    /// unchanged.
    #[test]
    fn another_process() {
        let ours = || (blocked("thread-self"), file("self", "cmdline"));
        let before = ours();
        let mut keeper = Keeper::start().unwrap();
        // An answer shows that it is set up.
        keeper.seal();
        let pid = keeper.0.pid.to_string();
        assert_eq!(file(&pid, "cmdline").as_bytes(), NAME.to_bytes_with_nul());
        assert_eq!(file(&pid, "comm").trim(), NAME.to_str().unwrap());
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGRTMAX()] {
            assert!(blocked(&pid) & 1 << (signal - 1) != 0, "{signal}");
        }
        assert_eq!(ours(), before);
        assert_eq!(keeper.ended(), None);
        drop(keeper);
        assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
    }

    /// The signal that killed it is reported to every caller, each time.
    #[test]
    fn killed() {
        let mut keeper = Keeper::start().unwrap();
        let pid = keeper.0.pid;
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        while keeper.ended().is_none() {
            std::thread::yield_now();
        }
        let text = format!("uprobe-keeper (process {pid}) was killed by signal 9");
        assert_eq!(keeper.ended().unwrap().to_string(), text);
        let target = (-1, 0);
        let error = keeper.open(&perf_event_attr::default(), c"/", target);
        assert_eq!(error.unwrap_err().to_string(), text);
    }
}
