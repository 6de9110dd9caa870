//! `cargo xtask ci`: the checks that have to pass before a change is merged.

use std::fs::File;
use std::io::{self, Seek as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::toolchain::{self, Core};
use crate::{demo, fuzz, kernels, modules, mysteries, setup, shell, test};

/// Options of `cargo xtask ci`.
#[derive(clap::Args)]
pub struct Args {
    /// Run only this step; several times for several steps, one after the other
    #[arg(long = "step", value_name = "NAME")]
    steps: Vec<String>,
}

struct Step {
    name: &'static str,
    run: fn() -> Result<()>,
    place: Place,
}

/// The steps that a step runs in parallel with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// After the step before it.
    After,
    /// Beside the steps around it: its result does not depend on speed.
    Beside,
    /// Beside them, in time that they leave unused. Such steps in a row run one after the other.
    Idle,
}

impl Step {
    const fn new(name: &'static str, run: fn() -> Result<()>) -> Self {
        Self {
            name,
            run,
            place: Place::After,
        }
    }

    const fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }
}

/// The steps. Tests that record wait for their turn and for what they record: half of the CPUs' time is unused then.
const STEPS: [Step; 12] = [
    Step::new("setup", setup::ensure),
    Step::new("dependencies", dependencies).at(Place::Beside),
    Step::new("format", format),
    Step::new("modules", modules::check),
    Step::new("tests", recording_tests),
    Step::new("other tests", other_tests).at(Place::Idle),
    Step::new("clippy", clippy).at(Place::Idle),
    Step::new("docs", docs).at(Place::Idle),
    Step::new("fuzzing", fuzz::bounded).at(Place::Idle),
    Step::new("demo", demo::small),
    Step::new("mysteries", mysteries::small),
    Step::new("eBPF lints", ebpf_lints),
];

/// Steps that run only if they are named: they take long, and test more than each change needs.
const MORE_STEPS: [Step; 3] = [
    Step::new("older kernel", kernels::small),
    Step::new("software PMU", kernels::pmus),
    Step::new("advisories", advisories),
];

/// Result of a step, or of steps in a separate process.
struct Outcome {
    name: String,
    duration: Duration,
    passed: bool,
}

/// Runs every step, also after one failed: one round shows everything.
pub fn main(args: &Args) -> Result<ExitCode> {
    let begin = Instant::now();
    let outcomes = if args.steps.is_empty() {
        all()?
    } else {
        let steps = args.steps.iter().map(|name| {
            let mut steps = STEPS.iter().chain(&MORE_STEPS);
            let step = steps.find(|step| step.name == name);
            step.with_context(|| format!("no step '{name}'"))
        });
        let steps: Vec<&Step> = steps.collect::<Result<_>>()?;
        steps.into_iter().map(take).collect()
    };
    for outcome in &outcomes {
        let verdict = if outcome.passed { "ok" } else { "FAILED" };
        line(&outcome.name, outcome.duration, verdict);
    }
    if args.steps.is_empty() {
        line("all", begin.elapsed(), "");
    }
    Ok(if outcomes.iter().all(|outcome| outcome.passed) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Takes each step, and those that belong beside it.
fn all() -> Result<Vec<Outcome>> {
    let (mut outcomes, mut others) = (Vec::new(), Vec::new());
    for steps in STEPS.chunk_by(|_, next| next.place != Place::After) {
        let [step, beside @ ..] = steps else { continue };
        for row in
            beside.chunk_by(|one, next| (one.place, next.place) == (Place::Idle, Place::Idle))
        {
            others.push(ParallelSteps::start(row)?);
        }
        outcomes.push(take(step));
    }
    for other in others {
        outcomes.push(other.finish()?);
    }
    Ok(outcomes)
}

fn line(name: &str, duration: Duration, verdict: &str) {
    println!(
        "ci: {name:<12} {:>6.1} s  {verdict}",
        duration.as_secs_f64()
    );
}

fn take(step: &Step) -> Outcome {
    eprintln!("== {}", step.name);
    let begin = Instant::now();
    let result = (step.run)();
    if let Err(error) = &result {
        eprintln!("error: {}: {error:#}", step.name);
    }
    Outcome {
        name: step.name.to_owned(),
        duration: begin.elapsed(),
        passed: result.is_ok(),
    }
}

/// Steps in a separate process, one after the other.
struct ParallelSteps {
    name: String,
    begin: Instant,
    child: Child,
    output: File,
}

impl ParallelSteps {
    fn start(steps: &[Step]) -> Result<Self> {
        let names: Vec<&str> = steps.iter().map(|it| it.name).collect();
        let name = names.join(", ");
        let output = tempfile::tempfile().context("cannot make a file for a step's output")?;
        let program = std::env::current_exe()?;
        let mut command = if steps.iter().all(|it| it.place == Place::Idle) {
            let mut command = Command::new("chrt");
            command.args(["--idle", "0"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        let child = command
            .arg("ci")
            .args(names.iter().flat_map(|it| ["--step", it]))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start '{name}'"))?;
        Ok(Self {
            name,
            begin: Instant::now(),
            child,
            output,
        })
    }

    fn finish(mut self) -> Result<Outcome> {
        let status = self.child.wait()?;
        eprintln!("== {} (beside)", self.name);
        self.output.rewind()?;
        io::copy(&mut self.output, &mut io::stderr())?;
        Ok(Outcome {
            name: self.name,
            duration: self.begin.elapsed(),
            passed: status.success(),
        })
    }
}

fn format() -> Result<()> {
    shell::run(&mut shell::cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    let mut command = shell::cargo(&["clippy", "--locked", "--all-targets"]);
    command
        .args(shell::WHOLE)
        .args(["--", "--deny", "warnings"]);
    shell::run(&mut command)
}

/// Compiles the eBPF programs with warnings as errors: with clippy where the compiler that has a
/// `core` for the target has one too, else with the compiler's own lints.
pub fn ebpf_lints() -> Result<()> {
    let compiler = toolchain::find_compiler(None).context("no rustc for eBPF")?;
    let linker = toolchain::find_linker().context("no bpf-linker")?;
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let has_clippy =
        compiler.core == Core::BuildStd && compiler.rustc.with_file_name("cargo-clippy").is_file();
    let mut command = toolchain::cargo_command(&compiler, &linker, &cargo, &["-Dwarnings"]);
    command
        .current_dir(shell::workspace())
        .arg(if has_clippy { "clippy" } else { "check" })
        .args(["--release", "--locked", "--package", "pebs-ebpf"])
        .args(toolchain::target_args(&compiler))
        .arg("--target-dir")
        .arg(shell::target_dir()?.join("ebpf-lints"));
    shell::run(&mut command)
}

/// Licences and sources of all crates, as `.cargo/deny.toml` accepts them.
fn dependencies() -> Result<()> {
    deny(&["--locked", "check", "licenses", "bans", "sources"])
}

/// Advisories about all crates: they come from the network, and can fail a change that has nothing to do with them.
fn advisories() -> Result<()> {
    deny(&["--locked", "check", "advisories"])
}

fn deny(args: &[&str]) -> Result<()> {
    let place = shell::tools_dir().join("cargo-deny");
    let program = place.join("bin/cargo-deny");
    if !program.exists() {
        let mut install = shell::cargo(&["install", "--locked", "--debug", "cargo-deny", "--root"]);
        shell::run(install.arg(&place))?;
    }
    let mut check = Command::new(program);
    check.current_dir(shell::workspace());
    shell::run(check.args(args))
}

fn docs() -> Result<()> {
    let mut command = shell::cargo(&["doc", "--locked", "--no-deps", "--document-private-items"]);
    command
        .args(shell::WHOLE)
        .env("RUSTDOCFLAGS", "--deny warnings");
    shell::run(&mut command)
}

/// The tests of whole recordings.
fn recording_tests() -> Result<()> {
    passed(test::recording()?)
}

/// All others, none of which depends on speed.
fn other_tests() -> Result<()> {
    passed(test::other()?)
}

fn passed(all: bool) -> Result<()> {
    anyhow::ensure!(all, "tests failed");
    Ok(())
}
