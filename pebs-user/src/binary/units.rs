//! Entries of the debug information, which refer to each other within and across units.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;

use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Dwarf, Unit, UnitHeader, UnitOffset,
};

use super::dwarf::Slice;
use crate::terminal::shown;

/// Maximum number of origins and nested types followed.
const MAX_DEPTH: u32 = 16;

/// Position of an entry, which identifies a type.
pub(crate) type Kind = DebugInfoOffset;

pub(crate) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// All units, read on demand.
pub(crate) struct Units<'d, 'a> {
    pub dwarf: &'d Dwarf<Slice<'a>>,
    headers: Vec<UnitHeader<Slice<'a>>>,
    read: RefCell<HashMap<usize, Rc<Unit<Slice<'a>>>>>,
}

/// An entry with its unit.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    pub unit: Rc<Unit<Slice<'a>>>,
    pub entry: Entry<'a>,
}

impl<'a> Deref for Node<'a> {
    type Target = Entry<'a>;

    fn deref(&self) -> &Entry<'a> {
        &self.entry
    }
}

impl<'a> Node<'a> {
    /// An entry of a unit.
    pub(crate) fn of(unit: &Rc<Unit<Slice<'a>>>, offset: UnitOffset) -> Option<Self> {
        Some(Self {
            unit: Rc::clone(unit),
            entry: unit.entry(offset).ok()?,
        })
    }

    /// Target of a reference attribute.
    pub(crate) fn reference(&self, name: gimli::DwAt) -> Option<Kind> {
        match self.entry.attr_value(name)? {
            AttributeValue::UnitRef(offset) => offset.to_debug_info_offset(&self.unit.header),
            AttributeValue::DebugInfoRef(offset) => Some(offset),
            _ => None,
        }
    }

    /// Target type of a pointer, array, typedef or enumeration.
    pub(crate) fn target(&self) -> Option<Kind> {
        self.reference(gimli::DW_AT_type)
    }

    /// Its child entries, up to the first that can't be read.
    pub(crate) fn children(&self) -> Vec<Self> {
        let mut found = Vec::new();
        if let Ok(mut tree) = self.unit.entries_tree(Some(self.entry.offset()))
            && let Ok(root) = tree.root()
        {
            let mut children = root.children();
            while let Ok(Some(child)) = children.next() {
                found.push(Self {
                    unit: Rc::clone(&self.unit),
                    entry: child.entry().clone(),
                });
            }
        }
        found
    }
}

impl<'d, 'a> Units<'d, 'a> {
    /// The units of some debug information.
    pub(crate) fn new(dwarf: &'d Dwarf<Slice<'a>>) -> Self {
        let mut headers = Vec::new();
        let mut all = dwarf.units();
        while let Ok(Some(header)) = all.next() {
            headers.push(header);
        }
        Self {
            dwarf,
            headers,
            read: RefCell::default(),
        }
    }

    /// All readable units.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Rc<Unit<Slice<'a>>>> + '_ {
        let units = self.headers.iter();
        units.filter_map(|header| self.dwarf.unit(*header).ok().map(Rc::new))
    }

    /// The entry at a place.
    pub(crate) fn node(&self, kind: Kind) -> Option<Node<'a>> {
        let begins = |header: &UnitHeader<Slice<'a>>| {
            header.debug_info_offset().is_some_and(|at| at.0 <= kind.0)
        };
        let at = self.headers.partition_point(begins).checked_sub(1)?;
        let known = self.read.borrow().get(&at).cloned();
        let unit = match known {
            Some(unit) => unit,
            None => {
                let unit = Rc::new(self.dwarf.unit(self.headers[at]).ok()?);
                self.read.borrow_mut().insert(at, Rc::clone(&unit));
                unit
            }
        };
        let offset = kind.to_unit_offset(&unit.header)?;
        Node::of(&unit, offset)
    }

    /// The origin of an entry (abstract origin or specification).
    pub(crate) fn origin(&self, node: &Node<'a>) -> Option<Node<'a>> {
        let origin = node.reference(gimli::DW_AT_abstract_origin);
        self.node(origin.or_else(|| node.reference(gimli::DW_AT_specification))?)
    }

    /// An attribute of an entry or of its origins.
    fn attribute<T>(&self, node: &Node<'a>, what: impl Fn(&Node<'a>) -> Option<T>) -> Option<T> {
        let mut node = node.clone();
        for _ in 0..MAX_DEPTH {
            if let Some(found) = what(&node) {
                return Some(found);
            }
            node = self.origin(&node)?;
        }
        None
    }

    /// The type of an argument or of a function's result.
    pub(crate) fn type_of(&self, node: &Node<'a>) -> Option<Kind> {
        self.attribute(node, Node::target)
    }

    /// The name of an entry, made safe for display.
    pub(crate) fn name(&self, node: &Node<'a>) -> Option<String> {
        self.attribute(node, |node| {
            let value = node.entry.attr_value(gimli::DW_AT_name)?;
            let text = self.dwarf.attr_string(&node.unit, value).ok()?;
            Some(shown(&text.to_string_lossy()).into_owned())
        })
    }

    /// The name of a function's symbol, where that is not its name in the source.
    pub(crate) fn linkage_name(&self, node: &Node<'a>) -> Option<String> {
        self.attribute(node, |node| {
            let value = node.entry.attr_value(gimli::DW_AT_linkage_name)?;
            let text = self.dwarf.attr_string(&node.unit, value).ok()?;
            Some(text.to_string_lossy().into_owned())
        })
    }

    /// The type without typedefs and qualifiers.
    pub(crate) fn stripped(&self, kind: Kind) -> Option<Node<'a>> {
        let mut kind = kind;
        for _ in 0..MAX_DEPTH {
            let node = self.node(kind)?;
            let through = matches!(
                node.tag(),
                gimli::DW_TAG_typedef
                    | gimli::DW_TAG_const_type
                    | gimli::DW_TAG_volatile_type
                    | gimli::DW_TAG_restrict_type
                    | gimli::DW_TAG_atomic_type
            );
            if !through {
                return Some(node);
            }
            kind = node.target()?;
        }
        None
    }
}
