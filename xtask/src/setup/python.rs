//! A Python environment of the project's own, with the readers that users have.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use pebs_experiments::frame::installed::{PYTHON_PACKAGES, python_environment};

use super::Means;
use crate::shell;

/// Debian's own Python: one from elsewhere may vanish with its version manager.
const PYTHON: &str = "/usr/bin/python3";

/// Debian ships Python without the module for environments.
pub fn find_venv_module() -> Option<String> {
    let found = shell::output(Command::new(PYTHON).args(["-c", "import ensurepip, venv"]));
    found.is_ok().then(|| format!("{PYTHON} -m venv"))
}

/// Makes the environment.
pub fn install_readers(_: &Means) -> Result<()> {
    make(&python_environment(), &PYTHON_PACKAGES)
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
