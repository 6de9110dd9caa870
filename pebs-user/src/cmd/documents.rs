//! `pebs-trace guide`, `man` and `completions`: what a package has besides the program, from the program itself.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::{Command as Process, ExitCode, Stdio};

use clap::{Args, Command};
use clap_complete::Shell;

use super::print_result;
use crate::failure::{Context as _, Failure, Result};
use crate::guide::{self, Page};

/// Options of `pebs-trace guide`.
#[derive(Clone, Debug, Args)]
pub struct GuideArgs {
    /// Print this page
    #[arg(value_name = "PAGE")]
    pub page: Option<String>,
}

/// Options of `pebs-trace man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Show the page of this command instead of that of recording
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub command: Option<String>,
    /// Write all pages to this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Options of `pebs-trace completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// Shell that reads them
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Prints a page of the guide, or the list of pages.
///
/// # Errors
/// There is no such page, or stdout can't be written.
pub fn guide(args: &GuideArgs) -> Result<ExitCode> {
    let text = match &args.page {
        Some(name) => page(name)?.text.to_owned(),
        None => {
            let line = |it: &Page| format!("{:<17} {}\n", it.name(), it.title());
            let list: String = guide::PAGES.iter().map(line).collect();
            format!("{list}\n'pebs-trace guide PAGE' prints one\n")
        }
    };
    print_result(&text, "guide")?;
    Ok(ExitCode::SUCCESS)
}

fn page(name: &str) -> Result<&'static Page> {
    let wanted = name.trim_end_matches(".md");
    if let Some(page) = guide::PAGES.iter().find(|it| it.name() == wanted) {
        return Ok(page);
    }
    let word = name.to_lowercase();
    let mentions = |it: &&Page| it.text.to_lowercase().contains(&word);
    let names = guide::PAGES.iter().filter(mentions).map(Page::name);
    let names: Vec<String> = names.collect();
    Err(Failure::new(
        format!("the guide has no page '{name}'"),
        match names.as_slice() {
            [] => "'pebs-trace guide' lists the pages".to_owned(),
            names => format!("pages that mention it: {}", names.join(", ")),
        },
    ))
}

/// Shows a man page: on a terminal as `man` does, else as it is; or writes all of them.
///
/// # Errors
/// There is no such command, or the pages can't be written.
pub fn man(args: &ManArgs, program: Command) -> Result<ExitCode> {
    if let Some(dir) = &args.dir {
        fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(program, dir))
            .with_context(|| format!("cannot write man pages to {}", dir.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    // As they are named in their pages: pebs-trace-report.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => {
            let all = with_names(&program);
            let found = all.iter().find(|(it, _)| it == name);
            found.map(|(_, it)| (*it).clone()).ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|(it, _)| it.as_str()).collect();
                Failure::new(
                    format!("there is no command '{name}'"),
                    format!("commands: {}", names.join(", ")),
                )
            })?
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    if io::stdout().is_terminal() {
        show(&page)?;
    } else {
        print_result(&String::from_utf8_lossy(&page), "man page")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every command by the name of its page: `report`, `agent-status`.
fn with_names(program: &Command) -> Vec<(String, &Command)> {
    let mut all = Vec::new();
    for command in program.get_subcommands().filter(|it| !it.is_hide_set()) {
        let name = command.get_name();
        all.push((name.to_owned(), command));
        let nested = command
            .get_subcommands()
            .filter(|it| it.get_name() != "help");
        all.extend(nested.map(|it| (format!("{name}-{}", it.get_name()), it)));
    }
    all
}

/// Has `man` show a page.
fn show(page: &[u8]) -> Result<()> {
    let started = Process::new("man")
        .args(["-l", "-"])
        .stdin(Stdio::piped())
        .spawn();
    let mut man = started.map_err(|error| {
        Failure::new(
            format!("cannot run man: {error}"),
            "'pebs-trace COMMAND --help' has the same text",
        )
    })?;
    if let Some(mut stdin) = man.stdin.take() {
        // A reader who has seen enough is no failure.
        let _ = stdin.write_all(page);
    }
    man.wait().context("cannot wait for man")?;
    Ok(())
}

/// Prints what a shell reads to complete commands and options.
///
/// # Errors
/// Stdout can't be written.
pub fn completions(args: &CompletionsArgs, mut program: Command) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "pebs-trace", &mut text);
    print_result(&String::from_utf8_lossy(&text), "completions")?;
    Ok(ExitCode::SUCCESS)
}
