//! The inside of the guest: process 1, and the steps that it has a child take.
//!
//! The report goes to the second serial line: `#begin NAME`, the output of the step's command, `#end
//! NAME HOW`; after the last step `#done`.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use rustix::system::{RebootCommand, finit_module, reboot};

/// The number of the process that the kernel starts.
const FIRST_PROCESS: u32 = 1;

/// Place of this program in the guest.
pub const INIT: &str = "/init";

/// Place of the list of steps.
pub const STEPS: &str = "/steps";

/// Path of the module that is loaded before the first step, if there is one.
pub const MODULE: &str = "/softpmu.ko";

/// Name of the step that runs the doctor.
pub const DOCTOR: &str = "doctor";
/// Name of the step that tries a recording.
pub const RECORD: &str = "record";
/// Name of the step that runs the tests.
pub const TESTS: &str = "tests";

/// Result of a step that took too long.
pub const TIMEOUT: &str = "timeout";
/// Result of a step that was skipped because the one before it failed.
pub const PASSED_OVER: &str = "not run";

/// Begins the line before a step's output.
pub const BEGIN: &str = "#begin ";
/// Begins the line after a step's output.
pub const END: &str = "#end ";
/// The line after the last step.
pub const DONE: &str = "#done";

/// Folders of the image, with or without files. Nothing is mounted on /tmp, where the programs may
/// come from.
pub const FOLDERS: [&str; 5] = ["/dev", "/proc", "/sys", "/tmp", "/etc"];

/// File systems: type and place.
const MOUNTS: [(&str, &str); 3] = [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")];

/// The second serial line.
const REPORT: &str = "/dev/ttyS1";

/// Search path of programs.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Interval between two polls of a step.
const POLL: Duration = Duration::from_millis(20);

/// One thing to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name in the report.
    pub name: String,
    /// Time limit, s.
    pub limit_s: u64,
    /// It is run only if the step of that name succeeded.
    pub after: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
}

impl Step {
    /// The line of the step in the list.
    #[must_use]
    pub fn line(&self) -> String {
        let after = self.after.as_deref().unwrap_or_default();
        let command = self.command.join("\t");
        format!("{}\t{}\t{after}\t{command}\n", self.name, self.limit_s)
    }

    /// The step of a line.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let mut next = || fields.next().map(str::to_owned);
        Some(Self {
            name: next()?,
            limit_s: next()?.parse().ok()?,
            after: next().filter(|after| !after.is_empty()),
            command: fields.map(str::to_owned).collect(),
        })
    }
}

/// Whether this is process 1 of a guest: in a container, too, a program may be number 1.
pub fn is_init() -> bool {
    std::process::id() == FIRST_PROCESS && std::env::args_os().next().is_some_and(|own| own == INIT)
}

/// Process 1: mounts, has the steps taken, collects processes that lost their parent, powers off.
pub fn init() -> ExitCode {
    if let Err(error) = live() {
        eprintln!("error: guest: {error:#}");
    }
    // If power-off fails nothing can be done; the machine's time limit ends it.
    let _ = reboot(RebootCommand::PowerOff);
    ExitCode::FAILURE
}

fn live() -> Result<()> {
    for (kind, place) in MOUNTS {
        let mut mount = Command::new("mount");
        let status = mount
            .env("PATH", PATH)
            .args(["-t", kind, kind, place])
            .status();
        if !status
            .with_context(|| format!("cannot mount {place}"))?
            .success()
        {
            bail!("cannot mount {place}");
        }
    }
    if Path::new(MODULE).exists() {
        let module = File::open(MODULE).with_context(|| format!("cannot open {MODULE}"))?;
        finit_module(module, c"", 0).with_context(|| format!("cannot load {MODULE}"))?;
    }
    let worker = start_worker()?;
    let worker = Pid::from_child(&worker);
    loop {
        let ended = wait(WaitOptions::empty()).context("cannot wait for processes")?;
        if ended.is_some_and(|(pid, _)| pid == worker) {
            // Its serial line is closed, and so everything is sent.
            return Ok(());
        }
    }
}

/// Starts the process that takes the steps.
fn start_worker() -> Result<Child> {
    let report = File::options().write(true).open(REPORT);
    let report = report.with_context(|| format!("cannot open {REPORT}"))?;
    let mut command = Command::new(INIT);
    command
        .arg("guest")
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/")
        .stdout(report.try_clone()?)
        .stderr(report);
    command.spawn().context("cannot start the worker")
}

/// Takes every step.
pub fn work() -> Result<ExitCode> {
    let steps = fs::read_to_string(STEPS).context("cannot read the steps")?;
    let mut succeeded = Vec::new();
    for line in steps.lines() {
        let step = Step::parse(line).with_context(|| format!("bad step '{line}'"))?;
        println!("{BEGIN}{}", step.name);
        let is_due = step
            .after
            .as_ref()
            .is_none_or(|after| succeeded.contains(after));
        let how = if is_due {
            take(&step).unwrap_or_else(|error| format!("error: {error:#}"))
        } else {
            PASSED_OVER.to_owned()
        };
        println!("\n{END}{} {how}", step.name);
        if how == describe(ExitStatus::default()) {
            succeeded.push(step.name);
        }
    }
    println!("{DONE}");
    Ok(ExitCode::SUCCESS)
}

/// Runs a step's command; returns its result.
fn take(step: &Step) -> Result<String> {
    let (program, args) = step
        .command
        .split_first()
        .context("a step without a command")?;
    let mut child = Command::new(program).args(args).process_group(0).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(step.limit_s);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(describe(status));
        }
        if Instant::now() > deadline {
            kill_process_group(Pid::from_child(&child), Signal::KILL)?;
            child.wait()?;
            return Ok(TIMEOUT.to_owned());
        }
        std::thread::sleep(POLL);
    }
}

/// `exit status: 0` and the like.
pub fn describe(status: ExitStatus) -> String {
    status.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step survives the conversion to a line and back; arguments may contain blanks.
    #[test]
    fn step_round_trip() {
        for after in [None, Some("record".to_owned())] {
            let step = Step {
                name: "tests".into(),
                limit_s: 60,
                after,
                command: vec!["/a b".into(), "--x".into(), String::new()],
            };
            let line = step.line();
            assert_eq!(Step::parse(line.trim_end_matches('\n')), Some(step));
        }
        assert_eq!(Step::parse("tests\tsoon\t\t/x"), None);
    }
}
