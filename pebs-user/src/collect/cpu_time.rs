//! CPU time of processes, from the kernel's per-process clocks.
#![expect(
    unsafe_code,
    reason = "the clock of another process has no safe binding"
)]

use rustc_hash::FxHashMap;

use crate::units::Pid;

/// CPU time of a process with all its threads so far, ns; `None` once it has ended.
#[must_use]
pub(crate) fn of(pid: Pid) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: writes an id to a live variable.
    if unsafe { libc::clock_getcpuclockid(pid.0.cast_signed(), &raw mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes a time to a live variable.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CPU time of a growing set of processes since each was first seen, ns. Excludes the time before that, and the
/// time between the last look and a process's end.
#[derive(Debug, Default)]
pub(crate) struct CpuTimes {
    processes: FxHashMap<Pid, (u64, u64)>,
}

impl CpuTimes {
    /// Reads the clocks of processes; new processes count from now on.
    pub(crate) fn look(&mut self, pids: &[Pid]) {
        for &pid in pids {
            if let Some(now) = of(pid) {
                self.processes.entry(pid).or_insert((now, now)).1 = now;
            }
        }
    }

    /// Their CPU time, ns.
    #[must_use]
    pub(crate) fn sum(&self) -> u64 {
        let each = self.processes.values();
        each.map(|(first, last)| last.saturating_sub(*first)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our own time grows between two looks, and a missing process has none.
    #[test]
    fn own_time() {
        let own = Pid(std::process::id());
        let mut times = CpuTimes::default();
        times.look(&[own]);
        assert_eq!(times.sum(), 0);
        let before = of(own).unwrap();
        while of(own).unwrap() < before + 1_000_000 {}
        times.look(&[own, Pid(1 << 23)]);
        assert!(times.sum() >= 1_000_000);
        assert_eq!(of(Pid(1 << 23)), None);
    }
}
