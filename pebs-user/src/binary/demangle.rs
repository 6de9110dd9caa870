//! Demangles names, and matches typed names with symbols.
//!
//! [`demangle`] is our own, as blazesym also tries every name as a C++ type: a C function `f` becomes `float`.

use std::fmt::{self, Write as _};

use cpp_demangle::{DemangleOptions, Symbol};

/// Maximum length of a name, in bytes. Template instances reach some KiB; longer names are hostile or useless.
pub(crate) const NAME_MAX: usize = 4096;

/// Maximum nesting of a C++ name; a hostile one would overflow the stack.
const MAX_NESTING: u32 = 160;

/// Demangles C++ and Rust names (without Rust's hash); other names are returned unchanged.
///
/// The result is cut at 4 KiB: a short mangled name can expand to any length.
#[must_use]
pub(crate) fn demangle(name: &str) -> String {
    if !is_mangled(name) {
        return name.to_string();
    }
    rust(name)
        .or_else(|| cpp(name))
        .unwrap_or_else(|| name.to_string())
}

/// The name without the version that the linker added after `@` (`memcpy@@GLIBC_2.14`).
#[must_use]
pub(crate) fn without_version(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

/// The demangled name of a symbol that may have a version; unchanged if it is not mangled.
#[must_use]
pub(crate) fn symbol_name(raw: &str) -> String {
    let bare = without_version(raw);
    let name = demangle(bare);
    if name == bare { raw.to_owned() } else { name }
}

/// Whether a symbol is an instance of a generic function of Go: `main.(*List[go.shape.int_0]).Add`.
#[must_use]
pub(crate) fn is_shaped(raw: &str) -> bool {
    raw.contains(SHAPE)
}

/// Prefix of the type in the name of an instance of a generic Go function; compilers before 1.20 write `_` and a number
/// after it.
const SHAPE: &str = "go.shape.";

/// The name of an instance as in the source: `main.(*List[int]).Add`.
fn without_shapes(raw: &str) -> String {
    let mut parts = raw.split(SHAPE);
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([',', ']']).unwrap_or(part.len());
        let (kind, rest) = part.split_at(end);
        let numbered = kind.rsplit_once('_');
        let bare = numbered.filter(|(_, digits)| digits.bytes().all(|it| it.is_ascii_digit()));
        name.push_str(bare.map_or(kind, |(bare, _)| bare));
        name.push_str(rest);
    }
    name
}

/// Whether `typed` names the symbol `raw`: mangled, demangled, without the parameters (C++), with or without the
/// hash (Rust), as in the source (Go). Blanks are ignored.
#[must_use]
pub(crate) fn names(typed: &str, raw: &str) -> bool {
    if typed == raw || typed == without_version(raw) {
        return true;
    }
    let wanted = squeeze(typed);
    if is_shaped(raw) {
        return wanted == squeeze(&without_shapes(raw));
    }
    if let Some(name) = rust_form(raw) {
        return wanted == squeeze(&format!("{name:#}")) || wanted == squeeze(&format!("{name}"));
    }
    let full = DemangleOptions::new();
    let bare = DemangleOptions::new().no_params().no_return_type();
    let short = DemangleOptions::new().no_return_type();
    [bare, short, full]
        .into_iter()
        .any(|options| cpp_form(raw, options).is_some_and(|name| squeeze(&name) == wanted))
}

/// The last identifier of a typed name. Every mangled form of the name contains it, so symbols without it need not
/// be demangled. `None` for operators and the like.
#[must_use]
pub(crate) fn key(typed: &str) -> Option<&str> {
    if typed.contains("operator") || typed.contains('{') {
        return None;
    }
    // From the end. What is in brackets may be a parameter, an argument of a template, or `(anonymous namespace)`.
    let mut depth = 0;
    let outside = move |c: char| {
        depth += i32::from(matches!(c, ')' | '>' | ']')) - i32::from(matches!(c, '(' | '<' | '['));
        depth > 0 || !(c.is_alphanumeric() || c == '_')
    };
    typed
        .rsplit(outside)
        .find(|part| !matches!(*part, "" | "const" | "volatile"))
}

/// Whether a name looks mangled by a compiler.
fn is_mangled(name: &str) -> bool {
    let bare = name.trim_start_matches('_');
    let underscores = name.len() - bare.len();
    (1..=4).contains(&underscores) && bare.starts_with(['Z', 'R'])
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded(String::new());
    // An error only means that the name was cut.
    let _ = write!(out, "{demangled:#}");
    Some(out.0)
}

fn cpp(name: &str) -> Option<String> {
    let symbol = Symbol::new(name).ok()?;
    let mut out = Bounded(String::new());
    let written = symbol.structured_demangle(&mut out, &DemangleOptions::default());
    (written.is_ok() || out.0.len() == NAME_MAX).then_some(out.0)
}

/// Takes up to [`NAME_MAX`] bytes and then ends the writing.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = NAME_MAX - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        Err(fmt::Error)
    }
}

fn squeeze(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Rust's v0 mangling, and its legacy one, which is C++'s with a hash at the end.
fn rust_form(raw: &str) -> Option<rustc_demangle::Demangle<'_>> {
    let name = rustc_demangle::try_demangle(raw).ok()?;
    let legacy = raw.starts_with("_ZN");
    let hashed = || {
        let full = format!("{name}");
        full.len() >= 19
            && full.is_char_boundary(full.len() - 19)
            && full[full.len() - 19..].starts_with("::h")
    };
    (!legacy || hashed()).then_some(name)
}

fn cpp_form(raw: &str, options: DemangleOptions) -> Option<String> {
    if !raw.starts_with("_Z") {
        return None;
    }
    let symbol = Symbol::new(without_version(raw)).ok()?;
    symbol
        .demangle_with_options(&options.recursion_limit(MAX_NESTING))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All usual forms of a name match its symbol.
    #[test]
    fn typed_forms() {
        let raw = "_ZN2ns5Class6methodEiRKSt6vectorIiSaIiEE";
        assert!(super::names("ns::Class::method", raw));
        assert!(super::names(raw, raw));
        assert!(super::names(&symbol_name(raw), raw));
        assert!(!super::names("method", raw));
        let raw = "_ZN12_GLOBAL__N_14Anon6handleEl";
        assert!(super::names("(anonymous namespace)::Anon::handle", raw));
        assert!(super::names(&symbol_name(raw), raw));
        for (typed, expect) in [
            ("ns::Class::method(int)", "method"),
            ("ns::Class::method(std::vector<int>) const", "method"),
            ("(anonymous namespace)::Class::method(long)", "method"),
            ("ns::(anonymous namespace)::method", "method"),
            ("long Class<int>::method<char>(char)", "method"),
            ("main.(*Class[go.shape.int]).method", "method"),
            ("main.method[go.shape.int]", "method"),
        ] {
            assert_eq!(key(typed), Some(expect), "{typed}");
        }

        let raw = "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE";
        assert!(super::names("core::fmt::Formatter::pad", raw));
        assert!(super::names(
            "core::fmt::Formatter::pad::h0123456789abcdef",
            raw
        ));
        assert_eq!(symbol_name(raw), "core::fmt::Formatter::pad");
        assert_eq!(symbol_name("_RNvC6_123foo3bar"), "123foo::bar");

        for raw in [
            "main.(*List[go.shape.int_0,go.shape.*a_1_1]).Add",
            "main.(*List[go.shape.int,go.shape.*a_1]).Add",
        ] {
            assert!(super::names(raw, raw));
            assert!(!super::names("main.(*List[string]).Add", raw));
        }
        let raw = "main.(*List[go.shape.int_0,go.shape.string_1]).Add";
        assert!(super::names("main.(*List[int, string]).Add", raw));
        assert!(super::names("main.Map[int]", "main.Map[go.shape.int]"));

        assert!(super::names("memcpy", "memcpy@@GLIBC_2.14"));
        assert!(super::names("memcpy@@GLIBC_2.14", "memcpy@@GLIBC_2.14"));
        assert_eq!(symbol_name("main"), "main");
    }

    /// Names of each language, and C names that look like C++ types.
    #[test]
    fn names() {
        let check = |mangled: &str, expect: &str| assert_eq!(demangle(mangled), expect);
        check("_ZN5space5ThingIiE4workEi", "space::Thing<int>::work(int)");
        check(
            "_ZN5alloc3vec12Vec$LT$T$GT$4push17h0123456789abcdefE",
            "alloc::vec::Vec<T>::push",
        );
        check("_RNvCs15kBYyAo9fc_7mycrate4main", "mycrate::main");
        for name in [
            "f",
            "i",
            "f1",
            "m",
            "St",
            "_start",
            "__Zzz",
            "_Z",
            "_R",
            "",
            "memcpy.cold",
        ] {
            check(name, name);
        }
    }

    /// A name that doubles at each step is cut, not written out.
    #[test]
    fn exploding_name() {
        let mut name = String::from("_Z1fSt4pairIiiE");
        for step in 0..25 {
            let last = if step == 0 { "S_".into() } else { seq(step) };
            let _ = write!(name, "St4pairI{last}{last}E");
        }
        assert!(demangle(&name).len() <= NAME_MAX.max(name.len()));
    }

    /// A substitution: `S0_`, `S1_`, ...
    fn seq(number: u32) -> String {
        let digit = char::from_digit((number - 1) % 36, 36).unwrap();
        format!("S{}_", digit.to_ascii_uppercase())
    }

    proptest::proptest! {
        /// Any name, mangled or malformed, is handled without a panic.
        #[test]
        fn any_name(name in "_{0,4}[ZR][A-Za-z0-9_$.]{0,60}") {
            proptest::prop_assert!(demangle(&name).len() <= NAME_MAX);
        }
    }
}
