//! Whether something can unwind through a function's frame, so that a uretprobe would kill the target.
//!
//! A uretprobe replaces the return address on the stack. A C++ exception or a Rust panic that has to pass that
//! frame finds no unwind table for the replacement and ends the program; Go copies its stacks and
//! finds the replacement too. So a uretprobe is used only where none of them can be:
//!
//! * A program is safe if it links no unwinder itself (`libstdc++`, `libc++`, `libgcc_s`,
//!   `libunwind`, or one linked statically), has no landing pads in `.eh_frame`, and is not Go. Its libraries
//!   may be C++ (jemalloc is): an exception passes a C program's frame only if a C++ library calls back into
//!   the program, which calls into C++ again, which throws, which no such program is known to do.
//! * A shared library is never safe: any C++ or Rust program may pass it a callback that throws
//!   (`qsort`, `sqlite3_exec`), and a probe on the library reaches all of them, now and later.

use object::{Object, ObjectSection};

use super::demangle::without_version;
use super::elf::{Binary, Kind, Language};
use super::kernel::Kernel;

/// How the returns of a function are marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnMode {
    /// A uretprobe where nothing can unwind through the frame, else the `ret` instructions.
    #[default]
    Auto,
    /// Always a uretprobe.
    Uretprobe,
    /// Always the `ret` instructions and tail jumps.
    Ret,
}

/// How the returns of a binary's functions will be marked, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// By uretprobe; else on the `ret`s.
    pub uretprobe: bool,
    /// One clause for notes: 'plain C program: nothing can unwind through its frames'.
    pub reason: String,
    /// What the user overrode at the target's peril.
    pub danger: Option<String>,
}

/// Libraries whose presence in `DT_NEEDED` means exceptions or panics.
const UNWINDERS: [&str; 6] = [
    "libstdc++.so",
    "libc++.so",
    "libc++abi.so",
    "libgcc_s.so",
    "libunwind.so",
    "libstd-",
];

/// Symbols that come with exceptions or panics, defined or imported.
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

/// Why an unwinder may meet the binary's frames; `None` if nothing can.
#[must_use]
pub fn danger(binary: &Binary) -> Option<String> {
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
    let pads = |file: &super::elf::Elf<'_>| {
        file.section_by_name(".gcc_except_table")
            .is_some_and(|section| section.size() > 0)
    };
    if sections.as_ref().is_some_and(pads) {
        return Some("it has landing pads: an exception can unwind through the frame".to_owned());
    }
    (binary.kind == Kind::SharedLibrary).then(|| {
        "it is a shared library: programs that unwind through it can't be ruled out".to_owned()
    })
}

/// Said where it is the kernel that a uretprobe is not safe on.
const FILTERED: &str = "Linux 6.11 to 6.13 make its returns a system call, which ends programs with a seccomp filter (services, containers)";

/// Decides for a binary. Pure but for what the binary holds.
#[must_use]
pub fn decide(binary: &Binary, kernel: Kernel, mode: ReturnMode) -> Choice {
    let filtered = || kernel.filtered_returns.then(|| FILTERED.to_owned());
    let danger = danger(binary).or_else(filtered);
    match (mode, danger) {
        (ReturnMode::Auto, None) => Choice {
            uretprobe: true,
            reason: "a plain program without exceptions: nothing can unwind through its frames"
                .to_owned(),
            danger: None,
        },
        (ReturnMode::Auto, Some(why)) => Choice {
            uretprobe: false,
            reason: why,
            danger: None,
        },
        (ReturnMode::Uretprobe, danger) => Choice {
            uretprobe: true,
            reason: "--return uretprobe".to_owned(),
            danger: danger.map(|why| format!("a uretprobe can kill the target: {why}")),
        },
        (ReturnMode::Ret, _) => Choice {
            uretprobe: false,
            reason: "--return ret".to_owned(),
            danger: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::testing::compile;
    use super::*;

    fn auto(binary: &Binary) -> Choice {
        decide(binary, Kernel::from_release("6.18"), ReturnMode::Auto)
    }

    /// Plain C programs of the distribution take a uretprobe, although a library of theirs is C++.
    #[test]
    fn plain_programs() {
        for path in ["/usr/bin/redis-check-rdb", "/bin/ls"] {
            let binary = Binary::open(Path::new(path)).expect("installed");
            assert!(auto(&binary).uretprobe, "{path}: {:?}", danger(&binary));
        }
    }

    /// C++ programs, linked either way and stripped, and shared libraries never do.
    #[test]
    fn programs_that_unwind() {
        let source = "#include <stdexcept>\nint main(int c, char **) { try { if (c > 1) throw \
                      std::runtime_error(\"x\"); } catch (...) { return 1; } return 0; }";
        for flags in [
            &[][..],
            &["-static"],
            &["-static-libstdc++", "-static-libgcc"],
        ] {
            let program = compile("g++", source, flags);
            assert!(!auto(&program.open()).uretprobe, "{flags:?}");
            program.strip();
            assert!(!auto(&program.open()).uretprobe, "{flags:?}, stripped");
        }
        let library = super::super::locate::find_library("libsqlite3.so.0").expect("installed");
        let choice = auto(&Binary::open(&library).expect("library"));
        assert!(!choice.uretprobe && choice.reason.contains("shared library"));
    }

    /// This very test is a Rust program: panics unwind through it. The user may overrule, and is told.
    #[test]
    fn rust_program() {
        let exe = std::env::current_exe().expect("exe");
        let binary = Binary::open(&exe).expect("ELF");
        assert!(!auto(&binary).uretprobe);
        let kernel = Kernel::from_release("6.18");
        let forced = decide(&binary, kernel, ReturnMode::Uretprobe);
        assert!(forced.uretprobe && forced.danger.is_some());
        assert!(!decide(&binary, kernel, ReturnMode::Ret).uretprobe);
    }

    /// Some kernels end plain programs, too, if they have a seccomp filter.
    #[test]
    fn filtered_returns() {
        let binary = Binary::open(Path::new("/bin/ls")).expect("installed");
        let uretprobe =
            |release| decide(&binary, Kernel::from_release(release), ReturnMode::Auto).uretprobe;
        for release in ["6.1.0-9", "6.10.14", "6.14.0-rc1", "6.18.5-cloud"] {
            assert!(uretprobe(release), "{release}");
        }
        for release in ["6.11.0-9-generic", "6.12.3", "6.13"] {
            assert!(!uretprobe(release), "{release}");
        }
        let kernel = Kernel::from_release("6.12");
        let forced = decide(&binary, kernel, ReturnMode::Uretprobe);
        assert!(forced.danger.is_some_and(|why| why.contains("seccomp")));
    }
}
