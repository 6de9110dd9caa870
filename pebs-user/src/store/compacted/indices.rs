//! The indices of a dictionary, as whole bytes.
//!
//! Source: parquet-format, Encodings.md, "Run Length Encoding / Bit-Packing Hybrid" and "Dictionary Encoding".

use std::cmp::Reverse;

use parquet::basic::{Encoding, PageType};
use parquet::column::page::{CompressedPage, Page};
use parquet::errors::ParquetError;

use super::chunk::with_bytes;
use super::digits::{PAIRS, pairs};

/// Entries of a dictionary whose packed indices stay as they are: they take half a byte at most.
const PACKED_ENTRIES: u32 = 16;

/// The pages of a chunk with the dictionary in the order of how often its entries occur, and indices of as many whole
/// bytes as they need; `None` if there is no dictionary, or a small one. Pages that are encoded otherwise stay as
/// they are. Of indices of two bytes a dictionary has entries that none means.
///
/// `pages`: uncompressed, the dictionary first. `nullable`: they begin with levels.
///
/// # Errors
/// If bytes make no sense.
pub(super) fn widened(
    pages: &[CompressedPage],
    nullable: bool,
) -> Result<Option<Vec<CompressedPage>>, ParquetError> {
    let Some((dictionary, pages)) = pages.split_first() else {
        return Ok(None);
    };
    let entries = dictionary.num_values();
    let is_dictionary = dictionary.page_type() == PageType::DICTIONARY_PAGE;
    if !is_dictionary || entries <= PACKED_ENTRIES {
        return Ok(None);
    }
    let mut counts = vec![0_u32; entries as usize];
    let mut decoded = Vec::with_capacity(pages.len());
    for page in pages {
        let is_indexed = page.encoding() == Encoding::RLE_DICTIONARY;
        let indices = match is_indexed {
            true => Some(Indices::read(page, nullable).ok_or_else(damaged)?),
            false => None,
        };
        for index in indices.iter().flat_map(|it| &it.indices) {
            *counts.get_mut(*index as usize).ok_or_else(damaged)? += 1;
        }
        decoded.push(indices);
    }
    let places = places(&counts, &values(dictionary, counts.len()));
    let last = places.iter().copied().max().unwrap_or(0);
    let bytes = last.max(1).ilog2() as usize / 8 + 1;
    let mut wide = vec![placed(dictionary, &places)];
    for (page, indices) in pages.iter().zip(decoded) {
        let bytes = match indices {
            Some(indices) => indices.written(&places, bytes),
            None => page.data().to_vec(),
        };
        let size = bytes.len();
        wide.push(with_bytes(page, bytes, size));
    }
    Ok(Some(wide))
}

/// A dictionary's entries as numbers, equal or not.
fn values(dictionary: &CompressedPage, entries: usize) -> Vec<u64> {
    let bytes = dictionary.data();
    let number = |entry: &[u8]| {
        let bytes = entry.iter().rev();
        bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    bytes
        .chunks_exact((bytes.len() / entries).max(1))
        .map(number)
        .collect()
}

/// Where each entry comes to stand, given how often it occurs: what occurs more often further ahead, or where an index
/// has two bytes, at a likelier pair of them.
///
/// Entries that occur about as often rise, as a dictionary is then smaller.
fn places(counts: &[u32], values: &[u64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..counts.len() as u32).collect();
    order.sort_by_key(|entry| Reverse(counts[*entry as usize]));
    let sorted: Vec<u32> = order.iter().map(|it| counts[*it as usize]).collect();
    let mut indices: Vec<u32> = match order.len() {
        257..=PAIRS => pairs(&sorted).into_iter().map(u32::from).collect(),
        _ => (0..order.len() as u32).collect(),
    };
    let mut places = vec![0; order.len()];
    let mut rest: (&mut [u32], &mut [u32]) = (&mut order, &mut indices);
    for alike in sorted.chunk_by(|a, b| magnitude(*a) == magnitude(*b)) {
        let (entries, others) = rest.0.split_at_mut(alike.len());
        let (indices, more) = rest.1.split_at_mut(alike.len());
        rest = (others, more);
        entries.sort_by_key(|entry| values[*entry as usize]);
        indices.sort_unstable();
        for (entry, index) in entries.iter().zip(indices) {
            places[*entry as usize] = *index;
        }
    }
    places
}

/// The logarithm of how often something occurs, in halves.
fn magnitude(count: u32) -> u32 {
    let count = u64::from(count) << 1 | 1;
    let whole = count.ilog2().max(1);
    whole << 1 | (count >> (whole - 1)) as u32 & 1
}

/// The dictionary with its entries in their places; between two of them the one before is repeated.
fn placed(dictionary: &CompressedPage, places: &[u32]) -> CompressedPage {
    let bytes = dictionary.data();
    let size = bytes.len() / places.len();
    let mut entries: Vec<_> = places.iter().zip(bytes.chunks_exact(size)).collect();
    entries.sort_unstable_by_key(|(place, _)| **place);
    let mut sorted: Vec<u8> = Vec::new();
    let mut before = entries.first().map_or(&[][..], |(_, entry)| entry);
    for (place, entry) in entries {
        while sorted.len() < *place as usize * size {
            sorted.extend_from_slice(before);
        }
        sorted.extend_from_slice(entry);
        before = entry;
    }
    let mut page = dictionary.compressed_page().clone();
    if let Page::DictionaryPage {
        buf, num_values, ..
    } = &mut page
    {
        *num_values = (sorted.len() / size) as u32;
        *buf = sorted.into();
    }
    let size = page.buffer().len();
    CompressedPage::new(page, size)
}

fn damaged() -> ParquetError {
    ParquetError::General("a malformed page of indices".to_owned())
}

/// What a data page has.
struct Indices {
    /// Which rows are null, as it is in the page.
    levels: Vec<u8>,
    indices: Vec<u32>,
}

impl Indices {
    /// `None` if bytes make no sense.
    fn read(page: &CompressedPage, nullable: bool) -> Option<Self> {
        let bytes = page.data();
        let mut count = page.num_values() as usize;
        let mut levels: &[u8] = &[];
        if nullable {
            let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
            levels = bytes.get(..4 + length)?;
            let mut present = Vec::with_capacity(count);
            unpack(&levels[4..], 1, count, &mut present)?;
            count = present.into_iter().filter(|level| *level == 1).count();
        }
        let (width, packed) = bytes[levels.len()..].split_first()?;
        let mut indices = Vec::with_capacity(count);
        unpack(packed, u32::from(*width), count, &mut indices)?;
        Some(Self {
            levels: levels.to_vec(),
            indices,
        })
    }

    /// The page with each index in the place that it has now, as so many bytes.
    fn written(&self, places: &[u32], bytes: usize) -> Vec<u8> {
        let groups = self.indices.len().div_ceil(8);
        let mut page = Vec::with_capacity(self.levels.len() + 8 + groups * 8 * bytes);
        page.extend_from_slice(&self.levels);
        page.push(8 * bytes as u8);
        let mut header = groups << 1 | 1;
        while header >= 0x80 {
            page.push(header as u8 | 0x80);
            header >>= 7;
        }
        page.push(header as u8);
        for index in &self.indices {
            let place = places[*index as usize].to_le_bytes();
            page.extend_from_slice(&place[..bytes]);
        }
        page.resize(page.len() + (groups * 8 - self.indices.len()) * bytes, 0);
        page
    }
}

/// Appends `count` numbers of `width` bits each from runs; `None` if there are fewer.
fn unpack(mut bytes: &[u8], width: u32, count: usize, out: &mut Vec<u32>) -> Option<()> {
    if width > 32 {
        return None;
    }
    let size = width.div_ceil(8) as usize;
    while out.len() < count {
        let header = varint(&mut bytes)?;
        let left = count - out.len();
        let run = usize::try_from(header >> 1).ok()?;
        if header & 1 == 0 {
            let mut value = [0; 4];
            value[..size].copy_from_slice(bytes.get(..size)?);
            bytes = &bytes[size..];
            out.resize(out.len() + run.min(left), u32::from_le_bytes(value));
            continue;
        }
        let length = run.checked_mul(width as usize)?;
        let mask = ((1_u64 << width) - 1) as u32;
        let (mut word, mut bits) = (0_u64, 0);
        let mut packed = bytes.get(..length)?.iter();
        for _ in 0..left.min(run.saturating_mul(8)) {
            while bits < width {
                word |= u64::from(*packed.next()?) << bits;
                bits += 8;
            }
            out.push(word as u32 & mask);
            word >>= width;
            bits -= width;
        }
        bytes = &bytes[length..];
    }
    Some(())
}

/// Seven bits a byte, the lowest first.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
