//! The columns of all tables, into which rows are written.

mod batched;
mod estimates;
mod samples;

use std::fmt::Debug;

use arrow_array::types::{Int64Type, UInt64Type};

use super::argument::{ArgColumn, ArgType, ArgValue};
use super::columns::{Chunk, Column, Nullable, NullableText};
use super::declaration::declared;
#[cfg(test)]
use super::reader::Trace;
use super::row_columns::{Extend, RowColumns};
// Rows and columns of every table.
use super::schema::*;
use super::table::Table;
use batched::Batched;
use samples::Samples;

/// A row of a table.
pub trait Row: Sized {
    const TABLE: Table;

    /// Appends rows; returns whether the columns should be written before more are added.
    fn write(rows: &[Self], columns: &mut Columns) -> bool;
}

/// Columns created for a trace with these argument columns.
pub trait NewColumns {
    /// Creates columns without rows.
    fn new(args: &[ArgColumn]) -> Self;
}

impl<C: Default> NewColumns for C {
    fn new(_: &[ArgColumn]) -> Self {
        Self::default()
    }
}

macro_rules! writes {
    ($(
        $(#[doc = $about:literal])+
        $table:ident = $variant:ident, $row:ident $(<$life:lifetime>)? $(($($derive:ident),+))?, $columns:ident $(in $writer:ty)? {
            $(
                $(#[doc = $words:literal])+
                $column:ident: $type:ty $(as $kind:ty)?,
            )+
        }
    )+) => {
        /// Rows of all tables, in columns.
        #[derive(Debug)]
        pub struct Columns {
            $(pub(super) $table: writes!(@writer $columns $(, $writer)?),)+
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
                super::schema::$table::each(trace, |row| {
                    assert_eq!(row, $row::numbered(n));
                    n += 1;
                }).unwrap();
                assert_eq!(n, rows, stringify!($table));
            )+
        }

        $(
            impl $(<$life>)? Row for $row $(<$life>)? {
                const TABLE: Table = Table::$variant;

                #[inline(always)]
                fn write(rows: &[Self], columns: &mut Columns) -> bool {
                    columns.$table.extend(rows);
                    columns.$table.is_full()
                }
            }
        )+
    };
    (@writer $columns:ident) => { $columns };
    (@writer $columns:ident, $writer:ty) => { $writer };
}

declared!(writes);

/// Maximum bytes of argument text in memory, give or take a page.
const GROUP_TEXT_BYTES: usize = 8 << 20;

/// An argument column.
#[derive(Debug)]
enum ArgBuilder {
    U64(Nullable<UInt64Type>),
    I64(Nullable<Int64Type>),
    Str(NullableText),
}

impl ArgBuilder {
    fn new(kind: ArgType) -> Self {
        match kind {
            ArgType::U64 => Self::U64(Nullable::default()),
            ArgType::I64 => Self::I64(Nullable::default()),
            ArgType::Str => Self::Str(NullableText::default()),
        }
    }

    /// Appends a value, or null and `false` if it has another type than the column.
    #[inline]
    fn push(&mut self, value: Option<&ArgValue>) -> bool {
        match (self, value) {
            (Self::U64(column), Some(ArgValue::U64(value))) => column.push(Some(*value)),
            (Self::I64(column), Some(ArgValue::I64(value))) => column.push(Some(*value)),
            (Self::Str(column), Some(ArgValue::Str(value))) => column.push(Some(value)),
            (Self::U64(column), other) => {
                column.push(None);
                return other.is_none();
            }
            (Self::I64(column), other) => {
                column.push(None);
                return other.is_none();
            }
            (Self::Str(column), other) => {
                column.push(None);
                return other.is_none();
            }
        }
        true
    }

    fn text_bytes(&self) -> usize {
        match self {
            Self::U64(_) | Self::I64(_) => 0,
            Self::Str(column) => column.text_bytes(),
        }
    }

    fn as_column(&mut self) -> &mut dyn Column {
        match self {
            Self::U64(column) => column,
            Self::I64(column) => column,
            Self::Str(column) => column,
        }
    }
}

/// Columns of `visits`: the fixed ones and one per named argument.
#[derive(Debug)]
pub struct VisitColumns {
    fixed: Batched<VisitFields, Vec<VisitRow>>,
    args: Vec<ArgBuilder>,
}

impl NewColumns for VisitColumns {
    fn new(args: &[ArgColumn]) -> Self {
        Self {
            fixed: Batched::default(),
            args: args.iter().map(|a| ArgBuilder::new(a.r#type)).collect(),
        }
    }
}

/// Appends visits without arguments.
impl Extend<VisitRow> for VisitColumns {
    fn extend(&mut self, rows: &[VisitRow]) {
        for row in rows {
            // Without arguments none can have a wrong type.
            let _ = self.push(&[], |to| *to = *row);
        }
    }
}

impl VisitColumns {
    /// Appends a row filled in by `fill`. A missing argument is null; so is one of the wrong type.
    ///
    /// # Errors
    /// The index of the first argument whose type is not its column's. The row was appended.
    #[inline]
    pub(super) fn push(
        &mut self,
        args: &[Option<ArgValue>],
        fill: impl FnOnce(&mut VisitRow),
    ) -> Result<(), usize> {
        fill(self.fixed.push_default());
        let mut wrong = None;
        for (index, column) in self.args.iter_mut().enumerate() {
            let value = args.get(index).and_then(Option::as_ref);
            if !column.push(value) && wrong.is_none() {
                wrong = Some(index);
            }
        }
        wrong.map_or(Ok(()), Err)
    }
}

impl RowColumns for VisitColumns {
    #[inline]
    fn rows(&self) -> usize {
        self.fixed.rows()
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.fixed.is_full()
            || self.args.iter().map(ArgBuilder::text_bytes).sum::<usize>() >= GROUP_TEXT_BYTES
    }

    fn end(&mut self) -> Vec<Chunk<'_>> {
        let mut chunks = self.fixed.end();
        chunks.extend(self.args.iter_mut().map(|arg| arg.as_column().end()));
        chunks
    }

    fn clear(&mut self) {
        self.fixed.clear();
        for column in &mut self.args {
            column.as_column().clear();
        }
    }

    fn end_segment(&mut self) {
        self.fixed.end_segment();
    }
}

#[cfg(test)]
mod tests;
