//! Concessions of a recording to its budget: how much rarer its samples became, and when they were as before.

use std::collections::BTreeMap;

use crate::present::human::percent;
use crate::units::EventId;

/// Factor from which on another reset value is worth a row: it changes by less all the time.
const WORTH_A_ROW: u64 = 2;

/// Reset values that the budget changed.
#[derive(Debug, Default)]
pub(super) struct Limits(BTreeMap<EventId, Limit>);

/// A change that is reported.
#[derive(Debug)]
pub(super) struct Changed {
    /// Whether samples are rarer; else they are as before.
    pub is_limited: bool,
    /// Events between two samples.
    pub from: u64,
    pub to: u64,
    pub because: String,
}

#[derive(Debug)]
struct Limit {
    /// The value without a reason to save.
    first: u64,
    /// Value in the last row, or the first value.
    told: u64,
}

impl Limits {
    /// A reset value was changed, for this slow-down of items if the budget did it; returns what a row is to say, if it is worth
    /// one.
    pub(super) fn changed(
        &mut self,
        event: EventId,
        (old, new): (u64, u64),
        overhead: Option<f64>,
    ) -> Option<Changed> {
        let limit = self.0.entry(event).or_insert(Limit {
            first: old,
            told: old,
        });
        let Some(overhead) = overhead else {
            (limit.first, limit.told) = (new, new);
            return None;
        };
        let from = limit.told;
        let is_limited = new >= from.saturating_mul(WORTH_A_ROW);
        let is_restored = from > limit.first && new <= limit.first;
        if is_restored {
            limit.first = new;
        }
        (is_limited || is_restored).then(|| {
            limit.told = new;
            Changed {
                is_limited,
                from,
                to: new,
                because: format!("items are slowed down by {}", percent(overhead)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows come with each doubling, and once it is as at first; small changes and wishes have none.
    #[test]
    fn rows() {
        let mut limits = Limits::default();
        let mut row = |old, new, overhead| {
            let changed = limits.changed(EventId(0), (old, new), overhead)?;
            assert_eq!(changed.is_limited, new > old);
            Some((changed.from, changed.to))
        };
        assert_eq!(row(100, 150, Some(0.02)), None);
        assert_eq!(row(150, 210, Some(0.02)), Some((100, 210)));
        assert_eq!(row(210, 400, Some(0.02)), None);
        assert_eq!(row(400, 500, Some(0.02)), Some((210, 500)));
        assert_eq!(row(500, 110, Some(0.005)), None);
        assert_eq!(row(110, 90, Some(0.005)), Some((500, 90)));
        assert_eq!(row(90, 1000, None), None);
        assert_eq!(row(1000, 1500, Some(0.02)), None);
    }
}
