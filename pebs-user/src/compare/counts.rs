//! Counts of a visit's thread: switches, migrations, page faults.

use serde::Serialize;

use crate::store::view::{View as _, columns};

columns! {
    /// The columns of a batch.
    pub(crate) struct CountColumns of visits { switches, migrations, page_faults }
}

/// Counts of one visit; null where they were not recorded. In [`TypicalCounts`] their means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts<T = u32> {
    /// Times that the thread left the CPU.
    pub switches: Option<T>,
    /// Times that it came back on another one.
    pub migrations: Option<T>,
    /// Page faults of the thread.
    pub page_faults: Option<T>,
}

/// Means over the typical visits.
pub type TypicalCounts = Counts<f64>;

impl<T: Copy> Counts<T> {
    /// The values in the order of the columns.
    pub(crate) const fn values(&self) -> [Option<T>; 3] {
        let Self {
            switches,
            migrations,
            page_faults,
        } = *self;
        [switches, migrations, page_faults]
    }

    const fn of([switches, migrations, page_faults]: [Option<T>; 3]) -> Self {
        Self {
            switches,
            migrations,
            page_faults,
        }
    }
}

impl CountColumns<'_> {
    pub(crate) fn get(&self, row: usize) -> Counts {
        Counts {
            switches: self.switches.get(row),
            migrations: self.migrations.get(row),
            page_faults: self.page_faults.get(row),
        }
    }
}

/// Sums over visits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountSums([(u64, u64); 3]);

impl CountSums {
    /// Adds a visit.
    pub(crate) fn add(&mut self, counts: &Counts) {
        for ((sum, visits), count) in self.0.iter_mut().zip(counts.values()) {
            *sum += u64::from(count.unwrap_or(0));
            *visits += u64::from(count.is_some());
        }
    }

    /// Means over the visits that have the count.
    pub(crate) fn means(&self) -> TypicalCounts {
        let mean = |(sum, visits): (u64, u64)| (visits > 0).then(|| sum as f64 / visits as f64);
        Counts::of(self.0.map(mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(switches: u32, migrations: u32, page_faults: Option<u32>) -> Counts {
        Counts::of([Some(switches), Some(migrations), page_faults])
    }

    /// A count is named only if typical visits have fewer; an unknown count never is.
    #[test]
    fn striking_counts() {
        let mut typical = CountSums::default();
        for faults in [Some(2), Some(4), None] {
            typical.add(&counts(7, 0, faults));
        }
        let typical = typical.means();
        assert_eq!(typical.values(), [Some(7.0), Some(0.0), Some(3.0)]);
        let striking = |visit: Counts| visit.striking(&typical);
        assert_eq!(
            striking(counts(90, 1, Some(7))),
            [(1, "migration"), (7, "page fault")]
        );
        assert_eq!(striking(counts(90, 0, Some(6))), []);
        assert_eq!(striking(counts(0, 0, None)), []);
        let unknown = TypicalCounts::default();
        assert_eq!(
            counts(0, 0, Some(1)).striking(&unknown),
            [(1, "page fault")]
        );
    }
}
