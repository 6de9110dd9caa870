//! Files that others may have put there: only regular files are opened, and only a limited part of them is
//! read, as the user who may read them.
#![expect(unsafe_code, reason = "setfsuid has no safe binding")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{User, getgrouplist};
use rustix::process::Gid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Opens a file for reading if it is a regular one, symbolic links followed.
///
/// Opened without side effects first: a pipe would block, a device might act.
///
/// # Errors
/// Those of the system, and `InvalidInput` if it is not a regular file.
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

/// A user as whom files are accessed, with all groups that the user is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileUser {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

impl FileUser {
    /// A user, with the groups that the system's user database lists; of an unknown user only `gid`.
    pub(crate) fn new(uid: u32, gid: u32) -> Self {
        let listed = || {
            let name = CString::new(user(uid)?.name).ok()?;
            let all = getgrouplist(&name, gid.into()).ok()?;
            Some(all.into_iter().map(|it| Gid::from_raw(it.as_raw())))
        };
        let groups = listed().map_or_else(|| vec![Gid::from_raw(gid)], Iterator::collect);
        Self { uid, gid, groups }
    }

    /// The user who invoked us through sudo, if any.
    pub(crate) fn invoking() -> Option<Self> {
        let (uid, gid) = invoking_user()?;
        Some(Self::new(uid, gid))
    }

    /// The user's home.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        user(self.uid)
            .map(|it| it.dir)
            .filter(|it| it.is_absolute())
    }

    /// Makes the calling thread, and no other, access and create files as this user: with the user's groups, and
    /// without the capabilities that are in effect, until some are set again.
    ///
    /// Uses only system calls: also runs in a signal handler.
    ///
    /// # Errors
    /// The thread may not, as it has no privileges. It may then have changed in part.
    pub(crate) fn take_this_thread(&self) -> io::Result<()> {
        // SAFETY: changes no memory, and this thread only. An invalid user changes nothing; the call returns the
        // user so far.
        let fsuid = || unsafe { libc::setfsuid(u32::MAX) }.cast_unsigned();
        // A thread that was this user's already may not change its groups any more.
        if fsuid() != self.uid {
            // libc's function would change all threads.
            rustix::thread::set_thread_groups(&self.groups)?;
            // SAFETY: as above. Neither call reports whether it worked.
            unsafe {
                libc::setfsgid(self.gid);
                libc::setfsuid(self.uid);
            }
            if fsuid() != self.uid {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        if self.uid != 0 {
            let had = capabilities(None)?;
            set_capabilities(
                None,
                CapabilitySets {
                    effective: CapabilitySet::empty(),
                    ..had
                },
            )?;
        }
        Ok(())
    }
}

/// Accesses files as a user, on a thread that ends afterwards; without one as ourselves.
///
/// # Errors
/// Those of `work`, or this process may not.
pub(crate) fn as_user<T: Send>(
    user: Option<&FileUser>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let Some(user) = user else {
        return work();
    };
    let theirs = || {
        user.take_this_thread()?;
        work()
    };
    std::thread::scope(|scope| {
        let done = scope.spawn(theirs).join();
        done.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

/// A user by the system's user database, which may be on another machine.
fn user(uid: u32) -> Option<User> {
    User::from_uid(uid.into()).ok().flatten()
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

    use std::os::unix::fs::{PermissionsExt as _, chown};

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

    /// Runs `work` on a thread that is this user's.
    fn on_thread_of<T: Send>(user: &FileUser, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let theirs = scope.spawn(move || {
                user.take_this_thread().unwrap();
                work()
            });
            theirs.join().unwrap()
        })
    }

    /// A thread of another user's reads what that user may read: by owner and by group, and nothing by a group of
    /// ours. Our own thread keeps its groups.
    #[test]
    fn as_another_user() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP not root");
            return;
        }
        let ours = rustix::process::getgroups().unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let nobody = FileUser::new(65_534, 65_534);
        let file = |name: &str, group: u32, mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, "text").unwrap();
            chown(&path, Some(0), Some(group)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let secret = file("secret", 0, 0o640);
        let link = dir.path().join("link");
        symlink(&secret, &link).unwrap();
        for (path, can) in [
            (&link, false),
            (&secret, false),
            (&file("theirs", 65_534, 0o640), true),
            (&file("anyone", 0, 0o644), true),
        ] {
            // We may be in group root, or not; a thread that is in it stands for both.
            let read = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    rustix::thread::set_thread_groups(&[Gid::ROOT]).unwrap();
                    on_thread_of(&nobody, || read_regular(path, 99).is_ok())
                });
                thread.join().unwrap()
            });
            assert_eq!(read, can, "{}", path.display());
        }
        // Twice is as once: by then it has no right to change its groups.
        on_thread_of(&nobody, || nobody.take_this_thread().unwrap());
        assert_eq!(rustix::process::getgroups().unwrap(), ours);
        assert!(read_regular(&secret, 99).is_ok());
    }

    /// Groups and home are those of the user database; an unknown user has neither.
    #[test]
    fn user_database() {
        let unknown = FileUser::new(4_000_000_001, 7);
        assert_eq!(unknown.groups, [Gid::from_raw(7)]);
        assert_eq!(unknown.home(), None);
        let root = FileUser::new(0, 0);
        assert!(root.groups.contains(&Gid::ROOT));
        assert!(root.home().is_some());
    }
}
