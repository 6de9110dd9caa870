//! A named argument of visits: the type of its column, and its value.

use serde::{Deserialize, Serialize};

/// Type of an argument column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgType {
    /// Arrow UInt64.
    U64,
    /// Arrow Int64.
    I64,
    /// Arrow Utf8; bytes that are not UTF-8 are escaped as `\xNN`.
    Str,
}

/// A column of `visits` that holds a named argument. Probes may share one if the types agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgColumn {
    /// Name of the column: the argument's name in the SPEC.
    pub name: String,
    /// Its type.
    pub r#type: ArgType,
}

/// Value of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArgValue {
    /// Unsigned number.
    U64(u64),
    /// Signed number.
    I64(i64),
    /// String.
    Str(Box<str>),
}
