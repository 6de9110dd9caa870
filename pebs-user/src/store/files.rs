//! Creates files of a trace: new, private, owned by the user who ran the tool.
//!
//! Nothing here follows a symlink at the last component or overwrites a file: as root the tool writes into a
//! directory that belongs to another user, who may replace any directory on the way by a link. So directories are
//! held open, and paths begin at them ([`Held`]).

use std::error::Error;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::files::{invoking_user, open_regular};

/// The run's metadata, in the trace's directory.
pub(super) const INFO_FILE: &str = "trace.json";

/// Held with `flock` by whoever writes the trace.
pub(super) const LOCK_FILE: &str = "trace.lock";

/// File that reserves room for the end of the trace.
const RESERVE_FILE: &str = ".reserve";

/// Size of [`RESERVE_FILE`], bytes: enough for `trace.json` and a few small segments.
const RESERVE_BYTES: u64 = 1 << 20;

/// Directory of this process's open files.
const DESCRIPTORS: &str = "/proc/self/fd";

/// An open directory: files created at [`Held::path`] are in it, even if its name now leads elsewhere.
#[derive(Debug)]
pub(super) struct Held(File);

impl Held {
    /// Opens a directory, symlinks on the way followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::with(path, libc::O_DIRECTORY)
    }

    /// Opens a directory, refusing a symlink in its place.
    pub(super) fn open_itself(path: &Path) -> io::Result<Self> {
        Self::with(path, libc::O_DIRECTORY | libc::O_NOFOLLOW)
    }

    fn with(path: &Path, flags: i32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let directory = options.read(true).custom_flags(flags).open(path)?;
        Ok(Self(directory))
    }

    /// The directory, as long as this is not dropped.
    pub(super) fn path(&self) -> PathBuf {
        Path::new(DESCRIPTORS).join(self.0.as_raw_fd().to_string())
    }
}

/// The name of a path below [`Held::path`]; other paths are unchanged.
pub(super) fn named(path: &Path) -> PathBuf {
    let name = || {
        let rest = path.strip_prefix(DESCRIPTORS).ok()?;
        let number = rest.iter().next()?;
        let directory = fs::read_link(Path::new(DESCRIPTORS).join(number)).ok()?;
        let below = rest.strip_prefix(number).ok()?;
        Some(match below.as_os_str().is_empty() {
            true => directory,
            false => directory.join(below),
        })
    };
    name().unwrap_or_else(|| path.to_owned())
}

/// Owner of the files: the invoking user under sudo, else the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    ids: Option<(u32, u32)>,
}

impl Owner {
    /// From `SUDO_UID` and `SUDO_GID`, if the process is root.
    pub(super) fn of_process() -> Self {
        Self {
            ids: invoking_user(),
        }
    }

    /// The owner of a directory, if the process is root and so can change the owner of files.
    pub(super) fn of_dir(dir: &Path) -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::default());
        }
        let meta = fs::metadata(dir)?;
        Ok(Self {
            ids: Some((meta.uid(), meta.gid())),
        })
    }

    /// Changes the owner of a file. Without effect on file systems without owners (FAT, some network mounts).
    fn give(self, file: &File) {
        if let Some((uid, gid)) = self.ids
            && let Err(error) = fchown(file, Some(uid), Some(gid))
        {
            tracing::debug!("cannot give a file of the trace to user {uid}: {error}");
        }
    }

    /// Makes a directory of mode 0700. Its parent must exist and it must not.
    pub(super) fn make_dir(self, path: &Path) -> io::Result<Held> {
        DirBuilder::new().mode(0o700).create(path)?;
        // The parent's owner may have replaced it by a symlink or another directory.
        let made = Held::open_itself(path)?;
        if made.0.metadata()?.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("another user put a directory there"));
        }
        self.give(&made.0);
        Ok(made)
    }

    /// Makes a file of mode 0600. It must not exist.
    pub(super) fn make_file(self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        self.give(&file);
        Ok(file)
    }

    /// Creates a file that is complete or missing: `write` fills `PATH.tmp`, which is synced and renamed to `path`.
    /// A failure leaves nothing behind.
    ///
    /// # Errors
    /// Errors of `write`, and I/O errors.
    pub(super) fn make_whole<T, E: From<io::Error>>(
        self,
        path: &Path,
        write: impl FnOnce(&File) -> Result<T, E>,
    ) -> Result<T, E> {
        let temporary = temporary(path);
        remove_if_there(&temporary)?;
        let made = (|| {
            let file = self.make_file(&temporary)?;
            let value = write(&file)?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            Ok(value)
        })();
        if made.is_err() {
            // The first error is the one to report.
            let _ = remove_if_there(&temporary);
        }
        made
    }

    /// Writes `trace.json`, replacing an existing one atomically.
    pub(super) fn write_info(self, dir: &Path, info: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(info)?;
        text.push(b'\n');
        self.make_whole(&dir.join(INFO_FILE), |mut file| file.write_all(&text))
    }

    /// Takes up [`RESERVE_BYTES`] of the disk, to be given back by [`free_reserve`].
    pub(super) fn make_reserve(self, dir: &Path) -> io::Result<()> {
        let mut file = self.make_file(&dir.join(RESERVE_FILE))?;
        let flags = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&file, flags, 0, RESERVE_BYTES) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                file.write_all(&vec![0; RESERVE_BYTES as usize])
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Frees the room reserved by [`Owner::make_reserve`].
pub(super) fn free_reserve(dir: &Path) -> io::Result<()> {
    remove_if_there(&dir.join(RESERVE_FILE))
}

/// The name under which [`Owner::make_whole`] writes.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Removes a file, ignoring a missing one.
pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The right to write to a trace, held until dropped or the process ends, however it ends.
#[derive(Debug)]
pub(super) struct TraceLock {
    path: PathBuf,
    _file: File,
}

impl TraceLock {
    /// Takes the lock; `None` if another process has it.
    pub(super) fn take(dir: &Path, owner: Owner) -> io::Result<Option<Self>> {
        let path = dir.join(LOCK_FILE);
        let file = match owner.make_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => OpenOptions::new()
                .write(true)
                // Opening a pipe would block.
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&path)?,
            other => other?,
        };
        if !file.metadata()?.is_file() {
            let what = "not a regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { path, _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Gives the lock up and removes its file: the trace will not be written again.
    pub(super) fn retire(self) -> io::Result<()> {
        remove_if_there(&self.path)
    }

    /// Whether another process is writing to the trace.
    pub(super) fn is_held(dir: &Path) -> bool {
        open_regular(&dir.join(LOCK_FILE))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

/// The I/O error that caused an error, if there is one.
pub(super) fn io_cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = error.source();
    }
    None
}

/// Whether the disk, or the user's share of it, is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    // Created files belong to the invoking user, and other users can't read them.
    #[test]
    fn files_are_private() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP needs root to give files away");
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let owner = Owner {
            ids: Some((12345, 54321)),
        };
        let dir = parent.path().join("t");
        owner.make_dir(&dir).unwrap();
        let file = dir.join("f");
        owner.make_file(&file).unwrap();
        for (path, mode) in [(&dir, 0o700), (&file, 0o600)] {
            let meta = fs::metadata(path).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (12345, 54321));
            assert_eq!(meta.permissions().mode() & 0o777, mode);
        }
    }

    // Files are created in the opened directory, not in one that has replaced it.
    #[test]
    fn directories_are_held() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let held = Owner::default().make_dir(&at("trace")).unwrap();
        fs::create_dir(at("victim")).unwrap();
        fs::rename(at("trace"), at("moved")).unwrap();
        symlink(at("victim"), at("trace")).unwrap();
        Owner::default().make_file(&held.path().join("f")).unwrap();
        assert!(at("moved/f").exists());
        assert_eq!(fs::read_dir(at("victim")).unwrap().count(), 0);
        assert_eq!(named(&held.path().join("f")), at("moved/f"));
        assert_eq!(named(&held.path()), at("moved"));
        assert_eq!(named(Path::new("a/b")), Path::new("a/b"));
        assert!(Held::open_itself(&at("trace")).is_err());
        assert!(Held::open(&at("trace")).is_ok());
    }

    // A pipe in place of the lock file is refused at once, without blocking.
    #[test]
    fn lock_is_no_pipe() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mode) = (dir.path().join(LOCK_FILE), rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(!TraceLock::is_held(dir.path()));
        assert!(TraceLock::take(dir.path(), Owner::default()).is_err());
    }

    // A planted symlink is not written through.
    #[test]
    fn symlinks_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let planted = dir.path().join("x.tmp");
        symlink(&victim, &planted).unwrap();
        assert!(Owner::default().make_file(&planted).is_err());
        Owner::default()
            .make_whole(&dir.path().join("x"), |mut f| f.write_all(b"new"))
            .unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(dir.path().join("x")).unwrap(), "new");
    }

    // A failed file does not exist, nor does its temporary.
    #[test]
    fn failure_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let result: io::Result<()> = Owner::default().make_whole(&dir.path().join("x"), |_| {
            Err(io::Error::from_raw_os_error(28))
        });
        assert!(is_full(&result.unwrap_err()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    // Others see the lock while it is held, and only then.
    #[test]
    fn lock_is_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!TraceLock::is_held(dir.path()));
        let lock = TraceLock::take(dir.path(), Owner::default())
            .unwrap()
            .unwrap();
        assert!(TraceLock::is_held(dir.path()));
        assert!(
            TraceLock::take(dir.path(), Owner::default())
                .unwrap()
                .is_none()
        );
        drop(lock);
        assert!(!TraceLock::is_held(dir.path()));
    }

    // The reserve takes room on the disk and frees it again; freeing it twice is not an error.
    #[test]
    fn reserve_takes_room() {
        let dir = tempfile::tempdir().unwrap();
        Owner::default().make_reserve(dir.path()).unwrap();
        let meta = fs::metadata(dir.path().join(RESERVE_FILE)).unwrap();
        assert!(meta.blocks() * 512 >= RESERVE_BYTES);
        free_reserve(dir.path()).unwrap();
        free_reserve(dir.path()).unwrap();
    }
}
