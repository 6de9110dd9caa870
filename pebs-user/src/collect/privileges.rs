//! Privileges kept after everything is attached.
//!
//! `NEEDED` in `limits/capabilities.rs` says which thread keeps what, and what for.
//!
//! Under sudo, files are created as the invoking user, so that changing their owner needs no capability, and no
//! link in a folder of that user leads to anything that the user could not write to.
//!
//! Privileges are per thread, and no other thread can drop them: so each existing thread is sent a signal whose
//! handler drops them. Threads and processes started later inherit the remaining ones.
#![expect(unsafe_code, reason = "prctl and signal handlers have no safe binding")]

use std::fs;
use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::files::FileUser;
use crate::limits::capabilities::{MAIN, OTHERS};

/// Maximum time to wait for a thread. A thread that sleeps uninterruptibly in the kernel takes this long.
const PATIENCE: Duration = Duration::from_secs(2);

/// The user that files are made as, for the signal handler; empty: ourselves.
static MAKER: OnceLock<FileUser> = OnceLock::new();

/// Permanently drops, in every thread, the privileges that are not needed once everything is attached.
///
/// Must be called on the main thread.
///
/// # Errors
/// A thread kept a privilege: the kernel refused, or the thread did not respond within two seconds.
pub(crate) fn give_up() -> io::Result<()> {
    if let Some(user) = FileUser::invoking() {
        MAKER.get_or_init(|| user);
    }
    let signal = libc::SIGRTMIN() + 6;
    catch(signal)?;
    let deadline = Instant::now() + PATIENCE;
    while let threads = rich_threads()?
        && !threads.is_empty()
    {
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("threads {threads:?} did not"),
            ));
        }
        for thread in threads {
            // SAFETY: sends a signal that has a handler to a thread of our own; one that has ended is not an error.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    shrink(MAIN)
}

/// Drops all privileges of the calling thread, which only waits for something.
pub(crate) fn give_up_on_this_thread() {
    if let Err(error) = shrink(CapabilitySet::empty()) {
        tracing::debug!("cannot give up a waiting thread's privileges: {error}");
    }
}

/// Other threads with more privileges than they need.
fn rich_threads() -> io::Result<Vec<i32>> {
    let me = rustix::thread::gettid().as_raw_nonzero().get();
    let mut rich = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let Some(thread) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // The file of an ended thread is gone.
        let status = fs::read_to_string(format!("/proc/self/task/{thread}/status"));
        let has_more = |status: &String| !OTHERS.bits() & permitted(status) != 0;
        if thread != me && status.as_ref().is_ok_and(has_more) {
            rich.push(thread);
        }
    }
    Ok(rich)
}

fn permitted(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(u64::MAX)
}

/// Reduces the calling thread's capabilities to `kept`, with none for programs that it may start.
///
/// Uses only system calls: also runs in a signal handler.
fn shrink(kept: CapabilitySet) -> io::Result<()> {
    let had = capabilities(None)?;
    // We run no program from now on. Done while CAP_SETPCAP is there; without it running a program gains nothing
    // either.
    for number in 0..u64::BITS {
        // SAFETY: changes no memory; a number that the kernel does not know is refused.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
    }
    // Fails only on kernels without ambient capabilities.
    let _ = rustix::thread::clear_ambient_capability_set();
    rustix::thread::set_no_new_privs(true)?;
    if let Some(user) = MAKER.get() {
        // A refusal leaves files to be made as before.
        let _ = user.take_this_thread();
    }
    // Last, as taking the thread for another user leaves no capability in effect.
    let left = had.permitted & kept;
    set_capabilities(
        None,
        CapabilitySets {
            effective: left,
            permitted: left,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: errno is the thread's own.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    // The sender of the signal checks the result.
    let _ = shrink(OTHERS);
    *errno = before;
}

fn catch(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: all zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler makes system calls only, and keeps errno.
    match unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Child, Command};

    use super::*;
    use crate::binary::proc_maps::proc_maps;
    use crate::pmu::open::PerfEvent;
    use crate::pmu::target::Target;
    use crate::units::{Cpu, Pid};

    /// Runs a test's body on a thread that has dropped everything except `kept`, with a process of user nobody; the
    /// other threads of the test keep their privileges.
    fn with(kept: CapabilitySet, body: impl FnOnce(Pid) + Send + 'static) {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP needs root");
            return;
        }
        let foreign = Foreign::start();
        let pid = Pid(foreign.0.id());
        let thread = std::thread::spawn(move || {
            shrink(kept).unwrap();
            body(pid);
        });
        thread.join().unwrap();
    }

    /// A process of user nobody.
    struct Foreign(Child);

    impl Foreign {
        fn start() -> Self {
            let mut command = Command::new("setpriv");
            command.args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "sleep",
                "60",
            ]);
            let child = command.spawn().unwrap();
            let stat = format!("/proc/{}/stat", child.id());
            let deadline = Instant::now() + Duration::from_secs(20);
            // It has its new name before its mappings.
            while !fs::read_to_string(&stat).unwrap().contains("(sleep) S") {
                assert!(Instant::now() < deadline, "it does not start");
                std::thread::sleep(Duration::from_millis(5));
            }
            Self(child)
        }
    }

    impl Drop for Foreign {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Threads that name functions can still inspect other users' processes and read the kernel's addresses, and
    /// can no longer write other users' files or open events.
    #[test]
    fn what_other_threads_can_do() {
        with(OTHERS, |pid| {
            let maps = proc_maps(pid).unwrap();
            assert!(!maps.is_empty());
            let pid = pid.0;
            fs::metadata(format!("/proc/{pid}/root/.")).unwrap();
            let links = fs::read_dir(format!("/proc/{pid}/map_files")).unwrap();
            for link in links.take(2) {
                fs::File::open(link.unwrap().path()).unwrap();
            }
            let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap();
            assert!(
                !kallsyms
                    .lines()
                    .take(100)
                    .all(|line| line.starts_with("0000000000000000"))
            );
            fs::read("/etc/shadow").unwrap();
            let theirs = tempfile::tempdir().unwrap();
            assert!(std::os::unix::fs::chown(theirs.path(), Some(65534), None).is_err());
            assert!(open_event().is_err());
        });
    }

    fn open_event() -> Result<PerfEvent, crate::pmu::open::OpenError> {
        let attr = crate::pmu::attr::calibrator(1_000_000_000);
        PerfEvent::open(&attr, Target::Cpu(Cpu(0)), "clock")
    }

    /// The main thread can still open an event on a CPU, and enter other users' folders.
    #[test]
    fn what_the_main_thread_can_do() {
        with(MAIN, |pid| {
            open_event().unwrap();
            assert!(fs::metadata(format!("/proc/{}/root/.", pid.0)).is_err());
        });
    }

    /// Starting a program restores no privilege, and no thread started later has more.
    #[test]
    fn for_good() {
        with(OTHERS, |_| {
            let later =
                std::thread::spawn(|| fs::read_to_string("/proc/thread-self/status").unwrap());
            let program = Command::new("cat")
                .arg("/proc/self/status")
                .output()
                .unwrap();
            for status in [
                later.join().unwrap(),
                String::from_utf8(program.stdout).unwrap(),
            ] {
                for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                    let line = status.lines().find(|line| line.starts_with(set)).unwrap();
                    let mask = u64::from_str_radix(line[7..].trim(), 16).unwrap();
                    assert_eq!(mask & !OTHERS.bits(), 0, "{line}");
                }
                assert!(status.contains("NoNewPrivs:\t1"));
            }
        });
    }

    /// Under sudo, files belong to the invoking user from the start, in a folder that only this user may write to.
    #[test]
    fn files_of_the_invoking_user() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP needs root");
            return;
        }
        let theirs = tempfile::tempdir().unwrap();
        let path = theirs.path().to_owned();
        std::os::unix::fs::chown(&path, Some(65534), Some(65533)).unwrap();
        let inside = path.clone();
        let thread = std::thread::spawn(move || {
            FileUser::new(65534, 65533).take_this_thread().unwrap();
            shrink(OTHERS).unwrap();
            fs::write(inside.join("made"), "").unwrap();
            // Root's files are not writable, but readable.
            assert!(fs::write("/etc/shadow.new", "").is_err());
            fs::read("/etc/shadow").unwrap();
        });
        thread.join().unwrap();
        let made = path.join("made").metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (65534, 65533));
    }
}
