//! Runs a server and records it with the tool.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::mystery::{Bursts, Cause, Language, Mystery, Shape};
use crate::frame::lab::Lab;
use crate::frame::machine::{Killed, wait_until};
use crate::frame::shell;

/// Longer than its time no run may take.
const MORE: Duration = Duration::from_secs(40);

/// Another process; it ends when this is dropped.
fn helper(program: &Path, args: &[&str]) -> Result<Killed> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    Ok(Killed(command.spawn().context("cannot start a helper")?))
}

/// Probes as set by a user who knows only where the server accepts items.
pub fn probes(it: &Mystery, program: &Path) -> Vec<String> {
    let program = program.display();
    let path = |name: &str| match it.language {
        Language::C => name.to_owned(),
        Language::Cpp => format!("{}::{name}", it.space),
        Language::Rust => format!("server::{}::{name}", it.space),
        Language::Go => format!("main.{name}"),
    };
    let first = if it.language == Language::Go {
        "%rax"
    } else {
        "arg1"
    };
    let id = format!("id=*({first}):u64");
    let handler = path(&it.handler);
    let mut args = Vec::new();
    let mut probe = |option: &str, spec: String| args.extend([option.to_owned(), spec]);
    match (it.shape, it.cause) {
        (Shape::Turns, _) => {
            let (accept, finish) = (path(&it.accept), path(&it.finish));
            probe(
                "--uprobe",
                format!("{program}:{accept}({id})..{finish}({id})"),
            );
            probe("--resume", format!("{program}:{handler}({id})"));
        }
        (_, Cause::Queue) => {
            // In Rust it is in no module.
            let submit = match it.language {
                Language::Rust => format!("server::{}", it.submit),
                _ => path(&it.submit),
            };
            probe("--uprobe", format!("{program}:{submit}({id})"));
            probe("--uprobe", format!("{program}:{handler}({id})"));
        }
        _ => probe(
            "--uprobe",
            format!("{program}:{handler}({id}, kind=*({first}+8):u32)"),
        ),
    }
    args
}

/// The log of a server, and the tool's output; `None` with the reason if the tool failed.
pub struct Run {
    pub truth: String,
    pub explanation: Result<Value>,
}

/// Runs a mystery in an empty lab.
pub fn record(it: &Mystery, lab: &Lab, program: &Path, helper: &Path) -> Result<Run> {
    let path = |name: &str| lab.dir.join(name).display().to_string();
    let [truth, file, socket] = ["truth", "file", "socket"].map(path);
    let mut helpers = Vec::new();
    if it.cause == Cause::Dependency {
        helpers.push(self::helper(helper, &["answer", &socket])?);
        wait_until(MORE, || Path::new(&socket).exists());
    }
    if let Some(Bursts {
        cpu,
        run_us,
        gap_us,
    }) = it.load
    {
        let cpu = cpu.map_or("-1".to_owned(), |cpu| cpu.to_string());
        let [run, gap, seed] = [run_us, gap_us, it.seed].map(|it| it.to_string());
        helpers.push(self::helper(helper, &["burst", &cpu, &run, &gap, &seed])?);
    }
    let mut command = lab.tool();
    command.arg("--output").arg(lab.trace());
    command.args(probes(it, program)).arg("--");
    command
        .arg(program)
        .args([&truth, &file, &socket])
        .stdin(Stdio::null());
    command
        .stdout(File::create(path("report"))?)
        .stderr(File::create(path("stderr"))?);
    fs::write(path("command"), shell::display(&command) + "\n")?;
    let status = finish(&mut command, Duration::from_secs_f64(it.seconds) + MORE);
    drop(helpers);
    let _ = fs::remove_file(&file);
    let log = fs::read_to_string(&truth).unwrap_or_default();
    let explanation = status.and_then(|()| explain(lab));
    let explanation = explanation.map_err(|error| {
        let stderr = fs::read_to_string(path("stderr")).unwrap_or_default();
        let errors = stderr
            .lines()
            .filter(|it| it.starts_with("error") || it.starts_with("hint"));
        let errors: Vec<&str> = errors.collect();
        anyhow::anyhow!("{error:#} {}", errors.join("; "))
    });
    Ok(Run {
        truth: log,
        explanation,
    })
}

/// Explains the trace of a run that was kept.
pub fn explain_again(lab: &Lab) -> Run {
    Run {
        truth: fs::read_to_string(lab.dir.join("truth")).unwrap_or_default(),
        explanation: explain(lab),
    }
}

fn explain(lab: &Lab) -> Result<Value> {
    let mut command = lab.tool();
    command
        .arg("explain")
        .arg(lab.trace())
        .args(["--format", "json"]);
    let text = shell::output(&mut command)?;
    fs::write(lab.dir.join("explain.json"), &text)?;
    serde_json::from_str(&text).context("explain printed no JSON")
}

/// Waits until it ends; kills it if that takes too long.
fn finish(command: &mut Command, most: Duration) -> Result<()> {
    let mut child = Killed(command.spawn().context("cannot start pebs-trace")?);
    let mut status = None;
    wait_until(most, || {
        status = child.try_wait().transpose();
        status.is_some()
    });
    let Some(status) = status.transpose()? else {
        bail!("pebs-trace did not end within {:.0} s", most.as_secs_f64());
    };
    // 1: finished, with loss above its limit.
    match status.code() {
        Some(0 | 1) => Ok(()),
        _ => bail!("pebs-trace failed ({status})"),
    }
}
