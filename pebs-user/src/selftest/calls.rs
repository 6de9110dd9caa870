//! Functions with known time: each notes when it begins and ends, and works in between.
//!
//! They are written in assembly so that only the work lies between the two readings of the clock,
//! whatever the compiler's settings. Each has a different multiplier, so that the compiler does not
//! merge them.
#![expect(unsafe_code, reason = "exported symbols, inline assembly")]

use crate::arch::work::{self, passed_on, timed_work};

/// A reading of the CPU's time stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tsc(pub u64);

/// One call of a function, as planned and as it came.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stay {
    /// First instant.
    pub enter: Tsc,
    /// Last instant.
    pub leave: Tsc,
    /// Rounds of work to do; at least 1.
    pub rounds: u64,
    /// A round that takes more ticks than this was interrupted.
    pub limit: u64,
    /// Ticks of the longest round so far; 0 if there was none.
    pub longest: u64,
    /// Rounds that were.
    pub stops: u64,
    /// Their ticks.
    pub stopped: u64,
    /// Index into [`FUNCTIONS`].
    pub function: usize,
}

/// Reads the counter once everything before it is done. Cost: some 25 ns.
#[inline(always)]
#[must_use]
pub(crate) fn now() -> Tsc {
    Tsc(work::now())
}

/// A function of the workload.
pub(crate) type Function = extern "C" fn(&mut Stay);

macro_rules! functions {
    ($($name:ident $multiplier:literal)*) => {
        $(
            /// Works as planned, and notes when. A round is eight multiplications in a row.
            #[unsafe(no_mangle)]
            #[inline(never)]
            pub(crate) extern "C" fn $name(stay: &mut Stay) {
                // SAFETY: writes to the stay's words 0, 1 and 4 to 6 only, reads 2 and 3; the fences
                // make the work lie between the two readings.
                unsafe {
                    timed_work!(stay, $multiplier);
                }
            }
        )*

        /// All functions with their names.
        pub(crate) const FUNCTIONS: &[(&str, Function)] = &[$((stringify!($name), $name)),*];
    };
}

functions! {
    selftest_many_1 3
    selftest_many_2 5
    selftest_many_3 7
    selftest_many_4 9
    selftest_first 11
    selftest_middle 13
    selftest_last 15
    selftest_short_1 17
    selftest_short_2 19
    selftest_short_3 21
    selftest_short_4 23
}

/// Name of the function that handles an item, where the probe is put.
pub(crate) const ITEM: &str = "selftest_item";

/// Handles an item: calls its functions in turn, and notes its first and last instant.
///
/// It begins with a `push`, which the kernel emulates under a probe, and nothing unwinds through it,
/// so that it can be probed at its least cost.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) extern "C" fn selftest_item(
    id: u64,
    stays: *mut Stay,
    count: usize,
    edges: &mut [Tsc; 2],
) {
    passed_on!(handle)
}

extern "C" fn handle(id: u64, stays: *mut Stay, count: usize, edges: &mut [Tsc; 2]) {
    edges[0] = now();
    // SAFETY: the caller passes `count` stays that it owns.
    let stays = unsafe { std::slice::from_raw_parts_mut(stays, count) };
    for stay in stays {
        FUNCTIONS[stay.function].1(stay);
    }
    // The id must be passed, as in any program with an item id.
    std::hint::black_box(id);
    edges[1] = now();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call notes an interval, within the item's, that grows with its work.
    #[test]
    fn stays_are_noted() {
        let planned = |function, rounds| Stay {
            function,
            rounds,
            limit: u64::MAX,
            ..Stay::default()
        };
        let mut stays = [planned(0, 1), planned(4, 30_000)];
        let mut edges = [Tsc::default(); 2];
        selftest_item(7, stays.as_mut_ptr(), stays.len(), &mut edges);
        let [short, long] = stays;
        assert!(edges[0] < short.enter && short.enter < short.leave);
        assert!(short.leave < long.enter && long.leave < edges[1]);
        // An imul takes 3 cycles; the counter may run up to 3 times slower.
        assert!(long.leave.0 - long.enter.0 > 200_000);
        assert_eq!((short.stops, long.longest), (0, 0));
    }

    /// With a limit of 0 every round is too long, and the longest is kept.
    #[test]
    fn interruptions_are_noted() {
        let mut stay = Stay {
            rounds: 100,
            ..Stay::default()
        };
        FUNCTIONS[3].1(&mut stay);
        assert_eq!(stay.stops, 100);
        assert!(stay.longest * 100 >= stay.stopped && stay.longest < stay.stopped);
        assert!(stay.stopped <= stay.leave.0 - stay.enter.0);
    }
}
