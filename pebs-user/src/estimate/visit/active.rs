//! The clock of the time that a visit is active.

use crate::units::TraceNs;

/// Turns rising times into positions on a visit's active clock.
pub(super) struct ActiveClock<'a> {
    /// The interval at hand.
    from: TraceNs,
    to: TraceNs,
    /// Active time before it.
    passed: i64,
    /// Intervals behind it.
    ahead: &'a [(TraceNs, TraceNs)],
}

impl<'a> ActiveClock<'a> {
    /// Behind every time, and not so far that differences overflow.
    const NEVER: TraceNs = TraceNs(i64::MAX / 2);

    pub(super) const fn new(active: &'a [(TraceNs, TraceNs)]) -> Self {
        Self {
            from: TraceNs(i64::MIN),
            to: TraceNs(i64::MIN),
            passed: 0,
            ahead: active,
        }
    }

    /// The active time before `time`. Between two intervals it stands still; before the first it
    /// is 0, after the last the total.
    #[inline(always)]
    pub(super) fn advance(&mut self, time: TraceNs) -> i64 {
        if time >= self.to {
            self.pass(time);
        }
        self.passed + (time.0 - self.from.0).max(0)
    }

    /// Goes on to the interval in or before which `time` is.
    #[inline(never)]
    fn pass(&mut self, time: TraceNs) {
        while let [(from, to), rest @ ..] = self.ahead {
            self.passed += self.to.0 - self.from.0;
            (self.from, self.to, self.ahead) = (*from, *to, rest);
            if time < *to {
                return;
            }
        }
        // Behind the last one, where nothing is active.
        self.passed += self.to.0 - self.from.0;
        (self.from, self.to) = (Self::NEVER, Self::NEVER);
    }
}
