//! Arrow schemas of the tables.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_schema::{Field, Schema, SchemaRef};
use thiserror::Error;

use super::argument::{ArgColumn, ArgType};
use super::columns::{
    Addresses, Column, Nullable, NullableCoded, NullableReal, NullableText, NullableTruth,
    Required, RequiredCoded, Text,
};
use super::declaration::declared;
use super::descriptions::{Described, described};
use super::flags::{sample_flag, visit_flag};
use super::pages::coded::{Halves, Rounded, Small};
use super::stored::kind;
use super::table::Table;
use crate::failure::Hint;
use crate::units::{Cpu, EventId, FunctionId, Pid, ProbeId, StackId, Tid, TraceNs};

/// Lists of bits, as comments name them.
const FLAGS: [(&str, &[Described]); 2] = [
    ("visit_flag", visit_flag::ALL),
    ("sample_flag", sample_flag::ALL),
];

macro_rules! fields {
    ($(
        $(#[doc = $about:literal])+
        $table:ident = $variant:ident, $row:ident $(<$life:lifetime>)? $(($($derive:ident),+))?, $columns:ident $(in $writer:ty)? {
            $(
                $(#[doc = $words:literal])+
                $column:ident: $type:ty $(as $kind:ty)?,
            )+
        }
    )+) => {
        /// Arrow fields of a table's columns, named arguments aside.
        fn fields(table: Table) -> Vec<Field> {
            match table {
                $(Table::$variant => vec![
                    $(<kind!($type $(, $kind)?) as Column>::field(stringify!($column)),)+
                ],)+
            }
        }
    };
}

declared!(fields);

/// The field of an argument.
fn argument(column: &ArgColumn) -> Field {
    match column.r#type {
        ArgType::U64 => Nullable::<UInt64Type>::field(&column.name),
        ArgType::I64 => Nullable::<Int64Type>::field(&column.name),
        ArgType::Str => NullableText::field(&column.name),
    }
}

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
    let fields = fields(table).into_iter().zip(table.columns());
    let fields = fields.map(|(field, column)| described(field, column, &FLAGS));
    let mut fields: Vec<Field> = fields.collect();
    if table == Table::Visits {
        fields.extend(args.iter().map(argument));
    }
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(name: &str) -> ArgColumn {
        ArgColumn {
            name: name.to_owned(),
            r#type: ArgType::U64,
        }
    }

    /// An argument can't have the name of a fixed column or of another argument, in any case of letters.
    #[test]
    fn colliding_names_are_refused() {
        assert_eq!(check_columns(&[arg("n"), arg("kind")]), Ok(()));
        for name in ["pid", "PID", "duration_ns", "flags"] {
            let error = check_columns(&[arg("n"), arg(name)]).unwrap_err();
            assert!(matches!(error, ColumnError::Taken { .. }), "{name}");
            assert!(error.hint().unwrap().contains(name));
        }
        let error = check_columns(&[arg("n"), arg("N")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot name two arguments 'n' and 'N': SQL does not tell them apart"
        );
        assert_eq!(check_columns(&[arg("")]), Err(ColumnError::Unnamed));
    }
}
