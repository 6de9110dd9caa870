//! Entries of the debug information, which refer to each other within and across units.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;

use gimli::{
    AttributeValue, DebugTypeSignature, DebuggingInformationEntry, Dwarf, Unit, UnitHeader,
    UnitOffset, UnitSectionOffset, UnitType,
};

use super::dwarf::Slice;
use crate::terminal::shown;

/// Maximum number of origins and nested types followed.
const MAX_DEPTH: u32 = 16;

/// Position of an entry, which identifies a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TypeId {
    At(Section, usize),
    /// The type of this signature, in a unit of its own (`-fdebug-types-section`).
    Signature(DebugTypeSignature),
}

/// The section of debug information that an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Section {
    Info,
    /// Type units, before DWARF 5.
    Types,
    /// Of the file that several binaries share (`dwz -m`).
    Shared,
}

pub(crate) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// All units, read on demand.
pub(crate) struct Units<'d, 'a> {
    pub dwarf: &'d Dwarf<Slice<'a>>,
    info: Part<'d, 'a>,
    types: Part<'d, 'a>,
    shared: Option<Part<'d, 'a>>,
    signatures: HashMap<DebugTypeSignature, TypeId>,
}

/// The units of a section.
struct Part<'d, 'a> {
    dwarf: &'d Dwarf<Slice<'a>>,
    headers: Vec<UnitHeader<Slice<'a>>>,
    read: RefCell<HashMap<usize, Rc<Unit<Slice<'a>>>>>,
}

/// An entry with its unit.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    pub unit: Rc<Unit<Slice<'a>>>,
    pub entry: Entry<'a>,
    section: Section,
}

impl<'a> Deref for Node<'a> {
    type Target = Entry<'a>;

    fn deref(&self) -> &Entry<'a> {
        &self.entry
    }
}

impl<'a> Node<'a> {
    /// An entry of a unit of [`Units::iter`].
    pub(crate) fn of(unit: &Rc<Unit<Slice<'a>>>, offset: UnitOffset) -> Option<Self> {
        Self::within(unit, offset, Section::Info)
    }

    fn within(unit: &Rc<Unit<Slice<'a>>>, offset: UnitOffset, section: Section) -> Option<Self> {
        Some(Self {
            unit: Rc::clone(unit),
            entry: unit.entry(offset).ok()?,
            section,
        })
    }

    /// Its position.
    pub(crate) fn id(&self) -> TypeId {
        position(self.section, &self.unit.header, self.entry.offset())
    }

    /// Target of a reference attribute.
    pub(crate) fn reference(&self, name: gimli::DwAt) -> Option<TypeId> {
        let whole = match self.section {
            Section::Shared => Section::Shared,
            Section::Info | Section::Types => Section::Info,
        };
        match self.entry.attr_value(name)? {
            AttributeValue::UnitRef(at) => Some(position(self.section, &self.unit.header, at)),
            AttributeValue::DebugInfoRef(at) => Some(TypeId::At(whole, at.0)),
            AttributeValue::DebugInfoRefSup(at) => Some(TypeId::At(Section::Shared, at.0)),
            AttributeValue::DebugTypesRef(signature) => Some(TypeId::Signature(signature)),
            _ => None,
        }
    }

    /// Target type of a pointer, array, typedef or enumeration.
    pub(crate) fn target(&self) -> Option<TypeId> {
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
                    section: self.section,
                });
            }
        }
        found
    }
}

fn position(section: Section, header: &UnitHeader<Slice<'_>>, at: UnitOffset) -> TypeId {
    TypeId::At(section, at.to_unit_section_offset(header).0)
}

impl<'d, 'a> Part<'d, 'a> {
    fn new(
        dwarf: &'d Dwarf<Slice<'a>>,
        mut next: impl FnMut() -> gimli::Result<Option<UnitHeader<Slice<'a>>>>,
    ) -> Self {
        Self {
            dwarf,
            headers: std::iter::from_fn(|| next().ok().flatten()).collect(),
            read: RefCell::default(),
        }
    }

    /// The unit that holds an offset of the section.
    fn unit(&self, offset: usize) -> Option<Rc<Unit<Slice<'a>>>> {
        let begins = |header: &UnitHeader<Slice<'a>>| header.offset().0 <= offset;
        let at = self.headers.partition_point(begins).checked_sub(1)?;
        let known = self.read.borrow().get(&at).cloned();
        if known.is_some() {
            return known;
        }
        let unit = Rc::new(self.dwarf.unit(self.headers[at]).ok()?);
        self.read.borrow_mut().insert(at, Rc::clone(&unit));
        Some(unit)
    }
}

impl<'d, 'a> Units<'d, 'a> {
    /// The units of some debug information.
    pub(crate) fn new(dwarf: &'d Dwarf<Slice<'a>>) -> Self {
        let (mut info, mut types) = (dwarf.units(), dwarf.type_units());
        let info = Part::new(dwarf, || info.next());
        let types = Part::new(dwarf, || types.next());
        let shared = dwarf.sup().map(|shared| {
            let mut units = shared.units();
            Part::new(shared, || units.next())
        });
        let signed = [(Section::Info, &info), (Section::Types, &types)];
        let signatures = signed.into_iter().flat_map(|(section, part)| {
            part.headers
                .iter()
                .filter_map(move |header| match header.type_() {
                    UnitType::Type {
                        type_signature,
                        type_offset,
                    } => Some((type_signature, position(section, header, type_offset))),
                    _ => None,
                })
        });
        Self {
            signatures: signatures.collect(),
            dwarf,
            info,
            types,
            shared,
        }
    }

    /// All readable units of the binary's own information.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Rc<Unit<Slice<'a>>>> + '_ {
        let units = self.info.headers.iter();
        units.filter_map(|header| self.dwarf.unit(*header).ok().map(Rc::new))
    }

    /// The entry at a place; for the declaration of a type in a unit of its own, that type.
    pub(crate) fn node(&self, kind: TypeId) -> Option<Node<'a>> {
        let node = self.entry(kind)?;
        let whole = node.reference(gimli::DW_AT_signature);
        whole.and_then(|whole| self.entry(whole)).or(Some(node))
    }

    fn entry(&self, kind: TypeId) -> Option<Node<'a>> {
        let (section, offset) = match kind {
            TypeId::At(section, offset) => (section, offset),
            TypeId::Signature(signature) => match self.signatures.get(&signature)? {
                TypeId::At(section, offset) => (*section, *offset),
                TypeId::Signature(_) => return None,
            },
        };
        let unit = self.part(section)?.unit(offset)?;
        let offset = UnitSectionOffset(offset).to_unit_offset(&unit.header)?;
        Node::within(&unit, offset, section)
    }

    fn part(&self, section: Section) -> Option<&Part<'d, 'a>> {
        match section {
            Section::Info => Some(&self.info),
            Section::Types => Some(&self.types),
            Section::Shared => self.shared.as_ref(),
        }
    }

    /// The text of an attribute.
    fn text(&self, node: &Node<'a>, name: gimli::DwAt) -> Option<String> {
        let value = node.entry.attr_value(name)?;
        let dwarf = self.part(node.section)?.dwarf;
        let text = dwarf.attr_string(&node.unit, value).ok()?;
        Some(text.to_string_lossy().into_owned())
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
    pub(crate) fn type_of(&self, node: &Node<'a>) -> Option<TypeId> {
        self.attribute(node, Node::target)
    }

    /// The name of an entry, made safe for display.
    pub(crate) fn name(&self, node: &Node<'a>) -> Option<String> {
        let name = self.attribute(node, |node| self.text(node, gimli::DW_AT_name))?;
        Some(shown(&name).into_owned())
    }

    /// The name of a function's symbol, where that is not its name in the source.
    pub(crate) fn linkage_name(&self, node: &Node<'a>) -> Option<String> {
        self.attribute(node, |node| self.text(node, gimli::DW_AT_linkage_name))
    }

    /// The type without typedefs and qualifiers.
    pub(crate) fn stripped(&self, kind: TypeId) -> Option<Node<'a>> {
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
