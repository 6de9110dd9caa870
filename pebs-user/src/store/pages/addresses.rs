//! Addresses, which repeat in no order: a dictionary, and packed indices into it.

use parquet::basic::Encoding;
use rustc_hash::FxHashMap;

use super::pack::{GROUP, pack};
use super::{PageKind, Pages, varint};

/// Addresses in a page: their indices stay in the L1 cache until they are packed.
const PAGE_ROWS: usize = 4096;

/// Addresses in the dictionary at most: 1 MiB. A row group ends when it is full.
const DICTIONARY: usize = 1 << 17;

/// Slots of the table of recent addresses: 256 KiB, within the L2 cache of a core.
const RECENT: usize = 1 << 14;

/// The addresses of a column chunk.
#[derive(Debug)]
pub(in crate::store) struct Addresses {
    /// Address and index, where the address was last seen; index `u32::MAX`: none. Two places for each
    /// address, side by side: a new one takes the second, and what was there the first.
    recent: Box<[(u64, u32)]>,
    index_of: FxHashMap<u64, u32>,
    /// Addresses by index.
    dictionary: Vec<u64>,
    /// Indices of the page at hand.
    indices: Vec<u32>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            recent: vec![(0, u32::MAX); RECENT].into_boxed_slice(),
            index_of: FxHashMap::default(),
            dictionary: Vec::new(),
            indices: Vec::with_capacity(PAGE_ROWS),
        }
    }
}

impl Addresses {
    /// Appends an address; says whether the page is full and [`Addresses::end_page`] is due.
    #[inline(always)]
    #[must_use]
    pub(in crate::store) fn push(&mut self, address: u64) -> bool {
        // Source: Knuth, The Art of Computer Programming, volume 3, 6.4 (multiplicative hashing).
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT.ilog2());
        let place = (hash as usize % RECENT) & !1;
        let [first, second] = [self.recent[place], self.recent[place + 1]];
        let (found, index) = if second.0 == address { second } else { first };
        let known = found == address && index != u32::MAX;
        let index = if known {
            index
        } else {
            self.find(address, place)
        };
        self.indices.push(index);
        self.indices.len() == PAGE_ROWS
    }

    /// Index of an address that was not seen lately.
    #[inline(never)]
    fn find(&mut self, address: u64, place: usize) -> u32 {
        let next = self.dictionary.len() as u32;
        let index = *self.index_of.entry(address).or_insert(next);
        if index == next {
            self.dictionary.push(address);
        }
        self.recent[place] = self.recent[place + 1];
        self.recent[place + 1] = (address, index);
        index
    }

    /// Whether the row group should end before more addresses come.
    #[inline]
    pub(in crate::store) const fn is_full(&self) -> bool {
        self.dictionary.len() >= DICTIONARY
    }

    /// Smallest and largest address.
    pub(in crate::store) fn range(&self) -> Option<(u64, u64)> {
        let addresses = || self.dictionary.iter().copied();
        addresses().min().zip(addresses().max())
    }

    /// Ends the page, if it has a row.
    pub(in crate::store) fn end_page(&mut self, pages: &mut Pages) {
        let rows = self.indices.len();
        if rows == 0 {
            return;
        }
        let largest = self.dictionary.len().saturating_sub(1) as u32;
        let width = (u32::BITS - largest.leading_zeros()).max(1) as usize;
        pages.end(rows as u32, Encoding::RLE_DICTIONARY, |body| {
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
        let count = self.dictionary.len() as u32;
        pages.put(PageKind::Dictionary, count, Encoding::PLAIN, |body| {
            let bytes = self.dictionary.iter().flat_map(|a| a.to_le_bytes());
            body.extend(bytes);
        });
    }

    /// Forgets everything, keeps the room.
    pub(in crate::store) fn clear(&mut self) {
        self.recent.fill((0, u32::MAX));
        self.index_of.clear();
        self.dictionary.clear();
        self.indices.clear();
    }
}
