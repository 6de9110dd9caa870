//! Values of a column that is read: with and without null, and of any type.

use std::ops::Deref;

use arrow_array::{Array, ArrayAccessor, ArrowPrimitiveType, PrimitiveArray};
use serde::Serialize;

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
