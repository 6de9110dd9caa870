//! Schemas of the tables, and what every table's columns have in common.

mod batched;
mod estimates;
mod samples;

use crate::failure::Hint;
use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt64Type};
use arrow_schema::{Field, Schema, SchemaRef};
use thiserror::Error;

use super::columns::{Chunk, Column, Nullable, NullableText};
use super::descriptions::described;
use super::schema::{
    ArgColumn, ArgType, ArgValue, Columns, SampleColumns, Table, VisitFields, VisitFunctionColumns,
    VisitRow,
};
pub use batched::{Batched, Extend};
pub use samples::Samples;

/// An invalid list of argument columns.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ColumnError {
    /// The name is a column of every trace.
    #[error("cannot name an argument '{name}': column '{column}' of table visits has that name")]
    Taken {
        /// Name of the argument.
        name: String,
        column: String,
    },
    /// Two arguments have the same name, ignoring case as SQL engines do.
    #[error("cannot name two arguments '{first}' and '{second}': SQL does not tell them apart")]
    Twice {
        /// First name.
        first: String,
        /// Second name.
        second: String,
    },
    /// The name is empty.
    #[error("cannot make a column of an argument without a name")]
    Unnamed,
}

impl Hint for ColumnError {
    fn hint(&self) -> Option<String> {
        let name = match self {
            Self::Taken { name, .. } => name,
            Self::Twice { second, .. } => second,
            Self::Unnamed => return Some("write NAME=EXPR in the probe's SPEC".to_owned()),
        };
        Some(format!(
            "'{name}' is a name in the probe's SPEC; choose another, for example '{name}_arg=EXPR'"
        ))
    }
}

/// Checks that argument columns fit beside the fixed columns of `visits`.
///
/// Case is ignored, as SQL engines do.
///
/// # Errors
/// If a name is taken, given twice, or empty.
pub fn check_columns(columns: &[ArgColumn]) -> Result<(), ColumnError> {
    let fixed = Table::Visits.columns();
    for (index, ArgColumn { name, r#type: _ }) in columns.iter().enumerate() {
        if name.is_empty() {
            return Err(ColumnError::Unnamed);
        }
        if let Some(field) = fixed.iter().find(|it| it.name.eq_ignore_ascii_case(name)) {
            return Err(ColumnError::Taken {
                name: name.clone(),
                column: field.name.to_owned(),
            });
        }
        let earlier = &columns[..index];
        if let Some(first) = earlier.iter().find(|c| c.name.eq_ignore_ascii_case(name)) {
            return Err(ColumnError::Twice {
                first: first.name.clone(),
                second: name.clone(),
            });
        }
    }
    Ok(())
}

/// Arrow schema of a table. `args`: the trace's argument columns, which `visits` has at its end. Fields have
/// descriptions, see [`super::descriptions`].
#[must_use]
pub fn table_schema(table: Table, args: &[ArgColumn]) -> SchemaRef {
    let fields = table.fields().into_iter().zip(table.columns());
    let fields = fields.map(|(field, column)| described(field, column));
    let mut fields: Vec<Field> = fields.collect();
    if table == Table::Visits {
        fields.extend(args.iter().map(ArgBuilder::field_of));
    }
    Arc::new(Schema::new(fields))
}

/// Operations of the writer on the columns of any table.
pub trait RowColumns: Debug {
    /// Rows held.
    fn rows(&self) -> usize;

    /// Whether the rows should be written before more are added.
    fn is_full(&self) -> bool;

    /// Ends the last pages and returns the chunks, in the schema's order.
    fn end(&mut self) -> Vec<Chunk<'_>>;

    /// Drops the rows; keeps the memory and the data shared by the row groups of a segment.
    fn clear(&mut self);

    /// Drops the data shared by the row groups of a segment. There are no rows.
    fn end_segment(&mut self);
}

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

/// Maximum rows of a row group; bounds the memory. With a quarter of it a trace would be 2 % larger.
pub(super) const GROUP_ROWS: usize = 256 * 1024;

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

    fn field_of(column: &ArgColumn) -> Field {
        match column.r#type {
            ArgType::U64 => Nullable::<UInt64Type>::field(&column.name),
            ArgType::I64 => Nullable::<Int64Type>::field(&column.name),
            ArgType::Str => NullableText::field(&column.name),
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
