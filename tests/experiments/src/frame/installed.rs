//! Programs that some experiments need, and `cargo xtask setup` finds or installs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::shell;

/// Imports of [`readers`].
pub const PYTHON_PACKAGES: [&str; 3] = ["duckdb", "pandas", "pyarrow"];

/// An installed program.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    pebs_tests::machine::program(name).ok()
}

/// Folder of the project's own Python.
#[must_use]
pub fn python_environment() -> PathBuf {
    shell::tools_dir().join("venv")
}

/// The Python with the readers of traces that users have, if all of them import.
#[must_use]
pub fn readers() -> Option<String> {
    let python = python_of(&python_environment(), &PYTHON_PACKAGES)?;
    Some(python.display().to_string())
}

/// The Python of an environment, if all these packages import.
fn python_of(environment: &Path, packages: &[&str]) -> Option<PathBuf> {
    let python = environment.join("bin/python");
    let import = format!("import {}", packages.join(", "));
    let found = python.exists()
        && shell::output(Command::new(&python).args(["-W", "ignore", "-c", &import])).is_ok();
    found.then_some(python)
}

/// Folders with shared libraries on Debian and similar systems.
pub fn library_dirs() -> impl Iterator<Item = &'static str> {
    [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
    ]
    .into_iter()
}

/// DPDK's library of classifiers, any version.
#[must_use]
pub fn dpdk_library() -> Option<String> {
    shared_library("librte_acl.so.")
}

/// DPDK's software ports, any version.
#[must_use]
pub fn dpdk_ports() -> Option<String> {
    shared_library("librte_net_af_packet.so.")
}

/// A library whose file's name begins so.
fn shared_library(start: &str) -> Option<String> {
    for dir in library_dirs() {
        let Ok(entries) = std::fs::read_dir(dir) else {
            continue;
        };
        let found = entries.flatten().find(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with(start)
        });
        if let Some(found) = found {
            return Some(found.path().display().to_string());
        }
    }
    None
}

/// DPDK's headers: the system's, or those unpacked below `target/tools/dpdk`.
#[must_use]
pub fn dpdk_headers() -> Option<String> {
    let own = shell::tools_dir().join("dpdk/usr/include/dpdk");
    [own, "/usr/include/dpdk".into()]
        .into_iter()
        .find(|dir| dir.join("rte_acl.h").exists())
        .map(|dir| dir.display().to_string())
}

/// What the Python with Spark has.
pub const SPARK_PACKAGES: [&str; 4] = ["pyspark", "duckdb", "pandas", "pyarrow"];

/// Folder of the Python with Spark, which has an environment of its own: it takes 900 MB.
#[must_use]
pub fn spark_environment() -> PathBuf {
    shell::tools_dir().join("spark")
}

/// The Python with Spark, if it and Java are there.
#[must_use]
pub fn spark() -> Option<PathBuf> {
    program("java")?;
    python_of(&spark_environment(), &SPARK_PACKAGES)
}
