//! Numbers with few distinct values: a dictionary and indices into it.
//!
//! Nearly every number has a place of its own in a table: small integers and multiples of 1/2 by value, rounded floats
//! by exponent and first mantissa bits. So hardly anything is hashed. When the dictionary is full, the following pages
//! are PLAIN, which readers know from other writers.
//!
//! Row groups of a segment share the dictionary: each group's begins with the one before, so that compaction joins them
//! without decoding pages.

use std::marker::PhantomData;

use parquet::basic::Encoding;
use rustc_hash::FxHashMap;

use super::indices::Indices;
use super::levels::Levels;
use super::plain::{Number, Plain};
use super::{PageKind, Pages, zeros};

/// Size of the table.
const PLACES: usize = 1 << 17;

/// Maximum numbers in the dictionary: an index takes two bytes, and with more distinct numbers indices save little.
const DICTIONARY: usize = u16::MAX as usize;

/// Maps numbers to places of the table.
pub trait Code {
    /// Type of the numbers.
    type Number: Number;

    /// The number's own place; [`PLACES`] or more: it has none.
    fn place(number: Self::Number) -> usize;
}

/// Small integers.
#[derive(Debug, Default)]
pub struct Small<N>(PhantomData<N>);

macro_rules! small {
    ($($number:ty)*) => {$(
        impl Code for Small<$number> {
            type Number = $number;

            #[inline(always)]
            fn place(number: $number) -> usize {
                usize::try_from(number).unwrap_or(PLACES)
            }
        }
    )*};
}

small! { u32 u64 i64 }

/// Multiples of 1/2 up to 64 us in ns, such as midpoints of two times.
#[derive(Debug, Default)]
pub struct Halves;

impl Code for Halves {
    type Number = f64;

    #[inline(always)]
    fn place(number: f64) -> usize {
        let halves = (number * 2.0) as u32;
        let is_whole = (f64::from(halves) * 0.5).to_bits() == number.to_bits();
        if is_whole { halves as usize } else { PLACES }
    }
}

/// Non-negative floats with zeros after the first few mantissa bits.
#[derive(Debug, Default)]
pub struct Rounded;

impl Rounded {
    /// Mantissa bits that may be set.
    const BITS: u32 = 6;
}

impl Code for Rounded {
    type Number = f64;

    #[inline(always)]
    fn place(number: f64) -> usize {
        const REST: u32 = f64::MANTISSA_DIGITS - 1 - Rounded::BITS;
        let bits = number.to_bits();
        // The other mantissa bits are rotated to the top: if one of them or the sign is set, the number is too large
        // for a place.
        usize::try_from(bits.rotate_right(REST)).unwrap_or(PLACES)
    }
}

/// The numbers of a column chunk.
#[derive(Debug)]
pub(in crate::store) struct Coded<C: Code> {
    /// By place: index of the number + 1; 0: none.
    index_of: Box<[u16; PLACES]>,
    /// Index + 1 of numbers without a place, by their bits.
    others: FxHashMap<u64, u16>,
    /// Numbers by index.
    dictionary: Vec<C::Number>,
    indices: Indices,
    /// Whether the chunk has a page of indices.
    is_used: bool,
    /// Pages written since the dictionary is full.
    plain: Plain,
    is_plain: bool,
    /// Smallest and largest number of the chunk.
    range: Option<(C::Number, C::Number)>,
}

impl<C: Code> Default for Coded<C> {
    fn default() -> Self {
        Self {
            index_of: zeros(),
            others: FxHashMap::default(),
            dictionary: Vec::new(),
            indices: Indices::default(),
            is_used: false,
            plain: Plain::default(),
            is_plain: false,
            range: None,
        }
    }
}

impl<C: Code> Coded<C> {
    /// Appends the numbers of rows, up to a null, the end of the page or the end of the dictionary; returns how many.
    /// [`Coded::end_page`] may be due afterwards.
    #[inline(always)]
    #[must_use]
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        number: impl Fn(&'a R) -> Option<C::Number>,
    ) -> usize {
        if self.is_plain {
            return self.extend_plain(rows, number);
        }
        let (mut count, mut range) = (0, self.range);
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
                        break;
                    }
                },
            };
            *to = u32::from(index - 1);
            range = C::Number::including(range, number);
            count += 1;
        }
        self.range = range;
        self.indices.add(count);
        count
    }

    fn extend_plain<'a, R>(
        &mut self,
        rows: &'a [R],
        number: impl Fn(&'a R) -> Option<C::Number>,
    ) -> usize {
        // Pages of indices come first.
        if self.indices.rows() > 0 {
            return 0;
        }
        let mut count = 0;
        for number in rows.iter().map_while(number) {
            count += 1;
            self.range = C::Number::including(self.range, number);
            if self.plain.push(number) {
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

    /// Smallest and largest number of the chunk; `None` for floats.
    pub(in crate::store) const fn range(&self) -> Option<(C::Number, C::Number)> {
        self.range
    }

    /// Ends the page, if it has a row. `levels`: which of its rows are null; `None`: no row is.
    pub(in crate::store) fn end_page(
        &mut self,
        pages: &mut Pages,
        mut levels: Option<&mut Levels>,
    ) {
        let numbers = self.indices.rows() + self.plain.bytes() / size_of::<C::Number>();
        let rows = levels.as_ref().map_or(numbers as u32, |it| it.rows());
        if self.indices.rows() == 0 {
            return self.plain.end_page(pages, rows, levels);
        }
        self.is_used = true;
        let dictionary = self.dictionary.len();
        self.indices.end_page(pages, dictionary, rows, |begin| {
            if let Some(levels) = &mut levels {
                levels.take(begin);
            }
        });
    }

    /// Appends the dictionary page, which precedes the others in the file; returns whether there is one.
    pub(in crate::store) fn dictionary_page(&self, pages: &mut Pages) -> bool {
        let count = self.dictionary.len() as u32;
        if self.is_used {
            pages.put(PageKind::Dictionary, count, Encoding::PLAIN, |_, body| {
                self.dictionary.iter().for_each(|it| it.put(body));
            });
        }
        self.is_used
    }

    /// Drops the rows; keeps the dictionary and the memory.
    pub(in crate::store) fn clear(&mut self) {
        self.indices.clear();
        self.plain.clear();
        self.is_used = false;
        self.range = None;
    }

    /// Drops the dictionary. The column has no rows.
    pub(in crate::store) fn end_segment(&mut self) {
        for number in self.dictionary.drain(..) {
            if let Some(index) = self.index_of.get_mut(C::place(number)) {
                *index = 0;
            }
        }
        self.others.clear();
        self.is_plain = false;
    }
}

/// Index + 1 of a number that has none at its place; `None`: the dictionary is full.
#[inline(never)]
fn learn<C: Code>(
    index_of: &mut [u16; PLACES],
    others: &mut FxHashMap<u64, u16>,
    dictionary: &mut Vec<C::Number>,
    number: C::Number,
) -> Option<u16> {
    let next = dictionary.len().min(DICTIONARY) as u16;
    let index = match index_of.get_mut(C::place(number)) {
        Some(index) => index,
        None => others.entry(number.bits()).or_default(),
    };
    if *index == 0 {
        if dictionary.len() == DICTIONARY {
            return None;
        }
        dictionary.push(number);
        *index = next + 1;
    }
    Some(*index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of the code have distinct places or none; others have none.
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
