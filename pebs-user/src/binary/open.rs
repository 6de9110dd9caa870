//! Opens the file behind a mapping.
//!
//! The path of a mapping is controlled by the target, in the target's own root: it may be deleted, replaced, a
//! symbolic link out of a container, or a pipe that would block us. The kernel's own link to the mapped file is
//! tried first; a path counts only if it leads to the mapped file.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::mapping::{FileIdentity, MappedFile, Mapping};
use crate::units::Pid;

/// A file opened for a mapping.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The file, read only.
    pub file: File,
    pub metadata: Metadata,
    /// Whether it is certainly the mapped file; otherwise its build id has to be compared.
    pub certain: bool,
}

/// Files that are or may be the mapped one, the most certain first; opened lazily.
///
/// In this order: `/proc/PID/map_files` (needs `CAP_SYS_ADMIN` or `CAP_CHECKPOINT_RESTORE`), the path in the
/// process's root, the path in ours, `/proc/PID/exe`. Files that can't be the mapped one are skipped.
pub(crate) fn candidates<'a>(
    pid: Pid,
    mapping: &'a Mapping,
    mapped: &'a MappedFile,
) -> impl Iterator<Item = Opened> + 'a {
    let by_range = move || {
        let (start, end) = (mapping.start, mapping.end);
        let link = format!("/proc/{}/map_files/{start:x}-{end:x}", pid.0);
        let opened = open_link(&link)?;
        // The range may have been remapped since: if the kernel reported a build id, that decides.
        match fits(&opened.1, mapped) {
            Fit::No => None,
            Fit::Yes => Some(opened_as(opened, true)),
            Fit::Unknown => Some(opened_as(opened, mapped.build_id.is_none())),
        }
    };
    let by_path = move |root: &str| checked(open_in_root(root, &mapped.path), mapped);
    let in_process = move || by_path(&format!("/proc/{}/root", pid.0));
    let in_ours = move || by_path("/");
    let by_exe = move || checked(open_link(&format!("/proc/{}/exe", pid.0)), mapped);
    std::iter::once_with(by_range)
        .chain(std::iter::once_with(in_process))
        .chain(std::iter::once_with(in_ours))
        .chain(std::iter::once_with(by_exe))
        .flatten()
}

fn checked(opened: Option<(File, Metadata)>, mapped: &MappedFile) -> Option<Opened> {
    let opened = opened?;
    match fits(&opened.1, mapped) {
        Fit::Yes => Some(opened_as(opened, true)),
        Fit::Unknown => Some(opened_as(opened, false)),
        Fit::No => None,
    }
}

/// Opens a regular file by one of the kernel's links.
fn open_link(link: &str) -> Option<(File, Metadata)> {
    open_regular(CWD, Path::new(link), OFlags::empty(), ResolveFlags::empty())
}

/// Opens a regular file below a root directory, resolving symbolic links as the process does.
#[must_use]
pub(crate) fn open_in_root(root: &str, path: &Path) -> Option<(File, Metadata)> {
    open_below(&open_root(root)?, path, OFlags::empty())
}

/// Like [`open_in_root`], for an open root and a path whose last component is not a symbolic link.
#[must_use]
pub(crate) fn open_not_link(root: &OwnedFd, path: &Path) -> Option<(File, Metadata)> {
    open_below(root, path, OFlags::NOFOLLOW)
}

/// Opens a directory to resolve paths in; a process's root stays usable after the process.
#[must_use]
pub(crate) fn open_root(root: &str) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(root, flags, Mode::empty()).ok()
}

fn open_below(root: &OwnedFd, path: &Path, flags: OFlags) -> Option<(File, Metadata)> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    open_regular(root.as_fd(), path, flags, resolve)
}

/// Opens the file without side effects first, and for reading only if it is a regular file: a pipe would block, a
/// device might act.
fn open_regular(
    dir: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Option<(File, Metadata)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
    let handle: OwnedFd = if resolve.is_empty() {
        rustix::fs::openat(dir, path, flags, Mode::empty()).ok()?
    } else {
        rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve).ok()?
    };
    let handle = File::from(handle);
    let metadata = handle.metadata().ok()?;
    if !metadata.is_file() {
        return None;
    }
    let file = File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())).ok()?;
    Some((file, metadata))
}

/// Opens a file that may be the mapped one by its path.
pub(crate) fn at_path(path: &Path, certain: bool) -> Option<Opened> {
    let opened = open_regular(CWD, path, OFlags::empty(), ResolveFlags::empty())?;
    Some(opened_as(opened, certain))
}

/// Opens a file by its path here, if it is certainly the mapped one: it has the mapped one's inode, and was not changed after
/// a time. For mappings since the machine was booted.
pub(crate) fn unchanged(mapped: &MappedFile, since: SystemTime) -> Option<Opened> {
    let opened = open_in_root("/", &mapped.path)?;
    let seconds = u64::try_from(opened.1.ctime()).ok()?;
    let parts = u32::try_from(opened.1.ctime_nsec()).ok()?;
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, parts);
    let is_it = fits(&opened.1, mapped) == Fit::Yes && changed < since;
    is_it.then(|| opened_as(opened, true))
}

fn opened_as((file, metadata): (File, Metadata), certain: bool) -> Opened {
    Opened {
        file,
        metadata,
        certain,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Yes,
    /// The kernel gave no inode but perhaps a build id, or the device differs.
    Unknown,
    No,
}

fn fits(metadata: &Metadata, mapped: &MappedFile) -> Fit {
    let Some(identity) = mapped.identity else {
        return Fit::Unknown;
    };
    let device = metadata.dev();
    let opened = FileIdentity {
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
        inode: metadata.ino(),
    };
    // btrfs and overlayfs have devices without a major number, and report different ones in different places.
    let without_device = opened.major == 0 && identity.major == 0;
    if opened == identity || (without_device && opened.inode == identity.inode) {
        Fit::Yes
    } else if mapped.build_id.is_some() || opened.inode == identity.inode {
        Fit::Unknown
    } else {
        Fit::No
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::mapping::Backing;
    use super::super::proc_maps::proc_maps;
    use super::*;

    /// The test's own executable opens as itself.
    #[test]
    fn own_executable() {
        let me = Pid(std::process::id());
        let exe = std::fs::metadata("/proc/self/exe").unwrap();
        let opened = proc_maps(me)
            .unwrap()
            .iter()
            .filter_map(|mapping| match &mapping.backing {
                Backing::File(file) => candidates(me, mapping, file).next(),
                _ => None,
            })
            .any(|opened| opened.certain && opened.metadata.ino() == exe.ino());
        assert!(opened);
    }

    /// Links lead where they lead inside the root, and a pipe neither opens nor blocks.
    #[test]
    fn root_is_a_jail() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("etc");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("hostname"), "inside").unwrap();
        symlink("/etc/hostname", root.path().join("link")).unwrap();
        let pipe = rustix::fs::mknodat(
            CWD,
            root.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        );
        pipe.unwrap();
        let root_path = root.path().to_str().unwrap();
        let (_, metadata) = open_in_root(root_path, Path::new("/link")).unwrap();
        assert_eq!(metadata.len(), "inside".len() as u64);
        assert!(open_in_root(root_path, Path::new("/pipe")).is_none());
        assert!(open_in_root(root_path, Path::new("/etc")).is_none());
    }
}
