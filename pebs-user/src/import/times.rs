//! Finds the time range of a recording in spite of damaged times.

use rustc_hash::FxHashMap;

/// Longest span of a recording, ns: nine years. A few such spans can be added without overflow.
pub(super) const SPAN_MAX: u64 = 1 << 58;

/// Times are grouped by their bits above this one; two neighbouring groups span [`SPAN_MAX`].
const SHIFT: u32 = SPAN_MAX.trailing_zeros() - 1;

/// Share of the records that must lie within one span. Below it, the damaged times can't be identified.
const AGREE: f64 = 0.9;

/// Records of one group of times.
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

/// Collects the times of records.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// Groups by the upper bits of their times, except `recent`.
    others: FxHashMap<u64, Near>,
    recent: Option<(u64, Near)>,
}

/// Records with damaged times: years away from those of nearly all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Far {
    pub records: u64,
    /// Samples among `records`.
    pub samples: u64,
}

impl Times {
    /// Adds a record's time.
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

    /// Makes another group the recent one.
    #[cold]
    fn turn(&mut self, upper: u64, one: Near) {
        let near = self.others.remove(&upper);
        let near = near.map_or(one, |near| near.with(one));
        if let Some((upper, near)) = self.recent.replace((upper, near)) {
            self.others.insert(upper, near);
        }
    }

    /// First and last time, without damaged ones, and the number of those; `None`: no record had a time.
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

    /// A few times that are years away are left out as damaged; if many are far, or all are near, none is.
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
        // On both sides of a border between groups.
        let border = (1 << SHIFT) - 5;
        assert_eq!(
            close(&[(border, 20), (1 << 62, 1)]),
            Some(((border, border + 19), far(1)))
        );
        let halves = close(&[(5, 10), (1 << 62, 10)]);
        assert_eq!(halves, Some(((5, (1 << 62) + 9), far(0))));
    }
}
