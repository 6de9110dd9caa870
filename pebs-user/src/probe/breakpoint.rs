//! Addresses of hardware breakpoints: resolves a symbol in the traced processes.

use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol, SymbolKind};

use crate::binary::elf::{Binary, BinaryError};
use crate::binary::locate::{LocateError, locate};
use crate::binary::lookup;
use crate::binary::process::{self, FileId};
use crate::failure::Hint;
use crate::units::Pid;

/// Why a breakpoint has no address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BreakpointError {
    /// The given binary does not exist.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The binary can't be read.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// The symbol is not in it.
    #[error("symbol '{symbol}' not found in {}", path.display())]
    NoSymbol {
        /// As typed.
        symbol: String,
        /// The binary that was searched.
        path: PathBuf,
    },
    /// No binary was named, and there is no probe that implies one.
    #[error("breakpoint 'mem:{0}' names no binary")]
    NoBinary(String),
    /// The binary has another address in every process, and no process was given.
    #[error("the address of '{0}' differs from process to process")]
    NoProcess(String),
    /// The process has not mapped the binary.
    #[error("process {} has not mapped {}", pid.0, path.display())]
    NotMapped {
        /// Process.
        pid: Pid,
        /// Binary.
        path: PathBuf,
    },
}

impl Hint for BreakpointError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Locate(error) => return error.hint(),
            Self::Binary(error) => return error.hint(),
            Self::NoSymbol { path, symbol } => {
                format!(
                    "'pebs-trace probes {} {symbol}' lists functions",
                    path.display()
                )
            }
            Self::NoBinary(symbol) => format!("write mem:BIN:{symbol}:x"),
            Self::NoProcess(_) => "trace one process, with -p PID or -- CMD".to_owned(),
            Self::NotMapped { .. } => {
                "a library is mapped once the program runs: start it, then trace it with -p PID"
                    .to_owned()
            }
        })
    }
}

/// The virtual address of `[BIN:]SYMBOL[+OFF]` in all of `pids`.
///
/// Without `BIN` the binary is `default`. Without processes the binary must be one that is always
/// loaded at the same address.
///
/// # Errors
/// [`BreakpointError`].
pub(crate) fn address(
    place: &str,
    default: Option<&Path>,
    pids: &[Pid],
) -> Result<u64, BreakpointError> {
    let (binary, symbol) = match place.rsplit_once(':') {
        // `ns::function` is a symbol, not a binary.
        Some((binary, symbol)) if !binary.ends_with(':') => {
            (Some(locate(binary, pids.first().copied())?), symbol)
        }
        _ => (None, place),
    };
    let path = match (&binary, default) {
        (Some(path), _) => path.as_path(),
        (None, Some(path)) => path,
        (None, None) => return Err(BreakpointError::NoBinary(place.to_owned())),
    };
    let binary = Binary::open(path)?;
    let in_file = symbol_address(&binary, symbol).ok_or_else(|| BreakpointError::NoSymbol {
        symbol: symbol.to_owned(),
        path: path.to_owned(),
    })?;
    if is_fixed(&binary) {
        return Ok(in_file);
    }
    let not_one = || BreakpointError::NoProcess(place.to_owned());
    let offset = binary.file_offset(in_file).ok_or_else(not_one)?;
    let mut found = None;
    for &pid in pids {
        let address = in_process(pid, path, offset).ok_or_else(|| BreakpointError::NotMapped {
            pid,
            path: path.to_owned(),
        })?;
        if found.is_some_and(|other| other != address) {
            return Err(not_one());
        }
        found = Some(address);
    }
    found.ok_or_else(not_one)
}

/// A function's or variable's address in the file.
fn symbol_address(binary: &Binary, typed: &str) -> Option<u64> {
    let (name, offset) = match typed.rsplit_once('+') {
        Some((name, offset)) => (name, number(offset)?),
        None => (typed, 0),
    };
    let start = lookup::function(binary, name)
        .ok()
        .map(|found| found.address);
    start
        .or_else(|| variable(binary, name))
        .map(|start| start + offset)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn variable(binary: &Binary, name: &str) -> Option<u64> {
    let elf = binary.elf()?;
    let found = elf.symbols().chain(elf.dynamic_symbols()).find(|symbol| {
        symbol.kind() == SymbolKind::Data && symbol.name() == Ok(name) && symbol.address() != 0
    });
    found.map(|symbol| symbol.address())
}

/// Whether the binary is always loaded at its link-time addresses.
fn is_fixed(binary: &Binary) -> bool {
    binary
        .elf()
        .is_some_and(|elf| elf.kind() == object::ObjectKind::Executable)
}

/// Address at which a process has mapped a file offset; `None` if it has not.
pub(super) fn in_process(pid: Pid, path: &Path, offset: u64) -> Option<u64> {
    let file = FileId::of(path)?;
    let mappings = process::mappings(pid)?;
    mappings.iter().find_map(|it| it.address_of(file, offset))
}
