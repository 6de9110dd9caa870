//! A Python environment of the project's own, with the readers that users have.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::Means;
use crate::shell;

/// Imports of the reader tests.
const PACKAGES: [&str; 3] = ["duckdb", "pandas", "pyarrow"];

/// Debian's own Python: one from elsewhere may vanish with its version manager.
const PYTHON: &str = "/usr/bin/python3";

/// Debian ships Python without the module for environments.
pub fn find_venv_module() -> Option<String> {
    let found = shell::output(Command::new(PYTHON).args(["-c", "import ensurepip, venv"]));
    found.is_ok().then(|| format!("{PYTHON} -m venv"))
}

/// The environment, if all packages import.
pub fn find_readers() -> Option<String> {
    let python = environment().join("bin/python");
    let import = format!("import {}", PACKAGES.join(", "));
    let found = Path::new(&python).exists()
        && shell::output(Command::new(&python).args(["-c", &import])).is_ok();
    found.then(|| python.display().to_string())
}

/// Makes the environment.
pub fn install_readers(_: &Means) -> Result<()> {
    make(&environment(), &PACKAGES)
}

/// Makes an environment with these packages.
pub fn make(environment: &Path, packages: &[&str]) -> Result<()> {
    shell::run(Command::new(PYTHON).args(["-m", "venv"]).arg(environment))?;
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    shell::run(pip.args(packages))
}

fn environment() -> PathBuf {
    shell::tools_dir().join("venv")
}
