//! `cargo xtask ci`: the checks that have to pass before a change is merged.

use std::fs::File;
use std::io::{self, Seek as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::toolchain::{self, Core};
use crate::{demo, fuzz, kernels, modules, mysteries, setup, shell, test};

/// Options of `cargo xtask ci`.
#[derive(clap::Args)]
pub struct Args {
    /// Run only this step
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
}

struct Step {
    name: &'static str,
    run: fn() -> Result<()>,
    /// Whether it runs in parallel with the steps around it: its result does not depend on speed.
    beside: bool,
}

impl Step {
    const fn new(name: &'static str, run: fn() -> Result<()>) -> Self {
        Self {
            name,
            run,
            beside: false,
        }
    }

    const fn beside(self) -> Self {
        Self {
            beside: true,
            ..self
        }
    }
}

/// The steps. The guest of the older kernel keeps one CPU busy for minutes: the steps that compile run beside it, first
/// one with a folder of its own, so that the guest's programs, which come first, need not wait for cargo.
const STEPS: [Step; 12] = [
    Step::new("setup", setup::ensure),
    Step::new("dependencies", dependencies).beside(),
    Step::new("format", format),
    Step::new("modules", modules::check),
    Step::new("tests", tests),
    Step::new("demo", demo::small),
    Step::new("mysteries", mysteries::small),
    Step::new("eBPF lints", ebpf_lints),
    Step::new("older kernel", kernels::small).beside(),
    Step::new("fuzzing", fuzz::bounded),
    Step::new("clippy", clippy),
    Step::new("docs", docs),
];

/// Steps that run only if they are named: they take long, and test more than each change needs.
const MORE_STEPS: [Step; 2] = [
    Step::new("software PMU", kernels::pmus),
    Step::new("advisories", advisories),
];

/// Result of a step.
struct Outcome {
    name: &'static str,
    duration: Duration,
    passed: bool,
}

/// Runs every step, also after one failed: one round shows everything.
pub fn main(args: &Args) -> Result<ExitCode> {
    if let Some(name) = &args.step {
        let mut steps = STEPS.iter().chain(&MORE_STEPS);
        let step = steps.find(|step| step.name == name);
        (step.with_context(|| format!("no step '{name}'"))?.run)()?;
        return Ok(ExitCode::SUCCESS);
    }
    let begin = Instant::now();
    let (mut outcomes, mut others) = (Vec::new(), Vec::new());
    for steps in STEPS.chunk_by(|_, next| next.beside) {
        let [step, beside @ ..] = steps else { continue };
        for other in beside {
            others.push(ParallelStep::start(other)?);
        }
        outcomes.push(take(step));
    }
    for other in others {
        outcomes.push(other.finish()?);
    }
    for outcome in &outcomes {
        let verdict = if outcome.passed { "ok" } else { "FAILED" };
        line(outcome.name, outcome.duration, verdict);
    }
    line("all", begin.elapsed(), "");
    Ok(if outcomes.iter().all(|outcome| outcome.passed) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
        name: step.name,
        duration: begin.elapsed(),
        passed: result.is_ok(),
    }
}

/// A step in a separate process.
struct ParallelStep {
    name: &'static str,
    begin: Instant,
    child: Child,
    output: File,
}

impl ParallelStep {
    fn start(step: &Step) -> Result<Self> {
        let output = tempfile::tempfile().context("cannot make a file for a step's output")?;
        let child = Command::new(std::env::current_exe()?)
            .args(["ci", "--step", step.name])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start step '{}'", step.name))?;
        Ok(Self {
            name: step.name,
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

fn tests() -> Result<()> {
    if test::all(&[])? {
        return Ok(());
    }
    bail!("tests failed")
}
