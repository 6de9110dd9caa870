//! Symbol tables and the dynamic section, as plain values.

use object::elf::{self, DynamicTag, SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::elf::{Sym as _, SymbolTable, VersionTable};
use object::{LittleEndian, SymbolIndex};

use super::elf::{Elf, Function};

/// Which table of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// `.symtab`
    Static,
    /// `.dynsym`
    Dynamic,
}

type Symbols<'data> = SymbolTable<'data, elf::FileHeader64<LittleEndian>>;

fn table<'file, 'data>(file: &'file Elf<'data>, which: Table) -> &'file Symbols<'data> {
    match which {
        Table::Static => file.elf_symbol_table(),
        Table::Dynamic => file.elf_dynamic_symbol_table(),
    }
}

/// Functions that a table defines. Names of `.dynsym` carry their version.
pub(super) fn symbols(file: &Elf<'_>, which: Table) -> Vec<Function> {
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
        let Some(name) = name(table, index) else {
            continue;
        };
        // Labels of the assembler and of linkers are no functions.
        if name.is_empty() || name.starts_with(".L") || name.starts_with('$') {
            continue;
        }
        functions.push(Function {
            name: with_version(versions.as_ref(), index, name),
            address: symbol.st_value(LittleEndian),
            size: symbol.st_size(LittleEndian),
            global: symbol.st_bind() != elf::STB_LOCAL,
            ifunc: r#type == STT_GNU_IFUNC,
        });
    }
    functions
}

fn name(table: &Symbols<'_>, index: SymbolIndex) -> Option<String> {
    let symbol = table.symbol(index).ok()?;
    let name = symbol.name(LittleEndian, table.strings()).ok()?;
    Some(String::from_utf8_lossy(name).into_owned())
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

/// `name@@VERSION` for the default version, `name@VERSION` for one that only old programs use.
fn with_version(versions: Option<&Versions<'_>>, index: SymbolIndex, name: String) -> String {
    let suffix = || {
        let versions = versions?;
        let index = versions.version_index(LittleEndian, index);
        let version = versions.version(index.index()).ok()??;
        let at = if index.is_hidden() { "@" } else { "@@" };
        Some(format!("{at}{}", String::from_utf8_lossy(version.name())))
    };
    match suffix() {
        Some(suffix) if !name.contains('@') => name + &suffix,
        _ => name,
    }
}

/// Functions that a file takes from others.
pub(super) fn imports(file: &Elf<'_>) -> Vec<String> {
    let table = table(file, Table::Dynamic);
    table
        .enumerate()
        .filter(|(_, symbol)| {
            symbol.st_shndx(LittleEndian) == SHN_UNDEF
                && [STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE].contains(&symbol.st_type())
        })
        .filter_map(|(index, _)| name(table, index))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Numbers of the dynamic section with a tag.
pub(super) fn dynamic_values(file: &Elf<'_>, tag: DynamicTag) -> Vec<u64> {
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
pub(super) fn dynamic_strings(file: &Elf<'_>, tag: DynamicTag) -> Vec<String> {
    let Ok(table) = file.elf_dynamic_table() else {
        return Vec::new();
    };
    table
        .iter()
        .filter(|entry| entry.tag == tag)
        .filter_map(|entry| table.string(entry).ok())
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}
