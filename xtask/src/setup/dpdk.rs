//! DPDK's libraries for the firewall tests.
//!
//! The package with the headers depends on 224 others; its files are unpacked into the project's
//! own folder instead.

use anyhow::{Context, Result};

use super::Means;
use crate::shell;

/// Installs the release's own version of the classifier.
pub fn install_library(means: &Means) -> Result<()> {
    install(means, &["librte-acl"])
}

/// Installs software ports and what pools of packets need; rings and ports come with them.
pub fn install_ports(means: &Means) -> Result<()> {
    install(means, &["librte-net-af-packet", "librte-mempool-ring"])
}

/// Installs the release's own version of some libraries.
fn install(means: &Means, names: &[&str]) -> Result<()> {
    let of_release = |prefix: &&str| {
        let names = means.apt.names(prefix).into_iter();
        let found = names.filter(|name| means.apt.has(name)).max();
        found.with_context(|| format!("apt has no {prefix}"))
    };
    let packages = names.iter().map(of_release).collect::<Result<Vec<_>>>()?;
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    means.apt.install(&packages)
}

/// Unpacks the headers.
pub fn install_headers(means: &Means) -> Result<()> {
    means
        .apt
        .unpack("libdpdk-dev", &shell::tools_dir().join("dpdk"))
}
