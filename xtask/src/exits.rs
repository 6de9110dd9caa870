//! `cargo xtask exits`: how dear the exits of functions are to mark, in binaries as a distribution ships them.
//!
//! `pebs-trace probes` lists for each function the instructions that mark its exits, and whether the kernel emulates
//! or single-steps them. A function whose exits are all emulated costs a fifth to a tenth of one that is
//! single-stepped.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{recorder, shell};

/// Binaries of Debian: servers, interpreters, tools and libraries. Missing ones are left out.
const BINARIES: [&str; 24] = [
    "redis-server",
    "nginx",
    "haproxy",
    "sqlite3",
    "bash",
    "perl",
    "php8.2",
    "lua5.4",
    "curl",
    "openssl",
    "ssh",
    "tar",
    "vim.basic",
    "gdb",
    "libc.so.6",
    "libcrypto.so.3",
    "libcurl.so.4",
    "libglib-2.0.so.0",
    "libgnutls.so.30",
    "libpython3.11.so.1.0",
    "libsqlite3.so.0",
    "libstdc++.so.6",
    "libxml2.so.2",
    "libz.so.1",
];

/// Options of `cargo xtask exits`.
#[derive(clap::Args)]
pub struct Args {
    /// Binaries [default: two dozen of Debian's, as far as they are installed]
    binaries: Vec<String>,
    /// Version of Linux [default: the running kernel]
    #[arg(long)]
    kernel: Option<String>,
    /// Use this pebs-trace instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
}

/// Functions of a binary, by how their exits are marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Exits {
    /// Every exit passes an emulated instruction.
    emulated: u64,
    /// Some do, others a single-stepped one.
    mixed: u64,
    /// All are single-stepped.
    stepped: u64,
    /// Entry and exits are all emulated, or done by the mark program: at most 2 us each.
    cheap: u64,
    /// They never return, or can't be marked.
    none: u64,
}

impl Exits {
    fn add(&mut self, function: &Value) {
        let returns = function["returns"].as_str().unwrap_or("none");
        let has = |words: &str| returns.contains(words);
        *match () {
            () if !function["refused"].is_null() || returns == "none" => &mut self.none,
            () if has("emulated") && !has("single step") => &mut self.emulated,
            () if has("emulated") => &mut self.mixed,
            () => &mut self.stepped,
        } += 1;
        let is_cheap = |end: &str| function[end].as_str().is_some_and(|it| it != "single_step");
        if is_cheap("entry") && is_cheap("end") {
            self.cheap += 1;
        }
    }

    const fn of(&self) -> u64 {
        self.emulated + self.mixed + self.stepped
    }
}

/// Prints a row for each binary, and one for all.
pub fn main(args: &Args) -> Result<()> {
    let tool = match &args.tool {
        Some(tool) => tool.clone(),
        None => recorder::build(true)?,
    };
    let typed: Vec<&str> = args.binaries.iter().map(String::as_str).collect();
    let binaries = if typed.is_empty() {
        &BINARIES[..]
    } else {
        &typed
    };
    println!(
        "| binary | functions | exits emulated | some | single-stepped | entry and exits at most 2 us | not marked |\n|---|--:|--:|--:|--:|--:|--:|"
    );
    let mut all = Exits::default();
    for binary in binaries {
        let mut command = Command::new(&tool);
        command.args(["probes", binary, "--format", "json"]);
        if let Some(version) = &args.kernel {
            command.args(["--kernel", version]);
        }
        let list = match shell::output(&mut command) {
            Ok(list) => list,
            Err(_) if typed.is_empty() => continue,
            Err(error) => return Err(error),
        };
        let list: Value = serde_json::from_str(&list)?;
        let functions = list["functions"].as_array().context("no functions")?;
        let mut exits = Exits::default();
        for function in functions {
            exits.add(function);
            all.add(function);
        }
        println!("{}", row(binary, &exits));
    }
    println!("{}", row("**all**", &all));
    Ok(())
}

fn row(name: &str, exits: &Exits) -> String {
    let percent = |n: u64| format!("{:.0} %", 100.0 * n as f64 / exits.of().max(1) as f64);
    format!(
        "| {name} | {} | {} | {} | {} | {} | {} |",
        exits.of(),
        percent(exits.emulated),
        percent(exits.mixed),
        percent(exits.stepped),
        percent(exits.cheap),
        exits.none
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The words of `probes` are distinguished.
    #[test]
    fn kinds_of_exits() {
        let mut exits = Exits::default();
        for returns in [
            "emulated x2 for ret x1",
            "emulated x1, single step x2 for ret x3",
            "ret x1, tail jump x2",
            "none",
        ] {
            let is_cheap = returns.starts_with("emulated x2");
            let end = if is_cheap { "emulated" } else { "single_step" };
            exits.add(
                &json!({"returns": returns, "refused": null, "entry": "in_program", "end": end}),
            );
        }
        exits.add(&json!({"returns": "ret x1", "refused": "too short"}));
        let expected = Exits {
            emulated: 1,
            mixed: 1,
            stepped: 1,
            cheap: 1,
            none: 2,
        };
        assert_eq!(exits, expected);
        assert_eq!(
            row("a", &exits),
            "| a | 3 | 33 % | 33 % | 33 % | 33 % | 2 |"
        );
    }
}
