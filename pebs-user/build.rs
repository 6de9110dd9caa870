//! Compiles `pebs-ebpf` for the kernel and puts the object, compressed, where the library embeds it:
//! `$OUT_DIR/pebs-ebpf.zst`, beside the object itself. A package from a registry has no sources of it, but the object in `ebpf/pebs-ebpf-ARCH`.
//!
//! The compiler and the linker are found by `build/toolchain.rs`. Environment variables:
//!
//! * `PEBS_BPF_RUSTC`: the rustc for the eBPF programs, instead of looking for one;
//! * `PEBS_BPF_LINKER`: the `bpf-linker`, instead of looking for one;
//! * `PEBS_EBPF_OBJECT`: a ready-built object, which makes the other two unnecessary.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[path = "build/toolchain.rs"]
mod toolchain;

use toolchain::{LINKER_ENV, RUSTC_ENV};

/// Names a ready-built object.
const OBJECT_ENV: &str = "PEBS_EBPF_OBJECT";

/// Name of the eBPF crate, of its folder and of its object.
const EBPF: &str = "pebs-ebpf";

/// The level of zstd, of 22: a twelfth remains.
const PACKING: i32 = 19;

/// The one command that puts a missing piece in place.
const SETUP_COMMAND: &str = "cargo xtask setup";

const NO_COMPILER: &str = "no rustc that can compile eBPF programs (rustc-web with \
    libstd-rust-web-dev-bpf, or a nightly with rust-src)";

/// Files and folders, seen from the workspace, that the object is made from.
const SOURCES: [&str; 6] = [
    "pebs-ebpf/src",
    "pebs-ebpf/Cargo.toml",
    "pebs-common/src",
    "pebs-common/Cargo.toml",
    "Cargo.toml",
    "Cargo.lock",
];

fn main() -> ExitCode {
    match build() {
        Ok(inputs) => {
            for input in inputs {
                println!("cargo::rerun-if-changed={}", input.display());
            }
            for name in [OBJECT_ENV, RUSTC_ENV, LINKER_ENV, "PATH"] {
                println!("cargo::rerun-if-env-changed={name}");
            }
            ExitCode::SUCCESS
        }
        // A failed script runs again anyway: the message stays alone.
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

/// Puts the object in place and gives the files that it depends on.
fn build() -> Result<Vec<PathBuf>, String> {
    let out = PathBuf::from(variable("OUT_DIR")?);
    let mut inputs = vec!["build.rs".into(), "build/toolchain.rs".into()];
    let ready = std::env::var_os(OBJECT_ENV).map(PathBuf::from);
    let ready = ready.or(packaged()?);
    inputs.extend(ready.clone());
    let object = match &ready {
        Some(ready) => ready.clone(),
        None => compile(&out, &mut inputs)?,
    };
    let what = |error: &dyn Display| format!("eBPF object {}: {error}", object.display());
    let mut bytes = std::fs::read(&object).map_err(|error| what(&error))?;
    if ready.is_none() {
        bytes = without_debug_information(&bytes).map_err(|error| what(&error))?;
    }
    let packed = zstd::bulk::compress(&bytes, PACKING).map_err(|error| what(&error))?;
    for (name, bytes) in [(EBPF.to_owned(), bytes), (format!("{EBPF}.zst"), packed)] {
        std::fs::write(out.join(name), bytes).map_err(|error| what(&error))?;
    }
    Ok(inputs)
}

/// The object that a package has in place of the sources.
fn packaged() -> Result<Option<PathBuf>, String> {
    let arch = variable("CARGO_CFG_TARGET_ARCH")?;
    let object = format!("ebpf/{EBPF}-{}", arch.display());
    let object = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join(object);
    let has_sources = Path::new("..").join(EBPF).is_dir();
    Ok(Some(object).filter(|it| !has_sources && it.exists()))
}

/// Leaves out what no loader reads: most of the object. BTF stays.
fn without_debug_information(object: &[u8]) -> Result<Vec<u8>, object::build::Error> {
    let mut builder = object::build::elf::Builder::read(object)?;
    for section in builder.sections.iter_mut() {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    // LLVM has the names of sections among those of symbols.
    let names = builder.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = object::elf::SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = object::build::elf::SectionData::SectionString;
    builder.delete_orphans();
    let mut shrunk = Vec::new();
    builder.write(&mut shrunk)?;
    Ok(shrunk)
}

/// Compiles the eBPF crate and gives the path of its object.
fn compile(out: &Path, inputs: &mut Vec<PathBuf>) -> Result<PathBuf, String> {
    let manifest_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let workspace = manifest_dir
        .parent()
        .filter(|root| root.join(EBPF).is_dir())
        .ok_or_else(|| format!("no folder {EBPF} beside {}", manifest_dir.display()))?;
    let compiler = toolchain::find_compiler(std::env::var_os("RUSTC").as_deref())
        .ok_or_else(|| missing(NO_COMPILER))?;
    let linker = toolchain::find_linker().ok_or_else(|| missing("bpf-linker not found"))?;
    inputs.extend(SOURCES.map(|source| workspace.join(source)));
    inputs.extend([compiler.rustc.clone(), linker.clone()]);

    let target_dir = out.join("ebpf-target");
    // Debug information names files: the same from wherever they are.
    let home = std::env::home_dir().map(|it| it.join(".cargo"));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
    let folders = [
        (Some(workspace), "/pebs-trace"),
        (home.as_deref(), "/cargo"),
    ];
    let flags = folders
        .into_iter()
        .filter_map(|(from, to)| Some(format!("--remap-path-prefix={}={to}", from?.display())));
    let flags: Vec<String> = flags.collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut command = toolchain::cargo_command(&compiler, &linker, &variable("CARGO")?, &flags);
    command
        .current_dir(workspace)
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            EBPF,
            "--bin",
            EBPF,
        ])
        .args(toolchain::target_args(&compiler))
        .arg("--target-dir")
        .arg(&target_dir);
    let status = command
        .status()
        .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    if !status.success() {
        return Err(format!(
            "the eBPF programs in {EBPF}/ do not compile ({status}), see above; compiler: {compiler}"
        ));
    }
    Ok(target_dir
        .join(toolchain::TARGET)
        .join("release")
        .join(EBPF))
}

/// Error about a missing tool, with the command that installs it.
fn missing(what: &str) -> String {
    format!("{what}; run '{SETUP_COMMAND}'")
}

fn variable(name: &str) -> Result<OsString, String> {
    std::env::var_os(name).ok_or_else(|| format!("{name} is not set: cargo has to run this script"))
}
