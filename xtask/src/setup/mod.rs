//! `cargo xtask setup`: finds or installs the prerequisites of building, the demo and the tests.
//!
//! An existing piece is left alone, whoever installed it. Root is needed only to install Debian
//! packages.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::ValueEnum;
use pebs_experiments::frame::installed;

use crate::{kernels, toolchain};
use apt::Apt;

mod apt;
mod bpf;
mod browser;
mod dpdk;
mod python;

pub use pebs_experiments::frame::installed::readers;
pub use python::{ensure_spark as spark, make as make_environment};

/// Options of `cargo xtask setup`.
#[derive(clap::Args)]
pub struct Args {
    /// Print what is missing and exit with 1 if anything required is
    #[arg(long)]
    check: bool,
    /// Print only what is installed now
    #[arg(long)]
    quiet: bool,
    /// Leave out what only comparisons and optional tests need
    #[arg(long)]
    required_only: bool,
    /// Leave out what the demo does not use
    #[arg(long)]
    for_demo: bool,
    /// Which rustc to install for the eBPF programs, if none is found
    #[arg(long, value_enum, default_value_t)]
    toolchain: Toolchain,
}

/// Ways to come by a rustc for the eBPF programs.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Toolchain {
    /// Debian's packages if there are any, else rustup's nightly
    #[default]
    Auto,
    /// Debian's rustc-web and libstd-rust-web-dev-bpf
    Debian,
    /// Rustup's nightly with rust-src
    Nightly,
}

/// One prerequisite.
struct Piece {
    name: &'static str,
    /// Users of it.
    purpose: &'static str,
    /// Without it, something that the README promises does not work.
    required: bool,
    /// The demo, with what it builds, uses it.
    for_demo: bool,
    /// Version or path of the installed piece, or `None`.
    find: fn() -> Option<String>,
    /// Way to install it.
    source: Source,
}

enum Source {
    /// Debian packages.
    Packages(&'static [&'static str]),
    /// Anything else.
    Custom(fn(&Means) -> Result<()>),
}

/// Means of installation.
struct Means {
    toolchain: Toolchain,
    apt: Apt,
}

/// Every piece, in the order of installation.
const PIECES: [Piece; 22] = [
    Piece {
        name: "rustc for eBPF",
        purpose: "build",
        required: true,
        for_demo: true,
        find: || toolchain::find_compiler(None).map(|compiler| compiler.to_string()),
        source: Source::Custom(bpf::install_compiler),
    },
    Piece {
        name: "bpf-linker",
        purpose: "build",
        required: true,
        for_demo: true,
        find: || toolchain::find_linker().map(|path| path.display().to_string()),
        source: Source::Custom(bpf::install_linker),
    },
    Piece {
        name: "rustfmt and clippy",
        purpose: "ci",
        required: true,
        for_demo: false,
        find: || program("rustfmt").and(program("cargo-clippy")),
        source: Source::Custom(bpf::install_components),
    },
    Piece {
        name: "C and C++ compilers",
        purpose: "workloads of the tests",
        required: true,
        for_demo: false,
        find: || program("gcc").and(program("g++")),
        source: Source::Packages(&["gcc", "g++", "libc6-dev"]),
    },
    Piece {
        name: "redis-server",
        purpose: "demo, tests",
        required: true,
        for_demo: true,
        find: || program("redis-server"),
        source: Source::Packages(&["redis-server"]),
    },
    Piece {
        name: "sqlite3",
        purpose: "tests",
        required: true,
        for_demo: false,
        find: || program("sqlite3").and(library("libsqlite3.so.0")),
        source: Source::Packages(&["sqlite3", "libsqlite3-0"]),
    },
    Piece {
        name: "haproxy",
        purpose: "test of an event loop",
        required: false,
        for_demo: false,
        find: || program("haproxy"),
        source: Source::Packages(&["haproxy"]),
    },
    Piece {
        name: "Go",
        purpose: "test of goroutines",
        required: false,
        for_demo: false,
        find: || program("go"),
        source: Source::Packages(&["golang-go"]),
    },
    Piece {
        name: "sys/sdt.h",
        purpose: "test of USDT probes",
        required: false,
        for_demo: false,
        find: || {
            let path = "/usr/include/x86_64-linux-gnu/sys/sdt.h";
            Path::new(path).exists().then(|| path.to_owned())
        },
        source: Source::Packages(&["systemtap-sdt-dev"]),
    },
    Piece {
        name: "dwz and xz",
        purpose: "tests of debug information",
        required: false,
        for_demo: false,
        find: || program("dwz").and(program("xz")),
        source: Source::Packages(&["dwz", "xz-utils"]),
    },
    Piece {
        name: "debuginfod",
        purpose: "test of debug files from servers",
        required: false,
        for_demo: false,
        find: || {
            program("debuginfod")
                .and(program("debuginfod-find"))
                .and(program("ip"))
        },
        source: Source::Packages(&["debuginfod", "iproute2"]),
    },
    Piece {
        name: "librte_acl",
        purpose: "firewall test",
        required: false,
        for_demo: false,
        find: installed::dpdk_library,
        source: Source::Custom(dpdk::install_library),
    },
    Piece {
        name: "DPDK ports",
        purpose: "firewall test",
        required: false,
        for_demo: false,
        find: installed::dpdk_ports,
        source: Source::Custom(dpdk::install_ports),
    },
    Piece {
        name: "DPDK headers",
        purpose: "firewall test",
        required: false,
        for_demo: false,
        find: installed::dpdk_headers,
        source: Source::Custom(dpdk::install_headers),
    },
    Piece {
        name: "perf",
        purpose: "comparison in bench",
        required: false,
        for_demo: false,
        find: || program("perf"),
        source: Source::Packages(&["linux-perf"]),
    },
    Piece {
        name: "bpftrace",
        purpose: "comparison in bench",
        required: false,
        for_demo: false,
        find: || program("bpftrace"),
        source: Source::Packages(&["bpftrace"]),
    },
    Piece {
        name: "QEMU",
        purpose: "tests on other kernels",
        required: false,
        for_demo: false,
        find: || program(kernels::QEMU),
        source: Source::Packages(&["qemu-system-x86"]),
    },
    Piece {
        name: "make and libelf",
        purpose: "module of tests on other kernels",
        required: false,
        for_demo: false,
        find: || program("make").and(library("libelf.so.1")),
        source: Source::Packages(&["make", "libelf1"]),
    },
    Piece {
        name: "chromium",
        purpose: "tests of the page",
        required: false,
        for_demo: false,
        find: || program("chromium-headless-shell").or_else(|| program("chromium")),
        source: Source::Custom(browser::install),
    },
    Piece {
        name: "Python's venv",
        purpose: "reader tests",
        required: false,
        for_demo: true,
        find: python::find_venv_module,
        source: Source::Packages(&["python3", "python3-venv"]),
    },
    Piece {
        name: "duckdb, pandas, pyarrow",
        purpose: "reader tests",
        required: false,
        for_demo: true,
        find: readers,
        source: Source::Custom(python::install_readers),
    },
    Piece {
        name: "moto",
        purpose: "tests of lakes in an S3 server",
        required: false,
        for_demo: false,
        find: python::find_s3_server,
        source: Source::Custom(python::install_s3_server),
    },
];

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let missing = look(args);
    if args.check {
        let blocked = missing.iter().any(|piece| piece.required);
        return Ok(if blocked {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        });
    }
    let means = Means {
        toolchain: args.toolchain,
        apt: Apt::default(),
    };
    install_packages(&missing, &means.apt)?;
    let mut failed = Vec::new();
    for piece in &missing {
        if let Err(error) = install(piece, &means) {
            if piece.required {
                return Err(error.context(format!("cannot set up {}", piece.name)));
            }
            failed.push(piece.name);
            eprintln!("setup: {} left out: {error:#}", piece.name);
        }
    }
    if !missing.is_empty() || !args.quiet {
        eprintln!("setup: {}", summary(&failed));
    }
    Ok(ExitCode::SUCCESS)
}

/// Installs packages of Debian, for what few need.
pub fn install_debian(packages: &[&str]) -> Result<()> {
    Apt::default().install(packages)
}

/// Installs the prerequisites of the other tasks, silently if all exist.
pub fn ensure() -> Result<()> {
    quietly(false)
}

/// The same, but only what the demo uses.
pub fn ensure_for_demo() -> Result<()> {
    quietly(true)
}

fn quietly(for_demo: bool) -> Result<()> {
    main(&Args {
        check: false,
        quiet: true,
        required_only: false,
        for_demo,
        toolchain: Toolchain::Auto,
    })
    .map(drop)
}

/// Path of a program, on `PATH` or among cargo's.
fn program(name: &str) -> Option<String> {
    toolchain::find_program(name).map(|path| path.display().to_string())
}

/// Path of a shared library.
fn library(name: &str) -> Option<String> {
    installed::library_dirs()
        .map(|dir| format!("{dir}/{name}"))
        .find(|path| Path::new(path).exists())
}

/// Prints the existing pieces, and returns the missing ones.
fn look(args: &Args) -> Vec<&'static Piece> {
    let mut missing = Vec::new();
    let is_wanted = |piece: &&Piece| {
        (piece.required || !args.required_only) && (piece.for_demo || !args.for_demo)
    };
    for piece in PIECES.iter().filter(is_wanted) {
        match (piece.find)() {
            Some(found) if !args.quiet => eprintln!("setup: {}: found {found}", piece.name),
            Some(_) => {}
            None => {
                let need = if piece.required {
                    "required"
                } else {
                    "optional"
                };
                eprintln!("setup: {}: missing ({need}: {})", piece.name, piece.purpose);
                missing.push(piece);
            }
        }
    }
    missing
}

/// Installs the packages of all pieces at once: one transaction, one password. If apt has not all of them, those of the
/// required pieces; the others are then tried one by one.
fn install_packages(missing: &[&Piece], apt: &Apt) -> Result<()> {
    let of = |piece: &&&Piece| match piece.source {
        Source::Packages(names) => names,
        Source::Custom(_) => &[],
    };
    let all: Vec<&str> = missing.iter().flat_map(|it| of(&it)).copied().collect();
    if all.is_empty() || apt.install(&all).is_ok() {
        return Ok(());
    }
    let required = missing.iter().filter(|piece| piece.required);
    let required: Vec<&str> = required.flat_map(|it| of(&it)).copied().collect();
    match required.is_empty() {
        true => Ok(()),
        false => apt.install(&required),
    }
}

fn install(piece: &Piece, means: &Means) -> Result<()> {
    match piece.source {
        Source::Packages(names) if (piece.find)().is_none() => means.apt.install(names)?,
        Source::Packages(_) => {}
        Source::Custom(install) => install(means)?,
    }
    match (piece.find)() {
        Some(found) => {
            eprintln!("setup: {}: installed {found}", piece.name);
            Ok(())
        }
        None => bail!("{} is still not there after its installation", piece.name),
    }
}

fn summary(failed: &[&str]) -> String {
    if failed.is_empty() {
        return "everything is in place".to_owned();
    }
    format!("in place, without the optional {}", failed.join(", "))
}
