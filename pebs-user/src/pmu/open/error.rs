//! Errors of opening or using a counter, or attaching a program to it.

use std::fmt;
use std::io;
use std::path::Path;

use super::holders::{Holder, holders};
use crate::failure::Hint;
use crate::limits::{self, SoftHard};

/// The attempted action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// An event that samples or counts.
    Event,
    Uprobe,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Event => "open event",
            Self::Uprobe => "place",
        })
    }
}

/// The kernel's reasons, as far as their hints differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum OpenErrorKind {
    /// `EINVAL`: the attr is not accepted.
    Invalid,
    /// `EINVAL` within a group: no CPU can count all of it at once.
    Group,
    /// `EOPNOTSUPP` and the kernel's internal `ENOTSUPP`: not supported by the hardware.
    NotSupported,
    /// `EACCES`, `EPERM`.
    Denied {
        /// `kernel.perf_event_paranoid`.
        paranoid: Option<i64>,
    },
    /// `ENODEV`: no such hardware, or the CPU is offline.
    NoDevice,
    /// `ENOENT`: no such event or file.
    NotFound,
    /// `EMFILE`.
    TooManyFiles {
        /// The soft limit; `None` if unlimited.
        limit: Option<u64>,
        /// The hard limit; `None` if unlimited.
        hard: Option<u64>,
    },
    /// `ENFILE`: the system-wide limit of files.
    SystemFiles,
    /// `EBUSY`: someone else holds the counter.
    Busy {
        /// Whether the hard lockup detector is on.
        nmi_watchdog: Option<bool>,
    },
    /// `ESRCH`.
    ThreadGone,
    /// `ENOSPC`: no free breakpoint.
    NoSlot,
    /// `E2BIG`: the kernel does not know a non-zero field of the attr.
    TooNew,
    /// `EIO`, `ENOEXEC`: the instruction can't be probed.
    Instruction,
    /// Anything else.
    Other,
}

/// A counter could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt} {what}: {}", self.reason())]
pub(crate) struct OpenError {
    pub attempt: Attempt,
    /// The event or probe, then the CPU or process.
    pub what: String,
    /// Class of the reason.
    pub kind: OpenErrorKind,
    /// The kernel's error number; `None` if no system call was made.
    pub errno: Option<i32>,
    /// Processes with open perf events, if they may be the reason.
    pub holders: Vec<Holder>,
    message: String,
}

impl OpenError {
    /// Classifies the error and reads the machine's current limits.
    pub(super) fn new(attempt: Attempt, what: String, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        let kind = errno.map_or(OpenErrorKind::Other, classify);
        let message = error.to_string();
        let holders = match kind {
            OpenErrorKind::Busy { .. } => holders(Path::new("/"), std::process::id()),
            _ => Vec::new(),
        };
        Self {
            attempt,
            what,
            kind,
            errno,
            holders,
            message,
        }
    }

    /// The same error for an event opened in a group whose settings are accepted outside of one.
    pub(super) fn in_group(mut self) -> Self {
        if self.kind == OpenErrorKind::Invalid {
            self.kind = OpenErrorKind::Group;
        }
        self
    }

    /// Whether a lower precise level might be granted.
    #[must_use]
    pub(crate) const fn may_step_down(&self) -> bool {
        matches!(
            self.kind,
            OpenErrorKind::NotSupported | OpenErrorKind::Invalid
        )
    }

    /// Whether opening another event might succeed.
    #[must_use]
    pub(crate) const fn is_about_the_event(&self) -> bool {
        matches!(
            self.kind,
            OpenErrorKind::NotSupported
                | OpenErrorKind::Invalid
                | OpenErrorKind::NoDevice
                | OpenErrorKind::NotFound
                | OpenErrorKind::Busy { .. }
                | OpenErrorKind::NoSlot
                | OpenErrorKind::TooNew
        )
    }

    /// The reason, lower case; with the error's number only where its class is unspecific.
    #[must_use]
    pub(crate) fn reason(&self) -> String {
        match (self.kind, self.attempt) {
            (OpenErrorKind::Invalid, Attempt::Event) => "invalid combination of settings".into(),
            (OpenErrorKind::Group, _) => "the CPU can't count them together".into(),
            (OpenErrorKind::Invalid, Attempt::Uprobe) => "not within executable code".into(),
            (OpenErrorKind::NotSupported, Attempt::Event) => "not supported by this CPU".into(),
            (OpenErrorKind::NotSupported | OpenErrorKind::Instruction, Attempt::Uprobe) => {
                "this instruction can't be probed".into()
            }
            (OpenErrorKind::Denied { .. }, _) => "permission denied".into(),
            (OpenErrorKind::NoDevice, _) => "no such device".into(),
            (OpenErrorKind::NotFound, Attempt::Event) => "no such event on this machine".into(),
            (OpenErrorKind::NotFound, Attempt::Uprobe) => "no such file".into(),
            (OpenErrorKind::TooManyFiles { .. }, _) => "too many open files".into(),
            (OpenErrorKind::SystemFiles, _) => "too many open files in the whole system".into(),
            (OpenErrorKind::Busy { .. }, _) => "the counter is busy".into(),
            (OpenErrorKind::ThreadGone, _) => "no such thread".into(),
            (OpenErrorKind::NoSlot, _) => "no hardware breakpoint is free".into(),
            (OpenErrorKind::TooNew, _) => "the kernel is too old for these settings".into(),
            (OpenErrorKind::Instruction, Attempt::Event) | (OpenErrorKind::Other, _) => {
                self.message.clone()
            }
        }
    }

    /// Whether the kernel refused a process with the right to open any perf event.
    fn needs_admin(&self) -> bool {
        let caps = limits::capabilities(Path::new("/"));
        let may_perf = caps.is_some_and(|caps| caps.may_perf() && !caps.sys_admin);
        may_perf && matches!(self.kind, OpenErrorKind::Denied { .. })
    }
}

impl Hint for OpenError {
    fn hint(&self) -> Option<String> {
        match self.attempt {
            Attempt::Event if !self.holders.is_empty() => {
                let names: Vec<String> = self.holders.iter().map(Holder::to_string).collect();
                Some(busy_hint(self.kind, &names.join(", ")))
            }
            Attempt::Event => event_hint(self.kind),
            Attempt::Uprobe if self.needs_admin() => Some(format!(
                "this kernel requires CAP_SYS_ADMIN to place a uprobe: {ADMIN_ALONE}"
            )),
            Attempt::Uprobe => uprobe_hint(self.kind).or_else(|| event_hint(self.kind)),
        }
    }
}

/// Hint where `CAP_PERFMON` is not enough for uprobes.
pub(crate) const ADMIN_ALONE: &str =
    "use sudo; --item-reg, and --item-mem of an executable, need no uprobes";

fn classify(errno: i32) -> OpenErrorKind {
    /// The kernel's inner errno, which leaks from the uprobe code.
    const ENOTSUPP: i32 = 524;
    let root = Path::new("/");
    match errno {
        libc::EINVAL => OpenErrorKind::Invalid,
        libc::EOPNOTSUPP | ENOTSUPP => OpenErrorKind::NotSupported,
        libc::EACCES | libc::EPERM => OpenErrorKind::Denied {
            paranoid: limits::paranoid(root),
        },
        libc::ENODEV | libc::ENXIO => OpenErrorKind::NoDevice,
        libc::ENOENT => OpenErrorKind::NotFound,
        libc::EMFILE => {
            let files = limits::open_files();
            OpenErrorKind::TooManyFiles {
                limit: files.soft,
                hard: files.hard,
            }
        }
        libc::ENFILE => OpenErrorKind::SystemFiles,
        libc::EBUSY => OpenErrorKind::Busy {
            nmi_watchdog: limits::nmi_watchdog(root),
        },
        libc::ESRCH => OpenErrorKind::ThreadGone,
        libc::ENOSPC => OpenErrorKind::NoSlot,
        libc::E2BIG => OpenErrorKind::TooNew,
        libc::EIO | libc::ENOEXEC => OpenErrorKind::Instruction,
        _ => OpenErrorKind::Other,
    }
}

/// Hint for a busy counter; `names` are the processes that hold some.
fn busy_hint(kind: OpenErrorKind, names: &str) -> String {
    let watchdog = matches!(
        kind,
        OpenErrorKind::Busy {
            nmi_watchdog: Some(true)
        }
    );
    let first = if watchdog {
        "kernel.nmi_watchdog is 1 and holds a counter on each CPU: 'sudo sysctl kernel.nmi_watchdog=0'; "
    } else {
        ""
    };
    format!("{first}perf events are held by {names}: end one of them, or wait")
}

fn event_hint(kind: OpenErrorKind) -> Option<String> {
    Some(match kind {
        OpenErrorKind::Invalid => {
            "this kernel or CPU does not accept the event with these modifiers; \
             try it without ':p', ':u' or ':k'; 'pebs-trace doctor' shows the precise ceiling; \
             events of msr, power, cstate and uncore PMUs only count, and can't be sampled"
                .into()
        }
        OpenErrorKind::Group => {
            "a group may not have more events than there are counters: leave some out, or out of the braces"
                .into()
        }
        OpenErrorKind::NotSupported => {
            "'pebs-trace doctor' shows which precise level this machine grants; \
             ask for a lower one (':pp', ':p' or none), or use --event cpu-clock"
                .into()
        }
        OpenErrorKind::Denied { paranoid } => {
            let seen = paranoid.map_or("unknown".into(), |v| v.to_string());
            format!(
                "kernel.perf_event_paranoid is {seen}; use sudo, or grant CAP_PERFMON and CAP_BPF"
            )
        }
        OpenErrorKind::NoDevice => {
            "the CPU went offline or has no such counter; 'cat /sys/devices/system/cpu/online' \
             lists the CPUs; without a hardware PMU use --event cpu-clock"
                .into()
        }
        OpenErrorKind::NotFound => {
            "this machine has no such counter (a virtual machine often has none); \
             use --event cpu-clock; 'pebs-trace doctor' shows what there is"
                .into()
        }
        OpenErrorKind::TooManyFiles { limit: soft, hard } => SoftHard { soft, hard }.hint(),
        OpenErrorKind::SystemFiles => "raise fs.file-max: 'sudo sysctl fs.file-max=1000000'".into(),
        OpenErrorKind::Busy {
            nmi_watchdog: Some(true),
        } => "kernel.nmi_watchdog is 1 and holds a counter on each CPU: \
             'sudo sysctl kernel.nmi_watchdog=0'; another perf or profiler may hold the rest"
            .into(),
        OpenErrorKind::Busy { .. } => "another perf, profiler or agent holds the counter: \
             'sudo find /proc -maxdepth 3 -lname \"*perf_event*\"' names it by its pid"
            .into(),
        OpenErrorKind::ThreadGone => "the thread ended before it could be traced".into(),
        OpenErrorKind::NoSlot => {
            "x86 has four hardware breakpoints per CPU, which debuggers use too: \
             ask for fewer 'mem:' events, or end the debugger"
                .into()
        }
        OpenErrorKind::TooNew => {
            "'pebs-trace doctor' shows what this kernel can do; leave out the newest options".into()
        }
        OpenErrorKind::Instruction | OpenErrorKind::Other => return None,
    })
}

fn uprobe_hint(kind: OpenErrorKind) -> Option<String> {
    Some(match kind {
        OpenErrorKind::Invalid => {
            "the offset must lie on an instruction of the file's executable part; \
             'pebs-trace probes BIN' lists places that can be probed"
                .into()
        }
        OpenErrorKind::NotSupported | OpenErrorKind::Instruction => {
            "a debugger's breakpoint is there, or the kernel can't step the instruction; \
             probe another place: FUNC+OFF"
                .into()
        }
        OpenErrorKind::NotFound => "the file was removed or is in another mount namespace".into(),
        OpenErrorKind::NoDevice => {
            "the file system of the binary does not allow probes; copy it to a local disk".into()
        }
        _ => return None,
    })
}

/// An opened counter could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} the counter")]
pub(crate) struct ControlError {
    action: &'static str,
    /// The kernel's reason.
    #[source]
    pub source: io::Error,
}

impl Hint for ControlError {
    fn hint(&self) -> Option<String> {
        None
    }
}

impl ControlError {
    pub(super) const fn new(action: &'static str, source: io::Error) -> Self {
        Self { action, source }
    }
}

/// A program could not be attached.
#[derive(Debug, thiserror::Error)]
#[error("cannot attach the program to the counter")]
pub(crate) struct AttachError {
    /// The kernel's reason.
    #[source]
    pub source: io::Error,
    with_cookie: bool,
}

impl AttachError {
    pub(super) const fn new(source: io::Error, cookie: Option<u64>) -> Self {
        let with_cookie = cookie.is_some();
        Self {
            source,
            with_cookie,
        }
    }
}

impl Hint for AttachError {
    fn hint(&self) -> Option<String> {
        Some(match self.source.raw_os_error()? {
            libc::EINVAL if self.with_cookie => {
                "probes with a cookie need Linux 5.15 or later; 'uname -r' shows the kernel".into()
            }
            libc::EPERM | libc::EACCES => "use sudo, or grant CAP_PERFMON and CAP_BPF".into(),
            libc::EEXIST => "the event has a program already".into(),
            libc::EPROTO => "a program that takes stacks needs an event without precise level, \
                 or with call chains"
                .into(),
            libc::E2BIG => "the kernel allows 64 programs on one probe".into(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(attempt: Attempt, errno: i32) -> OpenError {
        let what = "cpu/event=0xc2,umask=0x1/pp on cpu 3".to_owned();
        OpenError::new(attempt, what, &io::Error::from_raw_os_error(errno))
    }

    /// The message has attempt, object and reason on one line, in lower case.
    #[test]
    fn messages() {
        let expect = "cannot open event cpu/event=0xc2,umask=0x1/pp on cpu 3: permission denied";
        assert_eq!(error(Attempt::Event, libc::EACCES).to_string(), expect);
        assert_eq!(error(Attempt::Event, libc::EPERM).to_string(), expect);
    }

    /// Every known refusal of the kernel has its own hint.
    #[test]
    fn hints_differ() {
        let errnos = [
            libc::EINVAL,
            libc::EOPNOTSUPP,
            libc::EACCES,
            libc::ENODEV,
            libc::ENOENT,
            libc::EMFILE,
            libc::ENFILE,
            libc::EBUSY,
            libc::ESRCH,
            libc::ENOSPC,
            libc::E2BIG,
        ];
        for attempt in [Attempt::Event, Attempt::Uprobe] {
            let hints: Vec<String> = errnos
                .iter()
                .map(|&errno| error(attempt, errno).hint().unwrap())
                .collect();
            let mut unique = hints.clone();
            unique.sort();
            unique.dedup();
            assert_eq!(unique.len(), hints.len(), "{hints:#?}");
        }
        assert_eq!(error(Attempt::Event, libc::EINTR).hint(), None);
    }

    /// A busy counter's hint names the holders.
    #[test]
    fn busy_names_holders() {
        let mut error = error(Attempt::Event, libc::EBUSY);
        error.kind = OpenErrorKind::Busy {
            nmi_watchdog: Some(true),
        };
        error.holders = vec![Holder {
            pid: crate::units::Pid(41),
            name: "perf".into(),
        }];
        let hint = error.hint().unwrap();
        assert!(hint.contains("nmi_watchdog=0"), "{hint}");
        assert!(hint.contains("held by perf (pid 41)"), "{hint}");
    }

    /// Hints contain the value seen and a matching command.
    #[test]
    fn hints_have_values() {
        let files = OpenErrorKind::TooManyFiles {
            limit: Some(1024),
            hard: Some(524_288),
        };
        let hint = event_hint(files).unwrap();
        assert!(
            hint.contains("is 1024") && hint.contains("ulimit -n 524288"),
            "{hint}"
        );
        let hint = event_hint(OpenErrorKind::Denied { paranoid: Some(3) }).unwrap();
        assert!(hint.contains("perf_event_paranoid is 3"), "{hint}");
        let watchdog = |on| {
            event_hint(OpenErrorKind::Busy {
                nmi_watchdog: Some(on),
            })
        };
        assert!(watchdog(true).unwrap().contains("kernel.nmi_watchdog=0"));
        assert!(!watchdog(false).unwrap().contains("nmi_watchdog"));
    }
}
