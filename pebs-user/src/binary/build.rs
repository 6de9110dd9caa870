//! Finds a file by its build id among those that processes have mapped, or that a program will load.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use super::elf::with_libraries;
use super::elf_image::read_head;
use super::locate::{LocateError, mapped_files};
use super::process::{self, FileId};
use crate::units::Pid;

/// Digits of a build id that are shown.
pub(crate) const SHOWN_DIGITS: usize = 16;

/// The file whose build id begins with these digits: among those that a process has mapped; else those that a program
/// needs; else those of all processes.
///
/// # Errors
/// [`LocateError::Build`] if there is none, or files of several builds.
pub(crate) fn find(
    id: &str,
    pid: Option<Pid>,
    program: Option<&Path>,
) -> Result<PathBuf, LocateError> {
    let files = searched(pid, program).unwrap_or_else(all_mapped);
    let whose = match (pid, program) {
        (Some(pid), _) => format!("process {} has mapped", pid.0),
        (None, Some(program)) => format!("{} loads", program.display()),
        (None, None) => "running processes have mapped".to_owned(),
    };
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    let count = files.len();
    for path in files {
        if let Some(full) = build_id(&path).filter(|it| it.starts_with(id)) {
            found.entry(full).or_insert(path);
        }
    }
    let why = match found.len() {
        1 => None,
        0 => Some(format!("none of the {count} files that {whose} has it")),
        _ => {
            let builds: Vec<&str> = found.keys().map(String::as_str).collect();
            Some(format!("files that {whose} have {}", builds.join(" and ")))
        }
    };
    let path = found.into_values().next().filter(|_| why.is_none());
    path.ok_or_else(|| LocateError::Build {
        id: id.to_owned(),
        why: why.unwrap_or_default(),
        is_process: pid.is_some(),
    })
}

/// The files that a process has mapped, or that a program needs; `None` without either.
#[must_use]
pub(crate) fn searched(pid: Option<Pid>, program: Option<&Path>) -> Option<Vec<PathBuf>> {
    match (pid, program) {
        (Some(pid), _) => Some(mapped_files(pid)),
        (None, Some(program)) => {
            let files = with_libraries(vec![program.to_owned()]).map(|it| it.path);
            Some(files.collect())
        }
        (None, None) => None,
    }
}

/// The build id of a file, in hexadecimal.
#[must_use]
pub(crate) fn build_id(path: &Path) -> Option<String> {
    let head = read_head(&File::open(path).ok()?)?;
    head.build_id.map(|it| it.to_string())
}

/// The files that all processes have mapped as code, each once.
fn all_mapped() -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    let files = process::all().into_iter().flat_map(mapped_files);
    files
        .filter(|path| FileId::of(path).is_some_and(|file| seen.insert(file)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// A process's own program is found by the first digits of its build id, with and without the process.
    #[test]
    fn by_digits() {
        let me = Pid(std::process::id());
        let libc = super::super::locate::locate("libc", Some(me)).expect("mapped");
        let id = build_id(&libc).expect("libc has a build id");
        for pid in [Some(me), None] {
            assert_eq!(find(&id[..12], pid, None).expect("found"), libc);
            assert_eq!(find(&id, pid, None).expect("found"), libc);
        }
        let exe = env::current_exe().expect("exe");
        assert_eq!(find(&id, None, Some(&exe)).expect("needed"), libc);
        let unknown = find("0123456789abcdef", Some(me), None).expect_err("unknown");
        let message = unknown.to_string();
        assert!(
            message.starts_with("cannot find build 0123456789abcdef: none of the "),
            "{message}"
        );
        assert!(!message.contains('\n'));
    }
}
