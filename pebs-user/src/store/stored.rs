//! Values of rows in columns: the kind of column for each type, and the conversions between both.

use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, PrimitiveArray};

use super::columns::{
    Addresses, IntegerType, Lists, Nullable, NullableCoded, NullableReal, NullableText,
    NullableTruth, Required, RequiredCoded, Text, Truth, Typed,
};
use super::pages::coded::{Code, Small};
use super::values::View;
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

/// Values in the kind of column that is the default of their type.
macro_rules! usual {
    ($($type:ty: $column:ty, |$value:ident| $cell:expr, |$item:ident| $read:expr;)+) => {$(
        impl Usual for $type {
            type Column = $column;
        }

        unusual! { $type as $column, |$value| $cell, |$item| $read; }
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

/// The kind of a declared column: the default one for the type, or the one after `as`.
macro_rules! kind {
    ($type:ty) => {
        <$type as $crate::store::stored::Usual>::Column
    };
    ($type:ty, $kind:ty) => {
        $kind
    };
}
pub(super) use kind;
