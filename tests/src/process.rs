//! Child processes that cannot hang a test, and whose output is kept for the report.

use std::ffi::OsString;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Pid;
pub use rustix::process::Signal;

/// Longest time that any child of a test may take.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Longest time to read the output of an ended child, in case a grandchild holds the stream open.
const LEFT_OPEN: Duration = Duration::from_secs(10);

/// Directory in which the tool keeps calibrations.
const CACHE_HOME: &str = "XDG_CACHE_HOME";

/// Between two looks at a child.
const POLL: Duration = Duration::from_millis(5);

/// Result of an ended process.
#[derive(Debug)]
pub struct Finished {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Exit status.
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Exit code; `None`: killed by a signal.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Signal that killed it.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self
            .command
            .iter()
            .map(|word| format!("'{}'", word.to_string_lossy()))
            .collect();
        let dir = std::env::current_dir().unwrap_or_default();
        write!(
            f,
            "command: {}\ndirectory: {}\nended: {}\n--- stdout\n{}\n--- stderr\n{}\n---",
            words.join(" "),
            dir.display(),
            self.status,
            self.stdout,
            self.stderr
        )
    }
}

/// A child that runs. Killed if dropped.
#[derive(Debug)]
pub struct Running {
    command: Vec<OsString>,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Capture,
    stderr: Capture,
}

impl Running {
    /// Starts a command with all three streams piped.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let words = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(OsString::from)
            .collect();
        // A calibration of the user must not affect a test, nor may a test write one. Costs that recordings measure are
        // saved and reused as a user's are.
        if command.get_envs().all(|(name, _)| name != CACHE_HOME) {
            command.env(CACHE_HOME, crate::machine::profile_dir().join("costs"));
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let stdout = Capture::new(child.stdout.take().expect("piped"));
        let stderr = Capture::new(child.stderr.take().expect("piped"));
        Self {
            command: words,
            stdin: child.stdin.take(),
            child,
            stdout,
            stderr,
        }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until stderr has a line that starts so, and returns it.
    ///
    /// # Panics
    /// If the process ends first, or the time is up.
    pub fn wait_for_line(&mut self, start: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            // The status first, so that no output before the end is missed.
            let ended = self.child.try_wait().expect("own child").is_some();
            if ended {
                self.stderr.join();
            }
            let text = self.stderr.text();
            if let Some(line) = text.lines().find(|line| line.starts_with(start)) {
                return line.to_owned();
            }
            if ended || Instant::now() > deadline {
                self.kill();
                panic!("no line '{start}' on stderr\n{}", self.collect());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until its output on stdout satisfies the predicate.
    ///
    /// # Panics
    /// If the process ends first, or the time is up.
    pub fn wait_for_output(&mut self, is_wanted: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_wanted(&self.stdout.text()) {
            let ended = self.child.try_wait().expect("own child").is_some();
            if ended || Instant::now() > deadline {
                self.kill();
                panic!("not what was wanted on stdout\n{}", self.collect());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Writes to its stdin; an error means that it has ended, which `finish` will report.
    pub fn send(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(text.as_bytes());
        }
    }

    /// Sends a signal; does nothing if it has already ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// If the kernel denies that it is our child.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("own child").is_none()
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// If it does not come in time: the child is killed then.
    #[must_use]
    pub fn finish(self) -> Finished {
        self.finish_within(TIMEOUT)
    }

    /// The same with another time limit.
    ///
    /// # Panics
    /// If it does not come in time.
    #[must_use]
    pub fn finish_within(mut self, limit: Duration) -> Finished {
        drop(self.stdin.take());
        let deadline = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() > deadline {
                self.kill();
                panic!("not ended after {limit:?}\n{}", self.collect());
            }
            std::thread::sleep(POLL);
        }
        self.collect()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
    }

    fn collect(&mut self) -> Finished {
        let status = self.child.wait().expect("own child");
        self.stdout.join();
        self.stderr.join();
        Finished {
            command: self.command.clone(),
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Returns once a condition holds that other processes or threads establish.
///
/// # Panics
/// With this text if it does not within the time that any child may take.
pub fn wait_until(otherwise: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{otherwise}");
        std::thread::sleep(POLL);
    }
}

/// Copies a file that is to be executed, by another process: a child started meanwhile by another thread briefly has
/// our descriptors, and a file open for writing can't be executed.
///
/// # Panics
/// If it can't be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = run(Command::new("cp").args([from, to]));
    assert!(copied.status.success(), "{copied}");
}

/// Runs a command to its end.
#[must_use]
pub fn run(command: &mut Command) -> Finished {
    Running::start(command).finish()
}

/// Attempts at a recording of perf.
const ATTEMPTS: u32 = 4;

/// Runs `perf record` to its end, and again if it crashes there.
///
/// # Errors
/// It crashed each time: beside programs that load and unload eBPF programs, perf 6.1 overruns a buffer for build ids.
pub fn run_perf(command: &mut Command) -> Result<Finished, String> {
    let mut done = run(command);
    for _ in 1..ATTEMPTS {
        if done.signal().is_none() {
            break;
        }
        done = run(command);
    }
    match done.signal() {
        None => Ok(done),
        Some(signal) => Err(format!(
            "perf crashed {ATTEMPTS} times (signal {signal}): {}",
            done.stderr.lines().last().unwrap_or_default()
        )),
    }
}

/// Collects a stream as it comes.
#[derive(Debug)]
struct Capture {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Capture {
    fn new(mut stream: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let thread = std::thread::spawn(move || {
            let mut chunk = [0; 8192];
            while let Ok(n @ 1..) = stream.read(&mut chunk) {
                shared.lock().unwrap().extend_from_slice(&chunk[..n]);
            }
        });
        Self { bytes, thread }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// Waits for the end of the stream, but not forever: a grandchild may hold it open.
    fn join(&self) {
        let deadline = Instant::now() + LEFT_OPEN;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }
}
