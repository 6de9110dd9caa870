//! Names as their authors wrote them.
//!
//! Our own, as blazesym's tries every name as a C++ type too: a C function `f` comes out as `float`.

use std::fmt::{self, Write as _};

use cpp_demangle::{DemangleOptions, Symbol};

use super::functions::NAME_MAX;

/// The name that a symbol stands for: C++ and Rust names demangled (without Rust's hash), any other as it is.
///
/// What comes out is cut at 4 KiB: a short mangled name can stand for one of any length.
#[must_use]
pub fn demangle(name: &str) -> String {
    if !is_mangled(name) {
        return name.to_string();
    }
    rust(name)
        .or_else(|| cpp(name))
        .unwrap_or_else(|| name.to_string())
}

/// Whether a name is of a form that a compiler gives, and a C programmer does not.
fn is_mangled(name: &str) -> bool {
    let bare = name.trim_start_matches('_');
    let underscores = name.len() - bare.len();
    (1..=4).contains(&underscores) && bare.starts_with(['Z', 'R'])
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded(String::new());
    // An error says that the name was cut.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each language's names, and C names that look like C++ types.
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
        /// Any name, mangled or broken, comes out without a panic.
        #[test]
        fn any_name(name in "_{0,4}[ZR][A-Za-z0-9_$.]{0,60}") {
            proptest::prop_assert!(demangle(&name).len() <= NAME_MAX);
        }
    }
}
