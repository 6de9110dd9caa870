//! Errors, each with advice.

use std::io;

use rustix::io::Errno;

/// A group could not be opened, controlled or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An unknown event name or modifier.
    #[error("unknown event '{name}'")]
    UnknownEvent {
        /// Name as given.
        name: String,
    },
    /// The group has no events.
    #[error("a group needs an event")]
    NoEvent,
    /// `EACCES`, `EPERM`.
    #[error("cannot open event {event}: permission denied")]
    Denied {
        /// Its name.
        event: String,
        /// `kernel.perf_event_paranoid`; `None` if it can't be read.
        paranoid: Option<i32>,
    },
    /// `ENOENT`, `ENODEV`, `EOPNOTSUPP`, and a field that this kernel does not know.
    #[error("cannot open event {event}: this machine does not have it")]
    Unsupported {
        /// Its name.
        event: String,
    },
    /// `EINVAL` or `ENOSPC`: not together with those before it in the group.
    #[error("cannot open event {event}: no counter can hold it beside the {others} before it")]
    NoCounter {
        /// Its name.
        event: String,
        /// Events already in the group.
        others: usize,
    },
    /// Any other error of the kernel.
    #[error("cannot open event {event}")]
    Open {
        /// Its name.
        event: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// Starting, stopping or reading failed.
    #[error("cannot {attempt} the group of event {event}")]
    Use {
        /// Attempted operation: `start`, `stop`, `read`.
        attempt: &'static str,
        /// Name of the group's first event.
        event: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn open(event: &str, others: usize, source: io::Error) -> Self {
        let event = event.to_owned();
        // perf-event2 makes E2BIG an error without a number.
        if source.kind() == io::ErrorKind::Unsupported {
            return Self::Unsupported { event };
        }
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied {
                event,
                paranoid: paranoid(),
            },
            Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => Self::Unsupported { event },
            Some(Errno::NOSPC) => Self::NoCounter { event, others },
            Some(Errno::INVAL) if others > 0 => Self::NoCounter { event, others },
            _ => Self::Open { event, source },
        }
    }

    /// Advice, with the values seen; `None` if no general advice applies.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownEvent { .. } => Some(
                "names are perf's: page-faults, cycles:u, L1-dcache-load-misses, r01c2, mem:0xADDR:x".to_owned(),
            ),
            Self::Denied { event, paranoid } => Some(denied(event, *paranoid)),
            Self::Unsupported { .. } => Some(
                "hardware events need a PMU, which many virtual machines do not have: /sys/bus/event_source/devices lists \
                 what there is; software events (page-faults, task-clock) are everywhere"
                    .to_owned(),
            ),
            Self::NoCounter { others: 0, .. } => {
                Some("a CPU has four breakpoints, which debuggers use, too".to_owned())
            }
            Self::NoCounter { .. } => Some("open it in a group of its own: groups take turns".to_owned()),
            Self::Open { source, .. } => match source.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::MFILE) => {
                    Some("each event is an open file: raise the limit (ulimit -n)".to_owned())
                }
                Some(Errno::BUSY) => Some(
                    "somebody else holds the counter; kernel.nmi_watchdog=1 takes one, too".to_owned(),
                ),
                Some(Errno::NOSYS) => {
                    Some("this kernel, or a sandbox, has no perf_event_open".to_owned())
                }
                _ => None,
            },
            Self::NoEvent | Self::Use { .. } => None,
        }
    }
}

fn denied(event: &str, paranoid: Option<i32>) -> String {
    let is_user = event.ends_with(":u");
    let base = event.trim_end_matches(":u").trim_end_matches(":k");
    match paranoid {
        Some(2) if !is_user => format!(
            "kernel.perf_event_paranoid is 2: count user space alone ({base}:u), or grant CAP_PERFMON"
        ),
        Some(level) if level > 2 || (level == 2 && !is_user) => format!(
            "kernel.perf_event_paranoid is {level}: sysctl kernel.perf_event_paranoid=2 allows {base}:u to all, CAP_PERFMON everything"
        ),
        Some(level) => format!(
            "kernel.perf_event_paranoid is {level}, which would allow it: a container's seccomp profile may forbid perf_event_open"
        ),
        None => "grant CAP_PERFMON, or allow perf_event_open in the sandbox".to_owned(),
    }
}

fn paranoid() -> Option<i32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: Errno, others: usize) -> Error {
        let source = io::Error::from_raw_os_error(errno.raw_os_error());
        Error::open("cycles", others, source)
    }

    /// Each of the kernel's reasons has its own message.
    #[test]
    fn classes() {
        for errno in [Errno::NOENT, Errno::NODEV, Errno::OPNOTSUPP] {
            assert!(matches!(of(errno, 0), Error::Unsupported { .. }), "{errno}");
        }
        for errno in [Errno::ACCESS, Errno::PERM] {
            assert!(matches!(of(errno, 0), Error::Denied { .. }), "{errno}");
        }
        assert!(matches!(of(Errno::INVAL, 0), Error::Open { .. }));
        for (errno, others) in [(Errno::INVAL, 2), (Errno::NOSPC, 0)] {
            let error = of(errno, others);
            assert!(matches!(error, Error::NoCounter { .. }), "{errno}");
            assert!(error.hint().is_some());
        }
        let error = of(Errno::MFILE, 1);
        assert_eq!(error.to_string(), "cannot open event cycles");
        assert!(error.hint().is_some_and(|hint| hint.contains("ulimit -n")));
    }

    /// The hint has the value seen and the command to type.
    #[test]
    fn refusals() {
        let hint = denied("page-faults:k", Some(2));
        assert!(
            hint.contains("is 2") && hint.contains("page-faults:u"),
            "{hint}"
        );
        assert!(denied("cycles", Some(3)).contains("sysctl"));
        assert!(denied("cycles:u", Some(2)).contains("seccomp"));
        assert!(denied("cycles:u", Some(4)).contains("sysctl"));
        assert!(denied("cycles", None).contains("CAP_PERFMON"));
    }
}
