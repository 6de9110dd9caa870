//! The name by which a process runs its executable.
//!
//! A file can have several names (`redis-server` is a symbolic link to `redis-check-rdb`); the kernel's mappings
//! show only the target of the links. The path used to start the program is on the process's stack.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::units::Pid;

/// Type of the auxiliary vector's entry that points to the path given to `execve`. Source: include/uapi/linux/auxvec.h.
const AT_EXECFN: u64 = 31;

/// Longest path, `PATH_MAX`.
const PATH_BYTES: usize = 4096;

/// The path by which the process runs its executable, if `mapped` is that file and this is another name of it.
///
/// Also `None` if unknown: the process is gone, or its path now leads to another file. Cost: for a file that is not
/// its executable, reading one link.
pub(crate) fn run_as(pid: Pid, mapped: &Path) -> Option<PathBuf> {
    let of_process = |what: &str| PathBuf::from(format!("/proc/{}/{what}", pid.0));
    let exe = of_process("exe");
    if fs::read_link(&exe).ok()? != mapped {
        return None;
    }
    let typed = executed(&of_process("auxv"), &of_process("mem"))?;
    // `fexecve` uses the name of a descriptor.
    let is_name = !typed.starts_with("/dev/fd") && !typed.starts_with("/proc");
    if !is_name || typed.file_name()? == mapped.file_name()? {
        return None;
    }
    let (seen, name) = match typed.strip_prefix("/") {
        Ok(below) => (of_process("root").join(below), typed.clone()),
        Err(_) => (
            of_process("cwd").join(&typed),
            mapped.with_file_name(typed.file_name()?),
        ),
    };
    let file = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    (file(&seen)? == file(&exe)?).then_some(name)
}

/// The path that a process gave to `execve` for the program that it runs.
fn executed(auxv: &Path, mem: &Path) -> Option<PathBuf> {
    let auxv = fs::read(auxv).ok()?;
    let word = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
    let (entries, _) = auxv.as_chunks::<16>();
    let pointer = entries.iter().find_map(|entry| {
        let (kind, value) = entry.split_at(8);
        (word(kind)? == AT_EXECFN).then(|| word(value))?
    })?;
    let mut bytes = vec![0; PATH_BYTES];
    // The string is at the very end of the stack: fewer bytes may be readable.
    let read = File::open(mem).ok()?.read_at(&mut bytes, pointer).ok()?;
    let length = bytes[..read].iter().position(|it| *it == 0)?;
    bytes.truncate(length);
    let path = String::from_utf8(bytes).ok()?;
    (!path.is_empty()).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::binary::testing::copy_program;

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A symbolic link and a relative path to it are other names; the file's own name and a library's are not.
    #[test]
    fn names_of_one_file() {
        let dir = tempfile::tempdir().unwrap();
        // The folder of temporary files may be a link itself.
        let dir = dir.path().canonicalize().unwrap();
        let file = dir.join("check");
        copy_program(Path::new("/bin/sleep"), &file);
        std::os::unix::fs::symlink("check", dir.join("server")).unwrap();
        let start = |program: &str| {
            let mut command = Command::new(program);
            let child = Killed(command.current_dir(&dir).arg("60").spawn().unwrap());
            // The parent continues before the new program's stack exists.
            let of = |what: &str| PathBuf::from(format!("/proc/{}/{what}", child.0.id()));
            while executed(&of("auxv"), &of("mem")).is_none_or(|it| it != Path::new(program)) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            child
        };
        let name = |child: &Killed, mapped: &Path| run_as(Pid(child.0.id()), mapped);
        let linked = start(dir.join("server").to_str().unwrap());
        assert_eq!(name(&linked, &file), Some(dir.join("server")));
        assert_eq!(name(&linked, Path::new("/lib/libc.so.6")), None);
        assert_eq!(name(&start("./server"), &file), Some(dir.join("server")));
        assert_eq!(name(&start("./check"), &file), None);
        fs::remove_file(dir.join("server")).unwrap();
        assert_eq!(name(&linked, &file), None);
    }
}
