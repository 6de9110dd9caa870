//! Marks at the returns of a function, and the risks of uretprobes.
//!
//! A uretprobe replaces the return address on the stack, and the kernel keeps the real ones on one stack per
//! thread. A C++ exception or a Rust panic that passes that frame finds no unwind table for the replacement and
//! ends the program; Go copies its stacks and finds the replacement too; and a program that switches stacks
//! (fibers, coroutines) returns to the wrong caller. No list of symbols finds all of these, as a program's own
//! assembly imports nothing. So uretprobes are used only on request; by default the exits in the function's own
//! code are probed.

use object::{Object, ObjectSection};

use crate::arch::Kernel;
use crate::binary::demangle::without_version;
use crate::binary::elf::{Binary, BinaryType, Language};

/// Marks at the returns of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnMode {
    /// At exits in the function's own code, at the cheapest instructions.
    #[default]
    Auto,
    /// Always a uretprobe.
    Uretprobe,
    /// The `ret` instructions and tail jumps themselves.
    Ret,
}

/// Marks at the returns of a binary's functions, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// By uretprobe; else at the exits.
    pub uretprobe: bool,
    /// One clause for notes; empty if there is nothing to report.
    pub reason: String,
    /// Risk of the requested mode.
    pub danger: Option<String>,
}

/// Libraries in `DT_NEEDED` that imply exceptions or panics.
const UNWINDERS: [&str; 6] = [
    "libstdc++.so",
    "libc++.so",
    "libc++abi.so",
    "libgcc_s.so",
    "libunwind.so",
    "libstd-",
];

/// Symbols that imply exceptions or panics, defined or imported.
const SYMBOLS: [&str; 8] = [
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "__gxx_personality_v0",
    "__cxa_throw",
    "rust_eh_personality",
    "rust_begin_unwind",
    "_gfortran_main",
    "__gnat_personality_v0",
];

/// Evidence that an unwinder may pass the binary's frames; `None` if there is none, which proves nothing.
#[must_use]
pub(crate) fn danger(binary: &Binary) -> Option<String> {
    if binary.language == Language::Go {
        return Some("it is a Go program, whose stacks move".to_owned());
    }
    if let Some(library) = binary
        .needed
        .iter()
        .find(|name| UNWINDERS.iter().any(|unwinder| name.starts_with(unwinder)))
    {
        return Some(format!(
            "it links {library}: an exception or panic can unwind through the frame"
        ));
    }
    let symbol = |name: &str| SYMBOLS.contains(&without_version(name));
    let defined = binary.functions.iter().map(|f| f.name.as_str());
    let imported = binary.imports.iter().map(String::as_str);
    if let Some(name) = defined.chain(imported).find(|name| symbol(name)) {
        let name = without_version(name);
        return Some(format!(
            "it contains {name}: an exception or panic can unwind through the frame"
        ));
    }
    if binary.frames.personality {
        return Some("it has landing pads: an exception can unwind through the frame".to_owned());
    }
    let sections = binary.elf();
    let pads = |file: &crate::binary::object_file::Elf<'_>| {
        file.section_by_name(".gcc_except_table")
            .is_some_and(|section| section.size() > 0)
    };
    if sections.as_ref().is_some_and(pads) {
        return Some("it has landing pads: an exception can unwind through the frame".to_owned());
    }
    (binary.kind == BinaryType::SharedLibrary).then(|| {
        "it is a shared library: programs that unwind through it can't be ruled out".to_owned()
    })
}

/// Reason if the kernel version makes a uretprobe unsafe.
const FILTERED: &str = "Linux 6.11 to 6.13 make its returns a system call, which ends programs with a seccomp filter (services, containers)";

/// Risk of a uretprobe in any program.
pub(crate) const URETPROBE_RISK: &str = "kills or misdirects programs that throw through the function or switch stacks (exceptions, fibers, coroutines, Go)";

/// Decides for a binary. Pure except for reading the binary.
#[must_use]
pub(crate) fn decide(binary: &Binary, kernel: Kernel, mode: ReturnMode) -> Choice {
    match mode {
        ReturnMode::Auto => Choice {
            uretprobe: false,
            reason: "safe on any stack".to_owned(),
            danger: None,
        },
        ReturnMode::Ret => Choice {
            uretprobe: false,
            reason: "--return ret".to_owned(),
            danger: None,
        },
        ReturnMode::Uretprobe => {
            let filtered = || kernel.filtered_returns.then(|| FILTERED.to_owned());
            let known = danger(binary).or_else(filtered);
            let known = known.map_or_else(String::new, |why| format!("; here: {why}"));
            Choice {
                uretprobe: true,
                reason: "--return uretprobe".to_owned(),
                danger: Some(format!("a uretprobe {URETPROBE_RISK}{known}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::binary::testing::compile;

    fn warning(binary: &Binary, release: &str) -> String {
        let choice = decide(binary, Kernel::from_release(release), ReturnMode::Uretprobe);
        assert!(choice.uretprobe);
        choice.danger.expect("always a risk")
    }

    /// No program gets a uretprobe by default, not even plain C: its stacks may be switched.
    #[test]
    fn never_by_itself() {
        let binary = Binary::open(Path::new("/bin/ls")).expect("installed");
        for release in ["6.1.0-9", "6.12.3", "6.18.5-cloud"] {
            for mode in [ReturnMode::Auto, ReturnMode::Ret] {
                let choice = decide(&binary, Kernel::from_release(release), mode);
                assert!(!choice.uretprobe && choice.danger.is_none());
            }
        }
        let text = warning(&binary, "6.18");
        assert!(text.contains("fibers") && !text.contains("here:"), "{text}");
    }

    /// Evidence is reported: C++ programs (linked either way, stripped), shared libraries, Rust.
    #[test]
    fn known_dangers() {
        let source = "#include <stdexcept>\nint main(int c, char **) { try { if (c > 1) throw \
                      std::runtime_error(\"x\"); } catch (...) { return 1; } return 0; }";
        for flags in [
            &[][..],
            &["-static"],
            &["-static-libstdc++", "-static-libgcc"],
        ] {
            let program = compile("g++", source, flags);
            assert!(danger(&program.open()).is_some(), "{flags:?}");
            program.strip();
            assert!(danger(&program.open()).is_some(), "{flags:?}, stripped");
        }
        let library = crate::binary::locate::find_library("libsqlite3.so.0").expect("installed");
        let library = Binary::open(&library).expect("library");
        assert!(warning(&library, "6.18").contains("shared library"));
        let exe = std::env::current_exe().expect("exe");
        let exe = Binary::open(&exe).expect("ELF");
        assert!(warning(&exe, "6.18").contains("here: it"));
    }

    /// Some kernels end plain programs, too, if they have a seccomp filter.
    #[test]
    fn filtered_returns() {
        let binary = Binary::open(Path::new("/bin/ls")).expect("installed");
        for release in ["6.11.0-9-generic", "6.12.3", "6.13"] {
            assert!(warning(&binary, release).contains("seccomp"), "{release}");
        }
        assert!(!warning(&binary, "6.14.0-rc1").contains("seccomp"));
    }
}
