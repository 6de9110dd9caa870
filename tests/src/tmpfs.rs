//! File systems of a test's own.

use std::fs::File;
use std::path::{Path, PathBuf};
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

/// An ext4 file system in a file, unmounted when dropped.
#[derive(Debug)]
pub struct Ext4 {
    dir: TempDir,
    mounted: PathBuf,
}

impl Ext4 {
    /// Mounts one of so many MiB.
    ///
    /// # Errors
    /// The reason to skip.
    pub fn mount(mib: u64) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (image, mounted) = (dir.path().join("image"), dir.path().join("mounted"));
        let made = File::create(&image).and_then(|it| it.set_len(mib << 20));
        made.and_then(|()| std::fs::create_dir(&mounted))
            .map_err(|e| e.to_string())?;
        let made = |command: &mut Command| match process::run(command) {
            it if it.status.success() => Ok(()),
            it => Err(format!("cannot make an ext4: {}", it.stderr.trim())),
        };
        made(Command::new("mkfs.ext4").arg("-qF").arg(&image))?;
        made(
            Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &mounted]),
        )?;
        Ok(Self { dir, mounted })
    }

    /// Its root.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mounted
    }

    /// Makes it read-only from one moment to the next, as an error of the disk does.
    ///
    /// # Errors
    /// The kernel can't.
    pub fn fail(&self) -> Result<(), String> {
        let abort = Command::new("mount")
            .args(["-o", "remount,abort"])
            .arg(&self.mounted)
            .output();
        // The kernel's answer may be that it is read-only already.
        abort.map_err(|e| e.to_string())?;
        let probe = self.mounted.join("probe");
        match File::create(probe) {
            Ok(_) => Err("it can be written all the same".to_owned()),
            Err(_) => Ok(()),
        }
    }

    /// Mounts it again, as after a repair.
    ///
    /// # Errors
    /// It can't be unmounted or mounted.
    pub fn repair(&self) -> Result<(), String> {
        let image = self.dir.path().join("image");
        let run = |command: &mut Command| {
            let done = process::run(command);
            match done.status.success() {
                true => Ok(()),
                false => Err(done.stderr),
            }
        };
        run(Command::new("umount").arg(&self.mounted))?;
        // Status 1: errors were repaired.
        let _ = process::run(Command::new("fsck.ext4").arg("-fy").arg(&image));
        run(Command::new("mount")
            .args(["-o", "loop"])
            .args([&image, &self.mounted]))
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = process::run(Command::new("umount").arg("-l").arg(&self.mounted));
    }
}
