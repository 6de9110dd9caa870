//! The reason why a thread was off the CPU.
//!
//! Derived from its state, and from the names of the functions on its stack and of the kernel functions below them:
//! system calls, and the lock functions of the C library, C++, Rust and Go. If none of these matches, the thread "slept
//! in" a function.

use super::names::file_name;
use super::waits::{PARKED, PREEMPTED, STOPPED};

/// A function on the stack of a thread that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// Its name; `None`: unknown.
    pub name: Option<&'a str>,
    pub module: Option<&'a str>,
    /// Whether it is the kernel's.
    pub is_kernel: bool,
}

/// Why a thread is off the CPU; `present::words` has the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Cpu,
    Stopped,
    PageFromDisk,
    PageFault,
    MallocLock,
    /// Go's: a lock or a WaitGroup.
    Semaphore,
    KernelLock,
    Lock,
    Condition,
    /// A futex of unknown purpose.
    OtherThread,
    Events,
    Slept,
    Child,
    Disk,
    Socket,
    Pipe,
    Channel,
    Collector,
    /// A file, pipe or socket.
    File,
    /// Uninterruptible, for an unknown reason.
    InKernel,
    Parked,
    Ended,
    /// Unknown.
    Blocked,
}

/// The reason of a wait, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitReason {
    pub why: Reason,
    /// The frame that made the call, if it is more specific than those below it.
    pub place: Option<usize>,
    /// The first function above the C library's, if it is another one and more specific than the call.
    pub caller: Option<usize>,
}

/// Purpose of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallPurpose {
    Lock,
    Condition,
    Futex,
    Events,
    Sleep,
    Sync,
    File,
    Socket,
    Child,
    Channel,
    Collector,
}

/// System calls and functions of the C library that wait, without the prefixes and suffixes of libraries.
const CALLS: [(CallPurpose, &[&str]); 10] = [
    (
        CallPurpose::Lock,
        &[
            "lll_lock_wait",
            "lll_lock_wait_private",
            "sem_wait",
            "sem_timedwait",
            "sem_clockwait",
            "flock",
            "lockf",
        ],
    ),
    (
        CallPurpose::Events,
        &[
            "epoll_wait",
            "epoll_pwait",
            "epoll_pwait2",
            "poll",
            "ppoll",
            "select",
            "pselect",
            "io_uring_enter",
            "io_getevents",
            "io_pgetevents",
        ],
    ),
    (
        CallPurpose::Sleep,
        &[
            "nanosleep",
            "clock_nanosleep",
            "usleep",
            "sleep",
            "pause",
            "time.Sleep",
        ],
    ),
    (
        CallPurpose::Sync,
        &[
            "fsync",
            "fdatasync",
            "msync",
            "sync_file_range",
            "syncfs",
            "sync",
        ],
    ),
    (
        CallPurpose::File,
        &[
            "read",
            "pread",
            "readv",
            "preadv",
            "preadv2",
            "write",
            "pwrite",
            "writev",
            "pwritev",
            "pwritev2",
            "open",
            "openat",
            "unlink",
            "unlinkat",
            "rename",
            "renameat",
            "ftruncate",
            "fallocate",
            "getdents",
            "sendfile",
            "splice",
            "copy_file_range",
            "runtime.netpollblock",
        ],
    ),
    (
        CallPurpose::Socket,
        &[
            "recv", "recvfrom", "recvmsg", "recvmmsg", "send", "sendto", "sendmsg", "sendmmsg",
            "accept", "accept4", "connect",
        ],
    ),
    (
        CallPurpose::Child,
        &["wait", "wait3", "wait4", "waitid", "waitpid"],
    ),
    (
        CallPurpose::Futex,
        &["futex", "runtime.futex", "runtime.futexsleep"],
    ),
    (
        CallPurpose::Channel,
        &[
            "runtime.chanrecv",
            "runtime.chansend",
            "runtime.selectgo",
            "runtime.block",
        ],
    ),
    (
        CallPurpose::Collector,
        &[
            "runtime.gcParkAssist",
            "runtime.gcStart",
            "runtime.gcMarkDone",
            "runtime.gcWaitOnMark",
        ],
    ),
];

/// Functions that allocate and free memory.
const ALLOCATOR: [&str; 13] = [
    "malloc",
    "int_malloc",
    "free",
    "int_free",
    "cfree",
    "calloc",
    "realloc",
    "int_realloc",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "arena_get2",
    "malloc_consolidate",
];

/// A name without leading underscores, versions and additions of the C library.
fn bare(name: &str) -> &str {
    let mut name = name.split('@').next().unwrap_or(name);
    loop {
        let shorter = ["_", "GI_", "libc_"]
            .iter()
            .find_map(|it| name.strip_prefix(it));
        match shorter {
            Some(shorter) if !shorter.is_empty() => name = shorter,
            _ => break,
        }
    }
    for end in [
        "_nocancel",
        "_time64",
        "64",
        ".isra.0",
        ".part.0",
        "_chk",
        "_internal",
    ] {
        name = name.strip_suffix(end).unwrap_or(name);
    }
    name
}

/// The purpose of a call that a function's name indicates.
fn purpose(name: &str) -> Option<CallPurpose> {
    let name = bare(name);
    if let Some((purpose, _)) = CALLS.iter().find(|(_, names)| names.contains(&name)) {
        return Some(*purpose);
    }
    let lower = name.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    if has("cond") && has("wait") || has("notifylistwait") {
        Some(CallPurpose::Condition)
    } else if (has("mutex") || has("rwlock")) && (has("lock") || has("wait")) || has("semacquire") {
        Some(CallPurpose::Lock)
    } else if has("futex") {
        Some(CallPurpose::Futex)
    } else {
        None
    }
}

/// Whether a module is part of the C library.
fn is_libc(module: Option<&str>) -> bool {
    let file = module.map_or("", file_name);
    [
        "libc.so",
        "libc-",
        "libpthread",
        "ld-linux",
        "ld-musl",
        "libc.musl",
    ]
    .iter()
    .any(|it| file.starts_with(it))
}

/// The reason of a wait in this state, by its stack from the innermost function outwards, as far as known.
pub(crate) fn reason(state: &str, frames: &[Frame<'_>]) -> WaitReason {
    // These can happen to a thread anywhere.
    let anywhere = match state {
        PREEMPTED => Some(Reason::Cpu),
        STOPPED => Some(Reason::Stopped),
        _ => None,
    };
    if let Some(why) = anywhere {
        return WaitReason {
            why,
            place: None,
            caller: None,
        };
    }
    let first_user = frames.iter().position(|it| !it.is_kernel);
    let (kernel, user) = frames.split_at(first_user.unwrap_or(frames.len()));
    let below = |parts: &[&str]| {
        let names = kernel.iter().filter_map(|it| it.name);
        names
            .into_iter()
            .any(|name| parts.iter().any(|part| name.contains(part)))
    };
    let mut found = None;
    let mut waiting = 0;
    for frame in user {
        let Some(purpose) = frame.name.and_then(purpose) else {
            break;
        };
        waiting += 1;
        // The functions around a futex show its purpose.
        if found
            .is_none_or(|known| known == CallPurpose::Futex || purpose == CallPurpose::Condition)
        {
            found = Some(purpose);
        }
    }
    let own =
        (waiting..user.len()).find(|&at| !is_libc(user[at].module) && user[at].name.is_some());
    let is_disk = state == "uninterruptible";
    let allocates = user
        .get(waiting)
        .and_then(|it| it.name)
        .is_some_and(|name| ALLOCATOR.contains(&bare(name)));
    let is_fault = below(&["exc_page_fault", "do_user_addr_fault", "handle_mm_fault"]);
    let why = match found {
        _ if is_fault && below(&["folio_wait", "io_schedule", "filemap_fault", "swap"]) => {
            Reason::PageFromDisk
        }
        _ if is_fault => Reason::PageFault,
        Some(CallPurpose::Lock | CallPurpose::Futex) if allocates => Reason::MallocLock,
        // Go's WaitGroup is one, too.
        Some(CallPurpose::Lock) if state == PARKED => Reason::Semaphore,
        Some(CallPurpose::Lock) => Reason::Lock,
        Some(CallPurpose::Condition) => Reason::Condition,
        Some(CallPurpose::Futex) => Reason::OtherThread,
        Some(CallPurpose::Events) => Reason::Events,
        Some(CallPurpose::Sleep) => Reason::Slept,
        Some(CallPurpose::Child) => Reason::Child,
        Some(CallPurpose::Sync) => Reason::Disk,
        Some(CallPurpose::Socket) => Reason::Socket,
        _ if below(&[
            "rwsem_down",
            "__mutex_lock",
            "percpu_down",
            "percpu_rwsem_wait",
        ]) =>
        {
            Reason::KernelLock
        }
        _ if below(&["pipe_read", "pipe_write", "pipe_wait"]) => Reason::Pipe,
        _ if below(&[
            "sk_wait_data",
            "skb_wait",
            "skb_recv",
            "tcp_",
            "unix_stream",
            "sock_",
        ]) =>
        {
            Reason::Socket
        }
        _ if below(&[
            "folio_wait",
            "io_schedule",
            "wait_on_buffer",
            "submit_bio",
            "blk_mq",
            "jbd2",
            "rq_qos",
        ]) =>
        {
            Reason::Disk
        }
        Some(CallPurpose::Channel) => Reason::Channel,
        Some(CallPurpose::Collector) => Reason::Collector,
        Some(CallPurpose::File) if is_disk => Reason::Disk,
        Some(CallPurpose::File) => Reason::File,
        _ if below(&["ep_poll", "do_poll", "do_sys_poll", "do_select"]) => Reason::Events,
        _ if below(&["futex_wait", "do_futex"]) => Reason::OtherThread,
        _ if below(&["nanosleep", "hrtimer_"]) => Reason::Slept,
        None => match state {
            "uninterruptible" => Reason::InKernel,
            "sleeping" => Reason::Slept,
            PARKED => Reason::Parked,
            "dead" => Reason::Ended,
            _ => Reason::Blocked,
        },
    };
    let offset = kernel.len();
    // The lock's own functions add nothing to the text.
    let is_specific = matches!(
        found,
        Some(
            CallPurpose::Lock
                | CallPurpose::Condition
                | CallPurpose::Futex
                | CallPurpose::Sleep
                | CallPurpose::Channel
        )
    );
    match own {
        Some(own) if is_specific || own == 0 => WaitReason {
            why,
            place: Some(offset + own),
            caller: None,
        },
        own => WaitReason {
            why,
            place: user.first().map(|_| offset),
            caller: own.map(|own| offset + own),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[kernel] name`, `name`, or `libc:name`, from the innermost function outwards.
    fn said(state: &str, stack: &str) -> String {
        let frames: Vec<Frame<'_>> = stack
            .split_whitespace()
            .map(|it| {
                let name = it.trim_start_matches("k:").trim_start_matches("libc:");
                Frame {
                    name: Some(name),
                    module: it.starts_with("libc:").then_some("/usr/lib/libc.so.6"),
                    is_kernel: it.starts_with("k:"),
                }
            })
            .collect();
        let reason = reason(state, &frames);
        let name = |at: Option<usize>| at.and_then(|at| frames[at].name).unwrap_or("-");
        format!(
            "{} in {} by {}",
            crate::present::words::reason(reason.why),
            name(reason.place),
            name(reason.caller)
        )
    }

    /// Names of system calls, locks of libraries and the kernel functions below them give the reason; other names do
    /// not.
    #[test]
    fn waits() {
        for (state, stack, expected) in [
            ("runnable", "checksum", "waited for a CPU in - by -"),
            ("stopped", "libc:read", "was stopped in - by -"),
            ("parked", "time.Sleep", "slept in time.Sleep by -"),
            (
                "parked",
                "runtime.selectgo",
                "waited for a channel in runtime.selectgo by -",
            ),
            (
                "parked",
                "runtime.semacquire1",
                "waited for a semaphore (lock, WaitGroup) in runtime.semacquire1 by -",
            ),
            ("parked", "", "was parked in - by -"),
            (
                "sleeping",
                "libc:__lll_lock_wait_private",
                "waited for a lock in __lll_lock_wait_private by -",
            ),
            (
                "sleeping",
                "k:futex_wait_queue libc:__lll_lock_wait_private libc:malloc parse handle",
                "waited for malloc's lock in parse by -",
            ),
            (
                "sleeping",
                "k:futex_wait_queue libc:__lll_lock_wait libc:pthread_mutex_lock@@GLIBC_2.2.5 table_lock handle",
                "waited for a lock in table_lock by -",
            ),
            (
                "sleeping",
                "libc:__futex_abstimed_wait_common64 libc:pthread_cond_timedwait take",
                "waited for a condition variable in take by -",
            ),
            (
                "sleeping",
                "std::sys::sync::mutex::futex::Mutex::lock_contended app::serve",
                "waited for a lock in app::serve by -",
            ),
            (
                "sleeping",
                "k:futex_wait take lock_table",
                "waited for another thread in take by -",
            ),
            (
                "sleeping",
                "libc:__GI___clock_nanosleep library",
                "slept in library by -",
            ),
            (
                "uninterruptible",
                "libc:fdatasync",
                "waited for the disk in fdatasync by -",
            ),
            (
                "uninterruptible",
                "k:folio_wait_bit libc:__pread64 get",
                "waited for the disk in __pread64 by get",
            ),
            (
                "sleeping",
                "libc:read",
                "waited for a file, pipe or socket in read by -",
            ),
            (
                "sleeping",
                "k:anon_pipe_read libc:read",
                "waited for a pipe in read by -",
            ),
            (
                "sleeping",
                "k:tcp_recvmsg libc:read serve",
                "waited for a socket in read by serve",
            ),
            (
                "sleeping",
                "libc:epoll_wait loop",
                "waited for events in epoll_wait by loop",
            ),
            (
                "uninterruptible",
                "k:folio_wait_bit k:filemap_fault k:exc_page_fault scan",
                "waited for a page from disk in scan by -",
            ),
            (
                "uninterruptible",
                "k:rwsem_down_read_slowpath k:exc_page_fault touch",
                "waited for a page fault in touch by -",
            ),
            (
                "uninterruptible",
                "k:rwsem_down_write_slowpath libc:munmap touch",
                "waited for a lock of the kernel in munmap by touch",
            ),
            ("sleeping", "think", "slept in think by -"),
            (
                "uninterruptible",
                "work",
                "was blocked in the kernel in work by -",
            ),
            ("blocked", "", "was blocked in - by -"),
        ] {
            assert_eq!(said(state, stack), expected, "{state} {stack}");
        }
    }
}
