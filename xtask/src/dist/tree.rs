//! The files of a package, as they lie below `/usr` once it is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::copy;
use crate::shell;

/// Documents of the workspace, and their names in the package, the licences of bundled files included.
const DOCUMENTS: [(&str, &str); 6] = [
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
    ("LICENSE-MIT", "LICENSE-MIT"),
    ("pebs-user/data/events/LICENSE", "LICENSE-INTEL-EVENTS"),
    (
        "pebs-user/src/out/html/assets/uPlot.LICENSE",
        "LICENSE-UPLOT",
    ),
];

/// Folders of documents. The README's links lead to the guide's name in the package.
const FOLDERS: [(&str, &str); 2] = [
    ("pebs-user/guide", "guide"),
    ("pebs-user/data/presets", "presets"),
];

/// Folder of the units for systemd, here and in a package.
const UNITS: (&str, &str) = ("pebs-user/data/systemd", "lib/systemd/system");

/// Folders in which shells look for completions: shell, file, as most systems have it.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/pebs-trace"),
    ("zsh", "share/zsh/site-functions/_pebs-trace"),
    ("fish", "share/fish/vendor_completions.d/pebs-trace.fish"),
];

/// The folder of the documents.
pub const DOC: &str = "share/doc/pebs-trace";

/// Lays out the files below an empty folder: a program, and what `writer`, which runs here, writes about itself.
pub fn lay_out(usr: &Path, program: &Path, writer: &Path, licences: &str) -> Result<()> {
    put(program, &usr.join("bin/pebs-trace"))?;
    let man = usr.join("share/man/man1");
    shell::run(Command::new(writer).args(["man", "--dir"]).arg(&man))?;
    for page in files(&man)? {
        shell::output(Command::new("gzip").args(["-9", "-n"]).arg(page))?;
    }
    for (shell, name) in COMPLETIONS {
        let text = shell::output(Command::new(writer).args(["completions", shell]))?;
        write(&usr.join(name), &text)?;
    }
    let doc = usr.join(DOC);
    for (from, name) in DOCUMENTS {
        put(&shell::workspace().join(from), &doc.join(name))?;
    }
    for (from, name) in FOLDERS {
        put_all(&shell::workspace().join(from), &doc.join(name))?;
    }
    put_all(&shell::workspace().join(UNITS.0), &usr.join(UNITS.1))?;
    let readme = doc.join("README.md");
    let text = fs::read_to_string(&readme)?.replace(FOLDERS[0].0, FOLDERS[0].1);
    write(&readme, &text)?;
    write(&doc.join("LICENSES-OF-DEPENDENCIES"), licences)?;
    settle(usr)
}

/// Modes and times that do not depend on who builds and when.
pub fn settle(root: &Path) -> Result<()> {
    let mode = "u=rwX,go=rX";
    shell::output(Command::new("chmod").args(["-R", mode]).arg(root))?;
    let date = format!("--date=@{}", super::epoch());
    let mut touch = Command::new("find");
    touch.arg(root);
    touch.args(["-exec", "touch", "--no-dereference", &date, "{}", "+"]);
    shell::output(&mut touch).map(drop)
}

/// Packs folders or files below `root`: the same content gives the same archive on any machine.
pub fn tar(archive: &Path, root: &Path, names: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0"])
        .args(["--numeric-owner", "--format=gnu", "--file"])
        .arg(archive)
        .arg("--directory")
        .arg(root)
        .args(names);
    shell::output(&mut tar).map(drop)
}

/// Files of a folder, by name.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

fn put_all(from: &Path, to: &Path) -> Result<()> {
    for file in files(from)? {
        put(&file, &to.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Copies a file, whose folder is made.
fn put(from: &Path, to: &Path) -> Result<()> {
    make_room(to)?;
    copy(from, to)
}

/// Writes a file, whose folder is made.
pub fn write(path: &Path, text: &str) -> Result<()> {
    make_room(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn make_room(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
