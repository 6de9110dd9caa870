//! `cargo xtask kernels`: the tests of the real kernel on Debian's older and newer kernels.
//!
//! Each kernel is booted by QEMU with an image that holds only the tool, the test program, the workloads and their
//! libraries: no disk, no network, no module except, on request, a PMU in software (`tests/softpmu`). The guest is this
//! program again, as process 1. Every step in the guest has a time limit, and so has the machine.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::toolchain::find_program;
use crate::{recorder, setup};
use contents::Contents;
use machine::Machine;
use outcome::Outcome;
use packages::{Kernel, Packages};
use softpmu::Pmu;

mod aarch64;
mod contents;
mod cpio;
pub mod guest;
mod machine;
mod outcome;
mod packages;
mod softpmu;

/// Kernels that run by default: from one that recording has to refuse to the newest of Debian.
const VERSIONS: [&str; 4] = ["5.10", "6.1", "6.12", packages::NEWEST];

/// The emulator; part of Debian's `qemu-system-x86`.
pub const QEMU: &str = "qemu-system-x86_64";

/// The kernel that `ci` runs.
const CI_VERSION: &str = "6.1";

/// Tests that `ci` runs on it: each kind of record, and loss.
const CI_TESTS: [&str; 5] = [
    "accounts::loss_is_what_the_ledger_says",
    "arguments::named_arguments",
    "ends::exec_within_an_item",
    "processes::fork_of_a_process",
    "waits::waits_name_their_function",
];

/// Tests that give the target a fixed time, which may be too short for an emulated one.
const TOO_SLOW: [&str; 4] = [
    "binaries::target_runs_on",
    "ends::command_that_is_terminated",
    "ends::killed",
    "sampling::query_figure_8",
];

/// Time limit from power-on to power-off: many times the two minutes that it takes beside other steps, as it must not
/// fail because others have the CPUs.
const CI_LIMIT: Duration = Duration::from_secs(1800);

/// Time limit of the guest with a PMU in software: twice its time beside other work.
const PMU_LIMIT: Duration = Duration::from_secs(3600);

/// The test program of a guest without a PMU, and of one with.
const TESTS: &str = "kernel";
/// See [`TESTS`].
const PMU_TESTS: &str = "pebs";

/// Options of `cargo xtask kernels`.
#[derive(clap::Args)]
pub struct Args {
    /// Versions of Debian kernels, such as 6.1, or newest; default: 5.10 6.1 6.12 newest, of aarch64 6.1 6.12
    versions: Vec<String>,
    /// Run only tests whose name contains this; may be given several times
    #[arg(long = "test", value_name = "NAME")]
    tests: Vec<String>,
    /// Architecture of the guest; aarch64 is emulated, with recordings of known work in place of the tests
    #[arg(long, value_enum, default_value_t)]
    arch: Arch,
    /// How to execute the guest's instructions
    #[arg(long, value_enum, default_value_t)]
    accel: Accel,
    /// Give the guest a software PMU and run the tests of precise sampling; for 6.12 only
    #[arg(long, value_enum)]
    pmu: Option<Pmu>,
    /// Number of CPUs of the guest; with several under tcg, a kernel that patches its own code may fail
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// Time limit for one kernel, from power-on to power-off
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    limit: u64,
}

/// Architecture of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    #[default]
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

/// Execution of the guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// QEMU's emulation: works everywhere, about ten times slower
    #[default]
    Tcg,
    /// The CPU: needs a working /dev/kvm
    Kvm,
}

/// Options of one round over some kernels.
struct Round {
    tests: Vec<String>,
    accel: Accel,
    cpus: u32,
    pmu: Option<Pmu>,
    limit: Duration,
}

impl Round {
    /// Arguments of the test program.
    fn test_arguments(&self) -> Vec<String> {
        // With several threads libtest prints a test's line at once, so that other output does not split it.
        let mut arguments = vec!["--test-threads=2".to_owned()];
        arguments.extend_from_slice(&self.tests);
        if self.accel == Accel::Tcg {
            for test in TOO_SLOW {
                arguments.extend(["--skip".to_owned(), test.to_owned()]);
            }
        }
        arguments
    }
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    setup::ensure()?;
    let limit = Duration::from_secs(60 * args.limit.max(1));
    if args.arch == Arch::Aarch64 {
        let versions: Vec<&str> = match &args.versions[..] {
            [] => aarch64::VERSIONS.to_vec(),
            versions => versions.iter().map(String::as_str).collect(),
        };
        return Ok(match aarch64::run(&versions, limit)? {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        });
    }
    let versions: Vec<&str> = match (args.pmu, &args.versions[..]) {
        (Some(_), []) => vec![softpmu::VERSION],
        (None, []) => VERSIONS.to_vec(),
        (_, versions) => versions.iter().map(String::as_str).collect(),
    };
    let round = Round {
        tests: args.tests.clone(),
        accel: args.accel,
        cpus: args.cpus.max(args.pmu.map_or(1, Pmu::cpus)),
        pmu: args.pmu,
        limit,
    };
    Ok(if run(&versions, &round)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// One kernel and a few tests, for `ci`.
pub fn small() -> Result<()> {
    let round = Round {
        tests: CI_TESTS.map(str::to_owned).to_vec(),
        accel: Accel::Tcg,
        cpus: 1,
        pmu: None,
        limit: CI_LIMIT,
    };
    if run(&[CI_VERSION], &round)? {
        return Ok(());
    }
    bail!("failed on Linux {CI_VERSION}")
}

/// The tests of precise sampling with each PMU in software, for `ci`. One table has the result of each, even after one
/// failed.
pub fn pmus() -> Result<()> {
    let mut failed = Vec::new();
    let mut table = String::new();
    for pmu in [Pmu::Pebs, Pmu::Hybrid, Pmu::Ibs] {
        let round = Round {
            tests: Vec::new(),
            accel: Accel::Tcg,
            cpus: pmu.cpus(),
            pmu: Some(pmu),
            limit: PMU_LIMIT,
        };
        let begin = Instant::now();
        let is_well = run(&[softpmu::VERSION], &round)?;
        let verdict = if is_well { "ok" } else { "FAILED" };
        let seconds = begin.elapsed().as_secs();
        table += &format!(
            "software PMU: {:<7} {seconds:>5} s  {verdict}\n",
            format!("{pmu:?}")
        );
        if !is_well {
            failed.push(format!("{pmu:?}"));
        }
    }
    print!("{table}");
    if !failed.is_empty() {
        bail!("failed with a PMU in software: {}", failed.join(", "));
    }
    Ok(())
}

/// Runs every available kernel, prints the results, and returns whether all is well. An unavailable one is skipped with
/// its reason.
fn run(versions: &[&str], round: &Round) -> Result<bool> {
    let Some(qemu) = find_program(QEMU) else {
        println!("SKIP kernels: no {QEMU} (Debian's qemu-system-x86)");
        return Ok(true);
    };
    // First: the steps beside it need cargo, too.
    let tests = if round.pmu.is_some() {
        PMU_TESTS
    } else {
        TESTS
    };
    let contents = Contents::build(&recorder::build(false)?, tests)?;
    let packages = match Packages::open("amd64") {
        Ok(packages) => packages,
        Err(error) => {
            println!("SKIP kernels: {error:#}");
            return Ok(true);
        }
    };
    let mut kernels = Vec::new();
    for version in versions {
        match packages.kernel(version) {
            Ok(kernel) => kernels.push(kernel),
            Err(error) => println!("SKIP kernel {version}: {error:#}"),
        }
    }
    if kernels.is_empty() {
        return Ok(true);
    }
    let machine = Machine {
        qemu,
        arch: Arch::X86_64,
        accel: round.accel,
        cpus: round.cpus,
        pmu: round.pmu,
    };
    let mut outcomes = Vec::new();
    for kernel in &kernels {
        let module = round.pmu.map(|_| softpmu::build(&packages, kernel));
        let module = module.transpose()?;
        let image = contents.write(&round.test_arguments(), module.as_deref())?;
        let outcome = boot(&machine, kernel, &image, round)?;
        println!("{}", outcome.details());
        outcomes.push(outcome);
    }
    println!("{}", outcome::table(&outcomes));
    if round.accel == Accel::Tcg {
        println!(
            "left out, as they need a machine of usual speed: {}",
            TOO_SLOW.join(", ")
        );
    }
    Ok(outcomes.iter().all(Outcome::is_well))
}

/// Boots one kernel and parses the guest's report.
fn boot(machine: &Machine, kernel: &Kernel, image: &Path, round: &Round) -> Result<Outcome> {
    eprintln!("kernels: booting {}", kernel.release);
    let ran = machine.boot(kernel, image, round.limit)?;
    Ok(Outcome::read(&kernel.release, &ran))
}
