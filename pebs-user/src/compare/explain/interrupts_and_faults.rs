//! Interrupt, softirq and page-fault time per item, which is included in its other times. So is the time lost
//! to a slower clock.

use crate::store::schema::InterferenceColumns;

/// Index after the others: time that a clock as fast as the fastest of the recording would have saved.
pub(super) const SLOWER_CLOCK: usize = InterferenceColumns::TIMES;

/// Number of kinds.
pub(super) const KINDS: usize = SLOWER_CLOCK + 1;

/// Names, in the order of [`Times`].
pub(super) const WHAT: [&str; KINDS] = {
    let mut what = ["slower clock"; KINDS];
    let mut at = 0;
    while at < SLOWER_CLOCK {
        what[at] = InterferenceColumns::WORDS[at];
        at += 1;
    }
    what
};

/// Times of an item, ns; `None`: not recorded. In half the bytes of the columns, and exact to a 16-millionth.
pub(crate) type Times = [Option<f32>; KINDS];

/// Times of a visit, without that of the clock.
pub(super) fn times(columns: &InterferenceColumns) -> Times {
    let mut times = [None; KINDS];
    for (time, ns) in times.iter_mut().zip(columns.values()).take(SLOWER_CLOCK) {
        *time = ns.map(|ns| ns as f32);
    }
    times
}

/// Adds the times of another visit; a kind unknown in one is unknown in the sum.
pub(super) fn add(own: &mut Times, more: Times) {
    for (own, more) in own.iter_mut().zip(more) {
        *own = own.zip(more).map(|(own, more)| own + more);
    }
}
