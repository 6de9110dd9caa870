//! Readable names of C++ and Rust functions, and whether a typed name means one.

use cpp_demangle::{DemangleOptions, Symbol};

/// Nesting of a C++ name at most; a hostile one would overflow the stack.
const MAX_NESTING: u32 = 160;

/// The name without what the linker put behind `@` (`memcpy@@GLIBC_2.14`).
#[must_use]
pub fn without_version(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

/// The readable name of a symbol; the symbol itself if it is not mangled.
#[must_use]
pub fn demangle(raw: &str) -> String {
    let bare = without_version(raw);
    let name = crate::symbolize::demangle::demangle(bare);
    if name == bare { raw.to_owned() } else { name }
}

/// Whether `typed` names the symbol `raw`: as it is, demangled, without the parameters (C++), with or
/// without the hash (Rust). Blanks do not matter.
#[must_use]
pub fn names(typed: &str, raw: &str) -> bool {
    if typed == raw || typed == without_version(raw) {
        return true;
    }
    let wanted = squeeze(typed);
    if let Some(name) = rust(raw) {
        return wanted == squeeze(&format!("{name:#}")) || wanted == squeeze(&format!("{name}"));
    }
    let full = DemangleOptions::new();
    let bare = DemangleOptions::new().no_params().no_return_type();
    let short = DemangleOptions::new().no_return_type();
    [bare, short, full]
        .into_iter()
        .any(|options| cpp(raw, options).is_some_and(|name| squeeze(&name) == wanted))
}

/// The last identifier of a typed name. Every mangled form of the name holds it as it is, so that
/// symbols without it need not be demangled. `None` for operators and the like.
#[must_use]
pub fn key(typed: &str) -> Option<&str> {
    if typed.contains("operator") || typed.contains('{') {
        return None;
    }
    let end = typed.find(['(', '<']).filter(|at| *at > 0);
    let name = &typed[..end.unwrap_or(typed.len())];
    name.rsplit(|c: char| !c.is_alphanumeric() && c != '_')
        .find(|part| !part.is_empty())
}

fn squeeze(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Rust's own mangling, and its older one, which is C++'s with a hash at the end.
fn rust(raw: &str) -> Option<rustc_demangle::Demangle<'_>> {
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

fn cpp(raw: &str, options: DemangleOptions) -> Option<String> {
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

    /// The forms in which people type a name all mean its symbol.
    #[test]
    fn typed_forms() {
        let raw = "_ZN2ns5Class6methodEiRKSt6vectorIiSaIiEE";
        assert!(names("ns::Class::method", raw));
        assert!(names(raw, raw));
        assert!(names(&demangle(raw), raw));
        assert!(!names("method", raw));
        assert_eq!(key("ns::Class::method(int)"), Some("method"));

        let raw = "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE";
        assert!(names("core::fmt::Formatter::pad", raw));
        assert!(names("core::fmt::Formatter::pad::h0123456789abcdef", raw));
        assert_eq!(demangle(raw), "core::fmt::Formatter::pad");
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");

        assert!(names("memcpy", "memcpy@@GLIBC_2.14"));
        assert!(names("memcpy@@GLIBC_2.14", "memcpy@@GLIBC_2.14"));
        assert_eq!(demangle("main"), "main");
    }
}
