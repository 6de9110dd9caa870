//! Shortens names of functions and of probes: the least distinctive parts are left out first.

use super::human::{columns, shorten};
use crate::compare::names::file_name;
use crate::terminal::shown;

/// Replaces a part left out between brackets.
const LEFT_OUT: char = '…';

/// A function's name, safe for a terminal, in `width` characters.
///
/// From a longer one, as names of C++ and of Java often are, its parameters are cut first, then the return type, then
/// template arguments, then its middle.
pub(crate) fn function(name: &str, width: usize) -> String {
    let mut text = shown(name).into_owned();
    for without in [parameters, returned, template_arguments] {
        if columns(&text) <= width {
            break;
        }
        if let Some(shorter) = without(&text) {
            text = shorter;
        }
    }
    shorten(text, width)
}

/// A probe as typed, safe for a terminal, in `width` characters: if longer, without the folders of its binaries.
pub(crate) fn spec(spec: &str, width: usize) -> String {
    let text = shown(spec).into_owned();
    if columns(&text) <= width {
        return text;
    }
    let Some((binary, places)) = text.split_once(':') else {
        return shorten(text, width);
    };
    let places = match places.rsplit_once("..") {
        Some((start, end)) => {
            let end = match end.split_once(':') {
                Some((binary, place)) => format!("{}:{place}", file_name(binary)),
                None => end.to_owned(),
            };
            format!("{start}..{end}")
        }
        None => places.to_owned(),
    };
    shorten(format!("{}:{places}", file_name(binary)), width)
}

/// Position of a name's parameters, brackets included: they come last, except for suffixes of `const` functions and of
/// clones.
fn parameters_at(name: &str) -> Option<(usize, usize)> {
    let close = name.rfind(')')?;
    let behind = &name[close + 1..];
    if !(behind.is_empty() || behind.starts_with(' ')) {
        return None;
    }
    let mut depth = 0_usize;
    let mut back = name[..=close].char_indices().rev();
    let (open, _) = back.find(|(_, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    (open > 0).then_some((open, close + 1))
}

/// `f(int, char) const`: `f(…) const`.
fn parameters(name: &str) -> Option<String> {
    let (open, end) = parameters_at(name)?;
    let is_more = end - open > 2;
    is_more.then(|| format!("{}({LEFT_OUT}){}", &name[..open], &name[end..]))
}

/// `int ns::f(…)`: `ns::f(…)`. Operators have spaces in their names.
fn returned(name: &str) -> Option<String> {
    let (open, _) = parameters_at(name)?;
    let mut depth = 0_i32;
    let mut last = None;
    for (at, c) in name[..open].char_indices() {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth -= 1,
            ' ' if depth == 0 => last = Some(at),
            _ => {}
        }
    }
    let function = &name[last? + 1..];
    (depth == 0 && !name.contains("operator")).then(|| function.to_owned())
}

/// `f<int, char>::g` becomes `f<…>::g`. The `<..>` at the start of a Rust name is not an argument list.
fn template_arguments(name: &str) -> Option<String> {
    if name.starts_with('<') || name.contains("operator") || name.contains("->") {
        return None;
    }
    let mut text = String::with_capacity(name.len());
    let mut depth = 0_usize;
    for c in name.chars() {
        let before = depth;
        match c {
            '<' => depth += 1,
            '>' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        match (before, depth) {
            (0, 1) => text.extend([c, LEFT_OUT]),
            (0, _) | (1, 0) => text.push(c),
            _ => {}
        }
    }
    (depth == 0 && text.len() < name.len()).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SORT: &str = "void java.util.DualPivotQuicksort.sort(java.util.DualPivotQuicksort$Sorter, int[], int, int)";

    /// The name of a function stays; nothing is cut where all fits.
    #[test]
    fn functions() {
        let map = "std::map<int, std::pair<a, b> >::find(int const&) const";
        for (name, width, expected) in [
            (SORT, 100, SORT),
            (SORT, 48, "void java.util.DualPivotQuicksort.sort(…)"),
            (SORT, 40, "java.util.DualPivotQuicksort.sort(…)"),
            (SORT, 12, "java.u…rt(…)"),
            (map, 54, "std::map<int, std::pair<a, b> >::find(…) const"),
            (map, 40, "std::map<…>::find(…) const"),
            ("int* ns::get<ns::key>(ns::key)", 20, "ns::get<ns::key>(…)"),
            ("int* ns::get<ns::key>(ns::key)", 18, "ns::get<…>(…)"),
            (
                "bool (anonymous namespace)::less(int, int)",
                32,
                "(anonymous namespace)::less(…)",
            ),
            (
                "f(long)::{lambda(int)#1}::operator()(int, int) const",
                46,
                "f(long)::{lambda(int)#1}::operator()(…) const",
            ),
            ("f(long, long)::table", 15, "f(long,…::table"),
            ("main.(*Server).handleRequest", 21, "main.(*Ser…dleRequest"),
            (
                "<alloc::vec::Vec<T> as core::ops::Drop>::drop",
                21,
                "<alloc::ve…rop>::drop",
            ),
            ("operator<<(int, int)", 15, "operator<<(…)"),
            ("", 6, ""),
        ] {
            assert_eq!(function(name, width), expected);
        }
    }

    /// Both ends of a probe stay, with the names of their files.
    #[test]
    fn specs() {
        let libraries = "/usr/lib/a/libnio.so:read%return(id=arg1)../usr/lib/a/libnet.so:write";
        for (typed, width, expected) in [
            (libraries, 99, libraries),
            (
                libraries,
                60,
                "libnio.so:read%return(id=arg1)..libnet.so:write",
            ),
            ("../bin/app:first..last", 20, "app:first..last"),
            (
                "/usr/bin/app:usdt:a:begin..usdt:a:end",
                30,
                "app:usdt:a:begin..usdt:a:end",
            ),
            ("handle(id=id)..handle__return", 15, "handle(…_return"),
            ("perf/script", 7, "per…ipt"),
        ] {
            assert!(columns(&spec(typed, width)) <= width, "{typed}");
            assert_eq!(spec(typed, width), expected);
        }
    }

    proptest! {
        /// Any name fits.
        #[test]
        fn any_name(name in "[a<>(){} :….\\->o]{0,40}(operator)?[)>a ]{0,4}", width in 2_usize..30) {
            prop_assert!(columns(&function(&name, width)) <= width);
            prop_assert!(columns(&spec(&name, width)) <= width);
        }
    }
}
