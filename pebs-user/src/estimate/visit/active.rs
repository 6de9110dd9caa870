//! The active clock of a visit.

use crate::units::TraceNs;

/// Converts rising times to positions on a visit's active clock.
pub(super) struct ActiveClock<'a> {
    /// The current interval.
    from: TraceNs,
    to: TraceNs,
    /// Active time before the current interval.
    passed: i64,
    /// Intervals after it.
    ahead: &'a [(TraceNs, TraceNs)],
}

impl<'a> ActiveClock<'a> {
    /// After every time, but small enough that differences don't overflow.
    const NEVER: TraceNs = TraceNs(i64::MAX / 2);

    pub(super) const fn new(active: &'a [(TraceNs, TraceNs)]) -> Self {
        Self {
            from: TraceNs(i64::MIN),
            to: TraceNs(i64::MIN),
            passed: 0,
            ahead: active,
        }
    }

    /// Returns the active time before `time`. It is constant between two intervals, 0 before the
    /// first, and the total after the last.
    #[inline(always)]
    pub(super) fn advance(&mut self, time: TraceNs) -> i64 {
        if time >= self.to {
            self.pass(time);
        }
        self.passed + (time.0 - self.from.0).max(0)
    }

    /// Advances to the interval that `time` is in or before.
    #[inline(never)]
    fn pass(&mut self, time: TraceNs) {
        while let [(from, to), rest @ ..] = self.ahead {
            self.passed += self.to.0 - self.from.0;
            (self.from, self.to, self.ahead) = (*from, *to, rest);
            if time < *to {
                return;
            }
        }
        // After the last interval nothing is active.
        self.passed += self.to.0 - self.from.0;
        (self.from, self.to) = (Self::NEVER, Self::NEVER);
    }
}
