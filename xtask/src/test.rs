//! `cargo xtask test`: every test, those on the real kernel included, or those of one area.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{ci, recorder, setup, shell};

pub mod area;

use area::Part;

/// Names the Python, with duckdb and pandas, of the tests that read traces as users do.
const PYTHON_ENV: &str = "PEBS_TRACE_PYTHON";

/// The package of the tests that record.
const TESTS: &str = "pebs-tests";

/// Largest number of failed tests on the real kernel that are run again, of about 300: more are no coincidence.
const MAX_AGAIN: usize = 8;
/// Number of times that such a test has to pass alone, and after how many failures it has failed.
const TIMES_AGAIN: u32 = 2;

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// Areas to test: modules of pebs-user, files of tests/tests/kernel, packages; or options for cargo test
    ///
    /// Without any, everything is tested. What has the name of an area is tested together: `waits` is
    /// tests/tests/kernel/waits.rs, `import` a module and the program of tests of that name. An unknown name lists all.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "AREA"
    )]
    rest: Vec<String>,
}

impl Args {
    /// The areas to test; none: everything, with arguments of cargo test.
    pub fn areas(&self) -> &[String] {
        match self.rest.first() {
            Some(first) if !first.starts_with('-') => &self.rest,
            _ => &[],
        }
    }
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let passed = match args.areas() {
        [] => {
            setup::ensure()?;
            all(&args.rest)?
        }
        names => areas(names)?,
    };
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds and runs the tests, prints the counts, and returns whether all passed.
///
/// Everything is compiled as the user; only the test programs run as root, as the kernel requires.
fn all(rest: &[String]) -> Result<bool> {
    recorder::build(false)?;
    with_second_tries(rest)
}

/// The test programs of the package of tests, all of which record, import or read whole traces.
pub fn recording() -> Result<bool> {
    recorder::build(false)?;
    with_second_tries(&programs(|package| package == TESTS)?)
}

/// Runs the tests that [`recording`] leaves: unit tests, examples in the documentation, and test programs of other
/// packages.
pub fn other() -> Result<bool> {
    recorder::build(false)?;
    let args = ["--lib", "--bins"].map(str::to_owned);
    let args = [args.into(), programs(|package| package != TESTS)?].concat();
    let (passed, _) = run(&args)?;
    let (examples, _) = run(&["--doc"])?;
    Ok(passed && examples)
}

/// Arguments of cargo test for the test programs of packages, within the whole workspace: for a single package cargo compiles
/// everything with other features.
fn programs(is_of: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let names = area::programs(is_of)?.into_iter();
    Ok(names.flat_map(|name| ["--test".to_owned(), name]).collect())
}

/// Runs tests, and those that failed again by themselves.
fn with_second_tries(args: &[impl AsRef<str>]) -> Result<bool> {
    let (passed, counts) = run(args)?;
    if passed || !counts.is_whole() {
        return Ok(passed);
    }
    pass_alone(&counts.failures)
}

/// Builds and runs the tests of some areas, and returns whether all passed.
///
/// Each package is compiled with the features that it has in the whole workspace, so that nothing is compiled twice.
fn areas(names: &[String]) -> Result<bool> {
    let all = area::all()?;
    let mut parts = Vec::new();
    for name in names {
        let Some(found) = all.get(name) else {
            let known: Vec<&str> = all.keys().map(String::as_str).collect();
            bail!("no area '{name}'; there are {}", known.join(", "));
        };
        parts.extend_from_slice(found);
    }
    parts.sort_unstable();
    parts.dedup();
    let programs: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Program { package, name, .. } if package == TESTS => Some(&**name),
            _ => None,
        })
        .collect();
    if !programs.is_empty() {
        // They run the command and the examples.
        let mut command = shell::cargo(&["build", "--bin", "pebs-trace", "--examples"]);
        command.args(shell::WHOLE);
        shell::run(command.args(programs.iter().flat_map(|name| ["--test", name])))?;
    }
    let mut passed = true;
    for part in &parts {
        passed &= run_part(part)?;
    }
    Ok(passed)
}

fn run_part(part: &Part) -> Result<bool> {
    let of_module = |module: &str| format!("{module}::");
    let (passed, _) = match part {
        Part::Module(module) => run(&["--lib", "--", &of_module(module)])?,
        Part::Program { name, module, .. } => match module {
            Some(module) => run(&["--test", name, "--", &of_module(module)])?,
            None => run(&["--test", name])?,
        },
        Part::Package(package) => run(&["--package", package])?,
        Part::KernelPrograms { loaded_by } => {
            ci::ebpf_lints()?;
            return run_part(&Part::Module((*loaded_by).to_owned()));
        }
    };
    Ok(passed)
}

/// Whether tests that failed beside others pass alone: twice, before they fail twice. They are reported as flaky, and
/// their output stays above.
///
/// Only tests on the real kernel may: a host that takes a CPU away for long is not a fault of the tool. A test of any
/// other name is not in these programs, so that fewer tests pass than were requested.
fn pass_alone(failures: &[String]) -> Result<bool> {
    if failures.is_empty() || failures.len() > MAX_AGAIN {
        return Ok(false);
    }
    let alone = ["--", "--test-threads=1", "--exact"].map(str::to_owned);
    let alone = [programs(|package| package == TESTS)?, alone.into()].concat();
    let mut open: Vec<Again<'_>> = failures.iter().map(|name| Again::new(name)).collect();
    let mut is_right = true;
    for round in 1.. {
        let names: Vec<&str> = open.iter().map(|it| it.name).collect();
        eprintln!("== again, by themselves (round {round}): {names:?}");
        let names = names.into_iter().map(str::to_owned);
        let args: Vec<String> = alone.iter().cloned().chain(names).collect();
        let (_, counts) = run(&args)?;
        if !counts.is_whole() || counts.ran() + counts.failed < open.len() as u64 {
            return Ok(false);
        }
        for it in &mut open {
            it.count(&counts.failures);
        }
        let decided = open.extract_if(.., |it| it.verdict().is_some());
        for it in decided {
            is_right &= it.verdict() == Some(true);
            println!("{it}");
        }
        if open.is_empty() {
            break;
        }
    }
    Ok(is_right)
}

/// A test that failed beside others, and how it does by itself.
#[derive(Debug)]
struct Again<'a> {
    name: &'a str,
    passed: u32,
    failed: u32,
}

impl<'a> Again<'a> {
    const fn new(name: &'a str) -> Self {
        Self {
            name,
            passed: 0,
            failed: 0,
        }
    }

    /// Adds a run, given the names of the tests that failed in it.
    fn count(&mut self, failures: &[String]) {
        if failures.iter().any(|it| it == self.name) {
            self.failed += 1;
        } else {
            self.passed += 1;
        }
    }

    /// Whether it passes, once that is decided.
    const fn verdict(&self) -> Option<bool> {
        match (self.passed >= TIMES_AGAIN, self.failed >= TIMES_AGAIN) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }
}

impl fmt::Display for Again<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict() {
            Some(false) => "BROKEN",
            _ => "FLAKY",
        };
        let (name, passed) = (self.name, self.passed);
        let times = passed + self.failed;
        write!(
            f,
            "{verdict} {name}: failed beside others, passed {passed} of {times} times by itself"
        )
    }
}

/// One run of cargo test.
fn run<S: AsRef<str>>(rest: &[S]) -> Result<(bool, Counts)> {
    let rest: Vec<&str> = rest.iter().map(S::as_ref).collect();
    let mut command = shell::cargo(&["test", "--no-fail-fast"]);
    if !rest
        .iter()
        .any(|arg| *arg == "-p" || arg.starts_with("--package"))
    {
        command.args(shell::WHOLE);
    }
    command.args(&rest);
    if !rest.contains(&"--") {
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
    Ok((passed && counts.failed == 0, counts))
}

/// Passes stderr on; returns the reasons of skipped tests, which bypass the test runner.
fn pass_on(stderr: impl Read, mut to: impl Write) -> Vec<String> {
    let mut skipped = Vec::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        // The reader may be gone.
        let _ = writeln!(to, "{line}");
        if line.starts_with("SKIP ") {
            skipped.push(line);
        }
    }
    skipped
}

/// The environment variable that names cargo's runner of test programs.
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
    pub failed: u64,
    ignored: u64,
    /// Reasons of the tests that passed only because a prerequisite is missing.
    pub skipped: Vec<String>,
    /// Names of the tests that failed.
    pub failures: Vec<String>,
    /// Number of test programs that began without reporting a result: they died.
    unfinished: i64,
    /// Inside the output of tests that passed.
    in_output: bool,
}

impl Counts {
    /// Parses a line of a test program's output, and returns whether to show it: the output of passing tests is not
    /// shown, except for the reason of a skip.
    pub fn read(&mut self, line: &str) -> bool {
        let trimmed = line.trim_start();
        let is_skip = trimmed.starts_with("SKIP ");
        if is_skip {
            self.skipped.push(trimmed.to_owned());
        } else if let Some(result) = trimmed.strip_prefix("test result: ") {
            self.in_output = false;
            self.unfinished -= 1;
            self.add(result);
        } else if line == "successes:" {
            self.in_output = true;
        } else if line.starts_with("running ") {
            self.in_output = false;
            self.unfinished += 1;
        } else if line == "failures:" {
            self.in_output = false;
        } else if !self.in_output {
            self.failures.extend(failure(line));
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

    /// Whether each failure has a name, and no test program died.
    fn is_whole(&self) -> bool {
        self.unfinished == 0 && self.failures.len() as u64 == self.failed
    }

    /// Tests that passed; for the test program a skipped one did, too.
    fn ran(&self) -> u64 {
        self.passed.saturating_sub(self.skipped.len() as u64)
    }

    /// `12 passed, 0 failed, 1 skipped`.
    pub fn figures(&self) -> String {
        let (ran, failed, skipped) = (self.ran(), self.failed, self.skipped.len());
        format!("{ran} passed, {failed} failed, {skipped} skipped")
    }

    fn summary(&self) -> String {
        format!("tests: {}, {} ignored", self.figures(), self.ignored)
    }
}

/// The name of the test that a line reports as failed.
fn failure(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.trim_end_matches(" - should panic").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test passes by itself if it passes twice before it fails twice.
    #[test]
    fn twice_by_itself() {
        let runs = |passes: &[bool]| {
            let mut again = Again::new("a::b");
            for passes in passes {
                assert_eq!(again.verdict(), None);
                let other = if *passes { "a" } else { "a::b" };
                again.count(&[other.to_owned()]);
            }
            (again.verdict(), again.to_string())
        };
        let (verdict, text) = runs(&[true, false, true]);
        assert_eq!(verdict, Some(true));
        assert_eq!(
            text,
            "FLAKY a::b: failed beside others, passed 2 of 3 times by itself"
        );
        assert_eq!(runs(&[false, true, false]).0, Some(false));
        assert_eq!(runs(&[true, true]).0, Some(true));
        assert_eq!(runs(&[false, false]).0, Some(false));
        assert_eq!(runs(&[true]).0, None);
    }

    /// SKIP lines, which bypass the test runner, are found in the output.
    #[test]
    fn skips_on_stderr() {
        let text = "   Compiling x\nSKIP no hardware PMU (cycles)\nwarning: y\n";
        let mut passed_on = Vec::new();
        let skipped = pass_on(text.as_bytes(), &mut passed_on);
        assert_eq!(skipped, ["SKIP no hardware PMU (cycles)"]);
        assert_eq!(passed_on, text.as_bytes());
    }

    /// Failures are run again by name, unless a program died, or one of them has no name.
    #[test]
    fn failures() {
        let mut counts = Counts::default();
        let begin = "running 2 tests\ntest a::b ... FAILED\ntest c ... ok\n\nsuccesses:\n\n---- c stdout ----\n\
            test d ... FAILED\n\nfailures:\n\n---- a::b stdout ----\nwhy\n";
        for line in begin.lines() {
            counts.read(line);
        }
        assert!(!counts.is_whole());
        counts.read("test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured");
        assert_eq!(counts.failures, ["a::b"]);
        assert!(counts.is_whole());
        counts.read("test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured");
        assert!(!counts.is_whole());
    }

    /// Counts are summed, only output of failures is shown, and skips are not passes.
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
