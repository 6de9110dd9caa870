//! Finds the file that BIN means: a path, a command, a library's name, or a file of a process.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::process::{self, FileId, Mapping};
use crate::arch::machine::LIBRARIES;
use crate::failure::Hint;
use crate::units::Pid;

/// Maximum number of symlinks followed, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Folders that the dynamic loader searches by default.
const LIBRARY_FOLDERS: [&str; 7] = [
    LIBRARIES[0],
    LIBRARIES[1],
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// Why no file was found.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// A path to a missing file.
    #[error("cannot find binary {path}")]
    Path {
        /// The path that was searched.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A name that is neither a command nor a library.
    #[error("cannot find binary '{name}': no such command in PATH, no such library")]
    Name {
        /// The name as given.
        name: String,
        /// A file of that name in the current folder.
        here: bool,
    },
    /// A build id that not exactly one build has.
    #[error("cannot find build {id}: {why}")]
    Build {
        /// The digits as given.
        id: String,
        /// Places that were searched.
        why: String,
        /// Searched in one process.
        is_process: bool,
    },
}

impl Hint for LocateError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Name { name, here: true } => {
                Some(format!("there is one in this folder: ./{name}"))
            }
            Self::Name { .. } => Some(
                "give a path, a command in PATH, or a library's name (libc, libz.so.1)".to_owned(),
            ),
            Self::Build {
                is_process: true, ..
            } => Some(
                "the program was updated since, or it is another one: name the function (BIN:FUNC), or look again with \
                 'pebs-trace suggest -p PID'"
                    .to_owned(),
            ),
            Self::Build { .. } => Some("give the process that runs it: -p PID".to_owned()),
            Self::Path { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Some("use sudo".to_owned()),
                io::ErrorKind::NotFound => Some(
                    "a name without '/' is looked for in PATH; with -p PID paths are as that process sees them, \
                     also in a container; a path with ':' or '(' goes in double quotes: '\"./a:b\":func'"
                        .to_owned(),
                ),
                _ => None,
            },
        }
    }
}

/// Finds a file: symlinks resolved, as this process can open it. With a process, paths are relative to its root
/// folder, and bare names are first searched among its mapped files.
///
/// # Errors
/// [`LocateError`].
pub(crate) fn locate(binary: &str, pid: Option<Pid>) -> Result<PathBuf, LocateError> {
    if binary.contains('/') {
        return path(Path::new(binary), pid);
    }
    let mapped = pid.and_then(|pid| mapped(binary, pid));
    let found = mapped.or_else(|| {
        if is_library(binary) {
            find_library(binary).or_else(|| command(binary))
        } else {
            command(binary).or_else(|| find_library(binary))
        }
    });
    found.ok_or_else(|| LocateError::Name {
        name: binary.to_owned(),
        here: Path::new(binary).is_file(),
    })
}

fn path(typed: &Path, pid: Option<Pid>) -> Result<PathBuf, LocateError> {
    if let Some(root) = pid.and_then(foreign_root)
        && typed.is_absolute()
    {
        let theirs = follow(&root, typed).map_err(|source| LocateError::Path {
            path: root.join(typed.strip_prefix("/").unwrap_or(typed)),
            source,
        })?;
        // Services with a private /tmp share most files with us.
        let ours = fs::canonicalize(typed).ok();
        let same = ours.filter(|ours| FileId::of(ours) == FileId::of(&theirs));
        return Ok(same.unwrap_or(theirs));
    }
    fs::canonicalize(typed).map_err(|source| LocateError::Path {
        path: typed.to_owned(),
        source,
    })
}

/// Path of a process's root folder, if it differs from ours or has other file systems mounted below.
fn foreign_root(pid: Pid) -> Option<PathBuf> {
    let root = PathBuf::from(format!("/proc/{}/root", pid.0));
    let theirs = FileId::of(&root.join("."))?;
    let mounts = |process: &str| FileId::of(Path::new(&format!("/proc/{process}/ns/mnt")));
    let is_ours =
        FileId::of(Path::new("/")) == Some(theirs) && mounts(&pid.0.to_string()) == mounts("self");
    (!is_ours).then_some(root)
}

/// Resolves a path within another root, so that symlinks stay in it.
fn follow(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut done = PathBuf::new();
    let mut links = 0;
    let mut waiting: Vec<PathBuf> = parts(path);
    while let Some(part) = waiting.pop() {
        if part == Path::new("..") {
            done.pop();
            continue;
        }
        let next = done.join(&part);
        match fs::read_link(root.join(&next)) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::other("too many symlinks"));
                }
                if target.is_absolute() {
                    done = PathBuf::new();
                }
                waiting.extend(parts(&target));
            }
            Err(_) => done = next,
        }
    }
    let found = root.join(done);
    fs::metadata(&found).map(|_| found)
}

/// Names of a path's components, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    path.components()
        .rev()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

/// A file that the process has mapped under that name; one with a version behind it if none has the name itself.
fn mapped(name: &str, pid: Pid) -> Option<PathBuf> {
    let mappings = process::mappings(pid)?;
    let named = |is_named: fn(&str, &str) -> bool| {
        mappings
            .iter()
            .filter(|it| is_code_of_file(it))
            .find(move |mapping| {
                let path = mapping.path.trim_end_matches(" (deleted)");
                is_named(path.rsplit('/').next().unwrap_or_default(), name)
            })
    };
    file_of(
        named(is_named).or_else(|| named(is_named_with_version))?,
        pid,
    )
}

/// The files that the process has mapped as code, as this process can open them, in order of address: its program is the
/// first.
#[must_use]
pub(crate) fn mapped_files(pid: Pid) -> Vec<PathBuf> {
    let mappings = process::mappings(pid).unwrap_or_default();
    let mut seen = HashSet::new();
    let code = mappings.iter().filter(|it| is_code_of_file(it));
    code.filter(|mapping| seen.insert(mapping.file))
        .filter_map(|mapping| file_of(mapping, pid))
        .collect()
}

fn is_code_of_file(mapping: &Mapping) -> bool {
    mapping.executable && mapping.file.inode != 0
}

fn file_of(mapping: &Mapping, pid: Pid) -> Option<PathBuf> {
    let direct = path(Path::new(&mapping.path), Some(pid)).ok();
    if let Some(direct) = direct.filter(|path| FileId::of(path) == Some(mapping.file)) {
        return Some(direct);
    }
    // The file was deleted or replaced: the kernel still has the running one.
    let kept = format!(
        "/proc/{}/map_files/{:x}-{:x}",
        pid.0, mapping.start, mapping.end
    );
    let kept = PathBuf::from(kept);
    kept.exists().then_some(kept)
}

/// Whether a bare name matches a file: equal, or `libc` for `libc.so.6`.
fn is_named(file: &str, name: &str) -> bool {
    let rest = file.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest == ".so" || rest.starts_with(".so."))
}

/// As [`is_named`], for a file with a version in its name: `libns` for `libns-9.18.49-1~deb12u3-Debian.so`.
fn is_named_with_version(file: &str, name: &str) -> bool {
    let version = file
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('-'));
    version.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()) && it.contains(".so"))
}

/// Searches a command in `PATH`, as the shell does.
#[must_use]
pub(crate) fn command(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let found = env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| {
            fs::metadata(path)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })?;
    fs::canonicalize(found).ok()
}

/// A library by soname or bare name, in the loader's folders; of several versions the highest.
#[must_use]
pub(crate) fn find_library(name: &str) -> Option<PathBuf> {
    let mut folders = configured();
    folders.extend(LIBRARY_FOLDERS.iter().map(PathBuf::from));
    find_library_in(&folders, name)
}

/// Whether a bare name is more likely a library's than a command's.
pub(crate) fn is_library(name: &str) -> bool {
    !name.contains('/') && (name.starts_with("lib") || name.contains(".so"))
}

/// The same in these folders.
#[must_use]
pub(crate) fn find_library_in(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    for folder in folders {
        let exact = folder.join(name);
        if is_elf(&exact) {
            return fs::canonicalize(exact).ok();
        }
    }
    let newest_of = |is_named| {
        folders
            .iter()
            .find_map(|folder| newest(folder, name, is_named))
    };
    newest_of(is_named).or_else(|| newest_of(is_named_with_version))
}

fn newest(folder: &Path, name: &str, is_named: fn(&str, &str) -> bool) -> Option<PathBuf> {
    let mut found: Vec<String> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|file| is_named(file, name))
        .filter(|file| is_elf(&folder.join(file)))
        .collect();
    found.sort_by_key(|file| {
        file.split(|c: char| !c.is_ascii_digit())
            .filter_map(|part| part.parse::<u64>().ok())
            .collect::<Vec<_>>()
    });
    fs::canonicalize(folder.join(found.pop()?)).ok()
}

/// `libc.so` is a linker's script on many systems.
fn is_elf(path: &Path) -> bool {
    let mut head = [0_u8; 4];
    fs::File::open(path)
        .and_then(|mut file| io::Read::read_exact(&mut file, &mut head))
        .is_ok_and(|()| head == *b"\x7fELF")
}

/// Folders of /etc/ld.so.conf and the files it includes.
fn configured() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    read_configuration(Path::new("/etc/ld.so.conf"), &mut folders, 0);
    folders
}

fn read_configuration(path: &Path, folders: &mut Vec<PathBuf>, depth: u32) {
    let Ok(text) = fs::read_to_string(path) else {
        return;
    };
    for line in text.lines().map(str::trim) {
        if let Some(pattern) = line.strip_prefix("include ") {
            // Every distribution writes `include DIR/*.conf`.
            let pattern = Path::new(pattern.trim());
            if let (Some(parent), true) = (pattern.parent(), depth < 4)
                && let Ok(entries) = fs::read_dir(parent)
            {
                let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
                files.sort();
                for file in files
                    .iter()
                    .filter(|f| f.extension() == pattern.extension())
                {
                    read_configuration(file, folders, depth + 1);
                }
            }
        } else if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use super::*;

    /// Commands, libraries by soname and by bare name, and paths are found, symlinks resolved.
    #[test]
    fn names() {
        let ends = |name: &str, end: &str| {
            let found = locate(name, None).unwrap_or_else(|e| panic!("{e}"));
            assert!(
                found.to_string_lossy().contains(end),
                "{name}: {}",
                found.display()
            );
        };
        ends("redis-server", "/redis-check-rdb");
        ends("libsqlite3.so.0", "/libsqlite3.so.0.");
        ends("libc", "/libc.so.6");
        ends("libc.so.6", "/libc.so.6");
        ends("/usr/bin/redis-server", "/redis-check-rdb");
        assert!(locate("no-such-command", None).is_err());
        assert!(locate("/no/such/path", None).is_err());
    }

    /// A library's version can be left out, wherever in its file's name it is; the part of a name can't.
    #[test]
    fn versions() {
        for (file, plain, versioned) in [
            ("libns", true, false),
            ("libns.so.1", true, false),
            ("libns-9.18.49-1~deb12u3-Debian.so", false, true),
            ("libns-9.18", false, false),
            ("libns-client.so.1", false, false),
            ("libnss.so", false, false),
        ] {
            assert_eq!(is_named(file, "libns"), plain, "{file}");
            assert_eq!(is_named_with_version(file, "libns"), versioned, "{file}");
        }
        let folder = tempfile::tempdir().expect("dir");
        for file in ["libns-9.18.so", "libns-9.20.so", "libnsx.so"] {
            fs::write(folder.path().join(file), b"\x7fELF").expect("write");
        }
        let found = newest(folder.path(), "libns", is_named_with_version).expect("found");
        assert!(found.ends_with("libns-9.20.so"), "{found:?}");
    }

    /// With a process, its own libraries are found first, and all that it has mapped.
    #[test]
    fn of_a_process() {
        let me = Pid(std::process::id());
        let libc = locate("libc", Some(me)).expect("mapped");
        assert!(process::maps(me, FileId::of(&libc).expect("file")));
        let files = mapped_files(me);
        assert_eq!(files.first(), env::current_exe().ok().as_ref());
        assert!(files.contains(&libc), "{files:?}");
    }

    /// A process may have our root with other file systems mounted: files are those that it sees, and shared ones
    /// have our paths.
    #[test]
    fn other_mounts() {
        let dir = tempfile::tempdir().expect("dir");
        let script = "mount -t tmpfs none \"$0\" && cp /bin/sleep \"$0/app\" && echo ready && exec \"$0/app\" 60";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script])
            .arg(dir.path());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("unshare");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("line");
        let pid = Pid(child.id());
        let app = dir.path().join("app");
        let found = locate(&app.to_string_lossy(), Some(pid));
        let shell = locate("/bin/sh", Some(pid));
        child.kill().expect("own child");
        child.wait().expect("own child");
        if line.is_empty() {
            return println!("SKIP needs root");
        }
        let there = format!("/proc/{}/root{}", pid.0, app.display());
        assert_eq!(found.expect("seen there"), Path::new(&there));
        assert_eq!(
            shell.expect("seen there"),
            locate("/bin/sh", None).expect("here")
        );
    }

    /// Symlinks of another root do not lead out of it.
    #[test]
    fn other_root() {
        let root = tempfile::tempdir().expect("dir");
        fs::create_dir_all(root.path().join("usr/bin")).expect("mkdir");
        fs::write(root.path().join("usr/bin/app"), "x").expect("write");
        symlink("/usr/bin", root.path().join("bin")).expect("link");
        symlink("../../../usr/bin/app", root.path().join("usr/bin/alias")).expect("link");
        let found = follow(root.path(), Path::new("/bin/alias")).expect("found");
        assert_eq!(found, root.path().join("usr/bin/app"));
        assert!(follow(root.path(), Path::new("/bin/sh")).is_err());
    }
}
