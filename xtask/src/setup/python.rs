//! A Python environment of the project's own, with the readers that users have.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use pebs_experiments::frame::installed::{
    PYTHON_PACKAGES, SPARK_PACKAGES, python_environment, spark, spark_environment,
};

use super::Means;
use crate::shell;
use crate::toolchain::find_program;

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

/// Packages of moto, with what its S3 server imports and no more: all that it can simulate takes 317 MB, this 140.
const MOTO: [&str; 4] = ["moto", "flask", "flask-cors", "py-partiql-parser"];

/// The S3 server has an environment of its own: no other test needs what it brings.
pub fn find_s3_server() -> Option<String> {
    let server = shell::tools_dir().join("moto/bin/moto_server");
    server.exists().then(|| server.display().to_string())
}

/// Installs it.
pub fn install_s3_server(_: &Means) -> Result<()> {
    make(&shell::tools_dir().join("moto"), &MOTO)
}

/// Installs what `fleet` needs, which is too large for all: PySpark has 900 MB, and needs Java.
pub fn ensure_spark() -> Result<()> {
    if find_program("java").is_none() {
        super::install_debian(&["default-jre-headless"])?;
    }
    match spark() {
        Some(_) => Ok(()),
        None => make(&spark_environment(), &SPARK_PACKAGES),
    }
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
