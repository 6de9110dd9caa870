//! Compiles the program: one static file for any Linux.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Arch, copy};
use crate::shell;

/// Largest size of the program, bytes. The goal is 25,000,000, which is missed since lakes came in (tests/measurements.md,
/// "One file").
const MOST_BYTES: u64 = 27_200_000;

/// The program of a package, and the eBPF programs in it.
pub struct Program {
    pub path: PathBuf,
    /// The eBPF programs, which are in the program packed.
    pub object: PathBuf,
}

/// Compiles the program of this workspace, and checks that it needs nothing else.
pub fn make(arch: Arch) -> Result<Program> {
    let program = build(shell::workspace(), &shell::target_dir()?, arch)?;
    needs_nothing(&program.path, arch)?;
    let packed = program.object.with_extension("zst");
    let (bytes, object) = (fs::read(&program.path)?, fs::read(&packed)?);
    anyhow::ensure!(
        bytes.windows(object.len()).any(|it| it == object),
        "{} is not in the program",
        packed.display()
    );
    Ok(program)
}

/// Compiles the program in a workspace, with the C library inside.
fn build(workspace: &Path, target: &Path, arch: Arch) -> Result<Program> {
    let triple = format!("{arch}-unknown-linux-musl");
    shell::run(Command::new("rustup").args(["target", "add", &triple]))?;
    let place = super::tools()?;
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
        .args(["--package", "pebs-trace", "--bin", "pebs-trace"])
        // With object stores it is an eighth larger.
        .arg("--no-default-features")
        .args(["--message-format", "json-render-diagnostics"])
        .args(["--target", &triple, "--target-dir"])
        .arg(target)
        .current_dir(workspace)
        .env("PATH", std::env::join_paths(path)?)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let output = shell::show(&mut build).stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "the program does not compile");
    Ok(Program {
        path: target.join(triple).join("packed/pebs-trace"),
        object: written(&output.stdout)?.join("pebs-ebpf"),
    })
}

/// The folder that the program's build script wrote to, from what cargo says.
fn written(messages: &[u8]) -> Result<PathBuf> {
    let messages = messages.split(|&it| it == b'\n');
    let mut scripts = messages.filter_map(|line| {
        let message: Value = serde_json::from_slice(line).ok()?;
        let is_ours = message["package_id"].as_str()?.contains("#pebs-trace@");
        Some(PathBuf::from(message["out_dir"].as_str()?)).filter(|_| is_ours)
    });
    scripts.next().context("no build script of the program ran")
}

/// A build of the same files in another folder has the same bytes.
pub fn is_reproducible(program: &Path, arch: Arch) -> Result<()> {
    let other = tempfile::tempdir().context("cannot make a folder")?;
    let workspace = other.path().join("elsewhere");
    fs::create_dir_all(workspace.join("target"))?;
    let copy = "git ls-files --cached --others --exclude-standard -z | tar --null --ignore-failed-read -cT - | tar -xC \"$1\"";
    let mut command = Command::new("sh");
    command.current_dir(shell::workspace());
    shell::run(command.args(["-c", copy, "sh"]).arg(&workspace))?;
    std::os::unix::fs::symlink(shell::tools_dir(), workspace.join("target/tools"))?;
    let again = build(&workspace, &workspace.join("target"), arch)?;
    anyhow::ensure!(
        fs::read(program)? == fs::read(&again.path)?,
        "two builds differ: the program depends on the folder that it is built in"
    );
    println!("two builds in two folders have the same bytes");
    Ok(())
}

/// The program is small enough, and starts where there is no other file.
fn needs_nothing(program: &Path, arch: Arch) -> Result<()> {
    let bytes = fs::metadata(program)?.len();
    anyhow::ensure!(
        bytes <= MOST_BYTES,
        "the program has {bytes} bytes, {MOST_BYTES} at most"
    );
    let headers = shell::output(Command::new("readelf").arg("-lW").arg(program))?;
    anyhow::ensure!(!headers.contains("INTERP"), "the program needs a loader");
    if !arch.is_host() {
        println!("pebs-trace for {arch} has {bytes} bytes; it does not run here");
        return Ok(());
    }
    let root = tempfile::tempdir().context("cannot make a folder")?;
    copy(program, &root.path().join("pebs-trace"))?;
    let mut alone = Command::new("unshare");
    alone.arg("--map-root-user").arg("--root").arg(root.path());
    let version = shell::output(alone.args(["/pebs-trace", "--version"]))?;
    println!("{} of {bytes} bytes runs alone", version.trim_end());
    Ok(())
}
