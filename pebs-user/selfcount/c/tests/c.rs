//! The example in C, linked with the library that cargo built, statically and dynamically.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the folder in which cargo puts the libraries of this crate for its tests.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().to_owned();
    assert!(
        folder.join("libselfcount.a").exists(),
        "{}",
        folder.display()
    );
    folder
}

/// Builds the example with the system's C compiler (`CC`, else `cc`); `None` if there is none, or no static C library.
fn build(program: &Path, link: &[&str]) -> Option<()> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiler = std::env::var_os("CC").unwrap_or("cc".into());
    let mut command = Command::new(compiler);
    command
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(crate_folder.join("include"))
        .arg(crate_folder.join("examples/count.c"))
        .arg("-L")
        .arg(libraries())
        .args(link)
        .arg("-o")
        .arg(program);
    let Ok(done) = command.output() else {
        eprintln!("SKIP no C compiler");
        return None;
    };
    let err = String::from_utf8_lossy(&done.stderr);
    if link.contains(&"-static") && err.contains("cannot find -lc") {
        eprintln!("SKIP no static C library");
        return None;
    }
    assert!(done.status.success(), "{command:?}\n{err}");
    Some(())
}

fn check(done: &Output) {
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    if err.contains("permission denied") {
        return eprintln!("SKIP {err}");
    }
    let expected = "\
stopped: nan
page faults: 100
calls: 1000
cpu time: some
by: read()
reset: 0
no room: there is no room for the counts of all events
elsewhere: the group belongs to another thread
unknown: unknown event 'cycle'
";
    // glibc prints the sign of a NaN.
    assert_eq!(out.replace("-nan", "nan"), expected, "{err}");
    assert_eq!(done.status.code(), Some(0));
}

/// System libraries that the static library needs, as printed by `rustc --print native-static-libs`.
const STATIC: [&str; 6] = [
    "-l:libselfcount.a",
    "-lgcc_s",
    "-lutil",
    "-lpthread",
    "-lm",
    "-ldl",
];

/// The archive in a dynamic program, the archive in a static one, and the shared library.
#[test]
fn example() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("count");
    if build(&program, &STATIC).is_none() {
        return;
    }
    check(&Command::new(&program).output().unwrap());

    let whole = [
        "-static",
        "-l:libselfcount.a",
        "-lgcc_eh",
        "-lpthread",
        "-lm",
        "-ldl",
        "-lc",
    ];
    if build(&program, &whole).is_some() {
        check(&Command::new(&program).output().unwrap());
    }

    build(&program, &["-lselfcount", "-lpthread", "-lm"]).unwrap();
    let mut command = Command::new(&program);
    check(
        &command
            .env("LD_LIBRARY_PATH", libraries())
            .output()
            .unwrap(),
    );
}

/// The reason and the hint reach C.
#[test]
fn example_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("count");
    if build(&program, &STATIC).is_none() {
        return;
    }
    let done = Command::new(&program).arg("page-fault").output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(
        err.starts_with("cannot count: unknown event 'page-fault'\nhint: names are perf's"),
        "{err}"
    );
    assert_eq!(done.status.code(), Some(2));
}

/// The header alone compiles as C and C++ without warnings.
#[test]
fn header_alone() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/selfcount.h");
    for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
        let mut command = Command::new(compiler);
        command.args([
            "-fsyntax-only",
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Werror",
            "-x",
            language,
        ]);
        match command.arg(&header).output() {
            Ok(done) => assert!(
                done.status.success(),
                "{}",
                String::from_utf8_lossy(&done.stderr)
            ),
            Err(_) => eprintln!("SKIP no {compiler}"),
        }
    }
}

/// The header declares exactly the functions of the library.
#[test]
fn header_is_whole() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(crate_folder.join(path)).unwrap();
    let (header, source) = (read("include/selfcount.h"), read("src/lib.rs"));
    let mut declared: Vec<&str> = header
        .split("selfcount_")
        .skip(1)
        .filter_map(|rest| {
            rest.split_once('(')
                .filter(|(name, _)| name.chars().all(char::is_alphabetic) || *name == "is_rdpmc")
        })
        .map(|(name, _)| name)
        .collect();
    let mut defined: Vec<&str> = source
        .split("extern \"C\" fn selfcount_")
        .skip(1)
        .filter_map(|rest| rest.split_once('(').map(|(name, _)| name))
        .collect();
    declared.sort_unstable();
    defined.sort_unstable();
    assert_eq!(declared, defined);
    assert_eq!(declared.len(), 12);
}
