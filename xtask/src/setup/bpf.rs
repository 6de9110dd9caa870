//! The compiler and the linker of the eBPF programs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Means, Toolchain};
use crate::shell;
use crate::toolchain::{self, find_program};

/// Debian's rustc that can target eBPF, with its ready-built core.
const DEBIAN_PACKAGES: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];

/// Version of bpf-linker that goes with the workspace's aya.
const LINKER_VERSION: &str = "bpf-linker@^0.13";

/// Major versions of LLVM that this bpf-linker can be built with.
const LLVM_VERSIONS: std::ops::RangeInclusive<u32> = 21..=23;

/// Installs a rustc in the way that fits.
pub fn install_compiler(means: &Means) -> Result<()> {
    let debian = match means.toolchain {
        Toolchain::Auto => DEBIAN_PACKAGES.iter().all(|package| means.apt.has(package)),
        Toolchain::Debian => true,
        Toolchain::Nightly => false,
    };
    if debian {
        means.apt.install(&DEBIAN_PACKAGES)?;
        if means.toolchain == Toolchain::Debian || toolchain::find_compiler(None).is_some() {
            return Ok(());
        }
        eprintln!("setup: Debian's rustc-web is too old, taking rustup's nightly");
    }
    let rustup =
        find_program("rustup").context("neither Debian's rustc-web nor rustup is there")?;
    let install = [
        "toolchain",
        "install",
        "nightly",
        "--profile",
        "minimal",
        "--component",
        "rust-src",
    ];
    shell::run(Command::new(rustup).args(install))
}

/// Builds bpf-linker against an LLVM that understands the compiler's output.
pub fn install_linker(means: &Means) -> Result<()> {
    let compiler = toolchain::find_compiler(None).context("no rustc for eBPF")?;
    let llvm = llvm_version(&compiler.rustc)?;
    let wanted = llvm.max(*LLVM_VERSIONS.start())..=*LLVM_VERSIONS.end();
    let llvm = wanted
        .clone()
        .find(|version| has_llvm(*version))
        .or_else(|| {
            wanted
                .clone()
                .find(|version| means.apt.has(&format!("llvm-{version}-dev")))
        })
        .with_context(|| {
            format!("bpf-linker needs LLVM {llvm} or newer (llvm-{llvm}-dev), and apt has none")
        })?;
    if !has_llvm(llvm) {
        means.apt.install(&[&format!("llvm-{llvm}-dev")])?;
    }
    let mut command = shell::cargo(&["install", LINKER_VERSION, "--locked"]);
    command
        .args([
            "--no-default-features",
            "--features",
            &format!("llvm-{llvm}"),
        ])
        .env("LLVM_PREFIX", llvm_prefix(llvm))
        .env_remove("CARGO_TARGET_DIR");
    shell::run(&mut command)
}

/// Adds the components that rustup's minimal profile leaves out.
pub fn install_components(_: &Means) -> Result<()> {
    let rustup = find_program("rustup").context("no rustup to install rustfmt and clippy with")?;
    shell::run(Command::new(rustup).args(["component", "add", "rustfmt", "clippy"]))
}

/// Major version of the compiler's LLVM: older readers refuse newer bitcode.
fn llvm_version(rustc: &Path) -> Result<u32> {
    let version = shell::output(Command::new(rustc).arg("-vV"))?;
    match parse_llvm_version(&version) {
        Some(major) => Ok(major),
        None => bail!("{} does not say its LLVM version", rustc.display()),
    }
}

fn parse_llvm_version(version: &str) -> Option<u32> {
    let line = version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?;
    line.split('.').next()?.parse().ok()
}

fn has_llvm(version: u32) -> bool {
    Path::new(&llvm_prefix(version))
        .join("include/llvm-c/Core.h")
        .exists()
}

/// Debian's folder of an LLVM.
fn llvm_prefix(version: u32) -> String {
    format!("/usr/lib/llvm-{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the major version counts, whatever follows it.
    #[test]
    fn llvm_version_of_rustc() {
        let text = "rustc 1.96.0\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(parse_llvm_version(text), Some(22));
        assert_eq!(parse_llvm_version("rustc 1.96.0\n"), None);
    }
}
