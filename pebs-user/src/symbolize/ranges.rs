//! Functions by their address ranges.

use crate::units::FunctionId;

#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    end: u64,
    function: FunctionId,
}

/// The functions of a module that were looked up, by address: sorted and disjoint.
#[derive(Clone, Debug, Default)]
pub(super) struct RangeTable {
    ranges: Vec<Range>,
}

impl RangeTable {
    /// The function at an address. Cost: O(log functions), no allocation.
    #[must_use]
    pub(super) fn get(&self, address: u64) -> Option<FunctionId> {
        let index = self.behind(address).checked_sub(1)?;
        let range = self.ranges[index];
        (address < range.end).then_some(range.function)
    }

    /// Inserts the range around an address, cut where it overlaps existing ranges.
    ///
    /// Does nothing unless `address` is in the range and has no function yet.
    /// Cost: O(functions), once per function.
    pub(super) fn insert(&mut self, address: u64, start: u64, end: u64, function: FunctionId) {
        if address < start || end <= address || self.get(address).is_some() {
            return;
        }
        let index = self.behind(address);
        let floor = index
            .checked_sub(1)
            .map_or(0, |before| self.ranges[before].end);
        let ceiling = self.ranges.get(index).map_or(u64::MAX, |next| next.start);
        self.ranges.insert(
            index,
            Range {
                start: start.max(floor),
                end: end.min(ceiling),
                function,
            },
        );
    }

    /// Index of the first range that begins after the address.
    fn behind(&self, address: u64) -> usize {
        self.ranges.partition_point(|range| range.start <= address)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A range is half-open: it includes its start and excludes its end.
    #[test]
    fn half_open() {
        let mut table = RangeTable::default();
        table.insert(15, 10, 20, FunctionId(1));
        assert_eq!(table.get(9), None);
        assert_eq!(table.get(10), Some(FunctionId(1)));
        assert_eq!(table.get(19), Some(FunctionId(1)));
        assert_eq!(table.get(20), None);
    }

    proptest! {
        /// The first function at an address keeps it, whatever overlaps are inserted later.
        #[test]
        fn first_keeps(ranges in prop::collection::vec((0u64..80, 1u64..20, 0u64..20), 1..40)) {
            let mut table = RangeTable::default();
            for (id, (start, len, at)) in ranges.iter().enumerate() {
                let before: Vec<_> = (0..120).map(|address| table.get(address)).collect();
                table.insert(start + at % len, *start, start + len, FunctionId(id as u32));
                for (address, old) in before.iter().enumerate() {
                    if old.is_some() {
                        prop_assert_eq!(table.get(address as u64), *old);
                    }
                }
                prop_assert!(table.get(start + at % len).is_some());
            }
            prop_assert!(table.ranges.windows(2).all(|w| w[0].end <= w[1].start));
        }
    }
}
