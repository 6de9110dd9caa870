//! A wheel for pip: the program as a command, and the Python package that reads traces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::tree::{files, settle, write};
use super::{Arch, SUMMARY, VERSION, copy};
use crate::shell;

/// The package, in the workspace.
const PACKAGE: &str = "pebs-user/python/pebs_trace";

/// Packages that it needs, and those for what not everybody wants.
const NEEDED: [&str; 1] = ["pyarrow>=14"];
const EXTRAS: [(&str, &str); 4] = [
    ("pandas", "pandas>=2"),
    ("polars", "polars>=1"),
    ("duckdb", "duckdb>=1"),
    ("plots", "matplotlib>=3.7"),
];

/// The first Python that has what the package uses.
const PYTHON: &str = ">=3.10";

/// Writes the wheel.
pub fn make(dist: &Path, program: &Path, arch: Arch) -> Result<PathBuf> {
    let room = tempfile::tempdir()?;
    let root = room.path().join(format!("pebs_trace-{VERSION}"));
    let package = root.join("pebs_trace");
    for file in files(&shell::workspace().join(PACKAGE))? {
        if file.is_file() {
            let name = file.file_name().unwrap_or_default();
            fs::create_dir_all(&package)?;
            copy(&file, &package.join(name))?;
        }
    }
    let scripts = root.join(format!("pebs_trace-{VERSION}.data/scripts"));
    fs::create_dir_all(&scripts)?;
    copy(program, &scripts.join("pebs-trace"))?;
    let about = root.join(format!("pebs_trace-{VERSION}.dist-info"));
    write(&about.join("METADATA"), &metadata()?)?;
    // The program needs no C library: any will do.
    let tags = [
        format!("py3-none-manylinux2014_{arch}"),
        format!("py3-none-musllinux_1_1_{arch}"),
    ];
    let tags: String = tags.iter().map(|it| format!("Tag: {it}\n")).collect();
    let wheel =
        format!("Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\n{tags}");
    write(&about.join("WHEEL"), &wheel)?;
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&shell::workspace().join(name), &about.join(name))?;
    }
    settle(&root)?;
    let mut pack = Command::new(super::tools()?.join("python"));
    pack.args(["-m", "wheel", "pack", "--dest-dir"])
        .arg(dist)
        .env("SOURCE_DATE_EPOCH", super::epoch());
    shell::run(pack.arg(&root))?;
    let begin = format!("pebs_trace-{VERSION}-");
    let made = files(dist)?.into_iter().find(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&begin) && name.contains(&arch.to_string())
    });
    made.context("no wheel was written")
}

fn metadata() -> Result<String> {
    let mut lines = vec![
        "Metadata-Version: 2.1".to_owned(),
        "Name: pebs-trace".to_owned(),
        format!("Version: {VERSION}"),
        format!("Summary: {SUMMARY}"),
        format!("License: {}", env!("CARGO_PKG_LICENSE")),
        format!("Project-URL: Source, {}", env!("CARGO_PKG_REPOSITORY")),
        "Classifier: Operating System :: POSIX :: Linux".to_owned(),
        "Classifier: Topic :: Software Development :: Debuggers".to_owned(),
        format!("Requires-Python: {PYTHON}"),
    ];
    lines.extend(NEEDED.map(|it| format!("Requires-Dist: {it}")));
    for (name, package) in EXTRAS {
        lines.push(format!("Provides-Extra: {name}"));
        lines.push(format!("Requires-Dist: {package}; extra == '{name}'"));
    }
    lines.push("Description-Content-Type: text/markdown\n".to_owned());
    let guide = shell::workspace().join("pebs-user/guide/python.md");
    lines.push(fs::read_to_string(guide)?);
    Ok(lines.join("\n"))
}
