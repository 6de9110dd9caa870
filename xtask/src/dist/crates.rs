//! The crates as a registry takes them, with the eBPF programs compiled: `cargo install pebs-trace` needs no compiler for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Arch, VERSION, copy};
use crate::shell;

/// The crates that the program is made of; the last one is the program.
pub const CRATES: [&str; 5] = [
    "pebs-common",
    "pebs-selfcount",
    "pebs-stats",
    "pebs-mine",
    "pebs-trace",
];

/// Folder of the objects in a package, for `pebs-user/build.rs`.
const OBJECTS: &str = "pebs-user/ebpf";

/// Packs the crates. `objects` are those that the programs hold.
pub fn pack(dist: &Path, objects: &[(Arch, PathBuf)]) -> Result<Vec<PathBuf>> {
    let folder = shell::workspace().join(OBJECTS);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir(&folder)?;
    for (arch, object) in objects {
        copy(object, &folder.join(format!("pebs-ebpf-{arch}")))?;
    }
    let packages = CRATES.iter().flat_map(|it| ["--package", it]);
    // The object is in no commit. `--check` compiles what is packed.
    let mut package = shell::cargo(&["package", "--locked", "--allow-dirty", "--no-verify"]);
    shell::run(package.args(packages))?;
    fs::remove_dir_all(&folder)?;
    let packed = shell::target_dir()?.join("package");
    let mut made = Vec::new();
    for name in CRATES {
        let file = format!("{name}-{VERSION}.crate");
        copy(&packed.join(&file), &dist.join(&file))?;
        made.push(dist.join(file));
    }
    let program = made.last().context("no crates")?;
    for (arch, object) in objects {
        let name = format!("pebs-trace-{VERSION}/ebpf/pebs-ebpf-{arch}");
        let mut unpack = Command::new("tar");
        unpack.args(["--extract", "--gzip", "--to-stdout", "--file"]);
        let packed = unpack.arg(program).arg(&name).output()?;
        anyhow::ensure!(
            packed.stdout == fs::read(object)?,
            "{name} is not the object that the sources make"
        );
    }
    Ok(made)
}
