//! System calls that are inputs, outputs and waits.

use syscalls::Sysno;

use crate::units::Tid;

/// Role of a system call in the work of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    Input(Channel),
    Output(Channel),
    /// Waits for the next event, or for time to pass.
    Wait,
}

/// Role of a file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Channel {
    Socket,
    Pipe,
    File,
    /// Event counters, timers and the like.
    Other,
}

impl Channel {
    /// By the target of its link in `/proc/PID/fd`.
    pub(super) fn of_link(link: &str) -> Self {
        match link {
            _ if link.starts_with("socket:") => Self::Socket,
            _ if link.starts_with("pipe:") => Self::Pipe,
            _ if link.starts_with('/') && !link.starts_with("/dev/") => Self::File,
            _ => Self::Other,
        }
    }

    /// Its name, for messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Pipe => "pipe",
            Self::File => "file",
            Self::Other => "descriptor",
        }
    }
}

/// Kinds of system calls, before their descriptor is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Input,
    Output,
    Wait,
}

/// Threads that a filter can have.
const MOST_THREADS: usize = 64;

/// The system calls that count, by name: not every architecture has all of them.
const CALLS: [(&str, Kind); 37] = [
    ("read", Kind::Input),
    ("pread64", Kind::Input),
    ("readv", Kind::Input),
    ("preadv", Kind::Input),
    ("preadv2", Kind::Input),
    ("recvfrom", Kind::Input),
    ("recvmsg", Kind::Input),
    ("recvmmsg", Kind::Input),
    ("write", Kind::Output),
    ("pwrite64", Kind::Output),
    ("writev", Kind::Output),
    ("pwritev", Kind::Output),
    ("pwritev2", Kind::Output),
    ("sendto", Kind::Output),
    ("sendmsg", Kind::Output),
    ("sendmmsg", Kind::Output),
    ("sendfile", Kind::Output),
    ("splice", Kind::Output),
    ("accept", Kind::Wait),
    ("accept4", Kind::Wait),
    ("poll", Kind::Wait),
    ("ppoll", Kind::Wait),
    ("select", Kind::Wait),
    ("pselect6", Kind::Wait),
    ("epoll_wait", Kind::Wait),
    ("epoll_pwait", Kind::Wait),
    ("epoll_pwait2", Kind::Wait),
    ("io_getevents", Kind::Wait),
    ("io_uring_enter", Kind::Wait),
    ("nanosleep", Kind::Wait),
    ("clock_nanosleep", Kind::Wait),
    ("rt_sigtimedwait", Kind::Wait),
    ("rt_sigsuspend", Kind::Wait),
    ("pause", Kind::Wait),
    ("wait4", Kind::Wait),
    ("waitid", Kind::Wait),
    ("semtimedop", Kind::Wait),
];

/// Filter of the tracepoint `raw_syscalls:sys_enter` that lets only these calls pass, of these threads; of all if there are
/// none or too many.
pub(super) fn filter(threads: &[Tid]) -> String {
    let any = |terms: Vec<String>| terms.join(" || ");
    let ids = any(CALLS
        .iter()
        .filter_map(|(name, _)| name.parse().ok())
        .map(|call: Sysno| format!("id == {}", call.id()))
        .collect());
    match threads.len() {
        1..=MOST_THREADS => {
            let threads = any(threads
                .iter()
                .map(|it| format!("common_pid == {}", it.0))
                .collect());
            format!("({threads}) && ({ids})")
        }
        _ => ids,
    }
}

/// Returns the role of a call by its number; `channel`: that of its first argument, asked for only if it matters.
pub(super) fn call(number: u64, channel: impl FnOnce() -> Channel) -> Option<Call> {
    let name = Sysno::new(usize::try_from(number).ok()?)?.name();
    let (_, kind) = CALLS.iter().find(|(it, _)| *it == name)?;
    Some(match kind {
        Kind::Input => Call::Input(channel()),
        Kind::Output => Call::Output(channel()),
        Kind::Wait => Call::Wait,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and writes are classified by their descriptor, waits are not, and other calls do not count.
    #[test]
    fn kinds() {
        let of = |number: Sysno, link| call(number as u64, || Channel::of_link(link));
        assert_eq!(
            of(Sysno::read, "socket:[7]"),
            Some(Call::Input(Channel::Socket))
        );
        assert_eq!(
            of(Sysno::writev, "/var/log/a"),
            Some(Call::Output(Channel::File))
        );
        assert_eq!(
            of(Sysno::write, "/dev/null"),
            Some(Call::Output(Channel::Other))
        );
        assert_eq!(
            of(Sysno::epoll_pwait, "anon_inode:[eventpoll]"),
            Some(Call::Wait)
        );
        assert_eq!(of(Sysno::getpid, "pipe:[7]"), None);
        assert!(filter(&[]).starts_with("id == 0 || id == 17 || "));
        let filter = filter(&[Tid(7), Tid(8)]);
        assert!(filter.starts_with("(common_pid == 7 || common_pid == 8) && (id == 0 || "));
    }
}
