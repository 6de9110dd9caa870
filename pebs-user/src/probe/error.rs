//! Errors of resolving probes, with hints.

use std::path::PathBuf;

use super::unwind::URETPROBE_RISK;
use crate::binary::elf::{BinaryError, Tables};
use crate::binary::locate::LocateError;
use crate::binary::lookup::Unknown;
use crate::failure::Hint;
use crate::spec::{SpecError, written};

/// An error of resolving the probes of a run. The text is one line (a [`SpecError`] adds the SPEC and a caret);
/// [`Self::hint`] gives the hint.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// A SPEC that can't be parsed, or reads a value that does not exist at its place.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// No file.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// A file that is no binary of this machine.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// A name that does not match exactly one function.
    #[error(transparent)]
    Function(Box<FunctionError>),
    /// An address that can't be probed.
    #[error("cannot probe {place} in {path}: {why}")]
    Address {
        /// As typed.
        place: String,
        /// The binary.
        path: PathBuf,
        /// Why not.
        why: String,
        /// Hint, if there is one.
        advice: Option<String>,
    },
    /// The returns of a function can't be marked safely.
    #[error("cannot mark the returns of {name} in {path}: {why}")]
    Returns {
        /// The function.
        name: String,
        /// The binary.
        path: PathBuf,
        /// Reason for the ambiguity.
        why: String,
    },
    /// A line without code, or no line table.
    #[error("cannot find line {line} of {file} in {path}: {why}")]
    Line {
        /// Source file as typed.
        file: String,
        line: u32,
        /// The binary.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A USDT probe that the binary does not have.
    #[error("USDT probe {name} not found in {path}{}", if *any { "" } else { " (it has none)" })]
    Usdt {
        /// `provider:name`.
        name: String,
        /// The binary.
        path: PathBuf,
        /// Whether the binary has other probes.
        any: bool,
    },
    /// Two places use one column with different types: of two probes, or sites of a USDT probe.
    #[error("column '{name}' is {first} at one place and {second} at another")]
    ColumnType {
        name: String,
        /// First type.
        first: String,
        /// Second type.
        second: String,
    },
    /// More than the eBPF programs support.
    #[error("{what}: {count}, {limit} at most")]
    TooMany {
        what: String,
        /// Number given.
        count: usize,
        limit: usize,
    },
}

/// A name that does not match exactly one function of a binary.
#[derive(Debug, thiserror::Error)]
#[error("{}", unknown(name, path, tables, why))]
pub struct FunctionError {
    /// As typed.
    pub name: String,
    /// The binary.
    pub path: PathBuf,
    /// Symbol tables of the binary.
    pub tables: Tables,
    /// Why not.
    pub why: Unknown,
    /// Library that exports it, for an imported function.
    pub library: Option<String>,
}

impl Hint for ResolveError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Spec(error) => error.hint.clone(),
            Self::Locate(error) => error.hint(),
            Self::Binary(error) => error.hint(),
            Self::Function(error) => Some(function_hint(error)),
            Self::Address { path, advice, .. } => advice.clone().or_else(|| {
                Some(format!(
                    "'pebs-trace probes {}' lists functions and their addresses",
                    path.display()
                ))
            }),
            Self::Returns { name, .. } => Some(format!(
                "name the end yourself (BIN:{name}..END); '--return uretprobe' needs no exits, but {URETPROBE_RISK}"
            )),
            Self::Line { .. } => Some(
                "FILE:LINE needs the line table of a binary built with -g; FUNC+OFF and 0xADDR do not"
                    .to_owned(),
            ),
            Self::Usdt { path, .. } => Some(format!(
                "'pebs-trace probes {}' lists what can be probed",
                path.display()
            )),
            Self::ColumnType { name, .. } => {
                Some(format!("give it one type at all of them ({name}=arg1:i32), or another name in one of the probes"))
            }
            Self::TooMany { .. } => None,
        }
    }
}

/// Message for a name that does not match exactly one function.
fn unknown(name: &str, path: &std::path::Path, tables: &Tables, why: &Unknown) -> String {
    let path = path.display();
    match why {
        Unknown::NotFound(_) => {
            format!("function '{name}' not found in {path}{}", describe(tables))
        }
        Unknown::Inlined(_) => format!(
            "function '{name}' of {path} has no code of its own: it was inlined wherever it is called"
        ),
        Unknown::Imported => {
            format!("function '{name}' is used by {path} but lies in another library")
        }
        Unknown::Indirect(_) => format!(
            "cannot probe '{name}' in {path}: it is an indirect function, chosen among several when \
             the program starts"
        ),
        Unknown::Ambiguous(list) => {
            format!(
                "'{name}' means {} functions of {path}: {}",
                list.len(),
                places(list)
            )
        }
    }
}

/// Maximum number of functions listed for an ambiguous name.
const LISTED: usize = 12;

/// Names as they are written in a SPEC.
fn places(names: &[String]) -> String {
    let listed: Vec<String> = names.iter().take(LISTED).map(|it| written(it)).collect();
    match names.len().saturating_sub(LISTED) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

/// Describes the binary's symbol tables, if that explains the missing name.
fn describe(tables: &Tables) -> String {
    let count = |n: usize| match n {
        0 => "no functions".to_owned(),
        1 => "1 function".to_owned(),
        n => format!("{n} functions"),
    };
    match tables.symtab {
        None if tables.pclntab > 0 => {
            format!(" (stripped: Go's own table has {})", count(tables.pclntab))
        }
        None => format!(
            " (stripped: no .symtab; .dynsym has {})",
            count(tables.dynsym)
        ),
        Some(_) => String::new(),
    }
}

fn function_hint(error: &FunctionError) -> String {
    let FunctionError { name, why, .. } = error;
    let path = error.path.display();
    match why {
        Unknown::NotFound(near) if near.is_empty() && error.tables.is_stripped() => format!(
            "install its debug symbols, or probe by address (BIN:0xADDR): 'pebs-trace probes {path}' lists where \
             functions begin"
        ),
        Unknown::NotFound(near) if near.is_empty() => {
            format!("no name is similar; 'pebs-trace probes {path}' lists what can be probed")
        }
        Unknown::NotFound(near) => format!(
            "did you mean {}? 'pebs-trace probes {path} PATTERN' lists what can be probed",
            places(near)
        ),
        Unknown::Inlined(callers) => {
            let callers: Vec<String> = callers.iter().map(|it| written(it)).collect();
            format!(
                "probe who calls it: {path}:{}; --inlined gives it samples of its own",
                callers.join(&format!(", {path}:"))
            )
        }
        Unknown::Imported => match &error.library {
            Some(library) => format!("probe it there: {library}:{name}"),
            None => format!("'ldd {path}' lists the libraries that may have it"),
        },
        Unknown::Indirect(list) if list.is_empty() => {
            "probe the caller, or an implementation by its address (BIN:0xADDR)".to_owned()
        }
        Unknown::Indirect(list) => {
            format!("probe an implementation: {}", list.join(", "))
        }
        Unknown::Ambiguous(list) => {
            let first = list.first().map_or_else(String::new, |it| written(it));
            format!("choose one, such as '{path}:{first}', or all with a pattern: '{path}:{name}*'")
        }
    }
}

/// Errors of options that read ids.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ItemError {
    /// The text has a fault.
    #[error("cannot read --{option} '{text}': {what}")]
    Text {
        /// Without dashes.
        option: &'static str,
        /// As typed.
        text: String,
        /// The fault.
        what: String,
        /// Correct form.
        hint: String,
    },
    /// The given binary does not exist.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The binary can't be read.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// The binary has no such variable.
    #[error("variable '{symbol}' not found in {}", path.display())]
    NoSymbol {
        /// As typed.
        symbol: String,
        /// The binary that was searched.
        path: PathBuf,
        /// Hint.
        hint: String,
    },
    /// The symbol is of another kind.
    #[error("'{symbol}' in {} is {found}", path.display())]
    WrongKind {
        /// As typed.
        symbol: String,
        /// The binary that was searched.
        path: PathBuf,
        found: &'static str,
        /// Hint.
        hint: &'static str,
    },
    /// The variable is in a library whose address can't be found.
    #[error("{} is a shared library{why}", path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// The missing part of the library.
        why: &'static str,
        /// Hint.
        hint: &'static str,
    },
}

impl Hint for ItemError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Text { hint, .. } | Self::NoSymbol { hint, .. } => Some(hint.clone()),
            Self::WrongKind { hint, .. } | Self::Library { hint, .. } => Some((*hint).to_owned()),
            Self::Locate(error) => error.hint(),
            Self::Binary(error) => error.hint(),
        }
    }
}
