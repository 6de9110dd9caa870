//! `cargo xtask dist`: the program with its man pages and completions, to be unpacked elsewhere.
//!
//! It is linked with musl, statically: one file that runs on every Linux from 5.15 on, whatever C library is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::setup;
use crate::shell;

/// Files from the workspace, and their names in the package, including the licences of bundled code.
const PAPERS: [(&str, &str); 6] = [
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

/// Folder of the guide, in the workspace and in the archive.
const GUIDE: (&str, &str) = ("pebs-user/guide", "guide");

/// Folders that the program writes.
const PAGES: [&str; 2] = ["man", "completions"];

/// Compiles for another C library.
const ZIGBUILD: &str = "cargo-zigbuild";

/// Largest size of the program, bytes.
const MOST_BYTES: u64 = 25_000_000;

/// Options of `cargo xtask dist`.
#[derive(clap::Args)]
pub struct Args {
    /// Build a second time in another folder, and check that the program has the same bytes
    #[arg(long)]
    twice: bool,
}

/// Runs the task: writes `target/dist/NAME/` and `target/dist/NAME.tar.gz`, and prints the latter's path.
pub fn main(args: &Args) -> Result<()> {
    let arch = std::env::consts::ARCH;
    let triple = format!("{arch}-unknown-linux-musl");
    let dist = shell::target_dir()?.join("dist");
    // Every crate of the workspace has the same version.
    let name = format!("pebs-trace-{}-{arch}-linux", env!("CARGO_PKG_VERSION"));
    let dir = dist.join(&name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let program = dir.join("pebs-trace");
    build(shell::workspace(), &shell::target_dir()?, &triple, &program)?;
    needs_nothing(&program)?;
    if args.twice {
        is_reproducible(&program, &triple)?;
    }
    for (from, name) in PAPERS {
        copy(&shell::workspace().join(from), &dir.join(name))?;
    }
    guide(&dir)?;
    pages(&dir)?;
    let archive = dist.join(format!("{name}.tar.gz"));
    // The same content gives the same archive on any machine.
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--gzip",
        "--sort=name",
        "--owner=0",
        "--group=0",
    ])
    .args(["--numeric-owner", "--mode=u+rw,go=rX", "--mtime=@0"])
    .arg("--file")
    .arg(&archive)
    .arg("--directory")
    .arg(&dist)
    .arg(&name);
    shell::run(&mut tar)?;
    check(&archive, &name)?;
    println!("{}", archive.display());
    Ok(())
}

/// Has the program write its man pages and completions.
fn pages(dir: &Path) -> Result<()> {
    let program = dir.join("pebs-trace");
    let man = dir.join(PAGES[0]).join("man1");
    shell::run(Command::new(&program).args(["man", "--dir"]).arg(man))?;
    let completions = dir.join(PAGES[1]);
    fs::create_dir_all(&completions)?;
    for (shell, name) in [
        ("bash", "pebs-trace.bash"),
        ("zsh", "_pebs-trace"),
        ("fish", "pebs-trace.fish"),
    ] {
        let text = shell::output(Command::new(&program).args(["completions", shell]))?;
        fs::write(completions.join(name), text)?;
    }
    Ok(())
}

/// Compiles the program in a workspace, with the C library inside.
fn build(workspace: &Path, target: &Path, triple: &str, to: &Path) -> Result<()> {
    shell::run(Command::new("rustup").args(["target", "add", triple]))?;
    let place = linker()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(place).chain(std::env::split_paths(&path));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    // Messages of panics name files: as seen from here, wherever that is.
    let folders = [
        Some((workspace, "/pebs-trace")),
        home.as_deref().map(|it| (it, "/cargo")),
    ];
    let flags: Vec<String> = folders
        .into_iter()
        .flatten()
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
        .collect();
    let mut build = shell::cargo(&["zigbuild", "--profile", "packed", "--locked"]);
    build
        .args(["--package", "pebs-user", "--bin", "pebs-trace"])
        .args(["--target", triple, "--target-dir"])
        .arg(target)
        .current_dir(workspace)
        .env("PATH", std::env::join_paths(path)?)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    shell::run(&mut build)?;
    copy(&target.join(triple).join("packed/pebs-trace"), to)
}

/// A build of the same files in another folder has the same bytes.
fn is_reproducible(program: &Path, triple: &str) -> Result<()> {
    let other = tempfile::tempdir().context("cannot make a folder")?;
    let workspace = other.path().join("elsewhere");
    fs::create_dir_all(workspace.join("target"))?;
    let copy = "git ls-files --cached --others --exclude-standard -z | tar --null --ignore-failed-read -cT - | tar -xC \"$1\"";
    let mut command = Command::new("sh");
    command.current_dir(shell::workspace());
    shell::run(command.args(["-c", copy, "sh"]).arg(&workspace))?;
    std::os::unix::fs::symlink(shell::tools_dir(), workspace.join("target/tools"))?;
    let again = other.path().join("pebs-trace");
    build(&workspace, &workspace.join("target"), triple, &again)?;
    anyhow::ensure!(
        fs::read(program)? == fs::read(&again)?,
        "two builds differ: the program depends on the folder that it is built in"
    );
    println!("two builds in two folders have the same bytes");
    Ok(())
}

/// The folder with [`ZIGBUILD`], which is installed if missing.
fn linker() -> Result<PathBuf> {
    let place = shell::tools_dir().join("dist-venv");
    let programs = place.join("bin");
    if !programs.join(ZIGBUILD).exists() {
        setup::make_environment(&place, &[ZIGBUILD])?;
    }
    Ok(programs)
}

/// The program is small enough, and starts where there is no other file.
fn needs_nothing(program: &Path) -> Result<()> {
    let bytes = fs::metadata(program)?.len();
    anyhow::ensure!(
        bytes <= MOST_BYTES,
        "the program has {bytes} bytes, {MOST_BYTES} at most"
    );
    let headers = shell::output(Command::new("readelf").arg("-lW").arg(program))?;
    anyhow::ensure!(!headers.contains("INTERP"), "the program needs a loader");
    let root = tempfile::tempdir().context("cannot make a folder")?;
    copy(program, &root.path().join("pebs-trace"))?;
    let mut alone = Command::new("unshare");
    alone.arg("--map-root-user").arg("--root").arg(root.path());
    let version = shell::output(alone.args(["/pebs-trace", "--version"]))?;
    println!("{} of {bytes} bytes runs alone", version.trim_end());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = fs::copy(from, to);
    copied.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Copies the guide; the README's links to it lead there.
fn guide(dir: &Path) -> Result<()> {
    let (from, to) = (shell::workspace().join(GUIDE.0), dir.join(GUIDE.1));
    fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
    let entries = fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    let readme = dir.join("README.md");
    let text = fs::read_to_string(&readme)?.replace(GUIDE.0, GUIDE.1);
    fs::write(&readme, text).with_context(|| format!("cannot write {}", readme.display()))
}

/// The archive can be read, and everything is in it.
fn check(archive: &Path, name: &str) -> Result<()> {
    let listed = shell::output(Command::new("tar").arg("--list").arg("--file").arg(archive))?;
    let papers = PAPERS.iter().map(|(_, name)| name);
    for part in papers.chain(&PAGES).chain(&["pebs-trace", GUIDE.1]) {
        let path = format!("{name}/{part}");
        let is_there = listed
            .lines()
            .any(|line| line.trim_end_matches('/') == path);
        anyhow::ensure!(is_there, "no {path} in {}", archive.display());
    }
    Ok(())
}
