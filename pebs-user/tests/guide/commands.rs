//! Commands and options of the README and the guide, given to the parser of the command line.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use pebs_user::cli::{self, Cli, Cmd};
use pebs_user::pmu::event::EventSpec;
use pebs_user::spec::Spec;

use super::markdown::{self, Command};
use super::pages;

/// Options of other programs that the texts name.
const FOREIGN: [&str; 7] = [
    "--switch-events",
    "--sample-cpu",
    "--pid=host",
    "--privileged",
    "--cap-drop=all",
    "--security-opt",
    "--per-thread",
];

/// Describes the fault of a command of `pebs-trace`; `partial`: missing arguments are not a fault.
fn fault(command: &Command, partial: bool) -> Option<String> {
    let words = cli::in_order(command.words.iter().map(OsString::from));
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) if partial && error.kind() == ErrorKind::MissingRequiredArgument => return None,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => return None,
        Err(error) => return Some(error.to_string()),
    };
    let (specs, events) = match &cli.command {
        None => (
            [&cli.record.uprobes[..], &cli.record.resumes].concat(),
            cli.record.events.clone(),
        ),
        Some(Cmd::Plan(args)) => (args.uprobes.clone(), vec![args.event.clone()]),
        Some(_) => (Vec::new(), Vec::new()),
    };
    let specs = specs
        .iter()
        .filter_map(|spec| Some(Spec::parse(spec).err()?.to_string()));
    let events = events
        .iter()
        .filter_map(|event| Some(format!("{event}: {}", event.parse::<EventSpec>().err()?)));
    specs.chain(events).next()
}

/// Every `pebs-trace` command in an `sh` block has existing options, valid values, and SPECs and events that parse.
#[test]
fn blocks_parse() {
    let (mut seen, mut faults) = (0, Vec::new());
    for page in pages() {
        for block in markdown::blocks(&page.text) {
            if block.info != "sh" && !block.info.starts_with("sh ") {
                continue;
            }
            for command in markdown::commands(&block.text) {
                if command.runs("pebs-trace") {
                    seen += 1;
                    let fault = fault(&command, false);
                    faults
                        .extend(fault.map(|fault| format!("{}: {command:?}: {fault}", page.name)));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 60, "{seen} commands only");
}

/// The same for every command within a sentence, such as `explain --item 4711` or `pebs-trace events`.
#[test]
fn spans_parse() {
    let cli = Cli::command();
    let subcommands: BTreeSet<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    let (mut seen, mut faults) = (0, Vec::new());
    for page in pages() {
        for span in markdown::spans(&page.text) {
            let first = span.split(' ').next().unwrap_or_default();
            let script = match first {
                "pebs-trace" => span.replace("SUBCOMMAND", "report").replace("SPEC", "x:f"),
                _ if subcommands.contains(first) && span.contains(' ') => {
                    format!("pebs-trace {span}")
                }
                _ => continue,
            };
            for command in markdown::commands(&script) {
                seen += 1;
                let fault = fault(&command, true);
                faults.extend(fault.map(|fault| format!("{}: `{span}`: {fault}", page.name)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 10, "{seen} commands only");
}

/// Every option named by itself is an option of the recording or of a subcommand.
#[test]
fn options_exist() {
    let cli = Cli::command();
    let nested = cli
        .get_subcommands()
        .flat_map(clap::Command::get_subcommands);
    let commands = std::iter::once(&cli).chain(cli.get_subcommands());
    let known: BTreeSet<String> = commands
        .chain(nested)
        .flat_map(clap::Command::get_arguments)
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
        .chain(["--help".to_owned(), "--version".to_owned()])
        .collect();
    let mut faults = Vec::new();
    for page in pages() {
        for span in markdown::spans(&page.text) {
            let option = span.split(' ').next().unwrap_or_default();
            if option.starts_with("--") && !known.contains(option) && !FOREIGN.contains(&option) {
                faults.push(format!("{}: `{span}`", page.name));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The README's table has each subcommand, and nothing else.
#[test]
fn readme_lists_subcommands() {
    let readme = &pages()[0].text;
    let table = readme.split("| command | does |\n").nth(1).unwrap();
    let lines = table.lines().take_while(|line| line.starts_with('|'));
    let first = lines.filter_map(|line| line.split('|').nth(1));
    let shown = first.flat_map(|column| column.split('`').skip(1).step_by(2));
    // The line for recording shows a command, as it has no subcommand.
    let shown: BTreeSet<&str> = shown.filter(|name| !name.contains(' ')).collect();
    let cli = Cli::command();
    let listed = cli.get_subcommands().filter(|it| !it.is_hide_set());
    let listed: BTreeSet<&str> = listed.map(clap::Command::get_name).collect();
    assert_eq!(shown, listed);
}

/// Quotes, continued lines, comments, assignments, pipes and substitutions are parsed like in a shell.
#[test]
fn shell_words() {
    let script = "sudo A=b pebs-trace -u 'x:f(id=arg1)' \\\n    -p $(pgrep -f 'x') > out  # why\nfirst 'a b' && second | third &\n(for i in $(seq 3); do a; done)";
    let commands: Vec<Vec<String>> = markdown::commands(script)
        .into_iter()
        .map(|it| it.words)
        .collect();
    let expected: [&[&str]; 7] = [
        &["pebs-trace", "-u", "x:f(id=arg1)", "-p", "1234"],
        &["first", "a b"],
        &["second"],
        &["third"],
        &["for", "i", "in", "1234"],
        &["do", "a"],
        &["done"],
    ];
    assert_eq!(commands, expected);
}
