//! Writes the man pages and the shells' completions of `pebs-trace` into a directory.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use pebs_user::cli::Cli;

/// Folder of the man pages.
pub const MAN: &str = "man/man1";

/// Folder of the completions.
pub const COMPLETIONS: &str = "completions";

/// Shells that are completed for.
pub const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes all of them below `dir`.
///
/// # Errors
/// If a file can't be written.
pub fn write(dir: &Path) -> io::Result<()> {
    let (man, completions) = (dir.join(MAN), dir.join(COMPLETIONS));
    std::fs::create_dir_all(&man)?;
    std::fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(Cli::command(), &man)?;
    for shell in SHELLS {
        generate_to(shell, &mut Cli::command(), "pebs-trace", &completions)?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let Some(dir) = std::env::args_os().nth(1) else {
        return Err(io::Error::other("name a directory"));
    };
    write(Path::new(&dir))
}
