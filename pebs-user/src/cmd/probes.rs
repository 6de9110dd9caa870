//! `pebs-trace probes BIN [PATTERN]`: lists the functions and USDT probes of a binary that can be probed.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{fetch_debug_files, values};
use crate::binary::elf::{Binary, with_libraries};
use crate::binary::locate::{locate, mapped_files};
use crate::binary::lookup::nearest;
use crate::cost::stepping;
use crate::failure::Result;
use crate::pmu::host::KernelVersion;
use crate::present::brief;
use crate::present::human::plural;
use crate::present::table::{Cell, Column, Table};
use crate::probe::ResolveError;
use crate::probe::survey::{Probeable, Survey, SurveyOn, matching, survey};
use crate::record::check_process;
use crate::store::run::EntryClass;
use crate::terminal::say;
use crate::terminal::{self, shown};
use crate::units::Pid;

/// Functions shown to people who did not say which.
const SHOWN_UNASKED: usize = 100;

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
    /// Symlinks are followed. A library's version can be left out. With -p not needed, else as that process sees it.
    /// Examples: ./server, redis-server, libc, libsqlite3.so.0.
    #[arg(value_name = "BIN", required_unless_present = "pid")]
    pub binary: Option<String>,

    /// Show only names that contain this text
    ///
    /// Case is ignored; '*' matches anything. Default: all names, in a table for people the first 100.
    #[arg(value_name = "PATTERN")]
    pub pattern: Option<String>,

    /// Search the program and all libraries that this process has mapped
    ///
    /// A single word is then the PATTERN.
    #[arg(short, long, value_name = "PID", value_parser = values::pid)]
    pub pid: Option<u32>,

    /// Output format
    ///
    /// json and csv hold all rows, with addresses in decimal; json is a list of binaries with -p and no BIN.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: ProbesFormat,

    /// Show what marks cost on this version of Linux, such as 6.12
    ///
    /// Default: the running kernel.
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub kernel: Option<String>,
}

impl ProbesArgs {
    /// BIN and PATTERN. With a process a single word is the pattern.
    fn words(&self) -> (Option<&str>, Option<&str>) {
        match (self.pid, &self.binary, &self.pattern) {
            (Some(_), word, None) => (None, word.as_deref()),
            (_, binary, pattern) => (binary.as_deref(), pattern.as_deref()),
        }
    }

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
/// A [`ResolveError`] if there is no such binary, no such process, or an I/O error of stdout.
pub fn run(args: &ProbesArgs) -> Result<ExitCode> {
    let (name, pattern) = args.words();
    let pid = args.pid.map(Pid);
    if let Some(pid) = pid {
        check_process(pid)?;
    }
    let limit = match (args.format, pattern) {
        (ProbesFormat::Text, None) => SHOWN_UNASKED,
        _ => usize::MAX,
    };
    let surveys = match (name, pid) {
        (None, Some(pid)) => of_process(pid, pattern, args.on(), limit),
        (name, _) => {
            let path = locate(name.unwrap_or_default(), pid).map_err(ResolveError::from)?;
            fetch_debug_files(|| vec![path.clone()]);
            let binary = Binary::open(&path).map_err(ResolveError::from)?;
            let survey = survey(&binary, pattern, args.on(), limit);
            if survey.is_empty() {
                explain_nothing(&binary, pattern);
            }
            vec![survey]
        }
    };
    if surveys.iter().all(Survey::is_empty) {
        return Ok(ExitCode::from(1));
    }
    let mut out = terminal::stdout();
    let written = match args.format {
        ProbesFormat::Text => {
            let width = io::stdout().is_terminal().then(terminal::width);
            text(&mut out, &surveys, width)
        }
        ProbesFormat::Json => match (name, surveys.as_slice()) {
            (Some(_), [survey]) => json(&mut out, survey),
            _ => json(&mut out, &surveys),
        },
        ProbesFormat::Csv => csv(&mut out, &surveys),
    };
    match written {
        // `| head` has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => other.map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}

/// The binaries with matches among all that the process has mapped.
fn of_process(pid: Pid, pattern: Option<&str>, on: SurveyOn<'_>, limit: usize) -> Vec<Survey> {
    let paths = mapped_files(pid);
    fetch_debug_files(|| paths.clone());
    let mut left = limit;
    let mut found = Vec::new();
    // A file that is no binary may be mapped as code, too.
    for binary in paths.iter().filter_map(|path| Binary::open(path).ok()) {
        let survey = survey(&binary, pattern, on, left);
        left -= survey.functions.len();
        if !survey.is_empty() {
            found.push(survey);
        }
    }
    if found.is_empty() {
        match pattern {
            Some(pattern) => {
                say!(
                    "no function that process {} has mapped matches '{pattern}'",
                    pid.0
                );
                say!(
                    "hint: a library that it has not loaded yet can be named: 'pebs-trace probes LIBRARY {pattern}'"
                );
            }
            None => say!("nothing can be probed in what process {} has mapped", pid.0),
        }
    }
    found
}

fn explain_nothing(binary: &Binary, pattern: Option<&str>) {
    let path = binary.path.display();
    let Some(pattern) = pattern else {
        return say!("nothing can be probed in {path}: no symbols, no .eh_frame, no USDT probes");
    };
    say!("no function of {path} matches '{pattern}'");
    let near = nearest(binary, pattern);
    if !near.is_empty() {
        return say!("hint: the nearest names are {}", near.join(", "));
    }
    let libraries = with_libraries(vec![binary.path.clone()]).skip(1);
    let having: Vec<String> = libraries
        .filter(|library| !matching(library, Some(pattern)).is_empty())
        .map(|library| library.path.display().to_string())
        .collect();
    match having.as_slice() {
        [] if binary.tables.is_stripped() => say!(
            "hint: it is stripped: without debug symbols most functions have no names; \
             'pebs-trace probes {path}' lists where they begin"
        ),
        [] => say!("hint: 'pebs-trace probes {path}' lists what can be probed"),
        [first, ..] => say!(
            "hint: libraries that it needs have such functions ({}): 'pebs-trace probes {first} {pattern}'",
            having.join(", ")
        ),
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

/// `width`: of the terminal; `None`: whole lines for a pipe.
fn text(out: &mut impl Write, surveys: &[Survey], width: Option<usize>) -> io::Result<()> {
    for (at, survey) in surveys.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        of_binary(out, survey, width)?;
    }
    if surveys.iter().any(|it| it.left_out > 0) {
        writeln!(out, "\ngive a PATTERN, part of a name; '*' lists all")?;
    }
    Ok(())
}

fn of_binary(out: &mut impl Write, survey: &Survey, width: Option<usize>) -> io::Result<()> {
    writeln!(out, "{}", shown(&survey.binary))?;
    writeln!(out, "returns by {}", shown(&survey.returns))?;
    for note in &survey.notes {
        writeln!(out, "{}", shown(note))?;
    }
    if !survey.functions.is_empty() {
        let mut table = Table::new([
            Column::names("function", 24),
            Column::words("address").rank(3),
            Column::names("entry", 12),
            Column::words("cost"),
            Column::names("instruction", 16).rank(4),
            Column::names("returns", 12).rank(1),
            Column::words("cost").rank(1),
            Column::names("arguments", 16).rank(2),
        ]);
        for row in &survey.functions {
            table.row(cells(row));
        }
        rows(out, &table, width)?;
    }
    if survey.left_out > 0 {
        let more = if survey.functions.is_empty() {
            "function"
        } else {
            "more function"
        };
        writeln!(out, "  … {}", plural(survey.left_out as u64, more))?;
    }
    if !survey.usdt.is_empty() {
        let mut table = Table::new([
            Column::names("USDT probe", 24),
            Column::number("places"),
            Column::words("semaphore").rank(1),
            Column::names("arguments", 16).rank(2),
        ]);
        for probe in &survey.usdt {
            table.row([
                text_cell(&probe.probe),
                probe.places.to_string().into(),
                yes(probe.semaphore).into(),
                text_cell(&probe.arguments),
            ]);
        }
        rows(out, &table, width)?;
    }
    Ok(())
}

fn rows(out: &mut impl Write, table: &Table, width: Option<usize>) -> io::Result<()> {
    let lines = match width {
        Some(width) => table.lines(width),
        None => table.unaligned(),
    };
    writeln!(out, "\n{}", lines.join("\n"))
}

const fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// The binary's words as a cell of the table.
fn text_cell(text: &str) -> Cell {
    shown(text).into_owned().into()
}

fn cells(row: &Probeable) -> [Cell; 8] {
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
    let name = row.function.clone();
    [
        Cell::fitted(move |width| brief::function(&name, width)),
        format!("{:#x}", row.address).into(),
        text_cell(&entry),
        row.entry.map_or("-", cost).into(),
        text_cell(row.instruction.as_deref().unwrap_or("-")),
        text_cell(&returns),
        row.end.map_or("-", cost).into(),
        text_cell(&arguments(row)),
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

fn json(out: &mut impl Write, found: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, found)?;
    writeln!(out)
}

fn csv(out: &mut impl Write, surveys: &[Survey]) -> io::Result<()> {
    writeln!(
        out,
        "function,address,size,entry,offset,instruction,refused,end,returns,unclear,arguments,binary"
    )?;
    for survey in surveys {
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
                survey.binary.clone(),
            ];
            writeln!(out, "{}", fields.map(|field| quoted(&field)).join(","))?;
        }
        for probe in &survey.usdt {
            let mut fields = [""; 12];
            fields[0] = &probe.probe;
            fields[10] = &probe.arguments;
            fields[11] = &survey.binary;
            writeln!(out, "{}", fields.map(quoted).join(","))?;
        }
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

    use clap::FromArgMatches as _;

    use super::*;

    fn stock() -> [Survey; 1] {
        let binary = Binary::open(Path::new("/usr/bin/redis-check-rdb")).expect("redis");
        let on = SurveyOn::Release("6.18");
        [survey(&binary, Some("processCommand"), on, usize::MAX)]
    }

    fn as_text(surveys: &[Survey], width: Option<usize>) -> String {
        let mut out = Vec::new();
        text(&mut out, surveys, width).expect("written");
        String::from_utf8(out).expect("text")
    }

    /// The table shows entry, cost and returns of a stock server's function.
    #[test]
    fn table() {
        let out = as_text(&stock(), Some(200));
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

    /// A name longer than the terminal is cut there, and whole in a pipe, where it does not widen other lines.
    #[test]
    fn long_names() {
        let [mut survey] = stock();
        let mut long = survey.functions[0].clone();
        long.function = "x".repeat(500);
        survey.functions.push(long);
        let surveys = [survey];
        let shown = as_text(&surveys, Some(80));
        let mut table = shown.lines().skip_while(|it| !it.starts_with("  function"));
        assert!(table.all(|it| it.chars().count() <= 80), "{shown}");
        let piped = as_text(&surveys, None);
        let mut lines = piped.lines().rev();
        assert!(lines.next().is_some_and(|it| it.len() > 500), "{piped}");
        assert!(lines.all(|it| it.len() < 300), "{piped}");
    }

    /// Functions beyond the limit are counted.
    #[test]
    fn limited() {
        let binary = Binary::open(Path::new("/usr/bin/redis-check-rdb")).expect("redis");
        let survey = survey(&binary, None, SurveyOn::Release("6.18"), 3);
        assert_eq!(survey.functions.len(), 3);
        let text = as_text(&[survey], None);
        assert!(
            text.contains(" more functions\n") && text.contains("PATTERN"),
            "{text}"
        );
    }

    /// With a process a single word is the pattern.
    #[test]
    fn words() {
        for (typed, expect) in [
            (&["p", "-p", "1", "read"][..], (None, Some("read"))),
            (&["p", "libc", "read", "-p1"], (Some("libc"), Some("read"))),
            (&["p", "libc"], (Some("libc"), None)),
            (&["p", "-p1"], (None, None)),
        ] {
            let command = ProbesArgs::augment_args(clap::Command::new("p"));
            let matches = command.try_get_matches_from(typed).expect("parses");
            let args = ProbesArgs::from_arg_matches(&matches).expect("parses");
            assert_eq!(args.words(), expect, "{typed:?}");
        }
    }

    /// JSON parses and CSV has as many fields in each line as in its head.
    #[test]
    fn for_programs() {
        let mut out = Vec::new();
        json(&mut out, &stock()[0]).expect("written");
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(value["functions"][0]["function"], "processCommand");
        let mut out = Vec::new();
        csv(&mut out, &stock()).expect("written");
        let out = String::from_utf8(out).expect("text");
        assert_eq!(out.lines().next().map(|l| l.split(',').count()), Some(12));
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
