//! CPU time of a command and of all processes that it waits for.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::frame::shell;

/// Runs a command and prints its user and system time, including children, in seconds.
const TIMED: &str = r#"out=$1 err=$2; shift 2; TIMEFORMAT='%3U %3S'; time "$@" >"$out" 2>"$err""#;

/// Runs a command with output and errors redirected to files; returns its CPU time in seconds, and its exit
/// status.
pub fn timed(command: &Command, [out, err]: [&Path; 2]) -> Result<(f64, Option<i32>)> {
    let mut bash = Command::new("bash");
    bash.args(["-c", TIMED, "bash"]).args([out, err]);
    bash.arg(command.get_program()).args(command.get_args());
    let output = bash
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", shell::display(command)))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let mut times = text.split_whitespace().map(str::parse::<f64>);
    match (times.next(), times.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok((user + system, output.status.code())),
        _ => bail!("bash says no times: {text:?}"),
    }
}

/// The same where the command must succeed; `accepted`: exit statuses that are success too.
pub fn timed_success(command: &Command, files: [&Path; 2], accepted: &[i32]) -> Result<f64> {
    let (seconds, status) = timed(command, files)?;
    match status {
        Some(status) if status == 0 || accepted.contains(&status) => Ok(seconds),
        status => bail!(
            "'{}' failed ({status:?}), see {}",
            shell::display(command),
            files[1].display()
        ),
    }
}
