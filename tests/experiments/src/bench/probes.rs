//! Uprobe events that `perf record` can name, removed when dropped.

use std::path::Path;

use anyhow::{Context, Result};

use crate::frame::installed;
use crate::frame::shell;

/// Folder in which perf looks for uprobe events.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Events made by `perf probe`; dropped, they go.
pub struct Probes {
    /// All events of the group.
    events: String,
    /// Whether we mounted tracefs.
    mounted: bool,
}

impl Probes {
    /// Creates events of a program, in the syntax of `perf probe`.
    pub fn make(program: &Path, probes: &[&str]) -> Result<Self> {
        installed::program("perf").context("not installed")?;
        let name = program.file_name().context("a program has a name")?;
        let mut made = Self {
            events: format!("probe_{}:*", name.to_string_lossy()),
            mounted: false,
        };
        if !Path::new(TRACEFS).join("uprobe_events").exists() {
            let mount = ["-t", "tracefs", "tracefs", TRACEFS];
            shell::run(shell::as_root("mount").args(mount)).context("no tracefs")?;
            made.mounted = true;
        }
        let _ = made.delete();
        for probe in probes {
            shell::output(
                shell::as_root("perf")
                    .args(["probe", "-q", "-x"])
                    .arg(program)
                    .args(["-a", probe]),
            )?;
        }
        Ok(made)
    }

    fn delete(&self) -> Result<String> {
        shell::output(shell::as_root("perf").args(["probe", "-q", "-d", &self.events]))
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        if let Err(error) = self.delete() {
            eprintln!("bench: perf's probes are still there: {error:#}");
        }
        if self.mounted
            && let Err(error) = shell::run(shell::as_root("umount").arg(TRACEFS))
        {
            eprintln!("bench: {TRACEFS} is still mounted: {error:#}");
        }
    }
}
