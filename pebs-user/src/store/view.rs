//! Columns of a batch, read by their declared names and types.

use std::fmt::Debug;
use std::ops::Deref;

use serde::Serialize;

use arrow_array::{Array, ArrayAccessor, ArrowPrimitiveType, PrimitiveArray, RecordBatch};

use super::read_error::ReadError;
use super::reader::Trace;
use super::scan::Scan;
use super::schema::Table;

/// A column of a table, as declared in [`super::schema`].
pub trait Named {
    /// Type by which it is read.
    type View<'a>: View<'a>;
    const NAME: &'static str;
}

/// A column of a batch.
pub trait View<'a>: Sized {
    /// A value.
    type Item;

    /// The array as this view; `None` if it is of another type.
    fn of(array: &'a dyn Array) -> Option<Self>;

    /// The value in a row.
    fn get(&self, row: usize) -> Self::Item;
}

/// Values without null; integers as a slice.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a, A>(&'a A);

/// Values, some of them null.
#[derive(Clone, Copy, Debug)]
pub struct Nullables<'a, A>(&'a A);

impl<'a, A: Array + 'static> View<'a> for Values<'a, A>
where
    &'a A: ArrayAccessor,
{
    type Item = <&'a A as ArrayAccessor>::Item;

    fn of(array: &'a dyn Array) -> Option<Self> {
        array.as_any().downcast_ref().map(Self)
    }

    #[inline]
    fn get(&self, row: usize) -> Self::Item {
        self.0.value(row)
    }
}

impl<'a, A: Array + 'static> View<'a> for Nullables<'a, A>
where
    &'a A: ArrayAccessor,
{
    type Item = Option<<&'a A as ArrayAccessor>::Item>;

    fn of(array: &'a dyn Array) -> Option<Self> {
        array.as_any().downcast_ref().map(Self)
    }

    #[inline]
    fn get(&self, row: usize) -> Self::Item {
        self.0.is_valid(row).then(|| self.0.value(row))
    }
}

impl<T: ArrowPrimitiveType> Deref for Values<'_, PrimitiveArray<T>> {
    type Target = [T::Native];

    #[inline]
    fn deref(&self) -> &[T::Native] {
        self.0.values()
    }
}

impl<A: Array> Nullables<'_, A> {
    /// Whether any value is not null.
    #[must_use]
    pub fn has_some(&self) -> bool {
        self.0.null_count() < self.0.len()
    }
}

/// Finds a column of a batch.
///
/// # Errors
/// The column was not read, or is of another type.
pub fn view<N: Named>(batch: &RecordBatch) -> Result<N::View<'_>, ReadError> {
    view_of(batch, N::NAME)
}

/// Finds a column of a batch by a name that is not declared, such as an argument's.
pub(super) fn view_of<'a, V: View<'a>>(batch: &'a RecordBatch, name: &str) -> Result<V, ReadError> {
    let column = || name.to_owned();
    let array = batch.column_by_name(name);
    let array = array.ok_or_else(|| ReadError::NotRead { column: column() })?;
    V::of(array.as_ref()).ok_or_else(|| ReadError::Type {
        column: column(),
        found: array.data_type().clone(),
    })
}

/// Some columns of a table: made by [`columns!`](crate::columns), or all of them (`visits::All`).
pub trait Select<'a>: Sized {
    const TABLE: Table;
    /// Names of the columns.
    const NAMES: &'static [&'static str];

    /// Finds the columns in a batch, which may have others.
    ///
    /// # Errors
    /// The batch lacks one.
    fn of(batch: &'a RecordBatch) -> Result<Self, ReadError>;

    /// Reads these columns, as [`Trace::scan`] does.
    ///
    /// # Errors
    /// As [`Trace::scan`].
    fn scan(trace: &Trace) -> Result<Scan, ReadError> {
        trace.scan(Self::TABLE, Self::NAMES)
    }
}

/// Declares a struct of some columns of a table, by their names: numbers without null are slices, others have
/// `get(row)`.
///
/// ```
/// use pebs_user::store::view::{Select as _, View as _};
///
/// pebs_user::columns! {
///     /// How long visits took.
///     struct Durations of visits { probe_id, duration_ns }
/// }
///
/// # fn print(trace: &pebs_user::store::reader::Trace) -> Result<(), pebs_user::store::reader::ReadError> {
/// for batch in Durations::scan(trace)? {
///     let batch = batch?;
///     let columns = Durations::of(&batch)?;
///     for (row, probe) in columns.probe_id.iter().enumerate() {
///         println!("{probe} {:?}", columns.duration_ns.get(row));
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! columns {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident of $table:ident { $($column:ident),+ $(,)? }
    ) => {
        $(#[$meta])*
        $visibility struct $name<'a> {
            $($visibility $column: <$crate::store::schema::$table::$column as $crate::store::view::Named>::View<'a>,)+
        }

        impl<'a> $crate::store::view::Select<'a> for $name<'a> {
            const TABLE: $crate::store::schema::Table = $crate::store::schema::$table::TABLE;
            const NAMES: &'static [&'static str] = &[
                $(<$crate::store::schema::$table::$column as $crate::store::view::Named>::NAME,)+
            ];

            fn of(
                batch: &'a ::arrow_array::RecordBatch,
            ) -> ::std::result::Result<Self, $crate::store::reader::ReadError> {
                Ok(Self {
                    $($column: $crate::store::view::view::<$crate::store::schema::$table::$column>(batch)?,)+
                })
            }
        }
    };
}
pub use crate::columns;

/// A value of any column, for text formats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell<'a> {
    /// Unknown.
    Null,
    /// Unsigned number.
    Unsigned(u64),
    /// Signed number.
    Signed(i64),
    /// Real number.
    Real(f64),
    /// Truth value.
    Truth(bool),
    Text(&'a str),
    /// List of unsigned numbers.
    Unsigneds(&'a [u64]),
    /// List of keys.
    Keys(&'a [u32]),
    /// List of signed numbers.
    Signeds(&'a [i64]),
}

macro_rules! cells {
    ($($from:ty => |$value:ident| $cell:expr;)+) => {$(
        impl<'a> From<$from> for Cell<'a> {
            fn from($value: $from) -> Self {
                $cell
            }
        }
    )+};
}

cells! {
    u8 => |it| Self::Unsigned(it.into());
    u16 => |it| Self::Unsigned(it.into());
    u32 => |it| Self::Unsigned(it.into());
    u64 => |it| Self::Unsigned(it);
    i64 => |it| Self::Signed(it);
    f64 => |it| Self::Real(it);
    bool => |it| Self::Truth(it);
    &'a str => |it| Self::Text(it);
    &'a [u64] => |it| Self::Unsigneds(it);
    &'a [u32] => |it| Self::Keys(it);
    &'a [i64] => |it| Self::Signeds(it);
}

impl<'a, T: Into<Self>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
