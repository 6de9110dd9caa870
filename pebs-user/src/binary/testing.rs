//! Small programs compiled for a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::elf::Binary;
use super::locate::command;

/// A compiled program, deleted when dropped.
pub(crate) struct Program {
    folder: TempDir,
    name: String,
}

/// Strips a program but for symbols in `.gnu_debugdata`, as gdb's manual says and Fedora does. False without `xz`.
#[must_use]
pub(crate) fn embed_symbols(program: &Path) -> bool {
    const SCRIPT: &str = r#"
        nm -D "$0" --format=posix --defined-only | cut -d' ' -f1 | sort > "$0.dynamic"
        nm "$0" --format=posix --defined-only | awk '$2 == "T" || $2 == "t" { print $1 }' | sort > "$0.all"
        comm -13 "$0.dynamic" "$0.all" > "$0.kept"
        objcopy --only-keep-debug "$0" "$0.mini"
        objcopy -S -R .comment --keep-symbols="$0.kept" "$0.mini"
        xz "$0.mini"
        strip -s "$0"
        objcopy --add-section .gnu_debugdata="$0.mini.xz" "$0"
    "#;
    if command("xz").is_none() {
        return false;
    }
    let shell = Command::new("sh")
        .args(["-ec", SCRIPT])
        .arg(program)
        .status();
    assert!(shell.expect("sh").success());
    true
}

/// Copies a program so that it can be started at once: by another process, since a program can't be started while a child of
/// another test has inherited a file descriptor that writes to it.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.is_ok_and(|it| it.success()), "{}", to.display());
}

/// Compiles a source with `gcc`, `g++` or `rustc`.
pub(crate) fn compile(compiler: &str, source: &str, flags: &[&str]) -> Program {
    let folder = tempfile::tempdir().expect("folder");
    let extension = match compiler {
        "g++" => "cc",
        "rustc" => "rs",
        _ => "c",
    };
    let file = folder.path().join(format!("main.{extension}"));
    fs::write(&file, source).expect("written");
    let output = Command::new(compiler)
        .args(["-o", "program"])
        .arg(file.file_name().expect("name"))
        .args(flags)
        .current_dir(folder.path())
        .output()
        .expect("compiler");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Program {
        folder,
        name: "program".to_owned(),
    }
}

/// Compiles functions in assembler, each `F(name, body)`, and C.
pub(crate) fn assembled(source: &str) -> Program {
    let function = r#"#define F(name, body) asm(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" \
    ".cfi_startproc\n" body "\n.cfi_endproc\n.size " #name ",.-" #name "\n");
"#;
    compile("gcc", &format!("{function}{source}"), &["-no-pie"])
}

impl Program {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn open(&self) -> Binary {
        Binary::open(&self.path()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Removes symbols.
    pub(crate) fn strip(&self) {
        let status = Command::new("strip").arg(self.path()).status();
        assert!(status.expect("strip").success());
    }

    /// The SPEC of a place in it.
    pub(crate) fn spec(&self, place: &str) -> String {
        format!("{}:{place}", self.path().display())
    }
}
