//! Reads the named arguments of visits.

use arrow_array::{Int64Array, RecordBatch, StringArray, UInt64Array};

use super::argument::{ArgColumn, ArgType, ArgValue};
use super::read_error::ReadError;
use super::view::{Nullables, View as _, view_of};

/// An argument column of a batch.
pub(crate) enum ArgView<'a> {
    U64(Nullables<'a, UInt64Array>),
    I64(Nullables<'a, Int64Array>),
    Str(Nullables<'a, StringArray>),
}

/// A borrowed argument value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ArgRef<'a> {
    U64(u64),
    I64(i64),
    Str(&'a str),
}

impl<'a> ArgView<'a> {
    /// The argument columns of a batch.
    pub(crate) fn all(
        batch: &'a RecordBatch,
        columns: &[ArgColumn],
    ) -> Result<Vec<Self>, ReadError> {
        let typed = |column: &ArgColumn| {
            Ok(match column.r#type {
                ArgType::U64 => Self::U64(view_of(batch, &column.name)?),
                ArgType::I64 => Self::I64(view_of(batch, &column.name)?),
                ArgType::Str => Self::Str(view_of(batch, &column.name)?),
            })
        };
        columns.iter().map(typed).collect()
    }

    /// The value in a row; `None` if it is null.
    pub(crate) fn get(&self, row: usize) -> Option<ArgRef<'a>> {
        match self {
            Self::U64(column) => column.get(row).map(ArgRef::U64),
            Self::I64(column) => column.get(row).map(ArgRef::I64),
            Self::Str(column) => column.get(row).map(ArgRef::Str),
        }
    }
}

impl ArgRef<'_> {
    pub(crate) fn to_value(self) -> ArgValue {
        match self {
            Self::U64(value) => ArgValue::U64(value),
            Self::I64(value) => ArgValue::I64(value),
            Self::Str(value) => ArgValue::Str(value.into()),
        }
    }
}
