//! `pebs-trace suggest`: which functions of a running program look like items.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use serde::Serialize;

use super::values::{self, Format};
use super::{fetch_debug_files, print_result};
use crate::binary::locate::{locate, mapped_files};
use crate::binary::process::{self, FileId};
use crate::failure::{Context as _, Failure, Result};
use crate::present::human::{UNKNOWN, count, maybe_time, percent, plural};
use crate::present::table::wrapped;
use crate::probe::ResolveError;
use crate::record::check_process;
use crate::suggest::{Suggested, Suggestion, suggest};
use crate::terminal::{self, quoted, say, shown};
use crate::units::Pid;

/// Time that a command gets to begin its work.
const BEGINS: Duration = Duration::from_millis(500);

/// Options of `pebs-trace suggest`.
#[derive(Clone, Debug, clap::Args)]
pub struct SuggestArgs {
    /// Look at the busiest process that runs this program
    #[arg(value_name = "BIN", required_unless_present_any = ["pid", "command_line"])]
    #[arg(conflicts_with_all = ["pid", "command_line"])]
    pub binary: Option<String>,
    /// Look at this process and its children
    #[arg(short, long, value_name = "PID", value_parser = values::pid)]
    #[arg(conflicts_with = "command_line")]
    pub pid: Option<u32>,
    /// Sample stacks for this time; watching calls takes up to 3 s more
    #[arg(short, long, value_name = "SECONDS", value_parser = values::seconds, default_value = "2")]
    pub duration: Duration,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub format: Format,
    /// Start this command, and look at it and its children
    ///
    /// A command that runs longer continues.
    #[arg(last = true, value_name = "CMD", id = "command_line")]
    pub command_line: Vec<OsString>,
}

/// Looks, judges and prints. Exit code 1 if no function looks like an item.
///
/// # Errors
/// If there is no such process, or it can't be sampled.
pub fn run(args: &SuggestArgs) -> Result<ExitCode> {
    let started = match args.command_line.split_first() {
        Some((program, words)) => Some(start(program, words)?),
        None => None,
    };
    let pid = match (&started, args.pid, &args.binary) {
        (Some(child), ..) => Pid(child.id()),
        (None, Some(pid), _) => Pid(pid),
        (None, None, binary) => running(binary.as_deref().unwrap_or_default())?,
    };
    check_process(pid)?;
    fetch_debug_files(|| mapped_files(pid));
    let found = suggest(pid, args.duration)?;
    match args.format {
        Format::Json => {
            let json = Json {
                pid: pid.0,
                found: &found,
            };
            print_result(
                &format!("{}\n", serde_json::to_string_pretty(&json)?),
                "list",
            )?;
        }
        Format::Text => print_result(&text(pid, &found, terminal::width()), "list")?,
    }
    for note in &found.notes {
        say!("note: {note}");
    }
    if !found.suggestions.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say!(
        "no function of process {} looks like an item{}",
        pid.0,
        why_none(&found)
    );
    let binary = process::exe(pid).unwrap_or_default();
    say!(
        "hint: look again under load, or choose one yourself: 'pebs-trace probes {}' lists functions",
        binary.display()
    );
    Ok(ExitCode::from(1))
}

#[derive(Serialize)]
struct Json<'a> {
    pid: u32,
    #[serde(flatten)]
    found: &'a Suggested,
}

fn why_none(found: &Suggested) -> String {
    match (found.refused.first(), found.samples) {
        (Some((function, why)), _) => format!(" that can be probed ({function}: {why})"),
        (None, samples @ 0..20) => format!(": it was idle ({})", plural(samples as u64, "sample")),
        (None, _) => String::new(),
    }
}

fn start(program: &OsString, words: &[OsString]) -> Result<Child> {
    let started = Command::new(program).args(words).spawn();
    let name = Path::new(program).display();
    let child = started.with_context(|| format!("cannot start {name}"))?;
    std::thread::sleep(BEGINS);
    Ok(child)
}

/// The busiest process that runs a program, or has it mapped as a library.
fn running(name: &str) -> Result<Pid> {
    let path = locate(name, None).map_err(ResolveError::from)?;
    let users = FileId::of(&path).map(process::users).unwrap_or_default();
    // A process that descends from another one is looked at with it.
    let children: Vec<Pid> = users
        .iter()
        .flat_map(|pid| process::children(*pid))
        .collect();
    let mut first: Vec<Pid> = users
        .into_iter()
        .filter(|pid| !children.contains(pid))
        .collect();
    first.sort_by_key(|pid| std::cmp::Reverse(crate::suggest::cpu_ns(*pid)));
    let Some(busiest) = first.first().copied() else {
        return Err(Failure::new(
            format!("no process runs {}", path.display()),
            "start it, or give a command after '--': items show only while it works",
        ));
    };
    if first.len() > 1 {
        say!(
            "looking at process {}, which took most CPU time of {} that run {name}",
            busiest.0,
            first.len()
        );
    }
    Ok(busiest)
}

fn text(pid: Pid, found: &Suggested, width: usize) -> String {
    let mut text = format!(
        "process {}: {:.2} CPUs, {}{}{}; looked for {:.1} s\n",
        pid.0,
        found.cpus,
        plural(found.samples as u64, "sample"),
        rates("reads", &found.reads_per_s),
        rates("writes", &found.writes_per_s),
        found.seconds,
    );
    for (n, suggestion) in found.suggestions.iter().enumerate() {
        let _ = write!(
            text,
            "\n{:>2}  -u {}\n",
            n + 1,
            quoted(&shown(&suggestion.spec))
        );
        for line in [figures(suggestion), suggestion.reasons.join(", ")] {
            for line in wrapped(&shown(&line), 4, width) {
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
    if let Some(first) = found.suggestions.first() {
        let _ = writeln!(
            text,
            "\npebs-trace -p {} --duration 10 -u {}",
            pid.0,
            quoted(&shown(&first.spec))
        );
    }
    text
}

/// `, 1,200 writes/s of sockets`.
fn rates(what: &str, per_s: &[(&'static str, f64)]) -> String {
    let busy = per_s.iter().filter(|it| it.1 >= 1.0);
    let all: Vec<String> = busy
        .map(|(channel, per_s)| format!(", {} {what}/s of {channel}s", count(per_s.round() as u64)))
        .collect();
    all.concat()
}

fn figures(it: &Suggestion) -> String {
    let mut parts = vec![match it.per_s {
        Some(per_s) if per_s >= 10.0 => format!("{} calls/s", count(per_s.round() as u64)),
        Some(per_s) => format!("{per_s:.1} calls/s"),
        None => format!("{UNKNOWN} calls/s"),
    }];
    if it.calls_seen > 0 {
        parts.push(format!(
            "p50 {}, p99 {} (of {})",
            match it.p50_ns {
                Some(0) => "too short to measure".to_owned(),
                ns => maybe_time(ns.map(|ns| ns as f64)),
            },
            maybe_time(it.p99_ns.map(|ns| ns as f64)),
            plural(it.calls_seen as u64, "call")
        ));
    }
    parts.extend(
        it.slow_down
            .map(|part| format!("marks add {}", percent(part))),
    );
    parts.extend(
        it.cpu
            .map(|part| format!("{} of the CPU time", percent(part))),
    );
    parts.extend(
        it.at_once
            .filter(|n| *n > 1)
            .map(|n| format!("{n} at a time")),
    );
    parts.extend(it.id.map(|n| format!("arg{n} may be an id")));
    if let Some(text) = &it.text {
        parts.push(format!(
            "{} is \"{}\"",
            text.read,
            text.example.escape_default()
        ));
    }
    parts.join(", ")
}
