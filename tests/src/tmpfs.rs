//! A file system of a test's own.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::process;

/// A file system in memory, unmounted when dropped.
#[derive(Debug)]
pub struct Tmpfs(TempDir);

impl Tmpfs {
    /// Mounts one of this size (`4m`).
    ///
    /// # Errors
    /// The reason to skip.
    pub fn mount(size: &str) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mounted = process::run(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={size}"), "pebs-tests"])
                .arg(dir.path()),
        );
        if mounted.status.success() {
            Ok(Self(dir))
        } else {
            Err(format!("cannot mount a tmpfs: {}", mounted.stderr.trim()))
        }
    }

    /// Its root.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = process::run(Command::new("umount").arg(self.0.path()));
    }
}
