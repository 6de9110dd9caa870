//! Argument expressions: the values to read from the target at a mark.
//!
//! `arg1`, `%rdi`, `retval`, `arg1+8`, `*(arg1+16):u32`, `*(*(arg1+8)+4):i16`, `str(arg2, 32)`, `str(*(arg1+8),
//! *arg1)`, `arg1:u32`. Pure text; [`crate::probe::program`] compiles an expression for the eBPF program.

mod parse;

use crate::arch::Register;
pub(crate) use parse::{number, parse, parse_ids};

/// Maximum bytes of a string: the largest payload minus the length word.
pub(crate) const STRING_MAX: u32 = 464;

/// Type read by a dereference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Unsigned number of this many bytes.
    Unsigned(u8),
    /// Signed number of this many bytes.
    Signed(u8),
    /// NUL-terminated string.
    Str,
}

impl Type {
    /// Bytes of a number, 0 for a string.
    #[must_use]
    pub const fn width(self) -> u8 {
        match self {
            Self::Unsigned(width) | Self::Signed(width) => width,
            Self::Str => 0,
        }
    }
}

/// Names of the types, for parsing and for hints.
const TYPES: [(&str, Type); 10] = [
    ("u8", Type::Unsigned(1)),
    ("u16", Type::Unsigned(2)),
    ("u32", Type::Unsigned(4)),
    ("u64", Type::Unsigned(8)),
    ("i8", Type::Signed(1)),
    ("i16", Type::Signed(2)),
    ("i32", Type::Signed(4)),
    ("i64", Type::Signed(8)),
    ("ptr", Type::Unsigned(8)),
    ("str", Type::Str),
];

/// The type of that name.
pub(crate) fn type_named(word: &str) -> Option<Type> {
    let found = TYPES.iter().find(|(name, _)| *name == word);
    found.map(|(_, r#type)| *r#type)
}

/// Names of all types.
pub(crate) fn type_names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, _)| *name)
}

/// The result of a function, also as the root of a [`Path`].
pub(crate) const RETVAL: &str = "retval";

/// A C-like path: an argument by its name, then fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Name of the argument.
    pub root: String,
    /// Field accesses after it.
    pub steps: Vec<Step>,
}

/// A step of a [`Path`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `->FIELD`
    Arrow(String),
    /// `.FIELD`
    Dot(String),
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// `argN`, N from 1.
    Arg(u32),
    /// `%rdi`.
    Reg(Register),
    Retval,
    /// `pkt->hdr.id`: needs debug information.
    Path(Path),
    /// A constant added.
    Add(Box<Self>, i64),
    /// `*X` or `*(X):TYPE`; without a type it reads 8 bytes, unsigned.
    Deref(Box<Self>, Option<Type>),
    /// `str(X)` or `str(X, MOST)`: up to a NUL, at most MOST bytes kept.
    Str(Box<Self>, Option<u32>),
    /// An array of this many characters at X: up to a NUL or its end, at most MOST bytes kept. Made of a path.
    Chars(Box<Self>, u32, Option<u32>),
    /// `str(X, LENGTH)` or `str(X, LENGTH, MOST)`: LENGTH bytes, at most MOST kept.
    Text(Box<Self>, Box<Self>, Option<u32>),
    /// `X:TYPE` where X is not a dereference: its low bytes.
    Cast(Box<Self>, Type),
}

impl Expr {
    /// Whether the value exists only at a return.
    #[must_use]
    pub fn uses_retval(&self) -> bool {
        match self {
            Self::Retval => true,
            Self::Path(path) => path.root == RETVAL,
            Self::Arg(_) | Self::Reg(_) => false,
            Self::Add(inner, _)
            | Self::Deref(inner, _)
            | Self::Str(inner, _)
            | Self::Chars(inner, ..)
            | Self::Cast(inner, _) => inner.uses_retval(),
            Self::Text(inner, length, _) => inner.uses_retval() || length.uses_retval(),
        }
    }
}

impl Expr {
    /// Whether there is a path in it.
    #[must_use]
    pub fn has_path(&self) -> bool {
        match self {
            Self::Path(_) => true,
            Self::Arg(_) | Self::Reg(_) | Self::Retval => false,
            Self::Add(inner, _)
            | Self::Deref(inner, _)
            | Self::Str(inner, _)
            | Self::Chars(inner, ..)
            | Self::Cast(inner, _) => inner.has_path(),
            Self::Text(inner, length, _) => inner.has_path() || length.has_path(),
        }
    }
}

/// `ARRAY[COUNT]:TYPE` or `ARRAY[COUNT]->FIELD:TYPE`: the ids of the items of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Address of the first.
    pub array: Expr,
    /// Number of ids.
    pub count: Expr,
    /// Set if the array holds pointers to the ids.
    pub behind: Option<Behind>,
    /// Type of an id; if missing, from the debug information, else `u64`.
    pub r#type: Option<Type>,
    /// Byte of the expression in the SPEC.
    pub at: usize,
}

/// Location of an id relative to the pointer in an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// At this offset, bytes.
    Offset(i64),
    /// In this field: the first after an arrow, the others after dots. Needs debug information.
    Field(Vec<Step>),
}

/// A parse error: position, cause and hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Byte in the text.
    pub at: usize,
    /// The fault, lower case.
    pub what: String,
    /// Correct form.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault without a hint.
    pub fn new(at: usize, what: impl Into<String>) -> Self {
        Self {
            at,
            what: what.into(),
            hint: None,
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
