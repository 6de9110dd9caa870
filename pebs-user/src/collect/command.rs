//! Starts the user's command so that none of its code runs before the probes are in place.
//!
//! The kernel stops the child at the end of its `execve` (ptrace), when its binary is mapped but none of its
//! instructions has run; it is released, and no longer traced, once everything is attached. Before `execve` it
//! waits to be traced: if this program is killed before it releases the command, the command never runs and its
//! process ends.
#![expect(unsafe_code, reason = "ptrace has no safe binding")]

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use libc::c_int;

use crate::failure::Hint;
use crate::limits::Former;
use crate::units::Pid;

/// Interval of checking whether the command has stopped.
const GLANCE: Duration = Duration::from_millis(1);

/// A command that could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// It does not exist.
    #[error("command not found: {0}")]
    NotFound(String),
    /// It exists but may not be run, or running it failed.
    #[error("cannot run {command}")]
    Run {
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It would change its privileges, which a traced process must not do.
    #[error("cannot start {}: it is set{which} and would run without its privileges", path.display())]
    Privileged {
        /// The program.
        path: PathBuf,
        /// `uid` or `gid`.
        which: &'static str,
    },
}

impl Hint for CommandError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound(name) if name.contains('/') => Some(format!(
                "there is no file '{name}'; the command follows '--'"
            )),
            Self::NotFound(name) => Some(format!(
                "'{name}' is in no directory of PATH; for a file in this one write './{name}'"
            )),
            Self::Run { .. } => Some("run the command alone first".to_owned()),
            Self::Privileged { .. } => {
                Some("start it yourself, then trace it with -p PID".to_owned())
            }
        }
    }
}

/// A command that waits to be released.
pub(crate) struct Held {
    /// Its process.
    pub pid: Pid,
    go: mpsc::SyncSender<()>,
    thread: JoinHandle<io::Result<ExitStatus>>,
}

/// A command that runs.
pub(crate) struct Running {
    thread: JoinHandle<io::Result<ExitStatus>>,
}

/// Path of a command's program: the command itself if it contains a slash, else from `PATH`.
///
/// # Errors
/// It is not found.
pub(crate) fn find(command: &OsString) -> Result<PathBuf, CommandError> {
    let not_found = || CommandError::NotFound(command.to_string_lossy().into_owned());
    let given = Path::new(command);
    if given.components().count() > 1 || command.to_string_lossy().contains('/') {
        return if given.exists() {
            Ok(given.to_owned())
        } else {
            Err(not_found())
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(given))
        .find(|file| is_executable(file))
        .ok_or_else(not_found)
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Starts a command with these limits and stops it at its first instruction.
///
/// # Errors
/// It can't be found, can't be run, or would change its privileges.
pub(crate) fn start(arguments: &[OsString], limits: &Former) -> Result<Held, CommandError> {
    let Some(command) = arguments.first() else {
        return Err(CommandError::NotFound(String::new()));
    };
    let path = find(command)?;
    refuse_privileged(&path)?;
    let (started, has_started) = mpsc::sync_channel(1);
    let (go, may_go) = mpsc::sync_channel(1);
    let (arguments, limits) = (arguments.to_vec(), limits.clone());
    // Only the thread that traces the child can use ptrace on it.
    let thread = std::thread::spawn(move || supervise((&arguments, limits), &started, &may_go));
    let failed = |source| CommandError::Run {
        command: command.to_string_lossy().into_owned(),
        source,
    };
    match has_started.recv() {
        Ok(Ok(pid)) => Ok(Held { pid, go, thread }),
        Ok(Err(source)) => Err(failed(source)),
        Err(mpsc::RecvError) => Err(failed(io::ErrorKind::BrokenPipe.into())),
    }
}

fn refuse_privileged(path: &Path) -> Result<(), CommandError> {
    let Ok(metadata) = path.metadata() else {
        return Ok(());
    };
    let mode = metadata.mode();
    let which = match (mode & libc::S_ISUID != 0, mode & libc::S_ISGID != 0) {
        (true, _) => "uid",
        (_, true) => "gid",
        _ => return Ok(()),
    };
    Err(CommandError::Privileged {
        path: path.to_owned(),
        which,
    })
}

/// Manages the child on one thread, from start to end.
fn supervise(
    (arguments, limits): (&[OsString], Former),
    started: &mpsc::SyncSender<io::Result<Pid>>,
    may_go: &mpsc::Receiver<()>,
) -> io::Result<ExitStatus> {
    let mut child = match spawn_stopped(arguments, limits) {
        Ok(child) => child,
        Err(error) => {
            let kind = error.kind();
            let _ = started.send(Err(error));
            return Err(kind.into());
        }
    };
    let _ = started.send(Ok(Pid(child.id())));
    if may_go.recv().is_err() {
        // It is not released, so it never runs.
        child.kill()?;
        return child.wait();
    }
    ptrace(libc::PTRACE_DETACH, child.id(), 0)?;
    child.wait()
}

fn spawn_stopped(arguments: &[OsString], limits: Former) -> io::Result<Child> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = waiting(arguments, limits, ours.as_raw_fd(), theirs);
    // `spawn` returns only after `execve`, before which the child waits for this thread.
    let spawning = std::thread::spawn(move || command.spawn());
    let seized = seize(ours);
    while let Ok(id) = seized
        && !spawning.is_finished()
    {
        pass_signal_on(id);
        std::thread::sleep(GLANCE);
    }
    let spawned = spawning.join();
    let spawned = spawned.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    let child = match (seized, spawned) {
        // If the child sent nothing, it failed on its own.
        (Err(why), Err(_)) if why.kind() != io::ErrorKind::UnexpectedEof => return Err(why),
        (_, spawned) => spawned?,
    };
    let mut status = 0;
    // SAFETY: waits for our own child; the status is written to a live variable.
    let waited = unsafe { libc::waitpid(child.id().cast_signed(), &raw mut status, libc::__WALL) };
    if waited < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(child)
}

/// A command whose process waits before its `execve` until it receives a byte on its socket, and ends if the other
/// end is closed.
fn waiting(arguments: &[OsString], limits: Former, ours: RawFd, theirs: UnixStream) -> Command {
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]);
    let prepare = move || {
        limits.restore()?;
        // SAFETY: closes the child's copy of the parent's end, which nothing else in the child uses: so that end is
        // open only while the parent lives. The second call takes no pointer: if this program has file capabilities,
        // it can trace its child only after that.
        let id = unsafe {
            libc::close(ours);
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
            libc::getpid()
        };
        let mut socket = &theirs;
        socket.write_all(&id.to_ne_bytes())?;
        let mut go = [0];
        let result = socket.read_exact(&mut go);
        result.map_err(|_| io::Error::from_raw_os_error(libc::ECONNRESET))
    };
    // SAFETY: between fork and exec the closure only makes system calls.
    unsafe { command.pre_exec(prepare) };
    command
}

/// Traces the process at the other end of the socket, and lets it continue.
fn seize(mut child: UnixStream) -> io::Result<u32> {
    let mut id = [0; size_of::<u32>()];
    child.read_exact(&mut id)?;
    let id = u32::from_ne_bytes(id);
    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
    ptrace(libc::PTRACE_SEIZE, id, options)?;
    child.write_all(&[0])?;
    Ok(id)
}

/// Passes on a signal that stopped the process before its `execve`.
fn pass_signal_on(id: u32) {
    // SAFETY: all of it may be 0.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: reads the state of our own child, whose id is not reused before it was waited for; the output is
    // live.
    let stopped_by = unsafe {
        libc::waitid(libc::P_PID, id, &raw mut info, flags);
        info.si_status()
    };
    // ptrace events have further bits set.
    if (1..=libc::SIGRTMAX()).contains(&stopped_by) {
        // The process may have been killed.
        let _ = ptrace(libc::PTRACE_CONT, id, stopped_by);
    }
}

/// Type of a request, which differs between C libraries.
#[cfg(target_env = "musl")]
type Request = c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

fn ptrace(request: Request, pid: u32, data: c_int) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: no request reads or writes memory of this process.
    let result =
        unsafe { libc::ptrace(request, pid.cast_signed(), none, libc::c_long::from(data)) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl Held {
    /// Lets the command run.
    #[must_use]
    pub(crate) fn release(self) -> Running {
        let _ = self.go.send(());
        Running {
            thread: self.thread,
        }
    }
}

impl Running {
    /// Waits for its end. Blocks.
    ///
    /// # Errors
    /// Waiting failed.
    pub(crate) fn wait(self) -> io::Result<ExitStatus> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No code of the command runs before it is released, and its exit code is returned.
    #[test]
    fn held_then_released() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let script = format!("touch {}; exit 7", mark.display());
        let held = start(&["sh".into(), "-c".into(), script.into()], &Former::now()).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert!(!mark.exists());
        let exe = std::fs::read_link(format!("/proc/{}/exe", held.pid.0)).unwrap();
        assert!(
            !exe.to_string_lossy().contains("pebs"),
            "still before exec: {exe:?}"
        );
        assert_eq!(held.release().wait().unwrap().code(), Some(7));
        assert!(mark.exists());
    }

    /// A signal that stops the process before its `execve` is passed on.
    #[test]
    fn signalled() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut command = waiting(&["true".into()], Former::now(), ours.as_raw_fd(), theirs);
        let spawning = std::thread::spawn(move || command.spawn());
        let mut id = [0; 4];
        ours.read_exact(&mut id).unwrap();
        let id = u32::from_ne_bytes(id);
        ptrace(libc::PTRACE_SEIZE, id, libc::PTRACE_O_EXITKILL).unwrap();
        let pid = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::WINCH).unwrap();
        ours.write_all(&[0]).unwrap();
        while !spawning.is_finished() {
            pass_signal_on(id);
        }
        let mut child = spawning.join().unwrap().unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// If the tracer ends before it traces the command, the command never runs.
    #[test]
    fn nobody_traces_it() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let touch = ["touch".into(), mark.clone().into()];
        let mut command = waiting(&touch, Former::now(), ours.as_raw_fd(), theirs);
        let gone = std::thread::spawn(move || ours.read_exact(&mut [0; 4]));
        let failed = command.spawn().unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::ECONNRESET), "{failed}");
        assert!(gone.join().unwrap().is_ok() && !mark.exists());
    }

    /// A command that is not released ends without having run.
    #[test]
    fn dropped() {
        let held = start(&["sleep".into(), "60".into()], &Former::now()).unwrap();
        let Held { go, thread, .. } = held;
        drop(go);
        assert!(!thread.join().unwrap().unwrap().success());
    }

    /// Missing commands are named.
    #[test]
    fn missing() {
        let error = start(&["no-such-command-here".into()], &Former::now())
            .err()
            .unwrap();
        assert_eq!(error.to_string(), "command not found: no-such-command-here");
    }
}
