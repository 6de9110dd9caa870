//! Addresses of hardware breakpoints: resolves a symbol in the traced processes.

use std::path::{Path, PathBuf};

use object::{Object, ObjectSegment as _, ObjectSymbol, SymbolKind};

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
        /// Whether data was to be watched.
        data: bool,
    },
    /// Several variables have the name.
    #[error("{} has {count} variables named '{symbol}'", path.display())]
    Ambiguous {
        symbol: String,
        path: PathBuf,
        count: usize,
    },
    /// Each thread has its own.
    #[error("'{symbol}' of {} is thread-local: each thread has it at another address", path.display())]
    ThreadLocal { symbol: String, path: PathBuf },
    /// The address is no multiple of the length.
    #[error("cannot watch {bytes} bytes of '{place}': {address:#x} is not a multiple of {bytes}")]
    Unaligned {
        place: String,
        address: u64,
        bytes: u32,
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
            Self::NoSymbol { path, data, .. } if *data => {
                format!(
                    "'nm {}' lists variables; where it is stripped, give the address: mem:0xADDR/LEN:rw",
                    path.display()
                )
            }
            Self::NoSymbol { path, symbol, .. } => {
                format!(
                    "'pebs-trace probes {} {symbol}' lists functions",
                    path.display()
                )
            }
            Self::Ambiguous { path, symbol, .. } => format!(
                "'nm {} | grep {symbol}' lists them: give the address of one in the process, mem:0xADDR/LEN:rw",
                path.display()
            ),
            Self::ThreadLocal { .. } => {
                "give its address in one thread, as a debugger prints it: mem:0xADDR/LEN:rw"
                    .to_owned()
            }
            Self::Unaligned { .. } => {
                "a breakpoint covers 1, 2, 4 or 8 bytes from a multiple of that on: append /LEN, or +OFF"
                    .to_owned()
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

/// Place of a breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Virtual address in the processes.
    pub address: u64,
    /// Bytes of the variable from there to its end; `None`: a function, or not known.
    pub bytes: Option<u64>,
}

impl Found {
    /// Bytes to watch: those given; else as much of a variable as one breakpoint covers; else `bytes`.
    ///
    /// # Errors
    /// If no breakpoint can be on so many bytes there.
    pub(crate) fn watch(
        self,
        place: &str,
        has_len: bool,
        bytes: u32,
    ) -> Result<u32, BreakpointError> {
        let fits = |bytes: &u32| {
            let bytes = u64::from(*bytes);
            self.bytes.is_some_and(|size| bytes <= size) && self.address.is_multiple_of(bytes)
        };
        let covered = [8, 4, 2, 1].into_iter().find(fits);
        let bytes = covered.filter(|_| !has_len).unwrap_or(bytes);
        if !self.address.is_multiple_of(bytes.into()) {
            return Err(BreakpointError::Unaligned {
                place: place.to_owned(),
                address: self.address,
                bytes,
            });
        }
        Ok(bytes)
    }
}

/// The place of `[BIN:]SYMBOL[+OFF]` in all of `pids`. `data`: loads or stores are watched.
///
/// Without `BIN` the binary is `default`. Without processes the binary must be one that is always
/// loaded at the same address.
///
/// # Errors
/// [`BreakpointError`].
pub(crate) fn find(
    place: &str,
    data: bool,
    default: Option<&Path>,
    pids: &[Pid],
) -> Result<Found, BreakpointError> {
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
    let in_file = symbol_in(&binary, symbol, data)?.ok_or_else(|| BreakpointError::NoSymbol {
        symbol: symbol.to_owned(),
        path: path.to_owned(),
        data,
    })?;
    if is_fixed(&binary) {
        return Ok(in_file);
    }
    let not_one = || BreakpointError::NoProcess(place.to_owned());
    // Zeroed data has no offset in the file, so that the first mapped byte tells where the whole file is.
    let (first, offset) = first_mapped(&binary).ok_or_else(not_one)?;
    let mut found = None;
    for &pid in pids {
        let start = in_process(pid, path, offset).ok_or_else(|| BreakpointError::NotMapped {
            pid,
            path: path.to_owned(),
        })?;
        let address = in_file.address.wrapping_add(start.wrapping_sub(first));
        if found.is_some_and(|other| other != address) {
            return Err(not_one());
        }
        found = Some(address);
    }
    let address = found.ok_or_else(not_one)?;
    Ok(Found { address, ..in_file })
}

/// Address and offset of the first mapped byte of a file.
fn first_mapped(binary: &Binary) -> Option<(u64, u64)> {
    let elf = binary.elf()?;
    let segment = elf.segments().find(|it| it.file_range().1 > 0)?;
    Some((segment.address(), segment.file_range().0))
}

/// A variable or function, at its address in the file.
fn symbol_in(binary: &Binary, typed: &str, data: bool) -> Result<Option<Found>, BreakpointError> {
    let (name, offset) = match typed.rsplit_once('+') {
        Some((name, offset)) => match number(offset) {
            Some(offset) => (name, offset),
            None => return Ok(None),
        },
        None => (typed, 0),
    };
    let function = || {
        let found = lookup::function(binary, name).ok()?;
        Some((found.address, None))
    };
    let variable = || variable(binary, name);
    let found = match data {
        true => variable()?.or_else(function),
        false => function().map_or_else(variable, |it| Ok(Some(it)))?,
    };
    Ok(found.map(|(start, size)| Found {
        address: start.wrapping_add(offset),
        bytes: size.and_then(|size| size.checked_sub(offset)),
    }))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Address and size of the only variable of that name.
fn variable(binary: &Binary, name: &str) -> Result<Option<(u64, Option<u64>)>, BreakpointError> {
    let Some(elf) = binary.elf() else {
        return Ok(None);
    };
    let named = elf.symbols().chain(elf.dynamic_symbols());
    let named = named.filter(|it| it.name() == Ok(name) && !it.is_undefined());
    let (mut found, mut is_local) = (Vec::new(), false);
    for symbol in named {
        is_local |= symbol.kind() == SymbolKind::Tls;
        if symbol.kind() == SymbolKind::Data && symbol.address() != 0 {
            found.push((symbol.address(), symbol.size()));
        }
    }
    found.sort_unstable();
    found.dedup_by_key(|it| it.0);
    let (symbol, path) = (name.to_owned(), binary.path.clone());
    match found.as_slice() {
        [] if is_local => Err(BreakpointError::ThreadLocal { symbol, path }),
        [] => Ok(None),
        [(address, size)] => Ok(Some((*address, Some(*size).filter(|size| *size > 0)))),
        several => Err(BreakpointError::Ambiguous {
            symbol,
            path,
            count: several.len(),
        }),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a length a variable is watched as far as a breakpoint reaches; what can't be set is refused.
    #[test]
    fn lengths() {
        let watch = |address, bytes, has_len| Found { address, bytes }.watch("a", has_len, 4).ok();
        assert_eq!(watch(0x1000, Some(64), false), Some(8));
        assert_eq!(watch(0x1004, Some(64), false), Some(4));
        assert_eq!(watch(0x1000, Some(8), false), Some(8));
        assert_eq!(watch(0x1000, Some(3), false), Some(2));
        assert_eq!(watch(0x1001, Some(1), false), Some(1));
        assert_eq!(watch(0x1000, Some(64), true), Some(4));
        assert_eq!(watch(0x1000, None, false), Some(4));
        assert_eq!(watch(0x1002, None, false), None);
        assert_eq!(watch(0x1002, Some(8), true), None);
    }
}
