//! Demangles names, and matches typed names with symbols.
//!
//! [`demangle`] is our own, as blazesym also tries every name as a C++ type: a C function `f` becomes `float`.

use std::fmt::{self, Write as _};

use cpp_demangle::{DemangleOptions, Symbol};

use super::cpp_name::{self, CppName, Detail};

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

/// Arguments of an instance of a generic Go function in the traces of Go's runtime.
const ANY_INSTANCE: &str = "[...]";

/// The name of an instance without its arguments: `main.(*List[...]).Add`.
fn of_any_instance(raw: &str) -> String {
    let Some(open) = raw.find('[') else {
        return raw.to_owned();
    };
    let mut depth = 0;
    let end = raw[open..].find(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        depth == 0
    });
    let rest = end.map_or("", |end| &raw[open + end + 1..]);
    format!("{}{ANY_INSTANCE}{rest}", &raw[..open])
}

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

/// Closeness of a typed name to a symbol, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// In all that was typed.
    Typed,
    /// But for `const` or `&&` behind the parameters, which were left out.
    Unqualified,
    /// But for what gdb leaves out or adds in names of lambdas.
    Debugger,
}

/// A typed name, to be compared with symbols: mangled, demangled by whatever tool, with or without the parameters and the
/// type of the result (C++), with or without the hash (Rust), as in the source (Go). Blanks are ignored.
pub(crate) struct TypedName<'a> {
    text: &'a str,
    squeezed: String,
    key: Option<&'a str>,
    cpp: Option<CppName>,
    debugger: Option<CppName>,
}

impl<'a> TypedName<'a> {
    /// Of a typed text.
    #[must_use]
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            squeezed: squeeze(text),
            key: key(text),
            cpp: cpp_name::parse(text, Detail::Full),
            debugger: cpp_name::parse(text, Detail::Debugger),
        }
    }

    /// Returns its closeness to a symbol; `None`: it does not name it.
    #[must_use]
    pub(crate) fn fit(&self, raw: &str) -> Option<Fit> {
        if self.text == raw || self.text == without_version(raw) {
            return Some(Fit::Typed);
        }
        if self.key.is_some_and(|key| !raw.contains(key)) {
            return None;
        }
        let same = |name: &str| squeeze(name) == self.squeezed;
        if is_shaped(raw) {
            let is_any = self.text.contains(ANY_INSTANCE) && same(&of_any_instance(raw));
            return (is_any || same(&without_shapes(raw))).then_some(Fit::Typed);
        }
        if let Some(name) = rust_form(raw) {
            let bare = format!("{name:#}");
            let is_same = same(&bare) || same(&format!("{name}"));
            let is_same = is_same || same(&as_in_source(&bare));
            return is_same.then_some(Fit::Typed);
        }
        self.fit_cpp(raw)
    }

    fn fit_cpp(&self, raw: &str) -> Option<Fit> {
        let name = cpp_form(raw, DemangleOptions::new())?;
        if squeeze(&name) == self.squeezed {
            return Some(Fit::Typed);
        }
        let symbol = cpp_name::parse(&name, Detail::Full);
        let (Some(typed), Some(symbol)) = (&self.cpp, &symbol) else {
            // A name that is not understood is compared as it is.
            let bare = DemangleOptions::new().no_return_type();
            let mut forms = [bare.no_params(), bare].into_iter();
            let is_same = forms.any(|options| {
                cpp_form(raw, options).is_some_and(|name| squeeze(&name) == self.squeezed)
            });
            return is_same.then_some(Fit::Typed);
        };
        cpp_fit(typed, symbol).or_else(|| {
            let symbol = cpp_name::parse(&name, Detail::Debugger)?;
            cpp_fit(self.debugger.as_ref()?, &symbol).map(|_| Fit::Debugger)
        })
    }
}

fn cpp_fit(typed: &CppName, symbol: &CppName) -> Option<Fit> {
    let CppName {
        thunk,
        path,
        parameters,
        qualifiers,
        clone,
    } = typed;
    if *thunk != symbol.thunk || *path != symbol.path || *clone != symbol.clone {
        return None;
    }
    if parameters.is_none() || *parameters == symbol.parameters && *qualifiers == symbol.qualifiers
    {
        return Some(Fit::Typed);
    }
    let left_out = *parameters == symbol.parameters && qualifiers.is_empty();
    left_out.then_some(Fit::Unqualified)
}

/// Forms of a symbol's name as people read it, the shortest first: each names the symbol, perhaps with others.
#[must_use]
pub(crate) fn readable_forms(raw: &str) -> Vec<String> {
    let bare = without_version(raw);
    let mut forms = Vec::new();
    if is_shaped(raw) {
        forms.push(without_shapes(raw));
    } else if let Some(name) = rust_form(bare) {
        let bare = format!("{name:#}");
        forms.extend([as_in_source(&bare), bare, format!("{name}")]);
    } else if let Some(name) = cpp_form(bare, DemangleOptions::new()) {
        if let Some(parts) = cpp_name::parse(&name, Detail::Full).filter(|it| !it.thunk) {
            let clone = match parts.clone.as_str() {
                "" => String::new(),
                clone => format!(" [clone {clone}]"),
            };
            forms.push(format!("{}{clone}", parts.path));
            if let Some(parameters) = parts.parameters {
                let gap = if parts.qualifiers.is_empty() { "" } else { " " };
                forms.push(format!(
                    "{}{parameters}{gap}{}{clone}",
                    parts.path, parts.qualifiers
                ));
            }
        }
        forms.push(name);
    }
    forms.extend([bare.to_owned(), raw.to_owned()]);
    forms.retain(|form| form.len() <= NAME_MAX);
    forms.dedup();
    forms
}

/// The last identifier of a typed name. Every mangled form of the name contains it, so symbols without it need not
/// be demangled. `None` for a few names.
fn key(typed: &str) -> Option<&str> {
    // Operators and unnamed things are mangled in other words; what they are in is not.
    let special = ["operator", "{", "<lambda", "'lambda"];
    let head = match special.iter().filter_map(|it| typed.find(it)).min() {
        Some(at) if typed[..at].ends_with("::") => &typed[..at],
        Some(_) => return None,
        None => typed,
    };
    // From the end. What is in brackets may be a parameter, an argument of a template, or `(anonymous namespace)`.
    let mut depth = 0;
    let outside = move |c: char| {
        depth += i32::from(matches!(c, ')' | '>' | ']')) - i32::from(matches!(c, '(' | '<' | '['));
        depth > 0 || !(c.is_alphanumeric() || c == '_')
    };
    head.rsplit(outside)
        .find(|part| !matches!(*part, "" | "const" | "volatile"))
        .filter(|part| part.is_ascii() && !ABBREVIATED.contains(part))
}

/// Identifiers of the standard library that are abbreviated in mangled names, or stand for others.
const ABBREVIATED: [&str; 9] = [
    "std",
    "allocator",
    "basic_string",
    "string",
    "wstring",
    "istream",
    "ostream",
    "iostream",
    "wostream",
];

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
    (written.is_ok() || out.0.len() == NAME_MAX).then(|| with_literal_operators(out.0))
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

/// A method's name as in the source: `shop::Cart::total` of `<shop::Cart>::total`. Methods of traits are as they are.
fn as_in_source(name: &str) -> String {
    let Some(inner) = name.strip_prefix('<') else {
        return name.to_owned();
    };
    let mut depth = 1;
    let mut before = ' ';
    let end = inner.find(|c: char| {
        depth += i32::from(c == '<') - i32::from(c == '>' && before != '-');
        before = c;
        depth == 0
    });
    match end.map(|end| (&inner[..end], &inner[end + 1..])) {
        Some((kind, rest))
            if !kind.contains(" as ")
                && kind.starts_with(|c: char| c.is_alphabetic() || c == '_') =>
        {
            format!("{kind}{rest}")
        }
        _ => name.to_owned(),
    }
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
    let name = symbol.demangle_with_options(&options.recursion_limit(MAX_NESTING));
    name.ok().map(with_literal_operators)
}

/// `operator"" _s`, which the library writes as `operator_s::operator ""`.
fn with_literal_operators(mut name: String) -> String {
    const WRITTEN: &str = "::operator \"\"";
    while let Some(at) = name.find(WRITTEN) {
        let Some(start) = name[..at].rfind("operator") else {
            break;
        };
        let suffix = &name[start + "operator".len()..at];
        let whole = format!(
            "{}operator\"\" {suffix}{}",
            &name[..start],
            &name[at + WRITTEN.len()..]
        );
        name = whole;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(typed: &str, raw: &str) -> bool {
        TypedName::new(typed).fit(raw).is_some()
    }

    /// All usual forms of a name match its symbol.
    #[test]
    fn typed_forms() {
        let raw = "_ZN2ns5Class6methodEiRKSt6vectorIiSaIiEE";
        assert!(fits("ns::Class::method", raw));
        assert!(fits(raw, raw));
        assert!(fits(&symbol_name(raw), raw));
        assert!(!fits("method", raw));
        let raw = "_ZN12_GLOBAL__N_14Anon6handleEl";
        assert!(fits("(anonymous namespace)::Anon::handle", raw));
        assert!(fits(&symbol_name(raw), raw));
        for (typed, expect) in [
            ("ns::Class::method(int)", "method"),
            ("ns::Class::method(std::vector<int>) const", "method"),
            ("(anonymous namespace)::Class::method(long)", "method"),
            ("ns::(anonymous namespace)::method", "method"),
            ("long Class<int>::method<char>(char)", "method"),
            ("main.(*Class[go.shape.int]).method", "method"),
            ("main.method[go.shape.int]", "method"),
            ("main.method[...]", "method"),
            ("std::ostream &method::operator<<(int)", "method"),
            (
                "method(int)::{lambda(long)#1}::operator()(long) const",
                "method",
            ),
            ("crate::method::{{closure}}", "method"),
        ] {
            assert_eq!(key(typed), Some(expect), "{typed}");
        }

        let raw = "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE";
        assert!(fits("core::fmt::Formatter::pad", raw));
        assert!(fits("core::fmt::Formatter::pad::h0123456789abcdef", raw));
        assert_eq!(symbol_name(raw), "core::fmt::Formatter::pad");
        assert_eq!(symbol_name("_RNvC6_123foo3bar"), "123foo::bar");
        let raw = "_RNvMNtCs32gj3y4fnmh_4main4shopNtB2_4Cart5total";
        for typed in ["main::shop::Cart::total", "<main::shop::Cart>::total"] {
            assert!(fits(typed, raw), "{typed} {}", symbol_name(raw));
        }

        for raw in [
            "main.(*List[go.shape.int_0,go.shape.*a_1_1]).Add",
            "main.(*List[go.shape.int,go.shape.*a_1]).Add",
        ] {
            assert!(fits(raw, raw));
            assert!(!fits("main.(*List[string]).Add", raw));
        }
        let raw = "main.(*List[go.shape.int_0,go.shape.string_1]).Add";
        assert!(fits("main.(*List[int, string]).Add", raw));
        assert!(fits("main.Map[int]", "main.Map[go.shape.int]"));
        assert!(fits("main.Map[...]", "main.Map[go.shape.[]int]"));
        assert!(!fits("main.Map[...]", "main.Map[go.shape.int].func1"));

        assert!(fits("memcpy", "memcpy@@GLIBC_2.14"));
        assert!(fits("memcpy@@GLIBC_2.14", "memcpy@@GLIBC_2.14"));
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
        check(
            "_ZN4shopli4_eurEy",
            "shop::operator\"\" _eur(unsigned long long)",
        );
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
