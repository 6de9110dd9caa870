//! Runs `pebs-trace` as a user would: waits for its word that it records, ends it with Ctrl-C.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::frame::shell;

/// Longest time for attaching: a debug build takes most of a minute for the symbols of Node.js.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// Begin of the line on stderr when every probe and event is attached.
const RECORDING: &str = "recording";

/// Builds `pebs-trace` with a cargo profile and returns its path; once, as cargo would wait here for whatever else it compiles.
///
/// The debug build is made together with the tests, and the examples that they run: alone it would be built with other features of the common
/// libraries, and so would these.
pub fn build(release: bool) -> Result<PathBuf> {
    static BUILT: Mutex<[Option<PathBuf>; 2]> = Mutex::new([None, None]);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let built = &mut built[usize::from(release)];
    if let Some(path) = built {
        return Ok(path.clone());
    }
    let mut command = shell::cargo(&["build", "--bin", "pebs-trace"]);
    let profile = if release {
        command.args(["--release", "--package", "pebs-trace"]);
        "release"
    } else {
        command.args(shell::WHOLE).args(["--tests", "--examples"]);
        "debug"
    };
    shell::run(&mut command)?;
    let path = shell::target_dir()?.join(profile).join("pebs-trace");
    Ok(built.insert(path).clone())
}

/// The `pebs-trace` that is asked for, or else a release build of the workspace.
pub fn of(tool: Option<&Path>) -> Result<PathBuf> {
    match tool {
        Some(tool) => std::fs::canonicalize(tool).context("--tool"),
        None => build(true),
    }
}

/// A `pebs-trace` that records.
pub struct Recorder {
    child: Child,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<()>,
}

impl Recorder {
    /// Starts it and waits until everything is attached. Its stderr is passed on.
    pub fn start(tool: &Path, args: &[String]) -> Result<Self> {
        let mut command = shell::as_root(tool);
        command.args(args);
        Self::spawn(command)
    }

    /// The same with its whole command line.
    pub fn spawn(mut command: Command) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = shell::show(&mut command)
            .spawn()
            .context("cannot start pebs-trace")?;
        let stdout = child.stdout.take().context("no stdout")?;
        let stderr = child.stderr.take().context("no stderr")?;
        let (ready, is_ready) = channel();
        let recorder = Self {
            child,
            stdout: std::thread::spawn(move || read_all(stdout)),
            stderr: std::thread::spawn(move || pass_on(stderr, &ready)),
        };
        recorder.wait_until(&is_ready)
    }

    /// Pid of `pebs-trace` itself, which is a child of `sudo` where that is used.
    pub fn pid(&self) -> Result<u32> {
        let mut pid = self.child.id();
        loop {
            let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
            if read("comm")?.starts_with("pebs-trace") {
                return Ok(pid);
            }
            let children = read(&format!("task/{pid}/children"))?;
            let child = children.split_whitespace().next();
            pid = child.context("sudo runs no pebs-trace")?.parse()?;
        }
    }

    /// Sends Ctrl-C, waits for the end, and returns the report.
    pub fn stop(mut self) -> Result<String> {
        self.interrupt()?;
        let status = self.child.wait()?;
        let report = self.stdout.join();
        let stderr = self.stderr.join();
        let report = report.ok().context("the reader of stdout failed")?;
        stderr.ok().context("the reader of stderr failed")?;
        match status.code() {
            Some(0) => Ok(report),
            Some(1) => {
                eprintln!("pebs-trace: exit status 1: loss above its limit");
                Ok(report)
            }
            _ => bail!("pebs-trace failed ({status})"),
        }
    }

    fn wait_until(mut self, ready: &Receiver<()>) -> Result<Self> {
        match ready.recv_timeout(START_TIMEOUT) {
            Ok(()) => Ok(self),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                bail!("pebs-trace ended before it recorded ({status})")
            }
            Err(RecvTimeoutError::Timeout) => {
                self.interrupt()?;
                self.child.wait()?;
                bail!(
                    "pebs-trace did not record within {} s",
                    START_TIMEOUT.as_secs()
                )
            }
        }
    }

    fn interrupt(&self) -> Result<()> {
        if shell::is_root() {
            return Ok(kill_process(Pid::from_child(&self.child), Signal::INT)?);
        }
        // sudo passes the signal on to its command.
        let pid = self.child.id().to_string();
        shell::output(shell::as_root("kill").args(["-INT", &pid])).map(drop)
    }
}

fn read_all(mut stream: impl Read) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        eprintln!("stdout of pebs-trace: {error}");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Copies lines to our stderr; notifies `ready` when the line on the start of recording comes.
fn pass_on(stream: impl Read, ready: &std::sync::mpsc::Sender<()>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        eprintln!("{line}");
        if line.starts_with(RECORDING) {
            // The receiver is dropped after the first one.
            let _ = ready.send(());
        }
    }
}
