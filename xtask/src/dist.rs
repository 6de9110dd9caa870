//! `cargo xtask dist`: the program as people install it: an archive, packages for Debian and Fedora, an image for containers, a wheel,
//! crates, with checksums and a list of components.
//!
//! The program is linked with musl, statically: one file that runs on every Linux from 5.15 on, whatever C library is there. All
//! packages hold the same file.

mod check;
mod crates;
mod image;
mod packages;
mod program;
mod supply;
mod tree;
mod wheel;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use crate::{setup, shell};

/// Every crate of the workspace has the same version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const SUMMARY: &str = "tells which function made this request slow";

/// Options of `cargo xtask dist`.
#[derive(clap::Args)]
pub struct Args {
    /// Architectures to build for
    #[arg(long, value_delimiter = ',', default_values_t = [Arch::HOST])]
    arch: Vec<Arch>,
    /// Build a second time in another folder, and check that the program has the same bytes
    #[arg(long)]
    twice: bool,
    /// Install each package in an empty root, record with it, upgrade and remove it
    #[arg(long)]
    check: bool,
    /// Sign the checksums by this key of gpg's
    #[arg(long, value_name = "KEY")]
    sign: Option<String>,
}

/// An architecture that the program is built for.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

impl Arch {
    const HOST: Self = if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::X86_64
    };

    fn is_host(self) -> bool {
        self == Self::HOST
    }

    /// Debian's name.
    fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The name in images for containers: that of Go.
    fn container(self) -> &'static str {
        self.debian()
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        })
    }
}

/// Runs the task: writes packages to `target/dist/`, and prints their paths.
pub fn main(args: &Args) -> Result<()> {
    let dist = shell::target_dir()?.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).with_context(|| format!("cannot remove {}", dist.display()))?;
    }
    fs::create_dir_all(&dist).with_context(|| format!("cannot create {}", dist.display()))?;
    // What the program writes about itself is written by the one that runs here.
    let host = program::make(Arch::HOST)?;
    if args.twice {
        program::is_reproducible(&host.path, Arch::HOST)?;
    }
    let (mut made, mut objects) = (Vec::new(), Vec::new());
    for &arch in &args.arch {
        let other;
        let program = if arch.is_host() {
            &host
        } else {
            other = program::make(arch)?;
            &other
        };
        let room = tempfile::tempdir()?;
        let usr = room.path().join("usr");
        let licences = supply::licences(arch)?;
        tree::lay_out(&usr, &program.path, &host.path, &licences)?;
        made.extend([
            packages::archive(&dist, &usr, arch)?,
            packages::deb(&dist, &usr, arch, VERSION)?,
            packages::rpm(&dist, &usr, arch, VERSION)?,
            image::make(&dist, &program.path, arch)?,
            wheel::make(&dist, &program.path, arch)?,
            supply::bill_of_materials(&dist, arch)?,
        ]);
        if args.check && arch.is_host() {
            check::packages(&dist, &usr)?;
        }
        objects.push((arch, program.object.clone()));
    }
    made.extend(crates::pack(&dist, &objects)?);
    if args.check {
        check::crates(&dist)?;
    }
    supply::checksums(&dist, &made, args.sign.as_deref())?;
    for file in made {
        println!("{:>10} {}", fs::metadata(&file)?.len(), file.display());
    }
    Ok(())
}

/// The folder of the programs from PyPI that building takes; they are installed if missing.
fn tools() -> Result<PathBuf> {
    // One compiles for another C library and architecture, the other packs wheels.
    let names = ["cargo-zigbuild", "wheel"];
    let place = shell::tools_dir().join("dist-venv");
    let programs = place.join("bin");
    if !names.iter().all(|it| programs.join(it).exists()) {
        setup::make_environment(&place, &names)?;
    }
    Ok(programs)
}

/// The time that files are given, seconds since 1970: that of the commit; `SOURCE_DATE_EPOCH` if it is set.
fn epoch() -> &'static str {
    static EPOCH: OnceLock<String> = OnceLock::new();
    EPOCH.get_or_init(|| {
        std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| {
            let mut log = Command::new("git");
            log.current_dir(shell::workspace());
            let time = shell::output(log.args(["log", "-1", "--format=%ct"]));
            time.map_or_else(|_| "0".to_owned(), |it| it.trim_end().to_owned())
        })
    })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = fs::copy(from, to);
    copied.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}
