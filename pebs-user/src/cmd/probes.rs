//! `pebs-trace probes BIN [PATTERN]`: lists the functions and USDT probes of a binary that can be probed.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use comfy_table::Table;
use comfy_table::presets::NOTHING;

use crate::binary::elf::Binary;
use crate::binary::locate::locate;
use crate::binary::lookup::nearest;
use crate::cmd::debug_files;
use crate::cost::stepping;
use crate::failure::Result;
use crate::pmu::host::KernelVersion;
use crate::probe::ResolveError;
use crate::probe::survey::{Probeable, Survey, SurveyOn, survey};
use crate::store::run::EntryClass;
use crate::terminal::say;
use crate::terminal::{self, shown};

/// Form of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProbesFormat {
    /// A table for people
    #[default]
    Text,
    /// One JSON object
    Json,
    /// One line per function, below a header line
    Csv,
}

/// Options of `pebs-trace probes`.
#[derive(Clone, Debug, Args)]
pub struct ProbesArgs {
    /// Binary: a path, a command in PATH, or the name of a library
    ///
    /// Symlinks are followed. Examples: ./server, redis-server, libc, libsqlite3.so.0.
    #[arg(value_name = "BIN")]
    pub binary: String,

    /// Show only names that contain this text
    ///
    /// Case is ignored; '*' matches anything. Default: all names.
    #[arg(value_name = "PATTERN")]
    pub pattern: Option<String>,

    /// Output format
    ///
    /// json and csv hold the same rows, with addresses in decimal.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: ProbesFormat,

    /// Show what marks cost on this version of Linux, such as 6.12
    ///
    /// Default: the running kernel.
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub kernel: Option<String>,
}

impl ProbesArgs {
    fn on(&self) -> SurveyOn<'_> {
        match &self.kernel {
            Some(release) => SurveyOn::Release(release),
            None => SurveyOn::Running {
                steps: stepping::works(),
            },
        }
    }
}

/// Checks that a text starts like a kernel's version.
fn version(text: &str) -> std::result::Result<String, String> {
    match KernelVersion::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("not a version of Linux, such as 6.12".to_owned()),
    }
}

/// Prints the list to stdout. Exit code 1 if nothing fits the pattern.
///
/// # Errors
/// A [`ResolveError`] if there is no such binary, or an I/O error of stdout.
pub fn run(args: &ProbesArgs) -> Result<ExitCode> {
    let path = locate(&args.binary, None).map_err(ResolveError::from)?;
    debug_files::of(|| vec![path.clone()]).say();
    let binary = Binary::open(&path).map_err(ResolveError::from)?;
    let survey = survey(&binary, args.pattern.as_deref(), args.on());
    if survey.functions.is_empty() && survey.usdt.is_empty() {
        explain_nothing(args, &binary);
        return Ok(ExitCode::from(1));
    }
    let mut out = terminal::stdout();
    let written = match args.format {
        ProbesFormat::Text => text(&mut out, &survey),
        ProbesFormat::Json => json(&mut out, &survey),
        ProbesFormat::Csv => csv(&mut out, &survey),
    };
    match written {
        // `| head` has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => other.map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}

fn explain_nothing(args: &ProbesArgs, binary: &Binary) {
    let path = binary.path.display();
    match &args.pattern {
        None => {
            say!("nothing can be probed in {path}: no symbols, no .eh_frame, no USDT probes");
        }
        Some(pattern) => {
            say!("no function of {path} matches '{pattern}'");
            let near = nearest(binary, pattern);
            if !near.is_empty() {
                say!("hint: the nearest names are {}", near.join(", "));
            }
        }
    }
}

/// Cost of a mark as measured on one machine: for comparison, not a promise.
const fn cost(class: EntryClass) -> &'static str {
    match class {
        EntryClass::Emulated | EntryClass::InProgram => "0.5 us",
        EntryClass::SingleStep => "3.8 us",
    }
}

const fn class_name(class: EntryClass) -> &'static str {
    match class {
        EntryClass::Emulated => "emulated",
        EntryClass::InProgram => "in program",
        EntryClass::SingleStep => "single step",
    }
}

fn text(out: &mut impl Write, survey: &Survey) -> io::Result<()> {
    writeln!(out, "{}", shown(&survey.binary))?;
    writeln!(out, "returns by {}", shown(&survey.returns))?;
    for note in &survey.notes {
        writeln!(out, "{}", shown(note))?;
    }
    if !survey.functions.is_empty() {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header([
            "function",
            "address",
            "entry",
            "cost",
            "instruction",
            "returns",
            "cost",
            "arguments",
        ]);
        for row in &survey.functions {
            table.add_row(cells(row).map(cell));
        }
        writeln!(out, "\n{}", trimmed(&table))?;
    }
    if !survey.usdt.is_empty() {
        let mut table = Table::new();
        table
            .load_style(NOTHING)
            .set_header(["USDT probe", "places", "semaphore", "arguments"]);
        for probe in &survey.usdt {
            table.add_row([
                cell(probe.probe.clone()),
                probe.places.to_string(),
                yes(probe.semaphore).to_owned(),
                cell(probe.arguments.clone()),
            ]);
        }
        writeln!(out, "\n{}", trimmed(&table))?;
    }
    Ok(())
}

const fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// Longest cell, in characters: a name may be as long as its binary.
const CELL_MAX: usize = 1000;

/// The binary's words as a cell of the table.
fn cell(text: String) -> String {
    let mut text = shown(&text).into_owned();
    if let Some((end, _)) = text.char_indices().nth(CELL_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A table without blanks at its lines' ends.
fn trimmed(table: &Table) -> String {
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

fn cells(row: &Probeable) -> [String; 8] {
    let entry = match (row.entry, row.offset, &row.refused) {
        (Some(class), Some(0), _) => class_name(class).to_owned(),
        (Some(class), Some(offset), _) => format!("{} at +{offset:#x}", class_name(class)),
        (_, _, Some(why)) => format!("none: {why}"),
        _ => "none".to_owned(),
    };
    let returns = match &row.unclear {
        Some(why) => format!("none: {why}"),
        None => row.returns.clone(),
    };
    [
        row.function.clone(),
        format!("{:#x}", row.address),
        entry,
        row.entry.map_or("-", cost).to_owned(),
        row.instruction.clone().unwrap_or_else(|| "-".to_owned()),
        returns,
        row.end.map_or("-", cost).to_owned(),
        arguments(row),
    ]
}

/// `arg1: client *c, arg2: int n`; a parameter in no integer register has no `argN`.
fn arguments(row: &Probeable) -> String {
    let Some(list) = &row.arguments else {
        return String::new();
    };
    if list.is_empty() {
        return "none".to_owned();
    }
    let parts: Vec<String> = list
        .iter()
        .map(|p| {
            let blank = if p.r#type.ends_with(['*', '&']) {
                ""
            } else {
                " "
            };
            let read = p.read.as_deref().unwrap_or("-");
            format!("{read}: {}{blank}{}", p.r#type, p.name)
        })
        .collect();
    parts.join(", ")
}

fn json(out: &mut impl Write, survey: &Survey) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, survey)?;
    writeln!(out)
}

fn csv(out: &mut impl Write, survey: &Survey) -> io::Result<()> {
    writeln!(
        out,
        "function,address,size,entry,offset,instruction,refused,end,returns,unclear,arguments"
    )?;
    for row in &survey.functions {
        let number = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
        let fields = [
            row.function.clone(),
            row.address.to_string(),
            number(row.size),
            row.entry.map_or("", class_name).to_owned(),
            number(row.offset),
            row.instruction.clone().unwrap_or_default(),
            row.refused.clone().unwrap_or_default(),
            row.end.map_or("", class_name).to_owned(),
            row.returns.clone(),
            row.unclear.clone().unwrap_or_default(),
            arguments(row),
        ];
        writeln!(out, "{}", fields.map(|field| quoted(&field)).join(","))?;
    }
    for probe in &survey.usdt {
        let fields = [
            &probe.probe,
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            &probe.arguments,
        ];
        writeln!(out, "{}", fields.map(quoted).join(","))?;
    }
    Ok(())
}

/// A CSV field, quoted if RFC 4180 requires it.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn stock() -> Survey {
        let binary = Binary::open(Path::new("/usr/bin/redis-check-rdb")).expect("redis");
        survey(&binary, Some("processCommand"), SurveyOn::Release("6.18"))
    }

    /// The table shows entry, cost and returns of a stock server's function.
    #[test]
    fn table() {
        let mut out = Vec::new();
        text(&mut out, &stock()).expect("written");
        let out = String::from_utf8(out).expect("text");
        let line = out
            .lines()
            .find(|line| line.trim_start().starts_with("processCommand "))
            .expect("listed");
        assert!(
            line.contains("emulated") && line.contains("0.5 us"),
            "{line}"
        );
        assert!(line.contains("push") && line.contains("ret x"), "{line}");
    }

    /// JSON parses and CSV has as many fields in each line as in its head.
    #[test]
    fn for_programs() {
        let mut out = Vec::new();
        json(&mut out, &stock()).expect("written");
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(value["functions"][0]["function"], "processCommand");
        let mut out = Vec::new();
        csv(&mut out, &stock()).expect("written");
        let out = String::from_utf8(out).expect("text");
        assert_eq!(out.lines().next().map(|l| l.split(',').count()), Some(11));
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    /// Every argument has help.
    #[test]
    fn help() {
        let command = ProbesArgs::augment_args(clap::Command::new("probes"));
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{argument:?}");
        }
    }
}
