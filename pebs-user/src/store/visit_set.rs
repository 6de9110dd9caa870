//! Sets of visits.

use rustc_hash::FxHashMap;

/// A set of visits by number.
///
/// Memory: about a bit a visit, as numbers are dense.
#[derive(Debug, Default)]
pub(crate) struct VisitSet(FxHashMap<u64, u64>);

impl VisitSet {
    /// Adds a visit.
    pub(crate) fn insert(&mut self, visit_id: u64) {
        *self.0.entry(visit_id / 64).or_default() |= 1 << (visit_id % 64);
    }

    /// Whether the visit is in it.
    #[must_use]
    pub(crate) fn contains(&self, visit_id: u64) -> bool {
        let word = self.0.get(&(visit_id / 64));
        word.is_some_and(|word| word >> (visit_id % 64) & 1 == 1)
    }
}
