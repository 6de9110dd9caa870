//! From when to when a recording is, whatever single times in it are damaged.

use rustc_hash::FxHashMap;

/// Longest time from the first record to the last, ns: nine years. Sums of some such times are numbers still.
pub(super) const SPAN_MAX: u64 = 1 << 58;

/// Times are counted by their upper bits, so that two neighbours are [`SPAN_MAX`] together.
const SHIFT: u32 = SPAN_MAX.trailing_zeros() - 1;

/// Share of the records that must agree on when they were made. Below, nobody knows which times are wrong.
const AGREE: f64 = 0.9;

/// Records whose times are near one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Near {
    first: u64,
    last: u64,
    records: u64,
    samples: u64,
}

impl Near {
    fn with(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            records: self.records + other.records,
            samples: self.samples + other.samples,
        }
    }
}

/// Times of records, in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// By the upper bits, but for those of the last record.
    others: FxHashMap<u64, Near>,
    recent: Option<(u64, Near)>,
}

/// Records whose times are years away from those of nearly all others: damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Far {
    pub records: u64,
    /// The samples among them.
    pub samples: u64,
}

impl Times {
    /// There is a record of a time.
    #[inline]
    pub(super) fn see(&mut self, time: u64, is_sample: bool) {
        let one = Near {
            first: time,
            last: time,
            records: 1,
            samples: u64::from(is_sample),
        };
        match &mut self.recent {
            Some((upper, near)) if *upper == time >> SHIFT => *near = near.with(one),
            _ => self.turn(time >> SHIFT, one),
        }
    }

    /// The last record is from another time than the one before.
    #[cold]
    fn turn(&mut self, upper: u64, one: Near) {
        let near = self.others.remove(&upper);
        let near = near.map_or(one, |near| near.with(one));
        if let Some((upper, near)) = self.recent.replace((upper, near)) {
            self.others.insert(upper, near);
        }
    }

    /// Times of the first and the last record, without those that are far from nearly all, and what these are.
    pub(super) fn close(mut self) -> Option<((u64, u64), Far)> {
        self.others.extend(self.recent);
        let near = self.others.into_iter();
        let mut near: Vec<(u64, Near)> = near.collect();
        near.sort_unstable_by_key(|(upper, _)| *upper);
        let sum = |parts: &[(u64, Near)]| parts.iter().map(|(_, it)| *it).reduce(Near::with);
        let all = sum(&near)?;
        let whole = Some(((all.first, all.last), Far::default()));
        if all.last - all.first <= SPAN_MAX {
            return whole;
        }
        let beside = |n: usize| match near.get(n + 1) {
            Some((next, _)) if *next == near[n].0 + 1 => &near[n..n + 2],
            _ => &near[n..=n],
        };
        let windows = (0..near.len()).filter_map(|n| sum(beside(n)));
        let most = windows.max_by_key(|window| window.records)?;
        if (most.records as f64) < AGREE * all.records as f64 {
            return whole;
        }
        let far = Far {
            records: all.records - most.records,
            samples: all.samples - most.samples,
        };
        Some(((most.first, most.last), far))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few times that are years away are damaged; where many are, or all are near, nothing is left out.
    #[test]
    fn few_are_far() {
        let close = |times: &[(u64, u64)]| {
            let mut all = Times::default();
            for (time, count) in times {
                (0..*count).for_each(|n| all.see(time + n, true));
            }
            all.close()
        };
        let far = |count| Far {
            records: count,
            samples: count,
        };
        assert_eq!(close(&[]), None);
        assert_eq!(close(&[(5, 10)]), Some(((5, 14), far(0))));
        assert_eq!(
            close(&[(5, 10), (1 << 62, 1), (20, 20), (u64::MAX, 1)]),
            Some(((5, 39), far(2)))
        );
        // On both sides of where the upper bits change.
        let border = (1 << SHIFT) - 5;
        assert_eq!(
            close(&[(border, 20), (1 << 62, 1)]),
            Some(((border, border + 19), far(1)))
        );
        let halves = close(&[(5, 10), (1 << 62, 10)]);
        assert_eq!(halves, Some(((5, (1 << 62) + 9), far(0))));
    }
}
