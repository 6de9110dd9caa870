//! `cargo xtask dist`: the program with its man pages and completions, to be unpacked elsewhere.

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

/// Folders written by the example.
const PAGES: [&str; 2] = ["man", "completions"];

/// Oldest supported C library: that of RHEL 8 and Debian 10.
const GLIBC: (u32, u32) = (2, 28);

/// Links against older C libraries.
const ZIGBUILD: &str = "cargo-zigbuild";

/// Runs the task: writes `target/dist/NAME/` and `target/dist/NAME.tar.gz`, and prints the latter's path.
pub fn main() -> Result<()> {
    let arch = std::env::consts::ARCH;
    let triple = format!("{arch}-unknown-linux-gnu");
    build(&triple)?;
    let target = shell::target_dir()?;
    let (release, dist) = (target.join(&triple).join("release"), target.join("dist"));
    // Every crate of the workspace has the same version.
    let name = format!("pebs-trace-{}-{arch}-linux", env!("CARGO_PKG_VERSION"));
    let dir = dist.join(&name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let program = dir.join("pebs-trace");
    copy(&release.join("pebs-trace"), &program)?;
    runs_on_old_systems(&program)?;
    // Its debug information is four times as large as the program; names of functions are kept.
    shell::run(Command::new("strip").arg("--strip-debug").arg(&program))?;
    for (from, name) in PAPERS {
        copy(&shell::workspace().join(from), &dir.join(name))?;
    }
    guide(&dir)?;
    shell::run(Command::new(release.join("examples/pages")).arg(&dir))?;
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

/// Compiles the program and the generator of its pages, linked against the oldest supported C library.
fn build(triple: &str) -> Result<()> {
    let place = linker()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(place).chain(std::env::split_paths(&path));
    let mut build = shell::cargo(&[
        "zigbuild",
        "--release",
        "--locked",
        "--package",
        "pebs-user",
    ]);
    build
        .args(["--bin", "pebs-trace", "--example", "pages", "--target"])
        .arg(format!("{triple}.{}.{}", GLIBC.0, GLIBC.1))
        .env("PATH", std::env::join_paths(path)?);
    shell::run(&mut build)
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

/// No symbol of the C library that the program needs is newer than [`GLIBC`].
fn runs_on_old_systems(program: &Path) -> Result<()> {
    let symbols = shell::output(Command::new("objdump").arg("-T").arg(program))?;
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest
            .split(|c: char| c != '.' && !c.is_ascii_digit())
            .next()?;
        let mut numbers = version.split('.').map(|it| it.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??))
    });
    let newest = versions.max().context("the program needs no C library")?;
    anyhow::ensure!(
        newest <= GLIBC,
        "the program needs glibc {}.{}, which is newer than {}.{}",
        newest.0,
        newest.1,
        GLIBC.0,
        GLIBC.1
    );
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
