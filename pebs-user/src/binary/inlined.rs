//! Functions without code of their own: the compiler inlined them into their callers.

use std::collections::{BTreeSet, HashSet};

use super::demangle::TypedName;
use super::dwarf::DebugInfo;
use super::elf::Binary;
use super::lookup;
use super::parameters::Reader;
use super::units::{Node, TypeId, Units};

/// Maximum number of callers named.
const MAX_CALLERS: usize = 3;

/// Names of the functions that a function was inlined into, as for a SPEC. Empty if nothing is known of it.
///
/// Cost: reads all entries of the debug information, twice.
#[must_use]
pub(crate) fn callers(binary: &Binary, typed: &str) -> Vec<String> {
    let Some(info) = DebugInfo::load(binary) else {
        return Vec::new();
    };
    let dwarf = info.dwarf();
    let units = Units::new(&dwarf);
    let inlined = meant(&units, typed);
    if inlined.is_empty() {
        return Vec::new();
    }
    let addresses = holders(&units, &inlined);
    let named = addresses.into_iter().take(MAX_CALLERS);
    named
        .map(|address| lookup::spelling(binary, address))
        .collect()
}

/// The functions of that name marked as inlined in the debug information.
fn meant<'a>(units: &Units<'_, 'a>, typed: &str) -> HashSet<TypeId> {
    let wanted = TypedName::new(typed);
    let is_meant = |node: &Node<'a>| match units.linkage_name(node) {
        Some(raw) => wanted.fit(&raw).is_some(),
        None => units.name(node).is_some_and(|name| name == typed),
    };
    let mut found = HashSet::new();
    for unit in units.iter() {
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() != gimli::DW_TAG_subprogram
                || entry.attr_value(gimli::DW_AT_inline).is_none()
            {
                continue;
            }
            let node = Node::of(&unit, entry.offset()).filter(is_meant);
            found.extend(node.map(|node| node.id()));
        }
    }
    found
}

/// First addresses of the functions that contain inlined code.
fn holders(units: &Units<'_, '_>, inlined: &HashSet<TypeId>) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for unit in units.iter() {
        let reader = Reader {
            units,
            unit: unit.clone(),
        };
        let mut entries = unit.entries();
        let mut around = None;
        while let Ok(Some(entry)) = entries.next_dfs() {
            match entry.tag() {
                gimli::DW_TAG_subprogram => around = reader.address(entry).ok().flatten(),
                gimli::DW_TAG_inlined_subroutine => {
                    let node = Node::of(&unit, entry.offset());
                    let of = node.and_then(|node| node.reference(gimli::DW_AT_abstract_origin));
                    if of.is_some_and(|of| inlined.contains(&of)) {
                        found.extend(around);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::compile;
    use super::callers;

    /// Callers are those that contain the code, also through another inlined function; a function that is never
    /// called, or is not in the debug information, has none.
    #[test]
    fn who_holds_it() {
        let source = "volatile long sink;\n\
             static inline __attribute__((always_inline)) void deep(long n) { sink += n; }\n\
             static inline __attribute__((always_inline)) void inner(long n) { deep(n); sink -= n; }\n\
             __attribute__((noipa)) void one(long n) { inner(n); sink *= n; }\n\
             __attribute__((noipa)) void two(long n) { deep(n); sink += 2; }\n\
             static inline void nobody(long n) { sink = n; }\n\
             int main(int argc, char **argv) { one(argc); two(argc); return 0; }\n";
        let program = compile("gcc", source, &["-O2", "-g"]);
        let of = |name| {
            let mut found = callers(&program.open(), name);
            found.sort();
            found
        };
        assert_eq!(of("deep"), ["one", "two"]);
        assert_eq!(of("inner"), ["one"]);
        assert_eq!(of("nobody"), [""; 0]);
        assert_eq!(of("one"), [""; 0]);
        assert_eq!(of("dee"), [""; 0]);
        let bare = compile("gcc", source, &["-O2"]);
        assert_eq!(callers(&bare.open(), "deep"), [""; 0]);
    }

    /// Names of C++ and Rust functions equal those of their symbols.
    #[test]
    fn mangled() {
        let source = "volatile long sink;\n\
             namespace shop { struct Cart { long n;\n\
             __attribute__((always_inline)) inline void add(long m) { sink += n + m; } }; }\n\
             __attribute__((noipa)) void serve(long n) { shop::Cart cart{n}; cart.add(n); }\n\
             int main(int argc, char **argv) { serve(argc); return 0; }\n";
        let program = compile("g++", source, &["-O2", "-g"]);
        let callers = |name| callers(&program.open(), name);
        assert_eq!(callers("shop::Cart::add"), ["serve"]);
        assert_eq!(callers("shop::Cart::add(long)"), ["serve"]);
        assert_eq!(callers("Cart::add"), [""; 0]);
    }
}
