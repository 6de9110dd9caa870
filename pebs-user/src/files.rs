//! Files that others may have put there: only regular files are opened, and only a limited part of them is
//! read.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file for reading if it is a regular one, symbolic links followed.
///
/// Opened without side effects first: a pipe would block, a device might act.
///
/// # Errors
/// Those of the system, and `InvalidInput` if it is no regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let handle = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    if !handle.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As for [`open_regular`], and `FileTooLarge`: a sparse file costs its author nothing and can be of any size.
pub(crate) fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let too_large = || {
        let most = match most >> 20 {
            0 => format!("{} KiB", most >> 10),
            mib => format!("{mib} MiB"),
        };
        let what = format!("larger than {most}");
        io::Error::new(io::ErrorKind::FileTooLarge, what)
    };
    let length = file.metadata()?.len();
    if length > most {
        return Err(too_large());
    }
    let mut data = Vec::new();
    data.try_reserve_exact(usize::try_from(length).map_err(|_| too_large())?)?;
    // It may grow while it is read.
    file.take(most.saturating_add(1)).read_to_end(&mut data)?;
    if data.len() as u64 > most {
        return Err(too_large());
    }
    Ok(data)
}

/// User and group that invoked us through sudo; `None` if we are not root, or root itself invoked us.
pub(crate) fn invoking_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let id = |name| std::env::var(name).ok();
    user_and_group(id("SUDO_UID").as_deref(), id("SUDO_GID").as_deref())
}

/// Both, if both are numbers.
pub(crate) fn user_and_group(uid: Option<&str>, gid: Option<&str>) -> Option<(u32, u32)> {
    let number = |text: Option<&str>| text.and_then(|t| t.parse().ok());
    number(uid).zip(number(gid))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// Only whole pairs of numbers name a user.
    #[test]
    fn sudo() {
        assert_eq!(user_and_group(Some("1000"), Some("100")), Some((1000, 100)));
        for (uid, gid) in [(None, Some("1")), (Some("1"), None), (Some("x"), Some("1"))] {
            assert_eq!(user_and_group(uid, gid), None);
        }
    }

    /// Pipes, devices, folders and giant files are refused at once.
    #[test]
    fn only_regular_files() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        fs::write(at("file"), "text").unwrap();
        symlink("file", at("link")).unwrap();
        File::create(at("holes")).unwrap().set_len(1 << 42).unwrap();
        for name in ["pipe", "zero", "."] {
            let error = read_regular(&at(name), 99).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(read_regular(&at("link"), 4).unwrap(), b"text");
        for (name, most) in [("link", 3), ("holes", 1 << 31)] {
            let error = read_regular(&at(name), most).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{name}");
        }
    }
}
