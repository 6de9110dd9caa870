//! Time of a mark beyond that of one right after another. Pure.

/// Sign that a mark takes longer than one right after another: its program does, where the kernel's code and
/// data have left the caches. All of a mark takes longer then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coldness {
    /// Time of the program right after another mark, ns, of instructions that are emulated and single-stepped; 0: unknown, and
    /// no mark takes longer.
    pub warm_ns: [f64; 2],
    /// Added to the time before and after the mark's own time, for each ns that the program takes longer.
    pub before: f64,
    pub after: f64,
}

impl Coldness {
    /// A program that takes longer than this many times its usual time was interrupted, which is not its own time. Where
    /// instructions are single-stepped it varies by more than that.
    const MOST: [f64; 2] = [4.0, 1.5];

    /// Time of a mark beyond that of one right after another, ns; negative if its program was faster.
    #[inline]
    #[must_use]
    pub fn more(&self, stepped: bool, ran_ns: Option<u16>) -> Cold {
        let warm_ns = self.warm_ns[usize::from(stepped)];
        let Some(ran_ns) = ran_ns.filter(|_| warm_ns > 0.0) else {
            return Cold::default();
        };
        let excess = f64::from(ran_ns).min(Self::MOST[usize::from(stepped)] * warm_ns) - warm_ns;
        // Steps right after one another make each other's programs slower, which is not in the part before the time.
        let excess = if stepped { excess.max(0.0) } else { excess };
        Cold {
            before_ns: (excess * self.before) as i64,
            after_ns: (excess * self.after) as i64,
        }
    }
}

/// Time that a mark takes beyond that of one right after another, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cold {
    pub before_ns: i64,
    pub after_ns: i64,
}
