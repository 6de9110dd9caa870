//! Real numbers of which there are few different ones: a dictionary, and packed indices into it.
//!
//! Nearly every number has a place of its own in a table: small multiples of 1/2 by themselves, rounded numbers by their
//! exponent and first bits. So hardly anything is hashed. When the dictionary is full, numbers stand as they are from that
//! page on, as readers know it from other writers.

use std::marker::PhantomData;

use parquet::basic::Encoding;
use rustc_hash::FxHashMap;

use super::indices::Indices;
use super::levels::Levels;
use super::plain::Plain;
use super::{PageKind, Pages};

/// Places of the table.
const PLACES: usize = 1 << 17;

/// Numbers in the dictionary at most: 256 KiB. Of more different ones indices save little.
const DICTIONARY: usize = 1 << 15;

/// Column chunks that have no dictionary after one whose dictionary took no more.
const WITHOUT: u8 = 7;

/// How numbers find their place.
pub trait Code {
    /// The place, which is no other number's; [`PLACES`] or more: none.
    fn place(number: f64) -> usize;
}

/// Multiples of 1/2, as times half way between two of whole ns are: up to 64 us.
#[derive(Debug, Default)]
pub struct Halves;

impl Code for Halves {
    #[inline(always)]
    fn place(number: f64) -> usize {
        let halves = (number * 2.0) as u32;
        let is_whole = (f64::from(halves) * 0.5).to_bits() == number.to_bits();
        if is_whole { halves as usize } else { PLACES }
    }
}

/// Numbers, not negative, of which all bits behind the first few of the mantissa are 0.
#[derive(Debug, Default)]
pub struct Rounded;

impl Rounded {
    /// Bits behind the exponent that may be set.
    const BITS: u32 = 6;
}

impl Code for Rounded {
    #[inline(always)]
    fn place(number: f64) -> usize {
        const REST: u32 = f64::MANTISSA_DIGITS - 1 - Rounded::BITS;
        let bits = number.to_bits();
        // The rest comes to lie above: where some of it or the sign is set, the number is too large for a place.
        usize::try_from(bits.rotate_right(REST)).unwrap_or(PLACES)
    }
}

/// The numbers of a column chunk.
#[derive(Debug)]
pub(in crate::store) struct Coded<C> {
    /// By place: index of the number + 1; 0: it has none.
    index_of: Box<[u16; PLACES]>,
    /// The same of numbers without a place.
    others: FxHashMap<u64, u16>,
    /// Numbers by index.
    dictionary: Vec<f64>,
    indices: Indices,
    /// Once the dictionary takes no more.
    plain: Plain,
    is_plain: bool,
    /// Chunks that are still to have no dictionary.
    without: u8,
    code: PhantomData<C>,
}

impl<C> Default for Coded<C> {
    fn default() -> Self {
        Self {
            index_of: zeros(),
            dictionary: Vec::new(),
            indices: Indices::default(),
            others: FxHashMap::default(),
            plain: Plain::default(),
            is_plain: false,
            without: 0,
            code: PhantomData,
        }
    }
}

/// Not by way of the stack.
fn zeros() -> Box<[u16; PLACES]> {
    let Ok(zeros) = vec![0; PLACES].into_boxed_slice().try_into() else {
        unreachable!("there are as many");
    };
    zeros
}

impl<C: Code> Coded<C> {
    /// Appends the numbers of rows up to one without, up to the end of the page, or to the end of the dictionary; says
    /// how many. [`Coded::end_page`] may be due afterwards.
    #[inline(always)]
    #[must_use]
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        number: impl Fn(&'a R) -> Option<f64>,
    ) -> usize {
        if self.is_plain {
            return self.extend_plain(rows, number);
        }
        let mut count = 0;
        for (to, row) in self.indices.room().iter_mut().zip(rows) {
            let Some(number) = number(row) else { break };
            let index = match self.index_of.get(C::place(number)) {
                Some(index) if *index > 0 => *index,
                _ => match learn::<C>(
                    &mut self.index_of,
                    &mut self.others,
                    &mut self.dictionary,
                    number,
                ) {
                    Some(index) => index,
                    None => {
                        self.is_plain = true;
                        self.without = WITHOUT + 1;
                        break;
                    }
                },
            };
            *to = u32::from(index - 1);
            count += 1;
        }
        self.indices.add(count);
        count
    }

    fn extend_plain<'a, R>(
        &mut self,
        rows: &'a [R],
        number: impl Fn(&'a R) -> Option<f64>,
    ) -> usize {
        // Indices come first.
        if self.indices.rows() > 0 {
            return 0;
        }
        if self.plain.extend_if_all(rows, &number) == rows.len() {
            return rows.len();
        }
        let mut count = 0;
        for number in rows.iter().map_while(number) {
            count += 1;
            if self.plain.push_f64(number) {
                break;
            }
        }
        count
    }

    /// Whether [`Coded::end_page`] is due.
    pub(in crate::store) const fn is_page_full(&self) -> bool {
        let is_last = self.is_plain && self.indices.rows() > 0;
        self.indices.is_full() || is_last || self.plain.is_full()
    }

    /// Ends the page, if it has a row.
    pub(in crate::store) fn end_page(&mut self, pages: &mut Pages, levels: &mut Levels) {
        let rows = levels.rows();
        if self.indices.rows() == 0 {
            return self.plain.end_page(pages, rows, Some(levels));
        }
        let dictionary = self.dictionary.len();
        self.indices
            .end_page(pages, dictionary, rows, |begin| levels.take(begin));
    }

    /// Appends the dictionary's page, which in the file stands before the others; says whether there is one.
    pub(in crate::store) fn dictionary_page(&self, pages: &mut Pages) -> bool {
        let count = self.dictionary.len() as u32;
        if count > 0 {
            pages.put(PageKind::Dictionary, count, Encoding::PLAIN, |_, body| {
                let bytes = self.dictionary.iter().flat_map(|it| it.to_le_bytes());
                body.extend(bytes);
            });
        }
        count > 0
    }

    /// Forgets everything, keeps the room.
    pub(in crate::store) fn clear(&mut self) {
        for number in self.dictionary.drain(..) {
            if let Some(index) = self.index_of.get_mut(C::place(number)) {
                *index = 0;
            }
        }
        self.others.clear();
        self.indices.clear();
        self.plain.clear();
        self.without = self.without.saturating_sub(1);
        self.is_plain = self.without > 0;
    }
}

/// The index of a number that has none at its place, counted from 1; `None`: the dictionary takes no more.
#[inline(never)]
fn learn<C: Code>(
    index_of: &mut [u16; PLACES],
    others: &mut FxHashMap<u64, u16>,
    dictionary: &mut Vec<f64>,
    number: f64,
) -> Option<u16> {
    let next = dictionary.len() as u16 + 1;
    let index = match index_of.get_mut(C::place(number)) {
        Some(index) => index,
        None => others.entry(number.to_bits()).or_default(),
    };
    if *index == 0 {
        if dictionary.len() == DICTIONARY {
            return None;
        }
        dictionary.push(number);
        *index = next;
    }
    Some(*index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers have places of their own, or none; none of what is not of the code has one.
    #[test]
    fn places() {
        assert_eq!([0.0, 0.5, 7.0].map(Halves::place), [0, 1, 14]);
        assert_eq!(Halves::place(65_535.5), PLACES - 1);
        for other in [0.25, -0.5, -0.0, 65_536.0, 1e300, f64::NAN, f64::INFINITY] {
            assert!(Halves::place(other) >= PLACES, "{other}");
        }
        let numbers = (0..640).map(|n| f64::from(64 + n % 64) * f64::from(n / 64).exp2());
        let mut places: Vec<usize> = numbers.map(Rounded::place).collect();
        assert!(places.iter().all(|place| *place < PLACES));
        places.dedup();
        assert_eq!(places.len(), 640);
        assert_eq!(Rounded::place(0.0), 0);
        for other in [64.5, -1.0, -0.0, 1.0 + f64::EPSILON] {
            assert!(Rounded::place(other) >= PLACES, "{other}");
        }
    }
}
