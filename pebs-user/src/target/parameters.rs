//! Names and types of functions' arguments, from DWARF.

use std::collections::{BTreeSet, HashMap};

use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};

use super::dwarf::{DebugInfo, Slice};
use super::elf::Binary;
use super::register::Register;
use crate::terminal::shown;

/// Types behind types followed at most (`const char * const *`).
const MAX_TYPES: u32 = 12;

/// One argument of a function.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Parameter {
    /// Its name in the source.
    pub name: String,
    /// Its type in the source.
    pub r#type: String,
    /// What reads it in a SPEC (`arg1`); null where it is in no integer register or on the stack.
    pub read: Option<String>,
}

pub(super) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// Arguments of the functions at these addresses. Empty where there is no debug information.
#[must_use]
pub fn parameters(binary: &Binary, wanted: &BTreeSet<u64>) -> HashMap<u64, Vec<Parameter>> {
    let mut found = HashMap::new();
    let Some(info) = DebugInfo::load(binary) else {
        return found;
    };
    let dwarf = info.dwarf();
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        if let Ok(unit) = dwarf.unit(header) {
            let reader = Reader {
                dwarf: &dwarf,
                unit: &unit,
            };
            // A unit that can't be read to its end has given what came before.
            let _ = reader.scan(wanted, &mut found);
        }
    }
    found
}

/// Reads the entries of a unit.
pub(super) struct Reader<'u, 'a> {
    pub dwarf: &'u Dwarf<Slice<'a>>,
    pub unit: &'u Unit<Slice<'a>>,
}

/// An argument with what the debug information says of it.
pub(super) struct Typed {
    pub parameter: Parameter,
    pub kind: Option<UnitOffset>,
    pub held: Held,
}

/// Where an argument lies when its function starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// In this register.
    Register(Register),
    /// Nothing is said: where the calling convention has it.
    ByConvention,
    /// In no register: optimised away, or passed in another way.
    Nowhere,
}

/// How an argument is passed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// In an integer register, or in 8 bytes of the stack once those are used up.
    Integer,
    /// In a vector register.
    Float,
    /// By rules that are not worked out here: what follows is unknown too.
    Other,
}

impl<'a> Reader<'_, 'a> {
    fn scan(
        &self,
        wanted: &BTreeSet<u64>,
        found: &mut HashMap<u64, Vec<Parameter>>,
    ) -> gimli::Result<()> {
        let mut entries = self.unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            let address = self.address(entry)?;
            if let Some(address) = address.filter(|address| wanted.contains(address)) {
                let list = self.of_function(entry.offset(), address)?;
                let list = list.into_iter().map(|typed| typed.parameter);
                found.insert(address, list.collect());
            }
        }
        Ok(())
    }

    /// The arguments of the function that starts at an address, with their types.
    pub(super) fn function_at(&self, address: u64) -> Option<Vec<Typed>> {
        let mut entries = self.unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() == gimli::DW_TAG_subprogram
                && self.address(entry).ok().flatten() == Some(address)
            {
                return self.of_function(entry.offset(), address).ok();
            }
        }
        None
    }

    /// First address of a function; one with parts that were moved away lists ranges, its own first.
    fn address(&self, entry: &Entry<'a>) -> gimli::Result<Option<u64>> {
        let low = entry.attr_value(gimli::DW_AT_low_pc);
        match low {
            Some(value) => self.dwarf.attr_address(self.unit, value),
            None => {
                let mut ranges = self.dwarf.die_ranges(self.unit, entry)?;
                Ok(ranges.next()?.map(|range| range.begin))
            }
        }
    }

    fn of_function(&self, function: UnitOffset, address: u64) -> gimli::Result<Vec<Typed>> {
        let mut list = Vec::new();
        let mut classes = Vec::new();
        let mut tree = self.unit.entries_tree(Some(function))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            if entry.tag() != gimli::DW_TAG_formal_parameter {
                continue;
            }
            let kind = self.value(entry, gimli::DW_AT_type, 0);
            let kind = match kind {
                Some(AttributeValue::UnitRef(offset)) => Some(offset),
                _ => None,
            };
            let unknown = || ("?".to_owned(), Class::Other);
            let (name, class) = kind.map_or_else(unknown, |offset| self.type_name(offset, 0));
            classes.push(class);
            let parameter = Parameter {
                name: self.name(entry).unwrap_or_else(|| "?".to_owned()),
                r#type: name,
                read: reading(&classes),
            };
            list.push(Typed {
                parameter,
                kind,
                held: self.held(entry, address),
            });
        }
        Ok(list)
    }

    /// Where an argument lies when its function starts.
    fn held(&self, entry: &Entry<'a>, address: u64) -> Held {
        let Some(value) = entry.attr_value(gimli::DW_AT_location) else {
            // Of an optimised function it says that the argument is not there at all.
            let optimised = entry.attr_value(gimli::DW_AT_abstract_origin).is_some();
            return if optimised {
                Held::Nowhere
            } else {
                Held::ByConvention
            };
        };
        if let AttributeValue::Exprloc(_) = value {
            // One place for the whole function is its frame, which the entry has yet to make.
            return Held::ByConvention;
        }
        let Ok(Some(mut places)) = self.dwarf.attr_locations(self.unit, value) else {
            return Held::ByConvention;
        };
        while let Ok(Some(place)) = places.next() {
            if (place.range.begin..place.range.end).contains(&address) {
                let register = match place.data.0.slice() {
                    [op] => Register::from_dwarf_op(*op),
                    _ => None,
                };
                return register.map_or(Held::Nowhere, Held::Register);
            }
        }
        Held::Nowhere
    }

    /// An attribute of an entry or of the one it was made from.
    fn value(
        &self,
        entry: &Entry<'a>,
        name: gimli::DwAt,
        depth: u32,
    ) -> Option<AttributeValue<Slice<'a>>> {
        if let Some(value) = entry.attr_value(name) {
            return Some(value);
        }
        let origin = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
        let AttributeValue::UnitRef(offset) = origin else {
            return None;
        };
        if depth >= MAX_TYPES {
            return None;
        }
        let origin = self.unit.entry(offset).ok()?;
        self.value(&origin, name, depth + 1)
    }

    /// The name of an entry, as it can be shown.
    pub(super) fn name(&self, entry: &Entry<'a>) -> Option<String> {
        let value = self.value(entry, gimli::DW_AT_name, 0)?;
        let text = self.dwarf.attr_string(self.unit, value).ok()?;
        Some(shown(&text.to_string_lossy()).into_owned())
    }

    /// A type as C writes it, and how a value of it is passed.
    fn type_name(&self, offset: UnitOffset, depth: u32) -> (String, Class) {
        let unknown = || ("?".to_owned(), Class::Other);
        let Ok(entry) = self.unit.entry(offset) else {
            return unknown();
        };
        if depth >= MAX_TYPES {
            return unknown();
        }
        let inner = || match entry.attr_value(gimli::DW_AT_type) {
            Some(AttributeValue::UnitRef(inner)) => self.type_name(inner, depth + 1),
            _ => ("void".to_owned(), Class::Other),
        };
        let name = || self.name(&entry).unwrap_or_else(|| "?".to_owned());
        match entry.tag() {
            gimli::DW_TAG_base_type => (name(), self.base_class(&entry)),
            gimli::DW_TAG_enumeration_type => (name(), Class::Integer),
            gimli::DW_TAG_pointer_type => (pointer(&inner().0, "*"), Class::Integer),
            gimli::DW_TAG_reference_type => (pointer(&inner().0, "&"), Class::Integer),
            gimli::DW_TAG_rvalue_reference_type => (pointer(&inner().0, "&&"), Class::Integer),
            gimli::DW_TAG_typedef => (name(), inner().1),
            gimli::DW_TAG_const_type => {
                let (name, class) = inner();
                (format!("const {name}"), class)
            }
            gimli::DW_TAG_volatile_type | gimli::DW_TAG_restrict_type => inner(),
            gimli::DW_TAG_subroutine_type => ("function".to_owned(), Class::Other),
            _ => (name(), Class::Other),
        }
    }

    fn base_class(&self, entry: &Entry<'a>) -> Class {
        let size = entry
            .attr_value(gimli::DW_AT_byte_size)
            .and_then(|value| value.udata_value());
        match entry.attr_value(gimli::DW_AT_encoding) {
            Some(AttributeValue::Encoding(gimli::DW_ATE_float)) if size.is_some_and(|s| s <= 8) => {
                Class::Float
            }
            Some(AttributeValue::Encoding(gimli::DW_ATE_float | gimli::DW_ATE_complex_float)) => {
                Class::Other
            }
            _ if size.is_some_and(|s| s <= 8) => Class::Integer,
            _ => Class::Other,
        }
    }
}

fn pointer(inner: &str, mark: &str) -> String {
    if inner.ends_with(['*', '&']) {
        format!("{inner}{mark}")
    } else {
        format!("{inner} {mark}")
    }
}

/// What reads the last of these arguments.
fn reading(classes: &[Class]) -> Option<String> {
    let integers = classes.iter().filter(|c| **c == Class::Integer).count();
    let plain = !classes.contains(&Class::Other);
    let in_register = integers <= Register::SYSV.len();
    (plain && in_register && classes.last() == Some(&Class::Integer))
        .then(|| format!("arg{integers}"))
}
