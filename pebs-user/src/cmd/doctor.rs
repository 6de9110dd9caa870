//! `pebs-trace doctor`: whether this machine can record, and how precisely.

use crate::failure::{Failure, Result};
use std::io::{self, BufRead, IsTerminal as _, Write};
use std::process::{Command, ExitCode};

use serde::Serialize;

use super::print_result;
use super::values::Format;
use crate::limits::capabilities;

mod check;
mod checks;
mod facts;
mod files;
mod kernel;
mod limits;
mod sampling;

pub use check::{Check, Status};
pub use checks::evaluate;
pub use facts::{Answer, Facts};

/// Options of `pebs-trace doctor`.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    /// Output format
    ///
    /// json is {"usable", "checks": [{"name", "status", "found", "fix"}]}.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub format: Format,
    /// Print the capabilities that a recording uses
    ///
    /// With the lines that give them to the program (setcap) and to a service (systemd).
    #[arg(long, conflicts_with = "format")]
    pub capabilities: bool,
    /// Run the fixes that are commands, each after a question
    ///
    /// What they set lasts until the next boot. Fixes that are no commands are printed only.
    #[arg(long, conflicts_with_all = ["format", "capabilities"])]
    pub fix: bool,
}

/// The output of `--format json`.
#[derive(Clone, Debug, Serialize)]
struct Report<'a> {
    /// Whether recording works.
    usable: bool,
    /// Every check, in the order of the text.
    checks: &'a [Check],
}

/// Runs every check and prints it; exit code 1 if recording does not work.
///
/// # Errors
/// Standard output can't be written.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    if args.capabilities {
        print_result(&capabilities::text(), "list of capabilities")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut checks = evaluate(&Facts::gather());
    if args.fix {
        if !io::stdin().is_terminal() {
            return Err(Failure::new(
                "--fix asks before each command, and standard input is not a terminal",
                "run the commands that 'pebs-trace doctor' prints",
            ));
        }
        if fix(&checks, &mut io::stdin().lock(), &mut io::stderr())? {
            checks = evaluate(&Facts::gather());
        }
    }
    let usable = is_usable(&checks);
    let mut out = io::stdout().lock();
    match args.format {
        Format::Text => write!(out, "{}", text(&checks))?,
        Format::Json => {
            let report = Report {
                usable,
                checks: &checks,
            };
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        }
    }
    Ok(if usable {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the fixes that are commands and are agreed to; returns whether any was run.
fn fix(checks: &[Check], answers: &mut dyn BufRead, out: &mut dyn Write) -> Result<bool> {
    let is_root = rustix::process::geteuid().is_root();
    let mut has_run = false;
    for check in checks.iter().filter(|it| it.is_command) {
        let Some(command) = check.fix.as_deref() else {
            continue;
        };
        // A container's root may have no sudo.
        let command = command
            .strip_prefix("sudo ")
            .filter(|_| is_root)
            .unwrap_or(command);
        write!(
            out,
            "{}: {}\nrun '{command}'? [y/N] ",
            check.name, check.found
        )?;
        out.flush()?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            continue;
        }
        let status = Command::new("sh").args(["-c", command]).status()?;
        if !status.success() {
            writeln!(out, "'{command}' failed: {status}")?;
        }
        has_run = true;
    }
    Ok(has_run)
}

fn is_usable(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.status != Status::Missing)
}

/// One line per check, one more for its fix, and the verdict. Text shared by several checks is printed once.
fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    for (n, check) in checks.iter().enumerate() {
        let before = &checks[..n];
        let status = check.status.to_string();
        let found = before.iter().fold(check.found.clone(), |found, it| {
            found.replace(&format!(" ({})", it.found), "")
        });
        text += &format!("{status:<9} {:<20} {found}\n", check.name);
        if let Some(fix) = &check.fix
            && before.iter().all(|it| it.fix.as_ref() != Some(fix))
        {
            text += &format!("{:30} fix: {fix}\n", "");
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (degraded, missing) = (count(Status::Degraded), count(Status::Missing));
    text += &match (missing, degraded) {
        (0, 0) => "\nready to record\n".to_owned(),
        (0, n) => format!("\nready to record, {n} degraded\n"),
        (n, _) => format!("\nnot ready to record: {n} missing\n"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::host::fixtures;

    /// The text has every check with its fix, and the verdict.
    #[test]
    fn text_and_verdict() {
        let mut facts = Facts::able(fixtures::bare_guest());
        let checks = evaluate(&facts);
        assert!(is_usable(&checks), "{}", text(&checks));
        assert!(
            text(&checks).contains("\nready to record, "),
            "{}",
            text(&checks)
        );
        // Three checks depend on it.
        let shown = text(&checks);
        for once in ["no hardware PMU here", "give the guest a virtual PMU"] {
            assert_eq!(shown.matches(once).count(), 1, "{shown}");
        }

        facts.ring_buffer = Answer::No("invalid argument".into());
        let checks = evaluate(&facts);
        assert!(!is_usable(&checks));
        let text = text(&checks);
        assert!(text.contains("missing   ring buffer"), "{text}");
        assert!(
            text.contains("fix: ") && text.ends_with("not ready to record: 1 missing\n"),
            "{text}"
        );
    }

    /// JSON has the same content as the text.
    #[test]
    fn json_has_the_same() {
        let checks = evaluate(&Facts::able(fixtures::skylake()));
        let report = Report {
            usable: is_usable(&checks),
            checks: &checks,
        };
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(json["usable"], true);
        assert_eq!(json["checks"].as_array().unwrap().len(), checks.len());
        assert_eq!(json["checks"][0]["status"], "ok");
    }

    /// A command is run only if that is agreed to; other fixes are never asked for.
    #[test]
    fn fixes_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let check = |name: &'static str| {
            Check::degraded(name, "low", &format!("touch {}", file(name).display()))
        };
        let checks = [
            check("step"),
            check("no").by_command(),
            check("yes").by_command(),
            check("end").by_command(),
        ];
        let mut out = Vec::new();
        let has_run = fix(&checks, &mut "\ny\n".as_bytes(), &mut out).unwrap();
        assert!(has_run && file("yes").exists());
        assert!(["step", "no", "end"].iter().all(|it| !file(it).exists()));
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.starts_with("no: low\nrun 'touch ") && !out.contains("step"),
            "{out}"
        );
        assert!(!fix(&checks, &mut "".as_bytes(), &mut Vec::new()).unwrap());
    }

    /// On the machine that runs the tests, as root, the software events at least work.
    #[test]
    fn this_machine() {
        if let Some(missing) = crate::limits::missing_privileges() {
            eprintln!("SKIP {missing}");
            return;
        }
        let checks = evaluate(&Facts::gather());
        assert!(is_usable(&checks), "{}", text(&checks));
    }
}
