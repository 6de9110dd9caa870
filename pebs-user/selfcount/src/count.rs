//! Value of one counter at one read.

/// Events counted, with the times that show how much of the run was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Events counted (for clocks: ns); with `inherit` including children.
    pub value: u64,
    /// Time that it was to count: started, and its thread on a CPU, ns.
    pub enabled_ns: u64,
    /// Time that it did count, ns. Less than `enabled_ns` where groups take turns.
    pub running_ns: u64,
    /// Whether it was on a hardware counter when `rdpmc` read it.
    ///
    /// Some guests do not expose the time to user space. There the times are those of the page's last change, which may
    /// be equal for two reads though the event counted in between.
    pub is_running: bool,
}

impl Count {
    /// Events between an earlier read and this one.
    ///
    /// Counters wrap at 64 bits.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            value: self.value.wrapping_sub(earlier.value),
            enabled_ns: self.enabled_ns.saturating_sub(earlier.enabled_ns),
            running_ns: self.running_ns.saturating_sub(earlier.running_ns),
            is_running: self.is_running,
        }
    }

    /// Events, extrapolated over the time in which others had the counter; `None` if it never counted.
    ///
    /// `value * enabled / running`, which assumes the same rate in the time not counted. 300 events in 2 of 6 ms are
    /// 900.
    #[must_use]
    pub fn scaled(&self) -> Option<f64> {
        let value = self.value as f64;
        match self.running_ns {
            0 if self.is_running => Some(value),
            0 => None,
            running if running >= self.enabled_ns => Some(value),
            running => Some(value * self.enabled_ns as f64 / running as f64),
        }
    }

    /// Whether it counted the whole time that it was to, so that [`Self::scaled`] is no estimate.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.scaled().is_some() && self.running_ns >= self.enabled_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(value: u64, enabled_ns: u64, running_ns: u64) -> Count {
        Count {
            value,
            enabled_ns,
            running_ns,
            is_running: false,
        }
    }

    /// No turn is unknown, part of the time is scaled, all of the time is as counted.
    #[test]
    fn scaled() {
        assert_eq!(count(0, 0, 0).scaled(), None);
        assert_eq!(count(0, 5_000, 0).scaled(), None);
        assert_eq!(count(0, 5_000, 5_000).scaled(), Some(0.0));
        assert_eq!(count(300, 6_000_000, 2_000_000).scaled(), Some(900.0));
        assert_eq!(count(7, 100, 100).scaled(), Some(7.0));
        assert!(count(7, 100, 100).is_exact());
        assert!(!count(7, 100, 99).is_exact());
        assert!(!count(0, 100, 0).is_exact());
    }

    /// Between two reads, across a wrap; a counter without fresh times is exact while it is on the CPU.
    #[test]
    fn since() {
        let whole = count(10, 900, 500).since(&count(u64::MAX - 4, 300, 200));
        assert_eq!(whole, count(15, 600, 300));
        assert_eq!(whole.scaled(), Some(30.0));
        let stale = Count {
            is_running: true,
            ..count(20, 900, 900)
        };
        assert_eq!(stale.since(&count(5, 900, 900)).scaled(), Some(15.0));
        // Stopped in between: nothing was counted, and the true count is unknown.
        assert_eq!(count(5, 900, 900).since(&count(5, 900, 900)).scaled(), None);
    }
}
