//! Checks argument numbers against a function's debug information.

use super::path::unit_of;
use crate::arch::Register;
use crate::binary::dwarf::DebugInfo;
use crate::binary::elf::Binary;
use crate::binary::parameters::Reader;
use crate::binary::units::Units;
use crate::spec::expr::Expr;

/// The valid `argN` of a function.
pub(super) struct Arity {
    /// The largest N.
    last: u32,
    /// Its arguments, as named in hints.
    arguments: Vec<String>,
}

impl Arity {
    /// The arity of the function at an address; `None` if unknown: without debug information, for variadic
    /// functions, and where the compiler does not follow the calling convention.
    pub(super) fn of(binary: &Binary, function: u64) -> Option<Self> {
        if binary
            .symbol_at(function)
            .is_some_and(|f| is_clone(&f.name))
        {
            return None;
        }
        let info = DebugInfo::load(binary)?;
        let dwarf = info.dwarf();
        let units = Units::new(&dwarf);
        let unit = unit_of(&units, function)?;
        let reader = Reader {
            units: &units,
            unit,
        };
        let last = reader.words(function)?;
        let arguments = reader.function_at(function)?.into_iter().map(|it| {
            let of = it.parameter.read.unwrap_or(it.parameter.r#type);
            format!("{} ({of})", it.parameter.name)
        });
        Some(Self {
            last,
            arguments: arguments.collect(),
        })
    }

    /// Refuses an argument beyond the last one, with a hint.
    pub(super) fn check(&self, expr: &Expr) -> Result<(), (String, Option<String>)> {
        let Some(n) = last_argument(expr).filter(|n| *n > self.last) else {
            return Ok(());
        };
        let has = match self.last {
            0 => "it takes none in a register that argN names".to_owned(),
            last => format!("its last is arg{last}"),
        };
        let what = format!("the function has no arg{n}: by its debug information {has}");
        let mut hints = Vec::new();
        if !self.arguments.is_empty() {
            hints.push(format!("its arguments: {}", self.arguments.join(", ")));
        }
        let register = Register::ARGUMENTS.get(n as usize - 1);
        hints.push(match register {
            Some(register) => format!("%{} reads the register all the same", register.name()),
            None => format!(
                "*(%{}+OFFSET) reads the stack all the same",
                Register::STACK.name()
            ),
        });
        Err((what, Some(hints.join("; "))))
    }
}

/// Suffixes of copies of functions that gcc and clang make for some callers, with other arguments.
const CLONES: [&str; 6] = [
    "constprop",
    "isra",
    "part",
    "argelim",
    "argprom",
    "specialized",
];

/// Whether a function, by its symbol or readable name, is a copy that may have other arguments than its source says.
pub(super) fn is_clone(name: &str) -> bool {
    name.split('.').skip(1).any(|part| CLONES.contains(&part))
}

/// The largest N of `argN` in an expression.
pub(super) fn last_argument(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Arg(n) => Some(*n),
        Expr::Reg(_) | Expr::Retval | Expr::Path(_) => None,
        Expr::Add(inner, _)
        | Expr::Deref(inner, _)
        | Expr::Str(inner, _)
        | Expr::Chars(inner, ..)
        | Expr::Cast(inner, _) => last_argument(inner),
        Expr::Text(inner, length, _) => last_argument(inner).max(last_argument(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::testing::{Program, compile};

    fn last(program: &Program, function: &str) -> Option<u32> {
        let binary = program.open();
        let found = crate::binary::lookup::function(&binary, function);
        Arity::of(&binary, found.unwrap().address).map(|arity| arity.last)
    }

    /// Arguments of the calling convention are counted; functions that may not follow it are skipped.
    #[test]
    fn of_c() {
        let source = "#include <stdarg.h>\n\
             struct item { long id; }; struct pair { long a, b; }; struct large { long a[4]; };\n\
             volatile long sink;\n\
             __attribute__((noipa)) void none(void) { sink++; }\n\
             __attribute__((noipa)) void one(struct item *it) { sink += it->id; }\n\
             __attribute__((noipa)) void mixed(double x, int n, char c) { sink += x + n + c; }\n\
             __attribute__((noipa)) void eight(long a, long b, long c, long d, long e, long f, long g, long h)\n\
             { sink += a + b + c + d + e + f + g + h; }\n\
             __attribute__((noipa)) void open(int n, ...) { va_list l; va_start(l, n); sink += va_arg(l, long); va_end(l); }\n\
             __attribute__((noipa)) void by_value(struct pair p) { sink += p.a + p.b; }\n\
             __attribute__((noipa)) struct large result(long n) { struct large l = {{n}}; return l; }\n\
             __attribute__((noinline)) static int unused(int a, int b, int c) { sink += b; return 0; }\n\
             int main(int argc, char **argv) { struct item it = {1}; struct pair p = {1, 2}; none(); one(&it);\n\
               mixed(1, 2, 3); eight(1, 2, 3, 4, 5, 6, 7, 8); open(1, 2L); by_value(p); sink += result(1).a[0];\n\
               return unused(argc, 2, 3); }\n";
        for flags in [&["-O2", "-g"][..], &["-O0", "-g"]] {
            let program = compile("gcc", source, flags);
            let expected = [
                ("none", Some(0)),
                ("one", Some(1)),
                ("mixed", Some(2)),
                ("eight", Some(8)),
                ("open", None),
                ("by_value", None),
                // The address of the result is passed first.
                ("result", Some(2)),
                ("main", Some(2)),
            ];
            for (function, words) in expected {
                assert_eq!(last(&program, function), words, "{function} {flags:?}");
            }
        }
        let bare = compile("gcc", source, &["-O2"]);
        assert_eq!(last(&bare, "one"), None);
    }

    /// `this` is an argument; assembly and other languages are skipped.
    #[test]
    fn of_others() {
        let source = "volatile long sink;\n\
             struct Cart { long n; __attribute__((noinline)) void add(int m); };\n\
             void Cart::add(int m) { sink += n + m; }\n\
             int main(int argc, char **argv) { Cart cart{1}; cart.add(argc); return 0; }\n";
        let program = compile("g++", source, &["-O1", "-g"]);
        assert_eq!(last(&program, "Cart::add"), Some(2));
        let source = "#[inline(never)]\npub fn work(n: u64) -> u64 { std::hint::black_box(n) }\n\
             fn main() { std::process::exit(work(0) as i32) }\n";
        let program = compile("rustc", source, &["-g"]);
        assert_eq!(last(&program, "main::work"), None);
    }
}
