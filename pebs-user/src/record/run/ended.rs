//! The end of the requested processes or threads.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::binary::process;
use crate::units::{Pid, Tid};

/// The end that is waited for.
pub(super) enum Targets {
    /// Processes. Those that could not be opened have ended already.
    Processes(Vec<OwnedFd>),
    /// Threads, each with its process.
    Threads(Vec<(Pid, Tid)>),
}

impl Targets {
    /// Opens what a recording of these ends with.
    pub(super) fn open(pids: &[Pid], threads: &[Tid]) -> Self {
        if !threads.is_empty() {
            let with_process = |tid: &Tid| Some((process::process_of(*tid)?, *tid));
            return Self::Threads(threads.iter().filter_map(with_process).collect());
        }
        let open = |pid: &Pid| {
            let pid = rustix::process::Pid::from_raw(pid.0.cast_signed())?;
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
        };
        Self::Processes(pids.iter().filter_map(open).collect())
    }

    /// What has ended, for the trace, where these threads were asked for.
    pub(super) fn ended(threads: &[Tid]) -> &'static str {
        match threads {
            [] => "the target ended",
            [_] => "the thread ended",
            _ => "the threads ended",
        }
    }

    /// Whether all have ended: a pidfd becomes readable then.
    pub(super) fn have_ended(&mut self) -> bool {
        match self {
            Self::Processes(processes) => {
                processes.retain(|target| {
                    let mut look = [PollFd::new(target, PollFlags::IN)];
                    let ended = rustix::event::poll(&mut look, Some(&Timespec::default()));
                    !matches!(ended, Ok(n) if n > 0)
                });
                processes.is_empty()
            }
            Self::Threads(threads) => {
                threads.retain(|(pid, tid)| process::has_thread(*pid, *tid));
                threads.is_empty()
            }
        }
    }
}
