//! The PMU in software: a module built for the guest's kernel, and the guest's CPU model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::packages::{Kernel, Packages};
use crate::shell;
use crate::toolchain::find_program;

/// The kernel that the module is written for.
pub const VERSION: &str = "6.12";

/// Folder of its source.
const SOURCE: &str = "tests/softpmu";

/// File name of the module.
const FILE: &str = "softpmu.ko";

/// PMU of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pmu {
    /// Intel's, with PEBS
    Pebs,
    /// The same on two kinds of cores
    Hybrid,
    /// AMD's, with IBS
    Ibs,
}

impl Pmu {
    /// CPU model for QEMU: Skylake-SP, Alder Lake or Zen 4. The module chooses its PMUs by it.
    pub const fn cpu(self) -> &'static str {
        match self {
            Self::Pebs => "vendor=GenuineIntel,family=6,model=85,stepping=4",
            Self::Hybrid => "vendor=GenuineIntel,family=6,model=151,stepping=2",
            Self::Ibs => "vendor=AuthenticAMD,family=25,model=17,stepping=1",
        }
    }

    /// CPUs that the guest needs at least: one of each kind.
    pub const fn cpus(self) -> u32 {
        match self {
            Self::Hybrid => 2,
            Self::Pebs | Self::Ibs => 1,
        }
    }
}

/// Builds the module for a kernel; returns its file.
///
/// # Errors
/// It is another kernel than it is written for, something that building needs is missing, or the compiler refused.
pub fn build(packages: &Packages, kernel: &Kernel) -> Result<PathBuf> {
    check_version(&kernel.release)?;
    for program in ["make", "gcc"] {
        if find_program(program).is_none() {
            bail!("no {program}, which building a module needs");
        }
    }
    let headers = packages.headers(kernel);
    let headers = headers.with_context(|| format!("no headers of Linux {}", kernel.release))?;
    let dir = kernel
        .image
        .parent()
        .context("a kernel without a folder")?
        .join("softpmu");
    copy_source(&shell::workspace().join(SOURCE), &dir)?;
    let mut make = Command::new("make");
    make.arg("--quiet")
        .arg("-C")
        .arg(&headers)
        .arg(format!("M={}", dir.display()))
        // No types for BPF programs: their tool is not needed then.
        .arg("CONFIG_DEBUG_INFO_BTF_MODULES=")
        .arg("modules");
    let made = shell::run(&mut make);
    made.with_context(|| format!("{SOURCE} can't be built for Linux {}", kernel.release))?;
    let file = dir.join(FILE);
    shell::run(Command::new("strip").arg("--strip-debug").arg(&file))?;
    Ok(file)
}

/// The module uses internals of perf, which change between versions.
fn check_version(release: &str) -> Result<()> {
    let rest = release.strip_prefix(VERSION);
    if rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit())) {
        return Ok(());
    }
    bail!("the PMU in software ({SOURCE}) is written for Linux {VERSION} alone, not for {release}")
}

/// Copies the source to the build folder: `make` writes beside it.
fn copy_source(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let path = entry?.path();
        let place = to.join(path.file_name().context("a file without a name")?);
        let text = fs::read(&path)?;
        // A rewritten file would be compiled again.
        if fs::read(&place).ok().as_ref() != Some(&text) {
            fs::write(place, text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only releases of that version will do.
    #[test]
    fn versions() {
        for release in ["6.12.95-1~bpo12+1", "6.12-1"] {
            assert!(check_version(release).is_ok(), "{release}");
        }
        for release in ["6.1.176-1", "6.120.1-1", "7.3.4-1"] {
            let error = check_version(release).unwrap_err().to_string();
            assert!(
                error.contains("written for Linux 6.12 alone") && error.ends_with(release),
                "{error}"
            );
        }
    }
}
