//! Names and types of functions' arguments, from DWARF.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use gimli::{AttributeValue, EndianSlice, LittleEndian, Reader as _, Unit, UnitOffset};

use super::dwarf::{DebugInfo, Slice};
use super::elf::Binary;
use super::units::{Entry, Node, TypeId, Units};
use crate::arch::Register;

/// Maximum nesting of types followed (`const char * const *`).
const MAX_TYPES: u32 = 12;

/// Maximum number of origins followed: a declaration, the function as inlined elsewhere.
const MAX_ORIGINS: usize = 3;

/// Vector registers that arguments go into.
const VECTORS: usize = 8;

/// An argument of a function.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Parameter {
    /// Its name in the source.
    pub name: String,
    /// Its type in the source.
    pub r#type: String,
    /// Expression that reads it in a SPEC (`arg1`); null if it is in no integer register.
    pub read: Option<String>,
}

/// Arguments of the functions at these addresses. Empty where there is no debug information.
#[must_use]
pub(crate) fn parameters(binary: &Binary, wanted: &BTreeSet<u64>) -> HashMap<u64, Vec<Parameter>> {
    let mut found = HashMap::new();
    let Some(info) = DebugInfo::load(binary) else {
        return found;
    };
    let dwarf = info.dwarf();
    let units = Units::new(&dwarf);
    for unit in units.iter() {
        let reader = Reader {
            units: &units,
            unit,
        };
        // Functions of assembly have arguments, but no entries for them.
        if reader.language() == Some(gimli::DW_LANG_Mips_Assembler) {
            continue;
        }
        // A unit that can't be read completely has returned the entries before.
        let _ = reader.scan(wanted, &mut found);
    }
    found
}

/// Reads the entries of a unit.
pub(crate) struct Reader<'u, 'a> {
    pub units: &'u Units<'u, 'a>,
    /// The unit of the function.
    pub unit: Rc<Unit<Slice<'a>>>,
}

/// An argument with its type and location from the debug information.
pub(crate) struct Typed {
    pub parameter: Parameter,
    pub kind: Option<TypeId>,
    pub held: Held,
    /// Location by the calling convention; `None` if it is in no integer register.
    pub convention: Option<Convention>,
}

/// Location of an argument by the calling convention. Registers count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convention {
    /// In this integer register.
    One(u32),
    /// Two words, in this register and the next.
    Pair(u32),
    /// In memory at the address in this register.
    At(u32),
}

/// Location of an argument when its function starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Register(Register),
    /// Two words, in these registers.
    Pair([Register; 2]),
    /// At the address in this register plus an offset.
    At(Register, i64),
    /// Not given: the location is that of the calling convention.
    ByConvention,
    /// In no register: optimised away, or passed in another way.
    Nowhere,
}

/// Way in which an argument is passed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// In an integer register, or in 8 bytes of the stack once the registers are used up.
    Integer,
    /// In two integer registers: pointer and length of Rust.
    Pair,
    /// In memory whose address is in an integer register.
    Indirect,
    /// In a vector register.
    Float,
    /// By rules that are not implemented: the location of later arguments is unknown too.
    Other,
}

impl Class {
    /// Number of integer registers, or stack words, that it takes.
    const fn words(self) -> u32 {
        match self {
            Self::Integer | Self::Indirect => 1,
            Self::Pair => 2,
            Self::Float | Self::Other => 0,
        }
    }
}

fn is_argument(node: &Node<'_>) -> bool {
    node.tag() == gimli::DW_TAG_formal_parameter
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
                let list = self.of_function(entry.offset(), address);
                let list = list.into_iter().flatten().map(|typed| typed.parameter);
                found.insert(address, list.collect());
            }
        }
        Ok(())
    }

    /// The arguments of the function that starts at an address, with their types.
    pub(crate) fn function_at(&self, address: u64) -> Option<Vec<Typed>> {
        self.of_function(self.subprogram_at(address)?, address)
    }

    /// First address of a function; a function with parts moved away lists ranges, the main one first.
    pub(crate) fn address(&self, entry: &Entry<'a>) -> gimli::Result<Option<u64>> {
        let low = entry.attr_value(gimli::DW_AT_low_pc);
        match low {
            Some(value) => self.units.dwarf.attr_address(&self.unit, value),
            None => {
                let mut ranges = self.units.dwarf.die_ranges(&self.unit, entry)?;
                Ok(ranges.next()?.map(|range| range.begin))
            }
        }
    }

    /// Number of integer and address words passed to the function at an address, so that its last argument is
    /// `argN`; `None` if it may get more.
    ///
    /// Only for C and C++: other languages have other conventions.
    pub(crate) fn words(&self, address: u64) -> Option<u32> {
        if !self.is_c() {
            return None;
        }
        let function = self.subprogram_at(address)?;
        let mut classes = Vec::new();
        let result = self.result_of(function);
        let result = result.and_then(|kind| self.units.stripped(kind));
        if let Some(result) = result.filter(|it| is_structure(it.tag())) {
            let says = result.attr_value(gimli::DW_AT_calling_convention).is_some();
            if self.returns_in_memory(function) {
                classes.extend(RESULT_ADDRESS);
            } else if self.is_cpp() && !says {
                return None;
            }
        }
        // An optimised function may have fewer attributes than its origin.
        let node = Node::of(&self.unit, function)?;
        let nodes = std::iter::successors(Some(node), |node| self.units.origin(node));
        let lists: Vec<_> = nodes
            .take(MAX_ORIGINS)
            .map(|node| node.children())
            .collect();
        let is_open = |node: &Node<'_>| node.tag() == gimli::DW_TAG_unspecified_parameters;
        if lists.iter().flatten().any(is_open) {
            return None;
        }
        let arguments = lists
            .iter()
            .map(|list| list.iter().filter(|it| is_argument(it)));
        classes.extend(
            arguments
                .max_by_key(|list| list.clone().count())?
                .map(|argument| {
                    let kind = self.units.type_of(argument);
                    kind.map_or(Class::Other, |kind| self.type_name(kind, 0).1)
                }),
        );
        let is_moved = |typed: Typed| match (typed.held, typed.convention) {
            (Held::Register(register), Some(Convention::One(n))) => {
                Register::ARGUMENTS.get(n as usize - 1) != Some(&register)
            }
            // Other arguments are in no integer register anyway.
            (held, convention) => held == Held::Nowhere && convention.is_some(),
        };
        let floats = classes.iter().filter(|class| **class == Class::Float);
        let is_moved = self.function_at(address)?.into_iter().any(is_moved);
        let unknown = is_moved || classes.contains(&Class::Other) || floats.count() > VECTORS;
        (!unknown).then(|| classes.iter().map(|class| class.words()).sum())
    }

    fn of_function(&self, function: UnitOffset, address: u64) -> Option<Vec<Typed>> {
        let mut list = Vec::new();
        let mut classes = Vec::new();
        if self.returns_in_memory(function) {
            classes.extend(RESULT_ADDRESS);
        }
        let function = Node::of(&self.unit, function)?;
        for argument in function.children() {
            // Go lists its results with the arguments.
            let is_result = argument.attr_value(gimli::DW_AT_variable_parameter)
                == Some(AttributeValue::Flag(true));
            if !is_argument(&argument) || is_result && self.is_go() {
                continue;
            }
            let kind = self.units.type_of(&argument);
            let unknown = || ("?".to_owned(), Class::Other);
            let (name, class) = kind.map_or_else(unknown, |offset| self.type_name(offset, 0));
            classes.push(class);
            let convention = convention(&classes);
            let held = self.held(&argument, address);
            let number = match (held, convention) {
                (Held::ByConvention, Some(Convention::One(number))) => Some(number),
                (Held::Register(register), _) => self.number_of(register),
                _ => None,
            };
            let parameter = Parameter {
                name: self.units.name(&argument).unwrap_or_else(|| "?".to_owned()),
                r#type: name,
                read: number.map(|number| format!("arg{number}")),
            };
            list.push(Typed {
                parameter,
                kind,
                held,
                convention,
            });
        }
        Some(list)
    }

    /// The N of the `argN` that is in a register.
    fn number_of(&self, register: Register) -> Option<u32> {
        let registers = match self.is_go() {
            true => &Register::GO_ARGUMENTS[..],
            false => &Register::ARGUMENTS[..],
        };
        let at = registers.iter().position(|it| *it == register)?;
        u32::try_from(at + 1).ok()
    }

    /// Location of an argument when its function starts.
    fn held(&self, entry: &Entry<'a>, address: u64) -> Held {
        let Some(value) = entry.attr_value(gimli::DW_AT_location) else {
            // For an optimised function this means that the argument does not exist.
            let optimised = entry.attr_value(gimli::DW_AT_abstract_origin).is_some();
            return if optimised {
                Held::Nowhere
            } else {
                Held::ByConvention
            };
        };
        if let AttributeValue::Exprloc(_) = value {
            // A single location for the whole function is in its frame, which does not exist at the entry yet.
            return Held::ByConvention;
        }
        let Ok(Some(mut places)) = self.units.dwarf.attr_locations(&self.unit, value) else {
            return Held::ByConvention;
        };
        while let Ok(Some(place)) = places.next() {
            if (place.range.begin..place.range.end).contains(&address) {
                return held_by(place.data.0.slice()).unwrap_or(Held::Nowhere);
            }
        }
        Held::Nowhere
    }

    /// Type of a function's result; `None` if it has none or it is not given.
    pub(crate) fn result_of(&self, function: UnitOffset) -> Option<TypeId> {
        self.units.type_of(&Node::of(&self.unit, function)?)
    }

    /// Whether a function is declared without a result. Not if a part of its declaration can't be read, or in languages
    /// that declare results otherwise.
    pub(crate) fn returns_nothing(&self, function: UnitOffset) -> bool {
        let node = Node::of(&self.unit, function);
        let nodes = std::iter::successors(node, |node| self.units.origin(node)).take(MAX_ORIGINS);
        let nodes: Vec<_> = nodes.collect();
        let has = |node: &Node<'_>, name| node.attr_value(name).is_some();
        let is_whole = nodes.last().is_some_and(|last| {
            !has(last, gimli::DW_AT_abstract_origin) && !has(last, gimli::DW_AT_specification)
        });
        let is_typed = nodes.iter().any(|node| has(node, gimli::DW_AT_type));
        is_whole && !is_typed && (self.is_c() || self.is_rust())
    }

    /// Whether a function writes its result to memory that its caller has for it.
    /// Source: System V ABI for x86-64, 3.2.3; AAPCS64, 6.9; of C++ the Itanium ABI, 3.1.3.1.
    pub(crate) fn returns_in_memory(&self, function: UnitOffset) -> bool {
        let kind = self
            .result_of(function)
            .and_then(|kind| self.units.stripped(kind));
        let Some(kind) = kind.filter(|kind| is_structure(kind.tag())) else {
            return false;
        };
        let convention = kind.attr_value(gimli::DW_AT_calling_convention);
        let by_reference = AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference);
        byte_size(&kind).is_some_and(|size| size > 16) || convention == Some(by_reference)
    }

    /// The function that starts at an address.
    pub(crate) fn subprogram_at(&self, address: u64) -> Option<UnitOffset> {
        let mut entries = self.unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() == gimli::DW_TAG_subprogram
                && self.address(entry).ok().flatten() == Some(address)
            {
                return Some(entry.offset());
            }
        }
        None
    }

    /// Whether the unit was written in Rust.
    pub(crate) fn is_rust(&self) -> bool {
        self.language() == Some(gimli::DW_LANG_Rust)
    }

    fn is_go(&self) -> bool {
        self.language() == Some(gimli::DW_LANG_Go)
    }

    fn is_cpp(&self) -> bool {
        matches!(
            self.language(),
            Some(
                gimli::DW_LANG_C_plus_plus
                    | gimli::DW_LANG_C_plus_plus_03
                    | gimli::DW_LANG_C_plus_plus_11
                    | gimli::DW_LANG_C_plus_plus_14
                    | gimli::DW_LANG_C_plus_plus_17
                    | gimli::DW_LANG_C_plus_plus_20
            )
        )
    }

    /// Whether it was written in C or C++.
    fn is_c(&self) -> bool {
        let c = matches!(
            self.language(),
            Some(
                gimli::DW_LANG_C
                    | gimli::DW_LANG_C89
                    | gimli::DW_LANG_C99
                    | gimli::DW_LANG_C11
                    | gimli::DW_LANG_C17
            )
        );
        c || self.is_cpp()
    }

    /// Source language of the unit.
    fn language(&self) -> Option<gimli::DwLang> {
        let root = self
            .unit
            .entries()
            .next_dfs()
            .ok()
            .flatten()
            .and_then(|it| it.attr_value(gimli::DW_AT_language));
        match root? {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        }
    }

    /// Returns the way in which a structure is passed by value. For Rust only pointer-and-length pairs and large
    /// structures are known.
    fn structure_class(&self, structure: &Node<'a>) -> Class {
        if !self.is_rust() {
            return Class::Other;
        }
        let children = structure.children();
        let names = children.iter().filter_map(|child| self.units.name(child));
        let words = names.filter(|name| name == "data_ptr" || name == "length");
        match (words.count(), byte_size(structure)) {
            (2, _) => Class::Pair,
            (_, Some(size)) if size > 16 => Class::Indirect,
            _ => Class::Other,
        }
    }

    /// A type in C syntax, and how a value of it is passed.
    fn type_name(&self, kind: TypeId, depth: u32) -> (String, Class) {
        let unknown = || ("?".to_owned(), Class::Other);
        let Some(entry) = self.units.node(kind) else {
            return unknown();
        };
        if depth >= MAX_TYPES {
            return unknown();
        }
        let inner = || match entry.target() {
            Some(inner) => self.type_name(inner, depth + 1),
            None => ("void".to_owned(), Class::Other),
        };
        let name = || self.units.name(&entry).unwrap_or_else(|| "?".to_owned());
        match entry.tag() {
            gimli::DW_TAG_base_type => (name(), Self::base_class(&entry)),
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
            gimli::DW_TAG_structure_type => (name(), self.structure_class(&entry)),
            _ => (name(), Class::Other),
        }
    }

    fn base_class(entry: &Entry<'a>) -> Class {
        let size = byte_size(entry);
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

/// The argument that is the address of a result in memory: the first one, or none.
const RESULT_ADDRESS: Option<Class> = match Register::RESULT_ADDRESS_IS_FIRST {
    true => Some(Class::Integer),
    false => None,
};

/// Bytes of a value of a type.
pub(crate) fn byte_size(entry: &Entry<'_>) -> Option<u64> {
    let size = entry.attr_value(gimli::DW_AT_byte_size)?;
    size.udata_value()
}

/// Whether values of a type have parts.
pub(crate) const fn is_structure(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
    )
}

/// Location given by a DWARF expression, if it is a simple one.
fn held_by(expression: &[u8]) -> Option<Held> {
    const PIECE: u8 = gimli::DW_OP_piece.0;
    match *expression {
        [op] => Register::from_dwarf_op(op).map(Held::Register),
        [first, PIECE, 8, second, PIECE, 8] => {
            let [first, second] = [first, second].map(Register::from_dwarf_op);
            Some(Held::Pair([first?, second?]))
        }
        [op, ref offset @ ..] if !offset.is_empty() => {
            let number = op.checked_sub(gimli::DW_OP_breg0.0)?;
            let register = Register::from_dwarf_op(gimli::DW_OP_reg0.0.checked_add(number)?)?;
            let mut rest = EndianSlice::new(offset, LittleEndian);
            let offset = rest.read_sleb128().ok()?;
            rest.is_empty().then_some(Held::At(register, offset))
        }
        _ => None,
    }
}

/// Location of the last of these arguments by the calling convention.
fn convention(classes: &[Class]) -> Option<Convention> {
    let used: u32 = classes.iter().map(|class| class.words()).sum();
    if classes.contains(&Class::Other) || used as usize > Register::ARGUMENTS.len() {
        return None;
    }
    match classes.last()? {
        Class::Integer => Some(Convention::One(used)),
        Class::Pair => Some(Convention::Pair(used - 1)),
        Class::Indirect => Some(Convention::At(used)),
        Class::Float | Class::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers, register pairs, and memory pointed to by a register; no other expression.
    #[test]
    fn places_of_arguments() {
        let register = |name| Register::from_name(name).expect("known");
        let (rdi, rsi) = (register("rdi"), register("rsi"));
        assert_eq!(held_by(&[0x55]), Some(Held::Register(rdi)));
        let pair = [0x55, 0x93, 8, 0x54, 0x93, 8];
        assert_eq!(held_by(&pair), Some(Held::Pair([rdi, rsi])));
        assert_eq!(held_by(&[0x74, 0x70]), Some(Held::At(rsi, -16)));
        // Its pointer is not available.
        assert_eq!(held_by(&[0x93, 8, 0x54, 0x93, 8]), None);
        assert_eq!(held_by(&[0x74, 0, 6]), None);
        assert_eq!(held_by(&[0x74]), None);
        assert_eq!(held_by(&[]), None);
    }

    /// Two words take two registers; arguments that do not fit or are not known have none.
    #[test]
    fn registers_are_counted() {
        use Class::{Float, Indirect, Integer, Other, Pair};
        assert_eq!(
            convention(&[Integer, Float, Pair]),
            Some(Convention::Pair(2))
        );
        assert_eq!(convention(&[Pair, Indirect]), Some(Convention::At(3)));
        assert_eq!(
            convention(&[Pair, Pair, Indirect, Integer]),
            Some(Convention::One(6))
        );
        assert_eq!(convention(&[Pair, Pair, Pair, Integer]), None);
        assert_eq!(convention(&[Other, Integer]), None);
    }
}
