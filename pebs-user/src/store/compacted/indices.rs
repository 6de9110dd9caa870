//! The indices of a dictionary, as whole bytes.
//!
//! Source: parquet-format, Encodings.md, "Run Length Encoding / Bit-Packing Hybrid" and "Dictionary Encoding".

use parquet::basic::{Encoding, PageType};
use parquet::column::page::CompressedPage;
use parquet::errors::ParquetError;

use super::repeats::with_bytes;

/// Entries of a dictionary whose packed indices stay as they are: they take half a byte at most.
const PACKED_ENTRIES: u32 = 16;

/// The pages of a chunk with the dictionary in the order of how often its entries occur, and indices of as many whole
/// bytes as they need; `None` if there is no dictionary, or a small one. Pages that are encoded otherwise stay as
/// they are.
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
    // Ties stay in the order of their first rows.
    let mut order: Vec<u32> = (0..entries).collect();
    order.sort_by_key(|entry| u32::MAX - counts[*entry as usize]);
    let mut places = vec![0_u32; order.len()];
    for (place, entry) in (0..).zip(&order) {
        places[*entry as usize] = place;
    }
    let size = dictionary.data().len() / order.len();
    let entry = |entry: &u32| &dictionary.data()[*entry as usize * size..][..size];
    let sorted: Vec<u8> = order.iter().flat_map(entry).copied().collect();
    let bytes = (entries - 1).ilog2() as usize / 8 + 1;
    let replaced = |page, bytes: Vec<u8>| {
        let size = bytes.len();
        with_bytes(page, bytes, size)
    };
    let mut wide = vec![replaced(dictionary, sorted)];
    for (page, indices) in pages.iter().zip(decoded) {
        let bytes = match indices {
            Some(indices) => indices.written(&places, bytes),
            None => page.data().to_vec(),
        };
        wide.push(replaced(page, bytes));
    }
    Ok(Some(wide))
}

fn damaged() -> ParquetError {
    ParquetError::General("a page of indices that makes no sense".to_owned())
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

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
