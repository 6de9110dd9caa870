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

/// Purpose of a system call, before its descriptor is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Input,
    Output,
    Wait,
}

/// Threads that a filter can have.
const MOST_THREADS: usize = 64;

/// The system calls that count, by name: not every architecture has all of them.
const CALLS: [(&str, Purpose); 37] = [
    ("read", Purpose::Input),
    ("pread64", Purpose::Input),
    ("readv", Purpose::Input),
    ("preadv", Purpose::Input),
    ("preadv2", Purpose::Input),
    ("recvfrom", Purpose::Input),
    ("recvmsg", Purpose::Input),
    ("recvmmsg", Purpose::Input),
    ("write", Purpose::Output),
    ("pwrite64", Purpose::Output),
    ("writev", Purpose::Output),
    ("pwritev", Purpose::Output),
    ("pwritev2", Purpose::Output),
    ("sendto", Purpose::Output),
    ("sendmsg", Purpose::Output),
    ("sendmmsg", Purpose::Output),
    ("sendfile", Purpose::Output),
    ("splice", Purpose::Output),
    ("accept", Purpose::Wait),
    ("accept4", Purpose::Wait),
    ("poll", Purpose::Wait),
    ("ppoll", Purpose::Wait),
    ("select", Purpose::Wait),
    ("pselect6", Purpose::Wait),
    ("epoll_wait", Purpose::Wait),
    ("epoll_pwait", Purpose::Wait),
    ("epoll_pwait2", Purpose::Wait),
    ("io_getevents", Purpose::Wait),
    ("io_uring_enter", Purpose::Wait),
    ("nanosleep", Purpose::Wait),
    ("clock_nanosleep", Purpose::Wait),
    ("rt_sigtimedwait", Purpose::Wait),
    ("rt_sigsuspend", Purpose::Wait),
    ("pause", Purpose::Wait),
    ("wait4", Purpose::Wait),
    ("waitid", Purpose::Wait),
    ("semtimedop", Purpose::Wait),
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
    let (_, purpose) = CALLS.iter().find(|(it, _)| *it == name)?;
    // Short connections may be closed before their descriptor is looked at.
    let is_of_sockets = name.starts_with("recv") || name.starts_with("send") && name != "sendfile";
    let channel = || match is_of_sockets {
        true => Channel::Socket,
        false => channel(),
    };
    Some(match purpose {
        Purpose::Input => Call::Input(channel()),
        Purpose::Output => Call::Output(channel()),
        Purpose::Wait => Call::Wait,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and writes are classified by their descriptor, waits are not, and other calls do not count.
    #[test]
    fn purposes() {
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
        assert_eq!(of(Sysno::recvfrom, ""), Some(Call::Input(Channel::Socket)));
        assert_eq!(of(Sysno::getpid, "pipe:[7]"), None);
        assert!(filter(&[]).starts_with("id == 0 || id == 17 || "));
        let filter = filter(&[Tid(7), Tid(8)]);
        assert!(filter.starts_with("(common_pid == 7 || common_pid == 8) && (id == 0 || "));
    }
}
