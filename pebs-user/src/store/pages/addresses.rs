//! Addresses, which repeat in no order: a dictionary, and packed indices into it.

use parquet::basic::Encoding;
use rustc_hash::FxHashMap;

use super::pack::{GROUP, pack};
use super::{PageKind, Pages, varint};
use crate::symbolize::Slot;
use crate::units::Ip;

/// Addresses in a page: their indices stay in the L1 cache until they are packed.
const PAGE_ROWS: usize = 4096;

/// Addresses in the dictionary at most: 1 MiB. A row group ends when it is full.
const DICTIONARY: usize = 1 << 17;

/// The addresses of a column chunk.
#[derive(Debug)]
pub(in crate::store) struct Addresses {
    known: Known,
    /// Indices of the page at hand.
    indices: Vec<u32>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            known: Known::default(),
            indices: Vec::with_capacity(PAGE_ROWS),
        }
    }
}

impl Addresses {
    /// Appends addresses, up to the end of the page; says how many. If there are more, [`Addresses::end_page`]
    /// is due before them. `slots`: one for each, mostly the same for the same address.
    #[inline(always)]
    #[must_use]
    pub(in crate::store) fn extend(&mut self, addresses: &[Ip], slots: &[Slot]) -> usize {
        let count = addresses.len().min(PAGE_ROWS - self.indices.len());
        let Self { known, indices, .. } = self;
        let with_slots = addresses[..count].iter().zip(&slots[..count]);
        indices.extend(with_slots.map(|(address, slot)| known.index(address.0, *slot)));
        count
    }

    /// Whether [`Addresses::end_page`] is due.
    pub(in crate::store) const fn is_page_full(&self) -> bool {
        self.indices.len() == PAGE_ROWS
    }

    /// Whether the row group should end before more addresses come.
    #[inline]
    pub(in crate::store) const fn is_full(&self) -> bool {
        self.known.dictionary.len() >= DICTIONARY
    }

    /// Smallest and largest address.
    pub(in crate::store) fn range(&self) -> Option<(u64, u64)> {
        let addresses = || self.known.dictionary.iter().copied();
        addresses().min().zip(addresses().max())
    }

    /// Ends the page, if it has a row.
    pub(in crate::store) fn end_page(&mut self, pages: &mut Pages) {
        let rows = self.indices.len();
        if rows == 0 {
            return;
        }
        let largest = self.known.dictionary.len().saturating_sub(1) as u32;
        let width = (u32::BITS - largest.leading_zeros()).max(1) as usize;
        pages.end(rows as u32, Encoding::RLE_DICTIONARY, |_, body| {
            body.push(width as u8);
            // One packed run of groups of 8; the last ones may have more than there are rows.
            let groups = rows.div_ceil(GROUP) * (GROUP / 8);
            varint(body, (groups as u64) << 1 | 1);
            for chunk in self.indices.chunks(GROUP) {
                let mut group = [0; GROUP];
                for (to, index) in group.iter_mut().zip(chunk) {
                    *to = *index;
                }
                pack(&group, width, body);
            }
        });
        self.indices.clear();
    }

    /// Appends the dictionary's page, which in the file stands before the others.
    pub(in crate::store) fn dictionary_page(&self, pages: &mut Pages) {
        let dictionary = &self.known.dictionary;
        let count = dictionary.len() as u32;
        pages.put(PageKind::Dictionary, count, Encoding::PLAIN, |_, body| {
            let bytes = dictionary.iter().flat_map(|a| a.to_le_bytes());
            body.extend(bytes);
        });
    }

    /// Forgets everything, keeps the room.
    pub(in crate::store) fn clear(&mut self) {
        self.known.clear();
        self.indices.clear();
    }
}

/// The dictionary.
#[derive(Debug)]
struct Known {
    /// Addresses by index.
    dictionary: Vec<u64>,
    index_of: FxHashMap<u64, u32>,
    /// Index of the address that had the slot last. Small: it and the dictionary's busy part are to stay in
    /// the L1 and L2 caches.
    index_at: Box<[u32]>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            dictionary: Vec::new(),
            index_of: FxHashMap::default(),
            index_at: vec![0; Slot::COUNT].into_boxed_slice(),
        }
    }
}

impl Known {
    /// Index of an address, which it gets if it has none.
    #[inline(always)]
    fn index(&mut self, address: u64, slot: Slot) -> u32 {
        let slot = usize::from(slot.0) % Slot::COUNT;
        let index = self.index_at[slot];
        if self.dictionary.get(index as usize) == Some(&address) {
            index
        } else {
            self.find(address, slot)
        }
    }

    /// Index of an address that did not have the slot last.
    #[inline(never)]
    fn find(&mut self, address: u64, slot: usize) -> u32 {
        let next = self.dictionary.len() as u32;
        let index = *self.index_of.entry(address).or_insert(next);
        if index == next {
            self.dictionary.push(address);
        }
        self.index_at[slot] = index;
        index
    }

    /// Forgets everything, keeps the room.
    fn clear(&mut self) {
        self.dictionary.clear();
        self.index_of.clear();
    }
}
