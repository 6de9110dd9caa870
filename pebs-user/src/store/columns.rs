//! The columns of a row group, encoded as rows are pushed.
//!
//! Nothing is allocated per row, and after the first row groups nothing at all but their metadata.
//! Invariant: all columns of a table hold the same number of rows.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::ArrowPrimitiveType;
use arrow::datatypes::{DataType, Field, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use parquet::basic::Encoding;
use parquet::file::statistics::Statistics;

use super::pages::Pages;
use super::pages::addresses::Addresses as AddressPages;
use super::pages::delta::{Deltas, Whole};
use super::pages::levels::{Levels, ListLevels};
use super::pages::plain::{Bits, Plain};

/// A column chunk, ready to be written.
#[derive(Debug)]
pub(super) struct Chunk<'a> {
    /// The dictionary's page; empty without one.
    pub(super) dictionary: &'a [u8],
    /// Data pages.
    pub(super) pages: &'a [u8],
    /// Encodings used.
    pub(super) encodings: &'static [Encoding],
    /// Of the values.
    pub(super) statistics: Statistics,
    /// Number of values, if it is not that of the rows.
    pub(super) values: Option<u64>,
}

impl<'a> Chunk<'a> {
    /// A chunk of data pages alone, with a value a row.
    fn new(pages: &'a Pages, encodings: &'static [Encoding], statistics: Statistics) -> Self {
        Self {
            dictionary: &[],
            pages: pages.bytes(),
            encodings,
            statistics,
            values: None,
        }
    }
}

/// What the writer needs from a column of any type.
pub(super) trait Column {
    /// The column's Arrow field.
    fn field(name: &str) -> Field
    where
        Self: Sized;

    /// Whether the row group should end before more rows come.
    #[inline]
    fn is_full(&self) -> bool {
        false
    }

    /// Ends the last page and shows the chunk.
    fn end(&mut self) -> Chunk<'_>;

    /// Forgets the rows, keeps the room.
    fn clear(&mut self);
}

/// Bytes of lists in a row group, give or take a page.
const LIST_BYTES: usize = 8 << 20;

const DELTA: &[Encoding] = &[Encoding::RLE, Encoding::DELTA_BINARY_PACKED];
const PLAIN: &[Encoding] = &[Encoding::RLE, Encoding::PLAIN];
const DICTIONARY: &[Encoding] = &[Encoding::RLE, Encoding::PLAIN, Encoding::RLE_DICTIONARY];

/// An Arrow type of whole numbers.
pub(super) trait WholeType: ArrowPrimitiveType<Native: Whole> {
    /// Statistics of numbers of this type.
    fn statistics(range: Option<(Self::Native, Self::Native)>, nulls: u64) -> Statistics;
}

macro_rules! whole_type {
    ($($type:ty => $statistics:ident as $physical:ty;)*) => {$(
        impl WholeType for $type {
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

/// Whole numbers, none of them null.
#[derive(Debug)]
pub(super) struct Required<T: WholeType> {
    deltas: Deltas<T::Native>,
    pages: Pages,
}

impl<T: WholeType> Default for Required<T> {
    fn default() -> Self {
        Self {
            deltas: Deltas::default(),
            pages: Pages::default(),
        }
    }
}

impl<T: WholeType> Required<T> {
    #[inline(always)]
    pub(super) fn push(&mut self, value: T::Native) {
        if self.deltas.push(value) {
            self.deltas.end_page(&mut self.pages, None);
        }
    }

    /// Pushes a value some times.
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

impl<T: WholeType> Column for Required<T> {
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

/// Whole numbers, some of them null.
#[derive(Debug)]
pub(super) struct Nullable<T: WholeType> {
    deltas: Deltas<T::Native>,
    levels: Levels,
    pages: Pages,
}

impl<T: WholeType> Default for Nullable<T> {
    fn default() -> Self {
        Self {
            deltas: Deltas::default(),
            levels: Levels::default(),
            pages: Pages::default(),
        }
    }
}

impl<T: WholeType> Nullable<T> {
    #[inline(always)]
    pub(super) fn push(&mut self, value: Option<T::Native>) {
        self.levels.push(value.is_some());
        if let Some(value) = value
            && self.deltas.push(value)
        {
            self.end_page();
        }
    }

    /// Pushes a value some times.
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

impl<T: WholeType> Column for Nullable<T> {
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

/// Addresses, none of them null.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    addresses: AddressPages,
    pages: Pages,
    dictionary: Pages,
}

impl Addresses {
    #[inline(always)]
    pub(super) fn push(&mut self, address: u64) {
        if self.addresses.push(address) {
            self.addresses.end_page(&mut self.pages);
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
            dictionary: self.dictionary.bytes(),
            pages: self.pages.bytes(),
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
}

/// Floats, some of them null.
#[derive(Debug, Default)]
pub(super) struct NullableReal {
    plain: Plain,
    levels: Levels,
    pages: Pages,
}

impl NullableReal {
    #[inline]
    pub(super) fn push(&mut self, value: Option<f64>) {
        self.levels.push(value.is_some());
        if let Some(value) = value
            && self.plain.push_f64(value)
        {
            self.end_page();
        }
    }

    fn end_page(&mut self) {
        let rows = self.levels.rows();
        self.plain
            .end_page(&mut self.pages, rows, Some(&mut self.levels));
    }
}

impl Column for NullableReal {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Float64, true)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.end_page();
        Chunk::new(
            &self.pages,
            PLAIN,
            Statistics::double(None, None, None, Some(self.levels.nulls()), false),
        )
    }

    fn clear(&mut self) {
        self.plain.clear();
        self.levels.clear();
        self.pages.clear();
    }
}

/// Truth values, none of them null.
#[derive(Debug, Default)]
pub(super) struct Truth {
    bits: Bits,
    pages: Pages,
}

impl Truth {
    #[inline]
    pub(super) fn push(&mut self, value: bool) {
        if self.bits.push(value) {
            self.bits.end_page(&mut self.pages);
        }
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

/// Truth values, some of them null.
#[derive(Debug, Default)]
pub(super) struct NullableTruth {
    bits: Bits,
    levels: Levels,
    pages: Pages,
}

impl NullableTruth {
    #[inline]
    pub(super) fn push(&mut self, value: Option<bool>) {
        self.levels.push(value.is_some());
        if let Some(value) = value
            && self.bits.push(value)
        {
            self.end_page();
        }
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

/// Lists of whole numbers, none of them null. For tables of few rows: the numbers stand as they are.
#[derive(Debug)]
pub(super) struct Lists<T: WholeType> {
    plain: Plain,
    levels: ListLevels,
    pages: Pages,
    /// Entries of the chunk: numbers, and lists without one.
    entries: u64,
    kind: PhantomData<T>,
}

impl<T: WholeType> Default for Lists<T> {
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

impl<T: WholeType<Native: Into<i128>>> Lists<T> {
    pub(super) fn push(&mut self, list: &[T::Native]) {
        self.levels.push(list.len());
        self.entries += list.len().max(1) as u64;
        let mut full = false;
        for value in list {
            // Two's complement: as Parquet stores numbers, signed or not.
            let value: i128 = (*value).into();
            full |= if size_of::<T::Native>() == 8 {
                self.plain.push_u64(value as u64)
            } else {
                self.plain.push_u32(value as u32)
            };
        }
        // A page holds whole lists.
        if full {
            self.end_page();
        }
    }
}

impl<T: WholeType> Lists<T> {
    fn end_page(&mut self) {
        self.plain
            .end_page_of_lists(&mut self.pages, &mut self.levels);
    }
}

impl<T: WholeType> Column for Lists<T> {
    fn field(name: &str) -> Field {
        let item = Field::new_list_field(T::DATA_TYPE, false);
        Field::new(name, DataType::List(Arc::new(item)), false)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.pages.bytes().len() >= LIST_BYTES
    }

    fn end(&mut self) -> Chunk<'_> {
        self.end_page();
        Chunk {
            dictionary: &[],
            pages: self.pages.bytes(),
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

/// Strings, some of them null.
#[derive(Debug, Default)]
pub(super) struct NullableText {
    plain: Plain,
    levels: Levels,
    pages: Pages,
}

impl NullableText {
    #[inline]
    pub(super) fn push(&mut self, value: Option<&str>) {
        self.levels.push(value.is_some());
        if let Some(value) = value
            && self.plain.push_text(value)
        {
            self.end_page();
        }
    }

    /// Bytes of text held, those of the page at hand aside.
    pub(super) fn text_bytes(&self) -> usize {
        self.pages.bytes().len()
    }

    fn end_page(&mut self) {
        let rows = self.levels.rows();
        self.plain
            .end_page(&mut self.pages, rows, Some(&mut self.levels));
    }

    fn chunk(&mut self) -> Chunk<'_> {
        self.end_page();
        Chunk::new(
            &self.pages,
            PLAIN,
            Statistics::byte_array(None, None, None, Some(self.levels.nulls()), false),
        )
    }
}

impl Column for NullableText {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Utf8, true)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.chunk()
    }

    fn clear(&mut self) {
        self.plain.clear();
        self.levels.clear();
        self.pages.clear();
    }
}

/// Strings, none of them null.
#[derive(Debug, Default)]
pub(super) struct Text {
    plain: Plain,
    rows: u32,
    pages: Pages,
}

impl Text {
    #[inline]
    pub(super) fn push(&mut self, value: &str) {
        self.rows += 1;
        if self.plain.push_text(value) {
            self.end_page();
        }
    }

    fn end_page(&mut self) {
        self.plain.end_page(&mut self.pages, self.rows, None);
        self.rows = 0;
    }
}

impl Column for Text {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Utf8, false)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.end_page();
        Chunk::new(
            &self.pages,
            PLAIN,
            Statistics::byte_array(None, None, None, Some(0), false),
        )
    }

    fn clear(&mut self) {
        self.plain.clear();
        self.rows = 0;
        self.pages.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::fs::File;

    use arrow::array::{Array, ArrayRef, AsArray as _, PrimitiveArray};
    use arrow::compute::concat;
    use arrow::datatypes::{Float64Type, Schema};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use proptest::prelude::*;

    use super::super::files::Owner;
    use super::super::segment::{OpenSegment, open_path};
    use super::*;

    /// Writes a row group for each slice and reads the file as any reader would.
    fn through_a_file<C: Column, V: Copy>(
        column: &mut C,
        groups: &[&[V]],
        push: impl Fn(&mut C, V),
    ) -> (ArrayRef, Vec<Statistics>) {
        let dir = tempfile::tempdir().unwrap();
        let schema = Arc::new(Schema::new(vec![C::field("n")]));
        let owner = Owner::default();
        let mut segment = OpenSegment::create(dir.path(), 0, &schema, owner).unwrap();
        for group in groups {
            group.iter().for_each(|value| push(column, *value));
            segment.append(&[column.end()], group.len() as u64).unwrap();
            column.clear();
        }
        let file = File::open(open_path(dir.path(), 0)).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        assert_eq!(reader.schema().fields(), schema.fields());
        let groups = reader.metadata().row_groups().iter();
        let statistics = groups.map(|g| g.column(0).statistics().unwrap().clone());
        let statistics = statistics.collect();
        let batches: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
        let arrays: Vec<&dyn Array> = batches.iter().map(|b| b.column(0).as_ref()).collect();
        (concat(&arrays).unwrap(), statistics)
    }

    /// Numbers of a type come back, null or not, in pages and row groups of any length.
    fn numbers_survive<T: WholeType<Native: Debug>>(values: &[T::Native], cut: usize) {
        let (a, b) = values.split_at(cut % values.len());
        let groups: Vec<&[T::Native]> = [a, b].into_iter().filter(|g| !g.is_empty()).collect();
        let (read, found) = through_a_file(&mut Required::<T>::default(), &groups, Required::push);
        let read: &PrimitiveArray<T> = read.as_primitive();
        assert_eq!(read.values(), values);
        let range = |group: &&[T::Native]| {
            let values = || group.iter().copied();
            T::statistics(values().min().zip(values().max()), 0)
        };
        assert_eq!(found, groups.iter().map(range).collect::<Vec<_>>());

        let with_nulls = |n: &usize| (n % 3 != 1 && n % 50 > 9).then(|| values[*n]);
        let nullable: Vec<Option<T::Native>> = (0..values.len()).map(|n| with_nulls(&n)).collect();
        let (a, b) = nullable.split_at(cut % values.len());
        let groups: Vec<_> = [a, b].into_iter().filter(|g| !g.is_empty()).collect();
        let (read, _) = through_a_file(&mut Nullable::<T>::default(), &groups, Nullable::push);
        let read: &PrimitiveArray<T> = read.as_primitive();
        assert_eq!(read.iter().collect::<Vec<_>>(), nullable);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        // Lists of any length come back, the empty ones too, over pages and row groups.
        #[test]
        fn lists_survive(
            lists in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..40), 1..60),
            cut: usize,
        ) {
            // One that does not fit into a page.
            let mut lists = lists;
            lists.push((0..70_000).collect());
            lists.extend([vec![], vec![7]]);
            let slices: Vec<&[u64]> = lists.iter().map(Vec::as_slice).collect();
            let (a, b) = slices.split_at(cut % slices.len());
            let groups: Vec<_> = [a, b].into_iter().filter(|g| !g.is_empty()).collect();
            let mut column = Lists::<UInt64Type>::default();
            let (read, _) = through_a_file(&mut column, &groups, Lists::push);
            let read = read.as_list::<i32>();
            for (row, list) in lists.iter().enumerate() {
                let values = read.value(row);
                prop_assert_eq!(values.as_primitive::<UInt64Type>().values(), list.as_slice());
            }
            prop_assert_eq!(read.len(), lists.len());
        }

        // Any numbers, of few bits or of all, over block ends.
        #[test]
        fn whole_numbers_survive(
            values in prop::collection::vec(any::<u64>(), 1..400),
            shift in 0_u32..64,
            cut: usize,
        ) {
            let values: Vec<u64> = values.iter().map(|value| value >> shift).collect();
            let signed: Vec<i64> = values.iter().map(|value| *value as i64).collect();
            numbers_survive::<UInt64Type>(&values, cut);
            numbers_survive::<Int64Type>(&signed, cut);
            numbers_survive::<UInt32Type>(&values.iter().map(|v| *v as u32).collect::<Vec<_>>(), cut);
            numbers_survive::<UInt16Type>(&values.iter().map(|v| *v as u16).collect::<Vec<_>>(), cut);
            numbers_survive::<UInt8Type>(&values.iter().map(|v| *v as u8).collect::<Vec<_>>(), cut);
        }

        // Addresses of any number of distinct values.
        #[test]
        fn addresses_survive(values in prop::collection::vec(any::<u64>(), 1..300), repeat in 1_usize..40) {
            let values: Vec<u64> = (0..values.len() * repeat).map(|n| values[n * n % values.len()]).collect();
            let half = values.split_at(values.len() / 2);
            let groups: Vec<&[u64]> = [half.0, half.1].into_iter().filter(|g| !g.is_empty()).collect();
            let (read, _) = through_a_file(&mut Addresses::default(), &groups, Addresses::push);
            prop_assert_eq!(read.as_primitive::<UInt64Type>().values(), &values[..]);
        }
    }

    // More values than a page of any column holds, with runs of the same one.
    #[test]
    fn many_pages_survive() {
        let values: Vec<u64> = (0..200_000).map(|n| n / 1000 * 7919 % 1_000_003).collect();
        numbers_survive::<UInt64Type>(&values, 150_000);
        let (read, _) = through_a_file(&mut Addresses::default(), &[&values[..]], Addresses::push);
        assert_eq!(read.as_primitive::<UInt64Type>().values(), &values[..]);

        let reals: Vec<Option<f64>> = values
            .iter()
            .map(|n| (n % 5 > 0).then_some(*n as f64))
            .collect();
        let push = NullableReal::push;
        let (read, _) = through_a_file(&mut NullableReal::default(), &[&reals[..]], push);
        assert_eq!(
            read.as_primitive::<Float64Type>()
                .iter()
                .collect::<Vec<_>>(),
            reals
        );

        let truths: Vec<bool> = values.iter().map(|n| n % 4 == 0).collect();
        let (read, _) = through_a_file(&mut Truth::default(), &[&truths[..]], Truth::push);
        let read: Vec<_> = read.as_boolean().iter().flatten().collect();
        assert_eq!(read, truths);

        let truths: Vec<Option<bool>> = (0..200_000_u32)
            .map(|n| (n % 3 != 0 && n / 900 % 7 != 2).then_some(n % 4 == 0))
            .chain(vec![None; 80_000])
            .collect();
        let (read, _) = through_a_file(
            &mut NullableTruth::default(),
            &[&truths[..]],
            NullableTruth::push,
        );
        assert_eq!(read.as_boolean().iter().collect::<Vec<_>>(), truths);

        let words = [Some("GET"), None, Some(""), Some("käse")];
        let texts: Vec<Option<&str>> = (0..200_000).map(|n| words[n / 7 % 4]).collect();
        let (read, _) = through_a_file(
            &mut NullableText::default(),
            &[&texts[..]],
            NullableText::push,
        );
        assert_eq!(read.as_string::<i32>().iter().collect::<Vec<_>>(), texts);

        let texts: Vec<&str> = texts.iter().map(|text| text.unwrap_or("none")).collect();
        let (read, _) = through_a_file(&mut Text::default(), &[&texts[..]], Text::push);
        assert_eq!(
            read.as_string::<i32>().iter().flatten().collect::<Vec<_>>(),
            texts
        );
    }

    // The dictionary's room ends a row group before it ends the column.
    #[test]
    fn full_dictionary_is_told() {
        let mut column = Addresses::default();
        let pushed = (0..u64::MAX).take_while(|n| {
            column.push(n * 8);
            !column.is_full()
        });
        assert_eq!(pushed.count(), (1 << 17) - 1);
        column.clear();
        assert!(!column.is_full());
    }
}
