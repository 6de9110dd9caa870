//! DPDK's classifier library for the firewall test.
//!
//! The package with the headers depends on 224 others; its files are unpacked into the project's
//! own folder instead.

use anyhow::{Context, Result};

use super::{Means, library_dirs};
use crate::shell;

/// The shared library, any version.
pub fn find_library() -> Option<String> {
    for dir in library_dirs() {
        let Ok(entries) = std::fs::read_dir(dir) else {
            continue;
        };
        let found = entries.flatten().find(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with("librte_acl.so.")
        });
        if let Some(found) = found {
            return Some(found.path().display().to_string());
        }
    }
    None
}

/// Installs the release's own version of the library.
pub fn install_library(means: &Means) -> Result<()> {
    let package = means
        .apt
        .names("librte-acl")
        .into_iter()
        .filter(|name| means.apt.has(name))
        .max()
        .context("apt has no librte-acl")?;
    means.apt.install(&[&package])
}

/// The headers: the system's, or those unpacked below `target/tools/dpdk`.
pub fn find_headers() -> Option<String> {
    let own = shell::tools_dir().join("dpdk/usr/include/dpdk");
    [own, "/usr/include/dpdk".into()]
        .into_iter()
        .find(|dir| dir.join("rte_acl.h").exists())
        .map(|dir| dir.display().to_string())
}

/// Unpacks the headers.
pub fn install_headers(means: &Means) -> Result<()> {
    means
        .apt
        .unpack("libdpdk-dev", &shell::tools_dir().join("dpdk"))
}
