//! C-like paths (`pkt->hdr.id`), looked up in DWARF: from the names of a function's arguments and of
//! fields to registers, offsets and types.
//!
//! A path becomes an expression without names ([`lower`]), so that what follows knows nothing of types.
//! What has no offset of its own (bit fields), no register (floats, structures passed by value) or no end
//! (a Rust `&str`) is refused, not guessed.

use std::sync::Arc;

use gimli::{AttributeValue, Dwarf, Unit, UnitOffset};

use super::dwarf::{DebugInfo, Slice};
use super::elf::Binary;
use super::expr::{Expr, Ids, Path, Step, Type};
use super::parameters::{Entry, Held, Reader, Typed};

/// Types behind types followed at most.
const MAX_DEPTH: u32 = 16;

/// Fields named in a hint at most.
const LISTED: usize = 8;

/// Names of an enumeration's values.
pub type Names = Arc<[(i64, Box<str>)]>;

/// A sentence and what to do about it.
type Refusal = (String, Option<String>);

/// An expression without paths.
#[derive(Clone, Debug)]
pub(super) struct Lowered {
    /// What reads the value.
    pub expr: Expr,
    /// What its numbers are called, where it is an enumeration.
    pub names: Option<Names>,
}

/// Replaces the paths of an expression, in a function that starts at an address.
///
/// # Errors
/// No debug information, no such name, or a value that can't be read.
pub(super) fn lower(
    expr: &Expr,
    binary: &Binary,
    function: Option<u64>,
) -> Result<Lowered, Refusal> {
    if !expr.has_path() {
        return Ok(Lowered {
            expr: expr.clone(),
            names: None,
        });
    }
    with_types(binary, function, |types| match expr {
        Expr::Path(path) => types.value(types.walk(path)?),
        other => Ok(Lowered {
            expr: types.inside(other)?,
            names: None,
        }),
    })
}

/// Opens the debug information about a function.
fn with_types<T>(
    binary: &Binary,
    function: Option<u64>,
    then: impl FnOnce(Types<'_, '_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let Some(function) = function else {
        return refuse(
            "names of arguments are known at a function's entry only",
            "write a register and an offset: *(%rdi+16):u32",
        );
    };
    let Some(info) = DebugInfo::load(binary) else {
        return refuse(
            format!("{} has no debug information", binary.path.display()),
            "install its debug symbols, or write registers and offsets: *(arg1+16):u32",
        );
    };
    let dwarf = info.dwarf();
    let unit = unit_of(&dwarf, function)
        .ok_or_else(|| (format!("no debug information about {function:#x}"), None))?;
    let types = Types {
        dwarf: &dwarf,
        unit: &unit,
        function,
    };
    then(types)
}

/// Replaces the paths in the ids of a batch, and completes their type.
///
/// # Errors
/// As [`lower`]; an array of structures has no ids.
pub(super) fn lower_ids(ids: &Ids, binary: &Binary, function: Option<u64>) -> Result<Ids, Refusal> {
    if !ids.array.has_path() && !ids.count.has_path() {
        return Ok(ids.clone());
    }
    with_types(binary, function, |types| {
        let (array, known) = match &ids.array {
            Expr::Path(path) => types.array(types.walk(path)?)?,
            other => (types.inside(other)?, None),
        };
        let r#type = match (ids.r#type, known) {
            (Some(given), _) => Some(given),
            (None, Some(Element::Number(known))) => Some(known),
            (None, Some(Element::Structure)) => {
                return refuse(
                    "the elements of the array are structures, which are no ids",
                    "an array of pointers to them, or of numbers, has ids",
                );
            }
            (None, None) => None,
        };
        let count = match &ids.count {
            Expr::Path(path) => types.value(types.walk(path)?)?.expr,
            other => types.inside(other)?,
        };
        Ok(Ids {
            array,
            count,
            r#type,
            at: ids.at,
        })
    })
}

/// The unit whose code holds an address.
fn unit_of<'a>(dwarf: &Dwarf<Slice<'a>>, address: u64) -> Option<Unit<Slice<'a>>> {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        let Ok(mut ranges) = dwarf.unit_ranges(&unit) else {
            continue;
        };
        while let Ok(Some(range)) = ranges.next() {
            if (range.begin..range.end).contains(&address) {
                return Some(unit);
            }
        }
    }
    None
}

fn refuse<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, Refusal> {
    Err((what.into(), Some(hint.into())))
}

/// Something with a type: a value in a register, or what lies at an address.
struct Found {
    /// The value, or its address.
    expr: Expr,
    in_memory: bool,
    kind: UnitOffset,
    /// The path so far, for messages.
    text: String,
}

impl Found {
    /// The value itself, which is a pointer.
    fn pointer(self) -> Expr {
        if self.in_memory {
            Expr::Deref(Box::new(self.expr), None)
        } else {
            self.expr
        }
    }
}

/// What an array holds.
enum Element {
    Number(Type),
    Structure,
}

struct Types<'u, 'a> {
    dwarf: &'u Dwarf<Slice<'a>>,
    unit: &'u Unit<Slice<'a>>,
    function: u64,
}

impl<'a> Types<'_, 'a> {
    fn reader(&self) -> Reader<'_, 'a> {
        Reader {
            dwarf: self.dwarf,
            unit: self.unit,
        }
    }

    /// Replaces paths within an expression: they are numbers or addresses there.
    fn inside(&self, expr: &Expr) -> Result<Expr, Refusal> {
        let boxed = |inner: &Expr| self.inside(inner).map(Box::new);
        Ok(match expr {
            Expr::Path(path) => {
                let found = self.walk(path)?;
                let array = self.stripped(found.kind)?.tag() == gimli::DW_TAG_array_type;
                if array && found.in_memory {
                    found.expr
                } else {
                    found.pointer()
                }
            }
            Expr::Add(inner, value) => Expr::Add(boxed(inner)?, *value),
            Expr::Deref(inner, kind) => Expr::Deref(boxed(inner)?, *kind),
            Expr::Str(inner, length) => Expr::Str(boxed(inner)?, *length),
            Expr::Cast(inner, kind) => match &**inner {
                // What lies in memory is read at that width.
                Expr::Path(path) => match self.walk(path)? {
                    found if found.in_memory => Expr::Deref(Box::new(found.expr), Some(*kind)),
                    found => Expr::Cast(Box::new(found.expr), *kind),
                },
                other => Expr::Cast(boxed(other)?, *kind),
            },
            other => other.clone(),
        })
    }

    /// Follows a path from an argument of the function.
    fn walk(&self, path: &Path) -> Result<Found, Refusal> {
        let mut found = self.argument(&path.root)?;
        for step in &path.steps {
            found = match step {
                Step::Arrow(field) => self.arrow(found, field)?,
                Step::Dot(field) => self.dot(found, field)?,
            };
        }
        Ok(found)
    }

    fn argument(&self, name: &str) -> Result<Found, Refusal> {
        let reader = self.reader();
        let arguments = reader.function_at(self.function).unwrap_or_default();
        let Some(found) = arguments.iter().find(|it| it.parameter.name == name) else {
            let names = arguments.iter().map(|it| it.parameter.name.as_str());
            let known: Vec<&str> = names.collect();
            return refuse(
                format!("the function has no argument '{name}'"),
                if known.is_empty() {
                    "it has none; 'retval' is its result".to_owned()
                } else {
                    format!("its arguments: {}", known.join(", "))
                },
            );
        };
        let Typed {
            parameter,
            kind,
            held,
        } = found;
        let number = || parameter.read.as_deref()?.strip_prefix("arg")?.parse().ok();
        let expr = match held {
            // Where the compiler changed the arguments, the convention misleads.
            Held::Register(register) => Some(Expr::Reg(*register)),
            Held::ByConvention => number().map(Expr::Arg),
            Held::Nowhere => None,
        };
        match (expr, kind) {
            (Some(expr), Some(kind)) => Ok(Found {
                expr,
                in_memory: false,
                kind: *kind,
                text: name.to_owned(),
            }),
            _ => refuse(
                format!(
                    "argument '{name}' ({}) is in no register that can be read",
                    parameter.r#type
                ),
                "the compiler may have taken it away; floats and structures are passed otherwise",
            ),
        }
    }

    /// `X->FIELD`.
    fn arrow(&self, found: Found, field: &str) -> Result<Found, Refusal> {
        let pointer = self.stripped(found.kind)?;
        let is_pointer = is_address(pointer.tag());
        let target = self.target(&pointer);
        let (true, Some(target)) = (is_pointer, target) else {
            return refuse(
                format!("'{}' is no pointer to a structure", found.text),
                format!("write {}.{field} for a structure", found.text),
            );
        };
        let text = found.text.clone();
        self.field(found.pointer(), target, field, &format!("{text}->{field}"))
    }

    /// `X.FIELD`. A reference of C++ is what it refers to.
    fn dot(&self, found: Found, field: &str) -> Result<Found, Refusal> {
        let kind = self.stripped(found.kind)?;
        let text = found.text.clone();
        let reference = matches!(
            kind.tag(),
            gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type
        );
        if let (true, Some(target)) = (reference, self.target(&kind)) {
            return self.field(found.pointer(), target, field, &format!("{text}.{field}"));
        }
        if found.in_memory && !is_address(kind.tag()) {
            return self.field(found.expr, found.kind, field, &format!("{text}.{field}"));
        }
        refuse(
            format!("'{text}' is no structure in memory"),
            format!("write {text}->{field} for a pointer"),
        )
    }

    /// A field of the structure at an address. `text`: the path up to it.
    fn field(
        &self,
        address: Expr,
        kind: UnitOffset,
        name: &str,
        text: &str,
    ) -> Result<Found, Refusal> {
        let structure = self.stripped(kind)?;
        let mut names = Vec::new();
        let before = text.strip_suffix(name).unwrap_or(text);
        let before = before.trim_end_matches(['.', '-', '>']);
        match self.member(structure.offset(), name, &mut names, 0) {
            Some(Member::Bits) => refuse(
                format!("'{text}' is a bit field, which has no address of its own"),
                format!("read the word that holds it: *({before}+OFFSET):u32"),
            ),
            Some(Member::At(offset, kind)) => Ok(Found {
                expr: Expr::Add(Box::new(address), offset),
                in_memory: true,
                kind,
                text: text.to_owned(),
            }),
            None => {
                let shown = names
                    .iter()
                    .take(LISTED)
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", ");
                let more = if names.len() > LISTED { ", ..." } else { "" };
                refuse(
                    format!("'{before}' has no field '{name}'"),
                    if names.is_empty() {
                        format!("the debug information does not say what '{before}' holds")
                    } else {
                        format!("its fields: {shown}{more}")
                    },
                )
            }
        }
    }

    /// A member by its name: also of unnamed structures within, and of base classes.
    fn member(
        &self,
        structure: UnitOffset,
        wanted: &str,
        names: &mut Vec<String>,
        depth: u32,
    ) -> Option<Member> {
        if depth >= MAX_DEPTH {
            return None;
        }
        let mut tree = self.unit.entries_tree(Some(structure)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            let is_base = entry.tag() == gimli::DW_TAG_inheritance;
            if entry.tag() != gimli::DW_TAG_member && !is_base {
                continue;
            }
            let Some(AttributeValue::UnitRef(kind)) = entry.attr_value(gimli::DW_AT_type) else {
                continue;
            };
            let number = |name| entry.attr_value(name).and_then(|v| v.udata_value());
            let offset = number(gimli::DW_AT_data_member_location)
                .unwrap_or(0)
                .cast_signed();
            let name = self.reader().name(entry);
            match name {
                Some(name) if name == wanted => {
                    let bits = number(gimli::DW_AT_bit_size).is_some();
                    return Some(if bits {
                        Member::Bits
                    } else {
                        Member::At(offset, kind)
                    });
                }
                Some(name) if !is_base => names.push(name),
                _ => {
                    let inner = self.stripped(kind).ok()?.offset();
                    match self.member(inner, wanted, names, depth + 1) {
                        Some(Member::At(further, kind)) => {
                            return Some(Member::At(offset + further, kind));
                        }
                        Some(Member::Bits) => return Some(Member::Bits),
                        None => {}
                    }
                }
            }
        }
        None
    }

    /// How the end of a path is read.
    fn value(&self, found: Found) -> Result<Lowered, Refusal> {
        let kind = self.stripped(found.kind)?;
        let plain = |expr| Ok(Lowered { expr, names: None });
        let text = found.text.clone();
        match kind.tag() {
            gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type => {
                let names = (kind.tag() == gimli::DW_TAG_enumeration_type)
                    .then(|| self.enumerators(kind.offset()));
                let r#type = self.number_type(&kind, &text)?;
                Ok(Lowered {
                    expr: if found.in_memory {
                        Expr::Deref(Box::new(found.expr), Some(r#type))
                    } else {
                        Expr::Cast(Box::new(found.expr), r#type)
                    },
                    names,
                })
            }
            tag if is_address(tag) => {
                if self
                    .target(&kind)
                    .is_some_and(|target| self.is_char(target))
                {
                    return plain(Expr::Str(Box::new(found.pointer()), None));
                }
                plain(found.pointer())
            }
            gimli::DW_TAG_array_type
                if found.in_memory && self.target(&kind).is_some_and(|e| self.is_char(e)) =>
            {
                plain(Expr::Str(Box::new(found.expr), None))
            }
            _ => self.structure(found, kind.offset()),
        }
    }

    /// A structure is no value, but for `std::string`, which starts with a pointer to its text.
    fn structure(&self, found: Found, kind: UnitOffset) -> Result<Lowered, Refusal> {
        let mut names = Vec::new();
        let text = found.text;
        if found.in_memory
            && let Some(Member::At(offset, _)) = self.member(kind, "_M_dataplus", &mut names, 0)
        {
            let pointer = Expr::Deref(Box::new(Expr::Add(Box::new(found.expr), offset)), None);
            return Ok(Lowered {
                expr: Expr::Str(Box::new(pointer), None),
                names: None,
            });
        }
        if names.iter().any(|name| name == "data_ptr") {
            return refuse(
                format!("'{text}' is text without an end mark"),
                "name what else tells the items apart; a length can't be followed yet",
            );
        }
        let shown = names
            .iter()
            .take(LISTED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        refuse(
            format!("'{text}' is not a number, pointer or string"),
            if shown.is_empty() {
                "name one of its parts".to_owned()
            } else {
                format!("name one of its fields: {shown}")
            },
        )
    }

    /// Where the elements of an array are, and what they are.
    fn array(&self, found: Found) -> Result<(Expr, Option<Element>), Refusal> {
        let kind = self.stripped(found.kind)?;
        let is_array = kind.tag() == gimli::DW_TAG_array_type && found.in_memory;
        if !is_array && !is_address(kind.tag()) {
            return refuse(
                format!("'{}' is no array and no pointer", found.text),
                "ids= takes the address of the first id",
            );
        }
        let element = self.target(&kind).and_then(|it| self.stripped(it).ok());
        let known = element.map(|element| match element.tag() {
            tag if is_address(tag) => Element::Number(Type::Unsigned(8)),
            gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type => self
                .number_type(&element, &found.text)
                .map_or(Element::Structure, Element::Number),
            _ => Element::Structure,
        });
        let address = if is_array {
            found.expr
        } else {
            found.pointer()
        };
        Ok((address, known))
    }

    /// Width and sign of a number.
    fn number_type(&self, kind: &Entry<'a>, text: &str) -> Result<Type, Refusal> {
        let size = kind
            .attr_value(gimli::DW_AT_byte_size)
            .and_then(|v| v.udata_value());
        let signed = match kind.attr_value(gimli::DW_AT_encoding) {
            Some(AttributeValue::Encoding(gimli::DW_ATE_signed | gimli::DW_ATE_signed_char)) => {
                true
            }
            Some(AttributeValue::Encoding(
                gimli::DW_ATE_float | gimli::DW_ATE_complex_float | gimli::DW_ATE_decimal_float,
            )) => {
                return refuse(
                    format!("'{text}' is a floating-point number"),
                    "its bits can be read: *(ADDRESS):u64",
                );
            }
            // Of an enumeration, the type behind it.
            None => self
                .target(kind)
                .and_then(|inner| self.stripped(inner).ok())
                .filter(|inner| inner.tag() == gimli::DW_TAG_base_type)
                .is_some_and(|inner| matches!(self.number_type(&inner, text), Ok(Type::Signed(_)))),
            Some(_) => false,
        };
        match size.and_then(|size| u8::try_from(size).ok()) {
            Some(width @ (1 | 2 | 4 | 8)) if signed => Ok(Type::Signed(width)),
            Some(width @ (1 | 2 | 4 | 8)) => Ok(Type::Unsigned(width)),
            _ => refuse(
                format!("'{text}' is a number of unusual size"),
                "read a part of it: *(ADDRESS):u64",
            ),
        }
    }

    fn enumerators(&self, kind: UnitOffset) -> Names {
        let mut names = Vec::new();
        let tree = self.unit.entries_tree(Some(kind));
        if let Ok(mut tree) = tree
            && let Ok(root) = tree.root()
        {
            let mut children = root.children();
            while let Ok(Some(child)) = children.next() {
                let entry = child.entry();
                let value = entry
                    .attr_value(gimli::DW_AT_const_value)
                    .and_then(|v| v.sdata_value());
                if let (Some(value), Some(name)) = (value, self.reader().name(entry)) {
                    names.push((value, name.into_boxed_str()));
                }
            }
        }
        names.into()
    }

    fn is_char(&self, kind: UnitOffset) -> bool {
        let Ok(kind) = self.stripped(kind) else {
            return false;
        };
        let size = kind
            .attr_value(gimli::DW_AT_byte_size)
            .and_then(|v| v.udata_value());
        let text = matches!(
            kind.attr_value(gimli::DW_AT_encoding),
            Some(AttributeValue::Encoding(
                gimli::DW_ATE_signed_char | gimli::DW_ATE_unsigned_char
            ))
        );
        // `unsigned char` and the like are bytes, not text.
        let name = self.reader().name(&kind);
        size == Some(1) && text && name.as_deref() == Some("char")
    }

    /// What a pointer, array, typedef or enumeration is of.
    fn target(&self, kind: &Entry<'a>) -> Option<UnitOffset> {
        match kind.attr_value(gimli::DW_AT_type) {
            Some(AttributeValue::UnitRef(target)) => Some(target),
            _ => None,
        }
    }

    /// The type behind typedefs and qualifiers; behind a declaration, its definition in the same unit.
    fn stripped(&self, kind: UnitOffset) -> Result<Entry<'a>, Refusal> {
        let unknown = || ("its type is not in the debug information".to_owned(), None);
        let mut kind = kind;
        for _ in 0..MAX_DEPTH {
            let entry = self.unit.entry(kind).map_err(|_| unknown())?;
            let through = matches!(
                entry.tag(),
                gimli::DW_TAG_typedef
                    | gimli::DW_TAG_const_type
                    | gimli::DW_TAG_volatile_type
                    | gimli::DW_TAG_restrict_type
                    | gimli::DW_TAG_atomic_type
            );
            if !through {
                return Ok(entry);
            }
            kind = self.target(&entry).ok_or_else(unknown)?;
        }
        Err(unknown())
    }
}

/// Where a member lies.
enum Member {
    At(i64, UnitOffset),
    Bits,
}

const fn is_address(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type
    )
}

#[cfg(test)]
mod tests;
