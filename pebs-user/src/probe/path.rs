//! C-like paths (`pkt->hdr.id`): looks up the names of arguments and fields in DWARF and turns them into registers,
//! offsets and types.
//!
//! A path is lowered to an expression without names ([`lower`]), so that later stages need no types. `retval` is
//! the root of paths at a return. Values without an offset (bit fields) or a register (floats, structures passed by
//! value) are refused, not guessed.

mod ids;
mod missing;
mod text;

use std::rc::Rc;
use std::sync::Arc;

use gimli::{AttributeValue, Reader as _, Unit};

use crate::binary::debuginfod::Debuginfod;
use crate::binary::dwarf::{DebugInfo, Slice};
use crate::binary::elf::{Binary, Language};
use crate::binary::parameters::{Convention, Held, Reader, Typed, byte_size, is_structure};
use crate::binary::units::{Node, TypeId, Units};
use crate::spec::expr::{Expr, Path, RETVAL, Step, Type};
pub(super) use ids::lower_ids;
use text::chars;

/// Maximum nesting of types followed.
const MAX_DEPTH: u32 = 16;

/// Hint for a structure passed by value.
const BY_VALUE: &str = "a structure passed by value is in registers (%rdi, %rsi, ..) or on the stack (*(%rsp+8)): name \
                        those";

/// Maximum number of fields named in a hint.
const LISTED: usize = 8;

/// Names of an enumeration's values.
pub(super) type Names = Arc<[(i64, Box<str>)]>;

/// A message and its hint.
type Refusal = (String, Option<String>);

/// The function whose names are valid at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Address of the function, if there is one.
    pub function: Option<u64>,
    /// Whether it is at a return: the arguments are gone, the result exists.
    pub returning: bool,
}

/// An expression without paths.
#[derive(Clone, Debug)]
pub(super) struct Lowered {
    /// Expression that reads the value.
    pub expr: Expr,
    /// Names of its values, if it is an enumeration.
    pub names: Option<Names>,
}

/// Replaces the paths of an expression, at a place with this scope.
///
/// # Errors
/// No debug information, no such name, or a value that can't be read.
pub(super) fn lower(expr: &Expr, binary: &Binary, scope: Scope) -> Result<Lowered, Refusal> {
    let as_written = || Lowered {
        expr: expr.clone(),
        names: None,
    };
    if matches!(expr, Expr::Retval) && scope.returning {
        // Without debug information it is the register.
        let returned = with_types(binary, scope, |types| Ok(types.returned()));
        return returned.unwrap_or_else(|_| Ok(as_written()));
    }
    if !expr.has_path() {
        return Ok(as_written());
    }
    with_types(binary, scope, |types| match expr {
        Expr::Path(path) => types.value(types.walk(path)?),
        Expr::Str(inner, most) => types.string(inner, *most),
        Expr::Deref(inner, Some(Type::Str)) => types.string(inner, None),
        Expr::Text(address, length, most) => Ok(Lowered {
            expr: Expr::Text(
                Box::new(types.inside(address)?),
                Box::new(types.number(length)?),
                *most,
            ),
            names: None,
        }),
        other => Ok(Lowered {
            expr: types.inside(other)?,
            names: None,
        }),
    })
}

/// Opens the debug information about a function.
fn with_types<T>(
    binary: &Binary,
    scope: Scope,
    then: impl FnOnce(Types<'_, '_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let Some(function) = scope.function else {
        if binary.language == Language::Go {
            return refuse(
                "names of arguments and results of Go functions are not read",
                "arg1 to arg9 are Go's argument registers, of which a string or interface takes two: *(arg1+16):u32",
            );
        }
        return refuse(
            "names of arguments are known at a function's entry only, and of results at its return",
            "write a register and an offset: *(%rdi+16):u32",
        );
    };
    let Some(info) = DebugInfo::load(binary) else {
        return refuse(
            format!("{} has no debug information", binary.path.display()),
            missing::hint(&Debuginfod::here()),
        );
    };
    let dwarf = info.dwarf();
    let units = Units::new(&dwarf);
    let unit = unit_of(&units, function)
        .ok_or_else(|| (format!("no debug information about {function:#x}"), None))?;
    if let Some(refusal) = missing::split_off(&dwarf, &unit) {
        return Err(refusal);
    }
    let types = Types {
        reader: Reader {
            units: &units,
            unit,
        },
        function,
        returning: scope.returning,
    };
    then(types).map_err(|refusal| match &info.lacks {
        Some(shared) => missing::shared(shared),
        None => refusal,
    })
}

/// The unit whose code contains an address.
pub(super) fn unit_of<'a>(units: &Units<'_, 'a>, address: u64) -> Option<Rc<Unit<Slice<'a>>>> {
    units.iter().find(|unit| {
        let Ok(mut ranges) = units.dwarf.unit_ranges(unit) else {
            return false;
        };
        while let Ok(Some(range)) = ranges.next() {
            if (range.begin..range.end).contains(&address) {
                return true;
            }
        }
        false
    })
}

fn refuse<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, Refusal> {
    Err((what.into(), Some(hint.into())))
}

/// A typed value: in a register, or in memory at an address.
struct TypedValue {
    /// The value, or its address.
    expr: Expr,
    in_memory: bool,
    /// The value's second register, if it has two and is not in memory.
    second: Option<Expr>,
    kind: TypeId,
    /// The path so far, for messages.
    text: String,
}

impl TypedValue {
    /// The value itself, which is a pointer.
    fn pointer(self) -> Expr {
        if self.in_memory {
            Expr::Deref(Box::new(self.expr), None)
        } else {
            self.expr
        }
    }
}

struct Types<'u, 'a> {
    reader: Reader<'u, 'a>,
    function: u64,
    returning: bool,
}

impl<'a> Types<'_, 'a> {
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
            Expr::Str(inner, most) => Expr::Str(boxed(inner)?, *most),
            Expr::Text(inner, length, most) => {
                Expr::Text(boxed(inner)?, Box::new(self.number(length)?), *most)
            }
            Expr::Cast(inner, kind) => match &**inner {
                // A value in memory is read with the width of the cast.
                Expr::Path(path) => match self.walk(path)? {
                    found if found.in_memory => Expr::Deref(Box::new(found.expr), Some(*kind)),
                    found => Expr::Cast(Box::new(found.expr), *kind),
                },
                other => Expr::Cast(boxed(other)?, *kind),
            },
            other => other.clone(),
        })
    }

    /// Lowers a number; a path is read with its type.
    fn number(&self, expr: &Expr) -> Result<Expr, Refusal> {
        match expr {
            Expr::Path(path) => Ok(self.value(self.walk(path)?)?.expr),
            other => self.inside(other),
        }
    }

    /// Follows a path from an argument of the function.
    fn walk(&self, path: &Path) -> Result<TypedValue, Refusal> {
        let mut found = match (path.root.as_str(), self.returning) {
            (RETVAL, _) => self.result()?,
            (name, false) => self.argument(name)?,
            (name, true) => {
                return refuse(
                    format!("argument '{name}' is gone at a return"),
                    "read it where the function starts; retval is the result",
                );
            }
        };
        for step in &path.steps {
            found = match step {
                Step::Arrow(field) => self.arrow(found, field)?,
                Step::Dot(field) => self.dot(found, field)?,
            };
        }
        Ok(found)
    }

    fn argument(&self, name: &str) -> Result<TypedValue, Refusal> {
        let reader = &self.reader;
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
            convention,
        } = found;
        let kind = *kind;
        let found = |expr, in_memory, second| {
            kind.map(|kind| TypedValue {
                expr,
                in_memory,
                second,
                kind,
                text: name.to_owned(),
            })
        };
        let value = match (*held, *convention) {
            // Where the compiler changed the arguments, the convention does not hold.
            (Held::Register(register), _) => found(Expr::Reg(register), false, None),
            (Held::Pair([first, second]), _) => {
                found(Expr::Reg(first), false, Some(Expr::Reg(second)))
            }
            (Held::At(register, offset), _) => {
                let address = Expr::Add(Box::new(Expr::Reg(register)), offset);
                found(address, true, None)
            }
            (Held::ByConvention, Some(Convention::One(n))) => found(Expr::Arg(n), false, None),
            (Held::ByConvention, Some(Convention::Pair(n))) => {
                found(Expr::Arg(n), false, Some(Expr::Arg(n + 1)))
            }
            (Held::ByConvention, Some(Convention::At(n))) => found(Expr::Arg(n), true, None),
            (Held::ByConvention, None) | (Held::Nowhere, _) => None,
        };
        value.ok_or_else(|| {
            (
                format!(
                    "argument '{name}' ({}) is in no register that can be read",
                    parameter.r#type
                ),
                Some(self.elsewhere(kind, *held).to_owned()),
            )
        })
    }

    /// Hint for an argument of a type that can't be read.
    fn elsewhere(&self, kind: Option<TypeId>, held: Held) -> &'static str {
        let node = kind.and_then(|kind| self.stripped(kind).ok());
        let encoding = node
            .as_ref()
            .and_then(|it| it.attr_value(gimli::DW_AT_encoding));
        let float = AttributeValue::Encoding(gimli::DW_ATE_float);
        match held {
            _ if encoding == Some(float) => {
                "floating-point arguments are in %xmm registers, which are not read"
            }
            _ if node.is_some_and(|it| is_structure(it.tag())) => BY_VALUE,
            Held::Nowhere => "in this build the compiler took it away, or passes it in another way",
            _ => {
                "it comes after one passed by value, or after six others: name its register (%rdi, %rsi, %rdx, %rcx, \
                 %r8, %r9), or its place on the stack: *(%rsp+8)"
            }
        }
    }

    /// `retval` alone: what the register holds by the declared type.
    fn returned(&self) -> Result<Lowered, Refusal> {
        const FIRST: &str =
            "retval:u64 is %rax as it is; floating-point results are in %xmm0, which is not read";
        let reader = &self.reader;
        let register = Lowered {
            expr: Expr::Retval,
            names: None,
        };
        let Some(function) = reader.subprogram_at(self.function) else {
            return Ok(register);
        };
        let Some(kind) = reader.result_of(function) else {
            return if reader.returns_nothing(function) {
                refuse("the function returns nothing, so there is no retval", FIRST)
            } else {
                Ok(register)
            };
        };
        let Ok(node) = self.stripped(kind) else {
            return Ok(register);
        };
        let in_memory = reader.returns_in_memory(function);
        if is_structure(node.tag()) && !in_memory {
            return refuse(
                "the result is a small structure, which is returned in registers",
                "retval is the first register: retval:u64",
            );
        }
        let is_number = matches!(
            node.tag(),
            gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type
        );
        if !is_number && !in_memory {
            return Ok(register);
        }
        let result = self.value(TypedValue {
            expr: Expr::Retval,
            in_memory,
            second: None,
            kind,
            text: RETVAL.to_owned(),
        });
        result.map_err(|(what, hint)| {
            (
                what,
                hint.filter(|_| in_memory)
                    .or_else(|| Some(FIRST.to_owned())),
            )
        })
    }

    /// The function's return value.
    fn result(&self) -> Result<TypedValue, Refusal> {
        let reader = &self.reader;
        let function = reader.subprogram_at(self.function);
        let kind = function.and_then(|function| reader.result_of(function));
        let (Some(function), Some(kind)) = (function, kind) else {
            return refuse(
                "the debug information names no result of the function",
                "leave the fields out: retval is the register",
            );
        };
        let tag = self.stripped(kind)?.tag();
        let in_memory = reader.returns_in_memory(function);
        if !in_memory && !is_address(tag) {
            let what = if is_structure(tag) {
                "the result is a small structure, which is returned in registers"
            } else {
                "the result is neither a structure nor a pointer to one"
            };
            return refuse(what, "retval is the first register: retval:u32");
        }
        Ok(TypedValue {
            expr: Expr::Retval,
            in_memory,
            second: None,
            kind,
            text: RETVAL.to_owned(),
        })
    }

    /// `X->FIELD`.
    fn arrow(&self, found: TypedValue, field: &str) -> Result<TypedValue, Refusal> {
        let pointer = self.stripped(found.kind)?;
        let is_pointer = is_address(pointer.tag());
        let target = pointer.target();
        let (true, Some(target)) = (is_pointer, target) else {
            let by_value = is_structure(pointer.tag()) && !found.in_memory;
            let hint = match by_value {
                true => BY_VALUE.to_owned(),
                false => format!("write {}.{field} for a structure", found.text),
            };
            return refuse(
                format!("'{}' is not a pointer to a structure", found.text),
                hint,
            );
        };
        let text = found.text.clone();
        self.field(found.pointer(), target, field, &format!("{text}->{field}"))
    }

    /// `X.FIELD`. C++ references are followed.
    fn dot(&self, found: TypedValue, field: &str) -> Result<TypedValue, Refusal> {
        let kind = self.stripped(found.kind)?;
        let text = found.text.clone();
        if let (true, Some(target)) = (self.is_reference(kind.tag()), kind.target()) {
            return self.field(found.pointer(), target, field, &format!("{text}.{field}"));
        }
        if found.in_memory && !is_address(kind.tag()) {
            return self.field(found.expr, found.kind, field, &format!("{text}.{field}"));
        }
        if is_structure(kind.tag()) {
            return refuse(
                format!("'{text}' is a structure in registers, whose fields have no names there"),
                BY_VALUE,
            );
        }
        refuse(
            format!("'{text}' is not a structure in memory"),
            format!("write {text}->{field} for a pointer"),
        )
    }

    /// Whether values of this type are followed implicitly: C++ references, and every pointer in Rust.
    fn is_reference(&self, tag: gimli::DwTag) -> bool {
        matches!(
            tag,
            gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type
        ) || tag == gimli::DW_TAG_pointer_type && self.reader.is_rust()
    }

    /// A field of the structure at an address. `text`: the path up to it.
    fn field(
        &self,
        address: Expr,
        kind: TypeId,
        name: &str,
        text: &str,
    ) -> Result<TypedValue, Refusal> {
        let structure = self.stripped(kind)?;
        let mut names = Vec::new();
        let before = text.strip_suffix(name).unwrap_or(text);
        let before = before.trim_end_matches(['.', '-', '>']);
        match self.member(&structure, name, &mut names, 0) {
            Some(Member::Bits) => refuse(
                format!("'{text}' is a bit field, which has no address of its own"),
                format!("read the word that holds it: *({before}+OFFSET):u32"),
            ),
            Some(Member::Computed) => refuse(
                format!("'{text}' has no fixed place in its structure"),
                "a virtual base is found by the object at hand, a static member is outside of it",
            ),
            Some(Member::At(offset, kind)) => Ok(TypedValue {
                expr: Expr::Add(Box::new(address), offset),
                in_memory: true,
                second: None,
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
        structure: &Node<'a>,
        wanted: &str,
        names: &mut Vec<String>,
        depth: u32,
    ) -> Option<Member> {
        if depth >= MAX_DEPTH {
            return None;
        }
        for member in structure.children() {
            let is_base = member.tag() == gimli::DW_TAG_inheritance;
            if member.tag() != gimli::DW_TAG_member && !is_base {
                continue;
            }
            let Some(kind) = member.target() else {
                continue;
            };
            let offset = offset_of(&member);
            match self.reader.units.name(&member) {
                Some(name) if name == wanted => {
                    let bits = member.attr_value(gimli::DW_AT_bit_size).is_some();
                    return Some(match offset {
                        _ if bits => Member::Bits,
                        Some(offset) => Member::At(offset, kind),
                        None => Member::Computed,
                    });
                }
                Some(name) if !is_base => names.push(name),
                _ => {
                    let inner = self.stripped(kind).ok()?;
                    let found = self.member(&inner, wanted, names, depth + 1);
                    if let Some(found) = found {
                        return Some(match (found, offset) {
                            (Member::At(further, kind), Some(offset)) => {
                                Member::At(offset + further, kind)
                            }
                            (Member::At(..), None) => Member::Computed,
                            (other, _) => other,
                        });
                    }
                }
            }
        }
        None
    }

    /// Reads the value at the end of a path.
    fn value(&self, found: TypedValue) -> Result<Lowered, Refusal> {
        let kind = self.stripped(found.kind)?;
        let plain = |expr| Ok(Lowered { expr, names: None });
        let text = found.text.clone();
        self.not_wide(&found)?;
        match kind.tag() {
            gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type => {
                let names =
                    (kind.tag() == gimli::DW_TAG_enumeration_type).then(|| self.enumerators(&kind));
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
                if kind.target().is_some_and(|target| self.is_char(target)) {
                    return plain(Expr::Str(Box::new(found.pointer()), None));
                }
                if tag != gimli::DW_TAG_pointer_type
                    && let Some(Ok(array)) = kind.target().map(|target| self.stripped(target))
                    && array.target().is_some_and(|element| self.is_char(element))
                    && array.tag() == gimli::DW_TAG_array_type
                {
                    return plain(chars(found.pointer(), &array, None));
                }
                if self.is_reference(tag)
                    && let Some(target) = kind.target()
                    && let Ok(structure) = self.stripped(target)
                    && is_structure(structure.tag())
                {
                    let pointer = found.pointer();
                    if let Some(expr) = self.text(&pointer, None, &structure) {
                        return plain(expr);
                    }
                    return plain(pointer);
                }
                plain(found.pointer())
            }
            gimli::DW_TAG_array_type
                if found.in_memory && kind.target().is_some_and(|e| self.is_char(e)) =>
            {
                plain(chars(found.expr, &kind, None))
            }
            _ => self.structure(found, &kind),
        }
    }

    /// A structure is not a value, unless it is a text.
    fn structure(&self, found: TypedValue, kind: &Node<'a>) -> Result<Lowered, Refusal> {
        let text = found.text;
        let words = (found.in_memory || found.second.is_some())
            .then(|| self.text(&found.expr, found.second.as_ref(), kind));
        if let Some(Some(expr)) = words {
            return Ok(Lowered { expr, names: None });
        }
        let mut names = Vec::new();
        // No field has that name.
        self.member(kind, "", &mut names, 0);
        let shown = names
            .iter()
            .take(LISTED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        refuse(
            format!("'{text}' is not a number, pointer or string"),
            if !found.in_memory {
                BY_VALUE.to_owned()
            } else if shown.is_empty() {
                "name one of its parts".to_owned()
            } else {
                format!("name one of its fields: {shown}")
            },
        )
    }

    /// Width and sign of a number.
    fn number_type(&self, kind: &Node<'a>, text: &str) -> Result<Type, Refusal> {
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
            // For an enumeration, its underlying type.
            None => kind
                .target()
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

    fn enumerators(&self, kind: &Node<'a>) -> Names {
        let values = kind.children().into_iter().filter_map(|child| {
            let value = child.attr_value(gimli::DW_AT_const_value)?;
            let name = self.reader.units.name(&child)?;
            Some((value.sdata_value()?, name.into_boxed_str()))
        });
        values.collect()
    }

    fn is_char(&self, kind: TypeId) -> bool {
        let Ok(kind) = self.stripped(kind) else {
            return false;
        };
        // `unsigned char` and the like are bytes, not text.
        let name = self.reader.units.name(&kind);
        byte_size(&kind) == Some(1) && matches!(name.as_deref(), Some("char" | "char8_t"))
    }

    /// The type without typedefs and qualifiers.
    fn stripped(&self, kind: TypeId) -> Result<Node<'a>, Refusal> {
        let unknown = || ("its type is not in the debug information".to_owned(), None);
        self.reader.units.stripped(kind).ok_or_else(unknown)
    }
}

/// Location of a member.
enum Member {
    At(i64, TypeId),
    Bits,
    /// In no fixed place.
    Computed,
}

/// Offset of a member from the start of its structure, bytes; `None` if it depends on the object, or if it is static.
///
/// DWARF 2 writes it as an expression that adds a constant, DWARF 3 and later as a number; either may also give bits.
/// The expression for a virtual base reads the object.
fn offset_of(member: &Node<'_>) -> Option<i64> {
    let has = |name| member.attr_value(name).is_some();
    match member.attr_value(gimli::DW_AT_data_member_location) {
        Some(AttributeValue::Exprloc(expression)) => added(expression.0.slice()),
        Some(value) => value.udata_value()?.try_into().ok(),
        None => match member.attr_value(gimli::DW_AT_data_bit_offset) {
            Some(bits) => i64::try_from(bits.udata_value()? / 8).ok(),
            None if has(gimli::DW_AT_external) || has(gimli::DW_AT_declaration) => None,
            None => Some(0),
        },
    }
}

/// The constant that an expression adds to an address, if it does nothing else.
fn added(expression: &[u8]) -> Option<i64> {
    let (op, mut rest) = match expression.split_last() {
        // "Push a constant, add" is an older form.
        Some((&last, [first, rest @ ..]))
            if last == gimli::DW_OP_plus.0 && *first == gimli::DW_OP_constu.0 =>
        {
            (
                gimli::DW_OP_plus_uconst.0,
                Slice::new(rest, gimli::LittleEndian),
            )
        }
        _ => {
            let (first, rest) = expression.split_first()?;
            (*first, Slice::new(rest, gimli::LittleEndian))
        }
    };
    if op != gimli::DW_OP_plus_uconst.0 {
        return None;
    }
    let constant = rest.read_uleb128().ok()?;
    rest.is_empty().then(|| constant.try_into().ok())?
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
