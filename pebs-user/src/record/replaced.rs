//! Detects probed files that changed during the recording: processes started since run code without probes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::binary::process::FileId;
use crate::failure::{Failure, Result};
use crate::probe::set::ProbeSet;

/// Probed files as they were when their probes were chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbedFiles(Vec<(PathBuf, Version)>);

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
    /// The current versions of the probed files.
    pub(super) fn of(probes: &ProbeSet) -> Self {
        let sites = probes.probes.iter().flat_map(|probe| &probe.sites);
        let mut paths: Vec<&PathBuf> = sites.map(|site| &site.path).collect();
        paths.sort_unstable();
        paths.dedup();
        let known = paths.into_iter();
        Self(
            known
                .filter_map(|path| Some((path.clone(), Version::of(path)?)))
                .collect(),
        )
    }

    /// Refuses a recording whose probes were placed by path after another file took that path.
    ///
    /// # Errors
    /// A file changed since its probes were chosen.
    pub(super) fn check(&self) -> Result<()> {
        let changed = |(path, before): &&(PathBuf, Version)| {
            Version::of(path).is_some_and(|now| now != *before)
        };
        match self.0.iter().find(changed) {
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
        let changed = self.0.iter().filter_map(|(path, before)| {
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
    use std::fs;

    /// A replaced file is distinguished from one that was written to, and both from no change.
    #[test]
    fn changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app");
        fs::write(&path, "one").unwrap();
        let files = ProbedFiles(vec![(path.clone(), Version::of(&path).unwrap())]);
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
}
