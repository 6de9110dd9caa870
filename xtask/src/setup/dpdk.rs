//! DPDK's classifier library for the firewall test.
//!
//! The package with the headers depends on 224 others; its files are unpacked into the project's
//! own folder instead.

use anyhow::{Context, Result};

use super::Means;
use crate::shell;

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

/// Unpacks the headers.
pub fn install_headers(means: &Means) -> Result<()> {
    means
        .apt
        .unpack("libdpdk-dev", &shell::tools_dir().join("dpdk"))
}
