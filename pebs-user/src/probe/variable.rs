//! Locates a variable in its file, and the base of its address in a process.

use object::read::elf::ProgramHeader as _;
use object::{LittleEndian, Object as _, ObjectSymbol as _, SymbolKind, elf};

use super::error::ItemError;
use crate::arch::machine;
use crate::binary::demangle::TypedName;
use crate::binary::elf::{Binary, BinaryType};
use crate::binary::object_file::Elf;
use crate::binary::{debug_data, lookup};

/// Maximum number of similar names suggested.
const SUGGESTED: usize = 3;

/// Hint for a variable of a library that can't be read.
pub(super) const LIBRARY_HINT: &str =
    "mark items with --uprobe BIN:FUNC(id=...), which works in a shared library too";

/// A symbol that may match.
struct SymbolMatch {
    address: u64,
    kind: SymbolKind,
}

/// Address of a variable in its file; for a thread-local one, its offset in the segment.
pub(super) fn variable(binary: &Binary, typed: &str, thread_local: bool) -> Result<u64, ItemError> {
    let (path, symbol) = (binary.path.clone(), typed.to_owned());
    let mut names = Vec::new();
    let found = binary.elf().and_then(|file| {
        // A stripped binary's debug file has the missing symbols.
        let debug = debug_data::find(&binary.path, &file);
        let debug = debug
            .as_ref()
            .and_then(|(_, data)| Elf::parse(&**data).ok());
        let of_debug = debug
            .as_ref()
            .and_then(|file| symbol_in(file, typed, &mut Vec::new()));
        symbol_in(&file, typed, &mut names).or(of_debug)
    });
    let wanted = if thread_local {
        SymbolKind::Tls
    } else {
        SymbolKind::Data
    };
    let wrong = |found, hint| {
        let (path, symbol) = (path.clone(), symbol.clone());
        Err(ItemError::WrongKind {
            symbol,
            path,
            found,
            hint,
        })
    };
    match found {
        Some(found) if found.kind == wanted => Ok(found.address),
        Some(SymbolMatch {
            kind: SymbolKind::Tls,
            ..
        }) => {
            let hint = match binary.kind {
                BinaryType::Executable => "use --item-tls",
                BinaryType::SharedLibrary => LIBRARY_HINT,
            };
            wrong("thread-local: each thread has its own", hint)
        }
        Some(SymbolMatch {
            kind: SymbolKind::Data,
            ..
        }) => wrong("not thread-local: all threads share it", "use --item-mem"),
        Some(_) => wrong(
            "no variable",
            "name a variable that holds the current item's id",
        ),
        None => {
            let shown = path.display();
            let hint = if names.is_empty() {
                format!(
                    "'nm -DC {shown}' and 'nm -C {shown}' list variables, marked B, D or b, d; install debug symbols if there are none"
                )
            } else {
                format!("did you mean {}?", names.join(", "))
            };
            Err(ItemError::NoSymbol { symbol, path, hint })
        }
    }
}

/// The symbol of that name, preferably a variable. Similar names are added to `names`.
fn symbol_in(file: &Elf<'_>, typed: &str, names: &mut Vec<String>) -> Option<SymbolMatch> {
    let mut other = None;
    let wanted = TypedName::new(typed);
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let Ok(name) = symbol.name() else { continue };
        if symbol.is_undefined() || name.is_empty() {
            continue;
        }
        let variable = matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Tls);
        if wanted.fit(name).is_some() {
            let found = SymbolMatch {
                address: symbol.address(),
                kind: symbol.kind(),
            };
            if variable {
                return Some(found);
            }
            other = other.or(Some(found));
        } else if variable && names.len() < SUGGESTED && lookup::distance(typed, name, 2).is_some()
        {
            names.push(crate::terminal::shown(name).into_owned());
        }
    }
    other
}

/// Address of the first code, as the kernel reckons it.
///
/// Source: fs/binfmt_elf.c, `load_elf_binary`: `start_code`.
pub(super) fn first_code(binary: &Binary) -> u64 {
    let addresses = segments(binary, |kind, flags| {
        kind == elf::PT_LOAD && flags & elf::PF_X.0 != 0
    });
    addresses
        .iter()
        .map(|segment| segment.address)
        .min()
        .unwrap_or(0)
}

/// Value to subtract from a variable's place in the thread-local segment to get its distance from the thread pointer.
pub(super) fn thread_pointer(binary: &Binary) -> u64 {
    let segments = segments(binary, |kind, _| kind == elf::PT_TLS);
    segments.first().map_or(0, |tls| {
        machine::thread_local(tls.address, tls.size, tls.align)
    })
}

/// A segment of a binary.
struct Segment {
    address: u64,
    size: u64,
    align: u64,
}

fn segments(binary: &Binary, wanted: impl Fn(elf::ProgramType, u32) -> bool) -> Vec<Segment> {
    let Some(file) = binary.elf() else {
        return Vec::new();
    };
    let headers = file.elf_program_headers().iter();
    headers
        .filter(|it| wanted(it.p_type(LittleEndian), it.p_flags(LittleEndian).0))
        .map(|it| Segment {
            address: it.p_vaddr(LittleEndian),
            size: it.p_memsz(LittleEndian),
            align: it.p_align(LittleEndian).max(1),
        })
        .collect()
}
