//! The ids of a batch by name: address and element type of their array.

use super::{Refusal, Scope, TypeId, TypedValue, Types, is_address, refuse, with_types};
use crate::binary::elf::Binary;
use crate::spec::expr::{Behind, Expr, Ids, Step, Type};

/// Replaces the paths in the ids of a batch, and completes their type.
///
/// # Errors
/// As [`lower`](super::lower); an array of structures has no ids.
pub(in crate::probe) fn lower_ids(
    ids: &Ids,
    binary: &Binary,
    scope: Scope,
) -> Result<Ids, Refusal> {
    let in_field = matches!(ids.behind, Some(Behind::Field(_)));
    if !ids.array.has_path() && !ids.count.has_path() && !in_field {
        return Ok(ids.clone());
    }
    with_types(binary, scope, |types| {
        let (array, known) = match &ids.array {
            Expr::Path(path) => types.array(types.walk(path)?)?,
            other => (types.inside(other)?, None),
        };
        let (behind, of_field) = match &ids.behind {
            Some(Behind::Field(steps)) => {
                let (offset, of_field) = types.behind(known.as_ref(), steps)?;
                (Some(Behind::Offset(offset)), Some(of_field))
            }
            other => (other.clone(), None),
        };
        let r#type = match (ids.r#type.or(of_field), known) {
            (Some(given), _) => Some(given),
            // The target type of the pointer is unknown.
            (None, _) if behind.is_some() => None,
            (None, Some(Element::Number(known))) => Some(known),
            (None, Some(Element::Pointer(_))) => Some(Type::Unsigned(8)),
            (None, Some(Element::Structure)) => {
                return refuse(
                    "the elements of the array are structures, not ids",
                    "an array of pointers to them (ids=pkts[n], ids=pkts[n]->id), or of numbers, has ids",
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
            behind,
            r#type,
            at: ids.at,
        })
    })
}

/// Element of an array.
enum Element {
    Number(Type),
    /// A pointer to this type.
    Pointer(TypeId),
    Structure,
}

impl Types<'_, '_> {
    /// Offset of a field from the pointers in an array, and its type.
    fn behind(&self, element: Option<&Element>, steps: &[Step]) -> Result<(i64, Type), Refusal> {
        let Some(Element::Pointer(kind)) = element else {
            return refuse(
                "nothing says what the array points to",
                "name the array (ids=pkts[n]->id), or give the offset: ids=arg2[arg3]->16:u64",
            );
        };
        // The pointer stands for its target.
        let mut found = TypedValue {
            expr: Expr::Retval,
            in_memory: false,
            second: None,
            kind: *kind,
            text: "an element of the array".to_owned(),
        };
        for step in steps {
            found = match step {
                Step::Arrow(field) => self.arrow(found, field)?,
                Step::Dot(field) => self.dot(found, field)?,
            };
        }
        let kind = self.stripped(found.kind)?;
        let r#type = if is_address(kind.tag()) {
            Type::Unsigned(8)
        } else {
            self.number_type(&kind, &found.text)?
        };
        match offset_of(&found.expr) {
            Some(offset) => Ok((offset, r#type)),
            None => refuse(
                format!("'{}' is behind another pointer", found.text),
                "ids are behind one pointer at most",
            ),
        }
    }

    /// Address of an array's elements, and their type.
    fn array(&self, found: TypedValue) -> Result<(Expr, Option<Element>), Refusal> {
        let kind = self.stripped(found.kind)?;
        let is_array = kind.tag() == gimli::DW_TAG_array_type && found.in_memory;
        if !is_array && !is_address(kind.tag()) {
            return refuse(
                format!("'{}' is neither an array nor a pointer", found.text),
                "ids= takes the address of the first id",
            );
        }
        let known = kind.target().and_then(|of_each| {
            let element = self.stripped(of_each).ok()?;
            Some(match element.tag() {
                tag if is_address(tag) => Element::Pointer(of_each),
                gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type => self
                    .number_type(&element, &found.text)
                    .map_or(Element::Structure, Element::Number),
                _ => Element::Structure,
            })
        });
        let address = if is_array {
            found.expr
        } else {
            found.pointer()
        };
        Ok((address, known))
    }
}

/// Offset of an address from its start; `None` if memory is read in between.
fn offset_of(address: &Expr) -> Option<i64> {
    match address {
        Expr::Retval => Some(0),
        Expr::Add(inner, offset) => offset_of(inner)?.checked_add(*offset),
        _ => None,
    }
}
