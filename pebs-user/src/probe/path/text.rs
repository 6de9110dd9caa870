//! Structures that are strings: of C++ and of Rust.

use super::{Lowered, MAX_DEPTH, Member, Refusal, Types, is_address, refuse};
use crate::binary::units::{Kind, Node};
use crate::probe::expr::Expr;

impl<'a> Types<'_, 'a> {
    /// A string of any kind, cut at `most` bytes.
    pub(super) fn cut(&self, path: &Expr, most: u32) -> Result<Lowered, Refusal> {
        let Expr::Path(path) = path else {
            return refuse("a string is at an address", "write str(ADDRESS, LEN)");
        };
        let lowered = self.value(self.walk(path)?)?;
        let expr = match lowered.expr {
            Expr::Str(address, _) => Expr::Str(address, Some(most)),
            Expr::Text(address, length, _) => Expr::Text(address, length, Some(most)),
            address => Expr::Str(Box::new(address), Some(most)),
        };
        Ok(Lowered { expr, names: None })
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
    fn field_of(&self, structure: &Node<'a>, name: &str) -> Option<(i64, Kind)> {
        match self.member(structure, name, &mut Vec::new(), 0)? {
            Member::At(offset, kind) => Some((offset, kind)),
            Member::Bits | Member::Computed => None,
        }
    }

    /// Whether a pointer is to bytes.
    fn is_byte(&self, pointer: Kind) -> bool {
        let pointer = self.stripped(pointer).ok();
        let target = pointer.and_then(|pointer| pointer.target());
        target.is_some_and(|target| self.is_u8(target))
    }

    /// Whether a vector's elements are bytes.
    fn is_byte_or(&self, vector: &Node<'a>, element: Kind) -> bool {
        let name = self.reader.units.name(vector);
        self.is_u8(element) && name.is_some_and(|name| name.starts_with("Vec<u8"))
    }

    fn is_u8(&self, kind: Kind) -> bool {
        let kind = self.stripped(kind).ok();
        let name = kind.and_then(|kind| self.reader.units.name(&kind));
        name.as_deref() == Some("u8")
    }
}

/// A text whose pointer is in memory at `address`, with its length at `distance` from it.
fn behind(address: &Expr, distance: i64) -> Expr {
    let length = Expr::Add(Box::new(address.clone()), distance);
    let word = |address| Box::new(Expr::Deref(Box::new(address), None));
    Expr::Text(word(address.clone()), word(length), None)
}
