//! Threads that do not come before the target's.
#![expect(unsafe_code, reason = "scheduling policies have no safe binding")]

/// While this exists, the calling thread, and those that it starts, do not preempt others when they wake.
///
/// They get as much of a busy CPU as before, but a target on it is not interrupted each time that rings are read.
/// Source: `SCHED_BATCH` in sched(7); `check_preempt_wakeup_fair`, kernel/sched/fair.c.
pub(crate) struct Behind(());

impl Behind {
    /// `None` if the thread has another policy than the default one, which was somebody's choice.
    pub(crate) fn begin() -> Option<Self> {
        (policy() == libc::SCHED_OTHER && set(libc::SCHED_BATCH)).then_some(Self(()))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        set(libc::SCHED_OTHER);
    }
}

/// The policy of this thread. It and its change are system calls here, as musl refuses both: POSIX has them for processes.
fn policy() -> libc::c_int {
    // SAFETY: reads it.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    policy as libc::c_int
}

fn set(policy: libc::c_int) -> bool {
    let priority: libc::c_int = 0;
    // SAFETY: sets the policy of this thread, from a live variable.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy holds for threads that are started meanwhile, and ends.
    #[test]
    fn holds_for_threads() {
        if policy() != libc::SCHED_OTHER {
            return println!("SKIP not the default policy");
        }
        let behind = Behind::begin().unwrap();
        let theirs = std::thread::spawn(policy).join().unwrap();
        assert_eq!((policy(), theirs), (libc::SCHED_BATCH, libc::SCHED_BATCH));
        assert!(Behind::begin().is_none());
        drop(behind);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }
}
