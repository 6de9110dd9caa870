//! `tables!`: the only declaration of a table, and the conversions between row and column values.

use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, PrimitiveArray};

use super::columns::{
    Addresses, IntegerType, Lists, Nullable, NullableCoded, NullableReal, NullableText,
    NullableTruth, Required, RequiredCoded, Text, Truth, Typed,
};
use super::pages::coded::{Code, Small};
use super::view::View;
use crate::units::{Cpu, EventId, FunctionId, Pid, ProbeId, StackId, Tid, TraceNs};

/// Default kind of column for a type of row values, unless it is declared `as` another.
pub trait Usual {
    /// The column.
    type Column: Typed;
}

/// A value of a row, in a column of a kind.
pub(super) trait Stored<'a, C: Typed>: Sized {
    /// Converts a row value for the column.
    fn cell(&'a self) -> C::Cell<'a>;

    /// Converts a value read from the column.
    fn read(item: <C::View<'a> as View<'a>>::Item) -> Self;
}

macro_rules! usual {
    ($($type:ty: $column:ty, |$value:ident| $cell:expr, |$item:ident| $read:expr;)+) => {$(
        impl Usual for $type {
            type Column = $column;
        }

        impl<'a> Stored<'a, $column> for $type {
            #[inline(always)]
            fn cell(&'a self) -> <$column as Typed>::Cell<'a> {
                let $value = self;
                $cell
            }

            fn read($item: <<$column as Typed>::View<'a> as View<'a>>::Item) -> Self {
                $read
            }
        }
    )+};
}

usual! {
    u32: Required<UInt32Type>, |it| *it, |it| it;
    u64: Required<UInt64Type>, |it| *it, |it| it;
    i64: Required<Int64Type>, |it| *it, |it| it;
    Option<u32>: Nullable<UInt32Type>, |it| *it, |it| it;
    Option<u64>: Nullable<UInt64Type>, |it| *it, |it| it;
    Option<i64>: Nullable<Int64Type>, |it| *it, |it| it;
    Option<f64>: NullableReal, |it| *it, |it| it;
    bool: Truth, |it| *it, |it| it;
    Option<bool>: NullableTruth, |it| *it, |it| it;
    TraceNs: Required<Int64Type>, |it| it.0, |it| Self(it);
    Option<TraceNs>: Nullable<Int64Type>, |it| it.map(|time| time.0), |it| it.map(TraceNs);
    ProbeId: Required<UInt16Type>, |it| it.0, |it| Self(it);
    EventId: Required<UInt8Type>, |it| it.0, |it| Self(it);
    Option<EventId>: Nullable<UInt8Type>, |it| it.map(|id| id.0), |it| it.map(EventId);
    FunctionId: Required<UInt32Type>, |it| it.0, |it| Self(it);
    Option<FunctionId>: Nullable<UInt32Type>, |it| it.map(|id| id.0), |it| it.map(FunctionId);
    StackId: Required<UInt32Type>, |it| it.0, |it| Self(it);
    Option<StackId>: Nullable<UInt32Type>, |it| it.map(|id| id.0), |it| it.map(StackId);
    Pid: Required<UInt32Type>, |it| it.0, |it| Self(it);
    Option<Pid>: Nullable<UInt32Type>, |it| it.map(|id| id.0), |it| it.map(Pid);
    Tid: Required<UInt32Type>, |it| it.0, |it| Self(it);
    Option<Tid>: Nullable<UInt32Type>, |it| it.map(|id| id.0), |it| it.map(Tid);
    Cpu: Nullable<UInt16Type>, |it| it.known(), |it| it.map_or(Self::UNKNOWN, Self);
    Option<Cpu>: Nullable<UInt16Type>, |it| it.and_then(Cpu::known), |it| it.map(Cpu);
    String: Text, |it| it, |it| it.to_owned();
    Option<String>: NullableText, |it| it.as_deref(), |it| it.map(str::to_owned);
    Vec<u32>: Lists<UInt32Type>, |it| it, |it| list::<UInt32Type>(&it);
    Vec<u64>: Lists<UInt64Type>, |it| it, |it| list::<UInt64Type>(&it);
    Vec<i64>: Lists<Int64Type>, |it| it, |it| list::<Int64Type>(&it);
}

/// Values in a kind of column that is not the default of their type, or borrowed values.
macro_rules! unusual {
    ($($type:ty as $column:ty, |$value:ident| $cell:expr, |$item:ident| $read:expr;)+) => {$(
        impl<'a> Stored<'a, $column> for $type {
            #[inline(always)]
            fn cell(&'a self) -> <$column as Typed>::Cell<'a> {
                let $value = self;
                $cell
            }

            fn read($item: <<$column as Typed>::View<'a> as View<'a>>::Item) -> Self {
                $read
            }
        }
    )+};
}

unusual! {
    u64 as Addresses, |it| *it, |it| it;
    &'a str as Text, |it| it, |it| it;
    Option<&'a str> as NullableText, |it| *it, |it| it;
    f64 as NullableReal, |it| Some(*it), |it| it.unwrap_or(f64::NAN);
    bool as NullableTruth, |it| Some(*it), |it| it.unwrap_or(false);
    Cpu as Required<UInt16Type>, |it| it.0, |it| Self(it);
    Tid as Nullable<UInt32Type>, |it| it.known(), |it| it.map_or(Self::UNKNOWN, Self);
    u32 as RequiredCoded<Small<u32>>, |it| *it, |it| it;
    i64 as RequiredCoded<Small<i64>>, |it| *it, |it| it;
    FunctionId as RequiredCoded<Small<u32>>, |it| it.0, |it| Self(it);
    Option<u64> as NullableCoded<Small<u64>>, |it| *it, |it| it;
    Option<i64> as NullableCoded<Small<i64>>, |it| *it, |it| it;
    Option<StackId> as NullableCoded<Small<u32>>, |it| it.map(|id| id.0), |it| it.map(StackId);
}

impl<'a, C: Code<Number = f64>> Stored<'a, NullableCoded<C>> for Option<f64> {
    #[inline(always)]
    fn cell(&'a self) -> Self {
        *self
    }

    fn read(item: Self) -> Self {
        item
    }
}

fn list<T: IntegerType>(array: &ArrayRef) -> Vec<T::Native> {
    let numbers = array.as_any().downcast_ref::<PrimitiveArray<T>>();
    numbers.map_or_else(Vec::new, |it| it.values().to_vec())
}

/// Description of a column.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// Description of its values, from the declaration's comment.
    pub words: &'static str,
}

/// Declares the tables of a trace. For each:
///
/// * a variant of `Table`, whose first paragraph describes a row;
/// * the row, a struct with a field for each column; `(Copy)`: further traits to derive;
/// * the columns that rows are written to, of the default kind for the type, or the one after `as`; `in`: the type
///   that takes rows instead, if rows have further columns or come in blocks;
/// * a module with a type for each column, by which it is read ([`columns!`](crate::columns)), and `All` of them.
///
/// The text of the reference (`guide/trace.md`) is made of the comments; nothing else lists tables or columns.
macro_rules! tables {
    ($(
        $(#[doc = $about:literal])+
        $table:ident = $variant:ident, $row:ident $(<$life:lifetime>)? $(($($derive:ident),+))?, $columns:ident $(in $writer:ty)? {
            $(
                $(#[doc = $words:literal])+
                $column:ident: $type:ty $(as $kind:ty)?,
            )+
        }
    )+) => {
        /// The tables, which are also the names of their folders.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Table {
            $($(#[doc = $about])+ $variant,)+
        }

        impl Table {
            /// Every table.
            pub const ALL: [Self; [$(stringify!($table)),+].len()] = [$(Self::$variant),+];

            /// Folder of the table's segments.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($table),)+
                }
            }

            /// Description of a row, from the declaration's comment.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($about, "\n"),+),)+
                }
            }

            /// Its columns, without named arguments.
            #[must_use]
            pub const fn columns(self) -> &'static [Described] {
                match self {
                    $(Self::$variant => &[
                        $(Described { name: stringify!($column), words: concat!($($words, "\n"),+) },)+
                    ],)+
                }
            }

            /// Arrow fields of its columns, named arguments aside.
            pub(super) fn fields(self) -> Vec<Field> {
                match self {
                    $(Self::$variant => $columns::fields(),)+
                }
            }
        }

        /// Rows of all tables, in columns.
        #[derive(Debug)]
        pub struct Columns {
            $(pub(super) $table: tables!(@writer $columns $(, $writer)?),)+
        }

        impl Columns {
            pub(super) fn new(args: &[ArgColumn]) -> Self {
                Self {
                    $($table: NewColumns::new(args),)+
                }
            }

            pub(super) fn of(&self, table: Table) -> &dyn RowColumns {
                match table {
                    $(Table::$variant => &self.$table,)+
                }
            }

            pub(super) fn of_mut(&mut self, table: Table) -> &mut dyn RowColumns {
                match table {
                    $(Table::$variant => &mut self.$table,)+
                }
            }
        }

        /// Writes rows of every table.
        #[cfg(test)]
        pub(in crate::store) fn write_all(writer: &mut super::writer::TraceWriter, rows: u64) {
            $(writer.extend(&(0..rows).map($row::numbered).collect::<Vec<_>>()).unwrap();)+
        }

        /// Fails unless the rows are those of [`write_all`].
        #[cfg(test)]
        pub(in crate::store) fn check_all(trace: &Trace, rows: u64) {
            $(
                let mut n = 0;
                $table::each(trace, |row| {
                    assert_eq!(row, $row::numbered(n));
                    n += 1;
                }).unwrap();
                assert_eq!(n, rows, stringify!($table));
            )+
        }

        $(
            $(#[doc = $about])+
            #[derive(Clone, Debug, Default, PartialEq $($(, $derive)+)?)]
            pub struct $row $(<$life>)? {
                $($(#[doc = $words])+ pub $column: $type,)+
            }

            impl $(<$life>)? $row $(<$life>)? {
                /// The values as their columns have them, in the order of the columns.
                pub fn each_cell(&self, mut take: impl FnMut(&'static str, Cell<'_>)) {
                    $(take(
                        stringify!($column),
                        Stored::<tables!(@kind $type $(, $kind)?)>::cell(&self.$column).into(),
                    );)+
                }
            }

            #[cfg(test)]
            impl $(<$life>)? $row $(<$life>)? {
                /// A row for tests, see [`super::fixtures::rows`].
                pub(in crate::store) fn numbered(n: u64) -> Self {
                    use super::fixtures::rows::Numbered;
                    Self { $($column: Numbered::numbered(n, stringify!($column)),)+ }
                }
            }

            impl $(<$life>)? Row for $row $(<$life>)? {
                const TABLE: Table = Table::$variant;

                #[inline(always)]
                fn write(rows: &[Self], columns: &mut Columns) -> bool {
                    columns.$table.extend(rows);
                    columns.$table.is_full()
                }
            }

            #[doc(hidden)]
            #[derive(Debug, Default)]
            pub struct $columns {
                pub(super) rows: usize,
                $(pub(super) $column: tables!(@kind $type $(, $kind)?),)+
            }

            impl $columns {
                pub(super) fn fields() -> Vec<Field> {
                    vec![$(<tables!(@kind $type $(, $kind)?) as Column>::field(stringify!($column)),)+]
                }
            }

            impl $(<$life>)? Extend<$row $(<$life>)?> for $columns {
                #[inline(always)]
                fn extend(&mut self, rows: &[$row $(<$life>)?]) {
                    self.rows += rows.len();
                    $(self.$column.extend(
                        rows,
                        |row| Stored::<tables!(@kind $type $(, $kind)?)>::cell(&row.$column),
                    );)+
                }
            }

            impl RowColumns for $columns {
                #[inline]
                fn rows(&self) -> usize {
                    self.rows
                }

                #[inline]
                fn is_full(&self) -> bool {
                    self.rows >= GROUP_ROWS $(|| self.$column.is_full())+
                }

                fn end(&mut self) -> Vec<Chunk<'_>> {
                    vec![$(self.$column.end(),)+]
                }

                fn clear(&mut self) {
                    self.rows = 0;
                    $(self.$column.clear();)+
                }

                fn end_segment(&mut self) {
                    $(self.$column.end_segment();)+
                }
            }

            #[doc = concat!("Columns of `", stringify!($table), "`, to be read.")]
            #[allow(non_camel_case_types, reason = "columns are named as they are in the trace")]
            pub mod $table {
                use super::*;

                /// The table.
                pub const TABLE: Table = Table::$variant;

                $(
                    $(#[doc = $words])+
                    #[derive(Clone, Copy, Debug)]
                    pub struct $column;

                    impl Named for $column {
                        type View<'a> = <tables!(@kind $type $(, $kind)?) as Typed>::View<'a>;
                        const NAME: &'static str = stringify!($column);
                    }
                )+

                crate::columns! {
                    /// All columns.
                    pub(crate) struct All of $table { $($column),+ }
                }

                /// Reads every row, as [`Trace::scan`] does.
                ///
                /// # Errors
                /// As [`Trace::scan`].
                pub fn each(trace: &Trace, mut take: tables!(@each $row $(, $life)?)) -> Result<(), ReadError> {
                    for batch in All::scan(trace)? {
                        let batch = batch?;
                        let columns = All::of(&batch)?;
                        (0..batch.num_rows()).for_each(|row| take(columns.row(row)));
                    }
                    Ok(())
                }

                impl<'a> All<'a> {
                    /// A row.
                    pub(crate) fn row(&self, row: usize) -> tables!(@row $row 'a $(, $life)?) {
                        $row {
                            $($column: Stored::<'a, tables!(@kind $type $(, $kind)?)>::read(self.$column.get(row)),)+
                        }
                    }
                }
            }
        )+
    };
    (@kind $type:ty) => { <$type as Usual>::Column };
    (@kind $type:ty, $kind:ty) => { $kind };
    (@writer $columns:ident) => { $columns };
    (@writer $columns:ident, $writer:ty) => { $writer };
    (@each $row:ident) => { impl FnMut($row) };
    (@each $row:ident, $life:lifetime) => { impl FnMut($row<'_>) };
    (@row $row:ident $a:lifetime) => { $row };
    (@row $row:ident $a:lifetime, $life:lifetime) => { $row<$a> };
}
pub(super) use tables;

/// Declares the bits of a column: a module with a constant for each, and their names and words, lowest bit first.
macro_rules! flags {
    ($(#[doc = $about:literal])+ $module:ident {
        $($(#[doc = $words:literal])+ $flag:ident = $bit:literal, $name:literal,)+
    }) => {
        $(#[doc = $about])+
        pub mod $module {
            use super::Described;

            $($(#[doc = $words])+ pub const $flag: u32 = 1 << $bit;)+

            /// Description of each, lowest first.
            pub const ALL: &[Described] = &[
                $(Described { name: $name, words: concat!($($words, "\n"),+) },)+
            ];

            /// Names of the bits, lowest first, as reports and `trace.json` show them.
            pub const NAMES: [&str; ALL.len()] = [$($name),+];

            // A name's place is its bit.
            const _: () = {
                let (mut place, bits) = (0, [$($bit),+]);
                while place < bits.len() {
                    assert!(bits[place] == place);
                    place += 1;
                }
            };

            /// Name of a flag.
            #[must_use]
            pub const fn name(flag: u32) -> &'static str {
                NAMES[flag.trailing_zeros() as usize]
            }
        }
    };
}
pub(super) use flags;

/// Declares the interruption columns of `visits` and their names in reports: first the times, then the numbers.
macro_rules! interference {
    (
        $(#[doc = $about:literal])+
        times { $($time:ident = $time_words:literal,)+ }
        numbers { $($number:ident = $number_words:expr,)+ }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct InterferenceColumns {
            $(pub $time: Option<i64>,)+
            $(pub $number: Option<u32>,)+
        }

        impl InterferenceColumns {
            /// Names of the columns.
            pub const NAMES: &[&str] = &[$(stringify!($time),)+ $(stringify!($number),)+];

            /// Their names in reports.
            pub const WORDS: [&str; Self::NAMES.len()] = [$($time_words,)+ $($number_words,)+];

            /// Number of times; they come first.
            pub const TIMES: usize = [$($time_words),+].len();

            /// The values in the order of the columns.
            #[must_use]
            pub fn values(&self) -> [Option<i64>; Self::NAMES.len()] {
                [$(self.$time,)+ $(self.$number.map(i64::from),)+]
            }
        }

        impl VisitRow {
            /// Interrupt, softirq and page-fault columns.
            #[must_use]
            pub const fn interference(&self) -> InterferenceColumns {
                InterferenceColumns {
                    $($time: self.$time,)+
                    $($number: self.$number,)+
                }
            }
        }

        crate::columns! {
            /// The columns of a batch.
            pub(crate) struct InterferenceViews of visits { $($time,)+ $($number,)+ }
        }

        impl InterferenceViews<'_> {
            /// Whether any row has a value.
            pub(crate) fn is_known(&self) -> bool {
                [$(self.$time.has_some(),)+ $(self.$number.has_some(),)+].contains(&true)
            }

            /// The values of a row.
            pub(crate) fn get(&self, row: usize) -> InterferenceColumns {
                InterferenceColumns {
                    $($time: self.$time.get(row),)+
                    $($number: self.$number.get(row),)+
                }
            }
        }
    };
}
pub(super) use interference;
