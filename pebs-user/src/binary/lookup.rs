//! Finds the function of a binary for a typed name.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::cpp_name::{self, Detail};
use super::demangle::{Fit, TypedName, is_shaped, readable_forms, symbol_name, without_version};
use super::elf::Binary;
use super::parameters::parameters;
use super::symbols::Function;

/// Maximum number of names suggested.
const MAX_SUGGESTIONS: usize = 5;

/// Symbols above which names are not compared letter by letter for suggestions.
const MAX_COMPARED: usize = 200_000;

/// The function found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundFunction {
    /// Virtual address in the file.
    pub address: u64,
    /// Readable name.
    pub name: String,
}

/// Why a name does not match exactly one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// No such symbol; the most similar ones.
    NotFound(Vec<String>),
    /// It was inlined everywhere; the functions that contain it.
    Inlined(Vec<String>),
    /// It is imported from another library.
    Imported,
    /// An indirect function, whose address is that of its resolver; its possible targets.
    Indirect(Vec<String>),
    /// Several: of each a name that only it has, or its address.
    Ambiguous(Vec<String>),
}

/// Looks up a function by name: mangled or demangled, with or without version.
///
/// # Errors
/// [`Unknown`].
pub(crate) fn function(binary: &Binary, typed: &str) -> Result<FoundFunction, Unknown> {
    let mut matches = meant(binary, typed);
    if matches.is_empty() {
        let wanted = TypedName::new(without_version(typed));
        let is_imported = (binary.imports.iter()).any(|name| wanted.fit(name).is_some());
        return Err(if is_imported {
            Unknown::Imported
        } else {
            Unknown::NotFound(nearest(binary, typed))
        });
    }
    // An old version may be a plain function, but current programs don't call it.
    if matches.iter().any(|f| f.ifunc) {
        return Err(Unknown::Indirect(implementations(binary, typed)));
    }
    matches.dedup_by_key(|f| f.address);
    match matches.as_slice() {
        [only] => Ok(FoundFunction {
            address: only.address,
            name: symbol_name(without_version(&only.name)),
        }),
        several => {
            let names = several.iter().map(|it| spelling(binary, it.address));
            Err(Unknown::Ambiguous(names.collect()))
        }
    }
}

/// Addresses of the functions that a name means.
#[must_use]
pub(crate) fn named(binary: &Binary, typed: &str) -> BTreeSet<u64> {
    let found = meant(binary, typed).into_iter();
    found.filter(|it| !it.ifunc).map(|it| it.address).collect()
}

fn meant<'a>(binary: &'a Binary, typed: &str) -> Vec<&'a Function> {
    let found = matching(binary, typed);
    if found.is_empty() {
        return with_parameters(binary, typed);
    }
    found
}

/// The shortest name by which [`function`] finds the function at this address, and no other; the address as `0x1f40` if
/// no name does.
#[must_use]
pub(crate) fn spelling(binary: &Binary, address: u64) -> String {
    let found = binary.symbol_at(address).and_then(|symbol| {
        let mut forms = readable_forms(&symbol.name).into_iter();
        forms.find(|form| is_only(binary, form, address))
    });
    found.unwrap_or_else(|| format!("{address:#x}"))
}

/// Whether a name means the function at this address and no other.
fn is_only(binary: &Binary, name: &str, address: u64) -> bool {
    let found = matching(binary, name);
    !found.is_empty() && (found.iter()).all(|it| it.address == address && !it.ifunc)
}

/// Addresses of functions whose name, mangled or demangled, matches a pattern with `*` for any text; sorted,
/// without duplicates. Excludes parts that the compiler moved away (`.cold`) and indirect functions.
#[must_use]
pub(crate) fn matches(binary: &Binary, pattern: &str) -> Vec<u64> {
    let fits = |f: &&Function| {
        let bare = without_version(&f.name);
        let whole = !f.ifunc && !bare.ends_with(".cold");
        whole && (glob(pattern, bare) || bare.starts_with('_') && glob(pattern, &symbol_name(bare)))
    };
    let found = binary.functions.iter().filter(fits);
    let mut addresses: Vec<u64> = found.map(|f| f.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Whether a text matches a pattern, in which only `*` is special: any text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Every symbol that the name means, by address: those that it fits best.
fn matching<'a>(binary: &'a Binary, typed: &str) -> Vec<&'a Function> {
    let exact: Vec<&Function> = binary
        .functions
        .iter()
        .filter(|f| f.name == typed || without_version(&f.name) == typed)
        .collect();
    if !exact.is_empty() {
        return exact;
    }
    let wanted = TypedName::new(typed);
    let named = |f: &&Function| f.name.starts_with('_') || is_shaped(&f.name);
    let fits = binary.functions.iter().filter(named);
    let fits = fits.filter_map(|f| Some((wanted.fit(&f.name)?, f)));
    let fits: Vec<(Fit, &Function)> = fits.collect();
    let best = fits.iter().map(|(fit, _)| *fit).min();
    let best_of = fits.into_iter().filter(|(fit, _)| Some(*fit) == best);
    best_of.map(|(_, f)| f).collect()
}

/// Functions of C, whose symbols have no parameters, typed with parameters as gdb shows them: `work(struct item *, int)`.
/// Only where the debug information has the same ones.
fn with_parameters<'a>(binary: &'a Binary, typed: &str) -> Vec<&'a Function> {
    let Some(wanted) = cpp_name::parse(typed, Detail::Full) else {
        return Vec::new();
    };
    let Some(types) = wanted.parameters.filter(|_| wanted.qualifiers.is_empty()) else {
        return Vec::new();
    };
    let named = binary.functions.iter();
    let named = named.filter(|f| without_version(&f.name) == wanted.path);
    let named: Vec<&Function> = named.collect();
    if named.is_empty() {
        return named;
    }
    let addresses: BTreeSet<u64> = named.iter().map(|f| f.address).collect();
    let known = parameters(binary, &addresses);
    let has_same = |f: &&Function| {
        let list = known.get(&f.address)?;
        let list: Vec<&str> = list.iter().map(|it| it.r#type.as_str()).collect();
        let own = cpp_name::parse(&format!("f({})", list.join(", ")), Detail::Full)?;
        Some(own.parameters? == types)
    };
    let same = named.into_iter().filter(|f| has_same(f) == Some(true));
    same.collect()
}

/// Other readable names of the function at an address than the typed one: the linker kept one of several with the same
/// code, or they are aliases. Without those that differ by what glibc puts before a name (`__libc_read`, `read`).
#[must_use]
pub(crate) fn other_names(binary: &Binary, address: u64, typed: &str) -> Vec<String> {
    let core = |name: &str| {
        let name = name.trim_start_matches('_').trim_start_matches("GI_");
        let name = name.trim_start_matches('_').trim_start_matches("libc_");
        name.to_owned()
    };
    let wanted = core(&symbol_name(typed));
    let name = TypedName::new(typed);
    let there = (binary.functions.iter()).filter(|it| it.address == address && it.size > 0);
    let mut others: Vec<String> = there
        .filter(|it| name.fit(&it.name).is_none())
        .map(|it| symbol_name(without_version(&it.name)))
        .filter(|name| core(name) != wanted && !name.starts_with("__GI_"))
        .collect();
    others.sort();
    others.dedup();
    others
}

/// Possible targets of an indirect function: glibc names them `__memcpy_avx_unaligned`.
fn implementations(binary: &Binary, typed: &str) -> Vec<String> {
    let prefix = format!("__{}_", without_version(typed));
    let found = binary.functions.iter().filter(|f| !f.ifunc);
    found
        .map(|f| without_version(&f.name))
        .filter(|name| name.starts_with(&prefix))
        .take(MAX_SUGGESTIONS)
        .map(str::to_owned)
        .collect()
}

/// Names similar to the typed one, the most similar first, each as [`spelling`] gives it.
#[must_use]
pub(crate) fn nearest(binary: &Binary, typed: &str) -> Vec<String> {
    let wanted = Outline::of_typed(typed);
    let named = binary.functions.iter().filter(|it| !it.ifunc);
    let scored = named.take(MAX_COMPARED).filter_map(|function| {
        let outline = Outline::of_symbol(&function.name);
        Some((
            wanted.distance_to(&outline)?,
            outline.text,
            function.address,
        ))
    });
    let mut scored: Vec<(usize, String, u64)> = scored.collect();
    scored.sort_unstable();
    let mut seen = BTreeSet::new();
    scored.retain(|(_, _, address)| seen.insert(*address));
    scored.truncate(MAX_SUGGESTIONS);
    let mut names: Vec<String> = Vec::new();
    for (_, _, address) in scored {
        let name = spelling(binary, address);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A name reduced to what people remember: small letters, without parameters, arguments of templates, hashes, and the
/// brackets around a Go receiver.
struct Outline {
    text: String,
    /// Begins of its components, the last first: `ns::Foo::f` has those of `f`, `Foo::f` and all.
    tails: Vec<usize>,
}

impl Outline {
    fn of_symbol(raw: &str) -> Self {
        let bare = without_version(raw);
        if is_shaped(raw) || !bare.starts_with('_') {
            return Self::new(bare);
        }
        // The first form has no parameters and no hash.
        let forms = readable_forms(bare);
        Self::new(forms.first().map_or(bare, |it| it))
    }

    fn of_typed(typed: &str) -> Self {
        match cpp_name::parse(typed, Detail::Debugger) {
            Some(name) => Self::new(&name.path),
            None => Self::new(typed),
        }
    }

    fn new(name: &str) -> Self {
        let text = without_brackets(name);
        let text = text.replace("(anonymous namespace)::", "");
        let text = text.replace("(*", "").replace(").", ".").to_lowercase();
        let mut tails: Vec<usize> = vec![0];
        for (at, letter) in text.char_indices() {
            let is_end = match letter {
                ':' => text[..at].ends_with(':'),
                // Of Go.
                '.' | '/' => at > 0,
                _ => false,
            };
            if is_end && at + 1 < text.len() {
                tails.push(at + 1);
            }
        }
        tails.sort_unstable_by_key(|it| Reverse(*it));
        Self { text, tails }
    }

    /// Returns the distance between another name and this one; `None`: too far.
    fn distance_to(&self, other: &Self) -> Option<usize> {
        let wanted = self.text.as_str();
        if wanted.is_empty() {
            return None;
        }
        // Components left out or added in front.
        let is_end =
            |whole: &Self, end: &str| whole.tails.iter().any(|at| &whole.text[*at..] == end);
        let lengths = other.text.len().abs_diff(wanted.len());
        if is_end(other, wanted) || is_end(self, &other.text) {
            return Some(lengths.min(40) / 4);
        }
        // A slip in as many components as were typed.
        let limit = (wanted.chars().count() / 3).max(1);
        let parts = self.tails.len().min(other.tails.len());
        let tail = other
            .tails
            .get(parts - 1)
            .map_or("", |at| &other.text[*at..]);
        let slips =
            distance(wanted, tail, limit).map(|edits| edits * 4 + other.tails.len() - parts);
        let part_of = (wanted.len() > 2 && other.text.contains(wanted)).then_some(12 + lengths);
        slips.into_iter().chain(part_of).min()
    }
}

/// A name without the arguments of its templates and instances: what is in angle and square brackets. Those of operators,
/// and Rust's `<T as Trait>::f`, stay.
fn without_brackets(name: &str) -> String {
    if name.contains("operator") || name.starts_with('<') {
        return name.to_owned();
    }
    let mut depth = 0_u32;
    let mut text = String::new();
    for letter in name.chars() {
        match letter {
            '<' | '[' => depth += 1,
            '>' | ']' if depth > 0 => depth -= 1,
            _ if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    text
}

/// Edit distance of two texts, if at most `limit`: letters inserted, deleted, changed, or swapped.
#[must_use]
pub(crate) fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    let edits = last[b.len()];
    (edits <= limit).then_some(edits)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Edits count letters inserted, deleted, changed or swapped.
    #[test]
    fn edits() {
        assert_eq!(distance("abc", "abc", 2), Some(0));
        assert_eq!(distance("proces", "process", 2), Some(1));
        assert_eq!(distance("ab", "ba", 2), Some(1));
        assert_eq!(distance("kitten", "sitting", 2), None);
        assert_eq!(distance("kitten", "sitting", 3), Some(3));
    }

    /// `*` is any text, including the empty one.
    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("poll*", "poll", true),
            ("*::poll", "task::raw::poll", true),
            ("*raw*poll*", "task::raw::poll::{{closure}}", true),
            ("a*a", "a", false),
            ("a*b*a", "aba", true),
            ("a*b*b", "ab", false),
            ("poll", "polls", false),
            ("*", "", true),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }

    /// A slip of the pen in a stock server's function is answered with the right name.
    #[test]
    fn suggestions() {
        let binary = Binary::open(Path::new("/usr/bin/redis-check-rdb")).expect("redis");
        let found = function(&binary, "processCommand").expect("exported");
        assert_eq!(found.name, "processCommand");
        let Err(Unknown::NotFound(near)) = function(&binary, "procesComand") else {
            panic!("found")
        };
        assert_eq!(near[0], "processCommand");
        assert_eq!(function(&binary, "write"), Err(Unknown::Imported));
    }

    /// The C library's memcpy is chosen when the program starts, and its versions are distinguished.
    #[test]
    fn c_library() {
        let libc = Binary::open(Path::new("/lib/x86_64-linux-gnu/libc.so.6")).expect("libc");
        assert!(matches!(
            function(&libc, "memcpy"),
            Err(Unknown::Indirect(_))
        ));
        assert!(function(&libc, "malloc").is_ok());
        assert!(function(&libc, "malloc@@GLIBC_2.2.5").is_ok());
        let versioned = libc.functions.iter().filter(|f| f.name.contains('@'));
        let ambiguous = versioned.into_iter().find_map(|f| {
            let bare = without_version(&f.name);
            match function(&libc, bare) {
                Err(Unknown::Ambiguous(list)) => Some((bare.to_owned(), list)),
                _ => None,
            }
        });
        let (name, list) = ambiguous.expect("some name has two versions");
        assert!(list.len() > 1);
        assert!(function(&libc, &list[0]).is_ok(), "{name}: {list:?}");
        let others = |name| other_names(&libc, function(&libc, name).expect(name).address, name);
        let of_strtol = others("strtol");
        assert!(of_strtol.iter().any(|it| it == "strtoll"), "{of_strtol:?}");
        assert!(!of_strtol.iter().any(|it| it.contains("_strto")));
        assert!(others("read").is_empty(), "{:?}", others("read"));
    }
}
