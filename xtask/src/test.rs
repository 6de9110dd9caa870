//! `cargo xtask test`: every test, those on the real kernel included.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{recorder, setup, shell};

/// Names the Python, with duckdb and pandas, of the tests that read traces as users do.
const PYTHON_ENV: &str = "PEBS_TRACE_PYTHON";

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// Passed on to cargo test: packages, filters
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    setup::ensure()?;
    Ok(if all(&args.rest)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds and runs the tests, prints the counts, and says whether all passed.
///
/// Everything is compiled as the user; only the test programs run as root, which the kernel
/// asks for.
pub fn all(rest: &[String]) -> Result<bool> {
    recorder::build(false)?;
    let mut command = shell::cargo(&["test", "--no-fail-fast"]);
    if !rest
        .iter()
        .any(|arg| arg == "-p" || arg.starts_with("--package"))
    {
        command.args(shell::WHOLE);
    }
    command.args(rest);
    if !rest.iter().any(|arg| arg == "--") {
        command.arg("--");
    }
    command.arg("--show-output");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(python) = setup::readers() {
        command.env(PYTHON_ENV, python);
    }
    if !shell::is_root() {
        command.env(runner_variable(), shell::root_prefix());
    }
    eprintln!("$ {}", shell::display(&command));
    let begin = Instant::now();
    let mut child = command.spawn().context("cannot run cargo test")?;
    let stdout = child.stdout.take().context("no stdout")?;
    let stderr = child.stderr.take().context("no stderr")?;
    let skips = std::thread::spawn(move || pass_on(stderr, std::io::stderr()));
    let mut counts = Counts::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if counts.read(&line) {
            println!("{line}");
        }
    }
    let passed = child.wait()?.success();
    counts.skipped.extend(skips.join().unwrap_or_default());
    println!("{} in {:.0?}", counts.summary(), begin.elapsed());
    Ok(passed && counts.failed == 0)
}

/// Passes stderr on; gives the reasons of tests that skipped themselves past the test runner.
fn pass_on(stderr: impl Read, mut to: impl Write) -> Vec<String> {
    let mut skipped = Vec::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        // Nobody may be reading any more.
        let _ = writeln!(to, "{line}");
        if line.starts_with("SKIP ") {
            skipped.push(line);
        }
    }
    skipped
}

/// The variable that names a program which cargo runs test programs with.
fn runner_variable() -> String {
    format!(
        "CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER",
        std::env::consts::ARCH.to_uppercase()
    )
}

/// Sums over all test programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Skipped ones among them.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    ignored: u64,
    /// Reasons of the tests that passed only because what they need is not here.
    pub skipped: Vec<String>,
    /// Inside the output of tests that passed.
    in_output: bool,
}

impl Counts {
    /// Takes a line of a test program's output, and says whether it is worth showing: the output
    /// of tests that passed is not, but for the reason why one was skipped.
    pub fn read(&mut self, line: &str) -> bool {
        let trimmed = line.trim_start();
        let is_skip = trimmed.starts_with("SKIP ");
        if is_skip {
            self.skipped.push(trimmed.to_owned());
        } else if let Some(result) = trimmed.strip_prefix("test result: ") {
            self.in_output = false;
            self.add(result);
        } else if line == "successes:" {
            self.in_output = true;
        } else if line == "failures:" || line.starts_with("running ") {
            self.in_output = false;
        }
        is_skip || !(self.in_output || line.is_empty())
    }

    /// Adds `ok. 12 passed; 0 failed; 1 ignored; ...`.
    fn add(&mut self, result: &str) {
        for part in result.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(n)), Some(what)) = (words.next().map(str::parse::<u64>), words.next())
            else {
                continue;
            };
            match what {
                "passed" => self.passed += n,
                "failed" => self.failed += n,
                "ignored" => self.ignored += n,
                _ => {}
            }
        }
    }

    /// `12 passed, 0 failed, 1 skipped`.
    pub fn figures(&self) -> String {
        // A skipped test counts as passed for the test program.
        let ran = self.passed.saturating_sub(self.skipped.len() as u64);
        let (failed, skipped) = (self.failed, self.skipped.len());
        format!("{ran} passed, {failed} failed, {skipped} skipped")
    }

    fn summary(&self) -> String {
        format!("tests: {}, {} ignored", self.figures(), self.ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Skips that go past the test runner are found among what it says.
    #[test]
    fn skips_on_stderr() {
        let text = "   Compiling x\nSKIP no hardware PMU (cycles)\nwarning: y\n";
        let mut passed_on = Vec::new();
        let skipped = pass_on(text.as_bytes(), &mut passed_on);
        assert_eq!(skipped, ["SKIP no hardware PMU (cycles)"]);
        assert_eq!(passed_on, text.as_bytes());
    }

    /// Counts are summed, shown output is that of failures, and skips are not passes.
    #[test]
    fn counts() {
        let mut counts = Counts::default();
        let output = "running 2 tests\ntest a ... ok\n\nsuccesses:\n\n---- a stdout ----\nnoise\n\
            SKIP no PMU\n\nsuccesses:\n    a\n\nfailures:\n\n---- b stdout ----\nwhy\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n\
            running 5 tests\ntest result: ok. 4 passed; 0 failed; 1 ignored; 0 measured\n";
        let shown: Vec<&str> = output.lines().filter(|line| counts.read(line)).collect();
        assert!(!shown.contains(&"noise"));
        assert!(shown.contains(&"why") && shown.contains(&"SKIP no PMU"));
        assert_eq!(
            counts.summary(),
            "tests: 4 passed, 1 failed, 1 skipped, 1 ignored"
        );
    }
}
