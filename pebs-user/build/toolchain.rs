//! Finds the programs that compile the eBPF programs: a rustc that can target `bpfel-unknown-none`, and `bpf-linker`.
//!
//! The build script of `pebs-user` and `cargo xtask setup` compile this same file, so that a build accepts whatever
//! setup reports as ready. Nothing is installed or changed here.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target that the eBPF programs are compiled for.
pub const TARGET: &str = "bpfel-unknown-none";

/// Names a rustc to use instead of looking for one.
pub const RUSTC_ENV: &str = "PEBS_BPF_RUSTC";

/// Names a `bpf-linker` to use instead of looking for one.
pub const LINKER_ENV: &str = "PEBS_BPF_LINKER";

/// Source of `core` for the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// Ready-built beside the compiler, as in Debian's `libstd-rust-web-dev-bpf`.
    Prebuilt,
    /// Compiled by `-Z build-std=core` from the component `rust-src` of a nightly.
    BuildStd,
}

/// A rustc that can compile the eBPF programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// The compiler itself, not rustup's proxy.
    pub rustc: PathBuf,
    /// The cargo of the same toolchain; `None` if any cargo does.
    pub cargo: Option<PathBuf>,
    /// Source of its `core`.
    pub core: Core,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = match self.core {
            Core::Prebuilt => "ready-built core",
            Core::BuildStd => "-Z build-std=core",
        };
        write!(f, "{} ({core})", self.rustc.display())
    }
}

/// Finds a compiler: `$PEBS_BPF_RUSTC` if set, else the first of `default` (the rustc of this
/// build), `/usr/bin/rustc` and rustup's nightly that has a ready-built core, else the first
/// nightly of them that has `rust-src`.
///
/// Cost: two or three short processes.
#[must_use]
pub fn find_compiler(default: Option<&OsStr>) -> Option<Compiler> {
    if let Some(chosen) = std::env::var_os(RUSTC_ENV) {
        return inspect(&sysroot_of(&chosen, &[])?, Some(Path::new(&chosen)));
    }
    let rustc = default.unwrap_or(OsStr::new("rustc"));
    let rustup = find_program("rustup").map(PathBuf::into_os_string);
    let sysroots = [
        sysroot_of(rustc, &[]),
        sysroot_of(OsStr::new("/usr/bin/rustc"), &[]),
        rustup.and_then(|rustup| sysroot_of(&rustup, &["run", "nightly", "rustc"])),
    ];
    let found: Vec<Compiler> = sysroots
        .iter()
        .flatten()
        .filter_map(|sysroot| inspect(sysroot, None))
        .collect();
    let ready = found.iter().find(|found| found.core == Core::Prebuilt);
    ready.or(found.first()).cloned()
}

/// Finds `bpf-linker`: `$PEBS_BPF_LINKER` if set, else on `PATH` or where `cargo install` puts it.
#[must_use]
pub fn find_linker() -> Option<PathBuf> {
    match std::env::var_os(LINKER_ENV) {
        Some(chosen) => Some(PathBuf::from(chosen)).filter(|path| path.is_file()),
        None => find_program("bpf-linker"),
    }
}

/// Finds a program on `PATH`, in `$CARGO_HOME/bin` or in `~/.cargo/bin`.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::split_paths(&path)
        .chain(cargo_home.map(|dir| dir.join("bin")))
        .chain(home.map(|dir| dir.join("bin")))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

/// The compiler of a sysroot; `None` if it can't compile for the target.
fn inspect(sysroot: &Path, rustc: Option<&Path>) -> Option<Compiler> {
    let own_rustc = sysroot.join("bin/rustc");
    let rustc = rustc.unwrap_or(&own_rustc).to_path_buf();
    let version = run(rustc.as_os_str(), &["-V"])?;
    if !is_recent_enough(&version) {
        return None;
    }
    if has_prebuilt_core(sysroot) {
        return Some(Compiler {
            rustc,
            cargo: None,
            core: Core::Prebuilt,
        });
    }
    let source = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs");
    let cargo = Some(sysroot.join("bin/cargo")).filter(|cargo| cargo.is_file())?;
    (source.is_file() && version.contains("nightly")).then_some(Compiler {
        rustc,
        cargo: Some(cargo),
        core: Core::BuildStd,
    })
}

fn has_prebuilt_core(sysroot: &Path) -> bool {
    let lib = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    let Ok(entries) = std::fs::read_dir(lib) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libcore-") && name.ends_with(".rlib")
    })
}

/// Whether the output of `rustc -V` names at least the workspace's minimum version.
fn is_recent_enough(version: &str) -> bool {
    let minor = |version: &str| version.split('.').nth(1)?.parse::<u32>().ok();
    minor(version) >= minor(env!("CARGO_PKG_RUST_VERSION"))
}

/// The sysroot that `program args... --print sysroot` names.
fn sysroot_of(program: &OsStr, args: &[&str]) -> Option<PathBuf> {
    let args: Vec<&str> = args.iter().copied().chain(["--print", "sysroot"]).collect();
    run(program, &args).map(|sysroot| PathBuf::from(sysroot.trim()))
}

/// The output of a program; `None` if it failed. Never makes rustup install a toolchain.
fn run(program: &OsStr, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .env("RUSTUP_AUTO_INSTALL", "0")
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// A cargo command that compiles for the target with `compiler` and `linker`, in an environment
/// freed of what an outer cargo or rustup set for itself. `fallback_cargo` is taken where the
/// compiler does not name its own. The caller adds the subcommand and its arguments after
/// [`target_args`].
#[must_use]
pub fn cargo_command(
    compiler: &Compiler,
    linker: &Path,
    fallback_cargo: &OsStr,
    extra_rustflags: &[&str],
) -> Command {
    let cargo = compiler
        .cargo
        .as_ref()
        .map_or(fallback_cargo, |cargo| cargo.as_os_str());
    let mut command = Command::new(cargo);
    for (name, _) in std::env::vars_os() {
        if is_inherited_setting(&name) {
            command.env_remove(name);
        }
    }
    command.env("RUSTC", &compiler.rustc).env(
        "CARGO_ENCODED_RUSTFLAGS",
        rustflags(linker, extra_rustflags),
    );
    if compiler.core == Core::Prebuilt {
        // These two write inline assembly for an architecture that is not stable yet. Naming the
        // crates keeps every other one on the stable language.
        command.env("RUSTC_BOOTSTRAP", "aya_ebpf,pebs_ebpf");
    }
    command
}

/// Arguments that choose the target and, where needed, how to come by `core`.
#[must_use]
pub fn target_args(compiler: &Compiler) -> &'static [&'static str] {
    match compiler.core {
        Core::Prebuilt => &["--target", TARGET],
        Core::BuildStd => &["--target", TARGET, "-Z", "build-std=core"],
    }
}

/// Flags that every crate of the eBPF build is compiled with.
fn rustflags(linker: &Path, extra: &[&str]) -> OsString {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH")
        .unwrap_or_else(|_| std::env::consts::ARCH.to_owned());
    let mut flags = OsString::from(
        // BTF, which the maps are declared in, is made from debug information by the linker.
        ["-Cdebuginfo=2", "-Clink-arg=--btf", "-Cpanic=abort"].join("\u{1f}"),
    );
    flags.push(format!(
        "\u{1f}--cfg=bpf_target_arch=\"{arch}\"\u{1f}-Clinker="
    ));
    flags.push(linker);
    for flag in extra {
        flags.push("\u{1f}");
        flags.push(flag);
    }
    flags
}

/// Whether an environment variable belongs to the outer build. Where to fetch crates from (home,
/// network, registries) stays.
fn is_inherited_setting(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let kept = ["HOME", "NET_", "HTTP_", "REGISTR", "SOURCE_"];
    match name.strip_prefix("CARGO_") {
        Some(rest) => !kept.iter().any(|prefix| rest.starts_with(prefix)),
        None => name.starts_with("RUSTC") || name == "RUSTFLAGS" || name == "RUSTUP_TOOLCHAIN",
    }
}
