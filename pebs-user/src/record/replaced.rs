//! Detects probed files that changed during the recording: processes started since run code without probes.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::binary::process::{self, FileId};
use crate::failure::{Failure, Result};
use crate::probe::set::ProbeSet;
use crate::units::Pid;

/// Probed files as they were when their probes were chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbedFiles {
    versions: Vec<(PathBuf, Version)>,
    /// Process in which binaries were looked for by name, and its files that had been replaced by then.
    process: Option<(Pid, BTreeSet<PathBuf>)>,
}

/// Paths at which files were that the process still runs, and that were deleted or replaced.
pub(super) fn deleted(pid: Pid) -> BTreeSet<PathBuf> {
    let mapped = process::mappings(pid).unwrap_or_default();
    let paths = mapped
        .iter()
        .filter_map(|it| it.path.strip_suffix(" (deleted)"));
    paths.map(PathBuf::from).collect()
}

/// Properties that change with a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    file: FileId,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl Version {
    fn of(path: &Path) -> Option<Self> {
        let meta = path.metadata().ok()?;
        Some(Self {
            file: FileId::of(path)?,
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

impl ProbedFiles {
    /// The current versions of the probed files, and what a process ran before they were looked for.
    pub(super) fn of(probes: &ProbeSet, process: Option<(Pid, BTreeSet<PathBuf>)>) -> Self {
        let sites = probes.probes.iter().flat_map(|probe| &probe.sites);
        let mut paths: Vec<&PathBuf> = sites.map(|site| &site.path).collect();
        paths.sort_unstable();
        paths.dedup();
        let versions = paths.into_iter();
        let versions = versions.filter_map(|path| Some((path.clone(), Version::of(path)?)));
        Self {
            versions: versions.collect(),
            process,
        }
    }

    /// Refuses a recording whose probes were placed by path after another file took that path.
    ///
    /// # Errors
    /// A file changed since its probes were chosen, or after the process was asked which file it runs.
    pub(super) fn check(&self) -> Result<()> {
        let process = self.process.as_ref();
        let replaced = process.map(|(pid, before)| &deleted(*pid) - before);
        let replaced = replaced.unwrap_or_default();
        let changed = |(path, before): &&(PathBuf, Version)| {
            replaced.contains(path) || Version::of(path).is_some_and(|now| now != *before)
        };
        match self.versions.iter().find(changed) {
            None => Ok(()),
            Some((path, _)) => Err(Failure::new(
                format!(
                    "{} was replaced while the recording started",
                    path.display()
                ),
                "record again, to trace the new file",
            )),
        }
    }

    /// A remark for each changed file. A file that is gone can't be started, so it has none.
    pub(super) fn remarks(&self) -> Vec<String> {
        let changed = self.versions.iter().filter_map(|(path, before)| {
            let now = Version::of(path).filter(|now| now != before)?;
            let path = path.display();
            Some(if now.file == before.file {
                format!(
                    "{path} was written to while it was recorded: probes are at the addresses of the old code"
                )
            } else {
                format!(
                    "{path} was replaced while it was recorded: processes started since run the new file, which has no probes"
                )
            })
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::testing::copy_program;
    use std::fs;

    /// A replaced file is distinguished from one that was written to, and both from no change.
    #[test]
    fn changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app");
        fs::write(&path, "one").unwrap();
        let files = ProbedFiles {
            versions: vec![(path.clone(), Version::of(&path).unwrap())],
            process: None,
        };
        assert!(files.remarks().is_empty() && files.check().is_ok());
        fs::write(&path, "longer").unwrap();
        assert!(files.check().is_err());
        assert!(files.remarks()[0].contains("app was written to"));
        let new = dir.path().join("new");
        fs::write(&new, "one").unwrap();
        fs::rename(&new, &path).unwrap();
        assert!(files.remarks()[0].contains("app was replaced"));
        fs::remove_file(&path).unwrap();
        assert!(files.remarks().is_empty());
    }

    /// Waits until a process that was just started has mapped its program: `exec` returns to the parent before that.
    fn wait_until_mapped(pid: Pid, program: &Path) {
        let is_mapped = || {
            let mapped = process::mappings(pid).unwrap_or_default();
            mapped.iter().any(|it| Path::new(&it.path) == program)
        };
        while !is_mapped() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// A file that was replaced after the process was asked for it is not the one that it runs, even if probes were chosen in
    /// the new one.
    #[test]
    fn replaced_before_it_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("app"), dir.path().join("new"));
        for copy in [&path, &new] {
            copy_program(Path::new("/bin/sleep"), copy);
        }
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        let pid = Pid(child.id());
        wait_until_mapped(pid, &path);
        let asked = (pid, deleted(pid));
        let files = |process| ProbedFiles {
            versions: vec![(path.clone(), Version::of(&path).unwrap())],
            process: Some(process),
        };
        assert!(files(asked.clone()).check().is_ok());
        fs::rename(&new, &path).unwrap();
        let before = files(asked);
        let known = files((pid, deleted(pid)));
        let results = (before.check(), known.check());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(results.0.is_err() && results.1.is_ok());
    }
}
