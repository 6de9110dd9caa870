//! Development tasks: `cargo xtask setup | demo | test | fuzz | ci | bench | accuracy | overhead | papers | prefork | presets |
//! servers | suggest | exits | mysteries | counterminer | fleet | soak | kernels | modules | events | dist`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pebs_experiments::frame::{recorder, shell};
use pebs_experiments::{
    accuracy, bench, counterminer, fleet, mysteries, overhead, papers, servers, soak, stacks,
};

mod ci;
mod demo;
mod dist;
#[cfg(test)]
mod documented;
mod events;
mod exits;
mod fuzz;
mod kernels;
mod modules;
mod setup;
mod test;
#[path = "../../pebs-user/build/toolchain.rs"]
mod toolchain;

/// Development tasks of pebs-trace
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Find or install what building, the demo and the tests need
    Setup(setup::Args),
    /// Trace Debian's redis-server under load and check the report
    Demo(demo::Args),
    /// Run every test, those on the real kernel included
    Test(test::Args),
    /// Feed mutated bytes to every reader of foreign data
    Fuzz(fuzz::Args),
    /// Run all checks that must pass before a merge
    Ci(ci::Args),
    /// Measure marks, samples and imports beside perf and bpftrace, and queries of a long trace
    Bench(bench::Args),
    /// Measure bias and error of both estimates against known truth
    Accuracy(accuracy::Args),
    /// Compare the measured cost of sampling with the predicted cost
    Overhead(overhead::Args),
    /// Measure the papers' figures with pebs-trace, beside the published ones
    Papers(papers::Args),
    /// Record Debian's servers that fork for each request, and check that they work as without
    Prefork(servers::prefork::Args),
    /// Record Debian's servers with the preset that fits, and compare texts and causes with the client's log
    Presets(servers::presets::Args),
    /// Record Debian's servers under a known load, and compare what is said with what is seen
    Servers(servers::stock::Args),
    /// Compares call stacks of stock programs with perf's
    Stacks(stacks::Args),
    /// Show which module of pebs-user imports which
    Modules(modules::Args),
    /// Count the cost of marking function exits in Debian's binaries
    Exits(exits::Args),
    /// Ask for items of Debian's servers under load, and score the suggestions
    Suggest(servers::suggest::Args),
    /// Explain generated servers with hidden causes, and score the tool
    Mysteries(mysteries::Args),
    /// Clean and rank event counts of real programs, and compare with known facts
    Counterminer(counterminer::Args),
    /// Record servers with an agent each, and find the slow host in their lake, also with Spark
    Fleet(fleet::Args),
    /// Run the tests of the real kernel on Debian's older and newer kernels, in QEMU
    Kernels(kernels::Args),
    /// Run the steps of a guest of `kernels`
    #[command(hide = true)]
    Guest,
    /// Generate the table of Intel's events from the vendor's lists
    Events(events::Args),
    /// Record at the highest rate for minutes, and check ledger, memory and trace
    Soak(soak::Args),
    /// Pack the program with its man pages and completions into target/dist
    Dist(dist::Args),
}

fn main() -> ExitCode {
    if kernels::guest::is_init() {
        return kernels::guest::init();
    }
    let result = match Cli::parse().task {
        Task::Setup(args) => setup::main(&args),
        Task::Demo(args) => demo::main(&args),
        Task::Test(args) => test::main(&args),
        Task::Fuzz(args) => fuzz::main(&args),
        Task::Ci(args) => ci::main(&args),
        Task::Bench(args) => setup::ensure().and_then(|()| bench::main(&args)),
        Task::Accuracy(args) => setup::ensure().and_then(|()| accuracy::main(&args)),
        Task::Overhead(args) => setup::ensure().and_then(|()| overhead::main(&args)),
        Task::Papers(args) => setup::ensure().and_then(|()| papers::main(&args)),
        Task::Prefork(args) => servers::prefork::main(&args),
        Task::Presets(args) => servers::presets::main(&args),
        Task::Servers(args) => servers::stock::main(&args),
        Task::Suggest(args) => servers::suggest::main(&args),
        Task::Stacks(args) => stacks::main(&args),
        Task::Modules(args) => modules::main(&args).map(|()| ExitCode::SUCCESS),
        Task::Exits(args) => exits::main(&args).map(|()| ExitCode::SUCCESS),
        Task::Mysteries(args) => mysteries::main(&args),
        Task::Counterminer(args) => counterminer::main(&args),
        Task::Fleet(args) => setup::ensure()
            .and_then(|()| setup::spark())
            .and_then(|()| fleet::main(&args)),
        Task::Kernels(args) => kernels::main(&args),
        Task::Guest => kernels::guest::work(),
        Task::Events(args) => events::main(&args).map(|()| ExitCode::SUCCESS),
        Task::Soak(args) => setup::ensure().and_then(|()| soak::main(&args)),
        Task::Dist(args) => dist::main(&args).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
