//! `cargo xtask ci`: what has to pass before a change is merged.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::toolchain::{self, Core};
use crate::{demo, fuzz, kernels, setup, shell, test};

/// One step.
struct Step {
    name: &'static str,
    run: fn() -> Result<()>,
}

/// The steps, cheap ones first.
const STEPS: [Step; 9] = [
    Step {
        name: "setup",
        run: setup::ensure,
    },
    Step {
        name: "format",
        run: format,
    },
    Step {
        name: "clippy",
        run: clippy,
    },
    Step {
        name: "eBPF lints",
        run: ebpf_lints,
    },
    Step {
        name: "docs",
        run: docs,
    },
    Step {
        name: "tests",
        run: tests,
    },
    Step {
        name: "fuzzing",
        run: fuzz::bounded,
    },
    Step {
        name: "demo",
        run: demo::small,
    },
    Step {
        name: "older kernel",
        run: kernels::small,
    },
];

/// Runs every step, also after one failed: one round shows everything.
pub fn main() -> Result<ExitCode> {
    let mut results = Vec::new();
    for step in &STEPS {
        eprintln!("== {}", step.name);
        let begin = Instant::now();
        let result = (step.run)();
        if let Err(error) = &result {
            eprintln!("error: {}: {error:#}", step.name);
        }
        results.push((step.name, begin.elapsed(), result.is_ok()));
    }
    for &(name, duration, passed) in &results {
        let verdict = if passed { "ok" } else { "FAILED" };
        println!(
            "ci: {name:<12} {:>6.1} s  {verdict}",
            duration.as_secs_f64()
        );
    }
    let total: Duration = results.iter().map(|(_, duration, _)| *duration).sum();
    println!("ci: {:<12} {:>6.1} s", "all", total.as_secs_f64());
    let passed = results.iter().all(|(_, _, passed)| *passed);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
fn ebpf_lints() -> Result<()> {
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

fn docs() -> Result<()> {
    let mut command = shell::cargo(&["doc", "--locked", "--no-deps"]);
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
