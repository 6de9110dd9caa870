//! Opens counters: safe types for the perf system calls.
#![expect(
    unsafe_code,
    reason = "perf_event_open and its ioctls have no safe binding"
)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys as sys;
use perf_event_open_sys::bindings::perf_event_attr;

use crate::pmu::attr::access::loads_leader;
use crate::pmu::target::Target;
use crate::units::{Cpu, ResetValue, Tid};

mod error;
mod holders;
mod keeper;
mod link;
mod step;
mod uprobe;

pub(crate) use error::{ADMIN_ALONE, AttachError, Attempt, ControlError, OpenError, OpenErrorKind};
pub(crate) use keeper::{Ended, Keeper, KeeperError};
pub(crate) use link::BpfLink;
pub(crate) use step::{Granted, open_auto, open_stepping_down, settle_twins};
pub(crate) use uprobe::{UprobeAt, UprobeScope, UprobeSite, may_place, open_uprobe};

/// Value and times of one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Events counted (for clocks: ns), children included where the event is inherited.
    pub value: u64,
    /// Time for which the event was enabled, ns.
    pub enabled_ns: u64,
    /// Time that it did count, ns. Less than `enabled_ns` when events share a counter.
    pub running_ns: u64,
}

impl Times {
    /// Count extrapolated to the time in which the counter was used by other events; `None` if it never counted.
    #[must_use]
    pub fn scaled(&self) -> Option<f64> {
        let (value, enabled) = (self.value as f64, self.enabled_ns as f64);
        (self.running_ns > 0).then(|| value * enabled / self.running_ns as f64)
    }
}

/// An opened counter. Closing it ends sampling and detaches its program.
#[derive(Debug)]
pub(crate) struct PerfEvent {
    fd: OwnedFd,
    /// Leader of its group, kept open as long.
    _leader: Option<OwnedFd>,
    /// The keeper's copy of an uprobe, closed last; must stay below the other fields.
    _kept: Option<keeper::ChildHandle>,
    /// Its target; `None` if unknown.
    target: Option<Target>,
}

impl PerfEvent {
    /// Opens a counter; `what` is the event's name for error messages.
    ///
    /// `attr.size` is set here. The file is closed on exec.
    ///
    /// # Errors
    /// Names the attempt, the CPU or thread, and the kernel's reason; its
    /// [`Hint::hint`](crate::failure::Hint::hint) has the value seen and the command to run.
    /// Source: perf_event_open(2).
    #[doc(alias = "perf_event_open")]
    #[doc(alias = "PERF_FLAG_FD_CLOEXEC")]
    pub(crate) fn open(
        attr: &perf_event_attr,
        target: Target,
        what: &str,
    ) -> Result<Self, OpenError> {
        let (pid, cpu) = target.arguments();
        let opened = match Self::open_raw(attr, pid, cpu) {
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => {
                Self::open_led(attr, pid, cpu).unwrap_or(Err(error))
            }
            opened => opened,
        };
        match opened {
            Ok(event) => Ok(Self {
                target: Some(target),
                ..event
            }),
            Err(error) => Err(OpenError::new(
                Attempt::Event,
                format!("{what} {target}"),
                &error,
            )),
        }
    }

    /// The same in the group of a leader on the same CPU or thread.
    ///
    /// # Errors
    /// As [`PerfEvent::open`].
    pub(crate) fn open_with(
        attr: &perf_event_attr,
        target: Target,
        what: &str,
        leader: Option<&Self>,
    ) -> Result<Self, OpenError> {
        let Some(leader) = leader else {
            return Self::open(attr, target, what);
        };
        let (pid, cpu) = target.arguments();
        match open_in(attr, pid, cpu, Some(leader.as_fd())) {
            Ok(fd) => Ok(Self {
                fd,
                _leader: None,
                _kept: None,
                target: Some(target),
            }),
            Err(error) => {
                let what = format!("{what} {target}, in its group");
                Err(OpenError::new(Attempt::Event, what, &error).in_group())
            }
        }
    }

    /// The thread that it counts, with inheriting children; `None` if it counts a CPU.
    #[must_use]
    pub(crate) fn thread(&self) -> Option<Tid> {
        self.target.and_then(Target::thread)
    }

    /// The CPU that it counts system-wide; `None` if it counts a thread.
    #[must_use]
    pub(crate) const fn cpu(&self) -> Option<Cpu> {
        match self.target {
            Some(Target::Cpu(cpu)) => Some(cpu),
            _ => None,
        }
    }

    /// Opens it in a group with its required leader, if any.
    fn open_led(
        attr: &perf_event_attr,
        pid: libc::pid_t,
        cpu: libc::c_int,
    ) -> Option<io::Result<Self>> {
        let leader = loads_leader(attr)?;
        Some(
            Self::open_raw(&leader, pid, cpu).and_then(|Self { fd: leader, .. }| {
                let led = open_in(attr, pid, cpu, Some(leader.as_fd()))?;
                Ok(Self {
                    fd: led,
                    _leader: Some(leader),
                    _kept: None,
                    target: None,
                })
            }),
        )
    }

    /// Opens it with the arguments of the system call, ungrouped and closed on exec.
    fn open_raw(attr: &perf_event_attr, pid: libc::pid_t, cpu: libc::c_int) -> io::Result<Self> {
        let opened = open_in(attr, pid, cpu, None);
        opened.map(|fd| Self {
            fd,
            _leader: None,
            _kept: None,
            target: None,
        })
    }

    /// Starts counting.
    ///
    /// # Errors
    /// The kernel refused; a dead thread is not an error.
    #[doc(alias = "PERF_EVENT_IOC_ENABLE")]
    pub(crate) fn enable(&self) -> Result<(), ControlError> {
        // SAFETY: the ioctl takes no pointer; the descriptor is an open perf event.
        let result = unsafe { sys::ioctls::ENABLE(self.fd.as_raw_fd(), 0) };
        self.checked("enable", result)
    }

    /// Stops counting; the value stays readable.
    ///
    /// # Errors
    /// The kernel refused.
    #[doc(alias = "PERF_EVENT_IOC_DISABLE")]
    pub(crate) fn disable(&self) -> Result<(), ControlError> {
        // SAFETY: the ioctl takes no pointer; the descriptor is an open perf event.
        let result = unsafe { sys::ioctls::DISABLE(self.fd.as_raw_fd(), 0) };
        self.checked("disable", result)
    }

    /// Sets the number of events between two samples, and starts a new interval.
    ///
    /// Threads that have already inherited the event keep the old value; later ones get the new.
    ///
    /// # Errors
    /// The kernel refused; a dead thread is not an error.
    /// Source: kernel/events/core.c (`_perf_event_period`).
    #[doc(alias = "PERF_EVENT_IOC_PERIOD")]
    pub(crate) fn set_reset(&self, reset: ResetValue) -> Result<(), ControlError> {
        let value = reset.0.get();
        let address = std::ptr::from_ref(&value) as u64;
        // SAFETY: the kernel reads one u64 at the address, which is valid through the call.
        let result = unsafe { sys::ioctls::PERIOD(self.fd.as_raw_fd(), address) };
        self.checked("change the reset value of", result)
    }

    /// Starts counting, until this many samples were taken.
    ///
    /// # Errors
    /// The kernel refused: the event takes no samples, or is inherited.
    /// Source: kernel/events/core.c (`_perf_event_refresh`).
    #[doc(alias = "PERF_EVENT_IOC_REFRESH")]
    pub(crate) fn enable_for(&self, samples: i32) -> Result<(), ControlError> {
        // SAFETY: the ioctl takes a number; the descriptor is an open perf event.
        let result = unsafe { sys::ioctls::REFRESH(self.fd.as_raw_fd(), samples) };
        self.checked("enable", result)
    }

    /// Counts only the hits of a tracepoint that pass a filter.
    ///
    /// # Errors
    /// The kernel refused: it is no tracepoint, or the filter names a field that it lacks.
    #[doc(alias = "PERF_EVENT_IOC_SET_FILTER")]
    pub(crate) fn filter(&self, filter: &CStr) -> Result<(), ControlError> {
        // SAFETY: the kernel reads the text up to its NUL, which lives through the call.
        let result =
            unsafe { sys::ioctls::SET_FILTER(self.fd.as_raw_fd(), filter.as_ptr().cast_mut()) };
        self.checked("filter", result)
    }

    /// Writes the samples into the ring of another counter, on the same CPU.
    ///
    /// # Errors
    /// The kernel refused.
    #[doc(alias = "PERF_EVENT_IOC_SET_OUTPUT")]
    pub(crate) fn share_ring_of(&self, other: &Self) -> Result<(), ControlError> {
        let other = other.fd.as_raw_fd();
        // SAFETY: the ioctl takes a descriptor by value, which is open through the call.
        let result = unsafe { sys::ioctls::SET_OUTPUT(self.fd.as_raw_fd(), other) };
        self.checked("share the ring of", result)
    }

    /// The kernel's id of this counter, as in `PERF_SAMPLE_ID`.
    ///
    /// # Errors
    /// The kernel refused.
    #[cfg(test)]
    #[doc(alias = "PERF_EVENT_IOC_ID")]
    pub fn id(&self) -> Result<u64, ControlError> {
        let mut id = 0u64;
        // SAFETY: the ioctl writes one u64 to the pointer, which is valid through the call.
        let result = unsafe { sys::ioctls::ID(self.fd.as_raw_fd(), &raw mut id) };
        self.checked("read the id of", result).map(|()| id)
    }

    /// Value, enabled and running time.
    ///
    /// The event must have been opened with [`READ_FORMAT`](crate::pmu::attr::READ_FORMAT), as every attr made in this crate is.
    /// Enabled above running time means that the counter was shared or throttled.
    ///
    /// # Errors
    /// The kernel refused, or the event is in error state (pinned and not schedulable).
    pub(crate) fn times(&self) -> Result<Times, ControlError> {
        // The lost records of a counter that has them follow.
        let mut bytes = [0u8; 32];
        let read = rustix::io::read(&self.fd, &mut bytes)
            .map_err(|errno| ControlError::new("read", errno.into()))?;
        if read < 24 {
            return Err(ControlError::new(
                "read",
                io::ErrorKind::UnexpectedEof.into(),
            ));
        }
        let [value, enabled_ns, running_ns] = [0, 8, 16].map(|at| word(&bytes, at));
        Ok(Times {
            value,
            enabled_ns,
            running_ns,
        })
    }

    /// Attaches a loaded eBPF program, to run at every sample, or at every hit of an uprobe.
    ///
    /// Uses a perf event link where the kernel has one (5.15), as only links carry a cookie. Without a cookie it
    /// falls back to attaching for the lifetime of the event.
    ///
    /// # Errors
    /// The kernel refused, or `cookie` was given and the kernel has no perf event links.
    #[doc(alias = "BPF_LINK_CREATE")]
    #[doc(alias = "PERF_EVENT_IOC_SET_BPF")]
    pub(crate) fn attach(
        &self,
        program: BorrowedFd<'_>,
        cookie: Option<u64>,
    ) -> Result<BpfLink, AttachError> {
        match link::create(self.fd.as_fd(), program, cookie) {
            Ok(link) => Ok(link),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && cookie.is_none() => {
                self.set_bpf(program).map(|()| BpfLink::of_event())
            }
            Err(error) => Err(AttachError::new(error, cookie)),
        }
    }

    fn set_bpf(&self, program: BorrowedFd<'_>) -> Result<(), AttachError> {
        let program = program.as_raw_fd().cast_unsigned();
        // SAFETY: the ioctl takes a descriptor by value, which is open through the call.
        let result = unsafe { sys::ioctls::SET_BPF(self.fd.as_raw_fd(), program) };
        if result < 0 {
            return Err(AttachError::new(io::Error::last_os_error(), None));
        }
        Ok(())
    }

    fn checked(&self, action: &'static str, result: libc::c_int) -> Result<(), ControlError> {
        if result < 0 {
            return Err(ControlError::new(action, io::Error::last_os_error()));
        }
        Ok(())
    }
}

/// The system call, with a group leader or without.
fn open_in(
    attr: &perf_event_attr,
    pid: libc::pid_t,
    cpu: libc::c_int,
    group: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let mut attr = *attr;
    attr.size = size_of::<perf_event_attr>() as u32;
    // SAFETY: `attr` is an initialized copy that lives through the call, of the size it
    // says. The kernel may write its own size back into it. An address within (the path of
    // an uprobe) is only read by the kernel, which answers EFAULT if it is bad.
    let fd = unsafe {
        sys::perf_event_open(
            &raw mut attr,
            pid,
            cpu,
            group.map_or(-1, |leader| leader.as_raw_fd()),
            sys::bindings::PERF_FLAG_FD_CLOEXEC.into(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The native-endian word at a byte offset.
fn word(bytes: &[u8; 32], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests;
