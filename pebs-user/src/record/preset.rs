//! Presets: files with SPECs for one kind of program.
//!
//! A line is a SPEC in which `{bin}` stands for the program, and `{goid}` for where its Go runtime stores a
//! goroutine's number; empty lines and lines that begin with `#` are skipped. Built-in presets are in
//! `data/presets`; a user's own are given by path.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::recording::Recording;
use crate::binary::elf::{Binary, Language};
use crate::binary::go;
use crate::binary::locate::locate;
use crate::collect::command;
use crate::failure::{Context as _, Failure, Result};
use crate::units::Pid;

/// Name and text of the built-in presets.
const BUILT_IN: [(&str, &str); 2] = [
    ("go", include_str!("../../data/presets/go.preset")),
    ("tokio", include_str!("../../data/presets/tokio.preset")),
];

/// Placeholder of the program.
const BIN: &str = "{bin}";

/// Placeholder of the offset of a goroutine's number in `runtime.g`.
const GOID: &str = "{goid}";

/// Largest file that is read.
const MOST_BYTES: u64 = 64 << 10;

/// All SPECs: those given, then those of presets.
pub(super) fn specs(recording: &Recording, sees: Option<Pid>) -> Result<Vec<String>> {
    let mut specs = recording.uprobes.clone();
    for typed in &recording.presets {
        let (name, bin) = match typed.split_once('=') {
            Some((name, bin)) => (name, bin.to_owned()),
            None => (typed.as_str(), program(typed, recording, sees)?),
        };
        let mut text = read(name)?;
        if text
            .lines()
            .any(|line| !line.starts_with('#') && line.contains(GOID))
        {
            text = text.replace(GOID, &goid(&bin, sees)?.to_string());
        }
        specs.extend(expand(name, &text, &bin)?);
    }
    Ok(specs)
}

/// The program that is traced.
fn program(typed: &str, recording: &Recording, sees: Option<Pid>) -> Result<String> {
    let path = match (sees, recording.command().first()) {
        (Some(pid), _) => {
            let link = format!("/proc/{}/exe", pid.0);
            std::fs::read_link(&link).with_context(|| format!("cannot read {link}"))?
        }
        (None, Some(command)) => command::find(command)?,
        (None, None) => {
            return Err(Failure::new(
                format!("preset '{typed}' needs a program to probe"),
                format!("name it: --preset {typed}=./app, or give -p PID or -- CMD"),
            ));
        }
    };
    match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(Failure::new(
            format!("cannot probe {}: its path is not UTF-8", path.display()),
            "give it another name, with a link".to_owned(),
        )),
    }
}

/// Offset of a goroutine's number in the Go program's runtime.
fn goid(bin: &str, sees: Option<Pid>) -> Result<u64> {
    let path = locate(bin, sees)?;
    let binary = Binary::open(&path)?;
    if let Some(offset) = go::goid_offset(&binary) {
        return Ok(offset);
    }
    let path = path.display();
    if binary.language != Language::Go {
        return Err(Failure::new(
            format!("{path} is not a Go program"),
            "name one: --preset go=./app".to_owned(),
        ));
    }
    let version = go::version(&binary);
    Err(Failure::new(
        format!(
            "cannot tell the goroutines of {path} apart: it is stripped, and the offset of their number in {} is unknown",
            version.as_deref().unwrap_or("its version of Go")
        ),
        format!(
            "build it without -ldflags=-w, or use their addresses, which are reused: -u \
             '{bin}:runtime.execute(id=arg1)..runtime.schedule'"
        ),
    ))
}

/// BIN quoted for a SPEC.
fn quoted(bin: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+');
    if bin.contains('"') || bin.chars().all(is_plain) && !bin.contains("..") {
        bin.to_owned()
    } else {
        format!("\"{bin}\"")
    }
}

fn read(name: &str) -> Result<String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|it| it.0 == name) {
        return Ok((*text).to_owned());
    }
    let path = Path::new(name);
    if !path.is_file() {
        let known = BUILT_IN.map(|it| it.0).join(", ");
        return Err(Failure::new(
            format!("there is no preset '{name}'"),
            format!("there are {known}; name a preset of your own by the path of its file"),
        ));
    }
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("cannot open preset {name}"))?;
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read preset {name}"))?;
    Ok(text)
}

/// The SPECs of a preset for a program.
fn expand(name: &str, text: &str, bin: &str) -> Result<Vec<String>> {
    let lines = text.lines().map(str::trim);
    let specs: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    if specs.is_empty() {
        return Err(Failure::new(
            format!("preset '{name}' has no SPEC"),
            format!("each line is a SPEC as for --uprobe: {BIN}:handle(id=arg1)"),
        ));
    }
    Ok(specs
        .iter()
        .map(|spec| spec.replace(BIN, &quoted(bin)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    /// The built-in presets are valid SPECs.
    #[test]
    fn built_in() {
        for (name, text) in BUILT_IN {
            let text = text.replace(GOID, "152");
            for spec in expand(name, &text, "./app").unwrap() {
                assert!(spec.starts_with("./app:"), "{spec}");
                Spec::parse(&spec).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }

    /// Comments and empty lines are skipped, every placeholder is filled in.
    #[test]
    fn lines() {
        let text = "# about\n\n  {bin}:f..{bin}:g  \nlibc:read\n";
        let specs = expand("own", text, "/bin/a").unwrap();
        assert_eq!(specs, ["/bin/a:f../bin/a:g", "libc:read"]);
        let specs = expand("own", "{bin}:f", "/opt/a:b (c)/x").unwrap();
        assert_eq!(specs, ["\"/opt/a:b (c)/x\":f"]);
        assert!(expand("own", "# nothing\n", "x").is_err());
    }
}
