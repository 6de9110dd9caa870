//! Structures that are strings: of C++ and of Rust.

use super::{Lowered, MAX_DEPTH, Member, Refusal, TypedValue, Types, is_address, refuse};
use crate::binary::parameters::{byte_size, is_structure};
use crate::binary::units::{Node, TypeId};
use crate::spec::expr::Expr;

impl<'a> Types<'_, 'a> {
    /// `str(ADDRESS)` of an address with a path in it: a string of any kind, cut at `most` bytes. That of an array ends
    /// with it.
    pub(super) fn string(&self, address: &Expr, most: Option<u32>) -> Result<Lowered, Refusal> {
        let (path, skipped) = match address {
            Expr::Path(path) => (path, 0),
            Expr::Add(inner, skipped) => match &**inner {
                Expr::Path(path) => (path, *skipped),
                _ => return self.string_at(address, most),
            },
            _ => return self.string_at(address, most),
        };
        let found = self.walk(path)?;
        self.not_wide(&found)?;
        let kind = self.stripped(found.kind)?;
        let element = kind
            .target()
            .and_then(|of_each| self.stripped(of_each).ok());
        let width = element.as_ref().and_then(|element| byte_size(element));
        if found.in_memory && kind.tag() == gimli::DW_TAG_array_type && width == Some(1) {
            let expr = chars_from(found.expr, &kind, skipped, most).ok_or_else(|| {
                let what = format!("'{}' has no byte {skipped}", found.text);
                (what, Some("count from 0, up to its size".to_owned()))
            })?;
            return Ok(Lowered { expr, names: None });
        }
        let is_number = kind.tag() == gimli::DW_TAG_base_type;
        if skipped != 0 || is_number {
            return self.string_at(address, most);
        }
        let expr = match self.value(found)?.expr {
            Expr::Str(address, _) => Expr::Str(address, most),
            Expr::Chars(address, size, _) => Expr::Chars(address, size, most),
            Expr::Text(address, length, _) => Expr::Text(address, length, most),
            address => Expr::Str(Box::new(address), most),
        };
        Ok(Lowered { expr, names: None })
    }

    fn string_at(&self, address: &Expr, most: Option<u32>) -> Result<Lowered, Refusal> {
        let expr = Expr::Str(Box::new(self.inside(address)?), most);
        Ok(Lowered { expr, names: None })
    }

    /// Refuses texts whose characters have several bytes: pointers to them, arrays and strings of C++.
    pub(super) fn not_wide(&self, found: &TypedValue) -> Result<(), Refusal> {
        match self.wide(found.kind, 0) {
            None => Ok(()),
            Some(name) => refuse(
                format!(
                    "'{}' is a text of {name}, which is not read: only texts of bytes are",
                    found.text
                ),
                "name another field; the address of a pointer is X:u64",
            ),
        }
    }

    /// The type of the characters, if a value is a text of characters of several bytes.
    fn wide(&self, kind: TypeId, depth: u32) -> Option<&'static str> {
        let node = self.stripped(kind).ok().filter(|_| depth < MAX_DEPTH)?;
        if is_structure(node.tag()) {
            let (_, holder) = self.field_of(&node, "_M_dataplus")?;
            let (_, pointer) = self.field_of(&self.stripped(holder).ok()?, "_M_p")?;
            return self.wide(pointer, depth + 1);
        }
        let is_reference = self.is_reference(node.tag());
        if node.tag() != gimli::DW_TAG_array_type && !is_address(node.tag()) {
            return None;
        }
        let target = node.target()?;
        let of_reference = || self.wide(target, depth + 1).filter(|_| is_reference);
        self.wide_character(target).or_else(of_reference)
    }

    /// The name of a character's type, which may be a typedef, if it has several bytes.
    fn wide_character(&self, mut kind: TypeId) -> Option<&'static str> {
        for _ in 0..MAX_DEPTH {
            let node = self.reader.units.node(kind)?;
            let name = self.reader.units.name(&node);
            let mut wide = ["wchar_t", "char16_t", "char32_t"].into_iter();
            let found = wide.find(|wide| name.as_deref() == Some(*wide));
            if found.is_some() {
                return found;
            }
            let is_pointer = is_address(node.tag());
            kind = node.target().filter(|_| !is_pointer)?;
        }
        None
    }

    /// The text that a structure is, if it is a string of C++ or Rust: at an address, or in two words.
    pub(super) fn text(
        &self,
        value: &Expr,
        second: Option<&Expr>,
        kind: &Node<'a>,
    ) -> Option<Expr> {
        let at = |offset: i64| Expr::Add(Box::new(value.clone()), offset);
        let field = |name: &str| self.field_of(kind, name);
        if let Some((offset, pointee)) = field("data_ptr") {
            let (length, _) = field("length")?;
            if !self.is_byte(pointee) {
                return None;
            }
            return Some(match second {
                Some(second) => Expr::Text(Box::new(value.clone()), Box::new(second.clone()), None),
                None => behind(&at(offset), length - offset),
            });
        }
        if second.is_some() {
            return None;
        }
        // `std::array`, of GNU's and LLVM's library.
        if let Some((offset, array)) = field("_M_elems").or_else(|| field("__elems_")) {
            let array = self.stripped(array).ok()?;
            let of_chars = array.target().is_some_and(|element| self.is_char(element));
            return of_chars.then(|| chars(at(offset), &array, None));
        }
        if let Some((offset, _)) = field("_M_dataplus") {
            // It is NUL-terminated.
            let pointer = Expr::Deref(Box::new(at(offset)), None);
            return Some(Expr::Str(Box::new(pointer), None));
        }
        let (string, vector) = match field("vec") {
            Some((offset, vector)) => (offset, self.stripped(vector).ok()?),
            None => (0, kind.clone()),
        };
        let (length, _) = self.field_of(&vector, "len")?;
        let (mut offset, mut inner) = self.field_of(&vector, "buf")?;
        for _ in 0..MAX_DEPTH {
            let entry = self.stripped(inner).ok()?;
            if is_address(entry.tag()) {
                let target = entry.target()?;
                return match self.is_byte_or(&vector, target) {
                    true => Some(behind(&at(string + offset), length - offset)),
                    false => None,
                };
            }
            let part = ["inner", "ptr", "pointer"].into_iter();
            let mut part = part.filter_map(|name| self.field_of(&entry, name));
            let (further, kind) = part.next()?;
            offset += further;
            inner = kind;
        }
        None
    }

    /// Offset and type of a field. The target of a pointer field is not examined.
    fn field_of(&self, structure: &Node<'a>, name: &str) -> Option<(i64, TypeId)> {
        match self.member(structure, name, &mut Vec::new(), 0)? {
            Member::At(offset, kind) => Some((offset, kind)),
            Member::Bits | Member::Computed => None,
        }
    }

    /// Whether a pointer is to bytes.
    fn is_byte(&self, pointer: TypeId) -> bool {
        let pointer = self.stripped(pointer).ok();
        let target = pointer.and_then(|pointer| pointer.target());
        target.is_some_and(|target| self.is_u8(target))
    }

    /// Whether a vector's elements are bytes.
    fn is_byte_or(&self, vector: &Node<'a>, element: TypeId) -> bool {
        let name = self.reader.units.name(vector);
        self.is_u8(element) && name.is_some_and(|name| name.starts_with("Vec<u8"))
    }

    fn is_u8(&self, kind: TypeId) -> bool {
        let kind = self.stripped(kind).ok();
        let name = kind.and_then(|kind| self.reader.units.name(&kind));
        name.as_deref() == Some("u8")
    }
}

/// The text in an array of characters: up to a NUL, or the array's end.
pub(super) fn chars(address: Expr, array: &Node<'_>, most: Option<u32>) -> Expr {
    match size_of(array) {
        Some(size) => Expr::Chars(Box::new(address), size, most),
        None => Expr::Str(Box::new(address), most),
    }
}

/// The same from a byte of it on; `None` if it has no such byte.
fn chars_from(address: Expr, array: &Node<'_>, first: i64, most: Option<u32>) -> Option<Expr> {
    let address = Box::new(Expr::Add(Box::new(address), first));
    let Some(size) = size_of(array) else {
        return Some(Expr::Str(address, most));
    };
    let size = u32::try_from(i64::from(size) - first).ok();
    size.filter(|left| *left > 0 && first >= 0)
        .map(|left| Expr::Chars(address, left, most))
}

/// Number of elements of an array, of the last of its dimensions; `None` if it is open (`char text[]`).
fn size_of(array: &Node<'_>) -> Option<u32> {
    let mut ranges = array.children().into_iter();
    let range = ranges.rfind(|it| it.tag() == gimli::DW_TAG_subrange_type)?;
    let number = |name| range.attr_value(name).and_then(|value| value.udata_value());
    let count = number(gimli::DW_AT_count);
    let count = count.or_else(|| number(gimli::DW_AT_upper_bound)?.checked_add(1));
    count
        .and_then(|count| u32::try_from(count).ok())
        .filter(|count| *count > 0)
}

/// A text whose pointer is in memory at `address`, with its length at `distance` from it.
fn behind(address: &Expr, distance: i64) -> Expr {
    let length = Expr::Add(Box::new(address.clone()), distance);
    let word = |address| Box::new(Expr::Deref(Box::new(address), None));
    Expr::Text(word(address.clone()), word(length), None)
}
