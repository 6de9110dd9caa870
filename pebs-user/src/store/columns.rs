//! The columns of a row group, encoded while rows are pushed.
//!
//! Nothing is allocated per row, and after the first row groups only their metadata.
//! Invariant: all columns of a table have the same number of rows.

mod coded;
mod real;
mod text;

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    ArrowPrimitiveType, BooleanArray, Float64Array, ListArray, PrimitiveArray, StringArray,
    UInt64Array,
};
use arrow_schema::{DataType, Field};
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::pages::Pages;
use super::pages::addresses::Addresses as AddressPages;
use super::pages::coded::Code;
use super::pages::delta::{Deltas, Integer};
use super::pages::levels::{Levels, ListLevels};
use super::pages::plain::{Bits, Plain};
use super::values::{Nullables, Values, View};
use crate::units::Ip;
use crate::units::Slot;
pub(super) use coded::{Codable, NullableCoded, RequiredCoded};
pub(super) use real::NullableReal;
pub(super) use text::{NullableText, Text};

/// A column chunk, ready to be written.
#[derive(Debug)]
pub struct Chunk<'a> {
    /// The dictionary page, if there is one.
    pub(super) dictionary: Option<&'a Pages>,
    /// Data pages.
    pub(super) pages: &'a Pages,
    /// Encodings used.
    pub(super) encodings: &'static [Encoding],
    /// Statistics of the values.
    pub(super) statistics: Statistics,
    /// Number of values, if it differs from that of the rows.
    pub(super) values: Option<u64>,
}

impl<'a> Chunk<'a> {
    /// A chunk without a dictionary, with one value per row.
    fn new(pages: &'a Pages, encodings: &'static [Encoding], statistics: Statistics) -> Self {
        Self {
            dictionary: None,
            pages,
            encodings,
            statistics,
            values: None,
        }
    }

    /// The bytes of its pages, in the order of the file.
    pub(super) fn slices(&self) -> impl Iterator<Item = &'a [u8]> {
        let pages = self.dictionary.into_iter().chain([self.pages]);
        pages.flat_map(Pages::slices)
    }

    /// Footer metadata of a chunk of `rows` rows that begins at `at`.
    pub(super) fn metadata(
        &self,
        column: &ColumnDescPtr,
        rows: u64,
        at: u64,
    ) -> Result<ColumnChunkMetaData, ParquetError> {
        let dictionary = self.dictionary.map_or(0, Pages::bytes);
        let bytes = (dictionary + self.pages.bytes()) as i64;
        ColumnChunkMetaData::builder(Arc::clone(column))
            .set_compression(Compression::UNCOMPRESSED)
            .set_encodings(self.encodings.to_vec())
            .set_num_values(self.values.unwrap_or(rows) as i64)
            .set_total_compressed_size(bytes)
            .set_total_uncompressed_size(bytes)
            .set_dictionary_page_offset(self.dictionary.map(|_| at as i64))
            .set_data_page_offset(at as i64 + dictionary as i64)
            .set_statistics(self.statistics.clone())
            .build()
    }
}

/// Operations of the writer on a column of any type.
pub trait Column {
    /// The column's Arrow field.
    fn field(name: &str) -> Field
    where
        Self: Sized;

    /// Whether the row group should end before further rows.
    #[inline]
    fn is_full(&self) -> bool {
        false
    }

    /// Ends the last page and shows the chunk.
    fn end(&mut self) -> Chunk<'_>;

    /// Drops the rows, but keeps the memory and the data shared by the row groups of a segment.
    fn clear(&mut self);

    /// Drops the data shared by the row groups of a segment. The column has no rows.
    fn end_segment(&mut self) {}
}

/// A column with its value types.
pub trait Typed: Column {
    /// A value on its way into the column.
    type Cell<'a>;
    /// Type by which it is read.
    type View<'a>: View<'a>;
}

macro_rules! typed {
    ($($column:ty $(where [$($generic:tt)+])?: $cell:ty, $view:ty;)+) => {$(
        impl $(<$($generic)+>)? Typed for $column {
            type Cell<'a> = $cell;
            type View<'a> = $view;
        }
    )+};
}

typed! {
    Required<T> where [T: IntegerType]: T::Native, Values<'a, PrimitiveArray<T>>;
    Nullable<T> where [T: IntegerType]: Option<T::Native>, Nullables<'a, PrimitiveArray<T>>;
    Lists<T> where [T: IntegerType]: &'a [T::Native], Values<'a, ListArray>;
    NullableCoded<C> where [C: Code<Number: Codable>]: Option<C::Number>, Nullables<'a, PrimitiveArray<<C::Number as Codable>::Arrow>>;
    RequiredCoded<C> where [C: Code<Number: Codable>]: C::Number, Values<'a, PrimitiveArray<<C::Number as Codable>::Arrow>>;
    NullableReal: Option<f64>, Nullables<'a, Float64Array>;
    Addresses: u64, Values<'a, UInt64Array>;
    Truth: bool, Values<'a, BooleanArray>;
    NullableTruth: Option<bool>, Nullables<'a, BooleanArray>;
    Text: &'a str, Values<'a, StringArray>;
    NullableText: Option<&'a str>, Nullables<'a, StringArray>;
}

/// Bytes of lists in a row group, within a page.
const LIST_BYTES: usize = 8 << 20;

const DELTA: &[Encoding] = &[Encoding::RLE, Encoding::DELTA_BINARY_PACKED];
const PLAIN: &[Encoding] = &[Encoding::RLE, Encoding::PLAIN];
const DICTIONARY: &[Encoding] = &[Encoding::RLE, Encoding::PLAIN, Encoding::RLE_DICTIONARY];

/// An Arrow type of integers.
pub trait IntegerType: ArrowPrimitiveType<Native: Integer> {
    /// Statistics of numbers of this type.
    fn statistics(range: Option<(Self::Native, Self::Native)>, nulls: u64) -> Statistics;
}

macro_rules! whole_type {
    ($($type:ty => $statistics:ident as $physical:ty;)*) => {$(
        impl IntegerType for $type {
            fn statistics(range: Option<(Self::Native, Self::Native)>, nulls: u64) -> Statistics {
                let (min, max) = range.map(|(a, b)| (a as $physical, b as $physical)).unzip();
                Statistics::$statistics(min, max, None, Some(nulls), false)
            }
        }
    )*};
}

whole_type! {
    UInt8Type => int32 as i32;
    UInt16Type => int32 as i32;
    UInt32Type => int32 as i32;
    UInt64Type => int64 as i64;
    Int64Type => int64 as i64;
}

/// Integers without null.
#[derive(Debug)]
pub struct Required<T: IntegerType> {
    deltas: Deltas<T::Native>,
    pages: Pages,
}

impl<T: IntegerType> Default for Required<T> {
    fn default() -> Self {
        Self {
            deltas: Deltas::default(),
            pages: Pages::default(),
        }
    }
}

impl<T: IntegerType> Required<T> {
    /// Pushes one value per row.
    #[inline(always)]
    pub(super) fn extend<'a, R>(&mut self, rows: &'a [R], value: impl Fn(&'a R) -> T::Native) {
        let mut rest = rows;
        while !rest.is_empty() {
            rest = self.deltas.extend(rest, &value);
            if self.deltas.is_full() {
                self.deltas.end_page(&mut self.pages, None);
            }
        }
    }

    /// Pushes a value `times` times.
    #[inline]
    pub(super) fn repeat(&mut self, value: T::Native, mut times: usize) {
        while times > 0 {
            times = self.deltas.repeat(value, times);
            if self.deltas.is_full() {
                self.deltas.end_page(&mut self.pages, None);
            }
        }
    }
}

impl<T: IntegerType> Column for Required<T> {
    fn field(name: &str) -> Field {
        Field::new(name, T::DATA_TYPE, false)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.deltas.end_page(&mut self.pages, None);
        Chunk::new(&self.pages, DELTA, T::statistics(self.deltas.range(), 0))
    }

    fn clear(&mut self) {
        self.deltas.clear();
        self.pages.clear();
    }
}

/// Integers with null.
#[derive(Debug)]
pub struct Nullable<T: IntegerType> {
    deltas: Deltas<T::Native>,
    levels: Levels,
    pages: Pages,
}

impl<T: IntegerType> Default for Nullable<T> {
    fn default() -> Self {
        Self {
            deltas: Deltas::default(),
            levels: Levels::default(),
            pages: Pages::default(),
        }
    }
}

impl<T: IntegerType> Nullable<T> {
    #[inline(always)]
    pub(super) fn push(&mut self, value: Option<T::Native>) {
        self.levels.push(value.is_some());
        if let Some(value) = value
            && self.deltas.push(value)
        {
            self.end_page();
        }
    }

    /// Pushes one value per row. Optimized for rows that all have a value, or all have none.
    #[inline(always)]
    pub(super) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        value: impl Fn(&'a R) -> Option<T::Native>,
    ) {
        let mut rest = rows;
        while !rest.is_empty() {
            let (count, present) = self.deltas.extend_if_all(rest, &value);
            let (now, later) = rest.split_at(count);
            rest = later;
            match present {
                _ if present == count => {
                    self.levels.repeat(true, count as u32);
                    if self.deltas.is_full() {
                        self.end_page();
                    }
                }
                0 => self.levels.repeat(false, count as u32),
                _ => now.iter().for_each(|row| self.push(value(row))),
            }
        }
    }

    /// Pushes a value `times` times.
    #[inline]
    pub(super) fn repeat(&mut self, value: Option<T::Native>, mut times: usize) {
        let Some(value) = value else {
            return self.levels.repeat(false, times as u32);
        };
        while times > 0 {
            let left = self.deltas.repeat(value, times);
            self.levels.repeat(true, (times - left) as u32);
            times = left;
            if self.deltas.is_full() {
                self.end_page();
            }
        }
    }

    fn end_page(&mut self) {
        self.deltas
            .end_page(&mut self.pages, Some(&mut self.levels));
    }
}

impl<T: IntegerType> Column for Nullable<T> {
    fn field(name: &str) -> Field {
        Field::new(name, T::DATA_TYPE, true)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.deltas
            .end_page(&mut self.pages, Some(&mut self.levels));
        Chunk::new(
            &self.pages,
            DELTA,
            T::statistics(self.deltas.range(), self.levels.nulls()),
        )
    }

    fn clear(&mut self) {
        self.deltas.clear();
        self.levels.clear();
        self.pages.clear();
    }
}

/// Addresses without null.
#[derive(Debug, Default)]
pub struct Addresses {
    addresses: AddressPages,
    pages: Pages,
    dictionary: Pages,
}

impl Addresses {
    /// Pushes one address per row.
    pub(super) fn extend<'a, R>(&mut self, rows: &'a [R], address: impl Fn(&'a R) -> u64) {
        for row in rows {
            let address = Ip(address(row));
            self.extend_at(&[address], &[Slot::any(address)]);
        }
    }

    /// Pushes addresses. `slots`: a cache slot for each, mostly the same for equal addresses.
    #[inline(always)]
    pub(super) fn extend_at(&mut self, mut addresses: &[Ip], mut slots: &[Slot]) {
        while !addresses.is_empty() {
            let count = self.addresses.extend(addresses, slots);
            (addresses, slots) = (&addresses[count..], &slots[count..]);
            if self.addresses.is_page_full() {
                self.addresses.end_page(&mut self.pages);
            }
        }
    }
}

impl Column for Addresses {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::UInt64, false)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.addresses.is_full()
    }

    fn end(&mut self) -> Chunk<'_> {
        self.addresses.end_page(&mut self.pages);
        self.addresses.dictionary_page(&mut self.dictionary);
        Chunk {
            dictionary: Some(&self.dictionary),
            pages: &self.pages,
            encodings: DICTIONARY,
            statistics: UInt64Type::statistics(self.addresses.range(), 0),
            values: None,
        }
    }

    fn clear(&mut self) {
        self.addresses.clear();
        self.pages.clear();
        self.dictionary.clear();
    }

    fn end_segment(&mut self) {
        self.addresses.end_segment();
    }
}

/// Booleans without null.
#[derive(Debug, Default)]
pub struct Truth {
    bits: Bits,
    pages: Pages,
}

impl Truth {
    #[inline]
    fn push(&mut self, value: bool) {
        if self.bits.push(value) {
            self.bits.end_page(&mut self.pages);
        }
    }

    /// Pushes one value per row.
    pub(super) fn extend<'a, R>(&mut self, rows: &'a [R], value: impl Fn(&'a R) -> bool) {
        rows.iter().for_each(|row| self.push(value(row)));
    }
}

impl Column for Truth {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Boolean, false)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.bits.end_page(&mut self.pages);
        Chunk::new(
            &self.pages,
            PLAIN,
            Statistics::boolean(None, None, None, Some(0), false),
        )
    }

    fn clear(&mut self) {
        self.bits.clear();
        self.pages.clear();
    }
}

/// Booleans with null.
#[derive(Debug, Default)]
pub struct NullableTruth {
    bits: Bits,
    levels: Levels,
    pages: Pages,
}

impl NullableTruth {
    #[inline]
    fn push(&mut self, value: Option<bool>) {
        self.levels.push(value.is_some());
        if let Some(value) = value
            && self.bits.push(value)
        {
            self.end_page();
        }
    }

    /// Pushes one value per row.
    pub(super) fn extend<'a, R>(&mut self, rows: &'a [R], value: impl Fn(&'a R) -> Option<bool>) {
        rows.iter().for_each(|row| self.push(value(row)));
    }

    fn end_page(&mut self) {
        self.bits
            .end_page_of_nullable(&mut self.pages, &mut self.levels);
    }
}

impl Column for NullableTruth {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Boolean, true)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.end_page();
        Chunk::new(
            &self.pages,
            PLAIN,
            Statistics::boolean(None, None, None, Some(self.levels.nulls()), false),
        )
    }

    fn clear(&mut self) {
        self.bits.clear();
        self.levels.clear();
        self.pages.clear();
    }
}

/// Lists of integers without null. For tables with few rows: the numbers are stored plain.
#[derive(Debug)]
pub struct Lists<T: IntegerType> {
    plain: Plain,
    levels: ListLevels,
    pages: Pages,
    /// Entries of the chunk: numbers, and empty lists.
    entries: u64,
    kind: PhantomData<T>,
}

impl<T: IntegerType> Default for Lists<T> {
    fn default() -> Self {
        Self {
            plain: Plain::default(),
            levels: ListLevels::default(),
            pages: Pages::default(),
            entries: 0,
            kind: PhantomData,
        }
    }
}

impl<T: IntegerType<Native: Into<i128>>> Lists<T> {
    fn push(&mut self, list: &[T::Native]) {
        self.levels.push(list.len());
        self.entries += list.len().max(1) as u64;
        let mut full = false;
        for value in list {
            // Two's complement: as Parquet stores numbers, signed or not.
            let value: i128 = (*value).into();
            full |= if size_of::<T::Native>() == 8 {
                self.plain.push(value as u64)
            } else {
                self.plain.push(value as u32)
            };
        }
        // A page contains complete lists.
        if full {
            self.end_page();
        }
    }

    /// Pushes one list per row.
    pub(super) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        value: impl Fn(&'a R) -> &'a [T::Native],
    ) {
        rows.iter().for_each(|row| self.push(value(row)));
    }
}

impl<T: IntegerType> Lists<T> {
    fn end_page(&mut self) {
        self.plain
            .end_page_of_lists(&mut self.pages, &mut self.levels);
    }
}

impl<T: IntegerType> Column for Lists<T> {
    fn field(name: &str) -> Field {
        let item = Field::new_list_field(T::DATA_TYPE, false);
        Field::new(name, DataType::List(Arc::new(item)), false)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.pages.bytes() >= LIST_BYTES
    }

    fn end(&mut self) -> Chunk<'_> {
        self.end_page();
        Chunk {
            dictionary: None,
            pages: &self.pages,
            encodings: PLAIN,
            statistics: T::statistics(None, 0),
            values: Some(self.entries),
        }
    }

    fn clear(&mut self) {
        self.plain.clear();
        self.levels.clear();
        self.pages.clear();
        self.entries = 0;
    }
}

#[cfg(test)]
mod tests;
