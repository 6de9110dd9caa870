//! Symbol tables and the dynamic section, as plain values.

use object::elf::{self, DynamicTag, SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::elf::{Sym as _, SymbolTable, VersionTable};
use object::{LittleEndian, Object, ObjectSymbol as _, SymbolIndex, SymbolKind};

use super::debug_data;
use super::object_file::Elf;
use crate::terminal::shown;

/// Symbol table of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// `.symtab`
    Static,
    /// `.dynsym`
    Dynamic,
}

/// A function symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Name as in the symbol table, with its version (`memcpy@@GLIBC_2.14`), mangled.
    pub name: String,
    /// Virtual address in the file.
    pub address: u64,
    /// Size in bytes; 0: unknown.
    pub size: u64,
    /// Visible to other objects.
    pub global: bool,
    /// Chosen by a resolver when the program starts; the address is the resolver's.
    pub ifunc: bool,
}

/// Maximum length of a name, bytes. C++ templates reach some KiB.
const NAME_MAX: usize = 64 << 10;

/// Maximum total length of the names in `.dynsym` where the file's size is not known, bytes.
const DYNAMIC_NAMES: usize = 64 << 20;

/// Copies names out of a file. All symbols may share one long name, which costs the file nothing: so the total size
/// is limited.
pub(crate) struct Names {
    left: usize,
}

impl Names {
    /// For a file of that size. Names that share their ends make the sum larger than the table, but not by much.
    pub(crate) fn of(file: &Elf<'_>) -> Self {
        Self::of_len(file.data().len() as u64)
    }

    /// For a file of that many bytes.
    pub(crate) fn of_len(len: u64) -> Self {
        Self {
            left: usize::try_from(len).unwrap_or(usize::MAX).saturating_mul(4),
        }
    }

    /// A name with control characters escaped, for messages. `None` if it is too long, or the total limit is
    /// reached.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<String> {
        if bytes.len() > NAME_MAX {
            return None;
        }
        self.left = self.left.checked_sub(bytes.len())?;
        Some(shown(&String::from_utf8_lossy(bytes)).into_owned())
    }
}

type Symbols<'data> = SymbolTable<'data, elf::FileHeader64<LittleEndian>>;

fn table<'file, 'data>(file: &'file Elf<'data>, which: Table) -> &'file Symbols<'data> {
    match which {
        Table::Static => file.elf_symbol_table(),
        Table::Dynamic => file.elf_dynamic_symbol_table(),
    }
}

/// Functions that a table defines. Names of `.dynsym` carry their version.
pub(crate) fn symbols(file: &Elf<'_>, which: Table, names: &mut Names) -> Vec<Function> {
    let table = table(file, which);
    let versions = versions(file, which);
    let mut functions = Vec::new();
    for (index, symbol) in table.enumerate() {
        let r#type = symbol.st_type();
        if symbol.st_shndx(LittleEndian) == SHN_UNDEF
            || ![STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE].contains(&r#type)
            || symbol.st_value(LittleEndian) == 0
        {
            continue;
        }
        let Some(name) = name(table, index, names) else {
            continue;
        };
        // Labels of the assembler and of linkers are no functions.
        if name.is_empty() || name.starts_with(".L") || name.starts_with('$') {
            continue;
        }
        functions.push(Function {
            name: with_version(versions.as_ref(), index, name, names),
            address: symbol.st_value(LittleEndian),
            size: symbol.st_size(LittleEndian),
            global: symbol.st_bind() != elf::STB_LOCAL,
            ifunc: r#type == STT_GNU_IFUNC,
        });
    }
    functions
}

/// The functions of a stripped file with an ELF file of symbols within ([`debug_data::embedded`]), by address: those of
/// that file and of `.dynsym`. `None` if there is no such file.
pub(crate) fn embedded_symbols<'data>(file: &impl Object<'data>) -> Option<Vec<Function>> {
    let data = debug_data::embedded(file)?;
    let embedded = Elf::parse(&*data).ok()?;
    let mut functions = symbols(&embedded, Table::Static, &mut Names::of(&embedded));
    let mut names = Names {
        left: DYNAMIC_NAMES,
    };
    let dynamic = file.dynamic_symbols();
    let dynamic = dynamic.filter(|it| it.is_definition() && it.kind() == SymbolKind::Text);
    functions.extend(dynamic.filter_map(|symbol| {
        Some(Function {
            name: names.take(symbol.name_bytes().ok()?)?,
            address: symbol.address(),
            size: symbol.size(),
            global: symbol.is_global(),
            ifunc: false,
        })
    }));
    functions.sort_by_key(|it| (it.address, it.size));
    Some(functions)
}

fn name(table: &Symbols<'_>, index: SymbolIndex, names: &mut Names) -> Option<String> {
    let symbol = table.symbol(index).ok()?;
    names.take(symbol.name(LittleEndian, table.strings()).ok()?)
}

type Versions<'data> = VersionTable<'data, elf::FileHeader64<LittleEndian>>;

/// Versions of the symbols in `.dynsym`.
fn versions<'data>(file: &Elf<'data>, which: Table) -> Option<Versions<'data>> {
    if which == Table::Static {
        return None;
    }
    let sections = file.elf_section_table();
    sections.versions(LittleEndian, file.data()).ok().flatten()
}

/// `name@@VERSION` for the default version, `name@VERSION` for one used only by old programs.
fn with_version(
    versions: Option<&Versions<'_>>,
    index: SymbolIndex,
    name: String,
    names: &mut Names,
) -> String {
    let mut suffix = || {
        let versions = versions?;
        let index = versions.version_index(LittleEndian, index);
        let version = versions.version(index.index()).ok()??;
        let at = if index.is_hidden() { "@" } else { "@@" };
        Some(format!("{at}{}", names.take(version.name())?))
    };
    match suffix() {
        Some(suffix) if !name.contains('@') => name + &suffix,
        _ => name,
    }
}

/// Functions that a file imports.
pub(crate) fn imports(file: &Elf<'_>, names: &mut Names) -> Vec<String> {
    let table = table(file, Table::Dynamic);
    table
        .enumerate()
        .filter(|(_, symbol)| {
            symbol.st_shndx(LittleEndian) == SHN_UNDEF
                && [STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE].contains(&symbol.st_type())
        })
        .filter_map(|(index, _)| name(table, index, names))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Numbers of the dynamic section with a tag.
pub(crate) fn dynamic_values(file: &Elf<'_>, tag: DynamicTag) -> Vec<u64> {
    let Ok(table) = file.elf_dynamic_table() else {
        return Vec::new();
    };
    table
        .iter()
        .filter(|entry| entry.tag == tag)
        .map(|entry| entry.val)
        .collect()
}

/// Strings of the dynamic section with a tag.
pub(crate) fn dynamic_strings(file: &Elf<'_>, tag: DynamicTag, names: &mut Names) -> Vec<String> {
    let Ok(table) = file.elf_dynamic_table() else {
        return Vec::new();
    };
    table
        .iter()
        .filter(|entry| entry.tag == tag)
        .filter_map(|entry| table.string(entry).ok())
        .filter_map(|text| names.take(text))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symbols that share a long name get only as many bytes as the file could contain; one that is too long is
    /// skipped.
    #[test]
    fn shared_names() {
        let mut names = Names { left: 1000 };
        let name = [b'x'; 100];
        let taken = (0..50).filter_map(|_| names.take(&name)).count();
        assert_eq!(taken, 10);
        let mut names = Names { left: usize::MAX };
        assert_eq!(names.take(&[b'x'; NAME_MAX + 1]), None);
        assert_eq!(names.take(b"a\x1b[2J\n").as_deref(), Some("a\\u{1b}[2J\\n"));
    }
}
