//! Addresses, which repeat in no order: a dictionary and indices into it.
//!
//! Row groups of a segment share the dictionary, like those of [`super::coded`].

use parquet::basic::Encoding;
use rustc_hash::FxHashMap;

use super::indices::Indices;
use super::plain::Number as _;
use super::{PageKind, Pages, zeros};
use crate::units::Ip;
use crate::units::Slot;

/// Maximum addresses in the dictionary (1 MiB). When it is full, the row group ends and the next one starts a new one.
const DICTIONARY: usize = 1 << 17;

/// The addresses of a column chunk.
#[derive(Debug, Default)]
pub(in crate::store) struct Addresses {
    known: AddressDictionary,
    indices: Indices,
}

impl Addresses {
    /// Appends addresses up to the end of the page; returns how many. If some are left, call [`Addresses::end_page`]
    /// first. `slots`: a cache slot for each, mostly the same for equal addresses.
    #[must_use]
    pub(in crate::store) fn extend(&mut self, addresses: &[Ip], slots: &[Slot]) -> usize {
        let room = self.indices.room();
        let count = room.len().min(addresses.len()).min(slots.len());
        let (room, addresses, slots) = (&mut room[..count], &addresses[..count], &slots[..count]);
        let mut done = 0;
        while done < count {
            let rest = &mut room[done..];
            done += self.known.indices(&addresses[done..], &slots[done..], rest);
            if done < count {
                room[done] = self.known.find(addresses[done].0, slots[done]);
                done += 1;
            }
        }
        self.indices.add(count);
        count
    }

    /// Whether [`Addresses::end_page`] is due.
    pub(in crate::store) const fn is_page_full(&self) -> bool {
        self.indices.is_full()
    }

    /// Whether the row group should end before more addresses come.
    #[inline]
    pub(in crate::store) const fn is_full(&self) -> bool {
        self.known.dictionary.len() >= DICTIONARY
    }

    /// Smallest and largest address of the chunk.
    pub(in crate::store) const fn range(&self) -> Option<(u64, u64)> {
        self.known.range
    }

    /// Ends the page, if it has a row.
    pub(in crate::store) fn end_page(&mut self, pages: &mut Pages) {
        let (rows, dictionary) = (self.indices.rows() as u32, self.known.dictionary.len());
        if rows > 0 {
            self.indices.end_page(pages, dictionary, rows, |_| ());
        }
    }

    /// Appends the dictionary page; it precedes the others in the file.
    pub(in crate::store) fn dictionary_page(&self, pages: &mut Pages) {
        let dictionary = &self.known.dictionary;
        let count = dictionary.len() as u32;
        pages.put(PageKind::Dictionary, count, Encoding::PLAIN, |_, body| {
            let bytes = dictionary.iter().flat_map(|a| a.to_le_bytes());
            body.extend(bytes);
        });
    }

    /// Drops the rows; keeps the memory, and the dictionary unless it is full.
    pub(in crate::store) fn clear(&mut self) {
        if self.is_full() {
            self.end_segment();
        }
        self.known.end_chunk();
        self.indices.clear();
    }

    /// Drops the dictionary. The column has no rows.
    pub(in crate::store) fn end_segment(&mut self) {
        self.known.clear();
    }
}

/// The dictionary.
#[derive(Debug)]
struct AddressDictionary {
    /// Addresses by index.
    dictionary: Vec<u64>,
    index_of: FxHashMap<u64, u32>,
    /// By slot: index + 1 of the address that used it last; 0: none did. Small where it is busy, so that it and the busy part of the
    /// dictionary stay in the L1 and L2 caches.
    index_at: Box<[u32; Slot::COUNT]>,
    /// Smallest and largest address of the chunk.
    range: Option<(u64, u64)>,
}

impl Default for AddressDictionary {
    fn default() -> Self {
        Self {
            dictionary: Vec::new(),
            index_of: FxHashMap::default(),
            index_at: zeros(),
            range: None,
        }
    }
}

impl AddressDictionary {
    /// Looks up addresses until one that was not the last in its slot; returns how many were found.
    #[inline]
    fn indices(&self, addresses: &[Ip], slots: &[Slot], to: &mut [u32]) -> usize {
        // Borrowed once: neither changes during the loop.
        let (dictionary, index_at) = (self.dictionary.as_slice(), &*self.index_at);
        let rows = addresses.iter().zip(slots).zip(to);
        for (row, ((address, slot), to)) in rows.enumerate() {
            let index = index_at[usize::from(slot.0) % Slot::COUNT].wrapping_sub(1);
            if dictionary.get(index as usize) != Some(&address.0) {
                return row;
            }
            *to = index;
        }
        addresses.len()
    }

    /// The index of an address that was not the last in its slot; adds it to the dictionary if it is new. Each address
    /// of a chunk comes here at least once.
    #[inline(never)]
    fn find(&mut self, address: u64, slot: Slot) -> u32 {
        let next = self.dictionary.len() as u32;
        let index = *self.index_of.entry(address).or_insert(next);
        if index == next {
            self.dictionary.push(address);
        }
        self.index_at[usize::from(slot.0) % Slot::COUNT] = index + 1;
        self.range = u64::including(self.range, address);
        index
    }

    /// Resets the range for the next chunk.
    fn end_chunk(&mut self) {
        if self.range.take().is_some() {
            self.index_at.fill(0);
        }
    }

    /// Drops everything but the memory.
    fn clear(&mut self) {
        self.dictionary.clear();
        self.index_of.clear();
    }
}
