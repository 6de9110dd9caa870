//! Target of a counter: a CPU, or a thread.

use std::fmt;

use crate::units::{Cpu, Tid};

/// Target of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Everything that runs on one CPU.
    Cpu(Cpu),
    /// One thread on any CPU; with `inherit` also the threads and processes it starts later. Such an event has no
    /// mmap ring.
    Thread(Tid),
    /// One thread while it runs on this CPU: allows both `inherit` and a ring.
    ThreadOnCpu(Tid, Cpu),
}

impl Target {
    /// The `pid` and `cpu` arguments of the system call.
    pub(super) fn arguments(self) -> (libc::pid_t, libc::c_int) {
        match self {
            Self::Cpu(cpu) => (-1, cpu.0.into()),
            Self::Thread(tid) => (tid.0.cast_signed(), -1),
            Self::ThreadOnCpu(tid, cpu) => (tid.0.cast_signed(), cpu.0.into()),
        }
    }

    pub(super) const fn thread(self) -> Option<Tid> {
        match self {
            Self::Cpu(_) => None,
            Self::Thread(tid) | Self::ThreadOnCpu(tid, _) => Some(tid),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => write!(f, "on cpu {}", cpu.0),
            Self::Thread(tid) => write!(f, "for thread {}", tid.0),
            Self::ThreadOnCpu(tid, cpu) => write!(f, "for thread {} on cpu {}", tid.0, cpu.0),
        }
    }
}
