//! Separate programs that count, built with the machine's C compiler.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{CALLS, Calls};

const SOURCE: &str = include_str!("program.c");

/// Links statically.
pub(super) const STATIC: &str = "-static";

/// A built program.
pub(super) struct Program {
    folder: TempDir,
    how: &'static str,
}

impl Program {
    /// Builds the program, linked in this way.
    ///
    /// `how` is the way of reading: `read` or `syscall`. An error is a reason in words.
    pub(super) fn build(how: &'static str, link: &str) -> Result<Self, String> {
        let io = |error: std::io::Error| format!("cannot build a program: {error}");
        let folder = tempfile::tempdir().map_err(io)?;
        let source = folder.path().join("program.c");
        std::fs::write(&source, SOURCE).map_err(io)?;
        let done = Command::new("cc")
            .args(["-std=gnu11", "-O2", "-fplt", link, "-o"])
            .arg(folder.path().join("program"))
            .arg(source)
            .stdin(Stdio::null())
            .output();
        match done {
            Ok(done) if done.status.success() => Ok(Self { folder, how }),
            Ok(_) if link == STATIC => {
                Err("cc cannot link statically (no libc.a, or no headers)".to_owned())
            }
            Ok(_) => Err(
                "cc cannot build a program (no headers of the kernel or the C library)".to_owned(),
            ),
            Err(_) => Err("it needs a C compiler (cc)".to_owned()),
        }
    }

    /// Runs it with events of a type; `None` if it failed.
    pub(super) fn run(&self, kind: u32, configs: impl Iterator<Item = u64>) -> Option<Calls> {
        let done = Command::new(self.folder.path().join("program"))
            .arg(self.how)
            .arg(kind.to_string())
            .args(configs.map(|config| config.to_string()))
            // It would resolve all functions at the start.
            .env_remove("LD_BIND_NOW")
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8(done.stdout).ok()?;
        let ticks: Vec<u64> = text
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        let ticks: [u64; CALLS] = ticks.try_into().ok()?;
        done.status.success().then_some(ticks)
    }
}
