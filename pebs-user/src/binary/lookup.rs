//! Finds the function of a binary for a typed name.

use super::demangle::{is_shaped, key, names, symbol_name, without_version};
use super::elf::Binary;
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
    /// Several: address and readable name of each.
    Ambiguous(Vec<(u64, String)>),
}

/// Looks up a function by name: mangled or demangled, with or without version.
///
/// # Errors
/// [`Unknown`].
pub(crate) fn function(binary: &Binary, typed: &str) -> Result<FoundFunction, Unknown> {
    let mut matches = matching(binary, typed);
    if matches.is_empty() {
        let bare = without_version(typed);
        return Err(if binary.imports.iter().any(|name| names(bare, name)) {
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
        several => Err(Unknown::Ambiguous(
            several
                .iter()
                .map(|f| (f.address, symbol_name(&f.name)))
                .collect(),
        )),
    }
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

/// Every symbol that the name means, by address.
fn matching<'a>(binary: &'a Binary, typed: &str) -> Vec<&'a Function> {
    let exact: Vec<&Function> = binary
        .functions
        .iter()
        .filter(|f| f.name == typed || without_version(&f.name) == typed)
        .collect();
    if !exact.is_empty() {
        return exact;
    }
    let key = key(typed);
    binary
        .functions
        .iter()
        .filter(|f| f.name.starts_with('_') || is_shaped(&f.name))
        .filter(|f| key.is_none_or(|key| f.name.contains(key)))
        .filter(|f| names(typed, &f.name))
        .collect()
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
    let there = (binary.functions.iter()).filter(|it| it.address == address && it.size > 0);
    let mut others: Vec<String> = there
        .filter(|it| !names(typed, &it.name))
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

/// Names similar to the typed one, the most similar first.
#[must_use]
pub(crate) fn nearest(binary: &Binary, typed: &str) -> Vec<String> {
    let wanted = typed.to_lowercase();
    let limit = (wanted.chars().count() / 3).max(1);
    let mut scored: Vec<(usize, String)> = Vec::new();
    for function in binary.functions.iter().take(MAX_COMPARED) {
        let name = symbol_name(without_version(&function.name));
        let lower = name.to_lowercase();
        let score = if lower.contains(&wanted) {
            Some(lower.len() - wanted.len())
        } else {
            distance(&wanted, &lower, limit).map(|edits| edits * 4)
        };
        if let Some(score) = score {
            scored.push((score, name));
        }
    }
    scored.sort();
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.truncate(MAX_SUGGESTIONS);
    scored.into_iter().map(|(_, name)| name).collect()
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
        assert!(function(&libc, &list[0].1).is_ok(), "{name}: {list:?}");
        let others = |name| other_names(&libc, function(&libc, name).expect(name).address, name);
        let of_strtol = others("strtol");
        assert!(of_strtol.iter().any(|it| it == "strtoll"), "{of_strtol:?}");
        assert!(!of_strtol.iter().any(|it| it.contains("_strto")));
        assert!(others("read").is_empty(), "{:?}", others("read"));
    }
}
