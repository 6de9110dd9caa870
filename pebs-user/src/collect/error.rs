//! Errors of setting up a recording.

use std::io;

use crate::collect::perf_ring::PerfRingError;
use crate::collect::programs::ProgramsError;
use crate::failure::Hint;
use crate::limits;
use crate::pmu::open::{AttachError, ControlError, KeeperError, OpenError};
use crate::units::Pid;

/// A recording that could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// An event or probe could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A program could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The process that places probes could not be started.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// An event could not be started.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A ring of the perf subsystem could not be made.
    #[error(transparent)]
    PerfRing(#[from] PerfRingError),
    /// The rings could not be made.
    #[error("cannot make a ring of {bytes} bytes for cpu {cpu}")]
    Ring {
        /// Its size.
        bytes: u32,
        cpu: u16,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The counters could not be mapped.
    #[error("cannot map the counters of the eBPF programs")]
    Counters(#[source] io::Error),
    /// The kernel has no uprobe PMU.
    #[error("this kernel has no uprobe events (/sys/bus/event_source/devices/uprobe is missing)")]
    NoUprobes,
    /// A process runs, but its threads can't be listed.
    #[error("cannot list the threads of process {}", .pid.0)]
    Threads {
        /// The process.
        pid: Pid,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Hint for SessionError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Programs(error) => error.hint(),
            Self::Open(error) => error.hint(),
            Self::Attach(error) => error.hint(),
            Self::Keeper(_) | Self::Control(_) => None,
            Self::PerfRing(error) => error.hint(),
            Self::Ring { .. } => Some(
                "give a smaller --ring-size, or raise the memlock limit (ulimit -l)".to_owned(),
            ),
            Self::Counters(_) | Self::NoUprobes => {
                Some("'pebs-trace doctor' says what this kernel has".to_owned())
            }
            Self::Threads { source, .. } => match source.raw_os_error() {
                Some(libc::EMFILE) => Some(limits::open_files().hint()),
                _ => None,
            },
        }
    }
}
