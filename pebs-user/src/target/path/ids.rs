//! The ids of a batch by their names: where the array is, and what it holds.

use super::{Found, Refusal, Scope, Types, is_address, refuse, with_types};
use crate::target::elf::Binary;
use crate::target::expr::{Expr, Ids, Type};

/// Replaces the paths in the ids of a batch, and completes their type.
///
/// # Errors
/// As [`lower`]; an array of structures has no ids.
pub(in crate::target) fn lower_ids(
    ids: &Ids,
    binary: &Binary,
    scope: Scope,
) -> Result<Ids, Refusal> {
    if !ids.array.has_path() && !ids.count.has_path() {
        return Ok(ids.clone());
    }
    with_types(binary, scope, |types| {
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

/// What an array holds.
enum Element {
    Number(Type),
    Structure,
}

impl Types<'_, '_> {
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
        let element = kind.target().and_then(|it| self.stripped(it).ok());
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
}
