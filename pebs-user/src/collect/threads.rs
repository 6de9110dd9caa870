//! The threads of the target that are counted on their own.

use crate::binary::process;
use crate::collect::error::SessionError;
use crate::units::{Pid, Tid};

/// The threads of a process that are to be counted; none if it has ended.
pub(super) fn threads_of(pid: Pid, only: &[Tid]) -> Result<Vec<Tid>, SessionError> {
    let Some(mut threads) = process::threads(pid) else {
        // Checking its existence needs no descriptor, listing does.
        return match std::fs::read_dir(format!("/proc/{}/task", pid.0)) {
            Err(source) if process::exists(pid) => Err(SessionError::Threads { pid, source }),
            _ => Ok(Vec::new()),
        };
    };
    threads.retain(|tid| is_wanted(only, *tid));
    Ok(threads)
}

/// Whether a thread is to be counted: one of `only`, or any if that is empty.
pub(super) fn is_wanted(only: &[Tid], tid: Tid) -> bool {
    only.is_empty() || only.contains(&tid)
}
