//! The class of each visit of the trace, as a small code.

use rustc_hash::FxHashMap;

use crate::compare::classes::Class;

/// Visits, or items, of one page.
const PAGE: u64 = 4096;

/// Data on a visit for the later passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VisitClass {
    /// Index of its probe's section.
    pub slot: u16,
    pub class: Class,
    /// Whether its time on the CPU is known, so that its samples can be pooled.
    pub pooled: bool,
}

impl VisitClass {
    fn encode(self) -> u32 {
        let class = match self.class {
            Class::Typical => 1,
            Class::Between => 2,
            Class::Slow => 3,
        };
        u32::from(self.slot) << 3 | u32::from(self.pooled) << 2 | class
    }

    fn decode(code: u32) -> Option<Self> {
        let class = match code & 3 {
            1 => Class::Typical,
            2 => Class::Between,
            3 => Class::Slow,
            _ => return None,
        };
        Some(Self {
            slot: (code >> 3) as u16,
            class,
            pooled: code & 4 != 0,
        })
    }
}

/// Classes of the visits that are counted, by number.
///
/// Memory: four bytes a visit, as numbers are dense.
#[derive(Debug, Default)]
pub(super) struct VisitClasses {
    pages: FxHashMap<u64, Box<[u32; PAGE as usize]>>,
}

impl VisitClasses {
    pub(super) fn set(&mut self, visit_id: u64, class: VisitClass) {
        let page = self
            .pages
            .entry(visit_id / PAGE)
            .or_insert_with(|| Box::new([0; PAGE as usize]));
        page[(visit_id % PAGE) as usize] = class.encode();
    }

    /// The class of a visit; `None` if it is not counted.
    pub(super) fn get(&self, visit_id: u64) -> Option<VisitClass> {
        let page = self.pages.get(&(visit_id / PAGE))?;
        VisitClass::decode(page[(visit_id % PAGE) as usize])
    }
}

/// Counts different ids.
///
/// Memory: about 1 bit an id if ids are dense, 30 bytes if they are scattered; ids are counted up to
/// [`IdSet::MAX_WORDS`] words of 64.
#[derive(Debug, Default)]
pub(super) struct IdSet {
    words: FxHashMap<u64, u64>,
    overflow: bool,
}

impl IdSet {
    /// Bounds the memory to about 128 MiB.
    const MAX_WORDS: usize = 4 << 20;

    /// Adds an id.
    pub(super) fn insert(&mut self, id: u64) {
        if self.words.len() < Self::MAX_WORDS {
            *self.words.entry(id / 64).or_default() |= 1 << (id % 64);
        } else if let Some(word) = self.words.get_mut(&(id / 64)) {
            *word |= 1 << (id % 64);
        } else {
            self.overflow = true;
        }
    }

    /// Number of different ids; `None` if there were too many to count.
    pub(super) fn len(&self) -> Option<u64> {
        let count = || self.words.values().map(|w| u64::from(w.count_ones())).sum();
        (!self.overflow).then(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every class is returned as it was set, and visits without one are not counted.
    #[test]
    fn classes_come_back() {
        let mut classes = VisitClasses::default();
        let all = [Class::Typical, Class::Between, Class::Slow]
            .into_iter()
            .flat_map(|class| [(class, true), (class, false)]);
        let all: Vec<_> = all
            .zip([0, 1, 2, 3, 77, u16::MAX])
            .map(|((class, pooled), slot)| VisitClass {
                slot,
                class,
                pooled,
            })
            .collect();
        for (i, &class) in all.iter().enumerate() {
            classes.set(i as u64 * 4095 + 1, class);
        }
        for (i, &class) in all.iter().enumerate() {
            assert_eq!(classes.get(i as u64 * 4095 + 1), Some(class));
        }
        assert_eq!([0, 2, u64::MAX].map(|id| classes.get(id)), [None; 3]);
    }

    /// Ids are counted once, dense or scattered.
    #[test]
    fn different_ids() {
        let mut ids = IdSet::default();
        for id in [1, 2, 2, 64, 1 << 60, u64::MAX, 1] {
            ids.insert(id);
        }
        assert_eq!(ids.len(), Some(5));
    }
}
