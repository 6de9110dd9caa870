//! Runs other programs, and prints their command lines.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Root of the workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.ancestors().nth(2).unwrap_or(manifest_dir)
}

/// Folder of the pieces that belong to this project alone (Python environment, DPDK headers).
#[must_use]
pub fn tools_dir() -> PathBuf {
    workspace().join("target/tools")
}

/// The cargo that runs this task, in the workspace.
#[must_use]
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(workspace()).args(args);
    command
}

/// The packages that are checked and tested together. The eBPF programs are compiled for another machine, the fuzz
/// targets with other flags.
pub const WHOLE: [&str; 5] = [
    "--workspace",
    "--exclude",
    "pebs-ebpf",
    "--exclude",
    "pebs-fuzz",
];

/// A program that runs as root: directly if we are, else through `sudo` with our environment.
#[must_use]
pub fn as_root(program: impl AsRef<std::ffi::OsStr>) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command
        .args(root_prefix().split_whitespace().skip(1))
        .arg(program);
    command
}

/// Prefix of a command line that runs it as root; empty if we are root.
///
/// sudo resets `PATH` even with `-E`, hence `env`.
#[must_use]
pub fn root_prefix() -> String {
    if is_root() {
        return String::new();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    format!("sudo -E env PATH={path}")
}

/// Whether we are root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Prints the command, runs it, and fails if it does.
pub fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", display(command));
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", display(command)))?;
    if !status.success() {
        bail!("'{}' failed ({status})", display(command));
    }
    Ok(())
}

/// Runs the command silently and returns its stdout.
pub fn output(command: &mut Command) -> Result<String> {
    let output = collect(command)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "'{}' failed ({}): {}",
            display(command),
            output.status,
            stderr.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the command with no input; its outputs and its exit status.
pub fn collect(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output();
    output.with_context(|| format!("cannot run {}", display(command)))
}

/// Removes a file or folder, of root as well; nothing if it is not there.
pub fn remove(path: &Path) -> Result<()> {
    output(as_root("rm").arg("-rf").arg(path)).map(drop)
}

/// Prints the command line.
pub fn show(command: &mut Command) -> &mut Command {
    eprintln!("$ {}", display(command));
    command
}

/// Runs the command silently, and reads the object of JSON that it printed, among other lines. Its exit status may be 1:
/// a goal is missed, or more was lost than allowed.
pub fn json(command: &mut Command) -> Result<Value> {
    let output = collect(command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let begin = text
        .find('{')
        .filter(|_| matches!(output.status.code(), Some(0 | 1)));
    let begin = begin.with_context(|| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let (command, status) = (display(command), output.status);
        format!("'{command}' printed no JSON ({status}): {}", stderr.trim())
    })?;
    let value = serde_json::from_str(&text[begin..]);
    value.with_context(|| format!("'{}' printed no JSON", display(command)))
}

/// The command line, quoted for a shell.
#[must_use]
pub fn display(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| quote(&word.to_string_lossy())).collect();
    words.join(" ")
}

/// Folder that cargo writes to.
pub fn target_dir() -> Result<PathBuf> {
    let metadata = output(&mut cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
    ]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let dir = metadata["target_directory"].as_str();
    dir.map(PathBuf::from)
        .context("cargo metadata names no target directory")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed command lines can be pasted into a shell.
    #[test]
    fn command_lines_are_quoted() {
        let mut command = Command::new("pebs-trace");
        command.args(["--uprobe", "app:f(id=*(arg1+8):u64)", "", "it's"]);
        assert_eq!(
            display(&command),
            r"pebs-trace --uprobe 'app:f(id=*(arg1+8):u64)' '' 'it'\''s'"
        );
    }
}
