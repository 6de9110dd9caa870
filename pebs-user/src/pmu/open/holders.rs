//! Processes with open perf events.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::units::Pid;

/// A process that has perf events open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The process.
    pub pid: Pid,
    /// Name in `/proc`.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid.0)
    }
}

/// Maximum of listed names, to fit one line.
const SHOWN: usize = 4;

/// Up to a few processes other than `own` with open perf events, as far as permissions allow; sorted by pid.
///
/// Only for an error's hint: it reads the links of all open files on the machine.
pub(super) fn holders(root: &Path, own: u32) -> Vec<Holder> {
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten();
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid != own)
        .collect();
    pids.sort_unstable();
    let holding = pids.into_iter().filter_map(|pid| {
        let dir = root.join("proc").join(pid.to_string());
        let files = fs::read_dir(dir.join("fd")).ok()?.flatten();
        let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
        links.find(|link| link.as_os_str() == "anon_inode:[perf_event]")?;
        let name = fs::read_to_string(dir.join("comm")).unwrap_or_default();
        Some(Holder {
            pid: Pid(pid),
            name: name.trim().to_owned(),
        })
    });
    holding.take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes with an open event are found by their open files; others are not.
    #[test]
    fn holders_are_found() {
        let root = tempfile::tempdir().unwrap();
        for (pid, link) in [
            (7, "anon_inode:[perf_event]"),
            (9, "/dev/null"),
            (11, "anon_inode:[perf_event]"),
        ] {
            let dir = root.path().join(format!("proc/{pid}/fd"));
            fs::create_dir_all(&dir).unwrap();
            std::os::unix::fs::symlink(link, dir.join("3")).unwrap();
            fs::write(root.path().join(format!("proc/{pid}/comm")), "perf\n").unwrap();
        }
        let found = holders(root.path(), 11);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "perf (pid 7)");
    }
}
