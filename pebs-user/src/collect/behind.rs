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
        // SAFETY: reads the policy of this thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        (policy == libc::SCHED_OTHER && set(libc::SCHED_BATCH)).then_some(Self(()))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        set(libc::SCHED_OTHER);
    }
}

fn set(policy: libc::c_int) -> bool {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: sets the policy of this thread, from a live variable.
    unsafe { libc::sched_setscheduler(0, policy, &raw const param) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy holds for threads that are started meanwhile, and ends.
    #[test]
    fn policy() {
        // SAFETY: reads the policy of this thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
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
