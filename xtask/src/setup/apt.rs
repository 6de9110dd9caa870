//! Debian packages.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell;
use crate::toolchain::find_program;

/// Packages that start a server on installation.
const SERVICES: [&str; 2] = ["redis-server", "haproxy"];

/// The package manager. Refreshes its lists once, before the first question to it.
#[derive(Default)]
pub struct Apt {
    updated: Cell<bool>,
}

impl Apt {
    /// Installs packages without their recommended ones.
    ///
    /// A service that Debian starts on installation is stopped again: a set-up must not leave a
    /// server listening.
    pub fn install(&self, packages: &[&str]) -> Result<()> {
        if find_program("apt-get").is_none() {
            bail!(
                "no apt-get here: install {} in your system's way",
                packages.join(", ")
            );
        }
        self.update();
        let is_new = |it: &&str| packages.contains(it) && find_program(it).is_none();
        let services: Vec<&str> = SERVICES.into_iter().filter(is_new).collect();
        let mut command = shell::as_root("env");
        command
            .args([
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "install",
                "--yes",
            ])
            .args(["--quiet", "--no-install-recommends"])
            .args(packages);
        shell::run(&mut command)?;
        services.into_iter().for_each(stop_service);
        Ok(())
    }

    /// Whether there is a version of the package to install.
    pub fn has(&self, package: &str) -> bool {
        if find_program("apt-cache").is_none() {
            return false;
        }
        self.update();
        let policy = shell::output(Command::new("apt-cache").args(["policy", package]));
        policy.is_ok_and(|text| text.contains("Candidate:") && !text.contains("Candidate: (none)"))
    }

    /// Names of the packages that begin with `prefix`.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        self.update();
        let names = shell::output(Command::new("apt-cache").args(["pkgnames", prefix]));
        names
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Unpacks a package's files below `dir` without installing it or its dependencies.
    pub fn unpack(&self, package: &str, dir: &Path) -> Result<()> {
        self.update();
        let download = dir.join("download");
        std::fs::create_dir_all(&download)?;
        let mut command = Command::new("apt-get");
        shell::run(
            command
                .args(["download", "--quiet", package])
                .current_dir(&download),
        )?;
        for entry in std::fs::read_dir(&download)? {
            shell::run(Command::new("dpkg").arg("-x").arg(entry?.path()).arg(dir))?;
        }
        std::fs::remove_dir_all(download)?;
        Ok(())
    }

    /// Lists that cannot be refreshed may still be good: missing packages show later.
    fn update(&self) {
        if self.updated.replace(true) {
            return;
        }
        let mut command = shell::as_root("apt-get");
        if let Err(error) = shell::run(command.args(["update", "--quiet"])) {
            eprintln!("setup: package lists not refreshed: {error:#}");
        }
    }
}

/// Stops a service now, and for the next start of the machine where systemd decides that.
fn stop_service(name: &str) {
    let stop = if Path::new("/run/systemd/system").is_dir() {
        ["systemctl", "disable", "--now", name]
    } else {
        ["invoke-rc.d", "--quiet", name, "stop"]
    };
    let mut command = shell::as_root(stop[0]);
    if let Err(error) = shell::run(command.args(&stop[1..])) {
        eprintln!("setup: service {name} not stopped: {error:#}");
    }
}
