//! Columns of numbers with many equal values.

use arrow_array::ArrowPrimitiveType;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type, UInt64Type};
use arrow_schema::Field;
use parquet::file::statistics::Statistics;

use super::{Chunk, Column, DICTIONARY, IntegerType, PLAIN};
use crate::store::pages::Pages;
use crate::store::pages::coded::{Code, Coded};
use crate::store::pages::levels::Levels;
use crate::store::pages::plain::Number;

/// A number that columns of this kind hold.
pub trait Codable: Number {
    /// Its Arrow type.
    type Arrow: ArrowPrimitiveType<Native = Self>;

    /// Statistics of these numbers.
    fn statistics(range: Option<(Self, Self)>, nulls: u64) -> Statistics;
}

macro_rules! codable {
    ($($number:ty as $type:ty;)*) => {$(
        impl Codable for $number {
            type Arrow = $type;

            fn statistics(range: Option<(Self, Self)>, nulls: u64) -> Statistics {
                <$type>::statistics(range, nulls)
            }
        }
    )*};
}

codable! {
    u32 as UInt32Type;
    u64 as UInt64Type;
    i64 as Int64Type;
}

impl Codable for f64 {
    type Arrow = Float64Type;

    fn statistics(_: Option<(Self, Self)>, nulls: u64) -> Statistics {
        Statistics::double(None, None, None, Some(nulls), false)
    }
}

/// Pages of dictionary-coded numbers.
#[derive(Debug)]
struct CodedPages<C: Code> {
    coded: Coded<C>,
    pages: Pages,
    dictionary: Pages,
}

impl<C: Code> Default for CodedPages<C> {
    fn default() -> Self {
        Self {
            coded: Coded::default(),
            pages: Pages::default(),
            dictionary: Pages::default(),
        }
    }
}

impl<C: Code<Number: Codable>> CodedPages<C> {
    fn end_page(&mut self, levels: Option<&mut Levels>) {
        self.coded.end_page(&mut self.pages, levels);
    }

    /// The chunk, after its last page was ended.
    fn chunk(&mut self, nulls: u64) -> Chunk<'_> {
        let statistics = C::Number::statistics(self.coded.range(), nulls);
        let mut chunk = Chunk::new(&self.pages, PLAIN, statistics);
        if self.coded.dictionary_page(&mut self.dictionary) {
            chunk.encodings = DICTIONARY;
            chunk.dictionary = Some(&self.dictionary);
        }
        chunk
    }

    fn clear(&mut self) {
        self.coded.clear();
        self.pages.clear();
        self.dictionary.clear();
    }
}

/// Numbers with few distinct values, without null.
#[derive(Debug)]
pub struct RequiredCoded<C: Code>(CodedPages<C>);

impl<C: Code> Default for RequiredCoded<C> {
    fn default() -> Self {
        Self(CodedPages::default())
    }
}

impl<C: Code<Number: Codable>> RequiredCoded<C> {
    /// Pushes one value per row.
    #[inline(always)]
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        mut rows: &'a [R],
        value: impl Fn(&'a R) -> C::Number,
    ) {
        while !rows.is_empty() {
            let count = self.0.coded.extend(rows, |row| Some(value(row)));
            rows = &rows[count..];
            if self.0.coded.is_page_full() {
                self.0.end_page(None);
            }
        }
    }
}

impl<C: Code<Number: Codable>> Column for RequiredCoded<C> {
    fn field(name: &str) -> Field {
        Field::new(name, <C::Number as Codable>::Arrow::DATA_TYPE, false)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.0.end_page(None);
        self.0.chunk(0)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn end_segment(&mut self) {
        self.0.coded.end_segment();
    }
}

/// Numbers with few distinct values, with null.
#[derive(Debug)]
pub struct NullableCoded<C: Code> {
    coded: CodedPages<C>,
    levels: Levels,
}

impl<C: Code> Default for NullableCoded<C> {
    fn default() -> Self {
        Self {
            coded: CodedPages::default(),
            levels: Levels::default(),
        }
    }
}

impl<C: Code<Number: Codable>> NullableCoded<C> {
    /// Pushes one value per row.
    #[inline(always)]
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        value: impl Fn(&'a R) -> Option<C::Number>,
    ) {
        let mut rest = rows;
        while let Some(first) = rest.first() {
            let count = self.coded.coded.extend(rest, &value);
            self.levels.repeat(true, count as u32);
            if self.coded.coded.is_page_full() {
                self.coded.end_page(Some(&mut self.levels));
            } else if count == 0 && value(first).is_none() {
                let nulls = rest.iter().take_while(|row| value(row).is_none()).count();
                self.levels.repeat(false, nulls as u32);
                rest = &rest[nulls..];
            }
            rest = &rest[count.min(rest.len())..];
        }
    }

    /// Pushes a value `times` times.
    #[inline]
    pub(in crate::store) fn repeat(&mut self, value: Option<C::Number>, mut times: usize) {
        // Rows of size zero.
        const ROWS: [(); 1024] = [(); 1024];
        if value.is_none() {
            return self.levels.repeat(false, times as u32);
        }
        while times > 0 {
            let now = times.min(ROWS.len());
            self.extend(&ROWS[..now], |()| value);
            times -= now;
        }
    }
}

impl<C: Code<Number: Codable>> Column for NullableCoded<C> {
    fn field(name: &str) -> Field {
        Field::new(name, <C::Number as Codable>::Arrow::DATA_TYPE, true)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.coded.end_page(Some(&mut self.levels));
        self.coded.chunk(self.levels.nulls())
    }

    fn clear(&mut self) {
        self.coded.clear();
        self.levels.clear();
    }

    fn end_segment(&mut self) {
        self.coded.coded.end_segment();
    }
}
