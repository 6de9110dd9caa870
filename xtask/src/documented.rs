//! The commands of cargo that README, guide, the page on how to work and measurements show: tasks, tests and benchmarks that exist.

#[path = "../../pebs-user/tests/guide/markdown.rs"]
mod markdown;

use std::fs;
use std::path::Path;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::test::area;
use crate::{Cli, Task, shell};

/// Other commands of cargo that may be shown: their misspelling would fail anyway.
const OTHERS: [&str; 5] = ["build", "check", "doc", "install", "publish"];

/// The fault of a command; `None` if it is valid.
fn fault(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [_, "xtask", ..] => {
            let words = [&["cargo xtask"], &words[2..]].concat();
            match Cli::try_parse_from(words) {
                Ok(Cli {
                    task: Task::Test(args),
                }) => no_area(args.areas()),
                Ok(_) => None,
                Err(error) => (error.kind() != ErrorKind::DisplayHelp).then(|| error.to_string()),
            }
        }
        [_, "test", ..] | [_, "bench", ..] => {
            let after = |option| {
                let at = words.iter().position(|word| *word == option)?;
                words.get(at + 1).copied()
            };
            let file = match after("-p") {
                Some("pebs-tests") => format!("tests/tests/{}.rs", after("--test")?),
                Some("pebs-trace") if words[1] == "bench" => {
                    format!("pebs-user/benches/{}/main.rs", after("--bench")?)
                }
                Some("pebs-trace") => format!("pebs-user/tests/{}/main.rs", after("--test")?),
                Some("pebs-mine") => format!("pebs-user/mine/tests/{}.rs", after("--test")?),
                _ => return Some("of which package?".to_owned()),
            };
            let path = shell::workspace().join(&file);
            if !path.is_file() {
                return Some(format!("no {file}"));
            }
            let filter = after("--").filter(|it| words[1] == "test" && !it.starts_with('-'))?;
            (!has(&path, filter)).then(|| format!("no test '{filter}' in {file}"))
        }
        [_, "run", "-p", "pebs-selfcount", "--example", name, ..] => {
            let file = format!("pebs-user/selfcount/examples/{name}.rs");
            (!shell::workspace().join(&file).is_file()).then(|| format!("no {file}"))
        }
        [_, other, ..] if OTHERS.contains(&other) => None,
        _ => Some("not known".to_owned()),
    }
}

/// The fault of areas to test, unless they exist. Capitals stand for any.
fn no_area(names: &[String]) -> Option<String> {
    let areas = area::all().ok()?;
    let name = names
        .iter()
        .find(|name| **name != name.to_uppercase() && !areas.contains_key(*name))?;
    Some(format!("no area '{name}'"))
}

/// Whether the file or one of its modules has a test with such a name, or is named so.
fn has(file: &Path, filter: &str) -> bool {
    let mut files = vec![file.to_owned()];
    if let Ok(modules) = fs::read_dir(file.with_extension("")) {
        files.extend(modules.flatten().map(|entry| entry.path()));
    }
    let filter = filter.rsplit("::").next().unwrap_or(filter);
    files.iter().any(|file| {
        let is_named = file
            .file_stem()
            .is_some_and(|stem| stem.to_string_lossy().contains(filter));
        let text = fs::read_to_string(file).unwrap_or_default();
        let mut names = text
            .split("fn ")
            .skip(1)
            .filter_map(|rest| rest.split('(').next());
        is_named || names.any(|name| name.contains(filter))
    })
}

/// All commands in blocks and in sentences are known.
#[test]
fn commands_of_cargo() {
    let mut pages = markdown::pages(shell::workspace()).unwrap();
    for name in ["tests/measurements.md", "tests/papers/README.md"].map(str::to_owned) {
        let text = fs::read_to_string(shell::workspace().join(&name)).unwrap();
        pages.push(markdown::Page { name, text });
    }
    let (mut seen, mut faults) = (0, Vec::new());
    for page in &pages {
        let blocks = markdown::blocks(&page.text).into_iter();
        let blocks = blocks
            .filter(|block| block.info == "sh")
            .map(|block| block.text);
        let spans = markdown::spans(&page.text).into_iter();
        let spans = spans.filter(|span| span.starts_with("cargo "));
        for command in blocks
            .chain(spans)
            .flat_map(|script| markdown::commands(&script))
        {
            if command.runs("cargo") {
                seen += 1;
                let fault = fault(&command.words);
                faults.extend(fault.map(|fault| format!("{}: {command:?}: {fault}", page.name)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 20, "{seen} commands only");
}
